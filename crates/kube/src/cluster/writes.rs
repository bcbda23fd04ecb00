//! Requests that change objects, and the scale subresource.
//!
//! | what | how |
//! |---|---|
//! | replicas | merge patch of the scale with the `resourceVersion` that the decision was made from. After a conflict, once more: JSON patch that tests the UID and the count of the decision, because the status of a target whose pods crash changes with every crash |
//! | our objects | server-side apply, forced, as field manager `foretide`; with the UID and the `resourceVersion` where the manifest has them: the API server refuses it if the object is another one or has changed |
//! | statuses | JSON patch that tests the UID, and nothing else, because every edit of a spec changes the version. An apply would not do: of a custom resource's status the API server ignores `metadata` |
//! | deletion | with the UID as a precondition |
//!
//! A write is sent once: the next sync sees whether it took effect.

use foretide_domain::{Replicas, observation::Scale};
use http::Method;
use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::v1::Scale as ScaleObject, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::decode::text_at;
use crate::api_server::{About as _, Body, CallError, Calls, ObjectPath, Resource, query};
use foretide_api::ports::{ClusterError, EventNote, ScaleView};

/// Field manager of what we write, and controller of the events we create.
const MANAGER: &str = "foretide";

/// Maximum size of the `note` of an event in events.k8s.io/v1.
const NOTE_MAX: usize = 1024;

/// A field of a status, and its new value.
#[derive(Debug, Clone)]
pub struct StatusField<'a> {
    /// The name, as the API spells it.
    pub name: &'a str,
    pub value: Value,
}

/// Gets a scale subresource.
pub async fn read_scale(calls: &Calls, path: &str) -> Result<ScaleView, CallError> {
    calls.read(path).await.map(scale_view)
}

/// Sets the replicas of a scale subresource if it still has the version that was `seen`, or else the UID and the count;
/// returns the scale as it is stored.
pub async fn write_scale(
    calls: &Calls,
    path: &str,
    seen: &ScaleView,
    replicas: Replicas,
) -> Result<ScaleView, CallError> {
    // Without a version and a UID the patches would not be conditional.
    for (field, value) in [
        ("resourceVersion", &seen.resource_version),
        ("uid", &seen.uid),
    ] {
        if value.is_empty() {
            return Err(CallError::Request(format!("the scale has no {field}")));
        }
    }
    let url = format!("{path}{}", query(&[("fieldManager", MANAGER)]));
    let change = json!({
        "metadata": {"resourceVersion": seen.resource_version},
        "spec": {"replicas": replicas.as_i32()},
    });
    let written = calls.write(Method::PATCH, &url, Body::merge_patch(&change));
    let conflict = match written.await {
        Ok(written) => return Ok(scale_view(written)),
        Err(error) if error.is_status(409) => error,
        Err(error) => return Err(error),
    };
    let path = "/spec/replicas";
    // A scale omits a zero, and a missing field equals null.
    let count = Some(seen.scale.spec.as_i32()).filter(|count| *count != 0);
    let change = json!([
        {"op": "test", "path": "/metadata/uid", "value": seen.uid},
        {"op": "test", "path": path, "value": count},
        {"op": "add", "path": path, "value": replicas.as_i32()},
    ]);
    let written = calls.write(Method::PATCH, &url, Body::json_patch(&change));
    match written.await {
        Ok(written) => Ok(scale_view(written)),
        // A test that fails: another writer has changed the count, or the target was created again.
        Err(error) if error.is_status(422) => Err(conflict),
        Err(error) => Err(error),
    }
}

/// The object that a manifest describes.
pub fn object_of(resource: Resource, manifest: &Value) -> ObjectPath<'_> {
    resource.object(
        text_at(manifest, "/metadata/namespace"),
        text_at(manifest, "/metadata/name"),
    )
}

/// Applies a manifest; returns the stored object.
pub async fn apply(
    calls: &Calls,
    object: ObjectPath<'_>,
    manifest: &Value,
) -> Result<Value, ClusterError> {
    let applied = async { apply_at(calls, &object.path()?, manifest).await };
    applied.await.about(object)
}

/// Replaces the status of an object, if it still has this UID and nothing at `absent`, a JSON pointer.
pub async fn write_status(
    calls: &Calls,
    object: ObjectPath<'_>,
    uid: &str,
    absent: Option<&str>,
    status: &(impl Serialize + Sync),
) -> Result<(), ClusterError> {
    // A missing field equals null.
    let test = absent.map(|path| json!({"op": "test", "path": path, "value": null}));
    // "add" replaces what is there (RFC 6902, 4.1), and "replace" would fail on an object without a status.
    let change = json!({"op": "add", "path": "/status", "value": status});
    patch_status(calls, object, uid, test.into_iter().chain([change])).await
}

