//! Read access of offline commands to a cluster: an autoscaler, and the workload that it scales. Nothing is written.

use std::path::PathBuf;

use foretide_backtest::manifest::Document;
use foretide_domain::ScaleTarget;
use tokio::runtime::{Builder, Runtime};

use super::output::Failure;
use foretide_api::ports::ClusterError;
use foretide_base::machine::Machine;
use foretide_kube::cluster::{ConnectError, Connection};

/// The names of the flags that select a cluster.
pub const FLAGS: &str = "--kubeconfig or --context";

/// Flags that select a cluster.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ClusterArgs {
    /// Read the workload from the cluster of this kubeconfig file [default with NAME: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// A cluster that is only read.
#[derive(Debug)]
pub struct ReadCluster<'a> {
    /// The connection works on this runtime only.
    runtime: &'a Runtime,
    connection: Connection,
}

/// A runtime for the requests of a command.
///
/// # Errors
/// This machine gives the process no means to wait.
pub fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::outside)
}

// === impl ClusterArgs ===

impl ClusterArgs {
    /// Returns whether a flag selects a cluster.
    pub const fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// The selected cluster; nothing is sent yet.
    ///
    /// # Errors
    /// The kubeconfig cannot be used.
    pub fn open<'a>(
        &self,
        runtime: &'a Runtime,
        machine: &Machine,
    ) -> Result<ReadCluster<'a>, Failure> {
        let (file, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        let connection = Connection::from_kubeconfig(file, context, machine);
        let connection = runtime.block_on(connection);
        Ok(ReadCluster {
            runtime,
            connection: connection.map_err(|error| unconnected(&error, FLAGS))?,
        })
    }
}

// === impl ReadCluster ===

impl ReadCluster<'_> {
    /// The namespace of the kubeconfig's context.
    pub fn namespace(&self) -> &str {
        self.connection.namespace()
    }

    /// Connection of the cluster, for the rules of prometheus-adapter.
    pub fn connection(&self) -> Connection {
        self.connection.clone()
    }

    /// The autoscaler of a name.
    ///
    /// # Errors
    /// The autoscaler does not exist, or cannot be read.
    pub fn autoscaler(&self, namespace: &str, name: &str) -> Result<Document, Failure> {
        let request = self.connection.any_autoscaler(namespace, name);
        let found = self.runtime.block_on(request).map_err(|error| match error {
            ClusterError::NotFound { .. } => Failure::runtime(format!(
                "no EffectiveHorizontalPodAutoscaler, HorizontalPodAutoscaler or ScaledObject {namespace}/{name} \
                 found; list them with: kubectl get hpa -n {namespace}"
            )),
            error => Failure::outside(error),
        })?;
        Ok(Document::of(format!("{namespace}/{name}"), &found))
    }

    /// The workload that an autoscaler scales.
    ///
    /// # Errors
    /// The workload does not exist, or cannot be read.
    pub fn workload(&self, target: &ScaleTarget) -> Result<Document, Failure> {
        let found = self
            .runtime
            .block_on(self.connection.scale_target(target))
            .map_err(Failure::outside)?;
        Ok(Document::of(format!("the cluster's {target}"), &found))
    }
}

/// The failure of a connection with one source of the error: the client library's errors repeat their sources. The flags
/// are those that select the cluster.
pub fn unconnected(error: &ConnectError, flags: &str) -> Failure {
    let cause = std::error::Error::source(error).map(|source| format!(": {source}"));
    let cause = cause.unwrap_or_default();
    Failure::runtime(format!("{error}{cause}; select another one with {flags}"))
}
