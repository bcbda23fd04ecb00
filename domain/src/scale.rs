//! Replica counts, their bounds, and the object that is scaled.
//!
//! Every count in the domain is a [`Replicas`], so an overflow or a negative number cannot reach the
//! API.
//!
//! ```
//! use foretide_domain::{ReplicaBounds, Replicas};
//!
//! let bounds = ReplicaBounds::new(Replicas::new(2), Replicas::new(10));
//! assert_eq!(bounds.clamp(Replicas::for_demand(10.2)), Replicas::new(10));
//! ```

use derive_more::{Display, Into};
use serde::{Deserialize, Serialize};

/// A demand this much above a whole number of replicas, relative to it, asks for no more of them: a hundred-millionth.
///
/// # Source
/// A forecast comes from logarithms, sums and transforms of thousands of doubles, whose rounding errors stay below a
/// billionth; 300 at 60 per replica came out as 300.0000000000001, which is not a sixth replica.
const ROUNDING: f64 = 1e-8;

/// A number of pods: never negative, and never more than the API's signed 32-bit field can hold.
///
/// Arithmetic saturates at both ends, so a sum of many counts is still one that the API accepts.
///
/// ```
/// use foretide_domain::Replicas;
///
/// let three = Replicas::new(3);
/// assert_eq!(three.saturating_add(Replicas::new(4)).get(), 7);
/// assert_eq!(three.saturating_sub(Replicas::new(4)), Replicas::ZERO);
/// assert_eq!(Replicas::MAX.saturating_add(three), Replicas::MAX);
/// ```
#[derive(Serialize, Deserialize, Display, Into)]
#[serde(from = "u32", into = "u32")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replicas(u32);

impl Replicas {
    /// No pods at all.
    pub const ZERO: Self = Self(0);
    /// The largest count the API can carry: `i32::MAX`.
    pub const MAX: Self = Self(i32::MAX.unsigned_abs());

    /// The count `n`, capped at [`Replicas::MAX`].
    pub const fn new(n: u32) -> Self {
        if n > Self::MAX.0 { Self::MAX } else { Self(n) }
    }

    /// The count as a plain number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The sum, capped at [`Replicas::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self::new(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The count the API wrote; a negative one is zero.
    ///
    /// ```
    /// use foretide_domain::Replicas;
    ///
    /// assert_eq!(Replicas::from_i32(5).as_i32(), 5);
    /// assert_eq!(Replicas::from_i32(-1), Replicas::ZERO);
    /// ```
    pub const fn from_i32(n: i32) -> Self {
        if n < 0 {
            Self::ZERO
        } else {
            Self(n.unsigned_abs())
        }
    }

    /// The count as the API writes it.
    pub const fn as_i32(self) -> i32 {
        // `new` keeps the value within i32, so the cast cannot wrap.
        self.0.cast_signed()
    }

    /// The count as a double, exactly.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0)
    }

    /// Number of replicas that carry a demand of `demand / target` replicas: rounded up, except for an excess that may
    /// be an error of the arithmetic.
    ///
    /// All values that are divided by a target use it, except for observed metrics: they are rounded as the HPA rounds
    /// them.
    ///
    /// `ceil(x - slack)`, where `slack` is 1e-8 of `x`, at least 1e-8 and at most one half; saturating at both ends;
    /// `NaN` is zero.
    ///
    /// ```
    /// use foretide_domain::Replicas;
    ///
    /// assert_eq!(Replicas::for_demand(300.000_000_000_000_1 / 60.0), Replicas::new(5));
    /// assert_eq!(Replicas::for_demand(300.001 / 60.0), Replicas::new(6));
    /// ```
    pub fn for_demand(replicas: f64) -> Self {
        Self::from_f64_ceil(replicas - (replicas * ROUNDING).clamp(ROUNDING, 0.5))
    }

    /// `ceil(x)`, saturating at both ends; `NaN` is zero.
    pub fn from_f64_ceil(x: f64) -> Self {
        Self::from_f64_trunc(x.ceil())
    }

    /// `trunc(x)`, saturating at both ends; `NaN` is zero.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the cast saturates, which is the contract"
    )]
    pub fn from_f64_trunc(x: f64) -> Self {
        Self::from_i32(x as i32)
    }

    /// Difference of two counts, without a sign.
    ///
    /// ```
    /// use foretide_domain::Replicas;
    ///
    /// assert_eq!(Replicas::new(3).distance(Replicas::new(8)), Replicas::new(5));
    /// assert_eq!(Replicas::new(8).distance(Replicas::new(3)), Replicas::new(5));
    /// ```
    #[must_use]
    pub const fn distance(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }
}

