//! How many replicas a cluster holds, from its nodes, pods and quotas.
//!
//! This is an estimate: it applies the scheduler's filters for resources, taints, node affinity and anti-affinity to
//! its own kind, and ignores volumes, affinities to other pods, and limits in quotas. Rule R5 corrects it where pods
//! stay unschedulable. All amounts are in milli-units, `pods` included.
//!
//! Sources: Kubernetes, "Resource sharing within containers" (effective requests), "Taints and tolerations",
//! "Resource quotas"; the requests of Karmada's scheduler estimator.

use std::{collections::BTreeMap, sync::Arc};

use super::{Taint, TaintEffect, Toleration};
use foretide_domain::{Labels, Replicas, Requirement, Selector, observation::Requests};

/// The properties of a node that capacity depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The name.
    pub name: String,
    /// True if pods can be bound to it at all: it is ready and not being deleted.
    pub usable: bool,
    /// The labels.
    pub labels: Labels,
    /// The taints; a cordoned node has `node.kubernetes.io/unschedulable`.
    pub taints: Vec<Taint>,
    /// `status.allocatable`; the resource `pods` is the number of pods.
    pub allocatable: Requests,
}

/// The needs of one replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodShape {
    /// Effective requests: see [`effective_requests`].
    pub requests: Requests,
    /// Labels that a node must have.
    pub node_selector: Labels,
    /// Required node affinity: one of these terms must match; absent when there is none.
    pub node_affinity: Option<Vec<NodeTerm>>,
    /// The tolerations.
    pub tolerations: Vec<Toleration>,
    /// The priority class; empty for none.
    pub priority_class: String,
    /// True if a required anti-affinity lets at most one replica run on a node.
    pub one_per_node: bool,
    /// True if a spread constraint may exclude nodes that have room.
    pub must_spread: bool,
}

/// One term of a required node affinity: all of it must match, and an empty one matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTerm {
    /// By label.
    pub labels: Selector,
    /// By the field `metadata.name`.
    pub fields: Selector,
}

/// A pod that is bound to a node and has not finished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundPod {
    /// The node's name.
    pub node: String,
    /// Effective requests.
    pub requests: Requests,
    /// True if the replica's anti-affinity keeps it off this pod's node.
    pub is_avoided: bool,
}

/// A resource quota of the workload's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The amounts that may be used, by the quota's own names (`cpu`, `requests.memory`, `count/pods`, ...).
    pub hard: Requests,
    /// The amounts in use, by the same names.
    pub used: Requests,
    /// The pods that it counts: scope selectors whose key is the scope's name. All must match; none means every pod.
    pub scopes: Vec<Requirement>,
}

/// The resources of a cluster, and what uses them.
///
/// All of it should be from one moment: see [`Supply::capacity`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supply {
    /// The nodes, which estimates of other workloads share.
    pub nodes: Arc<[Node]>,
    /// The pods on them, the workload's included.
    pub bound: Vec<BoundPod>,
    /// The workload's own pods.
    pub own: OwnPods,
    /// Pending pods of other workloads, which are placed first.
    pub pending: Vec<PodShape>,
    /// The quotas of the namespace.
    pub quotas: Vec<Quota>,
}

/// The pods of the workload that have not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnPods {
    /// The pods on a node, terminating ones included: their room stays the workload's.
    pub bound: Replicas,
    /// All of them, as quotas count them.
    pub counted: Replicas,
}

/// An estimate of how many replicas a cluster holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The number of replicas, running ones included.
    pub replicas: Replicas,
    /// True if it is only an upper bound, because spread constraints were not evaluated.
    pub is_soft: bool,
}

/// The kind of a container, which decides how its requests count for the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerRole {
    /// A container that runs next to the others.
    App,
    /// A container that runs before the others and ends.
    Init,
    /// An init container with `restartPolicy: Always`: it keeps running once started.
    Sidecar,
}

/// The rest of a node.
struct FreeNode<'a> {
    node: &'a Node,
    amounts: BTreeMap<&'a str, i64>,
    pods: i64,
    is_avoided: bool,
}

const PODS: &str = "pods";
const PRIORITY_CLASS: &str = "PriorityClass";

