//! [`Forecaster`]: the interface of every forecaster, and the spans that all of them share.

use std::fmt;

use jiff::SignedDuration;

use crate::budget::TradeOffs;
use crate::error::ForecastError;
use crate::forecast::Forecast;
use crate::series::{MAX_SLOTS, Series, slots};

/// History that is fetched beyond the configured length, so that one late sample does not make it too short.
///
/// # Source
/// crane queries one hour more than configured, too.
const SLACK: SignedDuration = SignedDuration::from_hours(1);

/// The interval at which the forecast of most forecasters is renewed: well within
/// [`FORECAST_VALIDITY`](crate::FORECAST_VALIDITY).
pub const REFRESH_PERIOD: SignedDuration = SignedDuration::from_mins(4);

/// The interval of the backcasts of a forecaster with cheap forecasts.
const REFIT_INTERVAL: SignedDuration = SignedDuration::from_mins(5);

/// Predicts a series from its history.
///
/// One value forecasts one series, and each history continues the one before. An implementation may keep what it
/// learned and read only what is new; this changes the cost of a forecast, not the forecast.
///
/// ```
/// use foretide_models::{Forecaster, Series, seasonal};
/// use jiff::{SignedDuration, Timestamp};
///
/// let minute = SignedDuration::from_mins(1);
/// // Demand rises by one every minute of the day.
/// let days = (0..3 * 1440).map(|i| f64::from(i % 1440)).collect();
/// let history = Series::from_values(Timestamp::UNIX_EPOCH, minute, days);
///
/// let mut forecaster = seasonal::SeasonalNaive::new(seasonal::Config::default())?;
/// let forecast = forecaster.forecast(&history, minute * 5)?;
/// assert_eq!(forecast.start(), history.end());
/// assert_eq!(forecast.point()[..5], [0.0, 1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// - The result is a pure function of configuration, history and horizon: no clock, no randomness.
/// - The forecast starts where the history ends, and is finite and within `[0, 1.5 * maximum of the history]`.
/// - No input makes it panic.
pub trait Forecaster: fmt::Debug + Send {
    /// The algorithm's name, as the API spells it.
    fn name(&self) -> &'static str;

    /// The length of the history to fetch, including slack for late samples.
    ///
    /// A longer history is accepted; its older part may not be read.
    fn history_length(&self) -> SignedDuration;

    /// The step the history must have.
    ///
    /// A history with another step is [`ForecastError::StepMismatch`].
    fn sample_interval(&self) -> SignedDuration;

    /// The interval at which to ask for a new forecast.
    ///
    /// By default every four minutes, so that a forecast is renewed twice before it expires; or with every sample, if
    /// these are further apart.
    fn refresh_period(&self) -> SignedDuration {
        self.sample_interval().max(REFRESH_PERIOD)
    }

    /// The time for which a forecast is as good as a new one; backcasts are made at this interval.
    fn refit_interval(&self) -> SignedDuration {
        REFIT_INTERVAL
    }

    /// Changes the price at which the forecaster buys replicas, if it was configured with one.
    ///
    /// `price` is the share of minutes that another replica must save: see [`SharedPrice`](crate::SharedPrice). By
    /// default it is ignored.
    fn set_price(&mut self, price: f64) {
        let _ = price;
    }

    /// The short minutes and the replicas of each quantile for this series so far, if the forecaster measures them.
    ///
    /// By default nothing is measured. See [`TradeOffs::at_price`].
    fn trade_offs(&self) -> Option<TradeOffs> {
        None
    }

    /// Bytes of memory that the forecaster keeps from one forecast to the next.
    ///
    /// By default, that of a forecaster that keeps next to nothing.
    fn bytes(&self) -> usize {
        0
    }

    /// Predicts at least `horizon` beyond the end of the history.
    ///
    /// # Errors
    /// [`ForecastError`] when the history does not support a forecast. It never stands for zero demand.
    fn forecast(
        &mut self,
        history: &Series,
        horizon: SignedDuration,
    ) -> Result<Forecast, ForecastError>;
}

/// The history length with slack for late samples.
pub fn with_slack(length: SignedDuration) -> SignedDuration {
    length.saturating_add(SLACK)
}

/// The number of values that cover the horizon.
///
/// `ceil(horizon / step)`.
///
/// # Errors
/// [`ForecastError::HorizonOutOfRange`] if either is not positive, or the path would be longer than [`MAX_SLOTS`].
pub fn path_length(horizon: SignedDuration, step: SignedDuration) -> Result<usize, ForecastError> {
    let error = ForecastError::HorizonOutOfRange { horizon, step };
    if !horizon.is_positive() || !step.is_positive() {
        return Err(error);
    }
    let whole = slots(horizon, step)
        .filter(|n| *n < MAX_SLOTS)
        .ok_or(error)?;
    Ok(whole + usize::from(horizon.as_nanos() % step.as_nanos() != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_covers_its_horizon() {
        let step = SignedDuration::from_mins(5);
        let length = |seconds| path_length(SignedDuration::from_secs(seconds), step).ok();
        assert_eq!(
            [1, 300, 301, 3600].map(length),
            [Some(1), Some(1), Some(2), Some(12)]
        );
        assert_eq!([0, -300, i64::MAX].map(length), [None; 3]);
    }
}
