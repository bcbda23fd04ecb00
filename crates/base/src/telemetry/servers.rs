//! Metrics of the Prometheus servers, in the same registry: which of them hang, and what becomes of the credentials for
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};

use super::{Metrics, NamespaceLabels, Telemetry};
use foretide_api::ports::{CredentialExpiry, ServerHealth};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    endpoint: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct CredentialLabels {
    endpoint: String,
    credential: &'static str,
}

/// Metrics of the Prometheus servers and of the credentials for them.
#[derive(Debug)]
pub(super) struct Servers {
    expiry_seconds: Family<CredentialLabels, Gauge>,
    expires_soon: Family<CredentialLabels, Gauge>,
    unusable: Family<EndpointLabels, Gauge>,
    slow: Family<NamespaceLabels, Gauge>,
    /// The credentials that have series, and whether each expires soon.
    published: Mutex<BTreeMap<CredentialLabels, bool>>,
    /// The state of the servers as it was published last.
    known: Mutex<Vec<ServerHealth>>,
}

// === impl Servers ===

impl Servers {
    pub(super) fn new(metrics: &mut Metrics) -> Self {
        Self {
            expiry_seconds: metrics.add_seconds(
                "prometheus_credential_expiry_timestamp",
                "When a credential for a Prometheus server, or the certificate of the server, \
                 expires, since 1970",
            ),
            expires_soon: metrics.add(
                "prometheus_credential_expires_soon",
                "1 within a week of that time, or within the last tenth of the validity if \
                 that is less than two weeks",
            ),
            unusable: metrics.add(
                "prometheus_credentials_unusable",
                "1 while the files with the credentials for a Prometheus server cannot be used",
            ),
            slow: metrics.add(
                "forecast_namespace_slow",
                "1 while queries for the forecasts of a namespace are slow, so that they wait \
                 behind each other",
            ),
            published: Mutex::default(),
            known: Mutex::default(),
        }
    }
}

impl Telemetry {
    /// Publishes the state of the Prometheus servers. A credential that will expire soon is logged, once.
    pub fn set_servers(&self, servers: &[ServerHealth], now: Timestamp) {
        let hanging = servers.iter().filter(|server| server.is_circuit_open);
        let names: Vec<String> = hanging.map(|server| server.name.clone()).collect();
        self.set_open_circuits("prometheus", &names);
        for server in servers {
            let endpoint = server.name.clone();
            self.servers
                .unusable
                .get_or_create(&EndpointLabels { endpoint })
                .set(server.credential_problem.is_some().into());
        }
        self.publish_expiries(servers, now);
        *self.servers.known.lock() = servers.to_vec();
    }

    /// The Prometheus servers as they were published last.
    pub fn servers(&self) -> Vec<ServerHealth> {
        self.servers.known.lock().clone()
    }

    /// Publishes the namespaces whose history queries are slow; the others have no series.
    pub fn set_slow_namespaces(&self, namespaces: &BTreeSet<Arc<str>>) {
        self.servers.slow.clear();
        for namespace in namespaces {
            let namespace = namespace.as_ref().to_owned();
            self.servers
                .slow
                .get_or_create(&NamespaceLabels { namespace })
                .set(1);
        }
    }

    fn publish_expiries(&self, servers: &[ServerHealth], now: Timestamp) {
        let mut published = self.servers.published.lock();
        let mut before = std::mem::take(&mut *published);
        for (server, expiry) in all_expiries(servers) {
            let labels = CredentialLabels {
                endpoint: server.name.clone(),
                credential: expiry.credential,
            };
            let soon = expiry.is_soon(now);
            if soon && before.remove(&labels) != Some(true) {
                warn(server, expiry, now);
            }
            let series = self.servers.expiry_seconds.get_or_create(&labels);
            series.set(expiry.expires.as_second());
            self.servers
                .expires_soon
                .get_or_create(&labels)
                .set(soon.into());
            before.remove(&labels);
            published.insert(labels, soon);
        }
        for gone in before.keys() {
            self.servers.expiry_seconds.remove(gone);
            self.servers.expires_soon.remove(gone);
        }
    }
}

fn all_expiries(
    servers: &[ServerHealth],
) -> impl Iterator<Item = (&ServerHealth, &CredentialExpiry)> {
    servers
        .iter()
        .flat_map(|server| server.expiries.iter().map(move |expiry| (server, expiry)))
}

fn warn(server: &ServerHealth, expiry: &CredentialExpiry, now: Timestamp) {
    let (endpoint, expires) = (&server.name, expiry.expires);
    let credential = expiry.credential;
    let message = if expires <= now {
        "a credential for Prometheus has expired; renew it"
    } else {
        "a credential for Prometheus expires soon; renew it"
    };
    tracing::warn!(%endpoint, %credential, %expires, "{message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn server(expiries: Vec<CredentialExpiry>) -> ServerHealth {
        ServerHealth {
            name: "hub".to_owned(),
            is_circuit_open: false,
            expiries,
            credential_problem: None,
        }
    }

    #[test]
    fn a_credential_has_series_that_tell_its_end_a_week_ahead() {
        let certificate = CredentialExpiry {
            credential: "client certificate",
            valid_from: Some(at("2026-01-01T00:00Z")),
            expires: at("2026-06-01T00:00Z"),
        };
        let telemetry = Telemetry::default();
        let labels = r#"{endpoint="hub",credential="client certificate"}"#;
        for (now, soon) in [
            ("2026-05-25T00:00Z", 0),
            ("2026-05-25T00:01Z", 1),
            ("2026-06-02T00:00Z", 1),
        ] {
            telemetry.set_servers(&[server(vec![certificate])], at(now));
            let text = telemetry.encode();
            let expected = format!("foretide_prometheus_credential_expires_soon{labels} {soon}");
            assert!(text.contains(&expected), "{now}: {text}");
        }
        let expiry = format!("credential_expiry_timestamp_seconds{labels} 1780272000");
        assert!(telemetry.encode().contains(&expiry));
        telemetry.set_servers(&[server(Vec::new())], at("2026-06-02T00:00Z"));
        assert!(!telemetry.encode().contains(labels));
    }

    #[test]
    fn a_namespace_has_a_series_while_its_queries_are_slow() {
        let telemetry = Telemetry::default();
        telemetry.set_slow_namespaces(&["heavy".into()].into());
        let series = r#"foretide_forecast_namespace_slow{namespace="heavy"} 1"#;
        assert!(telemetry.encode().contains(series));
        telemetry.set_slow_namespaces(&BTreeSet::new());
        assert!(!telemetry.encode().contains("heavy"));
    }

    #[test]
    fn files_that_cannot_be_used_are_counted_while_they_cannot() {
        let telemetry = Telemetry::default();
        let unusable = |problem: Option<&str>| {
            let credential_problem = problem.map(str::to_owned);
            let health = ServerHealth {
                credential_problem,
                ..server(Vec::new())
            };
            telemetry.set_servers(&[health], at("2026-06-02T00:00Z"));
            telemetry.encode()
        };
        let series = r#"foretide_prometheus_credentials_unusable{endpoint="hub"} "#;
        assert!(unusable(Some("cannot read /token")).contains(&format!("{series}1")));
        assert!(unusable(None).contains(&format!("{series}0")));
    }
}
