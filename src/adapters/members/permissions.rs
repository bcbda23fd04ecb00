//! What the hub does in a member, as rights: what its role there grants, and what is asked one by one whether it may.
//!
//! Each verb is used, and none is missing. It refuses to hold rights of the hub.

/// One rule of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// API group; empty for the core one.
    pub group: &'static str,
    /// Resources, with their subresource if it is about one.
    pub resources: &'static [&'static str],
    /// What is done with them.
    pub verbs: &'static [&'static str],
    /// What for.
    pub purpose: &'static str,
}

/// One question to an API server: may we do this?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessReview {
    /// API group.
    pub group: &'static str,
    /// Resource, with its subresource if it is about one.
    pub resource: &'static str,
    /// Verb.
    pub verb: &'static str,
    /// Namespace; absent for all of them, and for what is in none.
    pub namespace: Option<String>,
    /// What for.
    pub purpose: &'static str,
}

const RIGHTS: [Permission; 9] = [
    Permission {
        group: "",
        resources: &["pods"],
        verbs: &["list", "watch"],
        purpose: "seeing pods",
    },
    Permission {
        group: "",
        resources: &["nodes", "resourcequotas"],
        verbs: &["list", "watch"],
        purpose: "estimating room; without it, room is unknown",
    },
    Permission {
        group: "apps",
        resources: &["deployments", "statefulsets", "replicasets"],
        verbs: &["get", "list", "watch"],
        purpose: "seeing workloads, and who writes their replicas",
    },
    Permission {
        group: "apps",
        resources: &[
            "deployments/scale",
            "statefulsets/scale",
            "replicasets/scale",
        ],
        verbs: &["patch"],
        purpose: "scaling in mode Direct",
    },
    Permission {
        group: "autoscaling",
        resources: &["horizontalpodautoscalers"],
        verbs: &["list", "watch", "create", "patch", "delete"],
        purpose: "the member's own autoscaler",
    },
    Permission {
        group: "metrics.k8s.io",
        resources: &["pods"],
        verbs: &["list"],
        purpose: "usage of pods",
    },
    Permission {
        group: "custom.metrics.k8s.io",
        resources: &["*"],
        verbs: &["get"],
        purpose: "metrics of pods and objects",
    },
    Permission {
        group: "external.metrics.k8s.io",
        resources: &["*"],
        verbs: &["list"],
        purpose: "external metrics that are the member's own",
    },
    // The last one is for placing only.
    Permission {
        group: "apps",
        resources: &["deployments", "statefulsets", "replicasets"],
        verbs: &["create", "patch", "delete"],
        purpose: "placing workloads (workloadSource: Hub)",
    },
];

/// The rights of the hub in a member; `place` adds those to place workloads there.
#[must_use]
pub fn rights(place: bool) -> &'static [Permission] {
    let [always @ .., _placing] = &RIGHTS;
    if place { &RIGHTS } else { always }
}

/// The same, question by question; for what lives in namespaces in each of these, if there are any.
pub(super) fn deeds(place: bool, namespaces: &[String]) -> impl Iterator<Item = AccessReview> {
    let named: Vec<_> = namespaces.iter().cloned().map(Some).collect();
    rights(place).iter().flat_map(move |right| {
        let everywhere = vec![None];
        let named = named.clone();
        right.resources.iter().flat_map(move |resource| {
            let scopes = match *resource {
                "nodes" => &everywhere,
                _ if named.is_empty() => &everywhere,
                _ => &named,
            };
            let asked = scopes.iter().flat_map(|scope| {
                right.verbs.iter().map(move |verb| AccessReview {
                    group: right.group,
                    resource,
                    verb,
                    namespace: scope.clone(),
                    purpose: right.purpose,
                })
            });
            asked.collect::<Vec<_>>()
        })
    })
}

// === impl AccessReview ===

impl std::fmt::Display for AccessReview {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            group,
            resource,
            verb,
            namespace,
            ..
        } = self;
        match *group {
            "" => write!(f, "{verb} {resource}")?,
            group => write!(f, "{verb} {resource} ({group})")?,
        }
        match namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// The members of the test rig are written by hand.
    const OF_THE_RIG: &str = include_str!("../../../tests/rig/src/member.yaml");

    #[test]
    fn the_members_of_the_rig_grant_what_is_granted_here() {
        let documents: Vec<Value> = serde_saphyr::from_multiple(OF_THE_RIG).unwrap();
        let role = documents.iter().find(|d| d["kind"] == "ClusterRole");
        let mut granted = BTreeSet::new();
        let texts = |of: &Value| -> Vec<String> { serde_json::from_value(of.clone()).unwrap() };
        for rule in role.unwrap()["rules"].as_array().unwrap() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        granted.insert((group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
        let needed = deeds(true, &[]).map(|deed| {
            let AccessReview {
                group,
                resource,
                verb,
                ..
            } = deed;
            (group.to_owned(), resource.to_owned(), verb.to_owned())
        });
        assert_eq!(granted, needed.collect());
    }
}
