//! [`Series`]: the history that every forecaster reads. One value per slot, evenly spaced, NaN where no sample exists.
//! Filling holes is left to `gaps`.

use jiff::{SignedDuration, Timestamp};

/// The longest series kept, in slots; older slots are dropped from the front.
///
/// 2^20 slots of 8 bytes are 8 MiB: two years at one minute, twelve days at one second.
pub const MAX_SLOTS: usize = 1 << 20;

/// One measured value.
///
/// # Units
/// Those of the query, such as cores or requests per second; all samples of a series have the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The instant of the measurement.
    pub at: Timestamp,
    /// The measured value. Not finite or negative means missing.
    pub value: f64,
}

/// A regular grid of values.
///
/// Slot `i` covers the half-open span `[start + i * step, start + (i + 1) * step)`.
///
/// # Shape
/// `values()[i]` belongs to `time_at(i)`. Every value is finite and at least zero, or NaN, which means missing.
///
/// # Units
/// The unit of the samples.
///
/// # Raw values
/// Values may be smoothed, as those of `rate(...[3m])` read every minute. Pods live through each minute alone, and a
/// forecast that was calibrated on smoothed values is exceeded more often than it says. Slots whose values are known not
/// to be smoothed are marked as [raw](Self::is_raw).
///
/// # Guarantees
/// - No value is infinite or negative.
/// - Never longer than [`MAX_SLOTS`].
/// - Growing a series by [`push`](Self::push) or [`extend`](Self::extend) in order of time gives the same series as
///   [`from_samples`](Self::from_samples) with all samples at once.
///
/// ```
/// use foretide_models::{Sample, Series};
/// use jiff::{SignedDuration, Timestamp};
///
/// let minute = SignedDuration::from_mins(1);
/// let start = Timestamp::UNIX_EPOCH;
/// let samples = [Sample { at: start, value: 1.0 }, Sample { at: start + minute * 2, value: 3.0 }];
/// let mut series = Series::from_samples(&samples, minute, start, start + minute * 2);
/// assert_eq!(series.len(), 3);
/// assert!(series.values()[1].is_nan());
///
/// series.push(Sample { at: start + minute * 3, value: 4.0 });
/// assert_eq!(series.end(), start + minute * 4);
/// ```
#[derive(Debug, Clone)]
pub struct Series {
    start: Timestamp,
    step: SignedDuration,
    values: Vec<f64>,
    /// The raw slots, as a list at most as long as `values`: slots beyond its end are not raw.
    raw: Vec<bool>,
}

// === impl Series ===

impl Series {
    /// Bins samples onto a grid from `start` to `end`, both included, like the result of a range query.
    ///
    /// A sample belongs to the slot whose span holds it. Within a slot the newest valid sample wins; at equal times,
    /// the one later in the slice. The order of the slice has no other effect. Samples that lie outside the grid, are
    /// not finite or are negative are ignored.
    ///
    /// A `step` that is not positive, or an `end` before `start`, gives an empty series.
    pub fn from_samples(
        samples: &[Sample],
        step: SignedDuration,
        start: Timestamp,
        end: Timestamp,
    ) -> Self {
        let mut series = Self {
            start,
            step,
            values: Vec::new(),
            raw: Vec::new(),
        };
        series.advance_to(end);
        let mut ordered: Vec<Sample> = samples
            .iter()
            .filter(|s| s.at >= series.start && s.at < series.end())
            .copied()
            .collect();
        // A stable sort: of samples at one time, the later one in the slice is placed last.
        ordered.sort_by_key(|sample| sample.at);
        for sample in ordered {
            series.place(sample);
        }
        series
    }

