//! The nodes on which a pod may run: node selector, affinity, tolerations and topology spread constraints of its spec.
//!
//! An operator or effect that is unknown here makes the capacity estimate less exact; it does not make the object
//! undecodable. Matching is left to `foretide-federate`.

use std::collections::BTreeMap;

use foretide_domain::{Labels, Requirement, Selector, observation::Requests};
use foretide_federate::{NodeTerm, PodShape, Toleration};
use k8s_openapi::api::core::v1;
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::decode::selector_text;

/// The label with the name of a node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The fields of a pod's spec that limit its nodes.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingConstraints {
    node_selector: Option<BTreeMap<String, String>>,
    affinity: Option<v1::Affinity>,
    tolerations: Option<Vec<v1::Toleration>>,
    priority_class_name: Option<String>,
    topology_spread_constraints: Option<Vec<v1::TopologySpreadConstraint>>,
}

// === impl SchedulingConstraints ===

impl SchedulingConstraints {
    /// The constraints of a pod's spec; none if they cannot be decoded.
    pub fn of(spec: Option<&Value>) -> Self {
        spec.and_then(|spec| Self::deserialize(spec).ok())
            .unwrap_or_default()
    }

    /// Requirements on a node of a pod with these requests and labels.
    pub fn shape(&self, requests: Requests, labels: &Labels) -> PodShape {
        let separations = self.separations().unwrap_or_default();
        let mut spreads = self.topology_spread_constraints.iter().flatten();
        let tolerations = self.tolerations.iter().flatten();
        PodShape {
            requests,
            node_selector: self.node_selector.clone().unwrap_or_default(),
            node_affinity: self.node_affinity(),
            // An unreadable toleration tolerates nothing: the capacity may be underestimated, never overestimated.
            tolerations: tolerations.filter_map(toleration).collect(),
            priority_class: self.priority_class_name.clone().unwrap_or_default(),
            one_per_node: separations.iter().any(|term| excludes(term, labels)),
            // An unknown value counts as mandatory, for the same reason.
            must_spread: spreads.any(|it| it.when_unsatisfiable != "ScheduleAnyway"),
        }
    }

    /// The pods that may not run on the same node, zone or other domain.
    fn separations(&self) -> Option<&[v1::PodAffinityTerm]> {
        let pods = self.affinity.as_ref()?.pod_anti_affinity.as_ref()?;
        pods.required_during_scheduling_ignored_during_execution
            .as_deref()
    }

    fn node_affinity(&self) -> Option<Vec<NodeTerm>> {
        let node = self.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = &node.required_during_scheduling_ignored_during_execution;
        let terms = &required.as_ref()?.node_selector_terms;
        // An unknown term matches no node: the capacity may be underestimated, never overestimated.
        Some(terms.iter().map(node_term).collect())
    }
}

fn node_term(term: &v1::NodeSelectorTerm) -> NodeTerm {
    let labels = selector(term.match_expressions.as_deref());
    match (labels, selector(term.match_fields.as_deref())) {
        (Some(labels), Some(fields)) => NodeTerm { labels, fields },
        _ => NodeTerm::default(),
    }
}

/// The requirements of all expressions; `None` if one of them has an unknown operator.
fn selector(all: Option<&[v1::NodeSelectorRequirement]>) -> Option<Selector> {
    let all = all.into_iter().flatten();
    all.map(|it| requirement(&it.key, &it.operator, it.values.as_deref()))
        .collect()
}

/// A requirement of a node or scope selector; `None` for an unknown operator.
pub fn requirement(key: &str, operator: &str, values: Option<&[String]>) -> Option<Requirement> {
    let (key, values) = (key.to_owned(), values.unwrap_or_default().to_vec());
    let bound = values.first().and_then(|it| it.parse::<i64>().ok());
    Some(match operator {
        "In" => Requirement::In(key, values),
        "NotIn" => Requirement::NotIn(key, values),
        "Exists" => Requirement::Exists(key),
        "DoesNotExist" => Requirement::DoesNotExist(key),
        "Gt" => Requirement::GreaterThan(key, bound?),
        "Lt" => Requirement::LessThan(key, bound?),
        _ => return None,
    })
}

/// True if two pods with these labels may not run on one node, even if the term is for other namespaces: the capacity
/// may be underestimated, never overestimated.
fn excludes(term: &v1::PodAffinityTerm, labels: &Labels) -> bool {
    let Some(Ok(text)) = term.label_selector.clone().map(selector_text) else {
        return false;
    };
    let selector = text.parse::<Selector>();
    term.topology_key == HOSTNAME && selector.is_ok_and(|selector| selector.matches(labels))
}

/// The toleration; `None` for an unknown operator or effect.
fn toleration(object: &v1::Toleration) -> Option<Toleration> {
    let value = match object.operator.as_deref() {
        None | Some("" | "Equal") => Some(object.value.clone().unwrap_or_default()),
        Some("Exists") => None,
        Some(_) => return None,
    };
    let effect = match object.effect.as_deref() {
        None | Some("") => None,
        Some(effect) => Some(effect.parse().ok()?),
    };
    Some(Toleration {
        key: object.key.clone().filter(|key| !key.is_empty()),
        value,
        effect,
        seconds: object.toleration_seconds,
    })
}
