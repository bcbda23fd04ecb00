//! Decoding of object metadata, quantities and label selectors.

use std::collections::BTreeMap;

use foretide_domain::{
    observation::Requests,
    quantity::{Quantity, QuantityError},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub name: String,
    pub uid: String,
    pub controller: Option<bool>,
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

/// Amounts by resource in milli-units; an error names `field`.
pub fn amounts(amounts: Option<BTreeMap<String, String>>, field: &str) -> Result<Requests, String> {
    let milli = |(resource, amount): (String, String)| match milli_value(&amount) {
        Ok(milli) => Ok((resource, milli)),
        Err(expected) => Err(format!("{field}.{resource}: {expected}")),
    };
    amounts.into_iter().flatten().map(milli).collect()
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
