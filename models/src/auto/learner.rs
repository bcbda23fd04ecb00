//! [`Learner`]: the model on one scale. At every step it predicts the decision window, and it learns from each
//! prediction once the outcome is known. It is rebuilt when the scale changes.

use std::collections::VecDeque;

use super::features::{Distances, FeatureContext, Row};
use super::margins::{Margins, REFRESHED_EVERY};
use super::path::{ForecastPath, PathModel};
use super::quantile_selector::QUANTILE_LEVELS;
use super::ridge::Ridge;
use super::service_level::Quantile;
use super::skill::{Bounds, Outcome, SkillTracker};
use super::view::{LookupCache, Scale, View, Window};
use crate::forecast::CEILING_RATIO;
use crate::grid::Grid;
use crate::series::count;

/// Minutes of demand before anything is predicted.
pub(super) const LEAST_MINUTES: i64 = 120;
/// Minutes of demand before the model learns from a step.
pub(super) const FEATURES_FROM: i64 = 60;
/// The weight of a prediction that was too low in the model's loss; one that was too high has the rest to 1.
const TAU: f64 = 0.8;
/// Minutes between two solutions of the model, and between two scans of the whole history for extremes.
const SOLVE_EVERY: i64 = 10;
const EXTREMES_EVERY: i64 = 360;
/// Minutes between two comparisons with persistence.
const COMPARE_EVERY: i64 = 240;

/// A model on one scale, and its measured accuracy.
#[derive(Debug, Clone)]
pub(super) struct Learner {
    fit: ScaleFit,
    window: Window,
    ridge: Ridge,
    /// Whether the last attempt to solve the equations succeeded.
    sound: bool,
    /// Whether the model was no better than persistence at the last comparison.
    unskilled: bool,
    distances: Distances,
    /// The context of the last step.
    context: Option<FeatureContext>,
    pending: VecDeque<PendingPrediction>,
    margins: Margins,
    skill_tracker: SkillTracker,
    quantile: Quantile,
    /// The highest and the lowest demand in the buffer.
    extremes: (f64, f64),
    path: Option<PathModel>,
}

/// A scale, the mean demand it was chosen for, and the step it was chosen at.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScaleFit {
    pub(super) scale: Scale,
    pub(super) mean: f64,
    pub(super) made_at: usize,
}

/// A prediction whose outcome is not known yet.
#[derive(Debug, Clone)]
struct PendingPrediction {
    step: usize,
    row: Row,
    level: f64,
    /// `None` while the model warms up.
    point: Option<f64>,
    /// The recorded upper bounds.
    bounds: Option<Bounds>,
}

/// Which predictor gives the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PredictorState {
    /// The calibrated model.
    Model,
    /// Calibrated persistence, because too few errors of the model are known.
    WarmingUp,
    /// Calibrated persistence, because the model is no better.
    NoSkill,
    /// Calibrated persistence, because the equations of the model have no solution.
    Numerical,
}

// === impl Learner ===

impl Learner {
    /// A learner without data.
    pub(super) fn new(
        fit: ScaleFit,
        quantile: Quantile,
        grid: Grid,
        window: Window,
        path: Option<PathModel>,
    ) -> Self {
        let day = count(grid.day());
        Self {
            fit,
            window,
            ridge: Ridge::new(TAU, day),
            sound: true,
            unskilled: false,
            distances: Distances::default(),
            context: None,
            pending: VecDeque::with_capacity(window.to + 2),
            margins: Margins::new(grid, window.to, COMPARE_EVERY),
            skill_tracker: SkillTracker::new(day),
            quantile,
            extremes: (0.0, f64::INFINITY),
            path,
        }
    }

    /// Learns and predicts one step, with the lookups of `cache` if there is one.
    pub(super) fn advance(&mut self, view: &View<'_>, cache: &mut Option<LookupCache>, now: usize) {
        if let Some(cache) = cache {
            cache.extend(view, now);
        }
        let cache = cache.as_ref();
        self.step(&View { cache, ..*view }, now);
    }

