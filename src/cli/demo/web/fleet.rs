//! The simulated fleet of clusters: budgets are the hub's own decisions, the counts in each cluster those of its HPA.

use std::sync::Arc;

use foretide_crds::FederatedHPA;
use foretide_domain::{
    Observation, Replicas, Scale,
    autoscale::{self, Decision, history::History},
    hpa::Settings,
    sim::{PodTemplate, measure},
    workload::Workload,
};
use foretide_federate::{FleetDecision, Health};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{
    StatusTrack, replay_begin,
    simulation::{FleetSimulation, STEPS_PER_MINUTE},
    unusable,
};
use crate::cli::{context::CommandContext, output::Failure};
use foretide_api::{
    autoscaler::{Autoscaler, FleetStatus, Status},
    status::{cluster_status, decided_condition, ledger_status},
    validation,
};
use foretide_page::{Decided, DecisionLog, MemberState, MetricRecord, Record};

/// The autoscaler.
const AUTOSCALER: &str = include_str!("fleet.yaml");
/// Demand that one replica carries, as in the manifest of the autoscaler.
const PER_REPLICA: f64 = 20.0;
/// Minute of the simulation's course at the present: a cluster has just been lost.
const COURSE: u32 = 50;

/// The simulated parts of the fleet.
#[derive(Debug)]
pub struct FleetRun {
    autoscaler: Autoscaler,
    workload: Arc<Workload>,
    simulation: FleetSimulation,
    history: History,
    track: StatusTrack,
    before: Option<Replicas>,
}

// === impl FleetRun ===

impl FleetRun {
    /// The fleet at the beginning of the replay.
    pub fn new(context: &CommandContext) -> Result<Self, Failure> {
        let object: FederatedHPA = serde_saphyr::from_str(AUTOSCALER).map_err(unusable)?;
        let settings = Settings::default();
        let period = SignedDuration::from_secs(15);
        let spec =
            validation::fleet(&object, &context.local, period, &settings).map_err(unusable)?;
        Ok(Self {
            autoscaler: Autoscaler::Federated(Arc::new(object)),
            workload: Arc::new(spec.workload),
            simulation: FleetSimulation::beginning(replay_begin(), COURSE),
            history: History::default(),
            track: StatusTrack::default(),
            before: None,
        })
    }

    /// Simulates and records the minute that begins now; returns the states of its clusters.
    pub fn minute(&mut self, now: Timestamp, log: &DecisionLog) -> Vec<MemberState> {
        let mut divided = self.simulation.advance();
        for _ in 1..STEPS_PER_MINUTE {
            divided = self.simulation.advance();
        }
        let ready = self
            .simulation
            .clusters
            .iter()
            .map(|cluster| cluster.ready)
            .sum();
        let demand = self.simulation.total_demand();
        let decision = self.decide(ready, demand, now);
        let current = decision.current;
        let from = self.before.replace(current).unwrap_or(current);
        let own = divided
            .conditions
            .iter()
            .map(|one| decided_condition(one.kind.as_str(), one));
        let own: Vec<Condition> = own.collect();
        let status = Status {
            common: self.track.status(&decision, (from, current), own),
            fleet: self.status(&divided),
        };
        let metric = self.workload.metrics.first();
        log.record(Record {
            at: now,
            autoscaler: &self.autoscaler,
            status: &status,
            decided: Some(Decided {
                workload: &self.workload,
                decision: &decision,
                current,
                ready: Replicas::new(ready),
                metrics: metric
                    .map(|metric| MetricRecord {
                        name: metric.identifier(),
                        demand: demand.map(|demand| demand * PER_REPLICA),
                        per_replica: Some(PER_REPLICA),
                        forecast: None,
                    })
                    .into_iter()
                    .collect(),
                template: Some(template()),
                start_up: None,
            }),
        });
        self.members(now)
    }

    /// Decides for the fleet as one workload.
    fn decide(&mut self, ready: u32, demand: Option<f64>, now: Timestamp) -> Decision {
        let count = Replicas::new(self.simulation.replicas());
        let pods = (0..ready).map(|index| template().serving(&format!("gateway-{index}"), now));
        let pods: Vec<_> = pods.collect();
        let total = demand.map(|demand| demand * PER_REPLICA);
        let readings = self.workload.metrics.iter();
        let seen = autoscale::Inputs {
            observation: Observation {
                scale: Scale {
                    spec: count,
                    status: count,
                },
                readings: readings
                    .map(|metric| measure::reading(metric, total, &pods, now))
                    .collect(),
                pods,
                ..Observation::default()
            },
            forecasts: Vec::new(),
            child: None,
            share: None,
        };
        let settings = Settings::default();
        let decided = autoscale::decide(&self.workload, &seen, &self.history, &settings, now);
        self.history = decided.1;
        decided.0
    }

    fn status(&self, divided: &FleetDecision) -> FleetStatus {
        let ledger = &self.simulation.ledger;
        let clusters = divided.members.iter().map(|decided| {
            let seen = self.simulation.seen(&decided.name);
            let entry = ledger.members.get(&decided.name);
            let reason = decided
                .reasons
                .first()
                .map_or("Steady", |reason| reason.as_str());
            let reason = format!("{reason}: {}", decided.sentence());
            cluster_status(decided, seen, entry, reason)
        });
        FleetStatus {
            unassigned: Some(divided.unassigned.as_i32()),
            clusters: Some(clusters.collect()),
            ledger: Some(ledger_status(ledger)),
        }
    }

    fn members(&self, now: Timestamp) -> Vec<MemberState> {
        let clusters = self.simulation.clusters.iter().filter_map(|cluster| {
            let seen = self.simulation.seen(cluster.name())?;
            let silent = match seen.health {
                Health::Ready => None,
                _ => seen.observed.map(|at| now.duration_since(at).as_secs_f64()),
            };
            Some(MemberState {
                name: cluster.name().to_owned(),
                ready: silent.is_none(),
                silent_seconds: silent,
            })
        });
        clusters.collect()
    }
}

fn template() -> PodTemplate {
    PodTemplate {
        containers: Arc::new([]),
        pod_level: None,
    }
}
