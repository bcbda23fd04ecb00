//! Readings of an autoscaler by an HPA of another owner on the same target: the metrics that it publishes, or its floor
//! through a trigger of KEDA.
//!
//! Pure. KEDA makes an HPA from each `ScaledObject` and owns it, and the names of its metrics are those of the
//! triggers, so KEDA's own API is read for a pause only (`KedaPause`).

use foretide_domain::{api_group, hpa::MetricSpec};

use super::{part::Part, related_hpas::RelatedHpas};
use foretide_api::ports::HpaView;
use foretide_api::{
    ownership::OwnerKind,
    published::{
        CRON_METRIC, KEDA_ADDRESS, KEDA_AUTOSCALER, KedaSource, POD_CPU_METRIC, PREDICTION_METRIC,
        is_of_keda_trigger, keda_metric_name, label_value,
    },
};

/// KEDA's API group.
const KEDA_GROUP: &str = "keda.sh";
/// The kind that KEDA makes HPAs from.
const SCALED_OBJECT: &str = "ScaledObject";

/// A trigger of a `ScaledObject` that reads an autoscaler of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KedaTrigger<'a> {
    /// Name of the `ScaledObject`.
    pub scaled_object: &'a str,
    /// Name of the metric that KEDA gave it.
    pub metric: &'a str,
}

// === impl Part ===

impl Part {
    /// The trigger through which KEDA scales the target by what this autoscaler publishes, if there is one.
    pub fn keda_trigger<'a>(&self, hpas: &'a RelatedHpas) -> Option<KedaTrigger<'a>> {
        let hpa = hpas.foreign.as_deref()?;
        // The KEDA scaler reads no fleets.
        let is_readable = self.owner.kind == OwnerKind::Effective && self.conflicts.older.is_none();
        let scaled_object = scaled_object(hpa).filter(|_| is_readable)?;
        let ours = self.keda_metrics();
        let metric = metric_names(hpa, "external")
            .find(|name| ours.iter().any(|ours| is_of_keda_trigger(name, ours)))?;
        Some(KedaTrigger {
            scaled_object,
            metric,
        })
    }

    /// The names of the metrics that triggers for this autoscaler have.
    fn keda_metrics(&self) -> Vec<String> {
        let name = self.autoscaler.name();
        let mut names: Vec<_> = [KedaSource::Floor, KedaSource::Cron]
            .map(|source| keda_metric_name(source, name, None))
            .into();
        for metric in self.workload.metrics.iter().map(MetricSpec::identifier) {
            // A trigger may name a metric in either spelling.
            names.extend(
                [label_value(&metric), metric]
                    .map(|metric| keda_metric_name(KedaSource::Forecast, name, Some(&metric))),
            );
        }
        names
    }
}

/// Name of the `ScaledObject` that an HPA was made from, if it was.
pub fn scaled_object(hpa: &HpaView) -> Option<&str> {
    let controller = hpa
        .controller
        .as_ref()
        .filter(|it| it.kind == SCALED_OBJECT)?;
    (api_group(&controller.api_version) == KEDA_GROUP).then_some(&*controller.name)
}

/// The trigger to add to a `ScaledObject`, so that it keeps the target at the floor of this autoscaler. It lacks the
/// reference to a `TriggerAuthentication`, whose name is the user's choice.
pub fn trigger_to_add(autoscaler: &str) -> String {
    format!(
        "{{type: external, metadata: {{scalerAddress: \"{KEDA_ADDRESS}\", enableTLS: \"true\", {KEDA_AUTOSCALER}: \
         {autoscaler}}}}}"
    )
}

/// True if an HPA has one of the metrics that the metric adapter serves.
pub fn reads_published_metrics(hpa: &HpaView) -> bool {
    metric_names(hpa, "external").any(|name| [PREDICTION_METRIC, CRON_METRIC].contains(&name))
        || metric_names(hpa, "pods").any(|name| name == POD_CPU_METRIC)
}

/// The names of an HPA's metrics of one type.
fn metric_names<'a>(hpa: &'a HpaView, block: &'a str) -> impl Iterator<Item = &'a str> {
    let metrics = hpa.spec["metrics"].as_array().into_iter().flatten();
    metrics.filter_map(move |metric| metric.get(block)?.pointer("/metric/name")?.as_str())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::{Value, json};

    use super::*;
    use crate::child_hpa::tests::{child, stored};

    fn hpa(api_version: &str, kind: &str, metrics: &Value) -> HpaView {
        let mut hpa = stored(&child(None));
        hpa.controller = Some(OwnerReference {
            uid: "k".into(),
            api_version: api_version.into(),
            kind: kind.into(),
            name: "web-so".into(),
            ..OwnerReference::default()
        });
        hpa.spec["metrics"] = metrics.clone();
        hpa
    }

    #[test]
    fn an_hpa_of_keda_is_known_by_its_controller() {
        for (api_version, kind, found) in [
            ("keda.sh/v1alpha1", "ScaledObject", Some("web-so")),
            ("keda.sh/v2", "ScaledObject", Some("web-so")),
            ("keda.sh/v1alpha1", "ScaledJob", None),
            ("example.org/v1", "ScaledObject", None),
            ("ScaledObject", "ScaledObject", None),
        ] {
            let hpa = hpa(api_version, kind, &json!([]));
            assert_eq!(scaled_object(&hpa), found, "{api_version} {kind}");
        }
        assert_eq!(scaled_object(&stored(&child(None))), None);
    }

    #[test]
    fn the_trigger_to_add_has_all_metadata_that_a_default_installation_needs() {
        assert_eq!(
            trigger_to_add("web"),
            "{type: external, metadata: {scalerAddress: \"foretide-keda-scaler.foretide-system.svc:9000\", \
             enableTLS: \"true\", autoscaler: web}}"
        );
    }

    #[test]
    fn the_metrics_of_the_adapter_are_known_by_type_and_name() {
        let metric = |kind: &str, block: &str, name: &str| json!([{"type": kind, block: {"metric": {"name": name}}}]);
        for (metrics, reads) in [
            (
                metric("External", "external", "crane_autoscaling_prediction"),
                true,
            ),
            (
                metric("External", "external", "crane_autoscaling_cron"),
                true,
            ),
            (metric("Pods", "pods", "crane_pod_cpu_usage"), true),
            (metric("Pods", "pods", "crane_autoscaling_cron"), false),
            (metric("External", "external", "queue"), false),
            (json!([]), false),
            (Value::Null, false),
        ] {
            let hpa = hpa("v1", "X", &metrics);
            assert_eq!(reads_published_metrics(&hpa), reads, "{metrics}");
        }
    }
}
