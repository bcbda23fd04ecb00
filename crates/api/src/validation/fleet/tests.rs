use foretide_domain::{ReplicaBounds, Requirement, workload::Strategy};
use foretide_federate::{Affinity, TaintEffect, Toleration};
use serde_json::{Value, json};

use super::*;

const PERIOD: SignedDuration = SignedDuration::from_secs(15);

/// A fleet with these fields in its spec, besides the required ones.
fn object(spec: Value) -> FederatedHPA {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "shop", "generation": 7},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 20,
        },
    });
    let Value::Object(spec) = spec else {
        panic!("{spec}");
    };
    object["spec"].as_object_mut().unwrap().extend(spec);
    serde_json::from_value(object).unwrap()
}

fn read_spec(spec: Value) -> Result<FleetSpec, Invalid> {
    fleet(&object(spec), &Zone::utc(), PERIOD, &Settings::default())
}

fn policy_of(spec: Value) -> Policy {
    read_spec(spec).unwrap().policy
}

fn default_policy() -> Policy {
    let bounds = ReplicaBounds::new(Replicas::new(2), Replicas::new(20));
    Policy {
        weight_by: WeightBy::Capacity,
        scaling_to_zero: false,
        delay: SignedDuration::from_mins(1),
        failure: FailurePolicy::Retain,
        toleration: SignedDuration::from_mins(5),
        source: WorkloadSource::Members,
        mode: Mode::Delegated,
        cooldown: SignedDuration::from_mins(2),
        settle: 3,
        period: PERIOD,
        tolerance: 0.1,
        generation: 7,
        ..Policy::new(AssignmentKind::Duplicated, bounds)
    }
}

fn external(name: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "5"},
    }})
}

fn cpu() -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
    }})
}

#[test]
fn what_is_left_out_has_its_default() {
    let spec = read_spec(json!({})).unwrap();
    assert_eq!(spec.policy, default_policy());
    assert_eq!(spec.deletion, DeletionPolicy::Delete);
    assert_eq!(spec.scopes, BTreeSet::new());
    assert_eq!(spec.workload.target.namespace, "shop");
    assert_eq!(spec.workload.strategy, Strategy::Auto);
    assert_eq!(spec.workload.metrics[0].identifier(), "resource.cpu");
}

/// A spec in which nothing has its default.
fn full_spec() -> Value {
    json!({
        "scaleStrategy": "Preview",
        "clusterAffinity": {
            "clusterNames": ["a", "b", "c"], "exclude": ["c"],
            "labelSelector": {
                "matchLabels": {"tier": "prod"},
                "matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}],
            },
            "fieldSelector": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]},
        },
        "autoscaleMultiClusterDelay": 90,
        "scalingToZero": true,
        "federatedHPAAssignment": {
            "federatedHPAAssignmentType": "DynamicWeighted",
            "weightBy": "Demand",
            "clusterAutoscalingPreference": [{
                "targetCluster": {"clusterNames": ["a"]},
                "staticWeight": 3, "priority": -1,
                "autoscalingMinThreshold": 1, "autoscalingMaxThreshold": 8, "elastic": true,
            }],
        },
        "failurePolicy": "Reassign",
        "tolerationSeconds": 30,
        "clusterTolerations": [{"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
        "workloadSource": "Hub",
        "mode": "Direct",
        "behavior": {"scaleUp": {"tolerance": "0.05"}, "scaleDown": {"tolerance": "0.2"}},
        "deletionPolicy": "Retain",
        "rebalance": {"cooldownSeconds": 10, "settleObservations": 1, "minUtilizationPercent": 50},
    })
}

/// The policy of [`full_spec`].
fn full_policy() -> Policy {
    Policy {
        kind: AssignmentKind::DynamicWeighted,
        affinity: Affinity {
            names: ["a", "b", "c"].map(str::to_owned).to_vec(),
            exclude: vec!["c".to_owned()],
            labels: [
                Requirement::In("tier".to_owned(), vec!["prod".to_owned()]),
                Requirement::DoesNotExist("spot".to_owned()),
            ]
            .into_iter()
            .collect(),
            fields: vec![Requirement::In("region".to_owned(), vec!["eu".to_owned()])],
        },
        preferences: vec![Preference {
            targets: Affinity {
                names: vec!["a".to_owned()],
                ..Affinity::default()
            },
            weight: Some(3),
            priority: Some(-1),
            min: Some(Replicas::new(1)),
            max: Some(Replicas::new(8)),
            elastic: true,
        }],
        weight_by: WeightBy::Demand,
        scaling_to_zero: true,
        delay: SignedDuration::from_secs(90),
        failure: FailurePolicy::Reassign,
        toleration: SignedDuration::from_secs(30),
        tolerations: vec![Toleration {
            key: Some("maintenance".to_owned()),
            value: None,
            effect: Some(TaintEffect::NoExecute),
            seconds: Some(60),
        }],
        source: WorkloadSource::Hub,
        mode: Mode::Direct,
        cooldown: SignedDuration::from_secs(10),
        settle: 1,
        min_utilization: Some(0.5),
        tolerance: 0.2,
        ..default_policy()
    }
}

