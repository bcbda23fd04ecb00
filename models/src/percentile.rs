//! [`Percentile`]: a high percentile of the history, in which old samples count less. The forecast is constant, so it
//! suits steady services; for a daily load it is the peak all day.

use jiff::SignedDuration;

use crate::config::{ConfigError, require_grid, require_history, require_margin};
use crate::error::ForecastError;
use crate::forecast::{Forecast, Note, clamp_to_ceiling};
use crate::forecaster::{Forecaster, path_length, with_slack};
use crate::gaps::{HistoryRequirements, PreparedHistory};
use crate::series::{Series, count};

/// The least history for a percentile.
///
/// # Source
/// 120 samples of a minute, like the least of the other forecasters.
const LEAST_HISTORY: SignedDuration = SignedDuration::from_hours(2);

/// The buckets when none are configured: from a millionth of the highest sample up, each a fifth of a percent wider.
///
/// # Source
/// The exponential buckets of the vertical pod autoscaler, but finer (they grow by 5 %) and relative, so that the unit
/// does not matter. ln(1e6) / ln(1.002) gives about 6 900 buckets.
const FIRST_BUCKET: f64 = 1e-6;
const BUCKET_GROWTH: f64 = 1.002;

/// The largest configurable number of buckets.
const MAX_BUCKETS: f64 = 100_000.0;

/// Settings of [`Percentile`]; the fields are crane's.
///
/// ```
/// use foretide_models::Algorithm;
/// use foretide_models::percentile::Config;
///
/// // Enough for nineteen of twenty samples, and 15 % more.
/// let config = Config { percentile: 0.95, margin_fraction: 0.15, ..Config::default() };
/// assert!(Algorithm::Percentile(config).build().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The grid of the history.
    pub sample_interval: SignedDuration,
    /// The length of the history to use: at least two hours.
    pub history_length: SignedDuration,
    /// The percentile as a fraction: above 0, at most 1.
    pub percentile: f64,
    /// The margin to add, as a part of the forecast.
    pub margin_fraction: f64,
    /// The forecast is divided by this: above 0, at most 1.
    pub target_utilization: f64,
    /// A sample weighs as much as its value over the highest of the history, but at least this much.
    pub min_sample_weight: f64,
    /// The histogram.
    pub histogram: Histogram,
}

/// Settings of the histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// The half-life of the weight of a sample.
    pub half_life: SignedDuration,
    /// A bucket with less weight counts as empty.
    pub epsilon: f64,
    /// The buckets; `None` derives them from the history.
    pub buckets: Option<Buckets>,
}

/// Buckets in the unit of the metric. Samples beyond `max_value` count as in the last bucket.
///
/// ```
/// use foretide_models::percentile::{Buckets, Config, Histogram, Percentile};
///
/// // A tenth of a core each, up to a hundred cores.
/// let buckets = Buckets::Linear { max_value: 100.0, bucket_size: 0.1 };
/// let histogram = Histogram { buckets: Some(buckets), ..Histogram::default() };
/// assert!(Percentile::new(Config { histogram, ..Config::default() }).is_ok());
/// ```
///
/// # Units
/// `max_value` and the sizes are in the unit of the metric, `growth_ratio` has none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Buckets {
    /// Buckets of equal width.
    Linear {
        /// The end of the last bucket.
        max_value: f64,
        /// The width of each.
        bucket_size: f64,
    },
    /// Buckets of growing width.
    Exponential {
        /// The end of the last bucket.
        max_value: f64,
        /// The width of the first.
        first_bucket_size: f64,
        /// The width of a bucket over that of the one before; above 1.
        growth_ratio: f64,
    },
}

/// One minute, 7 days, the 99th percentile, no margin, a half-life of one day.
impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: SignedDuration::from_mins(1),
            history_length: SignedDuration::from_hours(7 * 24),
            percentile: 0.99,
            margin_fraction: 0.0,
            target_utilization: 1.0,
            min_sample_weight: 1e-5,
            histogram: Histogram::default(),
        }
    }
}

/// A half-life of a day, buckets from the history.
impl Default for Histogram {
    fn default() -> Self {
        Self {
            half_life: SignedDuration::from_hours(24),
            epsilon: 1e-10,
            buckets: None,
        }
    }
}

