//! Flags and environment of `foretide keda-scaler`, and the validated configuration they become.

use std::{net::SocketAddr, path::PathBuf};

use super::{KubeAccess, args::Switch, distinct};
use crate::ports::{
    CertificateFiles, CertificateLifetimes, CertificateSource, ClientCertificates, SelfManaged,
};

/// Flags of `foretide keda-scaler`; each can be given as `FORETIDE_KEDA_SCALER_...` in the environment.
#[derive(Debug, Clone, clap::Args)]
pub struct KedaScalerArgs {
    /// Kubeconfig file; without it, the service account of the pod is used.
    #[arg(long, env = "FORETIDE_KEDA_SCALER_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it, its current context.
    #[arg(long, env = "FORETIDE_KEDA_SCALER_CONTEXT", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Namespace whose autoscalers are read; repeatable, or comma-separated. Without it, all namespaces.
    #[arg(
        long = "namespace",
        env = "FORETIDE_KEDA_SCALER_NAMESPACE",
        value_delimiter = ','
    )]
    pub namespaces: Vec<String>,
    /// Address on which KEDA is answered, over gRPC with TLS.
    #[arg(
        long,
        env = "FORETIDE_KEDA_SCALER_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:9000"
    )]
    pub listen: SocketAddr,
    /// Address on which the probes are served, over HTTP.
    #[arg(
        long,
        env = "FORETIDE_KEDA_SCALER_PROBE_LISTEN",
        value_name = "ADDR",
        default_value = "127.0.0.1:8080"
    )]
    pub probe_listen: SocketAddr,
    /// Service by whose DNS names KEDA reaches this process; the certificate is for them.
    #[arg(
        long,
        env = "FORETIDE_KEDA_SCALER_SERVICE_NAME",
        value_name = "NAME",
        default_value = "foretide-keda-scaler"
    )]
    pub service_name: String,
    /// Namespace of that service. Without it, the namespace of this pod.
    #[arg(
        long,
        env = "FORETIDE_KEDA_SCALER_SERVICE_NAMESPACE",
        value_name = "NAMESPACE"
    )]
    pub service_namespace: Option<String>,
    /// Secret with the certificate authority that the replicas make and renew, in the namespace of the service.
    #[arg(
        long,
        env = "FORETIDE_KEDA_SCALER_CERTIFICATE_SECRET",
        value_name = "NAME",
        default_value = "foretide-keda-scaler-certificates"
    )]
    pub certificate_secret: String,
    /// File with the certificate to serve with, instead of that authority.
    #[arg(
        long,
        env = "FORETIDE_KEDA_SCALER_TLS_CERT_FILE",
        value_name = "FILE",
        requires = "tls_key_file"
    )]
    pub tls_cert_file: Option<PathBuf>,
    /// File with the private key of that certificate.
    #[arg(
        long,
        env = "FORETIDE_KEDA_SCALER_TLS_KEY_FILE",
        value_name = "FILE",
        requires = "tls_cert_file"
    )]
    pub tls_key_file: Option<PathBuf>,
    /// File with the certificate authorities of KEDA's client certificate. With it, a client certificate is required.
    #[arg(long, env = "FORETIDE_KEDA_SCALER_CLIENT_CA_FILE", value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Serve without TLS, and without knowing who asks: on this machine, or behind a service mesh.
    #[arg(long, env = "FORETIDE_KEDA_SCALER_INSECURE", switch())]
    pub insecure: bool,
    /// Log filter, such as info or foretide=debug.
    #[arg(
        long,
        env = "FORETIDE_KEDA_SCALER_LOG",
        value_name = "FILTER",
        default_value = "info"
    )]
    pub log: String,
    /// Write logs as JSON.
    #[arg(long, env = "FORETIDE_KEDA_SCALER_LOG_JSON", switch())]
    pub log_json: bool,
}

/// Everything that a running KEDA scaler needs to know.
#[derive(Debug, Clone)]
pub struct KedaScalerConfig {
    /// How to reach the cluster.
    pub access: KubeAccess,
    /// Namespaces whose autoscalers are read; empty means all.
    pub namespaces: Vec<String>,
    /// Address of the gRPC service.
    pub listen: SocketAddr,
    /// Address of the probes.
    pub probe_listen: SocketAddr,
    /// How its connections are encrypted; absent means not at all.
    pub tls: Option<KedaScalerTls>,
}

