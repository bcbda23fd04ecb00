//! [`OnlineModel`]: the model of one series. It takes one step of demand after another, and answers with the value that
//! the peak demand of the decision window stays within, and with the bounds that a count is held against. It keeps the
//! demand and the logarithmic scale that fits its level; [`Learner`] has the models on that scale. Demand must be
//! clean: `preprocess` handles holes and outliers.

use jiff::SignedDuration;

use super::buffer::DemandBuffer;
use super::learner::{FEATURES_FROM, LEAST_MINUTES, Learner, Models, ScaleFit};
use super::margins::REFRESHED_EVERY;
use super::path::{ForecastPath, PathModel};
use super::service_level::{Quantile, ServiceLevel};
use super::view::{LookupCache, Scale, View, Window};
use super::window_model::{PredictorState, WindowModel};
use crate::budget::TradeOffs;
use crate::conformal;
use crate::forecast::DemandBounds;
use crate::grid::Grid;
use crate::series::count;

/// The offset of the logarithm, as a multiple of the mean.
const OFFSET: f64 = 2.0;
/// The ratio of the average to the mean of the scale beyond which the scale is renewed.
const SHIFT: f64 = 2.0;
/// The least minutes between two scales.
const SCALE_KEPT: i64 = 360;
/// Days over which the mean of a scale is taken.
const MEAN_DAYS: usize = 7;
/// Minutes of demand that are kept: eight days.
const REMEMBERED_MINUTES: i64 = 8 * 1440;
/// Minutes beyond the lead time that a decision looks ahead: the decision of the next minute is in time for what follows.
const LOOK_BEYOND: i64 = 1;
/// Minutes beyond the lead time that a decision looks ahead by [`DecisionWindows::One`].
const ONE_LOOKS_BEYOND: i64 = 3;

/// Settings of [`OnlineModel`].
///
/// ```
/// use foretide_models::auto::OnlineSettings;
///
/// // As the controller uses it, with three minutes of lead time and a path for charts.
/// let settings = OnlineSettings { path: true, ..OnlineSettings::new(3) };
/// assert_eq!(settings.offset, None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnlineSettings {
    /// Minutes until added capacity serves, at most a day.
    pub lead_minutes: i64,
    /// Minutes of demand that are kept; `i64::MAX` keeps all.
    pub remember_minutes: i64,
    /// A constant offset of the logarithm from the first step on; `None` derives it from the mean, and renews it when
    /// the level shifts.
    pub offset: Option<f64>,
    /// Uses persistence (repeating the current level) while the model is no better.
    pub fall_back: bool,
    /// Predicts the path as well as the decision window.
    pub path: bool,
    /// The windows that are predicted.
    pub windows: DecisionWindows,
}

/// The windows whose peak demand is predicted, in minutes from now on; `s` is the lead time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionWindows {
    /// `[s, s + 1]`, which replicas that are asked for now can serve, and `[0, s + 1]`, for which replicas must not be
    /// removed now.
    RaiseAndHold,
    /// `[0, s + 3]` for both, by twenty of the features: the first version of this model, which golden files of it
    /// describe.
    One,
}

/// The longest lead time, in minutes.
const LONGEST_LEAD: i64 = 1440;

/// The model of one series.
///
/// ```
/// use foretide_models::auto::{OnlineModel, OnlineSettings, ServiceLevel};
/// use jiff::SignedDuration;
///
/// let settings = OnlineSettings::new(2);
/// let mut model = OnlineModel::new(settings, SignedDuration::from_mins(1), ServiceLevel::Quantile(0.9));
/// assert_eq!(model.upper(0.9), None);
/// for minute in 0..600 {
///     model.push(100.0 + f64::from(minute % 10));
/// }
/// // The peak of the next four minutes stays within this value nine times out of ten.
/// let upper = model.upper(0.9).unwrap();
/// assert!((104.0..120.0).contains(&upper), "{upper}");
/// ```
#[derive(Debug, Clone)]
pub struct OnlineModel {
    settings: OnlineSettings,
    grid: Grid,
    /// The decision window, which contains every window that is predicted.
    window: Window,
    buffer: DemandBuffer,
    /// Moving average over a day, which the scale follows.
    average: f64,
    service_level: ServiceLevel,
    /// `None` before there is enough demand.
    learner: Option<Learner>,
    /// The levels and peaks computed so far, kept while a whole history is learned.
    cache: Option<LookupCache>,
}

