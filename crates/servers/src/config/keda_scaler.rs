//! Flags and environment of `foretide-servers keda-scaler`, and the validated configuration they become.

use std::{net::SocketAddr, path::PathBuf};

use super::server::{
    MetricServerArgs, MetricServerConfig, MetricServerConfigError, ServiceConfig, not_empty,
};
use foretide_api::ports::{CertificateLifetimes, ClientCertificates};
use foretide_base::service::{Switch as _, with_variable};

/// Flags of `foretide-servers keda-scaler`; each can be given as `FORETIDE_...` in the environment.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_args(with_variable))]
pub struct KedaScalerArgs {
    /// Flags of every server of metrics.
    #[command(flatten)]
    pub server: MetricServerArgs,
    /// Address on which KEDA is answered, over gRPC with TLS.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000")]
    pub listen: SocketAddr,
    /// Service by whose DNS names KEDA reaches this process; the certificate is for them.
    #[arg(long, value_name = "NAME", default_value = "foretide-keda-scaler")]
    pub service_name: String,
    /// Secret with the certificate authority that the replicas make and renew, in the namespace of the service.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "foretide-keda-scaler-certificates"
    )]
    pub certificate_secret: String,
    /// File with the certificate authorities of KEDA's client certificate, which is then required.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Answer any client that reaches an address other than loopback, because a network policy decides which ones do.
    #[arg(long, switch())]
    pub allow_any_client: bool,
    /// Serve without TLS, and without knowing who asks: on this machine, or behind a service mesh.
    #[arg(long, switch())]
    pub insecure: bool,
}

/// The complete configuration of a KEDA scaler.
#[derive(Debug, Clone)]
pub struct KedaScalerConfig {
    /// Access and addresses.
    pub server: MetricServerConfig,
    /// Encryption of the connections; absent means none.
    pub tls: Option<KedaScalerTls>,
}

/// Encryption of the gRPC service's connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KedaScalerTls {
    /// The service that the certificate is for.
    pub service: ServiceConfig,
    /// Accepted client certificates.
    pub clients: ClientCertificates,
}

/// A flag with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KedaScalerConfigError {
    /// An error of every server of metrics.
    #[error(transparent)]
    Server(#[from] MetricServerConfigError),
    /// TLS is switched off and configured.
    #[error("--insecure serves without TLS, so --{flag} has no effect: remove one of them")]
    Insecure {
        /// The other flag.
        flag: &'static str,
    },
    /// No flag restricts the clients.
    #[error(
        "--listen={listen} is open to others: expected --client-ca-file, so that KEDA shows a certificate, or \
         --allow-any-client if a network policy lets only KEDA in"
    )]
    Open {
        /// The address.
        listen: SocketAddr,
    },
    /// Clients without a certificate are allowed and refused.
    #[error(
        "--client-ca-file requires a certificate, so --allow-any-client has no effect: remove one of them"
    )]
    AnyClient,
}

// === impl KedaScalerConfig ===

impl TryFrom<KedaScalerArgs> for KedaScalerConfig {
    type Error = KedaScalerConfigError;

    fn try_from(args: KedaScalerArgs) -> Result<Self, KedaScalerConfigError> {
        Ok(Self {
            server: args.server.config(args.listen),
            tls: tls(args)?,
        })
    }
}

fn tls(args: KedaScalerArgs) -> Result<Option<KedaScalerTls>, KedaScalerConfigError> {
    let certificate = args.server.certificate();
    if args.insecure {
        let flag = match (&certificate, &args.client_ca_file) {
            (None, None) => return Ok(None),
            (Some(_), _) => "tls-cert-file",
            (None, Some(_)) => "client-ca-file",
        };
        return Err(KedaScalerConfigError::Insecure { flag });
    }
    let namespace = match args.server.service_namespace() {
        // The namespace matters only for the Secret.
        Err(_) if certificate.is_some() => None,
        namespace => namespace?,
    };
    let clients = clients(args.listen, args.client_ca_file, args.allow_any_client)?;
    Ok(Some(KedaScalerTls {
        service: ServiceConfig {
            name: not_empty("service-name", args.service_name, "foretide-keda-scaler")?,
            namespace,
            certificate,
            secret: not_empty(
                "certificate-secret",
                args.certificate_secret,
                "foretide-keda-scaler-certificates",
            )?,
            lifetimes: CertificateLifetimes::COPIED,
        },
        clients,
    }))
}

