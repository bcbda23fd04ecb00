//! Converts `spec.metrics` and `spec.behavior` from the types of autoscaling/v2, which must have every field of them: the
//! API server refuses a child with another, and no decision would heed it.

use std::sync::LazyLock;

use foretide_crds::{KnownFields, Passthrough};
use foretide_domain::{
    hpa::{
        Behavior, MetricKind, MetricSpec, ObjectRef, PolicyKind, PolicySelect, ScalingPolicy,
        ScalingRules, Target, WrittenTarget,
    },
    quantity::Quantity,
};
use jiff::SignedDuration;
use k8s_openapi::{
    api::autoscaling::v2::{
        HPAScalingRules, HorizontalPodAutoscalerBehavior, MetricIdentifier,
        MetricSpec as WireMetric, MetricTarget,
    },
    apimachinery::pkg::{api::resource::Quantity as WireQuantity, apis::meta::v1::LabelSelector},
};

use super::{Violation, limits::METRICS_MAX};

/// The fields of a metric.
static METRIC_FIELDS: LazyLock<KnownFields> = LazyLock::new(KnownFields::of::<WireMetric>);
/// The fields of a behavior.
static BEHAVIOR_FIELDS: LazyLock<KnownFields> =
    LazyLock::new(KnownFields::of::<HorizontalPodAutoscalerBehavior>);

/// Converts every metric of the spec that is valid.
pub(super) fn metrics(
    raw: &[Passthrough<WireMetric>],
    violations: &mut Vec<Violation>,
) -> Vec<MetricSpec> {
    let mut read = Vec::with_capacity(raw.len());
    // `limits::check` refuses a longer list. Its rest is not converted, so that a refusal costs little.
    for (position, metric) in raw.iter().take(METRICS_MAX).enumerate() {
        let field = format!("spec.metrics[{position}]");
        // What else is wrong may follow from it.
        if refuse_unknown(&METRIC_FIELDS, &field, metric, violations) {
            continue;
        }
        match metric.typed() {
            Ok(wire) => read.push(
                FieldConverter {
                    field: &field,
                    violations,
                }
                .metric(wire),
            ),
            Err(error) => violations.push(Violation::new(
                field,
                metric.raw().to_string(),
                format!("a metric of autoscaling/v2 ({error})"),
            )),
        }
    }
    read
}

/// Converts the behavior; fields that are not set stay absent.
pub(super) fn behavior(
    raw: &Passthrough<HorizontalPodAutoscalerBehavior>,
    violations: &mut Vec<Violation>,
) -> Behavior {
    if refuse_unknown(&BEHAVIOR_FIELDS, "spec.behavior", raw, violations) {
        return Behavior::default();
    }
    match raw.typed() {
        Ok(wire) => {
            let mut reader = FieldConverter {
                field: "spec.behavior",
                violations,
            };
            Behavior {
                scale_up: reader.rules("scaleUp", wire.scale_up),
                scale_down: reader.rules("scaleDown", wire.scale_down),
            }
        }
        Err(error) => {
            violations.push(Violation::new(
                "spec.behavior",
                raw.raw().to_string(),
                format!("a behavior of autoscaling/v2 ({error})"),
            ));
            Behavior::default()
        }
    }
}

/// Refuses the fields of a metric or behavior that autoscaling/v2 does not have; whether there are any.
fn refuse_unknown<T>(
    known: &KnownFields,
    field: &str,
    raw: &Passthrough<T>,
    violations: &mut Vec<Violation>,
) -> bool {
    let unknown = known.unknown(field, raw.raw()).into_iter();
    let before = violations.len();
    violations.extend(unknown.map(|unknown| {
        Violation::new(unknown.field, "no field of autoscaling/v2", unknown.message)
    }));
    violations.len() > before
}

/// Converts one field and collects its violations.
struct FieldConverter<'a> {
    field: &'a str,
    violations: &'a mut Vec<Violation>,
}

// === impl FieldConverter ===

