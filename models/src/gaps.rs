//! Cleans a history: rejects outliers, fills holes, and reports what was changed. At most [`MAX_MISSING`] of a history
//! is ever filled; with more missing, [`PreparedHistory::new`] returns an error.
//!
//! ```text
//! newest part -> outliers become missing -> cut at a hole of more than a day -> long, recent, dense, not all zero?
//! ```

use jiff::{SignedDuration, Timestamp};

use crate::error::ForecastError;
use crate::forecast::{FORECAST_VALIDITY, Note};
use crate::series::{Series, count, slots};

/// The largest part of a history, and of its last day, that may be missing.
///
/// # Source
/// Seasonal-naive forecasts of real traces stay usable with a third of the samples missing.
pub const MAX_MISSING: f64 = 0.30;

/// Holes up to this length are interpolated linearly; longer ones repeat the values one season away.
///
/// # Source
/// The limit of crane's linear filling (`pkg/prediction/dsp/preprocess.go`), which drops the history before a longer
/// hole.
const STRAIGHT_LINE: SignedDuration = SignedDuration::from_hours(1);

/// The span at the end of a history whose holes are counted separately, and the longest hole that does not cut the
/// history.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A short run of samples this many times above the usual ones is an error of measurement.
///
/// Load spikes of real services last longer, stay lower or recur: recurring jobs run for many minutes, and one-minute
/// bursts in the known traces stay within 60 times a lower percentile.
pub const OUTLIER_RATIO: f64 = 100.0;
pub const OUTLIER_RUN: usize = 5;
/// More runs than these of about one height, none of them a single sample, are load.
pub const OUTLIER_RUNS: usize = 3;
/// The quantile of the positive samples that counts as usual; low enough that one percent of outliers does not reach
/// it.
const USUAL: f64 = 0.95;

/// The requirements of a forecaster for a history.
///
/// # Units
/// `step` is the distance between two samples; the others are spans of history.
#[derive(Debug, Clone, Copy)]
pub struct HistoryRequirements {
    pub step: SignedDuration,
    /// The least history that the forecaster can work with.
    pub least: SignedDuration,
    /// The most history that the forecaster uses.
    pub most: SignedDuration,
}

/// A history that fulfills the requirements: it starts with a usable sample, is recent and not all zero, and has no
/// more holes than allowed.
#[derive(Debug, Clone)]
pub struct PreparedHistory {
    /// The values, oldest first; the last one lies just before `end`. NaN is missing.
    pub values: Vec<f64>,
    pub step: SignedDuration,
    /// The highest usable value; positive.
    pub highest: f64,
    /// The instant at which the grid ends and the forecast begins.
    pub end: Timestamp,
    pub valid_until: Timestamp,
    pub notes: Vec<Note>,
}

// === impl PreparedHistory ===

impl PreparedHistory {
    /// Checks and cleans a history.
    ///
    /// Outliers become missing first. A hole of more than a day cuts off the history before it.
    ///
    /// # Errors
    /// In this order: [`ForecastError::StepMismatch`], [`ForecastError::InsufficientHistory`],
    /// [`ForecastError::StaleHistory`], [`ForecastError::TooManyGaps`], [`ForecastError::ZeroSeries`].
    pub fn new(history: &Series, requirements: HistoryRequirements) -> Result<Self, ForecastError> {
        let step = history.step();
        if step != requirements.step {
            return Err(ForecastError::StepMismatch {
                have: step,
                need: requirements.step,
            });
        }
        let mut notes = Vec::new();
        let most = slots(requirements.most, step).unwrap_or(usize::MAX);
        let older = history.len().saturating_sub(most);
        let mut values = history.values().get(older..).unwrap_or_default().to_vec();
        let rejected = reject_outliers(&mut values);
        if rejected > 0 {
            notes.push(Note::SpikesRejected { slots: rejected });
        }
        let cut = last_history(&values, slots(DAY, step).unwrap_or(usize::MAX));
        // What is missing before the first sample is no history that was cut.
        if values.iter().take(cut).any(|value| !value.is_nan()) {
            notes.push(Note::HistoryCut);
        }
        values.drain(..cut);
        require_span(values.len(), requirements)?;
        let valid_until = require_fresh(history, &values)?;
        require_dense(&values, slots(DAY, step).unwrap_or(usize::MAX))?;
        let highest = values.iter().copied().fold(0.0, f64::max);
        if highest == 0.0 {
            return Err(ForecastError::ZeroSeries);
        }
        Ok(Self {
            values,
            step,
            highest,
            end: history.end(),
            valid_until,
            notes,
        })
    }

