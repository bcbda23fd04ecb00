//! Bounds on the size of what users write.
//!
//! Most repeat the schema, because the definition that is installed may be crane's, or an older one. Texts of a spec go
//! into statuses, conditions, metric labels and queries: without bounds, one object could make a status that the API
//! server refuses.

use foretide_crds::{CronSpec, EffectiveHorizontalPodAutoscalerSpec, FederatedHPASpec};
use serde_json::Value;

use super::Violation;

/// The most metrics of a spec.
pub(super) const METRICS_MAX: usize = 16;
/// The most crons of a spec.
pub(super) const CRONS_MAX: usize = 32;
/// The most candidates of the algorithm `dsp`, of each kind.
const ESTIMATORS_MAX: usize = 32;
/// The longest apiVersion: a group of 253 characters, a slash and a version of 63.
const API_VERSION_MAX: usize = 317;
/// The longest kind.
const KIND_MAX: usize = 63;
/// The longest name of an object or a cron.
const NAME_MAX: usize = 253;
/// The longest cron expression.
const EXPRESSION_MAX: usize = 128;
/// The longest name of a time zone.
const ZONE_MAX: usize = 64;
/// The longest text in metrics, behavior and the fields of a fleet, such as the name of a metric. Kubernetes has no
/// limit for it; the names and label values of cloud monitoring systems have a few hundred characters.
const TEXT_MAX: usize = 1024;
/// The most entries of a list or a map there, such as the values of a selector.
const ENTRIES_MAX: usize = 256;
/// The most bytes of metrics and behavior together, and of the spec of a fleet, as JSON.
const JSON_MAX: usize = 64 * 1024;

/// Collects violations of the limits of a spec.
pub(super) fn check(spec: &EffectiveHorizontalPodAutoscalerSpec, violations: &mut Vec<Violation>) {
    let mut limits = Limits(violations);
    let target = &spec.scale_target_ref;
    let field = "spec.scaleTargetRef";
    let version = target.api_version.as_deref().unwrap_or_default();
    limits.text(&format!("{field}.apiVersion"), version, API_VERSION_MAX);
    limits.text(&format!("{field}.kind"), &target.kind, KIND_MAX);
    limits.text(&format!("{field}.name"), &target.name, NAME_MAX);
    let crons = spec.crons.as_deref().unwrap_or_default();
    limits.count("spec.crons", crons.len(), CRONS_MAX);
    for (position, cron) in crons.iter().take(CRONS_MAX).enumerate() {
        limits.cron(&format!("spec.crons[{position}]"), cron);
    }
    limits.estimators(spec);
    let metrics = spec.metrics.as_deref().unwrap_or_default();
    limits.count("spec.metrics", metrics.len(), METRICS_MAX);
    let mut parts = Vec::new();
    for (at, metric) in metrics.iter().take(METRICS_MAX).enumerate() {
        parts.push((format!("spec.metrics[{at}]"), metric.raw()));
    }
    if let Some(behavior) = &spec.behavior {
        parts.push(("spec.behavior".to_owned(), behavior.raw()));
    }
    limits.size(
        "spec.metrics and spec.behavior",
        parts.iter().map(|(_, part)| *part),
    );
    for (field, part) in parts {
        limits.json(&field, part);
    }
}

/// Collects violations of the limits of what only a fleet has.
pub(super) fn check_fleet(spec: &FederatedHPASpec, violations: &mut Vec<Violation>) {
    let mut limits = Limits(violations);
    // Serializing the types of the API cannot fail.
    let Ok(value) = serde_json::to_value(spec) else {
        return;
    };
    limits.size("spec", std::iter::once(&value));
    let own = value.as_object().into_iter().flatten();
    // `check` has looked at these.
    let shared = [
        "metrics",
        "behavior",
        "crons",
        "scaleTargetRef",
        "prediction",
    ];
    for (name, part) in own.filter(|(name, _)| !shared.contains(&name.as_str())) {
        limits.json(&format!("spec.{name}"), part);
    }
}

/// The violations of one spec.
struct Limits<'a>(&'a mut Vec<Violation>);

// === impl Limits ===

