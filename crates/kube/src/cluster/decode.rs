//! Decoding of object metadata, quantities and label selectors.

use std::collections::BTreeMap;

use foretide_domain::{
    observation::Requests,
    quantity::{Quantity, QuantityError},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::core::Selector;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// The metadata fields that are read from watched objects. `ObjectMeta` would also decode and allocate all others, for
/// every pod of a cluster.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    #[serde(default)]
    pub namespace: String,
    pub name: String,
    #[serde(default)]
    pub uid: String,
    #[serde(default)]
    pub resource_version: String,
    pub generation: Option<i64>,
    pub labels: Option<BTreeMap<String, String>>,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub owner_references: Option<Vec<OwnerReference>>,
}

/// The conditions in the status of an object.
#[derive(Deserialize)]
pub struct Conditions(Vec<Condition>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    kind: String,
    pub status: String,
    pub reason: Option<String>,
    last_transition_time: Option<Timestamp>,
}

// === impl Conditions ===

impl Conditions {
    /// The condition of this kind.
    pub fn of(&self, kind: &str) -> Option<&Condition> {
        self.0.iter().find(|condition| condition.kind == kind)
    }

    /// The condition of this kind, if it has this status.
    pub fn with_status(self, kind: &str, status: &str) -> Option<Condition> {
        self.0
            .into_iter()
            .find(|it| it.kind == kind && it.status == status)
    }
}

// === impl Condition ===

impl Condition {
    /// Time of the last transition; without one, the condition counts as old.
    pub fn since(&self) -> Timestamp {
        self.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

// === impl Meta ===

impl Meta {
    /// Takes the owner that manages the object.
    pub fn take_controller(&mut self) -> Option<OwnerReference> {
        let owners = self.owner_references.take()?;
        owners.into_iter().find(|it| it.controller == Some(true))
    }
}

/// Decodes an object; the error names the field if the parser knows it.
pub fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}

/// The text form of a `LabelSelector`; the error names an unknown operator.
pub fn selector_text(selector: LabelSelector) -> Result<String, String> {
    Selector::try_from(selector)
        .map(|selector| selector.to_string())
        .map_err(|error| format!("{error}; expected the operators In, NotIn, Exists, DoesNotExist"))
}

/// The text at a JSON pointer; empty without one.
pub fn text_at<'a>(value: &'a Value, at: &str) -> &'a str {
    value
        .pointer(at)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Amounts by resource in milli-units; an error begins with the `field` of the resource.
pub fn amounts(
    amounts: Option<BTreeMap<String, String>>,
    field: impl Fn(&str) -> String,
) -> Result<Requests, String> {
    amounts
        .into_iter()
        .flatten()
        .map(|(resource, amount)| match milli_value(&amount) {
            Ok(milli) => Ok((resource, milli)),
            Err(expected) => Err(format!("{}: {expected}", field(&resource))),
        })
        .collect()
}

/// A quantity in milli-units, rounded away from zero as in the HPA controller; saturates at the limits of `i64`.
pub fn milli_value(text: &str) -> Result<i64, String> {
    let quantity: Quantity = text
        .parse()
        .map_err(|error: QuantityError| error.to_string())?;
    Ok(quantity.milli_value().value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_selector_has_a_text_form_with_the_same_meaning() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]},
                {"key": "track", "operator": "NotIn", "values": ["canary"]},
                {"key": "x", "operator": "Exists"},
                {"key": "y", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        let text = selector_text(selector).unwrap();
        assert_eq!(text, "app=web,tier in (a,b),track notin (canary),x,!y");
        let parsed: foretide_domain::Selector = text.parse().unwrap();
        assert_eq!(parsed.requirements().len(), 5);
    }
}