impl FieldConverter<'_> {
    fn metric(&mut self, wire: WireMetric) -> MetricSpec {
        match wire.type_.as_str() {
            "Resource" => wire.resource.map(|source| MetricSpec::Resource {
                target: self.target(MetricKind::Resource, &source.target),
                name: source.name,
            }),
            "ContainerResource" => {
                wire.container_resource
                    .map(|source| MetricSpec::ContainerResource {
                        target: self.target(MetricKind::ContainerResource, &source.target),
                        name: source.name,
                        container: source.container,
                    })
            }
            "Pods" => wire.pods.map(|source| MetricSpec::Pods {
                target: self.target(MetricKind::Pods, &source.target),
                selector: selector(&source.metric),
                metric: source.metric.name,
            }),
            "Object" => wire.object.map(|source| MetricSpec::Object {
                target: self.target(MetricKind::Object, &source.target),
                described: ObjectRef {
                    api_version: source.described_object.api_version.unwrap_or_default(),
                    kind: source.described_object.kind,
                    name: source.described_object.name,
                },
                selector: selector(&source.metric),
                metric: source.metric.name,
            }),
            "External" => wire.external.map(|source| MetricSpec::External {
                target: self.target(MetricKind::External, &source.target),
                selector: selector(&source.metric),
                metric: source.metric.name,
            }),
            unknown => Some(MetricSpec::Unknown(unknown.to_owned())),
        }
        .unwrap_or_else(|| self.without_source(&wire.type_))
    }

    /// A metric whose `type` names a field that is not set.
    fn without_source(&mut self, kind: &str) -> MetricSpec {
        // Cannot panic: `metric` calls this for the types that it knows, and they begin with one ASCII letter.
        let block = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
        self.refuse(
            ".type",
            kind,
            format!("the field `{block}` to be set as well"),
        );
        MetricSpec::Unknown(kind.to_owned())
    }

    fn target(&mut self, kind: MetricKind, wire: &MetricTarget) -> Target {
        let field = format!("{}.{}", self.field, block(kind));
        FieldConverter {
            field: &field,
            violations: self.violations,
        }
        .target_of(kind, wire)
    }

    fn target_of(&mut self, kind: MetricKind, wire: &MetricTarget) -> Target {
        let before = self.violations.len();
        let written = WrittenTarget {
            kind: &wire.type_,
            average_utilization: wire.average_utilization,
            average_value: self.milli(".target.averageValue", wire.average_value.as_ref()),
            value: self.milli(".target.value", wire.value.as_ref()),
        };
        let target = Target::read(kind, written);
        let above_zero = "a value above zero".to_owned();
        match target {
            Target::Utilization(percent) if percent <= 0 => {
                let found = percent.to_string();
                self.refuse(".target.averageUtilization", &found, above_zero);
            }
            Target::AverageValue(milli) if milli <= 0 => {
                let found = written_quantity(wire.average_value.as_ref());
                self.refuse(".target.averageValue", found, above_zero);
            }
            Target::Value(milli) if milli <= 0 => {
                let found = written_quantity(wire.value.as_ref());
                self.refuse(".target.value", found, above_zero);
            }
            // An unusable value is a violation that is already recorded.
            Target::Unusable if self.violations.len() == before => {
                self.refuse(".target", &wire.type_, target_fields(kind));
            }
            _ => {}
        }
        target
    }

    fn milli(&mut self, part: &str, wire: Option<&WireQuantity>) -> Option<i64> {
        let text = &wire?.0;
        match text.parse::<Quantity>() {
            Ok(quantity) => Some(quantity.milli_value().value),
            Err(error) => {
                self.refuse(
                    part,
                    text,
                    format!("a quantity such as 100m, 2 or 1Gi ({error})"),
                );
                None
            }
        }
    }

    fn rules(&mut self, direction: &str, wire: Option<HPAScalingRules>) -> ScalingRules {
        let Some(wire) = wire else {
            return ScalingRules::default();
        };
        let part = format!(".{direction}");
        ScalingRules {
            window: self.seconds(&part, wire.stabilization_window_seconds),
            select: self.select(&part, wire.select_policy.as_deref()),
            policies: wire.policies.map(|policies| {
                policies
                    .into_iter()
                    .enumerate()
                    .filter_map(|(position, policy)| {
                        let part = format!("{part}.policies[{position}]");
                        // Both before either `?`, so that a policy with two mistakes has two violations.
                        let kind = self.policy(&part, &policy.type_, policy.value);
                        let period = self.period(&part, policy.period_seconds);
                        Some(ScalingPolicy {
                            kind: kind?,
                            value: policy.value,
                            period: period?,
                        })
                    })
                    .collect()
            }),
            tolerance: self.tolerance(&part, wire.tolerance.as_ref()),
        }
    }

    fn seconds(&mut self, part: &str, seconds: Option<i32>) -> Option<SignedDuration> {
        let seconds = seconds?;
        if !(0..=3600).contains(&seconds) {
            let part = format!("{part}.stabilizationWindowSeconds");
            self.refuse(&part, &seconds.to_string(), "0 to 3600 seconds".to_owned());
        }
        Some(SignedDuration::from_secs(seconds.into()))
    }

    fn select(&mut self, part: &str, name: Option<&str>) -> Option<PolicySelect> {
        match name? {
            "Max" => Some(PolicySelect::Max),
            "Min" => Some(PolicySelect::Min),
            "Disabled" => Some(PolicySelect::Disabled),
            other => {
                let part = format!("{part}.selectPolicy");
                self.refuse(&part, other, "Max, Min or Disabled".to_owned());
                None
            }
        }
    }

    fn policy(&mut self, part: &str, kind: &str, value: i32) -> Option<PolicyKind> {
        if value <= 0 {
            let part = format!("{part}.value");
            self.refuse(&part, &value.to_string(), "a number above zero".to_owned());
        }
        match kind {
            "Pods" => Some(PolicyKind::Pods),
            "Percent" => Some(PolicyKind::Percent),
            other => {
                let part = format!("{part}.type");
                self.refuse(&part, other, "Pods or Percent".to_owned());
                None
            }
        }
    }

    fn period(&mut self, part: &str, seconds: i32) -> Option<SignedDuration> {
        if (1..=1800).contains(&seconds) {
            return Some(SignedDuration::from_secs(seconds.into()));
        }
        let part = format!("{part}.periodSeconds");
        self.refuse(&part, &seconds.to_string(), "1 to 1800 seconds".to_owned());
        None
    }

    fn tolerance(&mut self, part: &str, wire: Option<&WireQuantity>) -> Option<f64> {
        let text = &wire?.0;
        let ratio = text
            .parse::<Quantity>()
            .ok()
            // Not in milli-units, which are rounded up: a tolerance of 0.0001 would become 0.001.
            .map(|quantity| quantity.approx_f64())
            .filter(|ratio| *ratio >= 0.0);
        if ratio.is_none() {
            let part = format!("{part}.tolerance");
            let expected = "a ratio of at least 0, such as 0.05";
            self.refuse(&part, text, expected.to_owned());
        }
        ratio
    }

    fn refuse(&mut self, part: &str, found: &str, expected: String) {
        self.violations.push(Violation::new(
            format!("{}{part}", self.field),
            found,
            expected,
        ));
    }
}

