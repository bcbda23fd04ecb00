//! [`DemandBuffer`]: the demand so far, by step, with prefix sums: means in constant time, maxima in the length of
//! their window. It records which steps were imputed, and which are raw.
//!
//! ```text
//! values   v0     v1     v2            of the steps first, first + 1, first + 2
//! sums   0     s1     s2     s3        s3 - s1 is the sum of steps first + 1 and first + 2
//! ```

use std::collections::VecDeque;

use crate::series::count;

/// Steps that are dropped at once when the buffer is full, so that most steps drop none.
const FORGOTTEN_AT_ONCE: usize = 120;

/// Demand by step; the first step pushed is 0.
///
/// # Shape
/// Steps are numbered from the first one that was pushed and keep their numbers when older ones are dropped;
/// `values[i]` is that of step `first + i`.
///
/// # Units
/// That of the history.
#[derive(Debug, Clone)]
pub(super) struct DemandBuffer {
    /// The least number of steps to keep.
    keep: usize,
    /// The step of `values[0]`.
    first: usize,
    values: Vec<f64>,
    /// `sums[i]` is the sum of `values[..i]`.
    sums: Vec<f64>,
    /// The steps whose demand was imputed, oldest first.
    imputed: VecDeque<usize>,
    /// Whether each of `values` is raw: measured in its step alone.
    raw: Vec<bool>,
}

// === impl DemandBuffer ===

impl DemandBuffer {
    /// An empty buffer that keeps the newest `keep` steps.
    pub(super) fn new(keep: usize) -> Self {
        // Without a limit where everything is kept; the lists then grow.
        let room = keep.saturating_add(FORGOTTEN_AT_ONCE + 1).min(1 << 15);
        let mut sums = Vec::with_capacity(room + 1);
        sums.push(0.0);
        Self {
            keep,
            first: 0,
            values: Vec::with_capacity(room),
            sums,
            imputed: VecDeque::new(),
            raw: Vec::with_capacity(room),
        }
    }

    /// Adds the next step's demand, and whether it is raw.
    pub(super) fn push(&mut self, value: f64, raw: bool) {
        if self.values.len() > self.keep.saturating_add(FORGOTTEN_AT_ONCE) {
            self.drop_oldest(self.values.len() - self.keep);
        }
        self.values.push(value);
        self.raw.push(raw);
        self.sums.push(self.sums.last().unwrap_or(&0.0) + value);
    }

    /// Adds the imputed demand of the next step.
    pub(super) fn push_imputed(&mut self, value: f64) {
        self.imputed.push_back(self.end());
        self.push(value, false);
    }

    /// How many of the steps from `from` up to before `to` are raw.
    pub(super) fn raw(&self, from: usize, to: usize) -> usize {
        let at = |step: usize| step.saturating_sub(self.first).min(self.raw.len());
        let steps = self.raw.get(at(from)..at(to)).unwrap_or_default();
        steps.iter().filter(|raw| **raw).count()
    }

    /// How many of the steps from `from` up to before `to` were imputed.
    pub(super) fn imputed(&self, from: usize, to: usize) -> usize {
        let before = |step| self.imputed.partition_point(|imputed| *imputed < step);
        before(to).saturating_sub(before(from))
    }

    /// Drops the oldest `gone` steps, and what is known of them.
    fn drop_oldest(&mut self, gone: usize) {
        self.values.drain(..gone);
        self.raw.drain(..gone);
        // The sums are recomputed, so that dropped values, however large, leave no rounding error.
        let mut sum = 0.0;
        self.sums.truncate(1);
        self.sums.extend(self.values.iter().map(|value| {
            sum += value;
            sum
        }));
        self.first += gone;
        self.imputed
            .drain(..self.imputed.partition_point(|step| *step < self.first));
    }

    /// Bytes kept on the heap.
    pub(super) fn bytes(&self) -> usize {
        size_of::<f64>() * (self.values.capacity() + self.sums.capacity())
            + size_of::<usize>() * self.imputed.capacity()
            + self.raw.capacity()
    }

    /// The oldest step in the buffer.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// The next step.
    pub(super) fn end(&self) -> usize {
        self.first + self.values.len()
    }

    /// The demand of one step, if it is in the buffer.
    pub(super) fn at(&self, step: usize) -> Option<f64> {
        let at = step.checked_sub(self.first)?;
        self.values.get(at).copied()
    }

    /// The mean demand of the `length` steps before `step`, as far as they are in the buffer; 0 without any.
    pub(super) fn mean_before(&self, step: usize, length: usize) -> f64 {
        let from = step.saturating_sub(length).max(self.first);
        let sum = self.sum_before(step) - self.sum_before(from);
        let steps = count(step.saturating_sub(from));
        // Rounding of the sums may give a value slightly below zero.
        if steps > 0.0 {
            (sum / steps).max(0.0)
        } else {
            0.0
        }
    }

