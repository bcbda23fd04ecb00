//! The child `HorizontalPodAutoscaler`: its manifest, its owner, and its drift.
//!
//! Pure: `apply` sends what this module composes. A child of ours is found by the UID of its owner (the controller
//! reference, or in a member cluster a label), an adopted HPA by an annotation; every other HPA of the same target is
//! foreign and is never written.

use foretide_crds::EffectiveHorizontalPodAutoscalerSpec;
use foretide_domain::{
    ReplicaBounds, Replicas, ScaleTarget,
    autoscale::{Child, published::PublishedMetric},
    workload::Workload,
};
use jiff::SignedDuration;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use serde_json::{Map, Value, json};

use foretide_api::ports::HpaView;
use foretide_api::{
    ownership::{DELETION_POLICY, FLEET_UID, HUB, MANAGED_BY, Owner, if_absent, is_part_of},
    published::{CRON_IDENTIFIER, CRON_METRIC, PREDICTION_METRIC, label_value},
};

/// Annotation on an adopted HPA: UID of the object that adopted it.
pub const ADOPTED_BY: &str = "autoscaling.foretide.io/adopted-by";
/// Annotation on an adopted HPA: its `spec` as it was, to be restored when it is released.
pub const ORIGINAL_SPEC: &str = "autoscaling.foretide.io/original-spec";
/// Label that names who made an object.
pub const MANAGER: &str = "app.kubernetes.io/managed-by";
/// The API truncates times to seconds; this is the most that it can cut off. It is added, so that a change never looks
/// older than it is.
const CUT_OFF: SignedDuration = SignedDuration::from_millis(999);

/// The parts of a child besides its bounds: target, metrics and behavior, as the user wrote them.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildSpec {
    /// The workload that it scales.
    target: CrossVersionObjectReference,
    /// The metrics, as they were written.
    metrics: Vec<Value>,
    /// The behavior, as it was written; absent where the user wrote none.
    behavior: Option<Value>,
}

// === impl ChildSpec ===

impl ChildSpec {
    /// The child that a spec asks for.
    pub fn of(spec: &EffectiveHorizontalPodAutoscalerSpec) -> Self {
        let metrics = spec.metrics.iter().flatten();
        Self {
            target: spec.scale_target_ref.clone(),
            metrics: metrics.map(|metric| metric.raw().clone()).collect(),
            behavior: spec
                .behavior
                .as_ref()
                .map(|behavior| behavior.raw().clone()),
        }
    }

    /// The child of one member: with those of the fleet's metrics whose position is kept.
    pub fn with_metrics(&self, keep: impl Fn(usize) -> bool) -> Self {
        let metrics = self.metrics.iter().enumerate();
        let kept = metrics.filter(|(position, _)| keep(*position));
        Self {
            metrics: kept.map(|(_, metric)| metric.clone()).collect(),
            ..self.clone()
        }
    }

    /// The child in mode Metric: the metrics of the spec, the implicit one included, and those that are published.
    pub fn with_published(&self, workload: &Workload, published: &[PublishedMetric]) -> Self {
        let mut child = self.clone();
        // The API server adds its default only where an HPA has no metrics at all.
        if child.metrics.is_empty() && !workload.metrics.is_empty() {
            child.metrics.push(default_metric());
        }
        let external = published
            .iter()
            .map(|metric| external_metric(&workload.target, metric));
        child.metrics.extend(external);
        child
    }

    /// The same child, kept from scaling down.
    pub fn held(mut self) -> Self {
        let mut behavior = fields(self.behavior.as_ref());
        let mut down = fields(behavior.get("scaleDown"));
        down.insert("selectPolicy".into(), "Disabled".into());
        behavior.insert("scaleDown".into(), Value::Object(down));
        self.behavior = Some(Value::Object(behavior));
        self
    }