    /// Updates the margins to their values at step `at`.
    pub(super) fn calibrate(&mut self, at: usize) {
        self.margins.refresh(at, self.fallen_back());
        let quantile = self.quantile();
        if let Some(path) = &mut self.path {
            path.calibrate(at, quantile);
        }
    }

    /// The quantile in use.
    pub(super) fn quantile(&self) -> f64 {
        self.quantile.get()
    }

    /// The level of the last five minutes and the prediction relative to it, both scaled.
    pub(super) fn point(&self) -> Option<(f64, f64)> {
        let newest = self.pending.back()?;
        Some((newest.level, newest.point?))
    }

    /// The predictor in use; `None` while there is none. Without `fall_back` it is always the model.
    pub(super) fn predictor_state(&self, fall_back: bool) -> Option<PredictorState> {
        let instead = fall_back && self.margins.has_persistence();
        match self.margins.has_model() {
            true if instead && !self.sound => Some(PredictorState::Numerical),
            true if instead && self.unskilled => Some(PredictorState::NoSkill),
            true => Some(PredictorState::Model),
            false => instead.then_some(PredictorState::WarmingUp),
        }
    }

    /// The upper bound of the newest decision window, by this predictor.
    pub(super) fn bound(&self, quantile: f64, predictor_state: PredictorState) -> Option<f64> {
        let (level, point) = self.point()?;
        let scaled = match predictor_state {
            PredictorState::Model => level + point + self.margins.model(quantile),
            PredictorState::WarmingUp | PredictorState::NoSkill | PredictorState::Numerical => {
                level + self.margins.persistence(quantile)
            }
        };
        match predictor_state {
            PredictorState::Model if !scaled.is_finite() => {
                self.bound(quantile, PredictorState::Numerical)
            }
            _ => scaled.is_finite().then(|| self.demand(scaled)),
        }
    }

    /// The path over the next `steps` steps with its upper bounds, in demand; `None` if the path is disabled.
    pub(super) fn path(&self, view: &View<'_>, steps: usize) -> Option<ForecastPath> {
        let mut ahead = self
            .path
            .as_ref()?
            .ahead(view, self.context.as_ref()?, steps);
        for value in ahead.point.iter_mut().chain(&mut ahead.upper) {
            *value = self.demand(*value);
        }
        Some(ahead)
    }

    pub(super) fn fit(&self) -> ScaleFit {
        self.fit
    }

    /// The coverage of this predictor.
    pub(super) fn coverage(&self, predictor_state: PredictorState) -> Option<f64> {
        match predictor_state {
            PredictorState::Model => self.skill_tracker.coverage(),
            PredictorState::WarmingUp | PredictorState::NoSkill | PredictorState::Numerical => {
                self.skill_tracker.coverage_of_persistence()
            }
        }
    }

    /// The skill of the model against persistence.
    pub(super) fn skill(&self) -> Option<f64> {
        self.skill_tracker.skill()
    }

    /// The highest and the lowest demand in the buffer.
    pub(super) fn extremes(&self) -> (f64, f64) {
        self.extremes
    }