    /// The highest demand of the steps `from..=last`, as far as they are in the buffer; 0 without any.
    pub(super) fn highest(&self, from: usize, last: usize) -> f64 {
        let end = (last + 1).saturating_sub(self.first).min(self.values.len());
        let start = from.saturating_sub(self.first).min(end);
        let steps = self.values.get(start..end).unwrap_or_default();
        steps.iter().copied().fold(0.0, f64::max)
    }

    /// The highest and the lowest demand of the steps `from..=last`, as far as they are in the buffer.
    ///
    /// `(0, infinity)` without any.
    pub(super) fn extremes(&self, from: usize, last: usize) -> (f64, f64) {
        let end = (last + 1).saturating_sub(self.first).min(self.values.len());
        let start = from.saturating_sub(self.first).min(end);
        let steps = self.values.get(start..end).unwrap_or_default();
        let widen = |(high, low): (f64, f64), value: &f64| (high.max(*value), low.min(*value));
        steps.iter().fold((0.0, f64::INFINITY), widen)
    }

    /// The highest demand of the steps `from..=last`, each smoothed to the mean of itself and its neighbors.
    ///
    /// The first step of the buffer has no neighbor before it, and is left out; so is the last one. 0 without any.
    pub(super) fn highest_smoothed(&self, from: usize, last: usize) -> f64 {
        let start = from.max(self.first + 1) - self.first;
        let end = (last + 2).saturating_sub(self.first);
        let steps = self.sums.get(start - 1..=end).unwrap_or_default();
        steps
            .windows(4)
            .map(|sums| sums[3] - sums[0])
            .fold(0.0, f64::max)
            / 3.0
    }

    /// The sum of the steps in the buffer before `step`.
    fn sum_before(&self, step: usize) -> f64 {
        let at = step.saturating_sub(self.first).min(self.values.len());
        self.sums.get(at).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(values: &[f64], keep: usize) -> DemandBuffer {
        let mut buffer = DemandBuffer::new(keep);
        for value in values {
            buffer.push(*value, false);
        }
        buffer
    }

    #[test]
    fn means_and_maxima_cover_the_requested_steps() {
        let buffer = buffer(&[1.0, 2.0, 6.0, 3.0, 0.0, 9.0], 100);
        assert_eq!(buffer.mean_before(3, 3).to_bits(), 3.0_f64.to_bits());
        assert_eq!(buffer.mean_before(2, 5).to_bits(), 1.5_f64.to_bits());
        assert_eq!(buffer.mean_before(0, 5).to_bits(), 0.0_f64.to_bits());
        assert_eq!(buffer.highest(3, 5).to_bits(), 9.0_f64.to_bits());
        assert_eq!(buffer.highest(0, 1).to_bits(), 2.0_f64.to_bits());
        // Smoothed: (1+2+6)/3, (2+6+3)/3, (6+3+0)/3.
        assert!((buffer.highest_smoothed(1, 3) - 11.0 / 3.0).abs() < 1e-12);
        assert!((buffer.highest_smoothed(3, 3) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn raw_steps_are_counted_as_far_as_they_are_kept() {
        let mut buffer = DemandBuffer::new(100);
        for step in 0..1000 {
            buffer.push(1.0, step % 4 == 0);
        }
        assert_eq!(buffer.raw(900, 940), 10);
        assert_eq!(buffer.raw(0, buffer.first()), 0);
        assert_eq!(buffer.raw(990, 2000), 2);
    }

    #[test]
    fn dropped_values_leave_no_rounding_error() {
        let mut buffer = buffer(&[1e300; 6], 100);
        for _ in 0..400 {
            buffer.push(3.0, false);
        }
        assert!(buffer.first() > 6);
        let mean = buffer.mean_before(buffer.end(), 60);
        assert_eq!(mean.to_bits(), 3.0_f64.to_bits());
    }

    #[test]
    fn dropping_old_values_does_not_change_results_for_newer_ones() {
        let values: Vec<f64> = (0..2000).map(|i| f64::from(i % 7)).collect();
        let (all, some) = (buffer(&values, 10_000), buffer(&values, 100));
        assert!(some.first() > 0 && some.end() == all.end());
        for step in 1950..2000 {
            assert_eq!(some.at(step), all.at(step));
            assert!((some.mean_before(step, 20) - all.mean_before(step, 20)).abs() < 1e-9);
            let highest = |buffer: &DemandBuffer| buffer.highest(step - 5, step).to_bits();
            assert_eq!(highest(&some), highest(&all));
            assert!(
                (some.highest_smoothed(step - 5, step - 1)
                    - all.highest_smoothed(step - 5, step - 1))
                .abs()
                    < 1e-9
            );
        }
    }
}
