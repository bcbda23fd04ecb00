//! A valid kubeconfig, for tests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

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
