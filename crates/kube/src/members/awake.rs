//! Time in which another machine could have been heard: that in which this process was awake.
//!
//! A process that was paused, or whose machine was, sent no requests, so that time does not count as silence of the
//! others.

use std::{collections::VecDeque, time::Duration};

use foretide_base::clock::Monotonic;

/// Period of reading the time while the process runs.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Longest time between two readings without a pause; a pause begins this much after the first reading.
const LONGEST_GAP: Duration = Duration::from_secs(3);
/// Maximum number of pauses that are remembered; earlier ones count as time awake.
const PAUSES: usize = 16;

/// The pauses of this process.
#[derive(Debug)]
pub struct AwakeTime {
    last: Monotonic,
    /// Beginnings and ends, in their order.
    pauses: VecDeque<(Monotonic, Monotonic)>,
}

// === impl AwakeTime ===

impl AwakeTime {
    pub fn new(now: Monotonic) -> Self {
        Self {
            last: now,
            pauses: VecDeque::new(),
        }
    }

    /// Notes that the process is awake.
    pub fn read(&mut self, now: Monotonic) {
        if now.since(self.last) > LONGEST_GAP {
            self.pauses.push_back((self.last + LONGEST_GAP, now));
            if self.pauses.len() > PAUSES {
                self.pauses.pop_front();
            }
        }
        // Several tasks read the clock before they take the lock, so a reading may be older than the last.
        self.last = self.last.max(now);
    }

    /// The time awake from `since` to `now`.
    pub fn between(&self, since: Monotonic, now: Monotonic) -> Duration {
        let mut paused = Duration::ZERO;
        for &(start, end) in &self.pauses {
            paused += end.min(now).since(start.max(since));
        }
        now.since(since).saturating_sub(paused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Monotonic {
        Monotonic::after_origin(Duration::from_secs(second))
    }

    #[test]
    fn a_pause_counts_for_no_more_than_the_longest_gap() {
        let mut awake = AwakeTime::new(at(0));
        let mut read = |second: u64, since: u64| {
            awake.read(at(second));
            awake.between(at(since), at(second)).as_secs()
        };
        for second in 1..20 {
            assert_eq!(read(second, 0), second);
        }
        // Paused for an hour, and again for two.
        assert_eq!(read(3_619, 0), 22);
        assert_eq!(read(3_620, 19), 4);
        assert_eq!(read(10_820, 19), 7);
        assert_eq!(read(10_821, 3_620), 4);
        assert_eq!(read(10_821, 10_820), 1);
        // In the middle of a pause nothing is heard, but a late answer may be noted there.
        assert_eq!(read(10_821, 9_000), 1);
        // A reading that comes late changes nothing.
        assert_eq!(read(10_819, 10_800), 0);
        assert_eq!(read(10_822, 10_820), 2);
    }

    #[test]
    fn few_pauses_are_remembered() {
        let mut awake = AwakeTime::new(at(0));
        for pause in 1..=1_000 {
            awake.read(at(pause * 10));
        }
        assert_eq!(awake.pauses.len(), PAUSES);
        assert_eq!(awake.between(at(9_990), at(10_000)).as_secs(), 3);
    }
}
