//! The candidates: naive repetitions, calibrated persistence, and any forecaster of this crate refitted at intervals.

use jiff::{SignedDuration, Timestamp};

use super::candidate::{Candidate, Tuning, highest, level};
use super::{DAY, mean, median};
use crate::conformal::{Errors, RankedErrors};
use crate::grid::Grid;
use crate::{Forecast, Forecaster, Series};

const MINUTE: SignedDuration = SignedDuration::from_secs(60);

/// The number of seasons of the statistics over several.
const SEASONS: usize = 7;

/// Minutes over which the current level is compared with yesterday's, and the bounds of that ratio.
const RATIO_SPAN: usize = 15;
const RATIO_BOUNDS: (f64, f64) = (0.2, 5.0);

/// A candidate without state: a function of the demand so far.
///
/// # Shape
/// Each forecasts the highest demand of minutes `t..=t + window`, from the demand before `t`.
#[derive(Debug, Clone, Copy)]
pub struct NaiveCandidate {
    name: &'static str,
    window: usize,
    forecast: fn(&[f64], usize) -> Option<f64>,
}

/// Calibrated persistence: the mean of the last five minutes, raised by the quantile of its own errors.
#[derive(Debug)]
pub struct CalibratedPersistence {
    quantiles: &'static [f64],
    window: usize,
    /// Added to demand before taking logarithms.
    offset: Option<f64>,
    errors: Errors,
    ranked: RankedErrors,
    /// The quantiles of the errors, in the order of `quantiles`.
    raised_by: Vec<f64>,
}

/// A forecaster of this crate, refitted at an interval to the demand of the last days. Between fits, and when a fit
/// fails, its last forecast stays in use.
#[derive(Debug)]
pub struct RefittedCandidate {
    name: &'static str,
    forecaster: Box<dyn Forecaster>,
    /// In minutes.
    refit_every: usize,
    window: usize,
    asked: usize,
    last: Option<Forecast>,
}

// === impl NaiveCandidate ===

impl NaiveCandidate {
    /// All naive candidates: `hpa` (the last minute; a margin on it is a lower target), the same window yesterday and
    /// a week ago, yesterday's window scaled to today's level, and the median and maximum of the last seven days.
    #[must_use]
    pub fn all(window: usize) -> [Self; 6] {
        let plain = |name, forecast| Self {
            name,
            window,
            forecast,
        };
        [
            plain("hpa", |known, _| known.last().copied()),
            plain("snaive-day", |known, window| ago(known, window, DAY)),
            plain("snaive-week", |known, window| ago(known, window, 7 * DAY)),
            plain("snaive-day*level", yesterday_at_level),
            plain("median-7d", |known, window| median(seasons(known, window))),
            plain("max-7d", |known, window| {
                seasons(known, window).into_iter().reduce(f64::max)
            }),
        ]
    }
}

impl Candidate for NaiveCandidate {
    fn name(&self) -> &'static str {
        self.name
    }

    fn at(&mut self, known: &[f64]) -> Vec<f64> {
        (self.forecast)(known, self.window).into_iter().collect()
    }
}

/// The highest demand of the same window, `minutes` minutes ago.
fn ago(known: &[f64], window: usize, minutes: usize) -> Option<f64> {
    highest(known, known.len().checked_sub(minutes)?, window)
}

fn yesterday_at_level(known: &[f64], window: usize) -> Option<f64> {
    let yesterday = known.len().checked_sub(DAY)?;
    let now = level(known, known.len(), RATIO_SPAN)?;
    let then = level(known, yesterday, RATIO_SPAN)?;
    let (least, most) = RATIO_BOUNDS;
    let ratio = if then > 0.0 {
        (now / then).clamp(least, most)
    } else {
        1.0
    };
    Some(highest(known, yesterday, window)? * ratio)
}

/// The highest demand of the same window on each of the last days.
fn seasons(known: &[f64], window: usize) -> Vec<f64> {
    (1..=SEASONS)
        .filter_map(|day| ago(known, window, day * DAY))
        .collect()
}

// === impl CalibratedPersistence ===

impl CalibratedPersistence {
    /// Minutes of the level, and minutes between two rankings of the errors.
    const SPAN: usize = 5;

    /// A candidate for these quantiles.
    #[must_use]
    pub fn new(quantiles: &'static [f64], window: usize) -> Self {
        Self {
            quantiles,
            window,
            offset: None,
            errors: Errors::with_capacity(8 * DAY),
            ranked: RankedErrors::new(Grid::new(MINUTE)),
            raised_by: Vec::new(),
        }
    }

