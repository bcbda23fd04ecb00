//! [`Auto`], the default forecaster: online linear models of a series. They predict the peak demand until added capacity
//! can serve, and the peak about when it does, each with an upper quantile from its own errors.
//!
//! This module reads a [`Series`], rejects histories that are too short, too old or too sparse, and assembles the
//! forecast. [`OnlineModel`] is the model itself, for callers that have clean demand.
//!
//! ```text
//! Series -> preprocess (holes, outliers) -> buffer -> features -> window models -> ridge -> point
//!                                                                  errors -> conformal -> Peak and its two bounds
//!                                                      features -> path -> Forecast
//! ```
//!
//! # Source
//! Features and constants are those of a study on 48 workload traces. `replay/MEASURED.md` has the results
//! of this code on the public ones among them, and how to reproduce them.

mod buffer;
mod features;
mod learner;
mod margins;
mod online;
mod path;
mod preprocess;
mod quantile_selector;
mod ridge;
mod service_level;
mod skill;
mod view;
mod window_model;

use jiff::SignedDuration;

use self::learner::LEAST_MINUTES;
pub use self::online::{DecisionWindows, OnlineModel, OnlineSettings, SampleOrigin};
use self::preprocess::Preprocessor;
pub use self::quantile_selector::DEFAULT_QUANTILE;
pub use self::service_level::ServiceLevel;
use self::window_model::PredictorState;
use crate::budget::TradeOffs;
use crate::config::{ConfigError, require_grid};
use crate::error::ForecastError;
use crate::forecast::{Forecast, Note, Peak, Quality};
use crate::forecaster::{Forecaster, path_length};
use crate::gaps::MAX_MISSING;
use crate::grid::Grid;
use crate::series::{Series, count, later};

/// The grid is never finer than this: samples in between are averaged.
const FINEST: SignedDuration = SignedDuration::from_secs(60);
/// The length of the history to fetch: the errors of the last week then come from a model that had learned a week.
const HISTORY: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Steps after the newest sample until a forecast expires.
const OUTLIVES: usize = 3;
/// Minutes for which a new scale is noted.
const NOTED_MINUTES: i64 = 60;

/// Settings of [`Auto`].
///
/// ```
/// use foretide_models::auto::{Auto, Config};
/// use jiff::SignedDuration;
///
/// let config = Config { lead_time: SignedDuration::from_hours(2), ..Config::default() };
/// assert_eq!(Auto::new(config).unwrap_err().field, "leadTimeSeconds");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The grid of the history; below a minute, samples are averaged to minutes.
    pub sample_interval: SignedDuration,
    /// The time until added capacity serves. The decision window is this plus a minute.
    pub lead_time: SignedDuration,
    /// The part of the demand to provide for.
    pub service_level: ServiceLevel,
}

/// One minute, two minutes of lead, the default quantile.
impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: SignedDuration::from_mins(1),
            lead_time: SignedDuration::from_mins(2),
            service_level: ServiceLevel::default(),
        }
    }
}

/// The forecaster `auto`.
///
/// ```
/// use foretide_models::{Forecaster, Series, auto};
/// use jiff::{SignedDuration, Timestamp};
///
/// // Three days of a daily wave, one value a minute.
/// let minute = SignedDuration::from_mins(1);
/// let wave = |i: i32| 100.0 + 40.0 * (std::f64::consts::TAU * f64::from(i) / 1440.0).sin();
/// let history = Series::from_values(Timestamp::UNIX_EPOCH, minute, (0..3 * 1440).map(wave).collect());
///
/// let mut forecaster = auto::Auto::new(auto::Config::default())?;
/// let forecast = forecaster.forecast(&history, minute * 30)?;
/// // The peak of the decision window, the lead time of two minutes and one more.
/// let peak = forecast.demand(history.end(), minute * 3).unwrap();
/// assert!((100.0..105.0).contains(&peak), "{peak}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// - Growing a history and asking after each sample gives the forecasts of asking once with all of it, except for the
///   last digits, which depend on the order of sums.
/// - A history that does not continue the one before, or has new samples before its first one, is learned from its
///   beginning.
/// - Multiplying a history by a number multiplies the answers by it: exactly by a power of two, else with an error of a
///   tenth of a percent, because demand is kept with seven digits and errors with three.
#[derive(Debug, Clone)]
pub struct Auto {
    config: Config,
    grid: Grid,
    /// The reader of the history; `None` before the first one.
    preprocessor: Option<Preprocessor>,
}

