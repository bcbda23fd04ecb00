//! [`Outcomes`]: actual demand against predicted demand over one history: the errors, the margin that follows from
//! them, and the coverage and skill that such margins had.
//!
//! # Formula
//! `error = ln((actual + shift) / (predicted + shift))`; with a margin, `(value + shift) * e^margin - shift`. Actual
//! and predicted are peaks of one decision window, `shift` is twice the mean of the last week, and all are relative
//! to the highest value.

use super::backcast::Backcast;
use crate::conformal::{Errors, RankedErrors};
use crate::forecast::CEILING_RATIO;
use crate::gaps::{MAX_MISSING, PreparedHistory};
use crate::grid::Grid;
use crate::series::{count, steps};

/// Errors of this many days at the same time of day are used, and those this many minutes around it.
const DAYS: i64 = 7;
const AROUND: i64 = 31;
/// The span that quality is measured over, in minutes: three days.
const MEASURED: i64 = 3 * 1440;
/// The span of errors before it that its margins use, in minutes: two days.
const ERRORS_BEFORE: i64 = 2 * 1440;
/// Minutes whose mean is the level that persistence repeats.
const LEVEL: i64 = 5;

/// A history up to one instant, relative to its highest value.
#[derive(Debug)]
pub struct Outcomes<'a> {
    /// The values, oldest first; NaN is missing.
    values: &'a [f64],
    highest: f64,
    grid: Grid,
    window: usize,
    /// The number of the step just after the last value.
    now: i64,
    /// The addition before taking logarithms: twice the mean of the last week.
    shift: f64,
}

/// The sums of a measurement of quality.
#[derive(Debug, Default)]
struct Score {
    windows: usize,
    within: usize,
    /// Pinball loss.
    loss: f64,
}

/// The spans of steps whose errors are used at `now`, newest first: the recent days, then the time around `now` on each
/// past day.
pub fn evaluated_spans(grid: Grid, now: i64) -> Vec<(i64, i64)> {
    let lately = now - steps(grid.minutes(MEASURED + ERRORS_BEFORE + 60));
    let around = steps(grid.minutes(AROUND));
    let mut spans = vec![(lately, now)];
    for day in 1..=DAYS {
        let centre = now - day * steps(grid.day());
        spans.push((centre - around, centre + around + 1));
    }
    spans
}

/// The oldest step that is used at `now` or later.
pub fn oldest(grid: Grid, now: i64) -> i64 {
    now - DAYS * steps(grid.day()) - steps(grid.minutes(AROUND))
}

// === impl Outcomes ===

impl<'a> Outcomes<'a> {
    /// The outcomes of a history that ends just before step `now`, for windows that reach `window` steps beyond the
    /// one they begin at.
    pub fn new(prepared: &'a PreparedHistory, grid: Grid, window: usize, now: i64) -> Self {
        let mut outcomes = Self {
            values: &prepared.values,
            highest: prepared.highest,
            grid,
            window,
            now,
            shift: 0.0,
        };
        outcomes.shift = outcomes.twice_the_mean();
        outcomes
    }

    /// The outcomes `age` steps ago.
    pub fn earlier(&self, age: usize) -> Self {
        let end = self.values.len().saturating_sub(age);
        let mut outcomes = Self {
            values: self.values.get(..end).unwrap_or_default(),
            now: self.now - steps(age),
            ..*self
        };
        outcomes.shift = outcomes.twice_the_mean();
        outcomes
    }

    /// The logarithmic margin with which a share `quantile` of the windows stays within the forecast; `None` with too
    /// few errors.
    pub fn margin(&self, backcast: &Backcast, quantile: f64) -> Option<f64> {
        let now = self.values.len();
        let known = now.checked_sub(self.window + 1)?;
        let mut ranked = RankedErrors::new(self.grid);
        let error_at = |at| self.error(at, self.predicted(backcast, at)?);
        let enough = ranked.rank_by(error_at, self.grid, now, known);
        enough.then(|| ranked.quantile(quantile))
    }

    /// A value in the history's unit with a margin, limited to the range of every forecast.
    pub fn raise(&self, value: f64, margin: f64) -> f64 {
        self.raised((value / self.highest).clamp(0.0, CEILING_RATIO), margin) * self.highest
    }

    /// Coverage, and skill against persistence with its own margin, over the last three days: for each hour with the
    /// margin of that hour, from the errors known then.
    pub fn quality(&self, backcast: &Backcast, quantile: f64) -> (Option<f64>, Option<f64>) {
        let own = self.score(quantile, |at| self.predicted(backcast, at));
        let persistence = self.score(quantile, |at| self.level(at));
        let coverage = (own.windows > 0).then(|| count(own.within) / count(own.windows));
        let skill = (own.windows > 0 && persistence.windows > 0 && persistence.loss > 0.0)
            .then(|| 1.0 - own.mean_loss() / persistence.mean_loss());
        (coverage, skill.filter(|skill| skill.is_finite()))
    }

