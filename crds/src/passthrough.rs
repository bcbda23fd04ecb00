//! [`Passthrough`]: a field that is read by type, but forwarded as the user wrote it.
//!
//! `metrics` and `behavior` are forwarded to a HorizontalPodAutoscaler. The schema is that of the type, with unknown fields
//! allowed in every object: the API server keeps them, and the service [refuses them by name](crate::KnownFields).

use std::{borrow::Cow, marker::PhantomData};

use derive_where::derive_where;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Most labels (or expressions) one selector may hold.
///
/// Limits the cost of malicious objects: the selector is part of every query.
const MAX_SELECTOR_TERMS: u32 = 16;

/// Longest text, such as the name of a metric: Kubernetes has no limit, and cloud monitoring systems stay below.
const MAX_TEXT: u32 = 1024;

/// Most values of one expression of a selector.
const MAX_VALUES: u32 = 256;

/// A value of type `T` on the wire that keeps fields unknown to `T`.
///
/// ```
/// use foretide_crds::Passthrough;
/// use k8s_openapi::api::autoscaling::v2::MetricSpec;
/// use serde_json::json;
///
/// let raw = json!({ "type": "Resource", "misspelled": 1 });
/// let metric = Passthrough::<MetricSpec>::from_raw(raw.clone());
/// assert_eq!(metric.typed()?.type_, "Resource");
/// assert_eq!(serde_json::to_value(&metric)?, raw);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Guarantees
/// - Serializing returns the JSON that was read.
/// - [`typed`](Self::typed) never changes what is forwarded.
#[derive(Serialize, Deserialize)]
#[derive_where(Clone, Debug, PartialEq)]
#[serde(transparent, bound = "")]
pub struct Passthrough<T> {
    raw: Value,
    // A function, because no `T` is held: `Passthrough<T>` is `Send` and `Sync` even if `T` is not.
    #[derive_where(skip(Debug))]
    type_of_value: PhantomData<fn() -> T>,
}

// === impl Passthrough ===

impl<T> Passthrough<T> {
    /// Wraps JSON without checks.
    pub fn from_raw(raw: Value) -> Self {
        Self {
            raw,
            type_of_value: PhantomData,
        }
    }

    /// Returns the JSON exactly as the user wrote it.
    pub fn raw(&self) -> &Value {
        &self.raw
    }
}

impl<T: DeserializeOwned> Passthrough<T> {
    /// Parses the known fields.
    ///
    /// # Errors
    /// The JSON does not match `T`; the error names the field and the expected type.
    pub fn typed(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.raw)
    }
}

impl<T: JsonSchema> JsonSchema for Passthrough<T> {
    // The schema of a CustomResourceDefinition may not contain `$ref`.
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Passthrough_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        open(schema.ensure_object());
        schema
    }
}

/// Allows unknown fields in every object below `schema`, and limits its selectors and texts.
fn open(schema: &mut Map<String, Value>) {
    let is_text = schema.get("type").is_some_and(|kind| kind == "string");
    let is_listed = schema.contains_key("enum") || schema.contains_key("format");
    if is_text && !is_listed {
        schema.insert("maxLength".to_owned(), MAX_TEXT.into());
    }
    if let Some(Value::Object(values)) = schema.get_mut("additionalProperties") {
        open(values);
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        bound_selector(properties);
        properties
            .values_mut()
            .filter_map(Value::as_object_mut)
            .for_each(open);
        schema.insert(
            "x-kubernetes-preserve-unknown-fields".to_owned(),
            Value::Bool(true),
        );
    }
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        open(items);
    }
}

fn bound_selector(properties: &mut Map<String, Value>) {
    for (selector, keyword) in [
        ("matchLabels", "maxProperties"),
        ("matchExpressions", "maxItems"),
    ] {
        if let Some(Value::Object(schema)) = properties.get_mut(selector) {
            schema.insert(keyword.to_owned(), MAX_SELECTOR_TERMS.into());
        }
    }
    if let Some(Value::Object(schema)) = properties.get_mut("values") {
        schema.insert("maxItems".to_owned(), MAX_VALUES.into());
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::autoscaling::v2::MetricSpec;
    use schemars::generate::SchemaSettings;
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_kept_and_known_ones_are_typed() {
        let written = json!({
            "type": "Resource",
            "resource": {
                "name": "cpu",
                "smoothing": {"seconds": 30},
                "target": {"type": "AverageValue", "averageValue": 2},
            },
        });
        let metric: Passthrough<MetricSpec> = serde_json::from_value(written.clone()).unwrap();
        let resource = metric.typed().unwrap().resource.unwrap();
        assert_eq!(resource.name, "cpu");
        assert_eq!(resource.target.average_value.unwrap().0, "2");
        assert_eq!(serde_json::to_value(&metric).unwrap(), written);
    }

    #[test]
    fn texts_and_lists_of_a_metric_are_bounded() {
        let settings =
            SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
        let schema = Passthrough::<MetricSpec>::json_schema(&mut settings.into_generator());
        let at = |pointer: &str| schema.pointer(pointer).cloned();
        let metric = "/properties/pods/properties/metric/properties";
        let selector = format!("{metric}/selector/properties");
        let (text, values) = (Some(MAX_TEXT.into()), Some(MAX_VALUES.into()));
        assert_eq!(at(&format!("{metric}/name/maxLength")), text);
        let value = format!("{selector}/matchLabels/additionalProperties/maxLength");
        assert_eq!(at(&value), text);
        let list = format!("{selector}/matchExpressions/items/properties/values");
        assert_eq!(at(&format!("{list}/maxItems")), values);
        assert_eq!(at(&format!("{list}/items/maxLength")), text);
    }

    #[test]
    fn a_value_of_the_wrong_type_is_an_error_only_when_parsed() {
        let metric: Passthrough<MetricSpec> =
            serde_json::from_value(json!({"type": "Resource", "resource": "cpu"})).unwrap();
        let error = metric.typed().unwrap_err().to_string();
        assert!(error.contains("expected"), "{error}");
    }
}
