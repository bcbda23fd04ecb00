//! Composition of the KEDA scaler: the statuses of autoscalers over gRPC.
//!
//! ```text
//! KEDA ─► serve_tls ─► keda ─► statuses (watch)
//!            │            └─► answers of streams, made at each change
//!            └─► certificates ─► Secret, or files
//! ```
//!
//! Replicas share nothing but the Secret of their certificates, so there is no leader.

use std::{future::Future, sync::Arc};

use futures::FutureExt as _;

use super::server::{
    MetricServer, MetricServerError, Opened, open, unready_certificate, unready_watch,
};
use crate::keda;
use crate::{certificates::Certificates, config::KedaScalerConfig};
use foretide_api::ports::{Autoscalers, ClientCertificates};
use foretide_base::{
    clock::{Clock, Contact},
    http,
    machine::Machine,
};
use foretide_kube::cluster::{Connection, KubeAutoscalers};

/// Runs one KEDA scaler until `shutdown` completes.
///
/// # Errors
/// [`MetricServerError`] when it cannot start, or when a part of it dies.
pub async fn run(
    config: KedaScalerConfig,
    machine: Machine,
    shutdown: impl Future<Output = ()>,
) -> Result<(), MetricServerError> {
    let Opened {
        listener,
        probe_listener,
        connection,
    } = open(&config.server, &machine).await?;
    let autoscalers = Arc::new(KubeAutoscalers::new(
        connection.clone(),
        &config.server.namespaces,
    ));
    let certificates = certificates(&config, &connection, machine.clock());
    let unready = unready(
        &autoscalers,
        certificates.as_deref(),
        connection.clock().contact(),
    );
    let mut server = MetricServer::with_probes(probe_listener, unready);
    let statuses = Arc::clone(&autoscalers) as Arc<dyn Autoscalers>;
    let (router, updates) = keda::service(statuses, machine.clock().clone());
    server.serve(listener, |listener, stopped| match &certificates {
        Some(certificates) => {
            let configs = certificates.configs();
            http::serve_tls(listener, configs, router, keda::LIMITS, stopped).boxed()
        }
        None => http::serve_http2(listener, router, keda::LIMITS, stopped).boxed(),
    });
    server.spawn("answers of streams", updates);
    server.spawn("watch of autoscalers", async move {
        autoscalers.run().await;
    });
    if let Some(certificates) = certificates {
        server.spawn("certificates", async move { certificates.run(None).await });
    }
    started(&config);
    server.until(shutdown).await
}

/// The certificates to serve with; none without TLS.
fn certificates(
    config: &KedaScalerConfig,
    connection: &Connection,
    clock: &Clock,
) -> Option<Arc<Certificates>> {
    let tls = config.tls.as_ref()?;
    let source = tls.service.source(connection.namespace());
    let certificates = Certificates::new(connection, source, tls.clients.clone(), clock.clone());
    Some(Arc::new(certificates))
}

/// Returns the reason for which the scaler is not ready, if there is one.
fn unready(
    autoscalers: &Arc<KubeAutoscalers>,
    certificates: Option<&Certificates>,
    started: Contact,
) -> impl Fn() -> Option<String> + Send + Sync + 'static {
    let autoscalers = Arc::clone(autoscalers);
    let configs = certificates.map(Certificates::configs);
    move || {
        unready_watch(&autoscalers, &started)
            .or_else(|| configs.as_ref().and_then(unready_certificate))
    }
}

#[expect(
    clippy::cognitive_complexity,
    reason = "the branches are those of the log macros"
)]
fn started(config: &KedaScalerConfig) {
    let listen = config.server.listen;
    match config.tls.as_ref().map(|tls| &tls.clients) {
        Some(ClientCertificates::SignedBy(_)) => tracing::info!(%listen, "KEDA scaler started"),
        Some(_) => {
            tracing::warn!(%listen, "KEDA scaler started: any client that reaches the port is answered");
        }
        None => {
            tracing::warn!(%listen, "KEDA scaler started without TLS: any client that reaches the port is answered");
        }
    }
}
