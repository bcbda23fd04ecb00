//! What one replica should carry, in base units: the target of a forecast of total demand. And what all of them carry
//! now, where every one of them was asked.
//!
//! A utilization becomes an amount by the mean request of the pods that serve now, and by the pod
//! template where none does. It refuses to guess: without a request there is no target.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{
    hpa::{MetricSpec, Target},
    observation::{Container, Measured, Phase, Pod, PodUsage, Status},
};

/// A reading older than this says nothing about the minute that it arrives in.
const FRESH: SignedDuration = SignedDuration::from_mins(2);

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

/// The total demand of a workload as it is measured now, as a history query of the metric would give it: `None` unless
/// every ready pod answered, with readings that are not older than two minutes.
///
/// # Units
/// Base units of the metric.
#[must_use]
pub fn total(
    metric: &MetricSpec,
    measured: &Measured,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> Option<f64> {
    let mut answers: Vec<(&str, f64, Timestamp)> = match measured {
        Measured::Usage(usage) => {
            let answer = |pod: &Arc<PodUsage>| usage_of(metric, pod).map(|amount| (amount, pod.at));
            let named = usage.iter().map(|pod| (&*pod.pod, answer(pod)));
            named
                .filter_map(|(name, answer)| answer.map(|(amount, at)| (name, amount, at)))
                .collect()
        }
        Measured::Samples(samples) => samples
            .iter()
            .map(|sample| (&*sample.pod, amount(sample.value), sample.at))
            .collect(),
        Measured::Total(values) => {
            let total: f64 = values.iter().copied().map(amount).sum();
            return (!values.is_empty() && total >= 0.0).then_some(total);
        }
    };
    answers.sort_unstable_by(|one, other| one.0.cmp(other.0));
    let fresh = |at: &Timestamp| now.duration_since(*at) <= FRESH;
    let answered = |pod: &&Arc<Pod>| {
        let found = answers.binary_search_by(|(name, ..)| (**name).cmp(&*pod.name));
        found.is_ok()
    };
    let mut serving = pods.iter().filter(|pod| is_available(pod)).peekable();
    let whole = serving.peek().is_some()
        && serving.all(|pod| answered(&pod))
        && answers.iter().all(|(_, _, at)| fresh(at));
    let total: f64 = answers.iter().map(|(_, amount, _)| amount).sum();
    (whole && total >= 0.0).then_some(total)
}

/// What a pod uses of the metric's resource; `None` if a container that counts does not say.
fn usage_of(metric: &MetricSpec, pod: &PodUsage) -> Option<f64> {
    let (resource, only) = match metric {
        MetricSpec::Resource { name, .. } => (name, None),
        MetricSpec::ContainerResource {
            name, container, ..
        } => (name, Some(container)),
        _ => return None,
    };
    let counts = |name: &str| only.is_none_or(|only| **only == *name);
    let mut counted = pod.containers.iter().filter(|c| counts(&c.name)).peekable();
    counted.peek()?;
    let amounts = counted.map(|container| container.usage.get(resource).map(amount));
    amounts.sum()
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

/// Whether a pod serves: it runs, is ready, and is not on its way out.
#[must_use]
pub fn is_available(pod: &Pod) -> bool {
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
    use super::*;
    use crate::domain::observation::{ContainerUsage, Readiness, Requests};

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
            created: None,
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
    fn the_total_is_the_sum_over_the_pods_or_nothing_if_one_that_is_ready_did_not_answer() {
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
            assert!(matches!(error, NoTarget::NotForecastable { .. }), "{error}");
        }
    }
}
