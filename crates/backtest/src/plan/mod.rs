//! One decision from a recorded history, or the expected replicas of a span.
//!
//! ```text
//! autoscaler, clusters -> Subject
//! histories ------------> Evidence   up to one moment      +-> decide -----> PlanReport
//! pods -----------------> Situation, assumed observation --+
//!                                                          +-> sim::Ahead -> ExpectedReport
//! ```
//!
//! The decisions and forecasts are code of the controller. The state of a cluster is assumed, and each assumption is a
//! sentence. A fleet is decided as one workload and then divided.

mod expected;
mod fleet;
mod observed;
mod outlook;

use foretide_crds::{DecisionStatus, WindowStatus};
use foretide_domain::{
    Observation, ReplicaBounds, Replicas,
    autoscale::{self, Decision, decide, history},
    hpa::Settings,
    workload::Workload,
};
use jiff::Timestamp;
use serde::{Serialize, Serializer};

pub use self::{
    expected::{Change, ExpectedReport, Minute, Span, source},
    fleet::needs_clusters,
    outlook::Outlook,
};
use self::{fleet::FleetPlan, observed::GivenReplicas};
use crate::{
    Error,
    assign::{Assignment, NamedFleet, clusters::Clusters},
    data,
    inputs::AutoscalerWorkload,
    manifest,
    recording::History,
    template::WorkloadTemplate,
    validate::Accepted,
};
use foretide_api::{
    autoscaler::Autoscaler,
    status::{decision_status, window_status},
    validation::FleetSpec,
};

/// The times that a plan is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Moment of the decision.
    pub at: Option<Timestamp>,
    /// Beginning of a span.
    pub from: Option<Timestamp>,
    /// End of a span.
    pub to: Option<Timestamp>,
}

/// The autoscaler to be planned.
#[derive(Debug)]
pub struct Subject {
    /// The autoscaler as one workload; histories are read for its metrics.
    pub chosen: AutoscalerWorkload,
    fleet: Option<FleetPlan>,
    assumptions: Vec<String>,
}

/// The histories of a subject, and the times that are planned.
#[derive(Debug)]
pub struct Evidence {
    /// Histories of the subject's metrics.
    pub histories: Vec<History>,
    /// Reasons for which other metrics have none, a sentence each.
    pub missing: Vec<String>,
    /// Moment up to which the histories are known.
    pub at: Timestamp,
    /// Span whose end the forecasts reach, if one is asked for.
    pub span: Option<Span>,
}

/// Inputs of a plan: the autoscaler, and the state at a moment.
#[derive(Debug, Serialize)]
pub struct Situation {
    /// The autoscaler.
    #[serde(rename = "metadata", serialize_with = "data::metadata")]
    pub autoscaler: Autoscaler,
    /// The meaning of its spec.
    #[serde(flatten, serialize_with = "workload")]
    pub workload: Workload,
    #[serde(skip)]
    fleet: Option<FleetPlan>,
    /// Template of a pod.
    #[serde(skip)]
    pub template: WorkloadTemplate,
    /// The moment up to which the histories are known.
    pub at: Timestamp,
    /// Past and forecast of each metric.
    #[serde(rename = "forecasts", serialize_with = "forecasts")]
    pub outlooks: Vec<Outlook>,
    /// Assumed pods with their measurements.
    #[serde(skip)]
    observation: Observation,
    /// Everything that is assumed, one sentence each.
    pub assumptions: Vec<String>,
}

/// A decision and its inputs.
#[derive(Debug, Serialize)]
pub struct PlanReport {
    /// Inputs of the decision.
    #[serde(flatten)]
    pub situation: Situation,
    /// The decision.
    #[serde(flatten, serialize_with = "decision")]
    pub decision: Decision,
    /// The division of a fleet.
    pub division: Option<Assignment>,
}