    /// A series of values that already lie on a grid. Values that are not finite or are negative become missing.
    ///
    /// ```
    /// use foretide_models::Series;
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let step = SignedDuration::from_mins(5);
    /// let series = Series::from_values(Timestamp::UNIX_EPOCH, step, vec![1.0, -1.0, 2.0]);
    /// assert!(series.values()[1].is_nan());
    /// assert_eq!(series.time_at(2), Timestamp::UNIX_EPOCH + step * 2);
    /// ```
    ///
    /// # Shape
    /// `values[0]` is at `start`. Only the newest [`MAX_SLOTS`] values are kept. A `step` that is not positive gives
    /// an empty series.
    pub fn from_values(start: Timestamp, step: SignedDuration, values: Vec<f64>) -> Self {
        let mut series = Self {
            start,
            step,
            values,
            raw: Vec::new(),
        };
        if !step.is_positive() {
            // Without a step, no value has a time.
            series.values.clear();
        }
        series.truncate_front(MAX_SLOTS);
        for value in &mut series.values {
            *value = admissible(*value).unwrap_or(f64::NAN);
        }
        series
    }

    /// Replaces the values of the slots that hold these samples, and marks the slots as raw.
    ///
    /// # Shape
    /// Samples outside the grid, and values that are not finite or are negative, are ignored.
    ///
    /// ```
    /// use foretide_models::{Sample, Series};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let minute = SignedDuration::from_mins(1);
    /// let start = Timestamp::UNIX_EPOCH;
    /// // Means over five minutes, and what was measured in the second minute alone.
    /// let smoothed = Series::from_values(start, minute, vec![10.0, 10.0, 10.0]);
    /// let series = smoothed.with_raw(&[Sample { at: start + minute, value: 14.0 }]);
    /// assert_eq!(series.values(), [10.0, 14.0, 10.0]);
    /// assert!(series.is_raw(1) && !series.is_raw(2));
    /// ```
    #[must_use]
    pub fn with_raw(mut self, samples: &[Sample]) -> Self {
        self.raw.resize(self.values.len(), false);
        for sample in samples {
            if let Some(slot) = self.place(*sample) {
                self.raw[slot] = true;
            }
        }
        self
    }

    /// Adds one sample: overwrites its slot, or grows the grid up to it. Samples before the start are ignored.
    ///
    /// A value that is not finite or is negative grows the grid too, and is otherwise ignored.
    /// ```
    /// use foretide_models::{Sample, Series};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let minute = SignedDuration::from_mins(1);
    /// let start = Timestamp::UNIX_EPOCH;
    /// let mut series = Series::from_values(start, minute, vec![1.0]);
    /// series.push(Sample { at: start + minute * 2, value: 3.0 });
    /// assert_eq!(series.len(), 3);
    /// assert!(series.values()[1].is_nan());
    /// ```
    pub fn push(&mut self, sample: Sample) {
        if sample.at < self.start {
            return;
        }
        if sample.at >= self.end() {
            self.advance_to(sample.at);
        }
        self.place(sample);
    }

    /// Adds one sample like [`push`](Self::push), and marks its slot as raw.
    pub fn push_raw(&mut self, sample: Sample) {
        if sample.at >= self.end() {
            self.advance_to(sample.at);
        }
        self.raw.resize(self.values.len(), false);
        if let Some(slot) = self.place(sample) {
            self.raw[slot] = true;
        }
    }

    /// Adds samples in order of their time; see [`push`](Self::push).
    ///
    /// # Guarantees
    /// The order of the slice matters only for samples of the same time, of which the last one counts.
    pub fn extend(&mut self, samples: &[Sample]) {
        let mut ordered = samples.to_vec();
        ordered.sort_by_key(|sample| sample.at);
        for sample in ordered {
            self.push(sample);
        }
    }