    /// The values with every hole filled, `season` being the number of slots after which the series repeats.
    ///
    /// # Guarantees
    /// - Existing values are unchanged; every value is finite and at most `highest`.
    /// - A hole of up to an hour is interpolated linearly. A longer one repeats the season before, else the one
    ///   after, else it is interpolated too. A hole at the end repeats the last value.
    pub fn filled(&self, season: usize) -> Vec<f64> {
        let mut values = self.values.clone();
        let bridge = slots(STRAIGHT_LINE, self.step).unwrap_or(0).max(1);
        for hole in holes(&self.values) {
            if hole.len() > bridge {
                repeat_season(&mut values, hole.clone(), season);
            }
            interpolate(&mut values, hole);
        }
        values
    }

    /// The notes on the history, including the number of filled slots.
    pub fn notes_when_filled(&self) -> Vec<Note> {
        let missing = missing(&self.values);
        let filled = (missing > 0).then_some(Note::GapsFilled { slots: missing });
        self.notes.iter().copied().chain(filled).collect()
    }
}

/// Replaces values far outside the 0.1st to 99.9th percentile by the value before them.
///
/// Far means by more than a tenth of the span between the two percentiles, so that the crest of a smooth wave is kept.
///
/// # Source
/// `removeExtremeOutliers` of crane's dsp, which also cuts crests; it exempts index 0 too.
pub fn hold_extremes(values: &mut [f64]) {
    let (Some(low), Some(high)) = (quantile(values, 0.001), quantile(values, 0.999)) else {
        return;
    };
    let margin = (high - low) / 10.0;
    let (low, high) = (low - margin, high + margin);
    let mut previous = None;
    for value in values {
        if let Some(previous) = previous
            && (*value < low || *value > high)
        {
            *value = previous;
        }
        previous = Some(*value);
    }
}

/// The `q`-quantile by the nearest rank; `None` if there are no values.
///
/// # Shape
/// Any order, no NaN.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut copy = values.to_vec();
    quantile_in_place(&mut copy, q)
}

/// Like [`quantile`], but reorders the values instead of copying them.
pub fn quantile_in_place(values: &mut [f64], q: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let (_, value, _) = values.select_nth_unstable_by(rank(last, q), f64::total_cmp);
    Some(*value)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a product of a count and a part of it is a count; `as` saturates and `min` bounds it"
)]
/// The index of the `q`-quantile in a sorted slice whose last index is `last`: the nearest rank, `q` in `[0, 1]`.
fn rank(last: usize, q: f64) -> usize {
    ((count(last) * q).round() as usize).min(last)
}

/// The number of missing values.
fn missing(values: &[f64]) -> usize {
    values.iter().filter(|value| value.is_nan()).count()
}

/// The runs of missing values, oldest first.
fn holes(values: &[f64]) -> Vec<std::ops::Range<usize>> {
    if missing(values) == 0 {
        return Vec::new();
    }
    let mut at = 0;
    let runs = values.chunk_by(|a, b| a.is_nan() == b.is_nan()).map(|run| {
        at += run.len();
        (run, at - run.len()..at)
    });
    runs.filter(|(run, _)| run.first().is_some_and(|v| v.is_nan()))
        .map(|(_, at)| at)
        .collect()
}

/// Makes outliers missing; returns their number.
fn reject_outliers(values: &mut [f64]) -> usize {
    let runs = outlier_runs(values, 0.0);
    for run in &runs {
        if let Some(run) = values.get_mut(run.clone()) {
            run.fill(f64::NAN);
        }
    }
    runs.iter().map(std::ops::Range::len).sum()
}

