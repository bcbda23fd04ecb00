//! What `deploy/` installs, read from the manifests: the roles of users, and a controller of which one replica leads.

use serde::Deserialize;
use serde_json::{Value, json};

const CONTROLLER: &str = include_str!("../../deploy/30-controller.yaml");
const LEADER: &str = include_str!("../../deploy/23-leader-rbac.yaml");
const ROLES: &str = include_str!("../../deploy/21-user-rbac.yaml");
const POLICY: &str = include_str!("../../deploy/admission/targets.yaml");

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

#[test]
fn of_two_replicas_one_leads_and_one_stays_through_rollouts_and_drains() {
    let [deployment, budget]: [Value; 2] = serde_saphyr::from_multiple(CONTROLLER)
        .unwrap()
        .try_into()
        .unwrap();
    let spec = &deployment["spec"];
    let pod = &spec["template"]["spec"];
    let args = pod["containers"][0]["args"].as_array().unwrap();
    assert!(args.contains(&json!("--leader-elect")), "{args:?}");
    let surge =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    assert_eq!((&spec["replicas"], &spec["strategy"]), (&json!(2), &surge));
    let disruption = json!({"minAvailable": 1, "selector": spec["selector"]});
    assert_eq!(
        (&budget["kind"], &budget["spec"]),
        (&json!("PodDisruptionBudget"), &disruption)
    );
}

#[test]
fn the_controller_may_create_leases_and_write_only_its_own() {
    let [role, binding]: [Value; 2] = serde_saphyr::from_multiple(LEADER)
        .unwrap()
        .try_into()
        .unwrap();
    let group = json!(["coordination.k8s.io"]);
    assert_eq!(
        role["rules"],
        json!([
            {"apiGroups": group, "resources": ["leases"], "verbs": ["create"]},
            {
                "apiGroups": group, "resources": ["leases"], "resourceNames": ["foretide"],
                "verbs": ["get", "update"],
            },
        ])
    );
    let of_role = json!({
        "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "foretide-leader",
    });
    assert_eq!(binding["roleRef"], of_role);
    for object in [&role, &binding] {
        assert_eq!(object["metadata"]["namespace"], "foretide-system");
    }
}

#[test]
fn the_policy_is_asked_about_every_object_that_scales_and_refuses() {
    let [policy, binding]: [Value; 2] = serde_saphyr::from_multiple(POLICY)
        .unwrap()
        .try_into()
        .unwrap();
    let spec = &policy["spec"];
    assert_eq!(spec["failurePolicy"], "Fail");
    let rule = |group: &str, resource: &str| {
        json!({
            "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [resource],
        })
    };
    assert_eq!(
        spec["matchConstraints"]["resourceRules"],
        json!([
            rule("autoscaling.crane.io", "effectivehorizontalpodautoscalers"),
            rule("autoscaling.foretide.io", "federatedhpas"),
        ])
    );
    let condition = spec["matchConditions"][0]["expression"].as_str().unwrap();
    for changed in [
        "object.spec != oldObject.spec",
        foretide::api::ownership::ADOPT,
    ] {
        assert!(condition.contains(changed), "{condition}");
    }
    assert_eq!(
        binding["spec"],
        json!({"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]})
    );
}