/// The field that a metric's `type` names.
fn block(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Resource => "resource",
        MetricKind::ContainerResource => "containerResource",
        MetricKind::Pods => "pods",
        MetricKind::Object => "object",
        MetricKind::External => "external",
        MetricKind::Unknown => "type",
    }
}

/// A quantity as the user wrote it.
fn written_quantity(wire: Option<&WireQuantity>) -> &str {
    wire.map_or("", |quantity| &quantity.0)
}

fn target_fields(kind: MetricKind) -> String {
    match kind {
        MetricKind::Resource | MetricKind::ContainerResource => {
            "averageUtilization or averageValue".to_owned()
        }
        MetricKind::Pods => "averageValue".to_owned(),
        MetricKind::Object => "the field that its `type` names: value or averageValue".to_owned(),
        MetricKind::External | MetricKind::Unknown => "value or averageValue".to_owned(),
    }
}

fn selector(metric: &MetricIdentifier) -> Option<String> {
    metric.selector.as_ref().map(selector_text)
}

/// Formats a label selector as a query parameter of the API.
///
/// # Guarantees
/// Deterministic: labels in their order, then expressions in the order of the spec.
pub fn selector_text(selector: &LabelSelector) -> String {
    let labels = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value}"));
    let expressions = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|expression| {
            let values = expression.values.clone().unwrap_or_default().join(",");
            match expression.operator.as_str() {
                "In" => format!("{} in ({values})", expression.key),
                "NotIn" => format!("{} notin ({values})", expression.key),
                "DoesNotExist" => format!("!{}", expression.key),
                _ => expression.key.clone(),
            }
        });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use foretide_crds::{EffectiveHorizontalPodAutoscaler, definition};
    use foretide_domain::{cron::Zone, hpa::Settings};
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::validation::{fleet, workload};

    /// A value with every field of a schema, and one item in each list.
    fn whole(schema: &Value) -> Value {
        if let Some(fields) = schema["properties"].as_object() {
            let fields = fields
                .iter()
                .map(|(name, field)| (name.clone(), whole(field)));
            return fields.collect::<Map<_, _>>().into();
        }
        match schema["type"].as_str() {
            Some("array") => json!([whole(&schema["items"])]),
            Some("integer") => json!(1),
            Some("object") => json!({"any": "label"}),
            _ => json!("1"),
        }
    }

    /// The places of the objects that have fields, as JSON pointers.
    fn places(schema: &Value, pointer: &str, found: &mut Vec<String>) {
        if let Some(fields) = schema["properties"].as_object() {
            found.push(pointer.to_owned());
            for (name, field) in fields {
                places(field, &format!("{pointer}/{name}"), found);
            }
        } else if schema["type"] == "array" {
            places(&schema["items"], &format!("{pointer}/0"), found);
        }
    }

    /// The fields of a spec that are refused because there are none of their names, for each kind.
    fn unknown(spec: &Value) -> [Vec<String>; 2] {
        let object = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec});
        let ehpa = serde_json::from_value(object.clone()).unwrap();
        let fdhpa = serde_json::from_value(object).unwrap();
        let (zone, period) = (Zone::utc(), SignedDuration::from_secs(15));
        let of_fleet = fleet(&fdhpa, &zone, period, &Settings::default()).err();
        [workload(&ehpa, &zone).err(), of_fleet].map(|invalid| {
            let violations = invalid.into_iter().flat_map(|invalid| invalid.0);
            let unknown = violations.filter(|one| one.found == "no field of autoscaling/v2");
            unknown.map(|violation| violation.field).collect()
        })
    }

    #[test]
    fn an_unknown_field_is_refused_by_name_wherever_autoscaling_v2_has_fields() {
        let crd = json!(definition::<EffectiveHorizontalPodAutoscaler>());
        let fields = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            ["properties"];
        let (metric, behavior) = (&fields["metrics"]["items"], &fields["behavior"]);
        let spec = json!({
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9,
            "metrics": [whole(metric)], "behavior": whole(behavior),
        });
        assert_eq!(unknown(&spec), [[""; 0]; 2]);
        let mut all = Vec::new();
        places(metric, "/metrics/0", &mut all);
        places(behavior, "/behavior", &mut all);
        assert_eq!(all.len(), 26, "{all:?}");
        for place in &all {
            let mut spec = spec.clone();
            spec.pointer_mut(place).unwrap()["fallback"] = json!({"replicas": 3});
            let path = place.replace("/0", "[0]").replace('/', ".");
            let field = format!("spec{path}.fallback");
            assert_eq!(unknown(&spec), [[field.clone()], [field]]);
        }
    }
}
