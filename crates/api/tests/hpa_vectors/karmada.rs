//! The calculator and the limits of Karmada's `FederatedHPA`: groups of the federation vectors, in the words of the HPA
//! vectors.

use std::collections::BTreeMap;

use foretide_domain::{
    hpa::{Behavior, Direction, PolicyKind, ScalingPolicy, ScalingRules},
    quantity::Quantity,
};
use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{
    behavior::{convert, limit},
    calculator, check_row,
    vectors::{Fallible, Outcome, RAN, gates, group_ids, run_group, same, shapes},
};

type Fields = Map<String, Value>;

const MANY: u32 = 1_000_000;
const CALIBRATED: &str = "calibration other than 1: counts over clusters come from totals";

gates! { run_group;
    vectors_federation_fhpa_resource: "karmada_fhpa_GetResourceReplicas" => |i, e| calculation("GetResourceReplicas", i, e);
    vectors_federation_fhpa_raw_resource: "karmada_fhpa_GetRawResourceReplicas" => |i, e| calculation("GetRawResourceReplicas", i, e);
    vectors_federation_fhpa_metric: "karmada_fhpa_GetMetricReplicas" => |i, e| calculation("GetMetricReplicas", i, e);
    vectors_federation_fhpa_plain_metric: "karmada_fhpa_CalcPlainMetricReplicas" => |i, e| calculation("GetMetricReplicas", i, e);
    vectors_federation_fhpa_object: "karmada_fhpa_GetObjectMetricReplicas" => |i, e| calculation("GetObjectMetricReplicas", i, e);
    vectors_federation_fhpa_object_per_pod: "karmada_fhpa_GetObjectPerPodMetricReplicas" => |i, e| calculation("GetObjectPerPodMetricReplicas", i, e);
    vectors_federation_fhpa_usage_ratio: "karmada_fhpa_GetUsageRatioReplicaCount" => |i, e| calculation("GetObjectMetricReplicas", i, e);
    vectors_federation_fhpa_ready_pods: "karmada_fhpa_GetReadyPodsCount" => ready_pods;
    vectors_federation_fhpa_group_pods: "karmada_fhpa_GroupPods" => group_pods;
    vectors_federation_fhpa_bounds: "karmada_fhpa_ConvertDesiredReplicasWithRules" => |i, e| row(json!({}), i, e, |row| convert(row, false));
    vectors_federation_fhpa_up_limit: "karmada_fhpa_CalculateScaleUpLimit" => plain_up_limit;
    vectors_federation_fhpa_up_rules: "karmada_fhpa_CalculateScaleUpLimitWithScalingRules" => |i, e| row(json!({}), i, e, |row| limit(row, Behavior::up_limit));
    vectors_federation_fhpa_down_rules: "karmada_fhpa_CalculateScaleDownLimitWithBehaviors" => |i, e| row(json!({}), i, e, |row| limit(row, Behavior::down_limit));
    vectors_federation_fhpa_longest_period: "karmada_fhpa_GetLongestPolicyPeriod" => longest_period;
}

#[test]
fn vectors_federation_fhpa_have_no_unknown_group() -> Fallible<()> {
    let mut ids = group_ids()?.into_iter();
    let unknown = ids.find(|id| id.starts_with("karmada_fhpa_") && !KEYS.contains(&id.as_str()));
    assert_eq!(unknown, None);
    Ok(())
}

shapes! {
    PodRow {
        name: String, phase: String, ready: bool, age: u32 = rename = "startedSecondsAgo",
        request: u32 = rename = "cpuRequestMilli",
    }
    Sample { value: i64, window: Option<u32>, _now: Option<String> = rename = "timestamp" }
    ReadyPods { fails: bool = rename = "expectError", count: u32 = rename = "expectedCount" }
    Ruled { rules: Rules = rename = "scalingRules" }
    Rules { policies: Vec<Period> }
    Period { seconds: i64 = rename = "periodSeconds" }
    Longest { seconds: i64 = rename = "expectedPeriod" }
}

fn pods(rows: Value) -> Fallible<Value> {
    let rows: Vec<PodRow> = serde_json::from_value(rows)?;
    let pods = rows.into_iter().map(|row| {
        let ready = if row.ready { "True" } else { "False" };
        json!({
            "name": row.name,
            "phase": row.phase,
            "start_age_s": row.age,
            "ready_condition": {"status": ready, "transition_age_s": row.age},
            "containers": [{"name": "", "requests_milli": {"cpu": row.request}}],
        })
    });
    Ok(pods.collect())
}

fn samples(by_pod: Value) -> Fallible<Value> {
    let by_pod: BTreeMap<String, Sample> = serde_json::from_value(by_pod)?;
    let sample = |(pod, row): (String, Sample)| json!({"pod": pod, "value_milli": row.value, "window_s": row.window});
    Ok(by_pod.into_iter().map(sample).collect())
}

