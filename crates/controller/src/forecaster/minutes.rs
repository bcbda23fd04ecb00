//! The raw values of a series: what pods had in each minute alone.
//!
//! | the query | raw values |
//! |---|---|
//! | a mean over more than a minute, as `rate(...[3m])` | those of the same query over a minute, and live minutes |
//! | of its own minute, as a gauge | all |
//! | not known | none |

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foretide_domain::forecast::Refused;
use foretide_models::{Sample, Series};
use jiff::{SignedDuration, Timestamp};

use super::history::QueryPart;
use foretide_api::ports::{DemandQueries, Resolution};

pub const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Span of the values that the minutes are compared with: the last day.
const COMPARED: SignedDuration = SignedDuration::from_hours(24);
/// Largest relative difference of the mean of the minutes from that of the values at the same times. The sum of a
/// minute lacks the pods that were not scraped twice in it, and nothing else shows that.
const TOLERANCE: f64 = 0.05;

/// The samples of a series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeriesSamples {
    /// The samples, oldest first.
    pub values: Vec<Sample>,
    /// The times of the raw samples.
    pub raw: BTreeSet<Timestamp>,
    /// True if the newest samples were left out.
    pub ends_left_out: bool,
    /// Time before which there are no samples, because they are not needed.
    pub since: Option<Timestamp>,
    /// True if minutes that were queried can be used.
    pub minutes_are_usable: bool,
    /// The reason why no forecast may be made from them.
    pub refused: Option<Refused>,
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

// === impl SeriesSamples ===

impl SeriesSamples {
    /// The samples of a series with these values, and those of the raw ones that are in the time span of the values.
    pub fn new(values: &[Sample], mut raw: Vec<Sample>) -> Self {
        // Live minutes do not continue a history here that they may not continue: the values end where they must.
        let span = values.first().zip(values.last());
        raw.retain(|sample| {
            span.is_some_and(|(first, last)| (first.at..=last.at).contains(&sample.at))
        });
        // The later one of two for a time is kept: a queried minute replaces a live one, and both a mean.
        let by_time: BTreeMap<Timestamp, Sample> = (values.iter().chain(&raw))
            .map(|sample| (sample.at, *sample))
            .collect();
        Self {
            values: by_time.into_values().collect(),
            raw: raw.iter().map(|sample| sample.at).collect(),
            ..Self::default()
        }
    }

    /// The series of these samples in steps of `step`, with its ends aligned.
    pub fn binned(&self, step: SignedDuration, start: Timestamp, end: Timestamp) -> Series {
        let raw: Vec<Sample> = (self.values.iter())
            .filter(|sample| self.raw.contains(&sample.at))
            .copied()
            .collect();
        let (start, end) = (aligned(start, step), aligned(end, step));
        Series::from_samples(&self.values, step, start, end).with_raw(&raw)
    }

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

/// The last instant, not after `at`, that every series of this step has in common: a multiple of the step and of a
/// minute.
pub fn aligned(at: Timestamp, step: SignedDuration) -> Timestamp {
    let step = step.as_secs().max(1);
    let mut grid = step;
    // Ends at a common multiple: `step * 60` is one of both.
    while grid % 60 != 0 && grid < step * 60 {
        grid += step;
    }
    let second = at.as_second().div_euclid(grid) * grid;
    Timestamp::from_second(second).unwrap_or(at)
}

/// True if minutes can be used beside the values that are means of them, both oldest first: the last day has at least
/// half as many, and they are as high.
pub fn minutes_are_usable(minutes: &[Sample], values: &[Sample]) -> bool {
    let Some(newest) = values.last() else {
        return false;
    };
    let is_recent = |sample: &&Sample| newest.at.duration_since(sample.at) <= COMPARED;
    let minutes: HashMap<Timestamp, f64> = (minutes.iter().rev())
        .take_while(is_recent)
        .map(|one| (one.at, one.value))
        .collect();
    let (mut recent, mut common, mut sums) = (0, 0, (0.0, 0.0));
    for value in values.iter().rev().take_while(is_recent) {
        recent += 1;
        match minutes.get(&value.at) {
            Some(minute) if minute.is_finite() && value.value.is_finite() => {
                common += 1;
                sums = (sums.0 + minute, sums.1 + value.value);
            }
            _ => {}
        }
    }
    let difference = (sums.0 - sums.1).abs();
    common > 0 && 2 * common >= recent && difference <= TOLERANCE * sums.1
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
