//! Limit of the events of one object: 25 at once, and one more every five minutes. A condition that flaps, or a fight
//! with another writer, would otherwise write one in each sync.
//!
//! # Source
//! client-go `tools/record/events_cache.go`, which limits the events about one object the same way.

use std::time::Duration;

use foretide_api::ports::EventNote;
use foretide_base::clock::Monotonic;

const BURST: u32 = 25;
const REFILL: Duration = Duration::from_mins(5);

/// The events about one object that may still be written.
#[derive(Debug, Default)]
pub struct EventBucket {
    spent: u32,
    /// The time at which it was last filled up by one, or was full.
    filled: Monotonic,
}

impl EventBucket {
    /// Keeps the first events, as many as may be written now; returns how many are dropped.
    pub fn limit(&mut self, events: &mut Vec<EventNote>, now: Monotonic) -> usize {
        while self.spent > 0 && now.since(self.filled) >= REFILL {
            self.spent -= 1;
            self.filled = self.filled + REFILL;
        }
        if self.spent == 0 {
            self.filled = now;
        }
        let kept = events
            .len()
            .min(usize::try_from(BURST - self.spent).unwrap_or(0));
        self.spent += u32::try_from(kept).unwrap_or(BURST);
        events.drain(kept..).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_events_in_each_sync_a_burst_is_written_and_then_one_in_five_minutes() {
        let note = || EventNote {
            warning: false,
            reason: "HPARestored",
            action: "Delegate",
            note: String::new(),
        };
        let mut bucket = EventBucket::default();
        let mut written = |at: Duration, many: usize| {
            let mut events = vec![note(); many];
            let dropped = bucket.limit(&mut events, Monotonic::after_origin(at));
            assert_eq!(events.len() + dropped, many);
            events.len()
        };
        let start = Duration::from_hours(1);
        let second = Duration::from_secs(1);
        // A day of syncs every 15 seconds.
        let day: usize = (0..4 * 60 * 24)
            .map(|turn| written(start + second * 15 * turn, 1))
            .sum();
        assert_eq!(day, 25 + 24 * 12 - 1);
        let quiet = start + Duration::from_hours(48);
        assert_eq!(written(quiet, 30), 25);
        assert_eq!(written(quiet + Duration::from_secs(299), 1), 0);
        assert_eq!(written(quiet + REFILL, 2), 1);
    }
}
