//! How many replicas of a workload a member holds, gathered from its stores.
//!
//! What is free on each node depends on every pod of the cluster, so it is summed up once for all workloads of a sync.
//! The workload's own pods are counted as of the same moment: read one after the other, a pod that is just created or
//! ends would be counted twice or not at all. It refuses to estimate: [`Supply::capacity`] does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::{SignedDuration, Timestamp};

use crate::{
    adapters::kube::{
        KubeMember,
        objects::StoredWorkload,
        pods::{Place, StoredPod},
        selector,
        store::Stored as _,
        watch::Watched,
    },
    clock::Clock,
    domain::{
        Replicas, ScaleTarget,
        federate::{BoundPod, Estimate, Node, OwnPods, PodShape, Supply},
        observation::{Phase, Requests},
    },
};

/// For how long a sum over all pods is used: for the targets of one sync.
const KEPT: SignedDuration = SignedDuration::from_millis(250);
/// So many waiting pods of others are put on nodes before ours; more would cost more than they tell.
const WAITING_MAX: usize = 200;

/// What is free on the nodes, and who waits for it.
#[derive(Debug, Default)]
pub(in crate::adapters::kube) struct FreeCapacity(Mutex<Option<Arc<Summed>>>);

/// A cluster at one moment.
#[derive(Debug)]
struct Summed {
    at: Timestamp,
    /// The nodes, with what their pods leave as allocatable.
    nodes: Vec<Node>,
    /// The pods, by namespace; none that is over.
    pods: BTreeMap<Arc<str>, Vec<Arc<StoredPod>>>,
    /// Those of them that have no node and are to get one.
    waiting: Vec<Arc<StoredPod>>,
}

impl KubeMember {
    /// How many replicas of a target there is room for in all, `like` being what one needs if its template does not say;
    /// unknown where it could only be overestimated.
    pub(in crate::adapters::kube) fn capacity_for(
        &self,
        target: &ScaleTarget,
        selector: &str,
        like: &PodShape,
    ) -> Option<Estimate> {
        if !self.sees_capacity() {
            return None;
        }
        let workload = self.workload(target);
        let shape = workload.as_ref().and_then(|w| w.shape.as_deref());
        let shape = shape.unwrap_or(like);
        let summed = self.summed();
        let own = summed.own(&target.namespace, selector);
        let quotas = self.role.quotas.in_namespace(&target.namespace);
        let supply = Supply {
            nodes: summed.nodes.clone(),
            bound: if shape.one_per_node {
                held(&own)
            } else {
                Vec::new()
            },
            own: OwnPods {
                bound: count(own.iter().filter(|pod| is_bound(pod))),
                counted: count(own.iter()),
            },
            pending: summed.others(&own),
            quotas: quotas.iter().map(|quota| (**quota).clone()).collect(),
        };
        Some(supply.capacity(shape))
    }

    /// Whether nodes, pods and quotas are known whole and as they are now. The pods of namespaces that are not watched
    /// stand on the same nodes.
    fn sees_capacity(&self) -> bool {
        let needed: [&dyn Watched; 3] = [&*self.role.nodes, &*self.stores.pods, &*self.role.quotas];
        let is_fresh = |at: Timestamp| self.clock.wall_age(at) <= self.pace.believed;
        let is_known = |store: &dyn Watched| {
            let report = store.report();
            report.synced && report.heard.is_some_and(is_fresh)
        };
        self.stores.pods.scopes().contains(&None) && needed.into_iter().all(is_known)
    }

    /// A target as it is stored, if its kind is watched.
    pub(in crate::adapters::kube) fn workload(
        &self,
        target: &ScaleTarget,
    ) -> Option<Arc<StoredWorkload>> {
        let store = self.workloads(target)?;
        store.get(&target.namespace, &target.name)
    }

    fn summed(&self) -> Arc<Summed> {
        let now = Clock::system().now();
        let spare = &self.role.spare.0;
        let kept = &mut *spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |s: &&Arc<Summed>| now.duration_since(s.at) < KEPT;
        if let Some(summed) = kept.as_ref().filter(fresh) {
            return Arc::clone(summed);
        }
        let (nodes, pods) = (self.role.nodes.all(), self.stores.pods.by_namespace());
        Arc::clone(kept.insert(Arc::new(Summed::of(now, &nodes, pods))))
    }
}

