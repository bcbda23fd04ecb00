//! Makes any forecaster honest: asks it in hindsight what it would have said, measures by how much the highest demand
//! of each decision window exceeded that, and adds what keeps the wanted part of the windows within. It finds no
//! pattern of its own: a poor forecaster becomes an honest and expensive one. Next: `hindsight`, `past`, `conformal`.

mod hindsight;
mod past;

use jiff::{SignedDuration, Timestamp};

use self::hindsight::Hindsight;
use self::past::Past;
use crate::forecast::{Forecast, Note, Peak, Quality, guard};
use crate::forecaster::{ConfigError, Forecaster, path_length};
use crate::gaps::{Admitted, Demands};
use crate::grid::Grid;
use crate::refusal::Refusal;
use crate::series::{Series, later, slots};

/// How much more history than the wrapped forecaster's own is fetched: seven days of errors at this time of day, and
/// the half hour around it.
const HINDSIGHT: SignedDuration = SignedDuration::from_hours(7 * 24 + 1);

/// What the decision window adds to the lead time.
///
/// # Source
/// Windows of one to six minutes beyond the lead time are equally good on real traces; three is the middle.
const BEYOND_LEAD: i64 = 3;

/// The quantiles and lead times that can be asked for.
const QUANTILES: (f64, f64) = (0.5, 0.999);
const LEADS: (SignedDuration, SignedDuration) =
    (SignedDuration::ZERO, SignedDuration::from_hours(6));

/// What the calibration aims at.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The part of the decision windows whose highest demand is to stay within the forecast: 0.5 to 0.999.
    pub quantile: f64,
    /// How long until added capacity serves, at most six hours; the decision window is this, rounded up to minutes,
    /// and three minutes.
    pub lead_time: SignedDuration,
}

/// Nine in ten, two minutes.
impl Default for Config {
    fn default() -> Self {
        Self {
            quantile: 0.90,
            lead_time: SignedDuration::from_mins(2),
        }
    }
}