/// Reason for which there is nothing to plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Clusters are given for an autoscaler of one cluster.
    #[error("--clusters is for a FederatedHPA; this is an EffectiveHorizontalPodAutoscaler")]
    ClustersOfOne,
    /// Clusters are given for a fleet that is not divided.
    #[error(
        "--clusters is for policies that divide; under Duplicated each cluster decides from its own demand, so leave it out to \
         plan one of them from its history, or see the bounds with `foretide assign`"
    )]
    ClustersOfDuplicated,
    /// The clusters of a fleet are missing.
    #[error(
        "--clusters FILE is required: the clusters of the FederatedHPA, as in examples/clusters.yaml"
    )]
    NoClusters,
    /// The time of an option is before the first sample.
    #[error("{0} {1} is before the history begins, at {2}")]
    BeforeHistory(&'static str, Timestamp, Timestamp),
    /// The end of a span is not after its beginning.
    #[error("--to {0}: expected a time after {1}, where the span begins")]
    EmptySpan(Timestamp, Timestamp),
    /// The end of a span is too many days after its beginning.
    #[error("--to {0}: {1} days after {2}, expected at most {3}")]
    LongSpan(Timestamp, i64, Timestamp, i64),
    /// Nothing is known ahead.
    #[error(
        "--from and --to need spec.prediction or spec.crons: what metrics will ask for is not known ahead"
    )]
    NothingAhead,
    /// The end of a span without cron windows is beyond a forecast.
    #[error(
        "--to {0}: a forecast of {1} reaches to {2}; choose an earlier time (only cron windows are known further ahead, and \
         spec.crons has none)"
    )]
    BeyondForecast(Timestamp, Timestamp, Timestamp),
}

// === impl Times ===

impl Times {
    /// The moment up to which the histories are known: that of the option, but not after the last sample if it begins a
    /// span.
    ///
    /// # Errors
    /// A time is before the histories.
    pub fn moment(self, histories: &[History], now: Timestamp) -> Result<Timestamp, Error> {
        let first = histories.iter().filter_map(|it| it.recording.first()).min();
        let last = histories.iter().filter_map(|it| it.recording.last()).max();
        for (option, at) in [("--at", self.at), ("--from", self.from)] {
            if let (Some(at), Some(first)) = (at, first)
                && at < first
            {
                return Err(PlanError::BeforeHistory(option, at, first).into());
            }
        }
        let known = self
            .from
            .map(|from| last.map_or(from, |last| from.min(last)));
        Ok(self.at.or(known).or(last).unwrap_or(now))
    }
}

// === impl Subject ===

impl Subject {
    /// An autoscaler, with the differences of its conversion; `clusters` are those of a fleet that
    /// [needs them](needs_clusters).
    pub fn new(accepted: Accepted, clusters: Option<Clusters>, converted: Vec<String>) -> Self {
        let is_converted = !converted.is_empty();
        let mut assumptions = converted;
        let (autoscaler, workload, fleet) = match (accepted, clusters) {
            (Accepted::Ehpa(ehpa, workload), _) => (Autoscaler::Effective(ehpa), *workload, None),
            (Accepted::Fdhpa(fdhpa, spec), None) => {
                assumptions.extend(fleet::assumed_of_one(&spec));
                (Autoscaler::Federated(fdhpa), workload_of_one(&spec), None)
            }
            (Accepted::Fdhpa(fdhpa, spec), Some(clusters)) => {
                let (name, workload) = (fdhpa.metadata.name.clone(), spec.workload.clone());
                let fleet = NamedFleet {
                    name: name.unwrap_or_default(),
                    spec: *spec,
                };
                let fleet = FleetPlan { fleet, clusters };
                (Autoscaler::Federated(fdhpa), workload, Some(fleet))
            }
        };
        let mut chosen = AutoscalerWorkload {
            autoscaler,
            workload,
        };
        if is_converted {
            manifest::preview(&mut chosen.autoscaler);
        }
        Self {
            chosen,
            fleet,
            assumptions,
        }
    }

