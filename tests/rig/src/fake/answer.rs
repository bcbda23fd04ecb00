//! Turns a request and the table into the JSON of the metric APIs: paths, discovery documents, lists and errors as
//! metrics-server and the adapters write them. Pure; the server is in `mod.rs`.

use std::collections::BTreeMap;

use axum::{
    extract::Query,
    http::{StatusCode, Uri},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{
    MetricsApi,
    table::{PodUsage, Reading, Table},
};

pub(super) type Answer = Result<Value, Failure>;

/// The reason of a failed request, as a Kubernetes `Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    NotFound(String),
    BadRequest(String),
    Internal(String),
}

impl Failure {
    pub(super) const fn code(&self) -> StatusCode {
        match self {
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(super) fn status(&self) -> Value {
        let (reason, message) = match self {
            Self::NotFound(message) => ("NotFound", message),
            Self::BadRequest(message) => ("BadRequest", message),
            Self::Internal(message) => ("InternalError", message),
        };
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": self.code().as_u16(),
        })
    }
}

/// A parsed request.
#[derive(Debug)]
pub(super) struct Request {
    api: MetricsApi,
    /// Parts of the path after `/apis/GROUP/VERSION`.
    path: Vec<String>,
    query: BTreeMap<String, String>,
}

impl Request {
    pub(super) fn parse(uri: &Uri) -> Result<Self, Failure> {
        let unknown = || Failure::NotFound(format!("no such path: {}", uri.path()));
        let parts: Vec<&str> = uri
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        let ["apis", group, version, path @ ..] = parts.as_slice() else {
            return Err(unknown());
        };
        let served = |api: &MetricsApi| api.group_version() == (*group, *version);
        let api = MetricsApi::ALL
            .into_iter()
            .find(served)
            .ok_or_else(unknown)?;
        let query = Query::try_from_uri(uri).map_err(|no| Failure::BadRequest(no.to_string()))?;
        // The HPA controller writes `*` as `%2A`.
        let decode = |part: &&str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let path = path.iter().map(decode).collect();
        Ok(Self {
            api,
            path,
            query: query.0,
        })
    }

    fn parts(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// The selected pods of an answer about pods by label: namespace (none for all) and label selector.
    pub(super) fn pods_wanted(&self) -> Option<(Option<&str>, &str)> {
        let selector = self.parameter("labelSelector");
        match (self.api, self.parts().as_slice()) {
            (MetricsApi::Resource, ["pods"]) => Some((None, selector)),
            (MetricsApi::Resource, ["namespaces", _, "pods", ..])
            | (MetricsApi::Custom, ["namespaces", _, "pods", "*", _]) => {
                Some((self.path.get(1).map(String::as_str), selector))
            }
            _ => None,
        }
    }
}

/// The answer to a request. `pods` are those of [`Request::pods_wanted`].
pub(super) fn answer(request: &Request, table: &Table, pods: &[Pod], now: Timestamp) -> Answer {
    let path = request.parts();
    if path.is_empty() {
        return Ok(discovery(request.api, table));
    }
    let scene = Scene { table, pods, now };
    match (request.api, path.as_slice()) {
        (MetricsApi::Resource, ["nodes"]) => Ok(list("NodeMetricsList", request.api, &[])),
        (MetricsApi::Resource, ["pods"] | ["namespaces", _, "pods"]) => Ok(scene.pod_metrics()),
        (MetricsApi::Resource, ["namespaces", namespace, "pods", name]) => {
            scene.one_pod(namespace, name)
        }
        (MetricsApi::Custom, ["namespaces", namespace, rest @ ..]) => {
            scene.custom(request, namespace, rest)
        }
        (MetricsApi::External, ["namespaces", namespace, metric]) => {
            Ok(scene.external(request, namespace, metric))
        }
        _ => Err(Failure::NotFound(format!(
            "no such path: {}",
            path.join("/")
        ))),
    }
}

/// The data that a reading is answered from.
struct Scene<'a> {
    table: &'a Table,
    pods: &'a [Pod],
    now: Timestamp,
}

