//! `custom.metrics.k8s.io`: metrics of pods and of single objects, in v1beta2 or v1beta1.
//!
//! The versions differ only in the name of the window. Discovery finds the version that is served, once a minute.

use std::time::Duration;

use foretide_domain::{
    api_group,
    hpa::ObjectRef,
    observation::{Cause, PodSample, Unavailable},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, GroupVersionForDiscovery};
use serde::Deserialize;

use super::{Amount, DEFAULT_WINDOW, MetricsApi};
use crate::api_server::{CallError, query, root, segment};
use foretide_api::ports::MetricQuery;

const GROUP: &str = "custom.metrics.k8s.io";
/// Supported versions, the best first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// Time for which a discovered version is used.
const VERSION_MAX_AGE: Duration = Duration::from_mins(1);

/// An item of either version: `window` is the name in v1beta1, `windowSeconds` in v1beta2.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    described_object: DescribedObject,
    timestamp: Option<Timestamp>,
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: Amount,
}

#[derive(Deserialize)]
struct DescribedObject {
    name: String,
}

// === impl MetricsApi ===

impl MetricsApi {
    /// A metric of each pod that a selector selects.
    pub async fn pods(&self, request: &MetricQuery<'_>) -> Result<Vec<PodSample>, Unavailable> {
        let what = format!(
            "pods metric {} in namespace {}",
            request.metric, request.namespace
        );
        let mut pairs = vec![("labelSelector", request.pod_selector)];
        pairs.extend(request.metric_selector.map(|s| ("metricLabelSelector", s)));
        let url = self.url(pods_path(request), &pairs).await;
        let (mut samples, mut ages) = (Vec::new(), Vec::new());
        for item in self.items::<Item>(&what, url).await? {
            match self.stale_age(item.timestamp, item.window()) {
                None => samples.push(item.sample()),
                Some(age) => ages.push(age),
            }
        }
        match ages.into_iter().min() {
            Some(age) if samples.is_empty() => Err(Unavailable::stale(&what, age)),
            // A pod whose sample is too old is missing.
            _ => Ok(samples),
        }
    }

    /// A metric of one object.
    pub async fn object(
        &self,
        object: &ObjectRef,
        request: &MetricQuery<'_>,
    ) -> Result<i64, Unavailable> {
        let what = format!(
            "metric {} of {} {} in namespace {}",
            request.metric, object.kind, object.name, request.namespace
        );
        let path = self.object_path(object, request).await;
        let pairs = request.metric_selector.map(|s| ("metricLabelSelector", s));
        let url = self.url(path, pairs.as_slice()).await;
        let items: Vec<Item> = self.items(&what, url).await?;
        match items.as_slice() {
            [item] => match self.stale_age(item.timestamp, item.window()) {
                None => Ok(item.value.0),
                Some(age) => Err(Unavailable::stale(&what, age)),
            },
            many => {
                let message = format!(
                    "expected one value of {what}, the server sent {}",
                    many.len()
                );
                Err(Unavailable::new(Cause::NotRead, message))
            }
        }
    }

    /// The path of an object's metric, after the version.
    async fn object_path(
        &self,
        object: &ObjectRef,
        request: &MetricQuery<'_>,
    ) -> Result<String, CallError> {
        let ObjectRef {
            api_version,
            kind,
            name,
        } = object;
        let (namespace, metric) = (segment(request.namespace)?, segment(request.metric)?);
        if kind == "Namespace" && api_version == "v1" {
            // The name is that of the namespace, as in the HPA controller.
            return Ok(format!("/namespaces/{namespace}/metrics/{metric}"));
        }
        let Some(found) = self.discovery.kind(api_version, kind).await? else {
            return Err(CallError::Request(format!(
                "the cluster has no kind {kind} in {api_version}; correct describedObject"
            )));
        };
        let resource = match api_group(api_version) {
            "" => segment(&found.plural)?,
            group => segment(&format!("{}.{group}", found.plural))?,
        };
        let object = format!("{resource}/{}/{metric}", segment(name)?);
        Ok(if found.namespaced {
            format!("/namespaces/{namespace}/{object}")
        } else {
            format!("/{object}")
        })
    }

    /// The URL of a path after the version.
    async fn url(
        &self,
        path: Result<String, CallError>,
        pairs: &[(&str, &str)],
    ) -> Result<String, CallError> {
        let path = path?;
        let root = root(&format!("{GROUP}/{}", self.version().await?))?;
        Ok(format!("{root}{path}{}", query(pairs)))
    }

    /// The server's preferred version if it is supported, else the best of those it serves.
    async fn version(&self) -> Result<&'static str, CallError> {
        // Held while the version is discovered, so that concurrent reads send one request.
        let mut cached = self.version.lock().await;
        let now = self.calls.clock().monotonic();
        if let Some((discovered, version)) = *cached
            && now.since(discovered) < VERSION_MAX_AGE
        {
            return Ok(version);
        }
        let group: APIGroup = self
            .calls
            .read(&format!("/apis/{}", segment(GROUP)?))
            .await?;
        let version = supported_version(&group).ok_or_else(|| {
            CallError::Response(format!(
                "{GROUP} serves none of the versions {}",
                VERSIONS.join(", ")
            ))
        })?;
        *cached = Some((now, version));
        Ok(version)
    }
}

/// The path of a metric of all pods, after the version.
fn pods_path(request: &MetricQuery<'_>) -> Result<String, CallError> {
    let (namespace, metric) = (segment(request.namespace)?, segment(request.metric)?);
    let pods = segment("*")?;
    Ok(format!("/namespaces/{namespace}/pods/{pods}/{metric}"))
}

fn supported_version(group: &APIGroup) -> Option<&'static str> {
    best_of(group.preferred_version.as_slice()).or_else(|| best_of(&group.versions))
}

/// The best supported version of those that are served.
fn best_of(served: &[GroupVersionForDiscovery]) -> Option<&'static str> {
    VERSIONS
        .into_iter()
        .find(|version| served.iter().any(|it| it.version == *version))
}

// === impl Item ===

impl Item {
    fn window(&self) -> Option<SignedDuration> {
        self.window_seconds.map(SignedDuration::from_secs)
    }

    fn sample(self) -> PodSample {
        PodSample {
            window: self.window().unwrap_or(DEFAULT_WINDOW),
            pod: self.described_object.name.into(),
            value: self.value.0,
            at: self.timestamp.unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }
}
