//! [`Dsp`]: crane's digital-signal-processing forecaster. It finds the day or the week in the history, estimates one
//! period and repeats it.
//!
//! ```text
//! gaps (fill holes) -> period (day or week?) -> choose (best of harmonic and seasonal) -> ceiling -> Forecast
//! ```
//!
//! Differences from crane, all intended:
//!
//! - the threshold for a period is analytic instead of a hundred random shuffles;
//! - the lags of a day and a week are tested directly;
//! - holes are filled and outliers ignored; in crane they end the forecast;
//! - growth from period to period is continued;
//! - a constant or steady series is forecast at its level;
//! - amplitudes are relative to the mean, so the unit does not matter;
//! - a component is kept or dropped together with its mirror image;
//! - a forecast expires, and every error names its cause.

use jiff::SignedDuration;

use crate::choose::{Estimator, Periods, Shape};
use crate::config::{ConfigError, require_grid, require_history, require_margin};
use crate::error::ForecastError;
use crate::forecast::{Forecast, Note, clamp_to_ceiling};
use crate::forecaster::{Forecaster, path_length, with_slack};
use crate::gaps::{HistoryRequirements, PreparedHistory, hold_extremes, quantile_in_place};
use crate::harmonic::Filter;
use crate::period::{DAY, Period, detect};
use crate::series::{Series, count, slots};
use crate::spectrum::Fourier;

/// crane detects periods at this interval.
const REFIT_INTERVAL: SignedDuration = SignedDuration::from_hours(12);
const TWO_DAYS: SignedDuration = SignedDuration::from_hours(48);

/// A series without period is steady if its standard deviation is at most this part of its mean.
///
/// Two standard deviations are then within the HPA's tolerance of 10 %.
const STEADY: f64 = 0.05;

/// A series is constant if it varies by no more than rounding errors.
const CONSTANT: f64 = 1e-9;

/// Settings of [`Dsp`]; the fields are crane's.
///
/// ```
/// use foretide_models::dsp::{Config, Dsp};
/// use jiff::SignedDuration;
///
/// // One day is not enough to find a day.
/// let config = Config { history_length: SignedDuration::from_hours(24), ..Config::default() };
/// let error = Dsp::new(config).unwrap_err();
/// assert_eq!(error.field, "dsp.historyLength");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The grid of the history: at most an hour, an exact part of a day.
    pub sample_interval: SignedDuration,
    /// The length of the history to use: at least 48 hours, to detect a day; 14 days for a week.
    pub history_length: SignedDuration,
    /// The candidates of the backtest. Empty means [`Estimators::defaults`].
    pub estimators: Estimators,
}

/// The candidates of the backtest. On a tie the first wins, and maxima precede Fourier estimators.
///
/// ```
/// use foretide_models::dsp::{Config, Estimators, MaxValue};
///
/// // The highest value of each time of day, and 10 % more.
/// let estimators = Estimators {
///     max_value: vec![MaxValue { margin_fraction: 0.10 }],
///     ..Estimators::default()
/// };
/// let config = Config { estimators, ..Config::default() };
/// assert!(config.estimators.fft.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Estimators {
    /// Per-phase maxima.
    pub max_value: Vec<MaxValue>,
    /// Denoised last periods.
    pub fft: Vec<Fft>,
}

/// Per phase, the maximum over all periods of the history.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MaxValue {
    /// The margin to add, as a part of the forecast.
    pub margin_fraction: f64,
}

/// The last period of the history, without its weak fast components.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fft {
    /// The margin to add, as a part of the forecast.
    pub margin_fraction: f64,
    /// The amplitude below which fast components are dropped, in percent of the mean of the series. In crane the
    /// threshold is in the unit of the metric, so it must be chosen for each metric.
    pub low_amplitude_threshold: f64,
    /// Components up to this frequency are always kept, in hertz.
    pub high_frequency_threshold: f64,
    /// The least number of the strongest components to keep.
    pub min_num_of_spectrum_items: usize,
    /// Fast components weaker than the n-th strongest of all are dropped.
    pub max_num_of_spectrum_items: usize,
}

