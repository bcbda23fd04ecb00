//! [`HoltWinters`]: additive Holt-Winters smoothing, with a level, a trend and one season. It does not test whether the
//! season exists. Settings under which its errors would grow are rejected.

use jiff::SignedDuration;

use crate::config::{ConfigError, require_grid};
use crate::error::ForecastError;
use crate::forecast::{Forecast, Note, clamp_to_ceiling};
use crate::forecaster::{Forecaster, path_length, with_slack};
use crate::gaps::{HistoryRequirements, PreparedHistory};
use crate::period::DAY;
use crate::series::{MAX_SLOTS, Series, count, slots};

/// The shortest and the longest season.
const SEASONS: (SignedDuration, SignedDuration) = (
    SignedDuration::from_hours(1),
    SignedDuration::from_hours(15 * 24),
);

/// Settings of [`HoltWinters`].
///
/// ```
/// use foretide_models::holt_winters::{Config, HoltWinters};
///
/// // Large factors are rejected, because the errors of a season of a day would grow.
/// let config = Config { alpha: 0.9, beta: 0.9, gamma: 0.9, ..Config::default() };
/// let error = HoltWinters::new(config).unwrap_err();
/// assert_eq!(error.field, "holtWinters.beta");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The grid of the history.
    pub sample_interval: SignedDuration,
    /// How much history to use: at least two seasons, one for the initial state and one to learn from.
    pub history_length: SignedDuration,
    /// The period of the series: 1 h to 15 d, a whole number of sample intervals.
    pub season: SignedDuration,
    /// The smoothing factor of the level: above 0, at most 1.
    pub alpha: f64,
    /// The smoothing factor of the trend, as a part of `alpha`: 0 to 1. At 0 there is no trend. With `gamma` above 0,
    /// only values near 0 are stable.
    pub beta: f64,
    /// The smoothing factor of the season: 0 to 1.
    pub gamma: f64,
}

/// One minute, 7 days, a season of a day, small smoothing factors, no trend.
///
/// # Source
/// With small smoothing factors, the best of the classical forecasters in a study on workload traces.
impl Default for Config {
    fn default() -> Self {
        Self {
            sample_interval: SignedDuration::from_mins(1),
            history_length: SignedDuration::from_hours(7 * 24),
            season: DAY,
            alpha: 0.2,
            beta: 0.0,
            gamma: 0.2,
        }
    }
}

/// The Holt-Winters forecaster.
///
/// ```
/// use foretide_models::{Forecaster, Series, holt_winters};
/// use jiff::{SignedDuration, Timestamp};
///
/// let hour = SignedDuration::from_hours(1);
/// let config = holt_winters::Config { sample_interval: hour, ..holt_winters::Config::default() };
/// let daily = |i: i32| f64::from(10 + i % 24);
/// let history = Series::from_values(Timestamp::UNIX_EPOCH, hour, (0..72).map(daily).collect());
/// let forecast = holt_winters::HoltWinters::new(config)?.forecast(&history, hour * 2)?;
/// // A series that repeats exactly is forecast exactly.
/// assert!((forecast.point()[1] - 11.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With the error `e = y - (level + trend + season[i])` of each sample: `level += trend + alpha e`,
/// `trend += alpha beta e`, `season[i] += gamma e`. The level starts at the mean of the first season of the history,
/// the trend at zero, the season at what that first season deviates from its mean.
///
/// # Guarantees
/// - A series that repeats exactly is forecast exactly.
/// - Scaling the history scales the forecast; adding a constant shifts it, short of the bounds of every forecast.
/// - The effect of one sample on the forecast decays: smoothing factors for which it would grow are rejected.
#[derive(Debug, Clone)]
pub struct HoltWinters {
    config: Config,
}

/// The state of the recursion.
#[derive(Debug)]
struct State {
    level: f64,
    trend: f64,
    /// By phase; index 0 is that of the first sample.
    season: Vec<f64>,
}

// === impl Config ===

