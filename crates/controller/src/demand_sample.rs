//! The readings of a sync that forecasts are made from: for each metric the total demand, whether the workload's own
//! limits held it down, and what one replica carries.

use std::{collections::HashSet, sync::Arc};

use foretide_domain::{
    autoscale::{Decision, Limit},
    demand,
    lead_time::LeadTimes,
    observation::{Measured, Phase, Pod},
    pod_names,
    proposal::{Reason, Source},
};
use jiff::{SignedDuration, Timestamp};

use super::decide::Decided;
use crate::forecaster::demand_history::{DemandHistory, DemandSample};

/// The longest window of a reading that counts as one of its minute: metrics-server measures between two scrapes, which
/// are up to a minute apart, and late at times.
const LONGEST_MINUTE: SignedDuration = SignedDuration::from_secs(90);

/// Demand of a workload as one decision saw it.
#[derive(Debug)]
pub struct DemandReport {
    /// Key of its series.
    uid: String,
    /// Time that its pods take to start.
    lead_time: Option<SignedDuration>,
    /// The names of its pods, if its kind does not tell them.
    pods: Vec<Arc<str>>,
    samples: Vec<(String, DemandSample)>,
    at: Timestamp,
}

// === impl DemandReport ===

impl DemandReport {
    /// The demand that one decision saw, if the workload is forecast; its series are keyed by `uid`.
    pub fn of(uid: &str, lead_times: &mut LeadTimes, decided: &Decided) -> Option<Self> {
        decided.part.workload.floor.prediction.as_ref()?;
        let pods = &decided.observation.observation.pods;
        lead_times.observe(pods);
        Some(Self {
            uid: uid.to_owned(),
            lead_time: lead_times.measured(),
            pods: match pod_names::suffix(&decided.part.workload.target.kind) {
                Some(_) => Vec::new(),
                None => pods.iter().map(|pod| Arc::clone(&pod.name)).collect(),
            },
            samples: samples(decided),
            at: decided.decision.at,
        })
    }

    /// Records it for the forecaster.
    pub fn record(self, history: &DemandHistory) {
        history.report(&self.uid, self.lead_time, self.samples, self.at);
        // In a fleet, the name of a pod follows that of its member.
        let names = self
            .pods
            .iter()
            .map(|name| name.rsplit('/').next().unwrap_or(name));
        if !self.pods.is_empty() {
            history.report_pods(&self.uid, names);
        }
    }
}

/// A sample per metric, by its identifier; of two metrics of one identifier the first.
pub fn samples(decided: &Decided) -> Vec<(String, DemandSample)> {
    let observation = &decided.observation.observation;
    let (pods, at) = (&observation.pods, decided.decision.at);
    let censored = is_at_its_limits(&decided.decision, pods);
    let template = decided.observation.template.as_deref();
    let metrics = &decided.part.workload.metrics;
    let mut seen = HashSet::new();
    let mut samples = Vec::new();
    for (metric, reading) in metrics.iter().zip(&observation.readings) {
        let name = metric.identifier();
        // A series is identified by its metric, so only the first of two equal metrics counts.
        if seen.insert(name.clone()) {
            let measured = reading.as_ref().ok();
            let sample = DemandSample {
                demand: measured.and_then(|found| demand::total(metric, found, pods, at)),
                of_a_minute: measured.is_some_and(is_of_a_minute),
                censored,
                surplus: decided.decision.surplus && metric.is_of_pods(),
                not_divided: is_not_divided(&decided.decision, &name),
                // For a metric that is forecast, the reading of the forecast has this error.
                per_replica: demand::target(metric, pods, template).ok(),
            };
            samples.push((name, sample));
        }
    }
    samples
}

/// True if the decision refused a forecast of the metric because its total does not divide among pods.
fn is_not_divided(decision: &Decision, metric: &str) -> bool {
    decision.proposals.iter().any(|proposal| {
        proposal.reason == Reason::NotDivided
            && proposal.source == Source::Forecast
            && proposal.name == metric
    })
}

/// True if a reading was measured over about a minute or less. Other metrics APIs than `metrics.k8s.io` need not say:
/// an adapter may serve `rate(...[2m])`.
fn is_of_a_minute(measured: &Measured) -> bool {
    match measured {
        Measured::Usage(pods) => pods.iter().all(|pod| pod.window <= LONGEST_MINUTE),
        Measured::Samples(_) | Measured::Total(_) => false,
    }
}

/// True if more was asked for than `maxReplicas` gives, or pods that were asked for do not run yet.
fn is_at_its_limits(decision: &Decision, pods: &[Arc<Pod>]) -> bool {
    decision.limit == Some(Limit::TooManyReplicas)
        || pods
            .iter()
            .any(|pod| pod.phase == Phase::Pending && !pod.deleting)
}
