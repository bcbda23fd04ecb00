//! The roles of `deploy/` that users get, read from the manifests.

use serde::Deserialize;

const ROLES: &str = include_str!("../../deploy/21-user-rbac.yaml");

#[derive(Deserialize)]
struct Role {
    metadata: Metadata,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Rule {
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// The name of a role, the roles that it is aggregated to, and what it allows on fleets.
fn of_fleets(role: &Role) -> (&str, Vec<&str>, Vec<&str>) {
    let added = ["view", "edit", "admin"];
    let added = added.into_iter().filter(|to| {
        let mut labels = role.metadata.labels.keys();
        labels.any(|key| key.strip_prefix("rbac.authorization.k8s.io/aggregate-to-") == Some(to))
    });
    let rules = role.rules.iter();
    let rules = rules.filter(|rule| {
        rule.resources
            .iter()
            .any(|it| it.starts_with("federatedhpas"))
    });
    let verbs = rules.flat_map(|rule| rule.verbs.iter().map(String::as_str));
    (&role.metadata.name, added.collect(), verbs.collect())
}

#[test]
fn namespace_editors_can_read_fleets_and_not_write_them() {
    let roles: Vec<Role> = serde_saphyr::from_multiple(ROLES).unwrap();

    let seen = vec!["get", "list", "watch"];
    let written = vec![
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    assert_eq!(
        roles.iter().map(of_fleets).collect::<Vec<_>>(),
        [
            ("ehpa-viewer", vec!["view"], seen),
            ("ehpa-editor", vec!["edit"], vec![]),
            ("foretide-fleet-operator", vec![], written),
        ]
    );
}
