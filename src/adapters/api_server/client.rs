//! The connection to one API server, and the only way to send it a request.
//!
//! A connection is two HTTP clients, because one read timeout cannot suit both short calls and watches
//! that are silent for a minute. [`Calls`] bounds every call: a total deadline, a limit on calls in
//! flight, and few retries of reads only. It refuses the client library's own retries, which may hide
//! minutes of waiting in one call, and knows nothing about the objects it carries.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    path::Path,
    time::Duration,
};

use http::{HeaderValue, Method, Request, header};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;
use tokio::{sync::Semaphore, time::timeout};

use super::{error::CallError, redact::Redactor, response, write_gate::WriteGate};

/// How long the server keeps one watch open before it must be renewed.
pub(in crate::adapters) const WATCH_TIMEOUT: Duration = Duration::from_secs(50);
/// How much longer than [`WATCH_TIMEOUT`] a silent watch is believed to be alive.
pub(in crate::adapters) const WATCH_MARGIN: Duration = Duration::from_secs(5);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients of one API server: one for calls, one for watches.
#[derive(Clone)]
pub struct Connection {
    pub(in crate::adapters) unary: Client,
    pub(in crate::adapters) watch: Client,
    pub(in crate::adapters) hidden: Redactor,
}

/// Why there is no connection to an API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig file cannot be read, or has no such context.
    #[error("cannot use kubeconfig {file}")]
    Kubeconfig {
        /// The file, or where it was looked for.
        file: String,
        /// What is wrong with it.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// Not inside a cluster, or the pod has no service account token.
    #[error(
        "no kubeconfig was given and this is not a pod with a service account; \
         name a file with --kubeconfig"
    )]
    NotInCluster(#[source] Box<kube::config::InClusterError>),
    /// The configuration cannot make a client: certificates, keys or addresses are malformed.
    #[error("the connection settings of the cluster cannot be used")]
    Client(#[source] Box<kube::Error>),
}

/// The bounds of every call.
#[derive(Debug, Clone, Copy)]
pub(in crate::adapters) struct Limits {
    /// Total time of one call, its retries included.
    pub(in crate::adapters) deadline: Duration,
    /// How long a call may wait for its turn before its deadline starts.
    pub(in crate::adapters) queue: Duration,
    /// How often a read is repeated after a transient failure.
    pub(in crate::adapters) retries: u32,
    /// Least pause before the first repetition; doubles, plus up to as much again at random.
    pub(in crate::adapters) pause: Duration,
    /// Calls in flight at once.
    pub(in crate::adapters) in_flight: usize,
}

/// Sends bounded requests to one API server.
pub(in crate::adapters) struct Calls {
    client: Client,
    turns: Semaphore,
    limits: Limits,
    gate: WriteGate,
    hidden: Redactor,
}

// === impl Connection ===

impl Connection {
    /// Connects as a kubeconfig file says; without a path, as `$KUBECONFIG` or `~/.kube/config` says.
    ///
    /// # Errors
    /// When the file cannot be read, has no such context, or its credentials are malformed. Nothing is
    /// sent yet: a server that is down is found by the first call.
    pub async fn from_kubeconfig(
        file: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Self, ConnectError> {
        Self::new(Self::config(file, context).await?)
    }

    /// What a kubeconfig file says about a context.
    ///
    /// # Errors
    /// When the file cannot be read, or has no such context.
    pub(in crate::adapters) async fn config(
        file: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Config, ConnectError> {
        let shown = file.map_or_else(|| "of the environment".into(), |f| f.display().to_string());
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..Default::default()
        };
        let config = match file {
            None => Config::from_kubeconfig(&options).await,
            Some(file) => match Kubeconfig::read_from(file) {
                Ok(parsed) => Config::from_custom_kubeconfig(parsed, &options).await,
                Err(error) => Err(error),
            },
        };
        config.map_err(|source| ConnectError::Kubeconfig {
            file: shown,
            source: Box::new(source),
        })
    }

    /// Connects as the service account of the pod we run in; its token and CA are re-read as they change.
    ///
    /// # Errors
    /// When this is not a pod with a service account.
    pub fn in_cluster() -> Result<Self, ConnectError> {
        Self::new(Config::incluster().map_err(|e| ConnectError::NotInCluster(Box::new(e)))?)
    }

    /// Connects as a client configuration says; its times are ours.
    ///
    /// # Errors
    /// When its certificates, keys or addresses are malformed.
    pub(in crate::adapters) fn new(config: Config) -> Result<Self, ConnectError> {
        // The first caller wins; later installations say so and change nothing.
        let _installed = rustls::crypto::ring::default_provider()
            .install_default()
            .is_ok();
        let client =
            |config| Client::try_from(config).map_err(|e| ConnectError::Client(Box::new(e)));
        let (calling, watching) = tuned(config);
        Ok(Self {
            unary: client(calling)?,
            watch: client(watching)?,
            hidden: Redactor::default(),
        })
    }

    /// The same with credentials that must not show in the words of any error.
    pub(in crate::adapters) fn hiding(self, hidden: Redactor) -> Self {
        Self { hidden, ..self }
    }

    /// Calls over this connection within the usual bounds, in whose errors no credentials show.
    pub(in crate::adapters) fn calls(&self) -> Calls {
        self.gated_calls(Limits::default(), WriteGate::default())
    }

    /// The same within other bounds, and behind a gate.
    pub(in crate::adapters) fn gated_calls(&self, limits: Limits, gate: WriteGate) -> Calls {
        Calls {
            hidden: self.hidden.clone(),
            ..Calls::gated(self.unary.clone(), limits, gate)
        }
    }

    /// The namespace that the configuration names: of a pod, its own.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.unary.default_namespace()
    }

    /// A connection over a client that speaks to something else than a network.
    #[cfg(test)]
    pub(in crate::adapters) fn over(client: Client) -> Self {
        Self {
            unary: client.clone(),
            watch: client,
            hidden: Redactor::default(),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(5),
            queue: Duration::from_secs(30),
            retries: 2,
            pause: Duration::from_millis(100),
            in_flight: 8,
        }
    }
}

impl Limits {
    /// Bounds of the calls to a member: one that is slow must not keep a whole sync waiting.
    pub(in crate::adapters) fn of_a_member() -> Self {
        Self {
            queue: Duration::from_secs(10),
            ..Self::default()
        }
    }
}

// === impl Calls ===

impl Calls {
    #[cfg(test)]
    pub(in crate::adapters) fn new(client: Client, limits: Limits) -> Self {
        Self::gated(client, limits, WriteGate::default())
    }

    /// Calls behind a gate that others may go through as well.
    fn gated(client: Client, limits: Limits, gate: WriteGate) -> Self {
        Self {
            client,
            turns: Semaphore::new(limits.in_flight),
            gate,
            limits,
            hidden: Redactor::default(),
        }
    }

    /// GETs a value; transient failures are retried within the deadline.
    pub(in crate::adapters) async fn read<T: DeserializeOwned>(
        &self,
        url: &str,
    ) -> Result<T, CallError> {
        let text = self.read_text(url).await?;
        self.parsed(&text)
    }

    /// GETs a text; transient failures are retried within the deadline.
    pub(in crate::adapters) async fn read_text(&self, url: &str) -> Result<String, CallError> {
        let request = request(Method::GET, url, None, Vec::new())?;
        self.bounded(&request, self.limits.retries).await
    }

    /// The gate of every write.
    pub(in crate::adapters) fn gate(&self) -> &WriteGate {
        &self.gate
    }

    /// Sends a changing request once, if the gate is open: whether a lost one took effect is for the next sync to see.
    pub(in crate::adapters) async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        url: &str,
        body: Body<'_>,
    ) -> Result<T, CallError> {
        if !self.gate.is_open() {
            return Err(CallError::Closed);
        }
        let bytes =
            serde_json::to_vec(body.value).map_err(|e| CallError::Request(e.to_string()))?;
        let request = request(method, url, Some(body.content_type), bytes)?;
        let text = self.bounded(&request, 0).await?;
        self.parsed(&text)
    }

    /// What a text says; the parser's words may repeat a part of it.
    fn parsed<T: DeserializeOwned>(&self, text: &str) -> Result<T, CallError> {
        let answer = serde_json::from_str(text);
        answer.map_err(|source| self.hidden.out_of(CallError::Answer(source.to_string())))
    }

    async fn bounded(&self, request: &Request<Vec<u8>>, retries: u32) -> Result<String, CallError> {
        let turn = timeout(self.limits.queue, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            let Limits {
                queue, in_flight, ..
            } = self.limits;
            return Err(CallError::Crowded { queue, in_flight });
        };
        timeout(self.limits.deadline, self.attempts(request, retries))
            .await
            .unwrap_or(Err(CallError::Late(self.limits.deadline)))
            .map_err(|error| self.hidden.out_of(error))
    }

    async fn attempts(
        &self,
        request: &Request<Vec<u8>>,
        retries: u32,
    ) -> Result<String, CallError> {
        let mut pause = self.limits.pause;
        let mut left = retries;
        loop {
            match response::text(&self.client, request.clone()).await {
                Err(error) if left > 0 && error.is_transient() => {
                    left -= 1;
                    tokio::time::sleep(pause + jitter(pause)).await;
                    pause *= 2;
                }
                outcome => return outcome,
            }
        }
    }
}

