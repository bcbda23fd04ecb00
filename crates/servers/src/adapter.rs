//! Composition of the metric adapter: the statuses of autoscalers as aggregated metric APIs.
//!
//! ```text
//! API server ─► serve_tls ─► protect ─► within_limits ─► metrics_api ─► statuses (watch), pods, upstream adapter
//!                  │           └─► reviews by the API server
//!                  └─► certificates ─► Secret, caBundle of the APIServices
//! ```
//!
//! Replicas share nothing but the Secret of their certificates, so there is no leader.

use std::{future::Future, sync::Arc};

use tokio::net::TcpListener;

use super::server::{
    MetricServer, MetricServerError, Opened, open, silent, unready_certificate, unready_watch,
};
use crate::metrics_api;
use crate::{
    certificates::Certificates,
    config::AdapterConfig,
    identity::AccessControl,
    metrics_api::{MetricApi, MetricSources},
};
use foretide_api::ports::ClientCertificates;
use foretide_base::{clock::Contact, http, machine::Machine};
use foretide_kube::{
    cluster::{
        ApiServices, Connection, KubeAccessReviewer, KubeAutoscalers, KubeClientAuthorities,
        KubePodLister, RegistrationError, ServiceName,
    },
    upstream::HttpsUpstream,
};

/// Source of the authorities that an API server authenticates its clients by, as messages name it.
const AUTHORITIES: &str = "the ConfigMap kube-system/extension-apiserver-authentication";
/// The API servers hold a few connections each, maybe all behind one address, and may send all of their requests on one.
const LIMITS: http::PortLimits = http::PortLimits {
    connections: 256,
    connections_of_peer: 256,
    requests: 256,
};

/// Reason for which the metric adapter could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// An error of every server of metrics.
    #[error(transparent)]
    Server(#[from] MetricServerError),
    /// Another adapter serves an API.
    #[error("the metric adapter cannot serve all of --apis")]
    Registered(#[from] RegistrationError),
    /// The upstream adapter is this adapter, which would pass requests on to itself.
    #[error(
        "--upstream-url names {0}, the service of this adapter; expected that of another adapter"
    )]
    OwnUpstream(ServiceName),
}

/// The parts of the adapter except its ports.
struct Adapter {
    connection: Connection,
    autoscalers: Arc<KubeAutoscalers>,
    authorities: Arc<KubeClientAuthorities>,
    registrations: Arc<ApiServices>,
    certificates: Arc<Certificates>,
    apis: Vec<MetricApi>,
    machine: Machine,
}

