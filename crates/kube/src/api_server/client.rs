//! The connection to one API server, and single requests over it.
//!
//! A [`Connection`] has two HTTP clients, because one read timeout does not suit both short requests and watches that
//! are silent for a minute. [`Calls`] sends single requests: each has a total deadline, waits for a slot of
//! what answers it, and is retried only if it is a read.

use std::{path::Path, sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, header};
use jiff::SignedDuration;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    budgets::{self, Budgets, Slot},
    error::CallError,
    gated_client::{SharedGate, gated_client},
    http_client::client,
    pages::{PageTurns, Pages},
    refusals::Refusals,
    resource::ObjectPath,
    response,
    skew::ClockSkew,
    write_gate::WriteGate,
};
use foretide_api::ports::ClusterError;
use foretide_base::{clock::Clock, leadership, machine::Machine, redact::Redactor};

/// Time for which the server keeps one watch open before it must be renewed. A kind without changes sends nothing but
/// the end of its watch, so this is half of the age at which a store counts as stale.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(25);
/// Time beyond [`WATCH_TIMEOUT`] for which a silent watch counts as alive.
pub const WATCH_MARGIN: Duration = Duration::from_secs(5);

// Shorter than the deadline of a request, so that a retry still fits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Clients of one API server: one for single requests, one for watches, and one for the writes of a process that takes
/// part in an election. What measures the server, or speaks with it, takes its [`Machine`] from here.
#[derive(Clone)]
pub struct Connection {
    pub(crate) machine: Machine,
    unary: Client,
    pub(crate) watch: Client,
    gated: Client,
    gate: SharedGate,
    skew: Arc<ClockSkew>,
    pub(crate) page_turns: PageTurns,
    pub(crate) redactor: Redactor,
    /// The name of the member; empty for the hub.
    pub cluster: Arc<str>,
}

/// Reasons why there is no connection to an API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig file cannot be read, or has no such context.
    #[error("cannot use kubeconfig {file}")]
    Kubeconfig {
        /// The file, or the places where it was looked for.
        file: String,
        /// The problem with it.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// Not inside a cluster, or the pod has no service account token.
    #[error(
        "no kubeconfig was given and this is not a pod with a service account; \
         name a file with --kubeconfig"
    )]
    NotInCluster(#[source] Box<kube::config::InClusterError>),
    /// Certificates, keys or addresses of the configuration are malformed.
    #[error("invalid connection settings of the cluster")]
    Client(#[source] Box<kube::Error>),
}

/// The limits of single requests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Total time of one request, its retries included.
    pub deadline: Duration,
    /// Time for which a request may wait for a slot before its deadline starts.
    pub queue: Duration,
    /// Maximum number of retries of a read after transient failures.
    pub retries: u32,
    /// Minimum pause before the first retry; doubles with each retry, plus up to as much again at random.
    pub backoff: Duration,
    /// Slots: requests in flight at once, for reads and for writes of each API group.
    pub slots: usize,
}

/// Sends single requests to one API server, within [`Limits`].
pub(crate) struct Calls {
    client: Client,
    /// The client of writes.
    writer: Client,
    budgets: Budgets,
    refusals: Refusals,
    /// The skew by all requests of the connection: the renewals of the lease measure it when nothing else is written.
    skew: Arc<ClockSkew>,
    limits: Limits,
    gate: WriteGate,
    redactor: Redactor,
    machine: Machine,
}

/// Deadline of one request, and the number of repetitions until then.
#[derive(Debug, Clone, Copy)]
struct Attempts {
    deadline: Duration,
    retries: u32,
    /// Maximum size of the response.
    max_bytes: usize,
}

// === impl Connection ===

impl Connection {
    /// Connects with a kubeconfig file; without a path, with `$KUBECONFIG` or `~/.kube/config`.
    ///
    /// # Errors
    /// When the file cannot be read, has no such context, or its credentials are malformed. Nothing is sent yet: only
    /// the first request finds out whether the server is up.
    pub async fn from_kubeconfig(
        file: Option<&Path>,
        context: Option<&str>,
        machine: &Machine,
    ) -> Result<Self, ConnectError> {
        Self::new(Self::config(file, context).await?, machine)
    }

