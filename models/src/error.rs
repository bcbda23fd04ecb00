//! [`ForecastError`]: the reason that a forecaster has no forecast, as data. The caller then scales without a forecast;
//! it never reads an error as zero demand.

use jiff::{SignedDuration, Timestamp};

/// The reason that a forecaster returned no forecast.
///
/// ```
/// use foretide_models::{Algorithm, ForecastError, Series, dsp};
/// use jiff::{SignedDuration, Timestamp};
///
/// // Dsp needs two days of history; this is one hour.
/// let history = Series::from_values(Timestamp::UNIX_EPOCH, SignedDuration::from_mins(1), vec![5.0; 60]);
/// let mut dsp = Algorithm::Dsp(dsp::Config::default()).build()?;
/// let error = dsp.forecast(&history, SignedDuration::from_hours(1)).unwrap_err();
/// assert!(matches!(error, ForecastError::InsufficientHistory { .. }));
/// # Ok::<(), foretide_models::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ForecastError {
    /// Fewer usable samples than the forecaster can work with.
    #[error(
        "history holds {have:#} of usable samples; at least {need:#} is needed; wait, or check that the query returns data this far back"
    )]
    InsufficientHistory {
        /// The usable history.
        have: SignedDuration,
        /// The history that the forecaster needs.
        need: SignedDuration,
    },
    /// The newest sample is so old that a forecast from it would have expired already.
    #[error(
        "the newest usable sample is from {last}, too old for a forecast at {end}; check that the metric is still collected"
    )]
    StaleHistory {
        /// The instant of the newest usable sample.
        last: Timestamp,
        /// The end of the history.
        end: Timestamp,
    },
    /// More of the history is missing than is ever filled in.
    #[error(
        "{missing} of {of} samples are missing, more than the allowed 30%; check scraping and retention"
    )]
    TooManyGaps {
        /// Slots without a usable value.
        missing: usize,
        /// Slots looked at: the whole history or its last day.
        of: usize,
    },
    /// Every sample is zero.
    #[error(
        "every sample is zero, so there is no demand to forecast; if demand is expected, check the query"
    )]
    ZeroSeries,
    /// The series repeats neither daily nor weekly, and its level is not steady.
    #[error(
        "the series repeats neither daily nor weekly; the best lag is {best_lag:#} with autocorrelation {correlation:.2}"
    )]
    NotPeriodic {
        /// The lag with the highest autocorrelation, of any length.
        best_lag: SignedDuration,
        /// The autocorrelation at that lag, at most 1.
        correlation: f64,
    },
    /// The step of the series differs from the configured sample interval.
    #[error(
        "the history has a sample every {have:#}, but the forecaster is configured for one every {need:#}"
    )]
    StepMismatch {
        /// The step of the series.
        have: SignedDuration,
        /// The configured sample interval.
        need: SignedDuration,
    },
    /// The horizon is not positive, or longer than a series can be.
    #[error("cannot forecast a horizon of {horizon:#} with one value every {step:#}")]
    HorizonOutOfRange {
        /// The requested horizon.
        horizon: SignedDuration,
        /// The step of the series.
        step: SignedDuration,
    },
    /// The computation gave a value that is not a finite number.
    #[error("the forecast is not a finite number")]
    NotFinite,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_what_was_found_and_what_is_needed() {
        let short = ForecastError::InsufficientHistory {
            have: SignedDuration::from_hours(5),
            need: SignedDuration::from_hours(48),
        };
        assert_eq!(
            short.to_string(),
            "history holds 5h of usable samples; at least 48h is needed; \
             wait, or check that the query returns data this far back"
        );
        let aperiodic = ForecastError::NotPeriodic {
            best_lag: SignedDuration::from_mins(590),
            correlation: 0.3141,
        };
        assert_eq!(
            aperiodic.to_string(),
            "the series repeats neither daily nor weekly; the best lag is 9h 50m with autocorrelation 0.31"
        );
    }
}
