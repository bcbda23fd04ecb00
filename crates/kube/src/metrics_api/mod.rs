//! A client of the three metrics APIs: resource, custom and external.
//!
//! They are aggregated APIs: the API server forwards a request to a metrics server or adapter. Values become samples in
//! milli-units. Which pods count, and what a missing sample means, is left to `domain::hpa`. An empty list is an error
//! and not zero, as is every value that cannot be parsed.
//!
//! | API | file | one value per |
//! |---|---|---|
//! | `metrics.k8s.io` | `resource.rs` | container and resource |
//! | `custom.metrics.k8s.io` | `custom.rs` | pod, or object |
//! | `external.metrics.k8s.io` | `external.rs` | series |

mod custom;
mod external;
mod resource;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use foretide_domain::{
    observation::{Cause, Unavailable, stale_after},
    quantity::Quantity,
};
use jiff::{SignedDuration, Timestamp};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use tokio::sync::Mutex;

use super::api_server::{CallError, Calls, Discovery};
use foretide_base::clock::Monotonic;

/// The window of a custom metric without one, as in the HPA controller.
const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// The client of all three APIs.
#[derive(Debug)]
pub struct MetricsApi {
    calls: Arc<Calls>,
    discovery: Arc<Discovery>,
    /// The version of the custom metrics API, and the time of its discovery.
    version: Mutex<Option<(Monotonic, &'static str)>>,
}

#[derive(Deserialize)]
struct List<T> {
    items: Option<Vec<T>>,
}

/// A quantity in milli-units, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount(i64);

// === impl MetricsApi ===

impl MetricsApi {
    pub fn new(calls: Arc<Calls>, discovery: Arc<Discovery>) -> Self {
        Self {
            calls,
            discovery,
            version: Mutex::new(None),
        }
    }

    /// The age of a sample, if it is too old to count. One without a time is as new as its response.
    ///
    /// Measured by the clock of the API server, because the controller may run in another cluster.
    fn stale_age(
        &self,
        at: Option<Timestamp>,
        window: Option<SignedDuration>,
    ) -> Option<SignedDuration> {
        let ours = self.calls.clock().now();
        let now = ours.saturating_add(self.calls.clock_skew()).unwrap_or(ours);
        // An adapter in Go that sets no time may send Go's zero time, which is in the year 1.
        let age = now.duration_since(at.filter(|at| *at > Timestamp::UNIX_EPOCH)?);
        (age > stale_after(window)).then_some(age)
    }

    /// The items of the list at a URL, if there are any; `what` names them in the error.
    async fn items<T: DeserializeOwned>(
        &self,
        what: &str,
        url: Result<String, CallError>,
    ) -> Result<Vec<T>, Unavailable> {
        let read = async { self.calls.read::<List<T>>(&url?).await };
        let list = read.await.map_err(|error| {
            Unavailable::new(Cause::NotRead, format!("unable to read {what}: {error}"))
        })?;
        list.items.filter(|items| !items.is_empty()).ok_or_else(|| {
            let message = format!("the API server returned no samples of {what}");
            Unavailable::new(Cause::NoSamples, message)
        })
    }
}

// === impl Amount ===

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Wire {
            Text(String),
            // A quantity without quotes, which apimachinery's `Quantity` accepts as well.
            Number(serde_json::Number),
        }
        let quantity: Quantity = match Wire::deserialize(deserializer)? {
            Wire::Text(text) => text.parse(),
            Wire::Number(number) => number.to_string().parse(),
        }
        .map_err(D::Error::custom)?;
        Ok(Self(quantity.milli_value().value))
    }
}
