//! `metrics.k8s.io`: the resource usage of the containers of each pod of a namespace.

use std::{collections::BTreeMap, sync::Arc};

use foretide_domain::observation::{
    ContainerUsage, NamespaceUsage, PodUsage, StaleSample, Unavailable,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{Amount, MetricsApi};
use crate::api_server::{root, segment};

#[derive(Deserialize)]
struct PodMetrics {
    metadata: PodName,
    timestamp: Option<Timestamp>,
    window: SignedDuration,
    containers: Option<Vec<ContainerMetrics>>,
}

#[derive(Deserialize)]
struct PodName {
    name: String,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, Amount>,
}

// === impl MetricsApi ===

impl MetricsApi {
    /// Usage of every pod of a namespace, by one request for all its workloads.
    pub async fn usage(&self, namespace: &str) -> Result<NamespaceUsage, Unavailable> {
        let what = format!("pod usage in namespace {namespace} from metrics.k8s.io");
        let url = root("metrics.k8s.io/v1beta1").and_then(|root| {
            segment(namespace).map(|namespace| format!("{root}/namespaces/{namespace}/pods"))
        });
        let mut usage = NamespaceUsage::default();
        for item in self.items::<PodMetrics>(&what, url).await? {
            match self.stale_age(item.timestamp, Some(item.window)) {
                None => usage.pods.push(Arc::new(item.usage())),
                Some(age) => usage.stale.push(StaleSample {
                    pod: item.metadata.name.into(),
                    age,
                }),
            }
        }
        Ok(usage)
    }
}

// === impl PodMetrics ===

impl PodMetrics {
    fn usage(self) -> PodUsage {
        let containers = self
            .containers
            .into_iter()
            .flatten()
            .map(|container| ContainerUsage {
                name: container.name.into(),
                usage: container
                    .usage
                    .into_iter()
                    .map(|(resource, Amount(m))| (resource, m))
                    .collect(),
            });
        PodUsage {
            pod: self.metadata.name.into(),
            // What the HPA controller sees then is a zero time, which is before every change of a pod's readiness.
            at: self.timestamp.unwrap_or(Timestamp::UNIX_EPOCH),
            window: self.window,
            containers: containers.collect(),
        }
    }
}
