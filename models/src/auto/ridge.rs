//! [`Ridge`]: recursive ridge regression with exponential forgetting and an asymmetric Huber loss.
//!
//! # Formula
//! `G = r G + u x x'`, `b = r b + u z x`; every so many steps `(G + diag(lambda)) beta = b + lambda * prior`.
//!
//! | symbol | is |
//! |---|---|
//! | `x`, `z`, `u` | the features, the outcome and the weight of one update |
//! | `r` | `retention`, what older updates keep: half after the half-life |
//! | `G`, `b` | `gram` and `moment`, the sums over all updates |
//! | `lambda` | the ridge, a part of the diagonal of `G` |
//! | `beta` | the coefficients |
//!
//! As `lambda` is a part of `G`, the solution does not depend on the unit of the weights. So the sums are not multiplied
//! by `r`; the weight `u` of each next update is divided by it.

use super::features::{FEATURES, GROWTH_OF_SIMILAR_DAYS, Row};

/// Updates before the first solution.
const LEAST_UPDATES: u32 = 120;
/// The ridge: a part of the diagonal, with a least value relative to the intercept's.
const RIDGE: (f64, f64) = (0.01, 1e-4);
/// The ridge of the intercept.
const RIDGE_OF_INTERCEPT: f64 = 1e-6;
/// The prior coefficient of the growth on similar days.
const PRIOR: f64 = 0.4;
/// The initial estimate of the error size, and the rate at which it adapts.
const SIGMA: f64 = 0.05;
const SIGMA_MOVES: f64 = 0.002;
/// The gain at which the sums are rescaled; half a year of updates at a half-life of a day.
const LARGEST_GAIN: f64 = 1e55;
/// Errors of more than this many sigmas have less weight.
const HUBER: f64 = 3.0;

/// The model and its accumulated sums.
///
/// # Shape
/// `gram` is [`FEATURES`] by [`FEATURES`], `moment` and `beta` have [`FEATURES`] values, all in the order of the
/// features.
#[derive(Debug, Clone)]
pub struct Ridge {
    /// The matrix by rows; only the lower triangle is used.
    gram: [Row; FEATURES],
    moment: Row,
    beta: Row,
    sigma: f64,
    updates: u32,
    /// The weight of the loss when the prediction was too low, between 0 and 1.
    tau: f64,
    /// The weight that older updates keep at each update.
    retention: f64,
    /// The weight of the next update, relative to that of the first one.
    gain: f64,
}

// === impl Ridge ===

impl Ridge {
    /// A model without data: it predicts a part of the growth on similar days.
    pub fn new(tau: f64, half_life: f64) -> Self {
        Self {
            gram: [[0.0; FEATURES]; FEATURES],
            moment: [0.0; FEATURES],
            beta: prior(),
            sigma: SIGMA,
            updates: 0,
            tau,
            retention: (-1.0 / half_life).exp2(),
            gain: 1.0,
        }
    }

    /// The prediction for these features.
    pub fn predict(&self, row: &Row) -> f64 {
        dot(&self.beta, row)
    }

    /// Learns that `row` was followed by `outcome`, which was `error` more than predicted.
    ///
    /// The weight of the update is `2 * tau` if the prediction was too low, else `2 * (1 - tau)`, and less by `3
    /// sigma / |error|` for an error beyond three of the usual ones.
    pub fn learn(&mut self, row: &Row, outcome: f64, error: f64) {
        let size = error.abs();
        let asymmetry = if error > 0.0 {
            self.tau
        } else {
            1.0 - self.tau
        };
        let huber = if size > 0.0 {
            (HUBER * self.sigma / size).min(1.0)
        } else {
            1.0
        };
        self.gain /= self.retention;
        if self.gain > LARGEST_GAIN {
            self.rescale();
        }
        // Twice, so that an update of a symmetric loss weighs one.
        let weight = self.gain * huber * 2.0 * asymmetry;
        // Limited, so that a single outlier hardly changes what counts as one.
        self.sigma += SIGMA_MOVES * (size.min(6.0 * self.sigma + 0.01) - self.sigma);
        // The upper triangle is never read, but whole rows vectorize better.
        for (sums, x) in self.gram.iter_mut().zip(row) {
            let weighted = weight * x;
            for (sum, y) in sums.iter_mut().zip(row) {
                *sum += weighted * y;
            }
        }
        for (sum, x) in self.moment.iter_mut().zip(row) {
            *sum += weight * outcome * x;
        }
        self.updates = self.updates.saturating_add(1);
    }

    /// Divides all sums by the gain.
    fn rescale(&mut self) {
        for sum in self.gram.iter_mut().flatten().chain(&mut self.moment) {
            *sum /= self.gain;
        }
        self.gain = 1.0;
    }

