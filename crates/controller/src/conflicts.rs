//! Several of our autoscalers on one scale target: the oldest acts, the others only preview.
//!
//! Pure. Without this each would take the other's child for a foreign HPA, or both would write the scale in turn. An
//! autoscaler that only previews conflicts with none.

use std::collections::HashMap;

use foretide_crds::ScaleStrategy;
use foretide_domain::api_group;

use foretide_api::autoscaler::Autoscaler;

/// The other autoscalers that act on the same target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetConflicts {
    /// Name of the oldest, if that is another autoscaler: it acts.
    pub older: Option<String>,
    /// UIDs of all other autoscalers.
    pub uids: Vec<String>,
}

/// The conflicts of every autoscaler that has some, by its UID.
pub fn among(all: &[Autoscaler]) -> HashMap<String, TargetConflicts> {
    let mut by_target: HashMap<_, Vec<_>> = HashMap::with_capacity(all.len());
    for autoscaler in all {
        let spec = autoscaler.spec();
        // `specificReplicas` is written in Preview, too.
        if spec.scale_strategy == Some(ScaleStrategy::Preview) && spec.specific_replicas.is_none() {
            continue;
        }
        let target = &spec.scale_target_ref;
        // The versions of a group name the same object.
        let group = api_group(target.api_version.as_deref().unwrap_or_default());
        let key = (autoscaler.namespace(), group, &target.kind, &target.name);
        by_target.entry(key).or_default().push(autoscaler);
    }
    by_target.retain(|_, same| same.len() > 1);
    by_target.into_values().flat_map(ranked).collect()
}

/// Every autoscaler with its conflicts; the oldest comes first, of equally old ones the first by name.
fn ranked(mut same: Vec<&Autoscaler>) -> Vec<(String, TargetConflicts)> {
    same.sort_by_key(|autoscaler| (autoscaler.created(), autoscaler.name()));
    let uids: Vec<&str> = same.iter().map(|autoscaler| autoscaler.uid()).collect();
    let oldest = same.first().map(|autoscaler| autoscaler.name().to_owned());
    let mut all = Vec::new();
    for (rank, uid) in uids.iter().enumerate() {
        let others = uids.iter().filter(|other| *other != uid);
        let conflicts = TargetConflicts {
            older: oldest.clone().filter(|_| rank > 0),
            uids: others.map(|&other| other.to_owned()).collect(),
        };
        all.push(((*uid).to_owned(), conflicts));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::child_hpa::tests::ehpa_with;

    fn ehpa(name: &str, second: u32, spec: &serde_json::Value) -> Autoscaler {
        let metadata = json!({
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        });
        let mut ehpa = ehpa_with(spec);
        ehpa.metadata = serde_json::from_value(metadata).unwrap();
        Autoscaler::Effective(Arc::new(ehpa))
    }

    #[test]
    fn of_several_autoscalers_of_one_target_the_oldest_acts() {
        let api = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}});
        let other_version = json!({"scaleTargetRef": {"apiVersion": "apps/v1beta1", "kind": "Deployment", "name": "web"}});
        let all = [
            ehpa("b", 2, &json!({})),
            ehpa("a", 2, &other_version),
            ehpa("first", 1, &json!({})),
            ehpa("shown", 0, &json!({"scaleStrategy": "Preview"})),
            ehpa("elsewhere", 0, &api),
        ];
        let conflicts = |older: Option<&str>, uids: [&str; 2]| TargetConflicts {
            older: older.map(str::to_owned),
            uids: uids.map(str::to_owned).to_vec(),
        };
        let want = HashMap::from([
            ("uid-first".to_owned(), conflicts(None, ["uid-a", "uid-b"])),
            (
                "uid-a".to_owned(),
                conflicts(Some("first"), ["uid-first", "uid-b"]),
            ),
            (
                "uid-b".to_owned(),
                conflicts(Some("first"), ["uid-first", "uid-a"]),
            ),
        ]);
        assert_eq!(among(&all), want);
    }
}
