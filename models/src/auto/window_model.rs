//! [`WindowModel`]: the model of the peak demand of one window. At every step it predicts the window that begins some
//! steps later, it learns from each prediction once the outcome is known, and its own errors make the prediction an
//! upper bound. While it is no better than persistence (repeating the current level), persistence is used instead.
//!
//! ```text
//! step   s            s + from  ...  s + to    s + to + 1
//!        predict      [     window    ]        its peak is known: learn, record the error
//! ```

use std::collections::VecDeque;

use super::features::{FeatureContext, MINUTES_BEFORE, Row};
use super::margins::{Margins, REFRESHED_EVERY};
use super::ridge::Ridge;
use super::skill::{Bounds, Outcome, SkillTracker};
use super::view::{View, Window};
use crate::grid::Grid;
use crate::series::count;

/// The weight of a prediction that was too low in the model's loss; one that was too high has the rest to 1.
const TAU: f64 = 0.8;
/// Minutes between two solutions of the model. Ten to twenty make no difference that is above the noise.
const SOLVE_EVERY: i64 = 15;
/// Minutes between two solutions of the first version of the model, which golden files describe.
const FIRST_VERSION_SOLVES_EVERY: i64 = 10;
/// Minutes between two comparisons with persistence.
const COMPARE_EVERY: i64 = 240;
/// Minutes between two renewals of the margin whose coverage is followed.
const WATCHED_EVERY: i64 = 30;
/// The step by which the logarithm of the probability of a miss follows the coverage, and its largest value.
///
/// # Source
/// Measured on twenty public traces: the coverage of a bound at 93 % is within a point of it on nineteen, at each of the
/// three start-ups; without, on fourteen to sixteen. A third of the step gives seventeen to twenty.
const ADAPTS_BY: f64 = 0.006;
const MOST_ADAPTED: f64 = 1.5;

/// The model of one window, and its measured accuracy. All values are on the scale of its learner.
#[derive(Debug, Clone)]
pub struct WindowModel {
    window: Window,
    /// Uses the features of the minutes before the last one.
    minutes_before: bool,
    ridge: Ridge,
    /// True if the last attempt to solve the equations succeeded.
    sound: bool,
    /// True if the model was no better than persistence at the last comparison.
    unskilled: bool,
    pending: VecDeque<PendingPrediction>,
    margins: Margins,
    skill_tracker: SkillTracker,
    /// The logarithm of the factor of the probability of a miss that keeps the published bound's coverage.
    misses: f64,
}

/// A prediction whose outcome is not known yet.
///
/// It is kept for as long as its window lasts, because it is learned from once the peak is known.
#[derive(Debug, Clone)]
struct PendingPrediction {
    step: usize,
    row: Row,
    level: f64,
    /// `None` while the model warms up.
    point: Option<f64>,
    /// The recorded upper bounds, in demand.
    bounds: Option<Bounds>,
}

/// The predictor that gives the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredictorState {
    /// The calibrated model.
    Model,
    /// Calibrated persistence, because too few errors of the model are known.
    WarmingUp,
    /// Calibrated persistence, because the model is no better.
    NoSkill,
    /// Calibrated persistence, because the equations of the model have no solution.
    Numerical,
}

// === impl WindowModel ===

impl WindowModel {
    /// A model without data; `compared` with persistence, or always in use.
    pub fn new(window: Window, minutes_before: bool, compared: bool, grid: Grid) -> Self {
        let day = count(grid.day());
        Self {
            window,
            minutes_before,
            ridge: Ridge::new(TAU, day),
            sound: true,
            unskilled: false,
            pending: VecDeque::with_capacity(window.to + 2),
            margins: Margins::new(grid, window.to, COMPARE_EVERY, compared),
            skill_tracker: SkillTracker::new(day),
            misses: 0.0,
        }
    }

