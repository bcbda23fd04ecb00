//! From a series with holes and nonsense to demand step by step: one value per step, each known to be measured or made
//! up. Takes in only what is new. Judges nothing; `mod` does. Next: `online`.

use jiff::{SignedDuration, Timestamp};

use super::learner::LEAST_MINUTES;
use super::online::{Online, Seen};
use crate::gaps::{ABSURD_RATIO, ABSURD_RUN, ABSURD_RUNS, quantile_in_place};
use crate::grid::Grid;
use crate::series::{Series, count, later, slots};

/// A hole of so many minutes is filled with the value before it; what is beyond, with that of the day before.
const HELD_MINUTES: i64 = 5;
/// What a sum of two weeks of values must not come near to: more than that is no demand.
const LARGEST: f64 = 1e300;

/// A model and how far it has read.
#[derive(Debug, Clone)]
pub(super) struct Intake {
    online: Online,
    /// Slots of the history that make a step.
    width: usize,
    step: SignedDuration,
    /// The instant of the next step to read.
    next: Timestamp,
    learnt_from: Timestamp,
    /// The usual demand of the first two hours: what the first value is judged by, which nothing came before.
    opening: f64,
    /// How many steps were measured, and how many were not believed.
    usable: usize,
    rejected: usize,
    /// The last value, and how many steps have gone by without a believable one.
    last: f64,
    hole: usize,
    doubted: Doubted,
}

/// Values that were not believed.
#[derive(Debug, Clone, Copy, Default)]
struct Doubted {
    /// How many in a row, and the highest of them.
    run: usize,
    highest: f64,
    /// At which height runs of more than one ended lately, and how many there were.
    height: f64,
    runs: usize,
}

// === impl Doubted ===

impl Doubted {
    /// Counts a value; whether there are too many in a row for errors.
    fn goes_on(&mut self, value: f64) -> bool {
        self.run += 1;
        self.highest = self.highest.max(value);
        self.run > ABSURD_RUN
    }

    /// Whether runs of about this height have been seen too often for errors.
    fn recurs(&self, value: f64) -> bool {
        self.runs > ABSURD_RUNS && self.is_alike(value)
    }

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

    fn is_alike(&self, value: f64) -> bool {
        (0.5..=2.0).contains(&(value / self.height))
    }
}

// === impl Intake ===