    /// Grows the grid with missing values until a slot holds `at`.
    ///
    /// A grid that would be longer than [`MAX_SLOTS`] loses its oldest slots. A time before the start changes
    /// nothing.
    /// ```
    /// use foretide_models::{Series};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let minute = SignedDuration::from_mins(1);
    /// let start = Timestamp::UNIX_EPOCH;
    /// let mut series = Series::from_values(start, minute, vec![1.0]);
    /// series.advance_to(start + minute * 2);
    /// assert_eq!(series.len(), 3);
    /// assert_eq!(series.last().map(|sample| sample.at), Some(start));
    /// ```
    pub fn advance_to(&mut self, at: Timestamp) {
        let Some(slot) = self.slot(at) else { return };
        if slot < self.values.len() {
            return;
        }
        let dropped = (slot + 1).saturating_sub(MAX_SLOTS);
        self.start = self.time_at(dropped);
        // A sample far ahead may drop more slots than there are.
        self.values.drain(..dropped.min(self.values.len()));
        self.values.resize(slot + 1 - dropped, f64::NAN);
        self.raw.drain(..dropped.min(self.raw.len()));
    }

    /// Keeps the newest `keep` slots.
    ///
    /// ```
    /// use foretide_models::{Series};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let minute = SignedDuration::from_mins(1);
    /// let start = Timestamp::UNIX_EPOCH;
    /// let mut series = Series::from_values(start, minute, vec![1.0, 2.0, 3.0]);
    /// series.truncate_front(2);
    /// assert_eq!((series.start(), series.values()), (start + minute, [2.0, 3.0].as_slice()));
    /// ```
    pub fn truncate_front(&mut self, keep: usize) {
        let dropped = self.values.len().saturating_sub(keep);
        self.start = self.time_at(dropped);
        self.values.drain(..dropped);
        self.raw.drain(..dropped.min(self.raw.len()));
    }

    /// The instant of the first slot.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// The distance between slots.
    pub fn step(&self) -> SignedDuration {
        self.step
    }

    /// The number of slots, missing ones included.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if there is no slot at all.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values, oldest first; NaN is missing.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Returns true if slot `index` holds the value of this slot alone, and not a mean over a longer time.
    pub fn is_raw(&self, index: usize) -> bool {
        self.raw.get(index).copied().unwrap_or(false)
    }

    /// The instant of slot `index`, also beyond the last one. Saturates at the end of time.
    pub fn time_at(&self, index: usize) -> Timestamp {
        later(self.start, self.step, index)
    }

    /// The instant just after the last slot, where a forecast begins.
    ///
    /// ```
    /// use foretide_models::{Series};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let minute = SignedDuration::from_mins(1);
    /// let start = Timestamp::UNIX_EPOCH;
    /// let series = Series::from_values(start, minute, vec![1.0, 2.0]);
    /// assert_eq!(series.end(), start + minute * 2);
    /// ```
    pub fn end(&self) -> Timestamp {
        self.time_at(self.values.len())
    }

    /// The newest slot that holds a value.
    ///
    /// ```
    /// use foretide_models::{Sample, Series};
    /// use jiff::{SignedDuration, Timestamp};
    ///
    /// let minute = SignedDuration::from_mins(1);
    /// let start = Timestamp::UNIX_EPOCH;
    /// let series = Series::from_values(start, minute, vec![1.0, 2.0, f64::NAN]);
    /// assert_eq!(series.last(), Some(Sample { at: start + minute, value: 2.0 }));
    /// ```
    pub fn last(&self) -> Option<Sample> {
        let index = self.values.iter().rposition(|value| !value.is_nan())?;
        let value = *self.values.get(index)?;
        Some(Sample {
            at: self.time_at(index),
            value,
        })
    }

    /// The number of the slot that begins at [`end`](Self::end), counted from the epoch, so that it does not depend on
    /// where the series starts.
    pub(crate) fn end_slot(&self) -> i64 {
        let slot = self
            .end()
            .as_nanosecond()
            // An empty series may have a step of zero.
            .div_euclid(self.step.as_nanos().max(1));
        i64::try_from(slot).unwrap_or(i64::MAX)
    }

