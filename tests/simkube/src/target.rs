//! The target of a request, and the form that its objects have on the way into the store and out of it.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    kinds::{Kind, Trait},
    request::Place,
    status::Status,
};

/// Target of a request.
pub(crate) struct Target<'a> {
    pub(crate) kind: Arc<Kind>,
    pub(crate) place: &'a Place,
}

// === impl Target ===

impl Target<'_> {
    /// The object in the form of the subresource.
    pub(crate) fn view(&self, object: &Value) -> Value {
        let Some(paths) = self
            .kind
            .scale
            .as_ref()
            .filter(|_| self.place.subresource == "scale")
        else {
            return object.clone();
        };
        let count = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_i64)
                .unwrap_or_default()
        };
        let mut metadata = Map::new();
        for field in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
        ] {
            metadata.insert(field.to_owned(), object["metadata"][field].clone());
        }
        // A count of zero is left out of the spec.
        let spec = Some(count(&paths.spec)).filter(|count| *count != 0);
        let mut status = json!({"replicas": count(&paths.status)});
        let selector = paths
            .selector
            .as_ref()
            .and_then(|pointer| object.pointer(pointer));
        let selector = selector.map(selector_text).filter(|text| !text.is_empty());
        if let Some(selector) = selector {
            status["selector"] = json!(selector);
        }
        json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
            "spec": spec.map_or_else(|| json!({}), |count| json!({"replicas": count})), "status": status,
        })
    }

    /// Fails for a custom object without a count, which has no scale.
    pub(crate) fn check_scale(&self, object: &Value) -> Result<(), Status> {
        match &self.kind.scale {
            Some(paths)
                if self.place.subresource == "scale" && object.pointer(&paths.spec).is_none() =>
            {
                Err(Status::without_count(&paths.spec.replace('/', ".")))
            }
            _ => Ok(()),
        }
    }

    /// The object with the part of `wanted` that this request may change.
    pub(crate) fn part(&self, live: &Value, mut wanted: Value) -> Value {
        let mut object = live.clone();
        match &*self.place.subresource {
            "scale" => {
                let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or_default();
                if let Some(paths) = &self.kind.scale {
                    set(&mut object, &paths.spec, json!(replicas));
                }
            }
            "status" => {
                object["status"] = wanted["status"].take();
                object["metadata"]["managedFields"] = wanted["metadata"]["managedFields"].take();
            }
            _ => {
                for field in [
                    "uid",
                    "creationTimestamp",
                    "deletionTimestamp",
                    "deletionGracePeriodSeconds",
                    "generation",
                    "resourceVersion",
                    "namespace",
                ] {
                    wanted["metadata"][field] = live["metadata"][field].clone();
                }
                if self.kind.has(Trait::Status) {
                    wanted["status"] = live["status"].clone();
                }
                object = wanted;
            }
        }
        object
    }

    /// Fails if a body is not of this kind and place; completes it by the parts of the URL.
    pub(crate) fn check_body(&self, object: &mut Value) -> Result<(), Status> {
        let Self { kind, place } = self;
        let malformed = || Status::bad_request("the body is no object with metadata");
        let fields = object.as_object_mut().ok_or_else(malformed)?;
        let (api_version, name) = if place.subresource == "scale" {
            ("autoscaling/v1".to_owned(), "Scale")
        } else {
            (kind.api_version(), &*kind.kind)
        };
        for (field, expected) in [("apiVersion", &*api_version), ("kind", name)] {
            let found = fields.entry(field).or_insert_with(|| json!(expected));
            if *found != expected {
                return Err(Status::bad_request(format!(
                    "the object provided is unrecognized (must be of type {name}): found {field} {found}, expected {expected}"
                )));
            }
        }
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        let metadata = metadata.as_object_mut().ok_or_else(malformed)?;
        if !place.name.is_empty() {
            metadata.entry("name").or_insert_with(|| json!(place.name));
        }
        if kind.is_namespaced {
            let namespace = metadata
                .entry("namespace")
                .or_insert_with(|| json!(place.namespace));
            if *namespace != *place.namespace {
                let message = "the namespace of the provided object does not match the namespace sent on the request";
                return Err(Status::bad_request(message));
            }
        }
        Ok(())
    }

    /// Brings an object into the form in which it is stored.
    pub(crate) fn complete(&self, object: &mut Value) {
        let kind = &self.kind;
        without_nulls(object);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            let is_empty = |value: &Value| {
                value.as_object().is_some_and(Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty)
            };
            metadata.retain(|_, value| !is_empty(value));
        }
        if !kind.is_custom && object["data"].as_object().is_some_and(Map::is_empty) {
            remove(object, "data");
        }
        if kind.kind == "Secret" {
            encode_texts(object);
        }
        if kind.kind == "Namespace" {
            let name = object["metadata"]["name"].clone();
            set(
                object,
                "/metadata/labels/kubernetes.io~1metadata.name",
                name,
            );
        }
        kind.set_defaults(object);
    }
}

/// The fields whose change is a new generation.
pub(crate) fn specification<'a>(kind: &Kind, object: &'a Value) -> Vec<(&'a String, &'a Value)> {
    let fields = object.as_object().into_iter().flatten();
    let counts = |field: &str| match field {
        "metadata" => false,
        "status" => !kind.has(Trait::Status),
        field => kind.is_custom || field == "spec",
    };
    // Upstream's rule of Deployments.
    let metadata = object["metadata"]
        .as_object()
        .filter(|_| kind.kind == "Deployment");
    let annotations = metadata.and_then(|metadata| metadata.get_key_value("annotations"));
    fields
        .filter(|(field, _)| counts(field))
        .chain(annotations)
        .collect()
}

/// Checks the rules of upstream's validation that requests of the tests could break.
pub(crate) fn validate(target: &Target<'_>, object: &Value) -> Result<(), Status> {
    let Target { kind, place } = target;
    let Some(paths) = &kind.scale else {
        return Ok(());
    };
    match object.pointer(&paths.spec).and_then(Value::as_i64) {
        Some(count @ ..=-1) => {
            let problem = format!("Invalid value: {count}: must be greater than or equal to 0");
            Err(match &*place.subresource {
                "scale" => Status::invalid_scale(&place.name, &problem),
                _ => Status::invalid(kind, &place.name, "spec.replicas", &problem),
            })
        }
        _ => Ok(()),
    }
}

/// A label selector as text.
fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    labels.collect::<Vec<_>>().join(",")
}

/// `stringData` of a Secret is written into its `data`.
fn encode_texts(object: &mut Value) {
    let texts = object
        .as_object_mut()
        .and_then(|fields| fields.remove("stringData"));
    for (key, text) in texts.iter().filter_map(Value::as_object).flatten() {
        let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
        object["data"][key] = json!(encoded);
    }
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Sets the value at a pointer, with the objects on the way to it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for part in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part.replace("~1", "/")];
    }
    *place = value;
}

pub(crate) fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}
