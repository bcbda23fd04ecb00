//! What the metric adapter reads besides the autoscalers: the pods of a workload, and another adapter.

use std::{future::Future, path::PathBuf, time::Duration};

use foretide_domain::observation::Phase;
use serde_json::Value;
use url::Url;

use super::ClusterError;

/// The fields that are read of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPod {
    /// `metadata.name`.
    pub name: String,
    /// `status.phase`.
    pub phase: Phase,
    /// True if a deletion timestamp is set.
    pub deleting: bool,
}

/// Lists pods as they are now.
pub trait PodLister: Send + Sync + 'static {
    /// The pods of a namespace that a label selector (in its text form) selects.
    ///
    /// # Errors
    /// When they cannot be listed completely.
    fn list_pods(
        &self,
        namespace: &str,
        selector: &str,
    ) -> impl Future<Output = Result<Vec<ListedPod>, ClusterError>> + Send;
}

/// Another server of the same APIs, which has the metrics that are not ours.
pub trait UpstreamAdapter: Send + Sync + 'static {
    /// The name in messages.
    fn name(&self) -> &str;

    /// GETs a document below `/apis`, as this process and not as the user of the request.
    ///
    /// # Errors
    /// [`UpstreamError`].
    fn get(
        &self,
        request: &UpstreamRequest<'_>,
    ) -> impl Future<Output = Result<Value, UpstreamError>> + Send;
}

/// The address of another adapter, and the authorities that are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The base URL, `https://HOST:PORT`.
    pub url: Url,
    /// File with the certificates of the authorities that sign its certificate.
    pub ca_file: PathBuf,
    /// File with the bearer token that is sent; absent for none.
    pub token_file: Option<PathBuf>,
}

/// A request to another adapter. Its parts are decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamRequest<'a> {
    /// The path after `/apis`.
    pub path: Vec<&'a str>,
    /// The parameters that have a value.
    pub parameters: Vec<(&'static str, &'a str)>,
    /// The deadline of an answer.
    pub deadline: Duration,
    /// True if the request lists the metrics that there are. Such requests share no limits with those for metrics: a list may be slow.
    pub is_list: bool,
}

/// The reason why another adapter has no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// A response with an error status.
    #[error("{message} (HTTP {code})")]
    Status {
        /// HTTP status.
        code: u16,
        /// The message.
        message: String,
    },
    /// The path contains a name that no object or metric can have.
    #[error("{0}")]
    Path(String),
    /// No response, or none with a document.
    #[error("{0}")]
    Unavailable(String),
}
