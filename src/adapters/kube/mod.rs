//! One Kubernetes cluster behind the port [`Cluster`].
//!
//! Watches keep compact copies of what every sync needs ([`KubeCluster::run`]); snapshot methods read
//! those copies; writes are conditional requests with a deadline. Replicas are written through the scale
//! subresource only, objects and fields of our own by server-side apply. It refuses to decide anything
//! and to repeat a write: the next sync looks again. Start with `client.rs`, then `watch.rs`.

mod changes;
mod client;
mod discovery;
mod error;
mod gate;
mod look;
mod objects;
mod selector;
mod store;
mod url;
mod watch;
mod writes;

#[cfg(test)]
pub(in crate::adapters) mod fake;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc};

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus, FederatedHPA,
    FederatedHPAStatus, TimeSeriesPrediction, TimeSeriesPredictionStatus,
};
use serde_json::Value;
use tokio::task::JoinSet;

pub use self::{
    changes::Changes,
    client::{ConnectError, Connection},
    gate::WriteGate,
    store::WatchReport,
};
pub(super) use self::{
    client::{Calls, Limits},
    discovery::Discovery,
    error::CallError,
    objects::milli_value,
    url::{query, root, segment},
};
use self::{
    objects::{OnClock, StoredPod},
    store::{Store, Stored},
    url::Resource,
    watch::{Pace, Watch},
};
use super::metrics_api::MetricsApi;
use crate::{
    clock::Clock,
    domain::{
        Replicas, ScaleTarget,
        hpa::ObjectRef,
        observation::{Pod, PodSample, PodUsage, Unavailable},
    },
    ports::{
        Cluster, ClusterError, EventNote, HpaView, MetricQuery, ObjectKey, ScaleView, Workloads,
    },
};

/// A Kubernetes cluster: stores that watches keep true, and a bounded client for the rest.
pub struct KubeCluster {
    connection: Connection,
    calls: Arc<Calls>,
    discovery: Arc<Discovery>,
    metrics: MetricsApi,
    clock: Clock,
    changes: OfBothKinds,
    stores: Stores,
    pace: Pace,
}

/// The changes that two loops wait for, each for its own kind.
#[derive(Default)]
struct OfBothKinds {
    autoscalers: Arc<Changes>,
    federated: Arc<Changes>,
}

struct Stores {
    autoscalers: Arc<Store<EffectiveHorizontalPodAutoscaler>>,
    federated: Arc<Store<FederatedHPA>>,
    predictions: Arc<Store<TimeSeriesPrediction>>,
    hpas: Arc<Store<HpaView>>,
    pods: Arc<Store<StoredPod>>,
    workloads: [Arc<Store<ScaleView>>; 3],
}

// === impl KubeCluster ===

impl KubeCluster {
    /// A cluster whose stores are empty until [`KubeCluster::run`]; no namespaces means all.
    #[must_use]
    pub fn new(connection: Connection, namespaces: &[String], clock: Clock) -> Self {
        Self::bounded(
            connection,
            namespaces,
            clock,
            (Limits::default(), Pace::default()),
        )
    }

    fn bounded(
        connection: Connection,
        namespaces: &[String],
        clock: Clock,
        (limits, pace): (Limits, Pace),
    ) -> Self {
        let calls = Arc::new(Calls::new(connection.unary.clone(), limits));
        let discovery = Arc::new(Discovery::new(calls.clone()));
        let metrics = MetricsApi::new(calls.clone(), discovery.clone(), clock.clone());
        let changes = OfBothKinds::default();
        let stores = Stores::new(namespaces, &changes);
        Self {
            connection,
            calls,
            discovery,
            metrics,
            clock,
            changes,
            stores,
            pace,
        }
    }

    /// Keeps the stores true to the cluster, one task per kind and namespace, until it is dropped.
    ///
    /// # Guarantees
    /// Outages end by themselves. It returns only when a watch has died, which is a defect: end the
    /// process then, for the copies are no longer renewed.
    pub async fn run(&self) {
        let mut tasks = JoinSet::new();
        self.watch(&self.stores.autoscalers, &mut tasks);
        self.watch(&self.stores.federated, &mut tasks);
        self.watch(&self.stores.predictions, &mut tasks);
        self.watch(&self.stores.hpas, &mut tasks);
        self.watch(&self.stores.pods, &mut tasks);
        for store in &self.stores.workloads {
            self.watch(store, &mut tasks);
        }
        if let Some(Err(error)) = tasks.join_next().await {
            tracing::error!(%error, "a watch died");
        }
    }

