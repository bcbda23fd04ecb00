//! Errors of single requests.
//!
//! A [`CallError`] does not know which object the request was about: [`CallError::about`] adds the object and converts
//! to the port's error. A failure without an HTTP status is never "not found": the object may exist.

use std::{error::Error, fmt, iter, time::Duration};

use foretide_api::ports::ClusterError;
use foretide_base::{
    breaker,
    circuits::Open,
    redact::{Redactor, truncate},
};

/// Reasons why one request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The server responded with an error status.
    #[error("{message} (HTTP {code})")]
    Status {
        /// HTTP status.
        code: u16,
        /// The server's message.
        message: String,
        /// Pause that the server asks for before the next request.
        retry_after: Option<Duration>,
    },
    /// The deadline passed.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// All slots were in use.
    #[error("timed out after {queue:?} waiting for a request slot of {dependency}")]
    NoSlot {
        /// Name of the API that answers the request.
        dependency: String,
        /// Time for which a request waits for a slot.
        queue: Duration,
    },
    /// The API that answers the request hangs; the request was not sent.
    #[error(
        "{dependency} has not responded to {} requests in a row; next attempt in {retry_in:.0?}",
        breaker::FAILURES
    )]
    CircuitOpen {
        /// Name of the API, with the namespace if only its requests are not answered.
        dependency: String,
        /// Time until the next attempt.
        retry_in: Duration,
    },
    /// The write gate is closed.
    #[error("not the leader; write refused")]
    NotLeader,
    /// No connection, or it broke.
    #[error("{0}")]
    Transport(String),
    /// The response, or one event of a watch, is longer than this many bytes.
    #[error("invalid response: longer than the limit of {} KiB", .0 >> 10)]
    TooLong(usize),
    /// The response cannot be decoded.
    #[error("invalid response: {0}")]
    Response(String),
    /// The request cannot be built.
    #[error("invalid request: {0}")]
    Request(String),
}

// === impl CallError ===

impl CallError {
    /// An error status with the beginning of the server's message.
    pub fn status(code: u16, message: &str) -> Self {
        Self::Status {
            code,
            message: truncate(message).to_owned(),
            retry_after: None,
        }
    }

    /// The same error status, of a server that asks to wait.
    pub fn with_retry_after(mut self, asked: Option<Duration>) -> Self {
        if let Self::Status { retry_after, .. } = &mut self {
            *retry_after = asked;
        }
        self
    }

    /// The same error status, of a request whose deadline is before its next attempt.
    pub fn beyond(mut self, deadline: Duration) -> Self {
        if let Self::Status {
            message,
            retry_after: Some(asked),
            ..
        } = &mut self
        {
            let text = format!(
                "{message}; the server asks to retry after {asked:.0?}, beyond the deadline of {deadline:?}"
            );
            *message = text;
        }
        self
    }

    /// The error of a request to an API whose circuit is open, or that of the request's namespace.
    pub fn circuit_open(api: &str, namespace: Option<&str>, open: Open) -> Self {
        let namespace = namespace.filter(|_| open.is_of_namespace);
        Self::CircuitOpen {
            dependency: match namespace {
                Some(namespace) => format!("{api} for namespace {namespace}"),
                None => api.to_owned(),
            },
            retry_in: open.retry_in,
        }
    }

    /// Pause that the server asks for before the next request (`Retry-After`).
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The error without these credentials in its message.
    pub fn redacted(self, redactor: &Redactor) -> Self {
        match self {
            Self::Status {
                code,
                message,
                retry_after,
            } => Self::Status {
                code,
                message: redactor.redact(&message),
                retry_after,
            },
            Self::Transport(text) => Self::Transport(redactor.redact(&text)),
            Self::Response(text) => Self::Response(redactor.redact(&text)),
            Self::Request(text) => Self::Request(redactor.redact(&text)),
            Self::Timeout(_)
            | Self::NoSlot { .. }
            | Self::CircuitOpen { .. }
            | Self::NotLeader
            | Self::TooLong(_) => self,
        }
    }

    /// True if the same request may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Status {
                code: 429 | 502 | 503 | 504,
                ..
            } | Self::Transport(_)
        )
    }

    pub fn is_status(&self, code: u16) -> bool {
        matches!(self, Self::Status { code: found, .. } if *found == code)
    }

    /// True if the object may not be read, or is not there (403, 404).
    pub fn is_forbidden_or_not_found(&self) -> bool {
        self.is_status(403) || self.is_status(404)
    }

    /// The port's error about the object `what`.
    pub fn about(self, what: impl fmt::Display) -> ClusterError {
        let what = what.to_string();
        match self {
            Self::Status { code: 404, .. } => ClusterError::NotFound { what },
            Self::Status { code: 409, .. } => ClusterError::Conflict { what },
            // The server is overloaded. It has not judged this request.
            Self::Status {
                code: 429, message, ..
            } => ClusterError::Unreachable { what, message },
            Self::Status {
                code: 400..500,
                message,
                ..
            } => ClusterError::Refused { what, message },
            Self::TooLong(_) | Self::Response(_) | Self::Request(_) => ClusterError::Invalid {
                what,
                message: self.to_string(),
            },
            Self::Status { .. }
            | Self::Timeout(_)
            | Self::NoSlot { .. }
            | Self::CircuitOpen { .. }
            | Self::NotLeader
            | Self::Transport(_) => ClusterError::Unreachable {
                what,
                message: self.to_string(),
            },
        }
    }
}

/// Results of requests about an object.
pub trait About<T> {
    /// The result with the port's error about the object `what`.
    fn about(self, what: impl fmt::Display) -> Result<T, ClusterError>;
}

impl<T> About<T> for Result<T, CallError> {
    fn about(self, what: impl fmt::Display) -> Result<T, ClusterError> {
        self.map_err(|error| error.about(what))
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        // Only `Client::send` is called, which neither builds requests nor decodes responses.
        Self::Transport(innermost(&error))
    }
}

impl From<kube::core::Status> for CallError {
    fn from(status: kube::core::Status) -> Self {
        Self::status(status.code, &status.message)
    }
}

/// The last error of a chain: every error of the client library repeats the text of its source.
pub fn innermost(error: &dyn Error) -> String {
    iter::successors(error.source(), |&cause| cause.source())
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string)
}