/// How the connections of the gRPC service are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KedaScalerTls {
    /// The certificate to serve with; absent means one of our own authority.
    pub certificate: Option<CertificateFiles>,
    /// Name of the Secret of that authority.
    pub certificate_secret: String,
    /// Name of the service that its certificates are for.
    pub service_name: String,
    /// Namespace of the service; absent means that of this pod.
    pub service_namespace: Option<String>,
    /// How long its certificates are valid.
    pub lifetimes: CertificateLifetimes,
    /// Which client certificates are accepted.
    pub clients: ClientCertificates,
}

/// A flag with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KedaScalerConfigError {
    /// It is not known which namespace the service is in.
    #[error(
        "--kubeconfig needs --service-namespace, for example foretide-system: outside a pod the namespace of the service \
         and of its Secret is not known; or give --tls-cert-file, or --insecure"
    )]
    ServiceNamespace,
    /// The name of the service or of the Secret is empty.
    #[error("--{flag} must not be empty, for example {example}")]
    Empty {
        /// The flag.
        flag: &'static str,
        /// Its default.
        example: &'static str,
    },
    /// TLS is switched off and configured.
    #[error("--insecure serves without TLS, so --{flag} has no effect: remove one of them")]
    Insecure {
        /// The other flag.
        flag: &'static str,
    },
}

// === impl KedaScalerTls ===

impl KedaScalerTls {
    /// Where the certificate comes from, for a pod in the namespace `own`.
    #[must_use]
    pub fn source(&self, own: &str) -> CertificateSource {
        if let Some(files) = &self.certificate {
            return CertificateSource::Files(files.clone());
        }
        let namespace = self.service_namespace.as_deref().unwrap_or(own);
        CertificateSource::SelfManaged(SelfManaged {
            namespace: namespace.to_owned(),
            secret: self.certificate_secret.clone(),
            service: self.service_name.clone(),
            lifetimes: self.lifetimes,
        })
    }
}

// === impl KedaScalerConfig ===

impl TryFrom<KedaScalerArgs> for KedaScalerConfig {
    type Error = KedaScalerConfigError;

    fn try_from(args: KedaScalerArgs) -> Result<Self, KedaScalerConfigError> {
        Ok(Self {
            tls: tls(&args)?,
            access: KubeAccess::of(args.kubeconfig, args.context),
            namespaces: distinct(args.namespaces),
            listen: args.listen,
            probe_listen: args.probe_listen,
        })
    }
}

fn tls(args: &KedaScalerArgs) -> Result<Option<KedaScalerTls>, KedaScalerConfigError> {
    let files = args.tls_cert_file.clone().zip(args.tls_key_file.clone());
    if args.insecure {
        let flag = match (&files, &args.client_ca_file) {
            (None, None) => return Ok(None),
            (Some(_), _) => "tls-cert-file",
            (None, Some(_)) => "client-ca-file",
        };
        return Err(KedaScalerConfigError::Insecure { flag });
    }
    let service_namespace = args.service_namespace.clone();
    let service_namespace = service_namespace.filter(|namespace| !namespace.is_empty());
    if files.is_none() && args.kubeconfig.is_some() && service_namespace.is_none() {
        return Err(KedaScalerConfigError::ServiceNamespace);
    }
    let clients = args.client_ca_file.clone();
    Ok(Some(KedaScalerTls {
        certificate: files.map(|(certificate, key)| CertificateFiles { certificate, key }),
        certificate_secret: not_empty(
            "certificate-secret",
            &args.certificate_secret,
            "foretide-keda-scaler-certificates",
        )?,
        service_name: not_empty("service-name", &args.service_name, "foretide-keda-scaler")?,
        service_namespace,
        lifetimes: CertificateLifetimes::COPIED,
        clients: clients.map_or(ClientCertificates::None, ClientCertificates::SignedBy),
    }))
}