/// The requests that the scheduler reserves for a pod, per resource: the pod's own request where it names one, else the
/// larger of what runs together (apps and sidecars) and each init container with the sidecars started before it; plus
/// the overhead. Init containers and sidecars are in the order of the spec; the position of apps does not matter.
///
/// ```
/// use foretide_federate::{ContainerRole, effective_requests};
/// use foretide_domain::observation::Requests;
///
/// let cpu = |milli| Requests::from_iter([("cpu", milli)]);
/// let containers = [(ContainerRole::Init, cpu(500)), (ContainerRole::App, cpu(200))];
/// let requests = effective_requests(&containers, &Requests::default(), &cpu(10));
/// assert_eq!(requests.get("cpu"), Some(510));
/// ```
pub fn effective_requests(
    containers: &[(ContainerRole, Requests)],
    of_pod: &Requests,
    overhead: &Requests,
) -> Requests {
    let mut running: BTreeMap<&str, i64> = BTreeMap::new();
    let mut peak: BTreeMap<&str, i64> = BTreeMap::new();
    let (apps, started): (Vec<_>, Vec<_>) =
        containers.iter().partition(|c| c.0 == ContainerRole::App);
    for (role, requests) in started {
        for (resource, milli) in requests.iter() {
            let together = running.entry(resource).or_default();
            let now = together.saturating_add(milli);
            let peak = peak.entry(resource).or_default();
            *peak = now.max(*peak);
            // A sidecar runs on beside what is started later; an init container ends before that.
            if *role == ContainerRole::Sidecar {
                *together = now;
            }
        }
    }
    for (resource, milli) in apps.iter().flat_map(|(_, requests)| requests.iter()) {
        let together = running.entry(resource).or_default();
        *together = together.saturating_add(milli);
    }
    for (resource, milli) in peak {
        let together = running.entry(resource).or_default();
        *together = milli.max(*together);
    }
    // What a pod requests at its own level replaces the sum over its containers.
    running.extend(of_pod.iter());
    for (resource, milli) in overhead.iter() {
        let all = running.entry(resource).or_default();
        *all = all.saturating_add(milli);
    }
    running.into_iter().collect()
}

impl Supply {
    /// Estimates how many replicas of this shape the cluster holds: those with a node, and those that would get one
    /// within the quotas.
    ///
    /// `own on nodes + sum over matching nodes of min(free pods, min over requests of floor(free / request))`, after
    /// the pending pods of others were put where they fit, in order; at most `own + what is left` of each quota. If all
    /// inputs are from one moment, creating, binding, ending or moving one of the workload's pods does not change it.
    ///
    /// ```
    /// use foretide_federate::{Node, PodShape, Supply};
    /// use foretide_domain::observation::Requests;
    ///
    /// let requests = |cpu, pods: i64| Requests::from_iter([("cpu", cpu), ("pods", 1000 * pods)]);
    /// let supply = Supply {
    ///     nodes: [Node {
    ///         usable: true,
    ///         allocatable: requests(4000, 110),
    ///         ..Node::default()
    ///     }]
    ///     .into(),
    ///     ..Supply::default()
    /// };
    /// let shape = PodShape { requests: Requests::from_iter([("cpu", 1500)]), ..PodShape::default() };
    /// assert_eq!(supply.capacity(&shape).replicas.get(), 2);
    /// ```
    pub fn capacity(&self, shape: &PodShape) -> Estimate {
        let mut free = self.free();
        // Pending pods of other workloads get a node first.
        for other in &self.pending {
            if let Some(node) = free.iter_mut().find(|node| node.fits(other) > 0) {
                node.reserve(&other.requests);
            }
        }
        let fit = free
            .iter()
            .map(|node| node.fits(shape))
            .fold(0, i64::saturating_add);
        let left = self
            .quotas
            .iter()
            .filter_map(|quota| quota.room(shape))
            .min();
        let nodes = replicas_of(fit).saturating_add(self.own.bound);
        let quota = left.map(|left| left.saturating_add(self.own.counted));
        Estimate {
            replicas: quota.map_or(nodes, |quota| nodes.min(quota)),
            is_soft: shape.must_spread,
        }
    }

