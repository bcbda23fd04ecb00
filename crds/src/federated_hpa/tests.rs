use foretide_domain::proposal::Source;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    EffectiveHorizontalPodAutoscaler, TimeSeriesPrediction, Violation,
    rules::tests::{ComparedRules, field, list, rows, set},
};

/// Path of the preferences.
const PREFERENCES: &str = "spec/federatedHPAAssignment/clusterAutoscalingPreference";

/// A small fleet with one preference; the JSON of `value` is set at `pointer`.
fn with(pointer: &str, value: &str) -> Value {
    let mut object = json!({
        "apiVersion": "autoscaling.foretide.io/v1alpha1",
        "kind": "FederatedHPA",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10,
            "clusterAffinity": {},
            "federatedHPAAssignment": {
                "federatedHPAAssignmentType": "Prioritized",
                "clusterAutoscalingPreference": [{"targetCluster": {"clusterNames": ["a"]}, "priority": 1}],
            },
        },
    });
    set(&mut object, pointer, value);
    object
}

fn read(object: &Value) -> FederatedHPA {
    serde_json::from_value(object.clone()).unwrap()
}

/// Below [`PREFERENCES`] where the pointer begins with `@`.
fn expanded(pointer: &str) -> String {
    pointer.replacen('@', PREFERENCES, 1)
}

#[test]
fn every_fleet_under_examples_round_trips_and_is_valid() {
    let fleets = ComparedRules::examples::<FederatedHPA>();
    let kind = |fleet: FederatedHPA| {
        let assignment = fleet.spec.federated_hpa_assignment;
        assignment.federated_hpa_assignment_type
    };
    let policies: Vec<_> = fleets.into_iter().filter_map(kind).collect();
    for policy in [
        AssignmentType::Duplicated,
        AssignmentType::Aggregated,
        AssignmentType::StaticWeighted,
        AssignmentType::DynamicWeighted,
        AssignmentType::Prioritized,
    ] {
        assert!(policies.contains(&policy), "no example of {policy:?}");
    }
}

