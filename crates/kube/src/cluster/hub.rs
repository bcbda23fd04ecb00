//! The hub, the cluster of our own objects: the port [`Cluster`].
//!
//! Reads autoscalers from the stores, and writes statuses, events and predictions. What the objects mean is left to
//! `foretide::api`.

use std::{collections::BTreeSet, sync::Arc};

use foretide_crds::{
    EffectiveHorizontalPodAutoscalerStatus, FederatedHPA, FederatedHPAStatus, TimeSeriesPrediction,
    TimeSeriesPredictionStatus,
};
use foretide_domain::ScaleTarget;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::{Value, json};

use super::{
    Hub, KubeCluster, Options, WatchReport, WatchTimeouts,
    decode::text_at,
    writes::{self, StatusField},
};
use crate::api_server::{About as _, Connection, Limits, ObjectPath, Resource, WriteGate};
use foretide_api::ports::{
    Cluster, ClusterError, EventNote, ListedAutoscalers, ObjectKey, UnusableCopies, Workloads,
};
use foretide_api::{
    autoscaler::{Autoscaler, Status},
    ownership::OwnerKind,
};

impl KubeCluster<Hub> {
    /// The hub, watched in these namespaces; none means all. Writes to it go through `gate`. The stores are empty until
    /// [`KubeCluster::run`].
    pub fn new(connection: Connection, namespaces: &[String], gate: WriteGate) -> Self {
        let options = Options {
            namespaces,
            limits: Limits::default(),
            timeouts: WatchTimeouts::default(),
            gate,
        };
        Self::hub(connection, options)
    }

    pub(crate) fn hub(connection: Connection, options: Options<'_>) -> Self {
        Self::with_role(connection, Hub::new(options.namespaces), options)
    }

    /// True if every kind has been listed and all copies are up to date: otherwise nothing can be decided.
    pub fn is_current(&self) -> bool {
        let max = self.timeouts.max_staleness;
        // Not predictions: they are written and never decide.
        let mut needed = self.stores.watched();
        needed.push(self.role.autoscalers.clone());
        if self.knows_federated() {
            needed.push(self.role.federated.clone());
        }
        Workloads::is_synced(self) && needed.iter().all(|it| it.stale(None, max).is_none())
    }

    /// Writes only the conditions of a status that was made from a copy which may be out of date: the rest may have
    /// been written since.
    async fn write_conditions(
        &self,
        object: ObjectPath<'_>,
        uid: &str,
        status: &EffectiveHorizontalPodAutoscalerStatus,
    ) -> Result<(), ClusterError> {
        let field = StatusField {
            name: "conditions",
            value: json!(status.conditions),
        };
        writes::write_status_field(&self.calls, object, uid, field).await
    }
}

impl Cluster for KubeCluster<Hub> {
    async fn changed(&self, kind: OwnerKind) -> BTreeSet<ObjectKey> {
        let changes = match kind {
            OwnerKind::Effective => &self.role.changes,
            OwnerKind::Federated => &self.role.federated_changes,
        };
        changes.next().await
    }

    fn stale_autoscalers(
        &self,
        kind: OwnerKind,
        namespace: Option<&str>,
    ) -> Option<UnusableCopies> {
        let max = self.timeouts.max_staleness;
        match kind {
            OwnerKind::Effective => self.role.autoscalers.stale(namespace, max),
            OwnerKind::Federated => self.role.federated.stale(namespace, max),
        }
    }

    fn stale_predictions(&self) -> Option<UnusableCopies> {
        self.role
            .predictions
            .stale(None, self.timeouts.max_staleness)
    }

    fn autoscalers(&self) -> ListedAutoscalers {
        let (objects, mut unreadable) = self.role.autoscalers.all_and_unreadable();
        unreadable.extend(self.role.federated.all_and_unreadable().1);
        ListedAutoscalers {
            objects,
            unreadable,
        }
    }

    fn every_prediction(&self) -> Vec<Arc<TimeSeriesPrediction>> {
        self.role.predictions.all()
    }

    async fn apply_prediction(&self, manifest: &Value) -> Result<String, ClusterError> {
        let object = writes::object_of(Resource::PREDICTION, manifest);
        let stored = writes::apply(&self.calls, object, manifest).await?;
        Ok(text_at(&stored, "/metadata/uid").to_owned())
    }

    async fn write_prediction_status(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        status: &TimeSeriesPredictionStatus,
    ) -> Result<(), ClusterError> {
        let object = Resource::PREDICTION.object(namespace, name);
        writes::write_status(&self.calls, object, uid, None, status).await
    }

    async fn delete_prediction(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), ClusterError> {
        let object = Resource::PREDICTION.object(namespace, name);
        writes::delete(&self.calls, object, uid).await
    }

