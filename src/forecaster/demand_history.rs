//! What the syncs see and forecasters want to know: the total demand of each minute, how long pods take to start, what
//! one replica carries.
//!
//! Demand is kept as means of whole minutes, three hours of them: enough to carry a forecast from one query
//! of its history to the next, and to compare the two. It refuses to fill holes: a minute without a whole reading is
//! not there.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{PoisonError, RwLock},
};

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::forecasts::SeriesKey;
use crate::api::spec::Known;

/// Seconds in a minute.
const MINUTE: i64 = 60;
/// How many minutes are kept.
const MINUTES_KEPT: usize = 180;
/// How many hours censored minutes are counted over.
const HOURS_KEPT: i64 = 24;
const HOURS_IN_A_DAY: f64 = 24.0;
/// What one replica carries is taken anew when it differs by more than this part.
const CARRIES_TOLERANCE: f64 = 0.10;

/// What one sync saw of one metric.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DemandSample {
    /// The total demand, if every pod that counts answered.
    pub demand: Option<f64>,
    /// Whether the workload was at its limits, so that the true demand may be higher.
    pub censored: bool,
    /// What one replica is meant to carry, in the unit of the demand.
    pub per_replica: Option<f64>,
}

/// The table of all series.
#[derive(Debug, Default)]
pub struct DemandHistory {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    series: HashMap<SeriesKey, Track>,
    lead_times: HashMap<String, Option<SignedDuration>>,
}

/// What is kept of one series.
#[derive(Debug, Default)]
struct Track {
    minutes: VecDeque<Minute>,
    hours: VecDeque<Hour>,
    per_replica: Option<f64>,
}

/// The readings of one minute.
#[derive(Debug, Clone, Copy)]
struct Minute {
    /// Its last second; it begins after the last second of the one before.
    end: i64,
    sum: f64,
    count: u32,
}

/// The readings of one hour, and how many of them were censored.
#[derive(Debug, Clone, Copy)]
struct Hour {
    start: i64,
    all: u32,
    censored: u32,
}

// === impl DemandHistory ===

impl DemandHistory {
    /// Takes in what a sync saw of an object at `now`: the lead time of its pods, and a glimpse per metric.
    pub fn report(
        &self,
        uid: &str,
        lead_time: Option<SignedDuration>,
        glimpses: impl IntoIterator<Item = (String, DemandSample)>,
        now: Timestamp,
    ) {
        self.write(|state| {
            state.lead_times.insert(uid.to_owned(), lead_time);
            for (metric, glimpse) in glimpses {
                let uid = uid.to_owned();
                let track = state.series.entry(SeriesKey { uid, metric }).or_default();
                track.take(glimpse, now);
            }
        });
    }

    /// What is known about a series; `None` before the first sync that saw its object.
    #[must_use]
    pub fn situation(&self, key: &SeriesKey) -> Option<Known> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let lead_time = *state.lead_times.get(&key.uid)?;
        let track = state.series.get(key);
        Some(Known {
            lead_time,
            per_replica: track.and_then(|track| track.per_replica),
        })
    }

    /// The minutes that are over at `now`, oldest first: the mean of each, at its end, as a query at that instant would
    /// give it.
    #[must_use]
    pub fn minutes(&self, key: &SeriesKey, now: Timestamp) -> Vec<Sample> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let minutes = state.series.get(key).map(|track| track.minutes.iter());
        let over = minutes
            .into_iter()
            .flatten()
            .filter(|minute| minute.end <= now.as_second());
        over.filter_map(|minute| {
            Some(Sample {
                at: Timestamp::from_second(minute.end).ok()?,
                value: minute.sum / f64::from(minute.count.max(1)),
            })
        })
        .collect()
    }

    /// The part of the last day during which the workload was seen at its limits, in percent.
    #[must_use]
    pub fn censored_percent(&self, key: &SeriesKey) -> f64 {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let hours = state.series.get(key).map(|track| track.hours.iter());
        // Each hour by itself: what was not seen of a day counts as not censored, so that the first readings of an object
        // do not pass for a day.
        let share = |hour: &Hour| f64::from(hour.censored) / f64::from(hour.all.max(1));
        let censored: f64 = hours.into_iter().flatten().map(share).sum();
        100.0 * censored / HOURS_IN_A_DAY
    }

    /// Forgets every series that `keep` does not want, and objects without one.
    pub fn retain(&self, keep: impl Fn(&SeriesKey) -> bool) {
        self.write(|state| {
            state.series.retain(|key, _| keep(key));
            let uids: HashSet<&String> = state.series.keys().map(|key| &key.uid).collect();
            state.lead_times.retain(|uid, _| uids.contains(uid));
        });
    }

    fn write(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
    }
}

// === impl Track ===

impl Track {
    fn take(&mut self, glimpse: DemandSample, now: Timestamp) {
        let second = now.as_second();
        self.carries(glimpse.per_replica);
        self.count(glimpse.censored, second.div_euclid(3600) * 3600);
        let end = (second + MINUTE - 1).div_euclid(MINUTE) * MINUTE;
        // The clock was set back: what is ahead of it is not known to have been.
        while self.minutes.back().is_some_and(|minute| minute.end > end) {
            self.minutes.pop_back();
        }
        let Some(demand) = glimpse.demand.filter(|demand| demand.is_finite()) else {
            return;
        };
        match self.minutes.back_mut().filter(|minute| minute.end == end) {
            Some(minute) => {
                minute.sum += demand;
                minute.count += 1;
            }
            None => self.minutes.push_back(Minute {
                end,
                sum: demand,
                count: 1,
            }),
        }
        if self.minutes.len() > MINUTES_KEPT {
            self.minutes.pop_front();
        }
    }