    /// The series as it was `age` slots ago, no longer than `length`.
    ///
    /// A backcast reads it, as the history that the forecaster would have had then.
    pub(crate) fn before(&self, age: usize, length: SignedDuration) -> Self {
        let end = self.values.len().saturating_sub(age);
        let kept = slots(length, self.step).unwrap_or(usize::MAX);
        let start = end.saturating_sub(kept);
        let raw = start.min(self.raw.len())..end.min(self.raw.len());
        Self {
            start: self.time_at(start),
            step: self.step,
            values: self.values.get(start..end).unwrap_or_default().to_vec(),
            raw: self.raw.get(raw).unwrap_or_default().to_vec(),
        }
    }

    /// The slot whose span holds `at`, also beyond the last one; `None` before the start.
    fn slot(&self, at: Timestamp) -> Option<usize> {
        slots(at.duration_since(self.start), self.step)
    }

    /// Writes a sample to its slot, which is returned; `None` if it has none, or its value is not one.
    fn place(&mut self, sample: Sample) -> Option<usize> {
        let value = admissible(sample.value)?;
        let slot = self.slot(sample.at)?;
        *self.values.get_mut(slot)? = value;
        Some(slot)
    }
}

/// Equal grids with equal values, where missing equals missing.
impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        self.start == other.start
            && self.step == other.step
            && self.values.len() == other.values.len()
            && self
                .values
                .iter()
                .zip(&other.values)
                .all(|(a, b)| a.to_bits() == b.to_bits())
            && (0..self.len()).all(|slot| self.is_raw(slot) == other.is_raw(slot))
    }
}

/// A value that may be kept. Adding zero turns -0.0 into 0.0, so that equal values have equal bits.
fn admissible(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value + 0.0)
}

/// The number of whole steps that fit into a span; none if either is negative or the step is zero.
pub fn slots(span: SignedDuration, step: SignedDuration) -> Option<usize> {
    if !step.is_positive() || span.is_negative() {
        return None;
    }
    usize::try_from(span.as_nanos() / step.as_nanos()).ok()
}

