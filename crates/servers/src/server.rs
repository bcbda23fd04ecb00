//! The common part of the metric adapter and the KEDA scaler: they answer from the statuses of autoscalers, none leads,
//! and at the end the requests in flight get their responses.

use std::{future::Future, net::SocketAddr, time::Duration};

use futures::FutureExt as _;
use tokio::{
    net::TcpListener,
    sync::oneshot::{self, error::RecvError},
    time::timeout,
};

use crate::config::MetricServerConfig;
use foretide_api::ports::Autoscalers as _;
use foretide_base::{
    clock::Contact,
    http::{TlsConfigs, probes, serve},
    machine::Machine,
    service::{Parts, listen, wait_for},
};
use foretide_kube::cluster::{
    ConnectError, Connection, KubeAutoscalers, MAX_STALENESS, WatchReport,
};

/// The source of every metric server's answers.
const AUTOSCALERS: &str = "EffectiveHorizontalPodAutoscalers";
/// The time for requests in flight to end.
const TIME_TO_END: Duration = Duration::from_secs(10);
/// The part that answers requests.
const SERVER: &str = "server";

/// Reason for which a server of metrics could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum MetricServerError {
    /// The Kubernetes API cannot be reached with this configuration.
    #[error("no connection to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// A port cannot be opened.
    #[error("cannot listen on {addr}; choose another address with {flag}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The flag of the address.
        flag: &'static str,
        /// Cause of the failure.
        #[source]
        source: std::io::Error,
    },
    /// A task that runs until shutdown exited before it.
    #[error("{part} task exited unexpectedly")]
    Ended {
        /// Name of the part.
        part: &'static str,
    },
}

/// The ports of a server and its connection to the Kubernetes API. A host of a simulation has no ports.
pub(crate) struct Opened {
    pub(crate) listener: Option<TcpListener>,
    pub(crate) probe_listener: Option<TcpListener>,
    pub(crate) connection: Connection,
}

/// The parts of a server that runs, and the signal by which it accepts no more requests.
pub(crate) struct MetricServer {
    parts: Parts,
    stop: Option<oneshot::Sender<()>>,
}

/// The signal to accept no more requests.
pub(crate) type Stopped = futures::future::Map<oneshot::Receiver<()>, fn(Result<(), RecvError>)>;

/// Opens the ports, and connects.
pub(crate) async fn open(
    config: &MetricServerConfig,
    machine: &Machine,
) -> Result<Opened, MetricServerError> {
    if let Some(memory) = machine.memory() {
        memory.log_undivided();
    }
    Ok(Opened {
        probe_listener: bind(config.probe_listen, "--probe-listen", machine).await?,
        listener: bind(config.listen, "--listen", machine).await?,
        connection: config.access.connect(machine).await?,
    })
}

async fn bind(
    addr: SocketAddr,
    flag: &'static str,
    machine: &Machine,
) -> Result<Option<TcpListener>, MetricServerError> {
    listen(addr, machine)
        .await
        .map_err(|source| MetricServerError::Listen { addr, flag, source })
}

// === impl MetricServer ===

impl MetricServer {
    /// Answers probes from now on.
    pub(crate) fn with_probes(
        listener: Option<TcpListener>,
        unready: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let mut server = Self {
            parts: Parts::new(),
            stop: None,
        };
        if let Some(listener) = listener {
            server.spawn("probes", serve(listener, probes(unready)));
        }
        server
    }

    /// Answers requests from now on: `serve` gets the signal to end.
    pub(crate) fn serve<S>(
        &mut self,
        listener: Option<TcpListener>,
        serve: impl FnOnce(TcpListener, Stopped) -> S,
    ) where
        S: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        self.stop = Some(stop);
        // A dropped sender means shutdown.
        let stopped: Stopped = stopped.map(drop as fn(_));
        match listener {
            Some(listener) => self.spawn(SERVER, serve(listener, stopped)),
            None => self.spawn(SERVER, stopped),
        }
    }

    /// Starts a part that runs until the process ends.
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        part: impl Future<Output = ()> + Send + 'static,
    ) {
        self.parts.spawn(part.map(move |()| name));
    }

    /// Waits for the shutdown signal, or for a part to exit, which is a failure. Then the requests in flight end.
    pub(crate) async fn until(
        mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), MetricServerError> {
        tokio::select! {
            biased;
            () = shutdown => {
                drop(self.stop);
                // The process ends even if they are not in time.
                timeout(TIME_TO_END, wait_for(&[SERVER], &mut 1, &mut self.parts)).await.ok();
                Ok(())
            }
            ended = self.parts.join_next() => {
                let part = ended.and_then(Result::ok);
                Err(MetricServerError::Ended { part: part.unwrap_or("a panicked") })
            }
        }
    }
}

/// Problem of the watch of the autoscalers in a process that has `started`, if there is one.
pub(crate) fn unready_watch(autoscalers: &KubeAutoscalers, started: &Contact) -> Option<String> {
    if !autoscalers.is_synced() {
        return Some(format!("waiting for the first list of {AUTOSCALERS}"));
    }
    silent(&autoscalers.watch(), AUTOSCALERS, started)
}

/// Problem of a watch of these objects that has delivered nothing for too long, if it has.
pub(crate) fn silent(watch: &WatchReport, objects: &str, started: &Contact) -> Option<String> {
    let silence = watch.silent_since(started).age();
    (silence > MAX_STALENESS).then(|| {
        let seconds = silence.as_secs();
        format!("the watch of {objects} has delivered nothing for {seconds} s")
    })
}

/// Problem while there is no certificate to serve with.
pub(crate) fn unready_certificate(configs: &TlsConfigs) -> Option<String> {
    configs
        .borrow()
        .is_none()
        .then(|| "no certificate to serve with yet".to_owned())
}
