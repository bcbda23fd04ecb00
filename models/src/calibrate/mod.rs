//! [`Calibrated`]: adds a measured margin to any forecaster. It backcasts: for each past decision window it asks the
//! forecaster what it would have predicted, compares that with the actual peak demand, and adds the quantile of these
//! errors. A poor forecaster becomes reliable, but expensive.
//!
//! ```text
//! history -> backcast (past predictions) -> outcomes (errors) -> conformal (quantile) -> margin
//! ```

mod backcast;
mod outcomes;

use std::ops::Range;

use jiff::{SignedDuration, Timestamp};

use self::backcast::Backcast;
use self::outcomes::Outcomes;
use crate::config::ConfigError;
use crate::error::ForecastError;
use crate::forecast::{DemandBounds, Forecast, Note, Peak, Quality, clamp_to_ceiling};
use crate::forecaster::{Forecaster, path_length};
use crate::gaps::{HistoryRequirements, PreparedHistory};
use crate::grid::Grid;
use crate::series::{Series, later, slots, steps};

/// History fetched in addition to that of the wrapped forecaster: seven days of errors at this time of day, and the
/// half hour around it.
const ERROR_HISTORY: SignedDuration = SignedDuration::from_hours(7 * 24 + 1);

/// Minutes that the decision window adds to the lead time.
///
/// # Source
/// Windows of one to six minutes beyond the lead time are equally good on real traces; three is the middle.
const BEYOND_LEAD: i64 = 3;

/// The accepted quantiles and lead times.
const QUANTILES: (f64, f64) = (0.5, 0.999);
const LEADS: (SignedDuration, SignedDuration) =
    (SignedDuration::ZERO, SignedDuration::from_hours(6));

/// Settings of [`Calibrated`].
///
/// ```
/// use foretide_models::calibrate::{Calibrated, Config};
/// use foretide_models::seasonal::{self, SeasonalNaive};
///
/// let inner = SeasonalNaive::new(seasonal::Config::default())?;
/// let config = Config { quantile: 0.3, ..Config::default() };
/// let error = Calibrated::new(Box::new(inner), &config).unwrap_err();
/// assert_eq!(error.to_string(), "quantile is 0.3; expected between 0.5 and 0.999");
/// # Ok::<(), foretide_models::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The share of decision windows whose peak demand is to stay within the forecast: 0.5 to 0.999.
    pub quantile: f64,
    /// The time until added capacity serves, at most six hours. The decision window is this, rounded up to minutes,
    /// plus three minutes.
    pub lead_time: SignedDuration,
}

/// The 0.9 quantile, two minutes.
impl Default for Config {
    fn default() -> Self {
        Self {
            quantile: 0.90,
            lead_time: SignedDuration::from_mins(2),
        }
    }
}

/// A forecaster that adds a measured margin to another one.
///
/// With `l(v) = ln(v + c)`, `c` twice the mean of the last week, each instant `i` of the past has the error
/// `l(Z) - l(f)`: `Z` is the peak demand of the decision window that began at `i`, `f` the peak that the wrapped
/// forecaster predicted for that window at or before `i`, from the history before. The configured quantile of the
/// errors at this time of day in the last week and at any time in the last two days is added to the current
/// forecast.
///
/// The wrapped forecaster is asked at fixed instants, every [`refit_interval`](Forecaster::refit_interval), for
/// backcasts and for the current forecast alike, so that the measured errors are those of the forecasts in use.
///
/// ```
/// use foretide_models::{Forecaster, Series, calibrate, seasonal};
/// use jiff::{SignedDuration, Timestamp};
///
/// let inner = seasonal::SeasonalNaive::new(seasonal::Config::default())?;
/// let config = calibrate::Config::default();
/// let mut forecaster = calibrate::Calibrated::new(Box::new(inner), &config)?;
///
/// let minute = SignedDuration::from_mins(1);
/// let values = (0..2 * 1440).map(|i| 100.0 + f64::from(i * 7 % 20)).collect();
/// let history = Series::from_values(Timestamp::UNIX_EPOCH, minute, values);
/// let forecast = forecaster.forecast(&history, minute * 10)?;
/// let peak = forecast.direct().unwrap();
/// assert_eq!((peak.quantile, peak.window), (0.9, minute * 5));
/// assert!((peak.value - 115.0).abs() < 1e-9, "{peak:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
/// - State kept between calls changes the cost of a forecast, not the forecast.
/// - The direct estimate and the upper path are within `[0, 1.5 * highest sample]`.
/// - With fewer than forty errors nothing is added: there is no direct estimate and no upper path, the path is the
///   wrapped forecaster's own, and the forecast has the note [`Note::Uncalibrated`].
///
/// # Shape
/// The upper path adds to each single value the margin measured on window peaks. It is meant for charts; for decisions
/// use the direct estimate.
///
/// # Source
/// Weighted split conformal prediction, as in [`auto`](crate::auto).
#[derive(Debug)]
pub struct Calibrated {
    inner: Box<dyn Forecaster>,
    quantile: f64,
    grid: Grid,
    /// The decision window, in steps.
    window: usize,
    backcast: Backcast,
    /// The newest path, and the step it was made at.
    path: Option<(i64, Forecast)>,
    /// The newest quality, and the step it was measured at.
    quality: Option<(i64, Quality)>,
}

