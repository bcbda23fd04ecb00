//! The part of a status whose change is worth a write: not measured values, nor times, nor sentences.

use foretide_crds::{ClusterStatus, EffectiveHorizontalPodAutoscalerStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::autoscaler::{FleetStatus, Status},
    controller::fleet::last_move::gist,
};

/// The part of a status that is compared with the status that was written last.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StatusFingerprint {
    common: EffectiveHorizontalPodAutoscalerStatus,
    fleet: FleetStatus,
    /// For each member whether its capacity is known.
    has_capacity: Vec<bool>,
}

// === impl StatusFingerprint ===

impl StatusFingerprint {
    pub(super) fn of(status: &Status) -> Self {
        let mut common = status.common.clone();
        common.history = None;
        common.last_scale_time = None;
        if let Some(decision) = &mut common.decision {
            decision.time = None;
            decision.leader_epoch = None;
            decision.message = None;
            for proposal in decision.proposals.iter_mut().flatten() {
                proposal.value = None;
                proposal.target = None;
                proposal.forecast = None;
            }
        }
        for condition in common.conditions.iter_mut().flatten() {
            condition.message = String::new();
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        let clusters = status.fleet.clusters.iter().flatten();
        let has_capacity = clusters.clone().map(|cluster| cluster.capacity.is_some());
        Self {
            common,
            has_capacity: has_capacity.collect(),
            fleet: FleetStatus {
                clusters: Some(clusters.cloned().map(steady).collect()),
                ..status.fleet.clone()
            },
        }
    }

    /// The ledger of the status, if it has one.
    pub(super) fn ledger(&self) -> Option<&str> {
        self.fleet.ledger.as_deref()
    }

    /// The same status with another ledger.
    pub(super) fn set_ledger(&mut self, ledger: &str) {
        self.fleet.ledger = Some(ledger.to_owned());
    }
}

/// A member's row without what changes with every measurement.
fn steady(cluster: ClusterStatus) -> ClusterStatus {
    ClusterStatus {
        reason: cluster.reason.as_deref().map(gist),
        capacity: None,
        utilization: None,
        observed: None,
        ..cluster
    }
}
