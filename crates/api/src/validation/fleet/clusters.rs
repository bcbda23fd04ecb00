//! Converts cluster affinities and tolerations. A selector that cannot be parsed is a violation, never an empty match.

use foretide_crds::{ClusterAffinity, ClusterLabelSelector, FieldSelector};
use foretide_domain::Requirement;
use foretide_federate::{Affinity, TaintEffect, Toleration};
use k8s_openapi::{
    api::core::v1::Toleration as WireToleration,
    apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement,
};

use super::super::Violation;

/// The keys of a field selector.
const FIELDS: [&str; 3] = ["provider", "region", "zone"];

/// Converts one affinity and collects its violations.
pub(super) struct AffinityConverter<'a> {
    field: String,
    violations: &'a mut Vec<Violation>,
}

// === impl AffinityConverter ===

impl<'a> AffinityConverter<'a> {
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
        let mut all = Vec::new();
        for (key, value) in wire.match_labels.iter().flatten() {
            all.push(Requirement::In(key.clone(), vec![value.clone()]));
        }
        for (position, expression) in wire.match_expressions.iter().flatten().enumerate() {
            all.extend(self.requirement("labelSelector", position, expression));
        }
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
            // With an unknown key too, so that a wrong operator of the same entry is listed as well.
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
            ("DoesNotExist", []) => return Some(Requirement::DoesNotExist(key)),
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

/// Converts the tolerations that are valid, and collects a violation for each of the others.
pub(super) fn tolerations(
    wire: Option<&[WireToleration]>,
    violations: &mut Vec<Violation>,
) -> Vec<Toleration> {
    let mut read = Vec::new();
    for (position, wire) in wire.unwrap_or_default().iter().enumerate() {
        match toleration(&format!("spec.clusterTolerations[{position}]"), wire) {
            Ok(toleration) => read.push(toleration),
            Err(violation) => violations.push(violation),
        }
    }
    read
}

fn toleration(field: &str, wire: &WireToleration) -> Result<Toleration, Violation> {
    let key = wire.key.clone().filter(|key| !key.is_empty());
    let value = wire.value.clone().unwrap_or_default();
    let value = match wire.operator.as_deref().unwrap_or_default() {
        "Exists" if value.is_empty() => None,
        "Exists" => {
            let expected = "none, because the operator is Exists";
            return refused(field, "value", value, expected);
        }
        // As the API server validates tolerations: an empty key stands for all keys, which only Exists can match.
        "Equal" | "" if key.is_none() => {
            let expected = "Exists, because there is no key";
            return refused(field, "operator", "Equal".to_owned(), expected);
        }
        "Equal" | "" => Some(value),
        other => return refused(field, "operator", other.to_owned(), "Equal or Exists"),
    };
    let effect = match wire.effect.as_deref().unwrap_or_default() {
        "" => None,
        text => {
            let Ok(effect) = text.parse::<TaintEffect>() else {
                let expected = "NoSchedule, PreferNoSchedule or NoExecute";
                return refused(field, "effect", text.to_owned(), expected);
            };
            Some(effect)
        }
    };
    // Also as the API server does: only a NoExecute taint evicts, and the seconds delay the eviction.
    if let Some(seconds) = wire.toleration_seconds
        && effect != Some(TaintEffect::NoExecute)
    {
        let expected = "none, because it applies to the effect NoExecute only";
        return refused(field, "tolerationSeconds", seconds.to_string(), expected);
    }
    Ok(Toleration {
        key,
        value,
        effect,
        seconds: wire.toleration_seconds,
    })
}

fn refused(
    field: &str,
    part: &str,
    found: String,
    expected: &str,
) -> Result<Toleration, Violation> {
    Err(Violation::new(format!("{field}.{part}"), found, expected))
}
