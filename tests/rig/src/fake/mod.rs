//! The metric APIs served from a table that a test writes, behind the real aggregator: for steps that must be exact to
//! the second, and for metric types that no real adapter serves here. It answers any client that the API server
//! admits, and keeps nothing after the test.

mod answer;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client,
    api::{Api, ListParams},
};

use crate::{Cluster, Result, tls_server::TlsServer};
use answer::{Answer, Failure, Request};
use table::Table;

pub use table::{PodUsage, Reading};

/// One of the metric APIs that an autoscaler reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricsApi {
    /// `metrics.k8s.io/v1beta1`: not together with metrics-server.
    Resource,
    /// `custom.metrics.k8s.io/v1beta2`.
    Custom,
    /// `external.metrics.k8s.io/v1beta1`.
    External,
}

impl MetricsApi {
    const ALL: [Self; 3] = [Self::Resource, Self::Custom, Self::External];

    const fn group_version(self) -> (&'static str, &'static str) {
        match self {
            Self::Resource => ("metrics.k8s.io", "v1beta1"),
            Self::Custom => ("custom.metrics.k8s.io", "v1beta2"),
            Self::External => ("external.metrics.k8s.io", "v1beta1"),
        }
    }
}

/// A server of metric APIs, registered with one cluster; it ends when dropped (its registrations
/// end with the cluster). What is not in its table has no metrics: a list leaves it out, an object
/// is 404, an external metric is an empty list.
#[derive(Debug)]
pub struct FakeMetrics {
    table: Arc<Mutex<Table>>,
    server: TlsServer,
}

impl FakeMetrics {
    /// Serves `apis` to this cluster, and returns when its API server has found them available.
    ///
    /// # Errors
    /// When the server cannot be set up, or an API is not found available.
    pub async fn start(cluster: &Cluster, apis: &[MetricsApi]) -> Result<Self> {
        let fake = Self::unregistered(cluster).await?;
        let port = fake.server.port();
        for (group, version) in apis.iter().map(|api| api.group_version()) {
            cluster.register_api(group, version, port).await?;
        }
        Ok(fake)
    }

    /// Serves all APIs to clients that know its [`FakeMetrics::url`]; nothing is registered with the cluster.
    ///
    /// # Errors
    /// When the server cannot be set up.
    pub async fn unregistered(cluster: &Cluster) -> Result<Self> {
        let table = Arc::new(Mutex::new(Table::default()));
        let world = World {
            table: Arc::clone(&table),
            client: cluster.client(),
        };
        let router = Router::new().fallback(respond).with_state(world);
        let server = TlsServer::start(&cluster.layout().pki.server("fake-api")?, router).await?;
        Ok(Self { table, server })
    }

    /// Base URL. The authority of the cluster has signed its certificate.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Sets the usage of a pod.
    pub fn set_pod_usage(&self, namespace: &str, pod: &str, usage: PodUsage) {
        self.table()
            .usage
            .insert((namespace.to_owned(), pod.to_owned()), usage);
    }

    /// Sets the usage of every pod without one of its own.
    pub fn set_usage_of_each_pod(&self, usage: PodUsage) {
        self.table().usage_of_others = Some(usage);
    }

    /// Removes the resource metrics of a pod.
    pub fn remove_pod_usage(&self, namespace: &str, pod: &str) {
        self.table()
            .usage
            .remove(&(namespace.to_owned(), pod.to_owned()));
    }

    /// Sets a metric of a pod (HPA type Pods).
    pub fn set_pod_metric(&self, namespace: &str, pod: &str, metric: &str, reading: Reading) {
        self.set_object_metric(namespace, ("pods", pod), metric, reading);
    }

    /// Removes a metric of a pod.
    pub fn remove_pod_metric(&self, namespace: &str, pod: &str, metric: &str) {
        let key = [namespace, "pods", pod, metric].map(str::to_owned);
        self.table().custom.remove(&key);
    }

    /// A metric of one object (HPA type Object), named as in the path of the API: resource with its
    /// group (`deployments.apps`, `services`, `ingresses.networking.k8s.io`) and name. For a metric
    /// of the namespace itself the resource is `namespaces`.
    pub fn set_object_metric(
        &self,
        namespace: &str,
        (resource, name): (&str, &str),
        metric: &str,
        reading: Reading,
    ) {
        let key = [namespace, resource, name, metric].map(str::to_owned);
        self.table().custom.insert(key, reading);
    }

    /// All series of an external metric in a namespace; none at all removes it.
    pub fn set_external(&self, namespace: &str, metric: &str, series: Vec<Reading>) {
        self.table()
            .external
            .insert((namespace.to_owned(), metric.to_owned()), series);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The data of the server: the table, and the pods' labels through the API server.
#[derive(Clone)]
struct World {
    table: Arc<Mutex<Table>>,
    client: Client,
}

async fn respond(State(world): State<World>, uri: Uri) -> Response {
    let answer = world.answer(&uri).await;
    let (code, body) = match answer {
        Ok(body) => (StatusCode::OK, body),
        Err(failure) => (failure.code(), failure.status()),
    };
    (
        code,
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

impl World {
    async fn answer(&self, uri: &Uri) -> Answer {
        let request = Request::parse(uri)?;
        let pods = match request.pods_wanted() {
            Some((namespace, selector)) => self.pods(namespace, selector).await?,
            None => Vec::new(),
        };
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        answer::answer(&request, &table, &pods, now())
    }

    async fn pods(&self, namespace: Option<&str>, selector: &str) -> Result<Vec<Pod>, Failure> {
        let api: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let listing = api.list(&ListParams::default().labels(selector)).await;
        listing
            .map(|list| list.items)
            .map_err(|no| Failure::Internal(no.to_string()))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "readings are as old as they say, by the real clock"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
