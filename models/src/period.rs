//! Detects a daily or weekly period of a series. Both lags are tested directly, on five-minute means, so that a
//! strong shorter rhythm within the day does not hide them.
//!
//! ```text
//! values -> five-minute means -> whole days, whole weeks -> without growth and the mean of each -> autocorrelation
//!                                                        -> is the lag a period? a week only if it is worth it
//! ```

use std::ops::RangeInclusive;

use jiff::SignedDuration;
use rustfft::num_complex::Complex;

use crate::error::ForecastError;
use crate::gaps::quantile_in_place;
use crate::series::{count, slots};
use crate::spectrum::{Fourier, noise_power};

pub const DAY: SignedDuration = SignedDuration::from_hours(24);
pub const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The least autocorrelation of a period.
///
/// # Source
/// A daily sine with white noise has 0.4 when the noise's deviation is 87 % of the amplitude. Of the traces published
/// with crane, those with a visible day or week have 0.63 to 0.99; the one without has 0.32.
const MIN_CORRELATION: f64 = 0.4;

/// The least fall of the autocorrelation on both sides of a lag. A slow drift correlates at every lag.
const MIN_PROMINENCE: f64 = 0.1;

/// A week is preferred to a day if its unexplained variance is less than this part of a day's.
///
/// A day needs less history and follows changes sooner; the margin keeps the choice from flipping between refits.
const WEEK_GAIN: f64 = 0.75;

/// Detection uses means of this length, which removes noise that is irrelevant for days.
const BLOCK: SignedDuration = SignedDuration::from_mins(5);

/// A repeating lag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Period {
    /// The length in slots of the series.
    pub slots: usize,
    pub length: SignedDuration,
    /// The growth from one period to the next, shared by three quarters of all pairs a period apart; often zero.
    pub growth: f64,
}

/// The lag with the highest autocorrelation.
#[derive(Debug, Clone, Copy)]
struct BestLag {
    blocks: usize,
    correlation: f64,
}

/// Detects a daily or weekly period.
///
/// A lag is a period if two of it fit, a harmonic of it rises above white noise, its autocorrelation is at least 0.4
/// and at least 0.1 above the lowest within half a period on either side. Growth from period to period and the mean of
/// each period are removed first.
///
/// # Shape
/// `values` without holes, the last one the newest; a day must be a whole number of steps.
///
/// # Errors
/// [`ForecastError::NotPeriodic`] with the best lag of any length, [`ForecastError::InsufficientHistory`] under two
/// days.
pub fn detect(
    fourier: &mut Fourier,
    values: &[f64],
    step: SignedDuration,
) -> Result<Period, ForecastError> {
    let day = slots(DAY, step).unwrap_or(0);
    let block = slots(BLOCK, step)
        // Otherwise the lag of a day would lie between two blocks.
        .filter(|b| *b > 0 && day.is_multiple_of(*b))
        .unwrap_or(1);
    let means: Vec<f64> = values
        // From the end, so that the newest block is whole.
        .rchunks_exact(block)
        .rev()
        .map(|b| b.iter().sum::<f64>() / count(block))
        .collect();
    let day_blocks = day / block;
    let daily = Candidate::examine(fourier, &means, day_blocks)?;
    let weekly = Candidate::examine(fourier, &means, 7 * day_blocks)?;
    let found = [(&weekly, WEEK), (&daily, DAY)]
        .into_iter()
        .find_map(|(candidate, length)| {
            let candidate = candidate.as_ref()?;
            let worthwhile = length == DAY
                || !daily.as_ref().is_some_and(Candidate::is_period)
                || candidate.beats_lag(day_blocks);
            (candidate.is_period() && worthwhile).then_some((candidate, length))
        });
    if let Some((candidate, length)) = found {
        let slots = candidate.blocks * block;
        return Ok(Period {
            slots,
            length,
            growth: candidate.growth,
        });
    }
    let best = daily
        .or(weekly)
        .map(|candidate| candidate.best_lag())
        .ok_or_else(|| {
            let have = i32::try_from(values.len())
                .ok()
                .and_then(|n| step.checked_mul(n));
            ForecastError::InsufficientHistory {
                have: have.unwrap_or(SignedDuration::MAX),
                need: DAY * 2,
            }
        })?;
    let lag = i32::try_from(best.blocks * block)
        .ok()
        .and_then(|n| step.checked_mul(n));
    Err(ForecastError::NotPeriodic {
        best_lag: lag.unwrap_or(SignedDuration::MAX),
        correlation: best.correlation,
    })
}

