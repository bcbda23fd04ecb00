//! Errors of building, starting and querying components. One enum for the crate, because its callers only print them.

use std::{fmt, io, path::PathBuf, process::ExitStatus, time::Duration};

/// A failure of the rig itself; its message says what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The Go toolchain is missing.
    #[error(
        "go is not on PATH: the cluster tests build etcd, Kubernetes and Prometheus from source; \
         install Go 1.26 or newer, or let KUBEBUILDER_ASSETS name a folder that has the binaries"
    )]
    NoGo,
    /// `go build` failed.
    #[error("go could not build {what} in {folder}; its output:\n{output}")]
    Build {
        /// Subject of the build.
        what: &'static str,
        /// Folder of the Go module.
        folder: PathBuf,
        /// The last lines of the compiler.
        output: String,
    },
    /// A file or folder could not be used.
    #[error("could not {action} {path}")]
    File {
        /// The action that failed.
        action: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A process could not be started.
    #[error("could not start {program}")]
    Spawn {
        /// Name of the program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A certificate or key could not be made.
    #[error("could not make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// A TLS server could not be set up.
    #[error("could not set up a TLS server")]
    Tls(#[from] rustls::Error),
    /// No loopback port was free.
    #[error("no free port on 127.0.0.1 between {first} and {last}")]
    NoPort {
        /// First port tried.
        first: u16,
        /// Last port tried.
        last: u16,
    },
    /// A condition did not hold before its deadline.
    #[error("{what}: not true after {deadline:?}; last state: {last}")]
    Deadline {
        /// The condition.
        what: String,
        /// The deadline.
        deadline: Duration,
        /// The last state.
        last: String,
    },
    /// A component exited.
    #[error("{component} ended with {status}; its log ends with:\n{log}")]
    Ended {
        /// Name of the component.
        component: String,
        /// Exit status.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A component never answered.
    #[error("{component} is not ready: {reason}; its log ends with:\n{log}")]
    NotReady {
        /// Name of the component.
        component: String,
        /// Reason for which the component counts as not ready.
        reason: String,
        /// The last lines of its log.
        log: String,
    },
    /// The API server refused a request of the rig.
    #[error("the API server did not {action}")]
    Api {
        /// The refused action.
        action: String,
        /// The response.
        #[source]
        source: Box<kube::Error>,
    },
    /// The client refused a kubeconfig that the rig made.
    #[error("the kubeconfig made for the cluster is not usable")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// No client could be made from a kubeconfig.
    #[error("no client for the cluster")]
    Client(#[source] Box<kube::Error>),
    /// Prometheus did not answer, or answered with an error.
    #[error("prometheus did not answer {query}")]
    Query {
        /// The query or path.
        query: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// A YAML text is not made of Kubernetes objects.
    #[error("not a manifest: {why}")]
    Manifest {
        /// The problem.
        why: String,
    },
    /// An invalid URL.
    #[error("not a URL: {0}")]
    Url(String),
    /// promtool did not accept a history.
    #[error("promtool did not accept the history: {output}")]
    History {
        /// The output of promtool.
        output: String,
    },
    /// A CSV history could not be read.
    #[error(
        "{path}, line {line}: expected `timestamp,value` (RFC 3339 or unix seconds, then cores), found `{found}`"
    )]
    Csv {
        /// The file.
        path: PathBuf,
        /// One-based line.
        line: usize,
        /// Text of the line.
        found: String,
    },
    /// An audit line or a document of a component is not the expected JSON.
    #[error("{what} is not the JSON it should be")]
    Json {
        /// Name of the document.
        what: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

// === impl Error ===

/// Prints the message with its sources: a test unwraps, and the panic prints this.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = std::error::Error::source(self);
        while let Some(inner) = source {
            write!(f, ": {inner}")?;
            source = inner.source();
        }
        Ok(())
    }
}

impl Error {
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }

    pub(crate) fn api(action: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let action = action.into();
        move |source| Self::Api {
            action,
            source: Box::new(source),
        }
    }

    pub(crate) fn json(what: impl Into<String>) -> impl FnOnce(serde_json::Error) -> Self {
        let what = what.into();
        move |source| Self::Json { what, source }
    }
}

/// A result of the rig.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwrapped_error_names_what_to_install() {
        let message = format!("{:?}", Error::NoGo);
        assert!(
            message.starts_with("go is not on PATH") && message.contains("install Go"),
            "{message}"
        );
    }
}