impl Config {
    /// Checks every setting.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range.
    fn check(&self) -> Result<(), ConfigError> {
        let step = self.sample_interval;
        require_grid("holtWinters.sampleInterval", step)?;
        // The grid was checked, so the step is not zero.
        let whole = self.season.as_nanos() % step.as_nanos() == 0;
        if self.season < SEASONS.0 || self.season > SEASONS.1 || self.season < step * 2 || !whole {
            let season = format_args!("{:#}", self.season).to_string();
            let expected =
                "between 1h and 15d, and a whole number of sample intervals, two at least";
            return Err(ConfigError::new("holtWinters.season", season, expected));
        }
        let fits = slots(with_slack(self.history_length), step);
        if self.history_length < self.season * 2 || fits.is_none_or(|slots| slots >= MAX_SLOTS) {
            let length = format_args!("{:#}", self.history_length).to_string();
            let expected = "at least two seasons, and at most a million samples";
            return Err(ConfigError::new(
                "holtWinters.historyLength",
                length,
                expected,
            ));
        }
        self.check_factors()
    }

    /// Checks that each smoothing factor is in its range, and that together they are stable.
    fn check_factors(&self) -> Result<(), ConfigError> {
        if !(self.alpha > 0.0 && self.alpha <= 1.0) {
            let expected = "above 0 and at most 1";
            return Err(ConfigError::new("holtWinters.alpha", self.alpha, expected));
        }
        if !(0.0..=1.0).contains(&self.gamma) || self.alpha + self.gamma >= 2.0 {
            let expected = "between 0 and 1, and below 1 if alpha is 1";
            return Err(ConfigError::new("holtWinters.gamma", self.gamma, expected));
        }
        let season = slots(self.season, self.sample_interval).map_or(2.0, count);
        if !(0.0..=1.0).contains(&self.beta)
            || self.beta >= steepest(self.alpha, self.gamma, season)
        {
            let expected = "between 0 and 1, and near 0 if gamma is above 0: with a larger trend factor \
                the errors of a long season grow";
            return Err(ConfigError::new("holtWinters.beta", self.beta, expected));
        }
        Ok(())
    }
}

/// The `beta` at which the errors of the recursion begin to grow, for a season of `season` steps.
///
/// # Source
/// Written with the lag operator B, a series is `H(B)` times its forecast errors, with `H = 1 + alpha B/(1-B) + alpha
/// beta B/(1-B)^2 + gamma B^m/(1-B^m)`. On the unit circle, at the frequency w, `Re H = 1 - (alpha + gamma)/2 - alpha
/// beta / (4 sin^2(w/2))` and `Im H = -(alpha cot(w/2) + gamma cot(m w/2)) / 2`. By the criterion of Nyquist the
/// errors die out as long as the real part is positive where the imaginary one first vanishes, between half a cycle
/// and a whole one per season. For a day of minutes the limit of `beta` is a few hundred-thousandths. With 0.9 for all
/// three, as the manual of another autoscaler suggests, the forecast exceeds the data by orders of magnitude.
fn steepest(alpha: f64, gamma: f64, season: f64) -> f64 {
    if gamma == 0.0 {
        return f64::INFINITY;
    }
    let half_turn = std::f64::consts::PI / season;
    let (mut low, mut high) = (half_turn / 2.0, half_turn);
    // Halved 60 times, the interval is below the precision of a double.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if alpha / middle.tan() + gamma / (season * middle).tan() > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    4.0 * low.sin().powi(2) * (1.0 - f64::midpoint(alpha, gamma)) / alpha
}

// === impl HoltWinters ===

impl HoltWinters {
    /// A forecaster with these settings.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that is out of range.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { config })
    }

    /// The state after all values, each relative to the highest.
    ///
    /// # Shape
    /// `values` without holes; the first `season` of them are the initial state, and the phase of the first one is 0.
    fn learn(&self, values: &[f64], season: usize) -> State {
        let mut seasons = values.chunks(season);
        let mut state = State::starting_at(seasons.next().unwrap_or_default());
        for values in seasons {
            for (phase, value) in values.iter().enumerate() {
                state.correct(phase, *value, &self.config);
            }
        }
        state
    }
}

