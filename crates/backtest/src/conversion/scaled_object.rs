//! From a `ScaledObject` of KEDA: its cpu, memory and Prometheus triggers as metrics, its cron triggers as windows.
//!
//! A Prometheus trigger becomes the External metric that KEDA serves for it, so that an object in Preview reads the same
//! values while the `ScaledObject` scales. The trigger's query is the history query of that metric.

use serde_json::{Map, Value, json};

use foretide_crds::Violation;

use super::{Converted, object, origin};
use crate::manifest::violation;
use foretide_api::ports::QUERY_ANNOTATION;

/// The label by which KEDA tells the metrics of its objects apart.
const KEDA_LABEL: &str = "scaledobject.keda.sh/name";
/// `maxReplicaCount` by default.
const KEDA_MAX: i64 = 100;
/// Parts of a `ScaledObject` without an equivalent, as JSON pointers, with the reasons for which they are ignored.
const IGNORED: [(&str, &str); 6] = [
    ("/spec/pollingInterval", "Foretide decides every 15 s"),
    (
        "/spec/cooldownPeriod",
        "it delays scaling to zero, which is left to KEDA",
    ),
    (
        "/spec/initialCooldownPeriod",
        "it delays scaling to zero, which is left to KEDA",
    ),
    (
        "/spec/idleReplicaCount",
        "it is about scaling to zero, which is left to KEDA",
    ),
    (
        "/spec/fallback",
        "while a metric is missing, the count is held",
    ),
    (
        "/spec/advanced/scalingModifiers",
        "each trigger counts by itself, and the largest count wins",
    ),
];

/// The parts of a spec that are made from triggers.
#[derive(Default)]
struct Triggers {
    metrics: Vec<Value>,
    crons: Vec<Value>,
    annotations: Map<String, Value>,
    notes: Vec<String>,
}

/// One trigger with its position.
struct Trigger<'a> {
    /// The name of the `ScaledObject`.
    owner: &'a str,
    index: usize,
    value: &'a Value,
}

/// Converts a `ScaledObject`.
pub fn converted(keda: &Value) -> Result<Converted, Violation> {
    let spec = &keda["spec"];
    let mut triggers = Triggers::default();
    let owner = keda["metadata"]["name"].as_str().unwrap_or_default();
    let all = spec["triggers"].as_array().map(Vec::as_slice);
    for (index, value) in all.unwrap_or_default().iter().enumerate() {
        triggers.add(&Trigger {
            owner,
            index,
            value,
        })?;
    }
    if triggers.metrics.is_empty() && triggers.crons.is_empty() {
        let message =
            "expected a trigger of type cpu, memory, prometheus or cron; Foretide reads no others";
        return Err(violation("spec.triggers", message));
    }
    let mut notes = vec![origin("ScaledObject", keda)];
    let mut made = json!({
        "scaleTargetRef": target(&spec["scaleTargetRef"]),
        "minReplicas": least(spec, &mut notes),
        "maxReplicas": spec.get("maxReplicaCount").cloned().unwrap_or_else(|| KEDA_MAX.into()),
        "prediction": {},
    });
    if let Some(behavior) = spec.pointer("/advanced/horizontalPodAutoscalerConfig/behavior") {
        made["behavior"] = behavior.clone();
    }
    if !triggers.metrics.is_empty() {
        made["metrics"] = triggers.metrics.into();
    }
    if !triggers.crons.is_empty() {
        made["crons"] = triggers.crons.into();
    }
    notes.extend(triggers.notes);
    let ignored = IGNORED.iter().filter(|(at, _)| keda.pointer(at).is_some());
    notes.extend(ignored.map(|(at, why)| {
        format!(
            "{} is ignored: {why}",
            at.trim_start_matches('/').replace('/', ".")
        )
    }));
    Ok(Converted {
        object: object(keda, triggers.annotations, &made),
        notes,
        switch_on: "set scaleStrategy: Auto and add a trigger of type external to the ScaledObject",
    })
}

/// KEDA scales a Deployment unless another kind is named.
fn target(of: &Value) -> Value {
    let kind = of
        .get("kind")
        .cloned()
        .unwrap_or_else(|| "Deployment".into());
    let api_version = of.get("apiVersion").cloned();
    let api_version = api_version.unwrap_or_else(|| "apps/v1".into());
    json!({ "apiVersion": api_version, "kind": kind, "name": of["name"] })
}

/// `minReplicas`: at least 1, as in the HPA that KEDA makes.
fn least(spec: &Value, notes: &mut Vec<String>) -> Value {
    match spec.get("minReplicaCount") {
        // The default of KEDA is 0.
        Some(count) if count != 0 => count.clone(),
        _ => {
            let note = "minReplicas is 1: scaling to zero (minReplicaCount: 0) is left to KEDA";
            notes.push(note.to_owned());
            1.into()
        }
    }
}

