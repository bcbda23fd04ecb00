//! [`Preprocessor`]: turns a series with holes and outliers into one demand value per step, measured or imputed, and
//! feeds the model. It reads only what is new in a history.
//!
//! ```text
//! samples   5  5  .  .  .  .  .  .  .  900  5
//! demand    5  5  5  5  5  5  5  y  y   y   5     y: the value of the day before; 900 is an outlier
//! ```

use jiff::{SignedDuration, Timestamp};

use super::learner::LEAST_MINUTES;
use super::online::{OnlineModel, SampleOrigin};
use crate::gaps::{OUTLIER_RATIO, OUTLIER_RUN, OUTLIER_RUNS, quantile_in_place};
use crate::grid::Grid;
use crate::series::{Series, count, later, slots};

/// The first minutes of a hole repeat the value before it; later ones repeat the day before.
const HELD_MINUTES: i64 = 5;
/// Values above this are never demand; a sum of two weeks of smaller ones stays finite.
const LARGEST: f64 = 1e300;

/// A model, and the part of the history that it has read.
#[derive(Debug, Clone)]
pub struct Preprocessor {
    online: OnlineModel,
    /// Slots of the history in one step.
    width: usize,
    step: SignedDuration,
    /// The instant of the next step to read.
    next: Timestamp,
    learnt_from: Timestamp,
    /// The median demand of the first two hours, which the first values are compared with.
    opening: f64,
    /// Steps that were measured, and steps that were rejected as outliers.
    usable: usize,
    rejected: usize,
    /// The last accepted value, and the number of steps since then.
    last: f64,
    hole: usize,
    outliers: OutlierRuns,
}

/// Runs of rejected values.
///
/// As for [`outlier_runs`](crate::outlier_runs), runs that are long or recur are load. Here they are found value by
/// value, because what comes later is not known.
#[derive(Debug, Clone, Copy, Default)]
struct OutlierRuns {
    /// The length of the current run, and its highest value.
    run: usize,
    highest: f64,
    /// The height of the last run of more than one value, and the number of runs of about that height.
    height: f64,
    runs: usize,
}

// === impl OutlierRuns ===

impl OutlierRuns {
    /// Counts a value. Returns true if the run is too long for an error of measurement.
    fn extend(&mut self, value: f64) -> bool {
        self.run += 1;
        self.highest = self.highest.max(value);
        self.run > OUTLIER_RUN
    }

    /// Returns true if runs of about this height are too frequent for errors of measurement.
    fn recurs(&self, value: f64) -> bool {
        self.runs > OUTLIER_RUNS && self.is_alike(value)
    }

    /// Counts a run that is over, unless it was a single value.
    fn end_run(&mut self) {
        if self.run > 1 {
            self.runs = if self.is_alike(self.highest) {
                self.runs + 1
            } else {
                1
            };
            self.height = self.highest;
        }
        (self.run, self.highest) = (0, 0.0);
    }

    /// Returns true if a value is within a factor of two of the height of the last run.
    fn is_alike(&self, value: f64) -> bool {
        (0.5..=2.0).contains(&(value / self.height))
    }
}

// === impl Preprocessor ===

impl Preprocessor {
    /// A model at the first sample of a history.
    pub fn new(online: OnlineModel, history: &Series, step: SignedDuration) -> Self {
        let width = slots(step, history.step()).unwrap_or(1).max(1);
        let seconds = step.as_secs().max(1);
        let first = history
            .values()
            .iter()
            .position(|value| !value.is_nan())
            .unwrap_or(history.len());
        // Steps begin at multiples of their length where the slots of the history allow it.
        let aligned = (0..=first)
            .rev()
            .take(width)
            .find(|slot| history.time_at(*slot).as_second() % seconds == 0)
            .unwrap_or(first);
        let slots = history.values().get(aligned..).unwrap_or_default();
        let opening = opening_median(slots, width, step);
        let start = history.time_at(aligned);
        Self {
            online,
            width,
            step,
            next: start,
            learnt_from: start,
            opening,
            usable: 0,
            rejected: 0,
            last: opening,
            hole: 0,
            outliers: OutlierRuns::default(),
        }
    }

    /// Returns true if this history contains the next step and no sample before the first known one. False until the
    /// first two hours are complete, because their median decides which of their values are outliers.
    pub fn continues(&self, history: &Series) -> bool {
        let span = self.next.duration_since(history.start());
        let aligned = span.as_nanos() % history.step().as_nanos().max(1) == 0;
        let reaches = !span.is_negative() && self.next <= history.end();
        let opened = self.usable >= Grid::new(self.step).minutes(LEAST_MINUTES);
        opened && aligned && reaches && !self.was_preceded(history)
    }

