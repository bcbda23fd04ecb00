//! The cluster that our own objects are in: the port [`Cluster`].
//!
//! Reads what users ask for and writes what they are answered. It refuses to interpret either.

use std::{collections::BTreeSet, sync::Arc};

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus, FederatedHPA,
    FederatedHPAStatus, TimeSeriesPrediction, TimeSeriesPredictionStatus,
};
use serde::Deserialize;
use serde_json::Value;

use super::{Hub, KubeCluster, Stores, WatchTimeouts, writes};
use crate::{
    adapters::api_server::{Connection, Limits, Resource, WriteGate},
    clock::Clock,
    domain::ScaleTarget,
    ports::{Cluster, ClusterError, EventNote, ObjectKey},
};

#[derive(Deserialize)]
struct Identified {
    metadata: Identity,
}

#[derive(Deserialize)]
struct Identity {
    uid: String,
}

impl KubeCluster<Hub> {
    /// A cluster whose stores are empty until [`KubeCluster::run`]; no namespaces means all.
    #[must_use]
    pub fn new(connection: Connection, namespaces: &[String], clock: Clock) -> Self {
        Self::bounded(
            connection,
            namespaces,
            clock,
            (Limits::default(), WatchTimeouts::default()),
        )
    }

    pub(super) fn bounded(
        connection: Connection,
        namespaces: &[String],
        clock: Clock,
        (limits, pace): (Limits, WatchTimeouts),
    ) -> Self {
        let calls = connection.gated_calls(limits, WriteGate::default());
        let role = Hub::new(namespaces);
        Self::of_role(
            connection,
            calls,
            Stores::new(namespaces),
            (role, pace, clock),
        )
    }
}

impl Cluster for KubeCluster<Hub> {
    async fn changed(&self) -> BTreeSet<ObjectKey> {
        self.role.changes.next().await
    }

    fn autoscalers(&self) -> Vec<Arc<EffectiveHorizontalPodAutoscaler>> {
        self.role.autoscalers.all()
    }

    fn every_prediction(&self) -> Vec<Arc<TimeSeriesPrediction>> {
        self.role.predictions.all()
    }

    async fn apply_prediction(&self, manifest: &Value) -> Result<(), ClusterError> {
        writes::apply(&self.calls, Resource::TSP, manifest)
            .await
            .map(|_answer| ())
    }

    async fn write_prediction_status(
        &self,
        namespace: &str,
        name: &str,
        status: &TimeSeriesPredictionStatus,
    ) -> Result<(), ClusterError> {
        writes::apply_status(&self.calls, Resource::TSP, (namespace, name), status).await
    }

    async fn delete_prediction(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), ClusterError> {
        writes::delete(&self.calls, Resource::TSP, (namespace, name), uid).await
    }

    async fn write_status(
        &self,
        namespace: &str,
        name: &str,
        status: &EffectiveHorizontalPodAutoscalerStatus,
    ) -> Result<(), ClusterError> {
        writes::apply_status(&self.calls, Resource::EHPA, (namespace, name), status).await
    }

    async fn emit(
        &self,
        about: &EffectiveHorizontalPodAutoscaler,
        event: &EventNote,
    ) -> Result<(), ClusterError> {
        writes::emit(&self.calls, (Resource::EHPA, &about.metadata), event).await
    }

    async fn identity(&self) -> Result<String, ClusterError> {
        // The customary identity of a cluster, because this namespace is as old as the cluster.
        let path = "/api/v1/namespaces/kube-system";
        let read = self.calls.read::<Identified>(path).await;
        let found = read.map_err(|error| error.about("namespace kube-system".to_owned()))?;
        Ok(found.metadata.uid)
    }

    fn knows_federated(&self) -> bool {
        self.role.federated.is_synced()
    }

    async fn federated_changed(&self) -> BTreeSet<ObjectKey> {
        self.role.federated_changes.next().await
    }

    async fn emit_federated(
        &self,
        about: &FederatedHPA,
        event: &EventNote,
    ) -> Result<(), ClusterError> {
        writes::emit(&self.calls, (Resource::FEDERATED, &about.metadata), event).await
    }

    fn federated(&self) -> Vec<Arc<FederatedHPA>> {
        self.role.federated.all()
    }

    fn every_federated(&self) -> Option<Vec<Arc<FederatedHPA>>> {
        let federated = &self.role.federated;
        let is_whole = || {
            let report = federated.report();
            report.synced && report.unreadable == 0
        };
        // Before and after, for the watch goes on in between.
        let all = is_whole().then(|| federated.all());
        all.filter(|_| is_whole())
    }

    async fn write_federated_status(
        &self,
        namespace: &str,
        name: &str,
        status: &FederatedHPAStatus,
    ) -> Result<(), ClusterError> {
        writes::apply_status(&self.calls, Resource::FEDERATED, (namespace, name), status).await
    }

    async fn patch_federated(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), ClusterError> {
        let what = Resource::FEDERATED.shown(namespace, name);
        let patched =
            writes::patch(&self.calls, Resource::FEDERATED, (namespace, name), patch).await;
        patched.map(|_answer| ()).map_err(|error| error.about(what))
    }

    async fn object(&self, target: &ScaleTarget) -> Result<Value, ClusterError> {
        let path = self.discovery.path(target).await?;
        let read = self.calls.read(&path).await;
        read.map_err(|error| error.about(target.to_string()))
    }
}
