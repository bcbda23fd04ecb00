//! `external.metrics.k8s.io`: the series of a metric that belongs to no object of the cluster.

use serde::Deserialize;

use super::{Amount, MetricsApi, some};
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
    /// Every series of an external metric, not yet summed.
    pub(in crate::adapters) async fn external(
        &self,
        asked: &MetricQuery<'_>,
    ) -> Result<Vec<i64>, Unavailable> {
        let what = format!(
            "external metric {} in namespace {}",
            asked.metric, asked.namespace
        );
        let list: Result<ValueList, _> = match url(asked) {
            Ok(url) => self.calls.read(&url).await,
            Err(error) => Err(error),
        };
        let items = some(&what, list.map(|list| list.items.unwrap_or_default()))?;
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

fn url(asked: &MetricQuery<'_>) -> Result<String, CallError> {
    let root = root("external.metrics.k8s.io/v1beta1")?;
    let (namespace, metric) = (segment(asked.namespace)?, segment(asked.metric)?);
    let selector: Vec<_> = asked
        .metric_selector
        .map(|s| ("labelSelector", s))
        .into_iter()
        .collect();
    Ok(format!(
        "{root}/namespaces/{namespace}/{metric}{}",
        query(&selector)
    ))
}