impl Scene<'_> {
    fn pod_metrics(&self) -> Value {
        let items = self.pods.iter().filter_map(|pod| {
            let key = (pod.metadata.namespace.clone()?, pod.metadata.name.clone()?);
            let usage = self.table.usage.get(&key);
            let usage = usage.or(self.table.usage_of_others.as_ref());
            usage.map(|usage| self.pod(pod, usage))
        });
        list(
            "PodMetricsList",
            MetricsApi::Resource,
            &items.collect::<Vec<_>>(),
        )
    }

    fn one_pod(&self, namespace: &str, name: &str) -> Answer {
        let named = |pod: &&Pod| pod.metadata.name.as_deref() == Some(name);
        let usage = self
            .table
            .usage
            .get(&(namespace.to_owned(), name.to_owned()));
        match (self.pods.iter().find(named), usage) {
            (Some(pod), Some(usage)) => Ok(self.pod(pod, usage)),
            _ => Err(Failure::NotFound(format!(
                "podmetrics \"{namespace}/{name}\" not found"
            ))),
        }
    }

    fn pod(&self, pod: &Pod, usage: &PodUsage) -> Value {
        let containers = usage.containers.iter().map(
            |(name, (cpu, memory))| json!({"name": name, "usage": {"cpu": cpu, "memory": memory}}),
        );
        let taken = whole_seconds(self.now);
        json!({
            "kind": "PodMetrics",
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {
                "name": pod.metadata.name,
                "namespace": pod.metadata.namespace,
                "labels": pod.metadata.labels,
                "creationTimestamp": taken,
            },
            "timestamp": taken,
            "window": "10s",
            "containers": containers.collect::<Vec<_>>(),
        })
    }

    fn custom(&self, request: &Request, namespace: &str, rest: &[&str]) -> Answer {
        let (resource, name, metric) = match rest {
            ["metrics", metric] => ("namespaces", namespace, *metric),
            [resource, name, metric] => (*resource, *name, *metric),
            _ => {
                return Err(Failure::BadRequest(
                    "expected RESOURCE/NAME/METRIC".to_owned(),
                ));
            }
        };
        let names: Vec<&str> = match name {
            "*" => self
                .pods
                .iter()
                .filter_map(|pod| pod.metadata.name.as_deref())
                .collect(),
            name => vec![name],
        };
        let wanted = request.parameter("metricLabelSelector");
        let items = names.into_iter().filter_map(|name| {
            let key = [namespace, resource, name, metric].map(str::to_owned);
            let reading = self.table.custom.get(&key)?;
            matches(wanted, &reading.labels)
                .then(|| self.metric_value([namespace, resource, name, metric], reading))
        });
        let items: Vec<Value> = items.collect();
        if items.is_empty() && name != "*" {
            let message = format!("the server could not find the metric {metric} for {resource}");
            return Err(Failure::NotFound(format!("{message} {name}")));
        }
        Ok(list("MetricValueList", MetricsApi::Custom, &items))
    }

    fn metric_value(&self, key: [&str; 4], reading: &Reading) -> Value {
        let [namespace, resource, name, metric] = key;
        json!({
            "describedObject": {"kind": kind(resource), "namespace": namespace, "name": name},
            "metric": {"name": metric, "selector": null},
            "timestamp": whole_seconds(self.now),
            "value": reading.value,
        })
    }

    fn external(&self, request: &Request, namespace: &str, metric: &str) -> Value {
        let key = (namespace.to_owned(), metric.to_owned());
        let wanted = request.parameter("labelSelector");
        let all = self.table.external.get(&key).into_iter().flatten();
        let items = all
            .filter(|reading| matches(wanted, &reading.labels))
            .map(|one| {
                json!({
                    "metricName": metric,
                    "metricLabels": one.labels,
                    "timestamp": whole_seconds(self.now),
                    "value": one.value,
                })
            });
        list(
            "ExternalMetricValueList",
            MetricsApi::External,
            &items.collect::<Vec<_>>(),
        )
    }
}

/// Returns whether the labels have each value of a selector, which names values only (`a=b,c=d`).
fn matches(selector: &str, labels: &BTreeMap<String, String>) -> bool {
    let mut required = selector.split(',').filter_map(|one| one.split_once('='));
    required.all(|(name, value)| labels.get(name).is_some_and(|label| label == value))
}

fn list(kind: &str, api: MetricsApi, items: &[Value]) -> Value {
    let (group, version) = api.group_version();
    json!({
        "kind": kind, "apiVersion": format!("{group}/{version}"), "metadata": {},
        "items": items,
    })
}

/// The `APIResourceList` of an API. Every entry is namespaced: one resource served in both scopes
/// breaks the aggregator's conversion.
fn discovery(api: MetricsApi, table: &Table) -> Value {
    let resource = |name: &str, kind: &str, verbs: &[&str]| {
        json!({
            "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs,
        })
    };
    let resources: BTreeMap<String, Value> = match api {
        MetricsApi::Resource => {
            let pods = resource("pods", "PodMetrics", &["get", "list"]);
            BTreeMap::from([("pods".to_owned(), pods)])
        }
        MetricsApi::Custom => table
            .custom
            .keys()
            .map(|[_, object, _, metric]| format!("{object}/{metric}"))
            .map(|name| (name.clone(), resource(&name, "MetricValueList", &["get"])))
            .collect(),
        MetricsApi::External => table
            .external
            .keys()
            .map(|(_, name)| {
                (
                    name.clone(),
                    resource(name, "ExternalMetricValueList", &["get"]),
                )
            })
            .collect(),
    };
    let (group, version) = api.group_version();
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{group}/{version}"),
        "resources": resources.into_values().collect::<Vec<_>>(),
    })
}

/// Kubernetes writes times in whole seconds.
fn whole_seconds(instant: Timestamp) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The kind of a resource; clients read the name only.
fn kind(resource: &str) -> &str {
    match resource.split('.').next().unwrap_or_default() {
        "pods" => "Pod",
        "services" => "Service",
        "namespaces" => "Namespace",
        "deployments" => "Deployment",
        "statefulsets" => "StatefulSet",
        "ingresses" => "Ingress",
        other => other,
    }
}
