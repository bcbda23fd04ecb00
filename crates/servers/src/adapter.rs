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
use foretide_base::{
    clock::Contact,
    http::{self, TlsConfigs},
    machine::Machine,
};
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
    let (clock, own) = (machine.clock(), connection.namespace());
    let service = service(&config, own)?;
    let names = registered_names(&config.apis);
    let registrations = Arc::new(ApiServices::new(&connection, service, names));
    let namespaces = &config.server.namespaces;
    let autoscalers = Arc::new(KubeAutoscalers::new(connection.clone(), namespaces));
    let authorities = Arc::new(KubeClientAuthorities::new(connection.clone()));
    let (source, clients) = (config.service.source(own), ClientCertificates::Any);
    let certificates = Certificates::new(&connection, source, clients, clock.clone());
    let configs = certificates.configs();
    let unready = unready(
        &autoscalers,
        &authorities,
        &registrations,
        configs.clone(),
        connection.clock().contact(),
    );
    let mut server = MetricServer::with_probes(probe_listener, unready);
    let mut shutdown = std::pin::pin!(shutdown);
    tokio::select! {
        biased;
        () = shutdown.as_mut() => return Ok(()),
        checked = registrations.check(clock) => checked?,
    }
    let router = router(&config, &connection, &autoscalers, &authorities, &machine);
    machine.serve(&router);
    server.serve(listener, |listener, stopped| {
        http::serve_tls(listener, configs, router, LIMITS, stopped)
    });
    let groups: Vec<&str> = config.apis.iter().map(|api| api.group()).collect();
    tracing::info!(listen = %config.server.listen, apis = groups.join(","), "metric adapter started");
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
    Ok(server.until(shutdown).await?)
}

/// The service of this adapter, which is not the upstream adapter's.
fn service(config: &AdapterConfig, own: &str) -> Result<ServiceName, AdapterError> {
    let service = ServiceName {
        namespace: config.service.namespace(own).to_owned(),
        name: config.service.name.clone(),
    };
    let host = config.upstream.as_ref().and_then(|it| it.url.host_str());
    if host.is_some_and(|host| is_name_of(&service, host)) {
        return Err(AdapterError::OwnUpstream(service));
    }
    Ok(service)
}

/// The only names under which the API server accepts the `APIService`s of these APIs.
fn registered_names(apis: &[MetricApi]) -> Vec<String> {
    apis.iter()
        .flat_map(|api| {
            let (group, versions) = (api.group(), api.versions());
            versions
                .iter()
                .map(move |version| format!("{version}.{group}"))
        })
        .collect()
}

/// The APIs, for authorized users only.
fn router(
    config: &AdapterConfig,
    connection: &Connection,
    autoscalers: &Arc<KubeAutoscalers>,
    authorities: &KubeClientAuthorities,
    machine: &Machine,
) -> axum::Router {
    let (upstream, clock) = (config.upstream.clone(), machine.clock());
    let sources = MetricSources {
        apis: config.apis.clone(),
        autoscalers: Arc::clone(autoscalers),
        pods: KubePodLister::new(connection),
        upstream: upstream.map(|settings| HttpsUpstream::new(settings, machine.clone())),
        clock: clock.clone(),
    };
    let reviewer = KubeAccessReviewer::new(connection, None);
    let control = AccessControl::new(reviewer, authorities.authorities(), clock.clone());
    let router = metrics_api::router(sources);
    metrics_api::protected(router, Arc::new(control))
}

/// Returns the reason for which the adapter is not ready, if there is one.
fn unready(
    autoscalers: &Arc<KubeAutoscalers>,
    authorities: &Arc<KubeClientAuthorities>,
    registrations: &Arc<ApiServices>,
    configs: TlsConfigs,
    started: Contact,
) -> impl Fn() -> Option<String> + Send + Sync + 'static {
    let autoscalers = Arc::clone(autoscalers);
    let authorities = Arc::clone(authorities);
    let registrations = Arc::clone(registrations);
    move || {
        registrations
            .awaited()
            .or_else(|| unready_watch(&autoscalers, &started))
            .or_else(|| unready_certificate(&configs))
            .or_else(|| unready_authorities(&authorities, &started))
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
