//! Stored form of the `ScaledObject`s of KEDA: the target of each, and its pause.
//!
//! KEDA deletes its HPA while it pauses, so that only the annotation tells a pause from a workload that KEDA has left.

use foretide_domain::{ScaleTarget, api_group};
use serde_json::Value;

use super::{decode::text_at, stored::Stored};
use foretide_api::ports::KedaPause;

/// Annotation that pauses at a count.
const PAUSED_REPLICAS: &str = "autoscaling.keda.sh/paused-replicas";
/// Annotation that pauses at the present count.
const PAUSED: &str = "autoscaling.keda.sh/paused";
/// The texts that are false to KEDA (`strconv.ParseBool`). Any other text pauses, also one that is not true.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// A `ScaledObject`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredScaledObject {
    pub name: String,
    pub uid: String,
    target: ScaleTarget,
    pub pause: KedaPause,
}

// === impl StoredScaledObject ===

impl StoredScaledObject {
    /// True if this target is scaled. The versions of a group name the same object.
    pub fn scales(&self, target: &ScaleTarget) -> bool {
        let own = &self.target;
        api_group(&own.api_version) == api_group(&target.api_version)
            && (&own.kind, &own.name) == (&target.kind, &target.name)
    }
}

impl Stored for StoredScaledObject {
    fn decode(object: Value) -> Result<Self, String> {
        let name = text_or(&object, "/metadata/name", "");
        let annotations = &object["metadata"]["annotations"];
        // A pause of one direction is none: KEDA's HPA stays, and holds the count itself.
        let paused_by = match annotations[PAUSED].as_str() {
            _ if annotations[PAUSED_REPLICAS].is_string() => Some(PAUSED_REPLICAS),
            Some(value) if !FALSE.contains(&value) => Some(PAUSED),
            _ => None,
        };
        Ok(Self {
            uid: text_or(&object, "/metadata/uid", ""),
            target: ScaleTarget {
                // KEDA's defaults.
                api_version: text_or(&object, "/spec/scaleTargetRef/apiVersion", "apps/v1"),
                kind: text_or(&object, "/spec/scaleTargetRef/kind", "Deployment"),
                namespace: text_or(&object, "/metadata/namespace", ""),
                name: text_or(&object, "/spec/scaleTargetRef/name", ""),
            },
            pause: paused_by.map_or(KedaPause::Off, |annotation| KedaPause::On {
                scaled_object: name.clone(),
                annotation,
            }),
            name,
        })
    }
}

/// The text at a JSON pointer of an object; the default for none or an empty one.
fn text_or(object: &Value, pointer: &str, default: &str) -> String {
    match text_at(object, pointer) {
        "" => default.to_owned(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pause_is_what_keda_takes_for_one() {
        for (key, value, annotation) in [
            ("paused", "true", Some(PAUSED)),
            ("paused", "", Some(PAUSED)),
            ("paused", "no", Some(PAUSED)),
            ("paused", "false", None),
            ("paused", "F", None),
            ("paused-replicas", "0", Some(PAUSED_REPLICAS)),
            ("paused-replicas", "many", Some(PAUSED_REPLICAS)),
            ("paused-scale-in", "true", None),
            ("paused-scale-out", "true", None),
        ] {
            let annotations = json!({(format!("autoscaling.keda.sh/{key}")): value});
            let scaled_object = "so".to_owned();
            let expected = annotation.map_or(KedaPause::Off, |annotation| KedaPause::On {
                scaled_object,
                annotation,
            });
            let object = json!({"metadata": {"name": "so", "annotations": annotations}});
            let found = StoredScaledObject::decode(object).unwrap().pause;
            assert_eq!(found, expected, "{key}: {value}");
        }
    }
}
