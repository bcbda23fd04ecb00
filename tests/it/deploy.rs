//! The objects of `deploy/`, read from the manifests: the roles of users, a controller of which one replica leads, and
//! the servers of metrics, of which each replica serves.

use serde::Deserialize;
use serde_json::{Value, json};

const CONTROLLER: &str = include_str!("../../deploy/30-controller.yaml");
const LEADER: &str = include_str!("../../deploy/23-leader-rbac.yaml");
const ROLES: &str = include_str!("../../deploy/21-user-rbac.yaml");
const POLICY: &str = include_str!("../../deploy/admission/targets.yaml");
const ADAPTER: &str = include_str!("../../deploy/adapter/adapter.yaml");
const EXTERNAL: &str = include_str!("../../deploy/adapter/external.yaml");
const CUSTOM: &str = include_str!("../../deploy/adapter/custom.yaml");
const KEDA_SCALER: &str = include_str!("../../deploy/keda/keda-scaler.yaml");
const KEDA_POLICY: &str = include_str!("../../deploy/keda/network-policy.yaml");
/// The servers: name, workload, and their permissions and certificates.
const SERVERS: [(&str, &str, [&str; 2]); 2] = [
    (
        "foretide-adapter",
        ADAPTER,
        [
            include_str!("../../deploy/adapter/rbac.yaml"),
            include_str!("../../deploy/adapter/certificates.yaml"),
        ],
    ),
    (
        "foretide-keda-scaler",
        KEDA_SCALER,
        [
            include_str!("../../deploy/keda/rbac.yaml"),
            include_str!("../../deploy/keda/certificates.yaml"),
        ],
    ),
];

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

/// The name of a role, the roles that it is aggregated to, and its permissions on fleets.
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
        foretide_api::ownership::ADOPT,
    ] {
        assert!(condition.contains(changed), "{condition}");
    }
    assert_eq!(
        binding["spec"],
        json!({"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]})
    );
}

/// The only object of a kind among manifests.
fn only(manifests: &str, kind: &str) -> Value {
    let [object] = <[Value; 1]>::try_from(all(manifests, kind)).unwrap();
    object
}

fn all(manifests: &str, kind: &str) -> Vec<Value> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
    objects.retain(|object| object["kind"] == kind);
    objects
}

#[test]
fn servers_run_as_restricted_as_the_controller_and_are_selected_apart_from_it() {
    let controller = only(CONTROLLER, "Deployment");
    let of_controller = &controller["spec"]["template"]["spec"];
    for (name, manifests, _) in SERVERS {
        let deployment = only(manifests, "Deployment");
        let spec = &deployment["spec"];
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], name);
        let hardened = [
            "/securityContext",
            "/containers/0/securityContext",
            "/containers/0/livenessProbe",
            "/containers/0/readinessProbe",
            "/containers/0/image",
            "/terminationGracePeriodSeconds",
        ];
        for field in hardened {
            assert_eq!(
                pod.pointer(field),
                of_controller.pointer(field),
                "{name}: {field}"
            );
        }
        for field in ["replicas", "strategy"] {
            assert_eq!(spec[field], controller["spec"][field], "{name}: {field}");
        }
        // The selectors of the controller, its Service and its policies would select pods of the same name.
        let selected = json!({ "app.kubernetes.io/name": name });
        let labels = &spec["template"]["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/name"], name);
        assert_eq!(spec["selector"]["matchLabels"], selected);
        let budget = only(manifests, "PodDisruptionBudget");
        let disruption = json!({"minAvailable": 1, "selector": {"matchLabels": selected}});
        assert_eq!(budget["spec"], disruption);
        assert_eq!(only(manifests, "Service")["spec"]["selector"], selected);
    }
}

#[test]
fn a_server_reads_and_updates_one_secret_and_the_manifest_has_no_data_for_it() {
    for (name, _, [rbac, certificates]) in SERVERS {
        let secret = only(certificates, "Secret");
        let wanted = format!("{name}-certificates");
        assert_eq!(secret["metadata"]["name"], wanted);
        assert_eq!((secret.get("data"), secret.get("stringData")), (None, None));
        let role = only(certificates, "Role");
        let rules = json!([{
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": [wanted], "verbs": ["get", "update"],
        }]);
        assert_eq!(role["rules"], rules);
        let rules = only(rbac, "ClusterRole")["rules"].clone();
        let of_secrets = rules.as_array().unwrap().iter();
        let of_secrets = of_secrets.filter(|rule| rule["resources"] == json!(["secrets"]));
        assert_eq!(of_secrets.count(), 0);
    }
}