    /// Keeps what one replica carries while it hardly changes, so that nothing learns anew for a rounding.
    fn carries(&mut self, now: Option<f64>) {
        let Some(now) = now.filter(|now| now.is_finite() && *now > 0.0) else {
            return;
        };
        let same = |before: f64| (now / before - 1.0).abs() <= CARRIES_TOLERANCE;
        if !self.per_replica.is_some_and(same) {
            self.per_replica = Some(now);
        }
    }

    fn count(&mut self, censored: bool, start: i64) {
        while self.hours.back().is_some_and(|hour| hour.start > start) {
            self.hours.pop_back();
        }
        if self.hours.back().is_none_or(|hour| hour.start < start) {
            self.hours.push_back(Hour {
                start,
                all: 0,
                censored: 0,
            });
        }
        let day = HOURS_KEPT * 3600;
        while self
            .hours
            .front()
            .is_some_and(|hour| hour.start <= start - day)
        {
            self.hours.pop_front();
        }
        if let Some(hour) = self.hours.back_mut() {
            hour.all += 1;
            hour.censored += u32::from(censored);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDNIGHT: i64 = 1_767_225_600;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(MIDNIGHT + second).unwrap()
    }

    fn key() -> SeriesKey {
        SeriesKey {
            uid: "uid".into(),
            metric: "resource.cpu".into(),
        }
    }

    fn seen(feed: &DemandHistory, second: i64, glimpse: DemandSample) {
        let glimpses = [("resource.cpu".to_owned(), glimpse)];
        feed.report("uid", None, glimpses, at(second));
    }

    fn demand(demand: f64) -> DemandSample {
        DemandSample {
            demand: Some(demand),
            ..DemandSample::default()
        }
    }

    fn minutes(feed: &DemandHistory, now: i64) -> Vec<(i64, f64)> {
        let minutes = feed.minutes(&key(), at(now));
        let pair = |sample: &Sample| (sample.at.as_second() - MIDNIGHT, sample.value);
        minutes.iter().map(pair).collect()
    }

    #[test]
    fn a_minute_is_the_mean_of_its_readings_once_it_is_over() {
        let feed = DemandHistory::default();
        for (second, value) in [(5, 1.0), (20, 2.0), (60, 3.0), (61, 9.0), (200, 4.0)] {
            seen(&feed, second, demand(value));
        }
        seen(&feed, 130, DemandSample::default());
        assert_eq!(minutes(&feed, 59), []);
        assert_eq!(minutes(&feed, 60), [(60, 2.0)]);
        // A reading before another one sets the clock back, and takes what is ahead with it.
        assert_eq!(minutes(&feed, 500), [(60, 2.0), (120, 9.0)]);
    }

    #[test]
    fn minutes_without_a_whole_reading_are_not_there_and_old_ones_go() {
        let feed = DemandHistory::default();
        for minute in 0..1000 {
            let value = (minute % 7 != 3).then_some(1.0);
            let glimpse = DemandSample {
                demand: value,
                ..DemandSample::default()
            };
            seen(&feed, minute * 60 + 30, glimpse);
        }
        let kept = minutes(&feed, 60_000);
        assert_eq!(kept.len(), MINUTES_KEPT);
        assert!(kept.iter().all(|(end, _)| (end / 60 - 1) % 7 != 3));
        feed.retain(|_| false);
        assert_eq!(
            (minutes(&feed, 60_000), feed.situation(&key())),
            (vec![], None)
        );
    }

    #[test]
    fn what_one_replica_carries_is_taken_anew_beyond_a_tenth() {
        let feed = DemandHistory::default();
        assert_eq!(feed.situation(&key()), None);
        for (carries, want) in [
            (None, None),
            (Some(0.2), Some(0.2)),
            (Some(0.21), Some(0.2)),
            (Some(0.0), Some(0.2)),
            (None, Some(0.2)),
            (Some(0.3), Some(0.3)),
        ] {
            let glimpse = DemandSample {
                per_replica: carries,
                ..DemandSample::default()
            };
            seen(&feed, 0, glimpse);
            let known = feed.situation(&key()).unwrap();
            assert_eq!(known.per_replica, want, "{carries:?}");
        }
    }

    #[test]
    fn censored_readings_are_counted_over_a_day() {
        let feed = DemandHistory::default();
        let reading = |second, censored| {
            let glimpse = DemandSample {
                censored,
                ..demand(1.0)
            };
            seen(&feed, second, glimpse);
        };
        // One reading, and then an hour of them, are not a day.
        reading(0, true);
        assert!((feed.censored_percent(&key()) - 100.0 / 24.0).abs() < 1e-9);
        for minute in 1..1440 {
            reading(minute * 60, minute < 360);
            if minute == 59 {
                assert!((feed.censored_percent(&key()) - 100.0 / 24.0).abs() < 1e-9);
            }
        }
        assert!((feed.censored_percent(&key()) - 25.0).abs() < 1e-9);
        for minute in 1440..1800 {
            reading(minute * 60, false);
        }
        assert!(feed.censored_percent(&key()) < 1e-9);
    }
}
