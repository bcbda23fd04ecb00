//! Record of a sync for the page: its decision, the demand that it saw, and the forecasts in force.

use std::sync::Arc;

use foretide_domain::{
    Replicas, demand::is_available, forecast::ForecastReading, observation::Pod, sim::PodTemplate,
};
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
        let serving = pods.iter().filter(|pod| is_available(pod));
        let effect = applied.outcome.as_ref().ok();
        let scaled = effect.and_then(|effect| effect.scaled);
        foretide_page::Decided {
            workload: &decided.part.workload,
            decision: &decided.decision,
            current: scaled.unwrap_or(decided.decision.current),
            ready: Replicas::new(u32::try_from(serving.count()).unwrap_or(u32::MAX)),
            metrics: self.metrics(decided),
            template: template(decided),
            start_up: self.start_up,
        }
    }

    fn metrics(&self, decided: &Decided) -> Vec<MetricRecord> {
        let forecasts = &decided.observation.forecasts;
        let samples = demand_sample::samples(decided).into_iter();
        let metrics = samples.map(|(name, sample)| {
            let reading = forecasts.iter().find(|reading| reading.name == name);
            let lead_time = reading.and_then(lead_time);
            let key = SeriesKey {
                uid: decided.part.autoscaler.uid().to_owned(),
                metric: name,
            };
            let forecast = lead_time.and_then(|lead_time| {
                let forecast = self.forecasts.in_force(&key, self.now);
                Some((forecast.ok()?, lead_time))
            });
            MetricRecord {
                name: key.metric,
                demand: sample.demand.filter(|_| !self.is_partial),
                per_replica: sample.per_replica,
                forecast,
            }
        });
        metrics.collect()
    }
}

/// The lead time of a forecast that is in use.
fn lead_time(reading: &ForecastReading) -> Option<foretide_domain::lead_time::LeadTime> {
    reading.details.as_ref().map(|details| details.lead_time)
}

/// Containers and requests of a pod: of a serving one, else of the target's template.
fn template(decided: &Decided) -> Option<PodTemplate> {
    let observation = &decided.observation;
    let mut pods = observation.observation.pods.iter();
    let of_pod = |pod: &Arc<Pod>| PodTemplate {
        containers: Arc::clone(&pod.containers),
        pod_level: pod.pod_level_requests.clone(),
    };
    let serving = pods.find(|pod| is_available(pod)).map(of_pod);
    serving.or_else(|| {
        Some(PodTemplate {
            containers: observation.scale.template.clone()?,
            pod_level: None,
        })
    })
}
