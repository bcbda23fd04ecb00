//! The demand that one replica should carry, and the total demand that all replicas carry now, in base units.
//!
//! A forecast of total demand is divided by [`target`]. A utilization target becomes an amount by the mean request of
//! the serving pods, or of the pod template if none serves. Without a request there is no target.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{
    hpa::{MetricSpec, Target},
    observation::{Container, Measured, Pod, PodUsage, Status},
};

/// A reading older than this is not part of the current total.
const FRESH: SignedDuration = SignedDuration::from_mins(2);

/// Milli-units per unit.
const MILLI: f64 = 1000.0;

/// Reason for which a metric has no target per pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A utilization target for a resource that is not requested.
    #[error(
        "container {container:?} has no {resource} request, so a utilization target cannot be resolved: set \
         resources.requests.{resource} or use averageValue"
    )]
    MissingRequest {
        /// Name of the container; `*` where there is no container at all.
        container: String,
        /// Name of the resource.
        resource: String,
    },
    /// The metric's type or target cannot be forecast.
    #[error(
        "metric {metric} has no target per pod, so it cannot be forecast: use averageValue or averageUtilization"
    )]
    NotForecastable {
        /// Identifier of the metric.
        metric: String,
    },
}

/// The demand that one pod should carry: what forecasts of the metric are divided by.
///
/// A `value` target is not an amount per pod: a demand divided by it would give a count that grows with every pod added
/// before the metric reacts.
///
/// ```
/// use foretide_domain::demand;
/// use foretide_domain::hpa::{MetricSpec, Target};
/// use foretide_domain::observation::Container;
///
/// let cpu = MetricSpec::Resource { name: "cpu".into(), target: Target::Utilization(50) };
/// let template = [Container {
///     name: "app".into(),
///     requests: [("cpu", 400)].into_iter().collect(),
/// }];
/// // Half of the 400m that the template requests.
/// assert_eq!(demand::target(&cpu, &[], Some(&template)), Ok(0.2));
/// ```
///
/// # Units
/// Base units of the metric: cores, bytes, requests per second.
///
/// # Errors
/// - [`TargetError::MissingRequest`] when neither a serving pod nor the template requests the resource.
/// - [`TargetError::NotForecastable`] for a `value` target, one that is not above zero, and an unknown type of metric.
pub fn target(
    metric: &MetricSpec,
    pods: &[Arc<Pod>],
    template: Option<&[Container]>,
) -> Result<f64, TargetError> {
    match (metric.resource(), metric.target()) {
        (_, Target::AverageValue(milli)) if milli > 0 => Ok(amount(milli)),
        (Some((resource, container)), Target::Utilization(percent)) if percent > 0 => {
            let requested = Requested {
                resource,
                container,
            };
            utilization(&requested, percent, pods, template)
        }
        _ => Err(TargetError::NotForecastable {
            metric: metric.identifier(),
        }),
    }
}

/// The total demand of a workload now, as a history query of the metric would return it.
///
/// `None` unless every ready pod has a reading that is not older than two minutes. Pods that have readings without
/// being ready are included: a history query counts them too. A metric of an object and an external metric need no
/// pods.
///
/// # Units
/// Base units of the metric.
///
/// ```
/// use foretide_domain::demand;
/// use foretide_domain::hpa::{MetricSpec, Target};
/// use foretide_domain::observation::Measured;
/// use jiff::Timestamp;
///
/// let queue = MetricSpec::External {
///     metric: "queue".into(),
///     selector: None,
///     target: Target::AverageValue(4_000),
/// };
/// let measured = Measured::Total(vec![9_000, 3_000]);
/// assert_eq!(demand::total(&queue, &measured, &[], Timestamp::UNIX_EPOCH), Some(12.0));
/// ```
pub fn total(
    metric: &MetricSpec,
    measured: &Measured,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> Option<f64> {
    let mut amounts: Vec<(&str, f64, Timestamp)> = match measured {
        Measured::Usage(usage) => usage
            .iter()
            .filter_map(|pod| Some((&*pod.pod, usage_of(metric, pod)?, pod.at)))
            .collect(),
        Measured::Samples(samples) => samples
            .iter()
            .map(|sample| (&*sample.pod, amount(sample.value), sample.at))
            .collect(),
        Measured::Total(values) => {
            let total: f64 = values.iter().copied().map(amount).sum();
            // A demand is never below zero; an HPA may still act on such a metric.
            return (!values.is_empty() && total >= 0.0).then_some(total);
        }
    };
    amounts.sort_unstable_by(|one, other| one.0.cmp(other.0));
    let mut serving = pods.iter().filter(|pod| is_available(pod)).peekable();
    // A total without some pods would look like a fall of the demand.
    let complete = serving.peek().is_some()
        && serving.all(|pod| {
            amounts
                .binary_search_by(|(name, ..)| (**name).cmp(&*pod.name))
                .is_ok()
        })
        && amounts
            .iter()
            .all(|(_, _, at)| now.duration_since(*at) <= FRESH);
    let total: f64 = amounts.iter().map(|(_, amount, _)| amount).sum();
    (complete && total >= 0.0).then_some(total)
}

/// A pod's usage of the metric's resource; `None` if a container that counts has no usage.
fn usage_of(metric: &MetricSpec, pod: &PodUsage) -> Option<f64> {
    let (resource, only) = metric.resource()?;
    let mut counted = pod
        .containers
        .iter()
        .filter(|container| only.is_none_or(|only| *only == *container.name))
        .peekable();
    counted.peek()?;
    counted
        .map(|container| container.usage.get(resource).map(amount))
        .sum()
}

/// A resource, of one container or of all.
struct Requested<'a> {
    resource: &'a str,
    container: Option<&'a str>,
}