#[test]
fn every_field_is_converted() {
    let spec = read_spec(full_spec()).unwrap();
    assert_eq!(spec.workload.strategy, Strategy::Preview);
    assert_eq!(spec.deletion, DeletionPolicy::Retain);
    assert_eq!(spec.policy, full_policy());
}

#[test]
fn every_assignment_type_is_converted() {
    for (wire, want) in [
        ("Duplicated", AssignmentKind::Duplicated),
        ("Aggregated", AssignmentKind::Aggregated),
        ("StaticWeighted", AssignmentKind::StaticWeighted),
        ("DynamicWeighted", AssignmentKind::DynamicWeighted),
    ] {
        let spec = json!({"federatedHPAAssignment": {"federatedHPAAssignmentType": wire}});
        assert_eq!(policy_of(spec).kind, want);
    }
    let prioritized = json!({"federatedHPAAssignment": {
        "federatedHPAAssignmentType": "Prioritized",
        "clusterAutoscalingPreference": [{"targetCluster": {}, "priority": 0}],
    }});
    assert_eq!(policy_of(prioritized).kind, AssignmentKind::Prioritized);
}

#[test]
fn external_metrics_are_measured_for_the_fleet_and_others_in_each_member_by_default() {
    let metrics = json!([cpu(), external("queue"), external("topic")]);
    let scope = |metric: &str, scope: &str| json!({"metric": metric, "scope": scope});
    for (said, want) in [
        (json!([]), vec!["external.queue", "external.topic"]),
        (
            json!([scope("external.queue", "Member")]),
            vec!["external.topic"],
        ),
        (
            json!([scope("resource.cpu", "Fleet")]),
            vec!["external.queue", "external.topic", "resource.cpu"],
        ),
    ] {
        let spec = read_spec(json!({"metrics": metrics, "metricScope": said})).unwrap();
        assert_eq!(spec.scopes.iter().collect::<Vec<_>>(), want, "{said}");
        let members = spec.member_metrics().count();
        assert_eq!(members, 3 - want.len(), "{said}");
    }
}

#[test]
fn members_without_metrics_of_their_own_run_direct() {
    let cron =
        json!({"name": "day", "start": "0 9 * * *", "end": "0 18 * * *", "targetReplicas": 5});
    for (spec, want) in [
        (json!({"metrics": [cpu()]}), Mode::Delegated),
        (
            json!({"metrics": [cpu(), external("queue")]}),
            Mode::Delegated,
        ),
        (json!({"metrics": [external("queue")]}), Mode::Direct),
        (json!({"metrics": [], "crons": [cron]}), Mode::Direct),
        (
            json!({"metrics": [cpu()], "minReplicas": 0}),
            Mode::Delegated,
        ),
        (
            json!({"metrics": [cpu()], "metricScope": [{"metric": "resource.cpu", "scope": "Fleet"}]}),
            Mode::Direct,
        ),
    ] {
        assert_eq!(policy_of(spec.clone()).mode, want, "{spec}");
    }
}

#[test]
fn a_fleet_keeps_at_least_one_replica() {
    for (written, counts) in [(0, 1), (1, 1), (3, 3)] {
        let spec = read_spec(json!({"minReplicas": written})).unwrap();
        let minima = [spec.workload.bounds.min, spec.policy.bounds.min];
        assert_eq!(minima, [Replicas::new(counts); 2], "{written}");
    }
}

#[test]
fn the_scope_of_an_unknown_metric_is_left_out_with_a_problem() {
    let scope = json!([{"metric": "external.que", "scope": "Fleet"}]);
    let spec = read_spec(json!({"metrics": [external("queue")], "metricScope": scope})).unwrap();
    let messages: Vec<_> = spec
        .workload
        .problems
        .iter()
        .map(|p| p.message.as_str())
        .collect();
    assert_eq!(
        messages,
        ["spec.metricScope[0].metric is external.que, expected external.queue"]
    );
}

/// A policy with preferences.
fn assigned(policy: &str, preference: &Value) -> Value {
    json!({"federatedHPAAssignment": {
        "federatedHPAAssignmentType": policy, "clusterAutoscalingPreference": [preference],
    }})
}

