//! A kind with nothing but a scale, served through the aggregator: `Queue` of `work.example.com/v1`. It shows what a
//! group of scale targets does to others when the server behind it hangs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Json, Router,
    extract::State,
    http::{Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{answer::Failure, start_server};
use crate::{Cluster, Result, tls_server::TlsServer};

const GROUP: &str = "work.example.com";
const VERSION: &str = "v1";

/// A server of scales, registered with one cluster; it ends when dropped (its registration ends with the cluster).
#[derive(Debug)]
pub struct FakeScales {
    scales: Scales,
    hanging: watch::Sender<bool>,
    _server: TlsServer,
}

/// Count and version of each object, by namespace and name.
type Scales = Arc<Mutex<BTreeMap<[String; 2], (i64, u64)>>>;

#[derive(Clone)]
struct Served {
    scales: Scales,
    hanging: watch::Receiver<bool>,
}

impl FakeScales {
    /// The `apiVersion` of a `scaleTargetRef`.
    pub const API_VERSION: &'static str = "work.example.com/v1";
    /// The `kind` of a `scaleTargetRef`.
    pub const KIND: &'static str = "Queue";

    /// Serves the kind to this cluster, and returns when its API server has found it available.
    ///
    /// # Errors
    /// When the server cannot be set up, or the API is not found available.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let scales = Scales::default();
        let (hanging, is_hanging) = watch::channel(false);
        let state = Served {
            scales: Arc::clone(&scales),
            hanging: is_hanging,
        };
        let router = Router::new().fallback(respond).with_state(state);
        let server = start_server(cluster, router).await?;
        let port = server.port();
        let fake = Self {
            scales,
            hanging,
            _server: server,
        };
        cluster.register_api(GROUP, VERSION, port).await?;
        Ok(fake)
    }

    /// Adds an object with this number of replicas.
    pub fn add(&self, namespace: &str, name: &str, replicas: i64) {
        let key = [namespace, name].map(str::to_owned);
        locked(&self.scales).insert(key, (replicas, 1));
    }

    /// The replicas of an object, if there is one.
    #[must_use]
    pub fn replicas(&self, namespace: &str, name: &str) -> Option<i64> {
        let key = [namespace, name].map(str::to_owned);
        locked(&self.scales)
            .get(&key)
            .map(|(replicas, _)| *replicas)
    }

    /// While `hanging`, no request for an object is answered; discovery goes on.
    pub fn hang(&self, hanging: bool) {
        self.hanging.send_replace(hanging);
    }
}

fn locked(scales: &Scales) -> MutexGuard<'_, BTreeMap<[String; 2], (i64, u64)>> {
    scales.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn respond(
    State(mut served): State<Served>,
    method: Method,
    uri: Uri,
    body: String,
) -> Response {
    let parts: Vec<&str> = uri
        .path()
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let answer = match parts.as_slice() {
        ["apis", GROUP, VERSION] => Ok(discovery()),
        [
            "apis",
            GROUP,
            VERSION,
            "namespaces",
            namespace,
            "queues",
            name,
            "scale",
        ] => {
            // The server is dropped with the sender.
            drop(served.hanging.wait_for(|hanging| !hanging).await);
            served.scale(&method, [namespace, name], &body)
        }
        _ => Err(Failure::NotFound(format!("no such path: {}", uri.path()))),
    };
    match answer {
        Ok(found) => (StatusCode::OK, Json(found)).into_response(),
        Err(failure) => (failure.code(), Json(failure.status())).into_response(),
    }
}

impl Served {
    /// The scale of an object, after the change that the request asks for.
    fn scale(&self, method: &Method, key: [&str; 2], body: &str) -> Result<Value, Failure> {
        let [namespace, name] = key;
        let mut scales = locked(&self.scales);
        let missing = || Failure::NotFound(format!("queues \"{name}\" not found"));
        let found = scales.get_mut(&key.map(str::to_owned));
        let (replicas, version) = found.ok_or_else(missing)?;
        if *method != Method::GET {
            let change: Value =
                serde_json::from_str(body).map_err(|no| Failure::BadRequest(no.to_string()))?;
            if let Some(wanted) = change.pointer("/spec/replicas").and_then(Value::as_i64) {
                *replicas = wanted;
                *version += 1;
            }
        }
        Ok(json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {
                "namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"),
                "resourceVersion": version.to_string(),
            },
            "spec": {"replicas": *replicas},
            "status": {"replicas": *replicas, "selector": format!("queue={name}")},
        }))
    }
}

fn discovery() -> Value {
    let resource = |name: &str, kind: &str, verbs: &[&str]| {
        json!({
            "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs,
        })
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": FakeScales::API_VERSION,
        "resources": [
            resource("queues", FakeScales::KIND, &["get"]),
            resource("queues/scale", "Scale", &["get", "patch"]),
        ],
    })
}
