//! The Fourier estimator of `dsp`: keeps the strong and the slow components of a series and returns its last period.
//!
//! ```text
//! values -> components -> drop the fast and weak ones -> inverse transform -> the last period
//! ```

use jiff::SignedDuration;
use rustfft::num_complex::Complex;

use crate::error::ForecastError;
use crate::series::count;
use crate::spectrum::Fourier;

/// The choice of the components that are kept.
///
/// A component of frequency `f` and amplitude `a` (half that of its sine) is dropped if it is faster than
/// `high_frequency` and `a` is below the cut. The cut is the `max_items`-th largest amplitude, raised to
/// `low_amplitude` percent of the mean if that is more, then lowered to the `min_items`-th largest if that is less.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Filter {
    /// An amplitude in percent of the mean of the series, so that the unit of the series does not matter.
    pub low_amplitude: f64,
    /// A frequency in hertz.
    pub high_frequency: f64,
    pub min_items: usize,
    pub max_items: usize,
}

/// The Fourier components of a series.
pub struct Components {
    bins: Vec<Complex<f64>>,
    len: usize,
    /// The frequency of bin 1, in hertz; bin `k` has `k` times that.
    lowest_frequency: f64,
    mean: f64,
}

// === impl Components ===

impl Components {
    /// The components of a non-empty series.
    pub fn of(
        fourier: &mut Fourier,
        values: &[f64],
        step: SignedDuration,
    ) -> Result<Self, ForecastError> {
        let len = values.len();
        let bins = fourier.forward(values)?;
        let mean = values.iter().sum::<f64>() / count(len);
        Ok(Self {
            bins,
            len,
            lowest_frequency: 1.0 / (count(len) * step.as_secs_f64()),
            mean,
        })
    }

    /// The last `period` values of the series with only the components that pass the filter.
    ///
    /// # Guarantees
    /// - A component is kept or dropped together with its mirror image, which is the same bin here.
    ///
    /// # Source
    /// `fftEstimator` of crane's dsp, which filters mirrored bins by another frequency and so halves slow weak
    /// components.
    pub fn last_period(
        &self,
        fourier: &mut Fourier,
        filter: &Filter,
        period: usize,
    ) -> Result<Vec<f64>, ForecastError> {
        let cut = self.cut(filter);
        let mut kept = self.bins.clone();
        for (k, bin) in kept.iter_mut().enumerate() {
            let fast = count(k) * self.lowest_frequency > filter.high_frequency;
            if fast && self.amplitude(bin) < cut {
                *bin = Complex::ZERO;
            }
        }
        let mut values = fourier.inverse(kept, self.len)?;
        values.drain(..self.len.saturating_sub(period));
        Ok(values)
    }

    /// The amplitude below which fast components are dropped: see [`Filter`].
    ///
    /// # Units
    /// That of the series.
    fn cut(&self, filter: &Filter) -> f64 {
        // Without the mean and without the highest frequency, which has no sine.
        let inner = (self.len / 2).saturating_sub(1);
        let mut amplitudes: Vec<f64> = self
            .bins
            .iter()
            .skip(1)
            .take(inner)
            .map(|bin| self.amplitude(bin))
            .collect();
        let low = filter.low_amplitude / 100.0 * self.mean.abs();
        nth_largest(&mut amplitudes, filter.max_items)
            .max(low)
            .min(nth_largest(&mut amplitudes, filter.min_items))
    }

    /// Half the amplitude of the sine that a bin stands for, as crane counts it.
    fn amplitude(&self, bin: &Complex<f64>) -> f64 {
        bin.norm() / count(self.len)
    }
}

/// The `nth` largest of the amplitudes, which are reordered.
fn nth_largest(amplitudes: &mut [f64], nth: usize) -> f64 {
    match nth.checked_sub(1) {
        // `min_items` of 0: no component is kept for being among the strongest.
        None => f64::INFINITY,
        // There are fewer components, so all are among the strongest.
        Some(i) if i >= amplitudes.len() => 0.0,
        Some(i) => {
            *amplitudes
                .select_nth_unstable_by(i, |a, b| b.total_cmp(a))
                .1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    const STEP: SignedDuration = SignedDuration::from_mins(5);
    const HOUR: f64 = 1.0 / 3600.0;

    /// Two days: level 10, and per (cycles a day, amplitude of the sine) one component.
    fn series(components: &[(f64, f64)]) -> Vec<f64> {
        let wave = |i: u32| {
            let turn = TAU * f64::from(i) / 288.0;
            10.0 + components
                .iter()
                .map(|(k, a)| a * (turn * k).sin())
                .sum::<f64>()
        };
        (0..576).map(wave).collect()
    }

    fn denoised(components: &[(f64, f64)], filter: Filter) -> Vec<f64> {
        let mut fourier = Fourier::new();
        let parts = Components::of(&mut fourier, &series(components), STEP).unwrap();
        parts.last_period(&mut fourier, &filter, 288).unwrap()
    }

    type Case<'a> = (&'a str, Filter, &'a [(f64, f64)], &'a [(f64, f64)]);

    #[test]
    fn strong_or_slow_components_are_kept_and_the_others_dropped() {
        let filter = Filter {
            low_amplitude: 1.0,
            high_frequency: HOUR,
            min_items: 1,
            max_items: 100,
        };
        let few = Filter {
            max_items: 2,
            ..filter
        };
        let many = Filter {
            min_items: 3,
            low_amplitude: 50.0,
            ..filter
        };
        // Amplitudes are half those of the sines: 0.1 (one percent of ten) is a sine of 0.2.
        let cases: [Case; 6] = [
            ("strong and fast", filter, &[(40.0, 0.3)], &[(40.0, 0.3)]),
            (
                "slow and weak beside strong",
                filter,
                &[(1.0, 5.0), (6.0, 0.01)],
                &[(1.0, 5.0), (6.0, 0.01)],
            ),
            (
                "weak and fast beside strong",
                filter,
                &[(1.0, 5.0), (48.0, 0.1)],
                &[(1.0, 5.0)],
            ),
            (
                "the strongest is always kept",
                filter,
                &[(48.0, 0.1)],
                &[(48.0, 0.1)],
            ),
            (
                "no more than the maximum",
                few,
                &[(30.0, 3.0), (40.0, 2.0), (50.0, 1.0)],
                &[(30.0, 3.0), (40.0, 2.0)],
            ),
            (
                "no fewer than the minimum",
                many,
                &[(30.0, 3.0), (40.0, 2.0), (50.0, 1.0)],
                &[(30.0, 3.0), (40.0, 2.0), (50.0, 1.0)],
            ),
        ];
        for (name, filter, components, kept) in cases {
            let expected = series(kept);
            let actual = denoised(components, filter);
            let worst = actual
                .iter()
                .zip(&expected)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f64::max);
            assert!(worst < 1e-9, "{name}: {worst}");
        }
    }
}
