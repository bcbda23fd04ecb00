//! One function per path.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::{StatusCode, Uri},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    MetricApi, MetricSources,
    custom::PodsRequest,
    discovery,
    external::ExternalMetric,
    pass_through,
    target::{TargetSelector, by_uid},
};
use crate::failure::Failure;
use foretide_api::ports::{Autoscalers, PodLister, UpstreamAdapter};
use foretide_api::published::{CRON_METRIC, POD_CPU_METRIC, PREDICTION_METRIC};
use foretide_base::error::chain;

type Answer = Result<Json<Value>, Failure>;
type Sources<A, P, U> = State<Arc<MetricSources<A, P, U>>>;
type Parts<T> = Result<Path<T>, PathRejection>;
type Parameters = Result<Query<BTreeMap<String, String>>, QueryRejection>;

/// The parts of the path of a metric in a namespace.
#[derive(Debug, Deserialize)]
pub struct NamespacePath {
    namespace: String,
    metric: String,
}

/// The parts of the path of a metric of an object.
#[derive(Debug, Deserialize)]
pub struct ObjectPath {
    namespace: Option<String>,
    resource: String,
    name: String,
    metric: String,
}

/// The selectors of a request.
struct Selectors {
    label: String,
    metric_label: String,
}

// === impl Selectors ===

impl Selectors {
    fn of(parameters: Parameters) -> Result<Self, Failure> {
        let Query(mut parameters) =
            parameters.map_err(|error| Failure::bad_request(error.body_text()))?;
        let [label, metric_label] = ["labelSelector", "metricLabelSelector"]
            .map(|key| parameters.remove(key).unwrap_or_default());
        Ok(Self {
            label,
            metric_label,
        })
    }

    fn pairs(&self) -> [(&'static str, &str); 2] {
        [
            ("labelSelector", &self.label),
            ("metricLabelSelector", &self.metric_label),
        ]
    }
}

// === impl MetricSources ===

impl<A: Autoscalers, P: PodLister, U: UpstreamAdapter> MetricSources<A, P, U> {
    /// Fails until a complete list of the autoscalers has been read.
    fn synced(&self) -> Result<&A, Failure> {
        if self.autoscalers.is_synced() {
            Ok(&self.autoscalers)
        } else {
            Err(Failure::unavailable(
                "the list of EffectiveHorizontalPodAutoscalers is not complete yet",
            ))
        }
    }

    async fn external(&self, path: &NamespacePath, selectors: &Selectors) -> Answer {
        let NamespacePath { namespace, metric } = path;
        let Some(ours) = ExternalMetric::of_name(metric) else {
            let path = vec![
                MetricApi::External.group(),
                "v1beta1",
                "namespaces",
                namespace,
                metric,
            ];
            return self.passed_on(path, selectors).await;
        };
        let target = TargetSelector::parse(namespace, &selectors.label)?;
        let objects = self.synced()?.of_namespace(namespace);
        let object = target.select(namespace, &objects)?;
        ours.list(&target, &object, self.clock.now()).map(Json)
    }

    async fn custom(&self, version: &str, path: &ObjectPath, selectors: &Selectors) -> Answer {
        match &path.namespace {
            Some(namespace) if path.metric == POD_CPU_METRIC && path.resource == "pods" => {
                let request = PodsRequest {
                    version,
                    namespace,
                    pod: &path.name,
                    label_selector: &selectors.label,
                    metric_label_selector: &selectors.metric_label,
                };
                self.by_pod(&request).await
            }
            _ if path.metric == POD_CPU_METRIC => Err(pods_only(&path.resource)),
            namespace => {
                let mut parts = vec![MetricApi::Custom.group(), version];
                parts.extend(
                    namespace
                        .iter()
                        .flat_map(|name| ["namespaces", name.as_str()]),
                );
                parts.extend([&*path.resource, &*path.name, &*path.metric]);
                self.passed_on(parts, selectors).await
            }
        }
    }

    async fn by_pod(&self, request: &PodsRequest<'_>) -> Answer {
        let uid = request.autoscaler_uid()?;
        let selector = request.pod_selector()?;
        let objects = self.synced()?.of_namespace(request.namespace);
        let object = by_uid(&uid, request.namespace, &objects)?;
        let pods = self
            .pods
            .list_pods(request.namespace, selector)
            .await
            .map_err(|error| Failure::unavailable(chain(&error)))?;
        request.list(&object, &pods, self.clock.now()).map(Json)
    }