    /// Bytes kept on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.margins.bytes()
            + self.quantile.bytes()
            + size_of::<PendingPrediction>() * self.pending.capacity()
            + self.path.as_ref().map_or(0, PathModel::bytes)
    }

    /// Learns from the demand before `now`, and predicts the window that begins there.
    fn step(&mut self, view: &View<'_>, now: usize) {
        self.update_extremes(view, now);
        if let Some(made_at) = now.checked_sub(self.window.to + 1) {
            self.learn(view, made_at);
        }
        if now.is_multiple_of(view.grid.minutes(SOLVE_EVERY)) {
            self.sound = self.ridge.solve();
        }
        let context = view.context(now, &mut self.distances);
        self.predict(view, &context);
        self.compare(view.grid, now);
        self.record_bounds(view, now);
        if let Some(path) = &mut self.path {
            path.step(view, &context);
        }
        self.context = Some(context);
    }

    /// Keeps the highest and the lowest demand up to date.
    fn update_extremes(&mut self, view: &View<'_>, now: usize) {
        let (from, last) = (view.buffer.first(), now.saturating_sub(1));
        if now.is_multiple_of(view.grid.minutes(EXTREMES_EVERY)) || self.extremes.1.is_infinite() {
            self.extremes = view.buffer.extremes(from, last);
        } else if let Some(demand) = view.buffer.at(last) {
            let (highest, lowest) = self.extremes;
            self.extremes = (highest.max(demand), lowest.min(demand));
        }
    }

    /// Learns from the prediction made at `made_at`, whose outcome has become known.
    fn learn(&mut self, view: &View<'_>, made_at: usize) {
        let Some(pending) = self.pending.pop_front_if(|pending| pending.step <= made_at) else {
            return;
        };
        // From an imputed outcome the model would learn a guess.
        if view.buffer.imputed(made_at, made_at + self.window.to + 1) > 0 {
            return;
        }
        let outcome = view.outcome(made_at, self.window);
        let predicted = pending
            .point
            .unwrap_or_else(|| self.ridge.predict(&pending.row));
        let error = outcome - predicted;
        self.ridge.learn(&pending.row, outcome, error);
        self.margins
            .record(made_at, outcome, pending.point.map(|_| error));
        if let Some(bounds) = pending.bounds {
            let steps = self.window.after(made_at);
            self.skill_tracker.note(&Outcome {
                demand: view.buffer.highest(steps.from, steps.to),
                bounds,
            });
        }
    }

    fn predict(&mut self, view: &View<'_>, context: &FeatureContext) {
        let row = view.row(context, self.window);
        let age = context.step() - view.buffer.first();
        let ready = age >= view.grid.minutes(LEAST_MINUTES);
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
    fn compare(&mut self, grid: Grid, now: usize) {
        let soon = now.is_multiple_of(grid.minutes(REFRESHED_EVERY));
        let young = !(self.margins.has_model() && self.margins.has_persistence());
        if now.is_multiple_of(grid.minutes(COMPARE_EVERY)) || young && soon {
            self.margins.compare(now, self.quantile());
            // Kept until the next comparison, so that the predictor does not alternate when both are equally good.
            self.unskilled = self.skill_tracker.skill().is_some_and(|skill| skill <= 0.0);
        }
        // The selector must be given the bounds that would be published now.
        if self.quantile.is_selected() && soon {
            self.margins.refresh(now, self.fallen_back());
        }
    }

    fn fallen_back(&self) -> bool {
        self.unskilled || !self.sound
    }

    /// Records the upper bounds of the coming window by the model and by persistence, and those of every quantile
    /// level for the selector.
    fn record_bounds(&mut self, view: &View<'_>, now: usize) {
        let (Some((level, point)), Some(compared)) = (self.point(), self.margins.compared()) else {
            return;
        };
        let model = self.demand(level + point + compared.model);
        let persistence = self.demand(level + compared.persistence);
        if let Some(newest) = self.pending.back_mut() {
            newest.bounds = Some(Bounds {
                model,
                persistence,
                quantile: compared.quantile,
            });
        }
        if !self.quantile.is_selected() {
            return;
        }
        let predictor_state = self.predictor_state(true).unwrap_or(PredictorState::Model);
        let levels =
            QUANTILE_LEVELS.map(|level| self.bound(level, predictor_state).unwrap_or(model));
        let last = view.buffer.at(now.saturating_sub(1)).unwrap_or(0.0);
        self.quantile.step(last, &levels);
    }

    /// The demand of a scaled value, between zero and one and a half times the highest demand in the buffer.
    fn demand(&self, scaled: f64) -> f64 {
        let ceiling = CEILING_RATIO * self.extremes.0;
        self.fit.scale.inverse(scaled).min(ceiling)
    }
}
