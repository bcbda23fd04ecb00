//! The HPA vectors, one test per key: every row is run through the domain, without special cases.
//!
//! An unknown key fails, and so does a field that no shape has. Metrics and behavior are read as those of a user's
//! spec.

mod behavior;
mod calculator;
mod controller;
mod reconcile;
#[cfg(test)]
#[path = "../../../../tests/vectors.rs"]
mod vectors;

use std::collections::BTreeMap;

use foretide_api::validation;
use foretide_domain::{
    Replicas,
    cron::Zone,
    hpa::{Behavior, Log, Recommendation, ScaleEvent, Settings, ZeroRule},
    observation::Status,
    workload::Workload,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{
    behavior::{convert, limit, longest_period, normalize, stabilize, store_scale_event},
    calculator::{build_quantity, calculate_requests, calculator, group_pods, quantity, ratios},
    reconcile::{reconcile, zero_replicas},
    vectors::{Fallible, Outcome, RAN, files, gates, run, shapes},
};

/// The fields that a row may say about itself, without effect.
const ANNOTATIONS: [&str; 4] = ["name", "n", "source", "note"];
/// The fields of most rows that whole passes have in an object.
const LOG: [&str; 3] = ["recommendations", "scale_up_events", "scale_down_events"];
const FLAGS: [&str; 5] = [
    "cpu_initialization_period_s",
    "initial_readiness_delay_s",
    "downscale_stabilization_window_s",
    "scale_up_limit_factor",
    "scale_up_limit_minimum",
];

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

gates! { run_rows;
    vectors_hpa_replica_calculator: "replica_calculator" => calculator;
    vectors_hpa_fuzz_replica_calculator: "fuzz_replica_calculator" => calculator;
    vectors_hpa_group_pods: "group_pods" => group_pods;
    vectors_hpa_calculate_requests: "calculate_requests" => calculate_requests;
    vectors_hpa_ratios: "ratios" => |row| ratios(&row);
    vectors_hpa_quantity: "quantity" => |row| quantity(&row);
    vectors_hpa_build_quantity: "build_quantity" => |row| Ok(build_quantity(&row));
    vectors_hpa_zero_replicas: "zero_replicas_decision_table" => zero_replicas;
    vectors_hpa_convert_desired_replicas: "convert_desired_replicas_with_rules" => |row| convert(row, false);
    vectors_hpa_convert_with_behavior_rate: "convert_with_behavior_rate" => |row| convert(row, true);
    vectors_hpa_stabilize_recommendation: "stabilize_recommendation" => stabilize;
    vectors_hpa_stabilize_with_behaviors: "stabilize_with_behaviors" => stabilize;
    vectors_hpa_scale_up_limit: "scale_up_limit" => |row| limit(row, Behavior::up_limit);
    vectors_hpa_scale_down_limit: "scale_down_limit" => |row| limit(row, Behavior::down_limit);
    vectors_hpa_longest_policy_period: "longest_policy_period" => longest_period;
    vectors_hpa_store_scale_event: "store_scale_event" => store_scale_event;
    vectors_hpa_fuzz_normalize: "fuzz_normalize" => normalize;
    vectors_hpa_reconcile: "reconcile" => reconcile;
}

#[test]
fn vectors_hpa_hold_rows_and_no_unknown_key() -> Fallible<()> {
    for file in files("hpa")? {
        let keys: BTreeMap<String, Value> = serde_json::from_value(file)?;
        // A key with a text is a remark on the file.
        let mut keys = keys.iter().filter(|(_, group)| !group.is_string());
        assert_eq!(keys.find(|(key, _)| !KEYS.contains(&key.as_str())), None);
    }
    Ok(())
}

/// Checks the rows of a key in all files, but for those that a later rule of upstream supersedes.
fn run_rows<T: DeserializeOwned>(key: &str, check: impl Fn(T) -> Fallible<Value>) -> Fallible<()> {
    let mut all = Vec::new();
    for file in files("hpa")? {
        if let Some(group) = file.get(key) {
            let rows = group.as_array().or_else(|| group.get("rows")?.as_array());
            all.extend(rows.ok_or("not a list of rows")?.clone());
        }
    }
    all.retain(|row| row.get("superseded").is_none());
    run(key, &all, |row| check_row(row, &check))
}

/// Runs a row, and compares each field that it expects: one that the result does not have fails too.
fn check_row<T: DeserializeOwned>(row: &Value, run: impl Fn(T) -> Fallible<Value>) -> Outcome {
    let mut row: Map<String, Value> = serde_json::from_value(row.clone())?;
    row.retain(|field, _| !ANNOTATIONS.contains(&field.as_str()));
    let want: BTreeMap<String, Option<Value>> =
        serde_json::from_value(row.remove("expect").unwrap_or_default())?;
    for (object, fields) in [("config", &FLAGS[..]), ("history", &LOG)] {
        let given = fields.iter().filter_map(|field| row.remove_entry(*field));
        let given: Map<_, _> = given.collect();
        if !given.is_empty() && row.insert(object.to_owned(), given.into()).is_some() {
            return Err(format!("both {object} and a field of it").into());
        }
    }
    let got = run(serde_json::from_value(row.into())?)?;
    let mut compared = 0;
    for (field, want) in want {
        let Some(want) = want else { continue };
        let fits = match (&*field, got["error"].as_str(), want.as_str()) {
            ("error_contains", Some(error), Some(part)) => error.contains(part),
            _ => got.get(&field) == Some(&want),
        };
        if !fits {
            return Err(format!("{field}: got {got}, want {want}").into());
        }
        compared += 1;
    }
    if compared == 0 {
        return Err("nothing is expected".into());
    }
    RAN
}

// ---------------------------------------------------------------- what rows are made of

shapes! {
    #[derive(Default)]
    History {
        recommendations: Option<Vec<Recommended>>, scale_up_events: Vec<Event> = default,
        scale_down_events: Vec<Event> = default,
    }
    Recommended { age_s: f64, recommendation: i32 }
    Event { age_s: f64, replica_change: i32, outdated: bool = default }
}

/// Flags of the controller.
#[derive(Deserialize, Default)]
struct Config {
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    zero_semantics: Option<String>,
    #[serde(flatten)]
    flags: BTreeMap<String, f64>,
}

impl Config {
    fn settings(&self) -> Fallible<Settings> {
        let gate = self.feature_gates.get("HPAScaleToZero").copied();
        let mut settings = Settings {
            zero: zero_rule(gate.unwrap_or_default(), self.zero_semantics.as_deref())?,
            ..Settings::default()
        };
        if let Some(gate) = self.feature_gates.get("PodLevelResources") {
            settings.pod_level_resources = *gate;
        }
        for (flag, value) in &self.flags {
            match flag.as_str() {
                "tolerance" => settings.tolerance = *value,
                "cpu_initialization_period_s" => {
                    settings.cpu_initialization_period = seconds(*value);
                }
                "initial_readiness_delay_s" => settings.initial_readiness_delay = seconds(*value),
                "downscale_stabilization_window_s" => {
                    settings.downscale_stabilization = seconds(*value);
                }
                "scale_up_limit_factor" => settings.scale_up_limit_factor = *value,
                "scale_up_limit_minimum" => settings.scale_up_limit_minimum = *value,
                other => return Err(format!("unknown flag {other:?}").into()),
            }
        }
        Ok(settings)
    }
}

fn zero_rule(gate: bool, semantics: Option<&str>) -> Fallible<ZeroRule> {
    match (semantics, gate) {
        (Some("pre_1_36"), _) => Ok(ZeroRule::WhenMinIsZero),
        (Some(other), _) => Err(format!("unknown zero semantics {other:?}").into()),
        (None, true) => Ok(ZeroRule::WhenScaledToZero),
        (None, false) => Ok(ZeroRule::Never),
    }
}

impl From<History> for Log {
    fn from(history: History) -> Self {
        let recommendation = |row: Recommended| Recommendation {
            at: ago(row.age_s),
            replicas: Replicas::from_i32(row.recommendation),
            mirrored: false,
        };
        let all = history.recommendations;
        Self {
            recommendations: all.map(|all| all.into_iter().map(recommendation).collect()),
            scale_up: events(history.scale_up_events),
            scale_down: events(history.scale_down_events),
            scaled_to_zero: false,
        }
    }
}

fn events(rows: Vec<Event>) -> Vec<ScaleEvent> {
    let events = rows.into_iter().map(|row| ScaleEvent {
        at: ago(row.age_s),
        change: Replicas::from_i32(row.replica_change),
        outdated: row.outdated,
    });
    events.collect()
}

fn seconds(s: f64) -> SignedDuration {
    SignedDuration::from_secs_f64(s)
}

fn ago(age_s: f64) -> Timestamp {
    NOW - seconds(age_s)
}

fn status(word: &str) -> Fallible<Status> {
    let known = Status::ALL.iter().find(|status| status.as_str() == word);
    Ok(*known.ok_or_else(|| format!("unknown status {word:?}"))?)
}

/// What a user's spec with this field says of metrics and behavior.
fn workload(field: &str, value: &Value) -> Fallible<Workload> {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let ehpa = serde_json::from_value(json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 1, field: value},
    }))?;
    Ok(validation::workload(&ehpa, &Zone::utc())?)
}

fn behavior(written: &Value) -> Fallible<Behavior> {
    let behavior = workload("behavior", written)?.behavior;
    Ok(behavior.ok_or("no behavior")?)
}

// ---------------------------------------------------------------- results in the words of the rows

fn recommendations(log: &Log) -> Vec<i32> {
    let all = log.recommendations().iter();
    all.map(|one| one.replicas.as_i32()).collect()
}

fn events_after(events: &[ScaleEvent]) -> Value {
    let event =
        |e: &ScaleEvent| json!({"replica_change": e.change.as_i32(), "outdated": e.outdated});
    events.iter().map(event).collect()
}

/// Adds the log to a result.
fn with_log(mut result: Value, log: &Log) -> Value {
    result["recommendations_after"] = json!(recommendations(log));
    result["scale_up_events_after"] = events_after(&log.scale_up);
    result["scale_down_events_after"] = events_after(&log.scale_down);
    result
}

fn condition(kind: &str, status: Status, reason: &str) -> Value {
    json!({"type": kind, "status": status.as_str(), "reason": reason})
}