impl Forecaster for HoltWinters {
    fn name(&self) -> &'static str {
        "holtWinters"
    }

    fn history_length(&self) -> SignedDuration {
        with_slack(self.config.history_length)
    }

    fn sample_interval(&self) -> SignedDuration {
        self.config.sample_interval
    }

    fn forecast(
        &mut self,
        history: &Series,
        horizon: SignedDuration,
    ) -> Result<Forecast, ForecastError> {
        let Config {
            sample_interval: step,
            season,
            ..
        } = self.config;
        let wanted = path_length(horizon, step)?;
        let requirements = HistoryRequirements {
            step,
            least: season * 2,
            most: self.history_length(),
        };
        let prepared = PreparedHistory::new(history, requirements)?;
        let length = slots(season, step).unwrap_or(1).max(1);
        // Relative to the highest sample, so that no sum overflows.
        let highest = prepared.highest;
        let mut values = prepared.filled(length);
        for value in &mut values {
            *value /= highest;
        }
        let state = self.learn(&values, length);
        let mut point: Vec<f64> = (0..wanted)
            .map(|ahead| state.ahead(ahead, values.len()) * highest)
            .collect();
        let clamped = clamp_to_ceiling(&mut point, highest)?;
        let forecast = Forecast::new(self.name(), prepared.end, step, point, prepared.valid_until)?;
        Ok(forecast
            .with_period(Some(season))
            .with_notes(prepared.notes_when_filled())
            .with_notes(clamped.then_some(Note::Clamped)))
    }
}

// === impl State ===

impl State {
    /// The state before the second season: the mean of the first one, and how each of its values differs from it.
    fn starting_at(first: &[f64]) -> Self {
        let level = first.iter().sum::<f64>() / count(first.len().max(1));
        Self {
            level,
            trend: 0.0,
            season: first.iter().map(|value| value - level).collect(),
        }
    }

    /// Corrects the state by the error of one value: see [`HoltWinters`] for the formula.
    fn correct(&mut self, phase: usize, value: f64, config: &Config) {
        let Some(season) = self.season.get_mut(phase) else {
            return;
        };
        let error = value - (self.level + self.trend + *season);
        self.level += self.trend + config.alpha * error;
        self.trend += config.alpha * config.beta * error;
        *season += config.gamma * error;
    }

