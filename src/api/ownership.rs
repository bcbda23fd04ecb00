//! What we create for an autoscaler: its name, its labels, its owner, and whether it stands as
//! written.
//!
//! Pure. A child autoscaler and a prediction are both called `ehpa-<name>`, are collected with the
//! object that they are for, and are compared by what was written, because the API server adds
//! defaults of its own. What a fleet has in a member cluster is called `fdhpa-<name>` and bears its
//! UID in a label: an owner in another cluster would have it collected at once.

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};

use crate::domain::quantity::Quantity;

/// Value of the label `app.kubernetes.io/managed-by` on everything we create.
pub const MANAGED_BY: &str = "foretide";

/// Label on what a fleet's autoscaler has in a member cluster: its UID.
pub const FLEET_UID: &str = "autoscaling.foretide.io/fleet-uid";

/// Label beside it: which hub the fleet's autoscaler is in, for two hubs may have a member in common. An
/// annotation of the same name on a fleet's object, as it is decided, says it.
pub const HUB: &str = "autoscaling.foretide.io/hub";

/// Label beside both, and annotation likewise: what becomes of it when the fleet's autoscaler is deleted, for a member may
/// be away then.
pub const DELETION_POLICY: &str = "autoscaling.foretide.io/deletion-policy";

/// For whom something is created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnerKind {
    /// An autoscaler of the same cluster, its owner.
    #[default]
    Owner,
    /// A fleet's autoscaler, whose own object is in another cluster.
    Fleet,
}

/// Longest name that the API server takes.
const MAX_NAME: usize = 253;
/// Longest label value that the API server takes.
const MAX_LABEL: usize = 63;

/// `ehpa-<name>`, cut and told apart by a hash where that would be too long.
#[must_use]
pub fn child_name(name: &str) -> String {
    OwnerKind::Owner.child_name(name)
}

/// `fdhpa-<name>`, likewise: what we create for a fleet must not meet what we create for an autoscaler of one cluster.
#[must_use]
pub fn fleet_child_name(name: &str) -> String {
    OwnerKind::Fleet.child_name(name)
}

// === impl OwnerKind ===

impl OwnerKind {
    /// What such an object is called in messages.
    #[must_use]
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Owner => "effectivehorizontalpodautoscaler",
            Self::Fleet => "federatedhpa",
        }
    }

    /// `ehpa-<name>` or `fdhpa-<name>`, cut and told apart by a hash where that would be too long.
    #[must_use]
    pub fn child_name(self, name: &str) -> String {
        let prefix = match self {
            Self::Owner => "ehpa",
            Self::Fleet => "fdhpa",
        };
        fitting(format!("{prefix}-{name}"), name)
    }

    /// Metadata of something we create for `ehpa`: its name, its labels, and the bond to it.
    #[must_use]
    pub fn metadata(self, ehpa: &EffectiveHorizontalPodAutoscaler) -> Value {
        match self {
            Self::Owner => owned_metadata(ehpa),
            Self::Fleet => {
                let mut labels = labels(&ehpa.name_any());
                labels.extend(self.marks(ehpa));
                json!({
                    "name": self.child_name(&ehpa.name_any()),
                    "namespace": ehpa.namespace().unwrap_or_default(),
                    "labels": labels,
                })
            }
        }
    }

    /// What tells an autoscaler in a member as a fleet's, whether we created or adopted it.
    #[must_use]
    pub fn marks(self, ehpa: &EffectiveHorizontalPodAutoscaler) -> Map<String, Value> {
        let mut marks = Map::new();
        if self == Self::Fleet {
            marks.insert(FLEET_UID.into(), ehpa.uid().unwrap_or_default().into());
            let told = |mark: &str| {
                Some((
                    mark.to_owned(),
                    ehpa.annotations().get(mark)?.clone().into(),
                ))
            };
            marks.extend([HUB, DELETION_POLICY].into_iter().filter_map(told));
        }
        marks
    }
}

fn fitting(full: String, name: &str) -> String {
    if full.len() <= MAX_NAME {
        return full;
    }
    let suffix = format!("-{:016x}", fnv1a(name.as_bytes()));
    let kept: String = full.chars().take(MAX_NAME - suffix.len()).collect();
    format!("{kept}{suffix}")
}

/// The 64-bit FNV-1a hash: names must not change with the standard library's hasher.
///
/// # Source
/// Fowler, Noll, Vo; offset basis and prime of the 64-bit variant (IETF draft-eastlake-fnv).
fn fnv1a(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Metadata of something we create for `ehpa`: name, labels, and the owner it is collected with.
#[must_use]
pub fn owned_metadata(ehpa: &EffectiveHorizontalPodAutoscaler) -> Value {
    owned_by(ehpa, &child_name(&ehpa.name_any()))
}

/// Metadata of something called `name` that we create for an object of ours in the same cluster.
#[must_use]
pub fn owned_by<K: Resource<DynamicType = ()>>(owner: &K, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": owner.namespace().unwrap_or_default(),
        "labels": labels(&owner.name_any()),
        "ownerReferences": [{
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "name": owner.name_any(),
            "uid": owner.uid().unwrap_or_default(),
            "controller": true,
            "blockOwnerDeletion": false,
        }],
    })
}

fn labels(name: &str) -> Map<String, Value> {
    let mut labels = Map::new();
    labels.insert("app.kubernetes.io/managed-by".into(), MANAGED_BY.into());
    if name.len() <= MAX_LABEL {
        labels.insert("app.kubernetes.io/part-of".into(), name.into());
    }
    labels
}

/// Whether `live` holds everything of `desired`; lists must agree in length, quantities in value.
#[must_use]
pub fn is_part_of(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
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
    let quantity = |value: &Value| match value {
        Value::String(text) => text.parse::<Quantity>().ok(),
        Value::Number(number) => number.to_string().parse::<Quantity>().ok(),
        _ => None,
    };
    matches!((quantity(one), quantity(other)), (Some(one), Some(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_whole_where_it_fits_and_told_apart_where_not() {
        assert_eq!(child_name("web"), "ehpa-web");
        assert_eq!(OwnerKind::Fleet.child_name("web"), "fdhpa-web");
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