    /// The state with these pods: `replicas` of them, or those of the clusters, or as many as the demand needs.
    ///
    /// # Errors
    /// A metric has a utilization target, and the request of a pod is unknown.
    pub fn situation(
        self,
        evidence: Evidence,
        template: WorkloadTemplate,
        replicas: Option<u32>,
    ) -> Result<Situation, Error> {
        let AutoscalerWorkload {
            autoscaler,
            workload,
        } = self.chosen;
        let (at, span) = (evidence.at, evidence.span);
        let length = span.map_or(outlook::AHEAD, |span| span.forecast_length(&workload, at));
        let outlooks = outlook::outlooks(&autoscaler, &workload, evidence.histories, at, length);
        let given = given_replicas(replicas, self.fleet.as_ref());
        let (observation, mut assumptions) =
            observed::assume(&template, &workload, &outlooks, given, at)?;
        assumptions.extend(self.assumptions);
        assumptions.extend(evidence.missing);
        if self.fleet.is_some() {
            let shared = "clusters as in the clusters file, demand divided evenly over their pods";
            assumptions.push(shared.to_owned());
        }
        Ok(Situation {
            autoscaler,
            workload,
            fleet: self.fleet,
            template,
            at,
            outlooks,
            observation,
            assumptions,
        })
    }
}

// === impl PlanReport ===

impl PlanReport {
    /// The decision at the moment of the situation.
    ///
    /// # Errors
    /// A cluster has a utilization, but no metric has a utilization target.
    pub fn new(mut situation: Situation) -> Result<Self, Error> {
        let (outlooks, workload) = (&situation.outlooks, &situation.workload);
        let observation = std::mem::take(&mut situation.observation);
        let seen = autoscale::Inputs {
            forecasts: outlooks
                .iter()
                .filter_map(|outlook| outlook.reading(&observation.pods))
                .collect(),
            observation,
            child: None,
            share: None,
        };
        let (history, at) = (history::History::default(), situation.at);
        let (decision, _) = decide(workload, &seen, &history, &Settings::default(), at);
        let demand = observed::demand(&situation.template, outlooks, at);
        let fleet = situation.fleet.take();
        let division = fleet
            .map(|fleet| fleet.divided(workload, &seen, &decision, demand))
            .transpose()?;
        Ok(Self {
            situation,
            decision,
            division,
        })
    }
}

/// Writes a workload as its bounds and what is left out of its spec.
fn workload<S: Serializer>(of: &Workload, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Written<'a> {
        bounds: ReplicaBounds,
        problems: Vec<Problem<'a>>,
    }
    #[derive(Serialize)]
    struct Problem<'a> {
        reason: &'static str,
        message: &'a str,
    }
    let problems = of.problems.iter().map(|problem| Problem {
        reason: problem.reason.as_str(),
        message: &problem.message,
    });
    Written {
        bounds: of.bounds,
        problems: problems.collect(),
    }
    .serialize(to)
}

/// Writes the outlooks that have a forecast, or a reason for its absence.
fn forecasts<S: Serializer>(of: &[Outlook], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(of.iter().filter_map(Outlook::data))
}

/// Writes a decision as in an autoscaler's status.
fn decision<S: Serializer>(of: &Decision, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Written {
        decision: DecisionStatus,
        windows: Vec<WindowStatus>,
    }
    Written {
        decision: decision_status(of),
        windows: window_status(of),
    }
    .serialize(to)
}

/// The replicas that run, where an option or the clusters file gives them.
fn given_replicas(replicas: Option<u32>, fleet: Option<&FleetPlan>) -> Option<GivenReplicas> {
    let (replicas, origin) = match (replicas, fleet) {
        (Some(replicas), _) => (Replicas::new(replicas), "from --replicas"),
        (None, Some(fleet)) => (fleet.clusters.replicas(), "from the clusters file"),
        (None, None) => return None,
    };
    Some(GivenReplicas { replicas, origin })
}

/// One cluster of a fleet that is not divided, with the metrics that each cluster measures.
fn workload_of_one(spec: &FleetSpec) -> Workload {
    Workload {
        metrics: spec.member_metrics().cloned().collect(),
        ..spec.workload.clone()
    }
}
