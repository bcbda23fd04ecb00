//! What came, against what was said: errors, the margin they ask for, and how well margins like that have done. Pure
//! arithmetic over one history; what was said comes from `hindsight`.

use super::hindsight::Hindsight;
use super::steps;
use crate::conformal::{Errors, Ranked};
use crate::forecast::CEILING_RATIO;
use crate::gaps::{Admitted, MAX_MISSING};
use crate::grid::Grid;
use crate::series::count;

/// Errors of at most this many days at the same time of day are looked at, and this many minutes around it.
const DAYS: i64 = 7;
const AROUND: i64 = 31;
/// The span that forecasts are judged over, in minutes: three days.
const JUDGED: i64 = 3 * 1440;
/// The span of errors that a judged forecast had to learn from, in minutes: two days.
const BEFORE_JUDGED: i64 = 2 * 1440;
/// The level that "it stays as it is" repeats: the mean of so many minutes.
const LEVEL: i64 = 5;

/// A history up to one instant, in parts of its highest value.
#[derive(Debug)]
pub(super) struct Past<'a> {
    /// Oldest first; NaN is missing.
    values: &'a [f64],
    highest: f64,
    grid: Grid,
    window: usize,
    /// The number of the step just after the last value.
    now: i64,
    /// What is added before taking logarithms: twice the mean of the last week.
    shift: f64,
}

/// What a judgement adds up.
#[derive(Debug, Default)]
struct Score {
    windows: usize,
    within: usize,
    /// Pinball loss.
    loss: f64,
}

/// The spans of steps whose errors are looked at from `now`, newest first: what is judged, then a while of each day.
pub(super) fn looked_at(grid: Grid, now: i64) -> Vec<(i64, i64)> {
    let lately = now - steps(grid.minutes(JUDGED + BEFORE_JUDGED + 60));
    let around = steps(grid.minutes(AROUND));
    let days = (1..=DAYS).map(|day| now - day * steps(grid.day()));
    let bands = days.map(|centre| (centre - around, centre + around + 1));
    std::iter::once((lately, now)).chain(bands).collect()
}

/// The oldest step that is looked at from `now` or later.
pub(super) fn oldest(grid: Grid, now: i64) -> i64 {
    now - DAYS * steps(grid.day()) - steps(grid.minutes(AROUND))
}

// === impl Past ===

impl<'a> Past<'a> {
    pub(super) fn new(admitted: &'a Admitted, grid: Grid, window: usize, now: i64) -> Self {
        let mut past = Self {
            values: &admitted.values,
            highest: admitted.highest,
            grid,
            window,
            now,
            shift: 0.0,
        };
        past.shift = past.twice_the_mean();
        past
    }

    /// As it was `age` steps ago.
    pub(super) fn earlier(&self, age: usize) -> Self {
        let end = self.values.len().saturating_sub(age);
        let mut past = Self {
            values: self.values.get(..end).unwrap_or_default(),
            now: self.now - steps(age),
            ..*self
        };
        past.shift = past.twice_the_mean();
        past
    }

    /// What to add, as a logarithm, so that a part `quantile` of the windows stays within; `None` with too few errors.
    pub(super) fn margin(&self, hindsight: &Hindsight, quantile: f64) -> Option<f64> {
        let now = self.values.len();
        let known = now.checked_sub(self.window + 1)?;
        let error_at = |at| self.error(at, self.said(hindsight, at)?);
        let mut ranked = Ranked::new(self.grid);
        let enough = ranked.rank_by(error_at, self.grid, now, known);
        enough.then(|| ranked.quantile(quantile))
    }

    /// A value of the history's unit with a margin, short of the bounds of every forecast.
    pub(super) fn raise(&self, value: f64, margin: f64) -> f64 {
        self.raised((value / self.highest).clamp(0.0, CEILING_RATIO), margin) * self.highest
    }

