//! The metrics APIs of Kubernetes, as a client: resource, custom and external.
//!
//! They are aggregated APIs: other servers answer, behind the API server's address and our credentials.
//! Answers become samples in milli-units, unsummed and unjudged: which pods count, and what a missing
//! one means, is the domain's business. An empty answer is an error, never zero; so is everything that
//! cannot be read, with the server's words.

mod custom;
mod external;
mod resource;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, de::Error as _};
use tokio::sync::Mutex;

use super::api_server::{CallError, Calls, Discovery};
use crate::{
    clock::Clock,
    domain::{
        observation::{Cause, Unavailable},
        quantity::Quantity,
    },
};

/// What a custom metric's window is taken for when the API does not say, as upstream does.
const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// The client of all three APIs.
pub(super) struct MetricsApi {
    calls: Arc<Calls>,
    discovery: Arc<Discovery>,
    clock: Clock,
    version: Mutex<Option<(Timestamp, &'static str)>>,
}

/// A quantity in milli-units, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount(i64);

// === impl MetricsApi ===

impl MetricsApi {
    pub(super) fn new(calls: Arc<Calls>, discovery: Arc<Discovery>, clock: Clock) -> Self {
        Self {
            calls,
            discovery,
            clock,
            version: Mutex::new(None),
        }
    }
}

// === impl Amount ===

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Wire {
            Text(String),
            Number(serde_json::Number),
        }
        let text = match Wire::deserialize(deserializer)? {
            Wire::Text(text) => text,
            Wire::Number(number) => number.to_string(),
        };
        let quantity: Quantity = text.parse().map_err(D::Error::custom)?;
        Ok(Self(quantity.milli_value().value))
    }
}

/// What an API answered about `what`; an empty list is no answer.
fn some<T>(what: &str, answer: Result<Vec<T>, CallError>) -> Result<Vec<T>, Unavailable> {
    let items = answer.map_err(|error| {
        Unavailable::new(Cause::NotRead, format!("unable to read {what}: {error}"))
    })?;
    if items.is_empty() {
        let message = format!("the API server returned no samples of {what}");
        return Err(Unavailable::new(Cause::NoSamples, message));
    }
    Ok(items)
}
