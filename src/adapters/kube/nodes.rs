//! What tells how much room a cluster has: its nodes and quotas.
//!
//! Kept as compactly as the estimate needs, and no further: it refuses to estimate, `domain::federate` does.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{
    objects::{milli_value, read},
    store::Stored,
};
use crate::domain::observation::Requests;

/// A node, reduced to what the scheduler would ask of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredNode {
    /// Its name.
    pub(super) name: String,
    /// Its labels.
    pub(super) labels: BTreeMap<String, String>,
    /// Whether it is ready and not being deleted.
    pub(super) usable: bool,
    /// What it can give to pods, in milli-units.
    pub(super) allocatable: Requests,
    /// Its taints, `spec.unschedulable` included.
    pub(super) taints: Vec<NodeTaint>,
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct NodeTaint {
    /// Its key.
    pub(super) key: String,
    /// Its value; empty for none.
    #[serde(default)]
    pub(super) value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub(super) effect: String,
}

/// A resource quota of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredQuota {
    /// What may be used, by the quota's own names, in milli-units.
    pub(super) hard: Requests,
    /// What is used.
    pub(super) used: Requests,
    /// Whether it counts certain pods only.
    pub(super) scoped: bool,
}

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
    scope_selector: Option<Value>,
}

#[derive(Deserialize, Default)]
struct QuotaStatus {
    hard: Option<BTreeMap<String, String>>,
    used: Option<BTreeMap<String, String>>,
}

/// What the node controller puts on a cordoned node.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

// === impl StoredNode ===

impl Stored for StoredNode {
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
    fn all_taints(self) -> Vec<NodeTaint> {
        let mut taints = self.taints.unwrap_or_default();
        if self.unschedulable == Some(true) && !taints.iter().any(|t| t.key == CORDONED) {
            taints.push(NodeTaint {
                key: CORDONED.to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            });
        }
        taints
    }
}

// === impl StoredQuota ===

impl Stored for StoredQuota {
    fn decode(object: Value) -> Result<Self, String> {
        let QuotaObject { spec, status } = read(object)?;
        let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
        let hard = status.hard.or(spec.hard);
        Ok(Self {
            hard: amounts(hard, "hard")?,
            used: amounts(status.used, "status.used")?,
            scoped: spec.scopes.is_some_and(|s| !s.is_empty()) || spec.scope_selector.is_some(),
        })
    }
}

fn amounts(written: Option<BTreeMap<String, String>>, of: &str) -> Result<Requests, String> {
    let milli = |(resource, amount): (String, String)| match milli_value(&amount) {
        Ok(milli) => Ok((resource, milli)),
        Err(expected) => Err(format!("{of}.{resource}: {expected}")),
    };
    written.into_iter().flatten().map(milli).collect()
}