/// The percentile forecaster.
///
/// ```
/// use foretide_models::{Forecaster, Series, percentile};
/// use jiff::{SignedDuration, Timestamp};
///
/// let minute = SignedDuration::from_mins(1);
/// // Three hours at 10, of which two minutes are at 20.
/// let mut values = vec![10.0; 180];
/// values[60..62].fill(20.0);
/// let history = Series::from_values(Timestamp::UNIX_EPOCH, minute, values);
///
/// let config = percentile::Config { percentile: 0.9, ..percentile::Config::default() };
/// let forecast = percentile::Percentile::new(config)?.forecast(&history, minute)?;
/// assert!((10.0..10.1).contains(&forecast.point()[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// - Constant over the horizon, and before margin and utilization never above the highest sample.
/// - Scaling the history scales the forecast, unless buckets are configured.
/// - Holes are skipped: they carry no weight.
#[derive(Debug, Clone)]
pub struct Percentile {
    config: Config,
}

// === impl Percentile ===

impl Percentile {
    /// A forecaster with these settings.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range.
    ///
    /// ```
    /// use foretide_models::percentile::{Config, Percentile};
    ///
    /// let error = Percentile::new(Config { percentile: 99.0, ..Config::default() }).unwrap_err();
    /// assert_eq!(error.to_string(), "percentile.percentile is 99; expected above 0 and at most 1");
    /// ```
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let (step, length) = (config.sample_interval, config.history_length);
        require_grid("percentile.sampleInterval", step)?;
        require_history("percentile.historyLength", length, LEAST_HISTORY, step)?;
        require_margin("percentile.marginFraction", config.margin_fraction)?;
        let parts = [
            ("percentile.percentile", config.percentile),
            ("percentile.targetUtilization", config.target_utilization),
            ("percentile.minSampleWeight", config.min_sample_weight),
        ];
        for (field, value) in parts {
            if !(value > 0.0 && value <= 1.0) {
                return Err(ConfigError::new(field, value, "above 0 and at most 1"));
            }
        }
        config.histogram.check()?;
        Ok(Self { config })
    }

    /// The percentile of the history, in its unit.
    ///
    /// Each value adds `max(value / highest, min_sample_weight) * 2^(-age / half-life)` to the weight of its bucket.
    /// The result is the end of the first bucket up to which the buckets have the percentile of all weight.
    fn estimate(&self, prepared: &PreparedHistory) -> f64 {
        let Histogram {
            half_life, epsilon, ..
        } = self.config.histogram;
        let half_lives = prepared.step.as_secs_f64() / half_life.as_secs_f64();
        let buckets = self
            .config
            .histogram
            .buckets
            .unwrap_or(Buckets::Exponential {
                max_value: prepared.highest,
                first_bucket_size: prepared.highest * FIRST_BUCKET,
                growth_ratio: BUCKET_GROWTH,
            });
        let mut weights = vec![0.0; buckets.len()];
        for (age, value) in prepared.values.iter().rev().enumerate() {
            let bucket = weights.get_mut(buckets.index(*value));
            // A missing value has no weight, although `index` gives it a bucket.
            if let Some(bucket) = bucket.filter(|_| !value.is_nan()) {
                let weight = (value / prepared.highest).max(self.config.min_sample_weight);
                *bucket += weight * (-count(age) * half_lives).exp2();
            }
        }
        for weight in &mut weights {
            if *weight < epsilon {
                *weight = 0.0;
            }
        }
        let enough = self.config.percentile * weights.iter().sum::<f64>();
        let mut below = 0.0;
        let reached = weights.iter().position(|weight| {
            below += weight;
            // An empty bucket has no sample that could be the percentile.
            *weight > 0.0 && below >= enough
        });
        // Rounding of the sum may leave `enough` just out of reach.
        let last = weights
            .iter()
            .rposition(|weight| *weight > 0.0)
            .unwrap_or(0);
        // A bucket ends above the samples in it.
        buckets.end(reached.unwrap_or(last)).min(prepared.highest)
    }
}

impl Forecaster for Percentile {
    fn name(&self) -> &'static str {
        "percentile"
    }

    fn history_length(&self) -> SignedDuration {
        with_slack(self.config.history_length)
    }

    fn sample_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    /// An hour: a half-life is a day.
    fn refit_interval(&self) -> SignedDuration {
        SignedDuration::from_hours(1)
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
            least: LEAST_HISTORY,
            most: self.history_length(),
        };
        let prepared = PreparedHistory::new(history, requirements)?;
        let factor = (1.0 + self.config.margin_fraction) / self.config.target_utilization;
        let mut point = vec![self.estimate(&prepared) * factor; wanted];
        let clamped = clamp_to_ceiling(&mut point, prepared.highest)?;
        let forecast = Forecast::new(self.name(), prepared.end, step, point, prepared.valid_until)?;
        Ok(forecast
            .with_notes(prepared.notes)
            .with_notes(clamped.then_some(Note::Clamped)))
    }
}

