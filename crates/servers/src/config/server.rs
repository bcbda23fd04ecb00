//! The common flags of `foretide-servers adapter` and `foretide-servers keda-scaler`.

use std::{net::SocketAddr, path::PathBuf};

use foretide_api::ports::{CertificateFiles, CertificateLifetimes, CertificateSource, SelfManaged};
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

/// The configuration of every server.
#[derive(Debug, Clone)]
pub struct MetricServerConfig {
    /// Access to the cluster.
    pub access: KubeAccess,
    /// Namespaces whose autoscalers are read; empty means all.
    pub namespaces: Vec<String>,
    /// Address on which requests are answered.
    pub listen: SocketAddr,
    /// Address of the probes.
    pub probe_listen: SocketAddr,
}

/// The service of a server, and the certificate for its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Name of the service.
    pub name: String,
    /// Namespace of the service; absent means that of this pod.
    pub namespace: Option<String>,
    /// The certificate to serve with; absent means one of the replicas' own authority.
    pub certificate: Option<CertificateFiles>,
    /// Name of the Secret of that authority.
    pub secret: String,
    /// Validity of the authority's certificates.
    pub lifetimes: CertificateLifetimes,
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

// === impl ServiceConfig ===

impl ServiceConfig {
    /// Namespace of the service, for a pod in the namespace `own`.
    pub fn namespace<'a>(&'a self, own: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(own)
    }

    /// Source of the certificate, for a pod in the namespace `own`.
    pub fn source(&self, own: &str) -> CertificateSource {
        match &self.certificate {
            Some(files) => CertificateSource::Files(files.clone()),
            None => CertificateSource::SelfManaged(SelfManaged {
                namespace: self.namespace(own).to_owned(),
                secret: self.secret.clone(),
                service: self.name.clone(),
                lifetimes: self.lifetimes,
            }),
        }
    }
}

// === impl MetricServerArgs ===

impl MetricServerArgs {
    /// The configuration of a server that answers at this address.
    pub fn config(&self, listen: SocketAddr) -> MetricServerConfig {
        MetricServerConfig {
            access: self.kube.access(),
            namespaces: distinct(self.namespaces.clone()),
            listen,
            probe_listen: self.probe_listen,
        }
    }

    /// The certificate of the flags; absent means one of the replicas' own authority.
    pub fn certificate(&self) -> Option<CertificateFiles> {
        Some(CertificateFiles {
            certificate: self.tls_cert_file.clone()?,
            key: self.tls_key_file.clone()?,
        })
    }

    /// The namespace of the service; absent means that of this pod.
    ///
    /// # Errors
    /// The process may run outside of a pod.
    pub fn service_namespace(&self) -> Result<Option<String>, MetricServerConfigError> {
        let namespace = named(self.service_namespace.clone());
        if self.kube.access() != KubeAccess::InCluster && namespace.is_none() {
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
