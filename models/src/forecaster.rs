//! The one interface of every forecaster, the settings that name one, and what is checked of any settings. A new
//! forecaster is one file with an `impl Forecaster` and one variant of [`Algorithm`].

use std::fmt;

use jiff::SignedDuration;

use crate::forecast::Forecast;
#[cfg(feature = "augurs")]
use crate::mstl;
use crate::refusal::Refusal;
use crate::series::{MAX_SLOTS, Series, slots};
use crate::{auto, calibrate, dsp, holt_winters, linear, percentile, seasonal};

/// What is fetched beyond the configured history, so that one late sample does not make it too short.
///
/// # Source
/// crane queries one hour more than configured, too.
const SLACK: SignedDuration = SignedDuration::from_hours(1);

/// How soon the path of most forecasters is worth computing anew: well inside
/// [`OUTLIVES_HISTORY`](crate::OUTLIVES_HISTORY).
pub const REFRESH_PERIOD: SignedDuration = SignedDuration::from_mins(4);

/// How far apart the paths of a forecaster that is cheap to ask are judged in hindsight.
const REFIT_INTERVAL: SignedDuration = SignedDuration::from_mins(5);

/// Predicts a series from its past.
///
/// One value forecasts one series, and each history it is asked with continues the one before. It may keep what it
/// learnt and take in only what is new; that changes the cost of an answer, not the answer.
///
/// # Guarantees
/// - A pure function of configuration, history and horizon: no clock, no randomness.
/// - The forecast starts where the history ends, and is finite and within `[0, 1.5 * maximum of the history]`.
/// - No input makes it panic.
pub trait Forecaster: fmt::Debug + Send {
    /// The algorithm's name, as the API spells it.
    fn name(&self) -> &'static str;

    /// How much history to fetch, slack included.
    fn history_length(&self) -> SignedDuration;

    /// The step the history must have.
    fn sample_interval(&self) -> SignedDuration;

    /// How soon a new answer is worth having.
    fn refresh_period(&self) -> SignedDuration {
        self.sample_interval().max(REFRESH_PERIOD)
    }

    /// How old a path may be and still be as good as a new one: how far apart a judgement in hindsight needs to ask.
    fn refit_interval(&self) -> SignedDuration {
        REFIT_INTERVAL
    }

    /// Predicts at least `horizon` beyond the end of the history.
    ///
    /// # Errors
    /// A [`Refusal`] when there is no honest answer. It means "no proposal", never zero.
    fn forecast(&mut self, history: &Series, horizon: SignedDuration) -> Result<Forecast, Refusal>;
}

/// A forecaster's settings, not yet checked.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Algorithm {
    /// See [`auto`].
    Auto(auto::Config),
    /// See [`dsp`].
    Dsp(dsp::Config),
    /// See [`seasonal`].
    SeasonalNaive(seasonal::Config),
    /// See [`percentile`].
    Percentile(percentile::Config),
    /// See [`holt_winters`].
    HoltWinters(holt_winters::Config),
    /// See [`linear`].
    Linear(linear::Config),
    /// See [`mstl`].
    #[cfg(feature = "augurs")]
    Mstl(mstl::Config),
    /// Another one with a measured margin: see [`calibrate`].
    Calibrated(Box<Algorithm>, calibrate::Config),
}

/// A setting that no forecaster can work with.
///
/// # Shape
/// `field` is the path as the API spells it, from the algorithm on: `dsp.estimators.fft[1].marginFraction`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; expected {expected}")]
pub struct ConfigError {
    /// Which setting.
    pub field: String,
    /// What it is.
    pub value: String,
    /// What would be accepted.
    pub expected: &'static str,
}

// === impl Algorithm ===

impl Algorithm {
    /// Checks the settings and makes the forecaster.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range; nothing is replaced by a default.
    pub fn build(self) -> Result<Box<dyn Forecaster>, ConfigError> {
        Ok(match self {
            Self::Auto(config) => Box::new(auto::Auto::new(config)?),
            Self::Dsp(config) => Box::new(dsp::Dsp::new(config)?),
            Self::SeasonalNaive(config) => Box::new(seasonal::SeasonalNaive::new(config)?),
            Self::Percentile(config) => Box::new(percentile::Percentile::new(config)?),
            Self::HoltWinters(config) => Box::new(holt_winters::HoltWinters::new(config)?),
            Self::Linear(config) => Box::new(linear::Linear::new(config)?),
            #[cfg(feature = "augurs")]
            Self::Mstl(config) => Box::new(mstl::Mstl::new(config)?),
            Self::Calibrated(inner, config) => {
                Box::new(calibrate::Calibrated::new(inner.build()?, &config)?)
            }
        })
    }
}

// === impl ConfigError ===

