//! The history of a workload's demand: the query that asks for it, and the samples that answer.

use std::{error::Error, future::Future, sync::Arc, time::Duration};

use foretide_domain::{ScaleTarget, forecast::Refused, hpa::MetricSpec, pod_names::PodNames};
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::history_server::ServerHealth;

/// Prefix of the annotation with the history query of a metric; the metric's identifier follows.
pub const QUERY_ANNOTATION: &str = "metric-query.autoscaling.crane.io/";

/// The demand whose history is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand<'a> {
    /// The workload.
    pub target: &'a ScaleTarget,
    /// The metric that the workload is scaled on.
    pub metric: &'a MetricSpec,
    /// The names of the workload's pods, as far as they were seen.
    pub pods: Option<&'a PodNames>,
    /// The query that the user wrote for it, if any.
    pub written: Option<&'a str>,
    /// The span of the history before now.
    pub span: SignedDuration,
    /// The member cluster whose pods count; absent means all pods, wherever they run.
    pub member: Option<MemberSeries<'a>>,
}

/// The matchers by which the series of one member cluster are distinguished from those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberSeries<'a> {
    /// Name of the member, which is the value of the cluster label.
    pub name: &'a str,
    /// Name of the endpoint that has the series of this member; absent means that the hub's endpoint has them, under
    /// the cluster label.
    pub endpoint: Option<&'a str>,
    /// True if no other member of the fleet names that endpoint: then series without a cluster label there are this
    /// member's.
    pub alone: bool,
}

/// A query, the endpoint to send it to, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryQuery {
    /// The namespace of the object that it is asked for: what becomes of it says nothing about the queries of others.
    pub namespace: Arc<str>,
    /// Name of the endpoint; absent means the hub's.
    pub endpoint: Option<Arc<str>>,
    /// The text.
    pub text: Arc<str>,
}

/// The span over which the values of a query are means. `Q` is a query, or what is made of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution<Q = HistoryQuery> {
    /// Each value is that of its own minute, as of a gauge.
    Minute,
    /// Each value is a mean over a longer time, as of `rate(...[3m])`; this query has the values of minutes.
    Mean(Q),
    /// Not known.
    Unknown,
}

/// Builds the query for the total demand of a workload, or for its demand in one member cluster.
pub trait DemandQueries: Send + Sync {
    /// The query that the user wrote, else that of the administrator's rules, both restricted to the object's
    /// namespace, else a built-in one.
    ///
    /// In the result of a member, a value below zero means that its series exist and the workload had no pods.
    ///
    /// # Errors
    /// Why there is no query, and what would be accepted.
    fn query(&self, demand: &Demand<'_>) -> Result<HistoryQuery, Refused>;

    /// The span over which the values of such a query are means.
    fn resolution(&self, _query: &HistoryQuery) -> Resolution {
        Resolution::Unknown
    }

    /// A version that changes whenever the query for the same demand may have changed.
    fn version(&self) -> u64;
}

/// Runs range queries that return one series: Prometheus in production, a recorded series in tests.
pub trait HistoryReader: Send + Sync {
    /// The samples of `query` at `from`, `from + step`, ... up to `to`, both included, oldest first.
    ///
    /// `step` is a positive whole number of seconds, and `from` and `to` lie on whole seconds.
    /// Points at which the query has no value are left out; NaN and infinities are passed on.
    ///
    /// # Errors
    /// [`HistoryError`]; an incomplete result (several series, warnings, truncated) is an error, never a smaller
    /// number.
    fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> impl Future<Output = Result<Vec<Sample>, HistoryError>> + Send;

    /// The headers that are sent with a query, in words; absent if there are none. One of them may name a tenant.
    fn headers_in_words(&self, _query: &HistoryQuery) -> Option<String> {
        None
    }

    /// A version that changes whenever the same query may return other series, as those of another tenant.
    fn version(&self, _query: &HistoryQuery) -> u64 {
        0
    }

