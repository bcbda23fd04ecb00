//! The backtest of `dsp`: every estimator predicts the last period from the periods before it, and the one with the
//! smallest error wins. On a tie the first one wins.
//!
//! ```text
//! | period | period | period | period |
//!   known ------------------> held out: predicted by each estimator, and compared
//! ```

use jiff::SignedDuration;

use crate::error::ForecastError;
use crate::harmonic::{Components, Filter};
use crate::seasonal::{Statistic, over_seasons};
use crate::series::count;
use crate::spectrum::Fourier;

/// The estimate of one period from past periods.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// The maximum of each phase.
    Maximum,
    /// The last period, denoised.
    Denoised(Filter),
}

/// A shape, and the margin that is added as a part of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimator {
    pub shape: Shape,
    pub margin: f64,
}

/// Whole periods of a series, separated into a level and linear growth.
///
/// # Shape
/// `level` has a whole number of periods. The growth is removed such that the last value is unchanged.
#[derive(Debug, Clone, Copy)]
pub struct Periods<'a> {
    pub level: &'a [f64],
    pub period: usize,
    /// Growth per slot.
    pub slope: f64,
    pub step: SignedDuration,
}

// === impl Periods ===

impl Periods<'_> {
    /// The estimator that predicts the last period best from the periods before it; `None` without estimators.
    pub fn best<'e>(
        &self,
        fourier: &mut Fourier,
        estimators: &'e [Estimator],
    ) -> Result<Option<&'e Estimator>, ForecastError> {
        let split = self.level.len().saturating_sub(self.period);
        let (known, held_out) = self.level.split_at(split);
        let known = Periods {
            level: known,
            ..*self
        };
        let actual: Vec<f64> = held_out
            .iter()
            .enumerate()
            .map(|(i, v)| v + self.offset(i))
            .collect();
        let mut shapes: Vec<(Shape, Vec<f64>)> = Vec::new();
        let mut best: Option<(&Estimator, f64)> = None;
        for estimator in estimators {
            // Most estimators differ only in their margin; a shape is computed once.
            if !shapes.iter().any(|(shape, _)| *shape == estimator.shape) {
                shapes.push((estimator.shape, known.shape(fourier, estimator.shape)?));
            }
            let period = shapes
                .iter()
                .find(|(shape, _)| *shape == estimator.shape)
                .map_or(&[][..], |(_, values)| values);
            let predicted = period
                .iter()
                .enumerate()
                .map(|(i, v)| (v + self.offset(i)) * (1.0 + estimator.margin));
            let error = amplified_error(&actual, predicted);
            if best.is_none_or(|(_, least)| error.total_cmp(&least).is_lt()) {
                best = Some((estimator, error));
            }
        }
        Ok(best.map(|(estimator, _)| estimator))
    }

    /// The growth to add to slot `i` of the held-out period. It was removed such that the last value stays, so it counts
    /// from the end of that period.
    fn offset(&self, i: usize) -> f64 {
        self.slope * (count(i + 1) - count(self.period))
    }

    /// One period estimated by a shape, at the level of the last value.
    pub fn shape(&self, fourier: &mut Fourier, shape: Shape) -> Result<Vec<f64>, ForecastError> {
        match shape {
            Shape::Maximum => {
                let cycles = self.level.len() / self.period.max(1);
                Ok(over_seasons(
                    self.level,
                    self.period,
                    cycles,
                    Statistic::Max,
                ))
            }
            Shape::Denoised(filter) => {
                let newest = transformable(self.level.len() / self.period.max(1)) * self.period;
                let level = self
                    .level
                    .get(self.level.len() - newest..)
                    .unwrap_or(self.level);
                let parts = Components::of(fourier, level, self.step)?;
                parts.last_period(fourier, &filter, self.period)
            }
        }
    }
}

/// The largest number of periods up to this one without a prime factor above 11.
///
/// Transforms of other lengths cost four times as much, and a thirteenth period hardly changes the last one.
fn transformable(periods: usize) -> usize {
    (1..=periods)
        .rev()
        .find(|n| [2, 3, 5, 7, 11].into_iter().fold(*n, divide_out) == 1)
        .unwrap_or(1)
}

fn divide_out(mut n: usize, prime: usize) -> usize {
    while n.is_multiple_of(prime) && n > 0 {
        n /= prime;
    }
    n
}

