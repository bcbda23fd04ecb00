//! `custom.metrics.k8s.io`: the cpu forecast of a workload, divided over its pods.
//!
//! The shares add up to the forecast exactly, in thousandths of a core. They are of the pods that a
//! `HorizontalPodAutoscaler` counts: it multiplies their mean by their number again.

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_domain::{
    observation::Phase,
    quantity::{Format, Quantity},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{seconds, shares::shares, target::labels};
use crate::failure::Failure;
use foretide_api::ports::ListedPod;
use foretide_api::published::{EHPA_UID_LABEL, POD_CPU_METRIC, Published};

/// The metric whose forecast is divided.
const IDENTIFIER: &str = "resource.cpu";
/// The name that stands for all pods that are selected.
const ALL: &str = "*";

/// A request for the forecast by pod.
#[derive(Debug, Clone, Copy)]
pub struct PodsRequest<'a> {
    pub version: &'a str,
    pub namespace: &'a str,
    /// Name of a pod, or [`ALL`].
    pub pod: &'a str,
    /// Selects the pods of the workload.
    pub label_selector: &'a str,
    /// Selects the autoscaler.
    pub metric_label_selector: &'a str,
}

// === impl PodsRequest ===

impl PodsRequest<'_> {
    /// The UID of the autoscaler.
    pub fn autoscaler_uid(&self) -> Result<String, Failure> {
        let mut labels = labels("metricLabelSelector", self.metric_label_selector)?;
        let uid = labels.remove(EHPA_UID_LABEL);
        uid.filter(|uid| !uid.is_empty() && labels.is_empty()).ok_or_else(|| {
            Failure::bad_request(format!(
                "metricLabelSelector of {POD_CPU_METRIC} is {:?}; expected {EHPA_UID_LABEL}=UID with the UID of an \
                 EffectiveHorizontalPodAutoscaler",
                self.metric_label_selector
            ))
        })
    }

    /// The selector of the workload's pods.
    pub fn pod_selector(&self) -> Result<&str, Failure> {
        let selector = self.label_selector.trim();
        if selector.is_empty() {
            return Err(Failure::bad_request(format!(
                "labelSelector is empty; expected the selector of the pods over which {POD_CPU_METRIC} is divided, as a \
                 HorizontalPodAutoscaler sends it"
            )));
        }
        Ok(selector)
    }

    /// The list of the shares.
    pub fn list(
        &self,
        object: &EffectiveHorizontalPodAutoscaler,
        pods: &[ListedPod],
        now: Timestamp,
    ) -> Result<Value, Failure> {
        let published = Published::of(object, now);
        let forecast = published.forecast(IDENTIFIER)?;
        let at = published.decided_at()?;
        let total = forecast.total.milli_value().value;
        let mut counted: Vec<&str> = pods
            .iter()
            .filter(|pod| counts(pod))
            .map(|pod| &*pod.name)
            .collect();
        // The first pods get the larger shares, so each replica must have the pods in the same order.
        counted.sort_unstable();
        let items: Vec<Value> = counted
            .iter()
            .zip(shares(total, counted.len()))
            .filter(|(pod, _)| self.pod == ALL || self.pod == **pod)
            .map(|(pod, share)| self.item(pod, share, object, at))
            .collect();
        if items.is_empty() {
            return Err(Failure::not_found(format!(
                "no running pod {} of namespace {} matches {:?}",
                self.pod, self.namespace, self.label_selector
            )));
        }
        Ok(json!({
            "kind": "MetricValueList",
            "apiVersion": format!("custom.metrics.k8s.io/{}", self.version),
            "metadata": {},
            "items": items,
        }))
    }

    fn item(
        &self,
        pod: &str,
        share: i64,
        object: &EffectiveHorizontalPodAutoscaler,
        at: Timestamp,
    ) -> Value {
        let selector = json!({"matchLabels": {EHPA_UID_LABEL: object.metadata.uid}});
        let mut item = json!({
            "describedObject": {
                "kind": "Pod",
                "namespace": self.namespace,
                "name": pod,
                "apiVersion": "v1",
            },
            "timestamp": seconds(at),
            "value": Quantity::from_milli(share, Format::DecimalSi).to_string(),
        });
        if self.version == "v1beta1" {
            item["metricName"] = json!(POD_CPU_METRIC);
            item["selector"] = selector;
        } else {
            item["metric"] = json!({"name": POD_CPU_METRIC, "selector": selector});
        }
        item
    }
}

/// Returns whether the HPA controller counts a pod that has a metric.
fn counts(pod: &ListedPod) -> bool {
    !pod.deleting && !matches!(pod.phase, Phase::Pending | Phase::Failed | Phase::Succeeded)
}
