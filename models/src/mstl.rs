//! [`Mstl`]: MSTL decomposition by the augurs crates. The daily season, and from two weeks of history on the weekly
//! one, are removed by repeated local regression, and `AutoETS` extrapolates the rest. It is a reference for
//! comparisons and costs about a thousand times as much as the other forecasters.
//!
//! ```text
//! values -> means of ten minutes -> MSTL (day, week) -> AutoETS of the rest -> each mean repeated for its ten minutes
//! ```

use augurs_core::{Fit, Predict};
use augurs_ets::AutoETS;
use augurs_mstl::MSTLModel;
use jiff::SignedDuration;

use crate::config::{ConfigError, require_grid, require_history};
use crate::error::ForecastError;
use crate::forecast::{Forecast, Note, clamp_to_ceiling};
use crate::forecaster::{Forecaster, path_length, with_slack};
use crate::gaps::{HistoryRequirements, PreparedHistory};
use crate::grid::Grid;
use crate::period::{DAY, WEEK};
use crate::series::{Series, count, slots};

/// Minutes of the grid that MSTL runs on: finer grids are averaged to it.
const MEAN: i64 = 10;

/// The least history: two days, to detect a daily pattern.
const TWO_DAYS: SignedDuration = SignedDuration::from_hours(48);

/// The interval at which the model is refitted.
const REFIT_INTERVAL: SignedDuration = SignedDuration::from_hours(6);

/// Settings of [`Mstl`].
///
/// ```
/// use foretide_models::mstl::{Config, Mstl};
/// use jiff::SignedDuration;
///
/// let config = Config { history_length: SignedDuration::from_hours(24), ..Config::default() };
/// assert_eq!(Mstl::new(config).unwrap_err().field, "mstl.historyLength");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The grid of the history.
    pub sample_interval: SignedDuration,
    /// How much history to use: at least 48 hours; 14 days for a week.
    pub history_length: SignedDuration,
}

/// A minute, 14 days.
impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: SignedDuration::from_mins(1),
            history_length: SignedDuration::from_hours(14 * 24),
        }
    }
}

/// The MSTL forecaster.
///
/// The model is fitted at fixed instants, every six hours. Between them its path is reused, so that forecasts can be
/// renewed before they expire. If the fit of the last instant failed, the model is fitted now.
///
/// # Guarantees
/// - Scaling the history scales the forecast, to the six digits that MSTL computes with.
#[derive(Debug, Clone)]
pub struct Mstl {
    config: Config,
    /// The newest fit's path, and the step it was made at.
    fitted: Option<(i64, Forecast)>,
}

// === impl Mstl ===

impl Mstl {
    /// A forecaster with these settings.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let (step, length) = (config.sample_interval, config.history_length);
        require_grid("mstl.sampleInterval", step)?;
        require_history("mstl.historyLength", length, TWO_DAYS, step)?;
        let fitted = None;
        Ok(Self { config, fitted })
    }

    /// The path from the end of this history, by a new fit.
    ///
    /// # Errors
    /// Those of [`PreparedHistory::new`], and [`ForecastError::NotFinite`] if the fit fails.
    fn fit(&self, history: &Series, wanted: usize) -> Result<Forecast, ForecastError> {
        let step = self.config.sample_interval;
        let requirements = HistoryRequirements {
            step,
            least: TWO_DAYS,
            most: self.history_length(),
        };
        let prepared = PreparedHistory::new(history, requirements)?;
        let grid = Grid::new(step);
        let bin = grid.minutes(MEAN);
        let binned = means(&prepared.filled(grid.day()), bin, prepared.highest);
        let coarse = grid.day() / bin;
        let fortnight = slots(WEEK, step).unwrap_or(usize::MAX).saturating_mul(2);
        let week = (prepared.values.len() >= fortnight).then_some(coarse * 7);
        let periods: Vec<usize> = std::iter::once(coarse).chain(week).collect();
        let ahead = continued(&binned, periods, wanted.div_ceil(bin))?;
        let steps = ahead
            .iter()
            .flat_map(|value| std::iter::repeat_n(value, bin));
        let mut point: Vec<f64> = steps
            .take(wanted)
            .map(|part| part * prepared.highest)
            .collect();
        let clamped = clamp_to_ceiling(&mut point, prepared.highest)?;
        let period = if week.is_some() { WEEK } else { DAY };
        let forecast = Forecast::new("mstl", prepared.end, step, point, prepared.valid_until)?;
        Ok(forecast
            .with_period(Some(period))
            .with_notes(prepared.notes_when_filled())
            .with_notes(clamped.then_some(Note::Clamped)))
    }

    /// The rest of the newest fit's path `age` steps later, if it was made at `origin`.
    fn rest(&self, origin: i64, age: usize, wanted: usize) -> Option<Vec<f64>> {
        let (_, forecast) = self.fitted.as_ref().filter(|(at, _)| *at == origin)?;
        let rest = forecast.point().get(age..)?;
        rest.get(..wanted).map(<[f64]>::to_vec)
    }
}