// === impl Auto ===

impl Auto {
    /// A forecaster with these settings and no history.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first setting that is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        require_grid("auto.sampleInterval", config.sample_interval)?;
        let hour = SignedDuration::from_hours(1);
        if config.lead_time.is_negative() || config.lead_time > hour {
            let lead = format_args!("{:#}", config.lead_time).to_string();
            return Err(ConfigError::new("leadTimeSeconds", lead, "at most an hour"));
        }
        match config.service_level {
            ServiceLevel::Quantile(q) if !(q > 0.0 && q < 1.0) => {
                let expected = "above 0 and below 1";
                return Err(ConfigError::new("quantile", q, expected));
            }
            ServiceLevel::UnderProvisioned { percent, .. }
                if !(percent > 0.0 && percent <= 100.0) =>
            {
                let expected = "above 0 and at most 100";
                return Err(ConfigError::new(
                    "maxUnderProvisionedPercent",
                    percent,
                    expected,
                ));
            }
            ServiceLevel::Quantile(_)
            | ServiceLevel::UnderProvisioned { .. }
            | ServiceLevel::Priced { .. } => {}
        }
        let grid = Grid::new(coarse(config.sample_interval));
        Ok(Self {
            config,
            grid,
            preprocessor: None,
        })
    }

    /// The lead time in minutes, rounded up.
    fn lead_minutes(&self) -> i64 {
        self.config.lead_time.as_secs().saturating_add(59) / 60
    }

    /// A model without data, by these settings, that also predicts the path.
    fn online(&self) -> OnlineModel {
        let settings = OnlineSettings {
            path: true,
            ..OnlineSettings::new(self.lead_minutes())
        };
        OnlineModel::new(settings, self.grid.step(), self.config.service_level)
    }

    /// Learns the new part of a history, or all of it if it does not continue the one before.
    fn catch_up(&mut self, history: &Series) -> &Preprocessor {
        let kept = self
            .preprocessor
            .take()
            .filter(|preprocessor| preprocessor.continues(history));
        let preprocessor =
            kept.unwrap_or_else(|| Preprocessor::new(self.online(), history, self.grid.step()));
        let preprocessor = self.preprocessor.insert(preprocessor);
        preprocessor.take(history);
        preprocessor
    }
}

impl Forecaster for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn history_length(&self) -> SignedDuration {
        HISTORY
    }

    fn set_price(&mut self, price: f64) {
        // In the settings too, from which a model is built again when its history does not continue.
        if let ServiceLevel::Priced { price: before, .. } = &mut self.config.service_level {
            *before = Some(price);
        }
        if let Some(preprocessor) = &mut self.preprocessor {
            preprocessor.set_price(price);
        }
    }

    /// Less than 230 KB after two weeks of minutes, from which on it does not grow: eight days of demand and a week of
    /// errors are kept.
    fn bytes(&self) -> usize {
        let preprocessor = self.preprocessor.as_ref();
        size_of::<Self>() + preprocessor.map_or(0, |it| it.online().bytes())
    }

    fn trade_offs(&self) -> Option<TradeOffs> {
        self.preprocessor.as_ref()?.online().trade_offs()
    }

    fn sample_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    fn refresh_period(&self) -> SignedDuration {
        self.grid.step()
    }

    fn forecast(
        &mut self,
        history: &Series,
        horizon: SignedDuration,
    ) -> Result<Forecast, ForecastError> {
        if history.step() != self.config.sample_interval {
            return Err(ForecastError::StepMismatch {
                have: history.step(),
                need: self.config.sample_interval,
            });
        }
        let grid = self.grid;
        let wanted = path_length(horizon, grid.step())?;
        let preprocessor = self.catch_up(history);
        let missing_at_end = require_usable(preprocessor, history, grid)?;
        let online = preprocessor.online();
        let start = later(preprocessor.next(), grid.step(), missing_at_end);
        // With holes the first answer comes later than `least`, so `need` is always more than `have`.
        let too_short = ForecastError::InsufficientHistory {
            have: grid.step() * factor(preprocessor.usable()),
            need: grid.step() * factor(online.least().max(preprocessor.usable() + 1)),
        };
        let quantile = online.quantile();
        let value = online.upper(quantile).ok_or(too_short)?;
        let bounds = online.bounds(quantile).ok_or(too_short)?;
        let path = online.path(wanted + missing_at_end).ok_or(too_short)?;
        // The path begins after the newest measured step, the forecast where the history ends.
        let point = path.point.get(missing_at_end..).unwrap_or_default();
        let upper = path.upper.get(missing_at_end..).unwrap_or_default();
        let valid_until = later(preprocessor.next(), grid.step(), OUTLIVES);
        let forecast = Forecast::new("auto", start, grid.step(), point.to_vec(), valid_until)?
            .with_upper(upper.to_vec())?
            .with_peak(Peak {
                window: grid.step() * factor(online.window()),
                value,
                quantile,
                bounds,
            })?
            .with_quality(Quality {
                coverage: online.coverage(),
                skill: online.skill(),
                raw: online.raw_share(),
                learnt_from: preprocessor.learnt_from(),
                known_until: preprocessor.next(),
            })
            .with_notes(notes(preprocessor, grid));
        Ok(forecast)
    }
}