/// The dsp forecaster.
///
/// ```
/// use foretide_models::{Forecaster, Series, dsp};
/// use jiff::{SignedDuration, Timestamp};
///
/// // Three days of a daily wave, a value every five minutes.
/// let step = SignedDuration::from_mins(5);
/// let wave = |i: i32| 10.0 + 4.0 * (std::f64::consts::TAU * f64::from(i) / 288.0).sin();
/// let history = Series::from_values(Timestamp::UNIX_EPOCH, step, (0..3 * 288).map(wave).collect());
///
/// let config = dsp::Config { sample_interval: step, ..dsp::Config::default() };
/// let forecast = dsp::Dsp::new(config)?.forecast(&history, SignedDuration::from_hours(24))?;
/// assert_eq!(forecast.period(), Some(SignedDuration::from_hours(24)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// - A sum of harmonics with whole cycles in a day is forecast within 1 % (margin 0).
/// - Scaling the history scales the forecast.
/// - Lengthening the history of a periodic series by whole periods leaves the forecast unchanged.
#[derive(Debug, Clone)]
pub struct Dsp {
    config: Config,
    candidates: Vec<Estimator>,
    /// The margin on the level of a steady series: the least configured one.
    level_margin: f64,
}

// === impl Config ===

/// crane's: a minute, 15 days.
impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: SignedDuration::from_mins(1),
            history_length: SignedDuration::from_hours(15 * 24),
            estimators: Estimators::default(),
        }
    }
}

// === impl Fft ===

/// crane's: no margin, amplitudes from 1, everything slower than an hour, 3 to 100 components.
impl Default for Fft {
    fn default() -> Self {
        Self {
            margin_fraction: 0.0,
            low_amplitude_threshold: 1.0,
            high_frequency_threshold: 1.0 / 3600.0,
            min_num_of_spectrum_items: 3,
            max_num_of_spectrum_items: 100,
        }
    }
}

// === impl Estimators ===

impl Estimators {
    /// crane's eight: two filters, each with margins of 1, 10, 15 and 20 percent.
    ///
    /// ```
    /// use foretide_models::dsp::Estimators;
    ///
    /// let defaults = Estimators::defaults();
    /// assert_eq!((defaults.max_value.len(), defaults.fft.len()), (0, 8));
    /// ```
    ///
    /// # Source
    /// crane's defaults for `fft` estimators.
    pub fn defaults() -> Self {
        let mut fft = Vec::new();
        for (items, amplitude) in [(3, 1.0), (50, 0.05)] {
            fft.extend([0.01, 0.10, 0.15, 0.20].map(|margin_fraction| Fft {
                margin_fraction,
                low_amplitude_threshold: amplitude,
                min_num_of_spectrum_items: items,
                ..Fft::default()
            }));
        }
        Self {
            max_value: Vec::new(),
            fft,
        }
    }

    fn is_empty(&self) -> bool {
        self.max_value.is_empty() && self.fft.is_empty()
    }

    fn check(&self) -> Result<Vec<Estimator>, ConfigError> {
        let mut checked = Vec::new();
        for (i, maximum) in self.max_value.iter().enumerate() {
            let field = format!("dsp.estimators.maxValue[{i}].marginFraction");
            require_margin(&field, maximum.margin_fraction)?;
            checked.push(Estimator {
                shape: Shape::Maximum,
                margin: maximum.margin_fraction,
            });
        }
        for (i, fft) in self.fft.iter().enumerate() {
            let margin = fft.margin_fraction;
            let filter = fft.check(&format!("dsp.estimators.fft[{i}]"))?;
            checked.push(Estimator {
                shape: Shape::Denoised(filter),
                margin,
            });
        }
        Ok(checked)
    }
}