/// What a changing request carries.
#[derive(Debug, Clone, Copy)]
pub(in crate::adapters) struct Body<'a> {
    content_type: &'static str,
    value: &'a serde_json::Value,
}

// === impl Body ===

impl<'a> Body<'a> {
    pub(in crate::adapters) fn json(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/json",
            value,
        }
    }

    pub(in crate::adapters) fn apply(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/apply-patch+yaml",
            value,
        }
    }

    pub(in crate::adapters) fn merge_patch(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/merge-patch+json",
            value,
        }
    }

    pub(in crate::adapters) fn json_patch(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/json-patch+json",
            value,
        }
    }
}

fn request(
    method: Method,
    url: &str,
    content_type: Option<&'static str>,
    body: Vec<u8>,
) -> Result<Request<Vec<u8>>, CallError> {
    let mut builder = Request::builder()
        .method(method)
        .uri(url)
        .header(header::ACCEPT, "application/json");
    if let Some(content_type) = content_type {
        builder = builder.header(header::CONTENT_TYPE, content_type);
    }
    builder
        .body(body)
        .map_err(|e| CallError::Request(e.to_string()))
}

/// The settings of the two clients: for calls, and for watches.
fn tuned(mut config: Config) -> (Config, Config) {
    let agent = HeaderValue::from_static(concat!("foretide/", env!("CARGO_PKG_VERSION")));
    config.headers.push((header::USER_AGENT, agent));
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    config.reset_reader_on_write = true;
    config.default_retry = false;
    let mut watching = config.clone();
    watching.read_timeout = Some(WATCH_TIMEOUT + WATCH_MARGIN);
    (config, watching)
}