// === impl Histogram ===

impl Histogram {
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range.
    fn check(&self) -> Result<(), ConfigError> {
        if !self.half_life.is_positive() {
            let value = format_args!("{:#}", self.half_life).to_string();
            return Err(ConfigError::new(
                "percentile.histogram.halfLife",
                value,
                "above 0",
            ));
        }
        if !(self.epsilon > 0.0 && self.epsilon < 1.0) {
            let expected = "above 0 and below 1";
            return Err(ConfigError::new(
                "percentile.histogram.epsilon",
                self.epsilon,
                expected,
            ));
        }
        self.buckets.map_or(Ok(()), Buckets::check)
    }
}

// === impl Buckets ===

impl Buckets {
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range, and `maxValue` if it makes too few or too many
    /// buckets.
    fn check(self) -> Result<(), ConfigError> {
        let (max_value, width) = match self {
            Self::Linear {
                max_value,
                bucket_size,
            } => {
                require_positive("bucketSize", bucket_size)?;
                (max_value, bucket_size)
            }
            Self::Exponential {
                max_value,
                first_bucket_size,
                growth_ratio,
            } => {
                require_positive("firstBucketSize", first_bucket_size)?;
                if !(growth_ratio.is_finite() && growth_ratio > 1.0) {
                    let field = "percentile.histogram.bucketSizeGrowthRatio";
                    return Err(ConfigError::new(
                        field,
                        growth_ratio,
                        "a finite number above 1",
                    ));
                }
                (max_value, first_bucket_size)
            }
        };
        require_positive("maxValue", max_value)?;
        let field = "percentile.histogram.maxValue";
        let buckets = self.position(max_value);
        if max_value < width || buckets.is_nan() || buckets >= MAX_BUCKETS {
            let expected = "at least one bucket and at most 100000";
            return Err(ConfigError::new(field, max_value, expected));
        }
        Ok(())
    }

    /// The number of the bucket of a value, without the limit of the last bucket.
    fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear { bucket_size, .. } => (value / bucket_size).floor(),
            Self::Exponential {
                first_bucket_size: first,
                growth_ratio: ratio,
                ..
            } => {
                // Buckets 0..n span first * (ratio^n - 1) / (ratio - 1).
                ((value / first) * (ratio - 1.0) + 1.0).log(ratio).floor()
            }
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and `clamp` bounds the position by the number of buckets"
    )]
    /// The bucket of a value, also beyond the last one.
    fn index_of(self, value: f64) -> usize {
        self.position(value).clamp(0.0, MAX_BUCKETS) as usize
    }

    /// The number of buckets.
    fn len(self) -> usize {
        let (Self::Linear { max_value, .. } | Self::Exponential { max_value, .. }) = self;
        self.index_of(max_value) + 1
    }

    /// The bucket that a value counts in: the last one for values beyond it.
    fn index(self, value: f64) -> usize {
        self.index_of(value).min(self.len() - 1)
    }

    /// The end of bucket `index`.
    fn end(self, index: usize) -> f64 {
        let n = count(index + 1);
        match self {
            Self::Linear { bucket_size, .. } => n * bucket_size,
            Self::Exponential {
                first_bucket_size: first,
                growth_ratio: ratio,
                ..
            } => first * (ratio.powf(n) - 1.0) / (ratio - 1.0),
        }
    }
}

