//! What one replica should carry, in base units: the target of a forecast of total demand.
//!
//! A utilization becomes an amount by the mean request of the pods that serve now, and by the pod
//! template where none does. It refuses to guess: without a request there is no target.

use std::sync::Arc;

use super::{
    hpa::{MetricSpec, Target},
    observation::{Container, Phase, Pod, Status},
};

/// Milli-units per unit.
const MILLI: f64 = 1000.0;

/// Why a metric gives nothing to divide a forecast by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTarget {
    /// A utilization of something that is not requested.
    #[error(
        "container {container:?} has no {resource} request, so a utilization has no size: set \
         resources.requests.{resource} or use averageValue"
    )]
    MissingRequest {
        /// Name of the container; `*` where there is no container at all.
        container: String,
        /// The resource.
        resource: String,
    },
    /// The metric's type or target cannot be forecast.
    #[error(
        "metric {metric} has no target per pod that a forecast could be divided by: use averageValue or averageUtilization"
    )]
    NotForecastable {
        /// Identifier of the metric.
        metric: String,
    },
}

/// What forecasts of one metric are divided by; a value in all is not an amount per pod, and
/// the ratio to it would grow with every pod that is added before the metric answers.
///
/// # Units
/// Base units of the metric: cores, bytes, requests per second.
///
/// # Errors
/// [`NoTarget::MissingRequest`] when neither a pod nor the template requests the resource.
pub fn target(
    metric: &MetricSpec,
    pods: &[Arc<Pod>],
    template: Option<&[Container]>,
) -> Result<f64, NoTarget> {
    let not_forecastable = || NoTarget::NotForecastable {
        metric: metric.identifier(),
    };
    match (metric, metric.target()) {
        (_, Target::AverageValue(milli)) if milli > 0 => Ok(amount(milli)),
        (MetricSpec::Resource { name, .. }, Target::Utilization(percent)) if percent > 0 => {
            utilization(
                &Ask {
                    resource: name,
                    container: None,
                },
                percent,
                pods,
                template,
            )
        }
        (
            MetricSpec::ContainerResource {
                name, container, ..
            },
            Target::Utilization(percent),
        ) if percent > 0 => {
            let ask = Ask {
                resource: name,
                container: Some(container),
            };
            utilization(&ask, percent, pods, template)
        }
        _ => Err(not_forecastable()),
    }
}

/// Which request is asked for.
struct Ask<'a> {
    resource: &'a str,
    container: Option<&'a str>,
}

// === impl Ask ===

impl Ask<'_> {
    /// The request of a set of containers, or the container that lacks it.
    fn request(&self, containers: &[Container]) -> Result<i64, String> {
        let wanted = containers
            .iter()
            .filter(|c| self.container.is_none_or(|name| *c.name == *name));
        let mut sum = None;
        for container in wanted {
            let milli = container.requests.get(self.resource);
            let milli = milli.ok_or_else(|| container.name.to_string())?;
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
    ask: &Ask<'_>,
    percent: i32,
    pods: &[Arc<Pod>],
    template: Option<&[Container]>,
) -> Result<f64, NoTarget> {
    let requests: Vec<_> = pods
        .iter()
        .filter(|pod| is_available(pod))
        .map(|pod| ask.request_of_pod(pod))
        .collect();
    let known: Vec<f64> = requests
        .iter()
        .flatten()
        .map(|milli| amount(*milli))
        .collect();
    let mean = match (known.len(), template) {
        (0, Some(containers)) => ask.request(containers).map(amount),
        (0, None) => Err(requests
            .into_iter()
            .find_map(Result::err)
            .unwrap_or_else(|| "*".into())),
        (count, _) => Ok(known.iter().sum::<f64>() / f64::from(u32::try_from(count).unwrap_or(1))),
    };
    match mean {
        Ok(mean) if mean > 0.0 => Ok(mean * f64::from(percent) / 100.0),
        Ok(_) => Err(missing(ask, "*".to_owned())),
        Err(container) => Err(missing(ask, container)),
    }
}

fn missing(ask: &Ask<'_>, container: String) -> NoTarget {
    NoTarget::MissingRequest {
        container,
        resource: ask.resource.to_owned(),
    }
}

fn is_available(pod: &Pod) -> bool {
    let ready = pod
        .ready
        .as_ref()
        .is_some_and(|ready| ready.status == Status::True);
    pod.phase == Phase::Running && !pod.deleting && ready
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
    use jiff::Timestamp;

    use super::*;
    use crate::domain::observation::{Readiness, Requests};

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
            name: "web-1".into(),
            phase: Phase::Running,
            deleting: false,
            ready: Some(Readiness {
                status: Status::True,
                since: Timestamp::UNIX_EPOCH,
            }),
            started: Some(Timestamp::UNIX_EPOCH),
            containers: containers.into(),
            pod_level_requests: None,
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
    fn the_template_answers_where_no_pod_serves() {
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
            NoTarget::MissingRequest {
                container: "log".into(),
                resource: "cpu".into()
            }
        );
    }

    #[test]
    fn an_average_value_is_taken_as_it_is() {
        assert_eq!(target(&cpu(Target::AverageValue(1500)), &[], None), Ok(1.5));
    }

    #[test]
    fn a_metric_whose_target_is_not_per_pod_is_not_forecastable() {
        for metric in [MetricSpec::Unknown("Odd".into()), cpu(Target::Value(250))] {
            let error = target(&metric, &[], None).unwrap_err();
            assert!(matches!(error, NoTarget::NotForecastable { .. }), "{error}");
        }
    }
}
