//! The raw values of a series: what pods had in each minute alone.
//!
//! | the query | raw values |
//! |---|---|
//! | a mean over more than a minute, as `rate(...[3m])` | those of the same query over a minute, and live minutes |
//! | of its own minute, as a gauge | all |
//! | not known | none |
//!
//! Where the values are means, they are used for the minutes without a raw value. The query of minutes runs whenever
//! that of the values does. Where it has too few values, as with scrapes that are more than half a minute apart, or
//! fails, it is tried again after an hour.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::{
    demand_history::LiveMinutes,
    history::{LiveMatch, QueryPart, RangeQuery},
};
use foretide_api::ports::{DemandQueries, Resolution};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Time for which a query of minutes is not repeated that failed or was of no use.
const RETRY: SignedDuration = SignedDuration::from_hours(1);
/// Span of the values that the minutes are compared with: the last day.
const COMPARED: SignedDuration = SignedDuration::from_hours(24);
/// Largest relative difference of the mean of the minutes from that of the values at the same times. The sum of a
/// minute lacks the pods that were not scraped twice in it, and nothing else shows that.
const TOLERANCE: f64 = 0.05;

/// Origin of the raw values of one series.
#[derive(Debug)]
pub struct RawValues {
    resolution: Resolution<RangeQuery>,
    /// True if the queried minutes are as many, and as high, as they have to be.
    usable: bool,
    /// True if the newest query has returned; absent once its minutes have been judged.
    returned: Option<bool>,
    /// The time before which minutes are not queried.
    query_at: Timestamp,
}

/// The samples of a series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeriesSamples {
    /// The samples, oldest first.
    pub values: Vec<Sample>,
    /// The times of the raw samples.
    pub raw: BTreeSet<Timestamp>,
    /// True if the newest samples were left out.
    pub ends_left_out: bool,
}

/// The resolution of a sum of queries.
pub fn resolution(queries: &impl DemandQueries, parts: &[QueryPart]) -> Resolution<Vec<QueryPart>> {
    let mut minutes = Vec::new();
    let mut is_mean = false;
    for part in parts {
        let query = match queries.resolution(&part.query) {
            // In a sum of which another part is a mean, it is the query of minutes of its own.
            Resolution::Minute => part.query.clone(),
            Resolution::Mean(minutes) => {
                is_mean = true;
                minutes
            }
            Resolution::Unknown => return Resolution::Unknown,
        };
        let member = part.member.clone();
        minutes.push(QueryPart { member, query });
    }
    if is_mean {
        Resolution::Mean(minutes)
    } else {
        Resolution::Minute
    }
}

// === impl RawValues ===

impl RawValues {
    /// The raw values of a series that `query` reads.
    pub fn new(resolution: Resolution<Vec<QueryPart>>, query: &RangeQuery) -> Self {
        // A longer step has no minutes.
        let resolution = if query.step() == MINUTE {
            resolution.map(|parts| query.with_parts(parts))
        } else {
            Resolution::Unknown
        };
        Self {
            resolution,
            usable: false,
            returned: None,
            query_at: Timestamp::MIN,
        }
    }

    /// The query of minutes, if the values are not those.
    pub fn query(&self) -> Option<&RangeQuery> {
        match &self.resolution {
            Resolution::Mean(minutes) => Some(minutes),
            Resolution::Minute | Resolution::Unknown => None,
        }
    }

    /// True if the queried minutes can be used.
    pub const fn is_usable(&self) -> bool {
        self.usable
    }

    /// Forgets what was queried, from another tenant.
    pub fn forget(&mut self) {
        (self.usable, self.returned, self.query_at) = (false, None, Timestamp::MIN);
    }

    /// True if minutes are to be queried now.
    pub fn is_due(&self, now: Timestamp) -> bool {
        // A clock that was set back by more than the wait must not stop the queries.
        let wait = self.query_at.duration_since(now);
        self.query().is_some() && (wait <= SignedDuration::ZERO || wait > RETRY)
    }

    /// Records that a query begins: it may never return.
    pub fn begin(&mut self, now: Timestamp) {
        self.returned = Some(false);
        self.query_at = now.saturating_add(RETRY).unwrap_or(Timestamp::MAX);
    }

    /// Records that the query has returned without an error.
    pub fn end(&mut self) {
        self.returned = Some(true);
    }

    /// The samples of a series with these values, of which these minutes were queried and measured live.
    pub fn samples(
        &mut self,
        values: &[Sample],
        queried: &[Sample],
        (live, live_match): (&LiveMinutes, LiveMatch),
        now: Timestamp,
    ) -> SeriesSamples {
        if let Some(has_returned) = self.returned.take() {
            self.usable = minutes_are_usable(queried, values);
            // Otherwise the wait that `begin` set stays.
            if self.usable && has_returned {
                self.query_at = now;
            }
        }
        let mut raw: Vec<Sample> = match &self.resolution {
            Resolution::Unknown => Vec::new(),
            Resolution::Minute => values.to_vec(),
            Resolution::Mean(_) => {
                let live = live.raw.iter().filter(|_| live_match.matches());
                let queried = queried.iter().filter(|_| self.usable);
                live.chain(queried).copied().collect()
            }
        };
        // Live minutes do not continue a history here that they may not continue: the values end where they must.
        let span = values.first().zip(values.last());
        raw.retain(|sample| {
            span.is_some_and(|(first, last)| (first.at..=last.at).contains(&sample.at))
        });
        // The later one of two for a time is kept: a queried minute replaces a live one, and both a mean.
        let by_time = values.iter().chain(&raw).map(|sample| (sample.at, *sample));
        let all: BTreeMap<Timestamp, Sample> = by_time.collect();
        SeriesSamples {
            values: all.into_values().collect(),
            raw: raw.iter().map(|sample| sample.at).collect(),
            ends_left_out: false,
        }
    }
}

