//! `external.metrics.k8s.io`: the forecasts and the cron count of an autoscaler.

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    seconds,
    target::{RESOURCE_IDENTIFIER, TARGET_KIND, TARGET_NAME, TARGET_NAMESPACE, TargetSelector},
};
use crate::failure::Failure;
use foretide_api::published::{CRON_IDENTIFIER, CRON_METRIC, PREDICTION_METRIC, Published};

/// Our external metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExternalMetric {
    Prediction,
    Cron,
}

// === impl ExternalMetric ===

impl ExternalMetric {
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            PREDICTION_METRIC => Some(Self::Prediction),
            CRON_METRIC => Some(Self::Cron),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Prediction => PREDICTION_METRIC,
            Self::Cron => CRON_METRIC,
        }
    }

    /// Exact current value of the metric.
    fn value(self, identifier: &str, published: &Published<'_>) -> Result<String, Failure> {
        match self {
            Self::Prediction => Ok(published.forecast(identifier)?.total.to_string()),
            Self::Cron if identifier == CRON_IDENTIFIER => Ok(published.cron()?.to_string()),
            Self::Cron => Err(Failure::bad_request(format!(
                "labelSelector of {CRON_METRIC} has {RESOURCE_IDENTIFIER}={identifier}; expected {RESOURCE_IDENTIFIER}={CRON_IDENTIFIER}"
            ))),
        }
    }

    /// The list with the only series of the metric.
    pub fn list(
        self,
        target: &TargetSelector,
        object: &EffectiveHorizontalPodAutoscaler,
        now: Timestamp,
    ) -> Result<Value, Failure> {
        let published = Published::of(object, now);
        let value = self.value(&target.identifier, &published)?;
        Ok(json!({
            "kind": "ExternalMetricValueList",
            "apiVersion": "external.metrics.k8s.io/v1beta1",
            "metadata": {},
            "items": [{
                "metricName": self.name(),
                "metricLabels": {
                    TARGET_KIND: target.kind,
                    TARGET_NAME: target.name,
                    TARGET_NAMESPACE: object.metadata.namespace,
                    RESOURCE_IDENTIFIER: target.identifier,
                },
                "timestamp": seconds(published.decided_at()?),
                "value": value,
            }],
        }))
    }
}
