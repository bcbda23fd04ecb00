//! Flags and environment of `foretide-servers adapter`, and the validated configuration they become.

use std::{net::SocketAddr, path::PathBuf};

use url::Url;

use super::server::{
    MetricServerArgs, MetricServerConfig, MetricServerConfigError, ServiceConfig, named, not_empty,
};
use crate::metrics_api::MetricApi;
use foretide_api::ports::{CertificateLifetimes, UpstreamSettings};
use foretide_base::service::with_variable;

/// Flags of `foretide-servers adapter`; each can be given as `FORETIDE_...` in the environment.
#[derive(Debug, Clone, clap::Args)]
#[command(mut_args(with_variable))]
pub struct AdapterArgs {
    /// Flags of every server of metrics.
    #[command(flatten)]
    pub server: MetricServerArgs,
    /// Address on which the APIs are served, over HTTPS.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6443")]
    pub listen: SocketAddr,
    /// API that is served; repeatable, or comma-separated.
    #[arg(
        long,
        value_name = "API",
        value_enum,
        value_delimiter = ',',
        default_value = "external,custom"
    )]
    pub apis: Vec<MetricApi>,
    /// Service for which the APIs are registered.
    #[arg(long, value_name = "NAME", default_value = "foretide-adapter")]
    pub service_name: String,
    /// Secret with the certificate authority that the replicas make and renew, in the namespace of the service.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "foretide-adapter-certificates"
    )]
    pub certificate_secret: String,
    /// Another adapter, which is asked for the metrics of other names, as https://HOST:PORT.
    #[arg(long, value_name = "URL", requires = "upstream_ca_file")]
    pub upstream_url: Option<String>,
    /// File with the certificate authorities of the other adapter.
    #[arg(long, value_name = "FILE", requires = "upstream_url")]
    pub upstream_ca_file: Option<PathBuf>,
    /// File with the bearer token for the other adapter, without a newline at the end. Without it, none is sent.
    #[arg(long, value_name = "FILE", requires = "upstream_url")]
    pub upstream_token_file: Option<PathBuf>,
}

/// The complete configuration of a metric adapter.
#[derive(Debug, Clone)]
pub struct AdapterConfig {
    /// Access and addresses.
    pub server: MetricServerConfig,
    /// The APIs that are served, each once.
    pub apis: Vec<MetricApi>,
    /// The service for which the APIs are registered.
    pub service: ServiceConfig,
    /// The adapter for metrics of other names.
    pub upstream: Option<UpstreamSettings>,
}

/// A flag with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdapterConfigError {
    /// An error of every server of metrics.
    #[error(transparent)]
    Server(#[from] MetricServerConfigError),
    /// The URL of the upstream adapter is not shown, because a part of it may be a password.
    #[error(
        "--upstream-url expects https://HOST:PORT, without a user, a path or a query; an adapter without TLS is not asked"
    )]
    UpstreamUrl,
}

// === impl AdapterConfig ===

impl TryFrom<AdapterArgs> for AdapterConfig {
    type Error = AdapterConfigError;

    fn try_from(args: AdapterArgs) -> Result<Self, AdapterConfigError> {
        let mut apis = args.apis;
        apis.sort_unstable();
        apis.dedup();
        Ok(Self {
            server: args.server.config(args.listen),
            apis,
            service: ServiceConfig {
                name: not_empty("service-name", args.service_name, "foretide-adapter")?,
                namespace: args.server.service_namespace()?,
                certificate: args.server.certificate(),
                secret: not_empty(
                    "certificate-secret",
                    args.certificate_secret,
                    "foretide-adapter-certificates",
                )?,
                lifetimes: CertificateLifetimes::PUBLISHED,
            },
            upstream: upstream(
                args.upstream_url,
                args.upstream_ca_file,
                args.upstream_token_file,
            )?,
        })
    }
}

fn upstream(
    url: Option<String>,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
) -> Result<Option<UpstreamSettings>, AdapterConfigError> {
    let Some((url, ca_file)) = named(url).zip(ca_file) else {
        return Ok(None);
    };
    Ok(Some(UpstreamSettings {
        url: upstream_url(&url)?,
        ca_file,
        token_file,
    }))
}

