//! The bounds under which the child HPA reaches the desired count by itself.
//!
//! An HPA reads no metrics while the count is below its `minReplicas`, and that reading is missing from its
//! stabilization window for good. So the child's minimum stays at or below the current count wherever the child
//! reaches `desired` on its own, and is raised to `desired` only where it would not. A minimum that is too high but
//! has no effect is left alone, so that every write changes a count.

use jiff::SignedDuration;

use super::combine::Combined;
use super::context::{Child, Context};
use super::floor::Floor;
use super::history::History;
use crate::hpa::{self, Log, Reconciliation, normalize};
use crate::{ReplicaBounds, Replicas};

/// Longest time from a decision to the next reconciliation of the child HPA: the default of
/// `--horizontal-pod-autoscaler-sync-period`.
pub(super) const SYNC_PERIOD: SignedDuration = SignedDuration::from_secs(15);

/// Bounds for the child HPA, and the counts that it is expected to reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChildDecision {
    /// Next bounds of the child.
    pub(super) bounds: ReplicaBounds,
    /// Count that the child is expected to reach under its present bounds.
    pub(super) expected: Option<Replicas>,
    /// Count that the child is left to reach by itself, if that is above the current one.
    pub(super) pending: Option<Replicas>,
}

impl Context<'_> {
    /// The child's next bounds, and the count expected under its present ones.
    ///
    /// First, which minimum the child needs:
    ///
    /// - `lowest = max(minReplicas, min(floor, current))`, if the child reaches `desired` by itself with it. During a
    ///   hold `lowest` is the current count within the bounds, because what the child has read is unknown too.
    /// - Else `desired`. The same holds for a child that was left to reach a count and did not move for a whole sync
    ///   period: it has read other values than this decision.
    ///
    /// Then, which minimum it gets:
    ///
    /// | the needed minimum is | the child gets |
    /// |---|---|
    /// | above its present one | the needed one |
    /// | below it, which is above `desired` or the current count, and there is no hold | the needed one |
    /// | anything else | its present one, at most `maxReplicas` |
    ///
    /// A present minimum above the current count is one that was reached before a user scaled down. It would keep the
    /// child from reading metrics, so it is lowered.
    pub(super) fn child_hpa(
        &self,
        observed: Option<&Reconciliation>,
        floor: &Floor,
        combined: &Combined,
        history: &History,
    ) -> ChildDecision {
        let bounds = self.bounds();
        let (Some(observed), Some(_), false) = (observed, history.child, self.crossed()) else {
            return ChildDecision {
                bounds,
                expected: None,
                pending: None,
            };
        };
        let mirror = history.log.mirror();
        let child = self.inputs.child;
        let expected = child.and_then(|Child { min, max, .. }| {
            self.expect_child(ReplicaBounds { min, max }, observed, &mirror)
        });
        if self.course.publishes {
            // The child reads the sources of a floor as metrics, so its minimum is the user's.
            return ChildDecision {
                bounds,
                expected,
                pending: None,
            };
        }
        let lowest = if history.holds(self.now) {
            bounds.clamp(self.current())
        } else {
            bounds.min.max(floor.floor.min(self.current()))
        };
        let with_lowest = ReplicaBounds::new(lowest, bounds.max);
        let reached = self.expect_child(with_lowest, observed, &mirror);
        let can_reach = reached.is_some_and(|count| count >= combined.desired);
        let needed = if can_reach && !history.child_is_stuck(SYNC_PERIOD, self.now) {
            lowest
        } else {
            combined.desired.max(bounds.min)
        };
        let min = child.map_or(needed, |Child { min, .. }| {
            let binds = combined.desired < min || self.current() < min;
            // A minimum without effect is not lowered: it would be a write that changes no count.
            let may_lower = binds && !history.holds(self.now);
            if needed > min || (needed < min && may_lower) {
                needed
            } else {
                min.min(bounds.max)
            }
        });
        ChildDecision {
            bounds: ReplicaBounds::new(min, bounds.max),
            expected,
            pending: (can_reach && combined.desired > self.current()).then_some(combined.desired),
        }
    }

    /// The count the child reaches from this reading under `bounds`; `None` if the reading was not computed.
    fn expect_child(
        &self,
        bounds: ReplicaBounds,
        observed: &Reconciliation,
        mirror: &Log,
    ) -> Option<Replicas> {
        let current = self.current();
        // An HPA does not act on a target with zero replicas.
        if current == Replicas::ZERO {
            return Some(Replicas::ZERO);
        }
        if !bounds.contains(current) {
            // Outside its bounds an HPA moves to the bound without reading metrics.
            return Some(bounds.clamp(current));
        }
        // Outside the user's bounds the observed lane was not computed, so there is nothing to expect from the child.
        if !self.bounds().contains(current) {
            return None;
        }
        let Some(recommended) = observed.recommended else {
            return Some(current);
        };
        let step = hpa::Step {
            current,
            recommended,
        };
        let spec = self.workload.hpa(bounds);
        Some(normalize(&spec, step, mirror.clone(), self.settings, self.now).desired)
    }
}
