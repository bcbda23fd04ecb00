//! One Secret that several replicas write, each at the version that it read: of two writers one succeeds.

use std::collections::BTreeMap;

use http::Method;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::decode::{Meta, read};
use crate::api_server::{
    About as _, Body, CallError, Calls, Connection, Limits, Resource, WriteGate,
};
use foretide_api::ports::ClusterError;
use foretide_base::redact::Redactor;

/// One Secret. No message shows its values.
#[derive(Debug, derive_more::Display)]
#[display("{}", Resource::SECRET.object(namespace, name))]
pub struct SharedSecret {
    calls: Calls,
    namespace: String,
    name: String,
}

/// Contents of a Secret at the version that was read.
#[derive(derive_more::Debug)]
pub struct SecretContents {
    /// Values by key, in base64.
    #[debug("{:?}", data.keys())]
    pub data: BTreeMap<String, String>,
    #[debug(skip)]
    object: Value,
}

#[derive(Deserialize)]
struct SecretObject {
    metadata: Meta,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

// === impl SharedSecret ===

impl SharedSecret {
    /// The Secret of this name, which must exist. Every replica writes it, whether it leads or not.
    pub fn new(connection: &Connection, namespace: &str, name: &str) -> Self {
        Self {
            calls: connection.calls_within(Limits::default(), WriteGate::default()),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Lead of the API server's clock over ours.
    pub fn clock_skew(&self) -> SignedDuration {
        self.calls.clock_skew()
    }

    /// Reads the contents.
    ///
    /// # Errors
    /// The request failed, there is no such Secret, or the answer is none.
    pub async fn read(&self) -> Result<SecretContents, ClusterError> {
        let path = Resource::SECRET.object(&self.namespace, &self.name);
        let reading = async { SecretContents::of(self.calls.read(&path.path()?).await?) };
        reading.await.about(path)
    }

    /// Sets the values of these keys, in base64, and removes those without a value; other keys stay as they are.
    ///
    /// # Errors
    /// The Secret has another version than the one that was `seen`, or the request failed.
    pub async fn write(
        &self,
        seen: &SecretContents,
        data: BTreeMap<&str, Option<String>>,
    ) -> Result<(), ClusterError> {
        // The server may quote the request, keys included, in its error.
        let redactor = Redactor::new(data.values().flatten().cloned().collect());
        let path = Resource::SECRET.object(&self.namespace, &self.name);
        let object = seen.with(data);
        let writing = async {
            let url = path.path()?;
            self.calls
                .write::<Value>(Method::PUT, &url, Body::json(&object))
                .await
        };
        writing
            .await
            .map(drop)
            .map_err(|error: CallError| error.redacted(&redactor).about(path))
    }
}

// === impl SecretContents ===

impl SecretContents {
    fn of(object: Value) -> Result<Self, CallError> {
        match read(object.clone()) {
            Ok(SecretObject { metadata, data }) if !metadata.resource_version.is_empty() => {
                let data = data.unwrap_or_default();
                Ok(Self { data, object })
            }
            // The parser's own message may quote a value.
            _ => Err(CallError::Response(
                "expected a Secret with a resourceVersion".to_owned(),
            )),
        }
    }

    /// The object with other data, at the version that was read.
    fn with(&self, data: BTreeMap<&str, Option<String>>) -> Value {
        let mut object = self.object.clone();
        let mut merged = self.data.clone();
        for (key, value) in data {
            match value {
                Some(value) => merged.insert(key.to_owned(), value),
                None => merged.remove(key),
            };
        }
        if let Some(fields) = object.as_object_mut() {
            fields.insert("data".to_owned(), json!(merged));
        }
        object
    }
}
