//! From a `HorizontalPodAutoscaler`: the same target, bounds, metrics and behavior.

use serde_json::{Map, Value, json};

use foretide_crds::Violation;

use super::{Converted, object, origin};
use crate::manifest::violation;
use foretide_api::ownership::ADOPT;
use foretide_api::ports::QUERY_ANNOTATION;

/// Annotation in which the conversion of autoscaling/v2 to v1 keeps metrics other than cpu.
const V1_METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
/// Annotation in which that conversion keeps the behavior.
const V1_BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// Members of `spec` that both kinds have.
const SHARED: [&str; 5] = [
    "scaleTargetRef",
    "minReplicas",
    "maxReplicas",
    "metrics",
    "behavior",
];

/// Converts a `HorizontalPodAutoscaler`. Foretide adopts it in mode Delegated, unless another controller owns it.
pub fn converted(hpa: &Value) -> Result<Converted, Violation> {
    let spec = &hpa["spec"];
    let mut made: Map<String, Value> = SHARED
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), spec.get(name)?.clone())))
        .collect();
    match hpa["apiVersion"].as_str() {
        Some("autoscaling/v2") => {}
        Some("autoscaling/v1") => made.extend(metrics_of_v1(hpa)?),
        other => {
            let found = other.unwrap_or_default();
            let message = format!(
                "expected autoscaling/v2 or autoscaling/v1, found {found}; `kubectl get hpa NAME -o yaml` writes the \
                 object as autoscaling/v2"
            );
            return Err(violation("apiVersion", message));
        }
    }
    made.insert("prediction".to_owned(), json!({}));
    let mut notes = vec![origin("HorizontalPodAutoscaler", hpa)];
    let mut annotations: Map<String, Value> = hpa["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        // Annotations such as that of `kubectl apply` are about the HPA itself.
        .filter(|(name, _)| name.starts_with(QUERY_ANNOTATION))
        .map(|(name, query)| (name.clone(), query.clone()))
        .collect();
    match controller(hpa) {
        None if spec["minReplicas"] == 0 => notes.push(
            "with minReplicas 0 it runs in mode Direct, which adopts no HPA: delete the HPA when you set scaleStrategy: Auto"
                .to_owned(),
        ),
        None => {
            annotations.insert(ADOPT.to_owned(), "true".into());
        }
        Some(owner) if owner["kind"] == "ScaledObject" => notes.push(format!(
            "KEDA made it from ScaledObject {}: convert that instead, for the queries of its triggers",
            text(&owner["name"])
        )),
        Some(owner) => notes.push(format!(
            "it belongs to {} {}, so Foretide cannot adopt it: remove it before you set scaleStrategy: Auto",
            text(&owner["kind"]),
            text(&owner["name"])
        )),
    }
    Ok(Converted {
        object: object(hpa, annotations, &made.into()),
        notes,
        switch_on: "set scaleStrategy: Auto",
    })
}

/// The cpu target of autoscaling/v1 as a metric.
fn metrics_of_v1(hpa: &Value) -> Result<Option<(String, Value)>, Violation> {
    for annotation in [V1_METRICS, V1_BEHAVIOR] {
        if !hpa["metadata"]["annotations"][annotation].is_null() {
            let message = format!(
                "expected autoscaling/v2, because annotation {annotation} holds a part of the spec; `kubectl get hpa \
                 NAME -o yaml` writes the object as autoscaling/v2"
            );
            return Err(violation("apiVersion", message));
        }
    }
    let percent = &hpa["spec"]["targetCPUUtilizationPercentage"];
    if percent.is_null() {
        // Without metrics both kinds default to cpu at 80 %.
        return Ok(None);
    }
    let target = json!({ "type": "Utilization", "averageUtilization": percent });
    let metrics = json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]);
    Ok(Some(("metrics".to_owned(), metrics)))
}

fn controller(hpa: &Value) -> Option<&Value> {
    let owners = hpa["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str = "HorizontalPodAutoscaler web as an EffectiveHorizontalPodAutoscaler with prediction: {}, which is auto";

    fn hpa(api_version: &str, metadata: &Value, spec: &Value) -> Value {
        let mut metadata = metadata.clone();
        metadata["name"] = "web".into();
        metadata["namespace"] = "shop".into();
        json!({
            "apiVersion": api_version, "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec,
            "status": { "currentReplicas": 4 },
        })
    }

    #[test]
    fn target_bounds_metrics_and_behavior_are_kept_and_it_is_adopted() {
        let shared = json!({
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web" },
            "minReplicas": 3,
            "maxReplicas": 17,
            "metrics": [{ "type": "Resource", "resource": {
                "name": "memory", "target": { "type": "AverageValue", "averageValue": "900Mi" },
            } }],
            "behavior": { "scaleDown": { "stabilizationWindowSeconds": 60 } },
        });
        let query = "metric-query.autoscaling.crane.io/resource.memory";
        let metadata = json!({ "annotations": { query: "sum(m)", "other": "x" }, "uid": "1" });
        let mut spec = shared.clone();
        spec["prediction"] = json!({});
        let expected = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "annotations": { query: "sum(m)", "autoscaling.foretide.io/adopt": "true" },
            },
            "spec": spec,
        });
        let converted = converted(&hpa("autoscaling/v2", &metadata, &shared)).unwrap();
        assert_eq!(converted.object, expected);
        assert_eq!(converted.notes, [NOTE]);
    }

    #[test]
    fn the_cpu_target_of_v1_is_a_metric_and_an_owned_object_is_not_adopted() {
        let target = json!({ "kind": "Deployment", "name": "web" });
        let spec = json!({ "scaleTargetRef": target, "maxReplicas": 9, "targetCPUUtilizationPercentage": 65 });
        let owner = |kind: &str| json!({ "ownerReferences": [{ "kind": kind, "name": "boss", "controller": true }] });
        let converted = |kind| converted(&hpa("autoscaling/v1", &owner(kind), &spec)).unwrap();
        let made = converted("Platform");
        let cpu = json!([{ "type": "Resource", "resource": {
            "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 65 },
        } }]);
        let expected =
            json!({ "scaleTargetRef": target, "maxReplicas": 9, "metrics": cpu, "prediction": {} });
        assert_eq!(made.object["spec"], expected);
        assert_eq!(
            made.object["metadata"],
            json!({ "name": "web", "namespace": "shop" })
        );
        let refused = "it belongs to Platform boss, so Foretide cannot adopt it: remove it before you set \
                       scaleStrategy: Auto";
        assert_eq!(made.notes, [NOTE, refused]);
        let keda = "KEDA made it from ScaledObject boss: convert that instead, for the queries of its triggers";
        assert_eq!(converted("ScaledObject").notes, [NOTE, keda]);
    }

    #[test]
    fn a_version_that_loses_a_part_of_the_spec_is_refused() {
        let spec =
            json!({ "scaleTargetRef": { "kind": "Deployment", "name": "web" }, "maxReplicas": 9 });
        let lost = json!({ "annotations": { V1_METRICS: "[]" } });
        for (version, metadata, found) in [
            (
                "autoscaling/v2beta2",
                json!({}),
                "found autoscaling/v2beta2",
            ),
            ("autoscaling/v1", lost, V1_METRICS),
        ] {
            let error = converted(&hpa(version, &metadata, &spec)).unwrap_err();
            assert_eq!(error.field, "apiVersion");
            assert!(error.message.contains(found), "{error}");
        }
    }
}