/// A forecaster that answers for another one, with a measured margin.
///
/// With `l(v) = ln(v + c)`, `c` twice the mean of the last week, each instant `i` of the past has the error
/// `l(Z) - l(f)`: `Z` is the highest demand of the decision window that began at `i`, `f` the highest that the wrapped
/// forecaster said of that window, asked at or before `i` and shown only what came before it asked. Of these errors,
/// at this time of day in the last week and at any time in the last two days, the configured quantile is added to what
/// the forecaster says now.
///
/// The wrapped forecaster is asked at fixed instants, every [`refit_interval`](Forecaster::refit_interval), in the
/// past as now, so that what is measured is what is used.
///
/// # Guarantees
/// - What is kept from call to call changes the cost of an answer, not the answer.
/// - The direct answer and the upper path are within `[0, 1.5 * highest sample]`.
/// - With fewer than forty errors nothing is added: there is no direct answer and no upper path, the path is the wrapped
///   forecaster's own, and the forecast says so ([`Note::Uncalibrated`]).
///
/// # Shape
/// The upper path adds to each single value what was measured on the highest of a window. It is a band to look at; the
/// honest number is the direct answer.
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
    hindsight: Hindsight,
    /// The newest path, and the step it was asked at.
    path: Option<(i64, Forecast)>,
    /// The newest judgement, and the step it was made at.
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
            hindsight: Hindsight::new(every, window),
            path: None,
            quality: None,
        })
    }

    /// The span from the end of the history on that the direct answer covers.
    fn decision_window(&self) -> SignedDuration {
        span(self.grid, self.window)
    }

    /// The wrapped forecaster's path over the horizon and the window: that of the last fixed instant, or of now where it
    /// refused then. What was missing then may be there now, and the next fixed instant may be hours away.
    fn path(
        &mut self,
        history: &Series,
        now: i64,
        horizon: SignedDuration,
    ) -> Result<Vec<f64>, Refusal> {
        let wanted = path_length(horizon, self.grid.step())?.max(self.window + 1);
        let origin = self.hindsight.origin(now);
        let age = usize::try_from(now - origin).unwrap_or(0);
        if let Some(rest) = self.rest_of_path(origin, age, wanted) {
            return Ok(rest);
        }
        if age > 0 && !self.hindsight.was_refused(origin) {
            let past = history.before(age, self.inner.history_length());
            let reach = span(self.grid, wanted + self.hindsight.reach());
            let answer = self.inner.forecast(&past, reach).ok();
            let path = answer.as_ref().map(Forecast::point);
            self.hindsight.note(origin, path);
            self.path = answer.map(|forecast| (origin, forecast));
            if let Some(rest) = self.rest_of_path(origin, age, wanted) {
                return Ok(rest);
            }
        }
        let reach = span(self.grid, wanted + self.hindsight.reach());
        let forecast = self.inner.forecast(history, reach)?;
        if age == 0 {
            self.hindsight.note(origin, Some(forecast.point()));
        }
        let point = forecast.point().iter().copied().take(wanted).collect();
        self.path = Some((now, forecast));
        Ok(point)
    }

    /// What the newest path, if it was asked at `origin`, still says `age` steps later.
    fn rest_of_path(&self, origin: i64, age: usize, wanted: usize) -> Option<Vec<f64>> {
        let (_, forecast) = self.path.as_ref().filter(|(at, _)| *at == origin)?;
        let rest = forecast.point().get(age..)?;
        rest.get(..wanted).map(<[f64]>::to_vec)
    }

    fn is_clamped(&self) -> bool {
        let path = self.path.as_ref();
        path.is_some_and(|(_, forecast)| forecast.notes().contains(&Note::Clamped))
    }

    /// Asks in hindsight wherever an error will be looked at.
    fn look_back(&mut self, history: &Series, now: i64) {
        // Before the first sample there is nothing to ask about.
        let oldest = now - steps(history.len());
        let length = self.inner.history_length();
        for (from, until) in past::looked_at(self.grid, now) {
            let unasked = self.hindsight.unasked(from, until);
            for origin in unasked.into_iter().filter(|origin| *origin > oldest) {
                let age = usize::try_from(now - origin).unwrap_or(0);
                let reach = span(self.grid, self.hindsight.reach());
                let answer = self.inner.forecast(&history.before(age, length), reach);
                let path = answer.as_ref().ok().map(Forecast::point);
                self.hindsight.note(origin, path);
            }
        }
        self.hindsight.forget_before(past::oldest(self.grid, now));
    }

    /// How well this has done, as seen from the last full hour: looked at anew once an hour.
    fn judge(
        &mut self,
        past: &Past<'_>,
        now: i64,
        (learnt_from, known_until): (Timestamp, Timestamp),
    ) -> Quality {
        let hour = steps(self.grid.minutes(60));
        let at = now - now.rem_euclid(hour);
        match self.quality {
            Some((judged, quality)) if judged == at => Quality {
                learnt_from,
                known_until,
                ..quality
            },
            _ => {
                let age = usize::try_from(now - at).unwrap_or(0);
                let (coverage, skill) = past.earlier(age).judge(&self.hindsight, self.quantile);
                let quality = Quality {
                    coverage,
                    skill,
                    learnt_from,
                    known_until,
                };
                self.quality = Some((at, quality));
                quality
            }
        }
    }
}

impl Forecaster for Calibrated {
    /// The wrapped forecaster's.
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    /// The wrapped forecaster's and a week of errors.
    fn history_length(&self) -> SignedDuration {
        let length = self.inner.history_length().checked_add(HINDSIGHT);
        length.unwrap_or(SignedDuration::MAX)
    }

    fn sample_interval(&self) -> SignedDuration {
        self.inner.sample_interval()
    }

    fn refit_interval(&self) -> SignedDuration {
        self.inner.refit_interval()
    }

