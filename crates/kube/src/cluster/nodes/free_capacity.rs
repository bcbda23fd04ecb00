//! The free capacity of a member cluster: what the pods on each node leave, and which pods wait for a node.
//!
//! It depends on every pod of the cluster, so a [`Snapshot`] is computed once for all workloads of a sync. A workload's
//! own pods are taken from the same snapshot: if they were read later, a pod that was just created or ended would be
//! counted twice or not at all. The estimate itself is left to [`Supply::capacity`].

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use foretide_domain::{Replicas, Selector, observation::Requests};
use foretide_federate::{BoundPod, Node, OwnPods, PodShape, Quota, Supply};
use parking_lot::Mutex;

use crate::cluster::{
    labels::LabelIndex,
    pods::{Placement, StoredPod},
    store::Store,
};
use foretide_base::clock::Monotonic;

/// Age up to which a snapshot is used: for the targets of one sync.
const MAX_AGE: Duration = Duration::from_millis(250);
/// Maximum number of other workloads' pending pods that are placed before the workload's own: placing more costs more
/// time than it makes the estimate better.
const PENDING_MAX: usize = 200;

/// The last snapshot of a cluster.
#[derive(Debug, Default)]
pub struct FreeCapacity(Mutex<Option<Arc<Snapshot>>>);

/// The nodes and pods of a cluster at one time.
#[derive(Debug)]
pub struct Snapshot {
    taken: Monotonic,
    /// The nodes; `allocatable` is what their pods leave of it.
    nodes: Arc<[Node]>,
    /// The pods that have not ended, by namespace.
    pods: BTreeMap<Arc<str>, NamespacePods>,
    /// The pods that wait for a node.
    pending: Vec<Arc<StoredPod>>,
}

/// The pods of a namespace.
#[derive(Debug)]
struct NamespacePods {
    all: Vec<Arc<StoredPod>>,
    /// The pods by their labels, built when a workload of the namespace asks for its own.
    index: OnceLock<LabelIndex<StoredPod>>,
}

// === impl FreeCapacity ===

impl FreeCapacity {
    /// The snapshot of these stores, at most [`MAX_AGE`] old `now`.
    pub fn snapshot(
        &self,
        now: Monotonic,
        nodes: &Store<Node>,
        pods: &Store<StoredPod>,
    ) -> Arc<Snapshot> {
        // Locked while the snapshot is computed, so that syncs at the same time compute one.
        let last = &mut *self.0.lock();
        if let Some(snapshot) = last
            && now.since(snapshot.taken) < MAX_AGE
        {
            return Arc::clone(snapshot);
        }
        let snapshot = Snapshot::new(now, &nodes.all(), pods.by_namespace());
        Arc::clone(last.insert(Arc::new(snapshot)))
    }
}

// === impl Snapshot ===

impl Snapshot {
    fn new(
        taken: Monotonic,
        nodes: &[Arc<Node>],
        mut pods: BTreeMap<Arc<str>, Vec<Arc<StoredPod>>>,
    ) -> Self {
        let mut used: BTreeMap<&str, BTreeMap<String, i64>> = BTreeMap::new();
        let mut pending = Vec::new();
        for pods in pods.values_mut() {
            pods.retain(|pod| !pod.pod.has_ended());
        }
        for pod in pods.values().flatten() {
            match &pod.placement {
                Placement::Bound(node) => add_requests(used.entry(node).or_default(), pod),
                Placement::Pending(_) | Placement::Unschedulable(..) if !pod.pod.deleting => {
                    pending.push(Arc::clone(pod));
                }
                // It is deleted, so it will get no node. One that has a node keeps its share until it is gone.
                Placement::Pending(_) | Placement::Unschedulable(..) => {}
            }
        }
        Self {
            taken,
            nodes: nodes.iter().map(|node| unused(node, &used)).collect(),
            pending,
            pods: pods.into_iter().map(NamespacePods::of).collect(),
        }
    }

