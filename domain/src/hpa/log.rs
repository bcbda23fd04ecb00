//! The log that is kept between reconciliations: recommendations and applied changes.
//!
//! A log is a value that goes into a reconciliation and comes out of it. Slots of entries that no longer
//! count are used again, as upstream does, so a log keeps its greatest length and its order is part of
//! the contract. Age is always measured against `now`; the `outdated` mark only frees slots.

use jiff::{SignedDuration, Timestamp};

use crate::Replicas;

/// The log of one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Every recommendation that was computed, before stabilization and bounds. `None`: no log yet, which
    /// starts with the current count; an empty list does not.
    pub recommendations: Option<Vec<Recommendation>>,
    /// Applied changes upwards.
    pub scale_up: Vec<ScaleEvent>,
    /// Applied changes downwards.
    pub scale_down: Vec<ScaleEvent>,
    /// True if the last applied change went from above zero to zero.
    pub scaled_to_zero: bool,
}

/// Direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// More replicas.
    Up,
    /// Fewer replicas.
    Down,
}

/// One recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recommendation {
    /// Time at which the recommendation was computed.
    pub at: Timestamp,
    /// The recommended count.
    pub replicas: Replicas,
    /// True if the child HPA can have computed it too; see [`Log::mark_mirrored`].
    pub mirrored: bool,
}

/// One applied change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleEvent {
    /// Time at which the change was applied.
    pub at: Timestamp,
    /// Number of replicas that were added or removed.
    pub change: Replicas,
    /// True if the slot may be used again. Never consulted for sums.
    pub outdated: bool,
}

impl Log {
    /// The recommendations; none when the log has not started.
    pub fn recommendations(&self) -> &[Recommendation] {
        self.recommendations.as_deref().unwrap_or_default()
    }

    /// The log as a reconciliation begins: a new one starts with the current count.
    ///
    /// # Source
    /// Upstream's `recordInitialRecommendation`: a controller that has just started must not scale down before it has
    /// seen a whole window.
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

    /// Marks the entries written at `at` as computed by the child HPA too.
    ///
    /// The child HPA keeps a log of its own, which cannot be read. Its content is known only for readings that the
    /// child made too: those at which it existed and the count was not below its minimum.
    pub fn mark_mirrored(&mut self, at: Timestamp) {
        for recommendation in self.recommendations.iter_mut().flatten() {
            recommendation.mirrored |= recommendation.at == at;
        }
    }

    /// The same log as the child HPA has it: mirrored recommendations only.
    #[must_use]
    pub fn mirror(&self) -> Self {
        let mut mirror = self.clone();
        mirror
            .recommendations
            .iter_mut()
            .for_each(|all| all.retain(|r| r.mirrored));
        mirror
    }

    /// Sum of the changes in one direction within `period` before `now`. An event of exactly that age does not count.
    pub fn changed(&self, direction: Direction, period: SignedDuration, now: Timestamp) -> i64 {
        let events = match direction {
            Direction::Up => &self.scale_up,
            Direction::Down => &self.scale_down,
        };
        events
            .iter()
            .filter(|e| now.duration_since(e.at) < period)
            .map(|e| i64::from(e.change.get()))
            .sum()
    }

    /// The count `period` before `now`, computed backwards from `current`; may be out of range.
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

    /// Writes a recommendation into the last slot that `is_free`, or appends it.
    pub(super) fn write(
        &mut self,
        recommended: Replicas,
        now: Timestamp,
        is_free: impl Fn(&Recommendation) -> bool,
    ) {
        let entry = Recommendation {
            at: now,
            replicas: recommended,
            mirrored: false,
        };
        let all = self.recommendations.get_or_insert_default();
        match all.iter_mut().rfind(|r| is_free(r)) {
            Some(slot) => *slot = entry,
            None => all.push(entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

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
