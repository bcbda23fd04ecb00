//! The `EffectiveHorizontalPodAutoscaler` that does the same as another autoscaler, with a prediction.
//!
//! ```text
//! HorizontalPodAutoscaler --hpa-------------+
//!                                           +--> Converted: an object, and what is different about it
//! ScaledObject of KEDA ----scaled_object----+
//! ```
//!
//! Pure: an object in, an object out.

mod hpa;
mod scaled_object;

use serde_json::{Map, Value, json};

use crate::{Error, manifest::Document};

/// An `EffectiveHorizontalPodAutoscaler` made from another autoscaler.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The object; strategy Auto, prediction `auto`.
    pub object: Value,
    /// The origin of the object, and each part that is ignored or different, as a sentence.
    pub notes: Vec<String>,
    /// Instructions for switching the object on.
    pub switch_on: &'static str,
}

/// A field of an autoscaler that cannot be converted, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConversionError(String);

/// Returns whether a document is of a kind that can be converted.
pub fn is_convertible(document: &Document) -> bool {
    is_hpa(document) || is_scaled_object(document)
}

fn is_hpa(document: &Document) -> bool {
    document.group() == "autoscaling" && document.text("kind") == "HorizontalPodAutoscaler"
}

fn is_scaled_object(document: &Document) -> bool {
    document.group() == "keda.sh" && document.text("kind") == "ScaledObject"
}

/// Converts a document.
///
/// # Errors
/// The document is of another kind, or has a field that cannot be converted; with file, line and field.
pub fn converted(document: &Document) -> Result<Converted, Error> {
    let value = document.value();
    let converted = if is_scaled_object(document) {
        scaled_object::converted(value)
    } else {
        hpa::converted(value)
    };
    converted.map_err(|violation| ConversionError(document.refusal(&violation)).into())
}

/// An object of a name and a namespace, with annotations if there are any.
fn object(of: &Value, annotations: Map<String, Value>, spec: &Value) -> Value {
    let mut metadata = json!({ "name": of["metadata"]["name"] });
    if let Some(namespace) = of["metadata"].get("namespace") {
        metadata["namespace"] = namespace.clone();
    }
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": spec,
    })
}

/// The first note of every conversion.
fn origin(kind: &str, of: &Value) -> String {
    let name = of["metadata"]["name"].as_str().unwrap_or_default();
    format!(
        "{kind} {name} as an EffectiveHorizontalPodAutoscaler with prediction: {{}}, which is auto"
    )
}

#[cfg(test)]
mod tests {
    use foretide_crds::{EffectiveHorizontalPodAutoscaler, Rules};

    use super::*;

    const ALL: &str = "
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: web, annotations: {a: b}, ownerReferences: [{kind: Boss, name: boss, controller: true}]}
  spec: {scaleTargetRef: {kind: Deployment, name: web}, minReplicas: 1, maxReplicas: 2, metrics: [], behavior: {}}
- apiVersion: autoscaling/v1
  kind: HorizontalPodAutoscaler
  metadata: {name: web}
  spec: {scaleTargetRef: {kind: Deployment, name: web}, maxReplicas: 2, targetCPUUtilizationPercentage: 70}
- apiVersion: keda.sh/v1alpha1
  kind: ScaledObject
  metadata: {name: web}
  spec:
    scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
    minReplicaCount: 1
    maxReplicaCount: 2
    advanced: {horizontalPodAutoscalerConfig: {behavior: {}}, scalingModifiers: {}}
    triggers:
    - {type: cpu, metricType: Utilization, metadata: {value: '60', containerName: app}}
    - {type: prometheus, metricType: Value, metadata: {query: up, threshold: '3'}}
    - {type: cron, name: day, metadata: {timezone: UTC, start: 0 8 * * *, end: 0 9 * * *, desiredReplicas: '2'}}
";

    /// The value with each of its parts replaced by `with`, one at a time.
    fn replaced(value: &Value, with: &Value) -> Vec<Value> {
        let mut all = vec![with.clone()];
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    all.extend(replaced(member, with).into_iter().map(|part| {
                        let mut changed = members.clone();
                        changed.insert(name.clone(), part);
                        Value::Object(changed)
                    }));
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    all.extend(replaced(item, with).into_iter().map(|part| {
                        let mut changed = items.clone();
                        changed[index] = part;
                        Value::Array(changed)
                    }));
                }
            }
            _ => {}
        }
        all
    }

    #[test]
    fn any_part_may_be_of_any_type() {
        let all: Vec<Value> = serde_saphyr::from_str(ALL).unwrap();
        let rules = Rules::of::<EffectiveHorizontalPodAutoscaler>();
        let valid = |value: &Value| {
            let document = Document::of("test".to_owned(), value);
            let made = converted(&document);
            made.is_ok_and(|made| rules.check(&made.object).is_empty())
        };
        for whole in &all {
            assert!(valid(whole), "{whole}");
            for with in [
                json!(null),
                json!(-7),
                json!("x"),
                json!([1]),
                json!({ "a": 1 }),
            ] {
                let outcomes = replaced(whole, &with).into_iter();
                let outcomes: Vec<bool> = outcomes.map(|value| valid(&value)).collect();
                assert!(outcomes.contains(&false), "{with}");
            }
        }
    }
}