impl Limits<'_> {
    fn text(&mut self, field: &str, text: &str, most: usize) {
        // A text has at least as many bytes as characters, and their number is known without counting.
        let length = if text.len() > most {
            text.chars().count()
        } else {
            0
        };
        if length > most {
            let found = format!("{length} characters long");
            self.refuse(field, found, format!("at most {most} characters"));
        }
    }

    fn count(&mut self, field: &str, count: usize, most: usize) {
        if count > most {
            let found = format!("a list of {count} entries");
            self.refuse(field, found, format!("at most {most} entries"));
        }
    }

    fn size<'v>(&mut self, field: &str, values: impl Iterator<Item = &'v Value>) {
        let bytes: usize = values.map(size).sum();
        if bytes > JSON_MAX {
            let found = format!("about {} KiB long", bytes / 1024);
            self.refuse(field, found, format!("at most {} KiB", JSON_MAX / 1024));
        }
    }

    fn cron(&mut self, field: &str, cron: &CronSpec) {
        for (name, text, most) in [
            ("name", &cron.name, NAME_MAX),
            ("start", &cron.start, EXPRESSION_MAX),
            ("end", &cron.end, EXPRESSION_MAX),
            ("timezone", &cron.timezone, ZONE_MAX),
        ] {
            let text = text.as_deref().unwrap_or_default();
            self.text(&format!("{field}.{name}"), text, most);
        }
    }

    fn estimators(&mut self, spec: &EffectiveHorizontalPodAutoscalerSpec) {
        let algorithm = spec
            .prediction
            .as_ref()
            .and_then(|prediction| prediction.prediction_algorithm.as_ref());
        let dsp = algorithm.and_then(|algorithm| algorithm.dsp.as_ref());
        let Some(estimators) = dsp.and_then(|dsp| dsp.estimators.as_ref()) else {
            return;
        };
        let field = "spec.prediction.predictionAlgorithm.dsp.estimators";
        let (fft, max_value) = (&estimators.fft, &estimators.max_value);
        self.count(
            &format!("{field}.fft"),
            fft.as_ref().map_or(0, Vec::len),
            ESTIMATORS_MAX,
        );
        self.count(
            &format!("{field}.maxValue"),
            max_value.as_ref().map_or(0, Vec::len),
            ESTIMATORS_MAX,
        );
    }

    /// Every text and every list inside a value.
    fn json(&mut self, field: &str, value: &Value) {
        match value {
            Value::String(text) => self.text(field, text, TEXT_MAX),
            Value::Array(values) => {
                self.count(field, values.len(), ENTRIES_MAX);
                for (position, value) in values.iter().take(ENTRIES_MAX).enumerate() {
                    self.json(&format!("{field}[{position}]"), value);
                }
            }
            Value::Object(members) => {
                self.count(field, members.len(), ENTRIES_MAX);
                for (name, value) in members.iter().take(ENTRIES_MAX) {
                    self.text(&format!("a name in {field}"), name, TEXT_MAX);
                    self.json(&format!("{field}.{name}"), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn refuse(&mut self, field: &str, found: String, expected: String) {
        self.0.push(Violation::new(field, found, expected));
    }
}

/// About as many bytes as a value takes as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(values) => values.iter().map(|value| size(value) + 1).sum::<usize>() + 2,
        Value::Object(members) => {
            let mut all = 2;
            for (name, value) in members {
                all += name.len() + size(value) + 4;
            }
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
    use foretide_domain::{cron::Zone, hpa::Settings};
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;
    use crate::validation::{fleet, workload};

    fn text(length: usize) -> String {
        "é".repeat(length)
    }

    fn metric(name: &str, selector: &Value) -> Value {
        json!({"type": "External", "external": {
            "metric": {"name": name, "selector": {"matchLabels": selector}},
            "target": {"type": "Value", "value": "7"},
        }})
    }

    /// A spec with every text and list as long as it may be, and then one of them longer.
    fn spec(more: &str) -> Value {
        let length = |part: &str, most: usize| most + usize::from(part == more);
        let long = |part: &str, most: usize| text(length(part, most));
        let cron = |at: usize| {
            json!({
                "name": format!("{at:02}{}", long("cron name", 251)), "start": "0 9 * * *", "end": "0 18 * * *",
                "timezone": "UTC", "targetReplicas": 3,
            })
        };
        let short = json!({"queue": "a"});
        let metrics = (1..length("metrics", 16)).map(|at| metric(&format!("m{at}"), &short));
        let largest = metric(
            &long("metric name", 1024),
            &json!({ (long("label", 1024)): long("label value", 1024) }),
        );
        json!({
            "scaleTargetRef": {
                "apiVersion": long("apiVersion", 317), "kind": long("kind", 63), "name": long("name", 253),
            },
            "maxReplicas": 20,
            "metrics": metrics.chain([largest]).collect::<Vec<_>>(),
            "crons": (0..length("crons", 32)).map(cron).collect::<Vec<_>>(),
            "prediction": {"predictionAlgorithm": {"algorithmType": "dsp", "dsp": {"estimators": {
                "fft": vec![json!({}); length("fft", 32)], "maxValue": vec![json!({}); length("maxValue", 32)],
            }}}},
        })
    }

    fn refusal(spec: &Value) -> Option<String> {
        let object = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
        let ehpa: EffectiveHorizontalPodAutoscaler = serde_json::from_value(object).unwrap();
        let read = workload(&ehpa, &Zone::utc());
        read.err().map(|invalid| invalid.to_string())
    }

    #[test]
    fn a_spec_at_every_limit_is_accepted_and_one_beyond_is_refused_with_the_field() {
        assert_eq!(refusal(&spec("")), None);
        for (part, expected) in [
            (
                "apiVersion",
                "spec.scaleTargetRef.apiVersion is 318 characters long, expected at most 317 characters",
            ),
            (
                "kind",
                "spec.scaleTargetRef.kind is 64 characters long, expected at most 63 characters",
            ),
            (
                "name",
                "spec.scaleTargetRef.name is 254 characters long, expected at most 253 characters",
            ),
            (
                "metrics",
                "spec.metrics is a list of 17 entries, expected at most 16 entries",
            ),
            (
                "metric name",
                "spec.metrics[15].external.metric.name is 1025 characters long, expected at most 1024 characters",
            ),
            (
                "label",
                "a name in spec.metrics[15].external.metric.selector.matchLabels is 1025 characters long, expected at \
                 most 1024 characters",
            ),
            (
                "crons",
                "spec.crons is a list of 33 entries, expected at most 32 entries",
            ),
            (
                "fft",
                "spec.prediction.predictionAlgorithm.dsp.estimators.fft is a list of 33 entries, expected at most 32 \
                 entries",
            ),
        ] {
            assert_eq!(refusal(&spec(part)).as_deref(), Some(expected), "{part}");
        }
        let named = refusal(&spec("cron name")).unwrap();
        assert!(
            named.starts_with("spec.crons[0].name is 254 characters long"),
            "{named}"
        );
        for part in ["label value", "maxValue"] {
            assert!(refusal(&spec(part)).is_some(), "{part}");
        }
    }

    #[test]
    fn metrics_that_are_too_large_together_are_refused() {
        let values = |count: usize| -> Value {
            let one = |at: usize| (format!("label{at}"), text(500).into());
            Value::Object((0..count).map(one).collect())
        };
        let of = |count| {
            json!({
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "maxReplicas": 20,
                "metrics": [metric("a", &values(count)), metric("b", &values(30))],
            })
        };
        assert_eq!(refusal(&of(30)), None);
        let refused = refusal(&of(40)).unwrap();
        let expected =
            "spec.metrics and spec.behavior is about 69 KiB long, expected at most 64 KiB";
        assert_eq!(refused, expected);
    }

    #[test]
    fn a_refusal_is_short_however_long_the_values_are() {
        let metric = json!({"type": text(900), "pods": text(900), (text(900)): 1});
        let refused = refusal(&json!({
            "scaleTargetRef": {"kind": "Deployment", "name": text(100_000)},
            "maxReplicas": 20,
            "metrics": vec![metric; 16],
        }));
        let refused = refused.unwrap();
        assert!(refused.chars().count() < 4000, "{}", refused.len());
        assert!(refused.contains("spec.scaleTargetRef.name is 100000 characters long"));
        assert!(refused.ends_with("; and 10 more"), "{refused}");
    }

    #[test]
    fn the_lists_of_a_fleet_are_bounded() {
        let refusal = |clusters: usize, name: usize| {
            let preference = json!({"targetCluster": {"clusterNames": vec![text(name); clusters]}, "staticWeight": 1});
            let object = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "maxReplicas": 20,
                "federatedHPAAssignment": {"clusterAutoscalingPreference": [preference]},
            }});
            let fdhpa: FederatedHPA = serde_json::from_value(object).unwrap();
            let period = SignedDuration::from_secs(15);
            let read = fleet(&fdhpa, &Zone::utc(), period, &Settings::default());
            read.err().map(|invalid| invalid.to_string())
        };
        let list = "spec.federatedHPAAssignment.clusterAutoscalingPreference[0].targetCluster.clusterNames";
        assert_eq!(refusal(256, 60), None);
        assert_eq!(
            refusal(257, 60),
            Some(format!(
                "{list} is a list of 257 entries, expected at most 256 entries"
            ))
        );
        assert_eq!(
            refusal(1, 1025),
            Some(format!(
                "{list}[0] is 1025 characters long, expected at most 1024 characters"
            ))
        );
    }
}
