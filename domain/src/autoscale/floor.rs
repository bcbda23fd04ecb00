//! The floor lane: the largest proposal of forecast and cron, held, limited and clamped to one count.
//!
//! ```text
//! raw = max(forecast, open cron window) -> held over the scale-down window
//!     -> not above the lowest of an explicit scale-up window -> explicit scale-up policies -> bounds
//! ```
//!
//! Only an explicit `behavior.scaleUp` delays a floor; the API's defaults never do. Scale-down policies are
//! applied by the observed lane, or by `combine` for a workload without metrics.

use jiff::{SignedDuration, Timestamp};

use super::history::History;
use crate::hpa::{Behavior, Direction, Log, PolicySelect, StabilizationWindows};
use crate::{ReplicaBounds, Replicas};

/// The floor lane's numbers, from the sources to the floor.
///
/// Each field is the one before it after one more step: `raw`, `held`, `limited`, `floor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The largest proposal of forecast and cron now; `None` if there is none.
    pub raw: Option<Replicas>,
    /// The value after the stabilization windows; `None` if nothing was proposed within them.
    pub held: Option<Replicas>,
    /// The value after explicit scale-up policies.
    pub limited: Option<Replicas>,
    /// The value after the bounds; without any proposal, the minimum.
    pub floor: Replicas,
}

/// Inputs of the computation of a floor, apart from the proposals.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloorContext<'a> {
    /// The user's bounds.
    pub(super) bounds: ReplicaBounds,
    /// The user's behavior.
    pub(super) behavior: Option<&'a Behavior>,
    /// The stabilization windows in force.
    pub(super) windows: StabilizationWindows,
    /// The count now.
    pub(super) current: Replicas,
    /// Delay until the floor may be acted on: past scale-downs that leave their policy period by then do not count.
    pub(super) slack: SignedDuration,
}

impl FloorContext<'_> {
    /// The floor at `now`; `raw` is the largest proposal.
    pub(super) fn floor(&self, raw: Option<Replicas>, history: &History, now: Timestamp) -> Floor {
        let held = self.held(raw, history, now);
        let limited = held.map(|held| self.limited(held, &history.log, now));
        let floor = limited.map_or(self.bounds.min, |limited| self.bounds.clamp(limited));
        Floor {
            raw,
            held,
            limited,
            floor,
        }
    }

    fn held(&self, raw: Option<Replicas>, history: &History, now: Timestamp) -> Option<Replicas> {
        let proposed = raw.unwrap_or_default();
        let down = self
            .past(self.windows.down, history, now)
            .fold(proposed, Replicas::max);
        if raw.is_none() && down == Replicas::ZERO {
            return None;
        }
        if self.behavior.is_none() {
            return Some(down);
        }
        let up = self
            .past(self.windows.up, history, now)
            .fold(proposed, Replicas::min);
        // The scale-up window delays a rise; it never takes away replicas that are there.
        Some(down.min(up.max(self.current)))
    }

    /// The raw values of a history within a window.
    fn past(
        &self,
        window: SignedDuration,
        history: &History,
        now: Timestamp,
    ) -> impl Iterator<Item = Replicas> {
        history
            .floors
            .iter()
            .filter(move |floor| self.windows.reaches(window, floor.at, now))
            .map(|floor| floor.raw)
    }

    fn limited(&self, held: Replicas, log: &Log, now: Timestamp) -> Replicas {
        let explicit = self.behavior.filter(|behavior| limits_scale_up(behavior));
        match explicit.filter(|_| held > self.current) {
            Some(behavior) => {
                let limit = behavior.up_limit(self.current, &self.aged(log), now);
                held.min(limit.max(self.current))
            }
            None => held,
        }
    }

    /// The log with its scale-downs older by the slack. Fewer of them count, so a limit computed now
    /// still holds when it is acted on.
    fn aged(&self, log: &Log) -> Log {
        let mut log = log.clone();
        for event in &mut log.scale_down {
            event.at = event.at.checked_sub(self.slack).unwrap_or(event.at);
        }
        log
    }
}

