//! The API server's answer to an object, without an API server.
//!
//! [`Rules`] evaluates what a definition says - shape, sizes, and the CEL rules with their messages
//! - on plain JSON. It refuses what the server refuses and nothing more; what only the service can
//! know (time zones, cron fields, `PromQL`) is checked elsewhere. Defaults are applied first, as the
//! server does.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::{
    CustomResourceExt,
    core::cel::{CompiledSchema, Validator, compile_schema},
};
use serde_json::{Map, Value};

use crate::manifests::definition;

/// One thing that the API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, such as `spec.crons[0].start`.
    pub field: String,
    /// What was expected there, and what to do.
    pub message: String,
}

/// The compiled rules of one kind. Compile once, check many.
#[derive(Debug)]
pub struct Rules {
    schema: JSONSchemaProps,
    compiled: CompiledSchema,
}

// === impl Rules ===

impl Rules {
    /// Compiles the rules of a kind.
    #[must_use]
    pub fn of<K: CustomResourceExt>() -> Self {
        let schema = definition::<K>()
            .spec
            .versions
            .into_iter()
            .find_map(|version| version.schema?.open_api_v3_schema)
            .unwrap_or_default();
        let compiled = compile_schema(&serde_json::to_value(&schema).unwrap_or_default());
        Self { schema, compiled }
    }

