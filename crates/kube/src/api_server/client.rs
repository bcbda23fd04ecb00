//! The connection to one API server.
//!
//! A [`Connection`] has two HTTP clients, because one read timeout does not suit both short requests and watches that
//! are silent for a minute.

mod calls;

use std::{path::Path, sync::Arc, time::Duration};

use http::{HeaderValue, header};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

pub use self::calls::{Body, Calls, Limits};
use super::{
    gated_client::{SharedGate, gated_client},
    http_client::client,
    pages::PageTurns,
    skew::ClockSkew,
};
use foretide_base::{clock::Clock, machine::Machine, opaque::Opaque, redact::Redactor};

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
#[derive(Debug, Clone)]
pub struct Connection {
    pub(crate) machine: Machine,
    unary: Opaque<Client>,
    pub(crate) watch: Opaque<Client>,
    gated: Opaque<Client>,
    gate: SharedGate,
    skew: Arc<ClockSkew>,
    pub(crate) page_turns: PageTurns,
    pub(crate) redactor: Redactor,
    /// The name of the member; empty for the hub.
    pub(crate) cluster: Arc<str>,
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

impl From<kube::Error> for ConnectError {
    fn from(error: kube::Error) -> Self {
        Self::Client(Box::new(error))
    }
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
    pub(crate) async fn config(
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
        let read = async {
            match file {
                None => Config::from_kubeconfig(&options).await,
                Some(file) => {
                    Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options).await
                }
            }
        };
        read.await.map_err(|source| ConnectError::Kubeconfig {
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
    pub(crate) fn new(config: Config, machine: &Machine) -> Result<Self, ConnectError> {
        // Only the first installation takes effect; later ones return an error and change nothing.
        let _installed = rustls::crypto::ring::default_provider()
            .install_default()
            .is_ok();
        let (unary, watch) = with_timeouts(config);
        let gate = SharedGate::default();
        Ok(Self {
            machine: machine.clone(),
            gated: Opaque(gated_client(&unary, machine, Arc::clone(&gate))?),
            gate,
            unary: Opaque(client(unary, machine)?),
            watch: Opaque(client(watch, machine)?),
            skew: Arc::default(),
            page_turns: PageTurns::default(),
            redactor: Redactor::default(),
            cluster: Arc::from(""),
        })
    }

    /// The same connection, with credentials that are removed from every error.
    pub(crate) fn with_redactor(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    /// The same connection as that of a member of this hub, whose pages of lists wait for those of other members.
    pub(crate) fn of_member(self, name: &str, hub: &Self) -> Self {
        Self {
            cluster: name.into(),
            page_turns: hub.page_turns.of_member(),
            ..self
        }
    }

    /// The clock that spans between this process and the server are measured by.
    pub fn clock(&self) -> Clock {
        self.machine.clock().clone()
    }

    /// The namespace of the configuration: in a pod, the pod's own.
    pub fn namespace(&self) -> &str {
        self.unary.0.default_namespace()
    }

    /// A connection over this client, on the machine of the system; for clients of test servers.
    pub fn over(client: Client) -> Self {
        let client = Opaque(client);
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
