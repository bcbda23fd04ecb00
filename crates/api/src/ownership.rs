//! What we create for an autoscaler: its name, its labels, its owner, and whether it is stored as written.
//!
//! Pure. A child HPA and a prediction are both called `ehpa-<name>` and are garbage-collected with the object that they
//! are for. What a fleet has in a member cluster is called `fdhpa-<name>` and has the fleet's UID in a label: with an
//! owner reference to an object of another cluster it would be garbage-collected at once. Objects are compared by what
//! was written, because the API server adds defaults of its own.

use std::collections::BTreeMap;

use foretide_crds::{DeletionPolicy, EffectiveHorizontalPodAutoscaler, FederatedHPA};
use foretide_domain::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

/// Value of the label `app.kubernetes.io/managed-by` on everything we create.
pub const MANAGED_BY: &str = "foretide";

/// Label on what a fleet has in a member cluster: the UID of its object.
pub const FLEET_UID: &str = "autoscaling.foretide.io/fleet-uid";

/// Label beside it: which hub the fleet's object is in, because two hubs may have a member in common.
pub const HUB: &str = "autoscaling.foretide.io/hub";

/// Label beside both: what happens to it when the fleet's object is deleted, because a member may be unreachable then.
pub const DELETION_POLICY: &str = "autoscaling.foretide.io/deletion-policy";

/// Annotation on the user's object: `"true"` takes over a foreign HPA of the target.
pub const ADOPT: &str = "autoscaling.foretide.io/adopt";

/// The kinds of autoscaler that we manage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnerKind {
    /// `EffectiveHorizontalPodAutoscaler`: its child is in the same cluster, and owned by it.
    #[default]
    Effective,
    /// `FederatedHPA`: its children are in member clusters, and have its UID in a label.
    Federated,
}

/// Longest name that the API server accepts.
const MAX_NAME: usize = 253;
/// Longest label value that the API server accepts.
const MAX_LABEL: usize = 63;

// === impl OwnerKind ===

impl OwnerKind {
    /// The name of such an object in messages.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Effective => "effectivehorizontalpodautoscaler",
            Self::Federated => "federatedhpa",
        }
    }

    /// The plural name of its resource, as in the paths of the API.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Effective => "effectivehorizontalpodautoscalers",
            Self::Federated => "federatedhpas",
        }
    }

    /// `ehpa-<name>` or `fdhpa-<name>`; a name longer than the API server accepts is truncated, and a hash keeps it
    /// unique.
    pub fn child_name(self, name: &str) -> String {
        let prefix = match self {
            Self::Effective => "ehpa",
            Self::Federated => "fdhpa",
        };
        fitting(format!("{prefix}-{name}"), name)
    }
}

/// The object that something is created for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The kind.
    pub kind: OwnerKind,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The identity.
    pub uid: String,
    /// Marks of the objects of a fleet in a member: labels on created objects, annotations on adopted ones.
    /// Empty for an owner of the same cluster.
    pub marks: BTreeMap<&'static str, String>,
}

// === impl Owner ===

impl Owner {
    /// An autoscaler of one cluster.
    pub fn effective(ehpa: &EffectiveHorizontalPodAutoscaler) -> Self {
        Self::of(OwnerKind::Effective, &ehpa.metadata)
    }

    /// A fleet's autoscaler, of the hub with this identity (unknown until it was read once).
    pub fn federated(fdhpa: &FederatedHPA, hub: Option<&str>, deletion: DeletionPolicy) -> Self {
        let mut owner = Self::of(OwnerKind::Federated, &fdhpa.metadata);
        let policy = match deletion {
            DeletionPolicy::Delete => "Delete",
            DeletionPolicy::Retain => "Retain",
        };
        owner.marks.insert(FLEET_UID, owner.uid.clone());
        owner.marks.extend(hub.map(|hub| (HUB, hub.to_owned())));
        owner.marks.insert(DELETION_POLICY, policy.to_owned());
        owner
    }

    fn of(kind: OwnerKind, metadata: &ObjectMeta) -> Self {
        Self {
            kind,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            marks: BTreeMap::new(),
        }
    }

    /// Name of what is created for it.
    pub fn child_name(&self) -> String {
        self.kind.child_name(&self.name)
    }