    /// The client configuration of a context of a kubeconfig file.
    ///
    /// # Errors
    /// When the file cannot be read, or has no such context.
    pub async fn config(
        file: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Config, ConnectError> {
        let shown = file.map_or_else(
            || "$KUBECONFIG or ~/.kube/config".into(),
            |f| f.display().to_string(),
        );
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

    /// Connects as the service account of the pod this process runs in; its token and CA are read again when they
    /// change.
    ///
    /// # Errors
    /// When this is not a pod with a service account.
    pub fn in_cluster(machine: &Machine) -> Result<Self, ConnectError> {
        let found = Config::incluster();
        let config = found.map_err(|error| ConnectError::NotInCluster(Box::new(error)))?;
        Self::new(config, machine)
    }

    /// Connects with a client configuration; its timeouts are replaced.
    ///
    /// # Errors
    /// When its certificates, keys or addresses are malformed.
    pub fn new(config: Config, machine: &Machine) -> Result<Self, ConnectError> {
        // Only the first installation takes effect; later ones return an error and change nothing.
        let _installed = rustls::crypto::ring::default_provider()
            .install_default()
            .is_ok();
        let malformed = |error| ConnectError::Client(Box::new(error));
        let (unary, watch) = with_timeouts(config);
        let gate = SharedGate::default();
        let gated = gated_client(&unary, machine, Arc::clone(&gate));
        Ok(Self {
            machine: machine.clone(),
            gated: gated.map_err(malformed)?,
            gate,
            unary: client(unary, machine).map_err(malformed)?,
            watch: client(watch, machine).map_err(malformed)?,
            skew: Arc::default(),
            page_turns: PageTurns::default(),
            redactor: Redactor::default(),
            cluster: Arc::from(""),
        })
    }

    /// The same connection, with credentials that are removed from every error.
    #[must_use]
    pub fn with_redactor(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    /// The same connection as that of a member of this hub, whose pages of lists wait for those of other members.
    #[must_use]
    pub fn of_member(self, name: &str, hub: &Self) -> Self {
        Self {
            cluster: name.into(),
            page_turns: hub.page_turns.of_member(),
            ..self
        }
    }

    /// Single requests over this connection, with the default limits.
    pub(crate) fn calls(&self) -> Calls {
        self.calls_within(Limits::default(), WriteGate::default())
    }

    /// Single requests over this connection, with these limits; writes go through `gate`.
    pub(crate) fn calls_within(&self, limits: Limits, gate: WriteGate) -> Calls {
        let writer = if gate.is_elected() {
            // All requests of a process have the gate of its only election.
            self.gate.get_or_init(|| gate.clone());
            &self.gated
        } else {
            &self.unary
        };
        Calls {
            client: self.unary.clone(),
            writer: writer.clone(),
            budgets: Budgets::new(limits.slots, self.clock()),
            refusals: Refusals::new(self.clock()),
            skew: Arc::clone(&self.skew),
            limits,
            gate,
            redactor: self.redactor.clone(),
            machine: self.machine.clone(),
        }
    }

    /// The clock that spans between this process and the server are measured by.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.machine.clock().clone()
    }

    /// The namespace of the configuration: in a pod, the pod's own.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.unary.default_namespace()
    }

    /// A connection over this client, on the machine of the system; for clients of test servers.
    #[must_use]
    pub fn over(client: Client) -> Self {
        Self {
            machine: Machine::system(),
            unary: client.clone(),
            watch: client.clone(),
            gated: client,
            gate: SharedGate::default(),
            skew: Arc::default(),
            page_turns: PageTurns::default(),
            redactor: Redactor::default(),
            cluster: Arc::from(""),
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
            deadline: leadership::WRITE_TIME,
            queue: Duration::from_secs(10),
            retries: 2,
            backoff: Duration::from_millis(100),
            slots: 32,
        }
    }
}

impl Limits {
    /// Limits of the requests about a lease. They have slots of their own, and a failed one is repeated by the
    /// election.
    pub fn for_lease(deadline: Duration) -> Self {
        Self {
            deadline,
            queue: deadline,
            retries: 0,
            slots: 1,
            ..Self::default()
        }
    }
}

// === impl Calls ===

impl Calls {
    #[cfg(test)]
    pub fn new(client: Client, limits: Limits) -> Self {
        Connection::over(client).calls_within(limits, WriteGate::default())
    }