/// Replaces one field of the status of an object that has a status, if it still has this UID.
pub async fn write_status_field(
    calls: &Calls,
    object: ObjectPath<'_>,
    uid: &str,
    field: StatusField<'_>,
) -> Result<(), ClusterError> {
    let StatusField { name, value } = field;
    let path = format!("/status/{name}");
    let change = json!({"op": "add", "path": path, "value": value});
    patch_status(calls, object, uid, [change]).await
}

async fn patch_status(
    calls: &Calls,
    object: ObjectPath<'_>,
    uid: &str,
    changes: impl IntoIterator<Item = Value>,
) -> Result<(), ClusterError> {
    let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": uid})];
    operations.extend(changes);
    let operations = Value::from(operations);
    let writing = async {
        let parameters = query(&[("fieldManager", MANAGER)]);
        let url = format!("{}/status{parameters}", object.path()?);
        let body = Body::json_patch(&operations);
        calls.write::<Value>(Method::PATCH, &url, body).await
    };
    let what = format!("status of {object}");
    writing.await.map(drop).about(what)
}

/// Applies a manifest at a path; returns the stored object.
pub async fn apply_at(calls: &Calls, path: &str, manifest: &Value) -> Result<Value, CallError> {
    // Forced: otherwise a field that another manager took over fails every later write.
    let parameters = query(&[("fieldManager", MANAGER), ("force", "true")]);
    let url = format!("{path}{parameters}");
    calls
        .write(Method::PATCH, &url, Body::apply(manifest))
        .await
}

/// Sends a JSON patch of an object; returns the stored object.
pub async fn patch(
    calls: &Calls,
    object: ObjectPath<'_>,
    operations: &Value,
) -> Result<Value, ClusterError> {
    let patched = async {
        let url = format!("{}{}", object.path()?, query(&[("fieldManager", MANAGER)]));
        let body = Body::json_patch(operations);
        calls.write(Method::PATCH, &url, body).await
    };
    patched.await.about(object)
}

/// Deletes an object if it has this UID; succeeds if the object is gone already.
pub async fn delete(calls: &Calls, object: ObjectPath<'_>, uid: &str) -> Result<(), ClusterError> {
    let deleted = async { delete_at(calls, &object.path()?, uid).await };
    deleted.await.about(object)
}

/// Deletes the object at a path if it has this UID; succeeds if the object is gone already.
pub async fn delete_at(calls: &Calls, path: &str, uid: &str) -> Result<(), CallError> {
    let options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    let deleted = calls.write::<Value>(Method::DELETE, path, Body::json(&options));
    match deleted.await {
        Ok(_deleted) => Ok(()),
        // An object that is already gone needs no deletion.
        Err(error) if error.is_status(404) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates an event about an object of ours.
pub async fn emit(
    calls: &Calls,
    resource: Resource,
    about: &ObjectMeta,
    event: &EventNote,
) -> Result<(), ClusterError> {
    let namespace = about.namespace.as_deref().unwrap_or_default();
    let name = about.name.as_deref().unwrap_or_default();
    let body = event_body(resource, about, event, calls.clock().now());
    let creating = async {
        let path = Resource::EVENT.collection(Some(namespace))?;
        let body = Body::json(&body);
        calls.write::<Value>(Method::POST, &path, body).await
    };
    let what = format!("event about {}", resource.object(namespace, name));
    creating.await.map(drop).about(what)
}

fn event_body(resource: Resource, about: &ObjectMeta, event: &EventNote, now: Timestamp) -> Value {
    let name = about.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": Resource::EVENT.api_version,
        "kind": Resource::EVENT.kind,
        "metadata": {
            "namespace": about.namespace,
            // Leaves room for the suffix of the API server, within 253 characters.
            "generateName": format!("{}-", truncate(name, 200)),
        },
        // A MicroTime has six decimals.
        "eventTime": format!("{now:.6}"),
        "reportingController": MANAGER,
        "reportingInstance": MANAGER,
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "action": event.action,
        "note": truncate(&event.note, NOTE_MAX),
        "regarding": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
        },
    })
}

/// The longest prefix of `text` that has at most `bytes` bytes.
fn truncate(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

fn scale_view(object: ScaleObject) -> ScaleView {
    let spec = object.spec.and_then(|spec| spec.replicas);
    let status = object.status.unwrap_or_default();
    ScaleView {
        scale: Scale {
            spec: Replicas::from_i32(spec.unwrap_or(0)),
            status: Replicas::from_i32(status.replicas),
        },
        selector: status.selector.unwrap_or_default(),
        resource_version: object.metadata.resource_version.unwrap_or_default(),
        uid: object.metadata.uid.unwrap_or_default(),
        ..ScaleView::default()
    }
}
