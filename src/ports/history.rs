//! The history of a workload's demand: the query that asks for it, and the samples that answer.

use std::{error::Error, future::Future, sync::Arc};

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use crate::domain::{ScaleTarget, forecast::Refused, hpa::MetricSpec};

/// What the history of a metric is asked for by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand<'a> {
    /// The workload whose total demand it is.
    pub target: &'a ScaleTarget,
    /// The metric that the workload is scaled on.
    pub metric: &'a MetricSpec,
    /// The query that the user wrote for it, if any.
    pub written: Option<&'a str>,
    /// How far back the history goes.
    pub span: SignedDuration,
    /// The member cluster whose part is meant; absent means the whole, wherever its pods are.
    pub member: Option<MemberSeries<'a>>,
}

/// How the series of one member cluster are told from those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberSeries<'a> {
    /// Name of the member, which is the value of the cluster label.
    pub name: &'a str,
    /// Name of the endpoint that has the series of this member; absent means that the hub's has them, told apart
    /// by the cluster label.
    pub endpoint: Option<&'a str>,
    /// Whether no other member of the fleet names that endpoint: then what has no cluster label there is this one's.
    pub alone: bool,
}

/// A query, and whom to ask.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryQuery {
    /// Name of the endpoint; absent means that of the hub.
    pub endpoint: Option<Arc<str>>,
    /// Its text.
    pub text: Arc<str>,
}

/// Knows which query answers for the total demand of a workload, or of its part in one member cluster.
pub trait DemandQueries: Send + Sync {
    /// The query: the user's, else that of the administrator's rules, both restricted to what the object may see,
    /// else a built-in one.
    ///
    /// For a member, a value below zero means: its series are there, and the workload had no pods.
    ///
    /// # Errors
    /// Why no query may be asked, and what would be accepted.
    fn query(&self, demand: &Demand<'_>) -> Result<HistoryQuery, Refused>;

    /// Differs from what it was before whenever the same demand may get another query than before.
    fn version(&self) -> u64;
}

/// Reads the past of one number: Prometheus in production, a recorded series in tests.
pub trait HistoryReader: Send + Sync {
    /// The samples of `query` at `from`, `from + step`, ... up to `to`, both included, oldest first.
    ///
    /// `step` is a positive whole number of seconds, and `from` and `to` lie on whole seconds.
    /// Points at which the query has no value are left out; NaN and infinities are passed on.
    ///
    /// # Errors
    /// [`HistoryError`]; an answer that is not whole (several series, warnings, cut off) is an error, never a smaller
    /// number.
    fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> impl Future<Output = Result<Vec<Sample>, HistoryError>> + Send;
}

/// Why there is no history. Every variant has a stable [reason](HistoryError::reason).
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// No connection, or it broke before the answer was complete.
    #[error("cannot reach the history at {endpoint}")]
    Unreachable {
        /// Where it was looked for, without credentials.
        endpoint: String,
        /// What went wrong below.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// No complete answer within the deadline, ours or the server's.
    #[error("the history at {endpoint} did not answer in time: {message}")]
    Timeout {
        /// Where it was looked for.
        endpoint: String,
        /// Whose deadline passed.
        message: String,
    },
    /// The server is up and cannot serve now (429 or 5xx): ask later.
    #[error("the history is not available now (status {status}): {message}")]
    Unavailable {
        /// The HTTP status.
        status: u16,
        /// The server's words, shortened.
        message: String,
    },
    /// The server did not let us in, or is not a history server (redirect, 401, 403, 404).
    #[error(
        "the history endpoint rejected the request (status {status}): {message}; \
         check its URL and credentials"
    )]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The server's words, shortened.
        message: String,
    },
    /// The server understood the request and says that the query is wrong.
    #[error("the history server refuses the query: {message}")]
    QueryRefused {
        /// The server's words.
        message: String,
    },
    /// The query touches more samples than the server or we allow.
    #[error("the query reads too many samples: {message}; narrow its selectors")]
    TooManySamples {
        /// Whose limit it was.
        message: String,
    },
    /// The answer is not what the protocol says.
    #[error("cannot read the answer of the history server: {message}")]
    Malformed {
        /// What was expected and what was there.
        message: String,
    },
    /// No series, or only native histograms, which have no single value.
    #[error("the query returned no samples")]
    Empty,
    /// Several series where one number at a time is needed.
    #[error("the query returned {0} series, expected one; wrap it in sum(...)")]
    MultiSeries(usize),
    /// The server says that part of the data is missing. A total of a part would be too small, so nothing is used.
    #[error("the history server answered in part only: {message}")]
    Partial {
        /// The server's warnings, joined.
        message: String,
    },
    /// The part of one cluster of a fleet is missing. A total of the others would be too small, so nothing is used.
    #[error("the history of cluster {member} is missing")]
    Member {
        /// The cluster.
        member: Arc<str>,
        /// What is known of it.
        #[source]
        source: Box<HistoryError>,
    },
    /// There is a history, and it ended a while ago.
    #[error("nothing has come since {newest}, while other clusters have samples up to {others}")]
    Stopped {
        /// The newest sample.
        newest: Timestamp,
        /// The newest one of any other cluster.
        others: Timestamp,
    },
    /// The query names an endpoint that is not configured.
    #[error(
        "no Prometheus endpoint {name:?} is configured; give its address with --prometheus-endpoint {name}=URL"
    )]
    UnknownEndpoint {
        /// Its name; `hub` for the one of `--prometheus`.
        name: String,
    },
}

impl HistoryError {
    /// The stable `UpperCamelCase` word for conditions, metrics and documentation.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "Unreachable",
            Self::Timeout { .. } => "Timeout",
            Self::Unavailable { .. } => "Unavailable",
            Self::Rejected { .. } => "Rejected",
            Self::QueryRefused { .. } => "QueryRefused",
            Self::TooManySamples { .. } => "TooManySamples",
            Self::Malformed { .. } => "Malformed",
            Self::Empty => "NoData",
            Self::Stopped { .. } => "Stopped",
            Self::MultiSeries(_) => "MultiSeries",
            Self::Partial { .. } | Self::Member { .. } => "Partial",
            Self::UnknownEndpoint { .. } => "UnknownEndpoint",
        }
    }
}