impl Intake {
    /// A model at the first sample of a history.
    pub(super) fn new(online: Online, history: &Series, step: SignedDuration) -> Self {
        let width = slots(step, history.step()).unwrap_or(1).max(1);
        let seconds = step.as_secs().max(1);
        let whole = |slot: &usize| history.time_at(*slot).as_second() % seconds == 0;
        let first = history.values().iter().position(|value| !value.is_nan());
        let first = first.unwrap_or(history.len());
        // Steps begin at round times, where the history's slots do.
        let start = (0..=first).rev().take(width).find(whole).unwrap_or(first);
        let slots = history.values().get(start..).unwrap_or_default();
        let opening = usual_at_first(slots, width, step);
        let start = history.time_at(start);
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
            doubted: Doubted::default(),
        }
    }

    /// Whether what comes next is in this history, and nothing that was measured before the first sample known. Never
    /// while the first two hours are not complete: nothing is answered before, and they are judged as a whole.
    pub(super) fn continues(&self, history: &Series) -> bool {
        let span = self.next.duration_since(history.start());
        let aligned = span.as_nanos() % history.step().as_nanos().max(1) == 0;
        let reaches = !span.is_negative() && self.next <= history.end();
        let opened = self.usable >= Grid::new(self.step).minutes(LEAST_MINUTES);
        opened && aligned && reaches && !self.was_preceded(history)
    }

    /// Takes in every step up to the newest one that was measured.
    pub(super) fn take(&mut self, history: &Series) {
        let span = self.next.duration_since(history.start());
        let from = slots(span, history.step()).unwrap_or(usize::MAX);
        let new = history.values().get(from..).unwrap_or_default();
        let steps = new.chunks_exact(self.width);
        let heard = steps.clone().rposition(|step| !mean(step).is_nan());
        for step in steps.take(heard.map_or(0, |last| last + 1)) {
            self.take_step(mean(step));
        }
        self.online.calibrate();
    }

    pub(super) fn online(&self) -> &Online {
        &self.online
    }

    /// The instant of the next step: the end of what was measured.
    pub(super) fn next(&self) -> Timestamp {
        self.next
    }

    /// The instant of the newest step that was measured.
    pub(super) fn newest(&self) -> Timestamp {
        self.next.saturating_sub(self.step).unwrap_or(self.next)
    }

    pub(super) fn learnt_from(&self) -> Timestamp {
        self.learnt_from
    }

    pub(super) fn usable(&self) -> usize {
        self.usable
    }

    pub(super) fn rejected(&self) -> usize {
        self.rejected
    }

    /// For how many steps at the end of the history nothing was heard.
    pub(super) fn silent(&self, history: &Series) -> usize {
        slots(history.end().duration_since(self.next), self.step).unwrap_or(0)
    }

    /// Whether a history has been filled in before what was learnt, as stores of metrics are at times.
    fn was_preceded(&self, history: &Series) -> bool {
        let span = self.learnt_from.duration_since(history.start());
        let before = slots(span, history.step()).unwrap_or(0);
        let before = history.values().iter().take(before);
        before.into_iter().any(|value| !value.is_nan())
    }

    fn take_step(&mut self, value: f64) {
        let believed = !value.is_nan() && self.believable(value);
        if believed {
            self.doubted.end_run();
            (self.last, self.hole) = (value, 0);
            self.usable += 1;
            self.online.take(value, Seen::Measured);
        } else {
            self.rejected += usize::from(!value.is_nan());
            self.hole += 1;
            self.online.take(self.filler(), Seen::MadeUp);
        }
        self.next = later(self.next, self.step, 1);
    }

    /// Whether a value is a demand: not a hundred times the highest so far, unless that goes on or recurs.
    fn believable(&mut self, value: f64) -> bool {
        if value > LARGEST {
            return false;
        }
        let highest = match self.online.highest() {
            highest if highest > 0.0 => highest,
            _ => self.opening,
        };
        if highest <= 0.0 || value / ABSURD_RATIO <= highest {
            return true;
        }
        self.doubted.goes_on(value) || self.doubted.recurs(value)
    }

    fn filler(&self) -> f64 {
        let grid = Grid::new(self.step);
        let past = self.online.past();
        let yesterday = past.end().checked_sub(grid.day());
        let short = self.hole <= grid.minutes(HELD_MINUTES);
        match yesterday.and_then(|step| past.at(step)) {
            Some(value) if !short => value,
            _ => self.last,
        }
    }
}

/// The median of the positive demand in the first two hours of measured steps, `width` slots each; 0 of none.
fn usual_at_first(slots: &[f64], width: usize, step: SignedDuration) -> f64 {
    let measured = slots.chunks_exact(width).map(mean).filter(|v| !v.is_nan());
    let first = measured.take(Grid::new(step).minutes(LEAST_MINUTES));
    let usable = |value: &f64| (f64::MIN_POSITIVE..=LARGEST).contains(value);
    let mut positive: Vec<f64> = first.filter(usable).collect();
    quantile_in_place(&mut positive, 0.5).unwrap_or(0.0)
}

/// The mean of the values that are there; NaN of none.
fn mean(values: &[f64]) -> f64 {
    let there = || values.iter().copied().filter(|value| !value.is_nan());
    let n = count(there().count());
    let sum: f64 = there().sum();
    if sum.is_finite() {
        sum / n
    } else {
        there().map(|value| value / n).sum()
    }
}