// === impl Requested ===

impl Requested<'_> {
    /// The request of a set of containers, or the container that lacks it.
    fn request(&self, containers: &[Container]) -> Result<i64, String> {
        let wanted = containers
            .iter()
            .filter(|c| self.container.is_none_or(|name| *c.name == *name));
        let mut sum = None;
        for container in wanted {
            let milli = container
                .requests
                .get(self.resource)
                .ok_or_else(|| container.name.to_string())?;
            sum = Some(i64::saturating_add(sum.unwrap_or(0), milli));
        }
        sum.ok_or_else(|| self.container.unwrap_or("*").to_owned())
    }

    fn request_of_pod(&self, pod: &Pod) -> Result<i64, String> {
        let pod_level = pod
            .pod_level_requests
            .as_ref()
            .filter(|_| self.container.is_none());
        match pod_level.and_then(|requests| requests.get(self.resource)) {
            Some(milli) => Ok(milli),
            None => self.request(&pod.containers),
        }
    }
}

fn utilization(
    requested: &Requested<'_>,
    percent: i32,
    pods: &[Arc<Pod>],
    template: Option<&[Container]>,
) -> Result<f64, TargetError> {
    let requests: Vec<_> = pods
        .iter()
        .filter(|pod| is_available(pod))
        .map(|pod| requested.request_of_pod(pod))
        .collect();
    let known: Vec<f64> = requests
        .iter()
        .flatten()
        .map(|milli| amount(*milli))
        .collect();
    let mean = match (known.len(), template) {
        (0, Some(containers)) => requested.request(containers).map(amount),
        (0, None) => Err(requests
            .into_iter()
            .find_map(Result::err)
            .unwrap_or_else(|| "*".into())),
        (count, _) => Ok(known.iter().sum::<f64>() / f64::from(u32::try_from(count).unwrap_or(1))),
    };
    match mean {
        Ok(mean) if mean > 0.0 => Ok(mean * f64::from(percent) / 100.0),
        // A percentage of a request of zero is no target.
        Ok(_) => Err(missing(requested, "*".to_owned())),
        Err(container) => Err(missing(requested, container)),
    }
}

fn missing(requested: &Requested<'_>, container: String) -> TargetError {
    TargetError::MissingRequest {
        container,
        resource: requested.resource.to_owned(),
    }
}

/// Returns true if a pod serves: it runs, is ready, and is not being deleted.
///
/// # Source
/// For metrics of type Object and External the HPA counts the same pods, and also those that are being deleted
/// (`getReadyPodsCount`).
pub fn is_available(pod: &Pod) -> bool {
    let ready = pod
        .ready
        .as_ref()
        .is_some_and(|ready| ready.status == Status::True);
    pod.runs() && ready
}

