//! JSON Schemas of manifests, for editors; generated from the definitions and committed in `docs/schema`.
//!
//! They have what an editor shows while one writes: names, types, listed values and descriptions. The CEL rules are left
//! to `foretide validate`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// The version of JSON Schema that editors support.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// The JSON Schema of a manifest of a kind.
///
/// ```
/// use foretide_crds::{FederatedHPA, definition, json_schema};
///
/// let schema = json_schema(&definition::<FederatedHPA>());
/// assert_eq!(schema["properties"]["kind"]["const"], "FederatedHPA");
/// ```
pub fn json_schema(definition: &CustomResourceDefinition) -> Value {
    let (spec, names) = (&definition.spec, &definition.spec.names);
    let version = spec.versions.first();
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let schema = serde_json::to_value(schema).unwrap_or_default();
    let api_version = version.map(|version| format!("{}/{}", spec.group, version.name));
    json!({
        "$schema": DRAFT,
        "title": names.kind,
        "description": schema["description"],
        "type": "object",
        "properties": {
            "apiVersion": { "const": api_version },
            "kind": { "const": names.kind },
            "metadata": { "type": "object" },
            "spec": for_editors(schema.pointer("/properties/spec").cloned()),
            // Written by the controller, so nobody types it.
            "status": { "type": "object" },
        },
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": false,
    })
}

/// A schema without the words of the API server, which refuses fields that it does not know as soon as it knows any.
fn for_editors(schema: Option<Value>) -> Value {
    let Some(Value::Object(mut schema)) = schema else {
        return Value::Bool(true);
    };
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        schema.insert("type".to_owned(), json!(["integer", "string"]));
    }
    schema.retain(|word, _| !word.starts_with("x-kubernetes-"));
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            *property = for_editors(Some(property.take()));
        }
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    for word in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(word).filter(|inner| inner.is_object()) {
            *inner = for_editors(Some(inner.take()));
        }
    }
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::definitions;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "UPDATE is a switch of this test alone"
    )]
    fn the_committed_schemas_match_the_definitions() {
        let update = std::env::var("UPDATE").is_ok_and(|v| v == "1");
        for definition in definitions() {
            let name = format!("{}.json", definition.spec.names.kind.to_lowercase());
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../docs/schema")
                .join(&name);
            let made = format!("{:#}\n", json_schema(&definition));
            if update {
                std::fs::write(&path, &made).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                made == committed,
                "{name} is stale; run UPDATE=1 cargo test -p foretide-crds"
            );
        }
    }

    #[test]
    fn an_editor_knows_types_values_and_names_and_no_words_of_the_server() {
        let [ehpa, ..] = definitions();
        let schema = json_schema(&ehpa);
        let at = |pointer: &str| schema.pointer(&format!("/properties{pointer}"));
        let spec = "/spec/properties";
        assert_eq!(
            at("/apiVersion/const").unwrap(),
            "autoscaling.crane.io/v1alpha1"
        );
        assert_eq!(
            at(&format!("{spec}/scaleStrategy/enum")).unwrap(),
            &json!(["Auto", "Preview"])
        );
        assert_eq!(
            at(&format!("{spec}/crons/items/additionalProperties")).unwrap(),
            false
        );
        assert_eq!(at(&format!("{spec}/maxReplicas/type")).unwrap(), "integer");
        // Kept, so that the controller can name them.
        assert_eq!(
            at(&format!("{spec}/metrics/items/additionalProperties")).unwrap(),
            false
        );
        let value = "metrics/items/properties/resource/properties/target/properties/averageValue";
        assert_eq!(
            at(&format!("{spec}/{value}/type")).unwrap(),
            &json!(["integer", "string"])
        );
        assert!(!schema.to_string().contains("x-kubernetes"));
    }
}
