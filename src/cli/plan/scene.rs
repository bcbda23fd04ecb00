//! What a cluster would have told: pods and readings, assumed from manifests, flags and the demand.
//!
//! All pods are ready and share the demand evenly. Each assumption comes back as a sentence.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container as WireContainer, PodSpec};
use serde_json::Value;

use super::{Failure, PlanArgs, count, outlook::Outlook};
use crate::{
    cli::manifest::Document,
    domain::{
        Observation, Reading, Replicas, Scale, ScaleTarget,
        demand::{self, NoTarget},
        explain::{amount, unit_of},
        forecast::{ForecastTarget, Predicted},
        hpa::MetricSpec,
        observation::{
            Cause, Container, ContainerUsage, Measured, Phase, Pod, PodSample, PodUsage, Readiness,
            Requests, Status, Unavailable,
        },
        quantity::Quantity,
        workload::Workload,
    },
};

/// How long the assumed pods have been ready: longer than any doubt about young pods.
const READY_FOR: SignedDuration = SignedDuration::from_hours(1);
/// The span that an assumed measurement covers.
const MEASURED_OVER: SignedDuration = SignedDuration::from_mins(1);
/// Name of a container of which no manifest tells the name.
const CONTAINER: &str = "app";

/// An observation, and what had to be assumed for it.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) observation: Observation,
    pub(super) assumptions: Vec<String>,
}

/// One pod of the workload, and where it comes from.
struct Template {
    containers: Arc<[Container]>,
    pod_level: Option<Requests>,
    told_by: String,
}

/// Reads one `--request`.
pub(super) fn parse_request(text: &str) -> Result<(String, i64), String> {
    let expected = || format!("expected RESOURCE=QUANTITY such as cpu=200m, got {text:?}");
    let (resource, quantity) = text.split_once('=').ok_or_else(expected)?;
    let quantity: Quantity = quantity.parse().map_err(|error| format!("{error}"))?;
    let milli = quantity.milli_value().value;
    if resource.is_empty() || milli <= 0 {
        return Err(expected());
    }
    Ok((resource.to_owned(), milli))
}

/// The workload at the moment of the decision.
///
/// # Errors
/// A utilization is asked for, and nothing says what the pods request.
pub(super) fn set(
    args: &PlanArgs,
    documents: &[Document],
    (workload, outlooks): (&Workload, &[Outlook]),
    at: Timestamp,
) -> Result<Scene, Failure> {
    let template = template(args, documents, workload)?;
    let needed = needed(&template, workload, outlooks, at)?;
    let (replicas, why) = match args.replicas {
        Some(replicas) => (Replicas::new(replicas), "as --replicas says".to_owned()),
        None => (needed, "what this demand needs".to_owned()),
    };
    let pods: Vec<_> = (1..=replicas.get()).map(|index| pod(&template, workload, index, at)).collect();
    let readings = workload.metrics.iter().map(|metric| {
        let outlook = outlooks.iter().find(|o| o.metric.identifier() == metric.identifier());
        reading(metric, outlook.and_then(|outlook| outlook.demand), &pods, at)
    });
    let mut assumptions = Vec::new();
    assumptions.push(format!("{replicas} pods, {why}, all of them ready; {}", template.told_by));
    assumptions.extend(outlooks.iter().map(|outlook| shared(outlook, at)));
    assumptions.push("no earlier decisions to look back on".to_owned());
    let observation = Observation {
        scale: Scale { spec: replicas, status: replicas },
        readings: readings.collect(),
        pods,
    };
    Ok(Scene { observation, assumptions })
}

fn shared(outlook: &Outlook, at: Timestamp) -> String {
    let metric = outlook.metric.identifier();
    match outlook.demand {
        Some(demand) => {
            let demand = amount(demand, unit_of(&metric));
            format!("{metric} at {demand} in total, shared evenly: the latest of {}", outlook.file)
        }
        None => format!("{metric} unavailable: the last value of {} is too old at {at}", outlook.file),
    }
}