#[expect(
    clippy::cast_precision_loss,
    reason = "amounts of that size need no exact milli"
)]
fn amount(milli: i64) -> f64 {
    milli as f64 / MILLI
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{ContainerUsage, Requests, examples};

    fn container(name: &str, cpu: Option<i64>) -> Container {
        let requests = cpu
            .map(|milli| ("cpu", milli))
            .into_iter()
            .collect::<Requests>();
        Container {
            name: name.into(),
            requests,
        }
    }

    fn pod(containers: &[Container]) -> Arc<Pod> {
        Arc::new(Pod {
            containers: containers.into(),
            ..examples::pod("web-1", Timestamp::UNIX_EPOCH, Status::True)
        })
    }

    fn cpu(target: Target) -> MetricSpec {
        MetricSpec::Resource {
            name: "cpu".into(),
            target,
        }
    }

    #[test]
    fn a_utilization_becomes_an_amount_by_the_mean_request() {
        let pods = [
            pod(&[container("app", Some(400))]),
            pod(&[container("app", Some(500)), container("log", Some(100))]),
        ];
        // Requests 0.4 and 0.6 cores, mean 0.5; half of it is 0.25.
        let found = target(&cpu(Target::Utilization(50)), &pods, None);
        assert_eq!(found, Ok(0.25));
    }

    #[test]
    fn only_the_named_container_counts_for_a_container_resource() {
        let pods = [pod(&[container("app", Some(200)), container("log", None)])];
        let metric = MetricSpec::ContainerResource {
            name: "cpu".into(),
            container: "app".into(),
            target: Target::Utilization(50),
        };
        assert_eq!(target(&metric, &pods, None), Ok(0.1));
    }

    #[test]
    fn the_template_counts_where_no_pod_serves() {
        let template = [container("app", Some(400))];
        let metric = cpu(Target::Utilization(50));
        assert_eq!(target(&metric, &[], Some(&template)), Ok(0.2));
    }

    #[test]
    fn without_a_request_there_is_no_target_and_the_container_is_named() {
        let pods = [pod(&[container("app", Some(200)), container("log", None)])];
        let error = target(&cpu(Target::Utilization(50)), &pods, None).unwrap_err();
        assert_eq!(
            error,
            TargetError::MissingRequest {
                container: "log".into(),
                resource: "cpu".into()
            }
        );
    }

    const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

    fn named(name: &str, ready: bool) -> Arc<Pod> {
        let mut pod = Pod::clone(&pod(&[]));
        pod.name = name.into();
        if !ready {
            pod.ready = None;
        }
        Arc::new(pod)
    }

    fn usage(pod: &str, containers: &[(&str, i64)], age: i64) -> Arc<PodUsage> {
        let container = |(name, milli): &(&str, i64)| ContainerUsage {
            name: (*name).into(),
            usage: [("cpu", *milli)].into_iter().collect(),
        };
        Arc::new(PodUsage {
            pod: pod.into(),
            at: NOW - SignedDuration::from_secs(age),
            window: SignedDuration::from_secs(30),
            containers: containers.iter().map(container).collect(),
        })
    }

    #[test]
    fn the_total_is_the_sum_over_the_pods_and_absent_if_a_ready_pod_has_no_reading() {
        let pods = [named("a", true), named("b", true), named("new", false)];
        let whole = vec![
            usage("b", &[("app", 300), ("log", 50)], 30),
            usage("a", &[("app", 200), ("log", 50)], 10),
        ];
        let with = |more: Arc<PodUsage>| [whole.clone(), vec![more]].concat();
        let app = MetricSpec::ContainerResource {
            name: "cpu".into(),
            container: "app".into(),
            target: Target::Utilization(50),
        };
        let cpu = cpu(Target::Utilization(50));
        let of = |metric, usage: Vec<_>| total(metric, &Measured::Usage(usage), &pods, NOW);
        assert_eq!(of(&cpu, whole.clone()), Some(0.6));
        assert_eq!(of(&app, whole.clone()), Some(0.5));
        assert_eq!(of(&cpu, with(usage("new", &[("app", 100)], 1))), Some(0.7));
        assert_eq!(of(&cpu, whole.get(..1).unwrap().to_vec()), None);
        assert_eq!(of(&app, with(usage("new", &[("app", 100)], 121))), None);
        let silent = vec![usage("a", &[("app", 1)], 1), usage("b", &[], 1)];
        assert_eq!(of(&cpu, silent), None);
        assert_eq!(total(&cpu, &Measured::Usage(whole.clone()), &[], NOW), None);
    }

    #[test]
    fn the_total_of_a_metric_without_pods_is_the_sum_of_its_series() {
        let metric = MetricSpec::External {
            metric: "queue".into(),
            selector: None,
            target: Target::AverageValue(1000),
        };
        let of = |values| total(&metric, &Measured::Total(values), &[], NOW);
        assert_eq!(of(vec![1500, 500]), Some(2.0));
        assert_eq!(of(vec![]), None);
    }

    #[test]
    fn an_average_value_is_taken_as_it_is() {
        assert_eq!(target(&cpu(Target::AverageValue(1500)), &[], None), Ok(1.5));
    }

    #[test]
    fn a_metric_whose_target_is_not_per_pod_is_not_forecastable() {
        for metric in [MetricSpec::Unknown("Odd".into()), cpu(Target::Value(250))] {
            let error = target(&metric, &[], None).unwrap_err();
            assert!(
                matches!(error, TargetError::NotForecastable { .. }),
                "{error}"
            );
        }
    }
}
