//! What decisions remember: a value that goes into a decision and comes out of it.
//!
//! Nothing here stores or loads anything. Every field is plain data, so that whoever keeps the
//! value (memory, a status, a file) can take it apart and put it together again; a history put
//! together from its parts decides as the original does.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::domain::Replicas;
use crate::domain::hpa::{Behavior, Direction, Log, Recommendation, Settings, record_scale};

/// The memory of one workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The observed lane's readings and the applied changes; the latter serve both lanes.
    pub log: Log,
    /// The floor lane's raw values, oldest first.
    pub floors: Vec<RawFloor>,
    /// The last proposal of each forecast, by metric: what its tolerance is relative to.
    pub forecast_held: BTreeMap<String, Replicas>,
    /// Until when nothing is scaled down because history was lost.
    pub hold_until: Option<Timestamp>,
    /// What the last decision saw of the child autoscaler: how its changes are told apart.
    pub sighting: Option<Sighting>,
}

/// What forecast and cron asked for together, unclamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFloor {
    /// The last instant at which they did; equal values in a row are one entry.
    pub at: Timestamp,
    /// What they asked for; zero if for nothing.
    pub raw: Replicas,
}

/// The scale at the last decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The count then.
    pub current: Replicas,
    /// The child autoscaler's `lastScaleTime` then.
    pub child_scaled: Option<Timestamp>,
    /// The count above `current` that the child was left to reach by itself, if any.
    pub awaited: Option<Awaited>,
}

/// A count that the child autoscaler is to reach by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The count.
    pub replicas: Replicas,
    /// Since when the child could have gone there.
    pub since: Timestamp,
}

impl History {
    /// The history of a workload whose own was lost at `now`: nothing is known, so nothing is scaled
    /// down for the stabilization window or the longest scale-down policy period, whichever is longer.
    #[must_use]
    pub fn lost(now: Timestamp, behavior: Option<&Behavior>, settings: &Settings) -> Self {
        let window = Windows::in_force(behavior, settings).down;
        let period = behavior
            .map(|b| b.longest_period(Direction::Down))
            .unwrap_or_default();
        Self {
            hold_until: now.checked_add(window.max(period)).ok(),
            ..Self::default()
        }
    }

