//! Pods as they are now, for a process that keeps no copy of them: the port [`PodLister`].

use std::time::Duration;

use serde::{Deserialize, de::IgnoredAny};

use super::{Connection, pods::phase};
use crate::api_server::{About as _, CallError, Calls, Limits, Resource, WriteGate, response};
use foretide_api::ports::{ClusterError, ListedPod, PodLister};

/// Timeout of a complete list: the request that it is for has twice as long.
const DEADLINE: Duration = Duration::from_secs(5);

/// Lists pods through an API server.
#[derive(Debug)]
pub struct KubePodLister {
    calls: Calls,
}

/// The fields of a pod that are read. Another field in an unknown form does not matter.
#[derive(Deserialize)]
struct PodObject {
    metadata: PodMeta,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMeta {
    name: String,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PodStatus {
    phase: Option<String>,
}

// === impl KubePodLister ===

impl KubePodLister {
    /// Lists over this connection.
    pub fn new(connection: &Connection) -> Self {
        Self {
            calls: connection.calls_within(Limits::default(), WriteGate::default()),
        }
    }

    async fn list(&self, namespace: &str, selector: &str) -> Result<Vec<ListedPod>, CallError> {
        let collection = Resource::POD.collection(Some(namespace))?;
        let selected = [("labelSelector", selector)];
        let pods: Vec<PodObject> = self.calls.list(&collection, &selected).await?;
        Ok(pods.into_iter().map(ListedPod::from).collect())
    }
}

impl From<PodObject> for ListedPod {
    fn from(PodObject { metadata, status }: PodObject) -> Self {
        Self {
            name: metadata.name,
            phase: phase(status.and_then(|status| status.phase).as_deref()),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

impl PodLister for KubePodLister {
    async fn list_pods(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<ListedPod>, ClusterError> {
        let listing = response::within(DEADLINE, self.list(namespace, selector));
        let listed = listing.await;
        listed.about(format_args!("the pods of namespace {namespace}"))
    }
}
