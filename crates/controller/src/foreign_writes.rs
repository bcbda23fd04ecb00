//! Foreign writes of replicas: three within ten minutes are a conflict.
//!
//! In a member, the managers of fields say who wrote; [`RecentWrites`] counts them. In mode Direct, a change is a count
//! that differs from the one that our last sync left, and who made it is not known, because the managers of a
//! workload's fields are not read. A single change sets the new current count, as with an HPA; a conflict is reported,
//! and we write at most once per minute while it lasts, unless the count is below the minimum.

use derive_where::derive_where;
use foretide_domain::{Replicas, remembered::Remembered, words::ANOTHER_WRITER};
use jiff::{SignedDuration, Timestamp};

/// Foreign writes within [`KEPT`] that make a conflict.
const WRITES_TO_CONFLICT: usize = 3;
/// Time for which a foreign write is remembered.
const KEPT: SignedDuration = SignedDuration::from_mins(10);
/// Pause after a write of ours while there is a conflict.
const WRITE_PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// Foreign writes within [`KEPT`], oldest first: the time of each, and its count or its writer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[derive_where(Default)]
pub struct RecentWrites<T>(Vec<(Timestamp, T)>);

// === impl RecentWrites ===

impl<T> RecentWrites<T> {
    /// Records a write, if there was one, and forgets old ones.
    pub fn observe(&mut self, write: Option<T>, now: Timestamp) {
        self.0.retain(|(at, _)| now.duration_since(*at) < KEPT);
        self.0.extend(write.map(|write| (now, write)));
    }

    /// The last write, if there are enough of them for a conflict.
    pub fn conflict(&self) -> Option<&T> {
        let is_conflict = self.0.len() >= WRITES_TO_CONFLICT;
        self.0.last().filter(|_| is_conflict).map(|(_, last)| last)
    }

    /// Shifts every time by a step of the wall clock.
    pub fn shift(&mut self, step: SignedDuration) {
        for (at, _) in &mut self.0 {
            Remembered::Since(at).shift(step);
        }
    }
}

/// The foreign writes of one target's replicas in mode Direct.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignWrites {
    /// The count that our last sync left.
    left: Option<Replicas>,
    /// The counts that other writers changed it to.
    changes: RecentWrites<Replicas>,
    /// The time of our last write.
    written: Option<Timestamp>,
}

// === impl ForeignWrites ===

impl ForeignWrites {
    /// Records the count that a sync read.
    pub fn observe(&mut self, current: Replicas, now: Timestamp) {
        let is_changed = self.left.is_some_and(|left| left != current);
        self.changes.observe(is_changed.then_some(current), now);
        self.left = Some(current);
    }

    /// Records our write of this count.
    pub fn wrote(&mut self, count: Replicas, now: Timestamp) {
        (self.left, self.written) = (Some(count), Some(now));
    }

    /// Records a write of ours whose outcome is unknown: the count of the next sync may be ours.
    pub fn may_have_written(&mut self) {
        self.left = None;
    }

    /// True if another writer keeps changing the count.
    pub fn is_conflict(&self) -> bool {
        self.changes.conflict().is_some()
    }

    /// True if we may write: at most once per minute while another writer does.
    pub fn may_write(&self, now: Timestamp) -> bool {
        !self.is_conflict()
            || (self.written).is_none_or(|at| now.duration_since(at) >= WRITE_PERIOD)
    }

    /// The message to report, if another writer keeps changing the count.
    pub fn message(&self) -> Option<String> {
        let last = self.changes.conflict()?;
        Some(format!(
            "another writer keeps changing the replicas of the target ({} times in 10 minutes, last to {last}); \
             {ANOTHER_WRITER}; until then Foretide writes the replicas at most once per minute, unless they are fewer \
             than minReplicas",
            self.changes.0.len()
        ))
    }

    /// Shifts every time by a step of the wall clock.
    pub fn shift(&mut self, step: SignedDuration) {
        self.changes.shift(step);
        if let Some(at) = &mut self.written {
            Remembered::Since(at).shift(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn n(count: u32) -> Replicas {
        Replicas::new(count)
    }

    /// The writes after syncs that see these counts, every 15 s, and after each sync whether there is a conflict.
    fn after(seen: &[u32]) -> (ForeignWrites, Vec<bool>) {
        let mut writes = ForeignWrites::default();
        let syncs = seen.iter().zip(0..).map(|(count, turn)| {
            writes.observe(n(*count), at(turn * 15));
            writes.is_conflict()
        });
        let conflicts = syncs.collect();
        (writes, conflicts)
    }

    #[test]
    fn three_changes_within_ten_minutes_are_a_conflict_and_two_are_not() {
        assert_eq!(after(&[4, 4, 2, 2, 6]).1, [false; 5]);
        let (mut writes, conflicts) = after(&[4, 2, 4, 2]);
        assert_eq!(conflicts, [false, false, false, true]);
        for (second, is_conflict) in [(60, true), (614, true), (615, false)] {
            writes.observe(n(2), at(second));
            assert_eq!(writes.is_conflict(), is_conflict, "{second}");
        }
    }

    #[test]
    fn a_write_of_ours_is_no_change_by_another() {
        let mut writes = ForeignWrites::default();
        for turn in 0..9 {
            writes.observe(n(turn), at(i64::from(turn) * 15));
            writes.wrote(n(turn + 1), at(i64::from(turn) * 15));
        }
        assert!(!writes.is_conflict());
    }

    #[test]
    fn in_a_conflict_one_write_per_minute_is_allowed_and_otherwise_every_write() {
        let (mut writes, _) = after(&[4, 2, 4, 2]);
        assert!(writes.may_write(at(45)));
        writes.wrote(n(4), at(45));
        for (second, may) in [(46, false), (104, false), (105, true)] {
            assert_eq!(writes.may_write(at(second)), may, "{second}");
        }
        let mut alone = ForeignWrites::default();
        alone.wrote(n(4), at(45));
        assert!(alone.may_write(at(46)));
    }

    #[test]
    fn a_step_of_the_clock_changes_no_answer() {
        for step in [3_600, -3_600] {
            let (mut writes, _) = after(&[4, 2, 4, 2]);
            writes.wrote(n(4), at(45));
            writes.shift(SignedDuration::from_secs(step));
            assert!(!writes.may_write(at(104 + step)));
            assert!(writes.may_write(at(105 + step)));
        }
    }
}