    /// The gate of every write to this cluster, for whoever elects a leader; open from the start.
    #[must_use]
    pub fn gate(&self) -> &WriteGate {
        self.calls.gate()
    }

    /// How every watch is doing, one report per kind.
    #[must_use]
    pub fn watches(&self) -> Vec<WatchReport> {
        let stores = &self.stores;
        let mut reports = vec![
            stores.autoscalers.report(),
            stores.federated.report(),
            stores.predictions.report(),
            stores.hpas.report(),
            stores.pods.report(),
        ];
        reports.extend(stores.workloads.iter().map(|store| store.report()));
        reports
    }

    fn watch<V: Stored>(&self, store: &Arc<Store<V>>, tasks: &mut JoinSet<()>) {
        for scope in store.scopes() {
            let watch = Watch {
                client: self.connection.watch.clone(),
                store: store.clone(),
                scope: scope.clone(),
                pace: self.pace,
            };
            tasks.spawn(watch.run());
        }
    }

    /// The store that holds a target's kind, if it is one of those we watch.
    fn workloads(&self, target: &ScaleTarget) -> Option<&Store<ScaleView>> {
        let stores = self.stores.workloads.iter().map(|store| &**store);
        let mut of_kind = stores.filter(|store| {
            store.resource.kind == target.kind && store.resource.api_version == target.api_version
        });
        of_kind.next()
    }

    /// The path of a target's scale subresource.
    async fn scale_path(&self, target: &ScaleTarget) -> Result<String, ClusterError> {
        match self.workloads(target) {
            None => self.discovery.scale_path(target).await,
            Some(store) => match store.resource.object(&target.namespace, &target.name) {
                Ok(path) => Ok(format!("{path}/scale")),
                Err(error) => Err(error.about(target.to_string())),
            },
        }
    }

    fn on_clock<V: OnClock>(&self, value: &Arc<V>) -> Arc<V> {
        if self.clock.is_wall() {
            value.clone()
        } else {
            Arc::new(value.on(&self.clock))
        }
    }
}

impl std::fmt::Debug for KubeCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeCluster")
            .field("watches", &self.watches())
            .finish_non_exhaustive()
    }
}

impl Workloads for KubeCluster {
    fn is_synced(&self) -> bool {
        // Without the kind of a fleet installed there is no fleet, and all the rest goes on.
        let Stores {
            autoscalers,
            federated: _,
            predictions,
            hpas,
            pods,
            workloads,
        } = &self.stores;
        autoscalers.is_synced()
            && predictions.is_synced()
            && hpas.is_synced()
            && pods.is_synced()
            && workloads.iter().all(|store| store.is_synced())
    }

    fn hpas(&self, namespace: &str) -> Vec<Arc<HpaView>> {
        let hpas = self.stores.hpas.in_namespace(namespace);
        hpas.iter().map(|hpa| self.on_clock(hpa)).collect()
    }

    fn every_hpa(&self) -> Vec<Arc<HpaView>> {
        self.stores
            .hpas
            .all()
            .iter()
            .map(|hpa| self.on_clock(hpa))
            .collect()
    }

    fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Arc<Pod>>, ClusterError> {
        let requirements = selector::parse(selector).map_err(|message| ClusterError::Invalid {
            what: format!("the pod selector of namespace {namespace}"),
            message,
        })?;
        let pods = self.stores.pods.select(namespace, &requirements);
        Ok(pods
            .iter()
            .map(|stored| self.on_clock(&stored.pod))
            .collect())
    }

    async fn scale(&self, target: &ScaleTarget) -> Result<ScaleView, ClusterError> {
        let what = || target.to_string();
        let Some(store) = self.workloads(target) else {
            let path = self.discovery.scale_path(target).await?;
            return writes::read_scale(&self.calls, &path)
                .await
                .map_err(|e| e.about(what()));
        };
        match store.get(&target.namespace, &target.name) {
            Some(view) => Ok(ScaleView::clone(&view)),
            None if store.is_synced() => Err(ClusterError::NotFound { what: what() }),
            None => Err(ClusterError::Unreachable {
                what: what(),
                message: format!("the first list of kind {} is not complete yet", target.kind),
            }),
        }
    }

