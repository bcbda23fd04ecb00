//! What a cluster would have told: pods and readings, assumed from manifests, flags and the demand.
//!
//! All pods are ready and share the demand evenly. Each assumption comes back as a sentence.

use jiff::Timestamp;

use super::{Failure, outlook::Outlook};
use crate::{
    cli::{inputs::requests_unknown, template::Template},
    domain::{
        Observation, Replicas, Scale,
        demand::{self, TargetError},
        forecast::Predicted,
        proposal::Unit,
        workload::Workload,
    },
    sim::measure,
};

/// An observation, and what had to be assumed for it.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) observation: Observation,
    pub(super) assumptions: Vec<String>,
}

/// The workload at the moment of the decision, with as many pods as are `told` (and by whom), else as many as it needs.
///
/// # Errors
/// A utilization is asked for, and nothing says what the pods request.
pub(super) fn set(
    template: &Template,
    (workload, outlooks): (&Workload, &[Outlook]),
    told: Option<(Replicas, &'static str)>,
    at: Timestamp,
) -> Result<Scene, Failure> {
    let needed = needed(template, workload, outlooks, at)?;
    let (replicas, why) = told.unwrap_or((needed, "what this demand needs"));
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
        unseen: Replicas::ZERO,
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
            let demand = Unit::of_metric(&metric).amount(demand);
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

/// The demand in replicas, the largest over the metrics; none while one of them cannot be told.
pub(super) fn demand(template: &Template, outlooks: &[Outlook], at: Timestamp) -> Option<f64> {
    let one = [template.pod.serving("one", at)];
    let each = outlooks.iter().map(|outlook| {
        let target = demand::target(&outlook.metric, &one, None).ok()?;
        let value = outlook.demand?;
        Predicted { value, target }.pods().ok()
    });
    let all: Option<Vec<f64>> = each.collect();
    all?.into_iter().reduce(f64::max)
}

/// How many pods the demand needs, within the bounds and at least one.
fn needed(
    template: &Template,
    workload: &Workload,
    outlooks: &[Outlook],
    at: Timestamp,
) -> Result<Replicas, Failure> {
    let one = [template.pod.serving(&workload.target.name, at)];
    let mut needed = Replicas::new(1);
    for outlook in outlooks {
        let target = match demand::target(&outlook.metric, &one, None) {
            Ok(target) => target,
            Err(error @ TargetError::MissingRequest { .. }) => {
                return Err(requests_unknown(template, &error));
            }
            Err(TargetError::NotForecastable { .. }) => continue,
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