    /// The prediction for `ahead` steps after the one that follows the last of `seen` samples.
    fn ahead(&self, ahead: usize, seen: usize) -> f64 {
        let phase = (seen + ahead) % self.season.len().max(1);
        let season = self.season.get(phase).copied().unwrap_or(0.0);
        self.level + count(ahead + 1) * self.trend + season
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    const STEP: SignedDuration = SignedDuration::from_hours(1);

    fn config() -> Config {
        Config {
            sample_interval: STEP,
            ..Config::default()
        }
    }

    fn forecast(config: Config, values: Vec<f64>, steps: i32) -> Vec<f64> {
        let history = Series::from_values(Timestamp::UNIX_EPOCH, STEP, values);
        let mut forecaster = HoltWinters::new(config).unwrap();
        let forecast = forecaster.forecast(&history, STEP * steps).unwrap();
        forecast.point().to_vec()
    }

    fn hours(n: u32, f: impl Fn(u32) -> f64) -> Vec<f64> {
        (0..n).map(f).collect()
    }

    #[test]
    fn a_periodic_series_is_forecast_exactly() {
        let wave = |i: u32| 5.0 + f64::from(i * i % 24);
        let path = forecast(config(), hours(72 + 7, wave), 48);
        for (ahead, value) in (79..).zip(path) {
            assert!((value - wave(ahead)).abs() < 1e-9, "{ahead}: {value}");
        }
    }

    #[test]
    fn a_step_of_the_level_is_followed_by_a_fifth_of_what_is_left() {
        // After a day at 10 and one at 10, three hours at 20: level 10, 12, 13.6, 14.88; the season of those three
        // hours rises by a fifth of each error, the next hour's does not.
        let path = forecast(config(), [vec![10.0; 48], vec![20.0; 3]].concat(), 24);
        assert!((path[0] - 14.88).abs() < 1e-9, "{}", path[0]);
        assert!((path[21] - (14.88 + 0.2 * 10.0)).abs() < 1e-9);
        assert!((path[22] - (14.88 + 0.2 * 8.0)).abs() < 1e-9);
    }

    #[test]
    fn with_a_trend_growth_continues() {
        let growing = |i: u32| 100.0 + f64::from(i);
        let trending = Config {
            beta: 0.2,
            gamma: 0.0,
            season: STEP * 2,
            ..config()
        };
        let path = forecast(trending, hours(160, growing), 2);
        // The first season's mean put half a step of the growth into the season.
        assert!((path[0] - 260.0).abs() < 1.0, "{path:?}");
        assert!((path[1] - path[0] - 1.0).abs() < 1.1, "{path:?}");
        let flat = forecast(config(), hours(160, growing), 2);
        assert!(flat[0] < 260.0);
    }

    /// The distance of the forecast from the level, `seasons` seasons after a single deviating sample.
    fn ringing(config: &Config, seasons: usize) -> f64 {
        let season = slots(config.season, STEP).unwrap();
        let mut state = State::starting_at(&vec![0.0; season]);
        state.correct(0, 1.0, config);
        let mut largest = 0.0_f64;
        for i in 1..season * seasons {
            state.correct(i % season, 0.0, config);
            if i >= season * (seasons - 2) {
                largest = largest.max(state.ahead(0, i + 1).abs());
            }
        }
        largest
    }

    #[test]
    fn errors_die_out_below_the_steepest_trend_and_grow_above_it() {
        let parts = [0.1, 0.3, 0.6, 0.9];
        for (season, alpha, gamma) in [2, 5, 24]
            .into_iter()
            .flat_map(|s| parts.map(|a| (s, a)))
            .flat_map(|(s, a)| parts.map(|g| (s, a, g)))
        {
            let edge = steepest(alpha, gamma, f64::from(season));
            let with = |beta| Config {
                alpha,
                beta,
                gamma,
                season: STEP * season,
                ..config()
            };
            let calm = with(0.8 * edge);
            let (early, late) = (ringing(&calm, 400), ringing(&calm, 800));
            assert!(late < early.max(1e-20), "{calm:?}: {early} {late}");
            let wild = with(1.25 * edge);
            let (early, late) = (ringing(&wild, 400), ringing(&wild, 800));
            assert!(late > early, "{wild:?}: {early} {late}");
        }
    }

    #[test]
    fn factors_of_0_9_with_a_day_of_minutes_diverge() {
        let phpa = Config {
            alpha: 0.9,
            beta: 0.9,
            gamma: 0.9,
            season: STEP * 1440,
            ..config()
        };
        let loud = ringing(&phpa, 7);
        assert!(loud > 10.0, "{loud}");
        let edge = steepest(0.2, 0.2, 1440.0);
        assert!((1e-5..1e-4).contains(&edge), "{edge}");
    }

    #[test]
    fn settings_out_of_range_are_errors_that_name_the_field() {
        type Change = fn(&mut Config);
        let cases: [(Change, &str); 10] = [
            (|c| (c.alpha, c.beta, c.gamma) = (0.9, 0.9, 0.9), "beta"),
            (|c| c.alpha = 0.0, "alpha"),
            (|c| c.alpha = f64::NAN, "alpha"),
            (|c| c.beta = 1.5, "beta"),
            (|c| c.gamma = -0.1, "gamma"),
            (|c| c.season = SignedDuration::from_secs(3601), "season"),
            (|c| c.season = SignedDuration::MAX, "season"),
            (
                |c| c.history_length = SignedDuration::from_hours(47),
                "historyLength",
            ),
            (|c| c.history_length = SignedDuration::MAX, "historyLength"),
            (
                |c| c.sample_interval = SignedDuration::ZERO,
                "sampleInterval",
            ),
        ];
        for (change, field) in cases {
            let mut config = Config::default();
            change(&mut config);
            let error = HoltWinters::new(config).unwrap_err();
            assert_eq!(error.field, format!("holtWinters.{field}"));
        }
    }

    #[test]
    fn less_than_two_seasons_are_an_error() {
        let history = Series::from_values(Timestamp::UNIX_EPOCH, STEP, vec![1.0; 47]);
        let error = HoltWinters::new(config()).unwrap().forecast(&history, STEP);
        assert_eq!(error.unwrap_err().reason(), "InsufficientHistory");
    }
}
