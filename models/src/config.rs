//! [`ConfigError`], and the checks that the settings of several forecasters share.

use std::fmt;

use jiff::SignedDuration;

use crate::forecaster::with_slack;
use crate::series::{MAX_SLOTS, slots};

/// A setting out of range.
///
/// # Shape
/// `field` is the path as the API spells it, starting at the algorithm: `dsp.estimators.fft[1].marginFraction`.
///
/// ```
/// use foretide_models::seasonal::{Config, SeasonalNaive};
///
/// let error = SeasonalNaive::new(Config { cycles: 0, ..Config::default() }).unwrap_err();
/// assert_eq!(error.to_string(), "seasonalNaive.cycles is 0; expected at least 1, and no more than a million samples in all");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; expected {expected}")]
pub struct ConfigError {
    /// The path of the setting.
    pub field: String,
    /// The value of the setting.
    pub value: String,
    /// The accepted values.
    pub expected: &'static str,
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

/// Requires a step of whole seconds, at most an hour, that divides a day, so that the phases of days align.
///
/// # Errors
/// [`ConfigError`] with this field and step.
pub fn require_grid(field: &str, step: SignedDuration) -> Result<(), ConfigError> {
    let (second, hour) = (SignedDuration::from_secs(1), SignedDuration::from_hours(1));
    let day = SignedDuration::from_hours(24).as_nanos();
    // A step of zero is refused below; until then it must not divide.
    let whole = step.subsec_nanos() == 0 && day % step.as_nanos().max(1) == 0;
    if step < second || step > hour || !whole {
        let expected = "whole seconds that divide a day, between 1s and 1h";
        return Err(ConfigError::new(field, format_args!("{step:#}"), expected));
    }
    Ok(())
}

/// Requires a history of at least `least` that fits into a series.
///
/// # Errors
/// [`ConfigError`] with this field and length. What must fit is the length with the slack for late samples.
pub fn require_history(
    field: &str,
    length: SignedDuration,
    least: SignedDuration,
    step: SignedDuration,
) -> Result<(), ConfigError> {
    let wanted = format_args!("{length:#}").to_string();
    if length < least {
        let expected = if least == SignedDuration::from_hours(48) {
            "at least 48h, because two days are needed to detect a daily pattern"
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

/// Requires a margin between 0 and 1000 %.
pub fn require_margin(field: &str, margin: f64) -> Result<(), ConfigError> {
    if (0.0..=10.0).contains(&margin) {
        return Ok(());
    }
    Err(ConfigError::new(field, margin, "between 0 and 10"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Divides a day, but not a minute.
        assert!(require_grid("x", SignedDuration::from_millis(1280)).is_err());
        let error = require_grid("dsp.sampleInterval", SignedDuration::from_mins(7)).unwrap_err();
        let expected =
            "dsp.sampleInterval is 7m; expected whole seconds that divide a day, between 1s and 1h";
        assert_eq!(error.to_string(), expected);
    }
}
