//! The demand so far, by step, with running sums: any mean in constant time, any maximum in the length of its window.
//! Remembers which steps were made up, and never makes any up itself. Next: `features`.

use std::collections::VecDeque;

use crate::series::count;

/// Steps that are dropped at once when the memory is full, so that forgetting costs nothing per step.
const FORGOTTEN_AT_ONCE: usize = 120;

/// Demand by step; the first step ever seen is 0.
#[derive(Debug, Clone)]
pub(super) struct Past {
    /// How many steps are kept at least.
    keep: usize,
    /// The step of `values[0]`.
    first: usize,
    values: Vec<f64>,
    /// `sums[i]` is the sum of `values[..i]`.
    sums: Vec<f64>,
    /// The steps whose demand was made up, oldest first.
    made_up: VecDeque<usize>,
}

// === impl Past ===

impl Past {
    /// Nothing yet; the newest `keep` steps will be remembered.
    pub(super) fn new(keep: usize) -> Self {
        let room = keep.saturating_add(FORGOTTEN_AT_ONCE + 1).min(1 << 15);
        let mut sums = Vec::with_capacity(room + 1);
        sums.push(0.0);
        Self {
            keep,
            first: 0,
            values: Vec::with_capacity(room),
            sums,
            made_up: VecDeque::new(),
        }
    }

    /// Adds the next step's demand.
    pub(super) fn push(&mut self, value: f64) {
        if self.values.len() > self.keep.saturating_add(FORGOTTEN_AT_ONCE) {
            self.forget(self.values.len() - self.keep);
        }
        self.values.push(value);
        self.sums.push(self.sums.last().unwrap_or(&0.0) + value);
    }

    /// Adds the next step's demand, which nobody saw.
    pub(super) fn push_made_up(&mut self, value: f64) {
        self.made_up.push_back(self.end());
        self.push(value);
    }

    /// How many of the steps from `from` up to before `to` were made up.
    pub(super) fn made_up(&self, from: usize, to: usize) -> usize {
        let before = |step| self.made_up.partition_point(|made_up| *made_up < step);
        before(to).saturating_sub(before(from))
    }

    fn forget(&mut self, gone: usize) {
        self.values.drain(..gone);
        // Summed up anew: what is forgotten, however large, leaves no trace in what is kept.
        let mut sum = 0.0;
        self.sums.truncate(1);
        self.sums.extend(self.values.iter().map(|value| {
            sum += value;
            sum
        }));
        self.first += gone;
        self.made_up
            .drain(..self.made_up.partition_point(|step| *step < self.first));
    }

    /// What is kept on the heap.
    pub(super) fn bytes(&self) -> usize {
        size_of::<f64>() * (self.values.capacity() + self.sums.capacity())
            + size_of::<usize>() * self.made_up.capacity()
    }

    /// The oldest step that is remembered.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// The step that comes next.
    pub(super) fn end(&self) -> usize {
        self.first + self.values.len()
    }

    /// The demand of one step, if it is remembered.
    pub(super) fn at(&self, step: usize) -> Option<f64> {
        let at = step.checked_sub(self.first)?;
        self.values.get(at).copied()
    }

    /// Mean demand of the `length` steps before `step`, or of as many as are remembered; 0 of none.
    pub(super) fn mean_before(&self, step: usize, length: usize) -> f64 {
        let from = step.saturating_sub(length).max(self.first);
        let sum = self.sum_before(step) - self.sum_before(from);
        let steps = count(step.saturating_sub(from));
        // Differences of sums may leave a trace below zero.
        if steps > 0.0 {
            (sum / steps).max(0.0)
        } else {
            0.0
        }
    }

    /// The highest demand of the steps `from..=last`, as far as they are remembered; 0 of none.
    pub(super) fn highest(&self, from: usize, last: usize) -> f64 {
        let to = (last + 1).saturating_sub(self.first).min(self.values.len());
        let from = from.saturating_sub(self.first).min(to);
        let steps = self.values.get(from..to).unwrap_or_default();
        steps.iter().copied().fold(0.0, f64::max)
    }

    /// The highest and the lowest demand of the steps `from..=last`, as far as they are remembered.
    pub(super) fn extremes(&self, from: usize, last: usize) -> (f64, f64) {
        let to = (last + 1).saturating_sub(self.first).min(self.values.len());
        let from = from.saturating_sub(self.first).min(to);
        let steps = self.values.get(from..to).unwrap_or_default();
        let widen = |(high, low): (f64, f64), value: &f64| (high.max(*value), low.min(*value));
        steps.iter().fold((0.0, f64::INFINITY), widen)
    }

    /// The highest of the steps `from..=last`, each taken as the mean of itself and its neighbours.
    pub(super) fn highest_smoothed(&self, from: usize, last: usize) -> f64 {
        let from = from.max(self.first + 1) - self.first;
        let to = (last + 2).saturating_sub(self.first);
        let steps = self.sums.get(from - 1..=to).unwrap_or_default();
        steps
            .windows(4)
            .map(|sums| sums[3] - sums[0])
            .fold(0.0, f64::max)
            / 3.0
    }

    fn sum_before(&self, step: usize) -> f64 {
        let at = step.saturating_sub(self.first).min(self.values.len());
        self.sums.get(at).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(values: &[f64], keep: usize) -> Past {
        let mut past = Past::new(keep);
        for value in values {
            past.push(*value);
        }
        past
    }

    #[test]
    fn means_and_maxima_are_of_the_steps_asked_for() {
        let past = past(&[1.0, 2.0, 6.0, 3.0, 0.0, 9.0], 100);
        assert_eq!(past.mean_before(3, 3).to_bits(), 3.0_f64.to_bits());
        assert_eq!(past.mean_before(2, 5).to_bits(), 1.5_f64.to_bits());
        assert_eq!(past.mean_before(0, 5).to_bits(), 0.0_f64.to_bits());
        assert_eq!(past.highest(3, 5).to_bits(), 9.0_f64.to_bits());
        assert_eq!(past.highest(0, 1).to_bits(), 2.0_f64.to_bits());
        // Smoothed: (1+2+6)/3, (2+6+3)/3, (6+3+0)/3.
        assert!((past.highest_smoothed(1, 3) - 11.0 / 3.0).abs() < 1e-12);
        assert!((past.highest_smoothed(3, 3) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_forgotten_leaves_no_trace() {
        let mut past = past(&[1e300; 6], 100);
        for _ in 0..400 {
            past.push(3.0);
        }
        assert!(past.first() > 6);
        let mean = past.mean_before(past.end(), 60);
        assert_eq!(mean.to_bits(), 3.0_f64.to_bits());
    }

    #[test]
    fn forgetting_changes_no_answer_about_what_is_kept() {
        let values: Vec<f64> = (0..2000).map(|i| f64::from(i % 7)).collect();
        let (all, some) = (past(&values, 10_000), past(&values, 100));
        assert!(some.first() > 0 && some.end() == all.end());
        for step in 1950..2000 {
            assert_eq!(some.at(step), all.at(step));
            assert!((some.mean_before(step, 20) - all.mean_before(step, 20)).abs() < 1e-9);
            let highest = |past: &Past| past.highest(step - 5, step).to_bits();
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