/// # Errors
/// [`ConfigError`] naming the field if the value is not above 0 and finite.
fn require_positive(field: &str, value: f64) -> Result<(), ConfigError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    let field = format!("percentile.histogram.{field}");
    Err(ConfigError::new(field, value, "a finite number above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    const STEP: SignedDuration = SignedDuration::from_mins(10);

    fn config() -> Config {
        let buckets = Some(Buckets::Linear {
            max_value: 100.0,
            bucket_size: 1.0,
        });
        let histogram = Histogram {
            buckets,
            ..Histogram::default()
        };
        Config {
            sample_interval: STEP,
            histogram,
            ..Config::default()
        }
    }

    fn estimate(config: Config, values: &[f64]) -> f64 {
        let history = Series::from_values(Timestamp::UNIX_EPOCH, STEP, values.to_vec());
        let forecast = Percentile::new(config)
            .unwrap()
            .forecast(&history, STEP * 3)
            .unwrap();
        let point = forecast.point();
        assert!(point.len() == 3 && point.iter().all(|v| v.to_bits() == point[0].to_bits()));
        point[0]
    }

    #[test]
    fn the_forecast_is_the_end_of_the_bucket_that_reaches_the_percentile() {
        let even: Vec<f64> = (0..100).map(|i| f64::from(i % 10) + 0.5).collect();
        let long = SignedDuration::from_hours(1_000_000);
        let calm = |percentile| {
            let histogram = Histogram {
                half_life: long,
                ..config().histogram
            };
            Config {
                percentile,
                histogram,
                min_sample_weight: 1.0,
                ..config()
            }
        };
        let cases = [
            ("median of even weights", calm(0.495), 5.0),
            ("highest sample, not its bucket's end", calm(1.0), 9.5),
            (
                "margin",
                Config {
                    margin_fraction: 0.5,
                    ..calm(0.495)
                },
                7.5,
            ),
            (
                "utilization",
                Config {
                    target_utilization: 0.5,
                    ..calm(0.495)
                },
                10.0,
            ),
            (
                "ceiling",
                Config {
                    target_utilization: 0.1,
                    ..calm(1.0)
                },
                14.25,
            ),
            // Weights 0.5 + 1.5 + ... + 9.5 = 50; up to 6.5 they are 24.5, up to 7.5 they are 32.
            (
                "high samples weigh more",
                Config {
                    min_sample_weight: 1e-5,
                    ..calm(0.5)
                },
                8.0,
            ),
        ];
        for (name, config, expected) in cases {
            let value = estimate(config, &even);
            assert!((value - expected).abs() < 1e-9, "{name}: {value}");
        }
    }

    #[test]
    fn old_samples_fade_with_the_half_life() {
        let values = [vec![50.0; 144], vec![5.0; 144]].concat();
        let with = |hours| {
            let histogram = Histogram {
                half_life: SignedDuration::from_hours(hours),
                ..config().histogram
            };
            estimate(
                Config {
                    histogram,
                    percentile: 0.9,
                    ..config()
                },
                &values,
            )
        };
        // A day ago weighs 2^-24 with an hour, half with a day; the high samples also weigh ten times as much.
        assert!((with(1) - 6.0).abs() < 1e-9, "{}", with(1));
        assert!((with(24) - 50.0).abs() < 1e-9, "{}", with(24));
    }

    #[test]
    fn buckets_from_the_history_are_fine_enough_for_any_unit() {
        for unit in [1e-9, 1.0, 1e12] {
            let values: Vec<f64> = (0..200).map(|i| f64::from(i % 10 + 1) * unit).collect();
            let config = Config {
                sample_interval: STEP,
                percentile: 0.5,
                ..Config::default()
            };
            let ratio = estimate(config, &values) / unit;
            // Weights 1 + 2 + ... + 10 = 55; half of that is reached at 7.
            assert!((ratio - 7.0).abs() < 0.02, "{ratio}");
        }
    }

    fn rejected_field(config: Config) -> String {
        Percentile::new(config).unwrap_err().field
    }

    #[test]
    fn settings_out_of_range_are_errors_that_name_the_field() {
        type Change = fn(&mut Config);
        fn set_linear(config: &mut Config, bucket_size: f64) {
            config.histogram.buckets = Some(Buckets::Linear {
                max_value: 100.0,
                bucket_size,
            });
        }
        const GROWS_BY_NOTHING: Buckets = Buckets::Exponential {
            max_value: 100.0,
            first_bucket_size: 0.1,
            growth_ratio: 1.0,
        };
        let cases: [(Change, &str); 8] = [
            (|c| c.percentile = 1.5, "percentile"),
            (|c| c.target_utilization = 0.0, "targetUtilization"),
            (|c| c.min_sample_weight = f64::NAN, "minSampleWeight"),
            (
                |c| c.histogram.half_life = SignedDuration::ZERO,
                "histogram.halfLife",
            ),
            (|c| set_linear(c, 0.0), "histogram.bucketSize"),
            (|c| set_linear(c, 1e-9), "histogram.maxValue"),
            (|c| set_linear(c, 101.0), "histogram.maxValue"),
            (
                |c| c.histogram.buckets = Some(GROWS_BY_NOTHING),
                "histogram.bucketSizeGrowthRatio",
            ),
        ];
        for (change, field) in cases {
            let mut config = Config::default();
            change(&mut config);
            assert_eq!(rejected_field(config), format!("percentile.{field}"));
        }
    }
}
