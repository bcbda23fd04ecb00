//! Rounds against an API server in memory, on a clock that is stepped, and what a client of the time makes of them.

mod rotation;
mod sources;

use std::sync::{Arc, Mutex};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::ring,
    pki_types::{ServerName, UnixTime, pem::PemObject as _},
};
use serde_json::{Value, json};
use simkube::SimKube;

use super::*;
use foretide_api::ports::CertificateLifetimes;
use foretide_kube::cluster::ServiceName;
use simkube::client::simulated_unless;

const SECRET: &str = "/api/v1/namespaces/foretide-system/secrets/foretide-adapter-certificates";
const REGISTERED: &str = "v1beta1.external.metrics.k8s.io";

/// A simulated API server, and the requests that fail.
#[derive(Clone)]
struct Objects {
    server: SimKube,
    /// The beginning of request lines that fail with 500.
    failing: Arc<Mutex<Vec<String>>>,
}

impl Objects {
    /// An empty Secret, and a registration of our service without a bundle.
    fn new() -> Self {
        let server = SimKube::new(1, Arc::new(|| Timestamp::UNIX_EPOCH));
        let service =
            json!({"namespace": "foretide-system", "name": "foretide-adapter", "port": 443});
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "foretide-system"}}),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {
                    "namespace": "foretide-system", "name": "foretide-adapter-certificates", "labels": {"a": "b"},
                },
            }),
            json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
                "spec": {"group": "external.metrics.k8s.io", "version": "v1beta1", "service": service},
            }),
        ] {
            server.create(&object);
        }
        Self {
            server,
            failing: Arc::default(),
        }
    }

    fn client(&self, date: Option<&'static str>) -> Client {
        let failing = self.failing.clone();
        simulated_unless(&self.server, date, move |line| {
            let failing = failing.lock().unwrap();
            failing.iter().any(|failing| line.starts_with(failing))
        })
    }

    fn secret(&self) -> Arc<Value> {
        self.server.objects("secrets").remove(0)
    }

    /// The text under a key of the Secret.
    fn text(&self, key: &str) -> Option<String> {
        decoded(&self.secret()["data"][key])
    }

    /// The bundle that clients trust.
    fn published(&self) -> Option<String> {
        let registrations = self.server.objects("apiservices.apiregistration.k8s.io");
        decoded(&registrations[0]["spec"]["caBundle"])
    }

    fn fail(&self, lines: &[&str]) {
        *self.failing.lock().unwrap() = lines.iter().map(|&line| line.to_owned()).collect();
    }
}

fn decoded(value: &Value) -> Option<String> {
    let bytes = STANDARD.decode(value.as_str()?).unwrap();
    Some(String::from_utf8(bytes).unwrap())
}

/// One replica of an adapter.
struct Replica {
    certificates: Certificates,
    registrations: ApiServices,
}

impl Replica {
    fn new(objects: &Objects, clock: &Clock, lifetimes: CertificateLifetimes) -> Self {
        Self::with_date(objects, clock, lifetimes, None)
    }

    /// A replica to which the API server dates its answers so.
    fn with_date(
        objects: &Objects,
        clock: &Clock,
        lifetimes: CertificateLifetimes,
        date: Option<&'static str>,
    ) -> Self {
        let connection = Connection::over(objects.client(date));
        let service = ServiceName {
            namespace: "foretide-system".to_owned(),
            name: "foretide-adapter".to_owned(),
        };
        let source = CertificateSource::SelfManaged(SelfManaged {
            namespace: "foretide-system".to_owned(),
            secret: "foretide-adapter-certificates".to_owned(),
            service: "foretide-adapter".to_owned(),
            lifetimes,
        });
        Self {
            certificates: Certificates::new(
                &connection,
                source,
                ClientCertificates::Any,
                clock.clone(),
            ),
            registrations: ApiServices::new(&connection, service, vec![REGISTERED.to_owned()]),
        }
    }

    async fn round(&self) -> bool {
        self.certificates.round(Some(&self.registrations)).await
    }

    /// The problem of its last round.
    async fn problem(&self) -> Option<String> {
        self.certificates.state.lock().await.problem.clone()
    }

    /// The certificate that it presents.
    async fn presented(&self) -> Option<CertificateDer<'static>> {
        let state = self.certificates.state.lock().await;
        let (chain, _) = state.presented.as_ref()?;
        Some(chain[0].clone())
    }
}

/// Success if a client that trusts a bundle accepts a certificate for the adapter at a time.
fn trusts(bundle: &str, certificate: &CertificateDer<'_>, now: Timestamp) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(one.unwrap()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = verifier.build().map_err(|error| error.to_string())?;
    let name = ServerName::try_from("foretide-adapter.foretide-system.svc").unwrap();
    let seconds = u64::try_from(now.as_second()).unwrap();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    let result = verifier.verify_server_cert(certificate, &[], &name, &[], now);
    result.map(drop).map_err(|error| error.to_string())
}

fn start() -> Timestamp {
    Timestamp::from_second(1_767_225_600).unwrap()
}