// === impl SeriesSamples ===

impl SeriesSamples {
    /// Leaves out the samples of the minutes that end at these times.
    pub fn leave_out(&mut self, minutes: &BTreeSet<Timestamp>) {
        let is_left_out = |sample: &Sample| {
            minutes
                .range(sample.at..)
                .next()
                .is_some_and(|end| end.duration_since(sample.at) < MINUTE)
        };
        self.ends_left_out = self.values.last().is_some_and(is_left_out);
        self.values.retain(|sample| !is_left_out(sample));
    }
}

/// True if minutes can be used beside the values that are means of them, both oldest first: the last day has at least
/// half as many, and they are as high.
#[must_use]
pub fn minutes_are_usable(minutes: &[Sample], values: &[Sample]) -> bool {
    let newest = values.last().map(|value| value.at);
    let is_recent = |sample: &&Sample| {
        newest.is_some_and(|newest| newest.duration_since(sample.at) <= COMPARED)
    };
    let recent: Vec<&Sample> = values.iter().rev().take_while(is_recent).collect();
    let recent_minutes = minutes.iter().rev().take_while(is_recent);
    let minutes: HashMap<Timestamp, f64> = recent_minutes.map(|one| (one.at, one.value)).collect();
    let common = recent.iter().filter_map(|value| {
        let minute = minutes.get(&value.at)?;
        (minute.is_finite() && value.value.is_finite()).then_some((*minute, value.value))
    });
    let (mut count, mut sums) = (0, (0.0, 0.0));
    for (minute, value) in common {
        count += 1;
        sums = (sums.0 + minute, sums.1 + value);
    }
    let difference = (sums.0 - sums.1).abs();
    count > 0 && 2 * count >= recent.len() && difference <= TOLERANCE * sums.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_minutes_that_are_not_learned_are_left_out() {
        let at = |second| Timestamp::from_second(END + second).unwrap();
        let sample = |second| Sample {
            at: at(second),
            value: 1.0,
        };
        let mut samples = SeriesSamples {
            values: [0, 15, 60, 61, 90, 120, 121].map(sample).to_vec(),
            ..SeriesSamples::default()
        };
        samples.leave_out(&BTreeSet::from([at(120)]));
        let left = samples.values.iter().map(|sample| sample.at);
        assert!(left.eq([0, 15, 60, 121].map(at)));
        assert!(!samples.ends_left_out);
        samples.leave_out(&BTreeSet::from([at(180)]));
        assert!(samples.ends_left_out);
    }

    const END: i64 = 1_767_225_600;
    const DAY: i64 = 1440;

    /// Values of the newest minutes, oldest first; `None` is missing.
    fn minutes(count: i64, value: impl Fn(i64) -> Option<f64>) -> Vec<Sample> {
        let minutes = (0..count).rev().filter_map(|ago| {
            let at = Timestamp::from_second(END - ago * 60).unwrap();
            Some(Sample {
                at,
                value: value(ago)?,
            })
        });
        minutes.collect()
    }

    #[test]
    fn minutes_are_used_if_half_of_the_last_day_is_there_and_as_high() {
        type Value = fn(i64) -> Option<f64>;
        let cases: [(&str, Value, bool); 9] = [
            (
                "uneven, with the same mean",
                |ago| Some(if ago % 3 == 0 { 2.0 } else { 0.5 }),
                true,
            ),
            (
                "every second one",
                |ago| (ago % 2 == 0).then_some(1.0),
                true,
            ),
            (
                "every third one",
                |ago| (ago % 3 == 0).then_some(1.0),
                false,
            ),
            (
                "of the day before only",
                |ago| (ago > DAY).then_some(1.0),
                false,
            ),
            (
                "of the last half of a day only",
                |ago| (ago <= DAY / 2).then_some(1.0),
                true,
            ),
            ("none", |_| None, false),
            ("a part of the pods is missing", |_| Some(0.94), false),
            ("too high", |_| Some(1.06), false),
            ("not numbers", |_| Some(f64::NAN), false),
        ];
        let values = minutes(2 * DAY, |_| Some(1.0));
        for (name, value, expected) in cases {
            let minutes = minutes(2 * DAY, value);
            assert_eq!(minutes_are_usable(&minutes, &values), expected, "{name}");
        }
        let idle = minutes(DAY, |_| Some(0.0));
        assert!(minutes_are_usable(&idle, &idle));
        assert!(!minutes_are_usable(&[], &[]));
    }
}