#[test]
fn each_violation_names_the_field_its_value_and_what_is_expected() {
    let preference = "spec.federatedHPAAssignment.clusterAutoscalingPreference";
    let first = format!("{preference}[0]");
    let affinity = |selector: &str, expression: Value| json!({"clusterAffinity": {selector: {"matchExpressions": [expression]}}});
    let tolerated = |toleration: Value| json!({"clusterTolerations": [toleration]});
    for (spec, want) in [
        (json!({"maxReplicas": 1}), "spec.minReplicas is 2, expected at most spec.maxReplicas, which is 1".to_owned()),
        (json!({"mode": "Metric"}),
            "spec.mode is Metric, expected Delegated or Direct in a FederatedHPA: the metrics of forecasts and crons are those of one cluster".to_owned()),
        (json!({"autoscaleMultiClusterDelay": 3601}), "spec.autoscaleMultiClusterDelay is 3601, expected 0 to 3600".to_owned()),
        (json!({"tolerationSeconds": -1}), "spec.tolerationSeconds is -1, expected 0 to 86400".to_owned()),
        (json!({"rebalance": {"cooldownSeconds": -1}}), "spec.rebalance.cooldownSeconds is -1, expected 0 to 3600".to_owned()),
        (json!({"rebalance": {"settleObservations": 0}}), "spec.rebalance.settleObservations is 0, expected 1 to 100".to_owned()),
        (json!({"rebalance": {"minUtilizationPercent": 0}}), "spec.rebalance.minUtilizationPercent is 0, expected 1 to 100".to_owned()),
        (assigned("StaticWeighted", &json!({"targetCluster": {}, "staticWeight": -1})), format!("{first}.staticWeight is -1, expected at least 0")),
        (assigned("Aggregated", &json!({"targetCluster": {}, "autoscalingMinThreshold": 3, "autoscalingMaxThreshold": 2})),
            format!("{first}.autoscalingMinThreshold is 3, expected at most autoscalingMaxThreshold, which is 2")),
        (assigned("Aggregated", &json!({"targetCluster": {}, "autoscalingMaxThreshold": 10001})),
            format!("{first}.autoscalingMaxThreshold is 10001, expected 0 to 10000")),
        (assigned("Prioritized", &json!({"targetCluster": {}, "staticWeight": 1})),
            format!("{preference} is without any priority, expected at least one entry with `priority`, because the policy is Prioritized")),
        (assigned("Aggregated", &json!({"targetCluster": {"fieldSelector": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}}})),
            format!("{first}.targetCluster.fieldSelector.matchExpressions[0].key is rack, expected provider, region or zone (for anything else use labelSelector)")),
        (affinity("labelSelector", json!({"key": "a", "operator": "In"})),
            "spec.clusterAffinity.labelSelector.matchExpressions[0].values is empty, expected at least one value".to_owned()),
        (affinity("labelSelector", json!({"key": "a", "operator": "Exists", "values": ["b", "c"]})),
            "spec.clusterAffinity.labelSelector.matchExpressions[0].values is b, c, expected none, because the operator takes none".to_owned()),
        (affinity("labelSelector", json!({"key": "a", "operator": "Gt", "values": ["1"]})),
            "spec.clusterAffinity.labelSelector.matchExpressions[0].operator is Gt, expected In, NotIn, Exists or DoesNotExist".to_owned()),
        (tolerated(json!({"operator": "Equal"})), "spec.clusterTolerations[0].operator is Equal, expected Exists, because there is no key".to_owned()),
        (tolerated(json!({"key": "a", "operator": "Lt"})), "spec.clusterTolerations[0].operator is Lt, expected Equal or Exists".to_owned()),
        (tolerated(json!({"key": "a", "operator": "Exists", "value": "b"})),
            "spec.clusterTolerations[0].value is b, expected none, because the operator is Exists".to_owned()),
        (tolerated(json!({"key": "a", "effect": "Never"})),
            "spec.clusterTolerations[0].effect is Never, expected NoSchedule, PreferNoSchedule or NoExecute".to_owned()),
        (tolerated(json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5})),
            "spec.clusterTolerations[0].tolerationSeconds is 5, expected none, because it applies to the effect NoExecute only".to_owned()),
        (json!({"metricScope": [{"metric": "resource.cpu", "scope": "Fleet"}, {"metric": "resource.cpu", "scope": "Member"}]}),
            "spec.metricScope[1].metric is resource.cpu, expected each metric once".to_owned()),
    ] {
        assert_eq!(read_spec(spec.clone()).unwrap_err().to_string(), want, "{spec}");
    }
}

#[test]
fn all_violations_are_returned_together() {
    let spec = json!({
        "maxReplicas": 0,
        "tolerationSeconds": -1,
        "clusterTolerations": [{"key": "a", "effect": "Never"}],
    });
    let fields: Vec<_> = read_spec(spec)
        .unwrap_err()
        .0
        .into_iter()
        .map(|violation| violation.field)
        .collect();
    assert_eq!(
        fields,
        [
            "spec.maxReplicas",
            "spec.minReplicas",
            "spec.tolerationSeconds",
            "spec.clusterTolerations[0].effect",
        ]
    );
}

