//! [`PathModel`]: the forecast path that is published for charts; no decision depends on it. The same linear model
//! predicts single steps at a few horizons, with straight lines between them; beyond an hour the path follows similar
//! days. It learns every five minutes, which is enough for a chart.
//!
//! ```text
//! last minute   1   2      5         10  ...  60 minutes ahead
//!      x--------x---x------x---------x-  ...  -x~~~~~~~~~~~~~~~~~  similar days, moved by what is left of the distance
//! ```

use std::collections::VecDeque;

use super::features::{FeatureContext, Row};
use super::ridge::Ridge;
use super::view::{View, Window};
use crate::conformal::{Errors, RankedErrors};
use crate::grid::Grid;
use crate::series::count;

/// Minutes ahead that are predicted.
const HORIZONS: [i64; 8] = [1, 2, 5, 10, 20, 30, 45, 60];
/// Minutes between two predictions, and between two solutions of the model and updates of its margins.
const EVERY: i64 = 5;
const SOLVE_EVERY: i64 = 60;
/// Days of errors that the upper bounds use.
const DAYS: usize = 4;
/// The loss is symmetric.
const TAU: f64 = 0.5;
/// The part of the current distance from similar days that is left after an hour.
const FADES_TO: f64 = 0.9;

/// Predictions of single steps ahead.
#[derive(Debug, Clone)]
pub struct PathModel {
    every: usize,
    solve_every: usize,
    /// The step and the quantile that the margins were updated for.
    ranked_for: Option<Ranking>,
    /// The grid of the predictions.
    coarse: Grid,
    horizons: Vec<HorizonModel>,
    ranked: RankedErrors,
}

/// The step and the quantile that margins follow from, apart from the errors.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ranking {
    at: usize,
    quantile: f64,
}

/// The model of the step that lies `ahead` steps after the one it predicts from.
///
/// # Units
/// `predicted`, `level` and `margin` are on the scale of the learner; `ahead` is a number of steps.
#[derive(Debug, Clone)]
struct HorizonModel {
    ahead: usize,
    ridge: Ridge,
    /// Predictions whose outcome is not known yet.
    pending: VecDeque<(usize, Row, f64)>,
    /// The errors by prediction, numbered by the step it was made at over `every`.
    errors: Errors,
    /// The newest prediction, relative to the level then.
    predicted: f64,
    /// The step it was made at, and the level then.
    made_at: usize,
    level: f64,
    /// Added to the prediction for the upper bound.
    margin: f64,
}

/// A point of the path, on the scale of the model.
#[derive(Debug, Clone, Copy, Default)]
struct Knot {
    /// Steps ahead.
    at: f64,
    point: f64,
    upper: f64,
}

/// A path and its upper bounds.
///
/// # Shape
/// Both have the same length; index 0 is the next step.
#[derive(Debug, Clone, Default)]
pub struct ForecastPath {
    pub point: Vec<f64>,
    pub upper: Vec<f64>,
}

// === impl PathModel ===

impl PathModel {
    /// A model without data.
    pub fn new(grid: Grid) -> Self {
        let every = grid.minutes(EVERY);
        let coarse = Grid::new(grid.step() * i32::try_from(every).unwrap_or(1));
        let half_life = count(coarse.day());
        let mut ahead = HORIZONS.map(|minutes| grid.minutes(minutes)).to_vec();
        // On a grid of ten minutes, the first horizons are one step.
        ahead.dedup();
        let horizons = ahead.into_iter().map(|ahead| HorizonModel {
            ahead,
            ridge: Ridge::new(TAU, half_life),
            pending: VecDeque::with_capacity(ahead / every + 2),
            errors: Errors::with_capacity(DAYS * coarse.day() + ahead + 60),
            predicted: 0.0,
            made_at: 0,
            level: 0.0,
            margin: 0.0,
        });
        Self {
            every,
            // A multiple of `every`, so that all predictions before it are known.
            solve_every: every * coarse.minutes(SOLVE_EVERY),
            ranked_for: None,
            coarse,
            horizons: horizons.collect(),
            ranked: RankedErrors::new(coarse),
        }
    }

    /// Learns from the demand before `context`'s step, and predicts from it.
    pub fn step(&mut self, view: &View<'_>, context: &FeatureContext) {
        let now = context.step();
        if !now.is_multiple_of(self.every) {
            return;
        }
        // The oldest error that is ever used.
        let looked_for = DAYS * self.coarse.day() + self.coarse.minutes(60);
        let oldest = (now / self.every).saturating_sub(looked_for);
        for horizon in &mut self.horizons {
            horizon.learn(view, now, self.every);
            if now.is_multiple_of(self.solve_every) {
                horizon.ridge.solve();
                horizon.errors.drop_before(oldest);
            }
            horizon.predict(view, context);
        }
    }