    /// Whether lost history forbids a scale-down at `now`.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.hold_until.is_some_and(|until| now < until)
    }

    /// The same history after the count was changed from `from` to `to` at `at`.
    ///
    /// One log serves both lanes and both modes. With a child autoscaler, `at` is its
    /// `lastScaleTime`, not the time the change was seen; a change already recorded for `at` stays
    /// one change.
    #[must_use]
    pub fn applied(
        mut self,
        behavior: Option<&Behavior>,
        from: Replicas,
        to: Replicas,
        at: Timestamp,
    ) -> Self {
        let known = self
            .log
            .scale_up
            .iter()
            .chain(&self.log.scale_down)
            .any(|e| e.at == at);
        if !known {
            self.log = record_scale(self.log, behavior, from, to, at);
        }
        self
    }

    /// Takes in a change that the child autoscaler made since the last decision: to `scaled_to`, if it
    /// is known, else to what is there now.
    pub(super) fn notice(
        mut self,
        behavior: Option<&Behavior>,
        now: Sighting,
        scaled_to: Option<Replicas>,
    ) -> Self {
        let before = self.sighting;
        let still = before.filter(|before| before.current == now.current);
        let awaited = still.and_then(|before| before.awaited);
        self.sighting = Some(Sighting { awaited, ..now });
        match (before, now.child_scaled) {
            (Some(before), Some(at)) if before.child_scaled.is_none_or(|last| at > last) => {
                let to = scaled_to.unwrap_or(now.current);
                let mut history = self.applied(behavior, before.current, to, at);
                // A child never scales to zero: that was somebody's hand in the meantime, a pause.
                history.log.scaled_to_zero = false;
                history
            }
            _ => self,
        }
    }

    /// Whether the child was left to reach a higher count by itself and did not move for `patience`:
    /// it has read less than we think.
    pub(super) fn waits_in_vain(&self, patience: SignedDuration, now: Timestamp) -> bool {
        self.sighting.is_some_and(|last| {
            let higher = last
                .awaited
                .filter(|awaited| awaited.replicas > last.current);
            higher.is_some_and(|awaited| now.duration_since(awaited.since) >= patience)
        })
    }

    /// Notes the count that the child is left to reach from here, and since when it could have.
    pub(super) fn await_child(&mut self, replicas: Option<Replicas>, now: Timestamp) {
        if let Some(sighting) = &mut self.sighting {
            let since = sighting.awaited.map_or(now, |awaited| awaited.since);
            sighting.awaited = replicas.map(|replicas| Awaited { replicas, since });
        }
    }

    /// Starts the log, and with a `fresh` child autoscaler what that child remembers: as every new
    /// autoscaler it begins with the current count, and has read nothing before.
    pub(super) fn begin_mirror(&mut self, fresh: bool, current: Replicas, now: Timestamp) {
        let start = Recommendation {
            at: now,
            replicas: current,
            mirrored: true,
        };
        match &mut self.log.recommendations {
            None => self.log.recommendations = Some(vec![start]),
            Some(all) if fresh => {
                for reading in all.iter_mut() {
                    reading.mirrored = false;
                }
                all.push(start);
            }
            Some(_) => {}
        }
    }

    /// Logs what the floor lane's sources ask for, and forgets what no window reaches any more.
    pub(super) fn log_floor(&mut self, raw: Option<Replicas>, windows: Windows, now: Timestamp) {
        let raw = raw.unwrap_or_default();
        let reach = windows.down.max(windows.up);
        self.floors
            .retain(|floor| now.duration_since(floor.at) <= reach);
        match self.floors.last_mut().filter(|last| last.raw == raw) {
            Some(last) => last.at = last.at.max(now),
            None => self.floors.push(RawFloor { at: now, raw }),
        }
    }

    /// Drops a hold that is over.
    pub(super) fn release(&mut self, now: Timestamp) {
        if !self.holds(now) {
            self.hold_until = None;
        }
    }
}

/// How far back each direction looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    /// Scale-down: the highest value in it counts.
    pub(super) down: SignedDuration,
    /// Scale-up: the lowest value in it counts.
    pub(super) up: SignedDuration,
    /// Whether a value exactly as old as the window counts: so it does without `behavior`.
    pub(super) inclusive: bool,
}

impl Windows {
    /// The windows in force: down the controller's flag, up none, where nothing is written.
    pub(super) fn in_force(behavior: Option<&Behavior>, settings: &Settings) -> Self {
        let written = |direction| behavior.map(|b| b.window(direction, settings));
        Self {
            down: written(Direction::Down).unwrap_or(settings.downscale_stabilization),
            up: written(Direction::Up).unwrap_or_default(),
            inclusive: behavior.is_none(),
        }
    }