    /// Everything the API server would refuse in `object`; empty if it would accept it.
    ///
    /// As in the server, the CEL rules are asked only about an object of the right shape.
    #[must_use]
    pub fn check(&self, object: &Value) -> Vec<Violation> {
        let mut object = object.clone();
        drop_nulls(&mut object);
        let mut found = Vec::new();
        shape("", &self.schema, &object, &mut found);
        if !found.is_empty() {
            return found;
        }
        match Validator::new().validate_compiled(&self.compiled, &object, None) {
            Ok(()) => found,
            Err(errors) => errors
                .into_vec()
                .into_iter()
                .map(|e| Violation {
                    field: e.field_path,
                    message: e.message,
                })
                .collect(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Drops members that are null, as the server does where null is not allowed.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Adds what is wrong with the shape of `value`: types, sizes, missing and unknown fields.
fn shape(path: &str, schema: &JSONSchemaProps, value: &Value, found: &mut Vec<Violation>) {
    let mut refuse = |message: String| {
        found.push(Violation {
            field: path.to_owned(),
            message,
        })
    };
    if let Some(expected) = wrong_type(schema, value) {
        return refuse(format!("expected {expected}, found {value}"));
    }
    if let Some(allowed) = schema
        .enum_
        .as_ref()
        .filter(|e| e.iter().all(|v| v.0 != *value))
    {
        let allowed: Vec<_> = allowed.iter().map(|v| v.0.to_string()).collect();
        return refuse(format!(
            "must be one of {}, not {value}",
            allowed.join(", ")
        ));
    }
    match value {
        Value::String(text) => {
            let (most, has) = (schema.max_length, text.chars().count());
            too_much(most, has, "characters")
                .into_iter()
                .for_each(refuse);
        }
        Value::Array(items) => {
            too_much(schema.max_items, items.len(), "items")
                .into_iter()
                .for_each(refuse);
            if let Some(JSONSchemaPropsOrArray::Schema(of)) = &schema.items {
                let each = items.iter().enumerate();
                each.for_each(|(i, item)| shape(&format!("{path}[{i}]"), of, item, found));
            }
        }
        Value::Object(members) => {
            too_much(schema.max_properties, members.len(), "entries")
                .into_iter()
                .for_each(refuse);
            fields(path, schema, members, found);
        }
        _ => {}
    }
}

/// Adds missing and unknown fields, and what is wrong inside the known ones.
fn fields(
    path: &str,
    schema: &JSONSchemaProps,
    members: &Map<String, Value>,
    found: &mut Vec<Violation>,
) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    for name in schema
        .required
        .iter()
        .flatten()
        .filter(|name| !members.contains_key(*name))
    {
        found.push(Violation {
            field: below(name),
            message: "is required".to_owned(),
        });
    }
    let values = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(values.as_ref()),
        _ => None,
    };
    let open = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    for (name, member) in members {
        match (
            schema
                .properties
                .as_ref()
                .and_then(|p| p.get(name))
                .or(values),
            &schema.properties,
        ) {
            (Some(known), _) => shape(&below(name), known, member, found),
            // The server adds what every kind has.
            (None, Some(_)) if !open && !(path.is_empty() && is_common(name)) => {
                let message = "no such field; check the spelling and the indentation".to_owned();
                found.push(Violation {
                    field: below(name),
                    message,
                });
            }
            (None, _) => {}
        }
    }
}

fn is_common(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

fn too_much(most: Option<i64>, has: usize, of_what: &str) -> Option<String> {
    let most = most.filter(|most| usize::try_from(*most).is_ok_and(|most| has > most))?;
    Some(format!("must have at most {most} {of_what}, has {has}"))
}

/// What the schema expects, if `value` is of another type.
fn wrong_type(schema: &JSONSchemaProps, value: &Value) -> Option<&'static str> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        let fits = value.is_string() || value.is_i64() || value.is_u64();
        return (!fits).then_some("an integer or text");
    }
    let (fits, expected) = match schema.type_.as_deref()? {
        "object" => (value.is_object(), "an object"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "text (put it in quotes)"),
        "integer" if schema.format.as_deref() == Some("int32") => (
            value.as_i64().is_some_and(|v| i32::try_from(v).is_ok()),
            "a whole number of 32 bits",
        ),
        "integer" => (value.is_i64(), "a whole number"),
        "number" => (value.is_number(), "a number"),
        "boolean" => (value.is_boolean(), "true or false"),
        _ => return None,
    };
    (!fits).then_some(expected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{EffectiveHorizontalPodAutoscaler, TimeSeriesPrediction};

    /// A smallest object, with `member` of its spec set.
    fn with(member: &str, value: Value) -> Value {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let mut object = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"scaleTargetRef": target, "maxReplicas": 10},
        });
        object["spec"][member] = value;
        object
    }

    fn cron(changes: Value) -> Value {
        let mut cron =
            json!({"name": "day", "start": "0 9 * * *", "end": "0 18 * * *", "targetReplicas": 5});
        for (name, value) in changes.as_object().unwrap() {
            cron[name] = value.clone();
        }
        with("crons", json!([cron]))
    }

    fn algorithm(value: Value) -> Value {
        with("prediction", json!({"predictionAlgorithm": value}))
    }

    #[test]
    fn the_rules_compile() {
        for rules in [
            Rules::of::<EffectiveHorizontalPodAutoscaler>(),
            Rules::of::<TimeSeriesPrediction>(),
        ] {
            assert!(
                !rules.compiled.has_errors(),
                "{:?}",
                rules.compiled.compilation_errors()
            );
        }
    }

    #[test]
    fn objects_at_the_edge_of_the_rules_are_accepted() {
        let rules = Rules::of::<EffectiveHorizontalPodAutoscaler>();
        for object in [
            with("minReplicas", json!(10)),
            with("minReplicas", json!(0)),
            with("minReplicas", Value::Null),
            with("maxReplicas", json!(1)),
            with("maxReplicas", json!(10000)),
            with("specificReplicas", json!(0)),
            with("mode", json!("Direct")),
            with("prediction", json!({})),
            with(
                "prediction",
                json!({"predictionWindowSeconds": 60, "quantile": 0.5}),
            ),
            with(
                "prediction",
                json!({"predictionWindowSeconds": 604_800, "quantile": 0.999}),
            ),
            with("prediction", json!({"leadTimeSeconds": 30})),
            with(
                "prediction",
                json!({"leadTimeSeconds": 1200, "maxUnderProvisionedPercent": 1}),
            ),
            algorithm(json!({})),
            algorithm(json!({"dsp": {"historyLength": "1h", "sampleInterval": "15s"}})),
            algorithm(json!({"dsp": {"historyLength": "30d", "sampleInterval": "1.5m"}})),
            algorithm(
                json!({"algorithmType": "percentile", "percentile": {"historyLength": "72h30m"}}),
            ),
            algorithm(json!({"seasonalNaive": {"period": "7d", "statistic": "max", "cycles": 4}})),
            algorithm(json!({"holtWinters": {"season": "12h"}})),
            algorithm(json!({"linear": {"samples": 2}})),
            cron(json!({"start": "@daily", "end": " 00 14 ? * mon-FRI "})),
            cron(json!({"start": "TZ=Asia/Tokyo 0 9 * * *", "end": "CRON_TZ=Asia/Tokyo @hourly"})),
            cron(json!({"name": null, "targetReplicas": 0})),
            cron(json!({"timezone": "America/Argentina/ComodRivadavia"})),
        ] {
            assert_eq!(rules.check(&object), [], "{}", object["spec"]);
        }
    }

    #[test]
    fn each_broken_rule_is_answered_once_with_the_field_and_what_to_do() {
        let dsp = |name: &str, value: &str| algorithm(json!({"dsp": {name: value}}));
        let many = |n: usize| -> Vec<Value> {
            let cron = |i| json!({"name": format!("c{i}"), "start": "@daily", "end": "@hourly", "targetReplicas": 1});
            (0..n).map(cron).collect()
        };
        let external = |labels: usize| {
            let labels: Map<_, _> = (0..labels).map(|i| (format!("l{i}"), json!("v"))).collect();
            with(
                "metrics",
                json!([{"type": "External", "external": {
                    "metric": {"name": "queue", "selector": {"matchLabels": labels}},
                    "target": {"type": "Value", "value": "5"},
                }}]),
            )
        };
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}});
        let table = [
            (
                with("minReplicas", json!(11)),
                "spec.minReplicas",
                "lower minReplicas or raise maxReplicas",
            ),
            (
                with("minReplicas", json!(-1)),
                "spec.minReplicas",
                "must be 0 or more",
            ),
            (
                with("minReplicas", json!("1")),
                "spec.minReplicas",
                "expected a whole number",
            ),
            (
                with("maxReplicas", json!(0)),
                "spec.maxReplicas",
                "between 1 and 10000",
            ),
            (
                with("maxReplicas", json!(10001)),
                "spec.maxReplicas",
                "between 1 and 10000",
            ),
            (
                with("maxReplicas", Value::Null),
                "spec.maxReplicas",
                "is required",
            ),
            (
                with("maxReplica", json!(1)),
                "spec.maxReplica",
                "no such field",
            ),
            (
                with("scaleTargetRef", json!({"kind": "Deployment", "name": ""})),
                "spec.scaleTargetRef",
                "kind and the name",
            ),
            (
                with("specificReplicas", json!(-1)),
                "spec.specificReplicas",
                "leave it out to let Preview only watch",
            ),
            (
                with("scaleStrategy", json!("Manual")),
                "spec.scaleStrategy",
                r#"one of "Auto", "Preview""#,
            ),
            (
                with("mode", json!("direct")),
                "spec.mode",
                r#"one of "Delegated", "Direct""#,
            ),
            (
                with("metrics", json!(vec![metric; 17])),
                "spec.metrics",
                "at most 16 items, has 17",
            ),
            (
                external(17),
                "spec.metrics[0].external.metric.selector.matchLabels",
                "at most 16 entries",
            ),
            (
                with("crons", json!(many(33))),
                "spec.crons",
                "at most 32 items, has 33",
            ),
            (
                with("crons", json!([many(1)[0], many(1)[0]])),
                "spec.crons",
                "needs a name of its own",
            ),
            (
                cron(json!({"start": null})),
                "spec.crons[0]",
                "needs start and end",
            ),
            (
                cron(json!({"end": ""})),
                "spec.crons[0]",
                "needs start and end",
            ),
            (
                cron(json!({"targetReplicas": null})),
                "spec.crons[0]",
                "needs targetReplicas",
            ),
            (
                cron(json!({"targetReplicas": -1})),
                "spec.crons[0].targetReplicas",
                "between 0 and 10000",
            ),
            (
                cron(json!({"start": "0 9 * *"})),
                "spec.crons[0].start",
                "has five fields",
            ),
            (
                cron(json!({"start": "0 0 9 * * *"})),
                "spec.crons[0].start",
                "has five fields",
            ),
            (
                cron(json!({"end": "@fortnightly"})),
                "spec.crons[0].end",
                "has five fields",
            ),
            (
                cron(json!({"end": "@every 1h"})),
                "spec.crons[0].end",
                "no fixed times of day",
            ),
            (
                cron(json!({"start": "1".repeat(129)})),
                "spec.crons[0].start",
                "at most 128 characters",
            ),
            (
                cron(json!({"timezone": "Z".repeat(65)})),
                "spec.crons[0].timezone",
                "at most 64 characters",
            ),
            (
                cron(json!({"name": "n".repeat(254)})),
                "spec.crons[0].name",
                "at most 253 characters",
            ),
            (
                with("prediction", json!({"predictionWindowSeconds": 59})),
                "spec.prediction.predictionWindowSeconds",
                "between 60 and 604800",
            ),
            (
                with("prediction", json!({"predictionWindowSeconds": 604_801})),
                "spec.prediction.predictionWindowSeconds",
                "between 60 and 604800",
            ),
            (
                with("prediction", json!({"quantile": 0.4})),
                "spec.prediction.quantile",
                "between 0.5 and 0.999",
            ),
            (
                with("prediction", json!({"quantile": 1})),
                "spec.prediction.quantile",
                "between 0.5 and 0.999",
            ),
            (
                with("prediction", json!({"leadTimeSeconds": 29})),
                "spec.prediction.leadTimeSeconds",
                "leave it out to have it measured",
            ),
            (
                with("prediction", json!({"maxUnderProvisionedPercent": 0})),
                "spec.prediction.maxUnderProvisionedPercent",
                "above 0 and below 100",
            ),
            (
                with(
                    "prediction",
                    json!({"quantile": 0.9, "maxUnderProvisionedPercent": 1}),
                ),
                "spec.prediction",
                "exclude each other",
            ),
            (
                algorithm(json!({"algorithmType": "DSP"})),
                "spec.prediction.predictionAlgorithm.algorithmType",
                "leave it out to use auto",
            ),
            (
                dsp("historyLength", "1w"),
                "spec.prediction.predictionAlgorithm.dsp.historyLength",
                "such as '14d'",
            ),
            (
                dsp("historyLength", "1d12h"),
                "spec.prediction.predictionAlgorithm.dsp.historyLength",
                "such as '14d'",
            ),
            (
                dsp("historyLength", "59m"),
                "spec.prediction.predictionAlgorithm.dsp.historyLength",
                "between 1h and 30d",
            ),
            (
                dsp("historyLength", "31d"),
                "spec.prediction.predictionAlgorithm.dsp.historyLength",
                "between 1h and 30d",
            ),
            (
                dsp("sampleInterval", "60"),
                "spec.prediction.predictionAlgorithm.dsp.sampleInterval",
                "such as '60s'",
            ),
            (
                dsp("sampleInterval", "14s"),
                "spec.prediction.predictionAlgorithm.dsp.sampleInterval",
                "between 15s and 24h",
            ),
            (
                algorithm(json!({"seasonalNaive": {"period": "1w"}})),
                "spec.prediction.predictionAlgorithm.seasonalNaive.period",
                "1d or 7d",
            ),
            (
                algorithm(json!({"seasonalNaive": {"cycles": 31}})),
                "spec.prediction.predictionAlgorithm.seasonalNaive.cycles",
                "between 1 and 30",
            ),
            (
                algorithm(json!({"holtWinters": {"season": "16d"}})),
                "spec.prediction.predictionAlgorithm.holtWinters.season",
                "between 1h and 15d",
            ),
            (
                algorithm(json!({"linear": {"samples": 1}})),
                "spec.prediction.predictionAlgorithm.linear.samples",
                "between 2 and 10000",
            ),
        ];
        let rules = Rules::of::<EffectiveHorizontalPodAutoscaler>();
        for (object, field, advice) in table {
            let found = rules.check(&object);
            let [Violation { field: at, message }] = found.as_slice() else {
                panic!("{field}, {advice}: {found:?}");
            };
            assert_eq!(at, field);
            assert!(message.contains(advice), "{field}: {message}");
        }
    }

    #[test]
    fn a_prediction_as_crane_stores_it_is_accepted_and_writes_back_as_it_was() {
        let algorithm = json!({
            "algorithmType": "dsp",
            "dsp": {
                "sampleInterval": "60s", "historyLength": "14d",
                "estimators": {
                    "maxValue": [{"marginFraction": "0.1"}],
                    "fft": [{"marginFraction": "0.2", "lowAmplitudeThreshold": "1.0", "highFrequencyThreshold": "0.05",
                             "minNumOfSpectrumItems": 10, "maxNumOfSpectrumItems": 20}],
                },
            },
        });
        let labels = json!([{"key": "pod", "operator": "in", "value": ["a", "b"]}]);
        let object = json!({
            "apiVersion": "prediction.crane.io/v1alpha1",
            "kind": "TimeSeriesPrediction",
            "metadata": {"name": "tsp"},
            "spec": {
                "predictionMetrics": [
                    {"resourceIdentifier": "cpu", "type": "ExpressionQuery",
                     "expressionQuery": {"expression": "sum(rate(x[3m]))"}, "algorithm": algorithm},
                    {"resourceIdentifier": "mem", "type": "MetricQuery",
                     "metricQuery": {"metricName": "m", "labels": labels},
                     "algorithm": {"algorithmType": "percentile", "percentile": {
                         "aggregated": true, "sampleInterval": "1m", "histogram": {
                             "maxValue": "100", "epsilon": "1e-10", "halfLife": "24h", "bucketSize": "0.1",
                             "firstBucketSize": "0.01", "bucketSizeGrowthRatio": "1.05"},
                         "minSampleWeight": "1e-5", "marginFraction": "0.15", "percentile": "0.99",
                         "targetUtilization": "1.0"}}},
                    {"resourceIdentifier": "r", "type": "ResourceQuery", "resourceQuery": "cpu"},
                ],
                "targetRef": {"kind": "Deployment", "name": "web", "namespace": "shop"},
                "predictionWindowSeconds": 180,
            },
            "status": {
                "predictionMetrics": [
                    {"resourceIdentifier": "cpu", "ready": true, "prediction": [{
                        "labels": [{"name": "zone", "value": "a"}],
                        "samples": [{"value": "0.12345", "timestamp": 1_700_000_000, "upper": "0.2"}]}]},
                    {"resourceIdentifier": "mem", "ready": false, "reason": "TooShort", "message": "wait"},
                ],
                "conditions": [{"type": "Ready", "status": "False", "reason": "PredictPartial",
                    "message": "not all metric predicted", "lastTransitionTime": "2024-01-01T00:00:00Z"}],
            },
        });
        let typed: TimeSeriesPrediction = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(&typed).unwrap(), object);
        assert_eq!(Rules::of::<TimeSeriesPrediction>().check(&object), []);
        assert_eq!(
            Rules::of::<TimeSeriesPrediction>().check(&json!({"spec": {}})),
            []
        );
    }
}