// === impl Config ===

impl Config {
    fn check(&self) -> Result<(), ConfigError> {
        let (least, most) = QUANTILES;
        if !(least..=most).contains(&self.quantile) {
            let expected = "between 0.5 and 0.999";
            return Err(ConfigError::new("quantile", self.quantile, expected));
        }
        if self.lead_time < LEADS.0 || self.lead_time > LEADS.1 {
            let found = format_args!("{:#}", self.lead_time).to_string();
            return Err(ConfigError::new("leadTime", found, "between 0 and 6h"));
        }
        Ok(())
    }

    /// The decision window in minutes: the lead time rounded up, and [`BEYOND_LEAD`].
    fn window_minutes(&self) -> i64 {
        let nanos = self.lead_time.as_nanos();
        let minute = SignedDuration::from_mins(1).as_nanos();
        let whole = nanos / minute + i128::from(nanos % minute != 0);
        i64::try_from(whole).unwrap_or(0) + BEYOND_LEAD
    }
}

// === impl Calibrated ===

impl Calibrated {
    /// Wraps a forecaster.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first setting that is out of range.
    pub fn new(inner: Box<dyn Forecaster>, config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let grid = Grid::new(inner.sample_interval());
        let window = grid.minutes(config.window_minutes());
        let every = slots(inner.refit_interval(), grid.step()).unwrap_or(1);
        Ok(Self {
            inner,
            quantile: config.quantile,
            grid,
            window,
            backcast: Backcast::new(every, window),
            path: None,
            quality: None,
        })
    }

    /// The span that the direct estimate covers, starting at the end of the history.
    fn decision_window(&self) -> SignedDuration {
        span(self.grid, self.window)
    }

    /// The wrapped forecaster's path over the horizon and the window: that of the last fixed instant, or of now if it
    /// failed then. The history may be sufficient now, and the next fixed instant may be hours away.
    fn path(
        &mut self,
        history: &Series,
        now: i64,
        horizon: SignedDuration,
    ) -> Result<Vec<f64>, ForecastError> {
        // The decision window must be covered, also where a shorter path is asked for.
        let wanted = path_length(horizon, self.grid.step())?.max(self.window + 1);
        let origin = self.backcast.origin(now);
        let age = usize::try_from(now - origin).unwrap_or(0);
        if let Some(rest) = self.rest_of_path(origin, age, wanted) {
            return Ok(rest);
        }
        // Each fixed instant is asked once: its answer, or that it had none, is part of the measured errors.
        if age > 0 && !self.backcast.has_failed(origin) {
            let past = history.before(age, self.inner.history_length());
            let reach = span(self.grid, wanted + self.backcast.reach());
            let answer = self.inner.forecast(&past, reach).ok();
            let path = answer.as_ref().map(Forecast::point);
            self.backcast.record(origin, path);
            self.path = answer.map(|forecast| (origin, forecast));
            if let Some(rest) = self.rest_of_path(origin, age, wanted) {
                return Ok(rest);
            }
        }
        let reach = span(self.grid, wanted + self.backcast.reach());
        let forecast = self.inner.forecast(history, reach)?;
        // The forecast of any other instant is in use until the next one, but is no backcast.
        if age == 0 {
            self.backcast.record(origin, Some(forecast.point()));
        }
        let point = forecast.point().iter().copied().take(wanted).collect();
        self.path = Some((now, forecast));
        Ok(point)
    }

