//! [`Accuracy`]: how good a forecast is by itself, independent of an autoscaler that uses it.

use crate::average::{count, mean};
use crate::{CandidateForecast, Workload};

/// The errors of forecasts against actual demand.
///
/// # Shape
/// Over the counted minutes whose whole decision window lies within the demand, with `F` the forecast
/// ([`Answer::peak`](crate::Answer::peak)) and `Z` the highest demand of its window. Minutes without a forecast are left
/// out; `answered` is the share of the others.
///
/// # Units
/// Losses and errors are in percent of the mean demand; shares in percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accuracy {
    /// Mean of `0.9 (Z - F)+ + 0.1 (F - Z)+`.
    pub pinball_90: f64,
    /// Mean of `0.95 (Z - F)+ + 0.05 (F - Z)+`.
    pub pinball_95: f64,
    /// Mean of `|Z - F|`.
    pub absolute: f64,
    /// Share of minutes with `Z <= F`.
    pub coverage: f64,
    /// Share of minutes with a forecast.
    pub answered: f64,
}

// === impl Accuracy ===

impl Accuracy {
    /// The accuracy of forecasts. `None` without any forecast.
    pub fn of(workload: &Workload<'_>, path: &CandidateForecast) -> Option<Self> {
        let actual = highest_of_next(workload.counted_demand(), path.window);
        let scale = 100.0 / mean(workload.counted_demand().iter().copied())?;
        let pairs = || {
            let forecasts = workload.counted(&path.answers).iter();
            forecasts
                .zip(&actual)
                .filter_map(|(answer, &actual)| Some((actual, (*answer)?.peak)))
        };
        let pinball = |q: f64| {
            let loss = |(z, f): (f64, f64)| q * (z - f).max(0.0) + (1.0 - q) * (f - z).max(0.0);
            mean(pairs().map(loss))
        };
        Some(Self {
            pinball_90: scale * pinball(0.90)?,
            pinball_95: scale * pinball(0.95)?,
            // The loss at one half is half of the absolute error.
            absolute: 2.0 * scale * pinball(0.5)?,
            coverage: 100.0 * mean(pairs().map(|(z, f)| f64::from(z <= f)))?,
            answered: 100.0 * count(pairs().count()) / count(actual.len()),
        })
    }
}

/// The highest demand of each minute and the `window` minutes after it, while these are known.
fn highest_of_next(demand: &[f64], window: usize) -> Vec<f64> {
    let windows = demand.windows(window + 1);
    windows
        .map(|window| window.iter().copied().fold(0.0, f64::max))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Bounds};

    fn path(answers: Vec<Option<Answer>>) -> CandidateForecast {
        CandidateForecast {
            setting: String::new(),
            window: 1,
            answers,
        }
    }

    #[test]
    fn accuracy_matches_values_computed_by_hand() {
        let mut demand = vec![0.0; 31];
        demand.extend([10.0, 20.0, 5.0, 5.0]);
        let workload = Workload::counted_from(&demand, 31).unwrap();
        assert_eq!(
            highest_of_next(workload.counted_demand(), 1),
            [20.0, 20.0, 5.0]
        );
        let mut answers = vec![Some(1e9.into()); 30];
        let promised = Answer {
            bounds: Bounds::both(99.0),
            peak: 10.0,
        };
        answers.extend([Some(promised), None, Some(7.0.into()), Some(1e9.into())]);
        // The mean demand is 10; 10 too low, none, 2 too high.
        let accuracy = Accuracy::of(&workload, &path(answers)).unwrap();
        let seen = [
            (accuracy.pinball_90, 10.0 * (0.9 * 10.0 + 0.1 * 2.0) / 2.0),
            (accuracy.pinball_95, 10.0 * (0.95 * 10.0 + 0.05 * 2.0) / 2.0),
            (accuracy.absolute, 60.0),
            (accuracy.coverage, 50.0),
            (accuracy.answered, 200.0 / 3.0),
        ];
        for (seen, expected) in seen {
            assert!(
                (seen - expected).abs() < 1e-9,
                "{seen}, expected {expected}"
            );
        }
        assert_eq!(Accuracy::of(&workload, &path(vec![None; 34])), None);
    }
}
