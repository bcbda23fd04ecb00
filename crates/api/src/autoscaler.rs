//! A managed autoscaler: the object that a user wrote, of whichever kind.
//!
//! Both kinds have the same spec and status fields for the bounds, metrics, windows and predictions of a workload; a
//! fleet's object has more of both. The common fields are read here, so that other modules need not distinguish the
//! kinds.

use std::sync::Arc;

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerSpec,
    EffectiveHorizontalPodAutoscalerStatus, FederatedHPA, FederatedHPAStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::ownership::{ADOPT, OwnerKind};

/// A managed autoscaler.
#[derive(Debug, Clone)]
pub enum Autoscaler {
    /// An autoscaler of one cluster.
    Effective(Arc<EffectiveHorizontalPodAutoscaler>),
    /// An autoscaler of a fleet.
    Federated(Arc<FederatedHPA>),
}

/// A status: the fields that every autoscaler has, and those that only a fleet has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// The fields that every autoscaler has.
    pub common: EffectiveHorizontalPodAutoscalerStatus,
    /// The fields that only a fleet has.
    pub fleet: FleetStatus,
}

/// The status fields that only a fleet has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetStatus {
    /// Replicas that no member can take.
    pub unassigned: Option<i32>,
    /// A row for each member.
    pub clusters: Option<Vec<foretide_crds::ClusterStatus>>,
    /// Memory of the rules, as text.
    pub ledger: Option<String>,
}

// === impl Status ===

impl From<Status> for FederatedHPAStatus {
    fn from(Status { common, fleet }: Status) -> Self {
        Self {
            fleet: common,
            unassigned: fleet.unassigned,
            clusters: fleet.clusters,
            ledger: fleet.ledger,
        }
    }
}

// === impl Autoscaler ===

impl Autoscaler {
    /// The kind of the object.
    pub const fn kind(&self) -> OwnerKind {
        match self {
            Self::Effective(_) => OwnerKind::Effective,
            Self::Federated(_) => OwnerKind::Federated,
        }
    }

    /// The metadata of the object.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Effective(ehpa) => &ehpa.metadata,
            Self::Federated(fdhpa) => &fdhpa.metadata,
        }
    }

    /// The spec of the workload; a fleet's is for all its members together.
    pub fn spec(&self) -> &EffectiveHorizontalPodAutoscalerSpec {
        match self {
            Self::Effective(ehpa) => &ehpa.spec,
            Self::Federated(fdhpa) => &fdhpa.spec.autoscaling,
        }
    }

    /// True if another object of its kind asks for the same.
    pub fn has_spec_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Effective(ehpa), Self::Effective(other)) => ehpa.spec == other.spec,
            (Self::Federated(fdhpa), Self::Federated(other)) => fdhpa.spec == other.spec,
            _ => false,
        }
    }

    /// The fields of the stored status that every kind has.
    pub fn status(&self) -> Option<&EffectiveHorizontalPodAutoscalerStatus> {
        match self {
            Self::Effective(ehpa) => ehpa.status.as_ref(),
            Self::Federated(fdhpa) => fdhpa.status.as_ref().map(|status| &status.fleet),
        }
    }

    /// The whole stored status.
    pub fn stored_status(&self) -> Status {
        let fleet = match self {
            Self::Effective(_) => FleetStatus::default(),
            Self::Federated(fdhpa) => {
                fdhpa
                    .status
                    .as_ref()
                    .map_or_else(FleetStatus::default, |s| FleetStatus {
                        unassigned: s.unassigned,
                        clusters: s.clusters.clone(),
                        ledger: s.ledger.clone(),
                    })
            }
        };
        Status {
            common: self.status().cloned().unwrap_or_default(),
            fleet,
        }
    }

    /// The UID; empty before the server has given one.
    pub fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    /// The name of the object.
    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// The namespace of the object.
    pub fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    /// The generation of the spec.
    pub fn generation(&self) -> Option<i64> {
        self.metadata().generation
    }

    /// True once the object is deleted and waits for its finalizers.
    pub fn is_deleting(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// The value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&String> {
        self.metadata().annotations.as_ref()?.get(name)
    }

    /// The time of its creation.
    pub fn created(&self) -> Option<Timestamp> {
        Some(self.metadata().creation_timestamp.as_ref()?.0)
    }

    /// True if the user asked us to take over a foreign HPA of the target.
    pub fn wants_adoption(&self) -> bool {
        self.annotation(ADOPT).is_some_and(|value| value == "true")
    }
}