    /// The rest of the newest path `age` steps later, if it was made at `origin`.
    fn rest_of_path(&self, origin: i64, age: usize, wanted: usize) -> Option<Vec<f64>> {
        let (_, forecast) = self.path.as_ref().filter(|(at, _)| *at == origin)?;
        Some(forecast.point().get(age..)?.get(..wanted)?.to_vec())
    }

    /// Returns true if the wrapped forecaster lowered its own path to the ceiling.
    fn is_clamped(&self) -> bool {
        matches!(&self.path, Some((_, forecast)) if forecast.notes().contains(&Note::Clamped))
    }

    /// Adds the missing backcasts for all errors in use.
    fn add_backcasts(&mut self, history: &Series, now: i64) {
        // There is no history before the first sample.
        let oldest = now - steps(history.len());
        let length = self.inner.history_length();
        for (from, until) in outcomes::evaluated_spans(self.grid, now) {
            let not_asked = self.backcast.not_asked(from, until);
            for origin in not_asked.into_iter().filter(|origin| *origin > oldest) {
                let age = usize::try_from(now - origin).unwrap_or(0);
                let reach = span(self.grid, self.backcast.reach());
                let answer = self
                    .inner
                    .forecast(&history.before(age, length), reach)
                    .ok();
                self.backcast
                    .record(origin, answer.as_ref().map(Forecast::point));
            }
        }
        self.backcast.drop_before(outcomes::oldest(self.grid, now));
    }

    /// The quality at the last full hour, measured once an hour.
    ///
    /// `learned` is the span of the samples that the forecast was made from, which is newer than the measurement.
    fn quality(&mut self, outcomes: &Outcomes<'_>, now: i64, learned: Range<Timestamp>) -> Quality {
        let hour = steps(self.grid.minutes(60));
        let at = now - now.rem_euclid(hour);
        match self.quality {
            Some((measured, quality)) if measured == at => Quality {
                learnt_from: learned.start,
                known_until: learned.end,
                ..quality
            },
            _ => {
                let age = usize::try_from(now - at).unwrap_or(0);
                let (coverage, skill) =
                    outcomes.earlier(age).quality(&self.backcast, self.quantile);
                let quality = Quality {
                    coverage,
                    skill,
                    // Whether outcomes are raw is followed by `auto` only.
                    raw: 0.0,
                    learnt_from: learned.start,
                    known_until: learned.end,
                };
                self.quality = Some((at, quality));
                quality
            }
        }
    }
}

impl Forecaster for Calibrated {
    /// The name of the wrapped forecaster.
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    /// The history of the wrapped forecaster and a week of errors.
    fn history_length(&self) -> SignedDuration {
        self.inner.history_length().saturating_add(ERROR_HISTORY)
    }

    fn sample_interval(&self) -> SignedDuration {
        self.inner.sample_interval()
    }

    fn refit_interval(&self) -> SignedDuration {
        self.inner.refit_interval()
    }