/// The evidence for a period of one length, from the newest whole periods.
struct Candidate {
    blocks: usize,
    growth: f64,
    significant: bool,
    /// Circular autocorrelation by lag; zeros of a series without variance.
    lags: Vec<f64>,
}

// === impl Candidate ===

impl Candidate {
    /// The evidence for a period of this many blocks; `None` if less than two of them fit.
    ///
    /// # Shape
    /// `means` are of blocks, the newest last. The oldest part of a period that is not whole is left out.
    fn examine(
        fourier: &mut Fourier,
        means: &[f64],
        blocks: usize,
    ) -> Result<Option<Self>, ForecastError> {
        let periods = means.len().checked_div(blocks).unwrap_or(0);
        let n = periods * blocks;
        if periods < 2 {
            return Ok(None);
        }
        let newest = means.get(means.len() - n..).unwrap_or(means);
        let growth = growth(newest, blocks);
        let slope = growth / count(blocks);
        let level: Vec<f64> = newest
            .iter()
            .enumerate()
            .map(|(i, value)| value - slope * count(i))
            .collect();
        let bins = fourier.forward(&centred(&level, blocks))?;
        let lags = fourier
            .autocorrelation(&bins, n)?
            .unwrap_or_else(|| vec![0.0; n]);
        let significant = stands_out(&bins, n, periods) && !is_rounding(newest, &level);
        Ok(Some(Self {
            blocks,
            growth,
            significant,
            lags,
        }))
    }

    /// Returns true if the evidence is enough: see [`detect`].
    fn is_period(&self) -> bool {
        let half = self.blocks / 2;
        self.significant
            && self.at(self.blocks) >= MIN_CORRELATION
            && self.fall(half..=self.blocks) >= MIN_PROMINENCE
            && self.fall(self.blocks..=self.blocks + half) >= MIN_PROMINENCE
    }

