//! [`Algorithm`]: which forecaster to build, with its settings.

use crate::config::ConfigError;
use crate::forecaster::Forecaster;
#[cfg(feature = "augurs")]
use crate::mstl;
use crate::{auto, calibrate, dsp, holt_winters, linear, percentile, seasonal};

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
    /// See [`holt_winters`].
    HoltWinters(holt_winters::Config),
    /// See [`linear`].
    Linear(linear::Config),
    /// See [`mstl`].
    #[cfg(feature = "augurs")]
    Mstl(mstl::Config),
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
    /// use foretide_models::{Algorithm, linear};
    ///
    /// let config = linear::Config { samples: 1, ..linear::Config::default() };
    /// let error = Algorithm::Linear(config).build().unwrap_err();
    /// assert_eq!(error.field, "linear.samples");
    /// ```
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
}
