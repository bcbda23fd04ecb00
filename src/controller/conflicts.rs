//! Several of our objects on one scale target: the oldest acts, the others only show.
//!
//! Pure. Without this each would take the other's child for a foreign autoscaler, or both would write
//! the scale in turn. An object that only previews is nobody's rival.

use std::{collections::HashMap, sync::Arc};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, ScaleStrategy};
use kube::ResourceExt;

use super::child_hpa::group;

/// The other objects that act on the same target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TargetConflicts {
    /// Name of the oldest, where that is another one: it acts.
    pub(super) older: Option<String>,
    /// UIDs of all others.
    pub(super) uids: Vec<String>,
}

/// The rivals of every object that has some, by its UID.
pub(super) fn among(
    all: &[Arc<EffectiveHorizontalPodAutoscaler>],
) -> HashMap<String, TargetConflicts> {
    let mut by_target: HashMap<_, Vec<_>> = HashMap::with_capacity(all.len());
    for ehpa in all.iter().filter(|ehpa| acts(ehpa)) {
        let target = &ehpa.spec.scale_target_ref;
        let group = group(target.api_version.as_deref().unwrap_or_default());
        let namespace = ehpa.metadata.namespace.as_deref();
        let key = (namespace, group, &target.kind, &target.name);
        by_target.entry(key).or_default().push(&**ehpa);
    }
    let contested = by_target.into_values().filter(|same| same.len() > 1);
    contested.flat_map(ranked).collect()
}

fn acts(ehpa: &EffectiveHorizontalPodAutoscaler) -> bool {
    ehpa.spec.scale_strategy.unwrap_or_default() == ScaleStrategy::Auto
        || ehpa.spec.specific_replicas.is_some()
}

/// Every object with its rivals; the oldest comes first, of equally old ones the first by name.
fn ranked(mut same: Vec<&EffectiveHorizontalPodAutoscaler>) -> Vec<(String, TargetConflicts)> {
    let created = |ehpa: &EffectiveHorizontalPodAutoscaler| {
        ehpa.metadata.creation_timestamp.as_ref().map(|at| at.0)
    };
    same.sort_by_cached_key(|ehpa| (created(ehpa), ehpa.name_any()));
    let uids: Vec<String> = same.iter().filter_map(|ehpa| ehpa.uid()).collect();
    let oldest = same.first().map(|ehpa| ehpa.name_any());
    let rivals = |(rank, ehpa): (usize, &&EffectiveHorizontalPodAutoscaler)| {
        let uid = ehpa.uid()?;
        let older = oldest.clone().filter(|_| rank > 0);
        let uids = uids
            .iter()
            .filter(|other| **other != uid)
            .cloned()
            .collect();
        Some((uid, TargetConflicts { older, uids }))
    };
    same.iter().enumerate().filter_map(rivals).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ehpa(
        name: &str,
        second: u32,
        spec: &serde_json::Value,
    ) -> Arc<EffectiveHorizontalPodAutoscaler> {
        let mut object = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {
                "name": name, "namespace": "shop", "uid": format!("uid-{name}"),
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 10,
            },
        });
        for (field, value) in spec.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn of_several_objects_that_act_on_one_target_the_oldest_does() {
        let api = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}});
        let other_version = json!({"scaleTargetRef": {"apiVersion": "apps/v1beta1", "kind": "Deployment", "name": "web"}});
        let all = [
            ehpa("b", 2, &json!({})),
            ehpa("a", 2, &other_version),
            ehpa("first", 1, &json!({})),
            ehpa("shown", 0, &json!({"scaleStrategy": "Preview"})),
            ehpa("elsewhere", 0, &api),
        ];
        let rivals = |older: Option<&str>, uids: [&str; 2]| TargetConflicts {
            older: older.map(str::to_owned),
            uids: uids.map(str::to_owned).to_vec(),
        };
        let want = HashMap::from([
            ("uid-first".to_owned(), rivals(None, ["uid-a", "uid-b"])),
            (
                "uid-a".to_owned(),
                rivals(Some("first"), ["uid-first", "uid-b"]),
            ),
            (
                "uid-b".to_owned(),
                rivals(Some("first"), ["uid-first", "uid-a"]),
            ),
        ]);
        assert_eq!(among(&all), want);
    }
}
