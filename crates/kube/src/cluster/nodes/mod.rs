//! Nodes and quotas, from which the capacity of a member cluster is estimated by `foretide-federate`.

use std::collections::BTreeMap;

use foretide_domain::Requirement;
use foretide_federate::{Node, Quota, Taint, TaintEffect};
use k8s_openapi::api::core::v1::{self, NodeSpec, ScopeSelector};
use serde::Deserialize;
use serde_json::Value;

pub mod free_capacity;
pub mod scheduling;

use super::{
    decode::{Conditions, Meta, amounts, read},
    nodes::scheduling::requirement,
    stored::Stored,
};

#[derive(Deserialize)]
struct NodeObject {
    metadata: Meta,
    spec: Option<NodeSpec>,
    status: Option<NodeStatus>,
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
            taints: all_taints(spec),
        })
    }
}

fn all_taints(spec: NodeSpec) -> Vec<Taint> {
    let taints = spec.taints.into_iter().flatten();
    let mut taints: Vec<Taint> = taints.map(taint).collect();
    // The node controller adds this taint to a cordoned node only a moment later.
    if spec.unschedulable == Some(true) && !taints.iter().any(|t| t.key == CORDONED) {
        taints.push(Taint {
            key: CORDONED.to_owned(),
            value: String::new(),
            effect: TaintEffect::NoSchedule,
            since: None,
        });
    }
    taints
}

fn taint(taint: v1::Taint) -> Taint {
    Taint {
        // An unknown effect counts as the strictest one: the capacity may be underestimated, never overestimated.
        effect: taint.effect.parse().unwrap_or(TaintEffect::NoExecute),
        key: taint.key,
        value: taint.value.unwrap_or_default(),
        since: None,
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
        let selected = expressions.iter().flatten().map(|it| {
            // A requirement with an unknown operator counts as an unknown scope.
            requirement(&it.scope_name, &it.operator, it.values.as_deref())
                .unwrap_or(Requirement::Exists(String::new()))
        });
        Ok(Self {
            hard: amounts(hard, |it| format!("hard.{it}"))?,
            used: amounts(status.used, |it| format!("status.used.{it}"))?,
            scopes: named.chain(selected).collect(),
        })
    }
}
