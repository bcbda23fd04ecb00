//! The nodes on which a pod may run: node selector, affinity, tolerations and topology spread constraints of its spec.
//!
//! An operator or effect that is unknown here makes the capacity estimate less exact; it does not make the object
//! undecodable. Matching is left to `foretide-federate`.

use std::collections::BTreeMap;

use foretide_domain::{Labels, Requirement, Selector, observation::Requests};
use foretide_federate::{NodeTerm, PodShape, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
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
    affinity: Option<Affinity>,
    tolerations: Option<Vec<TolerationObject>>,
    priority_class_name: Option<String>,
    topology_spread_constraints: Option<Vec<Spread>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Affinity {
    node_affinity: Option<NodeAffinity>,
    pod_anti_affinity: Option<PodAntiAffinity>,
}

#[derive(Deserialize)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeSelector {
    node_selector_terms: Option<Vec<NodeSelectorTerm>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeSelectorTerm {
    match_expressions: Option<Vec<Expression>>,
    match_fields: Option<Vec<Expression>>,
}

/// A requirement of a node or scope selector.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expression {
    #[serde(alias = "scopeName")]
    key: String,
    operator: String,
    values: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct PodAntiAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<Vec<PodAffinityTerm>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodAffinityTerm {
    topology_key: Option<String>,
    label_selector: Option<LabelSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TolerationObject {
    key: Option<String>,
    operator: Option<String>,
    value: Option<String>,
    effect: Option<String>,
    toleration_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spread {
    when_unsatisfiable: Option<String>,
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
            tolerations: tolerations.filter_map(TolerationObject::read).collect(),
            priority_class: self.priority_class_name.clone().unwrap_or_default(),
            one_per_node: separations.iter().any(|term| term.excludes(labels)),
            // An unknown value counts as mandatory, for the same reason.
            must_spread: spreads
                .any(|it| it.when_unsatisfiable.as_deref() != Some("ScheduleAnyway")),
        }
    }

    /// The pods that may not run on the same node, zone or other domain.
    fn separations(&self) -> Option<&[PodAffinityTerm]> {
        let pods = self.affinity.as_ref()?.pod_anti_affinity.as_ref()?;
        pods.required.as_deref()
    }

    fn node_affinity(&self) -> Option<Vec<NodeTerm>> {
        let node = self.affinity.as_ref()?.node_affinity.as_ref()?;
        let terms = node.required.as_ref()?.node_selector_terms.as_ref()?;
        // An unknown term matches no node: the capacity may be underestimated, never overestimated.
        Some(terms.iter().map(NodeSelectorTerm::read).collect())
    }
}

impl NodeSelectorTerm {
    fn read(&self) -> NodeTerm {
        let labels = selector(self.match_expressions.as_deref());
        match (labels, selector(self.match_fields.as_deref())) {
            (Some(labels), Some(fields)) => NodeTerm { labels, fields },
            _ => NodeTerm::default(),
        }
    }
}

/// The requirements of all expressions; `None` if one of them has an unknown operator.
fn selector(all: Option<&[Expression]>) -> Option<Selector> {
    all.into_iter().flatten().map(Expression::read).collect()
}

impl Expression {
    /// The requirement; `None` for an unknown operator.
    pub fn read(&self) -> Option<Requirement> {
        let (key, values) = (self.key.clone(), self.values.clone().unwrap_or_default());
        let bound = values.first().and_then(|it| it.parse::<i64>().ok());
        Some(match self.operator.as_str() {
            "In" => Requirement::In(key, values),
            "NotIn" => Requirement::NotIn(key, values),
            "Exists" => Requirement::Exists(key),
            "DoesNotExist" => Requirement::DoesNotExist(key),
            "Gt" => Requirement::GreaterThan(key, bound?),
            "Lt" => Requirement::LessThan(key, bound?),
            _ => return None,
        })
    }
}

impl PodAffinityTerm {
    /// True if two pods with these labels may not run on one node, even if the term is for other namespaces: the
    /// capacity may be underestimated, never overestimated.
    fn excludes(&self, labels: &Labels) -> bool {
        let Some(Ok(text)) = self.label_selector.clone().map(selector_text) else {
            return false;
        };
        let selector = text.parse::<Selector>();
        self.topology_key.as_deref() == Some(HOSTNAME)
            && selector.is_ok_and(|selector| selector.matches(labels))
    }
}

impl TolerationObject {
    /// The toleration; `None` for an unknown operator or effect.
    fn read(&self) -> Option<Toleration> {
        let value = match self.operator.as_deref() {
            None | Some("" | "Equal") => Some(self.value.clone().unwrap_or_default()),
            Some("Exists") => None,
            Some(_) => return None,
        };
        let effect = match self.effect.as_deref() {
            None | Some("") => None,
            Some(effect) => Some(effect.parse().ok()?),
        };
        Some(Toleration {
            key: self.key.clone().filter(|key| !key.is_empty()),
            value,
            effect,
            seconds: self.toleration_seconds,
        })
    }
}