impl Forecaster for Mstl {
    fn name(&self) -> &'static str {
        "mstl"
    }

    fn history_length(&self) -> SignedDuration {
        with_slack(self.config.history_length)
    }

    fn sample_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    fn refit_interval(&self) -> SignedDuration {
        REFIT_INTERVAL
    }

    fn forecast(
        &mut self,
        history: &Series,
        horizon: SignedDuration,
    ) -> Result<Forecast, ForecastError> {
        let step = self.config.sample_interval;
        let wanted = path_length(horizon, step)?;
        let now = history.end_slot();
        let every = slots(REFIT_INTERVAL, step).unwrap_or(1).max(1);
        let age = usize::try_from(now).unwrap_or(0) % every;
        let origin = now - i64::try_from(age).unwrap_or(0);
        if age > 0 && self.rest(origin, age, wanted).is_none() {
            let past = history.before(age, self.history_length());
            // Long enough for every call up to the next fit.
            let fitted = self.fit(&past, wanted + every);
            self.fitted = fitted.ok().map(|forecast| (origin, forecast));
        }
        let Some(rest) = self.rest(origin, age, wanted) else {
            return self.fit(history, wanted);
        };
        let requirements = HistoryRequirements {
            step,
            // The fit has judged the length of the history.
            least: step,
            most: self.history_length(),
        };
        let prepared = PreparedHistory::new(history, requirements)?;
        let kept = self.fitted.as_ref().map(|(_, forecast)| forecast);
        let forecast = Forecast::new(self.name(), prepared.end, step, rest, prepared.valid_until)?;
        Ok(forecast
            .with_period(kept.and_then(Forecast::period))
            .with_notes(kept.map_or(&[][..], Forecast::notes).iter().copied()))
    }
}

/// Means of `bin` values each, relative to `highest`; the last bin ends with the last value.
fn means(values: &[f64], bin: usize, highest: f64) -> Vec<f64> {
    let older = values.len() % bin;
    let bins = values.get(older..).unwrap_or_default().chunks_exact(bin);
    bins.map(|part| part.iter().map(|value| value / highest).sum::<f64>() / count(bin))
        .collect()
}

/// The next `wanted` values, by MSTL with these periods and `AutoETS` for the rest.
///
/// # Shape
/// `periods` are numbers of means, the shortest first; the result begins after the last mean.
///
/// # Errors
/// [`ForecastError::NotFinite`] if the decomposition or the fit fails: augurs names no causes that a user could mend.
fn continued(means: &[f64], periods: Vec<usize>, wanted: usize) -> Result<Vec<f64>, ForecastError> {
    let trend = AutoETS::non_seasonal().into_trend_model();
    let fitted = MSTLModel::new(periods, trend)
        .fit(means)
        .map_err(|_| ForecastError::NotFinite)?;
    let forecast = fitted
        .predict(wanted, None)
        .map_err(|_| ForecastError::NotFinite)?;
    Ok(forecast.point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    const STEP: SignedDuration = SignedDuration::from_mins(30);

    fn daily(i: i32) -> f64 {
        let day = f64::from(i % 48) / 48.0;
        let weekend = if i / 48 % 7 >= 5 { 0.5 } else { 1.0 };
        weekend * (10.0 + 4.0 * (std::f64::consts::TAU * day).sin())
    }

    fn history(until: i32, f: impl Fn(i32) -> f64) -> Series {
        Series::from_values(Timestamp::UNIX_EPOCH, STEP, (0..until).map(f).collect())
    }

    fn mstl() -> Mstl {
        let config = Config {
            sample_interval: STEP,
            history_length: SignedDuration::from_hours(28 * 24),
        };
        Mstl::new(config).unwrap()
    }

    #[test]
    fn daily_and_weekly_patterns_are_forecast() {
        let until = 28 * 48 + 5;
        let forecast = mstl().forecast(&history(until, daily), STEP * 96).unwrap();
        assert_eq!(forecast.period(), Some(WEEK));
        for (at, value) in (until..).zip(forecast.point()) {
            assert!(
                (value - daily(at)).abs() < 1.5,
                "{at}: {value} {}",
                daily(at)
            );
        }
    }

    #[test]
    fn between_fits_the_path_is_reused_and_a_new_forecaster_agrees() {
        let mut kept = mstl();
        for until in 10 * 48..10 * 48 + 14 {
            let history = history(until, daily);
            let [kept, fresh] = [
                kept.forecast(&history, STEP * 4),
                mstl().forecast(&history, STEP * 4),
            ];
            assert_eq!(kept, fresh);
        }
    }

    #[test]
    fn a_short_history_is_an_error_and_a_level_one_is_forecast_level() {
        let short = mstl().forecast(&history(95, daily), STEP).unwrap_err();
        assert_eq!(short.reason(), "InsufficientHistory");
        let level = mstl().forecast(&history(480, |_| 3.0), STEP).unwrap();
        assert!((level.point()[0] - 3.0).abs() < 1e-3);
        let tiny = Config {
            history_length: SignedDuration::from_hours(47),
            ..Config::default()
        };
        assert_eq!(Mstl::new(tiny).unwrap_err().field, "mstl.historyLength");
    }
}
