//! `custom.metrics.k8s.io`: metrics of pods and of single objects, in v1beta2 or v1beta1.
//!
//! The two versions differ in how they spell an answer and in nothing that matters here; discovery says
//! which one is served, and is asked again once a minute.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{Amount, DEFAULT_WINDOW, MetricsApi, some};
use crate::{
    adapters::api_server::{CallError, query, root, segment},
    clock::Clock,
    domain::{
        hpa::ObjectRef,
        observation::{Cause, PodSample, Unavailable},
    },
    ports::MetricQuery,
};

const GROUP: &str = "custom.metrics.k8s.io";
/// Versions we read, best first.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
const VERSION_KEPT: SignedDuration = SignedDuration::from_secs(60);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    #[serde(default)]
    versions: Vec<GroupVersion>,
    preferred_version: Option<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct ValueList {
    items: Option<Vec<Item>>,
}

/// An item of either version: `window` is v1beta1's word, `windowSeconds` v1beta2's.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    described_object: Described,
    timestamp: Timestamp,
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: Amount,
}

#[derive(Deserialize)]
struct Described {
    name: String,
}

// === impl MetricsApi ===

impl MetricsApi {
    /// A metric of the pods that a selector selects.
    pub(in crate::adapters) async fn pods(
        &self,
        asked: &MetricQuery<'_>,
    ) -> Result<Vec<PodSample>, Unavailable> {
        let what = format!(
            "pods metric {} in namespace {}",
            asked.metric, asked.namespace
        );
        let path = || {
            let (namespace, metric) = (segment(asked.namespace)?, segment(asked.metric)?);
            Ok(format!(
                "/namespaces/{namespace}/pods/{}/{metric}",
                segment("*")?
            ))
        };
        let mut pairs = vec![("labelSelector", asked.pod_selector)];
        pairs.extend(asked.metric_selector.map(|s| ("metricLabelSelector", s)));
        let items = some(&what, self.values(path(), &pairs).await)?;
        Ok(items.into_iter().map(|item| item.on(&self.clock)).collect())
    }

    /// A metric of one object.
    pub(in crate::adapters) async fn object(
        &self,
        object: &ObjectRef,
        asked: &MetricQuery<'_>,
    ) -> Result<i64, Unavailable> {
        let what = format!(
            "metric {} of {} {} in namespace {}",
            asked.metric, object.kind, object.name, asked.namespace
        );
        let path = self.object_path(object, asked).await;
        let pairs: Vec<_> = asked
            .metric_selector
            .map(|s| ("metricLabelSelector", s))
            .into_iter()
            .collect();
        let items = some(&what, self.values(path, &pairs).await)?;
        match items.as_slice() {
            [
                Item {
                    value: Amount(milli),
                    ..
                },
            ] => Ok(*milli),
            many => {
                let message = format!(
                    "expected one value of {what}, the server sent {}",
                    many.len()
                );
                Err(Unavailable::new(Cause::NotRead, message))
            }
        }
    }

    /// The path of an object's metric, behind the version.
    async fn object_path(
        &self,
        object: &ObjectRef,
        asked: &MetricQuery<'_>,
    ) -> Result<String, CallError> {
        let ObjectRef {
            api_version,
            kind,
            name,
        } = object;
        let (namespace, metric) = (segment(asked.namespace)?, segment(asked.metric)?);
        if kind == "Namespace" && api_version == "v1" {
            // The namespace asked stands for the object's name, as upstream reads it.
            return Ok(format!("/namespaces/{namespace}/metrics/{metric}"));
        }
        let Some(found) = self.discovery.kind(api_version, kind).await? else {
            return Err(CallError::Request(format!(
                "the cluster knows no kind {kind} in {api_version}; correct describedObject"
            )));
        };
        let resource = match api_version.split_once('/') {
            Some((group, _version)) => segment(&format!("{}.{group}", found.plural))?,
            None => segment(&found.plural)?,
        };
        let object = format!("{resource}/{}/{metric}", segment(name)?);
        Ok(if found.namespaced {
            format!("/namespaces/{namespace}/{object}")
        } else {
            format!("/{object}")
        })
    }

    async fn values(
        &self,
        path: Result<String, CallError>,
        pairs: &[(&str, &str)],
    ) -> Result<Vec<Item>, CallError> {
        let path = path?;
        let root = root(&format!("{GROUP}/{}", self.version().await?))?;
        let list: ValueList = self
            .calls
            .read(&format!("{root}{path}{}", query(pairs)))
            .await?;
        Ok(list.items.unwrap_or_default())
    }

    /// The version to speak: the server's preferred one if we read it, else the best of those it lists.
    async fn version(&self) -> Result<&'static str, CallError> {
        let mut kept = self.version.lock().await;
        let now = Clock::system().now();
        if let Some((asked, version)) = *kept
            && now.duration_since(asked) < VERSION_KEPT
        {
            return Ok(version);
        }
        let group: Group = self
            .calls
            .read(&format!("/apis/{}", segment(GROUP)?))
            .await?;
        let version = group.spoken().ok_or_else(|| {
            CallError::Answer(format!(
                "{GROUP} serves none of the versions {}",
                VERSIONS.join(", ")
            ))
        })?;
        *kept = Some((now, version));
        Ok(version)
    }
}

// === impl Group ===

impl Group {
    fn spoken(&self) -> Option<&'static str> {
        let mut preferred = self.preferred_version.iter();
        let known = |listed: &GroupVersion| VERSIONS.into_iter().find(|v| *v == listed.version);
        preferred.find_map(known).or_else(|| {
            VERSIONS
                .into_iter()
                .find(|v| self.versions.iter().any(|listed| listed.version == *v))
        })
    }
}

// === impl Item ===

impl Item {
    fn on(self, clock: &Clock) -> PodSample {
        PodSample {
            pod: self.described_object.name.into(),
            value: self.value.0,
            at: clock.from_wall(self.timestamp),
            window: self
                .window_seconds
                .map_or(DEFAULT_WINDOW, SignedDuration::from_secs),
        }
    }
}