    fn free(&self) -> Vec<FreeNode<'_>> {
        let mut free = Vec::with_capacity(self.nodes.len());
        // By name: a cluster may have thousands of nodes, and many more pods.
        let mut places = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            places.insert(node.name.as_str(), at);
            free.push(FreeNode {
                node,
                amounts: node.allocatable.iter().collect(),
                // Stored in thousandths, like every amount.
                pods: node.allocatable.get(PODS).unwrap_or_default() / 1000,
                is_avoided: false,
            });
        }
        for pod in &self.bound {
            let place = places.get(pod.node.as_str());
            if let Some(node) = place.and_then(|at| free.get_mut(*at)) {
                node.reserve(&pod.requests);
                node.is_avoided |= pod.is_avoided;
            }
        }
        free
    }
}

impl FreeNode<'_> {
    fn reserve(&mut self, requests: &Requests) {
        self.pods -= 1;
        for (resource, milli) in requests.iter() {
            if let Some(left) = self.amounts.get_mut(resource) {
                *left = left.saturating_sub(milli);
            }
        }
    }

    /// The number of pods of this shape that the node takes.
    fn fits(&self, shape: &PodShape) -> i64 {
        if !self.node.takes(shape) || (shape.one_per_node && self.is_avoided) {
            return 0;
        }
        let mut fit = self.pods;
        for (resource, milli) in shape.requested() {
            // A resource that the node does not list, such as a GPU, is one that it does not have.
            let left = self.amounts.get(resource).copied().unwrap_or_default();
            fit = fit.min(left / milli);
        }
        let most = if shape.one_per_node { 1 } else { i64::MAX };
        fit.clamp(0, most)
    }
}

impl PodShape {
    /// The resources of which it requests any, in thousandths.
    fn requested(&self) -> impl Iterator<Item = (&str, i64)> {
        self.requests.iter().filter(|(_, milli)| *milli > 0)
    }

    /// True if a taint keeps no such pod from a node.
    fn tolerates(&self, taint: &Taint) -> bool {
        taint.effect == TaintEffect::PreferNoSchedule
            || self.tolerations.iter().any(|t| t.tolerates(taint))
    }
}

impl Node {
    /// True if a pod of this shape may be bound to it, if it has room.
    ///
    /// ```
    /// use foretide_federate::{Node, PodShape, Taint, TaintEffect, Toleration};
    ///
    /// let taint = Taint {
    ///     key: "gpu".into(),
    ///     value: String::new(),
    ///     effect: TaintEffect::NoSchedule,
    ///     since: None,
    /// };
    /// let node = Node { usable: true, taints: vec![taint], ..Node::default() };
    /// assert!(!node.takes(&PodShape::default()));
    /// let tolerations = vec![Toleration { key: Some("gpu".into()), ..Toleration::default() }];
    /// assert!(node.takes(&PodShape { tolerations, ..PodShape::default() }));
    /// ```
    pub fn takes(&self, shape: &PodShape) -> bool {
        let selector = &shape.node_selector;
        let terms = shape.node_affinity.as_ref();
        self.usable
            && self.taints.iter().all(|taint| shape.tolerates(taint))
            && selector
                .iter()
                .all(|(key, value)| self.labels.get(key) == Some(value))
            && terms.is_none_or(|terms| terms.iter().any(|term| term.matches(self)))
    }
}

impl NodeTerm {
    fn matches(&self, node: &Node) -> bool {
        let fields = Labels::from([("metadata.name".to_owned(), node.name.clone())]);
        let is_empty = *self == Self::default();
        !is_empty && self.labels.matches(&node.labels) && self.fields.matches(&fields)
    }
}

impl Quota {
    /// True if pods of a priority class (empty for none) count. Other scopes than `PriorityClass` are not evaluated:
    /// a quota that has one counts nothing here.
    pub fn counts(&self, priority_class: &str) -> bool {
        let mut pod = Labels::new();
        if !priority_class.is_empty() {
            pod.insert(PRIORITY_CLASS.to_owned(), priority_class.to_owned());
        }
        let scopes: Selector = self.scopes.iter().cloned().collect();
        self.scopes
            .iter()
            .all(|scope| scope.key() == PRIORITY_CLASS)
            && scopes.matches(&pod)
    }