/// Fields of an input or of what is expected, in the words of the rows. Those that no row knows fail when it is read.
fn translated(fields: Fields) -> Fallible<Fields> {
    let mut row = Fields::new();
    for (field, value) in fields {
        let (word, value) = match field.as_str() {
            // Names, and a factor of one.
            "namespace" | "metricName" | "calibration" => continue,
            "expectError" | "expectedError" if value == false => continue,
            "expectError" | "expectedError" => ("error_contains", json!("")),
            "pods" | "podList" => ("pods", pods(value)?),
            "metrics" => ("metrics", samples(value)?),
            "podTotals" => ("pod_totals", samples(value)?),
            // The value of an object with a target of one.
            "usageRatio" => {
                row.insert("target_milli".to_owned(), json!(1000));
                let ratio: Quantity = value.to_string().parse()?;
                ("values_milli", json!([ratio.milli_value().value]))
            }
            "objectMetric" => ("values_milli", json!([value])),
            "tolerance" => {
                row.insert("tolerance_up".to_owned(), value.clone());
                ("tolerance_down", value)
            }
            "currentReplicas" | "statusReplicas" => ("current_replicas", value),
            "desiredReplicas" => ("desired_replicas", value),
            "hpaMinReplicas" => ("min_replicas", value),
            "hpaMaxReplicas" => ("max_replicas", value),
            "targetUtilization" => ("target_utilization", value),
            "targetUsage" | "targetAverageUsage" => ("target_milli", value),
            "scaleUpEvents" => ("scale_up_events", value),
            "scaleDownEvents" => ("scale_down_events", value),
            "scalingRules" => ("rules", value),
            "cpuInitializationPeriod" => ("cpu_initialization_period_s", value),
            "delayOfInitialReadinessStatus" => ("initial_readiness_delay_s", value),
            "expectedReplicas" => ("replicas", value),
            "expectedUtilization" => ("utilization", value),
            "expectedRawUtilization" => ("raw_value_milli", value),
            "expectedUsage" => ("usage_milli", value),
            "expectedLimit" => ("limit", value),
            "expectedCondition" => ("reason", value),
            "expectedReadyCount" => ("ready_count", value),
            "expectedUnreadyPods" => ("unready", value),
            "expectedMissingPods" => ("missing", value),
            "expectedIgnoredPods" => ("ignored", value),
            other => (other, value),
        };
        row.insert(word.to_owned(), value);
    }
    Ok(row)
}

/// Runs a case as a row, of which it leaves open what is `given`.
fn row<T: DeserializeOwned>(
    given: Value,
    input: Fields,
    expected: Fields,
    run: impl Fn(T) -> Fallible<Value>,
) -> Outcome {
    let mut row: Fields = serde_json::from_value(given)?;
    row.extend(translated(input)?);
    row.insert("expect".to_owned(), translated(expected)?.into());
    check_row(&row.into(), run)
}

fn calculation(function: &str, mut input: Fields, expected: Fields) -> Outcome {
    let factor = input.get("calibration").and_then(Value::as_f64);
    if factor.is_some_and(|factor| factor < 1.0) {
        return Ok(Err(CALIBRATED));
    }
    if let Some(samples) = input.remove("metrics") {
        input.insert("podTotals".to_owned(), samples);
    }
    // The tables' client fails for an object that measures zero: nothing was measured.
    if expected
        .get("expectError")
        .is_some_and(|fails| *fails == true)
    {
        input.remove("objectMetric");
    }
    let given = json!({"function": function, "resource": "cpu"});
    row(given, input, expected, calculator::calculator)
}

/// An object at twice its target wants twice the ready pods.
fn ready_pods(input: Fields, ReadyPods { fails, count }: ReadyPods) -> Outcome {
    let given = json!({
        "function": "GetObjectMetricReplicas",
        "current_replicas": 1,
        "target_milli": 1000,
        "values_milli": [2000],
    });
    let (field, value) = if fails {
        ("expectError", json!(true))
    } else {
        ("replicas", json!(2 * count))
    };
    let expected = Fields::from_iter([(field.to_owned(), value)]);
    row(given, input, expected, calculator::calculator)
}

/// Groups that are not named are empty.
fn group_pods(input: Fields, mut expected: Fields) -> Outcome {
    for group in ["Unready", "Missing", "Ignored"] {
        expected
            .entry(format!("expected{group}Pods"))
            .or_insert(json!([]));
    }
    row(json!({}), input, expected, calculator::group_pods)
}

/// Without rules, the limit is what is left of a boundless wish.
fn plain_up_limit(input: Fields, mut expected: Fields) -> Outcome {
    let given = json!({"desired_replicas": MANY, "min_replicas": 1, "max_replicas": MANY});
    let limit = expected.remove("expectedLimit").ok_or("no limit")?;
    expected.extend([
        ("replicas".to_owned(), limit),
        ("reason".to_owned(), json!("ScaleUpLimit")),
    ]);
    row(given, input, expected, |row| convert(row, false))
}

fn longest_period(input: Ruled, Longest { seconds }: Longest) -> Outcome {
    let policies = input.rules.policies.into_iter().map(|row| ScalingPolicy {
        kind: PolicyKind::Pods,
        value: 1,
        period: SignedDuration::from_secs(row.seconds),
    });
    let rules = ScalingRules {
        policies: Some(policies.collect()),
        ..ScalingRules::default()
    };
    let behavior = Behavior {
        scale_down: rules.clone(),
        scale_up: rules,
    };
    let want = SignedDuration::from_secs(seconds);
    same("up", behavior.longest_period(Direction::Up), want)?;
    same("down", behavior.longest_period(Direction::Down), want)?;
    RAN
}
