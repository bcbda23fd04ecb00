//! The permissions of the hub in a member cluster: the rules of its `ClusterRole`, and one access review for each verb.
//!
//! Every verb is used by the controller. The hub's permissions in its own cluster are in `deploy/`.

/// One rule of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permission {
    /// API group; empty for the core one.
    pub group: &'static str,
    /// Resources, with the subresource where it is one.
    pub resources: &'static [&'static str],
    /// Allowed verbs.
    pub verbs: &'static [&'static str],
    /// Purpose for which the controller needs it.
    pub purpose: &'static str,
}

/// One `SelfSubjectAccessReview`: one verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessReview {
    /// API group.
    pub group: &'static str,
    /// Resource, with the subresource where it is one.
    pub resource: &'static str,
    /// Verb.
    pub verb: &'static str,
    /// Namespace; none for all namespaces, and for resources without one.
    pub namespace: Option<String>,
    /// Purpose for which the controller needs it.
    pub purpose: &'static str,
}

const PERMISSIONS: [Permission; 10] = [
    Permission {
        group: "",
        resources: &["pods"],
        verbs: &["list", "watch"],
        purpose: "reading pods",
    },
    Permission {
        group: "",
        resources: &["nodes", "resourcequotas"],
        verbs: &["list", "watch"],
        purpose: "estimating capacity; without them, capacity is unknown",
    },
    Permission {
        group: "apps",
        resources: &["deployments", "statefulsets", "replicasets"],
        verbs: &["get", "list", "watch"],
        purpose: "reading workloads, and who writes their replicas",
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
    Permission {
        group: "keda.sh",
        resources: &["scaledobjects"],
        verbs: &["get", "list", "watch"],
        purpose: "seeing that KEDA has paused a workload; without them, a pause is not seen",
    },
    // The last one is for placing workloads only.
    Permission {
        group: "apps",
        resources: &["deployments", "statefulsets", "replicasets"],
        verbs: &["create", "patch", "delete"],
        purpose: "placing workloads (workloadSource: Hub)",
    },
];

/// The permissions of the hub in a member; `place` adds those to place workloads there.
pub fn permissions(place: bool) -> &'static [Permission] {
    let [always @ .., _placing] = &PERMISSIONS;
    if place { &PERMISSIONS } else { always }
}

/// The permissions as one access review per verb and resource; those of namespaced resources once in each of
/// `namespaces`, or for all namespaces if there are none.
pub fn access_reviews(place: bool, namespaces: &[String]) -> Vec<AccessReview> {
    let named: Vec<_> = namespaces.iter().cloned().map(Some).collect();
    let mut reviews = Vec::new();
    for permission in permissions(place) {
        for resource in permission.resources {
            let scopes = match *resource {
                "nodes" => &[None][..],
                _ if named.is_empty() => &[None],
                _ => &named,
            };
            for scope in scopes {
                reviews.extend(permission.verbs.iter().map(|verb| AccessReview {
                    group: permission.group,
                    resource,
                    verb,
                    namespace: scope.clone(),
                    purpose: permission.purpose,
                }));
            }
        }
    }
    reviews
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

    /// The role of the members in the test rig, written by hand.
    const RIG_MANIFESTS: &str = include_str!("../../../../tests/rig/src/member.yaml");

    #[test]
    fn the_role_of_the_rig_grants_the_same_permissions() {
        let documents: Vec<Value> = serde_saphyr::from_multiple(RIG_MANIFESTS).unwrap();
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
        let needed = access_reviews(true, &[]).into_iter().map(|review| {
            let AccessReview {
                group,
                resource,
                verb,
                ..
            } = review;
            (group.to_owned(), resource.to_owned(), verb.to_owned())
        });
        assert_eq!(granted, needed.collect());
    }
}
