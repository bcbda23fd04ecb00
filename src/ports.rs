//! What the core asks of the world, as traits; the adapters answer them. A port carries only the domain's words
//! and typed refusals: no HTTP status, no syntax tree of a query language, no client type passes through here.

use std::error::Error;
use std::future::Future;

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

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
        query: &str,
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
            Self::MultiSeries(_) => "MultiSeries",
            Self::Partial { .. } => "Partial",
        }
    }
}