#[test]
fn only_keda_can_ask_the_scaler_and_the_policy_is_installed_with_the_flag_that_relies_on_it() {
    let policy = only(KEDA_POLICY, "NetworkPolicy");
    let deployment = only(KEDA_SCALER, "Deployment");
    let spec = &policy["spec"];
    assert_eq!(spec["podSelector"], deployment["spec"]["selector"]);
    // Egress is not limited, as API servers have many ports.
    assert_eq!(spec["policyTypes"], json!(["Ingress"]));
    let keda = json!({"kubernetes.io/metadata.name": "keda"});
    let ingress = json!([{
        "from": [{"namespaceSelector": {"matchLabels": keda}}],
        "ports": [{"port": "grpc", "protocol": "TCP"}],
    }]);
    assert_eq!(spec["ingress"], ingress);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().unwrap();
    assert!(args.contains(&json!("--allow-any-client")), "{args:?}");
    let installed: Value =
        serde_saphyr::from_str(include_str!("../../deploy/keda/Kustomization")).unwrap();
    let resources = installed["resources"].as_array().unwrap();
    assert!(resources.contains(&json!("network-policy.yaml")));
}

#[test]
fn an_api_is_registered_for_our_service_and_trusts_only_the_bundle_that_the_adapter_sets() {
    let services = [EXTERNAL, CUSTOM].map(|api| all(api, "APIService"));
    let services = services.concat();
    let seen: Vec<_> = services
        .iter()
        .map(|service| (&service["metadata"]["name"], &service["spec"]))
        .collect();
    let spec = |group: &str, version: &str, priority: i32| {
        json!({
            "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": priority, "insecureSkipTLSVerify": false,
            "service": {"name": "foretide-adapter", "namespace": "foretide-system", "port": 443},
        })
    };
    let (external, custom) = ("external.metrics.k8s.io", "custom.metrics.k8s.io");
    assert_eq!(
        seen,
        [
            (
                &json!("v1beta1.external.metrics.k8s.io"),
                &spec(external, "v1beta1", 100)
            ),
            (
                &json!("v1beta1.custom.metrics.k8s.io"),
                &spec(custom, "v1beta1", 100)
            ),
            (
                &json!("v1beta2.custom.metrics.k8s.io"),
                &spec(custom, "v1beta2", 200)
            ),
        ]
    );
    for api in [EXTERNAL, CUSTOM] {
        let names: Vec<_> = all(api, "APIService")
            .iter()
            .map(|service| service["metadata"]["name"].clone())
            .collect();
        let roles = all(api, "ClusterRole");
        let changed = &roles[0]["rules"][0];
        assert_eq!(changed["resources"], json!(["apiservices"]));
        assert_eq!(changed["resourceNames"], json!(names));
    }
}

#[test]
fn viewers_and_the_hpa_controller_may_read_our_metrics_and_no_others() {
    use foretide_api::published::{CRON_METRIC, POD_CPU_METRIC, PREDICTION_METRIC};

    let pods = format!("pods/{POD_CPU_METRIC}");
    let readers = [
        (
            EXTERNAL,
            "foretide-external-metrics-reader",
            json!([{
                "apiGroups": ["external.metrics.k8s.io"], "resources": [PREDICTION_METRIC, CRON_METRIC],
                "verbs": ["list"],
            }]),
        ),
        (
            CUSTOM,
            "foretide-custom-metrics-reader",
            json!([{"apiGroups": ["custom.metrics.k8s.io"], "resources": [pods], "verbs": ["get"]}]),
        ),
    ];
    for (manifests, name, rules) in readers {
        let of_name = |kind, path: &str| {
            let mut objects = all(manifests, kind);
            objects.retain(|object| object.pointer(path) == Some(&json!(name)));
            <[Value; 1]>::try_from(objects).unwrap()
        };
        let [role] = of_name("ClusterRole", "/metadata/name");
        assert_eq!(role["rules"], rules);
        let to_view = "rbac.authorization.k8s.io/aggregate-to-view";
        assert_eq!(role["metadata"]["labels"][to_view], "true");
        let [binding] = of_name("ClusterRoleBinding", "/roleRef/name");
        let controller = json!([{
            "kind": "ServiceAccount", "name": "horizontal-pod-autoscaler", "namespace": "kube-system",
        }]);
        assert_eq!(binding["subjects"], controller);
    }
}
