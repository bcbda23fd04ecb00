//! What a cluster would have told: pods and readings, assumed from manifests, flags and the demand.
//!
//! All pods are ready and share the demand evenly. Each assumption comes back as a sentence.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{
    Failure, PlanArgs, count,
    outlook::Outlook,
    template::{Template, template},
};
use crate::{
    cli::manifest::Document,
    domain::{
        Observation, Reading, Replicas, Scale,
        demand::{self, NoTarget},
        explain::{amount, unit_of},
        forecast::Predicted,
        hpa::MetricSpec,
        observation::{
            Cause, ContainerUsage, Measured, Phase, Pod, PodSample, PodUsage, Readiness, Requests,
            Status, Unavailable,
        },
        workload::Workload,
    },
};

/// How long the assumed pods have been ready: longer than any doubt about young pods.
const READY_FOR: SignedDuration = SignedDuration::from_hours(1);
/// The span that an assumed measurement covers.
const MEASURED_OVER: SignedDuration = SignedDuration::from_mins(1);

/// An observation, and what had to be assumed for it.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) observation: Observation,
    pub(super) assumptions: Vec<String>,
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
    let pods: Vec<_> = (1..=replicas.get())
        .map(|index| pod(&template, workload, index, at))
        .collect();
    let readings = workload.metrics.iter().map(|metric| {
        let outlook = outlooks
            .iter()
            .find(|o| o.metric.identifier() == metric.identifier());
        reading(
            metric,
            outlook.and_then(|outlook| outlook.demand),
            &pods,
            at,
        )
    });
    let noun = if replicas == Replicas::new(1) {
        "pod"
    } else {
        "pods"
    };
    let mut assumptions = vec![format!(
        "{replicas} {noun}, {why}, ready; {}",
        template.told_by
    )];
    assumptions.extend(outlooks.iter().map(|outlook| shared(outlook, at)));
    assumptions.push("no earlier decisions to look back on".to_owned());
    let observation = Observation {
        scale: Scale {
            spec: replicas,
            status: replicas,
        },
        readings: readings.collect(),
        pods,
    };
    Ok(Scene {
        observation,
        assumptions,
    })
}

fn shared(outlook: &Outlook, at: Timestamp) -> String {
    let metric = outlook.metric.identifier();
    match outlook.demand {
        Some(demand) => {
            let demand = amount(demand, unit_of(&metric));
            format!(
                "{metric} at {demand} in total, shared evenly: the latest of {}",
                outlook.file
            )
        }
        None => format!(
            "{metric} unavailable: the last value of {} is too old at {at}",
            outlook.file
        ),
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
            Err(error @ NoTarget::MissingRequest { .. }) => {
                return Err(requests_unknown(template, &error));
            }
            Err(NoTarget::NotForecastable { .. }) => continue,
        };
        if let Some(value) = outlook.demand {
            let pods = Predicted { value, target }
                .pods()
                .map(Replicas::from_f64_ceil);
            needed = needed.max(pods.unwrap_or_default());
        }
    }
    Ok(workload.bounds.clamp(needed))
}

fn requests_unknown(template: &Template, error: &NoTarget) -> Failure {
    let NoTarget::MissingRequest { resource, .. } = error else {
        return Failure::invalid(error);
    };
    if let Some(place) = &template.place {
        return Failure::invalid(format!("{place}: {error}"));
    }
    Failure::usage(format!(
        "what a pod requests of {resource} is not known: add the workload's manifest with -f, or give \
         --request {resource}=200m"
    ))
}

// === pods ===

fn pod(template: &Template, workload: &Workload, index: u32, at: Timestamp) -> Arc<Pod> {
    let since = at.checked_sub(READY_FOR).unwrap_or(at);
    Arc::new(Pod {
        name: format!("{}-{index}", workload.target.name).into(),
        phase: Phase::Running,
        deleting: false,
        created: None,
        ready: Some(Readiness {
            status: Status::True,
            since,
        }),
        started: Some(since),
        containers: Arc::clone(&template.containers),
        pod_level_requests: template.pod_level.clone(),
    })
}

// === readings ===

/// What the metrics API would answer: the demand, in equal parts.
fn reading(metric: &MetricSpec, demand: Option<f64>, pods: &[Arc<Pod>], at: Timestamp) -> Reading {
    let Some(demand) = demand else {
        return Err(Unavailable::new(
            Cause::NoSamples,
            "the history has no recent value",
        ));
    };
    let total = thousand_times(demand);
    let parts = shares(total, pods.len());
    let each = pods.iter().zip(parts);
    Ok(match metric {
        MetricSpec::Resource { name, .. } => Measured::Usage(
            each.map(|(pod, share)| usage(pod, name, None, share, at))
                .collect(),
        ),
        MetricSpec::ContainerResource {
            name, container, ..
        } => Measured::Usage(
            each.map(|(pod, share)| usage(pod, name, Some(container), share, at))
                .collect(),
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
        let milli = if counts(index, &container.name) {
            share
        } else {
            0
        };
        let usage = Requests::from_iter([(resource, milli)]);
        ContainerUsage {
            name: Arc::clone(&container.name),
            usage,
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
}