    /// The `spec` of the child with these bounds.
    fn spec(&self, bounds: ReplicaBounds) -> Value {
        let mut spec = json!({
            "scaleTargetRef": {
                "apiVersion": self.target.api_version.clone().unwrap_or_default(),
                "kind": self.target.kind,
                "name": self.target.name,
            },
            "minReplicas": bounds.min.get(),
            "maxReplicas": bounds.max.get(),
            "metrics": self.metrics_or_default(),
        });
        if let (Some(behavior), Some(fields)) = (&self.behavior, spec.as_object_mut()) {
            fields.insert("behavior".into(), with_defaults(behavior));
        }
        spec
    }

    /// The user's metrics, or the one that the API server would default to.
    fn metrics_or_default(&self) -> Value {
        if self.metrics.is_empty() {
            return json!([default_metric()]);
        }
        Value::Array(self.metrics.clone())
    }
}

/// The fields of an object; none if it is none.
fn fields(value: Option<&Value>) -> Map<String, Value> {
    value
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// The metric of an HPA without metrics, as the API server defaults it.
fn default_metric() -> Value {
    json!({
        "type": "Resource",
        "resource": {
            "name": "cpu",
            "target": { "type": "Utilization", "averageUtilization": 80 },
        },
    })
}

/// A forecast or the cron windows as a metric that the child reads from `foretide-servers adapter`.
fn external_metric(target: &ScaleTarget, metric: &PublishedMetric) -> Value {
    let (name, identifier) = match &metric.forecast {
        Some(forecast) => (PREDICTION_METRIC, label_value(forecast)),
        None => (CRON_METRIC, CRON_IDENTIFIER.to_owned()),
    };
    json!({
        "type": "External",
        "external": {
            "metric": {
                "name": name,
                "selector": {
                    "matchLabels": {
                        "targetKind": target.kind,
                        "targetName": label_value(&target.name),
                        "targetNamespace": target.namespace,
                        "resourceIdentifier": identifier,
                    },
                },
            },
            "target": {
                "type": "AverageValue",
                "averageValue": metric.amounts.per_pod.to_string(),
            },
        },
    })
}

/// UID of the object that this HPA was created for, if any.
pub fn created_for(hpa: &HpaView) -> Option<&str> {
    match &hpa.controller {
        Some(controller) => Some(&controller.uid),
        None => hpa.labels.get(FLEET_UID)?.as_str(),
    }
}

/// UID of the object that adopted this HPA, if any did.
pub fn adopted_by(hpa: &HpaView) -> Option<&str> {
    hpa.annotations.get(ADOPTED_BY)?.as_str()
}

/// An HPA as the domain reads it: its bounds, and the count that it asks for.
pub fn as_child(hpa: &HpaView) -> Child {
    Child {
        // The default of the API server.
        min: count(&hpa.spec, "minReplicas").unwrap_or(Replicas::new(1)),
        // The API server requires it.
        max: count(&hpa.spec, "maxReplicas").unwrap_or(Replicas::new(1)),
        desired: count(&hpa.status, "desiredReplicas"),
        last_scale: hpa
            .last_scale
            .map(|at| at.saturating_add(CUT_OFF).unwrap_or(at)),
    }
}

fn count(fields: &Value, name: &str) -> Option<Replicas> {
    let n = fields.get(name)?.as_u64()?;
    Some(Replicas::new(u32::try_from(n).ok()?))
}

/// True if the status of an HPA can be that of its present spec. An older API server does not say which one it is of.
pub fn is_of_present_spec(hpa: &HpaView) -> bool {
    let observed = hpa.status.get("observedGeneration").and_then(Value::as_i64);
    observed.is_none_or(|observed| Some(observed) == hpa.generation)
}

/// True if the fleet with this UID created or adopted this HPA.
pub fn is_of_fleet(hpa: &HpaView, uid: &str) -> bool {
    created_for(hpa) == Some(uid) || adopted_by(hpa) == Some(uid)
}

/// True if an HPA has neither a controller nor an adopter.
pub fn is_unclaimed(hpa: &HpaView) -> bool {
    created_for(hpa).is_none() && adopted_by(hpa).is_none()
}

/// The manifest of the child: the user's target, metrics and behavior, and our bounds.
///
/// Every default that the API server would fill in is written out, so that each field has one owner and a manual edit
/// is detected.
pub fn manifest(owner: &Owner, child: &ChildSpec, bounds: ReplicaBounds) -> Value {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": owner.child_metadata(),
        "spec": child.spec(bounds),
    })
}

