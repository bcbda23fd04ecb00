//! What is known of the last pass of a child HPA: from its status and, where the status does not show it, from its spec
//! and the pods.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use foretide_domain::{
    ReplicaBounds, Replicas, hpa::MetricValue, observation::Pod, quantity::Quantity,
};
use serde_json::Value;

use crate::{controller::child_hpa::is_of_present_spec, ports::HpaView};

/// What a child's status says about its last pass.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportedPass {
    /// The bounds that it has now.
    pub(super) bounds: ReplicaBounds,
    pub(super) current: Replicas,
    pub(super) desired: Replicas,
    pub(super) values: Vec<MetricValue>,
}

// === impl ReportedPass ===

impl ReportedPass {
    /// `None` for a status without a pass, or with a pass that read no metrics.
    pub(super) fn of(child: &HpaView) -> Option<Self> {
        let count = |name: &str| {
            let n = child.status.get(name).and_then(Value::as_u64)?;
            u32::try_from(n).ok().map(Replicas::new)
        };
        let statuses = child.status.get("currentMetrics")?.as_array()?;
        let values: Option<Vec<_>> = statuses.iter().map(reported).collect();
        if !is_of_present_spec(child) {
            return None;
        }
        Some(Self {
            bounds: bounds(child)?,
            current: count("currentReplicas")?,
            desired: count("desiredReplicas")?,
            values: values.filter(|values| !values.is_empty())?,
        })
    }
}

/// A hash of the fields that change the result for the same inputs: metrics and behavior.
// Not `metadata.generation`, which the API server keeps for this kind only once it writes `observedGeneration`.
pub(super) fn fingerprint(child: &HpaView) -> u64 {
    let mut hasher = DefaultHasher::new();
    for field in ["metrics", "behavior"] {
        let written = child.spec.get(field).map(Value::to_string);
        written.hash(&mut hasher);
    }
    hasher.finish()
}

pub(super) fn bounds(child: &HpaView) -> Option<ReplicaBounds> {
    let count = |name: &str| {
        let n = child.spec.get(name).and_then(Value::as_u64)?;
        u32::try_from(n).ok().map(Replicas::new)
    };
    Some(ReplicaBounds {
        min: count("minReplicas")?,
        max: count("maxReplicas")?,
    })
}

/// Whether the pods are unchanged, except those that the child's own decision created or removed.
pub(super) fn undisturbed(
    before: &[Arc<Pod>],
    now: &[Arc<Pod>],
    reported: Option<&ReportedPass>,
) -> bool {
    let removes = reported.is_some_and(|pass| pass.desired < pass.current);
    let creates = reported.is_some_and(|pass| pass.desired > pass.current);
    let found = |pods: &[Arc<Pod>], name: &str| {
        pods.binary_search_by(|pod| (*pod.name).cmp(name))
            .ok()
            .and_then(|i| pods.get(i).cloned())
    };
    let kept = before.iter().all(|pod| match found(now, &pod.name) {
        Some(same) if same == *pod => true,
        // Pods that the child itself removes are not a disturbance.
        Some(same) => same.deleting && removes,
        None => removes,
    });
    let fresh = now.iter().any(|pod| found(before, &pod.name).is_none());
    kept && (!fresh || creates)
}

/// The value that a child reports for one metric, in the shape of our own.
fn reported(status: &Value) -> Option<MetricValue> {
    let blocks = [
        "resource",
        "containerResource",
        "pods",
        "object",
        "external",
    ];
    let current = blocks
        .iter()
        .find_map(|block| status.get(block))?
        .get("current")?;
    let milli = |name: &str| {
        let text = current.get(name)?.as_str()?;
        Some(text.parse::<Quantity>().ok()?.milli_value().value)
    };
    Some(MetricValue {
        average_utilization: current
            .get("averageUtilization")
            .and_then(Value::as_i64)
            .and_then(|n| i32::try_from(n).ok()),
        average_value: milli("averageValue"),
        value: milli("value"),
    })
}
