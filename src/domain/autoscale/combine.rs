//! The join of the two lanes, and what may overrule both: a pause, a hold, the bounds.

use std::cmp::Ordering;

use super::floor::Floor;
use super::history::History;
use super::{Limit, Step};
use crate::domain::Replicas;
use crate::domain::hpa::{ConditionKind, ConditionReason, Pass, Verdict};

/// One count from two lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) struct Joined {
    /// After the stabilization windows.
    pub(in crate::domain) stabilized: Replicas,
    /// After the scaling policies.
    pub(in crate::domain) limited: Replicas,
    /// The result.
    pub(in crate::domain) desired: Replicas,
    /// What changed it last.
    pub(in crate::domain) limit: Option<Limit>,
    /// Whether the floor lane gave it.
    pub(in crate::domain) from_floor: bool,
}

impl Joined {
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
}

impl Step<'_> {
    /// The larger lane, unless the workload is paused, nothing asks, or history was lost.
    pub(super) fn join(&self, pass: Option<&Pass>, floor: &Floor, history: &History) -> Joined {
        let current = self.current();
        if self.crossed() {
            return Joined::flat(current, Some(Limit::InvalidBounds));
        }
        if self.paused(history) {
            return Joined::flat(Replicas::ZERO, Some(Limit::Paused));
        }
        let joined = match pass {
            Some(pass) => self.larger(pass, floor),
            None if floor.raw.is_none() => self.unasked(),
            None => self.without_metrics(floor, history),
        };
        let lowers = joined.desired < current && current <= self.bounds().max;
        if lowers && history.holds(self.now) {
            Joined {
                desired: current,
                limit: Some(Limit::HistoryLost),
                ..joined
            }
        } else {
            joined
        }
    }

    /// The larger of the two lanes; the observed one if they agree.
    fn larger(&self, pass: &Pass, floor: &Floor) -> Joined {
        let observed = self.observed_lane(pass);
        let floored = Self::floor_lane(floor);
        let leader = if floored.desired > observed.desired {
            floored
        } else {
            observed
        };
        Joined {
            stabilized: observed.stabilized.max(floored.stabilized),
            limited: observed.limited.max(floored.limited),
            ..leader
        }
    }

    fn observed_lane(&self, pass: &Pass) -> Joined {
        let stabilized = match pass.verdict {
            Verdict::Computed { .. } => pass.stabilized.unwrap_or(pass.desired),
            Verdict::AboveMax => return Joined::flat(pass.desired, Some(Limit::TooManyReplicas)),
            Verdict::BelowMin => return Joined::flat(pass.desired, Some(Limit::TooFewReplicas)),
            Verdict::Disabled => return Joined::flat(pass.desired, Some(Limit::Paused)),
            Verdict::Unavailable { .. } | Verdict::Selector(_) | Verdict::NoScale(_) => {
                return Joined::flat(self.current(), Some(Limit::MetricUnavailable));
            }
        };
        let desired = pass.desired;
        let limit = match pass.recommended {
            _ if desired != stabilized => limited_by(pass),
            Some(recommended) if stabilized > recommended => Some(Limit::ScaleDownStabilized),
            Some(recommended) if stabilized < recommended => Some(Limit::ScaleUpStabilized),
            _ => None,
        };
        Joined {
            stabilized,
            limited: desired,
            desired,
            limit,
            from_floor: false,
        }
    }

    fn floor_lane(floor: &Floor) -> Joined {
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
        Joined {
            stabilized: held,
            limited,
            desired,
            limit,
            from_floor: true,
        }
    }

    /// Nothing but cron windows, and none is open: the count stays where it is, within the bounds.
    fn unasked(&self) -> Joined {
        let current = self.current();
        let desired = self.bounds().clamp(current);
        let (up, down) = (Limit::TooFewReplicas, Limit::TooManyReplicas);
        let limit = by_comparing(desired, current, up, down).unwrap_or(Limit::NoActiveWindow);
        Joined {
            desired,
            ..Joined::flat(current, Some(limit))
        }
    }

    /// The floor alone, as slow downwards as the user wrote.
    fn without_metrics(&self, floor: &Floor, history: &History) -> Joined {
        let joined = Self::floor_lane(floor);
        let current = self.current();
        let lowers = joined.desired < current && current <= self.bounds().max;
        match self.behavior().filter(|_| lowers) {
            Some(behavior) => {
                let limit = behavior
                    .down_limit(current, &history.log, self.now)
                    .min(current);
                if limit <= joined.desired {
                    return joined;
                }
                let limited = joined.limited.max(limit);
                Joined {
                    limited,
                    desired: limit,
                    limit: Some(Limit::ScaleDownLimit),
                    ..joined
                }
            }
            None => joined,
        }
    }
}

/// The bound or rate limit that changed the observed lane's count.
fn limited_by(pass: &Pass) -> Option<Limit> {
    match pass.conditions.get(ConditionKind::ScalingLimited)?.reason {
        ConditionReason::TooManyReplicas => Some(Limit::TooManyReplicas),
        ConditionReason::ScaleUpLimit => Some(Limit::ScaleUpLimit),
        ConditionReason::ScaleDownLimit => Some(Limit::ScaleDownLimit),
        _ => Some(Limit::TooFewReplicas),
    }
}

/// Which limit turned `before` into `after`, if they differ.
fn by_comparing(after: Replicas, before: Replicas, raised: Limit, lowered: Limit) -> Option<Limit> {
    match after.cmp(&before) {
        Ordering::Greater => Some(raised),
        Ordering::Less => Some(lowered),
        Ordering::Equal => None,
    }
}