    /// Coverage, and skill against the same margin around "it stays as it is", over the last three days: at each hour
    /// with the margin of that hour, from the errors known then.
    pub(super) fn judge(&self, hindsight: &Hindsight, quantile: f64) -> (Option<f64>, Option<f64>) {
        let own = self.score(quantile, |at| self.said(hindsight, at));
        let idle = self.score(quantile, |at| self.level(at));
        let coverage = (own.windows > 0).then(|| count(own.within) / count(own.windows));
        let skill = (own.windows > 0 && idle.windows > 0 && idle.loss > 0.0)
            .then(|| 1.0 - own.mean_loss() / idle.mean_loss());
        (coverage, skill.filter(|skill| skill.is_finite()))
    }

    fn score(&self, quantile: f64, said: impl Fn(usize) -> Option<f64>) -> Score {
        let hour = self.grid.minutes(60);
        let judged = self.values.len().saturating_sub(self.grid.minutes(JUDGED));
        let from = judged.saturating_sub(self.grid.minutes(BEFORE_JUDGED));
        let errors = self.errors(from, &said);
        let (mut score, mut ranked) = (Score::default(), Ranked::new(self.grid));
        for start in (judged..self.values.len()).step_by(hour) {
            let known = start.checked_sub(self.window + 1 + from);
            if !known.is_some_and(|known| ranked.rank(&errors, self.grid, start - from, known)) {
                continue;
            }
            let margin = ranked.quantile(quantile);
            for at in start..(start + hour).min(self.values.len()) {
                if let (Some(said), Some(came)) = (said(at), self.came(at)) {
                    score.add(came - self.raised(said, margin), quantile);
                }
            }
        }
        score
    }

    /// The errors of what was said from `from` on, steps being counted from there.
    fn errors(&self, from: usize, said: impl Fn(usize) -> Option<f64>) -> Errors {
        let mut errors = Errors::with_capacity(self.values.len().saturating_sub(from));
        for at in from..self.values.len() {
            if let Some(error) = said(at).and_then(|said| self.error(at, said)) {
                errors.record(at - from, f64::from(error));
            }
        }
        errors
    }

    /// By how much, as a logarithm, what came of the window that begins here exceeded what was said of it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "errors are kept and ranked with seven digits"
    )]
    fn error(&self, at: usize, said: f64) -> Option<f32> {
        let error = ((self.came(at)? + self.shift) / (said + self.shift)).ln();
        Some(error as f32).filter(|error| error.is_finite())
    }

    /// The highest of the window that begins here, once it is over and unless too much of it is missing.
    fn came(&self, at: usize) -> Option<f64> {
        let window = self.values.get(at..=at + self.window)?;
        let missing = window.iter().filter(|value| value.is_nan()).count();
        if count(missing) > MAX_MISSING * count(window.len()) {
            return None;
        }
        let highest = window.iter().copied().fold(0.0, f64::max);
        Some(highest / self.highest)
    }

    /// What was said of that window.
    fn said(&self, hindsight: &Hindsight, at: usize) -> Option<f64> {
        let said = hindsight.get(self.now - steps(self.values.len() - at))?;
        Some((said / self.highest).clamp(0.0, CEILING_RATIO))
    }

    /// The level just before.
    fn level(&self, at: usize) -> Option<f64> {
        let from = at.saturating_sub(self.grid.minutes(LEVEL));
        self.mean(self.values.get(from..at)?)
    }

    fn raised(&self, value: f64, margin: f64) -> f64 {
        let raised = (value + self.shift) * margin.exp() - self.shift;
        raised.clamp(0.0, CEILING_RATIO)
    }

    /// Of the last week, so that it does not depend on how much more there is.
    fn twice_the_mean(&self) -> f64 {
        let older = self.values.len().saturating_sub(7 * self.grid.day());
        let week = self.values.get(older..).unwrap_or_default();
        2.0 * self.mean(week).unwrap_or(0.0)
    }

    /// In parts of the highest; `None` of nothing.
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
    fn add(&mut self, excess: f64, quantile: f64) {
        self.windows += 1;
        self.within += usize::from(excess <= 0.0);
        self.loss += (quantile * excess).max((quantile - 1.0) * excess);
    }

    fn mean_loss(&self) -> f64 {
        self.loss / count(self.windows)
    }
}