    /// The largest fall of the autocorrelation from that of the period to one of these lags.
    fn fall(&self, lags: RangeInclusive<usize>) -> f64 {
        let at = self.at(self.blocks);
        lags.map(|lag| at - self.at(lag))
            .fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns true if this period explains so much more of the variance than a shorter one that it is worth its longer
    /// history.
    fn beats_lag(&self, shorter: usize) -> bool {
        1.0 - self.at(self.blocks) < WEEK_GAIN * (1.0 - self.at(shorter))
    }

    /// The highest autocorrelation beyond the first trough, where likeness to the very next values has ended.
    fn best_lag(&self) -> BestLag {
        let half = self.lags.len() / 2;
        let rises = (1..half)
            .find(|lag| self.at(lag + 1) > self.at(*lag))
            .unwrap_or(half);
        let best = (rises..=half).fold(rises, |best, lag| {
            // Of lags that differ by rounding errors only, the shortest.
            if self.at(lag) > self.at(best) + 1e-9 {
                lag
            } else {
                best
            }
        });
        BestLag {
            blocks: best,
            correlation: self.at(best),
        }
    }

    /// The autocorrelation at a lag. Circular: the lags repeat after the length of the series.
    fn at(&self, lag: usize) -> f64 {
        self.lags
            .get(lag % self.lags.len().max(1))
            .copied()
            .unwrap_or(0.0)
    }
}

/// Returns true if one of the harmonics of `periods` cycles rises above white noise of the same variance.
fn stands_out(bins: &[Complex<f64>], n: usize, periods: usize) -> bool {
    // Twice: a bin of a real series stands for two of the full spectrum.
    let energy: f64 = bins.iter().skip(1).map(Complex::norm_sqr).sum::<f64>() * 2.0;
    let variance = energy / count(n) / count(n);
    // The series has `periods` cycles, so the harmonics of one cycle are every `periods`-th bin.
    let strongest = bins
        .iter()
        .step_by(periods)
        .skip(1)
        .map(Complex::norm_sqr)
        .fold(0.0, f64::max);
    variance > 0.0 && strongest > noise_power(n) * variance
}

/// Each period minus its own mean, so that a change of the level does not hide the period.
fn centred(values: &[f64], period: usize) -> Vec<f64> {
    let mut centred = values.to_vec();
    for chunk in centred.chunks_mut(period.max(1)) {
        let mean = chunk.iter().sum::<f64>() / count(chunk.len());
        for value in chunk {
            *value -= mean;
        }
    }
    centred
}

/// Returns true if only rounding errors are left after the growth was removed: a straight line has no period.
fn is_rounding(values: &[f64], level: &[f64]) -> bool {
    let mean = level.iter().sum::<f64>() / count(level.len().max(1));
    let left = level
        .iter()
        .map(|value| (value - mean).abs())
        .fold(0.0, f64::max);
    left <= 1e-9 * values.iter().copied().fold(0.0, f64::max)
}

/// The difference to the period before that three quarters of all values reach, or zero where they disagree in sign.
///
/// Needs three periods: with two, a step cannot be distinguished from growth.
fn growth(values: &[f64], period: usize) -> f64 {
    if values.len() < 3 * period {
        return 0.0;
    }
    let mut steps: Vec<f64> = values
        .iter()
        .skip(period)
        .zip(values)
        .map(|(late, early)| late - early)
        .collect();
    let low = quantile_in_place(&mut steps, 0.25).unwrap_or(0.0);
    let high = quantile_in_place(&mut steps, 0.75).unwrap_or(0.0);
    low.max(0.0) + high.min(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    const STEP: SignedDuration = SignedDuration::from_mins(5);

    /// Values of `f(hours)` every five minutes over `days`.
    fn series(days: u32, f: impl Fn(f64) -> f64) -> Vec<f64> {
        (0..days * 288).map(|i| f(f64::from(i) / 12.0)).collect()
    }

    fn found(values: &[f64]) -> Result<(SignedDuration, f64), ForecastError> {
        let period = detect(&mut Fourier::new(), values, STEP)?;
        Ok((period.length, period.growth))
    }

    fn noise(hours: f64) -> f64 {
        (hours * 12.0 * 12.9898)
            .sin()
            .mul_add(43_758.547, 0.0)
            .rem_euclid(1.0)
            - 0.5
    }

    fn weekday(hours: f64) -> f64 {
        if (hours / 24.0).rem_euclid(7.0) < 5.0 {
            1.0
        } else {
            0.2
        }
    }

    #[test]
    fn days_and_weeks_are_found() {
        let day = |h: f64| (TAU * h / 24.0).sin();
        let shift = |h: f64| if h < 48.0 { 1.0 } else { 2.0 };
        let job = |h: f64| if h % 24.0 < 0.2 { 9.0 } else { 0.1 };
        for (what, days) in [
            ("a day", series(3, |h| 5.0 + day(h))),
            ("two are enough", series(2, |h| 5.0 + day(h))),
            ("noise", series(3, |h| 5.0 + day(h) + noise(h))),
            ("hours", series(3, |h| 9.0 + day(h) + 3.0 * day(24.0 * h))),
            ("half a day", series(3, |h| 5.0 + day(2.0 * h))),
            ("ten minutes a day", series(4, job)),
            ("a level shift", series(4, |h| (2.0 + day(h)) * shift(h))),
            ("equal days", series(14, |h| 5.0 + day(h) + noise(h))),
            ("no week", series(13, |h| weekday(h) * (2.0 + day(h)))),
        ] {
            let (length, _) = found(&days).unwrap();
            assert_eq!(length, DAY, "{what}");
        }
        let weeks = series(14, |h| weekday(h) * (2.0 + day(h)));
        assert_eq!(found(&weeks).unwrap().0, WEEK);
    }

    #[test]
    fn growth_from_day_to_day_is_measured() {
        let growing = series(4, |h| 50.0 + h / 24.0 * 3.0 + (TAU * h / 24.0).sin());
        let (length, growth) = found(&growing).unwrap();
        assert_eq!(length, DAY);
        assert!((growth - 3.0).abs() < 1e-9, "{growth}");
        let shifted = series(4, |h| {
            3.0 * (TAU * h / 24.0).sin() + if h < 84.0 { 5.0 } else { 7.0 }
        });
        assert_eq!(found(&shifted), Ok((DAY, 0.0)));
    }

    #[test]
    fn an_aperiodic_series_is_an_error_with_the_best_lag() {
        let nine_hours = series(3, |h| 5.0 + (TAU * h / 9.0).sin());
        let error = found(&nine_hours).unwrap_err();
        let ForecastError::NotPeriodic {
            best_lag,
            correlation,
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!(best_lag, SignedDuration::from_hours(9));
        assert!(correlation > 0.98, "{correlation}");
        let cases = [
            ("noise", series(5, |h| 5.0 + noise(h))),
            ("a line", series(5, |h| h)),
            ("one step", series(5, |h| if h < 50.0 { 1.0 } else { 7.0 })),
            ("constant", series(5, |_| 4.0)),
        ];
        for (name, values) in cases {
            let error = found(&values).unwrap_err();
            assert!(matches!(error, ForecastError::NotPeriodic { .. }), "{name}");
        }
        let short = found(&series(1, |h| h)).unwrap_err();
        assert!(matches!(short, ForecastError::InsufficientHistory { .. }));
    }
}
