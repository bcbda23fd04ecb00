//! Choices of clusters and tolerations of their taints: from wire types to the domain's.
//!
//! A selector that cannot be read is a violation and never matches nothing in silence.

use foretide_crds::{ClusterAffinity, ClusterLabelSelector, FieldSelector};
use k8s_openapi::{
    api::core::v1::Toleration as WireToleration,
    apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement,
};

use super::super::Violation;
use crate::domain::{
    Requirement,
    federate::{Affinity, TaintEffect, Toleration},
};

/// What a field selector may ask about.
const FIELDS: [&str; 3] = ["provider", "region", "zone"];

/// Reads one choice of clusters, noting what it cannot.
pub(super) struct Reader<'a> {
    field: String,
    violations: &'a mut Vec<Violation>,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(super) fn new(field: &str, violations: &'a mut Vec<Violation>) -> Self {
        Self {
            field: field.to_owned(),
            violations,
        }
    }

    pub(super) fn affinity(&mut self, wire: &ClusterAffinity) -> Affinity {
        let labels = wire.label_selector.as_ref();
        let fields = wire.field_selector.as_ref();
        Affinity {
            names: wire.cluster_names.clone().unwrap_or_default(),
            exclude: wire.exclude.clone().unwrap_or_default(),
            labels: labels
                .map(|labels| self.labels(labels))
                .unwrap_or_default()
                .into_iter()
                .collect(),
            fields: fields.map(|fields| self.fields(fields)).unwrap_or_default(),
        }
    }

    fn labels(&mut self, wire: &ClusterLabelSelector) -> Vec<Requirement> {
        let equal = wire.match_labels.iter().flatten();
        let equal = equal.map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()]));
        let mut all: Vec<_> = equal.collect();
        let expressions = wire.match_expressions.iter().flatten().enumerate();
        all.extend(expressions.filter_map(|(position, expression)| {
            self.requirement("labelSelector", position, expression)
        }));
        all
    }

    fn fields(&mut self, wire: &FieldSelector) -> Vec<Requirement> {
        let mut all = Vec::new();
        for (position, expression) in wire.match_expressions.iter().flatten().enumerate() {
            if !FIELDS.contains(&expression.key.as_str()) {
                self.violations.push(Violation::new(
                    format!(
                        "{}.fieldSelector.matchExpressions[{position}].key",
                        self.field
                    ),
                    expression.key.as_str(),
                    "provider, region or zone (for anything else use labelSelector)",
                ));
            }
            all.extend(self.requirement("fieldSelector", position, expression));
        }
        all
    }

    fn requirement(
        &mut self,
        selector: &str,
        position: usize,
        wire: &LabelSelectorRequirement,
    ) -> Option<Requirement> {
        let key = wire.key.clone();
        let values = wire.values.clone().unwrap_or_default();
        let (part, found, expected) = match (wire.operator.as_str(), values.as_slice()) {
            ("In", [_, ..]) => return Some(Requirement::In(key, values)),
            ("NotIn", [_, ..]) => return Some(Requirement::NotIn(key, values)),
            ("Exists", []) => return Some(Requirement::Exists(key)),
            ("DoesNotExist", []) => return Some(Requirement::Absent(key)),
            ("In" | "NotIn", []) => ("values", "empty".to_owned(), "at least one value"),
            ("Exists" | "DoesNotExist", values) => {
                let expected = "none, because the operator takes none";
                ("values", values.join(", "), expected)
            }
            (other, _) => (
                "operator",
                other.to_owned(),
                "In, NotIn, Exists or DoesNotExist",
            ),
        };
        let field = format!(
            "{}.{selector}.matchExpressions[{position}].{part}",
            self.field
        );
        self.violations.push(Violation::new(field, found, expected));
        None
    }
}

/// The tolerations that can be read; a violation for each that cannot.
pub(super) fn tolerations(
    wire: Option<&[WireToleration]>,
    violations: &mut Vec<Violation>,
) -> Vec<Toleration> {
    let each = wire.unwrap_or_default().iter().enumerate();
    let each = each.filter_map(|(position, wire)| match toleration(wire) {
        Ok(read) => Some(read),
        Err((part, found, expected)) => {
            let field = format!("spec.clusterTolerations[{position}].{part}");
            violations.push(Violation::new(field, found, expected));
            None
        }
    });
    each.collect()
}

/// A member of a toleration, what stands there, and what is expected.
type Fault = (&'static str, String, &'static str);

fn toleration(wire: &WireToleration) -> Result<Toleration, Fault> {
    let key = wire.key.clone().filter(|key| !key.is_empty());
    let value = wire.value.clone().unwrap_or_default();
    let value = match wire.operator.as_deref().unwrap_or_default() {
        "Exists" if value.is_empty() => None,
        "Exists" => return Err(("value", value, "none, because the operator is Exists")),
        "Equal" | "" if key.is_none() => {
            let expected = "Exists, because there is no key";
            return Err(("operator", "Equal".to_owned(), expected));
        }
        "Equal" | "" => Some(value),
        other => return Err(("operator", other.to_owned(), "Equal or Exists")),
    };
    let effect = effect(wire.effect.as_deref().unwrap_or_default())?;
    if let Some(seconds) = wire.toleration_seconds
        && effect != Some(TaintEffect::NoExecute)
    {
        let expected = "none, because only the effect NoExecute ends";
        return Err(("tolerationSeconds", seconds.to_string(), expected));
    }
    Ok(Toleration {
        key,
        value,
        effect,
        seconds: wire.toleration_seconds,
    })
}

fn effect(text: &str) -> Result<Option<TaintEffect>, Fault> {
    Ok(Some(match text {
        "" => return Ok(None),
        other => other.parse().map_err(|_| {
            let expected = "NoSchedule, PreferNoSchedule or NoExecute";
            ("effect", other.to_owned(), expected)
        })?,
    }))
}
