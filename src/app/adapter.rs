//! Composition of the metric adapter: the statuses of autoscalers as aggregated metric APIs.
//!
//! ```text
//! API server ─► serve_tls ─► within_limits ─► protect ─► metrics_api ─► statuses (watch), pods, upstream adapter
//!                  │                            └─► reviews by the API server
//!                  └─► certificates ─► Secret, caBundle of the APIServices
//! ```
//!
//! Replicas share nothing but the Secret of their certificates, so there is no leader.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use futures::FutureExt as _;
use jiff::SignedDuration;
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    time::timeout,
};

use super::{connect, shutdown::Parts};
use crate::{
    adapters::{
        certificates::Certificates,
        kube::{
            ApiServices, ConnectError, Connection, KubeAccessReviewer, KubeAutoscalers,
            KubeClientAuthorities, KubePodLister, RegistrationError, ServiceName,
        },
        upstream::HttpsUpstream,
    },
    clock::{Clock, Contact},
    config::{AdapterConfig, MetricApiArg},
    http::{
        self, AccessControl, TlsConfigs,
        metrics_api::{MetricApi, MetricSources},
    },
    ports::{Autoscalers as _, CertificateSource, ClientCertificates, SelfManaged},
};

/// How long the watch of the autoscalers may be silent; a healthy one is renewed within 55 s.
const MAX_SILENCE: SignedDuration = SignedDuration::from_mins(2);
/// How long the requests in flight may take to end.
const TIME_TO_END: Duration = Duration::from_secs(10);

/// The part that answers requests.
const SERVER: &str = "HTTPS server";