/// The outliers of a series: runs of at most 5 values that are each more than 100 times the 95th percentile of all
/// positive values, and more than twice `believed`, the highest value that is known to be load. Runs of several
/// samples that recur more than three times at about one height are load.
///
/// # Shape
/// `values` are oldest first, NaN where missing; the result holds their indices, oldest first.
///
/// # Guarantees
/// A level that lasts for six values in a row is not an outlier.
///
/// ```
/// use foretide_models::outlier_runs;
///
/// let mut values = vec![1.0; 100];
/// values[40] = 5000.0;
/// assert_eq!(outlier_runs(&values, 0.0), vec![40..41]);
/// // A value of half that height is known to be load.
/// assert_eq!(outlier_runs(&values, 2500.0), vec![]);
/// ```
pub fn outlier_runs(values: &[f64], believed: f64) -> Vec<std::ops::Range<usize>> {
    if !may_have_outliers(values) {
        return Vec::new();
    }
    let mut positive: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| *value > 0.0)
        .collect();
    let Some(usual) = quantile_in_place(&mut positive, USUAL) else {
        return Vec::new();
    };
    // Divided, because a hundred times the usual value may be infinite. A missing value is none: comparisons with NaN
    // are false.
    let is_outlier = |value: &f64| *value / OUTLIER_RATIO > usual && *value / 2.0 > believed;
    let mut end = 0;
    let mut short = Vec::new();
    for run in values.chunk_by(|a, b| is_outlier(a) == is_outlier(b)) {
        end += run.len();
        if run.len() <= OUTLIER_RUN && run.first().is_some_and(is_outlier) {
            let highest = run.iter().copied().fold(0.0, f64::max);
            short.push((highest, end - run.len()..end));
        }
    }
    short
        .iter()
        .filter(|(height, at)| at.len() == 1 || !recurs(*height, &short))
        .map(|(_, at)| at.clone())
        .collect()
}

/// Returns true if more than [`OUTLIER_RUNS`] runs of several samples have about this height.
fn recurs(height: f64, runs: &[(f64, std::ops::Range<usize>)]) -> bool {
    runs.iter()
        .filter(|(other, at)| at.len() > 1 && (0.5..=2.0).contains(&(other / height)))
        .count()
        > OUTLIER_RUNS
}

/// Returns true if less than a tenth of the positive values exceeds a hundredth of the highest. If not, the 95th
/// percentile is too high for any outlier, and is not computed.
fn may_have_outliers(values: &[f64]) -> bool {
    let highest = values
        .iter()
        .fold(0.0, |a: f64, b| if *b > a { *b } else { a });
    let near = highest / OUTLIER_RATIO;
    let positive = values.iter().filter(|value| **value > 0.0).count();
    let usual = values.iter().filter(|value| **value > near).count();
    count(usual) < 0.1 * count(positive)
}

/// The index at which the newest stretch without a hole of more than `longest` slots begins.
fn last_history(values: &[f64], longest: usize) -> usize {
    let mut start = 0;
    for hole in holes(values) {
        let leading = hole.start == 0;
        let trailing = hole.end == values.len();
        // A hole at the end is not cut off: `require_fresh` decides about it.
        if leading || (hole.len() > longest && !trailing) {
            start = hole.end;
        }
    }
    start
}

/// Requires as many slots as the forecaster needs; holes count, because they are limited separately.
///
/// # Errors
/// [`ForecastError::InsufficientHistory`].
fn require_span(have: usize, requirements: HistoryRequirements) -> Result<(), ForecastError> {
    let span = i32::try_from(have)
        .ok()
        .and_then(|have| requirements.step.checked_mul(have))
        .unwrap_or(SignedDuration::MAX);
    if span < requirements.least {
        return Err(ForecastError::InsufficientHistory {
            have: span,
            need: requirements.least,
        });
    }
    Ok(())
}