/// Accepted clients at this address. On loopback, no certificate is needed: only this machine reaches it.
fn clients(
    listen: SocketAddr,
    authorities: Option<PathBuf>,
    allow_any: bool,
) -> Result<ClientCertificates, KedaScalerConfigError> {
    match authorities {
        Some(_) if allow_any => Err(KedaScalerConfigError::AnyClient),
        Some(file) => Ok(ClientCertificates::SignedBy(file)),
        None if allow_any || listen.ip().is_loopback() => Ok(ClientCertificates::None),
        None => Err(KedaScalerConfigError::Open { listen }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments;
    use super::*;
    use foretide_api::ports::{CertificateFiles, CertificateSource, SelfManaged};
    use foretide_kube::{KubeAccess, Surroundings};

    /// The configuration of a command line.
    fn config(line: &str) -> Result<KedaScalerConfig, String> {
        let mut args: KedaScalerArgs = arguments(line)?;
        args.server.kube.surroundings = Surroundings::POD;
        KedaScalerConfig::try_from(args).map_err(|e| e.to_string())
    }

    #[test]
    fn without_flags_it_serves_with_an_authority_of_its_own_on_loopback() {
        let config = config("").unwrap();
        assert_eq!(config.server.access, KubeAccess::InCluster);
        assert_eq!(config.server.namespaces, [] as [String; 0]);
        assert_eq!(config.server.listen.to_string(), "127.0.0.1:9000");
        assert_eq!(config.server.probe_listen.to_string(), "127.0.0.1:8080");
        let tls = config.tls.unwrap();
        assert_eq!(tls.clients, ClientCertificates::None);
        let source = CertificateSource::SelfManaged(SelfManaged {
            namespace: "foretide-system".to_owned(),
            secret: "foretide-keda-scaler-certificates".to_owned(),
            service: "foretide-keda-scaler".to_owned(),
            lifetimes: CertificateLifetimes::COPIED,
        });
        assert_eq!(tls.service.source("foretide-system"), source);
    }

    #[test]
    fn every_flag_has_its_field() {
        let line = "--kubeconfig k --context c --namespace b,a --namespace b --listen 1.2.3.4:5 --probe-listen 1.2.3.4:6 \
                    --service-name s --service-namespace n --certificate-secret x --client-ca-file ca.crt --log debug \
                    --log-json";
        let found = config(line).unwrap();
        let access = KubeAccess::Kubeconfig {
            path: Some("k".into()),
            context: Some("c".to_owned()),
        };
        assert_eq!(found.server.access, access);
        assert_eq!(found.server.namespaces, ["a", "b"]);
        assert_eq!(found.server.listen.to_string(), "1.2.3.4:5");
        assert_eq!(found.server.probe_listen.to_string(), "1.2.3.4:6");
        let tls = found.tls.unwrap();
        let expected = KedaScalerTls {
            service: ServiceConfig {
                name: "s".to_owned(),
                namespace: Some("n".to_owned()),
                certificate: None,
                secret: "x".to_owned(),
                lifetimes: CertificateLifetimes::COPIED,
            },
            clients: ClientCertificates::SignedBy("ca.crt".into()),
        };
        assert_eq!(tls, expected);
        let files = config("--tls-cert-file t.crt --tls-key-file t.key").unwrap();
        let files_of_line = CertificateFiles {
            certificate: "t.crt".into(),
            key: "t.key".into(),
        };
        let source = files.tls.unwrap().service.source("any");
        assert_eq!(source, CertificateSource::Files(files_of_line));
        assert_eq!(config("--insecure --kubeconfig k").unwrap().tls, None);
        let anywhere = config("--kubeconfig k --tls-cert-file t.crt --tls-key-file t.key");
        assert_eq!(anywhere.unwrap().tls.unwrap().service.namespace, None);
    }

    #[test]
    fn clients_without_a_certificate_are_answered_only_on_loopback_or_on_request() {
        let clients = |line: &str| config(line).map(|it| it.tls.map(|tls| tls.clients));
        let any = Ok(Some(ClientCertificates::None));
        for listen in ["127.0.0.1:9000", "[::1]:9000"] {
            assert_eq!(clients(&format!("--listen {listen}")), any);
        }
        for listen in ["0.0.0.0:9000", "[::]:9000", "10.0.0.1:9000"] {
            let line = format!("--listen {listen}");
            let error = clients(&line).unwrap_err();
            assert_eq!(
                error,
                format!(
                    "--listen={listen} is open to others: expected --client-ca-file, so that KEDA shows a certificate, or \
                     --allow-any-client if a network policy lets only KEDA in"
                )
            );
            assert_eq!(clients(&format!("{line} --allow-any-client")), any);
            let signed = Ok(Some(ClientCertificates::SignedBy("ca.crt".into())));
            assert_eq!(clients(&format!("{line} --client-ca-file ca.crt")), signed);
            assert_eq!(clients(&format!("{line} --insecure")), Ok(None));
        }
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        let empty_secret = "--certificate-secret must not be empty";
        let no_clients = "--insecure serves without TLS, so --client-ca-file";
        let no_tls = "--insecure serves without TLS, so --tls-cert-file";
        for (line, message) in [
            (
                "--client-ca-file c --allow-any-client",
                "--client-ca-file requires a certificate, so --allow-any-client",
            ),
            (
                "--kubeconfig k",
                "--service-namespace is required with a kubeconfig, for example foretide-system",
            ),
            ("--certificate-secret=", empty_secret),
            ("--service-name=", "--service-name must not be empty"),
            ("--insecure --client-ca-file c", no_clients),
            ("--insecure --tls-cert-file c --tls-key-file k", no_tls),
            ("--tls-cert-file c", "error: the following required"),
        ] {
            let error = config(line).unwrap_err();
            assert!(error.starts_with(message), "{line}: {error}");
        }
    }
}
