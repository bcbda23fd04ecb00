//! How alike days and weeks are: for people to read, and for nothing else. Reckoned once an hour.

use super::past::Past;
use crate::grid::Grid;

/// Minutes that are averaged into one value, minutes of the mean that is taken off, and minutes between two looks.
const BLOCK: i64 = 5;
const SMOOTHED: i64 = 120;
const EVERY: i64 = 60;

/// Autocorrelations at a day and at a week.
#[derive(Debug, Clone, Default)]
pub(super) struct Likeness {
    looked_at: usize,
    daily: Option<f64>,
    weekly: Option<f64>,
}

// === impl Likeness ===

impl Likeness {
    /// Looks again, if the last look is an hour old.
    pub(super) fn refresh(&mut self, past: &Past, grid: Grid) {
        let at = past.end() / grid.minutes(EVERY);
        if self.looked_at == at {
            return;
        }
        self.looked_at = at;
        let block = grid.minutes(BLOCK);
        let values = waves(past, block, grid.minutes(SMOOTHED));
        self.daily = correlation(&values, grid.day() / block);
        self.weekly = correlation(&values, 7 * grid.day() / block);
    }

    pub(super) fn daily(&self) -> Option<f64> {
        self.daily
    }

    pub(super) fn weekly(&self) -> Option<f64> {
        self.weekly
    }
}

/// Means of blocks less the mean around them, oldest first.
fn waves(past: &Past, block: usize, around: usize) -> Vec<f64> {
    let blocks = (past.first() + block..=past.end()).step_by(block);
    blocks
        .map(|end| {
            let middle = end + (around - block) / 2;
            past.mean_before(end, block) - past.mean_before(middle.min(past.end()), around)
        })
        .collect()
}

/// Autocorrelation at a lag; none with less than two of it, or of a constant.
fn correlation(values: &[f64], lag: usize) -> Option<f64> {
    let later = values
        .get(lag..)
        .filter(|later| later.len() >= lag.min(values.len() / 8))?;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let earlier = values.get(..later.len())?;
    let size = (product(later, later) * product(earlier, earlier)).sqrt();
    (size > 0.0 && !later.is_empty()).then(|| product(later, earlier) / size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use std::f64::consts::TAU;

    fn likeness(days: usize, of: impl Fn(f64) -> f64) -> Likeness {
        let mut past = Past::new(usize::MAX);
        for step in 0..days * 288 {
            past.push(of(crate::series::count(step) / 288.0));
        }
        let mut likeness = Likeness::default();
        likeness.refresh(&past, Grid::new(SignedDuration::from_mins(5)));
        likeness
    }

    #[test]
    fn a_wave_of_the_day_is_alike_by_day_and_one_of_half_as_often_is_its_opposite() {
        let daily = likeness(14, |day| 5.0 + (TAU * 3.0 * day).sin());
        assert!(
            daily.daily().unwrap() > 0.9 && daily.weekly().unwrap() > 0.9,
            "{daily:?}"
        );
        let other = likeness(14, |day| 5.0 + (TAU * 3.5 * day).sin());
        assert!(other.daily().unwrap() < -0.9, "{other:?}");
    }

    #[test]
    fn a_constant_or_a_short_history_is_like_nothing() {
        assert_eq!(likeness(3, |_| 5.0).daily(), None);
        assert_eq!(likeness(2, f64::sin).weekly(), None);
    }
}