/// The instant until which a forecast from these values is valid; an error if that is before the end of the grid.
fn require_fresh(history: &Series, values: &[f64]) -> Result<Timestamp, ForecastError> {
    let missing_at_end = values
        .iter()
        .rev()
        .take_while(|value| value.is_nan())
        .count();
    // `values` ends where the history does, whatever was cut from its front.
    let seen = history.len().saturating_sub(missing_at_end);
    let valid_until = history
        .time_at(seen)
        .checked_add(FORECAST_VALIDITY)
        .unwrap_or(Timestamp::MAX);
    if valid_until < history.end() {
        let last = history.time_at(seen.saturating_sub(1));
        return Err(ForecastError::StaleHistory {
            last,
            end: history.end(),
        });
    }
    Ok(valid_until)
}

/// Requires that no more than [`MAX_MISSING`] of the values and of the newest `day` of them are missing.
///
/// # Errors
/// [`ForecastError::TooManyGaps`] with the counts of the part that has too many.
fn require_dense(values: &[f64], day: usize) -> Result<(), ForecastError> {
    let last_day = values
        .get(values.len().saturating_sub(day)..)
        .unwrap_or(values);
    // The last day separately, because a long history hides that samples stopped coming.
    for part in [values, last_day] {
        let (missing, of) = (missing(part), part.len());
        if count(missing) > MAX_MISSING * count(of) {
            return Err(ForecastError::TooManyGaps { missing, of });
        }
    }
    Ok(())
}

/// Fills a hole with the values a season before, else a season after; the others stay missing. A value that was
/// filled before counts.
fn repeat_season(values: &mut [f64], hole: std::ops::Range<usize>, season: usize) {
    for at in hole {
        let before = at.checked_sub(season).and_then(|i| values.get(i)).copied();
        let after = values.get(at.saturating_add(season)).copied();
        let found = [before, after]
            .into_iter()
            .flatten()
            .find(|value| !value.is_nan());
        if let (Some(slot), Some(found)) = (values.get_mut(at), found) {
            *slot = found;
        }
    }
}

