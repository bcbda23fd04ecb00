//! Simulated readings of a metrics API: the demand, divided equally over the pods that served it, exact and without
//! delay.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::{
    Reading,
    hpa::MetricSpec,
    observation::{
        Cause, ContainerUsage, Measured, Pod, PodSample, PodUsage, Requests, Unavailable,
    },
};

/// The span that a measurement covers.
const MEASURED_OVER: SignedDuration = SignedDuration::from_mins(1);

/// The reading of a metric whose total is `demand`, served by `pods`.
///
/// # Units
/// `demand` is in the metric's base unit; readings are in milli-units.
///
/// # Errors
/// [`Cause::NoSamples`] without a demand.
///
/// ```
/// use foretide_domain::hpa::{MetricSpec, Target};
/// use foretide_domain::observation::Measured;
/// use foretide_domain::sim::measure::reading;
/// use jiff::Timestamp;
///
/// let queue = MetricSpec::External {
///     metric: "queue".into(),
///     selector: None,
///     target: Target::AverageValue(4_000),
/// };
/// let now = Timestamp::UNIX_EPOCH;
/// assert_eq!(reading(&queue, Some(12.0), &[], now), Ok(Measured::Total(vec![12_000])));
/// assert!(reading(&queue, None, &[], now).is_err());
/// ```
pub fn reading(
    metric: &MetricSpec,
    demand: Option<f64>,
    pods: &[Arc<Pod>],
    at: Timestamp,
) -> Reading {
    let Some(demand) = demand else {
        let message = "the history has no recent value";
        return Err(Unavailable::new(Cause::NoSamples, message));
    };
    let total = thousand_times(demand);
    let each = pods.iter().zip(shares(total, pods.len()));
    Ok(match (metric.resource(), metric) {
        (Some((resource, container)), _) => Measured::Usage(
            each.map(|(pod, share)| usage(pod, resource, container, share, at))
                .collect(),
        ),
        (None, MetricSpec::Pods { .. }) => Measured::Samples(
            each.map(|(pod, value)| PodSample {
                pod: Arc::clone(&pod.name),
                value,
                at,
                window: MEASURED_OVER,
            })
            .collect(),
        ),
        (None, _) => Measured::Total(vec![total]),
    })
}

/// One pod's usage of a resource, all of it in one container: the named one, or the first.
fn usage(
    pod: &Pod,
    resource: &str,
    container: Option<&str>,
    share: i64,
    at: Timestamp,
) -> Arc<PodUsage> {
    let containers = pod.containers.iter().enumerate().map(|(index, each)| {
        let counts = container.map_or(index == 0, |wanted| wanted == &*each.name);
        ContainerUsage {
            name: Arc::clone(&each.name),
            usage: Requests::from_iter([(resource, if counts { share } else { 0 })]),
        }
    });
    Arc::new(PodUsage {
        pod: Arc::clone(&pod.name),
        at,
        window: MEASURED_OVER,
        containers: containers.collect(),
    })
}

/// Whole parts that sum up to the total.
fn shares(total: i64, parts: usize) -> impl Iterator<Item = i64> {
    let count = i64::try_from(parts).unwrap_or(i64::MAX).max(1);
    let (share, rest) = (total / count, total % count);
    (0..count).map(move |index| share + i64::from(index < rest))
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
fn thousand_times(value: f64) -> i64 {
    (value * 1000.0).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_and_sum_up() {
        assert_eq!(shares(10, 4).collect::<Vec<_>>(), [3, 3, 2, 2]);
        assert_eq!(shares(9, 3).collect::<Vec<_>>(), [3, 3, 3]);
        assert_eq!(shares(5, 0).collect::<Vec<_>>(), [5]);
    }
}
