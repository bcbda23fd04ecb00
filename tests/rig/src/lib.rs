//! A real Kubernetes control plane and Prometheus on loopback, for tests and demos.
//!
//! [`Cluster::start`] gives etcd, kube-apiserver, kube-controller-manager, kube-scheduler, simulated
//! nodes (kwok) and, on request, metrics-server: each the real program, built from the Go modules
//! pinned in `go/` on first use ([`Binaries::ensure`]; `rig build` does it ahead). Only containers
//! are simulated: pods become ready without running anything, after [`ClusterOptions::pod_startup`],
//! and use what their annotation [`CPU_ANNOTATION`] says. [`Prometheus::start`] gives a Prometheus
//! that has a [`History`], including its future part, and [`Prometheus::start_scraping`] one that scrapes and evaluates
//! rules. [`FakeMetrics`] serves metric APIs from a table where a test needs an exact value. [`Fleet::start`] gives a hub
//! and members, each behind a relay that can be blocked.
//!
//! Everything listens on free ports of 127.0.0.1 and any number runs at once (a cluster takes about 700 MB and starts
//! in three to five seconds). Each part stops when its value is dropped, and when the process ends in any way. A
//! cluster dropped by a panic leaves its objects and logs in [`failures`]; so a test should own its cluster and
//! `unwrap`, not return errors. Three environment variables: `RIG_KEEP=1` keeps the folders of all
//! runs, `RIG_FOLDER` names the folder that has them, and `KUBEBUILDER_ASSETS` one of existing programs.
//!
//! These programs run in real time: a test waits for conditions with [`eventually`], never for a fixed time.
//!
//! ```no_run
//! use std::time::Duration;
//! use k8s_openapi::api::apps::v1::Deployment;
//! use kube::Api;
//! use rig::{Cluster, ClusterOptions, Component, History, Prometheus, Span, eventually};
//! use serde_json::json;
//!
//! # async fn example() {
//! let options = ClusterOptions::named("docs").with(Component::MetricsServer);
//! let cluster = Cluster::start(options).await.unwrap();
//! let shop = cluster.namespace("shop").await.unwrap();
//!
//! let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &shop);
//! let web = json!({
//!     "metadata": {"name": "web"},
//!     "spec": {
//!         "replicas": 2,
//!         "selector": {"matchLabels": {"app": "web"}},
//!         "template": {
//!             "metadata": {"labels": {"app": "web"}, "annotations": {rig::CPU_ANNOTATION: "170m"}},
//!             "spec": {"containers": [{"name": "web", "image": "web:1"}]},
//!         },
//!     },
//! });
//! cluster.put(&deployments, &web).await.unwrap();
//! eventually(Duration::from_secs(30), "two pods are ready", || async {
//!     let status = deployments.get("web").await.map_err(|no| no.to_string())?.status;
//!     let ready = status.and_then(|status| status.ready_replicas).unwrap_or_default();
//!     if ready == 2 { Ok(()) } else { Err(format!("{ready} are")) }
//! })
//! .await;
//!
//! // Two days of a daily wave; the second is in the future when `now` lies in the middle.
//! let now = 1_767_225_600.0;
//! let span = Span { start: now - 86_400.0, end: now + 86_400.0, step: 60.0 };
//! let wave = |at: f64| 1.0 + (at / 86_400.0 * std::f64::consts::TAU).sin();
//! let history = History::new().cpu_usage(["shop", "web-7c5d8b9f6d-x2v9k", "web"], span, wave);
//! let prometheus = Prometheus::start(&history).await.unwrap();
//!
//! // The controller under test runs with the permissions of its ServiceAccount, and no others.
//! cluster.namespace("foretide-system").await.unwrap();
//! cluster.apply(&std::fs::read_to_string("deploy/20-controller-rbac.yaml").unwrap()).await.unwrap();
//! let kubeconfig = cluster.service_account_kubeconfig("foretide-system", "foretide").await;
//! # drop((kubeconfig, prometheus.url()));
//! let refused = cluster.audit().unwrap().into_iter().filter(|event| event.code == 403);
//! assert_eq!(refused.count(), 0);
//! # }
//! ```

mod access;
mod audit;
mod binaries;
mod cluster;
mod dump;
mod error;
mod fake;
mod fleet;
mod go_module;
mod history;
mod kwok;
mod layout;
mod manifests;
mod options;
mod pki;
mod place;
mod process;
mod prometheus;
mod relay;
mod stopwatch;
mod tenants;
mod tls_server;
mod wait;

pub use audit::AuditEvent;
pub use binaries::{Binaries, Clients, Component, KedaClient};
pub use cluster::Cluster;
pub use error::{Error, Result};
pub use fake::{FakeMetrics, MetricsApi, PodUsage, Reading};
pub use fleet::{Fleet, Member};
pub use history::{Demand, History, Series, Span};
pub use kwok::CPU_ANNOTATION;
pub use options::{ClusterOptions, HpaFlags, NodeSize};
pub use pki::{Identity, Pki, Validity};
pub use place::{RunFolder, failures};
pub use process::free_port;
pub use prometheus::{Prometheus, WebSecurity};
pub use relay::Relay;
pub use tenants::TenantProxy;
pub use wait::eventually;

/// Makes ring the provider of rustls for this process, unless one is installed.
pub(crate) fn install_crypto() {
    drop(rustls::crypto::ring::default_provider().install_default());
}