    /// Measures the skew as if the API server had dated a response with `date`.
    #[cfg(test)]
    pub fn date(&self, date: &'static str) {
        let headers = http::HeaderMap::from_iter([(header::DATE, HeaderValue::from_static(date))]);
        self.skew.observe(&headers, self.clock().reading());
    }

    /// The metrics APIs that hang: their reads fail at once.
    pub fn open_circuits(&self) -> Vec<String> {
        self.budgets.open_circuits()
    }

    /// Lead of the server's clock over ours, in whole seconds.
    pub fn clock_skew(&self) -> SignedDuration {
        self.skew.at(self.clock().reading())
    }

    /// The clock that spans between this process and the server are measured by.
    pub fn clock(&self) -> Clock {
        self.machine.clock().clone()
    }

    /// Gets one object.
    pub async fn get<T: DeserializeOwned>(
        &self,
        object: ObjectPath<'_>,
    ) -> Result<T, ClusterError> {
        let read = async { self.read(&object.path()?).await };
        read.await.map_err(|error: CallError| error.about(object))
    }

    /// GETs a value; transient failures are retried within the deadline.
    pub async fn read<T: DeserializeOwned>(&self, url: &str) -> Result<T, CallError> {
        let text = self.read_text(url).await?;
        self.decode(&text)
    }

    /// GETs a text; transient failures are retried within the deadline.
    pub async fn read_text(&self, url: &str) -> Result<String, CallError> {
        self.read_text_within(url, response::RESPONSE_MAX).await
    }

    /// GETs a text of at most `max_bytes` bytes.
    async fn read_text_within(&self, url: &str, max_bytes: usize) -> Result<String, CallError> {
        let request = request(Method::GET, url, None, Vec::new())?;
        let slot = self.budgets.slot(url, false, self.limits.queue).await?;
        let attempts = Attempts {
            deadline: self.limits.deadline,
            retries: self.limits.retries,
            max_bytes,
        };
        self.send(&self.client, &request, attempts, slot).await
    }

    /// GETs the list of a collection, page by page; `each` gets every object as JSON text.
    pub async fn list(
        &self,
        collection: &str,
        selectors: &[(&str, &str)],
        mut each: impl FnMut(&str) -> Result<(), serde_json::Error> + Send,
    ) -> Result<(), CallError> {
        let mut pages = Pages::default();
        while pages.version().is_none() {
            let url = format!("{collection}{}", pages.query(selectors.iter().copied()));
            match self.read_text_within(&url, pages.max_bytes()).await {
                Err(error) => pages.retry_smaller(error)?,
                Ok(text) => {
                    let read = pages.read(&text)?.try_for_each(&mut each);
                    read.map_err(|error| self.undecodable(&error))?;
                }
            }
        }
        Ok(())
    }

    /// The gate of every write.
    pub fn gate(&self) -> &WriteGate {
        &self.gate
    }

    /// Sends a request that changes something, if the gate is open when it has a slot. It is sent once: if its response
    /// is lost, the next sync sees whether it took effect.
    pub async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        url: &str,
        body: Body<'_>,
    ) -> Result<T, CallError> {
        // What may not be written now does not wait for a slot.
        self.gate.admit(self.limits.deadline)?;
        let bytes =
            serde_json::to_vec(body.value).map_err(|e| CallError::Request(e.to_string()))?;
        let request = request(method, url, Some(body.content_type), bytes)?;
        let slot = self.budgets.slot(url, true, self.limits.queue).await?;
        // Checked again as late as possible: the lease may have been lost in the queue.
        let attempts = Attempts {
            deadline: self.gate.admit(self.limits.deadline)?,
            retries: 0,
            max_bytes: response::RESPONSE_MAX,
        };
        let in_flight = self.gate.begin_write();
        let sent = self.send(&self.writer, &request, attempts, slot).await;
        // Also after an error. Without this call the write counts as in flight for its longest time.
        in_flight.end();
        self.decode(&sent?)
    }

    fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<T, CallError> {
        serde_json::from_str(text).map_err(|error| self.undecodable(&error))
    }

    fn undecodable(&self, error: &serde_json::Error) -> CallError {
        // The parser's message may quote the response, and with it a credential.
        CallError::Response(error.to_string()).redacted(&self.redactor)
    }

