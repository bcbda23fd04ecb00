//! [`Accuracy`]: how good a forecast is by itself, independent of an autoscaler that uses it.

use super::{CandidateForecast, Workload, count, mean};

/// The errors of forecasts against actual demand.
///
/// # Shape
/// Over the counted minutes whose whole window lies within the demand, with `F` the forecast and `Z` the peak demand of
/// its window. Minutes without a forecast are left out; `answered` is the share of the others.
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
    /// The accuracy of forecasts; `actual` is [`highest_of_next`] of the same workload. `None` without any forecast.
    #[must_use]
    pub fn of(workload: &Workload<'_>, path: &CandidateForecast, actual: &[f64]) -> Option<Self> {
        let scale = 100.0 / mean(workload.counted_demand().iter().copied())?;
        let pairs = || {
            let forecasts = workload.counted(&path.forecast).iter();
            forecasts
                .zip(actual)
                .filter_map(|(forecast, &actual)| Some((actual, (*forecast)?)))
        };
        let pinball = |q: f64| {
            let loss = |(z, f): (f64, f64)| q * (z - f).max(0.0) + (1.0 - q) * (f - z).max(0.0);
            mean(pairs().map(loss))
        };
        Some(Self {
            pinball_90: scale * pinball(0.90)?,
            pinball_95: scale * pinball(0.95)?,
            absolute: 2.0 * scale * pinball(0.5)?,
            coverage: 100.0 * mean(pairs().map(|(z, f)| f64::from(z <= f)))?,
            answered: 100.0 * count(pairs().count()) / count(actual.len()),
        })
    }
}

/// The peak demand of each counted minute and the `window` minutes after it, while these are known.
#[must_use]
pub fn highest_of_next(workload: &Workload<'_>, window: usize) -> Vec<f64> {
    let windows = workload.counted_demand().windows(window + 1);
    windows
        .map(|window| window.iter().copied().fold(0.0, f64::max))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_matches_values_computed_by_hand() {
        let mut demand = vec![0.0; 31];
        demand.extend([10.0, 20.0, 5.0, 5.0]);
        let workload = Workload::counted_from(&demand, 31).unwrap();
        let actual = highest_of_next(&workload, 1);
        assert_eq!(actual, [20.0, 20.0, 5.0]);
        let mut forecast = vec![Some(1e9); 30];
        forecast.extend([Some(10.0), None, Some(7.0), Some(1e9)]);
        let path = CandidateForecast {
            setting: 0.0,
            forecast,
        };
        // The mean demand is 10; 10 too low, none, 2 too high.
        let accuracy = Accuracy::of(&workload, &path, &actual).unwrap();
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
        let silent = CandidateForecast {
            setting: 0.0,
            forecast: vec![None; 34],
        };
        assert_eq!(Accuracy::of(&workload, &silent, &actual), None);
    }
}
