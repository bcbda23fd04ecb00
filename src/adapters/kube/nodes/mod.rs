//! What tells how much room a cluster has: its nodes and quotas.
//!
//! Kept as compactly as the estimate needs, and no further: it refuses to estimate, `domain::federate` does.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

pub(super) mod free_capacity;
pub(super) mod scheduling;

use super::{
    decode::{amounts, read},
    nodes::scheduling::{Expression, effect_of},
    store::Stored,
};
use crate::domain::{
    federate::{Node, Quota, Taint, TaintEffect},
    hpa::Requirement,
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
    conditions: Option<Vec<NodeCondition>>,
}

#[derive(Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
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

/// What the node controller puts on a cordoned node.
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
        let ready = |c: &NodeCondition| c.kind == "Ready" && c.status == "True";
        let is_ready = status.conditions.iter().flatten().any(ready);
        Ok(Self {
            usable: is_ready && metadata.deletion_timestamp.is_none(),
            name: metadata.name,
            labels: metadata.labels.unwrap_or_default(),
            allocatable: amounts(status.allocatable, "status.allocatable")?,
            taints: spec.all_taints(),
        })
    }
}

impl NodeSpec {
    /// A cordon counts as the taint that the node controller adds for it a moment later.
    fn all_taints(self) -> Vec<Taint> {
        let written = self.taints.into_iter().flatten();
        let mut taints: Vec<Taint> = written.map(NodeTaint::read).collect();
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
    /// The taint; an effect that is not known keeps pods off, as the strictest one does.
    fn read(self) -> Taint {
        Taint {
            effect: effect_of(&self.effect).unwrap_or(TaintEffect::NoExecute),
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
        let hard = status.hard.or(spec.hard);
        let named = spec.scopes.into_iter().flatten().map(Requirement::Exists);
        let selected = spec.scope_selector.and_then(|s| s.match_expressions);
        // An operator that is not known is a scope that is not looked at.
        let read = |e: &Expression| e.read().unwrap_or(Requirement::Exists(String::new()));
        let selected = selected.iter().flatten().map(read);
        Ok(Self {
            hard: amounts(hard, "hard")?,
            used: amounts(status.used, "status.used")?,
            scopes: named.chain(selected).collect(),
        })
    }
}
