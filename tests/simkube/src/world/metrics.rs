//! metrics-server: the ready pods of an app share its demand evenly, and one cannot use more than four times what it
//! requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use axum::body::Body;
use futures::FutureExt as _;
use http::{Request, Response, header};
use serde_json::{Value, json};

use super::{APP, Demand, is_ready, requests};
use crate::{Now, SimKube};

const API: &str = "metrics.k8s.io/v1beta1";

/// The namespaces about which it does not answer.
pub(super) type Silent = Arc<Mutex<BTreeSet<String>>>;

/// Registers the API, and answers it.
pub(super) fn serve(server: &SimKube, now: Now, demand: Demand, silent: Silent) {
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"name": "metrics-server", "namespace": "kube-system"},
        },
    });
    server.ask(
        "metrics-server",
        "POST",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        &service,
    );
    let pods = server.clone();
    let backend = move |request: Request<Vec<u8>>| {
        let namespace = request.uri().path().split('/').nth(5).unwrap_or_default();
        if silent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(namespace)
        {
            return futures::future::pending().boxed();
        }
        let items = usage(&pods, namespace, &now, &demand);
        let list =
            json!({"kind": "PodMetricsList", "apiVersion": API, "metadata": {}, "items": items});
        let mut response = Response::new(Body::from(list.to_string()));
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        futures::future::ready(response).boxed()
    };
    server.aggregate(API, Arc::new(backend));
}

pub(super) fn usage(server: &SimKube, namespace: &str, now: &Now, demand: &Demand) -> Vec<Value> {
    let now = now();
    let pods = server.objects("pods").into_iter();
    let ready: Vec<_> = pods
        .filter(|pod| pod["metadata"]["namespace"] == namespace && is_ready(pod))
        .collect();
    let app = |pod: &Value| {
        pod["metadata"]["labels"][APP]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for pod in &ready {
        *counts.entry(app(pod)).or_default() += 1;
    }
    let item = |pod: &Arc<Value>| {
        let name = app(pod);
        let share = demand(&name, now) / counts.get(&name).copied().unwrap_or(1);
        let cpu = format!("{}m", share.min(4 * requests(pod)));
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let containers: Vec<_> = containers
            .map(|one| json!({"name": one["name"], "usage": {"cpu": cpu, "memory": "64Mi"}}))
            .collect();
        json!({
            "metadata": {"name": pod["metadata"]["name"], "namespace": namespace, "labels": pod["metadata"]["labels"]},
            "timestamp": now, "window": "15s", "containers": containers,
        })
    };
    ready.iter().map(item).collect()
}
