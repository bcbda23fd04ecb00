//! Measurements of syncs for the forecaster: the demand of each minute, the time that pods take to become ready, and
//! the load that one replica carries.
//!
//! Three hours of minutes are kept, each as the mean of its readings: enough to continue a history from one query to
//! the next, and to compare the two. A minute without a complete reading has no value; nothing is interpolated.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use foretide_domain::pod_names::PodNames;
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;

use super::series_key::SeriesKey;
use foretide_api::validation::WorkloadFacts;

/// Seconds in a minute.
const MINUTE: i64 = 60;
/// Number of minutes that are kept.
const MINUTES_KEPT: usize = 180;
/// Number of hours over which censored readings are counted.
const HOURS_KEPT: i64 = 24;
const HOURS_IN_A_DAY: f64 = 24.0;
/// Largest relative difference of the load of one replica that does not update it.
const PER_REPLICA_TOLERANCE: f64 = 0.10;

/// Measurement of one metric by one sync.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not depend on each other"
)]
pub struct DemandSample {
    /// The total demand, if every pod that counts has a reading.
    pub demand: Option<f64>,
    /// True if the demand was measured over about a minute or less; it may be a mean over a longer time if the metrics
    /// API does not say.
    pub of_a_minute: bool,
    /// True if the workload was at its limits, so that the true demand may be higher.
    pub censored: bool,
    /// True if more pods ran than the spec asks for: the demand is no measure of the load, and is not learned.
    pub surplus: bool,
    /// True if the demand grows with the pods, or is not known to divide among them.
    pub not_divided: bool,
    /// The load that one replica is meant to carry, in the unit of the demand.
    pub per_replica: Option<f64>,
}

/// The measured demand of all series.
#[derive(Debug, Default)]
pub struct DemandHistory {
    state: RwLock<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    series: HashMap<SeriesKey, SeriesDemand>,
    lead_times: HashMap<String, Option<SignedDuration>>,
    pod_names: HashMap<String, Arc<PodNames>>,
}

/// The measurements of one series.
#[derive(Debug, Default)]
struct SeriesDemand {
    minutes: VecDeque<MinuteReadings>,
    hours: VecDeque<HourReadings>,
    per_replica: Option<f64>,
    not_divided: bool,
}

/// The minutes of one series as syncs measured them, oldest first, each at its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiveMinutes {
    /// The mean of the readings of each minute: what a query with a range of a minute returns at that time.
    pub values: Vec<Sample>,
    /// The values that are known to be of their minute alone.
    pub raw: Vec<Sample>,
    /// The ends of the minutes in which more pods ran than the spec asks for, which have no value.
    pub surplus: BTreeSet<Timestamp>,
    /// The load that one replica is meant to carry.
    pub per_replica: Option<f64>,
}

/// The readings of one minute.
#[derive(Debug, Clone, Copy)]
struct MinuteReadings {
    /// The last second; the minute begins after the last second of the one before.
    end: i64,
    sum: f64,
    count: u32,
    /// True if each reading was measured over about a minute or less.
    of_a_minute: bool,
    /// True if more pods ran than the spec asks for.
    surplus: bool,
}

/// The readings of one hour, and the number of them that were censored.
#[derive(Debug, Clone, Copy)]
struct HourReadings {
    start: i64,
    all: u32,
    censored: u32,
}

// === impl DemandHistory ===

impl DemandHistory {
    /// Records what a sync measured of an object at `now`: the lead time of its pods, and a sample per metric.
    pub fn report(
        &self,
        uid: &str,
        lead_time: Option<SignedDuration>,
        samples: impl IntoIterator<Item = (String, DemandSample)>,
        now: Timestamp,
    ) {
        self.write(|state| {
            // An unknown lead time is stored, too: `workload_facts` takes an entry for the first sync.
            state.lead_times.insert(uid.to_owned(), lead_time);
            for (metric, sample) in samples {
                let uid = uid.to_owned();
                let series = state.series.entry(SeriesKey { uid, metric }).or_default();
                series.record(sample, now);
            }
        });
    }