    fn forecast(
        &mut self,
        history: &Series,
        horizon: SignedDuration,
    ) -> Result<Forecast, ForecastError> {
        let step = self.sample_interval();
        if history.step() != step {
            let (have, need) = (history.step(), step);
            return Err(ForecastError::StepMismatch { have, need });
        }
        let now = history.end_slot();
        let mut point = self.path(history, now, horizon)?;
        self.add_backcasts(history, now);
        let requirements = HistoryRequirements {
            step,
            // The wrapped forecaster has judged the length of the history.
            least: step,
            most: self.history_length(),
        };
        let prepared = PreparedHistory::new(history, requirements)?;
        let highest = prepared.highest;
        clamp_to_ceiling(&mut point, highest)?;
        let outcomes = Outcomes::new(&prepared, self.grid, self.window, now);
        let peak = point
            .iter()
            .take(self.window + 1)
            .copied()
            .fold(0.0, f64::max);
        let margin = outcomes.margin(&self.backcast, self.quantile);
        let (mut upper, mut clamped) = (Vec::new(), self.is_clamped());
        if let Some(margin) = margin {
            // In one list with the path, so that both are limited alike.
            upper.push(outcomes.raise(peak, margin));
            upper.extend(point.iter().map(|value| outcomes.raise(*value, margin)));
            clamped |= clamp_to_ceiling(&mut upper, highest)?;
        }
        let learnt_from = history.time_at(history.len().saturating_sub(prepared.values.len()));
        let newest = history.last().map_or(history.end(), |sample| sample.at);
        let known_until = later(newest, history.step(), 1).min(history.end());
        let quality = self.quality(&outcomes, now, learnt_from..known_until);
        let inner = self.path.as_ref().map(|(_, forecast)| forecast);
        let notes = inner.map_or(&[][..], Forecast::notes);
        let forecast = Forecast::new(self.name(), prepared.end, step, point, prepared.valid_until)?
            .with_period(inner.and_then(Forecast::period))
            .with_notes(notes.iter().copied().filter(|note| *note != Note::Clamped))
            .with_notes(clamped.then_some(Note::Clamped))
            .with_quality(quality);
        let Some((value, upper)) = upper.split_first() else {
            return Ok(forecast.with_notes([Note::Uncalibrated]));
        };
        forecast.with_upper(upper.to_vec())?.with_peak(Peak {
            window: self.decision_window(),
            value: *value,
            quantile: self.quantile,
            bounds: DemandBounds::both(*value),
        })
    }
}