/// The origin of a demand value.
///
/// The model learns from measured values only; an imputed one is a level for the features of later steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SampleOrigin {
    /// Measured.
    Measured {
        /// True if the value is the demand of this step alone, and not a mean over a longer time.
        raw: bool,
    },
    /// Imputed for a missing value or an outlier.
    Imputed,
}

// === impl OnlineSettings ===

impl OnlineSettings {
    /// The settings of the controller: keeps what features use, follows the level, and falls back to persistence; no
    /// path.
    pub fn new(lead_minutes: i64) -> Self {
        Self {
            lead_minutes,
            remember_minutes: REMEMBERED_MINUTES,
            offset: None,
            fall_back: true,
            path: false,
            windows: DecisionWindows::RaiseAndHold,
        }
    }
}

// === impl OnlineModel ===

impl OnlineModel {
    /// A model without data; `step` is the grid of the demand.
    pub fn new(
        settings: OnlineSettings,
        step: SignedDuration,
        service_level: ServiceLevel,
    ) -> Self {
        let grid = Grid::new(step);
        let settings = OnlineSettings {
            lead_minutes: settings.lead_minutes.clamp(0, LONGEST_LEAD),
            ..settings
        };
        let beyond = match settings.windows {
            DecisionWindows::RaiseAndHold => LOOK_BEYOND,
            DecisionWindows::One => ONE_LOOKS_BEYOND,
        };
        let window = Window {
            from: 0,
            to: grid.minutes(settings.lead_minutes + beyond),
        };
        Self {
            buffer: DemandBuffer::new(grid.minutes(settings.remember_minutes)),
            settings,
            grid,
            window,
            service_level,
            average: 0.0,
            learner: None,
            cache: None,
        }
    }

    /// Learns the demand of the next step, which must be finite and not negative, and updates the margins.
    ///
    /// [`take`](Self::take) and [`calibrate`](Self::calibrate) in one call.
    pub fn push(&mut self, demand: f64) {
        self.take(demand, SampleOrigin::Measured { raw: false });
        self.calibrate();
    }

    /// Learns the demand of the next step without updating the margins; call [`calibrate`](Self::calibrate) before
    /// asking.
    ///
    /// ```
    /// use foretide_models::auto::{OnlineModel, OnlineSettings, SampleOrigin, ServiceLevel};
    /// use jiff::SignedDuration;
    ///
    /// let step = SignedDuration::from_mins(1);
    /// let mut model = OnlineModel::new(OnlineSettings::new(2), step, ServiceLevel::default());
    /// // A history is learned without margins, which are updated once at its end.
    /// for minute in 0..600 {
    ///     let demand = 100.0 + f64::from(minute % 10);
    ///     model.take(demand, SampleOrigin::Measured { raw: true });
    /// }
    /// model.calibrate();
    /// assert!(model.upper(0.9).is_some());
    /// ```
    pub fn take(&mut self, demand: f64, seen: SampleOrigin) {
        match seen {
            SampleOrigin::Measured { raw } => self.buffer.push(demand, raw),
            SampleOrigin::Imputed => self.buffer.push_imputed(demand),
        }
        self.advance(demand);
    }

    /// Updates the margins to their values at the last multiple of five minutes. Cheap if they already are.
    pub fn calibrate(&mut self) {
        let every = self.grid.minutes(REFRESHED_EVERY);
        let at = self.buffer.end() / every * every;
        self.cache = None;
        let Some(learner) = &mut self.learner else {
            return;
        };
        learner.calibrate(at);
    }

    /// The value that the peak demand of the decision window starting with the next step stays within, with probability
    /// `quantile`. `None` while there is too little data.
    ///
    /// # Units
    /// That of the demand.
    ///
    /// # Guarantees
    /// Within `[0, 1.5 * highest demand that is kept]`.
    pub fn upper(&self, quantile: f64) -> Option<f64> {
        self.learner.as_ref()?.upper(quantile)
    }