    /// Records the names of the pods of an object that its selector selects.
    pub fn report_pods<'a>(&self, uid: &str, pods: impl IntoIterator<Item = &'a str>) {
        self.write(|state| {
            let names = state.pod_names.entry(uid.to_owned()).or_default();
            let names = Arc::make_mut(names);
            for pod in pods {
                names.learn(pod);
            }
        });
    }

    /// The names of the pods of the workload of a series, if they were reported.
    pub fn pod_names(&self, key: &SeriesKey) -> Option<Arc<PodNames>> {
        let state = self.state.read();
        state.pod_names.get(&key.uid).cloned()
    }

    /// The measurements that syncs made of the workload of a series; `None` before the first sync of its object.
    pub fn workload_facts(&self, key: &SeriesKey) -> Option<WorkloadFacts> {
        let state = self.state.read();
        let lead_time = *state.lead_times.get(&key.uid)?;
        let series = state.series.get(key);
        Some(WorkloadFacts {
            lead_time,
            per_replica: series.and_then(|series| series.per_replica),
            // Syncs do not know the budgets; the forecaster sets it.
            shares_budget: false,
            not_divided: series.is_some_and(|series| series.not_divided),
        })
    }

    /// The minutes that have ended at `now`.
    pub fn minutes(&self, key: &SeriesKey, now: Timestamp) -> LiveMinutes {
        let state = self.state.read();
        let mut live = LiveMinutes::default();
        let Some(series) = state.series.get(key) else {
            return live;
        };
        live.per_replica = series.per_replica;
        for minute in &series.minutes {
            let Some(sample) = minute.sample().filter(|_| minute.end <= now.as_second()) else {
                continue;
            };
            if minute.surplus {
                live.surplus.insert(sample.at);
                continue;
            }
            live.values.push(sample);
            if minute.of_a_minute {
                live.raw.push(sample);
            }
        }
        live
    }

    /// Part of the last day in which the workload was at its limits, in percent.
    pub fn censored_percent(&self, key: &SeriesKey) -> f64 {
        let state = self.state.read();
        let hours = state.series.get(key).map(|series| series.hours.iter());
        // Hours without readings count as not censored, so that the first readings of an object do not count as a day.
        let censored: f64 = (hours.into_iter().flatten())
            .map(|hour| f64::from(hour.censored) / f64::from(hour.all.max(1)))
            .sum();
        100.0 * censored / HOURS_IN_A_DAY
    }

    /// Drops every series that `keep` refuses, and objects without series.
    pub fn retain(&self, keep: impl Fn(&SeriesKey) -> bool) {
        self.write(|state| {
            state.series.retain(|key, _| keep(key));
            let uids: HashSet<&String> = state.series.keys().map(|key| &key.uid).collect();
            state.lead_times.retain(|uid, _| uids.contains(uid));
            state.pod_names.retain(|uid, _| uids.contains(uid));
        });
    }

    fn write(&self, change: impl FnOnce(&mut Tables)) {
        change(&mut self.state.write());
    }
}

// === impl MinuteReadings ===

impl MinuteReadings {
    /// The mean of the readings.
    fn sample(&self) -> Option<Sample> {
        let at = Timestamp::from_second(self.end).ok()?;
        let value = self.sum / f64::from(self.count.max(1));
        Some(Sample { at, value })
    }
}

// === impl SeriesDemand ===

impl SeriesDemand {
    fn record(&mut self, sample: DemandSample, now: Timestamp) {
        let second = now.as_second();
        self.record_per_replica(sample.per_replica);
        self.not_divided = sample.not_divided;
        self.count_censored(sample.censored, second.div_euclid(3600) * 3600);
        // Rounded up, as a range of Prometheus excludes its start and includes its end.
        let end = (second + MINUTE - 1).div_euclid(MINUTE) * MINUTE;
        // After the clock was set back, minutes ahead of it are dropped.
        while (self.minutes.pop_back_if(|minute| minute.end > end)).is_some() {}
        let demand = sample.demand.filter(|demand| demand.is_finite());
        // A minute of which nothing is known may still be one that is not to be learned.
        let Some(demand) = demand.or(sample.surplus.then_some(0.0)) else {
            return;
        };
        match self.minutes.back_mut().filter(|minute| minute.end == end) {
            Some(minute) => {
                minute.sum += demand;
                minute.count += 1;
                minute.of_a_minute &= sample.of_a_minute;
                minute.surplus |= sample.surplus;
            }
            None => self.minutes.push_back(MinuteReadings {
                end,
                sum: demand,
                count: 1,
                of_a_minute: sample.of_a_minute,
                surplus: sample.surplus,
            }),
        }
        if self.minutes.len() > MINUTES_KEPT {
            self.minutes.pop_front();
        }
    }

    /// Keeps the value while it hardly changes, because a change makes the forecaster start over.
    fn record_per_replica(&mut self, now: Option<f64>) {
        let Some(now) = now.filter(|now| now.is_finite() && *now > 0.0) else {
            return;
        };
        let same = |before: f64| (now / before - 1.0).abs() <= PER_REPLICA_TOLERANCE;
        if !self.per_replica.is_some_and(same) {
            self.per_replica = Some(now);
        }
    }