    /// The window that is predicted.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Learns from the outcomes that are known before the context's step, which is new.
    // Learning is one loop over these steps: as calls they cost it 2 % more instructions.
    #[inline]
    pub fn learn(&mut self, view: &View<'_>, now: usize) {
        if let Some(made_at) = now.checked_sub(self.window.to + 1) {
            self.learn_from(view, made_at);
        }
        let every = if self.minutes_before {
            SOLVE_EVERY
        } else {
            FIRST_VERSION_SOLVES_EVERY
        };
        if now.is_multiple_of(view.grid.minutes(every)) {
            self.sound = self.ridge.solve();
        }
    }

    /// Predicts the window after the context's step; the point is kept back while the model is not `ready`.
    #[inline]
    pub fn predict(&mut self, view: &View<'_>, context: &FeatureContext, ready: bool) {
        let mut row = view.row(context, self.window);
        if !self.minutes_before {
            row.iter_mut().skip(MINUTES_BEFORE).for_each(|x| *x = 0.0);
        }
        self.pending.push_back(PendingPrediction {
            step: context.step(),
            row,
            level: context.now.five,
            point: ready.then(|| self.ridge.predict(&row)),
            bounds: None,
        });
    }

    /// Renews the margins for the comparison with persistence when they are due, or earlier while too few errors are
    /// known.
    #[inline]
    pub fn compare(&mut self, grid: Grid, now: usize, quantile: f64) {
        let soon = now.is_multiple_of(grid.minutes(REFRESHED_EVERY));
        let young = !(self.margins.has_model() && self.margins.has_persistence());
        let adjusted = self.adjusted(quantile);
        if now.is_multiple_of(grid.minutes(COMPARE_EVERY)) || young && soon {
            self.margins.compare(now, quantile, adjusted);
            self.margins.forget(now);
            // Kept until the next comparison, so that the predictor does not alternate when both are equally good.
            self.unskilled = self.skill_tracker.skill().is_some_and(|skill| skill <= 0.0);
        } else if now.is_multiple_of(grid.minutes(WATCHED_EVERY)) {
            self.margins.update_published(now, adjusted);
        }
    }

    /// Drops the errors that are no longer used, for a model that is not compared.
    pub fn forget(&mut self, grid: Grid, now: usize) {
        if now.is_multiple_of(grid.minutes(COMPARE_EVERY)) {
            self.margins.forget(now);
        }
    }

    /// Records the upper bounds of the newest window by the model and by persistence, for the comparison; `demand` takes
    /// a value from the scale.
    pub fn record_bounds(&mut self, demand: impl Fn(f64) -> f64) {
        let (Some((level, point)), Some(compared)) = (self.point(), self.margins.compared()) else {
            return;
        };
        if let Some(newest) = self.pending.back_mut() {
            newest.bounds = Some(Bounds {
                model: demand(level + point + compared.model),
                persistence: demand(level + compared.persistence),
                published: demand(level + point + compared.published),
                quantile: compared.quantile,
            });
        }
    }

    /// Updates the margins to their values at step `at`.
    pub fn calibrate(&mut self, at: usize) {
        let fallen_back = self.unskilled || !self.sound;
        self.margins.refresh(at, fallen_back);
    }

    /// The level of the last five minutes and the prediction relative to it.
    pub fn point(&self) -> Option<(f64, f64)> {
        let newest = self.pending.back()?;
        Some((newest.level, newest.point?))
    }

    /// The predictor in use; `None` while there is none. Without `fall_back` it is always the model.
    pub fn predictor_state(&self, fall_back: bool) -> Option<PredictorState> {
        let instead = fall_back && self.margins.has_persistence();
        match self.margins.has_model() {
            true if instead && !self.sound => Some(PredictorState::Numerical),
            true if instead && self.unskilled => Some(PredictorState::NoSkill),
            true => Some(PredictorState::Model),
            false => instead.then_some(PredictorState::WarmingUp),
        }
    }

    /// The upper bound of the newest window by the predictor in use, which the window's peak exceeds in a share of
    /// `1 - quantile` of all minutes.
    pub fn published_bound(&self, quantile: f64, fall_back: bool) -> Option<f64> {
        self.bound(quantile, self.adjusted(quantile), fall_back)
    }