    /// The sums over the last three days of the predictions with this rule, each raised by the margin of its hour.
    ///
    /// `predicted(at)` is the peak predicted for the window that begins at `at`, relative to the highest value.
    fn score(&self, quantile: f64, predicted: impl Fn(usize) -> Option<f64>) -> Score {
        let hour = self.grid.minutes(60);
        let measured = self
            .values
            .len()
            .saturating_sub(self.grid.minutes(MEASURED));
        let from = measured.saturating_sub(self.grid.minutes(ERRORS_BEFORE));
        let errors = self.errors(from, &predicted);
        let (mut score, mut ranked) = (Score::default(), RankedErrors::new(self.grid));
        for start in (measured..self.values.len()).step_by(hour) {
            let known = start.checked_sub(self.window + 1 + from);
            if !known.is_some_and(|known| ranked.rank(&errors, self.grid, start - from, known)) {
                continue;
            }
            let margin = ranked.quantile(quantile);
            for at in start..(start + hour).min(self.values.len()) {
                if let (Some(predicted), Some(actual)) = (predicted(at), self.actual(at)) {
                    score.add(actual - self.raised(predicted, margin), quantile);
                }
            }
        }
        score
    }

    /// The errors of the predictions from step `from` on, with steps counted from there.
    fn errors(&self, from: usize, predicted: impl Fn(usize) -> Option<f64>) -> Errors {
        let mut errors = Errors::with_capacity(self.values.len().saturating_sub(from));
        for at in from..self.values.len() {
            if let Some(error) = predicted(at).and_then(|predicted| self.error(at, predicted)) {
                errors.record(at - from, f64::from(error));
            }
        }
        errors
    }

    /// The logarithmic error of the prediction for the window that begins at `at`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "errors are kept and ranked with seven digits"
    )]
    fn error(&self, at: usize, predicted: f64) -> Option<f32> {
        let error = ((self.actual(at)? + self.shift) / (predicted + self.shift)).ln();
        Some(error as f32).filter(|error| error.is_finite())
    }

    /// The actual peak of the window that begins at `at`; `None` if it is not over or too much of it is missing.
    fn actual(&self, at: usize) -> Option<f64> {
        let window = self.values.get(at..=at + self.window)?;
        let missing = window.iter().filter(|value| value.is_nan()).count();
        if count(missing) > MAX_MISSING * count(window.len()) {
            return None;
        }
        let highest = window.iter().copied().fold(0.0, f64::max);
        Some(highest / self.highest)
    }

    /// The predicted peak of the window that begins at `at`.
    fn predicted(&self, backcast: &Backcast, at: usize) -> Option<f64> {
        let predicted = backcast.get(self.now - steps(self.values.len() - at))?;
        Some((predicted / self.highest).clamp(0.0, CEILING_RATIO))
    }

    /// The level just before the window that begins at `at`.
    fn level(&self, at: usize) -> Option<f64> {
        let from = at.saturating_sub(self.grid.minutes(LEVEL));
        self.mean(self.values.get(from..at)?)
    }

    /// A relative value with a logarithmic margin: `(value + shift) * e^margin - shift`, within the range of every
    /// forecast.
    fn raised(&self, value: f64, margin: f64) -> f64 {
        ((value + self.shift) * margin.exp() - self.shift).clamp(0.0, CEILING_RATIO)
    }

    /// Twice the mean of the last week alone, so that the length of the history has no effect.
    fn twice_the_mean(&self) -> f64 {
        let older = self.values.len().saturating_sub(7 * self.grid.day());
        let week = self.values.get(older..).unwrap_or_default();
        2.0 * self.mean(week).unwrap_or(0.0)
    }

    /// The mean relative to the highest value; `None` without values.
    fn mean(&self, values: &[f64]) -> Option<f64> {
        let (mut sum, mut seen) = (0.0, 0);
        for value in values.iter().filter(|value| !value.is_nan()) {
            sum += value / self.highest;
            seen += 1;
        }
        (seen > 0).then(|| sum / count(seen))
    }
}

// === impl Score ===

impl Score {
    /// Adds one window whose peak exceeded the forecast by `excess`, which is negative where it stayed within it.
    ///
    /// The pinball loss of a quantile `q` is `q * excess` for a peak that was exceeded, and `(q - 1) * excess` else.
    fn add(&mut self, excess: f64, quantile: f64) {
        self.windows += 1;
        self.within += usize::from(excess <= 0.0);
        self.loss += (quantile * excess).max((quantile - 1.0) * excess);
    }

    /// The pinball loss per window; not a number without windows.
    fn mean_loss(&self) -> f64 {
        self.loss / count(self.windows)
    }
}