    /// The state of each server.
    fn servers(&self) -> Vec<ServerHealth> {
        Vec::new()
    }
}

// === impl Resolution ===

impl<Q> Resolution<Q> {
    /// The same resolution, with what `change` makes of its query.
    pub fn map<R>(self, change: impl FnOnce(Q) -> R) -> Resolution<R> {
        match self {
            Self::Minute => Resolution::Minute,
            Self::Mean(minutes) => Resolution::Mean(change(minutes)),
            Self::Unknown => Resolution::Unknown,
        }
    }
}

/// The reason why history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// No connection, or it was lost before the response was complete.
    #[error("cannot reach Prometheus at {endpoint}")]
    Unreachable {
        /// The URL without credentials.
        endpoint: String,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// No complete response within the deadline of the client or the server.
    #[error("timed out waiting for Prometheus at {endpoint}: {message}")]
    Timeout {
        /// The URL.
        endpoint: String,
        /// The request whose deadline passed.
        message: String,
    },
    /// The server has not responded to the last requests; this one was not sent.
    #[error(
        "Prometheus at {endpoint} has not responded to several requests in a row; next attempt in {retry_in:.0?}"
    )]
    CircuitOpen {
        /// The URL.
        endpoint: String,
        /// The time until the next attempt.
        retry_in: Duration,
    },
    /// The server cannot serve now (429 or 5xx): try again later.
    #[error("Prometheus is unavailable (status {status}): {message}")]
    Unavailable {
        /// The HTTP status.
        status: u16,
        /// The server's message, shortened.
        message: String,
    },
    /// The files with the credentials for the server cannot be used.
    #[error("the credentials for Prometheus at {endpoint} cannot be used: {message}")]
    Credentials {
        /// The URL.
        endpoint: String,
        /// The file, and the reason.
        message: String,
    },
    /// The server, or a proxy before it, does not accept the credentials (401, 403).
    #[error(
        "Prometheus at {endpoint} refused the request (status {status}): {message}; it was sent with {sent}"
    )]
    Unauthorized {
        /// The URL.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// The server's message, shortened.
        message: String,
        /// The credentials that were sent, without secrets.
        sent: String,
    },
    /// The server's certificate is not trusted, or the server does not trust ours.
    #[error("no TLS connection to Prometheus at {endpoint}: {message}")]
    Tls {
        /// The URL.
        endpoint: String,
        /// The owner of the certificate, and the reason.
        message: String,
    },
    /// The server is not Prometheus (redirect, 404).
    #[error("Prometheus rejected the request (status {status}): {message}; check its URL")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The server's message, shortened.
        message: String,
    },
    /// The server reports an error in the query.
    #[error("Prometheus refused the query: {message}")]
    QueryRefused {
        /// The server's message.
        message: String,
    },
    /// The query reads more samples than the server or the client allows.
    #[error("the query reads too many samples: {message}; narrow its selectors")]
    TooManySamples {
        /// The owner of the limit.
        message: String,
    },
    /// The response does not follow the protocol.
    #[error("cannot parse the response of Prometheus: {message}")]
    Malformed {
        /// The expected and the found form.
        message: String,
    },
    /// No series, or only native histograms, which have no single value.
    #[error("the query returned no samples")]
    Empty,
    /// The same as [`HistoryError::Empty`], from a server that may have tenants.
    #[error(
        "the query returned no samples; it was sent with the header {headers}: if that names a tenant, check that the \
         tenant has the series"
    )]
    EmptyTenant {
        /// The headers that were sent, in words.
        headers: String,
    },
    /// Several series where one is needed.
    #[error("the query returned {0} series, expected one; wrap it in sum(...)")]
    MultiSeries(usize),
    /// The server warns that data is missing. A total of the rest would be too small, so nothing is used.
    #[error("Prometheus returned a partial response: {message}")]
    Partial {
        /// The server's warnings, joined.
        message: String,
    },
    /// The history of one cluster of a fleet is missing. A total of the others would be too small, so nothing is used.
    #[error("the history of cluster {member} is missing")]
    Member {
        /// The cluster.
        member: Arc<str>,
        /// The cause.
        #[source]
        source: Box<HistoryError>,
    },
    /// The history ended a while ago.
    #[error("no samples since {newest}; other clusters have samples to {others}")]
    Stopped {
        /// The newest sample.
        newest: Timestamp,
        /// The newest sample of any other cluster.
        others: Timestamp,
    },
    /// The newest samples are the first ones after an outage, or of a new series: they may cover only some of the pods.
    #[error(
        "the history begins again at {since}, and its first samples may not cover all pods; they count from {until}"
    )]
    WarmingUp {
        /// The first of these samples.
        since: Timestamp,
        /// The time from which the first samples are usable.
        until: Timestamp,
    },
    /// The query names an endpoint that is not configured.
    #[error(
        "no Prometheus endpoint {name:?} is configured; give its address with --prometheus-endpoint {name}=URL, or in the \
         configuration file"
    )]
    UnknownEndpoint {
        /// The name; `hub` for the one of `--prometheus`.
        name: String,
    },
}
