//! What a cluster is to us - the hub or a member - and the stores that only one of the two needs.

use std::sync::Arc;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA, TimeSeriesPrediction};

use super::{
    KubeCluster, changes::Changes, nodes::free_capacity::FreeCapacity, store::Store, watch::Watched,
};
use crate::{
    adapters::api_server::Resource,
    domain::federate::{Node, Quota},
};

/// A role of a cluster; implemented here only.
pub trait Role: Send + Sync + 'static {
    /// The stores that this role adds.
    fn watched(&self) -> Vec<Arc<dyn Watched>>;
    /// Whether those of them that a sync cannot do without have seen a complete first list.
    fn is_synced(&self) -> bool;
}

/// The cluster that our own objects are in.
pub struct Hub {
    pub(super) changes: Arc<Changes>,
    pub(super) federated_changes: Arc<Changes>,
    pub(super) autoscalers: Arc<Store<EffectiveHorizontalPodAutoscaler>>,
    pub(super) federated: Arc<Store<FederatedHPA>>,
    pub(super) predictions: Arc<Store<TimeSeriesPrediction>>,
}

/// A member of a fleet: what tells how much room it has.
pub struct MemberStores {
    pub(super) nodes: Arc<Store<Node>>,
    pub(super) quotas: Arc<Store<Quota>>,
    pub(super) spare: FreeCapacity,
}

/// A member cluster of a fleet.
pub type KubeMember = KubeCluster<MemberStores>;

/// Namespaces as the scopes of a store; none means all.
pub(super) fn scopes(namespaces: &[String]) -> Vec<Option<String>> {
    match namespaces {
        [] => vec![None],
        some => some.iter().cloned().map(Some).collect(),
    }
}

// === impl Hub ===

impl Hub {
    pub(super) fn new(namespaces: &[String]) -> Self {
        let scopes = scopes(namespaces);
        let (changes, federated_changes) = (Arc::<Changes>::default(), Arc::<Changes>::default());
        Self {
            autoscalers: Arc::new(Store::new(Resource::EHPA, &scopes).telling(changes.clone())),
            federated: Arc::new(
                Store::new(Resource::FEDERATED, &scopes).telling(federated_changes.clone()),
            ),
            predictions: Arc::new(Store::new(Resource::TSP, &scopes)),
            changes,
            federated_changes,
        }
    }
}

impl Role for Hub {
    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        vec![
            self.autoscalers.clone(),
            self.federated.clone(),
            self.predictions.clone(),
        ]
    }

    fn is_synced(&self) -> bool {
        // Without the kind of a fleet installed there is no fleet, and all the rest goes on.
        self.autoscalers.is_synced() && self.predictions.is_synced()
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

// === impl MemberStores ===

impl MemberStores {
    pub(super) fn new(namespaces: &[String]) -> Self {
        Self {
            nodes: Arc::new(Store::new(Resource::NODE, &[None])),
            quotas: Arc::new(Store::new(Resource::QUOTA, &scopes(namespaces))),
            spare: FreeCapacity::default(),
        }
    }
}

impl Role for MemberStores {
    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        vec![self.nodes.clone(), self.quotas.clone()]
    }

    fn is_synced(&self) -> bool {
        // Who may not read nodes and quotas goes without an estimate of the room.
        true
    }
}

impl std::fmt::Debug for MemberStores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemberStores").finish_non_exhaustive()
    }
}
