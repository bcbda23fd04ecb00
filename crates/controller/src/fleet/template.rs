//! The workload that the hub places, as members get it.
//!
//! Pure. The manifest has every field but the replicas and those that belong to one cluster, so that rolling updates
//! are passed on and replicas are left to the HPA. The objects that the workload refers to are named, never copied.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde_json::{Map, Value, json};

use foretide_api::ownership::{FLEET_UID, MANAGED_BY};

/// Annotations that belong to the object that they are on.
const OF_ONE_OBJECT: [&str; 2] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
];

/// The workload as the members get it.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub manifest: Arc<Value>,
    /// Hash of the manifest, which differs whenever the manifest does.
    pub version: u64,
    /// Identity of the hub's object.
    pub uid: String,
    /// The `ConfigMap`s and `Secret`s that it refers to, as `configmap/name`.
    pub references: BTreeSet<String>,
}

// === impl Template ===

impl Template {
    /// The template from the hub's object, for members of the fleet with this UID.
    pub fn of(object: &Value, fleet_uid: &str) -> Self {
        let metadata = &object["metadata"];
        let mut labels = fields(&metadata["labels"]);
        labels.insert("app.kubernetes.io/managed-by".into(), MANAGED_BY.into());
        let mut annotations = fields(&metadata["annotations"]);
        annotations.retain(|key, _| !OF_ONE_OBJECT.contains(&&**key));
        annotations.insert(FLEET_UID.into(), fleet_uid.into());
        let mut spec = fields(&object["spec"]);
        // The HPA owns the count.
        spec.remove("replicas");
        let manifest = json!({
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": annotations,
            },
            "spec": spec,
        });
        let mut hasher = DefaultHasher::new();
        manifest.to_string().hash(&mut hasher);
        let mut references = BTreeSet::new();
        collect(object.pointer("/spec/template/spec"), &mut references);
        Self {
            version: hasher.finish(),
            manifest: Arc::new(manifest),
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            references,
        }
    }

    /// The names of the objects that it refers to, if it refers to any.
    pub fn reference_names(&self) -> Option<String> {
        let names: Vec<_> = self.references.iter().map(String::as_str).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// The fields of an object; none if it is none.
fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Names every `ConfigMap` and `Secret` below a pod's spec, by the fields that refer to one.
fn collect(value: Option<&Value>, found: &mut BTreeSet<String>) {
    match value {
        Some(Value::Object(fields)) => {
            for (field, value) in fields {
                match &**field {
                    "configMap" | "configMapRef" | "configMapKeyRef" => {
                        note("configmap", value.get("name"), found);
                    }
                    "secretRef" | "secretKeyRef" => note("secret", value.get("name"), found),
                    "secret" => {
                        // A volume has `secretName`, a projected one `name`.
                        let name = value.get("secretName").or_else(|| value.get("name"));
                        note("secret", name, found);
                    }
                    "imagePullSecrets" => {
                        for secret in value.as_array().into_iter().flatten() {
                            note("secret", secret.get("name"), found);
                        }
                    }
                    _ => collect(Some(value), found),
                }
            }
        }
        Some(Value::Array(items)) => {
            for item in items {
                collect(Some(item), found);
            }
        }
        _ => {}
    }
}

fn note(kind: &str, name: Option<&Value>, found: &mut BTreeSet<String>) {
    if let Some(name) = name.and_then(Value::as_str) {
        found.insert(format!("{kind}/{name}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_everything_but_counts_and_what_belongs_to_one_cluster() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "hub-1", "resourceVersion": "7",
                "labels": {"team": "a"}, "managedFields": [],
                "annotations": {"deployment.kubernetes.io/revision": "3", "note": "kept"},
            },
            "spec": {"replicas": 0, "strategy": {"type": "Recreate"}, "template": {"spec": {
                "imagePullSecrets": [{"name": "pull"}],
                "volumes": [{"configMap": {"name": "files"}}, {"secret": {"secretName": "tls"}}],
                "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "key"}}}]}],
            }}},
            "status": {"replicas": 3},
        });
        let template = Template::of(&object, "fleet-1");
        let mut spec = object["spec"].clone();
        spec.as_object_mut().unwrap().remove("replicas");
        assert_eq!(
            *template.manifest,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {
                    "name": "web", "namespace": "shop",
                    "labels": {"team": "a", "app.kubernetes.io/managed-by": "foretide"},
                    "annotations": {"note": "kept", (FLEET_UID): "fleet-1"},
                },
                "spec": spec,
            })
        );
        let references: Vec<_> = template.references.iter().map(String::as_str).collect();
        assert_eq!(
            references,
            ["configmap/files", "secret/key", "secret/pull", "secret/tls"]
        );
        let mut scaled = object.clone();
        scaled["spec"]["replicas"] = json!(5);
        scaled["metadata"]["resourceVersion"] = json!("8");
        assert_eq!(Template::of(&scaled, "fleet-1"), template);
    }
}
