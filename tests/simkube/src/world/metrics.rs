//! metrics-server: the ready pods of an app share its demand evenly, and one cannot use more than four times what it
//! requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use axum::body::Body;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response, header};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{APP, Demand, is_ready, requests};
use crate::{Now, SimKube};

const API: &str = "metrics.k8s.io/v1beta1";
const EXTERNAL: &str = "external.metrics.k8s.io/v1beta1";

/// Defects of metrics-server.
#[derive(Debug, Default)]
pub(super) struct Defects {
    /// The namespaces without answers.
    pub(super) silent: BTreeSet<String>,
    /// Age of the answered usage.
    pub(super) age: SignedDuration,
}

/// Registers the API, and answers it.
pub(super) fn serve(server: &SimKube, now: Now, demand: Demand, defects: Arc<Mutex<Defects>>) {
    register(server, "metrics.k8s.io");
    let pods = server.clone();
    let backend = move |request: Request<Vec<u8>>| {
        let namespace = request.uri().path().split('/').nth(5).unwrap_or_default();
        let defects = defects.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_silent, age) = (defects.silent.contains(namespace), defects.age);
        drop(defects);
        if is_silent {
            return futures::future::pending().boxed();
        }
        let items = usage(&pods, namespace, now() - age, &demand);
        answer(
            &json!({"kind": "PodMetricsList", "apiVersion": API, "metadata": {}, "items": items}),
        )
    };
    server.aggregate(API, Arc::new(backend));
}

/// Registers and answers external metrics: that of each name is the demand of the app of this name.
pub(super) fn serve_external(server: &SimKube, now: Now, demand: Demand) {
    register(server, "external.metrics.k8s.io");
    let backend = move |request: Request<Vec<u8>>| {
        let metric = request.uri().path().split('/').nth(6).unwrap_or_default();
        let value = format!("{}m", demand(metric, now()));
        let item =
            json!({"metricName": metric, "metricLabels": {}, "timestamp": now(), "value": value});
        answer(
            &json!({"kind": "ExternalMetricValueList", "apiVersion": EXTERNAL, "metadata": {}, "items": [item]}),
        )
    };
    server.aggregate(EXTERNAL, Arc::new(backend));
}

fn register(server: &SimKube, group: &str) {
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("v1beta1.{group}")},
        "spec": {
            "group": group, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"name": "metrics-server", "namespace": "kube-system"},
        },
    });
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    server.ask("metrics-server", "POST", path, &service);
}

fn answer(list: &Value) -> BoxFuture<'static, Response<Body>> {
    let mut response = Response::new(Body::from(list.to_string()));
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    futures::future::ready(response).boxed()
}

/// The usage of the pods of a namespace at a time. Pods that exist now are assumed to have existed at that time.
pub(super) fn usage(
    server: &SimKube,
    namespace: &str,
    at: Timestamp,
    demand: &Demand,
) -> Vec<Value> {
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
        let share = demand(&name, at) / counts.get(&name).copied().unwrap_or(1);
        let cpu = format!("{}m", share.min(4 * requests(pod)));
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let containers: Vec<_> = containers
            .map(|one| json!({"name": one["name"], "usage": {"cpu": cpu, "memory": "64Mi"}}))
            .collect();
        json!({
            "metadata": {"name": pod["metadata"]["name"], "namespace": namespace, "labels": pod["metadata"]["labels"]},
            "timestamp": at, "window": "15s", "containers": containers,
        })
    };
    ready.iter().map(item).collect()
}
