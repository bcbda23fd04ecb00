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

use super::*;
use crate::{
    adapters::{
        api_server::fake::{FakeServer, Reply, Sent},
        kube::ServiceName,
    },
    ports::CertificateLifetimes,
};

const SECRET: &str = "/api/v1/namespaces/foretide-system/secrets/foretide-adapter-certificates";
const REGISTRATION: &str =
    "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io";
const GROUP_VERSIONS: [&str; 1] = ["external.metrics.k8s.io/v1beta1"];

/// The objects of an API server, and which requests it fails.
#[derive(Clone)]
struct Objects {
    secret: Arc<Mutex<Value>>,
    registration: Arc<Mutex<Value>>,
    /// The beginning of request lines that fail with 500.
    failing: Arc<Mutex<Vec<String>>>,
}

impl Objects {
    /// An empty Secret, and a registration of our service without a bundle.
    fn new() -> Self {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "foretide-adapter-certificates", "resourceVersion": "1", "labels": {"a": "b"}},
        });
        let registration = json!({
            "metadata": {"name": "v1beta1.external.metrics.k8s.io", "resourceVersion": "1"},
            "spec": {"service": {"namespace": "foretide-system", "name": "foretide-adapter", "port": 443}},
        });
        Self {
            secret: Arc::new(Mutex::new(secret)),
            registration: Arc::new(Mutex::new(registration)),
            failing: Arc::default(),
        }
    }

    fn server(&self) -> (FakeServer, Client) {
        let objects = self.clone();
        FakeServer::new(move |sent, _| objects.respond(sent))
    }

    fn respond(&self, sent: &Sent) -> Reply {
        let failing = self.failing.lock().unwrap();
        if failing.iter().any(|line| sent.line.starts_with(line)) {
            return Reply::Fail(500, "fails");
        }
        let (method, path) = sent.line.split_once(' ').unwrap();
        let object = match path {
            SECRET => &self.secret,
            REGISTRATION => &self.registration,
            other => panic!("{other}"),
        };
        let mut object = object.lock().unwrap();
        if method == "GET" {
            return Reply::Ok(object.clone());
        }
        let version = &sent.body["metadata"]["resourceVersion"];
        if *version != object["metadata"]["resourceVersion"] {
            return Reply::Fail(409, "the object has been modified");
        }
        match method {
            "PUT" => *object = sent.body.clone(),
            "PATCH" => {
                assert_eq!(
                    sent.content_type.as_deref(),
                    Some("application/merge-patch+json")
                );
                let spec = sent.body["spec"].as_object().unwrap();
                assert_eq!(spec.keys().collect::<Vec<_>>(), ["caBundle"]);
                object["spec"]["caBundle"] = spec["caBundle"].clone();
            }
            other => panic!("{other}"),
        }
        let next: u64 = version.as_str().unwrap().parse().unwrap();
        object["metadata"]["resourceVersion"] = json!((next + 1).to_string());
        Reply::Ok(object.clone())
    }

    /// The text under a key of the Secret.
    fn text(&self, key: &str) -> Option<String> {
        let secret = self.secret.lock().unwrap();
        let decoded = STANDARD.decode(secret["data"][key].as_str()?).unwrap();
        Some(String::from_utf8(decoded).unwrap())
    }

    /// The bundle that clients trust.
    fn published(&self) -> Option<String> {
        let registration = self.registration.lock().unwrap();
        let decoded = STANDARD.decode(registration["spec"]["caBundle"].as_str()?);
        Some(String::from_utf8(decoded.unwrap()).unwrap())
    }

    fn fail(&self, lines: &[&str]) {
        *self.failing.lock().unwrap() = lines.iter().map(|&line| line.to_owned()).collect();
    }
}

/// One replica of an adapter.
struct Replica {
    certificates: Certificates,
    registrations: ApiServices,
    connection: Connection,
}

impl Replica {
    fn new(objects: &Objects, clock: &Clock, lifetimes: CertificateLifetimes) -> Self {
        let (_server, client) = objects.server();
        let connection = Connection::over(client);
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
            registrations: ApiServices::new(&connection, service, &GROUP_VERSIONS),
            connection,
        }
    }

    async fn round(&self) -> bool {
        self.certificates.round(Some(&self.registrations)).await
    }

    /// As if its clock were ahead by years.
    fn skew_clock(&self) {
        self.connection
            .calls()
            .date("Sun, 06 Nov 1994 08:49:37 GMT");
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

/// Whether a client that trusts a bundle accepts a certificate for the adapter at a time.
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
