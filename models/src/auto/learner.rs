//! [`Learner`]: the models on one scale. It has one of each of the two windows that a count is held against, and their
//! common part: the features of a step, the highest demand, the quantile. It is rebuilt when the scale changes.
//!
//! ```text
//! a step -> extremes -> features -> both windows learn and predict -> comparison (hold) -> quantile -> path
//! ```

use super::features::{Distances, FeatureContext};
use super::margins::REFRESHED_EVERY;
use super::path::{ForecastPath, PathModel};
use super::quantile_selector::QUANTILE_LEVELS;
use super::service_level::Quantile;
use super::view::{LookupCache, Scale, View, Window};
use super::window_model::{PredictorState, WindowModel};
use crate::budget::TradeOffs;
use crate::forecast::{CEILING_RATIO, DemandBounds};

/// Minutes of demand before anything is predicted.
pub const LEAST_MINUTES: i64 = 120;
/// Minutes of demand before the model learns from a step.
pub const FEATURES_FROM: i64 = 60;
/// Minutes between two scans of the whole history for extremes.
const EXTREMES_EVERY: i64 = 360;

/// The models on one scale.
#[derive(Debug, Clone)]
pub struct Learner {
    fit: ScaleFit,
    models: Models,
    distances: Distances,
    /// The context of the last step.
    context: Option<FeatureContext>,
    quantile: Quantile,
    /// The highest and the lowest demand in the buffer.
    extremes: (f64, f64),
    path: Option<PathModel>,
}

/// The models of the windows.
#[derive(Debug, Clone)]
pub struct Models {
    /// The window until a replica that is asked for in a minute is ready, in which a removal now would hurt.
    pub hold: WindowModel,
    /// The window about when a replica that is asked for now becomes ready. Absent if one window is used for both.
    pub raise: Option<WindowModel>,
    /// Uses persistence while a model is no better.
    pub fall_back: bool,
}

/// A scale, the mean demand it was chosen for, and the step it was chosen at.
///
/// # Units
/// `mean` is in the unit of the history; `made_at` is a number of steps.
#[derive(Debug, Clone, Copy)]
pub struct ScaleFit {
    pub scale: Scale,
    pub mean: f64,
    pub made_at: usize,
}

// === impl Models ===

impl Models {
    /// The windows, that of `raise` last.
    pub fn windows(&self) -> Vec<Window> {
        std::iter::once(&self.hold)
            .chain(&self.raise)
            .map(WindowModel::window)
            .collect()
    }

    /// Both models, that of `hold` first.
    fn each(&mut self) -> impl Iterator<Item = &mut WindowModel> {
        std::iter::once(&mut self.hold).chain(&mut self.raise)
    }

    /// The upper bounds of both windows, scaled, such that a count within them is too low with a probability of about
    /// one minus the quantile.
    ///
    /// Demand exceeds `raise` in some of the minutes in which it stays below `hold`, so each is a bound at the quantile
    /// `1 - (1 - q) / 2`.
    fn bounds(&self, quantile: f64) -> Option<DemandBounds> {
        let Some(raise) = &self.raise else {
            let bound = self.hold.count_bound(quantile, self.fall_back)?;
            return Some(DemandBounds::both(bound));
        };
        let each = 1.0 - (1.0 - quantile) / 2.0;
        let by_model = self.hold.predictor_state(self.fall_back)? == PredictorState::Model;
        // Persistence expects the same of every window, so one bound is enough.
        let Some(raise) = raise.count_bound(each, false).filter(|_| by_model) else {
            let bound = self.hold.count_bound(quantile, self.fall_back)?;
            return Some(DemandBounds::both(bound));
        };
        let hold = self.hold.count_bound(each, self.fall_back)?.max(raise);
        Some(DemandBounds { raise, hold })
    }
}

// === impl Learner ===

impl Learner {
    /// A learner without data.
    pub fn new(fit: ScaleFit, models: Models, quantile: Quantile, path: Option<PathModel>) -> Self {
        Self {
            fit,
            models,
            distances: Distances::default(),
            context: None,
            quantile,
            extremes: (0.0, f64::INFINITY),
            path,
        }
    }

    /// Learns and predicts one step, with the lookups of `cache` if there is one.
    pub fn advance(&mut self, view: &View<'_>, cache: &mut Option<LookupCache>, now: usize) {
        if let Some(cache) = cache {
            cache.extend(view, now);
        }
        let cache = cache.as_ref();
        self.step(&View { cache, ..*view }, now);
    }

    /// Updates the margins to their values at step `at`.
    pub fn calibrate(&mut self, at: usize) {
        self.models.each().for_each(|model| model.calibrate(at));
        let quantile = self.quantile();
        if let Some(path) = &mut self.path {
            path.calibrate(at, quantile);
        }
    }

    /// The quantile in use.
    pub fn quantile(&self) -> f64 {
        self.quantile.get()
    }

    /// Changes the price, if the quantile is chosen by one.
    pub fn set_price(&mut self, price: f64) {
        self.quantile.set_price(price);
    }