/// The manifest that takes over a foreign HPA: the same object with our spec, and its own in an annotation.
pub fn adoption(
    owner: &Owner,
    child: &ChildSpec,
    bounds: ReplicaBounds,
    foreign: &HpaView,
) -> Value {
    // The annotation first: the spec of an HPA that is adopted already is ours.
    let original = foreign
        .annotations
        .get(ORIGINAL_SPEC)
        .and_then(Value::as_str)
        .map_or_else(|| foreign.spec.to_string(), ToOwned::to_owned);
    let mut annotations = Map::new();
    for (mark, value) in &owner.marks {
        annotations.insert((*mark).to_owned(), value.clone().into());
    }
    annotations.insert(ADOPTED_BY.into(), owner.uid.clone().into());
    annotations.insert(ORIGINAL_SPEC.into(), original.into());
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": foreign.name,
            "namespace": foreign.namespace,
            "annotations": annotations,
        },
        "spec": child.spec(bounds),
    })
}

/// The writes after which an HPA is as its manifest asks for: one that is applied, and a patch of what that leaves.
#[derive(Debug)]
pub struct ChildWrite {
    /// The manifest, which is applied only to the version that was seen, or only if there is no HPA.
    pub manifest: Value,
    /// The JSON patch of the fields that are to go, if there are any.
    surplus: Option<Value>,
}

// === impl ChildWrite ===

impl ChildWrite {
    /// The writes that make an HPA what `manifest` asks for; none if the live one is that.
    pub fn of(manifest: &Value, live: Option<&HpaView>) -> Option<Self> {
        let Some(live) = live else {
            return Some(Self {
                manifest: if_absent(manifest),
                surplus: None,
            });
        };
        let surplus = surplus_patch(manifest, live);
        if surplus.is_none() && is_as_written(manifest, live) {
            return None;
        }
        Some(Self {
            manifest: of_version(manifest, live),
            surplus,
        })
    }

    /// The JSON patch that follows the apply, if one is needed; `applied` is what that left, which has changed the
    /// version.
    pub fn patch(self, applied: &HpaView) -> Option<Value> {
        Some(patch_of_version(self.surplus?, applied))
    }
}

/// A manifest that is applied only to this version of this HPA. Its status counts as a change too, and so does a write
/// of a controller that led before and whose request is late.
fn of_version(manifest: &Value, live: &HpaView) -> Value {
    let mut manifest = manifest.clone();
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".into(), live.uid.clone().into());
        let version = live.resource_version.clone();
        metadata.insert("resourceVersion".into(), version.into());
    }
    manifest
}

/// A JSON patch that is carried out only on this version of this HPA. Another version is a conflict, not a failed test.
fn patch_of_version(patch: Value, live: &HpaView) -> Value {
    let (uid, version) = (&live.uid, &live.resource_version);
    let mut operations = vec![
        json!({ "op": "test", "path": "/metadata/uid", "value": uid }),
        json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version }),
    ];
    if let Value::Array(changes) = patch {
        operations.extend(changes);
    }
    Value::Array(operations)
}