    /// Metadata of what is created for it: name, labels, and the reference to it or the marks of its fleet.
    pub fn child_metadata(&self) -> Value {
        let mut labels = labels(&self.name);
        let marks = self.marks.iter();
        labels.extend(marks.map(|(mark, value)| ((*mark).to_owned(), value.clone().into())));
        let mut metadata = json!({
            "name": self.child_name(),
            "namespace": self.namespace,
            "labels": labels,
        });
        if self.kind == OwnerKind::Effective {
            metadata["ownerReferences"] =
                owner_references::<EffectiveHorizontalPodAutoscaler>(&self.name, &self.uid);
        }
        metadata
    }
}

fn fitting(full: String, name: &str) -> String {
    if full.len() <= MAX_NAME {
        return full;
    }
    let suffix = format!("-{:016x}", fnv1a(name.as_bytes()));
    // Names of objects are ASCII (RFC 1123), so characters are bytes.
    let kept: String = full.chars().take(MAX_NAME - suffix.len()).collect();
    format!("{kept}{suffix}")
}

/// The 64-bit FNV-1a hash: names must not change with the standard library's hasher.
///
/// # Source
/// Fowler, Noll, Vo; offset basis and prime of the 64-bit variant (IETF draft-eastlake-fnv).
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// Metadata of something called `name` that we create for an object of ours in the same cluster.
pub fn owned_by<K: Resource<DynamicType = ()>>(owner: &K, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": owner.namespace().unwrap_or_default(),
        "labels": labels(&owner.name_any()),
        "ownerReferences": owner_references::<K>(&owner.name_any(), &owner.uid().unwrap_or_default()),
    })
}

fn owner_references<K: Resource<DynamicType = ()>>(name: &str, uid: &str) -> Value {
    json!([{
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": name,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": false,
    }])
}

fn labels(name: &str) -> Map<String, Value> {
    let mut labels = Map::new();
    labels.insert("app.kubernetes.io/managed-by".into(), MANAGED_BY.into());
    // The API server refuses an object with a longer value.
    if name.len() <= MAX_LABEL {
        labels.insert("app.kubernetes.io/part-of".into(), name.into());
    }
    labels
}

/// True if `live` holds everything of `desired`; lists must agree in length, quantities in value.
pub fn is_part_of(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        // An optional field that is not set is serialized as null, and nothing is asked of it.
        (Value::Null, _) => true,
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().all(|(key, value)| {
            value.is_null() || found.get(key).is_some_and(|live| is_part_of(value, live))
        }),
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len()
                && wanted
                    .iter()
                    .zip(found)
                    .all(|(value, live)| is_part_of(value, live))
        }
        (wanted, found) => wanted == found || same_quantity(wanted, found),
    }
}

fn same_quantity(one: &Value, other: &Value) -> bool {
    matches!((quantity(one), quantity(other)), (Some(one), Some(other)) if one == other)
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// A manifest that is applied only if there is no object of its name.
///
/// An apply creates what is missing and ignores the version then; that of an object which is there is never this one,
/// because the first write to a new storage is later. A `POST` would do the same, but as its creator we would own each
/// field twice, and a field that a later manifest lacks would stay.
pub fn if_absent(manifest: &Value) -> Value {
    let mut manifest = manifest.clone();
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".into(), "1".into());
    }
    manifest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_whole_where_it_fits_and_told_apart_where_not() {
        let child_name = |name: &str| OwnerKind::Effective.child_name(name);
        assert_eq!(child_name("web"), "ehpa-web");
        assert_eq!(OwnerKind::Federated.child_name("web"), "fdhpa-web");
        let (one, other) = (child_name(&"a".repeat(252)), child_name(&"a".repeat(253)));
        assert_eq!((one.len(), other.len()), (MAX_NAME, MAX_NAME));
        assert_ne!(one, other);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn what_is_written_may_be_spelled_otherwise_and_have_more_beside_it() {
        for (written, live, same) in [
            (json!({"a": 1}), json!({"a": 1, "b": 2}), true),
            (json!({"a": null}), json!({}), true),
            (json!({"a": "0.1"}), json!({"a": "100m"}), true),
            (json!({"a": 2}), json!({"a": "2"}), true),
            (json!({"a": "100m"}), json!({"a": "1"}), false),
            (json!([1, 2]), json!([1]), false),
            (json!({"a": 1}), json!({}), false),
            (json!({"a": "x"}), json!({"a": "y"}), false),
        ] {
            assert_eq!(is_part_of(&written, &live), same, "{written} {live}");
        }
    }
}