fn not_empty(
    flag: &'static str,
    value: &str,
    example: &'static str,
) -> Result<String, KedaScalerConfigError> {
    if value.is_empty() {
        return Err(KedaScalerConfigError::Empty { flag, example });
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    /// The configuration of a command line, without the environment; or why there is none.
    fn config(line: &str) -> Result<KedaScalerConfig, String> {
        let command = KedaScalerArgs::augment_args(Command::new("keda-scaler"));
        let command = command.mut_args(|arg| arg.env(None::<&str>));
        let words = std::iter::once("keda-scaler").chain(line.split_whitespace());
        let matches = command
            .try_get_matches_from(words)
            .map_err(|e| e.to_string())?;
        let args = KedaScalerArgs::from_arg_matches(&matches).map_err(|e| e.to_string())?;
        KedaScalerConfig::try_from(args).map_err(|e| e.to_string())
    }

    #[test]
    fn without_flags_it_serves_with_an_authority_of_its_own_and_any_client() {
        let config = config("").unwrap();
        assert_eq!(config.access, KubeAccess::InCluster);
        assert_eq!(config.namespaces, [] as [String; 0]);
        assert_eq!(config.listen.to_string(), "127.0.0.1:9000");
        assert_eq!(config.probe_listen.to_string(), "127.0.0.1:8080");
        let tls = config.tls.unwrap();
        assert_eq!(tls.clients, ClientCertificates::None);
        let source = CertificateSource::SelfManaged(SelfManaged {
            namespace: "foretide-system".to_owned(),
            secret: "foretide-keda-scaler-certificates".to_owned(),
            service: "foretide-keda-scaler".to_owned(),
            lifetimes: CertificateLifetimes::COPIED,
        });
        assert_eq!(tls.source("foretide-system"), source);
    }

    #[test]
    fn every_flag_has_its_field() {
        let line = "--kubeconfig k --context c --namespace b,a --namespace b --listen 1.2.3.4:5 --probe-listen 1.2.3.4:6 \
                    --service-name s --service-namespace n --certificate-secret x --client-ca-file ca.crt --log debug \
                    --log-json";
        let found = config(line).unwrap();
        let access = KubeAccess::Kubeconfig {
            path: "k".into(),
            context: Some("c".to_owned()),
        };
        assert_eq!(found.access, access);
        assert_eq!(found.namespaces, ["a", "b"]);
        assert_eq!(found.listen.to_string(), "1.2.3.4:5");
        assert_eq!(found.probe_listen.to_string(), "1.2.3.4:6");
        let tls = found.tls.unwrap();
        let expected = KedaScalerTls {
            certificate: None,
            certificate_secret: "x".to_owned(),
            service_name: "s".to_owned(),
            service_namespace: Some("n".to_owned()),
            lifetimes: CertificateLifetimes::COPIED,
            clients: ClientCertificates::SignedBy("ca.crt".into()),
        };
        assert_eq!(tls, expected);
        let files = config("--tls-cert-file t.crt --tls-key-file t.key").unwrap();
        let files_of_line = CertificateFiles {
            certificate: "t.crt".into(),
            key: "t.key".into(),
        };
        let source = files.tls.unwrap().source("any");
        assert_eq!(source, CertificateSource::Files(files_of_line));
        assert_eq!(config("--insecure --kubeconfig k").unwrap().tls, None);
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        for (line, message) in [
            (
                "--kubeconfig k",
                "--kubeconfig needs --service-namespace, for example foretide-system",
            ),
            (
                "--certificate-secret=",
                "--certificate-secret must not be empty",
            ),
            ("--service-name=", "--service-name must not be empty"),
            (
                "--insecure --client-ca-file c",
                "--insecure serves without TLS, so --client-ca-file",
            ),
            (
                "--insecure --tls-cert-file c --tls-key-file k",
                "--insecure serves without TLS, so --tls-cert-file",
            ),
            (
                "--tls-cert-file c",
                "error: the following required arguments",
            ),
        ] {
            let error = config(line).unwrap_err();
            assert!(error.starts_with(message), "{line}: {error}");
        }
    }
}
