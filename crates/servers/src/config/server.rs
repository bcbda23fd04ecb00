//! The common flags of `foretide-servers adapter` and `foretide-servers keda-scaler`.

use std::{net::SocketAddr, path::PathBuf};

use foretide_api::ports::CertificateFiles;
use foretide_base::service::{LogArgs, distinct};
use foretide_kube::{KubeAccess, KubeArgs};

/// Flags of both servers; each can be given as `FORETIDE_...` in the environment.
#[derive(Debug, Clone, clap::Args)]
pub struct MetricServerArgs {
    /// Access to the Kubernetes API.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Namespace whose autoscalers are read; repeatable, or comma-separated. Without it, all namespaces.
    #[arg(long = "namespace", value_delimiter = ',')]
    pub namespaces: Vec<String>,
    /// Address on which the probes are served, over HTTP.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub probe_listen: SocketAddr,
    /// Namespace of the service, and of the Secret with the certificate authority. Without it, the namespace of this pod.
    #[arg(long, value_name = "NAMESPACE")]
    pub service_namespace: Option<String>,
    /// File with the certificate to serve with, instead of one of that authority.
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// File with the private key of that certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// Flags of the log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// A flag of a server with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricServerConfigError {
    /// The namespace of the service is unknown.
    #[error(
        "--service-namespace is required with a kubeconfig, for example foretide-system: outside a pod the namespace of \
         the service and of its Secret is not known"
    )]
    ServiceNamespace,
    /// The name of the service or of the Secret is empty.
    #[error("--{flag} must not be empty, for example {example}")]
    Empty {
        /// The flag.
        flag: &'static str,
        /// Default of the flag.
        example: &'static str,
    },
}

// === impl MetricServerArgs ===

impl MetricServerArgs {
    pub(crate) fn access(&self) -> KubeAccess {
        self.kube.access()
    }

    pub(crate) fn namespaces(&self) -> Vec<String> {
        distinct(self.namespaces.clone())
    }

    /// The certificate of the flags; absent means one of the replicas' own authority.
    #[must_use]
    pub fn certificate(&self) -> Option<CertificateFiles> {
        let files = self.tls_cert_file.clone().zip(self.tls_key_file.clone());
        files.map(|(certificate, key)| CertificateFiles { certificate, key })
    }

    /// The namespace of the service; absent means that of this pod.
    ///
    /// # Errors
    /// The process may run outside of a pod.
    pub fn service_namespace(&self) -> Result<Option<String>, MetricServerConfigError> {
        let namespace = named(self.service_namespace.clone());
        if self.access() != KubeAccess::InCluster && namespace.is_none() {
            return Err(MetricServerConfigError::ServiceNamespace);
        }
        Ok(namespace)
    }
}

/// A value of the environment; empty means absent.
pub fn named(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// A name that is required.
pub fn not_empty(
    flag: &'static str,
    value: String,
    example: &'static str,
) -> Result<String, MetricServerConfigError> {
    if value.is_empty() {
        return Err(MetricServerConfigError::Empty { flag, example });
    }
    Ok(value)
}
