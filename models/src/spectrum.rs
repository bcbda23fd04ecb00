//! Real Fourier transforms of any length, with cached plans, and the autocorrelation and noise threshold that follow
//! from them.

use realfft::RealFftPlanner;
use rustfft::num_complex::Complex;

use crate::error::ForecastError;
use crate::series::count;

/// Runs transforms with cached plans, one per length.
pub struct Fourier {
    planner: RealFftPlanner<f64>,
}

// === impl Fourier ===

impl Fourier {
    pub fn new() -> Self {
        Self {
            planner: RealFftPlanner::new(),
        }
    }

    /// The spectrum of a real series.
    ///
    /// # Shape
    /// Input `n >= 1` values; output `n / 2 + 1` bins, not normalized; bin 0 is the sum, bin `k` has `k` cycles in `n`.
    pub fn forward(&mut self, values: &[f64]) -> Result<Vec<Complex<f64>>, ForecastError> {
        let plan = self.planner.plan_fft_forward(values.len());
        let mut input = values.to_vec();
        let mut bins = plan.make_output_vec();
        plan.process(&mut input, &mut bins)
            .map_err(|_| ForecastError::NotFinite)?;
        Ok(bins)
    }

    /// The series of a spectrum: the inverse of [`forward`](Self::forward), normalized.
    ///
    /// # Shape
    /// Input `n / 2 + 1` bins; output `n` values. Imaginary parts that a real series cannot have are ignored.
    pub fn inverse(
        &mut self,
        mut bins: Vec<Complex<f64>>,
        n: usize,
    ) -> Result<Vec<f64>, ForecastError> {
        let plan = self.planner.plan_fft_inverse(n);
        // Rounding leaves a small imaginary part, which the inverse transform rejects.
        if let Some(mean) = bins.first_mut() {
            mean.im = 0.0;
        }
        if n.is_multiple_of(2)
            && let Some(nyquist) = bins.last_mut()
        {
            nyquist.im = 0.0;
        }
        let mut values = plan.make_output_vec();
        plan.process(&mut bins, &mut values)
            .map_err(|_| ForecastError::NotFinite)?;
        let length = count(n);
        for value in &mut values {
            *value /= length;
        }
        Ok(values)
    }

    /// The circular autocorrelation that belongs to a spectrum whose bin 0 is ignored, as if the mean were zero.
    ///
    /// # Shape
    /// Input `n / 2 + 1` bins; output `n` values by lag; index 0 is 1, and the others lie within [-1, 1].
    /// `None` of a series without variance.
    pub fn autocorrelation(
        &mut self,
        bins: &[Complex<f64>],
        n: usize,
    ) -> Result<Option<Vec<f64>>, ForecastError> {
        let mut power: Vec<_> = bins
            .iter()
            .map(|bin| Complex::from(bin.norm_sqr()))
            .collect();
        if let Some(mean) = power.first_mut() {
            *mean = Complex::ZERO;
        }
        let mut lags = self.inverse(power, n)?;
        let variance = lags.first().copied().unwrap_or(0.0);
        if !variance.is_finite() || variance <= 0.0 {
            return Ok(None);
        }
        for lag in &mut lags {
            *lag /= variance;
        }
        Ok(Some(lags))
    }
}

/// The power that the strongest of the bins of white noise of unit variance exceeds once in a hundred times.
///
/// `n x` with `x = -ln(1 - 0.99^(1 / (n / 2 - 1)))`: each of the `n / 2 - 1` bins has a power that is exponentially
/// distributed with mean `n`.
///
/// # Source
/// Replaces the 99th percentile of a hundred random shuffles in crane's dsp; within 4 % of it on real traces, and
/// always the same.
pub fn noise_power(n: usize) -> f64 {
    let bins = count((n / 2).saturating_sub(1).max(1));
    -count(n) * (-((0.99_f64.ln() / bins).exp_m1())).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    fn wave(n: u32, cycles: f64) -> Vec<f64> {
        (0..n)
            .map(|i| 3.0 + (TAU * cycles * f64::from(i) / f64::from(n)).sin())
            .collect()
    }

    #[test]
    fn the_inverse_undoes_the_forward_transform_at_any_length() {
        let mut fourier = Fourier::new();
        for n in [1, 2, 3, 7, 100, 289, 1440] {
            let values = wave(n, 2.3);
            let bins = fourier.forward(&values).unwrap();
            let back = fourier.inverse(bins, values.len()).unwrap();
            assert!(
                values.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-12),
                "length {n}"
            );
        }
    }

    #[test]
    fn autocorrelation_is_one_at_each_whole_cycle() {
        let mut fourier = Fourier::new();
        let bins = fourier.forward(&wave(120, 5.0)).unwrap();
        let lags = fourier.autocorrelation(&bins, 120).unwrap().unwrap();
        for (lag, expected) in [(0, 1.0), (6, 0.0), (12, -1.0), (24, 1.0), (48, 1.0)] {
            assert!(
                (lags[lag] - expected).abs() < 1e-9,
                "lag {lag}: {}",
                lags[lag]
            );
        }
        let flat = fourier.forward(&[2.0; 16]).unwrap();
        assert_eq!(fourier.autocorrelation(&flat, 16), Ok(None));
    }

    #[test]
    fn the_noise_threshold_is_that_of_the_formula() {
        // n = 4320: x = -ln(1 - 0.99^(1/2159)) = 12.2776, so the magnitude is sqrt(4320 x) = 230.3.
        assert!(
            (noise_power(4320).sqrt() - 230.3).abs() < 0.1,
            "{}",
            noise_power(4320).sqrt()
        );
        assert!(noise_power(0).abs() < 1e-9);
    }
}
