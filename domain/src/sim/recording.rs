//! A recorded history, read as a range query reads Prometheus: at an instant the latest value that is not too old,
//! without interpolation, and never a later one.

use std::collections::{BTreeMap, BTreeSet};

use foretide_models::{MAX_SLOTS, Sample, Series};
use jiff::{SignedDuration, Timestamp};

/// Time for which a value is used if no newer one was recorded: the lookback of Prometheus.
const LOOKBACK: SignedDuration = SignedDuration::from_mins(5);
/// The step of a simulation, and the greatest usual distance of samples that count as raw.
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// The total demand for one metric as it was recorded, in the metric's base unit.
///
/// ```
/// use foretide_domain::sim::Recording;
/// use foretide_models::Sample;
/// use jiff::{SignedDuration, Timestamp};
///
/// let at = |minute: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute);
/// let sample = |minute, value| Sample { at: at(minute), value };
/// let recording = Recording::new(vec![sample(0, 10.0), sample(1, 11.0), sample(2, 12.0)]);
/// assert_eq!(recording.value_at(at(6)), Some(12.0));
/// // Five minutes after the last sample its value is too old.
/// assert_eq!(recording.value_at(at(7)), None);
/// ```
#[derive(Clone, Debug)]
pub struct Recording {
    samples: Vec<Sample>,
    lookback: SignedDuration,
    raw: RawSamples,
}

/// The samples that are values of single minutes, and not means over a longer time.
#[derive(Clone, Debug)]
enum RawSamples {
    All,
    /// The samples at these times, in order.
    At(Vec<Timestamp>),
}

// === impl Recording ===

impl Recording {
    /// Takes samples in any order. They count as raw if they are a minute apart or less: each is the value of its own
    /// minute.
    pub fn new(mut samples: Vec<Sample>) -> Self {
        samples.sort_by_key(|sample| sample.at);
        let usual = usual_distance(&samples);
        let raw = if usual <= MINUTE {
            RawSamples::All
        } else {
            RawSamples::At(Vec::new())
        };
        Self {
            samples,
            // As in Prometheus, and at least twice the usual distance.
            lookback: usual.checked_mul(2).unwrap_or(LOOKBACK).max(LOOKBACK),
            raw,
        }
    }

    /// Takes means over more than a minute in any order, and the known values of single minutes, which replace the
    /// means of the same times.
    pub fn of_means(means: &[Sample], minutes: &[Sample]) -> Self {
        let all = means.iter().chain(minutes);
        // The minutes come last, so they replace the means of the same times.
        let all: BTreeMap<Timestamp, Sample> = all.map(|sample| (sample.at, *sample)).collect();
        let raw: BTreeSet<Timestamp> = minutes.iter().map(|sample| sample.at).collect();
        Self {
            raw: RawSamples::At(raw.into_iter().collect()),
            ..Self::new(all.into_values().collect())
        }
    }

    /// All samples, oldest first.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Beginning of the recording.
    pub fn first(&self) -> Option<Timestamp> {
        self.samples.first().map(|sample| sample.at)
    }

    /// End of the recording.
    pub fn last(&self) -> Option<Timestamp> {
        self.samples.last().map(|sample| sample.at)
    }

    /// The samples up to `at`, which are all that may be known then.
    pub fn until(&self, at: Timestamp) -> &[Sample] {
        let known = self.samples.partition_point(|sample| sample.at <= at);
        self.samples.get(..known).unwrap_or_default()
    }

    /// The latest value at `at`; `None` if it is too old: five minutes, or twice the usual distance between samples if
    /// that is longer.
    pub fn value_at(&self, at: Timestamp) -> Option<f64> {
        let latest = self.until(at).last()?;
        (at.duration_since(latest.at) < self.lookback).then_some(latest.value)
    }