/// The JSON patch that restores an adopted HPA as it was; `None` when its annotation does not hold a spec.
pub fn restore_patch(adopted: &HpaView) -> Option<Value> {
    let original = adopted.annotations.get(ORIGINAL_SPEC)?.as_str()?;
    let spec: Value = serde_json::from_str(original).ok()?;
    let mut patch = vec![
        // The patch fails if the HPA was created again meanwhile.
        json!({ "op": "test", "path": "/metadata/uid", "value": adopted.uid }),
        json!({ "op": "replace", "path": "/spec", "value": spec }),
    ];
    patch.extend(without_marks(adopted));
    Some(Value::Array(patch))
}

/// The JSON patch that orphans an HPA of ours: it keeps its spec and loses our labels and annotations. Where we keep it
/// from scaling down, the user's `behavior` replaces that, because no controller would undo it later.
pub fn orphan_patch(hpa: &HpaView, behavior: Option<&Value>) -> Value {
    const SELECT: &str = "/scaleDown/selectPolicy";
    let mut patch = vec![json!({ "op": "test", "path": "/metadata/uid", "value": hpa.uid })];
    patch.extend(without_marks(hpa));
    // On an adopted HPA this label is the user's own.
    if adopted_by(hpa).is_none() && hpa.labels[MANAGER] == MANAGED_BY {
        patch.push(json!({ "op": "remove", "path": pointer("labels", MANAGER) }));
    }
    let wanted = behavior.and_then(|behavior| behavior.pointer(SELECT));
    // The default of the API server.
    let wanted = wanted.map_or_else(|| "Max".into(), Value::clone);
    let live = hpa.spec.pointer(&format!("/behavior{SELECT}"));
    if wanted != "Disabled" && live.is_some_and(|live| live == "Disabled") {
        let place = format!("/spec/behavior{SELECT}");
        patch.push(json!({ "op": "replace", "path": place, "value": wanted }));
    }
    Value::Array(patch)
}

/// Operations that remove the labels and annotations that mark an HPA as ours.
fn without_marks(hpa: &HpaView) -> Vec<Value> {
    const MARKS: [&str; 5] = [ADOPTED_BY, ORIGINAL_SPEC, FLEET_UID, HUB, DELETION_POLICY];
    let mut removals = Vec::new();
    for (place, fields) in [("labels", &hpa.labels), ("annotations", &hpa.annotations)] {
        for mark in MARKS.iter().filter(|mark| fields.get(mark).is_some()) {
            removals.push(json!({ "op": "remove", "path": pointer(place, mark) }));
        }
    }
    removals
}

/// True if a fleet has adopted this HPA: its adopter is in another cluster.
pub fn is_adopted_by_a_fleet(hpa: &HpaView) -> bool {
    hpa.annotations.get(FLEET_UID).is_some()
}

/// The JSON patch that removes the fields of `behavior` that we did not write; `None` when there are none.
///
/// Server-side apply does not remove fields that others added. Lists such as `metrics` it replaces as a whole.
fn surplus_patch(desired: &Value, live: &HpaView) -> Option<Value> {
    let (wanted, found) = (desired.pointer("/spec/behavior"), live.spec.get("behavior"));
    let found = found.filter(|value| !value.is_null())?;
    match wanted {
        None => Some(json!([{ "op": "remove", "path": "/spec/behavior" }])),
        Some(wanted) if is_part_of(found, wanted) => None,
        Some(wanted) => {
            Some(json!([{ "op": "replace", "path": "/spec/behavior", "value": wanted }]))
        }
    }
}

/// True if every field that `desired` (a manifest of this module) has is that of the live HPA.
fn is_as_written(desired: &Value, live: &HpaView) -> bool {
    // Metrics are compared in both directions: one that another writer added is drift too.
    let metrics = live.spec.get("metrics").unwrap_or(&Value::Null);
    is_part_of(&desired["spec"], &live.spec)
        && is_part_of(metrics, &desired["spec"]["metrics"])
        && is_part_of(&desired["metadata"]["labels"], &live.labels)
        && is_part_of(&desired["metadata"]["annotations"], &live.annotations)
}

