//! The bounds under which the child autoscaler arrives at the same count by itself.
//!
//! The child reads no metrics in a pass in which the count is below its `minReplicas`, and forgets
//! that reading for good. So its minimum stays at or below the current count wherever the child gets
//! to `desired` on its own, and is `desired` only where it would not. A minimum that is too high but
//! harmless stays as it is: every write is one that changes a count.

use jiff::SignedDuration;

use super::combine::Joined;
use super::floor::Floor;
use super::history::History;
use super::{Child, Step};
use crate::domain::hpa::{self, Log, Pass, normalise};
use crate::domain::{ReplicaBounds, Replicas};

/// How long after us the child may have its next pass.
pub(super) const SYNC_PERIOD: SignedDuration = SignedDuration::from_secs(15);

/// What is made of the child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shaping {
    /// The bounds it shall have.
    pub(super) bounds: ReplicaBounds,
    /// What it is expected to answer under the bounds it has.
    pub(super) expected: Option<Replicas>,
    /// What it is left to reach by itself, if that is above the count.
    pub(super) awaited: Option<Replicas>,
}

impl Step<'_> {
    /// The child's next bounds, and the answer expected under its present ones.
    ///
    /// ```text
    /// b    = max(min, min(floor, current))
    /// need = b if child(b) >= desired else desired
    /// need > m                                        -> need
    /// need < m, and desired < m or current < m, no hold -> need
    /// else                                            -> m, but never above max
    /// ```
    ///
    /// During a hold `b` is the current count: what the child has read is as lost as the rest. And a
    /// child that was left to reach a count and did not move for a whole period of its own has read
    /// less than is known here; it is waited for no longer.
    ///
    /// A minimum above the current count would blind the child for nothing: somebody scaled down by
    /// hand after it was reached.
    pub(super) fn shape(
        &self,
        pass: Option<&Pass>,
        floor: &Floor,
        joined: &Joined,
        history: &History,
    ) -> Shaping {
        let bounds = self.bounds();
        let (Some(pass), true, false) = (pass, self.delegates(), self.crossed()) else {
            return Shaping {
                bounds,
                expected: None,
                awaited: None,
            };
        };
        let mirror = history.log.mirror();
        let answer = |min, max| self.answer(ReplicaBounds { min, max }, pass, &mirror);
        let low = if history.holds(self.now) {
            bounds.clamp(self.current())
        } else {
            bounds.min.max(floor.floor.min(self.current()))
        };
        let can = answer(low, bounds.max).is_some_and(|count| count >= joined.desired);
        let gets_there = can && !history.waits_in_vain(SYNC_PERIOD, self.now);
        let need = if gets_there {
            low
        } else {
            joined.desired.max(bounds.min)
        };
        let min = self.seen.child.map_or(need, |Child { min, .. }| {
            let binds = joined.desired < min || self.current() < min;
            let may_lower = binds && !history.holds(self.now);
            if need > min || (need < min && may_lower) {
                need
            } else {
                min.min(bounds.max)
            }
        });
        let expected = self
            .seen
            .child
            .and_then(|child| answer(child.min, child.max));
        Shaping {
            bounds: ReplicaBounds {
                min,
                max: bounds.max,
            },
            expected,
            awaited: (can && joined.desired > self.current()).then_some(joined.desired),
        }
    }

    /// What the child answers to this reading under `bounds`; `None` if the reading was not computed.
    fn answer(&self, bounds: ReplicaBounds, pass: &Pass, mirror: &Log) -> Option<Replicas> {
        let current = self.current();
        if current == Replicas::ZERO {
            return Some(Replicas::ZERO);
        }
        if !bounds.contains(current) {
            return Some(bounds.clamp(current));
        }
        if !self.bounds().contains(current) {
            return None;
        }
        let Some(recommended) = pass.recommended else {
            return Some(current);
        };
        let step = hpa::Step {
            current,
            recommended,
        };
        let spec = self.workload.hpa(bounds);
        Some(normalise(&spec, step, mirror.clone(), self.settings, self.now).desired)
    }
}