    /// The upper bound of the newest window by the predictor in use, from its errors alone. A count is held against it:
    /// to follow every change of the coverage would make it restless.
    pub fn count_bound(&self, quantile: f64, fall_back: bool) -> Option<f64> {
        self.bound(quantile, quantile, fall_back)
    }

    /// The recent coverage of the predictor in use.
    pub fn coverage(&self, fall_back: bool) -> Option<f64> {
        match self.predictor_state(fall_back)? {
            PredictorState::Model => self.skill_tracker.coverage(),
            PredictorState::WarmingUp | PredictorState::NoSkill | PredictorState::Numerical => {
                self.skill_tracker.coverage_of_persistence()
            }
        }
    }

    /// The recent skill of the model against persistence.
    pub fn skill(&self) -> Option<f64> {
        self.skill_tracker.skill()
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        self.margins.bytes() + size_of::<PendingPrediction>() * self.pending.capacity()
    }

    /// Learns from the prediction made at `made_at`, whose outcome has become known.
    fn learn_from(&mut self, view: &View<'_>, made_at: usize) {
        let Some(pending) = self.pending.pop_front_if(|pending| pending.step <= made_at) else {
            return;
        };
        // From an imputed outcome the model would learn a guess.
        if view.buffer.imputed(made_at, made_at + self.window.to + 1) > 0 {
            return;
        }
        let outcome = view.outcome(made_at, self.window);
        // While the model warms up, nothing was predicted, but it must learn.
        let predicted = pending
            .point
            .unwrap_or_else(|| self.ridge.predict(&pending.row));
        let error = outcome - predicted;
        self.ridge.learn(&pending.row, outcome, error);
        self.margins
            // Margins are of predictions as they were issued.
            .record(made_at, outcome, pending.point.map(|_| error));
        if let Some(bounds) = pending.bounds {
            let steps = self.window.after(made_at);
            let demand = view.buffer.highest(steps.from, steps.to);
            self.adapt(demand > bounds.published, bounds.quantile);
            self.skill_tracker.note(&Outcome { demand, bounds });
        }
    }

    /// Follows the coverage of the published bound: a miss lowers the probability of the next one, every window that is
    /// covered raises it a little, so that their shares come to `1 - quantile` and `quantile`.
    ///
    /// # Source
    /// Adaptive conformal inference (Gibbs and Candes, 2021), on the logarithm of the probability of a miss.
    fn adapt(&mut self, missed: bool, quantile: f64) {
        let expected = 1.0 - quantile;
        // Its mean is zero while the share of misses is the expected one.
        let surplus = if missed { 1.0 / expected } else { 0.0 } - 1.0;
        // A probability is at most one.
        let most = MOST_ADAPTED.min(-expected.ln()).max(0.0);
        self.misses = (self.misses - ADAPTS_BY * surplus).clamp(-MOST_ADAPTED, most);
    }

    /// The quantile of the errors at which the published bound has the coverage `quantile`.
    fn adjusted(&self, quantile: f64) -> f64 {
        1.0 - (1.0 - quantile) * self.misses.exp()
    }

    /// The upper bound of the newest window: the prediction and the margin at `adjusted` by the model, or the level
    /// and the margin at `quantile` by persistence. `None` while there is neither.
    fn bound(&self, quantile: f64, adjusted: f64, fall_back: bool) -> Option<f64> {
        let (level, point) = self.point()?;
        let by_persistence = level + self.margins.persistence(quantile);
        let bound = match self.predictor_state(fall_back)? {
            PredictorState::Model => level + point + self.margins.model(adjusted),
            PredictorState::WarmingUp | PredictorState::NoSkill | PredictorState::Numerical => {
                by_persistence
            }
        };
        // Persistence has margins only where the model is compared with it.
        let persistence = Some(by_persistence).filter(|_| self.margins.has_persistence());
        let bounds = [Some(bound), persistence];
        bounds.into_iter().flatten().find(|bound| bound.is_finite())
    }
}
