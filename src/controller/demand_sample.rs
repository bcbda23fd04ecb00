//! What a sync saw that forecasters want to know: of each metric the total demand, whether it was held down by the
//! workload's own limits, and what one replica carries. It keeps nothing and decides nothing.

use std::{collections::HashSet, sync::Arc};

use super::{apply::Planned, observe::TargetObservation};
use crate::{
    domain::{
        autoscale::{Decision, Limit},
        demand,
        lead_time::LeadTimes,
        observation::{Phase, Pod},
        workload::Workload,
    },
    forecaster::demand_history::{DemandHistory, DemandSample},
};

/// Tells forecasters what one decision saw, if the workload is forecast; its series go by `uid`.
pub(super) fn tell(
    feed: &DemandHistory,
    uid: &str,
    lead_times: &mut LeadTimes,
    (workload, planned): (&Workload, &Planned),
) {
    if workload.prediction.is_none() {
        return;
    }
    let Planned {
        sighting, decision, ..
    } = planned;
    lead_times.observe(&sighting.observation.pods);
    let lead_time = lead_times.measured();
    let glimpses = glimpses(workload, sighting, decision);
    feed.report(uid, lead_time, glimpses, decision.at);
}

/// A glimpse per metric, by its identifier; of two metrics of one identifier the first.
fn glimpses(
    workload: &Workload,
    sighting: &TargetObservation,
    decision: &Decision,
) -> Vec<(String, DemandSample)> {
    let observation = &sighting.observation;
    let pods = &observation.pods;
    let censored = is_at_its_limits(decision, pods);
    let mut told = HashSet::new();
    let read = workload.metrics.iter().zip(&observation.readings);
    read.filter_map(|(metric, reading)| {
        let name = metric.identifier();
        let measured = reading.as_ref().ok();
        let template = sighting.scale.template.as_deref();
        told.insert(name.clone()).then(|| {
            let glimpse = DemandSample {
                demand: measured.and_then(|found| demand::total(metric, found, pods, decision.at)),
                censored,
                per_replica: demand::target(metric, pods, template).ok(),
            };
            (name, glimpse)
        })
    })
    .collect()
}

/// Whether more was asked for than `maxReplicas` gives, or pods that were asked for do not run yet.
fn is_at_its_limits(decision: &Decision, pods: &[Arc<Pod>]) -> bool {
    let pending = |pod: &Arc<Pod>| pod.phase == Phase::Pending && !pod.deleting;
    decision.limit == Some(Limit::TooManyReplicas) || pods.iter().any(pending)
}