    /// The short minutes and the replicas of each quantile, if they are measured.
    pub fn trade_offs(&self) -> Option<TradeOffs> {
        self.quantile.trade_offs()
    }

    /// The level of the last five minutes and the prediction of the whole window relative to it, both scaled.
    pub fn point(&self) -> Option<(f64, f64)> {
        self.models.hold.point()
    }

    /// The predictor in use for the whole window; `None` while there is none.
    pub fn predictor_state(&self) -> Option<PredictorState> {
        self.models.hold.predictor_state(self.models.fall_back)
    }

    /// The upper bound of the whole window, in demand.
    pub fn upper(&self, quantile: f64) -> Option<f64> {
        let scaled = self
            .models
            .hold
            .published_bound(quantile, self.models.fall_back)?;
        Some(self.demand(scaled))
    }

    /// The bounds that a count is held against, in demand.
    pub fn bounds(&self, quantile: f64) -> Option<DemandBounds> {
        let DemandBounds { raise, hold } = self.models.bounds(quantile)?;
        Some(DemandBounds {
            raise: self.demand(raise),
            hold: self.demand(hold),
        })
    }

    /// The path over the next `steps` steps with its upper bounds, in demand; `None` if the path is disabled.
    pub fn path(&self, view: &View<'_>, steps: usize) -> Option<ForecastPath> {
        let mut ahead = self
            .path
            .as_ref()?
            .ahead(view, self.context.as_ref()?, steps);
        for value in ahead.point.iter_mut().chain(&mut ahead.upper) {
            *value = self.demand(*value);
        }
        Some(ahead)
    }

    /// The scale that all of it is on.
    pub fn fit(&self) -> ScaleFit {
        self.fit
    }

    /// The coverage of the predictor in use for the whole window.
    pub fn coverage(&self) -> Option<f64> {
        self.models.hold.coverage(self.models.fall_back)
    }

    /// The skill of the model of the whole window against persistence.
    pub fn skill(&self) -> Option<f64> {
        self.models.hold.skill()
    }

    /// The highest and the lowest demand in the buffer.
    pub fn extremes(&self) -> (f64, f64) {
        self.extremes
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        let raise = self.models.raise.as_ref().map_or(0, WindowModel::bytes);
        self.models.hold.bytes()
            + raise
            + self.quantile.bytes()
            + self.path.as_ref().map_or(0, PathModel::bytes)
    }

    /// Learns from the demand before `now`, and predicts the windows after it.
    fn step(&mut self, view: &View<'_>, now: usize) {
        self.update_extremes(view, now);
        let context = view.context(now, &mut self.distances);
        let age = now - view.buffer.first();
        let ready = age >= view.grid.minutes(LEAST_MINUTES);
        let quantile = self.quantile();
        let (scale, ceiling) = (self.fit.scale, self.ceiling());
        for model in self.models.each() {
            // Before it predicts: what became known with this step is in the prediction.
            model.learn(view, now);
            model.predict(view, &context, ready);
        }
        let Models { hold, raise, .. } = &mut self.models;
        hold.compare(view.grid, now, quantile);
        hold.record_bounds(|scaled| scale.inverse(scaled).min(ceiling));
        if let Some(raise) = raise {
            raise.forget(view.grid, now);
        }
        self.select_quantile(view, now);
        if let Some(path) = &mut self.path {
            path.step(view, &context);
        }
        self.context = Some(context);
    }

    /// Keeps the highest and the lowest demand up to date.
    fn update_extremes(&mut self, view: &View<'_>, now: usize) {
        let (from, last) = (view.buffer.first(), now.saturating_sub(1));
        // Only a scan of all steps forgets an extreme that has left the buffer.
        let all = now.is_multiple_of(view.grid.minutes(EXTREMES_EVERY));
        let (highest, lowest) = self.extremes;
        self.extremes = if all || lowest.is_infinite() {
            view.buffer.extremes(from, last)
        } else {
            let (high, low) = view.buffer.extremes(last, last);
            (highest.max(high), lowest.min(low))
        };
    }

    /// Gives the selector of the quantile the bounds that each level would publish now.
    fn select_quantile(&mut self, view: &View<'_>, now: usize) {
        if !self.quantile.is_selected() {
            return;
        }
        if now.is_multiple_of(view.grid.minutes(REFRESHED_EVERY)) {
            self.models.each().for_each(|model| model.calibrate(now));
        }
        let last = now.saturating_sub(1);
        let demand = view.buffer.at(last).unwrap_or(0.0);
        let bounds = QUANTILE_LEVELS.map(|level| self.bounds(level));
        self.quantile.step(demand, &bounds);
    }

    /// The highest demand that is ever forecast.
    ///
    /// # Source
    /// [`CEILING_RATIO`].
    fn ceiling(&self) -> f64 {
        CEILING_RATIO * self.extremes.0
    }

    /// The demand of a scaled value, between zero and one and a half times the highest demand in the buffer.
    fn demand(&self, scaled: f64) -> f64 {
        self.fit.scale.inverse(scaled).min(self.ceiling())
    }
}