    /// Whether a value of `at` counts at `now` in a window of this length.
    pub(super) fn reaches(self, window: SignedDuration, at: Timestamp, now: Timestamp) -> bool {
        let age = now.duration_since(at);
        age < window || (self.inclusive && age == window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hpa::{Policy, PolicyKind, Rules, ScaleEvent};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn n(count: u32) -> Replicas {
        Replicas::new(count)
    }

    fn slow_down(window: Option<i64>, period: i64) -> Behavior {
        let period = SignedDuration::from_secs(period);
        let policies = Some(vec![Policy {
            kind: PolicyKind::Pods,
            value: 1,
            period,
        }]);
        let window = window.map(SignedDuration::from_secs);
        let scale_down = Rules {
            window,
            policies,
            ..Rules::default()
        };
        Behavior {
            scale_down,
            ..Behavior::default()
        }
    }

    #[test]
    fn lost_history_holds_for_the_window_or_the_longest_period() {
        for (behavior, seconds) in [
            (None, 300),
            (Some(slow_down(None, 60)), 300),
            (Some(slow_down(Some(0), 60)), 60),
            (Some(slow_down(Some(120), 60)), 120),
            (Some(slow_down(Some(120), 1800)), 1800),
            (Some(Behavior::default()), 300),
        ] {
            let history = History::lost(at(1000), behavior.as_ref(), &Settings::default());
            assert_eq!(history.hold_until, Some(at(1000 + seconds)), "{behavior:?}");
            assert!(history.holds(at(999 + seconds)) && !history.holds(at(1000 + seconds)));
        }
    }

    #[test]
    fn floors_keep_the_last_instant_of_each_value_and_only_what_a_window_reaches() {
        let windows = Windows::in_force(None, &Settings::default());
        let mut history = History::default();
        for (second, raw) in [
            (0, Some(4)),
            (15, Some(4)),
            (30, None),
            (45, Some(6)),
            (60, Some(4)),
            (345, None),
        ] {
            history.log_floor(raw.map(n), windows, at(second));
        }
        let want = [(45, 6), (60, 4), (345, 0)];
        let want = want.map(|(second, raw)| RawFloor {
            at: at(second),
            raw: n(raw),
        });
        assert_eq!(history.floors, want);
    }

    #[test]
    fn a_change_of_the_child_is_recorded_once_and_at_its_own_time() {
        let behavior = slow_down(None, 60);
        let notice = |history: History, current, scaled: Option<i64>, to: Option<u32>| {
            let sighting = Sighting {
                current: n(current),
                child_scaled: scaled.map(at),
                awaited: None,
            };
            history.notice(Some(&behavior), sighting, to.map(n))
        };
        let first = notice(History::default(), 5, Some(100), Some(5));
        assert_eq!(first.log, Log::default(), "nothing is known of before");
        let up = notice(first, 8, Some(200), Some(8));
        let event = |second, change| ScaleEvent {
            at: at(second),
            change: n(change),
            outdated: false,
        };
        assert_eq!(up.log.scale_up, [event(200, 3)]);
        let by_hand = notice(up.clone(), 2, Some(200), Some(8));
        assert_eq!(by_hand.log, up.log, "a change by hand is nobody's event");
        let both = notice(up.clone(), 0, Some(300), Some(7));
        assert_eq!(both.log.scale_down, [event(300, 1)]);
        assert!(!both.log.scaled_to_zero);
        let told = up.applied(Some(&behavior), n(8), n(9), at(210));
        let again = notice(told, 9, Some(210), None);
        assert_eq!(
            again.log.scale_up,
            [event(200, 3), event(210, 1)],
            "not a second time"
        );
    }

    #[test]
    fn a_child_has_a_whole_period_before_it_is_waited_for_no_longer() {
        let period = SignedDuration::from_secs(15);
        let seen = |history: History, second: i64, current: u32| {
            let sighting = Sighting {
                current: n(current),
                child_scaled: None,
                awaited: None,
            };
            let mut history = history.notice(None, sighting, None);
            let vain = history.waits_in_vain(period, at(second));
            history.await_child(Some(n(9)), at(second));
            (history, vain)
        };
        let mut history = History::default();
        for (second, current, expected) in [
            (0, 4, false),
            (1, 4, false),
            (14, 4, false),
            (15, 4, true),
            (16, 4, true),
            (17, 8, false),
            (31, 8, false),
            (32, 8, true),
        ] {
            let vain;
            (history, vain) = seen(history, second, current);
            assert_eq!(vain, expected, "{second}");
        }
    }

    #[test]
    fn a_new_child_has_read_nothing_but_the_current_count() {
        let mut history = History::default();
        history.begin_mirror(false, n(3), at(0));
        history
            .log
            .recommendations
            .as_mut()
            .unwrap()
            .push(Recommendation {
                at: at(15),
                replicas: n(9),
                mirrored: true,
            });
        history.begin_mirror(false, n(4), at(30));
        assert_eq!(history.log.mirror().recommendations().len(), 2);
        history.begin_mirror(true, n(4), at(45));
        let start = Recommendation {
            at: at(45),
            replicas: n(4),
            mirrored: true,
        };
        assert_eq!(history.log.mirror().recommendations(), [start]);
        assert_eq!(history.log.recommendations().len(), 3);
    }
}
