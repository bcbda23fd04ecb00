//! `external.metrics.k8s.io`: metrics that belong to no object of the cluster.

use foretide_domain::observation::Unavailable;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{Amount, MetricsApi};
use crate::api_server::{CallError, query, root, segment};
use foretide_api::ports::MetricQuery;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    timestamp: Option<Timestamp>,
    /// `window` in the API, in seconds.
    #[serde(alias = "window")]
    window_seconds: Option<i64>,
    value: Amount,
}

// === impl MetricsApi ===

impl MetricsApi {
    /// The value of each series of an external metric.
    pub async fn external(&self, request: &MetricQuery<'_>) -> Result<Vec<i64>, Unavailable> {
        let what = format!(
            "external metric {} in namespace {}",
            request.metric, request.namespace
        );
        let mut values = Vec::new();
        for item in self.items::<Item>(&what, url(request)).await? {
            let window = item.window_seconds.map(SignedDuration::from_secs);
            if let Some(age) = self.stale_age(item.timestamp, window) {
                // Without this series the sum would be a part of the total.
                return Err(Unavailable::stale(&what, age));
            }
            values.push(item.value.0);
        }
        Ok(values)
    }
}

fn url(request: &MetricQuery<'_>) -> Result<String, CallError> {
    let root = root("external.metrics.k8s.io/v1beta1")?;
    let (namespace, metric) = (segment(request.namespace)?, segment(request.metric)?);
    let selector = request.metric_selector.map(|s| ("labelSelector", s));
    let parameters = query(selector.as_slice());
    Ok(format!(
        "{root}/namespaces/{namespace}/{metric}{parameters}"
    ))
}