impl Fft {
    fn check(&self, path: &str) -> Result<Filter, ConfigError> {
        require_margin(&format!("{path}.marginFraction"), self.margin_fraction)?;
        let thresholds = [
            ("lowAmplitudeThreshold", self.low_amplitude_threshold),
            ("highFrequencyThreshold", self.high_frequency_threshold),
        ];
        for (name, value) in thresholds {
            if !value.is_finite() || value < 0.0 {
                let expected = "a finite number of at least 0";
                return Err(ConfigError::new(format!("{path}.{name}"), value, expected));
            }
        }
        let (least, most) = (
            self.min_num_of_spectrum_items,
            self.max_num_of_spectrum_items,
        );
        if most == 0 || most < least {
            let field = format!("{path}.maxNumOfSpectrumItems");
            let expected = "at least 1 and at least minNumOfSpectrumItems";
            return Err(ConfigError::new(field, most, expected));
        }
        Ok(Filter {
            low_amplitude: self.low_amplitude_threshold,
            high_frequency: self.high_frequency_threshold,
            min_items: least,
            max_items: most,
        })
    }
}

// === impl Dsp ===

impl Dsp {
    /// A forecaster with these settings.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range. No value is replaced by a default.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let (step, length) = (config.sample_interval, config.history_length);
        require_grid("dsp.sampleInterval", step)?;
        require_history("dsp.historyLength", length, TWO_DAYS, step)?;
        let configured = config.estimators.check()?;
        let level_margin = configured
            .iter()
            .map(|e| e.margin)
            .reduce(f64::min)
            .unwrap_or(0.0);
        let candidates = if config.estimators.is_empty() {
            Estimators::defaults().check()?
        } else {
            configured
        };
        Ok(Self {
            config,
            candidates,
            level_margin,
        })
    }

    /// The forecast of a periodic series: one period by the best estimator, repeated with its growth.
    ///
    /// # Shape
    /// `values` without holes, the newest last, in units of `unit`; the result has `wanted` values, the first of
    /// which follows the last of `values`.
    fn periodic(
        &self,
        fourier: &mut Fourier,
        values: &[f64],
        period: Period,
        wanted: usize,
    ) -> Result<Vec<f64>, ForecastError> {
        // All periods end with the newest value, so the rest at the front belongs to none.
        let whole = values.len() / period.slots * period.slots;
        let newest = values.get(values.len() - whole..).unwrap_or(values);
        let slope = period.growth / count(period.slots);
        let level: Vec<f64> = newest
            .iter()
            .enumerate()
            .map(|(i, v)| v + slope * (count(whole - 1) - count(i)))
            .collect();
        let step = self.config.sample_interval;
        let periods = Periods {
            level: &level,
            period: period.slots,
            slope,
            step,
        };
        let best = periods
            .best(fourier, &self.candidates)?
            .ok_or(ForecastError::NotFinite)?;
        let shape = periods.shape(fourier, best.shape)?;
        Ok(shape
            .iter()
            .cycle()
            .take(wanted)
            .enumerate()
            .map(|(i, v)| (v + slope * count(i + 1)) * (1.0 + best.margin))
            .collect())
    }
}

impl Forecaster for Dsp {
    fn name(&self) -> &'static str {
        "dsp"
    }

    fn history_length(&self) -> SignedDuration {
        with_slack(self.config.history_length)
    }

    fn sample_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    /// Half a day, as in crane.
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
        let requirements = HistoryRequirements {
            step,
            least: TWO_DAYS,
            most: self.history_length(),
        };
        let prepared = PreparedHistory::new(history, requirements)?;
        // A power of two scales exactly, and keeps squares of the largest and smallest numbers within range.
        let unit = power_of_two_below(prepared.highest);
        let mut fourier = Fourier::new();
        let mut values = normalized(&prepared, DAY, unit);
        let mut notes = prepared.notes_when_filled();
        let spread = Spread::of(&values);
        // The spectrum of a constant series would be one of rounding errors.
        let (mut point, period) = if spread.deviation <= CONSTANT * spread.mean {
            notes.push(Note::Constant);
            (vec![spread.mean * (1.0 + self.level_margin); wanted], None)
        } else {
            match detect(&mut fourier, &values, step) {
                Ok(period) => {
                    // Long holes were filled from the day before; now they are filled from the week before.
                    if period.length != DAY {
                        values = normalized(&prepared, period.length, unit);
                    }
                    notes.extend((period.growth != 0.0).then_some(Note::Trend));
                    (
                        self.periodic(&mut fourier, &values, period, wanted)?,
                        Some(period.length),
                    )
                }
                Err(_) if spread.deviation <= STEADY * spread.mean => {
                    notes.push(Note::Steady);
                    let level = recent_level(&values, step) * (1.0 + self.level_margin);
                    (vec![level; wanted], None)
                }
                Err(error) => return Err(error),
            }
        };
        for value in &mut point {
            *value *= unit;
        }
        notes.extend(clamp_to_ceiling(&mut point, prepared.highest)?.then_some(Note::Clamped));
        let forecast = Forecast::new(self.name(), prepared.end, step, point, prepared.valid_until)?;
        Ok(forecast.with_period(period).with_notes(notes))
    }
}

