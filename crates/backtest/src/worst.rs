//! The shortages of a run: its worst minutes and its worst hours.

use std::collections::BTreeMap;

use foretide_domain::{
    Replicas,
    sim::{Environment, Minute, Score, TOLERATED},
};
use jiff::Timestamp;
use serde::Serialize;

/// Number of minutes and of hours that are listed.
const MOST: usize = 10;

/// The shortages of a run, and the reasons for missing forecasts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortages {
    /// The minute in which the most replicas were missing.
    pub worst: Option<ShortMinute>,
    /// The minutes in which the most replicas were missing, the worst first.
    pub worst_minutes: Vec<ShortMinute>,
    /// The hours with the most demand that was not served, the worst first.
    pub worst_hours: Vec<ShortHour>,
    /// Minutes without a forecast, by metric and reason.
    pub without_forecast: Vec<Absence>,
}

/// A minute in which replicas were missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShortMinute {
    /// Beginning of the minute.
    pub at: Timestamp,
    /// The metric that needed the most replicas.
    pub metric: Option<String>,
    /// Demand of that metric.
    pub demand: Option<f64>,
    /// Amount that a replica carries.
    pub target_per_replica: Option<f64>,
    /// Replicas that the demand needed.
    pub needed_replicas: Option<Replicas>,
    /// Replicas that served.
    pub ready_replicas: Replicas,
    /// Replicas that were asked for.
    pub asked_replicas: Replicas,
}

/// An hour in which replicas were missing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShortHour {
    /// Beginning of the hour, in UTC.
    pub at: Timestamp,
    /// Number of under-provisioned minutes of the hour.
    pub under_provisioned_minutes: u32,
    /// Demand that was not served in those minutes: `(demand / target - 1.1 * ready)+`, in replica-minutes.
    pub missing_replica_minutes: f64,
    /// The most replicas that one of those minutes needed.
    pub needed_replicas: Replicas,
    /// The fewest replicas that served in one of those minutes.
    pub ready_replicas: Replicas,
}

/// A reason for missing forecasts of a metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absence {
    /// The metric.
    pub metric: String,
    /// The reason, as one word.
    pub reason: &'static str,
    /// Number of minutes.
    pub minutes: u32,
    /// The latest message.
    pub message: String,
}

// === impl Shortages ===

impl Shortages {
    /// The shortages of a run over these minutes.
    pub(crate) fn new(score: &Score, minutes: &[Minute], environment: &Environment) -> Self {
        let described = |minute: &Minute| ShortMinute::new(minute, environment);
        let absent = score.absent.iter();
        Self {
            worst: score.worst.as_ref().map(described),
            worst_minutes: worst_minutes(minutes).into_iter().map(described).collect(),
            worst_hours: worst_hours(minutes),
            without_forecast: absent
                .map(|((metric, reason), missing)| Absence {
                    metric: metric.clone(),
                    reason,
                    minutes: missing.minutes,
                    message: missing.message.clone(),
                })
                .collect(),
        }
    }
}

// === impl ShortMinute ===

impl ShortMinute {
    fn new(minute: &Minute, environment: &Environment) -> Self {
        let recorded = minute
            .load
            .and_then(|load| environment.metrics.get(load.track));
        Self {
            at: minute.at,
            metric: recorded.map(|recorded| recorded.metric.identifier()),
            demand: minute.load.map(|load| load.demand),
            target_per_replica: minute.load.map(|load| load.target),
            needed_replicas: minute.needed(),
            ready_replicas: minute.ready,
            asked_replicas: minute.asked,
        }
    }
}

/// The under-provisioned minutes in which the most replicas were missing, the worst first.
fn worst_minutes(all: &[Minute]) -> Vec<&Minute> {
    let mut short: Vec<_> = all.iter().filter(|m| m.is_under_provisioned()).collect();
    // The sort is stable: among equal minutes, the first comes first.
    short.sort_by(|a, b| b.missing_replicas().total_cmp(&a.missing_replicas()));
    short.truncate(MOST);
    short
}

/// The hours with the most demand that was not served, the worst first.
fn worst_hours(all: &[Minute]) -> Vec<ShortHour> {
    let mut hours: BTreeMap<Timestamp, ShortHour> = BTreeMap::new();
    for minute in all.iter().filter(|minute| minute.is_under_provisioned()) {
        let (Some(load), Some(needed)) = (minute.load, minute.needed()) else {
            continue;
        };
        let at = hour_of(minute.at);
        let hour = hours.entry(at).or_insert(ShortHour {
            at,
            under_provisioned_minutes: 0,
            missing_replica_minutes: 0.0,
            needed_replicas: needed,
            ready_replicas: minute.ready,
        });
        hour.under_provisioned_minutes += 1;
        hour.missing_replica_minutes += load.replicas() - TOLERATED * minute.ready.as_f64();
        hour.needed_replicas = hour.needed_replicas.max(needed);
        hour.ready_replicas = hour.ready_replicas.min(minute.ready);
    }
    let mut worst: Vec<_> = hours.into_values().collect();
    worst.sort_by(|a, b| {
        b.missing_replica_minutes
            .total_cmp(&a.missing_replica_minutes)
    });
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
        let worst: Vec<_> = worst_minutes(&all)
            .iter()
            .map(|m| m.at.as_second() / 60)
            .collect();
        assert_eq!(worst, [180, 60, 59, 61]);
        let hours = worst_hours(&all);
        let found: Vec<_> = hours
            .iter()
            .map(|hour| {
                (
                    hour.at.as_second() / 3600,
                    hour.under_provisioned_minutes,
                    hour.needed_replicas.get(),
                )
            })
            .collect();
        assert_eq!(found, [(3, 1, 6), (1, 2, 3), (0, 1, 2)]);
        assert!((hours[1].missing_replica_minutes - (1.9 + 0.5)).abs() < 1e-9);
    }

    #[test]
    fn at_most_ten_are_listed() {
        let all: Vec<_> = (0..30).map(|hour| minute(hour * 60, 2.0)).collect();
        assert_eq!(
            (worst_minutes(&all).len(), worst_hours(&all).len()),
            (10, 10)
        );
        assert_eq!(worst_hours(&all)[0].at, all[0].at);
    }
}
