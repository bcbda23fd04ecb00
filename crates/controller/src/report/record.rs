//! Record of a sync for the page: its decision, the demand that it saw, and the forecasts in force.

use std::sync::Arc;

use foretide_domain::{Replicas, demand::is_available, sim::PodTemplate};
use jiff::{SignedDuration, Timestamp};

use crate::{
    apply::Applied,
    decide::Decided,
    demand_sample,
    forecaster::{SeriesKey, forecasts::Forecasts},
};
use foretide_page::{self, MetricRecord};

/// Inputs of the page's record of one decision.
#[derive(Debug)]
pub struct PageInput<'a> {
    /// The forecasts in force.
    pub forecasts: &'a Forecasts,
    /// The time of the report.
    pub now: Timestamp,
    /// Time that its pods took to start, if that is measured.
    pub start_up: Option<SignedDuration>,
    /// True if the demand of some members is missing, so that no total is known.
    pub is_partial: bool,
}

// === impl PageInput ===

impl PageInput<'_> {
    /// The decision as the page records it.
    pub fn decided<'a>(&self, applied: &'a Applied) -> foretide_page::Decided<'a> {
        let decided = &applied.decided;
        let pods = &decided.observation.observation.pods;
        let serving = pods.iter().filter(|pod| is_available(pod)).count();
        foretide_page::Decided {
            workload: &decided.part.workload,
            decision: &decided.decision,
            current: applied.count(),
            ready: Replicas::new(u32::try_from(serving).unwrap_or(u32::MAX)),
            metrics: self.metrics(decided),
            template: template(decided),
            start_up: self.start_up,
        }
    }

    fn metrics(&self, decided: &Decided) -> Vec<MetricRecord> {
        let forecasts = &decided.observation.forecasts;
        let mut records = Vec::new();
        for (metric, sample) in demand_sample::samples(decided) {
            let reading = forecasts.iter().find(|reading| reading.name == metric);
            let in_use = reading.and_then(|reading| reading.details.as_ref());
            let key = SeriesKey {
                uid: decided.part.autoscaler.uid().to_owned(),
                metric,
            };
            let forecast = in_use.and_then(|details| {
                let forecast = self.forecasts.in_force(&key, self.now).ok()?;
                Some((forecast, details.lead_time))
            });
            records.push(MetricRecord {
                name: key.metric,
                demand: sample.demand.filter(|_| !self.is_partial),
                per_replica: sample.per_replica,
                forecast,
            });
        }
        records
    }
}

/// Containers and requests of a pod: of a serving one, else of the target's template.
fn template(decided: &Decided) -> Option<PodTemplate> {
    let observation = &decided.observation;
    let pods = &observation.observation.pods;
    let (containers, pod_level) = match pods.iter().find(|pod| is_available(pod)) {
        Some(pod) => (Arc::clone(&pod.containers), pod.pod_level_requests.clone()),
        None => (observation.scale.template.clone()?, None),
    };
    Some(PodTemplate {
        containers,
        pod_level,
    })
}