    fn count_censored(&mut self, censored: bool, start: i64) {
        // As for the minutes: these hours are ahead of a clock that was set back.
        while (self.hours.pop_back_if(|hour| hour.start > start)).is_some() {}
        if self.hours.back().is_none_or(|hour| hour.start < start) {
            self.hours.push_back(HourReadings {
                start,
                all: 0,
                censored: 0,
            });
        }
        let day_ago = start - HOURS_KEPT * 3600;
        while (self.hours.front()).is_some_and(|hour| hour.start <= day_ago) {
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

    fn report(history: &DemandHistory, second: i64, sample: DemandSample) {
        let samples = [("resource.cpu".to_owned(), sample)];
        history.report("uid", None, samples, at(second));
    }

    fn demand(demand: f64) -> DemandSample {
        DemandSample {
            demand: Some(demand),
            ..DemandSample::default()
        }
    }

    fn pairs(samples: &[Sample]) -> Vec<(i64, f64)> {
        let pair = |sample: &Sample| (sample.at.as_second() - MIDNIGHT, sample.value);
        samples.iter().map(pair).collect()
    }

    fn minutes(history: &DemandHistory, now: i64) -> Vec<(i64, f64)> {
        pairs(&history.minutes(&key(), at(now)).values)
    }

    #[test]
    fn a_minute_is_the_mean_of_its_readings_once_it_has_ended() {
        let history = DemandHistory::default();
        for (second, value) in [(5, 1.0), (20, 2.0), (60, 3.0), (61, 9.0), (200, 4.0)] {
            report(&history, second, demand(value));
        }
        report(&history, 130, DemandSample::default());
        assert_eq!(minutes(&history, 59), []);
        assert_eq!(minutes(&history, 60), [(60, 2.0)]);
        // The reading at second 130 came after one at 200: the clock was set back, and minutes ahead of it are gone.
        assert_eq!(minutes(&history, 500), [(60, 2.0), (120, 9.0)]);
    }

    #[test]
    fn minutes_without_a_complete_reading_are_absent_and_old_ones_are_dropped() {
        let history = DemandHistory::default();
        for minute in 0..1000 {
            let complete = (minute % 7 != 3).then_some(1.0);
            let sample = complete.map(demand).unwrap_or_default();
            report(&history, minute * 60 + 30, sample);
        }
        let kept = minutes(&history, 60_000);
        assert_eq!(kept.len(), MINUTES_KEPT);
        assert!(kept.iter().all(|(end, _)| (end / 60 - 1) % 7 != 3));
        history.retain(|_| false);
        assert_eq!(minutes(&history, 60_000), []);
        assert_eq!(history.workload_facts(&key()), None);
    }

    #[test]
    fn a_minute_is_raw_unless_one_of_its_readings_may_be_a_mean_over_a_longer_time() {
        let history = DemandHistory::default();
        for (minute, value, of_a_minute) in [
            (1, 3.0, true),
            (2, 4.0, true),
            (2, 8.0, false),
            (3, 1.0, false),
            (4, 2.0, true),
        ] {
            let sample = DemandSample {
                of_a_minute,
                ..demand(value)
            };
            report(&history, minute * 60 - 5, sample);
        }
        let live = history.minutes(&key(), at(240));
        let all = [(60, 3.0), (120, 6.0), (180, 1.0), (240, 2.0)];
        assert_eq!(pairs(&live.values), all);
        assert_eq!(pairs(&live.raw), [all[0], all[3]]);
    }

    #[test]
    fn a_minute_with_more_pods_than_the_spec_asks_for_has_no_value_and_is_named() {
        let history = DemandHistory::default();
        for (second, surplus, value) in [
            (5, false, Some(1.0)),
            (70, false, Some(2.0)),
            (100, true, None),
            (130, false, Some(3.0)),
        ] {
            let sample = DemandSample {
                demand: value,
                surplus,
                of_a_minute: true,
                ..DemandSample::default()
            };
            report(&history, second, sample);
        }
        let live = history.minutes(&key(), at(180));
        assert_eq!(pairs(&live.values), [(60, 1.0), (180, 3.0)]);
        assert_eq!(pairs(&live.raw), [(60, 1.0), (180, 3.0)]);
        assert_eq!(live.surplus, BTreeSet::from([at(120)]));
    }

    #[test]
    fn what_one_replica_carries_is_updated_when_it_changes_by_more_than_a_tenth() {
        let history = DemandHistory::default();
        assert_eq!(history.workload_facts(&key()), None);
        for (carries, want) in [
            (None, None),
            (Some(0.2), Some(0.2)),
            (Some(0.21), Some(0.2)),
            (Some(0.0), Some(0.2)),
            (None, Some(0.2)),
            (Some(0.3), Some(0.3)),
        ] {
            let sample = DemandSample {
                per_replica: carries,
                ..DemandSample::default()
            };
            report(&history, 0, sample);
            let facts = history.workload_facts(&key()).unwrap();
            assert_eq!(facts.per_replica, want, "{carries:?}");
        }
    }

    #[test]
    fn censored_readings_are_counted_over_a_day() {
        let history = DemandHistory::default();
        let reading = |second, censored| {
            let sample = DemandSample {
                censored,
                ..demand(1.0)
            };
            report(&history, second, sample);
        };
        // One reading, and then an hour of them, are not a day.
        reading(0, true);
        assert!((history.censored_percent(&key()) - 100.0 / 24.0).abs() < 1e-9);
        for minute in 1..1440 {
            reading(minute * 60, minute < 360);
            if minute == 59 {
                assert!((history.censored_percent(&key()) - 100.0 / 24.0).abs() < 1e-9);
            }
        }
        assert!((history.censored_percent(&key()) - 25.0).abs() < 1e-9);
        for minute in 1440..1800 {
            reading(minute * 60, false);
        }
        assert!(history.censored_percent(&key()) < 1e-9);
    }
}