    /// The answer of the other adapter to a request for a metric that is not ours.
    async fn passed_on(&self, path: Vec<&str>, selectors: &Selectors) -> Answer {
        match &self.upstream {
            Some(upstream) => pass_through::metric(upstream, path, selectors.pairs())
                .await
                .map(Json),
            None => Err(Failure::not_found(format!(
                "metric {:?} is not served here, and no upstream adapter is configured (--upstream-url); served are \
                 {PREDICTION_METRIC}, {CRON_METRIC} and, of pods, {POD_CPU_METRIC}",
                path.last().copied().unwrap_or_default()
            ))),
        }
    }

    /// The API of a path, and the version in it.
    fn api_of<'a>(&self, uri: &'a Uri) -> Result<(MetricApi, &'a str), Failure> {
        // The first two parts of `/apis/GROUP/VERSION` are nothing and `apis`.
        let mut parts = uri.path().split('/').skip(2);
        let (group, version) = (parts.next(), parts.next());
        let api = self
            .apis
            .iter()
            .find(|api| Some(api.group()) == group)
            .ok_or_else(|| Failure::not_found(format!("no path {}", uri.path())))?;
        Ok((*api, version.unwrap_or_default()))
    }
}

pub async fn groups<A: Autoscalers, P: PodLister, U: UpstreamAdapter>(
    State(sources): Sources<A, P, U>,
) -> Json<Value> {
    Json(discovery::groups(&sources.apis))
}

pub async fn group<A: Autoscalers, P: PodLister, U: UpstreamAdapter>(
    State(sources): Sources<A, P, U>,
    uri: Uri,
) -> Answer {
    let (api, _) = sources.api_of(&uri)?;
    Ok(Json(discovery::group(api)))
}

pub async fn resources<A: Autoscalers, P: PodLister, U: UpstreamAdapter>(
    State(sources): Sources<A, P, U>,
    uri: Uri,
) -> Answer {
    let (api, version) = sources.api_of(&uri)?;
    let theirs = match &sources.upstream {
        Some(upstream) => pass_through::resources(upstream, vec![api.group(), version]).await,
        None => None,
    };
    Ok(Json(discovery::resources(api, version, theirs)))
}

pub async fn external<A: Autoscalers, P: PodLister, U: UpstreamAdapter>(
    State(sources): Sources<A, P, U>,
    path: Parts<NamespacePath>,
    parameters: Parameters,
) -> Answer {
    let path = decoded(path)?;
    let selectors = Selectors::of(parameters)?;
    sources.external(&path, &selectors).await
}

pub async fn custom<A: Autoscalers, P: PodLister, U: UpstreamAdapter>(
    State(sources): Sources<A, P, U>,
    uri: Uri,
    path: Parts<ObjectPath>,
    parameters: Parameters,
) -> Answer {
    let (_, version) = sources.api_of(&uri)?;
    let path = decoded(path)?;
    let selectors = Selectors::of(parameters)?;
    sources.custom(version, &path, &selectors).await
}

/// A metric of a namespace itself.
pub async fn of_namespace<A: Autoscalers, P: PodLister, U: UpstreamAdapter>(
    State(sources): Sources<A, P, U>,
    uri: Uri,
    path: Parts<NamespacePath>,
    parameters: Parameters,
) -> Answer {
    let (_, version) = sources.api_of(&uri)?;
    let NamespacePath { namespace, metric } = decoded(path)?;
    if metric == POD_CPU_METRIC {
        return Err(pods_only("namespaces"));
    }
    let group = MetricApi::Custom.group();
    let path = vec![group, version, "namespaces", &namespace, "metrics", &metric];
    sources.passed_on(path, &Selectors::of(parameters)?).await
}

pub async fn unknown_path(uri: Uri) -> Failure {
    Failure::not_found(format!("no path {}", uri.path()))
}

pub async fn not_a_get() -> Failure {
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "metrics can only be read; expected GET",
    )
}

fn pods_only(resource: &str) -> Failure {
    Failure::not_found(format!(
        "{POD_CPU_METRIC} is served for pods only, not for {resource}"
    ))
}

fn decoded<T>(path: Parts<T>) -> Result<T, Failure> {
    let Path(path) = path.map_err(|error| Failure::bad_request(error.body_text()))?;
    Ok(path)
}