/// Runs one metric adapter until `shutdown` completes.
///
/// # Errors
/// [`AdapterError`] when it cannot start, or when a part of it dies.
pub async fn run(
    config: AdapterConfig,
    machine: Machine,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AdapterError> {
    let Opened {
        listener,
        probe_listener,
        connection,
    } = open(&config.server, &machine).await?;
    let adapter = Adapter::new(&config, connection, machine)?;
    let mut server = MetricServer::with_probes(probe_listener, adapter.unready());
    let mut shutdown = std::pin::pin!(shutdown);
    tokio::select! {
        biased;
        () = shutdown.as_mut() => return Ok(()),
        checked = adapter.registrations.check(adapter.machine.clock()) => checked?,
    }
    adapter.serve(&config, listener, &mut server);
    Ok(server.until(shutdown).await?)
}

// === impl Adapter ===

impl Adapter {
    fn new(
        config: &AdapterConfig,
        connection: Connection,
        machine: Machine,
    ) -> Result<Self, AdapterError> {
        let own = connection.namespace();
        let service = ServiceName {
            namespace: config.service.namespace(own).to_owned(),
            name: config.service.name.clone(),
        };
        let host = config.upstream.as_ref().and_then(|it| it.url.host_str());
        if host.is_some_and(|host| is_name_of(&service, host)) {
            return Err(AdapterError::OwnUpstream(service));
        }
        let certificates = Certificates::new(
            &connection,
            config.service.source(own),
            ClientCertificates::Any,
            machine.clock().clone(),
        );
        let versions: Vec<String> = config
            .apis
            .iter()
            .flat_map(|api| group_versions(*api))
            .collect();
        let registered: Vec<&str> = versions.iter().map(String::as_str).collect();
        Ok(Self {
            autoscalers: Arc::new(KubeAutoscalers::new(
                connection.clone(),
                &config.server.namespaces,
            )),
            authorities: Arc::new(KubeClientAuthorities::new(connection.clone())),
            registrations: Arc::new(ApiServices::new(&connection, service, &registered)),
            certificates: Arc::new(certificates),
            connection,
            apis: config.apis.clone(),
            machine,
        })
    }

    /// The APIs, for authorized users only.
    fn router(&self, config: &AdapterConfig) -> axum::Router {
        let (upstream, clock) = (config.upstream.clone(), self.machine.clock());
        let sources = MetricSources {
            apis: self.apis.clone(),
            autoscalers: Arc::clone(&self.autoscalers),
            pods: KubePodLister::new(&self.connection),
            upstream: upstream.map(|settings| HttpsUpstream::new(settings, self.machine.clone())),
            clock: clock.clone(),
        };
        let reviewer = KubeAccessReviewer::new(&self.connection, None);
        let control = AccessControl::new(reviewer, self.authorities.authorities(), clock.clone());
        let router = metrics_api::router(sources);
        metrics_api::protected(router, Arc::new(control))
    }

    /// Returns the reason for which the adapter is not ready, if there is one.
    fn unready(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let autoscalers = Arc::clone(&self.autoscalers);
        let authorities = Arc::clone(&self.authorities);
        let registrations = Arc::clone(&self.registrations);
        let configs = self.certificates.configs();
        let started = self.connection.clock().contact();
        move || {
            registrations
                .awaited()
                .or_else(|| unready_watch(&autoscalers, &started))
                .or_else(|| unready_certificate(&configs))
                .or_else(|| unready_authorities(&authorities, &started))
        }
    }

    /// The names of the served groups, for the log.
    fn groups(&self) -> String {
        self.apis
            .iter()
            .map(|api| api.group())
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Answers requests, and keeps the sources of the answers up to date.
    fn serve(
        self,
        config: &AdapterConfig,
        listener: Option<TcpListener>,
        server: &mut MetricServer,
    ) {
        let (router, configs) = (self.router(config), self.certificates.configs());
        self.machine.serve(&router);
        server.serve(listener, |listener, stopped| {
            http::serve_tls(listener, configs, router, LIMITS, stopped)
        });
        tracing::info!(listen = %config.server.listen, apis = self.groups(), "metric adapter started");
        let Self {
            autoscalers,
            authorities,
            registrations,
            certificates,
            ..
        } = self;
        // The bundle of the adapter's own authority is published in the registrations.
        let is_published = config.service.certificate.is_none();
        server.spawn("watch of autoscalers", async move {
            autoscalers.run().await;
        });
        server.spawn("watch of authorities", async move {
            authorities.run().await;
        });
        server.spawn("certificates", async move {
            let registrations = is_published.then_some(&*registrations);
            certificates.run(registrations).await;
        });
    }
}

fn unready_authorities(authorities: &KubeClientAuthorities, started: &Contact) -> Option<String> {
    if authorities.authorities().borrow().is_none() {
        return Some(format!("waiting for {AUTHORITIES}"));
    }
    silent(&authorities.watch(), AUTHORITIES, started)
}

/// Returns whether a host is a name under which clients in a cluster reach a service, with any domain of the cluster.
fn is_name_of(service: &ServiceName, host: &str) -> bool {
    let ServiceName { namespace, name } = service;
    let host = host.trim_end_matches('.');
    let short = [name.clone(), format!("{name}.{namespace}")];
    let qualified = format!("{name}.{namespace}.svc");
    let domain = host.strip_prefix(&qualified);
    short.iter().any(|one| one == host)
        || domain.is_some_and(|domain| domain.is_empty() || domain.starts_with('.'))
}

fn group_versions(api: MetricApi) -> impl Iterator<Item = String> {
    api.versions()
        .iter()
        .map(move |version| format!("{}/{version}", api.group()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_own_service_are_refused_as_those_of_another_adapter() {
        let service = ServiceName {
            namespace: "ops".to_owned(),
            name: "foretide-adapter".to_owned(),
        };
        for (host, is_own) in [
            ("foretide-adapter", true),
            ("foretide-adapter.ops", true),
            ("foretide-adapter.ops.", true),
            ("foretide-adapter.ops.svc", true),
            ("foretide-adapter.ops.svc.cluster.local", true),
            ("foretide-adapter.ops.svc.example.org.", true),
            ("foretide-adapter.monitoring", false),
            ("foretide-adapter.monitoring.svc", false),
            ("foretide-adapter.ops.svcx", false),
            ("foretide-adapter2.ops.svc", false),
            ("adapter.ops.svc", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_name_of(&service, host), is_own, "{host}");
        }
    }
}