    fn forecast(&mut self, history: &Series, horizon: SignedDuration) -> Result<Forecast, Refusal> {
        let step = self.sample_interval();
        if history.step() != step {
            let (have, need) = (history.step(), step);
            return Err(Refusal::StepMismatch { have, need });
        }
        let now = history.end_slot();
        let mut point = self.path(history, now, horizon)?;
        self.look_back(history, now);
        let demands = Demands {
            step,
            least: step,
            most: self.history_length(),
        };
        let admitted = Admitted::admit(history, demands)?;
        let highest = admitted.highest;
        guard(&mut point, highest)?;
        let past = Past::new(&admitted, self.grid, self.window, now);
        let peak = point
            .iter()
            .take(self.window + 1)
            .copied()
            .fold(0.0, f64::max);
        let margin = past.margin(&self.hindsight, self.quantile);
        let (mut upper, mut clamped) = (Vec::new(), self.is_clamped());
        if let Some(margin) = margin {
            upper.push(past.raise(peak, margin));
            upper.extend(point.iter().map(|value| past.raise(*value, margin)));
            clamped |= guard(&mut upper, highest)?;
        }
        let learnt_from = history.time_at(history.len().saturating_sub(admitted.values.len()));
        let newest = history.last().map_or(history.end(), |sample| sample.at);
        let known_until = later(newest, history.step(), 1).min(history.end());
        let quality = self.judge(&past, now, (learnt_from, known_until));
        let inner = self.path.as_ref().map(|(_, forecast)| forecast);
        let notes = inner.map_or(&[][..], Forecast::notes);
        let forecast = Forecast::new(self.name(), admitted.end, step, point, admitted.valid_until)?
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
        })
    }
}

fn span(grid: Grid, steps: usize) -> SignedDuration {
    let steps = i32::try_from(steps).unwrap_or(i32::MAX);
    grid.step()
        .checked_mul(steps)
        .unwrap_or(SignedDuration::MAX)
}

/// A count of steps as a difference of step numbers.
fn steps(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, holt_winters, linear, seasonal};

    const STEP: SignedDuration = SignedDuration::from_mins(10);
    const DAY: usize = 144;
    const HORIZON: SignedDuration = SignedDuration::from_hours(2);

    fn naive() -> Algorithm {
        Algorithm::SeasonalNaive(seasonal::Config {
            sample_interval: STEP,
            ..seasonal::Config::default()
        })
    }

    fn holt_winters() -> Algorithm {
        Algorithm::HoltWinters(holt_winters::Config {
            sample_interval: STEP,
            ..holt_winters::Config::default()
        })
    }

    fn linear() -> Algorithm {
        Algorithm::Linear(linear::Config {
            sample_interval: STEP,
            samples: 6,
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
    fn nine_of_ten_windows_stay_within_the_answer() {
        let noisy = |i: usize| daily(i) * (0.7 + 0.6 * noise(i));
        for algorithm in [naive(), holt_winters(), linear()] {
            let mut forecaster = calibrated(algorithm);
            let (mut within, mut windows) = (0, 0);
            for now in 14 * DAY..18 * DAY {
                let forecast = forecaster
                    .forecast(&series(0, now, noisy), HORIZON)
                    .unwrap();
                let peak = forecast.direct().unwrap();
                assert_eq!(peak.window, SignedDuration::from_mins(30));
                let came = (now..=now + 3).map(noisy).fold(0.0, f64::max);
                within += usize::from(came <= peak.value);
                windows += 1;
            }
            let part = crate::series::count(within) / crate::series::count(windows);
            assert!((0.86..0.94).contains(&part), "{forecaster:?}: {part}");
        }
    }

    #[test]
    fn what_was_kept_changes_nothing() {
        let noisy = |i: usize| {
            let hole = i.is_multiple_of(97);
            if hole { f64::NAN } else { daily(i) + noise(i) }
        };
        for algorithm in [naive(), holt_winters(), linear()] {
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
    fn what_repeats_exactly_needs_no_margin_and_has_no_equal() {
        let mut forecaster = calibrated(naive());
        let forecast = forecaster
            .forecast(&series(0, 9 * DAY, daily), HORIZON)
            .unwrap();
        let value = forecast.direct().unwrap().value;
        let came = (9 * DAY..=9 * DAY + 3).map(daily).fold(0.0, f64::max);
        assert!((value - came).abs() < 1e-6, "{value} {came}");
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
    fn with_too_few_outcomes_the_forecast_is_the_bare_one_and_says_so() {
        let mut forecaster = calibrated(naive());
        let history = series(0, DAY + 30, daily);
        let forecast = forecaster.forecast(&history, HORIZON).unwrap();
        assert_eq!(forecast.notes(), [Note::Uncalibrated]);
        assert_eq!((forecast.direct(), forecast.upper()), (None, None));
        let short = forecaster.forecast(&series(0, DAY - 1, daily), HORIZON);
        assert_eq!(short.unwrap_err().reason(), "InsufficientHistory");
    }

    #[test]
    fn a_forecaster_that_refused_at_the_last_instant_is_asked_now() {
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
    fn settings_out_of_range_are_refused_by_name() {
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
