//! The state that one decision leaves for the next: readings, floors, applied changes, the child HPA's state.
//!
//! A [`History`] is a value that goes into a decision and comes out of it. Storing it is left to the
//! caller: every field is plain data, so a history restored from a status gives the same decisions.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::Replicas;
use crate::division::{Division, Surplus};
use crate::hpa::{
    Behavior, Direction, Log, Recommendation, ScaleEvent, Settings, StabilizationWindows,
    record_scale,
};
use crate::proposal::Source;
use crate::remembered::Remembered;

/// The history of one workload.
///
/// The default is the history of a workload that has never been decided for. For one whose history cannot be
/// restored, use [`History::lost`], which forbids a scale-down for a while.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The observed lane's readings, and the applied changes of both lanes.
    pub log: Log,
    /// The floor lane's raw values, oldest first.
    pub floors: Vec<RawFloor>,
    /// The last proposal of each forecast, by metric: the count that stays or is replaced. Forgotten when there is
    /// none, unless its first forecast is still being computed.
    pub forecast_held: BTreeMap<String, Replicas>,
    /// Division of the total among pods, for each metric that is forecast.
    pub division: BTreeMap<String, Division>,
    /// The surplus of pods that was seen last, as long as totals over time still count it.
    pub surplus: Option<Surplus>,
    /// The source of the last winner, which wins again where proposals are equal.
    pub winner: Option<Source>,
    /// End of the hold during which nothing is scaled down because history was lost.
    pub hold_until: Option<Timestamp>,
    /// The child HPA at the last decision: a newer `lastScaleTime` means that it scaled since.
    pub child: Option<ChildState>,
}

/// The largest proposal of forecast and cron, before bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFloor {
    /// The last instant of this value; equal values in a row are one entry.
    pub at: Timestamp,
    /// The value; zero if neither proposed a count.
    pub raw: Replicas,
}

/// The scale and the child HPA at the last decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildState {
    /// The count at the last decision.
    pub current: Replicas,
    /// The child's `lastScaleTime` at the last decision.
    pub last_scale: Option<Timestamp>,
    /// The scale-up that was left to the child, if any.
    pub pending: Option<PendingScaleUp>,
    /// The earlier count, if it changed without a later `lastScaleTime`: the child writes its status after the scale.
    pub moved_from: Option<Replicas>,
}

/// A scale-up that the child HPA is expected to make by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingScaleUp {
    /// The count that the child is expected to reach.
    pub replicas: Replicas,
    /// Time from which the child could have made the change.
    pub since: Timestamp,
}

impl History {
    /// The same history after the wall clock was stepped by `step`: all ages in it stay the same.
    ///
    /// The child's `lastScaleTime` stays, because the clock of another machine shows it: it is compared only with later
    /// ones of the same clock.
    #[must_use]
    pub fn shifted(mut self, step: SignedDuration) -> Self {
        self.for_each_time(|time| time.shift(step));
        self
    }

    /// The same history, if the clock was put back while no controller ran: times ahead of `now` become `now`, so that
    /// their effects end after their own windows and do not last for the step too.
    #[must_use]
    pub(super) fn put_back(
        mut self,
        behavior: Option<&Behavior>,
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        self.for_each_time(|time| time.put_back(now));
        // A hold that began now would end then; one that ends later was noted before the clock was put back.
        let longest = Self::lost(now, behavior, settings).hold_until;
        self.hold_until = self
            .hold_until
            .map(|until| longest.map_or(until, |longest| until.min(longest)));
        self
    }

