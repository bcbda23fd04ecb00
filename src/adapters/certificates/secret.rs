//! The Secret in which the replicas of a server share their authorities.
//!
//! | key | holds |
//! |---|---|
//! | `ca.crt`, `ca.key` | the authority that signs |
//! | `next-ca.crt`, `next-ca.key` | the one that will sign |
//! | `ca-bundle.crt` | every authority that clients are to trust |
//!
//! It is written only at the version that was read, so of several replicas one succeeds, and the others read what it
//! wrote. No message shows a key.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    authority::{Authority, AuthorityCertificate},
    rotation::Authorities,
};
use crate::adapters::{
    api_server::{Body, CallError, Calls, Limits, ObjectPath, Resource},
    kube::{Connection, WriteGate, read},
};
use foretide_api::ports::ClusterError;
use foretide_base::redact::Redactor;

const CURRENT: [&str; 2] = ["ca.crt", "ca.key"];
const NEXT: [&str; 2] = ["next-ca.crt", "next-ca.key"];
const BUNDLE: &str = "ca-bundle.crt";

/// One Secret.
pub(super) struct AuthoritySecret {
    calls: Calls,
    namespace: String,
    name: String,
}

/// The contents of the Secret.
pub(super) struct StoredAuthorities {
    pub(super) authorities: Authorities,
    /// The contents that cannot be used, and are replaced.
    pub(super) problems: Vec<String>,
    bundle: String,
    object: Value,
}

#[derive(Deserialize)]
struct SecretObject {
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

// === impl AuthoritySecret ===

impl AuthoritySecret {
    pub(super) fn new(connection: &Connection, namespace: &str, name: &str) -> Self {
        Self {
            // The gate is open: every replica needs a certificate, not only the leader, and each write is conditional.
            calls: connection.calls_within(Limits::default(), WriteGate::default()),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(super) fn path(&self) -> ObjectPath<'_> {
        Resource::SECRET.object(&self.namespace, &self.name)
    }

    /// Lead of the API server's clock over ours.
    pub(super) fn clock_skew(&self) -> SignedDuration {
        self.calls.clock_skew()
    }

    /// The contents of the Secret now.
    pub(super) async fn read(&self) -> Result<StoredAuthorities, ClusterError> {
        let reading = async { stored(self.calls.read(&self.path().path()?).await?) };
        let found = reading.await;
        found.map_err(|error: CallError| error.about(self.path()))
    }

    /// Replaces the authorities in the Secret, if it is as it was read.
    pub(super) async fn write(
        &self,
        seen: &StoredAuthorities,
        authorities: &Authorities,
    ) -> Result<(), ClusterError> {
        let data = data(authorities);
        // The server may quote the request, keys included, in its error.
        let redactor = Redactor::new(data.values().flatten().cloned().collect());
        // With the resourceVersion that was seen, which makes it conditional.
        let mut object = seen.object.clone();
        if let Some(fields) = object.as_object_mut() {
            // Other keys of the Secret stay as they are.
            let stored = fields.get_mut("data").and_then(Value::as_object_mut);
            let mut merged = stored.map(std::mem::take).unwrap_or_default();
            for (key, value) in data {
                match value {
                    Some(value) => merged.insert(key.to_owned(), json!(value)),
                    None => merged.remove(key),
                };
            }
            fields.insert("data".to_owned(), Value::Object(merged));
        }
        let writing = async {
            let (url, body) = (self.path().path()?, Body::json(&object));
            self.calls.write::<Value>(Method::PUT, &url, body).await
        };
        let written = writing.await;
        written
            .map(drop)
            .map_err(|error: CallError| error.redacted(&redactor).about(self.path()))
    }
}

// === impl StoredAuthorities ===

impl StoredAuthorities {
    /// True if the Secret holds these authorities.
    pub(super) fn holds(&self, authorities: &Authorities) -> bool {
        self.problems.is_empty()
            && self.authorities == *authorities
            && self.bundle == authorities.bundle()
    }
}

fn stored(object: Value) -> Result<StoredAuthorities, CallError> {
    // The parser's own message may quote a value.
    let expected = || CallError::Response("expected a Secret with a resourceVersion".to_owned());
    let SecretObject { metadata, data } = read(object.clone()).map_err(|_| expected())?;
    if metadata.resource_version.is_empty() {
        return Err(expected());
    }
    let data = data.unwrap_or_default();
    let mut problems = Vec::new();
    let mut text = |key: &str| {
        let value = data.get(key).filter(|value| !value.is_empty())?;
        let decoded = STANDARD.decode(value).ok();
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        if decoded.is_none() {
            problems.push(format!("data.{key}: expected a text in base64"));
        }
        decoded
    };
    let [current, next] = [CURRENT, NEXT].map(|keys| (keys, keys.map(&mut text)));
    let bundle = text(BUNDLE).unwrap_or_default();
    let [current, next] = [current, next].map(|pair| authority(pair, &mut problems));
    let is_signing = |one: &AuthorityCertificate| {
        let mut signing = current.iter().chain(&next);
        signing.any(|authority| authority.certificate == *one)
    };
    let mut former = AuthorityCertificate::all_of(&bundle);
    // The bundle has the current and the next one as well.
    former.retain(|one| !is_signing(one));
    Ok(StoredAuthorities {
        authorities: Authorities {
            current,
            next,
            former,
        },
        problems,
        bundle,
        object,
    })
}

/// The authority under two keys of the data, if there is one that can be used.
fn authority(
    (keys, texts): ([&str; 2], [Option<String>; 2]),
    problems: &mut Vec<String>,
) -> Option<Arc<Authority>> {
    let [certificate, key] = &texts;
    let loaded = match (certificate, key) {
        (None, None) => return None,
        (Some(certificate), Some(key)) => Authority::load(certificate, key).ok(),
        _ => None,
    };
    if loaded.is_none() {
        let [certificate, key] = keys;
        problems.push(format!(
            "data[{certificate}], data[{key}]: expected the certificate of an authority and its key in PEM"
        ));
    }
    loaded.map(Arc::new)
}

/// The data of the Secret, in base64; without a value, a key is removed.
fn data(authorities: &Authorities) -> BTreeMap<&'static str, Option<String>> {
    let encoded = |text: &str| Some(STANDARD.encode(text));
    let mut data = BTreeMap::from([(BUNDLE, encoded(&authorities.bundle()))]);
    for ([certificate, key], authority) in
        [(CURRENT, &authorities.current), (NEXT, &authorities.next)]
    {
        let authority = authority.as_ref();
        let pem = authority.and_then(|one| encoded(&one.certificate.pem));
        data.insert(certificate, pem);
        data.insert(key, authority.and_then(|one| encoded(&one.key_pem())));
    }
    data
}