    /// Reads every step up to the newest measured one.
    pub fn take(&mut self, history: &Series) {
        let span = self.next.duration_since(history.start());
        let from = slots(span, history.step()).unwrap_or(usize::MAX);
        let new = history.values().get(from..).unwrap_or_default();
        // A step whose slots are not all there yet is read later.
        let steps = new.chunks_exact(self.width);
        let last_measured = steps.clone().rposition(|step| !mean(step).is_nan());
        // Samples that are missing at the end may only be late.
        let measured = last_measured.map_or(0, |last| last + 1);
        for (n, step) in steps.take(measured).enumerate() {
            let first = from + n * self.width;
            let raw = (first..first + self.width).all(|slot| history.is_raw(slot));
            self.take_step(mean(step), raw);
        }
        self.online.calibrate();
    }

    /// Changes the price of the model.
    pub fn set_price(&mut self, price: f64) {
        self.online.set_price(price);
    }

    /// The model, up to the newest measured step.
    pub fn online(&self) -> &OnlineModel {
        &self.online
    }

    /// The instant of the next step: the end of the measured history.
    pub fn next(&self) -> Timestamp {
        self.next
    }

    /// The instant of the newest step that was measured.
    pub fn newest(&self) -> Timestamp {
        self.next.saturating_sub(self.step).unwrap_or(self.next)
    }

    /// The instant of the first sample of the history that was learned.
    pub fn learnt_from(&self) -> Timestamp {
        self.learnt_from
    }

    /// The number of measured steps.
    pub fn usable(&self) -> usize {
        self.usable
    }

    /// The number of steps whose values were rejected as outliers.
    pub fn rejected(&self) -> usize {
        self.rejected
    }

    /// The number of steps without a sample at the end of the history.
    pub fn missing_at_end(&self, history: &Series) -> usize {
        slots(history.end().duration_since(self.next), self.step).unwrap_or(0)
    }

    /// Returns true if a history has samples before the first one learned, as after a backfill of the metrics store.
    fn was_preceded(&self, history: &Series) -> bool {
        let span = self.learnt_from.duration_since(history.start());
        let before = slots(span, history.step()).unwrap_or(0);
        let mut earlier = history.values().iter().take(before);
        earlier.any(|value| !value.is_nan())
    }

    /// Feeds one step to the model: its value if that is demand, else an imputed one.
    fn take_step(&mut self, value: f64, raw: bool) {
        let accepted = !value.is_nan() && self.is_demand(value);
        if accepted {
            self.outliers.end_run();
            (self.last, self.hole) = (value, 0);
            self.usable += 1;
            self.online.take(value, SampleOrigin::Measured { raw });
        } else {
            self.rejected += usize::from(!value.is_nan());
            self.hole += 1;
            self.online
                .take(self.imputed_value(), SampleOrigin::Imputed);
        }
        self.next = later(self.next, self.step, 1);
    }

    /// Returns true if a value is demand: at most a hundred times the highest so far, unless such values last or recur.
    fn is_demand(&mut self, value: f64) -> bool {
        if value > LARGEST {
            return false;
        }
        let highest = match self.online.highest() {
            highest if highest > 0.0 => highest,
            _ => self.opening,
        };
        if highest <= 0.0 || value / OUTLIER_RATIO <= highest {
            return true;
        }
        self.outliers.extend(value) || self.outliers.recurs(value)
    }

    /// The value that stands for a missing step: that of a day before, or in the first minutes of a hole and without
    /// such a day, the last accepted one.
    fn imputed_value(&self) -> f64 {
        let grid = Grid::new(self.step);
        let buffer = self.online.buffer();
        let yesterday = buffer.end().checked_sub(grid.day());
        let short = self.hole <= grid.minutes(HELD_MINUTES);
        match yesterday.and_then(|step| buffer.at(step)) {
            Some(value) if !short => value,
            _ => self.last,
        }
    }
}

/// The median of the positive demand in the first two hours of measured steps, `width` slots each; 0 without any.
fn opening_median(slots: &[f64], width: usize, step: SignedDuration) -> f64 {
    let mut positive: Vec<f64> = slots
        .chunks_exact(width)
        .map(mean)
        .filter(|value| !value.is_nan())
        .take(Grid::new(step).minutes(LEAST_MINUTES))
        .filter(|value| (f64::MIN_POSITIVE..=LARGEST).contains(value))
        .collect();
    quantile_in_place(&mut positive, 0.5).unwrap_or(0.0)
}

/// The mean of the values that are not missing; NaN without any.
fn mean(values: &[f64]) -> f64 {
    let present = values.iter().copied().filter(|value| !value.is_nan());
    let n = count(present.clone().count());
    let sum: f64 = present.clone().sum();
    // The sum of huge values may overflow where their mean does not.
    if sum.is_finite() {
        sum / n
    } else {
        present.map(|value| value / n).sum()
    }
}