/// True if a live HPA is as we left it: then a difference from what is wanted is our own change, not a repair.
///
/// An HPA of an earlier version comes from a late watch event and shows the HPA before our write. The server counts no
/// generations of HPAs.
pub fn is_as_left(left: &HpaView, live: &HpaView) -> bool {
    // The API calls versions opaque, but those of kube-apiserver are numbers that grow. Others are never older.
    let [live_version, left_version] = [live, left].map(|it| it.resource_version.parse::<u64>());
    let is_older = matches!((live_version, left_version), (Ok(live), Ok(left)) if live < left);
    let is_same = left.spec == live.spec
        && is_part_of(&left.labels, &live.labels)
        && is_part_of(&left.annotations, &live.annotations);
    left.uid == live.uid && (is_older || is_same)
}

fn pointer(place: &str, key: &str) -> String {
    // RFC 6901; `~` first, or the escape of `/` would be escaped again.
    let key = key.replace('~', "~0").replace('/', "~1");
    format!("/metadata/{place}/{key}")
}

/// A behavior with the defaults of autoscaling/v2 written out.
///
/// # Source
/// `pkg/apis/autoscaling/v2/defaults.go` of Kubernetes: up 4 pods or 100 % per 15 s at once, down 100 % per 15 s after
/// the controller's own window.
fn with_defaults(behavior: &Value) -> Value {
    let mut filled = behavior.as_object().cloned().unwrap_or_default();
    let up = json!({
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            { "type": "Pods", "value": 4, "periodSeconds": 15 },
            { "type": "Percent", "value": 100, "periodSeconds": 15 },
        ],
    });
    // Without a window: its default is a flag of kube-controller-manager, not of the API server.
    let down = json!({
        "selectPolicy": "Max",
        "policies": [{ "type": "Percent", "value": 100, "periodSeconds": 15 }],
    });
    for (direction, defaults) in [("scaleUp", up), ("scaleDown", down)] {
        let rules = filled.entry(direction).or_insert(Value::Null);
        let given = rules.as_object().cloned().unwrap_or_default();
        *rules = overlay(defaults, given);
    }
    Value::Object(filled)
}

fn overlay(defaults: Value, given: Map<String, Value>) -> Value {
    let Value::Object(mut merged) = defaults else {
        return Value::Object(given);
    };
    // The API server treats an explicit null like an absent field.
    merged.extend(given.into_iter().filter(|(_, value)| !value.is_null()));
    Value::Object(merged)
}

#[cfg(test)]
pub(crate) mod tests {
    use foretide_crds::{DeletionPolicy, EffectiveHorizontalPodAutoscaler, FederatedHPA};
    use foretide_domain::ScaleTarget;
    use foretide_domain::{autoscale::published::Amounts, cron::Zone, workload::Mode};

    use super::*;
    use foretide_api::validation;

    const UP: &str = r#"{"scaleUp": {"selectPolicy": "Disabled"}}"#;

