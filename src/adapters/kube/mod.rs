//! One Kubernetes cluster behind the ports [`Workloads`](crate::ports::Workloads), [`Cluster`](crate::ports::Cluster)
//! and [`Member`](crate::ports::Member).
//!
//! Watches keep compact copies of what every sync needs ([`KubeCluster::run`]); snapshot methods read
//! those copies; writes are conditional requests with a deadline. Replicas are written through the scale
//! subresource only, objects and fields of our own by server-side apply. It refuses to decide anything
//! and to repeat a write: the next sync looks again. Start with `client.rs`, then `watch.rs`, then `role.rs`.

mod changes;
mod decode;
mod get;
mod hub;
mod member;
mod nodes;
mod objects;
mod pods;
mod role;
mod selector;
mod store;
mod watch;
mod workloads;
mod writes;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::task::JoinSet;

pub use self::{
    changes::Changes,
    role::{Hub, KubeMember, MemberStores, Role},
    store::WatchReport,
};
use self::{decode::OnClock, objects::StoredWorkload, pods::StoredPod, role::scopes};
pub(super) use self::{
    decode::read,
    store::{Seen, Store, Stored},
    watch::{WatchTimeouts, Watched},
};
pub use super::api_server::{ConnectError, Connection, WriteGate};
use super::{
    api_server::{Calls, Discovery, Resource},
    metrics_api::MetricsApi,
};
use crate::{
    clock::Clock,
    domain::ScaleTarget,
    ports::{ClusterError, HpaView},
};

/// A Kubernetes cluster: stores that watches keep true, and a bounded client for the rest.
///
/// What every cluster of a fleet has is here; what only the hub or only a member has is in its [`Role`].
pub struct KubeCluster<R = Hub> {
    connection: Connection,
    calls: Arc<Calls>,
    discovery: Arc<Discovery>,
    metrics: MetricsApi,
    clock: Clock,
    stores: Stores,
    role: R,
    pace: WatchTimeouts,
}

/// The stores of every cluster.
struct Stores {
    hpas: Arc<Store<HpaView>>,
    pods: Arc<Store<StoredPod>>,
    workloads: [Arc<Store<StoredWorkload>>; 3],
}

// === impl KubeCluster ===

impl<R: Role> KubeCluster<R> {
    fn of_role(
        connection: Connection,
        calls: Calls,
        stores: Stores,
        (role, pace, clock): (R, WatchTimeouts, Clock),
    ) -> Self {
        let calls = Arc::new(calls);
        let discovery = Arc::new(Discovery::new(calls.clone()));
        let metrics = MetricsApi::new(calls.clone(), discovery.clone(), clock.clone());
        Self {
            connection,
            calls,
            discovery,
            metrics,
            clock,
            stores,
            role,
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
        for store in self.watched() {
            store.watch(&self.connection, self.pace, &mut tasks);
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
        self.watched().iter().map(|store| store.report()).collect()
    }

    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        let mut all = self.role.watched();
        all.extend(self.stores.watched());
        all
    }

    /// The store that holds a target's kind, if it is one of those we watch.
    fn workloads(&self, target: &ScaleTarget) -> Option<&Store<StoredWorkload>> {
        let stores = self.stores.workloads.iter().map(|store| &**store);
        let mut of_kind = stores.filter(|store| {
            store.resource.kind == target.kind && store.resource.api_version == target.api_version
        });
        of_kind.next()
    }

    /// The path of a target.
    async fn path(&self, target: &ScaleTarget) -> Result<String, ClusterError> {
        match self.workloads(target) {
            None => self.discovery.path(target).await,
            Some(store) => {
                let path = store.resource.object(&target.namespace, &target.name);
                path.map_err(|error| error.about(target.to_string()))
            }
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

impl<R: Role> std::fmt::Debug for KubeCluster<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeCluster")
            .field("watches", &self.watches())
            .finish_non_exhaustive()
    }
}

// === impl Stores ===

impl Stores {
    fn new(namespaces: &[String]) -> Self {
        let scopes = scopes(namespaces);
        let workloads = |resource| Arc::new(Store::new(resource, &scopes));
        Self {
            hpas: Arc::new(Store::new(Resource::HPA, &scopes)),
            pods: Arc::new(Store::new(Resource::POD, &scopes)),
            workloads: [
                workloads(Resource::DEPLOYMENT),
                workloads(Resource::STATEFUL_SET),
                workloads(Resource::REPLICA_SET),
            ],
        }
    }

    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        let mut all: Vec<Arc<dyn Watched>> = vec![self.hpas.clone(), self.pods.clone()];
        for store in &self.workloads {
            all.push(store.clone());
        }
        all
    }

    fn is_synced(&self) -> bool {
        self.watched().iter().all(|store| store.is_synced())
    }
}
