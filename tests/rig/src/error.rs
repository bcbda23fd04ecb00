//! What can go wrong when parts are built, started or asked. One enum for the whole crate, because
//! its callers, tests and people, do the same with every one of them: read it. It never recovers.

use std::{fmt, io, path::PathBuf, time::Duration};

/// A failure of the rig itself, in words that say what to do about it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The Go toolchain is missing.
    #[error(
        "go is not on PATH: the cluster tests build etcd, Kubernetes and Prometheus from source; \
         install Go 1.26 or newer, or let KUBEBUILDER_ASSETS name a folder that has the binaries"
    )]
    NoGo,
    /// `go build` ended with an error.
    #[error("go could not build {what} in {folder}; it said:\n{output}")]
    Build {
        /// What was being built.
        what: &'static str,
        /// Folder of the Go module.
        folder: PathBuf,
        /// The last lines of the compiler.
        output: String,
    },
    /// A file or folder could not be used.
    #[error("could not {action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A process could not be started.
    #[error("could not start {program}")]
    Spawn {
        /// Which program.
        program: String,
        /// Why it failed.
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
    /// Something did not come true before its deadline.
    #[error("{what}: not so after {deadline:?}; last seen: {last}")]
    Deadline {
        /// What was waited for.
        what: String,
        /// How long.
        deadline: Duration,
        /// The last reason why not.
        last: String,
    },
    /// A component ended by itself, or never answered.
    #[error("{component} is not ready: {reason}; its log ends with:\n{log}")]
    NotReady {
        /// Which component.
        component: String,
        /// Why it counts as not ready.
        reason: String,
        /// The last lines of its log.
        log: String,
    },
    /// The API server refused a request of the rig.
    #[error("the API server did not {action}")]
    Api {
        /// What was asked.
        action: String,
        /// Its answer.
        #[source]
        source: Box<kube::Error>,
    },
    /// A kubeconfig of the rig's own making was refused by the client.
    #[error("the kubeconfig made for the cluster is not usable")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// A kubeconfig led to no client.
    #[error("no client for the cluster")]
    Client(#[source] Box<kube::Error>),
    /// Prometheus did not answer, or with an error.
    #[error("prometheus did not answer {query}")]
    Query {
        /// The query or path.
        query: String,
        /// Why it failed.
        #[source]
        source: reqwest::Error,
    },
    /// A YAML text is not made of Kubernetes objects.
    #[error("not a manifest: {why}")]
    Manifest {
        /// What is wrong with it.
        why: String,
    },
    /// An address that is none.
    #[error("not a URL: {0}")]
    Url(String),
    /// promtool did not accept a history.
    #[error("promtool did not accept the history: {output}")]
    History {
        /// What promtool said.
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
        /// What stood there.
        found: String,
    },
    /// An audit line or a document of a component was not what it should be.
    #[error("{what} is not the JSON it should be")]
    Json {
        /// Which document.
        what: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

// === impl Error ===

/// The same words as for people, sources included: a test unwraps, and a panic prints this.
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
    fn a_test_that_unwraps_is_told_what_to_install() {
        let told = format!("{:?}", Error::NoGo);
        assert!(
            told.starts_with("go is not on PATH") && told.contains("install Go"),
            "{told}"
        );
    }
}