    /// An autoscaler with these fields in its spec.
    pub fn ehpa_with(spec: &Value) -> EffectiveHorizontalPodAutoscaler {
        let mut object = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop", "uid": "ours"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 10,
            },
        });
        for (field, value) in spec.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    pub fn ehpa(behavior: Option<&str>) -> EffectiveHorizontalPodAutoscaler {
        let mut spec = json!({"metrics": [{"type": "External", "external": {
            "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "1000m"},
        }}]});
        if let Some(behavior) = behavior {
            spec["behavior"] = serde_json::from_str(behavior).unwrap();
        }
        ehpa_with(&spec)
    }

    /// The HPA that the API server stores of a manifest.
    pub fn stored(manifest: &Value) -> HpaView {
        let part = |pointer: &str| manifest.pointer(pointer).cloned().unwrap_or(json!({}));
        let text = |pointer: &str| part(pointer).as_str().unwrap_or_default().to_owned();
        HpaView {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: "its own".into(),
            resource_version: "5".into(),
            controller: None,
            labels: part("/metadata/labels"),
            annotations: part("/metadata/annotations"),
            target: ScaleTarget {
                api_version: text("/spec/scaleTargetRef/apiVersion"),
                kind: text("/spec/scaleTargetRef/kind"),
                namespace: text("/metadata/namespace"),
                name: text("/spec/scaleTargetRef/name"),
            },
            spec: part("/spec"),
            status: json!({}),
            generation: Some(1),
            last_scale: None,
        }
    }

    pub fn bounds(min: u32) -> ReplicaBounds {
        ReplicaBounds::new(Replicas::new(min), Replicas::new(10))
    }

    pub fn owner() -> Owner {
        Owner::effective(&ehpa(None))
    }

    /// The owner of a fleet of the same name, in the hub `hub-1`.
    pub fn fleet() -> Owner {
        let ehpa = ehpa(None);
        let mut fdhpa = FederatedHPA {
            metadata: ehpa.metadata,
            spec: serde_json::from_value(json!({
                "scaleTargetRef": ehpa.spec.scale_target_ref, "maxReplicas": 10,
                "federatedHPAAssignment": {},
            }))
            .unwrap(),
            status: None,
        };
        fdhpa.metadata.uid = Some("ours".to_owned());
        Owner::federated(&fdhpa, Some("hub-1"), DeletionPolicy::Delete)
    }

    pub fn child(behavior: Option<&str>) -> Value {
        let child = ChildSpec::of(&ehpa(behavior).spec);
        manifest(&owner(), &child, bounds(2))
    }

    #[test]
    fn what_a_late_event_shows_from_before_our_write_is_no_edit_by_hand() {
        let left = stored(&child(None));
        let mut live = left.clone();
        live.spec["maxReplicas"] = json!(99);
        for (version, as_left) in [("4", true), ("11", false), ("unknown", false)] {
            live.resource_version = version.to_owned();
            assert_eq!(is_as_left(&left, &live), as_left, "{version}");
        }
    }

    #[test]
    fn an_edit_by_hand_shows_and_another_spelling_of_the_same_does_not() {
        let window = "/spec/behavior/scaleDown/stabilizationWindowSeconds";
        let manager = "/metadata/labels/app.kubernetes.io~1managed-by";
        let average = "/spec/metrics/0/external/target/averageValue";
        let selector = "/spec/metrics/0/external/metric/selector";
        for (behavior, pointer, value, as_written) in [
            (None, "/spec/minReplicas", json!(2), true),
            (None, "/spec/minReplicas", json!(3), false),
            (None, "/spec/behavior", json!({"scaleUp": {}}), false),
            (None, "/spec/behavior", Value::Null, true),
            (Some(UP), window, json!(0), false),
            (Some(UP), window, Value::Null, true),
            (None, "/metadata/labels/team", json!("a"), true),
            (None, manager, json!("me"), false),
            (None, average, json!("1"), true),
            (None, average, json!("2"), false),
            (None, selector, json!({"matchLabels": {"a": "b"}}), false),
        ] {
            let desired = child(behavior);
            let mut live = desired.clone();
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            let field = field.replace("~1", "/");
            live.pointer_mut(parent).unwrap()[&field] = value.clone();
            let write = ChildWrite::of(&desired, Some(&stored(&live)));
            assert_eq!(write.is_none(), as_written, "{pointer} = {value}");
        }
    }

    /// An autoscaler in mode Metric with these fields in its spec.
    fn in_mode_metric(spec: &Value) -> EffectiveHorizontalPodAutoscaler {
        let mut spec = spec.clone();
        spec["mode"] = json!("Metric");
        ehpa_with(&spec)
    }

    fn external(name: &str, identifier: &str, per_pod: &str) -> Value {
        json!({"type": "External", "external": {
            "metric": {"name": name, "selector": {"matchLabels": {
                "targetKind": "Deployment", "targetName": "web", "targetNamespace": "shop",
                "resourceIdentifier": identifier,
            }}},
            "target": {"type": "AverageValue", "averageValue": per_pod},
        }})
    }

    fn published(forecast: Option<&str>, per_pod: f64) -> PublishedMetric {
        PublishedMetric {
            forecast: forecast.map(str::to_owned),
            amounts: Amounts::of(0.9, per_pod).unwrap(),
        }
    }

    #[test]
    fn in_mode_metric_the_child_reads_what_is_published_after_the_metrics_of_the_spec() {
        let memory = json!({"type": "Resource", "resource": {
            "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"},
        }});
        let crons =
            json!([{"name": "day", "start": "@daily", "end": "0 9 * * *", "targetReplicas": 5}]);
        let forecast = |name: &str| published(Some(name), 0.1);
        let cron = || published(None, 1.0);
        let predicted =
            |identifier: &str| external("crane_autoscaling_prediction", identifier, "100m");
        let windows = || external("crane_autoscaling_cron", "cron", "1");
        for (spec, published, metrics) in [
            (
                json!({"metrics": [memory], "prediction": {}, "crons": crons}),
                vec![forecast("resource.cpu"), cron()],
                vec![memory.clone(), predicted("resource.cpu"), windows()],
            ),
            (json!({"crons": crons}), vec![cron()], vec![windows()]),
            (
                json!({"crons": crons, "prediction": {}}),
                vec![cron()],
                vec![default_metric(), windows()],
            ),
            (json!({"prediction": {}}), vec![], vec![default_metric()]),
            (
                json!({"metrics": [memory]}),
                vec![forecast("external.a/b")],
                vec![memory.clone(), predicted(&label_value("external.a/b"))],
            ),
        ] {
            let ehpa = in_mode_metric(&spec);
            let workload = validation::workload(&ehpa, &Zone::utc()).unwrap();
            assert_eq!(workload.mode_in_force(), Mode::Metric, "{spec}");
            let child = ChildSpec::of(&ehpa.spec).with_published(&workload, &published);
            let manifest = manifest(&Owner::effective(&ehpa), &child, bounds(1));
            assert_eq!(manifest["spec"]["metrics"], Value::Array(metrics), "{spec}");
            let write = ChildWrite::of(&manifest, Some(&stored(&manifest)));
            assert!(write.is_none(), "{spec}");
        }
    }

    #[test]
    fn a_target_with_a_long_name_is_named_by_the_value_of_a_label() {
        let long = "a".repeat(80);
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": long});
        let crons =
            json!([{"name": "d", "start": "@daily", "end": "0 9 * * *", "targetReplicas": 5}]);
        let ehpa = in_mode_metric(&json!({"scaleTargetRef": target, "crons": crons}));
        let workload = validation::workload(&ehpa, &Zone::utc()).unwrap();
        let published = [published(None, 1.0)];
        let child = ChildSpec::of(&ehpa.spec).with_published(&workload, &published);
        let manifest = manifest(&Owner::effective(&ehpa), &child, bounds(1));
        let labels = "/spec/metrics/0/external/metric/selector/matchLabels/targetName";
        assert_eq!(manifest.pointer(labels), Some(&json!(label_value(&long))));
        assert_eq!(manifest["spec"]["scaleTargetRef"]["name"], json!(long));
    }

    #[test]
    fn fields_added_to_a_behavior_are_removed() {
        let added = |behavior: Option<&str>| {
            let mut live = child(behavior);
            live["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = json!(0);
            surplus_patch(&child(behavior), &stored(&live))
        };
        let ours = child(Some(UP))["spec"]["behavior"].clone();
        assert_eq!(
            added(None),
            Some(json!([{"op": "remove", "path": "/spec/behavior"}]))
        );
        assert_eq!(
            added(Some(UP)),
            Some(json!([{"op": "replace", "path": "/spec/behavior", "value": ours}]))
        );
        for behavior in [None, Some(UP)] {
            assert_eq!(
                surplus_patch(&child(behavior), &stored(&child(behavior))),
                None
            );
        }
    }

    #[test]
    fn an_orphaned_hpa_has_no_mark_of_ours_and_may_scale_down() {
        let part_of = "app.kubernetes.io/part-of";
        let marks = json!({ (FLEET_UID): "f", (HUB): "h" });
        let labels_by = |who: &str| {
            let mut labels = marks.clone();
            labels["app.kubernetes.io/managed-by"] = who.into();
            labels[part_of] = "web".into();
            labels
        };
        let remove = |path: &str| json!({ "op": "remove", "path": format!("/metadata/{path}") });
        let uid = remove("labels/autoscaling.foretide.io~1fleet-uid");
        let hub = remove("labels/autoscaling.foretide.io~1hub");
        let manager = remove("labels/app.kubernetes.io~1managed-by");
        let adopter = remove("annotations/autoscaling.foretide.io~1adopted-by");
        let select = |value: &str| {
            let path = "/spec/behavior/scaleDown/selectPolicy";
            json!({ "op": "replace", "path": path, "value": value })
        };
        let down = |select: &str| json!({ "scaleDown": { "selectPolicy": select } });
        let taken = json!({ ADOPTED_BY: "f" });
        let cases = [
            (labels_by(MANAGED_BY), json!({}), vec![&manager, &uid, &hub]),
            (labels_by("helm"), taken.clone(), vec![&adopter, &uid, &hub]),
            (labels_by(MANAGED_BY), taken, vec![&adopter, &uid, &hub]),
        ];
        for (labels, annotations, changes) in cases {
            let mut live = stored(&child(None));
            (live.labels, live.annotations) = (labels, annotations);
            let patch = orphan_patch(&live, None);
            let found = patch.as_array().unwrap().iter();
            let mut found: Vec<_> = found.filter(|one| one["op"] == "remove").collect();
            found.sort_by_key(|one| one["path"].to_string());
            assert_eq!(found, changes);
        }
        for (is, meant, change) in [
            ("Max", None, None),
            ("Disabled", None, Some(select("Max"))),
            ("Disabled", Some(down("Min")), Some(select("Min"))),
            ("Disabled", Some(down("Disabled")), None),
            ("Disabled", Some(json!({})), Some(select("Max"))),
        ] {
            let mut live = stored(&child(None));
            live.spec["behavior"] = down(is);
            let patch = orphan_patch(&live, meant.as_ref());
            let found = patch.as_array().unwrap().iter();
            let mut found = found.filter(|one| one["op"] == "replace");
            assert_eq!(found.next().cloned(), change, "{is}, {meant:?}");
        }
    }

    #[test]
    fn an_adopted_hpa_keeps_its_original_spec_through_every_later_write() {
        let mut foreign = stored(&child(Some(UP)));
        foreign.spec["maxReplicas"] = json!(99);
        let was = foreign.spec.clone();
        let mut adopted = foreign;
        for min in [1, 2, 3] {
            let manifest = adoption(
                &owner(),
                &ChildSpec::of(&ehpa(None).spec),
                bounds(min),
                &adopted,
            );
            adopted = HpaView {
                uid: adopted.uid,
                ..stored(&manifest)
            };
            assert_eq!(adopted_by(&adopted), Some("ours"));
        }
        assert_eq!(
            restore_patch(&adopted),
            Some(json!([
                {"op": "test", "path": "/metadata/uid", "value": "its own"},
                {"op": "replace", "path": "/spec", "value": was},
                {"op": "remove", "path": "/metadata/annotations/autoscaling.foretide.io~1adopted-by"},
                {"op": "remove", "path": "/metadata/annotations/autoscaling.foretide.io~1original-spec"},
            ]))
        );
    }
}
