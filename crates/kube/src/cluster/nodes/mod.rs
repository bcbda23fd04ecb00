//! Nodes and quotas, from which the capacity of a member cluster is estimated by `foretide-federate`.

use std::collections::BTreeMap;

use foretide_domain::Requirement;
use foretide_federate::{Node, Quota, Taint, TaintEffect};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

pub mod free_capacity;
pub mod scheduling;

use super::{
    decode::{Conditions, amounts, read},
    nodes::scheduling::Expression,
    stored::Stored,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeMeta {
    name: String,
    labels: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
struct NodeObject {
    metadata: NodeMeta,
    spec: Option<NodeSpec>,
    status: Option<NodeStatus>,
}

#[derive(Deserialize, Default)]
struct NodeSpec {
    taints: Option<Vec<NodeTaint>>,
    unschedulable: Option<bool>,
}

#[derive(Deserialize)]
struct NodeTaint {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
}

#[derive(Deserialize, Default)]
struct NodeStatus {
    allocatable: Option<BTreeMap<String, String>>,
    conditions: Option<Conditions>,
}

#[derive(Deserialize)]
struct QuotaObject {
    spec: Option<QuotaSpec>,
    status: Option<QuotaStatus>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct QuotaSpec {
    hard: Option<BTreeMap<String, String>>,
    scopes: Option<Vec<String>>,
    scope_selector: Option<ScopeSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScopeSelector {
    match_expressions: Option<Vec<Expression>>,
}

#[derive(Deserialize, Default)]
struct QuotaStatus {
    hard: Option<BTreeMap<String, String>>,
    used: Option<BTreeMap<String, String>>,
}

/// The taint of a cordoned node.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

// === nodes ===

impl Stored for Node {
    fn decode(object: Value) -> Result<Self, String> {
        let NodeObject {
            metadata,
            spec,
            status,
        } = read(object)?;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        let conditions = status.conditions;
        let ready = conditions.and_then(|all| all.with_status("Ready", "True"));
        Ok(Self {
            usable: ready.is_some() && metadata.deletion_timestamp.is_none(),
            name: metadata.name,
            labels: metadata.labels.unwrap_or_default(),
            allocatable: amounts(status.allocatable, |it| format!("status.allocatable.{it}"))?,
            taints: spec.all_taints(),
        })
    }
}

impl NodeSpec {
    fn all_taints(self) -> Vec<Taint> {
        let taints = self.taints.into_iter().flatten();
        let mut taints: Vec<Taint> = taints.map(NodeTaint::read).collect();
        // The node controller adds this taint to a cordoned node only a moment later.
        if self.unschedulable == Some(true) && !taints.iter().any(|t| t.key == CORDONED) {
            taints.push(Taint {
                key: CORDONED.to_owned(),
                value: String::new(),
                effect: TaintEffect::NoSchedule,
                since: None,
            });
        }
        taints
    }
}

impl NodeTaint {
    fn read(self) -> Taint {
        Taint {
            // An unknown effect counts as the strictest one: the capacity may be underestimated, never overestimated.
            effect: self.effect.parse().unwrap_or(TaintEffect::NoExecute),
            key: self.key,
            value: self.value,
            since: None,
        }
    }
}

// === quotas ===

impl Stored for Quota {
    fn decode(object: Value) -> Result<Self, String> {
        let QuotaObject { spec, status } = read(object)?;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        // Admission enforces the limits of the status, which the quota controller copies from the spec.
        let hard = status.hard.or(spec.hard);
        let named = spec.scopes.into_iter().flatten().map(Requirement::Exists);
        let expressions = spec.scope_selector.and_then(|s| s.match_expressions);
        let selected = expressions.iter().flatten().map(Expression::read);
        // A requirement with an unknown operator counts as an unknown scope.
        let selected = selected.map(|it| it.unwrap_or(Requirement::Exists(String::new())));
        Ok(Self {
            hard: amounts(hard, |it| format!("hard.{it}"))?,
            used: amounts(status.used, |it| format!("status.used.{it}"))?,
            scopes: named.chain(selected).collect(),
        })
    }
}