impl ConfigError {
    pub(crate) fn new(
        field: impl Into<String>,
        value: impl fmt::Display,
        expected: &'static str,
    ) -> Self {
        Self {
            field: field.into(),
            value: value.to_string(),
            expected,
        }
    }
}

/// What to fetch so that this much history is there.
pub(crate) fn with_slack(length: SignedDuration) -> SignedDuration {
    length.saturating_add(SLACK)
}

/// A step of whole seconds, at most an hour of them, that divides a day, so that phases of the day line up.
pub(crate) fn require_grid(field: &str, step: SignedDuration) -> Result<(), ConfigError> {
    let (second, hour) = (SignedDuration::from_secs(1), SignedDuration::from_hours(1));
    let day = SignedDuration::from_hours(24).as_nanos();
    let whole = step.subsec_nanos() == 0 && day % step.as_nanos().max(1) == 0;
    if step < second || step > hour || !whole {
        let expected = "whole seconds, between 1s and 1h, and an exact part of a day";
        return Err(ConfigError::new(field, format_args!("{step:#}"), expected));
    }
    Ok(())
}

/// A history of at least `least` that fits into a series.
pub(crate) fn require_history(
    field: &str,
    length: SignedDuration,
    least: SignedDuration,
    step: SignedDuration,
) -> Result<(), ConfigError> {
    let wanted = format_args!("{length:#}").to_string();
    if length < least {
        let expected = if least == SignedDuration::from_hours(48) {
            "at least 48h: two days, to see one repeat"
        } else {
            "at least 2h"
        };
        return Err(ConfigError::new(field, wanted, expected));
    }
    match slots(with_slack(length), step) {
        Some(slots) if slots < MAX_SLOTS => Ok(()),
        _ => Err(ConfigError::new(field, wanted, "at most a million samples")),
    }
}

/// A part to add that is neither negative nor absurd.
pub(crate) fn require_margin(field: &str, margin: f64) -> Result<(), ConfigError> {
    if (0.0..=10.0).contains(&margin) {
        return Ok(());
    }
    Err(ConfigError::new(field, margin, "between 0 and 10"))
}

/// How many values reach over the horizon.
pub(crate) fn path_length(horizon: SignedDuration, step: SignedDuration) -> Result<usize, Refusal> {
    let refusal = Refusal::HorizonOutOfRange { horizon, step };
    if !horizon.is_positive() || !step.is_positive() {
        return Err(refusal);
    }
    let whole = slots(horizon, step)
        .filter(|n| *n < MAX_SLOTS)
        .ok_or(refusal)?;
    Ok(whole + usize::from(horizon.as_nanos() % step.as_nanos() != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_builds_the_forecaster_it_names() {
        let cases = [
            (Algorithm::Dsp(dsp::Config::default()), "dsp", 15 * 24 + 1),
            (
                Algorithm::SeasonalNaive(seasonal::Config::default()),
                "seasonalNaive",
                25,
            ),
            (
                Algorithm::Percentile(percentile::Config::default()),
                "percentile",
                7 * 24 + 1,
            ),
            (
                Algorithm::HoltWinters(holt_winters::Config::default()),
                "holtWinters",
                7 * 24 + 1,
            ),
            (Algorithm::Linear(linear::Config::default()), "linear", 2),
        ];
        for (algorithm, name, hours) in cases {
            let forecaster = algorithm.build().unwrap();
            assert_eq!(forecaster.name(), name);
            assert_eq!(
                forecaster.history_length(),
                SignedDuration::from_hours(hours)
            );
            assert_eq!(forecaster.sample_interval(), SignedDuration::from_mins(1));
        }
    }

    #[test]
    fn a_path_reaches_over_its_horizon() {
        let step = SignedDuration::from_mins(5);
        let length = |seconds| path_length(SignedDuration::from_secs(seconds), step).ok();
        assert_eq!(
            [1, 300, 301, 3600].map(length),
            [Some(1), Some(1), Some(2), Some(12)]
        );
        assert_eq!([0, -300, i64::MAX].map(length), [None; 3]);
    }

    #[test]
    fn a_step_must_divide_a_day() {
        for (seconds, fine) in [
            (1, true),
            (60, true),
            (3600, true),
            (420, false),
            (0, false),
            (7200, false),
        ] {
            let step = SignedDuration::from_secs(seconds);
            assert_eq!(require_grid("x", step).is_ok(), fine, "{seconds}");
        }
        // An exact part of a day, and of no minute.
        assert!(require_grid("x", SignedDuration::from_millis(1280)).is_err());
        let error = require_grid("dsp.sampleInterval", SignedDuration::from_mins(7)).unwrap_err();
        let expected = "dsp.sampleInterval is 7m; expected whole seconds, between 1s and 1h, and an exact part of a day";
        assert_eq!(error.to_string(), expected);
    }
}
