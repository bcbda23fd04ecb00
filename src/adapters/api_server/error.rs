//! What went wrong with one call, before it is known what the call was about.
//!
//! One place reads the client library's errors and sorts them by what they mean for us; [`CallError::about`]
//! adds the object and gives the port's error. It refuses to guess: an answer without a status code is
//! "no answer", never "not found".

use std::{error::Error, time::Duration};

use crate::ports::ClusterError;

/// So many characters of a server's words are kept, for they go into logs and statuses.
const WORDS_MAX: usize = 500;

/// Why one call gave no value.
#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::adapters) enum CallError {
    /// The server answered with an error status.
    #[error("{message} (HTTP {code})")]
    Status {
        /// HTTP status.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// The deadline passed.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The call did not get its turn.
    #[error("waited {queue:?} for one of {in_flight} calls in flight to end")]
    Crowded {
        /// How long a call waits.
        queue: Duration,
        /// Calls in flight at once.
        in_flight: usize,
    },
    /// The write gate is closed.
    #[error("this process may not write now: another one leads")]
    Closed,
    /// No connection, or it broke.
    #[error("{0}")]
    Transport(String),
    /// The answer is not what its path promises.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
    /// The request cannot be made.
    #[error("the request cannot be made: {0}")]
    Request(String),
}

// === impl CallError ===

impl CallError {
    /// An error status, with as much of the server's words as anybody reads.
    pub(in crate::adapters) fn status(code: u16, words: &str) -> Self {
        Self::Status {
            code,
            message: cut(words).to_owned(),
        }
    }

    /// Whether the same request may well succeed a moment later.
    pub(in crate::adapters) fn is_transient(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(code, 429 | 502 | 503 | 504),
            Self::Transport(_) => true,
            Self::Late(_)
            | Self::Crowded { .. }
            | Self::Closed
            | Self::Answer(_)
            | Self::Request(_) => false,
        }
    }

    pub(in crate::adapters) fn is_status(&self, code: u16) -> bool {
        matches!(self, Self::Status { code: found, .. } if *found == code)
    }

    /// Whether the server says that what was asked for may not be read, or that it has none.
    pub(in crate::adapters) fn is_withheld(&self) -> bool {
        self.is_status(403) || self.is_status(404)
    }

    /// The same error, told about `what`.
    pub(in crate::adapters) fn about(self, what: impl Into<String>) -> ClusterError {
        let what = what.into();
        match self {
            Self::Status { code: 404, .. } => ClusterError::NotFound { what },
            Self::Status { code: 409, .. } => ClusterError::Conflict { what },
            Self::Status { code: 429, message } => ClusterError::Unreachable { what, message },
            Self::Status {
                code: 400..500,
                message,
            } => ClusterError::Refused { what, message },
            Self::Answer(_) | Self::Request(_) => ClusterError::Invalid {
                what,
                message: self.to_string(),
            },
            Self::Status { .. }
            | Self::Late(_)
            | Self::Crowded { .. }
            | Self::Closed
            | Self::Transport(_) => ClusterError::Unreachable {
                what,
                message: self.to_string(),
            },
        }
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from(*status),
            kube::Error::BuildRequest(source) => Self::Request(source.to_string()),
            kube::Error::SerdeError(source) => Self::Answer(source.to_string()),
            kube::Error::FromUtf8(source) => Self::Answer(source.to_string()),
            other => Self::Transport(innermost(&other)),
        }
    }
}

impl From<kube::core::Status> for CallError {
    fn from(status: kube::core::Status) -> Self {
        Self::status(status.code, &status.message)
    }
}

/// As much of a server's words as is kept.
pub(in crate::adapters) fn cut(words: &str) -> &str {
    let end = words.char_indices().nth(WORDS_MAX);
    end.map_or(words, |(end, _)| words.get(..end).unwrap_or_default())
}

/// The last link of an error chain: the client's own errors repeat their sources in every link.
pub(in crate::adapters) fn innermost(error: &dyn Error) -> String {
    let mut source = error.source();
    let mut text = error.to_string();
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}