/// How many pods the demand needs, within the bounds and at least one.
fn needed(
    template: &Template,
    workload: &Workload,
    outlooks: &[Outlook],
    at: Timestamp,
) -> Result<Replicas, Failure> {
    let one = [pod(template, workload, 1, at)];
    let mut needed = Replicas::new(1);
    for outlook in outlooks {
        let target = match demand::target(&outlook.metric, &one, None) {
            Ok(target) => target,
            Err(error @ NoTarget::MissingRequest { .. }) => return Err(requests_unknown(template, &error)),
            Err(NoTarget::NotForecastable { .. }) => continue,
        };
        if let (Some(value), ForecastTarget::PerPod(_)) = (outlook.demand, target) {
            let pods = Predicted { value, target }.pods().map(Replicas::from_f64_ceil);
            needed = needed.max(pods.unwrap_or_default());
        }
    }
    Ok(workload.bounds.clamp(needed))
}

fn requests_unknown(template: &Template, error: &NoTarget) -> Failure {
    let NoTarget::MissingRequest { resource, .. } = error else { return Failure::invalid(error) };
    if template.containers.iter().any(|container| *container.name != *CONTAINER) {
        return Failure::invalid(format!("{}: {error}", template.told_by));
    }
    Failure::usage(format!(
        "what a pod requests of {resource} is not known: add the workload's manifest with -f, or give \
         --request {resource}=200m"
    ))
}

// === pods ===

fn template(
    args: &PlanArgs,
    documents: &[Document],
    workload: &Workload,
) -> Result<Template, Failure> {
    if !args.request.is_empty() {
        let requests: Requests =
            args.request.iter().map(|(resource, milli)| (resource.as_str(), *milli)).collect();
        let flags = args.request.iter().map(|(resource, milli)| format!("{resource} {}", thousandths(*milli)));
        let flags = flags.collect::<Vec<_>>().join(" and ");
        let told_by = format!("each requests {flags}, as --request says");
        return Ok(Template { containers: unnamed(workload, &requests), pod_level: None, told_by });
    }
    match documents.iter().find(|document| is_target(document, &workload.target)) {
        Some(document) => written(document),
        None => Ok(Template {
            containers: unnamed(workload, &Requests::default()),
            pod_level: None,
            told_by: "requests unknown".to_owned(),
        }),
    }
}

/// A milli amount as it is written: `200m`, `2`.
fn thousandths(milli: i64) -> String {
    if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") }
}

fn is_target(document: &Document, target: &ScaleTarget) -> bool {
    let group = target.api_version.split_once('/').map_or("", |(group, _)| group);
    let same_namespace = document.namespace() == target.namespace
        || document.namespace().is_empty()
        || target.namespace.is_empty();
    document.text("kind") == target.kind
        && document.group() == group
        && document.name() == target.name
        && same_namespace
}

/// The pod template of a manifest.
fn written(document: &Document) -> Result<Template, Failure> {
    let unusable = |what: String| {
        let place = document.find("spec.template.spec");
        Failure::invalid(format!("{place}: {} has no usable spec.template.spec: {what}", document.name()))
    };
    let value = document.value();
    let spec = value.pointer("/spec/template/spec").cloned().unwrap_or(Value::Null);
    let spec: PodSpec = serde_json::from_value(spec).map_err(|error| unusable(error.to_string()))?;
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|init| init.restart_policy.as_deref() == Some("Always"));
    let containers = spec.containers.iter().chain(sidecars).map(|container| {
        container_of(container).map_err(|error| unusable(format!("container {}: {error}", container.name)))
    });
    let pod_level = spec.resources.and_then(|resources| resources.requests);
    let pod_level = pod_level.map(|requests| {
        requests.iter().map(|(name, quantity)| Ok((name.clone(), milli(&quantity.0)?))).collect()
    });
    Ok(Template {
        containers: containers.collect::<Result<_, _>>()?,
        pod_level: pod_level.transpose().map_err(unusable)?,
        told_by: format!("requests as in {}", document.place()),
    })
}

