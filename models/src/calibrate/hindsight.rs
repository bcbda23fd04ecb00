//! What a forecaster said, or would have said, of each decision window of the past. Asked at fixed instants, so that
//! it does not matter when the question was put; each is asked once. Next: `past`.

use std::fmt;

/// Not asked yet.
const UNASKED: f64 = f64::NAN;
/// Asked, and refused.
const REFUSED: f64 = f64::NEG_INFINITY;

/// The highest that was said of the window that begins at each step.
///
/// # Shape
/// Steps are numbered from the epoch; the forecaster is asked at multiples of `every`, and each answer serves the windows
/// that begin before the next one.
#[derive(Clone)]
pub(super) struct Hindsight {
    every: usize,
    window: usize,
    /// The step of the first value, a multiple of `every`.
    first: i64,
    values: Vec<f64>,
}

// === impl Hindsight ===

impl Hindsight {
    /// Nothing asked yet; windows reach `window` steps beyond the one they begin at.
    pub(super) fn new(every: usize, window: usize) -> Self {
        Self {
            every: every.max(1),
            window,
            first: 0,
            values: Vec::new(),
        }
    }

    /// The fixed instant at or before a step.
    pub(super) fn origin(&self, step: i64) -> i64 {
        step - step.rem_euclid(self.stride())
    }

    /// How many steps an answer must cover.
    pub(super) fn reach(&self) -> usize {
        self.every + self.window
    }

    /// The instants whose answers serve `from..until` and are not known yet, oldest first.
    pub(super) fn unasked(&self, from: i64, until: i64) -> Vec<i64> {
        let first = self.origin(from);
        let origins = std::iter::successors(Some(first), |origin| Some(origin + self.stride()));
        origins
            .take_while(|origin| *origin < until)
            .filter(|origin| self.raw(*origin).is_nan())
            .collect()
    }

    /// Whether there was no answer at this instant.
    pub(super) fn was_refused(&self, origin: i64) -> bool {
        self.raw(origin).total_cmp(&REFUSED).is_eq()
    }

    /// Keeps what the path asked at `origin` says of the windows up to the next instant; no path means a refusal.
    pub(super) fn note(&mut self, origin: i64, path: Option<&[f64]>) {
        let Some(at) = self.room_for(origin) else {
            return;
        };
        let slots = self.values.iter_mut().skip(at).take(self.every);
        for (i, slot) in slots.enumerate() {
            let window = path.and_then(|path| path.get(i..=i + self.window));
            let highest = window.and_then(|window| window.iter().copied().reduce(f64::max));
            *slot = highest.unwrap_or(REFUSED);
        }
    }

    /// What was said of the window that begins at `step`.
    pub(super) fn get(&self, step: i64) -> Option<f64> {
        Some(self.raw(step)).filter(|value| value.is_finite())
    }

    /// Forgets what served windows before `step` only.
    pub(super) fn forget_before(&mut self, step: i64) {
        let gone = usize::try_from(self.origin(step) - self.first).unwrap_or(0);
        let gone = gone.min(self.values.len());
        self.values.drain(..gone);
        self.first += super::steps(gone);
    }

    fn stride(&self) -> i64 {
        super::steps(self.every)
    }

    fn raw(&self, step: i64) -> f64 {
        let at = usize::try_from(step - self.first).ok();
        let value = at.and_then(|at| self.values.get(at)).copied();
        value.unwrap_or(UNASKED)
    }

    /// Where the values of an instant begin, after making room for them on either side.
    fn room_for(&mut self, origin: i64) -> Option<usize> {
        if self.values.is_empty() {
            self.first = origin;
        }
        if let Ok(missing) = usize::try_from(self.first - origin) {
            let front = std::iter::repeat_n(UNASKED, missing);
            self.values.splice(..0, front);
            self.first = origin;
        }
        let at = usize::try_from(origin - self.first).ok()?;
        let end = at + self.every;
        if end > self.values.len() {
            self.values.resize(end, UNASKED);
        }
        Some(at)
    }
}

/// How much there is, not the thousands of numbers.
impl fmt::Debug for Hindsight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hindsight")
            .field("every", &self.every)
            .field("window", &self.window)
            .field("steps", &self.values.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_serves_the_windows_that_begin_before_the_next_one() {
        let mut hindsight = Hindsight::new(3, 1);
        assert_eq!((hindsight.origin(11), hindsight.origin(-1)), (9, -3));
        assert_eq!(hindsight.reach(), 4);
        hindsight.note(9, Some(&[1.0, 5.0, 2.0, 3.0]));
        hindsight.note(3, None);
        let said: Vec<_> = (8..13).map(|step| hindsight.get(step)).collect();
        assert_eq!(said, [None, Some(5.0), Some(5.0), Some(3.0), None]);
        assert_eq!(hindsight.unasked(0, 15), [0, 6, 12]);
        hindsight.forget_before(10);
        assert_eq!(hindsight.unasked(0, 10), [0, 3, 6]);
        assert_eq!(hindsight.get(9), Some(5.0));
    }
}
