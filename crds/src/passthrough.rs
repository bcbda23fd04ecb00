//! A field that is passed on: typed for those who read it, kept whole for the one who forwards it.
//!
//! `metrics` and `behavior` belong to the Kubernetes autoscaler, which may learn fields after this
//! crate was built. [`Passthrough`] keeps what the user wrote, so that the child autoscaler gets
//! it, and offers the typed view on demand. It refuses to interpret anything by itself. The schema
//! is the type's own with every object open to unknown fields.

use std::{borrow::Cow, fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Most labels (or expressions) one selector may hold.
///
/// A bound against objects made to be expensive: the selector goes out with every query.
const MAX_SELECTOR_TERMS: u32 = 16;

/// A value of type `T` on the wire, with every field of it kept: also those that `T` does not know.
///
/// # Guarantees
/// - Serializing gives back the JSON that was read.
/// - [`typed`](Self::typed) never changes what is forwarded.
pub struct Passthrough<T> {
    raw: Value,
    seen_as: PhantomData<fn() -> T>,
}

// === impl Passthrough ===

impl<T> Passthrough<T> {
    /// Wraps JSON as it is; nothing is checked.
    #[must_use]
    pub fn from_raw(raw: Value) -> Self {
        Self {
            raw,
            seen_as: PhantomData,
        }
    }

    /// Returns the JSON exactly as the user wrote it.
    #[must_use]
    pub fn raw(&self) -> &Value {
        &self.raw
    }
}

impl<T: DeserializeOwned> Passthrough<T> {
    /// Reads the known fields.
    ///
    /// # Errors
    /// The JSON does not fit `T`; the error names the field and what was expected there.
    pub fn typed(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.raw)
    }
}

impl<T: Serialize> Passthrough<T> {
    /// Wraps a typed value.
    ///
    /// # Errors
    /// `T` cannot be written as JSON (the autoscaling/v2 types always can).
    pub fn from_typed(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_value(value).map(Self::from_raw)
    }
}

// Written by hand: derived versions would ask the same of `T`, which is never stored.

impl<T> Clone for Passthrough<T> {
    fn clone(&self) -> Self {
        Self::from_raw(self.raw.clone())
    }
}

impl<T> PartialEq for Passthrough<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> fmt::Debug for Passthrough<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Passthrough").field(&self.raw).finish()
    }
}

impl<T> Serialize for Passthrough<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for Passthrough<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from_raw)
    }
}

impl<T: JsonSchema> JsonSchema for Passthrough<T> {
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

/// Lets unknown fields through in every object below `schema`, and bounds its selectors.
fn open(schema: &mut Map<String, Value>) {
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
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::autoscaling::v2::MetricSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_the_type_does_not_know_survives_and_the_known_ones_are_typed() {
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
    fn a_value_that_does_not_fit_the_type_is_an_error_only_when_it_is_read_as_one() {
        let metric: Passthrough<MetricSpec> =
            serde_json::from_value(json!({"type": "Resource", "resource": "cpu"})).unwrap();
        let error = metric.typed().unwrap_err().to_string();
        assert!(error.contains("expected"), "{error}");
    }
}