    /// Records the error of the forecast whose window has just ended.
    fn record(&mut self, known: &[f64], offset: f64) -> Option<()> {
        let made = known.len().checked_sub(self.window + 1)?;
        let forecast = level(known, made, Self::SPAN)?;
        let actual = highest(known, made, self.window)?;
        self.errors
            .record(made, (actual + offset).ln() - (forecast + offset).ln());
        Some(())
    }

    fn rank(&mut self, now: usize) {
        let known = now.saturating_sub(self.window + 1);
        if self
            .ranked
            .rank(&self.errors, Grid::new(MINUTE), now, known)
        {
            self.raised_by = self
                .quantiles
                .iter()
                .map(|&q| self.ranked.quantile(q))
                .collect();
        }
    }

    /// Sets the offset to twice the mean before the run, and records the errors of the minutes before.
    fn begin(&mut self, known: &[f64]) -> f64 {
        let offset = 2.0
            * mean(known.iter().copied())
                .unwrap_or(0.0)
                .max(f64::MIN_POSITIVE);
        for t in 0..known.len() {
            self.record(known.get(..t).unwrap_or_default(), offset);
        }
        self.rank(known.len());
        self.offset = Some(offset);
        offset
    }
}

impl Candidate for CalibratedPersistence {
    fn name(&self) -> &'static str {
        "persist+conformal"
    }

    fn tuning(&self) -> Tuning {
        Tuning::Quantile(self.quantiles)
    }

    fn at(&mut self, known: &[f64]) -> Vec<f64> {
        let offset = match self.offset {
            Some(offset) => offset,
            None => self.begin(known),
        };
        self.record(known, offset);
        if known.len().is_multiple_of(Self::SPAN) {
            self.rank(known.len());
        }
        let Some(level) = level(known, known.len(), Self::SPAN) else {
            return Vec::new();
        };
        let raise = |by: &f64| ((level + offset) * by.exp() - offset).max(0.0);
        self.raised_by.iter().map(raise).collect()
    }
}

// === impl RefittedCandidate ===

impl RefittedCandidate {
    /// How long a forecast stays in use while fits fail: two days.
    const HORIZON: usize = 2 * DAY;

    /// A candidate that fits every `refit_every` minutes and forecasts the highest demand of the next `window`
    /// minutes.
    #[must_use]
    pub fn new(
        name: &'static str,
        forecaster: Box<dyn Forecaster>,
        refit_every: usize,
        window: usize,
    ) -> Self {
        Self {
            name,
            forecaster,
            refit_every,
            window,
            asked: 0,
            last: None,
        }
    }

    fn refit(&mut self, known: &[f64]) {
        let keep = whole_minutes(self.forecaster.history_length());
        let dropped = known.len().saturating_sub(keep);
        let history = known.get(dropped..).unwrap_or_default().to_vec();
        let series = Series::from_values(instant(dropped), MINUTE, history);
        if let Ok(forecast) = self.forecaster.forecast(&series, span(Self::HORIZON)) {
            self.last = Some(forecast);
        }
    }
}

impl Candidate for RefittedCandidate {
    fn name(&self) -> &'static str {
        self.name
    }

    fn at(&mut self, known: &[f64]) -> Vec<f64> {
        if self.asked.is_multiple_of(self.refit_every) {
            self.refit(known);
        }
        self.asked += 1;
        let now = instant(known.len());
        let peak = self.last.as_ref().and_then(|forecast| {
            let made = whole_minutes(now.duration_since(forecast.start()));
            highest(forecast.point(), made, self.window)
        });
        peak.into_iter().collect()
    }
}

fn whole_minutes(span: SignedDuration) -> usize {
    usize::try_from(span.as_mins()).unwrap_or(0)
}

fn span(minutes: usize) -> SignedDuration {
    SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(i64::MAX / 60))
}

