//! `external.metrics.k8s.io`: metrics that belong to no object of the cluster.

use serde::Deserialize;

use super::{Amount, MetricsApi, non_empty};
use crate::{
    adapters::api_server::{CallError, query, root, segment},
    domain::observation::Unavailable,
    ports::MetricQuery,
};

#[derive(Deserialize)]
struct ValueList {
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    value: Amount,
}

// === impl MetricsApi ===

impl MetricsApi {
    /// The value of each series of an external metric.
    pub(in crate::adapters) async fn external(
        &self,
        request: &MetricQuery<'_>,
    ) -> Result<Vec<i64>, Unavailable> {
        let what = format!(
            "external metric {} in namespace {}",
            request.metric, request.namespace
        );
        let list: Result<ValueList, _> = match url(request) {
            Ok(url) => self.calls.read(&url).await,
            Err(error) => Err(error),
        };
        let items = non_empty(&what, list.map(|list| list.items.unwrap_or_default()))?;
        Ok(items
            .into_iter()
            .map(
                |Item {
                     value: Amount(milli),
                 }| milli,
            )
            .collect())
    }
}

fn url(request: &MetricQuery<'_>) -> Result<String, CallError> {
    let root = root("external.metrics.k8s.io/v1beta1")?;
    let (namespace, metric) = (segment(request.namespace)?, segment(request.metric)?);
    let selector: Vec<_> = request
        .metric_selector
        .map(|s| ("labelSelector", s))
        .into_iter()
        .collect();
    Ok(format!(
        "{root}/namespaces/{namespace}/{metric}{}",
        query(&selector)
    ))
}