#[test]
fn missing_weights_are_no_violation() {
    let spec = json!({"federatedHPAAssignment": {"federatedHPAAssignmentType": "StaticWeighted"}});
    assert_eq!(policy_of(spec).preferences, []);
}

/// The paths in `spec` that both the CRD's rules and this module check, with values to try.
fn checked_fields() -> Vec<(&'static str, Value)> {
    const PREFERENCE: &str = "/spec/federatedHPAAssignment/clusterAutoscalingPreference/0";
    let numbers = [
        -1,
        0,
        1,
        2,
        100,
        101,
        3600,
        3601,
        10_000,
        10_001,
        86_400,
        86_401,
        i32::MAX,
    ];
    let fields = [
        "/spec/autoscaleMultiClusterDelay",
        "/spec/tolerationSeconds",
        "/spec/rebalance/cooldownSeconds",
        "/spec/rebalance/settleObservations",
        "/spec/rebalance/minUtilizationPercent",
        "/spec/federatedHPAAssignment/clusterAutoscalingPreference/0/staticWeight",
        "/spec/federatedHPAAssignment/clusterAutoscalingPreference/0/autoscalingMinThreshold",
        "/spec/federatedHPAAssignment/clusterAutoscalingPreference/0/autoscalingMaxThreshold",
    ];
    let mut all: Vec<_> = fields
        .iter()
        .flat_map(|field| numbers.map(|n| (*field, json!(n))))
        .collect();
    for key in ["zone", "rack"] {
        for operator in ["In", "NotIn", "Exists", "DoesNotExist", "Gt", ""] {
            for values in [json!(null), json!([]), json!(["a"])] {
                let one = json!([{"key": key, "operator": operator, "values": values}]);
                all.push((
                    "/spec/clusterAffinity/labelSelector/matchExpressions",
                    one.clone(),
                ));
                all.push(("/spec/clusterAffinity/fieldSelector/matchExpressions", one));
            }
        }
    }
    all.extend(tolerations_to_check().map(|one| ("/spec/clusterTolerations", json!([one]))));
    all.push((PREFERENCE, json!({"targetCluster": {}})));
    all.extend(["Delegated", "Direct", "Metric"].map(|mode| ("/spec/mode", json!(mode))));
    all
}

/// Every combination of some values in the fields of a toleration.
fn tolerations_to_check() -> impl Iterator<Item = Value> {
    let texts = |some: &[&str]| {
        let some = some.iter().map(|text| json!(text));
        some.chain([json!(null)]).collect::<Vec<_>>()
    };
    let mut all = vec![json!({})];
    for (member, values) in [
        ("key", texts(&["", "a"])),
        ("operator", texts(&["", "Equal", "Exists", "Lt"])),
        ("value", texts(&["", "b"])),
        ("effect", texts(&["", "NoSchedule", "NoExecute", "Never"])),
        ("tolerationSeconds", vec![json!(null), json!(5)]),
    ] {
        all = all
            .iter()
            .flat_map(|toleration| {
                values.iter().map(move |value| {
                    let mut toleration = toleration.clone();
                    toleration[member] = value.clone();
                    toleration
                })
            })
            .collect();
    }
    all.into_iter()
}

#[test]
fn the_rules_of_the_crd_and_this_module_refuse_the_same_fleets() {
    let rules = foretide_crds::Rules::of::<FederatedHPA>();
    let mut refused = 0;
    for (pointer, value) in checked_fields() {
        let mut object = json!({
            "apiVersion": "autoscaling.foretide.io/v1alpha1",
            "kind": "FederatedHPA",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "maxReplicas": 20,
                "clusterAffinity": {"labelSelector": {}, "fieldSelector": {}},
                "federatedHPAAssignment": {
                    "federatedHPAAssignmentType": "Prioritized",
                    "clusterAutoscalingPreference": [{"targetCluster": {}, "priority": 1}],
                },
                "rebalance": {},
            },
        });
        let (above, last) = pointer.rsplit_once('/').unwrap();
        let place = object.pointer_mut(above).unwrap();
        match last.parse::<usize>() {
            Ok(index) => place[index] = value.clone(),
            Err(_) => place[last] = value.clone(),
        }
        let by_rules = rules.check(&object);
        let read: FederatedHPA = serde_json::from_value(object).unwrap();
        let by_module = fleet(&read, &Zone::utc(), PERIOD, &Settings::default()).err();
        let agree = by_rules.is_empty() == by_module.is_none();
        assert!(agree, "{pointer} = {value}: {by_rules:?} but {by_module:?}");
        refused += usize::from(by_module.is_some());
    }
    assert!(refused > 300, "{refused}");
}
