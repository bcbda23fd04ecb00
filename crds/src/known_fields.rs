//! [`KnownFields`]: the fields that a type of Kubernetes has, and those of a value that it does not have.
//!
//! The definitions keep unknown fields below `metrics` and `behavior`, so that the service can refuse them by name. What
//! is known is the schema of the type as this crate is compiled with it: that of the oldest Kubernetes that is supported,
//! so every API server knows these fields too.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use schemars::JsonSchema;
use serde_json::Value;

use crate::rules::{Violation, below, items, property, schema_of};

/// The fields of one type, and of the types inside it.
///
/// ```
/// use foretide_crds::KnownFields;
/// use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
/// use serde_json::json;
///
/// let known = KnownFields::of::<HorizontalPodAutoscalerBehavior>();
/// let unknown = known.unknown("spec.behavior", &json!({"scaleUp": {"tolerances": "0.1"}}));
/// assert_eq!(unknown[0].field, "spec.behavior.scaleUp.tolerances");
/// assert_eq!(
///     unknown[0].message,
///     "policies, selectPolicy, stabilizationWindowSeconds, tolerance (did you mean tolerance?)"
/// );
/// ```
#[derive(Debug)]
pub struct KnownFields(JSONSchemaProps);

// === impl KnownFields ===

impl KnownFields {
    /// The fields of `T`.
    pub fn of<T: JsonSchema>() -> Self {
        Self(schema_of::<T>())
    }

    /// The fields of `value`, which stands at `path`, that the type does not have; not those inside them. The messages are
    /// the names of the fields that may stand there.
    pub fn unknown(&self, path: &str, value: &Value) -> Vec<Violation> {
        let mut found = Vec::new();
        collect(path, &self.0, value, &mut found);
        found
    }
}

fn collect(path: &str, schema: &JSONSchemaProps, value: &Value, found: &mut Vec<Violation>) {
    if let Some(members) = value.as_object() {
        for (name, member) in members {
            let field = below(path, name);
            match property(schema, name) {
                Some(known) => collect(&field, known, member, found),
                None => found.push(Violation {
                    field,
                    message: expected(schema, name),
                }),
            }
        }
    }
    if let (Some(values), Some(items)) = (value.as_array(), items(schema)) {
        for (i, value) in values.iter().enumerate() {
            collect(&format!("{path}[{i}]"), items, value, found);
        }
    }
}

/// The fields of an object, and the one that was probably meant by another name.
fn expected(schema: &JSONSchemaProps, unknown: &str) -> String {
    let fields = schema.properties.iter().flat_map(|fields| fields.keys());
    let names: Vec<&str> = fields.map(String::as_str).collect();
    let hint = match names.iter().max_by_key(|name| in_common(name, unknown)) {
        Some(near) if 2 * in_common(near, unknown) >= near.len().max(unknown.len()) => {
            format!(" (did you mean {near}?)")
        }
        _ => String::new(),
    };
    format!("{}{hint}", names.join(", "))
}

/// Number of bytes that two names have in common at their beginnings and at their ends, in either case.
fn in_common(one: &str, other: &str) -> usize {
    alike(one.bytes(), other.bytes()) + alike(one.bytes().rev(), other.bytes().rev())
}

/// Number of bytes before the first that differs, in either case.
fn alike(one: impl Iterator<Item = u8>, other: impl Iterator<Item = u8>) -> usize {
    one.zip(other)
        .take_while(|(one, other)| one.eq_ignore_ascii_case(other))
        .count()
}
