//! A real Kubernetes control plane and Prometheus on loopback.
mod access;
mod audit;
mod binaries;
mod cluster;
mod dump;
mod error;
mod fake;
mod history;
mod kwok;
mod layout;
mod options;
mod pki;
mod place;
mod process;
mod prometheus;
mod wait;

pub use audit::AuditEvent;
pub use binaries::{Binaries, Component};
pub use cluster::Cluster;
pub use error::{Error, Result};
pub use kwok::{CPU_ANNOTATION, MEMORY_ANNOTATION};
pub use fake::{FakeMetrics, MetricsApi, PodUsage, Reading, Taken};
pub use history::{Demand, History, Series, Span};
pub use options::{ClusterOptions, HpaFlags, NodeSize};
pub use place::failures;
pub use prometheus::Prometheus;
pub use wait::eventually;

/// Makes ring the provider of rustls for this process, unless somebody chose before.
pub(crate) fn install_crypto() {
    drop(rustls::crypto::ring::default_provider().install_default());
}