/// Returns true if the user limits the speed of scale-ups.
fn limits_scale_up(behavior: &Behavior) -> bool {
    let rules = behavior.rules(Direction::Up);
    rules.policies.is_some() || rules.select == Some(PolicySelect::Disabled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autoscale::history::RawFloor;
    use crate::hpa::{PolicyKind, ScaleEvent, ScalingPolicy, ScalingRules, Settings};

    const NOW: Timestamp = Timestamp::constant(1_000_000, 0);

    fn ago(seconds: i64) -> Timestamp {
        NOW.checked_sub(SignedDuration::from_secs(seconds)).unwrap()
    }

    fn n(count: u32) -> Replicas {
        Replicas::new(count)
    }

    fn history(floors: &[(i64, u32)]) -> History {
        let floors = floors.iter().map(|(age, raw)| RawFloor {
            at: ago(*age),
            raw: n(*raw),
        });
        History {
            floors: floors.collect(),
            ..History::default()
        }
    }

    fn lane(behavior: Option<&Behavior>, current: u32) -> FloorContext<'_> {
        FloorContext {
            bounds: ReplicaBounds::new(n(2), n(30)),
            behavior,
            windows: StabilizationWindows::in_force(behavior, &Settings::default()),
            current: n(current),
            slack: SignedDuration::ZERO,
        }
    }

    fn rules(up_window: i64, policies: Option<Vec<ScalingPolicy>>) -> Behavior {
        let window = Some(SignedDuration::from_secs(up_window));
        Behavior {
            scale_up: ScalingRules {
                window,
                policies,
                ..ScalingRules::default()
            },
            ..Behavior::default()
        }
    }

    #[test]
    fn raw_is_held_at_its_highest_of_the_window_and_clamped_last() {
        for (raw, past, held, floor) in [
            (None, vec![], None, 2),
            (Some(1), vec![], Some(1), 2),
            (Some(7), vec![], Some(7), 7),
            (Some(70), vec![], Some(70), 30),
            (Some(7), vec![(299, 9)], Some(9), 9),
            (Some(7), vec![(300, 9)], Some(9), 9),
            (Some(7), vec![(301, 9)], Some(7), 7),
            (None, vec![(300, 9)], Some(9), 9),
            (None, vec![(301, 9)], None, 2),
            (None, vec![(20, 0)], None, 2),
        ] {
            let got = lane(None, 5).floor(raw.map(n), &history(&past), NOW);
            let want = Floor {
                raw: raw.map(n),
                held: held.map(n),
                limited: held.map(n),
                floor: n(floor),
            };
            assert_eq!(got, want, "{raw:?} after {past:?}");
        }
    }

    #[test]
    fn with_a_behavior_a_value_as_old_as_the_window_is_gone_and_what_ended_only_holds() {
        let behavior = rules(60, None);
        for (raw, past, current, held) in [
            (Some(7), vec![(300, 9)], 5, 7),
            (Some(7), vec![(299, 9)], 5, 7),
            (Some(7), vec![(299, 9)], 8, 8),
            (Some(7), vec![(299, 9)], 12, 9),
            (None, vec![(299, 9)], 5, 5),
            (None, vec![(299, 9)], 12, 9),
            (Some(9), vec![(59, 4)], 5, 5),
            (Some(9), vec![(59, 4)], 3, 4),
            (Some(9), vec![(60, 4)], 5, 9),
            (Some(9), vec![(10, 0)], 5, 5),
        ] {
            let got = lane(Some(&behavior), current).floor(raw.map(n), &history(&past), NOW);
            assert_eq!(
                got.held,
                Some(n(held)),
                "{raw:?} after {past:?} at {current}"
            );
        }
    }

    #[test]
    fn only_written_policies_delay_a_floor() {
        let two_a_minute = ScalingPolicy {
            kind: PolicyKind::Pods,
            value: 2,
            period: SignedDuration::from_secs(60),
        };
        let disabled = Behavior {
            scale_up: ScalingRules {
                select: Some(PolicySelect::Disabled),
                ..ScalingRules::default()
            },
            ..Behavior::default()
        };
        let smallest = Behavior {
            scale_up: ScalingRules {
                select: Some(PolicySelect::Min),
                ..ScalingRules::default()
            },
            ..Behavior::default()
        };
        let slow = rules(0, Some(vec![two_a_minute]));
        for (behavior, current, limited) in [
            (None, 5, 20),
            (Some(&rules(0, None)), 5, 20),
            (Some(&smallest), 5, 20),
            (Some(&slow), 5, 7),
            (Some(&slow), 25, 20),
            (Some(&disabled), 5, 5),
            (Some(&disabled), 25, 20),
        ] {
            let got = lane(behavior, current).floor(Some(n(20)), &History::default(), NOW);
            assert_eq!(got.limited, Some(n(limited)), "{behavior:?} at {current}");
        }
    }

    #[test]
    fn a_past_scale_down_gives_room_only_while_it_is_sure_to_count() {
        let four_a_minute = ScalingPolicy {
            kind: PolicyKind::Pods,
            value: 4,
            period: SignedDuration::from_secs(60),
        };
        let behavior = rules(0, Some(vec![four_a_minute]));
        let mut history = History::default();
        history.log.scale_down = vec![ScaleEvent {
            at: ago(50),
            change: n(3),
            outdated: false,
        }];
        let direct = lane(Some(&behavior), 5);
        let delegated = FloorContext {
            slack: SignedDuration::from_secs(15),
            ..direct
        };
        let limited = |lane: FloorContext<'_>| lane.floor(Some(n(20)), &history, NOW).limited;
        assert_eq!(
            (limited(direct), limited(delegated)),
            (Some(n(12)), Some(n(9)))
        );
    }
}