    async fn send(
        &self,
        client: &Client,
        request: &Request<Vec<u8>>,
        attempts: Attempts,
        mut slot: Slot,
    ) -> Result<String, CallError> {
        let deadline = attempts.deadline;
        let sent = self.with_retries(client, request, attempts, &mut slot);
        let outcome = timeout(deadline, sent)
            .await
            .unwrap_or(Err(CallError::Timeout(deadline)))
            .map_err(|error| error.redacted(&self.redactor));
        slot.record(&outcome);
        outcome
    }

    async fn with_retries(
        &self,
        client: &Client,
        request: &Request<Vec<u8>>,
        attempts: Attempts,
        slot: &mut Slot,
    ) -> Result<String, CallError> {
        let Attempts {
            deadline,
            retries,
            max_bytes,
        } = attempts;
        let clock = self.clock();
        let started = clock.monotonic();
        let mut left = retries;
        let mut backoff = self.limits.backoff;
        // An election has a period of its own, and what is written next at the same path may be something else.
        let refusals = (retries > 0).then_some(&self.refusals);
        loop {
            let outcome = match refusals.and_then(|refusals| refusals.in_force(request.uri())) {
                Some(error) => Err(error),
                None => self.send_once(client, request, max_bytes).await,
            };
            let Err(error) = outcome else {
                return outcome;
            };
            if let Some(refusals) = refusals {
                refusals.record(request.uri(), &error);
            }
            if left == 0 || !error.is_transient() {
                return Err(error);
            }
            let asked = error.retry_after().unwrap_or_default();
            let pause = asked
                .max(backoff)
                .saturating_add(self.machine.jitter(backoff));
            let spent = clock.monotonic().since(started);
            // Otherwise the caller would wait for the deadline and get a timeout in place of the server's message.
            if spent.saturating_add(pause) >= deadline {
                return Err(error.beyond(deadline));
            }
            slot.pause(pause).await;
            left -= 1;
            backoff *= 2;
        }
    }

    async fn send_once(
        &self,
        client: &Client,
        request: &Request<Vec<u8>>,
        max_bytes: usize,
    ) -> Result<String, CallError> {
        let (headers, text) =
            response::headers_and_text(client, request.clone(), max_bytes).await?;
        // The API server forwards the headers of aggregated APIs, which run on other machines.
        if !budgets::is_aggregated(request.uri().path()) {
            self.skew.observe(&headers, self.clock().reading());
        }
        Ok(text)
    }
}

/// The body of a request that changes something.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    content_type: &'static str,
    value: &'a serde_json::Value,
}

// === impl Body ===

impl<'a> Body<'a> {
    pub fn json(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/json",
            value,
        }
    }

    pub fn apply(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/apply-patch+yaml",
            value,
        }
    }

    pub fn merge_patch(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/merge-patch+json",
            value,
        }
    }

    pub fn json_patch(value: &'a serde_json::Value) -> Self {
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

/// The configurations of the two clients: for single requests, and for watches.
fn with_timeouts(mut config: Config) -> (Config, Config) {
    let agent = HeaderValue::from_static(concat!("foretide/", env!("CARGO_PKG_VERSION")));
    config.headers.push((header::USER_AGENT, agent));
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.write_timeout = Some(WRITE_TIMEOUT);
    // Otherwise the idle time of a reused connection counts toward the read timeout.
    config.reset_reader_on_write = true;
    // The client library's own retries may hide minutes of waiting in one request.
    config.default_retry = false;
    let mut watch = config.clone();
    watch.read_timeout = Some(WATCH_TIMEOUT + WATCH_MARGIN);
    (config, watch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_has_timeouts_and_no_retries_of_its_own() {
        let config = Config::new("https://cluster.example".parse().unwrap());
        let (unary, watch) = with_timeouts(config);
        for (config, read) in [(unary, 10), (watch, 30)] {
            assert_eq!(config.connect_timeout, Some(Duration::from_secs(3)));
            assert_eq!(config.read_timeout, Some(Duration::from_secs(read)));
            assert_eq!(config.write_timeout, Some(Duration::from_secs(5)));
            assert!(config.reset_reader_on_write && !config.default_retry);
        }
    }

    #[tokio::test]
    async fn an_unusable_kubeconfig_is_named_in_the_error() {
        let file = Path::new("/nowhere/kubeconfig");
        let error = Connection::from_kubeconfig(Some(file), None, &Machine::system())
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot use kubeconfig /nowhere/kubeconfig"
        );
    }
}
