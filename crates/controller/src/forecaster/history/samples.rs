//! [`GridSamples`]: samples at the times of a grid, each only as a value: most queries have one for every time.

use std::collections::VecDeque;

use super::TimeRange;

/// The value of a time without a sample: a bit pattern that no arithmetic returns and no server sends.
const ABSENT: u64 = 0x7FF8_0000_00AB_5E17;

/// Values by second.
///
/// # Shape
/// `values[i]` is that of `first + i * step`; the last one is present.
#[derive(Debug)]
pub struct GridSamples {
    step: i64,
    first: i64,
    values: VecDeque<f64>,
}

// === impl GridSamples ===

impl GridSamples {
    pub const fn empty(step: i64) -> Self {
        Self {
            step,
            first: 0,
            values: VecDeque::new(),
        }
    }

    /// The value at a second.
    pub fn get(&self, second: i64) -> Option<f64> {
        let at = TimeRange {
            from: second,
            to: second,
        };
        self.range(at).next().map(|(_, value)| value)
    }

    /// The samples within a range, oldest first.
    pub fn range(&self, range: TimeRange) -> impl DoubleEndedIterator<Item = (i64, f64)> {
        let end = self.index(range.to + 1).min(self.values.len());
        let start = self.index(range.from).min(end);
        (start..end)
            .zip(self.values.range(start..end))
            .filter(|(_, value)| value.to_bits() != ABSENT)
            .map(|(index, value)| (self.second(index), *value))
    }

    /// The second of the newest sample.
    pub fn newest(&self) -> Option<i64> {
        let last = self.values.len().checked_sub(1)?;
        Some(self.second(last))
    }

    /// Sets the value of the time of the grid that is at `second`, or last before it.
    pub fn insert(&mut self, second: i64, value: f64) {
        let second = second.div_euclid(self.step) * self.step;
        if self.values.is_empty() {
            self.first = second;
        }
        while self.first > second {
            self.values.push_front(f64::from_bits(ABSENT));
            self.first -= self.step;
        }
        let index = self.index(second);
        if index >= self.values.len() {
            self.values.resize(index + 1, f64::from_bits(ABSENT));
        }
        if let Some(slot) = self.values.get_mut(index) {
            *slot = value;
        }
    }

    /// Drops the samples before a second, and gives back their memory but for an eighth of what is left.
    pub fn drop_before(&mut self, second: i64) {
        let gone = self.index(second).min(self.values.len());
        self.first = self.second(gone);
        self.values.drain(..gone);
        self.values.shrink_to(self.values.len() * 9 / 8);
    }

    /// Bytes kept on the heap.
    pub fn bytes(&self) -> usize {
        size_of::<f64>() * self.values.capacity()
    }

    /// The index of the first time of the grid that is not before a second.
    fn index(&self, second: i64) -> usize {
        let steps = -(self.first - second).div_euclid(self.step);
        usize::try_from(steps).unwrap_or(0)
    }

    fn second(&self, index: usize) -> i64 {
        self.first + self.step * i64::try_from(index).unwrap_or(i64::MAX)
    }
}
