//! The API server's answer to an object, without an API server.
//!
//! [`Rules`] evaluates what a definition says - shape, sizes, and the CEL rules with their messages
//! - on plain JSON. It refuses what the server refuses and nothing more; what only the service can
//! know (time zones, cron fields, `PromQL`) is checked elsewhere. Defaults are applied first, as the
//! server does.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::{
    CustomResourceExt,
    core::cel::{CompiledSchema, Validator, compile_schema},
};
use serde_json::{Map, Value};

use crate::manifests::definition;

/// One thing that the API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, such as `spec.crons[0].start`.
    pub field: String,
    /// What was expected there, and what to do.
    pub message: String,
}

/// The compiled rules of one kind. Compile once, check many.
#[derive(Debug)]
pub struct Rules {
    schema: JSONSchemaProps,
    compiled: CompiledSchema,
}

// === impl Rules ===

impl Rules {
    /// Compiles the rules of a kind.
    #[must_use]
    pub fn of<K: CustomResourceExt>() -> Self {
        let schema = definition::<K>()
            .spec
            .versions
            .into_iter()
            .find_map(|version| version.schema?.open_api_v3_schema)
            .unwrap_or_default();
        let compiled = compile_schema(&serde_json::to_value(&schema).unwrap_or_default());
        Self { schema, compiled }
    }

    /// Everything the API server would refuse in `object`; empty if it would accept it.
    ///
    /// As in the server, the CEL rules are asked only about an object of the right shape.
    #[must_use]
    pub fn check(&self, object: &Value) -> Vec<Violation> {
        let mut object = object.clone();
        drop_nulls(&mut object);
        let mut found = Vec::new();
        shape("", &self.schema, &object, &mut found);
        if !found.is_empty() {
            return found;
        }
        match Validator::new().validate_compiled(&self.compiled, &object, None) {
            Ok(()) => found,
            Err(errors) => errors
                .into_vec()
                .into_iter()
                .map(|e| Violation {
                    field: e.field_path,
                    message: e.message,
                })
                .collect(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Drops members that are null, as the server does where null is not allowed.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Adds what is wrong with the shape of `value`: types, sizes, missing and unknown fields.
fn shape(path: &str, schema: &JSONSchemaProps, value: &Value, found: &mut Vec<Violation>) {
    let mut refuse = |message: String| {
        found.push(Violation {
            field: path.to_owned(),
            message,
        })
    };
    if let Some(expected) = wrong_type(schema, value) {
        return refuse(format!("expected {expected}, found {value}"));
    }
    if let Some(allowed) = schema
        .enum_
        .as_ref()
        .filter(|e| e.iter().all(|v| v.0 != *value))
    {
        let allowed: Vec<_> = allowed.iter().map(|v| v.0.to_string()).collect();
        return refuse(format!(
            "must be one of {}, not {value}",
            allowed.join(", ")
        ));
    }
    match value {
        Value::String(text) => {
            let (most, has) = (schema.max_length, text.chars().count());
            too_much(most, has, "characters")
                .into_iter()
                .for_each(refuse);
        }
        Value::Array(items) => {
            too_much(schema.max_items, items.len(), "items")
                .into_iter()
                .for_each(refuse);
            if let Some(JSONSchemaPropsOrArray::Schema(of)) = &schema.items {
                let each = items.iter().enumerate();
                each.for_each(|(i, item)| shape(&format!("{path}[{i}]"), of, item, found));
            }
        }
        Value::Object(members) => {
            too_much(schema.max_properties, members.len(), "entries")
                .into_iter()
                .for_each(refuse);
            fields(path, schema, members, found);
        }
        _ => {}
    }
}

/// Adds missing and unknown fields, and what is wrong inside the known ones.
fn fields(
    path: &str,
    schema: &JSONSchemaProps,
    members: &Map<String, Value>,
    found: &mut Vec<Violation>,
) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    for name in schema
        .required
        .iter()
        .flatten()
        .filter(|name| !members.contains_key(*name))
    {
        found.push(Violation {
            field: below(name),
            message: "is required".to_owned(),
        });
    }
    let values = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(values.as_ref()),
        _ => None,
    };
    let open = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    for (name, member) in members {
        match (
            schema
                .properties
                .as_ref()
                .and_then(|p| p.get(name))
                .or(values),
            &schema.properties,
        ) {
            (Some(known), _) => shape(&below(name), known, member, found),
            // The server adds what every kind has.
            (None, Some(_)) if !open && !(path.is_empty() && is_common(name)) => {
                let message = "no such field; check the spelling and the indentation".to_owned();
                found.push(Violation {
                    field: below(name),
                    message,
                });
            }
            (None, _) => {}
        }
    }
}

fn is_common(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

fn too_much(most: Option<i64>, has: usize, of_what: &str) -> Option<String> {
    let most = most.filter(|most| usize::try_from(*most).is_ok_and(|most| has > most))?;
    Some(format!("must have at most {most} {of_what}, has {has}"))
}

/// What the schema expects, if `value` is of another type.
fn wrong_type(schema: &JSONSchemaProps, value: &Value) -> Option<&'static str> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        let fits = value.is_string() || value.is_i64() || value.is_u64();
        return (!fits).then_some("an integer or text");
    }
    let (fits, expected) = match schema.type_.as_deref()? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "text (put it in quotes)"),
        "integer" if schema.format.as_deref() == Some("int32") => (
            value.as_i64().is_some_and(|v| i32::try_from(v).is_ok()),
            "a whole number of 32 bits",
        ),
        "integer" => (value.is_i64(), "a whole number"),
        "number" => (value.is_number(), "a number"),
        "boolean" => (value.is_boolean(), "true or false"),
        _ => return None,
    };
    (!fits).then_some(expected)
}
