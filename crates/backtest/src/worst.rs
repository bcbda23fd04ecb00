//! The shortages of a run: its worst minutes and its worst hours.

use std::collections::BTreeMap;

use foretide_domain::{
    Replicas,
    sim::{Minute, TOLERATED},
};
use jiff::Timestamp;

/// Number of minutes and of hours that are listed.
const MOST: usize = 10;

/// An hour in which replicas were missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShortHour {
    /// Beginning of the hour, in UTC.
    pub at: Timestamp,
    /// Number of under-provisioned minutes of the hour.
    pub minutes: u32,
    /// Demand that was not served in those minutes: `(demand / target - 1.1 * ready)+`, in replica-minutes.
    pub missing: f64,
    /// The most replicas that one of those minutes needed.
    pub needed: Replicas,
    /// The fewest replicas that served in one of those minutes.
    pub ready: Replicas,
}

/// The under-provisioned minutes in which the most replicas were missing, the worst first.
#[must_use]
pub fn minutes(all: &[Minute]) -> Vec<&Minute> {
    let mut short: Vec<_> = all.iter().filter(|m| m.is_under_provisioned()).collect();
    // The sort is stable: among equal minutes, the first comes first.
    short.sort_by(|a, b| b.missing_replicas().total_cmp(&a.missing_replicas()));
    short.truncate(MOST);
    short
}

/// The hours with the most demand that was not served, the worst first.
#[must_use]
pub fn hours(all: &[Minute]) -> Vec<ShortHour> {
    let mut hours: BTreeMap<Timestamp, ShortHour> = BTreeMap::new();
    for minute in all.iter().filter(|minute| minute.is_under_provisioned()) {
        let (Some(load), Some(needed)) = (minute.load, minute.needed()) else {
            continue;
        };
        let at = hour_of(minute.at);
        let hour = hours.entry(at).or_insert(ShortHour {
            at,
            minutes: 0,
            missing: 0.0,
            needed,
            ready: minute.ready,
        });
        hour.minutes += 1;
        hour.missing += load.replicas() - TOLERATED * minute.ready.as_f64();
        hour.needed = hour.needed.max(needed);
        hour.ready = hour.ready.min(minute.ready);
    }
    let mut worst: Vec<_> = hours.into_values().collect();
    worst.sort_by(|a, b| b.missing.total_cmp(&a.missing));
    worst.truncate(MOST);
    worst
}

fn hour_of(at: Timestamp) -> Timestamp {
    let second = at.as_second();
    Timestamp::from_second(second - second.rem_euclid(3600)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use foretide_domain::sim::{Load, MINUTE};

    use super::*;

    /// A minute after the epoch in which one replica served while `needed` replicas were needed.
    fn minute(index: i64, needed: f64) -> Minute {
        Minute {
            at: Timestamp::from_second(index * MINUTE.as_secs()).unwrap(),
            load: Some(Load {
                track: 0,
                demand: needed,
                target: 1.0,
            }),
            asked: Replicas::new(1),
            ready: Replicas::new(1),
            forecast_replicas: None,
            changed: false,
        }
    }

    #[test]
    fn the_worst_come_first_and_what_is_tolerated_does_not_count() {
        let all = [
            minute(0, 1.05),
            minute(59, 2.0),
            minute(60, 3.0),
            minute(61, 1.6),
            minute(180, 5.1),
        ];
        let worst: Vec<_> = minutes(&all)
            .iter()
            .map(|m| m.at.as_second() / 60)
            .collect();
        assert_eq!(worst, [180, 60, 59, 61]);
        let hours = hours(&all);
        let found: Vec<_> = hours
            .iter()
            .map(|hour| (hour.at.as_second() / 3600, hour.minutes, hour.needed.get()))
            .collect();
        assert_eq!(found, [(3, 1, 6), (1, 2, 3), (0, 1, 2)]);
        assert!((hours[1].missing - (1.9 + 0.5)).abs() < 1e-9);
    }

    #[test]
    fn at_most_ten_are_listed() {
        let all: Vec<_> = (0..30).map(|hour| minute(hour * 60, 2.0)).collect();
        assert_eq!((minutes(&all).len(), hours(&all).len()), (10, 10));
        assert_eq!(hours(&all)[0].at, all[0].at);
    }
}
