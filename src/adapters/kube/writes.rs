//! The requests that change the cluster, and the scale subresource that goes with them.
//!
//! Replicas: a merge patch of the scale that carries the version the decision was made from, so that
//! anybody else's change in between makes it fail. Objects and status of our own: server-side apply,
//! forced, as field manager `foretide`. Deletions name the UID they mean. Nothing here is repeated.

use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    adapters::api_server::{Body, CallError, Calls, Resource, query},
    clock::Clock,
    domain::{Replicas, observation::Scale},
    ports::{ClusterError, EventNote, ScaleView},
};

/// Who we are to the API server: owner of fields, reporter of events.
const MANAGER: &str = "foretide";

/// `note` of an event, by events.k8s.io/v1.
const LONGEST_NOTE: usize = 1024;

#[derive(Deserialize)]
struct ScaleObject {
    metadata: ScaleMeta,
    spec: Option<ScaleSpec>,
    status: Option<ScaleStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScaleMeta {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
}

#[derive(Deserialize)]
struct ScaleSpec {
    replicas: Option<i32>,
}

#[derive(Deserialize)]
struct ScaleStatus {
    replicas: Option<i32>,
    selector: Option<String>,
}

/// Fetches a scale subresource.
pub(super) async fn read_scale(calls: &Calls, path: &str) -> Result<ScaleView, CallError> {
    calls.read::<ScaleObject>(path).await.map(ScaleView::from)
}

/// Sets the replicas of a scale subresource, if it still is at `version`; gives what was accepted.
pub(super) async fn write_scale(
    calls: &Calls,
    path: &str,
    version: &str,
    replicas: Replicas,
) -> Result<Replicas, CallError> {
    if version.is_empty() {
        return Err(CallError::Request(
            "the scale was seen without a resourceVersion".to_owned(),
        ));
    }
    let change = json!({
        "metadata": {"resourceVersion": version},
        "spec": {"replicas": replicas.as_i32()},
    });
    let url = format!("{path}{}", query(&[("fieldManager", MANAGER)]));
    let scale: ScaleObject = calls
        .write(Method::PATCH, &url, Body::merge_patch(&change))
        .await?;
    Ok(ScaleView::from(scale).scale.spec)
}

/// Applies a whole manifest with force; gives how a message names it, and what the server stored.
pub(super) async fn apply(
    calls: &Calls,
    resource: Resource,
    manifest: &Value,
) -> Result<(String, Value), ClusterError> {
    let text = |pointer| {
        manifest
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let what = resource.shown(namespace, name);
    let applied = match resource.object(namespace, name) {
        Ok(path) => apply_at(calls, &path, manifest).await,
        Err(error) => Err(error),
    };
    match applied {
        Ok(answer) => Ok((what, answer)),
        Err(error) => Err(error.about(what)),
    }
}

/// Applies the whole status of an object with force.
pub(super) async fn apply_status(
    calls: &Calls,
    resource: Resource,
    (namespace, name): (&str, &str),
    status: &(impl Serialize + Sync),
) -> Result<(), ClusterError> {
    let manifest = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"namespace": namespace, "name": name},
        "status": status,
    });
    let applied = match resource.object(namespace, name) {
        Ok(path) => apply_at(calls, &format!("{path}/status"), &manifest).await,
        Err(error) => Err(error),
    };
    match applied {
        Ok(_stored) => Ok(()),
        Err(error) => Err(error.about(format!("status of {}", resource.shown(namespace, name)))),
    }
}

/// Applies a whole manifest at a path with force.
pub(super) async fn apply_at(
    calls: &Calls,
    path: &str,
    manifest: &Value,
) -> Result<Value, CallError> {
    let parameters = query(&[("fieldManager", MANAGER), ("force", "true")]);
    let url = format!("{path}{parameters}");
    calls
        .write(Method::PATCH, &url, Body::apply(manifest))
        .await
}

/// Sends a JSON patch of one object.
pub(super) async fn patch(
    calls: &Calls,
    resource: Resource,
    (namespace, name): (&str, &str),
    operations: &Value,
) -> Result<Value, CallError> {
    let path = resource.object(namespace, name)?;
    let url = format!("{path}{}", query(&[("fieldManager", MANAGER)]));
    calls
        .write(Method::PATCH, &url, Body::json_patch(operations))
        .await
}

/// Deletes one object if it still has this UID; one that is gone already is as good.
pub(super) async fn delete(
    calls: &Calls,
    resource: Resource,
    (namespace, name): (&str, &str),
    uid: &str,
) -> Result<(), ClusterError> {
    let deleted = match resource.object(namespace, name) {
        Ok(path) => delete_at(calls, &path, uid).await,
        Err(error) => Err(error),
    };
    deleted.map_err(|error| error.about(resource.shown(namespace, name)))
}

/// Deletes the object at a path if it still has this UID; one that is gone already is as good.
pub(super) async fn delete_at(calls: &Calls, path: &str, uid: &str) -> Result<(), CallError> {
    let options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    let deleted = calls.write::<Value>(Method::DELETE, path, Body::json(&options));
    match deleted.await {
        Ok(_deleted) => Ok(()),
        Err(error) if error.is_status(404) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Records an event about an autoscaler.
pub(super) async fn emit(
    calls: &Calls,
    (kind, about): (Resource, &ObjectMeta),
    event: &EventNote,
) -> Result<(), ClusterError> {
    let namespace = about.namespace.as_deref().unwrap_or_default();
    let name = about.name.as_deref().unwrap_or_default();
    let body = event_body(kind, about, event);
    let created = match Resource::EVENT.collection(Some(namespace)) {
        Ok(path) => {
            calls
                .write::<Value>(Method::POST, &path, Body::json(&body))
                .await
        }
        Err(error) => Err(error),
    };
    match created {
        Ok(_event) => Ok(()),
        Err(error) => Err(error.about(format!("event about {}", kind.shown(namespace, name)))),
    }
}

fn event_body(kind: Resource, about: &ObjectMeta, event: &EventNote) -> Value {
    let name = about.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": Resource::EVENT.api_version,
        "kind": Resource::EVENT.kind,
        "metadata": {
            "namespace": about.namespace,
            "generateName": format!("{}-", cut(name, 200)),
        },
        "eventTime": format!("{:.6}", Clock::system().now()),
        "reportingController": MANAGER,
        "reportingInstance": MANAGER,
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "action": event.action,
        "note": cut(&event.note, LONGEST_NOTE),
        "regarding": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
        },
    })
}

/// The longest beginning of `text` that has at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

impl From<ScaleObject> for ScaleView {
    fn from(
        ScaleObject {
            metadata,
            spec,
            status,
        }: ScaleObject,
    ) -> Self {
        let asked = spec.and_then(|spec| spec.replicas).unwrap_or(0);
        let (existing, selector) =
            status.map_or((None, None), |status| (status.replicas, status.selector));
        Self {
            scale: Scale {
                spec: Replicas::from_i32(asked),
                status: Replicas::from_i32(existing.unwrap_or(0)),
            },
            selector: selector.unwrap_or_default(),
            resource_version: metadata.resource_version,
            uid: metadata.uid,
            template: None,
        }
    }
}