    /// The number of further pods of this shape that it admits: the least, over the resources that it and the shape name, of
    /// `floor((hard - used) / request)`. Absent when it limits none of them.
    ///
    /// ```
    /// use foretide_domain::Replicas;
    /// use foretide_federate::{PodShape, Quota};
    /// use foretide_domain::observation::Requests;
    ///
    /// let quota = Quota {
    ///     hard: Requests::from_iter([("requests.cpu", 4000), ("pods", 10_000)]),
    ///     used: Requests::from_iter([("requests.cpu", 1000), ("pods", 1000)]),
    ///     ..Quota::default()
    /// };
    /// let shape = PodShape { requests: Requests::from_iter([("cpu", 1000)]), ..PodShape::default() };
    /// // Three more by cpu, nine more by the number of pods.
    /// assert_eq!(quota.room(&shape), Some(Replicas::new(3)));
    /// ```
    pub fn room(&self, shape: &PodShape) -> Option<Replicas> {
        if !self.counts(&shape.priority_class) {
            return None;
        }
        let mut rooms = Vec::new();
        for (resource, milli) in shape.requested() {
            // A quota may name a resource in either form.
            for name in [resource, &format!("requests.{resource}")] {
                rooms.extend(self.left(name).map(|left| left / milli));
            }
        }
        for name in [PODS, "count/pods"] {
            rooms.extend(self.left(name).map(|left| left / 1000));
        }
        rooms.into_iter().min().map(replicas_of)
    }

    /// The unused amount of a resource, in thousandths; none if the quota does not limit it.
    fn left(&self, name: &str) -> Option<i64> {
        let hard = self.hard.get(name)?;
        let used = self.used.get(name).unwrap_or_default();
        Some(hard.saturating_sub(used).max(0))
    }
}

