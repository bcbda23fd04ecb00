//! Record of a sync for the page: its decision, the demand that it saw, and the forecasts in force.

use std::sync::Arc;

use foretide_domain::{Replicas, demand::is_available, sim::PodTemplate};
use jiff::SignedDuration;

use super::Reporter;
use crate::{apply::Applied, decide::Decided, demand_sample, forecaster::SeriesKey};
use foretide_page::{self, MetricRecord};

// === impl Reporter ===

impl Reporter<'_> {
    /// The decision as the page records it. `start_up` is the time that pods took to start, if that is measured;
    /// `is_partial` says that the demand of some members is missing, so that no total is known.
    pub fn for_page<'a>(
        &self,
        applied: &'a Applied,
        start_up: Option<SignedDuration>,
        is_partial: bool,
    ) -> foretide_page::Decided<'a> {
        let decided = &applied.decided;
        let pods = &decided.observation.observation.pods;
        let serving = pods.iter().filter(|pod| is_available(pod)).count();
        foretide_page::Decided {
            workload: &decided.part.workload,
            decision: &decided.decision,
            current: applied.count(),
            ready: Replicas::new(u32::try_from(serving).unwrap_or(u32::MAX)),
            metrics: self.metrics(decided, is_partial),
            template: template(decided),
            start_up,
        }
    }

    fn metrics(&self, decided: &Decided, is_partial: bool) -> Vec<MetricRecord> {
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
                demand: sample.demand.filter(|_| !is_partial),
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
        None => (observation.template.clone()?, None),
    };
    Some(PodTemplate {
        containers,
        pod_level,
    })
}
