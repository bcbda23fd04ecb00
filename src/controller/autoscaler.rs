//! A managed autoscaler: the object that a user wrote, of whichever kind.
//!
//! Both kinds ask for a workload's bounds, metrics, windows and predictions in the same fields and report in the same
//! ones; a fleet's has more of both. Whatever is common is read here, so that nothing else asks for the kind.

use std::sync::Arc;

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerSpec,
    EffectiveHorizontalPodAutoscalerStatus, FederatedHPA, FederatedHPAStatus, ScaleStrategy,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::child_hpa::ADOPT;
use crate::{
    api::ownership::OwnerKind,
    ports::{Cluster, ClusterError, EventNote, ObjectKey},
    telemetry::ObjectLabels,
};

/// A managed autoscaler.
#[derive(Debug, Clone)]
pub(super) enum Autoscaler {
    /// Of one cluster.
    Effective(Arc<EffectiveHorizontalPodAutoscaler>),
    /// Of a fleet.
    Federated(Arc<FederatedHPA>),
}

/// A status: what that of every autoscaler has, and what a fleet's has besides.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Status {
    /// What every status has.
    pub(super) common: EffectiveHorizontalPodAutoscalerStatus,
    /// What a fleet's has besides.
    pub(super) fleet: FleetStatus,
}

/// What the status of a fleet has besides that of every autoscaler.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FleetStatus {
    /// Replicas that no member can take.
    pub(super) unassigned: Option<i32>,
    /// A row for each member.
    pub(super) clusters: Option<Vec<foretide_crds::ClusterStatus>>,
    /// What the rules remember, as text.
    pub(super) ledger: Option<String>,
}

// === impl Autoscaler ===

impl Autoscaler {
    /// Which kind it is.
    pub(super) const fn kind(&self) -> OwnerKind {
        match self {
            Self::Effective(_) => OwnerKind::Effective,
            Self::Federated(_) => OwnerKind::Federated,
        }
    }

    pub(super) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Effective(ehpa) => &ehpa.metadata,
            Self::Federated(fdhpa) => &fdhpa.metadata,
        }
    }

    /// What is asked for a workload: by a fleet's, of all its members together.
    pub(super) fn spec(&self) -> &EffectiveHorizontalPodAutoscalerSpec {
        match self {
            Self::Effective(ehpa) => &ehpa.spec,
            Self::Federated(fdhpa) => &fdhpa.spec.autoscaling,
        }
    }

    /// The status as it stands in the cluster, as far as every kind has it.
    pub(super) fn status(&self) -> Option<&EffectiveHorizontalPodAutoscalerStatus> {
        match self {
            Self::Effective(ehpa) => ehpa.status.as_ref(),
            Self::Federated(fdhpa) => fdhpa.status.as_ref().map(|status| &status.fleet),
        }
    }

    /// The whole status as it stands in the cluster.
    pub(super) fn stored_status(&self) -> Status {
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

    pub(super) fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn generation(&self) -> Option<i64> {
        self.metadata().generation
    }

    pub(super) fn created(&self) -> Option<Timestamp> {
        let created = self.metadata().creation_timestamp.as_ref();
        created.map(|at| at.0)
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey {
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
        }
    }

    /// Labels of its metric series.
    pub(super) fn labels(&self) -> ObjectLabels {
        ObjectLabels {
            kind: self.kind().resource(),
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
        }
    }

    /// Whether it writes counts or bounds, and does not only preview them.
    pub(super) fn acts(&self) -> bool {
        let spec = self.spec();
        spec.scale_strategy.unwrap_or_default() == ScaleStrategy::Auto
            || spec.specific_replicas.is_some()
    }

    /// Whether the user asked us to take over a foreign HPA of the target.
    pub(super) fn wants_adoption(&self) -> bool {
        let annotations = self.metadata().annotations.as_ref();
        let value = annotations.and_then(|annotations| annotations.get(ADOPT));
        value.is_some_and(|value| value == "true")
    }

    /// Writes its status.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn write_status<C: Cluster>(
        &self,
        cluster: &C,
        Status { common, fleet }: &Status,
    ) -> Result<(), ClusterError> {
        let (namespace, name) = (self.namespace(), self.name());
        match self {
            Self::Effective(_) => cluster.write_status(namespace, name, common).await,
            Self::Federated(_) => {
                let status = FederatedHPAStatus {
                    fleet: common.clone(),
                    unassigned: fleet.unassigned,
                    clusters: fleet.clusters.clone(),
                    ledger: fleet.ledger.clone(),
                };
                cluster
                    .write_federated_status(namespace, name, &status)
                    .await
            }
        }
    }

    /// Records an event about it.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn emit<C: Cluster>(
        &self,
        cluster: &C,
        event: &EventNote,
    ) -> Result<(), ClusterError> {
        match self {
            Self::Effective(ehpa) => cluster.emit(ehpa, event).await,
            Self::Federated(fdhpa) => cluster.emit_federated(fdhpa, event).await,
        }
    }
}