    /// The supply for further pods of this shape of the workload that has the pods `own`.
    pub fn supply(&self, shape: &PodShape, own: &[Arc<StoredPod>], quotas: Vec<Quota>) -> Supply {
        Supply {
            nodes: Arc::clone(&self.nodes),
            bound: if shape.one_per_node {
                nodes_to_avoid(own)
            } else {
                Vec::new()
            },
            own: OwnPods {
                bound: count(own.iter().filter(|pod| is_bound(pod))),
                counted: count(own.iter()),
            },
            pending: self.pending_of_others(own),
            quotas,
        }
    }

    /// The pods that a selector selects; none for an empty or invalid selector.
    pub fn own(&self, namespace: &str, selector: &str) -> Vec<Arc<StoredPod>> {
        match selector.parse::<Selector>() {
            // An empty one would select every pod of the namespace.
            Ok(selector) if !selector.requirements().is_empty() => {
                let pods = self.pods.get(namespace);
                pods.map_or_else(Vec::new, |pods| pods.index().select(&selector))
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    fn pending_of_others(&self, own: &[Arc<StoredPod>]) -> Vec<PodShape> {
        let own: HashSet<_> = own.iter().map(Arc::as_ptr).collect();
        let all = self.pending.iter();
        let others = all.filter(|pod| !own.contains(&Arc::as_ptr(pod)));
        let mut shapes = Vec::new();
        for pod in others.take(PENDING_MAX) {
            if let Placement::Pending(shape) | Placement::Unschedulable(_, shape) = &pod.placement {
                shapes.push((**shape).clone());
            }
        }
        shapes
    }
}

// === impl NamespacePods ===

impl NamespacePods {
    fn of((namespace, all): (Arc<str>, Vec<Arc<StoredPod>>)) -> (Arc<str>, Self) {
        let index = OnceLock::new();
        (namespace, Self { all, index })
    }

    fn index(&self) -> &LabelIndex<StoredPod> {
        self.index.get_or_init(|| {
            let mut index = LabelIndex::default();
            for pod in &self.all {
                let name = pod.pod.name.clone();
                index.insert(pod.labels.clone(), name, Arc::clone(pod));
            }
            index
        })
    }
}

/// The nodes of these pods, on which no further pod may run. Their requests are already subtracted from the nodes.
/// Other pods that the workload is separated from are not read; that they prevent a pod is seen when it is
/// unschedulable.
fn nodes_to_avoid(own: &[Arc<StoredPod>]) -> Vec<BoundPod> {
    let mut nodes = Vec::new();
    for pod in own {
        if let Placement::Bound(node) = &pod.placement {
            nodes.push(BoundPod {
                node: node.to_string(),
                requests: Requests::default(),
                is_avoided: true,
            });
        }
    }
    nodes
}

fn count(pods: impl Iterator) -> Replicas {
    Replicas::new(u32::try_from(pods.count()).unwrap_or(u32::MAX))
}

fn is_bound(pod: &StoredPod) -> bool {
    matches!(pod.placement, Placement::Bound(_))
}

fn add_requests(used: &mut BTreeMap<String, i64>, pod: &StoredPod) {
    // Nodes limit the number of pods as well; all amounts are in thousandths.
    for (resource, milli) in pod.reserved().chain([("pods", 1000)]) {
        match used.get_mut(resource) {
            Some(sum) => *sum = sum.saturating_add(milli),
            None => drop(used.insert(resource.to_owned(), milli)),
        }
    }
}

/// The node with what is left of it, where the pods of each node use these amounts.
fn unused(node: &Node, used: &BTreeMap<&str, BTreeMap<String, i64>>) -> Node {
    let Some(used) = used.get(node.name.as_str()) else {
        return node.clone();
    };
    let free = node.allocatable.iter().map(|(resource, milli)| {
        let used = used.get(resource).copied().unwrap_or_default();
        (resource.to_owned(), milli.saturating_sub(used))
    });
    Node {
        allocatable: free.collect(),
        ..node.clone()
    }
}
