//! What the controller remembers between passes: recommendations and applied changes.
//!
//! A log is a value: it goes into a pass and comes out of it. Slots of entries that no longer count
//! are used again, as upstream does, so a log keeps its high-water length and its order is part of
//! the contract. Age is always measured against `now`; the `outdated` mark only frees slots.

use jiff::{SignedDuration, Timestamp};

use super::{Behavior, Direction};
use crate::domain::Replicas;

/// The memory of one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Every reading that was computed, before stabilization and bounds. `None`: no log yet, which
    /// starts with the current count; an empty list does not.
    pub recommendations: Option<Vec<Recommendation>>,
    /// Applied changes upwards.
    pub scale_up: Vec<ScaleEvent>,
    /// Applied changes downwards.
    pub scale_down: Vec<ScaleEvent>,
    /// Whether the last applied change went from above zero to zero.
    pub scaled_to_zero: bool,
}

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recommendation {
    /// When it was computed.
    pub at: Timestamp,
    /// The count it asked for.
    pub replicas: Replicas,
    /// Whether a child autoscaler can have read it too; see [`Log::mark_mirrored`].
    pub mirrored: bool,
}

/// One applied change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleEvent {
    /// When it was applied.
    pub at: Timestamp,
    /// How many replicas were added or removed.
    pub change: Replicas,
    /// Whether the slot may be used again. Never consulted for sums.
    pub outdated: bool,
}

impl Log {
    /// The recommendations; none when the log has not started.
    #[must_use]
    pub fn recommendations(&self) -> &[Recommendation] {
        self.recommendations.as_deref().unwrap_or_default()
    }

    /// The log as it stands when a pass begins: a new one starts with the current count.
    #[must_use]
    pub fn started(mut self, current: Replicas, now: Timestamp) -> Self {
        self.recommendations.get_or_insert_with(|| {
            vec![Recommendation {
                at: now,
                replicas: current,
                mirrored: false,
            }]
        });
        self
    }

    /// Marks the entries written at `at` as read by the child autoscaler too.
    pub fn mark_mirrored(&mut self, at: Timestamp) {
        let written = self
            .recommendations
            .iter_mut()
            .flatten()
            .filter(|r| r.at == at);
        written.for_each(|r| r.mirrored = true);
    }

    /// The same log as the child autoscaler knows it: mirrored recommendations only.
    #[must_use]
    pub fn mirror(&self) -> Self {
        let mut mirror = self.clone();
        mirror
            .recommendations
            .iter_mut()
            .for_each(|all| all.retain(|r| r.mirrored));
        mirror
    }

    /// How much was changed in one direction within `period` before `now`. An event of exactly that
    /// age does not count.
    #[must_use]
    pub fn changed(&self, direction: Direction, period: SignedDuration, now: Timestamp) -> i64 {
        let events = match direction {
            Direction::Up => &self.scale_up,
            Direction::Down => &self.scale_down,
        };
        let recent = events.iter().filter(|e| now.duration_since(e.at) < period);
        recent.map(|e| i64::from(e.change.get())).sum()
    }

    /// The count `period` before `now`, reckoned back from `current`; may be out of range.
    #[must_use]
    pub(super) fn replicas_before(
        &self,
        current: Replicas,
        period: SignedDuration,
        now: Timestamp,
    ) -> i64 {
        let up = self.changed(Direction::Up, period, now);
        let down = self.changed(Direction::Down, period, now);
        i64::from(current.get())
            .saturating_sub(up)
            .saturating_add(down)
    }

    /// Writes a reading into the last slot that `is_free`, or appends it.
    pub(super) fn write(
        &mut self,
        reading: Replicas,
        now: Timestamp,
        is_free: impl Fn(&Recommendation) -> bool,
    ) {
        let entry = Recommendation {
            at: now,
            replicas: reading,
            mirrored: false,
        };
        let all = self.recommendations.get_or_insert_default();
        match all.iter_mut().rfind(|r| is_free(r)) {
            Some(slot) => *slot = entry,
            None => all.push(entry),
        }
    }
}

/// The log after a change from `from` to `to` was applied at `at`.
///
/// With `behavior`, the change is stored in the log of its direction: entries older than the longest
/// policy period of that direction become outdated, the last outdated one is replaced, else the
/// change is appended. Without `behavior` nothing would ever read it, so nothing is stored.
#[must_use]
pub fn record_scale(
    mut log: Log,
    behavior: Option<&Behavior>,
    from: Replicas,
    to: Replicas,
    at: Timestamp,
) -> Log {
    log.scaled_to_zero = from > Replicas::ZERO && to == Replicas::ZERO;
    if let Some(behavior) = behavior.filter(|_| from != to) {
        let up = to > from;
        let direction = if up { Direction::Up } else { Direction::Down };
        let events = if up {
            &mut log.scale_up
        } else {
            &mut log.scale_down
        };
        let period = behavior.longest_period(direction);
        let stale = events
            .iter_mut()
            .filter(|e| at.duration_since(e.at) > period);
        stale.for_each(|e| e.outdated = true);
        let event = ScaleEvent {
            at,
            change: from.distance(to),
            outdated: false,
        };
        match events.iter_mut().rfind(|e| e.outdated) {
            Some(slot) => *slot = event,
            None => events.push(event),
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hpa::{Policy, PolicyKind, Rules};

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn event(age_s: i64, change: u32, outdated: bool) -> ScaleEvent {
        let at = NOW - SignedDuration::from_secs(age_s);
        ScaleEvent {
            at,
            change: Replicas::new(change),
            outdated,
        }
    }

    #[test]
    fn an_event_of_exactly_a_periods_age_counts_no_more_but_keeps_its_slot() {
        let period = SignedDuration::from_secs(60);
        let policy = Policy {
            kind: PolicyKind::Pods,
            value: 1,
            period,
        };
        let rules = Rules {
            policies: Some(vec![policy]),
            ..Rules::default()
        };
        let behavior = Behavior {
            scale_up: rules,
            ..Behavior::default()
        };
        for (age_s, changed, after) in [
            (59, 3, vec![event(59, 3, false), event(0, 2, false)]),
            (60, 0, vec![event(60, 3, false), event(0, 2, false)]),
            (61, 0, vec![event(0, 2, false)]),
        ] {
            let log = Log {
                scale_up: vec![event(age_s, 3, false)],
                ..Log::default()
            };
            assert_eq!(
                log.changed(Direction::Up, period, NOW),
                changed,
                "{age_s} s"
            );
            let (from, to) = (Replicas::new(4), Replicas::new(6));
            let got = record_scale(log, Some(&behavior), from, to, NOW);
            assert_eq!(got.scale_up, after, "{age_s} s");
        }
    }

    #[test]
    fn a_mirror_holds_what_the_child_can_have_read() {
        let mut log = Log::default().started(Replicas::new(3), NOW);
        log.write(Replicas::new(4), NOW, |_| false);
        log.mark_mirrored(NOW);
        let later = NOW + SignedDuration::from_secs(15);
        log.write(Replicas::new(9), later, |_| false);
        let counts = |log: &Log| {
            log.recommendations()
                .iter()
                .map(|r| r.replicas.get())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (counts(&log), counts(&log.mirror())),
            (vec![3, 4, 9], vec![3, 4])
        );
    }
}