/// Interpolates the values that are still missing within `hole`.
fn interpolate(values: &mut [f64], hole: std::ops::Range<usize>) {
    let Some(part) = values.get(hole.clone()) else {
        return;
    };
    for gap in holes(part) {
        let (start, end) = (hole.start + gap.start, hole.start + gap.end);
        let before = start.checked_sub(1).and_then(|i| values.get(i)).copied();
        let after = values.get(end).copied();
        // At an end of the series, the only neighbor is repeated.
        let (Some(from), Some(to)) = (before.or(after), after.or(before)) else {
            continue;
        };
        let width = count(gap.len() + 1);
        for (i, slot) in values.iter_mut().take(end).skip(start).enumerate() {
            let part = count(i + 1) / width;
            *slot = from * (1.0 - part) + to * part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);
    const TEN: SignedDuration = SignedDuration::from_mins(10);
    const N: f64 = f64::NAN;

    fn admit(step: SignedDuration, values: &[f64]) -> Result<PreparedHistory, ForecastError> {
        let history = Series::from_values(Timestamp::UNIX_EPOCH, step, values.to_vec());
        PreparedHistory::new(
            &history,
            HistoryRequirements {
                step,
                least: step * 2,
                most: step * 1000,
            },
        )
    }

    #[test]
    fn holes_are_filled_by_lines_seasons_and_the_last_value() {
        let season = 8;
        let line = [1.0, N, N, 4.0, 4.0, 4.0, 4.0];
        let full = [1.0, 2.0, 3.0, 4.0, 4.0, 4.0, 4.0];
        let long = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let hole = [9.0, N, N, N, N, N, N, N];
        let after = [9.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0];
        let as_before = [9.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let as_after = [9.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0];
        for (values, expected) in [
            // A line, the last value, and no history before the first one.
            (&line[..], &full[..]),
            (&[3.0, 5.0, 4.0, N], &[3.0, 5.0, 4.0, 4.0]),
            (&[N, N, 1.0, 2.0], &[1.0, 2.0]),
            // The season before, and the season after.
            (
                &[long, hole, after].concat(),
                &[long, as_before, after].concat(),
            ),
            (
                &[hole, after, long].concat(),
                &[as_after, after, long].concat(),
            ),
        ] {
            let prepared = admit(TEN, values).unwrap();
            assert_eq!(prepared.filled(season), expected, "{values:?}");
        }
    }

    #[test]
    fn a_history_that_cannot_be_filled_is_an_error() {
        let hours = |n: i64| SignedDuration::from_hours(n);
        let at = |n: i64| Timestamp::UNIX_EPOCH + hours(n);
        let sparse: Vec<f64> = (0..48).map(|i| if i % 3 == 0 { N } else { 1.0 }).collect();
        let tail: Vec<f64> = (0..48)
            .map(|i| if (30..40).contains(&i) { N } else { 1.0 })
            .collect();
        let (have, need) = (hours(0), hours(2));
        let insufficient = ForecastError::InsufficientHistory { have, need };
        let (last, end) = (at(1), at(3));
        let gaps = |missing, of| ForecastError::TooManyGaps { missing, of };
        let cases = [
            (vec![], insufficient),
            (vec![N; 9], insufficient),
            (vec![1.0, 1.0, N], ForecastError::StaleHistory { last, end }),
            (sparse, gaps(15, 47)),
            (tail, gaps(10, 24)),
            (vec![0.0; 9], ForecastError::ZeroSeries),
        ];
        for (values, expected) in cases {
            assert_eq!(admit(HOUR, &values).unwrap_err(), expected, "{values:?}");
        }
    }

    #[test]
    fn a_hole_of_a_day_is_filled_and_a_longer_one_cuts_the_history() {
        let part = |n: usize, value: f64| vec![value; n];
        let filled = [part(60, 1.0), part(24, N), part(60, 2.0)].concat();
        assert_eq!(admit(HOUR, &filled).unwrap().values.len(), 144);
        let cut = admit(HOUR, &[part(60, 1.0), part(25, N), part(60, 2.0)].concat()).unwrap();
        assert_eq!(
            (cut.values, cut.notes),
            (part(60, 2.0), vec![Note::HistoryCut])
        );
    }

    #[test]
    fn short_outlier_runs_are_missing_and_long_ones_are_load() {
        let mut values = vec![1.0; 400];
        values[100] = 1e308;
        values[200..205].fill(101.0);
        values[300..303].fill(100.0);
        let prepared = admit(TEN, &values).unwrap();
        assert_eq!(prepared.notes, vec![Note::SpikesRejected { slots: 6 }]);
        assert!((prepared.highest - 100.0).abs() < 1e-12);
        let mut job = vec![0.01; 400];
        job[100..112].fill(50.0);
        assert!(admit(TEN, &job).unwrap().notes.is_empty());
    }

    #[test]
    fn extremes_are_replaced_by_the_value_before() {
        let mut values: Vec<f64> = (0..2000).map(|i| f64::from(i % 10) + 1.0).collect();
        values[500] = 99.0;
        values[700] = 0.0;
        hold_extremes(&mut values);
        assert_eq!((values[500], values[700]), (10.0, 10.0));
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_rare_short_outlier_is_rejected_and_one_that_recurs_is_load() {
        let idle = |bursts: &[std::ops::Range<usize>]| -> Vec<f64> {
            let burst = |i: usize| bursts.iter().any(|burst| burst.contains(&i));
            (0..2880)
                .map(|i| if burst(i) { 2.0 } else { 0.01 })
                .collect()
        };
        let every = |minutes: usize, n: usize, long: usize| -> Vec<std::ops::Range<usize>> {
            let starts = (1..=n).map(|i| i * minutes);
            starts.map(|start| start..start + long).collect()
        };
        // Three minutes of two cores every two hours.
        assert_eq!(outlier_runs(&idle(&every(120, 23, 3)), 0.0), []);
        // Less often than the percentile shows, but again and again; lone samples are never load.
        assert_eq!(outlier_runs(&idle(&every(500, 5, 2)), 0.0), []);
        let lone = every(500, 5, 1);
        assert_eq!(outlier_runs(&idle(&lone), 0.0), lone);
        let rare = every(500, 3, 5);
        assert_eq!(outlier_runs(&idle(&rare), 0.0), rare);
        assert_eq!(outlier_runs(&idle(&rare), 1.5), []);
        let level = 600..606;
        assert_eq!(outlier_runs(&idle(&[level]), 0.0), []);
    }
}
