//! How any object is read: its metadata, its quantities, and times that another clock can tell. It refuses to guess:
//! what cannot be read is an error that names the field.
//!
//! Times stay wall-clock times in what is stored: [`OnClock`] carries them to the controller's clock at every read, so
//! that ages go on growing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    clock::Clock,
    domain::{
        observation::Requests,
        quantity::{Quantity, QuantityError},
    },
};

/// A value with wall-clock times in it, as it looks on another clock.
pub(super) trait OnClock: Clone {
    /// The same value with its times carried over by their age.
    fn on(&self, clock: &Clock) -> Self;
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) resource_version: String,
    pub(super) generation: Option<i64>,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) creation_timestamp: Option<Timestamp>,
    pub(super) deletion_timestamp: Option<Timestamp>,
    pub(super) owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize)]
pub(super) struct Owner {
    pub(super) uid: String,
    pub(super) controller: Option<bool>,
}

/// Reads a whole object; the error names the field, as far as the parser knows it.
pub(in crate::adapters) fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| error.to_string())
}

/// Amounts by resource in milli-units; `of` says whose they are if one cannot be read.
pub(super) fn amounts(
    written: Option<BTreeMap<String, String>>,
    of: &str,
) -> Result<Requests, String> {
    let milli = |(resource, amount): (String, String)| match milli_value(&amount) {
        Ok(milli) => Ok((resource, milli)),
        Err(expected) => Err(format!("{of}.{resource}: {expected}")),
    };
    written.into_iter().flatten().map(milli).collect()
}

/// A quantity in milli-units, rounded away from zero as the HPA does; beyond an `i64`, its last value.
pub(in crate::adapters) fn milli_value(text: &str) -> Result<i64, String> {
    let quantity: Quantity = text
        .parse()
        .map_err(|error: QuantityError| error.to_string())?;
    Ok(quantity.milli_value().value)
}
