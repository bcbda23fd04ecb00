//! The two lanes combined into one count, and the rules that override both: a pause, a hold, the bounds.

use std::cmp::Ordering;

use super::context::Context;
use super::floor::Floor;
use super::history::History;
use super::limit::Limit;
use crate::Replicas;
use crate::hpa::{ConditionReason, Reconciliation, Verdict};

/// One count from the two lanes, stage by stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Combined {
    /// The count after the stabilization windows.
    pub(super) stabilized: Replicas,
    /// The count after the scaling policies.
    pub(super) limited: Replicas,
    /// The result.
    pub(super) desired: Replicas,
    /// The limit that changed the count last.
    pub(super) limit: Option<Limit>,
    /// True if the result comes from the floor lane.
    pub(super) from_floor: bool,
}

impl Combined {
    /// The same count at every stage.
    fn flat(count: Replicas, limit: Option<Limit>) -> Self {
        Self {
            stabilized: count,
            limited: count,
            desired: count,
            limit,
            from_floor: false,
        }
    }

    /// The limit that made the result differ from the largest proposal; without a proposal, the reason why the count
    /// stays. A limit that changed nothing is left out, unless it is a pause or invalid bounds.
    pub(super) fn limit_after(&self, largest: Option<Replicas>) -> Option<Limit> {
        let steps = [self.stabilized, self.limited, self.desired];
        let is_same = largest.is_some_and(|largest| steps.iter().all(|step| *step == largest));
        let always = matches!(self.limit, Some(Limit::Paused | Limit::InvalidBounds));
        self.limit.filter(|_| always || !is_same)
    }
}

impl Context<'_> {
    /// The larger lane, unless the workload is paused, nothing proposes a count, or the history was lost.
    pub(super) fn combine(
        &self,
        observed: Option<&Reconciliation>,
        floor: &Floor,
        history: &History,
    ) -> Combined {
        let current = self.current();
        if self.crossed() {
            return Combined::flat(current, Some(Limit::InvalidBounds));
        }
        if self.paused(history) {
            return Combined::flat(Replicas::ZERO, Some(Limit::Paused));
        }
        let combined = match observed {
            Some(observed) => self.larger(observed, floor),
            None if floor.raw.is_none() => self.without_proposals(),
            None => self.without_metrics(floor, history),
        };
        // A count above `maxReplicas` is lowered all the same.
        let lowers = combined.desired < current && current <= self.bounds().max;
        // In mode Metric a hold would not keep the child from scaling down.
        if lowers && history.holds(self.now) && !self.course.publishes {
            Combined {
                desired: current,
                limit: Some(Limit::HistoryLost),
                ..combined
            }
        } else {
            combined
        }
    }

    /// The larger of the two lanes; the observed one if they agree.
    fn larger(&self, observed: &Reconciliation, floor: &Floor) -> Combined {
        let observed = self.observed_lane(observed);
        let floored = Self::floor_lane(floor);
        let leader = if floored.desired > observed.desired {
            floored
        } else {
            observed
        };
        Combined {
            stabilized: observed.stabilized.max(floored.stabilized),
            limited: observed.limited.max(floored.limited),
            ..leader
        }
    }

    fn observed_lane(&self, observed: &Reconciliation) -> Combined {
        let stabilized = match observed.verdict {
            Verdict::Computed { .. } => observed.stabilized.unwrap_or(observed.desired),
            Verdict::AboveMax => {
                return Combined::flat(observed.desired, Some(Limit::TooManyReplicas));
            }
            Verdict::BelowMin => {
                return Combined::flat(observed.desired, Some(Limit::TooFewReplicas));
            }
            // `minReplicas` is 0 here, or this would be a pause: a floor above zero still starts pods.
            Verdict::Disabled => return Combined::flat(observed.desired, Some(Limit::Paused)),
            Verdict::Unavailable { .. } => {
                return Combined::flat(self.current(), Some(Limit::MetricUnavailable));
            }
        };
        let desired = observed.desired;
        let limit = match observed.recommended {
            _ if desired != stabilized => limited_by(observed),
            Some(recommended) if stabilized > recommended => Some(Limit::ScaleDownStabilized),
            Some(recommended) if stabilized < recommended => Some(Limit::ScaleUpStabilized),
            _ => None,
        };
        Combined {
            stabilized,
            limited: desired,
            desired,
            limit,
            from_floor: false,
        }
    }

    fn floor_lane(floor: &Floor) -> Combined {
        let raw = floor.raw.unwrap_or_default();
        let held = floor.held.unwrap_or_default();
        let limited = floor.limited.unwrap_or_default();
        let desired = floor.floor;
        let clamped = by_comparing(
            desired,
            limited,
            Limit::TooFewReplicas,
            Limit::TooManyReplicas,
        );
        let slowed = (limited < held).then_some(Limit::ScaleUpLimit);
        let (up, down) = (Limit::ScaleDownStabilized, Limit::ScaleUpStabilized);
        let limit = clamped.or(slowed).or(by_comparing(held, raw, up, down));
        Combined {
            stabilized: held,
            limited,
            desired,
            limit,
            from_floor: true,
        }
    }

    /// The result while only cron windows are configured and none is open: the current count, within the bounds.
    fn without_proposals(&self) -> Combined {
        let current = self.current();
        let desired = self.bounds().clamp(current);
        let (up, down) = (Limit::TooFewReplicas, Limit::TooManyReplicas);
        let limit = by_comparing(desired, current, up, down).unwrap_or(Limit::NoActiveWindow);
        Combined {
            desired,
            ..Combined::flat(current, Some(limit))
        }
    }

    /// The floor alone. Without an observed lane, which otherwise slows a scale-down, the policies apply here.
    fn without_metrics(&self, floor: &Floor, history: &History) -> Combined {
        let combined = Self::floor_lane(floor);
        let current = self.current();
        // As in the observed lane, a count above `maxReplicas` is lowered at once.
        let lowers = combined.desired < current && current <= self.bounds().max;
        match self.behavior().filter(|_| lowers) {
            Some(behavior) => {
                let limit = behavior
                    .down_limit(current, &history.log, self.now)
                    .min(current);
                if limit <= combined.desired {
                    return combined;
                }
                let limited = combined.limited.max(limit);
                Combined {
                    limited,
                    desired: limit,
                    limit: Some(Limit::ScaleDownLimit),
                    ..combined
                }
            }
            None => combined,
        }
    }
}

/// The bound or rate limit that changed the observed lane's count.
fn limited_by(observed: &Reconciliation) -> Option<Limit> {
    match observed.scaling_limited? {
        ConditionReason::TooManyReplicas => Some(Limit::TooManyReplicas),
        ConditionReason::ScaleUpLimit => Some(Limit::ScaleUpLimit),
        ConditionReason::ScaleDownLimit => Some(Limit::ScaleDownLimit),
        // Also for `DesiredWithinRange`: a count that leaves zero is raised to the minimum after the limits.
        _ => Some(Limit::TooFewReplicas),
    }
}

/// The limit that changed `before` to `after`, if they differ.
fn by_comparing(after: Replicas, before: Replicas, raised: Limit, lowered: Limit) -> Option<Limit> {
    match after.cmp(&before) {
        Ordering::Greater => Some(raised),
        Ordering::Less => Some(lowered),
        Ordering::Equal => None,
    }
}
