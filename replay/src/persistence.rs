//! [`CalibratedPersistence`]: the current level, raised by what its own past errors ask for. It is what any model must
//! beat: the same calibration without a model.

use crate::DAY;
use crate::average::{count, mean};
use crate::candidate::{Answer, BEYOND, Candidate, Tuning, highest, level};
use crate::history::Known;

/// Minutes of the level, and minutes between two rankings of the errors.
const SPAN: usize = 5;
/// Days whose errors at the same time of day count.
const DAYS: usize = 7;
/// The largest distance from the same time of day, in minutes, and the reduction of the weight there.
const NEARBY: (usize, f64) = (30, 0.8);
/// The span of recent errors, in minutes, and the reduction of the weight of the oldest.
const RECENT: (usize, f64) = (2 * DAY, 0.7);
/// Minutes between two errors in use; neighboring errors are nearly equal.
const EVERY: usize = 3;
/// The least number of errors for a quantile.
const LEAST: usize = 40;

/// Calibrated persistence: the mean of the last five minutes, raised by a weighted quantile of its own errors.
///
/// # Formula
/// With `c` twice the mean before the run, an error is `ln((Z + c) / (level + c))`, `Z` the highest demand of the
/// decision window. Two groups of errors weigh the same in total: (a) on each of the last seven days those within half
/// an hour of this time of day, fading linearly to a fifth at the edges; (b) those of the last two days, fading to
/// three tenths. Of both, every third minute is used.
#[derive(Debug)]
pub struct CalibratedPersistence {
    quantiles: &'static [f64],
    window: usize,
    /// Added to demand before taking logarithms.
    offset: Option<f64>,
    errors: PastErrors,
    /// The quantiles of the errors, in the order of `quantiles`.
    raised_by: Vec<f64>,
}

/// The error of the forecast made at each minute from the first one on.
#[derive(Debug, Default)]
struct PastErrors {
    first: usize,
    values: Vec<f64>,
    /// Errors in use with their weights; kept for its memory.
    weighted: Vec<(f64, f64)>,
}

// === impl CalibratedPersistence ===

impl CalibratedPersistence {
    /// A candidate for these quantiles; `start_up` is in minutes.
    pub fn new(quantiles: &'static [f64], start_up: usize) -> Self {
        Self {
            quantiles,
            window: start_up + BEYOND,
            offset: None,
            errors: PastErrors::default(),
            raised_by: Vec::new(),
        }
    }

    /// Records the error of the forecast whose window ends just before minute `now`.
    fn record(&mut self, known: Known<'_>, now: usize, offset: f64) -> Option<()> {
        let made = now.checked_sub(self.window + 1)?;
        let forecast = level(known.history, made, SPAN)?;
        let actual = highest(known.history, made, self.window)?;
        let error = (actual + offset).ln() - (forecast + offset).ln();
        self.errors.record(made, error);
        Some(())
    }

    fn rank(&mut self, now: usize) {
        let known = now.saturating_sub(self.window + 1);
        // With too few errors the quantiles before stay; without any there is no forecast.
        if let Some(quantiles) = self.errors.quantiles(self.quantiles, now, known) {
            self.raised_by = quantiles;
        }
    }