/// The nodes of these pods, to be avoided; slots and requests are summed already.
fn held(own: &[&Arc<StoredPod>]) -> Vec<BoundPod> {
    let on_node = |pod: &&Arc<StoredPod>| match &pod.place {
        Place::Node(node) => Some(BoundPod {
            node: node.to_string(),
            requests: Requests::default(),
            is_avoided: true,
        }),
        Place::Waiting(_) | Place::Unschedulable(..) => None,
    };
    own.iter().filter_map(on_node).collect()
}

fn count(pods: impl Iterator) -> Replicas {
    Replicas::new(u32::try_from(pods.count()).unwrap_or(u32::MAX))
}

fn is_bound(pod: &StoredPod) -> bool {
    matches!(pod.place, Place::Node(_))
}

fn is_over(pod: &StoredPod) -> bool {
    matches!(pod.pod.phase, Phase::Succeeded | Phase::Failed)
}

// === impl Summed ===

impl Summed {
    fn of(
        at: Timestamp,
        nodes: &[Arc<Node>],
        mut pods: BTreeMap<Arc<str>, Vec<Arc<StoredPod>>>,
    ) -> Self {
        let mut taken: BTreeMap<&str, BTreeMap<String, i64>> = BTreeMap::new();
        let mut waiting = Vec::new();
        for pods in pods.values_mut() {
            pods.retain(|pod| !is_over(pod));
        }
        for pod in pods.values().flatten() {
            match &pod.place {
                Place::Node(node) => take(taken.entry(node).or_default(), pod),
                Place::Waiting(_) | Place::Unschedulable(..) if !pod.pod.deleting => {
                    waiting.push(Arc::clone(pod));
                }
                Place::Waiting(_) | Place::Unschedulable(..) => {}
            }
        }
        let left = |node: &Arc<Node>| match taken.get(node.name.as_str()) {
            None => (**node).clone(),
            Some(taken) => left(node, taken),
        };
        Self {
            at,
            nodes: nodes.iter().map(left).collect(),
            waiting,
            pods,
        }
    }

    /// The pods that a selector selects; none without one.
    fn own(&self, namespace: &str, selector: &str) -> Vec<&Arc<StoredPod>> {
        match selector::parse(selector) {
            Ok(requirements) if !requirements.is_empty() => {
                let inside = self.pods.get(namespace).into_iter().flatten();
                inside.filter(|pod| pod.satisfies(&requirements)).collect()
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    /// What the waiting pods of others need.
    fn others(&self, own: &[&Arc<StoredPod>]) -> Vec<PodShape> {
        let is_own = |pod: &&Arc<StoredPod>| own.iter().any(|own| Arc::ptr_eq(own, pod));
        let others = self.waiting.iter().filter(|pod| !is_own(pod));
        let shape = |pod: &Arc<StoredPod>| match &pod.place {
            Place::Waiting(shape) | Place::Unschedulable(_, shape) => Some((**shape).clone()),
            Place::Node(_) => None,
        };
        others.take(WAITING_MAX).filter_map(shape).collect()
    }
}

fn take(from: &mut BTreeMap<String, i64>, pod: &StoredPod) {
    let mut add = |resource: &str, milli: i64| match from.get_mut(resource) {
        Some(sum) => *sum = sum.saturating_add(milli),
        None => drop(from.insert(resource.to_owned(), milli)),
    };
    add("pods", 1000);
    pod.reserve(&mut add);
}

fn left(node: &Node, taken: &BTreeMap<String, i64>) -> Node {
    let left = |(resource, milli): (&str, i64)| {
        let taken = taken.get(resource).copied().unwrap_or_default();
        (resource.to_owned(), milli.saturating_sub(taken))
    };
    Node {
        allocatable: node.allocatable.iter().map(left).collect(),
        ..node.clone()
    }
}
