//! The spec of an autoscaler, as far as the algorithm reads it.

use super::{Behavior, MetricSpec, ZeroRule};
use crate::{ReplicaBounds, Replicas};

/// The spec of an autoscaler. It borrows its parts, so that the same spec with other bounds needs no copy.
///
/// ```
/// use foretide_domain::hpa::Hpa;
/// use foretide_domain::{ReplicaBounds, Replicas};
///
/// let spec = Hpa {
///     bounds: ReplicaBounds::new(Replicas::new(1), Replicas::new(10)),
///     metrics: &[],
///     behavior: None,
/// };
/// let of_a_member = Hpa { bounds: ReplicaBounds::new(Replicas::new(1), Replicas::new(4)), ..spec };
/// assert_eq!(of_a_member.bounds.max, Replicas::new(4));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Hpa<'a> {
    /// `minReplicas` and `maxReplicas`.
    pub bounds: ReplicaBounds,
    /// `metrics`, in the spec's order.
    pub metrics: &'a [MetricSpec],
    /// `behavior`; `None` is not the same as an empty one.
    pub behavior: Option<&'a Behavior>,
}

impl Hpa<'_> {
    /// Returns true if any metric can be read without pods: type Object or External.
    pub fn reads_beyond_pods(&self) -> bool {
        self.metrics.iter().any(|metric| !metric.is_of_pods())
    }

    /// Returns true if metrics are computed at zero replicas.
    ///
    /// `scaled_to_zero`: the last change was this autoscaler's own, from above zero to zero.
    pub(crate) fn computes_at_zero(&self, rule: ZeroRule, scaled_to_zero: bool) -> bool {
        let min_is_zero = self.bounds.min == Replicas::ZERO;
        match rule {
            ZeroRule::Never => false,
            ZeroRule::WhenScaledToZero => {
                scaled_to_zero && (!min_is_zero || self.reads_beyond_pods())
            }
            ZeroRule::WhenMinIsZero => min_is_zero,
        }
    }
}
