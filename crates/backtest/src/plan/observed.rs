//! The assumed observation of a cluster: pods and readings from manifests, flags and the demand.
//!
//! All pods are ready and share the demand evenly. Each assumption is returned as a sentence.

use foretide_domain::{
    Observation, Replicas, Scale,
    demand::{self, TargetError},
    forecast::Predicted,
    proposal::Unit,
    sim::measure,
    words::counted,
    workload::Workload,
};
use jiff::Timestamp;

use super::outlook::Outlook;
use crate::template::{TemplateError, WorkloadTemplate};

/// A known number of replicas, with half a sentence on its origin.
#[derive(Clone, Copy, Debug)]
pub struct GivenReplicas {
    pub replicas: Replicas,
    pub origin: &'static str,
}

/// Assumes the workload at the moment of the decision, with the `given` number of pods, or else as many as the demand
/// needs; returns a sentence for each assumption, too.
///
/// # Errors
/// A metric has a utilization target, and the request of a pod is unknown.
pub fn assume(
    template: &WorkloadTemplate,
    workload: &Workload,
    outlooks: &[Outlook],
    given: Option<GivenReplicas>,
    at: Timestamp,
) -> Result<(Observation, Vec<String>), TemplateError> {
    let needed = needed(template, workload, outlooks, at)?;
    let given = given.unwrap_or(GivenReplicas {
        replicas: needed,
        origin: "enough for the demand",
    });
    let GivenReplicas { replicas, origin } = given;
    let pods: Vec<_> = (1..=replicas.get())
        .map(|index| {
            let name = format!("{}-{index}", workload.target.name);
            template.pod.serving(&name, at)
        })
        .collect();
    let readings = workload.metrics.iter().map(|metric| {
        let outlook = outlooks
            .iter()
            .find(|o| o.metric.identifier() == metric.identifier());
        measure::reading(
            metric,
            outlook.and_then(|outlook| outlook.demand),
            &pods,
            at,
        )
    });
    let mut assumptions = vec![format!(
        "{} ({origin}), all ready; {}",
        counted(replicas.get(), "pod"),
        template.origin
    )];
    assumptions.extend(outlooks.iter().map(|outlook| shared(outlook, at)));
    assumptions.push("no earlier decisions".to_owned());
    let observation = Observation {
        scale: Scale {
            spec: replicas,
            status: replicas,
        },
        readings: readings.collect(),
        pods,
        ..Observation::default()
    };
    Ok((observation, assumptions))
}

fn shared(outlook: &Outlook, at: Timestamp) -> String {
    let metric = outlook.metric.identifier();
    match outlook.demand {
        Some(demand) => {
            let demand = Unit::of_metric(&metric).amount(demand);
            format!(
                "{metric} at {demand} in total, divided evenly over the pods: the latest value of {}",
                outlook.file
            )
        }
        None => format!(
            "{metric} unavailable: the last value of {} is too old at {at}",
            outlook.file
        ),
    }
}

/// The demand in replicas, the largest over the metrics; none while one of them is unknown.
pub fn demand(template: &WorkloadTemplate, outlooks: &[Outlook], at: Timestamp) -> Option<f64> {
    let one = [template.pod.serving("one", at)];
    let each = outlooks.iter().map(|outlook| {
        let target = demand::target(&outlook.metric, &one, None).ok()?;
        let value = outlook.demand?;
        Predicted::of(value, target).pods().ok()
    });
    let all: Option<Vec<f64>> = each.collect();
    all?.into_iter().reduce(f64::max)
}

/// Returns the pods that the demand needs, within the bounds and at least one.
fn needed(
    template: &WorkloadTemplate,
    workload: &Workload,
    outlooks: &[Outlook],
    at: Timestamp,
) -> Result<Replicas, TemplateError> {
    let one = [template.pod.serving(&workload.target.name, at)];
    let mut needed = Replicas::new(1);
    for outlook in outlooks {
        let target = match demand::target(&outlook.metric, &one, None) {
            Ok(target) => target,
            Err(error @ TargetError::MissingRequest { .. }) => {
                return Err(template.refused(error));
            }
            // Without a target per replica, the demand needs no certain number of pods.
            Err(TargetError::NotForecastable { .. }) => continue,
        };
        if let Some(value) = outlook.demand {
            let pods = Predicted::of(value, target)
                .pods()
                .map(Replicas::for_demand);
            needed = needed.max(pods.unwrap_or_default());
        }
    }
    Ok(workload.bounds.clamp(needed))
}
