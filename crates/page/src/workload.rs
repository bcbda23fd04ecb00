//! One autoscaler: its decision with amounts, its conditions with remedies, its manifest.

use foretide_crds::Mode;
use foretide_domain::{observation::Requests, proposal::Unit, workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};

use super::{
    Page,
    api::{AutoscalerView, ConditionView, ProposalAmount, Span},
    fleet, history,
    record::{Latest, Recorded},
    remedy,
};
use foretide_api::{
    autoscaler::Autoscaler,
    status::{is_healthy, stored_source},
};

/// The fields of an object that the API server sets.
const SET_BY_SERVER: [&str; 6] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// One autoscaler as it is now.
pub fn view(recorded: &Recorded, page: &Page) -> AutoscalerView {
    let latest = &*recorded.latest;
    let common = &latest.status.common;
    let sparkline = history::sparkline(recorded, page.host.now());
    AutoscalerView {
        now: page.host.now().to_string(),
        row: fleet::row(latest, sparkline),
        mode: mode(latest),
        decision: common.decision.clone(),
        amounts: amounts(latest),
        conditions: conditions(recorded, page.host.namespace().as_deref()),
        windows: common.windows.clone().unwrap_or_default(),
        changes: common.changes.iter().flatten().rev().cloned().collect(),
        clusters: latest.status.fleet.clusters.clone().unwrap_or_default(),
        recorded: recorded.span.map(|(from, until)| Span { from, until }),
    }
}

fn mode(latest: &Latest) -> Mode {
    let in_force = latest.decided.as_ref();
    match in_force.map(|decided| decided.workload.mode_in_force()) {
        Some(workload::Mode::Delegated) => Mode::Delegated,
        Some(workload::Mode::Direct) => Mode::Direct,
        Some(workload::Mode::Metric) => Mode::Metric,
        None => latest.autoscaler.spec().mode.unwrap_or_default(),
    }
}

fn amounts(latest: &Latest) -> Vec<ProposalAmount> {
    let decision = latest.status.common.decision.as_ref();
    let proposals = decision
        .into_iter()
        .flat_map(|it| it.proposals.iter().flatten());
    let known_units = latest.decided.iter().flat_map(|decided| &decided.units);
    // Before the first decision of this process, the status has proposals whose units are not known.
    let units = known_units.copied().chain(std::iter::repeat(Unit::Plain));
    let amount = |(proposal, unit): (&foretide_crds::ProposalStatus, Unit)| {
        let text = |number: Option<&String>| Some(unit.amount(number?.parse().ok()?));
        let forecast = proposal.forecast.as_ref();
        ProposalAmount {
            source: stored_source(proposal.source).to_string(),
            name: proposal.name.clone(),
            peak: text(forecast.and_then(|it| it.peak.as_ref())),
            raise: text(forecast.and_then(|it| it.raise.as_ref())),
            hold: text(forecast.and_then(|it| it.hold.as_ref())),
            value: text(proposal.value.as_ref()),
            target: text(proposal.target.as_ref()),
        }
    };
    proposals.zip(units).map(amount).collect()
}

/// The conditions with their remedies; those with a problem come first.
fn conditions(recorded: &Recorded, controller: Option<&str>) -> Vec<ConditionView> {
    let conditions = recorded.latest.status.common.conditions.iter().flatten();
    let view = |condition: &Condition| {
        let healthy = is_as_meant(condition);
        ConditionView {
            healthy,
            remedy: (!healthy)
                .then(|| remedy::of(condition, recorded, controller))
                .flatten(),
            condition: condition.clone(),
        }
    };
    let mut views: Vec<_> = conditions.map(view).collect();
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
pub fn manifest(latest: &Latest) -> String {
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
    let yaml = |value: &Value| serde_saphyr::to_string(value).unwrap_or_default();
    let workload = target_manifest(latest).map(|workload| format!("---\n{}", yaml(&workload)));
    yaml(&value) + &workload.unwrap_or_default()
}

/// The scale target with the requests of its pods, if they are known.
fn target_manifest(latest: &Latest) -> Option<Value> {
    let template = latest.decided.as_ref()?.template.as_ref()?;
    let pod_level = template.pod_level.as_ref().map(resources);
    let containers = template.containers.iter();
    let containers: Vec<_> = containers
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
    let quantity = |(resource, milli): (&str, i64)| {
        let quantity = match milli % 1000 {
            0 => (milli / 1000).to_string(),
            _ => format!("{milli}m"),
        };
        (resource.to_owned(), Value::String(quantity))
    };
    json!({"requests": requests.iter().map(quantity).collect::<Map<_, _>>()})
}