/// The mean relative error, in which a prediction that is too low weighs more than one that is too high.
///
/// Over by `d` of `a`: `d / a`; under by `d`: `-ln(1 - d / a) / ln 1.25`. So 10 % over is 0.10 and 10 % under is 0.47.
/// A prediction below a thousandth of the actual value counts as one thousandth. If an actual value is below a
/// thousandth of their mean, relative errors say nothing, and the mean absolute error over that mean is taken.
///
/// # Units
/// None: scaling both series changes nothing.
///
/// # Guarantees
/// - Finite for finite input; zero for a perfect prediction.
///
/// # Source
/// `pkg/prediction/accuracy` of crane, whose limit of 0.001 is in the unit of the metric and whose error can be
/// infinite for every candidate.
fn amplified_error(actual: &[f64], predicted: impl Iterator<Item = f64>) -> f64 {
    let n = count(actual.len().max(1));
    let mean = actual.iter().sum::<f64>() / n;
    // Errors cannot be relative to zero demand.
    if mean <= 0.0 {
        return predicted.map(f64::abs).sum::<f64>() / n;
    }
    let relative = actual.iter().all(|a| *a >= mean / 1000.0);
    let errors = actual.iter().zip(predicted).map(|(a, p)| match p / a {
        _ if !relative => (p - a).abs() / mean,
        ratio if ratio >= 1.0 => ratio - 1.0,
        ratio => -ratio.max(1e-3).ln() / 1.25_f64.ln(),
    });
    errors.sum::<f64>() / n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_that_is_too_low_weighs_more() {
        // -ln(0.9) / ln(1.25) = 0.4722; -ln(0.5) / ln(1.25) = 3.1063; -ln(0.001) / ln(1.25) = 30.957.
        let cases = [
            ("perfect", 10.0, 0.0),
            ("10 % over", 11.0, 0.1),
            ("10 % under", 9.0, 0.4722),
            ("half", 5.0, 3.1063),
            ("nothing", 0.0, 30.957),
            ("below nothing", -3.0, 30.957),
        ];
        for (name, predicted, expected) in cases {
            let error = amplified_error(&[10.0], [predicted].into_iter());
            assert!((error - expected).abs() < 1e-3, "{name}: {error}");
        }
        let idle = amplified_error(&[0.0, 2.0], [0.5, 2.0].into_iter());
        assert!((idle - 0.25).abs() < 1e-12, "{idle}");
        assert!(amplified_error(&[0.0], [1.0].into_iter()).is_finite());
    }

    #[test]
    fn a_number_of_periods_is_lowered_to_one_that_transforms_fast() {
        let cases = [
            (1, 1),
            (2, 2),
            (11, 11),
            (13, 12),
            (14, 14),
            (17, 16),
            (29, 28),
        ];
        for (periods, expected) in cases {
            assert_eq!(transformable(periods), expected);
        }
    }

    #[test]
    fn the_smallest_error_wins_and_on_a_tie_the_first() {
        let filter = Filter {
            low_amplitude: 0.0,
            high_frequency: 0.0,
            min_items: 0,
            max_items: 100,
        };
        let estimator = |shape, margin| Estimator { shape, margin };
        let (maximum, denoised) = (Shape::Maximum, Shape::Denoised(filter));
        let candidates = [
            estimator(maximum, 0.5),
            estimator(denoised, 0.0),
            estimator(maximum, 0.0),
            estimator(denoised, 0.1),
        ];
        // Three periods of 4; predicted from the first two.
        let cases = [
            (
                "last period repeats",
                [2.0, 8.0, 3.0, 9.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0],
                1,
            ),
            (
                "maximum returns",
                [2.0, 8.0, 3.0, 9.0, 1.0, 2.0, 3.0, 4.0, 2.0, 8.0, 3.0, 9.0],
                2,
            ),
            (
                "ten percent growth",
                [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.1, 2.2, 3.3, 4.4],
                3,
            ),
            (
                "both equal",
                [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0, 9.0],
                0,
            ),
        ];
        for (name, level, expected) in cases {
            let step = SignedDuration::from_hours(6);
            let periods = Periods {
                level: &level,
                period: 4,
                slope: 0.0,
                step,
            };
            let best = periods.best(&mut Fourier::new(), &candidates).unwrap();
            assert_eq!(best, candidates.get(expected), "{name}");
        }
        let periods = Periods {
            level: &[0.0; 8],
            period: 4,
            slope: 0.0,
            step: SignedDuration::from_hours(6),
        };
        assert_eq!(periods.best(&mut Fourier::new(), &[]), Ok(None));
        assert!(
            periods
                .best(&mut Fourier::new(), &candidates)
                .unwrap()
                .is_some()
        );
    }
}