    async fn usage(&self, namespace: &str) -> Result<Vec<Arc<PodUsage>>, Unavailable> {
        self.metrics.usage(namespace).await
    }

    async fn pods_metric(&self, query: &MetricQuery<'_>) -> Result<Vec<PodSample>, Unavailable> {
        self.metrics.pods(query).await
    }

    async fn object_metric(
        &self,
        object: &ObjectRef,
        query: &MetricQuery<'_>,
    ) -> Result<i64, Unavailable> {
        self.metrics.object(object, query).await
    }

    async fn external_metric(&self, query: &MetricQuery<'_>) -> Result<Vec<i64>, Unavailable> {
        self.metrics.external(query).await
    }

    async fn write_scale(
        &self,
        target: &ScaleTarget,
        seen: &ScaleView,
        replicas: Replicas,
    ) -> Result<Replicas, ClusterError> {
        let path = self.scale_path(target).await?;
        let written = writes::write_scale(&self.calls, &path, &seen.resource_version, replicas);
        written
            .await
            .map_err(|error| error.about(target.to_string()))
    }

    async fn apply_hpa(&self, manifest: &Value) -> Result<Arc<HpaView>, ClusterError> {
        let (what, answer) = writes::apply(&self.calls, Resource::HPA, manifest).await?;
        self.hpa(what, answer)
    }

    async fn patch_hpa(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Arc<HpaView>, ClusterError> {
        let what = Resource::HPA.shown(namespace, name);
        let patched = writes::patch(&self.calls, Resource::HPA, (namespace, name), patch).await;
        self.hpa(what.clone(), patched.map_err(|error| error.about(what))?)
    }

    async fn delete_hpa(&self, namespace: &str, name: &str, uid: &str) -> Result<(), ClusterError> {
        writes::delete(&self.calls, Resource::HPA, (namespace, name), uid).await
    }
}

impl Cluster for KubeCluster {
    async fn changed(&self) -> BTreeSet<ObjectKey> {
        self.changes.autoscalers.next().await
    }

    fn autoscalers(&self) -> Vec<Arc<EffectiveHorizontalPodAutoscaler>> {
        self.stores.autoscalers.all()
    }

    fn every_prediction(&self) -> Vec<Arc<TimeSeriesPrediction>> {
        self.stores.predictions.all()
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

    async fn federated_changed(&self) -> BTreeSet<ObjectKey> {
        self.changes.federated.next().await
    }

    async fn emit_federated(
        &self,
        about: &FederatedHPA,
        event: &EventNote,
    ) -> Result<(), ClusterError> {
        writes::emit(&self.calls, (Resource::FEDERATED, &about.metadata), event).await
    }

    fn federated(&self) -> Vec<Arc<FederatedHPA>> {
        self.stores.federated.all()
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

impl KubeCluster {
    fn hpa(&self, what: String, answer: Value) -> Result<Arc<HpaView>, ClusterError> {
        let view =
            HpaView::decode(answer).map_err(|message| ClusterError::Invalid { what, message })?;
        Ok(self.on_clock(&Arc::new(view)))
    }
}

// === impl Stores ===

impl Stores {
    fn new(namespaces: &[String], changes: &OfBothKinds) -> Self {
        let (own, federated) = (changes.autoscalers.clone(), changes.federated.clone());
        let scopes: Vec<Option<String>> = match namespaces {
            [] => vec![None],
            some => some.iter().cloned().map(Some).collect(),
        };
        let workloads = |resource| Arc::new(Store::new(resource, &scopes));
        Self {
            autoscalers: Arc::new(Store::new(Resource::EHPA, &scopes).telling(own)),
            federated: Arc::new(Store::new(Resource::FEDERATED, &scopes).telling(federated)),
            predictions: Arc::new(Store::new(Resource::TSP, &scopes)),
            hpas: Arc::new(Store::new(Resource::HPA, &scopes)),
            pods: Arc::new(Store::new(Resource::POD, &scopes)),
            workloads: [
                workloads(Resource::DEPLOYMENT),
                workloads(Resource::STATEFUL_SET),
                workloads(Resource::REPLICA_SET),
            ],
        }
    }
}
