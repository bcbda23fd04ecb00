//! [`DemandBuffer`]: the demand so far, by step. It records which steps were imputed, and which are raw.
//!
//! ```text
//! unit     2^6        the power of two below the first demand
//! values   1.5  -1.25 1.0        96, 80 (raw) and 64 of the steps first, first + 1, first + 2
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
/// That of the history. Demand is kept with seven digits, rounded down: half the memory, and no value is higher than what
/// was measured.
#[derive(Debug, Clone)]
pub struct DemandBuffer {
    /// The least number of steps to keep.
    keep: usize,
    /// The step of `values[0]`.
    first: usize,
    /// The demand in `unit`; with a negative sign where it is raw: measured in its step alone.
    values: Vec<f32>,
    /// A power of two, so that demand of any size has its seven digits; absent before the first demand.
    unit: Option<f64>,
    /// The steps whose demand was imputed, oldest first.
    imputed: VecDeque<usize>,
}

// === impl DemandBuffer ===

impl DemandBuffer {
    /// An empty buffer that keeps the newest `keep` steps.
    pub fn new(keep: usize) -> Self {
        // Without a limit where everything is kept; the list then grows.
        let room = keep.saturating_add(FORGOTTEN_AT_ONCE + 1).min(1 << 15);
        Self {
            keep,
            first: 0,
            values: Vec::with_capacity(room),
            unit: None,
            imputed: VecDeque::new(),
        }
    }

    /// Adds the next step's demand, and whether it is raw.
    pub fn push(&mut self, value: f64, raw: bool) {
        if self.values.len() > self.keep.saturating_add(FORGOTTEN_AT_ONCE) {
            self.drop_oldest(self.values.len() - self.keep);
        }
        if value > 0.0 && self.unit.is_none() {
            self.unit = Some(power_of_two_below(value));
        }
        let value = rounded_down(value / self.unit());
        self.values.push(if raw { -value } else { value });
    }

    /// Adds the imputed demand of the next step.
    pub fn push_imputed(&mut self, value: f64) {
        self.imputed.push_back(self.end());
        self.push(value, false);
    }

    /// The number of raw steps from `from` up to before `to`.
    pub fn raw(&self, from: usize, to: usize) -> usize {
        self.steps(from, to)
            .iter()
            .filter(|value| value.is_sign_negative())
            .count()
    }

    /// The number of imputed steps from `from` up to before `to`.
    pub fn imputed(&self, from: usize, to: usize) -> usize {
        self.imputed_before(to)
            .saturating_sub(self.imputed_before(from))
    }

    fn imputed_before(&self, step: usize) -> usize {
        self.imputed.partition_point(|imputed| *imputed < step)
    }

    /// Drops the oldest `gone` steps, and the record of those that were imputed.
    fn drop_oldest(&mut self, gone: usize) {
        self.values.drain(..gone);
        self.first += gone;
        self.imputed
            .drain(..self.imputed.partition_point(|step| *step < self.first));
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        size_of::<f32>() * self.values.capacity() + size_of::<usize>() * self.imputed.capacity()
    }

    /// The oldest step in the buffer.
    pub fn first(&self) -> usize {
        self.first
    }

    /// The next step.
    pub fn end(&self) -> usize {
        self.first + self.values.len()
    }

    /// The demand of one step, if it is in the buffer.
    pub fn at(&self, step: usize) -> Option<f64> {
        let at = step.checked_sub(self.first)?;
        Some(self.unit() * f64::from(self.values.get(at)?.abs()))
    }

    /// The mean demand of the `length` steps before `step`, as far as they are in the buffer; 0 without any.
    pub fn mean_before(&self, step: usize, length: usize) -> f64 {
        let steps = self.steps(step.saturating_sub(length), step);
        self.unit() * (sum(steps) / count(steps.len().max(1)))
    }

    /// The highest demand of the steps `from..=last`, as far as they are in the buffer; 0 without any.
    pub fn highest(&self, from: usize, last: usize) -> f64 {
        self.extremes(from, last).0
    }

    /// The highest and the lowest demand of the steps `from..=last`, as far as they are in the buffer.
    ///
    /// `(0, infinity)` without any.
    pub fn extremes(&self, from: usize, last: usize) -> (f64, f64) {
        let steps = self.steps(from, last + 1).iter();
        let widen =
            |(high, low): (f32, f32), value: &f32| (high.max(value.abs()), low.min(value.abs()));
        let (high, low) = steps.fold((0.0, f32::INFINITY), widen);
        (self.unit() * f64::from(high), self.unit() * f64::from(low))
    }

    /// The highest demand of the steps `from..=last`, each smoothed to the mean of itself and its neighbors.
    ///
    /// The first step of the buffer has no neighbor before it, and is left out; so is the last one. 0 without any.
    pub fn highest_smoothed(&self, from: usize, last: usize) -> f64 {
        let steps = self.steps(from.saturating_sub(1), last + 2).windows(3);
        self.unit() * (steps.map(sum).fold(0.0, f64::max) / 3.0)
    }

    fn unit(&self) -> f64 {
        self.unit.unwrap_or(1.0)
    }

    /// The values of the steps from `from` up to before `to`, as far as they are in the buffer.
    fn steps(&self, from: usize, to: usize) -> &[f32] {
        let end = to.saturating_sub(self.first).min(self.values.len());
        let start = from.saturating_sub(self.first).min(end);
        self.values.get(start..end).unwrap_or_default()
    }
}

/// The largest power of two that is at most `value`, at least the smallest one of full precision.
fn power_of_two_below(value: f64) -> f64 {
    const EXPONENT: u64 = 0x7FF << (f64::MANTISSA_DIGITS - 1);
    f64::from_bits(value.to_bits() & EXPONENT).max(f64::MIN_POSITIVE)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "seven digits are enough for demand, and halve the memory"
)]
fn rounded_down(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) > value {
        nearest.next_down()
    } else {
        nearest
    }
}

/// The sum of values without their signs: of four sums at once, because each addition waits for the one before.
fn sum(values: &[f32]) -> f64 {
    let (quads, rest) = values.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for quad in quads {
        for (sum, value) in sums.iter_mut().zip(quad) {
            *sum += f64::from(value.abs());
        }
    }
    let all: f64 = sums.iter().sum();
    rest.iter()
        .fold(all, |sum, value| sum + f64::from(value.abs()))
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
        let mut buffer = buffer(&[1e30; 6], 100);
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