    async fn write_status(
        &self,
        about: &Autoscaler,
        mut status: Status,
    ) -> Result<(), ClusterError> {
        let (kind, uid) = (about.kind(), about.uid());
        let object = resource(kind).object(about.namespace(), about.name());
        // The decision says which leader writes it.
        if let Some(decision) = &mut status.common.decision {
            decision.leader_epoch = self.calls.gate().epoch();
        }
        let stale = self.stale_autoscalers(kind, Some(about.namespace()));
        // Where no status is stored, none that is newer can be lost, and JSON patch could not add a field to it.
        if stale.is_some() && about.status().is_some() {
            return self.write_conditions(object, uid, &status.common).await;
        }
        match kind {
            OwnerKind::Effective => {
                let absent = absent_before(about, &status.common);
                writes::write_status(&self.calls, object, uid, absent, &status.common).await
            }
            OwnerKind::Federated => {
                let whole = FederatedHPAStatus::from(status);
                writes::write_status(&self.calls, object, uid, None, &whole).await
            }
        }
    }

    async fn emit(
        &self,
        kind: OwnerKind,
        about: &ObjectMeta,
        event: &EventNote,
    ) -> Result<(), ClusterError> {
        writes::emit(&self.calls, resource(kind), about, event).await
    }

    async fn identity(&self) -> Result<String, ClusterError> {
        // By convention the UID of this namespace identifies a cluster, because both are created together.
        let path = "/api/v1/namespaces/kube-system";
        let what = "namespace kube-system";
        let found: Namespace = self.calls.read(path).await.about(what)?;
        found.metadata.uid.ok_or_else(|| ClusterError::Invalid {
            what: what.to_owned(),
            message: "expected a metadata.uid".to_owned(),
        })
    }

    fn knows_federated(&self) -> bool {
        let WatchReport {
            synced,
            forbidden_or_not_found,
            ..
        } = self.role.federated.report();
        // A cluster that had the CRD, and has it no more, knows no fleets either.
        synced && !forbidden_or_not_found
    }

    fn federated(&self) -> Vec<Arc<FederatedHPA>> {
        self.role.federated.all()
    }

    fn every_federated(&self) -> Option<Vec<Arc<FederatedHPA>>> {
        let federated = &self.role.federated;
        // Checked twice, because the watch may change the store in between.
        let all = federated.is_complete().then(|| federated.all());
        all.filter(|_| federated.is_complete())
    }

    async fn write_ledger(&self, about: &FederatedHPA, ledger: &str) -> Result<(), ClusterError> {
        let ObjectMeta {
            namespace,
            name,
            uid,
            ..
        } = &about.metadata;
        let [namespace, name, uid] =
            [namespace, name, uid].map(|part| part.as_deref().unwrap_or_default());
        let object = Resource::FEDERATED_HPA.object(namespace, name);
        if about.status.is_some() {
            let field = StatusField {
                name: "ledger",
                value: ledger.into(),
            };
            return writes::write_status_field(&self.calls, object, uid, field).await;
        }
        // JSON patch adds no field to a status that is not there. The watch may not show one yet that was just written.
        let status = FederatedHPAStatus {
            ledger: Some(ledger.to_owned()),
            ..FederatedHPAStatus::default()
        };
        writes::write_status(&self.calls, object, uid, Some("/status"), &status).await
    }

    async fn patch_federated(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), ClusterError> {
        let object = Resource::FEDERATED_HPA.object(namespace, name);
        writes::patch(&self.calls, object, patch).await.map(drop)
    }

    async fn object(&self, target: &ScaleTarget) -> Result<Value, ClusterError> {
        let path = self.discovery.path(target).await?;
        self.calls.read(&path).await.about(target)
    }
}

/// The resource of a kind of autoscaler.
const fn resource(kind: OwnerKind) -> Resource {
    match kind {
        OwnerKind::Effective => Resource::EHPA,
        OwnerKind::Federated => Resource::FEDERATED_HPA,
    }
}

/// The JSON pointer at which the stored status of a single autoscaler must have nothing before `new` replaces it;
/// absent if `new` may replace any.
///
/// A status from an old copy must not remove a `scaledToZero` that is newer: the workload would stay at zero. Workloads
/// that cannot be at zero need no test, which also fails while the copy lacks the last status, and then costs a sync.
fn absent_before(
    about: &Autoscaler,
    new: &EffectiveHorizontalPodAutoscalerStatus,
) -> Option<&'static str> {
    let may_sleep = about.spec().min_replicas == Some(0) || new.current_replicas == Some(0);
    match about.status() {
        _ if new.has_own_zero() || !may_sleep => None,
        None => Some("/status"),
        Some(seen) if seen.history.is_none() => Some("/status/history"),
        Some(seen) if seen.has_own_zero() => None,
        Some(_) => Some("/status/history/scaledToZero"),
    }
}
