//! Composition of the KEDA scaler: the statuses of autoscalers over gRPC.
//!
//! ```text
//! KEDA ─► serve_tls ─► http::keda ─► statuses (watch)
//!            └─► certificates ─► Secret, or files
//! ```
//!
//! Replicas share nothing but the Secret of their certificates, so there is no leader.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{net::TcpListener, sync::oneshot, time::timeout};

use super::{
    adapter::{is_absent, unready_watch},
    connect,
    shutdown::{Parts, wait_for},
};
use crate::{
    adapters::{
        certificates::Certificates,
        kube::{ConnectError, Connection, KubeAutoscalers},
    },
    clock::{Clock, Contact},
    config::KedaScalerConfig,
    http,
    ports::Autoscalers,
};

/// How long the requests in flight may take to end.
const TIME_TO_END: Duration = Duration::from_secs(10);

/// The part that answers KEDA.
const SERVER: &str = "gRPC server";

/// Why the KEDA scaler could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum KedaScalerError {
    /// The Kubernetes API cannot be reached with this configuration.
    #[error("no connection to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// A port cannot be opened.
    #[error("cannot listen on {addr}; choose another address with {flag}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The flag that names it.
        flag: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A task that runs until shutdown exited before it.
    #[error("{part} task exited unexpectedly")]
    Ended {
        /// Which part.
        part: &'static str,
    },
}

/// Runs one KEDA scaler until `shutdown` completes.
///
/// # Errors
/// [`KedaScalerError`] when it cannot start, or when a part of it dies.
pub async fn run(
    config: KedaScalerConfig,
    clock: Clock,
    shutdown: impl Future<Output = ()>,
) -> Result<(), KedaScalerError> {
    let probe_listener = bind(config.probe_listen, "--probe-listen").await?;
    let listener = bind(config.listen, "--listen").await?;
    let connection = connect(&config.access).await?;
    let autoscalers = Arc::new(KubeAutoscalers::new(connection.clone(), &config.namespaces));
    let certificates = certificates(&config, &connection, &clock);
    let mut parts = Parts::new();
    let probes = http::probes(unready(&autoscalers, certificates.as_deref()));
    parts.spawn(http::serve(probe_listener, probes).map(|()| "HTTP server"));
    let (stop, stopped) = oneshot::channel::<()>();
    // A dropped sender means shutdown.
    let stopped = stopped.map(|_stop| ());
    let router = http::keda::router(Arc::clone(&autoscalers) as Arc<dyn Autoscalers>, clock);
    let server: BoxFuture<'static, ()> = match &certificates {
        Some(certificates) => {
            let configs = certificates.configs();
            http::serve_tls(listener, configs, router, stopped).boxed()
        }
        None => http::serve_http2(listener, router, stopped).boxed(),
    };
    parts.spawn(server.map(|()| SERVER));
    parts.spawn(async move { autoscalers.run().await }.map(|()| "watch of autoscalers"));
    if let Some(certificates) = certificates {
        let renewed = async move { certificates.run(None).await };
        parts.spawn(renewed.map(|()| "certificates"));
    }
    started(&config);
    tokio::select! {
        () = shutdown => {
            drop(stop);
            // In time or not: the process ends.
            timeout(TIME_TO_END, wait_for(&[SERVER], 1, &mut parts)).await.ok();
            Ok(())
        }
        ended = parts.join_next() => {
            let part = ended.and_then(Result::ok);
            Err(KedaScalerError::Ended { part: part.unwrap_or("a panicked") })
        }
    }
}

/// The certificates to serve with; none without TLS.
fn certificates(
    config: &KedaScalerConfig,
    connection: &Connection,
    clock: &Clock,
) -> Option<Arc<Certificates>> {
    let tls = config.tls.as_ref()?;
    let source = tls.source(connection.namespace());
    let certificates = Certificates::new(connection, source, tls.clients.clone(), clock.clone());
    Some(Arc::new(certificates))
}

/// What is missing for readiness, if something is.
fn unready(
    autoscalers: &Arc<KubeAutoscalers>,
    certificates: Option<&Certificates>,
) -> impl Fn() -> Option<String> + Send + Sync + 'static {
    let autoscalers = Arc::clone(autoscalers);
    let configs = certificates.map(Certificates::configs);
    let started = Contact::now();
    move || {
        unready_watch(&autoscalers, started).or_else(|| {
            let absent = configs.as_ref().is_some_and(is_absent);
            absent.then(|| "no certificate to serve with yet".to_owned())
        })
    }
}

#[expect(
    clippy::cognitive_complexity,
    reason = "the branches are those of the log macros"
)]
fn started(config: &KedaScalerConfig) {
    let listen = config.listen;
    if config.tls.is_some() {
        tracing::info!(%listen, "KEDA scaler started");
    } else {
        tracing::warn!(%listen, "KEDA scaler started without TLS: any client that reaches the port is answered");
    }
}

async fn bind(addr: SocketAddr, flag: &'static str) -> Result<TcpListener, KedaScalerError> {
    let bound = TcpListener::bind(addr).await;
    bound.map_err(|source| KedaScalerError::Listen { addr, flag, source })
}