fn container_of(container: &WireContainer) -> Result<Container, String> {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let requests = requests.into_iter().flatten();
    let requests = requests.map(|(name, quantity)| Ok((name.clone(), milli(&quantity.0)?)));
    Ok(Container {
        name: container.name.as_str().into(),
        requests: requests.collect::<Result<Requests, String>>()?,
    })
}

fn milli(quantity: &str) -> Result<i64, String> {
    let quantity: Quantity = quantity.parse().map_err(|error| format!("{error}"))?;
    Ok(quantity.milli_value().value)
}

/// The containers that the metrics name, or one without a name of its own.
fn unnamed(workload: &Workload, requests: &Requests) -> Arc<[Container]> {
    let named = workload.metrics.iter().filter_map(|metric| match metric {
        MetricSpec::ContainerResource { container, .. } => Some(container.to_string()),
        _ => None,
    });
    let mut names: BTreeSet<String> = named.collect();
    if names.is_empty() {
        names.insert(CONTAINER.to_owned());
    }
    let container = |name: String| Container { name: name.into(), requests: requests.clone() };
    names.into_iter().map(container).collect()
}

fn pod(template: &Template, workload: &Workload, index: u32, at: Timestamp) -> Arc<Pod> {
    let since = at.checked_sub(READY_FOR).unwrap_or(at);
    Arc::new(Pod {
        name: format!("{}-{index}", workload.target.name).into(),
        phase: Phase::Running,
        deleting: false,
        ready: Some(Readiness { status: Status::True, since }),
        started: Some(since),
        containers: Arc::clone(&template.containers),
        pod_level_requests: template.pod_level.clone(),
    })
}

// === readings ===

/// What the metrics API would answer: the demand, in equal parts.
fn reading(
    metric: &MetricSpec,
    demand: Option<f64>,
    pods: &[Arc<Pod>],
    at: Timestamp,
) -> Reading {
    let Some(demand) = demand else {
        return Err(Unavailable::new(Cause::NoSamples, "the history has no recent value"));
    };
    let total = thousand_times(demand);
    let shares = shares(total, pods.len());
    let each = pods.iter().zip(shares);
    Ok(match metric {
        MetricSpec::Resource { name, .. } => {
            Measured::Usage(each.map(|(pod, share)| usage(pod, name, None, share, at)).collect())
        }
        MetricSpec::ContainerResource { name, container, .. } => Measured::Usage(
            each.map(|(pod, share)| usage(pod, name, Some(container), share, at)).collect(),
        ),
        MetricSpec::Pods { .. } => Measured::Samples(
            each.map(|(pod, value)| PodSample {
                pod: Arc::clone(&pod.name),
                value,
                at,
                window: MEASURED_OVER,
            })
            .collect(),
        ),
        MetricSpec::Object { .. } | MetricSpec::External { .. } | MetricSpec::Unknown(_) => {
            Measured::Total(vec![total])
        }
    })
}

/// One pod's usage, all of it in the container that counts.
fn usage(
    pod: &Pod,
    resource: &str,
    container: Option<&str>,
    share: i64,
    at: Timestamp,
) -> Arc<PodUsage> {
    let counts = |index: usize, name: &str| container.map_or(index == 0, |wanted| wanted == name);
    let containers = pod.containers.iter().enumerate().map(|(index, container)| {
        let milli = if counts(index, &container.name) { share } else { 0 };
        let usage = Requests::from_iter([(resource, milli)]);
        ContainerUsage { name: Arc::clone(&container.name), usage }
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
    let parts = i64::from(count(parts).as_i32()).max(1);
    let (share, rest) = (total / parts, total % parts);
    (0..parts).map(move |index| share + i64::from(index < rest))
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

    #[test]
    fn a_request_is_a_resource_and_an_amount_above_zero() {
        assert_eq!(parse_request("cpu=200m"), Ok(("cpu".to_owned(), 200)));
        assert_eq!(parse_request("memory=1Gi"), Ok(("memory".to_owned(), 1_073_741_824_000)));
        for bad in ["cpu", "cpu=", "=1", "cpu=0", "cpu=-1", "cpu=lots"] {
            assert!(parse_request(bad).is_err(), "{bad}");
        }
    }
}