/// `start + index * step`, saturating at the end of time.
pub fn later(start: Timestamp, step: SignedDuration, index: usize) -> Timestamp {
    // `SignedDuration` is multiplied by an `i32`, which every index of a series is.
    let span = i32::try_from(index)
        .ok()
        .and_then(|index| step.checked_mul(index));
    span.and_then(|span| start.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

/// A count as a number. Exact: every count here is at most [`MAX_SLOTS`].
pub fn count(n: usize) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}

/// A number of steps as a difference of step numbers.
pub fn steps(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: SignedDuration = SignedDuration::from_secs(60);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn samples(pairs: &[(i64, f64)]) -> Vec<Sample> {
        pairs
            .iter()
            .map(|&(second, value)| Sample {
                at: at(second),
                value,
            })
            .collect()
    }

    fn grid(values: &[f64]) -> Series {
        Series {
            start: at(600),
            step: MINUTE,
            values: values.to_vec(),
            raw: Vec::new(),
        }
    }

    #[test]
    fn samples_are_binned_onto_the_grid() {
        const NAN: f64 = f64::NAN;
        type Case = (&'static str, &'static [(i64, f64)], &'static [f64]);
        let cases: &[Case] = &[
            (
                "on the grid",
                &[(600, 1.0), (660, 2.0), (720, 3.0)],
                &[1.0, 2.0, 3.0],
            ),
            (
                "off the grid",
                &[(601, 1.0), (719, 2.0), (725, 3.0)],
                &[1.0, 2.0, 3.0],
            ),
            (
                "reversed",
                &[(720, 3.0), (660, 2.0), (600, 1.0)],
                &[1.0, 2.0, 3.0],
            ),
            (
                "same instant, later in the slice wins",
                &[(600, 1.0), (600, 4.0)],
                &[4.0, NAN, NAN],
            ),
            (
                "same slot, newest wins",
                &[(630, 5.0), (610, 4.0)],
                &[5.0, NAN, NAN],
            ),
            (
                "invalid never wins",
                &[(610, 4.0), (630, NAN), (640, -1.0)],
                &[4.0, NAN, NAN],
            ),
            (
                "outside is ignored",
                &[(599, 1.0), (780, 9.0), (779, 3.0)],
                &[NAN, NAN, 3.0],
            ),
            (
                "infinite is missing",
                &[(600, f64::INFINITY), (660, -0.0)],
                &[NAN, 0.0, NAN],
            ),
        ];
        for (name, pairs, expected) in cases {
            let series = Series::from_samples(&samples(pairs), MINUTE, at(600), at(720));
            assert_eq!(series, grid(expected), "{name}");
        }
    }

    #[test]
    fn a_grid_without_positive_step_or_span_is_empty() {
        let some = samples(&[(600, 1.0)]);
        assert!(Series::from_samples(&some, SignedDuration::ZERO, at(600), at(720)).is_empty());
        assert!(Series::from_samples(&some, -MINUTE, at(600), at(720)).is_empty());
        assert!(Series::from_samples(&some, MINUTE, at(600), at(599)).is_empty());
        assert!(Series::from_values(at(600), SignedDuration::ZERO, vec![1.0]).is_empty());
    }

    #[test]
    fn a_grid_that_is_too_long_keeps_its_newest_slots() {
        let nano = SignedDuration::from_nanos(1);
        let series = Series::from_samples(&[], nano, at(0), at(1));
        assert_eq!(series.len(), MAX_SLOTS);
        assert_eq!(series.end(), at(1) + nano);
        let all = Series::from_samples(&[], MINUTE, Timestamp::MIN, Timestamp::MAX);
        assert!(all.len() <= MAX_SLOTS);
    }

    #[test]
    fn growing_equals_binning_at_once() {
        let all = samples(&[
            (600, 1.0),
            (665, 2.0),
            (670, 2.5),
            (800, 3.0),
            (905, f64::NAN),
        ]);
        let batch = Series::from_samples(&all, MINUTE, at(600), at(905));
        for split in 0..=all.len() {
            let (old, new) = all.split_at(split);
            let mut grown = Series::from_samples(old, MINUTE, at(600), at(600));
            grown.extend(old);
            grown.extend(new);
            assert_eq!(grown, batch, "split at {split}");
        }
        let mut kept = batch.clone();
        kept.truncate_front(2);
        assert_eq!(kept.start(), at(840));
        assert_eq!(kept.len(), 2);
        assert_eq!(
            batch.last(),
            Some(Sample {
                at: at(780),
                value: 3.0
            })
        );
    }

    #[test]
    fn a_sample_far_in_the_future_drops_older_slots() {
        let mut series = grid(&[1.0, 2.0]);
        series.push(Sample {
            at: Timestamp::MAX,
            value: 7.0,
        });
        assert!(series.len() <= MAX_SLOTS);
        series.push(Sample {
            at: Timestamp::MIN,
            value: 8.0,
        });
        assert_eq!(series.values().iter().filter(|v| v.is_finite()).count(), 1);
    }

    #[test]
    fn raw_samples_replace_values_and_mark_their_slots() {
        let mut series =
            grid(&[1.0, 2.0, f64::NAN]).with_raw(&samples(&[(665, 5.0), (720, -1.0), (900, 7.0)]));
        assert_eq!(series.values()[1].to_bits(), 5.0_f64.to_bits());
        assert_eq!(
            [0, 1, 2, 9].map(|slot| series.is_raw(slot)),
            [false, true, false, false]
        );
        series.push(Sample {
            at: at(780),
            value: 4.0,
        });
        assert!(!series.is_raw(3));
        series.truncate_front(3);
        assert!(series.is_raw(0) && !series.is_raw(1));
        let before = series.before(1, MINUTE * 10);
        assert!(before.is_raw(0) && before.len() == 2);
        assert_ne!(grid(&[1.0]).with_raw(&samples(&[(600, 1.0)])), grid(&[1.0]));
    }
}