    /// The demand of the minute that ends at `end`: the mean of its samples, or the latest value where it has none.
    pub fn minute_to(&self, end: Timestamp) -> Option<f64> {
        let (sum, count) = self
            .until(end)
            .iter()
            .rev()
            .take_while(|sample| end.duration_since(sample.at) < MINUTE)
            .fold((0.0, 0_u32), |(sum, count), sample| {
                (sum + sample.value, count + 1)
            });
        if count == 0 {
            self.value_at(end)
        } else {
            Some(sum / f64::from(count))
        }
    }

    /// Gaps in which a value is too old before the next one comes: the time of the sample before, and the distance to
    /// the next.
    pub fn holes(&self) -> impl Iterator<Item = (Timestamp, SignedDuration)> + '_ {
        self.samples
            .iter()
            .zip(self.samples.iter().skip(1))
            .map(|(a, b)| (a.at, b.at.duration_since(a.at)))
            .filter(|(_, distance)| *distance > self.lookback)
    }

    /// The newest `span` at `at` on a grid of `step`; slots without a value are missing.
    pub fn series(&self, step: SignedDuration, span: SignedDuration, at: Timestamp) -> Series {
        let seconds = step.as_secs().max(1);
        let newest = floor(at.as_second(), seconds);
        let oldest = self
            .first()
            .map_or(newest, |first| floor(first.as_second(), seconds));
        let first = newest.saturating_sub(span.as_secs()).max(oldest);
        let start = Timestamp::from_second(floor(first, seconds)).unwrap_or(at);
        let mut series = Series::from_values(start, step, Vec::new());
        self.extend(&mut series, span, at);
        series
    }

    /// Extends a series of this recording up to `at`, and keeps its newest `span`.
    ///
    /// # Guarantees
    /// The values are those of [`series`](Self::series) for `at`.
    pub fn extend(&self, series: &mut Series, span: SignedDuration, at: Timestamp) {
        let mut read = 0;
        // A step of zero would never reach `at`, and no series is longer than `MAX_SLOTS`.
        while series.end() <= at && read < MAX_SLOTS && series.step().is_positive() {
            let slot = series.end();
            match self.value_at(slot).map(|value| Sample { at: slot, value }) {
                Some(sample) if self.is_raw(series.step(), slot) => series.push_raw(sample),
                Some(sample) => series.push(sample),
                None => series.advance_to(slot),
            }
            read += 1;
        }
        let slots = span.as_secs() / series.step().as_secs().max(1);
        series.truncate_front(usize::try_from(slots).unwrap_or(0).saturating_add(1));
    }

    /// Returns true if the latest value at `at` is that of the step that ends there, and not a mean over a longer time.
    fn is_raw(&self, step: SignedDuration, at: Timestamp) -> bool {
        let Some(latest) = self.until(at).last() else {
            return false;
        };
        let is_within = step <= MINUTE && at.duration_since(latest.at) < MINUTE;
        is_within
            && match &self.raw {
                RawSamples::All => true,
                RawSamples::At(times) => times.binary_search(&latest.at).is_ok(),
            }
    }
}

/// The largest multiple of `step` that is not above `second`.
fn floor(second: i64, step: i64) -> i64 {
    second.div_euclid(step) * step
}