/// The length of this many steps.
fn span(grid: Grid, steps: usize) -> SignedDuration {
    let factor = i32::try_from(steps).unwrap_or(i32::MAX);
    grid.step()
        .checked_mul(factor)
        .unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, seasonal};

    const STEP: SignedDuration = SignedDuration::from_mins(10);
    const DAY: usize = 144;
    const HORIZON: SignedDuration = SignedDuration::from_hours(2);

    fn naive() -> Algorithm {
        Algorithm::SeasonalNaive(seasonal::Config {
            sample_interval: STEP,
            ..seasonal::Config::default()
        })
    }

    fn median() -> Algorithm {
        Algorithm::SeasonalNaive(seasonal::Config {
            sample_interval: STEP,
            cycles: 3,
            statistic: seasonal::Statistic::Median,
            ..seasonal::Config::default()
        })
    }

    fn calibrated(inner: Algorithm) -> Box<dyn Forecaster> {
        let config = Config {
            lead_time: SignedDuration::from_mins(30),
            ..Config::default()
        };
        let calibrated = Algorithm::Calibrated(Box::new(inner), config);
        calibrated.build().unwrap()
    }

    fn noise(i: usize) -> f64 {
        let hash = (i as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(31);
        let hash = hash.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40;
        f64::from(u32::try_from(hash).unwrap()) / f64::from(1 << 24)
    }

    fn daily(i: usize) -> f64 {
        let turn = std::f64::consts::TAU * crate::series::count(i % DAY) / 144.0;
        10.0 + 4.0 * turn.sin()
    }

    fn series(from: usize, until: usize, f: impl Fn(usize) -> f64) -> Series {
        let start = Timestamp::UNIX_EPOCH + STEP * i32::try_from(from).unwrap();
        Series::from_values(start, STEP, (from..until).map(f).collect())
    }

    #[test]
    fn nine_of_ten_windows_stay_within_the_estimate() {
        let noisy = |i: usize| daily(i) * (0.7 + 0.6 * noise(i));
        for algorithm in [naive(), median()] {
            let mut forecaster = calibrated(algorithm);
            let (mut within, mut windows) = (0, 0);
            for now in 14 * DAY..18 * DAY {
                let forecast = forecaster
                    .forecast(&series(0, now, noisy), HORIZON)
                    .unwrap();
                let peak = forecast.direct().unwrap();
                assert_eq!(peak.window, SignedDuration::from_mins(30));
                let actual = (now..=now + 3).map(noisy).fold(0.0, f64::max);
                within += usize::from(actual <= peak.value);
                windows += 1;
            }
            let part = crate::series::count(within) / crate::series::count(windows);
            assert!((0.86..0.94).contains(&part), "{forecaster:?}: {part}");
        }
    }

    #[test]
    fn kept_state_does_not_change_forecasts() {
        let noisy = |i: usize| {
            let hole = i.is_multiple_of(97);
            if hole { f64::NAN } else { daily(i) + noise(i) }
        };
        for algorithm in [naive(), median()] {
            let mut kept = calibrated(algorithm.clone());
            let length = slots(kept.history_length(), STEP).unwrap();
            for now in (16 * DAY..17 * DAY).step_by(7) {
                let history = series(now - length, now, noisy);
                let [kept, fresh] = [
                    kept.forecast(&history, HORIZON).unwrap(),
                    calibrated(algorithm.clone())
                        .forecast(&history, HORIZON)
                        .unwrap(),
                ];
                assert_eq!(kept, fresh, "{now}");
            }
        }
    }

    #[test]
    fn an_exactly_periodic_series_needs_no_margin_and_has_full_skill() {
        let mut forecaster = calibrated(naive());
        let forecast = forecaster
            .forecast(&series(0, 9 * DAY, daily), HORIZON)
            .unwrap();
        let value = forecast.direct().unwrap().value;
        let actual = (9 * DAY..=9 * DAY + 3).map(daily).fold(0.0, f64::max);
        assert!((value - actual).abs() < 1e-6, "{value} {actual}");
        let quality = forecast.quality().unwrap();
        assert!(
            quality.skill.is_some_and(|skill| skill > 0.99),
            "{quality:?}"
        );
        let eight_days = 8 * DAY + 12;
        assert_eq!(
            quality.learnt_from,
            series(9 * DAY - eight_days, 0, daily).start()
        );
    }

    #[test]
    fn with_too_few_outcomes_no_margin_is_added_and_a_note_is_set() {
        let mut forecaster = calibrated(naive());
        let history = series(0, DAY + 30, daily);
        let forecast = forecaster.forecast(&history, HORIZON).unwrap();
        assert_eq!(forecast.notes(), [Note::Uncalibrated]);
        assert_eq!((forecast.direct(), forecast.upper()), (None, None));
        let short = forecaster.forecast(&series(0, DAY - 1, daily), HORIZON);
        assert!(matches!(
            short,
            Err(ForecastError::InsufficientHistory { .. })
        ));
    }

    #[test]
    fn a_forecaster_that_failed_at_the_last_origin_is_asked_now() {
        let inner = Algorithm::Dsp(crate::dsp::Config {
            sample_interval: STEP,
            ..crate::dsp::Config::default()
        });
        // Two days are complete an hour after the fixed instant, and the next one is eleven hours away.
        let history = series(0, 2 * DAY + 6, daily);
        let history = history.before(0, STEP * i32::try_from(2 * DAY).unwrap());
        let forecast = calibrated(inner).forecast(&history, HORIZON).unwrap();
        assert_eq!(forecast.start(), history.end());
        assert_eq!(forecast.method(), "dsp");
    }

    #[test]
    fn settings_out_of_range_are_errors_that_name_the_field() {
        let with = |quantile, minutes| Config {
            quantile,
            lead_time: SignedDuration::from_mins(minutes),
        };
        for (config, field) in [
            (with(0.4, 2), "quantile"),
            (with(1.0, 2), "quantile"),
            (with(f64::NAN, 2), "quantile"),
            (with(0.9, -1), "leadTime"),
            (with(0.9, 361), "leadTime"),
        ] {
            let error = Calibrated::new(naive().build().unwrap(), &config).unwrap_err();
            assert_eq!(error.field, field);
        }
        assert_eq!(with(0.9, 2).window_minutes(), 5);
        let odd = Config {
            lead_time: SignedDuration::from_secs(121),
            ..Config::default()
        };
        assert_eq!(odd.window_minutes(), 6);
    }
}
