//! [`Backcast`]: the predictions that a forecaster made, or would have made, for each past decision window. Forecast
//! origins are fixed instants, each asked once, so that the result does not depend on when the forecaster was asked.
//!
//! ```text
//! origins   o-----------------o-----------------o     the forecaster is asked at each
//! windows   [-------]                                 one begins at every step; its predicted peak is
//!             [-------]                               that of the path made at the origin before
//! ```

use crate::series::steps;

/// Not asked yet.
const NOT_ASKED: f64 = f64::NAN;
/// Asked, without a forecast.
const FAILED: f64 = f64::NEG_INFINITY;

/// The predicted peak of the window that begins at each step.
///
/// # Shape
/// Steps are numbered from the epoch. The forecaster is asked at multiples of `every`, and each forecast serves the
/// windows that begin before the next one.
#[derive(Clone, derive_more::Debug)]
pub struct Backcast {
    every: usize,
    window: usize,
    /// The step of the first value, a multiple of `every`.
    first: i64,
    #[debug("{}", values.len())]
    values: Vec<f64>,
}

// === impl Backcast ===

impl Backcast {
    /// No backcasts; windows reach `window` steps beyond the one they begin at.
    pub fn new(every: usize, window: usize) -> Self {
        Self {
            every: every.max(1),
            window,
            first: 0,
            values: Vec::new(),
        }
    }

    /// The forecast origin at or before a step.
    pub fn origin(&self, step: i64) -> i64 {
        step - step.rem_euclid(self.stride())
    }

    /// The number of steps that a forecast must cover.
    pub fn reach(&self) -> usize {
        self.every + self.window
    }

    /// The origins that serve `from..until` and have not been asked, oldest first.
    pub fn not_asked(&self, from: i64, until: i64) -> Vec<i64> {
        let first = self.origin(from);
        std::iter::successors(Some(first), |origin| Some(origin + self.stride()))
            .take_while(|origin| *origin < until)
            .filter(|origin| self.raw(*origin).is_nan())
            .collect()
    }

    /// Returns true if the forecaster was asked at this origin and had no forecast.
    pub fn has_failed(&self, origin: i64) -> bool {
        self.raw(origin).total_cmp(&FAILED).is_eq()
    }

    /// Records the peaks of the windows up to the next origin, from the path made at `origin`; `None` if there was
    /// none.
    pub fn record(&mut self, origin: i64, path: Option<&[f64]>) {
        let Some(at) = self.room_for(origin) else {
            return;
        };
        let slots = self.values.iter_mut().skip(at).take(self.every);
        for (i, slot) in slots.enumerate() {
            let window = path.and_then(|path| path.get(i..=i + self.window));
            let highest = window.and_then(|window| window.iter().copied().reduce(f64::max));
            *slot = highest.unwrap_or(FAILED);
        }
    }

    /// The predicted peak of the window that begins at `step`.
    pub fn get(&self, step: i64) -> Option<f64> {
        Some(self.raw(step)).filter(|value| value.is_finite())
    }

    /// Drops the backcasts that serve only windows before `step`.
    pub fn drop_before(&mut self, step: i64) {
        let gone = usize::try_from(self.origin(step) - self.first).unwrap_or(0);
        let gone = gone.min(self.values.len());
        self.values.drain(..gone);
        self.first += steps(gone);
    }

    /// `every` as a difference of step numbers.
    fn stride(&self) -> i64 {
        steps(self.every)
    }

    /// The stored value: a peak, [`FAILED`], or [`NOT_ASKED`] also for steps that are not stored.
    fn raw(&self, step: i64) -> f64 {
        match usize::try_from(step - self.first) {
            Ok(at) => self.values.get(at).copied().unwrap_or(NOT_ASKED),
            Err(_) => NOT_ASKED,
        }
    }

    /// The index of the values of an origin, after making room for them.
    fn room_for(&mut self, origin: i64) -> Option<usize> {
        if self.values.is_empty() {
            self.first = origin;
        }
        if let Ok(missing) = usize::try_from(self.first - origin) {
            // Older origins may be asked for later: the recent days come first.
            let front = std::iter::repeat_n(NOT_ASKED, missing);
            self.values.splice(..0, front);
            self.first = origin;
        }
        let at = usize::try_from(origin - self.first).ok()?;
        let end = at + self.every;
        if end > self.values.len() {
            self.values.resize(end, NOT_ASKED);
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_serves_the_windows_that_begin_before_the_next_origin() {
        let mut backcast = Backcast::new(3, 1);
        assert_eq!((backcast.origin(11), backcast.origin(-1)), (9, -3));
        assert_eq!(backcast.reach(), 4);
        backcast.record(9, Some(&[1.0, 5.0, 2.0, 3.0]));
        backcast.record(3, None);
        let predicted: Vec<_> = (8..13).map(|step| backcast.get(step)).collect();
        assert_eq!(predicted, [None, Some(5.0), Some(5.0), Some(3.0), None]);
        assert_eq!(backcast.not_asked(0, 15), [0, 6, 12]);
        backcast.drop_before(10);
        assert_eq!(backcast.not_asked(0, 10), [0, 3, 6]);
        assert_eq!(backcast.get(9), Some(5.0));
    }
}