/// Why the metric adapter could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// The Kubernetes API cannot be reached with this configuration.
    #[error("no connection to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// Another adapter serves an API.
    #[error("the metric adapter cannot serve all of --apis")]
    Registered(#[from] RegistrationError),
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

/// What the adapter consists of, besides its ports.
struct Adapter {
    connection: Connection,
    autoscalers: Arc<KubeAutoscalers>,
    authorities: Arc<KubeClientAuthorities>,
    registrations: Arc<ApiServices>,
    certificates: Arc<Certificates>,
    apis: Vec<MetricApi>,
    clock: Clock,
}

/// Runs one metric adapter until `shutdown` completes.
///
/// # Errors
/// [`AdapterError`] when it cannot start, or when a part of it dies.
pub async fn run(
    config: AdapterConfig,
    clock: Clock,
    shutdown: impl Future<Output = ()>,
) -> Result<(), AdapterError> {
    let probe_listener = bind(config.probe_listen, "--probe-listen").await?;
    let listener = bind(config.listen, "--listen").await?;
    let connection = connect(&config.access).await?;
    let adapter = Adapter::new(&config, connection, clock);
    let mut parts = Parts::new();
    let probes = http::probes(adapter.unready());
    parts.spawn(http::serve(probe_listener, probes).map(|()| "HTTP server"));
    let mut shutdown = std::pin::pin!(shutdown);
    tokio::select! {
        checked = adapter.registrations.check(&adapter.clock) => checked?,
        () = shutdown.as_mut() => return Ok(()),
    }
    let stop = adapter.serve(&config, listener, &mut parts);
    until(shutdown, stop, parts).await
}

/// Waits for the shutdown signal, or for a part to exit, which is a failure. Then the requests in flight end.
async fn until(
    shutdown: impl Future<Output = ()>,
    stop: oneshot::Sender<()>,
    mut parts: Parts,
) -> Result<(), AdapterError> {
    tokio::select! {
        () = shutdown => {
            drop(stop);
            // In time or not: the process ends.
            timeout(TIME_TO_END, end_of(SERVER, &mut parts)).await.ok();
            Ok(())
        }
        ended = parts.join_next() => {
            let part = ended.and_then(Result::ok);
            Err(AdapterError::Ended { part: part.unwrap_or("a panicked") })
        }
    }
}

async fn bind(addr: SocketAddr, flag: &'static str) -> Result<TcpListener, AdapterError> {
    let bound = TcpListener::bind(addr).await;
    bound.map_err(|source| AdapterError::Listen { addr, flag, source })
}

/// Waits until a part has ended.
async fn end_of(name: &str, parts: &mut Parts) {
    while let Some(ended) = parts.join_next().await {
        if ended.is_ok_and(|ended| ended == name) {
            return;
        }
    }
}

// === impl Adapter ===

impl Adapter {
    fn new(config: &AdapterConfig, connection: Connection, clock: Clock) -> Self {
        let own = || connection.namespace().to_owned();
        let service = ServiceName {
            namespace: config.service_namespace.clone().unwrap_or_else(own),
            name: config.service_name.clone(),
        };
        let apis: Vec<MetricApi> = config.apis.iter().map(|api| served(*api)).collect();
        let source = match config.certificate.clone() {
            Some(files) => CertificateSource::Files(files),
            None => CertificateSource::SelfManaged(SelfManaged {
                namespace: service.namespace.clone(),
                secret: config.certificate_secret.clone(),
                service: service.name.clone(),
                lifetimes: config.lifetimes,
            }),
        };
        let certificates =
            Certificates::new(&connection, source, ClientCertificates::Any, clock.clone());
        let registered: Vec<String> = apis.iter().flat_map(|api| group_versions(*api)).collect();
        let registered: Vec<&str> = registered.iter().map(String::as_str).collect();
        Self {
            autoscalers: Arc::new(KubeAutoscalers::new(connection.clone(), &config.namespaces)),
            authorities: Arc::new(KubeClientAuthorities::new(connection.clone())),
            registrations: Arc::new(ApiServices::new(&connection, service, &registered)),
            certificates: Arc::new(certificates),
            connection,
            apis,
            clock,
        }
    }

    /// The APIs, as only those may read them who are allowed to.
    fn router(&self, config: &AdapterConfig) -> axum::Router {
        let upstream = config.upstream.clone();
        let sources = MetricSources {
            apis: self.apis.clone(),
            autoscalers: Arc::clone(&self.autoscalers),
            pods: KubePodLister::new(&self.connection),
            upstream: upstream.map(|settings| HttpsUpstream::new(settings, self.clock.clone())),
            clock: self.clock.clone(),
        };
        let reviewer = KubeAccessReviewer::new(&self.connection, None);
        let control =
            AccessControl::new(reviewer, self.authorities.authorities(), self.clock.clone());
        let router = http::metrics_api::router(sources);
        http::metrics_api::within_limits(http::protect(router, Arc::new(control)))
    }

    /// What is missing for readiness, if something is.
    fn unready(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let autoscalers = Arc::clone(&self.autoscalers);
        let authorities = self.authorities.authorities();
        let configs: TlsConfigs = self.certificates.configs();
        let started = Contact::now();
        move || {
            if let Some(problem) = unready_watch(&autoscalers, started) {
                Some(problem)
            } else if is_absent(&configs) {
                Some("no certificate to serve with yet".to_owned())
            } else if is_absent(&authorities) {
                Some(
                    "waiting for the ConfigMap kube-system/extension-apiserver-authentication"
                        .to_owned(),
                )
            } else {
                None
            }
        }
    }

    /// The names of the served groups, for the log.
    fn groups(&self) -> String {
        let groups: Vec<&str> = self.apis.iter().map(|api| api.group()).collect();
        groups.join(",")
    }

    /// Starts answering requests, until the sender is used or dropped.
    fn serve(
        self,
        config: &AdapterConfig,
        listener: TcpListener,
        parts: &mut Parts,
    ) -> oneshot::Sender<()> {
        let (stop, stopped) = oneshot::channel::<()>();
        // A dropped sender means shutdown.
        let stopped = stopped.map(|_stop| ());
        let (router, configs) = (self.router(config), self.certificates.configs());
        let served = http::serve_tls(listener, configs, router, stopped);
        parts.spawn(served.map(|()| SERVER));
        tracing::info!(listen = %config.listen, apis = self.groups(), "metric adapter started");
        self.spawn(parts, config.certificate.is_none());
        stop
    }

    /// Starts what keeps the sources of answers up to date. The bundle of our own authority `is_published` in the
    /// registrations.
    fn spawn(self, parts: &mut Parts, is_published: bool) {
        let Self {
            autoscalers,
            authorities,
            registrations,
            certificates,
            ..
        } = self;
        parts.spawn(async move { autoscalers.run().await }.map(|()| "watch of autoscalers"));
        parts.spawn(async move { authorities.run().await }.map(|()| "watch of authorities"));
        let renewed = async move {
            let registrations = is_published.then_some(&*registrations);
            certificates.run(registrations).await;
        };
        parts.spawn(renewed.map(|()| "certificates"));
    }
}

/// What is wrong with the watch of a process that has `started`, if something is.
pub(super) fn unready_watch(autoscalers: &KubeAutoscalers, started: Contact) -> Option<String> {
    let silence = autoscalers.watch().silent_since(started).age();
    if !autoscalers.is_synced() {
        return Some("waiting for the first list of EffectiveHorizontalPodAutoscalers".to_owned());
    }
    (silence > MAX_SILENCE).then(|| {
        let seconds = silence.as_secs();
        format!(
            "the watch of EffectiveHorizontalPodAutoscalers has received nothing for {seconds} s"
        )
    })
}

pub(super) fn is_absent<T>(value: &watch::Receiver<Option<T>>) -> bool {
    value.borrow().is_none()
}

const fn served(api: MetricApiArg) -> MetricApi {
    match api {
        MetricApiArg::External => MetricApi::External,
        MetricApiArg::Custom => MetricApi::Custom,
    }
}

fn group_versions(api: MetricApi) -> impl Iterator<Item = String> {
    let versions = api.versions().iter();
    versions.map(move |version| format!("{}/{version}", api.group()))
}