    /// Applies `change` to every time of our own clock. Each field is named, so that a new one cannot be forgotten.
    fn for_each_time(&mut self, change: impl Fn(Remembered<'_>)) {
        let Self {
            log:
                Log {
                    recommendations,
                    scale_up,
                    scale_down,
                    scaled_to_zero: _,
                },
            floors,
            forecast_held: _,
            division,
            surplus,
            winner: _,
            hold_until,
            child,
        } = self;
        for division in division.values_mut() {
            division.for_each_time(&change);
        }
        for Recommendation {
            at,
            replicas: _,
            mirrored: _,
        } in recommendations.iter_mut().flatten()
        {
            change(Remembered::Since(at));
        }
        for ScaleEvent {
            at,
            change: _,
            outdated: _,
        } in scale_up.iter_mut().chain(scale_down)
        {
            change(Remembered::Since(at));
        }
        for RawFloor { at, raw: _ } in floors {
            change(Remembered::Since(at));
        }
        if let Some(Surplus { since, last }) = surplus {
            change(Remembered::Since(since));
            change(Remembered::Since(last));
        }
        if let Some(at) = hold_until {
            // The span of a hold follows from the behavior, which `put_back` knows.
            change(Remembered::Until { at, span: None });
        }
        if let Some(ChildState {
            current: _,
            last_scale: _,
            pending: Some(PendingScaleUp { replicas: _, since }),
            moved_from: _,
        }) = child
        {
            change(Remembered::Since(since));
        }
    }

    /// The history of a workload whose own was lost at `now`: scaling down is forbidden for the
    /// stabilization window or the longest scale-down policy period, whichever is longer.
    ///
    /// ```
    /// use foretide_domain::autoscale::history::History;
    /// use foretide_domain::hpa::Settings;
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let now = Timestamp::UNIX_EPOCH;
    /// let history = History::lost(now, None, &Settings::default());
    /// assert!(history.holds(now + SignedDuration::from_mins(4)));
    /// assert!(!history.holds(now + SignedDuration::from_mins(5)));
    /// ```
    pub fn lost(now: Timestamp, behavior: Option<&Behavior>, settings: &Settings) -> Self {
        let window = StabilizationWindows::in_force(behavior, settings).down;
        let period = behavior
            .map(|b| b.longest_period(Direction::Down))
            .unwrap_or_default();
        Self {
            // By then everything that was lost would have expired.
            hold_until: now.checked_add(window.max(period)).ok(),
            ..Self::default()
        }
    }

    /// Returns true if lost history forbids a scale-down at `now`.
    pub fn holds(&self, now: Timestamp) -> bool {
        self.hold_until.is_some_and(|until| now < until)
    }

    /// The same history after the count was changed from `from` to `to` at `at`.
    ///
    /// One log serves both lanes and both modes. With a child HPA, `at` is its
    /// `lastScaleTime`, not the time the change was seen; a change already recorded for `at` is
    /// not recorded twice.
    ///
    /// ```
    /// use foretide_domain::Replicas;
    /// use foretide_domain::autoscale::history::History;
    /// use foretide_domain::hpa::Behavior;
    /// use jiff::Timestamp;
    ///
    /// let behavior = Behavior::default();
    /// let at = Timestamp::UNIX_EPOCH;
    /// let change = |history: History| {
    ///     history.applied(Some(&behavior), Replicas::new(2), Replicas::new(4), at)
    /// };
    /// let once = change(History::default());
    /// assert_eq!(once.log.scale_up.len(), 1);
    /// assert_eq!(change(once.clone()), once);
    /// ```
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

    /// Records a change that the child HPA made since the last decision: to `scaled_to` if that is
    /// known, else to the current count.
    pub(super) fn observe_child(
        mut self,
        behavior: Option<&Behavior>,
        now: ChildState,
        scaled_to: Option<Replicas>,
    ) -> Self {
        let before = self.child;
        self.child = Some(ChildState {
            // Any change of the count ends a pending scale-up.
            pending: before
                .filter(|before| before.current == now.current)
                .and_then(|before| before.pending),
            moved_from: before
                .map(|before| before.current)
                .filter(|count| *count != now.current),
            ..now
        });
        match (before, now.last_scale) {
            (Some(before), Some(at)) if before.last_scale.is_none_or(|last| at > last) => {
                let to = scaled_to.unwrap_or(now.current);
                // The count may have moved a sync before the status of the child told of it.
                let from = before
                    .moved_from
                    .filter(|_| before.current == to)
                    .unwrap_or(before.current);
                let mut history = self.applied(behavior, from, to, at);
                // A child never scales to zero, since its minimum is at least 1: a user did, which is a pause.
                history.log.scaled_to_zero = false;
                history
            }
            _ => self,
        }
    }

    /// Returns true if a scale-up was left to the child and the count did not move for `period`: the child has read
    /// lower values than expected.
    pub(super) fn child_is_stuck(&self, period: SignedDuration, now: Timestamp) -> bool {
        self.child.is_some_and(|last| {
            last.pending.is_some_and(|pending| {
                pending.replicas > last.current && now.duration_since(pending.since) >= period
            })
        })
    }

    /// Sets the scale-up that is left to the child; a replacement keeps the start time of the earlier one.
    pub(super) fn expect_scale_up(&mut self, replicas: Option<Replicas>, now: Timestamp) {
        if let Some(child) = &mut self.child {
            let since = child.pending.map_or(now, |pending| pending.since);
            child.pending = replicas.map(|replicas| PendingScaleUp { replicas, since });
        }
    }

    /// Starts the log, and the mirrored entries of a `fresh` child: like every new HPA, it starts with the
    /// current count and no earlier recommendation.
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

    /// Logs the largest proposal of forecast and cron, and drops entries older than both windows.
    pub(super) fn log_floor(
        &mut self,
        raw: Option<Replicas>,
        windows: StabilizationWindows,
        now: Timestamp,
    ) {
        let raw = raw.unwrap_or_default();
        let reach = windows.down.max(windows.up);
        self.floors
            .retain(|floor| now.duration_since(floor.at) <= reach);
        match self.floors.last_mut().filter(|last| last.raw == raw) {
            // A repeated value only moves its entry, so a history holds changes and not every sync.
            Some(last) => last.at = last.at.max(now),
            None => self.floors.push(RawFloor { at: now, raw }),
        }
    }

    /// Drops a hold that is over.
    pub(super) fn drop_expired_hold(&mut self, now: Timestamp) {
        if !self.holds(now) {
            self.hold_until = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpa::{PolicyKind, ScalingPolicy, ScalingRules};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn n(count: u32) -> Replicas {
        Replicas::new(count)
    }

    fn slow_down(window: Option<i64>, period: i64) -> Behavior {
        let period = SignedDuration::from_secs(period);
        let policies = Some(vec![ScalingPolicy {
            kind: PolicyKind::Pods,
            value: 1,
            period,
        }]);
        let window = window.map(SignedDuration::from_secs);
        let scale_down = ScalingRules {
            window,
            policies,
            ..ScalingRules::default()
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

    /// A history in which all times are `time`, with a hold until `hold_until`.
    fn noted(time: Timestamp, hold_until: Timestamp) -> History {
        let event = ScaleEvent {
            at: time,
            change: n(3),
            outdated: false,
        };
        let recommendation = Recommendation {
            at: time,
            replicas: n(2),
            mirrored: false,
        };
        History {
            log: Log {
                recommendations: Some(vec![recommendation]),
                scale_up: vec![event],
                scale_down: vec![event],
                scaled_to_zero: false,
            },
            floors: vec![RawFloor {
                at: time,
                raw: n(5),
            }],
            hold_until: Some(hold_until),
            child: Some(ChildState {
                current: n(2),
                last_scale: None,
                pending: Some(PendingScaleUp {
                    replicas: n(4),
                    since: time,
                }),
                moved_from: None,
            }),
            ..History::default()
        }
    }

    #[test]
    fn a_step_of_the_clock_moves_every_time_but_that_of_the_child() {
        let mut history = noted(at(9_000), at(10_200));
        if let Some(child) = &mut history.child {
            child.last_scale = Some(at(8_000));
        }
        for step in [3_600, -3_600] {
            let moved = history.clone().shifted(SignedDuration::from_secs(step));
            let mut want = noted(at(9_000 + step), at(10_200 + step));
            if let Some(child) = &mut want.child {
                child.last_scale = Some(at(8_000));
            }
            assert_eq!(moved, want, "{step}");
        }
    }

    #[test]
    fn what_was_noted_before_the_clock_was_put_back_counts_as_of_now() {
        let (now, ahead) = (at(10_000), at(13_600));
        let settings = Settings::default();
        let put_back = |history: History| history.put_back(None, &settings, now);
        assert_eq!(put_back(noted(ahead, at(13_900))), noted(now, at(10_300)));
        // Another machine's clock may be ahead a little.
        for second in [9_000, 10_000, 10_060] {
            let history = noted(at(second), at(10_200));
            assert_eq!(put_back(history.clone()), history, "{second}");
        }
    }

    #[test]
    fn floors_keep_the_last_instant_of_each_value_and_only_what_a_window_reaches() {
        let windows = StabilizationWindows::in_force(None, &Settings::default());
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
        let observe = |history: History, current, scaled: Option<i64>, to: Option<u32>| {
            let child = ChildState {
                current: n(current),
                last_scale: scaled.map(at),
                pending: None,
                moved_from: None,
            };
            history.observe_child(Some(&behavior), child, to.map(n))
        };
        let first = observe(History::default(), 5, Some(100), Some(5));
        assert_eq!(
            first.log,
            Log::default(),
            "nothing is known of the time before"
        );
        let up = observe(first, 8, Some(200), Some(8));
        let event = |second, change| ScaleEvent {
            at: at(second),
            change: n(change),
            outdated: false,
        };
        assert_eq!(up.log.scale_up, [event(200, 3)]);
        let by_hand = observe(up.clone(), 2, Some(200), Some(8));
        assert_eq!(
            by_hand.log, up.log,
            "a change by a user is not recorded as the child's"
        );
        let unseen = observe(up.clone(), 4, Some(200), Some(8));
        let seen = observe(unseen.clone(), 4, Some(300), Some(4));
        assert_eq!(seen.log.scale_down, [event(300, 4)], "its time came later");
        let much_later = observe(
            observe(unseen, 4, Some(200), Some(8)),
            4,
            Some(300),
            Some(4),
        );
        assert_eq!(much_later.log.scale_down, [], "somebody else changed it");
        let both = observe(up.clone(), 0, Some(300), Some(7));
        assert_eq!(both.log.scale_down, [event(300, 1)]);
        assert!(!both.log.scaled_to_zero);
        let recorded = up.applied(Some(&behavior), n(8), n(9), at(210));
        let again = observe(recorded, 9, Some(210), None);
        assert_eq!(
            again.log.scale_up,
            [event(200, 3), event(210, 1)],
            "not a second time"
        );
    }

    #[test]
    fn a_child_is_stuck_after_a_whole_period_without_a_change() {
        let period = SignedDuration::from_secs(15);
        let decide = |history: History, second: i64, current: u32| {
            let child = ChildState {
                current: n(current),
                last_scale: None,
                pending: None,
                moved_from: None,
            };
            let mut history = history.observe_child(None, child, None);
            let stuck = history.child_is_stuck(period, at(second));
            history.expect_scale_up(Some(n(9)), at(second));
            (history, stuck)
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
            let stuck;
            (history, stuck) = decide(history, second, current);
            assert_eq!(stuck, expected, "{second}");
        }
    }

    #[test]
    fn a_new_child_knows_only_the_current_count() {
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