    /// Sets the offset, and records the errors of the minutes before the run.
    fn begin(&mut self, known: Known<'_>) -> f64 {
        let mean = mean(known.history.iter().copied()).unwrap_or(0.0);
        // Above zero, so that a demand of zero has a logarithm.
        let offset = 2.0 * mean.max(f64::MIN_POSITIVE);
        for t in 0..known.len() {
            self.record(known, t, offset);
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

    fn window(&self) -> usize {
        self.window
    }

    fn at(&mut self, known: Known<'_>) -> Vec<Answer> {
        let now = known.len();
        let offset = match self.offset {
            Some(offset) => offset,
            None => self.begin(known),
        };
        self.record(known, now, offset);
        if now.is_multiple_of(SPAN) {
            self.rank(now);
        }
        let Some(level) = level(known.history, now, SPAN) else {
            return Vec::new();
        };
        let raise = |by: &f64| ((level + offset) * by.exp() - offset).max(0.0).into();
        self.raised_by.iter().map(raise).collect()
    }
}

// === impl PastErrors ===

impl PastErrors {
    /// Records the error of the forecast made at a minute: each minute once, in order.
    fn record(&mut self, minute: usize, error: f64) {
        if self.values.is_empty() {
            self.first = minute;
        }
        self.values.push(error);
    }

    /// The weighted quantiles for a forecast made at minute `now`, when the outcomes of forecasts made after `known` are
    /// not known. `None` with too few errors.
    fn quantiles(&mut self, quantiles: &[f64], now: usize, known: usize) -> Option<Vec<f64>> {
        self.weighted.clear();
        self.add_time_of_day(now, known);
        let split = self.weighted.len();
        self.add_recent(known);
        let sum = |part: &[(f64, f64)]| part.iter().map(|(_, weight)| weight).sum::<f64>();
        let (of_the_hour, lately) = self.weighted.split_at(split);
        let (of_the_hour, lately) = (sum(of_the_hour), sum(lately));
        if of_the_hour > 0.0 && lately > 0.0 {
            for (_, weight) in self.weighted.iter_mut().skip(split) {
                *weight *= of_the_hour / lately;
            }
        }
        if self.weighted.len() < LEAST {
            return None;
        }
        self.weighted
            .sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut total = 0.0;
        for (_, weight) in &mut self.weighted {
            total += *weight;
            *weight = total;
        }
        let quantile = |q: &f64| {
            let below = |(_, weight): &(f64, f64)| *weight < q * total;
            let found = self.weighted.get(self.weighted.partition_point(below));
            found.or(self.weighted.last()).map(|(error, _)| *error)
        };
        quantiles.iter().map(quantile).collect()
    }

    fn add_time_of_day(&mut self, now: usize, known: usize) {
        let (reach, fades) = NEARBY;
        for day in 1..=DAYS {
            let Some(center) = now.checked_sub(day * DAY) else {
                return;
            };
            for at in (center.saturating_sub(reach)..=known.min(center + reach)).step_by(EVERY) {
                self.add(at, fade(at.abs_diff(center), reach, fades));
            }
        }
    }

    fn add_recent(&mut self, known: usize) {
        let (reach, fades) = RECENT;
        // A short history needs all of its errors.
        let is_young = self.values.len() < LEAST * EVERY;
        let every = if is_young { 1 } else { EVERY };
        for age in (0..reach.min(known + 1)).step_by(every) {
            self.add(known - age, fade(age, reach, fades));
        }
    }

    fn add(&mut self, minute: usize, weight: f64) {
        let at = minute.checked_sub(self.first);
        let error = at.and_then(|at| self.values.get(at));
        self.weighted.extend(error.map(|error| (*error, weight)));
    }
}

/// The weight at a distance.
fn fade(distance: usize, reach: usize, by: f64) -> f64 {
    1.0 - by * count(distance) / count(reach)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accuracy, History, Workload, forecasts};

    /// Noise from a linear congruence: as irregular as needed, and always the same.
    fn noise() -> Vec<f64> {
        let step = |state: &mut u32, _| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some(10.0 + f64::from(*state >> 16) / 65536.0)
        };
        (0..7200).scan(7, step).collect()
    }

    #[test]
    fn it_covers_its_quantile() {
        let demand = noise();
        let workload = Workload::new(&demand).unwrap();
        let mut candidate = CalibratedPersistence::new(&[0.5, 0.9], 2);
        let paths = forecasts(&mut candidate, &workload, &History::new(&demand, 1));
        for (path, asked) in paths.iter().zip([50.0, 90.0]) {
            let accuracy = Accuracy::of(&workload, path).unwrap();
            assert!(
                (accuracy.coverage - asked).abs() < 2.0,
                "{asked}: {accuracy:?}"
            );
        }
    }

    #[test]
    fn what_it_learns_from_a_smoothed_history_does_not_cover_the_minutes() {
        let demand = noise();
        let workload = Workload::new(&demand).unwrap();
        let mut candidate = CalibratedPersistence::new(&[0.9], 2);
        let paths = forecasts(&mut candidate, &workload, &History::new(&demand, 3));
        let accuracy = Accuracy::of(&workload, &paths[0]).unwrap();
        assert!(accuracy.coverage < 60.0, "{accuracy:?}");
    }

    #[test]
    fn both_groups_weigh_the_same_and_the_newest_errors_the_most() {
        // Errors 0, 1, 2, ... of forecasts made at minutes 0, 1, 2, ... of ten days.
        let mut errors = PastErrors::default();
        for minute in 0..10 * DAY {
            errors.record(minute, count(minute));
        }
        let now = 10 * DAY;
        let mut at = |q: f64| errors.quantiles(&[q], now, now - 1).unwrap()[0];
        // Of seven days, five are older than two days and the sixth half an hour of an hour.
        let older = 5.5 / 14.0;
        let two_days_ago = count(now - 1 - 2 * DAY);
        assert!(at(older - 0.01) < two_days_ago && at(older + 0.01) > two_days_ago);
        assert!(at(0.7) > two_days_ago + 0.5 * count(DAY));
        assert_eq!(at(1.0).to_bits(), count(now - 1).to_bits());
        assert_eq!(PastErrors::default().quantiles(&[0.5], 0, 0), None);
    }
}