    /// The bounds that a count is held against, such that it serves the demand with a probability of about `quantile`.
    /// `None` while there is too little data.
    ///
    /// # Guarantees
    /// `raise <= hold`. They are equal while persistence is in use, and for [`DecisionWindows::One`].
    ///
    /// ```
    /// use foretide_models::auto::{OnlineModel, OnlineSettings, ServiceLevel};
    /// use jiff::SignedDuration;
    ///
    /// let step = SignedDuration::from_mins(1);
    /// let mut model = OnlineModel::new(OnlineSettings::new(2), step, ServiceLevel::default());
    /// (0..600).for_each(|minute| model.push(100.0 + f64::from(minute % 10)));
    /// let bounds = model.bounds(0.9).unwrap();
    /// assert!(bounds.raise <= bounds.hold);
    /// ```
    pub fn bounds(&self, quantile: f64) -> Option<DemandBounds> {
        self.learner.as_ref()?.bounds(quantile)
    }

    /// The level of the last five minutes and the model's prediction relative to it, both scaled.
    ///
    /// # Units
    /// Natural logarithms of demand plus the offset of the scale; the second is a difference of such.
    pub fn point(&self) -> Option<(f64, f64)> {
        self.learner.as_ref()?.point()
    }

    /// The quantile in use.
    ///
    /// ```
    /// use foretide_models::auto::{OnlineModel, OnlineSettings, ServiceLevel};
    /// use jiff::SignedDuration;
    ///
    /// let (settings, step) = (OnlineSettings::new(2), SignedDuration::from_mins(1));
    /// let model = OnlineModel::new(settings, step, ServiceLevel::Quantile(0.9));
    /// assert_eq!(model.quantile(), 0.9);
    /// ```
    pub fn quantile(&self) -> f64 {
        match &self.learner {
            Some(learner) => learner.quantile(),
            None => self.service_level.initial_quantile(),
        }
    }

    /// Changes the price of [`ServiceLevel::Priced`].
    ///
    /// A service level without a price ignores it.
    pub fn set_price(&mut self, price: f64) {
        if let ServiceLevel::Priced { price: before, .. } = &mut self.service_level {
            *before = Some(price);
            if let Some(learner) = &mut self.learner {
                learner.set_price(price);
            }
        }
    }

    /// The short minutes and the replicas of each quantile; `None` for a fixed one, and while there is too little data.
    pub fn trade_offs(&self) -> Option<TradeOffs> {
        self.learner.as_ref()?.trade_offs()
    }

    /// The predictor in use; `None` while there is none.
    pub(crate) fn predictor_state(&self) -> Option<PredictorState> {
        self.learner.as_ref()?.predictor_state()
    }

    /// The steps of the decision window, from the next one on.
    pub(crate) fn window(&self) -> usize {
        self.window.to
    }

    pub(crate) fn buffer(&self) -> &DemandBuffer {
        &self.buffer
    }

    /// The recent coverage of the predictor in use.
    pub(crate) fn coverage(&self) -> Option<f64> {
        self.learner.as_ref()?.coverage()
    }

    /// The recent skill of the model against persistence.
    pub(crate) fn skill(&self) -> Option<f64> {
        self.learner.as_ref()?.skill()
    }

    /// The share of the last day's steps that are raw.
    pub(crate) fn raw_share(&self) -> f64 {
        let end = self.buffer.end();
        let from = end.saturating_sub(self.grid.day()).max(self.buffer.first());
        count(self.buffer.raw(from, end)) / count((end - from).max(1))
    }

    /// The highest and the lowest demand in the buffer.
    pub(crate) fn extremes(&self) -> Option<(f64, f64)> {
        self.learner.as_ref().map(Learner::extremes)
    }

    /// The highest demand in the buffer.
    pub(crate) fn highest(&self) -> f64 {
        match self.extremes() {
            Some((highest, _)) => highest,
            None => self.buffer.highest(self.buffer.first(), self.buffer.end()),
        }
    }

    /// The number of steps without a hole after which there is an answer.
    pub(crate) fn least(&self) -> usize {
        (self.grid.minutes(FEATURES_FROM) + self.window.to + conformal::LEAST)
            .max(self.grid.minutes(LEAST_MINUTES))
    }

    /// The step since which the current scale is in use.
    pub(crate) fn scale_since(&self) -> Option<usize> {
        self.learner.as_ref().map(|learner| learner.fit().made_at)
    }