/// A random span below `bound`, so that clients that failed together do not come back together.
pub(in crate::adapters) fn jitter(bound: Duration) -> Duration {
    // A fresh `RandomState` is seeded by the operating system's randomness.
    let random = RandomState::new().build_hasher().finish();
    let millis = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(random.checked_rem(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_waits_for_ever_or_repeats_by_itself() {
        let (calling, watching) = tuned(Config::new("https://cluster.example".parse().unwrap()));
        for (config, read) in [(calling, 10), (watching, 55)] {
            assert_eq!(config.connect_timeout, Some(Duration::from_secs(3)));
            assert_eq!(config.read_timeout, Some(Duration::from_secs(read)));
            assert_eq!(config.write_timeout, Some(Duration::from_secs(5)));
            assert!(config.reset_reader_on_write && !config.default_retry);
        }
    }

    #[test]
    fn jitter_stays_below_its_bound() {
        assert_eq!(jitter(Duration::ZERO), Duration::ZERO);
        for _again in 0..100 {
            assert!(jitter(Duration::from_millis(7)) < Duration::from_millis(7));
        }
    }

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named() {
        let file = Path::new("/nowhere/kubeconfig");
        let error = Connection::from_kubeconfig(Some(file), None)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use kubeconfig /nowhere/kubeconfig"
        );
    }
}
