//! Pods as they are now, for a process that keeps no copy of them: the port [`PodLister`].

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::{Connection, pods::StoredPod, store::Stored};
use crate::{
    adapters::api_server::{CallError, Calls, Limits, Resource, WriteGate, query},
    domain::observation::Pod,
    leadership::WRITE_TIME as DEADLINE,
    ports::{ClusterError, PodLister},
};

/// The size of a page, as in client-go.
const PAGE: &str = "500";

/// Lists pods through an API server.
pub struct KubePodLister {
    calls: Calls,
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
}

// === impl KubePodLister ===

impl KubePodLister {
    /// Lists over this connection.
    #[must_use]
    pub fn new(connection: &Connection) -> Self {
        Self {
            calls: connection.calls_within(Limits::default(), WriteGate::default()),
        }
    }

    async fn list(&self, namespace: &str, selector: &str) -> Result<Vec<Arc<Pod>>, CallError> {
        let collection = Resource::POD.collection(Some(namespace))?;
        let mut pods = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut pairs = vec![("limit", PAGE), ("labelSelector", selector)];
            pairs.extend(next.as_deref().map(|token| ("continue", token)));
            let url = format!("{collection}{}", query(&pairs));
            let page: Page = self.calls.read(&url).await?;
            for item in page.items.unwrap_or_default() {
                let stored = StoredPod::decode(item).map_err(CallError::Response)?;
                pods.push(stored.pod);
            }
            // An empty token marks the last page, like an absent one.
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                return Ok(pods);
            }
        }
    }
}

impl std::fmt::Debug for KubePodLister {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubePodLister").finish_non_exhaustive()
    }
}

impl PodLister for KubePodLister {
    async fn list_pods(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<Arc<Pod>>, ClusterError> {
        let listed = timeout(DEADLINE, self.list(namespace, selector)).await;
        let listed = listed.unwrap_or(Err(CallError::Timeout(DEADLINE)));
        listed.map_err(|error| error.about(format_args!("the pods of namespace {namespace}")))
    }
}