    /// Updates the upper bounds to the last full hour before `now`, and to a quantile that has changed since.
    pub fn calibrate(&mut self, now: usize, quantile: f64) {
        let at = now / self.solve_every * self.solve_every;
        let ranking = Some(Ranking { at, quantile });
        if self.ranked_for != ranking {
            self.ranked_for = ranking;
            self.rank(at, quantile);
        }
    }

    /// The next `steps` steps after `context`'s, on the scale of the model.
    pub fn ahead(&self, view: &View<'_>, context: &FeatureContext, steps: usize) -> ForecastPath {
        let last = view.scale.of(view
            .buffer
            .at(context.step().wrapping_sub(1))
            .unwrap_or(0.0));
        // Horizons that have passed since their prediction are left out.
        let mut knots = vec![Knot {
            // The last measured step lies one before the path.
            at: -1.0,
            point: last,
            upper: last,
        }];
        for horizon in &self.horizons {
            let gone = count(context.step() - horizon.made_at);
            let at = count(horizon.ahead) - gone;
            let value = horizon.level + horizon.predicted;
            if at > -1.0 {
                knots.push(Knot {
                    at,
                    point: value,
                    // An upper bound below the expected value would be none.
                    upper: value + horizon.margin.max(0.0),
                });
            }
        }
        let mut ahead = ForecastPath::default();
        for step in 0..steps {
            let at = count(step);
            let next = knots.iter().position(|knot| knot.at >= at);
            let around = next.and_then(|next| knots.get(next.saturating_sub(1)..=next));
            let knot = if let Some([before, after]) = around {
                Knot::between(*before, *after, at)
            } else {
                let last = knots.last().copied().unwrap_or_default();
                Knot::beyond(last, view, context, step)
            };
            ahead.point.push(knot.point);
            ahead.upper.push(knot.upper);
        }
        ahead
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        self.horizons.iter().map(HorizonModel::bytes).sum::<usize>() + self.ranked.bytes()
    }

    /// Updates the margin of each horizon at a quantile, from the errors that are known at step `now`.
    fn rank(&mut self, now: usize, quantile: f64) {
        for horizon in &mut self.horizons {
            let Some(known) = now.checked_sub(horizon.ahead + 1) else {
                continue;
            };
            let (now, known) = (now / self.every, known / self.every);
            let enough = self.ranked.rank(&horizon.errors, self.coarse, now, known);
            // A margin from before a hole would differ from what a new forecaster gives for the same history.
            horizon.margin = if enough {
                self.ranked.quantile(quantile)
            } else {
                0.0
            };
        }
    }
}

impl HorizonModel {
    /// Bytes kept, including the model itself.
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + size_of::<(usize, Row, f64)>() * self.pending.capacity()
            + self.errors.bytes()
    }

    /// The single step that is predicted.
    fn window(&self) -> Window {
        Window {
            from: self.ahead,
            to: self.ahead,
        }
    }

    /// Learns from the predictions whose step is over before `now`; not from imputed steps.
    fn learn(&mut self, view: &View<'_>, now: usize, every: usize) {
        while let Some((made_at, row, predicted)) = self
            .pending
            .pop_front_if(|(made_at, _, _)| *made_at + self.ahead < now)
        {
            if view.buffer.imputed(made_at, made_at + self.ahead + 1) > 0 {
                continue;
            }
            let outcome = view.outcome(made_at, self.window());
            let error = outcome - predicted;
            self.ridge.learn(&row, outcome, error);
            self.errors.record(made_at / every, error);
        }
    }

    /// Predicts from the step of this context, and keeps the features until the outcome is known.
    fn predict(&mut self, view: &View<'_>, context: &FeatureContext) {
        let row = view.row(context, self.window());
        self.predicted = self.ridge.predict(&row);
        (self.made_at, self.level) = (context.step(), context.now.five);
        self.pending
            .push_back((context.step(), row, self.predicted));
    }
}

// === impl Knot ===

impl Knot {
    /// The point at `at` on the straight line from `before` to `after`.
    fn between(before: Self, after: Self, at: f64) -> Self {
        let width = after.at - before.at;
        let part = if width > 0.0 {
            (at - before.at) / width
        } else {
            1.0
        };
        Self {
            at,
            point: before.point + part * (after.point - before.point),
            upper: before.upper + part * (after.upper - before.upper),
        }
    }

    /// The point `step` steps ahead, beyond the last knot: the demand that followed on similar days, plus the distance
    /// of the present from them, which fades by the hour.
    fn beyond(last: Self, view: &View<'_>, context: &FeatureContext, step: usize) -> Self {
        let at = count(step);
        let Some((then, hour_before)) = view.similar_days(context, step) else {
            return Self { at, ..last };
        };
        let hours = at / count(view.grid.minutes(60));
        let point = then + FADES_TO.powf(hours) * (context.now.hour() - hour_before);
        Self {
            at,
            point,
            upper: point + (last.upper - last.point),
        }
    }
}
