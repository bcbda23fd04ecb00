//! One Kubernetes cluster behind the ports [`Workloads`](foretide_api::ports::Workloads),
//! [`Cluster`](foretide_api::ports::Cluster) and [`Member`](foretide_api::ports::Member).
//!
//! ```text
//! list and watch ──► watch.rs ──► store.rs ──► snapshots: workloads.rs (any cluster), hub.rs, member.rs
//! writes.rs ──► conditional requests, each sent once
//! lease.rs  ──► the lease of the leader election: the port LeaseStore
//! ```
//!
//! Watches keep compact copies of the objects that every sync needs ([`KubeCluster::run`]), and snapshot methods read
//! the copies. Replicas are written through the scale subresource only, and our own objects by server-side apply.
//! Decisions are left to `domain`.

mod access;
mod api_services;
mod autoscalers;
mod changes;
mod client_authorities;
mod copies;
mod decode;
mod entry;
mod get;
mod hub;
mod labels;
mod lease;
mod member;
mod nodes;
mod objects;
mod own_scales;
mod pod_list;
mod pods;
mod role;
mod scaled_objects;
mod shared_secret;
pub(crate) mod size;
mod store;
mod stored;
mod watch;
mod watch_report;
mod workloads;
mod writes;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use foretide_domain::ScaleTarget;
use tokio::task::JoinSet;

pub use self::api_services::Observed;
pub use self::watch::MAX_STALENESS;
pub use self::{
    access::KubeAccessReviewer,
    api_services::{ApiServices, RegistrationError, ServiceName},
    autoscalers::KubeAutoscalers,
    client_authorities::KubeClientAuthorities,
    lease::KubeLease,
    member::KubeMember,
    pod_list::KubePodLister,
    role::{Hub, MemberStores, Role},
    shared_secret::{SecretContents, SharedSecret},
    watch_report::WatchReport,
};
pub(crate) use self::{
    changes::Changes,
    decode::{Conditions, Meta, read, text_at},
    entry::Entry,
    store::Store,
    stored::Stored,
    watch::{WatchTimeouts, Watched},
};
use self::{
    objects::StoredWorkload, own_scales::OwnScales, pods::StoredPod, role::scopes,
    scaled_objects::StoredScaledObject,
};
pub use super::api_server::{ConnectError, Connection, WriteGate};
use super::{
    api_server::{About as _, Calls, Discovery, Limits, Resource},
    metrics_api::MetricsApi,
};
use foretide_api::ports::{ClusterError, HpaView};

/// A Kubernetes cluster: stores that watches keep up to date, and a client for everything else.
///
/// The stores that only the hub or only a member needs are in its [`Role`].
#[derive(Debug)]
pub struct KubeCluster<R = Hub> {
    connection: Connection,
    calls: Arc<Calls>,
    discovery: Arc<Discovery>,
    metrics: MetricsApi,
    stores: Stores,
    own_scales: OwnScales,
    role: R,
    timeouts: WatchTimeouts,
}

/// Settings for watching and reaching a cluster.
pub(crate) struct Options<'a> {
    /// Namespaces that are watched; none means all.
    pub namespaces: &'a [String],
    /// Limits of single requests.
    pub limits: Limits,
    /// Timeouts of watches.
    pub timeouts: WatchTimeouts,
    /// The gate of all writes.
    pub gate: WriteGate,
}

/// The stores of every cluster.
#[derive(Debug)]
struct Stores {
    hpas: Arc<Store<HpaView>>,
    pods: Arc<Store<StoredPod>>,
    workloads: [Arc<Store<StoredWorkload>>; 3],
    /// The `ScaledObject`s; empty where KEDA is not installed, or may not be read.
    scaled_objects: Arc<Store<StoredScaledObject>>,
}

// === impl KubeCluster ===

impl<R: Role> KubeCluster<R> {
    fn with_role(connection: Connection, role: R, options: Options<'_>) -> Self {
        let calls = Arc::new(connection.calls_within(options.limits, options.gate));
        let discovery = Arc::new(Discovery::new(calls.clone()));
        let metrics = MetricsApi::new(calls.clone(), discovery.clone());
        Self {
            own_scales: OwnScales::new(connection.clock()),
            connection,
            calls,
            discovery,
            metrics,
            stores: Stores::new(options.namespaces),
            role,
            timeouts: options.timeouts,
        }
    }

    /// Keeps the stores up to date, one task per kind and namespace, until it is dropped.
    ///
    /// # Guarantees
    /// Watches recover from outages. It returns only if a watch task panics: end the process then, because a store
    /// would no longer be updated.
    pub async fn run(&self) {
        let mut tasks = JoinSet::new();
        let mut all = self.watched();
        all.push(self.stores.scaled_objects.clone());
        for store in all {
            store.watch(&self.connection, self.timeouts, &mut tasks);
        }
        if let Some(Err(error)) = tasks.join_next().await {
            tracing::error!(%error, "watch task exited unexpectedly");
        }
    }

    /// The metrics APIs that hang: reads of them fail at once.
    pub fn open_circuits(&self) -> Vec<String> {
        self.calls.open_circuits()
    }

    /// Lead of the API server's clock over ours, in seconds.
    pub fn clock_skew(&self) -> i64 {
        self.calls.clock_skew().as_secs()
    }

    /// The state of every watch, one report per kind. A cluster without KEDA lacks nothing.
    pub fn watches(&self) -> Vec<WatchReport> {
        let mut reports: Vec<_> = self.watched().iter().map(|it| it.report()).collect();
        let of_keda = self.stores.scaled_objects.report();
        reports.extend(of_keda.synced.then_some(of_keda));
        reports
    }

    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        let mut all = self.role.watched();
        all.extend(self.stores.watched());
        all
    }

    /// The store of a target's kind, if the kind is watched.
    fn store_of(&self, target: &ScaleTarget) -> Option<&Store<StoredWorkload>> {
        let store = self.stores.workloads.iter().find(|store| {
            store.resource.kind == target.kind && store.resource.api_version == target.api_version
        })?;
        Some(store)
    }

    /// The stored workload of a target, if its kind is watched.
    fn workload(&self, target: &ScaleTarget) -> Option<Arc<StoredWorkload>> {
        self.store_of(target)?.get(&target.namespace, &target.name)
    }

    /// The path of a target.
    async fn path(&self, target: &ScaleTarget) -> Result<String, ClusterError> {
        match self.store_of(target) {
            None => self.discovery.path(target).await,
            Some(store) => {
                let object = store.resource.object(&target.namespace, &target.name);
                object.path().about(target)
            }
        }
    }
}

// === impl Stores ===

impl Stores {
    fn new(namespaces: &[String]) -> Self {
        let scopes = scopes(namespaces);
        Self {
            hpas: Arc::new(Store::new(Resource::HPA, &scopes)),
            pods: Arc::new(Store::new(Resource::POD, &scopes)),
            workloads: [
                Resource::DEPLOYMENT,
                Resource::STATEFUL_SET,
                Resource::REPLICA_SET,
            ]
            .map(|resource| Arc::new(Store::new(resource, &scopes))),
            scaled_objects: Arc::new(Store::new(Resource::SCALED_OBJECT, &scopes)),
        }
    }

    /// The stores that a sync needs.
    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        let mut all: Vec<Arc<dyn Watched>> = vec![self.hpas.clone(), self.pods.clone()];
        for store in &self.workloads {
            all.push(store.clone());
        }
        all
    }

    fn is_synced(&self) -> bool {
        self.watched().iter().all(|store| store.is_synced()) && self.scaled_objects.is_answered()
    }
}