/// Values without holes and extremes, in units of `unit`.
fn normalized(prepared: &PreparedHistory, season: SignedDuration, unit: f64) -> Vec<f64> {
    let mut values = prepared.filled(slots(season, prepared.step).unwrap_or(1));
    for value in &mut values {
        *value /= unit;
    }
    hold_extremes(&mut values);
    values
}

/// The median of the last day.
fn recent_level(values: &[f64], step: SignedDuration) -> f64 {
    let day = slots(DAY, step).unwrap_or(1);
    let mut newest = values
        .get(values.len().saturating_sub(day)..)
        .unwrap_or(values)
        .to_vec();
    quantile_in_place(&mut newest, 0.5).unwrap_or(0.0)
}

/// The largest power of two that is not above a positive value.
fn power_of_two_below(value: f64) -> f64 {
    // Clearing the mantissa leaves the power of two; subnormal numbers have none and are their own unit.
    let power = f64::from_bits(value.to_bits() & (0x7ff << 52));
    if power > 0.0 { power } else { value }
}

/// The mean of a series and its standard deviation, both in its unit.
struct Spread {
    mean: f64,
    deviation: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let n = count(values.len().max(1));
        let mean = values.iter().sum::<f64>() / n;
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / n;
        Self {
            mean,
            deviation: variance.sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use std::f64::consts::TAU;

    const STEP: SignedDuration = SignedDuration::from_mins(5);
    const DAY_SLOTS: u32 = 288;

    fn history(days: u32, f: impl Fn(f64) -> f64) -> Series {
        let values = (0..days * DAY_SLOTS)
            .map(|i| f(f64::from(i) / 12.0))
            .collect();
        Series::from_values(Timestamp::UNIX_EPOCH, STEP, values)
    }

    fn exact() -> Dsp {
        let fft = vec![Fft::default()];
        let estimators = Estimators {
            fft,
            max_value: vec![],
        };
        Dsp::new(Config {
            sample_interval: STEP,
            estimators,
            ..Config::default()
        })
        .unwrap()
    }

    fn day(h: f64) -> f64 {
        10.0 + 4.0 * (TAU * h / 24.0).sin()
    }

    fn worst(forecast: &Forecast, days: u32, f: impl Fn(f64) -> f64) -> f64 {
        let truth = (days * DAY_SLOTS..).map(|i| f(f64::from(i) / 12.0));
        forecast
            .point()
            .iter()
            .zip(truth)
            .map(|(p, t)| (p - t).abs())
            .fold(0.0, f64::max)
    }

    #[test]
    fn the_forecast_begins_at_the_end_of_the_history_and_expires_ten_minutes_later() {
        let history = history(3, day);
        let forecast = exact()
            .forecast(&history, SignedDuration::from_hours(2))
            .unwrap();
        assert_eq!(forecast.start(), history.end());
        assert_eq!(forecast.point().len(), 24);
        assert_eq!(
            forecast.valid_until(),
            history.end() + SignedDuration::from_secs(600)
        );
        assert_eq!((forecast.period(), forecast.notes()), (Some(DAY), &[][..]));
        assert!(
            worst(&forecast, 3, day) < 0.05,
            "{}",
            worst(&forecast, 3, day)
        );
    }

    #[test]
    fn growth_is_continued() {
        let growing = |h: f64| day(h) + h / 12.0;
        let forecast = exact()
            .forecast(&history(4, growing), SignedDuration::from_hours(36))
            .unwrap();
        assert_eq!(forecast.notes(), [Note::Trend]);
        assert!(
            worst(&forecast, 4, growing) < 0.1,
            "{}",
            worst(&forecast, 4, growing)
        );
    }

    #[test]
    fn a_constant_or_steady_series_is_its_own_forecast() {
        let level = |dsp: &mut Dsp, history: &Series| {
            let forecast = dsp.forecast(history, STEP).unwrap();
            (forecast.point()[0], forecast.notes().to_vec())
        };
        let wobble = |h: f64| 5.0 + 0.1 * ((h * 12.0).powi(2) * 0.37).sin();
        let mut defaults = Dsp::new(Config {
            sample_interval: STEP,
            ..Config::default()
        })
        .unwrap();
        let (constant, notes) = level(&mut defaults, &history(2, |_| 5.0));
        assert!((constant - 5.0).abs() < 1e-9);
        assert_eq!(notes, [Note::Constant]);
        let (steady, notes) = level(&mut defaults, &history(3, wobble));
        assert!((steady - 5.0).abs() < 0.1, "{steady}");
        assert_eq!(notes, [Note::Steady]);
        let estimators = Estimators {
            max_value: vec![MaxValue {
                margin_fraction: 0.2,
            }],
            fft: vec![],
        };
        let margin = Config {
            sample_interval: STEP,
            estimators,
            ..Config::default()
        };
        let (constant, _) = level(&mut Dsp::new(margin).unwrap(), &history(2, |_| 5.0));
        assert!((constant - 6.0).abs() < 1e-9);
    }

    fn rejected_field(config: Config) -> String {
        Dsp::new(config).unwrap_err().field
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        type Change = fn(&mut Config);
        // The second of two estimators.
        fn second(config: &mut Config) -> &mut Fft {
            config.estimators.fft = vec![Fft::default(); 2];
            &mut config.estimators.fft[1]
        }
        let cases: [(Change, &str); 8] = [
            (
                |c| c.history_length = SignedDuration::from_hours(24),
                "historyLength",
            ),
            (|c| c.history_length = SignedDuration::MAX, "historyLength"),
            (
                |c| c.sample_interval = SignedDuration::from_hours(2),
                "sampleInterval",
            ),
            (
                |c| {
                    c.estimators.max_value = vec![MaxValue {
                        margin_fraction: f64::NAN,
                    }];
                },
                "estimators.maxValue[0].marginFraction",
            ),
            (
                |c| second(c).margin_fraction = -1.0,
                "estimators.fft[1].marginFraction",
            ),
            (
                |c| second(c).low_amplitude_threshold = f64::INFINITY,
                "estimators.fft[1].lowAmplitudeThreshold",
            ),
            (
                |c| second(c).high_frequency_threshold = -0.1,
                "estimators.fft[1].highFrequencyThreshold",
            ),
            (
                |c| second(c).max_num_of_spectrum_items = 2,
                "estimators.fft[1].maxNumOfSpectrumItems",
            ),
        ];
        for (change, field) in cases {
            let mut config = Config::default();
            change(&mut config);
            assert_eq!(rejected_field(config), format!("dsp.{field}"));
        }
    }

    #[test]
    fn a_unit_is_the_power_of_two_below() {
        let cases = [
            (1.0, 1.0),
            (5.0, 4.0),
            (0.3, 0.25),
            (f64::MIN_POSITIVE, f64::MIN_POSITIVE),
            (5e-324, 5e-324),
        ];
        for (value, unit) in cases {
            assert_eq!(power_of_two_below(value).to_bits(), f64::to_bits(unit));
        }
    }
}