fn upstream_url(text: &str) -> Result<Url, AdapterConfigError> {
    // A URL parser also takes `https:host`.
    let url = Url::parse(text)
        .ok()
        .filter(|_| text.starts_with("https://"))
        .ok_or(AdapterConfigError::UpstreamUrl)?;
    let is_anonymous = url.username().is_empty() && url.password().is_none();
    let is_base = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    if is_anonymous && is_base && url.has_host() {
        Ok(url)
    } else {
        Err(AdapterConfigError::UpstreamUrl)
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments;
    use super::*;
    use foretide_api::ports::CertificateFiles;
    use foretide_kube::{KubeAccess, Surroundings};

    /// The configuration of a command line.
    fn config(line: &str) -> Result<AdapterConfig, String> {
        let mut args: AdapterArgs = arguments(line)?;
        args.server.kube.surroundings = Surroundings::POD;
        AdapterConfig::try_from(args).map_err(|e| e.to_string())
    }

    #[test]
    fn without_flags_it_serves_both_apis_to_this_machine_as_the_pods_account() {
        let config = config("").unwrap();
        assert_eq!(config.server.access, KubeAccess::InCluster);
        assert_eq!(config.server.namespaces, [] as [String; 0]);
        assert_eq!(config.server.listen.to_string(), "127.0.0.1:6443");
        assert_eq!(config.server.probe_listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.apis, [MetricApi::External, MetricApi::Custom]);
        let service = ServiceConfig {
            name: "foretide-adapter".to_owned(),
            namespace: None,
            certificate: None,
            secret: "foretide-adapter-certificates".to_owned(),
            lifetimes: CertificateLifetimes::PUBLISHED,
        };
        assert_eq!(config.service, service);
        assert_eq!(config.upstream, None);
    }

    #[test]
    fn every_flag_has_its_field() {
        let line = "--kubeconfig k --context c --namespace b,a --namespace b --listen 1.2.3.4:5 --probe-listen 1.2.3.4:6 \
                    --apis custom --service-name s --service-namespace n --tls-cert-file t.crt --tls-key-file t.key \
                    --certificate-secret x --upstream-url https://adapter.monitoring:6443 --upstream-ca-file u.crt \
                    --upstream-token-file u.token --log debug --log-json";
        let config = config(line).unwrap();
        let access = KubeAccess::Kubeconfig {
            path: Some("k".into()),
            context: Some("c".to_owned()),
        };
        assert_eq!(config.server.access, access);
        assert_eq!(config.server.namespaces, ["a", "b"]);
        assert_eq!(config.server.listen.to_string(), "1.2.3.4:5");
        assert_eq!(config.server.probe_listen.to_string(), "1.2.3.4:6");
        assert_eq!(config.apis, [MetricApi::Custom]);
        let service = ServiceConfig {
            name: "s".to_owned(),
            namespace: Some("n".to_owned()),
            certificate: Some(CertificateFiles {
                certificate: "t.crt".into(),
                key: "t.key".into(),
            }),
            secret: "x".to_owned(),
            lifetimes: CertificateLifetimes::PUBLISHED,
        };
        assert_eq!(config.service, service);
        let upstream = UpstreamSettings {
            url: Url::parse("https://adapter.monitoring:6443").unwrap(),
            ca_file: "u.crt".into(),
            token_file: Some("u.token".into()),
        };
        assert_eq!(config.upstream, Some(upstream));
    }

    #[test]
    fn flags_that_cannot_be_used_are_refused_with_what_is_expected() {
        for (line, expected) in [
            ("--kubeconfig k", "--service-namespace"),
            ("--kubeconfig k --service-namespace=", "--service-namespace"),
            ("--context c", "--service-namespace"),
            ("--service-name=", "for example foretide-adapter"),
            ("--certificate-secret=", "foretide-adapter-certificates"),
            ("--apis resource", "external, custom"),
            ("--tls-cert-file a", "--tls-key-file"),
            ("--tls-key-file a", "--tls-cert-file"),
            ("--upstream-url https://a", "--upstream-ca-file"),
            ("--upstream-ca-file a", "--upstream-url"),
            ("--upstream-token-file a", "--upstream-url"),
        ] {
            let refused = config(line).map(|_| ()).unwrap_err();
            assert!(refused.contains(expected), "{line}: {refused}");
        }
        for url in [
            "http://a:1",
            "https:a",
            "https://u:p@a",
            "https://a/path",
            "https://a?q",
        ] {
            let refused = config(&format!("--upstream-url {url} --upstream-ca-file a"));
            let refused = refused.map(|_| ()).unwrap_err();
            assert!(refused.contains("https://HOST:PORT"), "{url}: {refused}");
        }
        let refused = config("--upstream-url https://u:s3cret@a --upstream-ca-file a");
        assert!(!refused.map(|_| ()).unwrap_err().contains("s3cret"));
    }
}
