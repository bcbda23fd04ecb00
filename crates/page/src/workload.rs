//! One autoscaler: its decision with amounts, its conditions with remedies, its manifest.

use std::iter;

use foretide_crds::{Mode, ProposalStatus};
use foretide_domain::{observation::Requests, proposal::Unit, workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};

use super::{
    Page, ViewError, Visible,
    api::{AutoscalerView, ConditionView, ObjectKey, ProposalAmount, Span},
    fleet, history,
    record::{Latest, Recorded},
    remedy,
};
use foretide_api::{autoscaler::Autoscaler, status::is_healthy};

/// The fields of an object that the API server sets.
const SET_BY_SERVER: [&str; 6] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

impl Page {
    /// One autoscaler as it is now.
    ///
    /// # Errors
    /// [`ViewError::NotFound`].
    pub fn autoscaler(
        &self,
        key: &ObjectKey,
        visible: &Visible,
    ) -> Result<AutoscalerView, ViewError> {
        let recorded = self.recorded(key, visible)?;
        let latest = &*recorded.latest;
        let common = &latest.status.common;
        let now = self.host.now();
        Ok(AutoscalerView {
            now: now.to_string(),
            row: fleet::row(latest, history::sparkline(&recorded, now)),
            mode: mode(latest),
            decision: common.decision.clone(),
            amounts: amounts(latest),
            conditions: conditions(&recorded, self.host.namespace().as_deref()),
            windows: common.windows.clone().unwrap_or_default(),
            changes: common.changes.iter().flatten().rev().cloned().collect(),
            clusters: latest.status.fleet.clusters.clone().unwrap_or_default(),
            recorded: recorded.span.map(|(from, until)| Span { from, until }),
        })
    }

    /// The object without its status as YAML, and its workload with the requests of a pod, if they are known.
    ///
    /// # Errors
    /// [`ViewError::NotFound`].
    pub fn manifest(&self, key: &ObjectKey, visible: &Visible) -> Result<String, ViewError> {
        Ok(manifest(&self.recorded(key, visible)?.latest))
    }
}

fn mode(latest: &Latest) -> Mode {
    match &latest.decided {
        Some(decided) => match decided.workload.mode_in_force() {
            workload::Mode::Delegated => Mode::Delegated,
            workload::Mode::Direct => Mode::Direct,
            workload::Mode::Metric => Mode::Metric,
        },
        None => latest.autoscaler.spec().mode.unwrap_or_default(),
    }
}

fn amounts(latest: &Latest) -> Vec<ProposalAmount> {
    let Some(decision) = &latest.status.common.decision else {
        return Vec::new();
    };
    let known_units = latest.decided.iter().flat_map(|it| &it.units).copied();
    // Before the first decision of this process, the status has proposals whose units are not known.
    let units = known_units.chain(iter::repeat(Unit::Plain));
    iter::zip(decision.proposals.iter().flatten(), units)
        .map(|(proposal, unit)| amount(proposal, unit))
        .collect()
}

fn amount(proposal: &ProposalStatus, unit: Unit) -> ProposalAmount {
    let forecast = proposal.forecast.as_ref();
    ProposalAmount {
        source: proposal.source.to_string(),
        name: proposal.name.clone(),
        peak: text(unit, forecast.and_then(|it| it.peak.as_ref())),
        raise: text(unit, forecast.and_then(|it| it.raise.as_ref())),
        hold: text(unit, forecast.and_then(|it| it.hold.as_ref())),
        value: text(unit, proposal.value.as_ref()),
        target: text(unit, proposal.target.as_ref()),
    }
}

fn text(unit: Unit, number: Option<&String>) -> Option<String> {
    Some(unit.amount(number?.parse().ok()?))
}

/// The conditions with their remedies; those with a problem come first.
fn conditions(recorded: &Recorded, controller: Option<&str>) -> Vec<ConditionView> {
    let mut views = Vec::new();
    for condition in recorded.latest.status.common.conditions.iter().flatten() {
        let healthy = is_as_meant(condition);
        views.push(ConditionView {
            healthy,
            remedy: if healthy {
                None
            } else {
                remedy::of(condition, recorded, controller)
            },
            condition: condition.clone(),
        });
    }
    views.sort_by_key(|view| view.healthy);
    views
}

/// Returns whether a condition is as it should be. A bound or a policy that limits the count is no problem, except
/// `maxReplicas`.
fn is_as_meant(condition: &Condition) -> bool {
    let limits = condition.type_ == "ScalingLimited" && condition.reason != "TooManyReplicas";
    limits || is_healthy(&condition.type_, &condition.status)
}

/// The object as a user would apply it, as YAML; then the workload with the requests of a pod, as far as they are known
/// and as `backtest -f` reads them.
fn manifest(latest: &Latest) -> String {
    let value = match &latest.autoscaler {
        Autoscaler::Effective(object) => serde_json::to_value(&**object),
        Autoscaler::Federated(object) => serde_json::to_value(&**object),
    };
    // A value that came from JSON can always be written as JSON and as YAML.
    let mut value = value.unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(metadata) = metadata {
            metadata.retain(|field, _| !SET_BY_SERVER.contains(&field.as_str()));
        }
    }
    let workload = target_manifest(latest).map(|workload| format!("---\n{}", yaml(&workload)));
    yaml(&value) + &workload.unwrap_or_default()
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_default()
}

/// The scale target with the requests of its pods, if they are known.
fn target_manifest(latest: &Latest) -> Option<Value> {
    let template = latest.decided.as_ref()?.template.as_ref()?;
    let pod_level = template.pod_level.as_ref().map(resources);
    let containers: Vec<_> = template
        .containers
        .iter()
        .map(|it| json!({"name": &*it.name, "resources": resources(&it.requests)}))
        .collect();
    if containers.is_empty() {
        return None;
    }
    let target = &latest.autoscaler.spec().scale_target_ref;
    let mut pod = json!({"containers": containers});
    if let (Some(pod), Some(resources)) = (pod.as_object_mut(), pod_level) {
        pod.insert("resources".to_owned(), resources);
    }
    Some(json!({
        "apiVersion": target.api_version,
        "kind": target.kind,
        "metadata": {"namespace": latest.key.namespace, "name": target.name},
        "spec": {"template": {"spec": pod}},
    }))
}

fn resources(requests: &Requests) -> Value {
    let mut quantities = Map::new();
    for (resource, milli) in requests.iter() {
        let quantity = match milli % 1000 {
            0 => (milli / 1000).to_string(),
            _ => format!("{milli}m"),
        };
        quantities.insert(resource.to_owned(), quantity.into());
    }
    json!({"requests": quantities})
}
