//! Why there is no forecast, as data. A refusal means "no proposal", never zero; whoever asked carries on without.

use jiff::{SignedDuration, Timestamp};

/// A forecaster's reasoned "no".
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Fewer usable samples than the forecaster can work with.
    #[error(
        "history holds {have:#} of usable samples, at least {need:#} is needed; wait, or check that the query returns data this far back"
    )]
    InsufficientHistory {
        /// What there is.
        have: SignedDuration,
        /// What there must be.
        need: SignedDuration,
    },
    /// The newest sample is so old that a forecast from it would have expired already.
    #[error(
        "the newest usable sample is of {last}, too old for a forecast at {end}; check that the metric is still being collected"
    )]
    StaleHistory {
        /// The instant of the newest usable sample.
        last: Timestamp,
        /// The end of the history.
        end: Timestamp,
    },
    /// Too large a part of the history is missing to be filled in honestly.
    #[error(
        "{missing} of {of} samples are missing, at most 30% may be; check scraping and retention"
    )]
    TooManyGaps {
        /// Slots without a usable value.
        missing: usize,
        /// Slots looked at: the whole history or its last day.
        of: usize,
    },
    /// Nothing but zeros.
    #[error(
        "every sample is zero, so there is no demand to forecast; check the query if there should be"
    )]
    ZeroSeries,
    /// Neither a day nor a week repeats, and the level is not steady either.
    #[error(
        "neither a day nor a week repeats: the best lag is {best_lag:#} with correlation {correlation:.2}"
    )]
    NotPeriodic {
        /// The lag at which the series is most like itself, whatever its length.
        best_lag: SignedDuration,
        /// Its autocorrelation, at most 1.
        correlation: f64,
    },
    /// The series lies on another grid than the forecaster is configured for.
    #[error(
        "history has a sample every {have:#}, the forecaster is configured for one every {need:#}"
    )]
    StepMismatch {
        /// The step of the series.
        have: SignedDuration,
        /// The configured sample interval.
        need: SignedDuration,
    },
    /// The span asked for is not positive or longer than a series can be.
    #[error("a horizon of {horizon:#} cannot be forecast at one value every {step:#}")]
    HorizonOutOfRange {
        /// What was asked for.
        horizon: SignedDuration,
        /// The step of the series.
        step: SignedDuration,
    },
    /// The arithmetic did not end in finite numbers.
    #[error("the forecast is not a finite number")]
    NotFinite,
}

// === impl Refusal ===

impl Refusal {
    /// The stable name of the refusal, for conditions, events and metric labels.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InsufficientHistory { .. } => "InsufficientHistory",
            Self::StaleHistory { .. } => "StaleHistory",
            Self::TooManyGaps { .. } => "TooManyGaps",
            Self::ZeroSeries => "ZeroSeries",
            Self::NotPeriodic { .. } => "NotPeriodic",
            Self::StepMismatch { .. } => "StepMismatch",
            Self::HorizonOutOfRange { .. } => "HorizonOutOfRange",
            Self::NotFinite => "NotFinite",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_was_found_and_what_is_needed() {
        let short = Refusal::InsufficientHistory {
            have: SignedDuration::from_hours(5),
            need: SignedDuration::from_hours(48),
        };
        assert_eq!(short.reason(), "InsufficientHistory");
        assert_eq!(
            short.to_string(),
            "history holds 5h of usable samples, at least 48h is needed; \
             wait, or check that the query returns data this far back"
        );
        let aperiodic = Refusal::NotPeriodic {
            best_lag: SignedDuration::from_mins(590),
            correlation: 0.3141,
        };
        assert_eq!(
            aperiodic.to_string(),
            "neither a day nor a week repeats: the best lag is 9h 50m with correlation 0.31"
        );
    }
}