#[test]
fn a_fleet_with_every_field_round_trips_and_is_valid() {
    let affinity = json!({
        "clusterNames": ["a", "b"], "exclude": ["c"],
        "labelSelector": {
            "matchLabels": {"tier": "prod"},
            "matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}],
        },
        "fieldSelector": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["eu-1"]}]},
    });
    let object = json!({
        "apiVersion": "autoscaling.foretide.io/v1alpha1",
        "kind": "FederatedHPA",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 20, "scaleStrategy": "Preview", "mode": "Direct", "specificReplicas": 4,
            "metrics": [{"type": "External", "external": {
                "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "5"}, "later": 1}}],
            "crons": [{"name": "day", "start": "@daily", "end": "0 9 * * *", "targetReplicas": 5}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
            "prediction": {"quantile": 0.95},
            "clusterAffinity": affinity,
            "autoscaleMultiClusterDelay": 90,
            "scalingToZero": true,
            "federatedHPAAssignment": {
                "federatedHPAAssignmentType": "DynamicWeighted", "weightBy": "Demand",
                "clusterAutoscalingPreference": [{
                    "targetCluster": affinity, "staticWeight": 0, "priority": -3,
                    "autoscalingMinThreshold": 1, "autoscalingMaxThreshold": 8, "elastic": true,
                }],
            },
            "failurePolicy": "Reassign", "tolerationSeconds": 60,
            "clusterTolerations": [
                {"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                {"key": "tier", "value": "edge"},
                {"operator": "Exists"},
            ],
            "workloadSource": "Hub",
            "metricScope": [{"metric": "external.queue", "scope": "Member"}],
            "deletionPolicy": "Retain",
            "rebalance": {"cooldownSeconds": 60, "settleObservations": 2, "minUtilizationPercent": 50},
        },
        "status": {
            "expectReplicas": 7, "currentReplicas": 6, "observedGeneration": 2, "unassigned": 1,
            "conditions": [{"type": "Assigned", "status": "True", "reason": "Assigned", "message": "",
                "lastTransitionTime": "2026-03-01T10:00:00Z"}],
            "clusters": [{
                "name": "a", "min": 1, "max": 8, "floor": 2, "current": 4, "ready": 4, "pending": 0, "capacity": 9,
                "utilization": 80, "reason": "as assigned", "lastTransfer": "2026-03-01T10:00:00Z",
                "observed": "2026-03-01T10:00:15Z",
            }],
            "ledger": "{}",
        },
    });
    assert_eq!(serde_json::to_value(read(&object)).unwrap(), object);
    assert_eq!(ComparedRules::of::<FederatedHPA>().check(&object), []);
}

/// Pointer, and JSON that may be set there.
const ACCEPTED: &str = r#"
    spec/minReplicas | 0
    spec/minReplicas | 10
    spec/federatedHPAAssignment | {}
    spec/federatedHPAAssignment | null
    spec/autoscaleMultiClusterDelay | 0
    spec/autoscaleMultiClusterDelay | 3600
    spec/tolerationSeconds | 0
    spec/tolerationSeconds | 86400
    spec/rebalance | {}
    spec/rebalance/cooldownSeconds | 0
    spec/rebalance/settleObservations | 1
    spec/rebalance/minUtilizationPercent | 100
    spec/metricScope | []
    @/0/targetCluster | {}
    @/0/staticWeight | 0
    @/0/priority | -2147483648
    @/0/autoscalingMinThreshold | 10000
    @/0 | {"targetCluster": {}, "priority": 1, "autoscalingMinThreshold": 2, "autoscalingMaxThreshold": 2}
    spec/clusterAffinity/fieldSelector | {"matchExpressions": [{"key": "zone", "operator": "Exists", "values": []}]}
    spec/clusterTolerations | [{"key": "a", "operator": "", "effect": "", "value": ""}, {"operator": "Exists", "value": ""}]
"#;

#[test]
fn objects_at_the_limits_of_the_rules_are_valid() {
    let rules = ComparedRules::of::<FederatedHPA>();
    for [pointer, value] in rows(ACCEPTED) {
        let pointer = expanded(pointer);
        assert_eq!(
            rules.check(&with(&pointer, value)),
            [],
            "{pointer} = {value}"
        );
    }
}

/// Pointer, JSON set there, words of the answer; `field` where the answer is about a field below.
const REFUSED: &str = r#"
    spec/minReplicas | 11 | | lower minReplicas or raise maxReplicas
    spec/maxReplicas | 0 | | between 1 and 10000
    spec/mode | "Metric" | | use Delegated or Direct
    spec/mode | "metric" | | one of "Delegated", "Direct"
    spec/scaleToZero | true | | no such field
    spec/autoscaleMultiClusterDelay | -1 | | 60 is usual
    spec/autoscaleMultiClusterDelay | 3601 | | 60 is usual
    spec/tolerationSeconds | -1 | | between 0 and 86400
    spec/failurePolicy | "Move" | | one of "Retain", "Reassign"
    spec/workloadSource | "hub" | | one of "Members", "Hub"
    spec/deletionPolicy | "Orphan" | | one of "Delete", "Retain"
    spec/federatedHPAAssignment/hpaAssignmentPolicy | "Aggregated" | | no such field
    spec/federatedHPAAssignment/federatedHPAAssignmentType | "Weighted" | | one of "Duplicated"
    spec/federatedHPAAssignment/weightBy | "Load" | | one of "Capacity", "Demand"
    @ | [] | | needs the priority of at least one cluster
    @/0 | {"targetCluster": {}, "staticWeight": 1} | @ | needs the priority of at least one cluster
    @/0 | {"priority": 1} | @/0/targetCluster | is required
    @/0/staticWeight | -1 | | must be 0 or more
    @/0/autoscalingMinThreshold | -1 | | between 0 and 10000
    @/0/autoscalingMaxThreshold | 10001 | | between 0 and 10000
    @/0 | {"targetCluster": {}, "priority": 1, "autoscalingMinThreshold": 3, "autoscalingMaxThreshold": 2} | @/0/autoscalingMinThreshold | lower the first or raise the second
    spec/clusterAffinity/labelSelector/matchExpressions | [{"key": "a", "operator": "Gt", "values": ["1"]}] | | In, NotIn, Exists or DoesNotExist
    spec/clusterAffinity/labelSelector/matchExpressions | [{"key": "a", "operator": "In"}] | | need at least one of values
    spec/clusterAffinity/fieldSelector/matchExpressions | [{"key": "rack", "operator": "Exists"}] | | for anything else use labelSelector
    @/0/targetCluster/fieldSelector/matchExpressions | [{"key": "zone", "operator": "Exists", "values": ["a"]}] | | Exists and DoesNotExist take none
    spec/clusterTolerations | [{"key": "a", "operator": "Lt", "value": "1"}] | | Equal or Exists
    spec/clusterTolerations | [{"operator": "Equal", "value": "1"}] | | compares a key and a value
    spec/clusterTolerations | [{"key": "a", "operator": "Exists", "value": "1"}] | | Exists and no value
    spec/clusterTolerations | [{"key": "a", "effect": "Never"}] | | leave it out to tolerate all
    spec/clusterTolerations | [{"key": "a", "tolerationSeconds": 1}] | | needs the effect NoExecute
    spec/metricScope | [{"metric": "external.q", "scope": "Fleet"}, {"metric": "external.q", "scope": "Member"}] | | remove the repeated one
    spec/rebalance/cooldownSeconds | 3601 | | 120 is usual
    spec/rebalance/settleObservations | 0 | | 3 is usual
"#;

#[test]
fn each_violation_is_reported_once_with_its_field_and_remedy() {
    let rules = ComparedRules::of::<FederatedHPA>();
    for [pointer, value, below, advice] in rows(REFUSED) {
        let pointer = expanded(pointer);
        let about = if below.is_empty() {
            pointer.clone()
        } else {
            expanded(below)
        };
        rules.assert_refused(&with(&pointer, value), &about, advice);
    }
}

#[test]
fn sizes_are_bounded() {
    let rules = ComparedRules::of::<FederatedHPA>();
    let exists = r#"{"key": "k#", "operator": "Exists"}"#;
    let scope = r#"{"metric": "m#", "scope": "Fleet"}"#;
    let preference = r#"{"targetCluster": {}, "priority": #}"#;
    let requirements = "spec/clusterAffinity/labelSelector/matchExpressions";
    for (pointer, most, item) in [
        ("spec/clusterAffinity/clusterNames", 256, "\"c#\""),
        ("spec/clusterAffinity/exclude", 256, "\"c#\""),
        (requirements, 16, exists),
        ("spec/clusterTolerations", 32, exists),
        ("spec/metricScope", 16, scope),
        ("@", 64, preference),
    ] {
        let pointer = expanded(pointer);
        assert_eq!(
            rules.check(&with(&pointer, &list(most, item))),
            [],
            "{pointer}"
        );
        let found = rules.check(&with(&pointer, &list(most + 1, item)));
        let want = Violation {
            field: field(&pointer),
            message: format!("must have at most {most} items, has {}", most + 1),
        };
        assert_eq!(found, [want]);
    }
}

#[test]
fn kubectl_shows_current_and_desired_the_winner_and_readiness_and_each_source_when_wide() {
    let columns = |definition: CustomResourceDefinition| {
        let columns = definition.spec.versions[0]
            .additional_printer_columns
            .clone();
        let is_wide = |column: &CustomResourceColumnDefinition| column.priority == Some(1);
        let (wide, plain): (Vec<_>, Vec<_>) = columns.unwrap().into_iter().partition(is_wide);
        [plain, wide].map(|all| {
            all.into_iter()
                .map(|it| it.name)
                .collect::<Vec<_>>()
                .join(" ")
        })
    };
    let sources = Source::words().join(" ").to_uppercase();
    assert_eq!(
        columns(crate::definition::<FederatedHPA>()),
        [
            "POLICY MINPODS MAXPODS CURRENT DESIRED WINNER READY AGE",
            &format!("REFERENCE STRATEGY {sources} UNASSIGNED"),
        ]
    );
    assert_eq!(
        columns(crate::definition::<EffectiveHorizontalPodAutoscaler>()),
        [
            "STRATEGY MINPODS MAXPODS CURRENT DESIRED WINNER READY AGE",
            &format!("{sources} SPECIFICPODS"),
        ]
    );
    assert_eq!(
        columns(crate::definition::<TimeSeriesPrediction>()),
        [
            "TargetRefName TargetRefKind PredictionWindowSeconds READY PEAK AGE",
            ""
        ]
    );
}

/// Names of fields, so that random values reach the rules behind them.
const FIELDS: [&str; 12] = [
    "spec/clusterAffinity",
    "spec/clusterAffinity/labelSelector/matchExpressions",
    "spec/clusterTolerations",
    "spec/metricScope",
    "spec/federatedHPAAssignment",
    "spec/federatedHPAAssignment/weightBy",
    "@",
    "@/0",
    "@/0/staticWeight",
    "@/0/targetCluster",
    "spec/scalingToZero",
    "spec/rebalance",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
    ];
    let names = prop::sample::select(
        &[
            "key",
            "operator",
            "values",
            "metric",
            "scope",
            "targetCluster",
            "priority",
        ][..],
    );
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..4).prop_map(|members| {
                Value::Object(
                    members
                        .into_iter()
                        .map(|(name, v)| (name.to_owned(), v))
                        .collect(),
                )
            }),
        ]
    })
}

