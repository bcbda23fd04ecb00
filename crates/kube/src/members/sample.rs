//! A valid kubeconfig, settings and a client, for tests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::SignedDuration;
use serde_json::{Value, json};
use simkube::client::{FakeServer, Reply, Sent};

use super::{AdminClient, MemberSettings, Timeouts};
use crate::api_server::Connection;

pub fn settings() -> MemberSettings {
    MemberSettings {
        namespace: "foretide-system".into(),
        label: "sigs.k8s.io/multicluster-runtime-kubeconfig=true".into(),
        key: "kubeconfig".into(),
        allow_loopback: false,
        namespaces: Vec::new(),
        timeouts: Timeouts::new(SignedDuration::from_secs(45)),
    }
}

/// A client of a server that answers by `reply`.
pub fn admin_client(
    reply: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static,
) -> (FakeServer, AdminClient) {
    let (server, service) = FakeServer::new(reply);
    (server, AdminClient::new(Connection::over(service)))
}

pub fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

pub fn certificate() -> String {
    base64("-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n")
}

pub fn key() -> String {
    base64("-----BEGIN PRIVATE KEY-----\nAQID\n-----END PRIVATE KEY-----\n")
}

/// A kubeconfig with the required fields only.
pub fn kubeconfig() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "it",
        "clusters": [{"name": "c", "cluster": {
            "server": "https://member1.example:6443",
            "certificate-authority-data": certificate(),
        }}],
        "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u", "namespace": "x"}}],
        "users": [{"name": "u", "user": {"token": "t0p-s3cret"}}],
    })
}