/// Checks that the history is long, recent and dense enough. Returns the number of steps without a sample at its end.
///
/// # Errors
/// In this order: [`ForecastError::InsufficientHistory`] below two hours of measured steps,
/// [`ForecastError::StaleHistory`] if more than [`OUTLIVES`] steps are missing at the end,
/// [`ForecastError::TooManyGaps`] for the last day, [`ForecastError::ZeroSeries`].
fn require_usable(
    preprocessor: &Preprocessor,
    history: &Series,
    grid: Grid,
) -> Result<usize, ForecastError> {
    let least = grid.minutes(LEAST_MINUTES);
    if preprocessor.usable() < least {
        return Err(ForecastError::InsufficientHistory {
            have: grid.step() * factor(preprocessor.usable()),
            need: grid.step() * factor(least),
        });
    }
    let missing_at_end = preprocessor.missing_at_end(history);
    if missing_at_end > OUTLIVES {
        return Err(ForecastError::StaleHistory {
            last: preprocessor.newest(),
            end: history.end(),
        });
    }
    let buffer = preprocessor.online().buffer();
    let (from, to) = (
        buffer.end().saturating_sub(grid.day()).max(buffer.first()),
        buffer.end(),
    );
    let (missing, of) = (buffer.imputed(from, to), to - from);
    if count(missing) > MAX_MISSING * count(of) {
        return Err(ForecastError::TooManyGaps { missing, of });
    }
    if preprocessor
        .online()
        .extremes()
        .is_none_or(|(highest, _)| highest <= 0.0)
    {
        return Err(ForecastError::ZeroSeries);
    }
    Ok(missing_at_end)
}

/// The notes on a forecast.
fn notes(preprocessor: &Preprocessor, grid: Grid) -> impl Iterator<Item = Note> {
    let online = preprocessor.online();
    let buffer = online.buffer();
    let constant = online.extremes().is_some_and(|(high, low)| high <= low);
    let filled = buffer.imputed(buffer.first(), buffer.end());
    let rejected = preprocessor.rejected();
    let age = buffer.end() - buffer.first();
    let since = online.scale_since().unwrap_or(0);
    let shifted =
        since > grid.minutes(LEAST_MINUTES) && buffer.end() - since < grid.minutes(NOTED_MINUTES);
    let predictor_state = match online.predictor_state() {
        Some(PredictorState::NoSkill) => Some(Note::NoSkill),
        Some(PredictorState::Numerical) => Some(Note::NumericalFallback),
        _ => (age < grid.day()).then_some(Note::WarmingUp),
    };
    [
        constant.then_some(Note::Constant),
        predictor_state,
        shifted.then_some(Note::LevelShift),
        (filled > 0).then_some(Note::GapsFilled { slots: filled }),
        (rejected > 0).then_some(Note::SpikesRejected { slots: rejected }),
    ]
    .into_iter()
    .flatten()
}

/// The smallest multiple of a step that is at least a minute and divides a day.
///
/// ```text
/// 15 s -> 60 s    60 s -> 60 s    45 s -> 90 s    5 min -> 5 min
/// ```
fn coarse(step: SignedDuration) -> SignedDuration {
    let (day, seconds) = (86_400, step.as_secs().max(1));
    (1..=day / seconds)
        .map(|n| n * seconds)
        .find(|step| *step >= FINEST.as_secs() && day % step == 0)
        .map_or(step, SignedDuration::from_secs)
}

/// A count of steps as a factor of durations.
fn factor(steps: usize) -> i32 {
    i32::try_from(steps).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