impl From<u32> for Replicas {
    fn from(n: u32) -> Self {
        Self::new(n)
    }
}

/// The smallest and the largest count that is allowed. By default both are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplicaBounds {
    /// `minReplicas`.
    pub min: Replicas,
    /// `maxReplicas`.
    pub max: Replicas,
}

impl ReplicaBounds {
    /// The bounds `min..=max`.
    pub const fn new(min: Replicas, max: Replicas) -> Self {
        Self { min, max }
    }

    /// `n` moved into the bounds; if `max` is below `min`, the result is `min`.
    ///
    /// ```
    /// use foretide_domain::{ReplicaBounds, Replicas};
    ///
    /// let bounds = ReplicaBounds::new(Replicas::new(2), Replicas::new(10));
    /// assert_eq!(bounds.clamp(Replicas::new(40)), Replicas::new(10));
    /// assert_eq!(bounds.clamp(Replicas::ZERO), Replicas::new(2));
    /// ```
    pub fn clamp(self, n: Replicas) -> Replicas {
        // Not `Ord::clamp`, which panics if `max` is below `min`.
        n.min(self.max).max(self.min)
    }

    /// Returns true if `min <= n <= max`.
    pub fn contains(self, n: Replicas) -> bool {
        self.min <= n && n <= self.max
    }
}

/// The object that is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[display("{kind} {namespace}/{name}")]
pub struct ScaleTarget {
    /// Group and version, such as `apps/v1`.
    pub api_version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_count_saturates_instead_of_wrapping() {
        for (x, want) in [
            (0.0, 0),
            (-0.5, 0),
            (-7.0, 0),
            (0.1, 1),
            (3.0, 3),
            (3.000_000_1, 4),
            (2_147_483_647.0, 2_147_483_647),
            (1e30, 2_147_483_647),
            (f64::INFINITY, 2_147_483_647),
            (f64::NEG_INFINITY, 0),
            (f64::NAN, 0),
        ] {
            assert_eq!(Replicas::from_f64_ceil(x), Replicas::new(want), "ceil({x})");
        }
        assert_eq!(Replicas::new(u32::MAX).as_i32(), i32::MAX);
        assert_eq!(Replicas::from_i32(-1), Replicas::ZERO);
    }

    #[test]
    fn a_demand_is_rounded_up_except_for_errors_of_the_arithmetic() {
        for (demand, want) in [
            (0.0, 0),
            (1e-13, 0),
            (1e-7, 1),
            (5.000_000_000_000_001, 5),
            (5.000_001, 6),
            (4.999_999, 5),
            (999_999_999.0, 999_999_999),
            (999_999_999.9, 1_000_000_000),
            (2_147_483_647.0, 2_147_483_647),
            (1e300, 2_147_483_647),
            (-1.0, 0),
            (f64::INFINITY, 2_147_483_647),
            (f64::NAN, 0),
        ] {
            assert_eq!(
                Replicas::for_demand(demand),
                Replicas::new(want),
                "{demand}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_demand_of_whole_targets_is_that_many_replicas(
            target in prop_oneof![1e-3_f64..1e3, 1e3..1e12, (1..100_000_u32).prop_map(|milli| f64::from(milli) / 1000.0)],
            error in -1e-9..=1e-9_f64,
            more in 1e-3..=1.0_f64,
        ) {
            for n in 1..=1000_u32 {
                let demand = f64::from(n) * target;
                let near = [demand, demand.next_up().next_up(), demand.next_down(), demand * (1.0 + error)];
                for demand in near {
                    prop_assert_eq!(Replicas::for_demand(demand / target), Replicas::new(n), "{} / {}", demand, target);
                }
                let above = (f64::from(n) + more) * target;
                prop_assert_eq!(Replicas::for_demand(above / target), Replicas::new(n + 1), "{} / {}", above, target);
            }
        }
    }

    #[test]
    fn crossed_bounds_obey_the_minimum() {
        let crossed = ReplicaBounds::new(Replicas::new(5), Replicas::new(3));
        assert_eq!(crossed.clamp(Replicas::new(4)), Replicas::new(5));
        assert!(!crossed.contains(Replicas::new(4)));
    }
}