thread_local! {
    static RULES: ComparedRules = ComparedRules::of::<FederatedHPA>();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_the_rules_accept_can_be_read_and_writes_back_as_it_was(
        field in prop::sample::select(&FIELDS[..]),
        value in any_json(),
    ) {
        let object = with(&expanded(field), &value.to_string());
        if RULES.with(|rules| rules.check(&object)).is_empty() {
            let read: FederatedHPA = serde_json::from_value(object.clone())?;
            prop_assert_eq!(serde_json::to_value(read)?, object);
        }
    }
}

/// A requirement of a selector, or a toleration; often one that a rule refuses.
fn any_term() -> impl Strategy<Value = Value> {
    let text = |choices: &'static [&'static str]| {
        prop::option::of(prop::sample::select(choices).prop_map(Value::from))
    };
    let members = (
        prop::sample::select(&["zone", "region", "rack"][..]).prop_map(Value::from),
        text(&["In", "NotIn", "Exists", "DoesNotExist", "Equal", "", "Lt"]),
        prop::option::of(prop::collection::vec("[a-z]", 0..2).prop_map(Value::from)),
        text(&["", "NoSchedule", "PreferNoSchedule", "NoExecute", "Never"]),
        text(&["", "a"]),
        prop::option::of((0..9).prop_map(Value::from)),
    );
    members.prop_map(|(key, operator, values, effect, value, seconds)| {
        json!({
            "key": key, "operator": operator, "values": values, "effect": effect, "value": value,
            "tolerationSeconds": seconds,
        })
    })
}

