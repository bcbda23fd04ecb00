//! One object of a list or a watch event, decoded.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::stored::Stored;

/// Maximum size of an object that is decoded, as JSON text. Etcd stores 1.5 MiB of one by default.
const OBJECT_MAX: usize = 4 << 20;
/// Maximum size of an object that is kept as it is, as JSON text without the labels and annotations of others.
const KEPT_MAX: usize = 256 << 10;
/// The domains of the labels and annotations that are read, and that of recommended labels: who manages an object.
const DOMAINS: [&str; 2] = ["crane.io", "foretide.io"];
const RECOMMENDED: &str = "app.kubernetes.io";

/// One object of a list or watch event.
pub(crate) struct Entry<V> {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Option<Arc<str>>,
    pub(crate) created: Option<Timestamp>,
    /// The version; empty if the object has none.
    pub version: String,
    pub(crate) value: Result<V, String>,
}

/// Identity of an object.
#[derive(Deserialize)]
struct ObjectKey {
    metadata: KeyMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyMeta {
    #[serde(default)]
    namespace: String,
    name: String,
    uid: Option<String>,
    #[serde(default)]
    creation_timestamp: Value,
    #[serde(default)]
    resource_version: String,
}

// === impl Entry ===

impl<V: Stored> Entry<V> {
    /// Decodes the JSON text of one object; `None` without a name, because the name is its key.
    pub fn read(text: &str) -> Option<Self> {
        let too_large = if text.len() > OBJECT_MAX {
            Some(OBJECT_MAX)
        } else if !V::IS_WHOLE && text.len() > KEPT_MAX && labels_length(text) > KEPT_MAX {
            // Decoding a hundred of these would take a second of a slow processor.
            Some(KEPT_MAX)
        } else {
            None
        };
        let Some(max) = too_large else {
            return Self::decode(serde_json::from_str(text).ok()?);
        };
        let ObjectKey { metadata } = serde_json::from_str(text).ok()?;
        Some(Self::new(metadata, Err(longer_than(max))))
    }

    /// Decodes one object; `None` without a name.
    pub fn decode(mut object: Value) -> Option<Self> {
        let metadata = object.get_mut("metadata")?;
        let key = KeyMeta::deserialize(&*metadata).ok()?;
        let fields = metadata.as_object_mut()?;
        // Often the largest part of an object. Whoever needs them reads the object itself.
        fields.remove("managedFields");
        let value = if V::IS_WHOLE {
            remove_what_others_wrote(fields);
            within_kept_max(object).and_then(V::decode)
        } else {
            V::decode(object)
        };
        Some(Self::new(key, value))
    }

    fn new(key: KeyMeta, value: Result<V, String>) -> Self {
        Self {
            namespace: key.namespace.into(),
            name: key.name.into(),
            uid: key.uid.map(Arc::from),
            created: key
                .creation_timestamp
                .as_str()
                .and_then(|at| at.parse().ok()),
            version: key.resource_version,
            value,
        }
    }
}

/// The length of the labels of an object, as JSON text.
fn labels_length(text: &str) -> usize {
    #[derive(Deserialize)]
    struct Labeled<'a> {
        #[serde(borrow)]
        metadata: Labels<'a>,
    }
    #[derive(Deserialize)]
    struct Labels<'a> {
        #[serde(borrow)]
        labels: Option<&'a RawValue>,
    }

    let Ok(Labeled { metadata }) = serde_json::from_str(text) else {
        return 0;
    };
    metadata.labels.map_or(0, |labels| labels.get().len())
}

/// Removes the labels and annotations that nobody reads here.
fn remove_what_others_wrote(metadata: &mut Map<String, Value>) {
    for place in ["labels", "annotations"] {
        if let Some(Value::Object(fields)) = metadata.get_mut(place) {
            fields.retain(|key, _| is_read(key));
        }
    }
}

fn is_read(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    // The keys have subdomains, such as `autoscaling.crane.io`.
    let mut above = DOMAINS.iter().filter_map(|ours| domain.strip_suffix(ours));
    domain == RECOMMENDED || above.any(|above| above.is_empty() || above.ends_with('.'))
}

/// The object, if it is not too large to be kept.
fn within_kept_max(object: Value) -> Result<Value, String> {
    if object.to_string().len() > KEPT_MAX {
        return Err(longer_than(KEPT_MAX));
    }
    Ok(object)
}

pub fn longer_than(max: usize) -> String {
    format!(
        "longer than {} KiB, labels and annotations of others aside",
        max >> 10
    )
}