    /// Solves for the coefficients. Keeps the old ones and returns `false` if the equations have no solution.
    ///
    /// Before [`LEAST_UPDATES`] it keeps the prior.
    pub fn solve(&mut self) -> bool {
        if self.updates < LEAST_UPDATES {
            return true;
        }
        let mut gram = self.gram;
        let mut right = self.moment;
        let prior = prior();
        let (part, least) = RIDGE;
        let floor = least * self.gram[0][0];
        for j in 0..FEATURES {
            let ridge = if j == 0 {
                RIDGE_OF_INTERCEPT * self.gram[0][0]
            } else {
                part * self.gram[j][j].max(floor)
            };
            gram[j][j] += ridge;
            right[j] += ridge * prior[j];
        }
        let solved = cholesky(&mut gram).map(|()| substitute(&gram, right));
        match solved.filter(|beta| beta.iter().all(|b| b.is_finite())) {
            Some(beta) => self.beta = beta,
            None => return false,
        }
        true
    }
}

/// The coefficients that the ridge pulls towards: a part of the growth on similar days, and nothing else.
fn prior() -> Row {
    let mut prior = [0.0; FEATURES];
    prior[GROWTH_OF_SIMILAR_DAYS] = PRIOR;
    prior
}

/// The scalar product.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Replaces a lower triangle `A` by the `L` of `A = L L'`; `None` if `A` is not positive definite.
fn cholesky(a: &mut [Row; FEATURES]) -> Option<()> {
    for j in 0..FEATURES {
        // False for NaN too.
        let definite = a[j][j] > 0.0;
        let pivot = definite.then(|| a[j][j].sqrt())?;
        a[j][j] = pivot;
        let mut column = [0.0; FEATURES];
        for i in j + 1..FEATURES {
            a[i][j] /= pivot;
            column[i] = a[i][j];
        }
        for i in j + 1..FEATURES {
            let rests = a[i][j + 1..=i].iter_mut();
            for (rest, other) in rests.zip(&column[j + 1..=i]) {
                *rest -= column[i] * other;
            }
        }
    }
    Some(())
}

/// Solves `L L' x = right`.
fn substitute(l: &[Row; FEATURES], right: Row) -> Row {
    let mut x = right;
    for i in 0..FEATURES {
        x[i] = (x[i] - dot(&l[i][..i], &x[..i])) / l[i][i];
    }
    for i in (0..FEATURES).rev() {
        let below: f64 = (i + 1..FEATURES).map(|j| l[j][i] * x[j]).sum();
        x[i] = (x[i] - below) / l[i][i];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that vary in every feature, without randomness.
    fn row(i: u32) -> Row {
        std::array::from_fn(|j| {
            if j == 0 {
                1.0
            } else {
                (f64::from(i) * (0.37 + 0.61 * crate::series::count(j))).sin()
            }
        })
    }

    #[test]
    fn a_linear_relation_is_learned() {
        let law: Row = std::array::from_fn(|j| 0.1 * crate::series::count(j) - 0.7);
        let mut ridge = Ridge::new(0.5, 1440.0);
        for i in 0..3000 {
            let outcome = dot(&law, &row(i));
            ridge.learn(&row(i), outcome, outcome - ridge.predict(&row(i)));
            if i % 10 == 0 {
                assert!(ridge.solve());
            }
        }
        let off = (ridge.predict(&row(5000)) - dot(&law, &row(5000))).abs();
        assert!(off < 0.05, "{off}");
    }

    #[test]
    fn without_data_a_part_of_the_growth_on_similar_days_is_predicted() {
        let ridge = Ridge::new(0.8, 1440.0);
        let mut row = [0.0; FEATURES];
        row[GROWTH_OF_SIMILAR_DAYS] = 2.0;
        assert!((ridge.predict(&row) - 0.8).abs() < 1e-12);
    }

    #[test]
    fn equations_without_a_solution_keep_the_coefficients() {
        let mut ridge = Ridge::new(0.8, 1440.0);
        for _ in 0..200 {
            ridge.learn(&[f64::NAN; FEATURES], 1.0, 1.0);
        }
        assert!(!ridge.solve());
        assert_eq!(ridge.beta.map(f64::to_bits), prior().map(f64::to_bits));
    }

    #[test]
    fn a_prediction_that_is_too_low_weighs_more_than_one_too_high() {
        // The outcome alternates between 0 and 1: the expectile of 0.8 lies at 0.8.
        let mut ridge = Ridge::new(0.8, 1440.0);
        let mut one = [0.0; FEATURES];
        one[0] = 1.0;
        for i in 0..20_000_u32 {
            let outcome = f64::from(i % 2);
            ridge.learn(&one, outcome, outcome - ridge.predict(&one));
            ridge.solve();
        }
        assert!(
            (ridge.predict(&one) - 0.8).abs() < 0.02,
            "{}",
            ridge.predict(&one)
        );
    }
}