/// A minute as an instant, counted from the epoch.
fn instant(minute: usize) -> Timestamp {
    Timestamp::UNIX_EPOCH
        .checked_add(span(minute))
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Accuracy, Workload, forecasts, highest_of_next};
    use crate::{ForecastError, seasonal};

    fn named(name: &str, window: usize) -> NaiveCandidate {
        NaiveCandidate::all(window)
            .into_iter()
            .find(|plain| plain.name() == name)
            .unwrap()
    }

    #[test]
    fn each_naive_candidate_repeats_the_named_window() {
        // Eight days of one step each: day 0 is at 1, 3, 5, 7, 2, 4, 6, 8; the last minute of the window is 0.5 higher.
        let levels = [1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0];
        let mut known: Vec<f64> = levels.iter().flat_map(|&level| vec![level; DAY]).collect();
        known.extend([12.0; 15]);
        for day in 0..8 {
            known[day * DAY + 17] += 0.5;
        }
        let cases = [
            ("hpa", 12.0),
            ("snaive-day", 8.5),
            ("snaive-week", 3.5),
            ("snaive-day*level", 8.5 * 1.5),
            ("median-7d", 5.5),
            ("max-7d", 8.5),
        ];
        for (name, expected) in cases {
            assert_eq!(named(name, 2).at(&known), [expected], "{name}");
        }
        assert_eq!(
            named("snaive-day", 1).at(&known),
            [8.0],
            "the window ends before"
        );
    }

    #[test]
    fn without_enough_history_there_is_no_forecast() {
        let known = [1.0; 100];
        for plain in NaiveCandidate::all(5) {
            let silent = named(plain.name(), 5).at(&known).is_empty();
            assert_eq!(silent, plain.name() != "hpa", "{}", plain.name());
        }
    }

    #[test]
    fn the_level_ratio_is_bounded() {
        let known = |yesterday: f64, now: f64| [vec![yesterday; DAY], vec![now; 15]].concat();
        let at = |yesterday, now| named("snaive-day*level", 2).at(&known(yesterday, now));
        assert_eq!(at(1.0, 100.0), [5.0]);
        assert_eq!(at(100.0, 1.0), [20.0]);
        assert_eq!(at(0.0, 1.0), [0.0]);
    }

    #[test]
    fn calibrated_persistence_covers_its_quantile() {
        // Noise from a linear congruence: as irregular as needed, and always the same.
        let noise = |state: &mut u32| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some(10.0 + f64::from(*state >> 16) / 65536.0)
        };
        let demand: Vec<f64> = (0..7200).scan(7, |state, _| noise(state)).collect();
        let workload = Workload::new(&demand).unwrap();
        let mut candidate = CalibratedPersistence::new(&[0.5, 0.9], 5);
        let actual = highest_of_next(&workload, 5);
        let paths = forecasts(&mut candidate, &workload);
        for (path, asked) in paths.iter().zip([50.0, 90.0]) {
            let accuracy = Accuracy::of(&workload, path, &actual).unwrap();
            assert!(
                (accuracy.coverage - asked).abs() < 2.0,
                "{asked}: {accuracy:?}"
            );
        }
    }

    /// Forecasts the number of calls; fails at the second one.
    #[derive(Debug, Default)]
    struct CountingForecaster {
        asked: u32,
        seen: Vec<usize>,
    }

    impl Forecaster for CountingForecaster {
        fn name(&self) -> &'static str {
            "stub"
        }

        fn history_length(&self) -> SignedDuration {
            SignedDuration::from_mins(30)
        }

        fn sample_interval(&self) -> SignedDuration {
            MINUTE
        }

        fn forecast(
            &mut self,
            history: &Series,
            horizon: SignedDuration,
        ) -> Result<Forecast, ForecastError> {
            self.asked += 1;
            self.seen.push(history.len());
            if self.asked == 2 {
                return Err(ForecastError::ZeroSeries);
            }
            let length = u32::try_from(whole_minutes(horizon)).unwrap_or(0);
            let path = (0..length)
                .map(|i| f64::from(self.asked) * 10_000.0 + f64::from(i))
                .collect();
            Forecast::new("stub", history.end(), MINUTE, path, history.end())
        }
    }

    #[test]
    fn a_refitted_forecaster_reuses_its_last_forecast() {
        let demand = [1.0; 100];
        let mut candidate =
            RefittedCandidate::new("stub", Box::new(CountingForecaster::default()), 10, 4);
        let answers: Vec<f64> = (50..80).flat_map(|t| candidate.at(&demand[..t])).collect();
        let fitted = |first: u32, fit: u32| {
            (first..).map(move |i| f64::from(fit) * 10_000.0 + f64::from(i + 4))
        };
        let expected: Vec<f64> = fitted(0, 1).take(20).chain(fitted(0, 3).take(10)).collect();
        assert_eq!(answers, expected);
    }

    #[test]
    fn a_forecaster_of_the_crate_agrees_with_the_naive_candidate() {
        let demand: Vec<f64> = (0..3000_u32).map(|t| f64::from(t % 97) + 1.0).collect();
        let forecaster =
            Box::new(seasonal::SeasonalNaive::new(seasonal::Config::default()).unwrap());
        let mut candidate = RefittedCandidate::new("seasonalNaive", forecaster, 1, 5);
        let (mine, theirs) = (candidate.at(&demand), named("snaive-day", 5).at(&demand));
        assert!((mine[0] - theirs[0]).abs() < 1e-9, "{mine:?} {theirs:?}");
    }
}