/// The members `names` of each term.
fn with_members(terms: &[Value], names: &[&str]) -> String {
    let each = terms.iter().map(|term| {
        let members = names
            .iter()
            .map(|name| ((*name).to_owned(), term[*name].clone()));
        Value::Object(members.collect())
    });
    Value::Array(each.collect()).to_string()
}

proptest! {
    #[test]
    fn selectors_and_tolerations_are_refused_as_a_complete_implementation_refuses_them(
        terms in prop::collection::vec(any_term(), 0..4),
    ) {
        let requirements = with_members(&terms, &["key", "operator", "values"]);
        let tolerations = with_members(&terms, &["key", "operator", "value", "effect", "tolerationSeconds"]);
        RULES.with(|rules| {
            // The comparison is inside `check`.
            for selector in ["labelSelector", "fieldSelector"] {
                let pointer = format!("spec/clusterAffinity/{selector}/matchExpressions");
                rules.check(&with(&pointer, &requirements));
            }
            rules.check(&with("spec/clusterTolerations", &tolerations));
        });
    }

    #[test]
    fn preferences_are_refused_as_a_complete_implementation_refuses_them(
        policy in prop::sample::select(&["Prioritized", "Aggregated"][..]),
        numbers in prop::collection::vec(prop::array::uniform4(prop::option::of(-1..4)), 0..3),
        minimum in -1..12_i32,
    ) {
        let preferences: Vec<_> = numbers.iter().map(|[priority, weight, least, most]| json!({
            "targetCluster": {}, "priority": priority, "staticWeight": weight,
            "autoscalingMinThreshold": least, "autoscalingMaxThreshold": most,
        })).collect();
        let mut object = with(PREFERENCES, &Value::from(preferences).to_string());
        object["spec"]["federatedHPAAssignment"]["federatedHPAAssignmentType"] = policy.into();
        object["spec"]["minReplicas"] = minimum.into();
        RULES.with(|rules| rules.check(&object));
    }
}
