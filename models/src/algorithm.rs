//! [`Algorithm`]: the forecaster to build, with its settings.

use crate::config::ConfigError;
use crate::forecaster::Forecaster;
use crate::{auto, calibrate, dsp, percentile, seasonal};

/// The algorithm of a forecaster, with settings that are not yet checked.
///
/// ```
/// use foretide_models::{Algorithm, auto, calibrate, dsp};
///
/// let auto = Algorithm::Auto(auto::Config::default()).build()?;
/// assert_eq!(auto.name(), "auto");
///
/// // Any algorithm can be calibrated.
/// let inner = Algorithm::Dsp(dsp::Config::default());
/// let calibrated = Algorithm::Calibrated(Box::new(inner), calibrate::Config::default()).build()?;
/// assert_eq!(calibrated.name(), "dsp");
/// # Ok::<(), foretide_models::ConfigError>(())
/// ```
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
    /// Another algorithm with a measured margin: see [`calibrate`].
    Calibrated(Box<Algorithm>, calibrate::Config),
}

// === impl Algorithm ===

impl Algorithm {
    /// Checks the settings and builds the forecaster.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range; no value is replaced by a default.
    ///
    /// ```
    /// use foretide_models::{Algorithm, seasonal};
    ///
    /// let config = seasonal::Config { cycles: 0, ..seasonal::Config::default() };
    /// let error = Algorithm::SeasonalNaive(config).build().unwrap_err();
    /// assert_eq!(error.field, "seasonalNaive.cycles");
    /// ```
    pub fn build(self) -> Result<Box<dyn Forecaster>, ConfigError> {
        Ok(match self {
            Self::Auto(config) => Box::new(auto::Auto::new(config)?),
            Self::Dsp(config) => Box::new(dsp::Dsp::new(config)?),
            Self::SeasonalNaive(config) => Box::new(seasonal::SeasonalNaive::new(config)?),
            Self::Percentile(config) => Box::new(percentile::Percentile::new(config)?),
            Self::Calibrated(inner, config) => {
                Box::new(calibrate::Calibrated::new(inner.build()?, &config)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn build_returns_the_named_forecaster() {
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
}
