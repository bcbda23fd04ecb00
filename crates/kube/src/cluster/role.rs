//! The two roles of a cluster, and the stores that only one of them needs.
//!
//! | role | stores beyond pods, workloads and HPAs |
//! |---|---|
//! | [`Hub`] | our own objects: autoscalers, federated autoscalers, predictions |
//! | [`MemberStores`] | nodes and quotas, for the estimate of its free capacity |

use std::sync::Arc;

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA, TimeSeriesPrediction};
use foretide_federate::{Node, Quota};

use super::{changes::Changes, nodes::free_capacity::FreeCapacity, store::Store, watch::Watched};
use crate::api_server::Resource;

/// A role of a cluster, implemented by [`Hub`] and [`MemberStores`] only.
pub trait Role: Send + Sync + 'static {
    /// The stores of this role.
    fn watched(&self) -> Vec<Arc<dyn Watched>>;
    /// True if the stores that a sync needs have a complete first list.
    fn is_synced(&self) -> bool;
}

/// The cluster of our own objects.
#[derive(Debug)]
pub struct Hub {
    pub(crate) changes: Arc<Changes>,
    pub(crate) federated_changes: Arc<Changes>,
    pub(crate) autoscalers: Arc<Store<EffectiveHorizontalPodAutoscaler>>,
    pub(crate) federated: Arc<Store<FederatedHPA>>,
    pub(crate) predictions: Arc<Store<TimeSeriesPrediction>>,
}

/// A member cluster of a fleet.
#[derive(Debug)]
pub struct MemberStores {
    pub(crate) nodes: Arc<Store<Node>>,
    pub(crate) quotas: Arc<Store<Quota>>,
    pub(crate) free_capacity: FreeCapacity,
}

/// The scopes of a store of these namespaces; no namespaces means all.
pub fn scopes(namespaces: &[String]) -> Vec<Option<String>> {
    match namespaces {
        [] => vec![None],
        some => some.iter().cloned().map(Some).collect(),
    }
}

// === impl Hub ===

impl Hub {
    pub(crate) fn new(namespaces: &[String]) -> Self {
        let scopes = scopes(namespaces);
        let (changes, federated_changes) = (Arc::<Changes>::default(), Arc::<Changes>::default());
        let autoscalers = Store::new(Resource::EHPA, &scopes).of_managed();
        let federated = Store::new(Resource::FEDERATED_HPA, &scopes).of_managed();
        Self {
            autoscalers: Arc::new(autoscalers.with_changes(changes.clone())),
            federated: Arc::new(federated.with_changes(federated_changes.clone())),
            predictions: Arc::new(Store::new(Resource::PREDICTION, &scopes)),
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
        // A cluster without the CRD of fleets runs without fleets.
        self.autoscalers.is_synced() && self.predictions.is_synced()
    }
}

// === impl MemberStores ===

impl MemberStores {
    pub(crate) fn new(namespaces: &[String]) -> Self {
        Self {
            nodes: Arc::new(Store::new(Resource::NODE, &[None])),
            quotas: Arc::new(Store::new(Resource::QUOTA, &scopes(namespaces))),
            free_capacity: FreeCapacity::default(),
        }
    }
}

impl Role for MemberStores {
    fn watched(&self) -> Vec<Arc<dyn Watched>> {
        vec![self.nodes.clone(), self.quotas.clone()]
    }

    fn is_synced(&self) -> bool {
        // Without permission to read nodes and quotas, the capacity is unknown, and everything else works.
        true
    }
}
