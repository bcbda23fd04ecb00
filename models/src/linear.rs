//! [`Linear`]: a straight line through the last samples, for users of autoscalers that extrapolate linearly. It knows
//! no season, and needs only two samples.

use jiff::SignedDuration;

use crate::config::{ConfigError, require_grid};
use crate::error::ForecastError;
use crate::forecast::{Forecast, Note, clamp_to_ceiling};
use crate::forecaster::{Forecaster, path_length, with_slack};
use crate::gaps::{HistoryRequirements, PreparedHistory};
use crate::series::{MAX_SLOTS, Series, count};

/// Settings of [`Linear`].
///
/// ```
/// use foretide_models::Forecaster;
/// use foretide_models::linear::{Config, Linear};
/// use jiff::SignedDuration;
///
/// // The default fits an hour of minutes; another hour is fetched for late samples.
/// let forecaster = Linear::new(Config::default())?;
/// assert_eq!(forecaster.history_length(), SignedDuration::from_hours(2));
/// # Ok::<(), foretide_models::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The grid of the history.
    pub sample_interval: SignedDuration,
    /// The number of last samples to fit, at least two, including missing ones.
    pub samples: usize,
}

/// An hour of minutes.
impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: SignedDuration::from_mins(1),
            samples: 60,
        }
    }
}

/// The linear forecaster: least squares over the last samples.
///
/// ```
/// use foretide_models::{Forecaster, Series, linear};
/// use jiff::{SignedDuration, Timestamp};
///
/// let minute = SignedDuration::from_mins(1);
/// let history = Series::from_values(Timestamp::UNIX_EPOCH, minute, vec![1.0, 2.0, f64::NAN, 4.0]);
/// let forecast = linear::Linear::new(linear::Config::default())?.forecast(&history, minute * 2)?;
/// assert!((forecast.point()[0] - 5.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// - Scaling the history scales the forecast; adding a constant shifts it, short of the bounds of every forecast.
/// - Missing samples are ignored, not filled.
#[derive(Debug, Clone)]
pub struct Linear {
    config: Config,
}

/// A line over steps counted from the last sample, which is at zero.
///
/// # Units
/// Heights are parts of the highest sample: `now` is the height at the last sample, `per_step` what each step adds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    now: f64,
    per_step: f64,
}

// === impl Linear ===

impl Linear {
    /// A forecaster with these settings.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        require_grid("linear.sampleInterval", config.sample_interval)?;
        if !(2..MAX_SLOTS).contains(&config.samples) {
            let expected = "at least 2, and at most a million";
            return Err(ConfigError::new("linear.samples", config.samples, expected));
        }
        Ok(Self { config })
    }

    /// The span of the fitted samples.
    fn span(&self) -> SignedDuration {
        let samples = i32::try_from(self.config.samples).unwrap_or(i32::MAX);
        let span = self.config.sample_interval.checked_mul(samples);
        span.unwrap_or(SignedDuration::MAX)
    }
}

impl Forecaster for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn history_length(&self) -> SignedDuration {
        with_slack(self.span())
    }

    fn sample_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    fn refit_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    fn forecast(
        &mut self,
        history: &Series,
        horizon: SignedDuration,
    ) -> Result<Forecast, ForecastError> {
        let step = self.config.sample_interval;
        let wanted = path_length(horizon, step)?;
        let requirements = HistoryRequirements {
            step,
            least: step * 2,
            most: self.span(),
        };
        let prepared = PreparedHistory::new(history, requirements)?;
        let line = Line::through(&prepared.values, prepared.highest);
        let mut point: Vec<f64> = (1..=wanted)
            .map(|ahead| line.at(ahead) * prepared.highest)
            .collect();
        let clamped = clamp_to_ceiling(&mut point, prepared.highest)?;
        let forecast = Forecast::new(self.name(), prepared.end, step, point, prepared.valid_until)?;
        Ok(forecast
            .with_notes(prepared.notes)
            .with_notes(clamped.then_some(Note::Clamped)))
    }
}

// === impl Line ===

impl Line {
    /// The least-squares line, relative to `highest`; level for a single sample.
    ///
    /// # Shape
    /// Oldest first, NaN is missing; the last one is at step zero.
    ///
    /// # Units
    /// Heights and slope are parts of `highest`, so that no square overflows.
    fn through(values: &[f64], highest: f64) -> Self {
        let seen = || {
            let ages = values.iter().rev().enumerate();
            ages.filter(|(_, value)| !value.is_nan())
                .map(|(age, value)| (-count(age), value / highest))
        };
        let n = count(seen().count()).max(1.0);
        let x_mean = seen().map(|(x, _)| x).sum::<f64>() / n;
        let y_mean = seen().map(|(_, y)| y).sum::<f64>() / n;
        let spread: f64 = seen().map(|(x, _)| (x - x_mean).powi(2)).sum();
        let joint: f64 = seen().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
        let per_step = if spread > 0.0 { joint / spread } else { 0.0 };
        Self {
            now: y_mean - per_step * x_mean,
            per_step,
        }
    }

    /// The height of the line `ahead` steps after the last sample, as a part of `highest`.
    fn at(self, ahead: usize) -> f64 {
        self.now + count(ahead) * self.per_step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    const STEP: SignedDuration = SignedDuration::from_mins(1);
    const N: f64 = f64::NAN;

    fn forecast(samples: usize, values: &[f64]) -> Result<Forecast, ForecastError> {
        let history = Series::from_values(Timestamp::UNIX_EPOCH, STEP, values.to_vec());
        let config = Config {
            samples,
            ..Config::default()
        };
        Linear::new(config).unwrap().forecast(&history, STEP * 3)
    }

    #[test]
    fn the_forecast_extrapolates_the_last_samples() {
        let cases: [(&str, usize, &[f64], [f64; 3]); 7] = [
            ("rising", 4, &[10.0, 11.0, 12.0, 13.0], [14.0, 15.0, 16.0]),
            (
                "only the last ones",
                2,
                &[90.0, 50.0, 20.0, 21.0],
                [22.0, 23.0, 24.0],
            ),
            (
                "a hole",
                4,
                &[10.0, 11.0, N, 13.0, 14.0, 15.0, 16.0],
                [17.0, 18.0, 19.0],
            ),
            ("level", 3, &[7.0; 5], [7.0; 3]),
            ("least squares", 3, &[1.0, 4.0, 4.0], [6.0, 6.0, 6.0]),
            ("never below zero", 3, &[5.0, 3.0, 1.0], [0.0, 0.0, 0.0]),
            ("fewer than asked for", 60, &[4.0, 5.0], [6.0, 7.0, 7.5]),
        ];
        for (name, samples, values, expected) in cases {
            let made = forecast(samples, values).unwrap();
            let off = |(a, b): (&f64, &f64)| (a - b).abs() > 1e-9;
            let wrong = made.point().iter().zip(&expected).any(off);
            assert!(!wrong, "{name}: {:?}", made.point());
        }
    }

    #[test]
    fn fewer_than_two_samples_are_an_error() {
        assert_eq!(
            forecast(60, &[4.0]).unwrap_err().reason(),
            "InsufficientHistory"
        );
        let one = Config {
            samples: 1,
            ..Config::default()
        };
        assert_eq!(Linear::new(one).unwrap_err().field, "linear.samples");
    }
}