/// The median distance between samples.
fn usual_distance(samples: &[Sample]) -> SignedDuration {
    let pairs = samples.iter().zip(samples.iter().skip(1));
    let mut steps: Vec<SignedDuration> = pairs.map(|(a, b)| b.at.duration_since(a.at)).collect();
    steps.sort();
    steps.get(steps.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn recording(pairs: &[(i64, f64)]) -> Recording {
        let sample = |&(second, value): &(i64, f64)| Sample {
            at: at(second),
            value,
        };
        Recording::new(pairs.iter().map(sample).collect())
    }

    const STEP: SignedDuration = SignedDuration::from_secs(300);
    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    #[test]
    fn it_is_read_as_a_range_query_reads_it() {
        let recording = recording(&[(0, 1.0), (300, 2.0), (600, 3.0), (1800, 4.0)]);
        let nan = f64::NAN;
        let expected = vec![1.0, 2.0, 3.0, 3.0, nan, nan, 4.0];
        let expected = Series::from_values(Timestamp::UNIX_EPOCH, STEP, expected);
        assert_eq!(recording.series(STEP, HOUR, at(1850)), expected);
    }

    #[test]
    fn a_long_one_is_cut_to_what_the_forecaster_wants() {
        let recording = recording(&[(0, 1.0), (300, 2.0), (600, 3.0)]);
        let expected = Series::from_values(at(300), STEP, vec![2.0, 3.0]);
        assert_eq!(recording.series(STEP, STEP, at(600)), expected);
    }

    #[test]
    fn samples_a_minute_apart_are_raw_and_of_means_those_minutes_that_are_known() {
        let minute = SignedDuration::from_secs(60);
        let pairs = [(0, 1.0), (60, 2.0), (120, 3.0), (300, 4.0)];
        let samples = recording(&pairs).samples().to_vec();
        let raw = |recording: &Recording, step| {
            let series = recording.series(step, HOUR, at(300));
            let raw = (0..series.len()).filter(|slot| series.is_raw(*slot));
            raw.map(|slot| (slot, series.values()[slot]))
                .collect::<Vec<_>>()
        };
        let own = [(0, 1.0), (1, 2.0), (2, 3.0), (5, 4.0)];
        assert_eq!(raw(&Recording::new(samples.clone()), minute), own);
        assert_eq!(raw(&Recording::new(samples.clone()), STEP), []);
        let known = recording(&[(60, 7.0), (300, 0.0)]);
        let means = Recording::of_means(&samples, known.samples());
        assert_eq!(raw(&means, minute), [(1, 7.0), (5, 0.0)]);
        assert_eq!(means.value_at(at(60)), Some(7.0));
        let coarse = recording(&[(0, 1.0), (300, 2.0), (600, 3.0)]);
        assert_eq!(raw(&coarse, minute), []);
    }

    #[test]
    fn reading_on_gives_what_reading_at_once_gives() {
        let recording = recording(&[(0, 1.0), (290, 2.0), (615, 3.0), (3000, 4.0), (3300, 5.0)]);
        let mut grown = recording.series(STEP, HOUR, at(0));
        for second in (0..8000).step_by(130) {
            recording.extend(&mut grown, HOUR, at(second));
            assert_eq!(grown, recording.series(STEP, HOUR, at(second)), "{second}");
        }
    }

    #[test]
    fn an_old_value_is_no_demand_and_the_future_is_not_known() {
        let recording = recording(&[(60, 2.0), (0, 1.0)]);
        for (second, expected) in [
            (-1, None),
            (59, Some(1.0)),
            (60, Some(2.0)),
            (359, Some(2.0)),
            (360, None),
        ] {
            assert_eq!(recording.value_at(at(second)), expected, "{second}");
        }
        assert_eq!(Recording::new(vec![]).value_at(at(0)), None);
    }

    #[test]
    fn a_hole_is_longer_than_a_value_is_used() {
        let recording = recording(&[
            (0, 1.0),
            (60, 1.0),
            (360, 1.0),
            (720, 1.0),
            (780, 1.0),
            (840, 1.0),
        ]);
        let holes: Vec<_> = recording.holes().collect();
        assert_eq!(holes, [(at(360), SignedDuration::from_secs(360))]);
    }

    #[test]
    fn a_minute_is_the_mean_of_its_samples() {
        let recording = recording(&[(15, 1.0), (30, 2.0), (60, 3.0)]);
        assert_eq!(recording.minute_to(at(60)), Some(2.0));
        assert_eq!(recording.minute_to(at(120)), Some(3.0));
        assert_eq!(recording.minute_to(at(0)), None);
    }
}
