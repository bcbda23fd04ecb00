//! Usage against target: the two ratios and the tolerance around 1.
//!
//! The order of the floating-point operations is part of the result and must not be changed.
//!
//! Source: upstream `metrics/utilization.go` and the tolerance test of `replica_calculator.go`.

/// Distance of a ratio from 1 up to which nothing changes, per direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Distance below 1.
    pub down: f64,
    /// Distance above 1.
    pub up: f64,
}

impl Tolerance {
    /// Returns true if `(1 - down) <= ratio <= (1 + up)`, both bounds inclusive.
    ///
    /// ```
    /// use foretide_domain::hpa::Tolerance;
    ///
    /// let tolerance = Tolerance { down: 0.05, up: 0.1 };
    /// assert!(tolerance.covers(1.1));
    /// assert!(!tolerance.covers(0.94));
    /// ```
    pub fn covers(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// Usage relative to a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// `usage / target`.
    pub ratio: f64,
    /// Usage in the unit of the target: whole percent of the requests, or milli-units per pod.
    pub usage: i64,
    /// Mean usage per pod, milli-units, truncated.
    pub raw_average: i64,
}

/// Usage in whole percents of the summed requests, relative to a target in percent.
///
/// `pods` gives (usage, request) of every pod that has both. A ratio of sums, cut to whole percents
/// *before* the division: `trunc(sum usage * 100 / sum request) / target`. `None` when the requests sum
/// to zero.
///
/// # Units
/// Usage and requests in milli-units, the target in percent.
///
/// ```
/// use foretide_domain::hpa::utilization_ratio;
///
/// // 400m of 800m are 50 %, against a target of 80 %.
/// let ratio = utilization_ratio([(300, 400), (100, 400)], 80);
/// assert_eq!(ratio.map(|ratio| (ratio.ratio, ratio.usage)), Some((0.625, 50)));
/// assert_eq!(utilization_ratio([(300, 0)], 80), None);
/// ```
pub fn utilization_ratio(pods: impl IntoIterator<Item = (i64, i64)>, target: i32) -> Option<Ratio> {
    let (mut usage, mut request, mut count) = (0_i128, 0_i128, 0_i128);
    for (used, requested) in pods {
        usage += i128::from(used);
        request += i128::from(requested);
        count += 1;
    }
    let utilization = narrow_i32((usage * 100).checked_div(request)?);
    let raw_average = narrow(usage.checked_div(count)?);
    let ratio = f64::from(utilization) / f64::from(target);
    Some(Ratio {
        ratio,
        usage: i64::from(utilization),
        raw_average,
    })
}

/// The truncated mean of per-pod values against a target per pod, milli-units. `None` without values.
///
/// ```
/// use foretide_domain::hpa::usage_ratio;
///
/// let ratio = usage_ratio([300, 101], 100);
/// assert_eq!(ratio.map(|ratio| (ratio.ratio, ratio.usage)), Some((2.0, 200)));
/// assert_eq!(usage_ratio([], 100), None);
/// ```
pub fn usage_ratio(values: impl IntoIterator<Item = i64>, target: i64) -> Option<Ratio> {
    let (mut sum, mut count) = (0_i128, 0_i128);
    for value in values {
        sum += i128::from(value);
        count += 1;
    }
    let usage = narrow(sum.checked_div(count)?);
    Some(Ratio {
        ratio: as_f64(usage) / as_f64(target),
        usage,
        raw_average: usage,
    })
}

/// Milli-units as a double, rounded to the nearest one as Go does.
#[expect(clippy::cast_precision_loss, reason = "upstream loses the same bits")]
pub(super) fn as_f64(milli: i64) -> f64 {
    milli as f64
}

/// Saturates at the range of the API's integers.
pub(super) fn narrow(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

fn narrow_i32(n: i128) -> i32 {
    i32::try_from(n).unwrap_or(if n < 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_of_the_tolerance_are_inclusive() {
        let tenth = Tolerance { down: 0.1, up: 0.1 };
        for (ratio, want) in [
            (1.1, true),
            (0.9, true),
            (1.100_000_000_000_000_3, false),
            (0.899_999_999_999_999_9, false),
            (f64::NAN, false),
            (f64::INFINITY, false),
        ] {
            assert_eq!(tenth.covers(ratio), want, "{ratio}");
        }
        // Here 1 - 0.99 is a little more than 0.01.
        assert!(
            Tolerance {
                down: 0.01,
                up: 0.0
            }
            .covers(0.99)
        );
        assert!(!Tolerance { down: 0.1, up: 0.0 }.covers(1.01));
    }

    #[test]
    fn utilization_is_a_ratio_of_sums_cut_to_whole_percents() {
        let pods = [(39, 1000)];
        let got = utilization_ratio(pods, 3);
        assert_eq!(
            got,
            Some(Ratio {
                ratio: 1.0,
                usage: 3,
                raw_average: 39
            })
        );
        assert_eq!(utilization_ratio([(5, 0)], 50), None);
        assert_eq!(utilization_ratio([], 50), None);
        let huge = [(i64::MAX, 1), (i64::MAX, 1)];
        assert_eq!(
            utilization_ratio(huge, 50).map(|r| r.usage),
            Some(i64::from(i32::MAX))
        );
    }
}