/// A count as replicas; a negative one is zero.
fn replicas_of(n: i64) -> Replicas {
    Replicas::new(u32::try_from(n.max(0)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: i64, pods: i64) -> Requests {
        [("cpu", cpu), ("pods", pods * 1000)].into_iter().collect()
    }

    fn cpu(milli: i64) -> Requests {
        [("cpu", milli)].into_iter().collect()
    }

    fn node(name: &str, allocatable: Requests) -> Node {
        Node {
            name: name.to_owned(),
            usable: true,
            labels: Labels::from([("disk".to_owned(), name.to_owned())]),
            allocatable,
            ..Node::default()
        }
    }

    fn requesting(milli: i64) -> PodShape {
        PodShape {
            requests: cpu(milli),
            ..PodShape::default()
        }
    }

    fn on(node: &str, milli: i64) -> BoundPod {
        BoundPod {
            node: node.to_owned(),
            requests: cpu(milli),
            is_avoided: false,
        }
    }

    /// Two nodes of four cores and ten pods, one of them half full.
    fn supply() -> Supply {
        Supply {
            nodes: [node("a", amounts(4000, 10)), node("b", amounts(4000, 10))].into(),
            bound: vec![on("a", 2000), on("gone", 9000)],
            ..Supply::default()
        }
    }

    fn capacity(supply: &Supply, shape: &PodShape) -> u32 {
        supply.capacity(shape).replicas.get()
    }

    #[test]
    fn effective_requests_are_those_that_the_scheduler_reserves() {
        use ContainerRole::{App, Init, Sidecar};
        let requested = |rows: &[(ContainerRole, i64)], of_pod: &Requests, overhead: &Requests| {
            let containers: Vec<_> = rows
                .iter()
                .map(|(role, milli)| (*role, cpu(*milli)))
                .collect();
            effective_requests(&containers, of_pod, overhead)
        };
        let none = Requests::default();
        for (what, rows, want) in [
            ("apps add up", &[(App, 100), (App, 50)][..], 150),
            ("a large init", &[(Init, 500), (Init, 400), (App, 100)], 500),
            ("sidecars run on", &[(Sidecar, 50), (App, 100)], 150),
            // An init runs with the sidecars before it, and without those after it.
            ("before", &[(Sidecar, 50), (Init, 200), (App, 100)], 250),
            ("after", &[(Init, 200), (Sidecar, 50), (App, 100)], 200),
            ("apps may stand first", &[(App, 100), (Init, 120)], 120),
        ] {
            assert_eq!(requested(rows, &none, &none), cpu(want), "{what}");
        }
        let app = [(App, 100)];
        assert_eq!(requested(&app, &cpu(300), &none), cpu(300), "the pod's own");
        assert_eq!(
            requested(&app, &none, &cpu(20)),
            cpu(120),
            "overhead on top"
        );
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn capacity_is_what_matching_nodes_have_left() {
        let one = || requesting(1000);
        let tainted = |effect| Taint {
            key: "gpu".to_owned(),
            value: String::new(),
            effect,
            since: None,
        };
        let term = |key: &str, value: &str| NodeTerm {
            labels: Selector::from_iter([Requirement::In(key.to_owned(), vec![value.to_owned()])]),
            ..NodeTerm::default()
        };
        let named = NodeTerm {
            fields: Selector::from_iter([Requirement::In(
                "metadata.name".to_owned(),
                vec!["b".to_owned()],
            )]),
            ..NodeTerm::default()
        };
        let selects = PodShape {
            node_selector: Labels::from([("disk".to_owned(), "a".to_owned())]),
            ..requesting(1000)
        };
        let affine = |terms| PodShape {
            node_affinity: Some(terms),
            ..requesting(1000)
        };
        let tolerant = PodShape {
            tolerations: vec![Toleration::default()],
            ..requesting(1000)
        };
        let with = |change: &dyn Fn(&mut Node)| {
            let mut supply = supply();
            change(&mut Arc::make_mut(&mut supply.nodes)[0]);
            supply
        };
        let hard = with(&|node| node.taints = vec![tainted(TaintEffect::NoSchedule)]);
        let soft = with(&|node| node.taints = vec![tainted(TaintEffect::PreferNoSchedule)]);
        let unusable = with(&|node| node.usable = false);
        let overfull = with(&|node| node.allocatable = amounts(1000, 10));
        let of_gpu = PodShape {
            requests: [("gpu", 1000)].into_iter().collect(),
            ..PodShape::default()
        };
        let either = vec![term("disk", "a"), term("disk", "x")];
        for (name, supply, shape, want) in [
            ("what is left", supply(), one(), 6),
            ("rounded down on each node", supply(), requesting(1500), 3),
            ("as many pods as nodes take", supply(), requesting(1), 19),
            ("without requests", supply(), PodShape::default(), 19),
            ("a resource that no node has", supply(), of_gpu, 0),
            ("an unusable node", unusable, one(), 4),
            ("an overfull node", overfull, one(), 4),
            ("a hard taint", hard.clone(), one(), 4),
            ("a tolerated one", hard, tolerant, 6),
            ("a soft one", soft, one(), 6),
            ("a node selector", supply(), selects, 2),
            ("one of two terms", supply(), affine(either), 2),
            ("a term by name", supply(), affine(vec![named]), 4),
            ("an empty term", supply(), affine(vec![<_>::default()]), 0),
            ("no terms at all", supply(), affine(Vec::new()), 0),
        ] {
            assert_eq!(capacity(&supply, &shape), want, "{name}");
        }
    }

    #[test]
    fn pending_pods_of_other_workloads_are_placed_first() {
        let large = requesting(3000);
        let never = requesting(64_000);
        let elsewhere = PodShape {
            node_selector: Labels::from([("disk".to_owned(), "x".to_owned())]),
            ..requesting(1000)
        };
        let supply = Supply {
            pending: vec![large, never, elsewhere],
            ..supply()
        };
        assert_eq!(capacity(&supply, &requesting(1000)), 3);
    }

    #[test]
    fn one_per_node_counts_nodes_and_spreading_makes_the_estimate_soft() {
        let shape = PodShape {
            one_per_node: true,
            must_spread: true,
            ..requesting(1000)
        };
        let mut supply = supply();
        let expected = Estimate {
            replicas: Replicas::new(2),
            is_soft: true,
        };
        assert_eq!(supply.capacity(&shape), expected);
        supply.bound.push(BoundPod {
            is_avoided: true,
            ..on("b", 100)
        });
        assert_eq!(capacity(&supply, &shape), 1);
    }
}