/// A query without tabs and line breaks, which the output would escape or spread over lines. The line breaks stay where
/// they may end a comment.
fn one_line(query: &str) -> String {
    let has_comment = query.contains('#');
    query
        .trim()
        .replace(|c: char| c.is_control() && !(c == '\n' && has_comment), " ")
}

// === impl Triggers ===

impl Triggers {
    fn add(&mut self, trigger: &Trigger<'_>) -> Result<(), Violation> {
        let kind = trigger.value["type"].as_str().unwrap_or_default();
        match kind {
            "cpu" | "memory" => self.metrics.push(trigger.resource(kind)?),
            "prometheus" => {
                // The name under which KEDA serves the metric of this trigger.
                let name = format!("s{}-prometheus", trigger.index);
                self.metrics.push(trigger.prometheus(&name)?);
                let annotation = format!("{QUERY_ANNOTATION}external.{name}");
                let query = one_line(trigger.text("query")?);
                self.annotations.insert(annotation, query.into());
            }
            "cron" => self.crons.push(trigger.cron()?),
            other => {
                let field = trigger.field("");
                let note =
                    format!("{field} is left out: a trigger of type {other} has no equivalent");
                self.notes.push(note);
            }
        }
        Ok(())
    }
}

// === impl Trigger ===

impl Trigger<'_> {
    fn field(&self, below: &str) -> String {
        format!("spec.triggers[{}]{below}", self.index)
    }

    /// A member of the trigger's metadata.
    fn text(&self, name: &str) -> Result<&str, Violation> {
        let found = self.value["metadata"][name].as_str();
        found.ok_or_else(|| {
            let field = self.field(&format!(".metadata.{name}"));
            violation(field, "expected a text, in quotes; the trigger needs it")
        })
    }

    fn whole_number(&self, name: &str) -> Result<i64, Violation> {
        let text = self.text(name)?;
        text.trim().parse().map_err(|_| {
            let field = self.field(&format!(".metadata.{name}"));
            violation(field, format!("expected a whole number, found {text:?}"))
        })
    }

    /// The type of the trigger's target; older cpu and memory triggers have it in the metadata.
    fn target_type(&self) -> Option<&str> {
        let written = self.value["metricType"].as_str();
        written.or_else(|| self.value["metadata"]["type"].as_str())
    }

    fn resource(&self, resource: &str) -> Result<Value, Violation> {
        let target = match self.target_type() {
            Some("AverageValue") => {
                json!({ "type": "AverageValue", "averageValue": self.text("value")? })
            }
            Some("Utilization") => {
                let percent = self.whole_number("value")?;
                json!({ "type": "Utilization", "averageUtilization": percent })
            }
            _ => {
                let message = "expected Utilization or AverageValue";
                return Err(violation(self.field(".metricType"), message));
            }
        };
        Ok(match self.value["metadata"]["containerName"].as_str() {
            Some(container) => json!({
                "type": "ContainerResource",
                "containerResource": { "name": resource, "container": container, "target": target },
            }),
            None => {
                json!({ "type": "Resource", "resource": { "name": resource, "target": target } })
            }
        })
    }

    fn prometheus(&self, name: &str) -> Result<Value, Violation> {
        let threshold = self.text("threshold")?;
        let target = match self.target_type() {
            None | Some("AverageValue") => {
                json!({ "type": "AverageValue", "averageValue": threshold })
            }
            Some("Value") => json!({ "type": "Value", "value": threshold }),
            Some(_) => {
                let message = "expected AverageValue or Value";
                return Err(violation(self.field(".metricType"), message));
            }
        };
        let selector = json!({ "matchLabels": { KEDA_LABEL: self.owner } });
        Ok(json!({
            "type": "External",
            "external": { "metric": { "name": name, "selector": selector }, "target": target },
        }))
    }

    fn cron(&self) -> Result<Value, Violation> {
        let name = self.value["name"].as_str().map(str::to_owned);
        Ok(json!({
            "name": name.unwrap_or_else(|| format!("cron-{}", self.index)),
            "timezone": self.text("timezone")?,
            "start": self.text("start")?,
            "end": self.text("end")?,
            "targetReplicas": self.whole_number("desiredReplicas")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled_object(spec: &Value) -> Value {
        let metadata = json!({ "name": "worker", "namespace": "jobs" });
        json!({ "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": spec })
    }

    #[test]
    fn triggers_become_metrics_windows_and_history_queries() {
        let behavior = json!({ "scaleUp": { "stabilizationWindowSeconds": 7 } });
        let keda = scaled_object(&json!({
            "scaleTargetRef": { "name": "worker" },
            "minReplicaCount": 2,
            "maxReplicaCount": 40,
            "pollingInterval": 5,
            "advanced": { "horizontalPodAutoscalerConfig": { "behavior": behavior } },
            "triggers": [
                { "type": "cpu", "metricType": "Utilization", "metadata": { "value": "70" } },
                { "type": "memory", "metricType": "AverageValue",
                  "metadata": { "value": "1Gi", "containerName": "app" } },
                { "type": "prometheus", "metadata": {
                    "serverAddress": "http://p:9090", "query": "sum(rate(jobs_total[2m]))", "threshold": "12.5" } },
                { "type": "kafka", "metadata": { "topic": "t" } },
                { "type": "cron", "metadata": { "timezone": "Europe/Berlin", "start": "0 8 * * *",
                  "end": "0 18 * * *", "desiredReplicas": "10" } },
            ],
        }));
        let converted = converted(&keda).unwrap();
        let expected = json!({
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "worker" },
            "minReplicas": 2,
            "maxReplicas": 40,
            "behavior": behavior,
            "metrics": [
                { "type": "Resource", "resource": {
                    "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 70 } } },
                { "type": "ContainerResource", "containerResource": { "name": "memory", "container": "app",
                    "target": { "type": "AverageValue", "averageValue": "1Gi" } } },
                { "type": "External", "external": {
                    "metric": { "name": "s2-prometheus",
                        "selector": { "matchLabels": { "scaledobject.keda.sh/name": "worker" } } },
                    "target": { "type": "AverageValue", "averageValue": "12.5" } } },
            ],
            "crons": [{ "name": "cron-4", "timezone": "Europe/Berlin", "start": "0 8 * * *",
                "end": "0 18 * * *", "targetReplicas": 10 }],
            "prediction": {},
        });
        assert_eq!(converted.object["spec"], expected);
        let query = "metric-query.autoscaling.crane.io/external.s2-prometheus";
        assert_eq!(
            converted.object["metadata"],
            json!({ "name": "worker", "namespace": "jobs", "annotations": { query: "sum(rate(jobs_total[2m]))" } })
        );
        let expected = [
            "ScaledObject worker as an EffectiveHorizontalPodAutoscaler with prediction: {}, which is auto",
            "spec.triggers[3] is left out: a trigger of type kafka has no equivalent",
            "spec.pollingInterval is ignored: Foretide decides every 15 s",
        ];
        assert_eq!(converted.notes, expected);
    }

    #[test]
    fn defaults_are_those_of_keda_except_for_scaling_to_zero() {
        let trigger = json!({ "type": "prometheus", "metricType": "Value",
            "metadata": { "query": "up", "threshold": "5" } });
        let target =
            json!({ "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "worker" });
        let keda = scaled_object(&json!({ "scaleTargetRef": target, "triggers": [trigger] }));
        let converted = converted(&keda).unwrap();
        let spec = &converted.object["spec"];
        assert_eq!(
            (&spec["minReplicas"], &spec["maxReplicas"]),
            (&json!(1), &json!(100))
        );
        assert_eq!(spec["scaleTargetRef"], target);
        assert_eq!(
            spec["metrics"][0]["external"]["target"],
            json!({ "type": "Value", "value": "5" })
        );
        let note = "minReplicas is 1: scaling to zero (minReplicaCount: 0) is left to KEDA";
        assert_eq!(converted.notes.get(1).map(String::as_str), Some(note));
    }

    #[test]
    fn a_query_has_no_tabs_and_no_line_breaks_but_those_after_comments() {
        for (query, expected) in [
            ("sum(\n\trate(a[2m])\r\n)\n", "sum(  rate(a[2m])  )"),
            ("sum(a)\t# all\n/ 2", "sum(a) # all\n/ 2"),
        ] {
            let metadata = json!({ "query": query, "threshold": "5" });
            let trigger = json!({ "type": "prometheus", "metadata": metadata });
            let keda = scaled_object(&json!({ "scaleTargetRef": {}, "triggers": [trigger] }));
            let annotations = &converted(&keda).unwrap().object["metadata"]["annotations"];
            let name = "metric-query.autoscaling.crane.io/external.s0-prometheus";
            assert_eq!(annotations, &json!({ name: expected }), "{query:?}");
        }
    }

    #[test]
    fn what_cannot_be_converted_is_named_by_its_field() {
        let cpu = |metric_type: &str, value: Value| json!({ "type": "cpu", "metricType": metric_type, "metadata": { "value": value } });
        for (trigger, field) in [
            (cpu("Value", "70".into()), "spec.triggers[0].metricType"),
            (
                cpu("Utilization", "70%".into()),
                "spec.triggers[0].metadata.value",
            ),
            (
                cpu("AverageValue", 70.into()),
                "spec.triggers[0].metadata.value",
            ),
            (
                json!({ "type": "prometheus", "metadata": { "query": "up" } }),
                "spec.triggers[0].metadata.threshold",
            ),
            (
                json!({ "type": "cron", "metadata": {} }),
                "spec.triggers[0].metadata.timezone",
            ),
            (json!({ "type": "kafka" }), "spec.triggers"),
        ] {
            let keda = scaled_object(&json!({ "scaleTargetRef": {}, "triggers": [trigger] }));
            assert_eq!(converted(&keda).unwrap_err().field, field);
        }
    }
}