    /// The path over the next `steps` steps with its upper bounds, in demand; `None` while there is no model, or if the
    /// path is disabled.
    pub(crate) fn path(&self, steps: usize) -> Option<ForecastPath> {
        let learner = self.learner.as_ref()?;
        learner.path(&self.view(learner.fit().scale), steps)
    }

    /// Bytes kept, including the model itself.
    pub(crate) fn bytes(&self) -> usize {
        let learned = self.learner.as_ref().map_or(0, Learner::bytes);
        size_of::<Self>() + self.buffer.bytes() + learned
    }

    /// The demand in the buffer on this scale.
    fn view(&self, scale: Scale) -> View<'_> {
        View::new(&self.buffer, scale, self.grid)
    }

    /// Learns the newest step: on the scale in use, or after a change of the scale, with everything before it again.
    fn advance(&mut self, demand: f64) {
        let now = self.buffer.end();
        let age = now - self.buffer.first();
        let day = count(self.grid.day());
        self.average += (demand - self.average) / day;
        let scale = match &self.learner {
            None if age < self.grid.minutes(LEAST_MINUTES) => None,
            None if self.settings.offset.is_some() => self.settings.offset.map(|c| (c, 0.0)),
            None => {
                self.average = self.buffer.mean_before(now, age);
                (self.average > 0.0).then_some((OFFSET * self.average, self.average))
            }
            Some(learner) => self.rescale(learner, now),
        };
        match (scale, &mut self.learner) {
            (Some((offset, mean)), _) => self.build(Scale { offset }, mean),
            (None, Some(learner)) => {
                let (buffer, grid, scale) = (&self.buffer, self.grid, learner.fit().scale);
                let view = View::new(buffer, scale, grid);
                learner.advance(&view, &mut self.cache, now);
            }
            (None, None) => {}
        }
    }

    /// The offset and the mean of a new scale, if the average has left the range of the current one.
    fn rescale(&self, learner: &Learner, now: usize) -> Option<(f64, f64)> {
        let kept = now - learner.fit().made_at >= self.grid.minutes(SCALE_KEPT);
        if self.settings.offset.is_some() || !kept || is_close(self.average, learner.fit().mean) {
            return None;
        }
        // The mean of a week is steadier, but after a shift most of the week is still at the former level.
        let recent_mean = self.buffer.mean_before(now, MEAN_DAYS * self.grid.day());
        let mean = if is_close(recent_mean, self.average) {
            recent_mean
        } else {
            self.average
        };
        (mean > 0.0).then_some((OFFSET * mean, mean))
    }

    /// Learns all demand in the buffer, on this scale.
    fn build(&mut self, scale: Scale, mean: f64) {
        let now = self.buffer.end();
        let fit = ScaleFit {
            scale,
            mean,
            made_at: now,
        };
        let quantile = Quantile::new(self.service_level, self.grid, self.settings.lead_minutes);
        let path = self.settings.path.then(|| PathModel::new(self.grid));
        let models = self.models();
        let widths: Vec<usize> = models
            .windows()
            .into_iter()
            .map(|window| window.to - window.from)
            // The path predicts single steps.
            .chain([0])
            .collect();
        let mut learner = Learner::new(fit, models, quantile, path);
        let view = self.view(scale);
        let first = self.buffer.first();
        let mut cache = Some(LookupCache::new(first, &widths));
        // Earlier steps have no hour of demand for their features.
        for step in first + self.grid.minutes(FEATURES_FROM)..=now {
            learner.advance(&view, &mut cache, step);
        }
        self.cache = cache;
        self.learner = Some(learner);
    }

    /// The models of the windows, without data.
    fn models(&self) -> Models {
        let both = self.settings.windows == DecisionWindows::RaiseAndHold;
        let when_ready = Window {
            from: self
                .grid
                .minutes(self.settings.lead_minutes)
                .min(self.window.to),
            to: self.window.to,
        };
        Models {
            hold: WindowModel::new(self.window, both, true, self.grid),
            raise: both.then(|| WindowModel::new(when_ready, both, false, self.grid)),
            fall_back: self.settings.fall_back,
        }
    }
}

/// Returns true if two means differ by at most a factor of [`SHIFT`].
fn is_close(mean: f64, of: f64) -> bool {
    (of / SHIFT..=of * SHIFT).contains(&mean)
}
