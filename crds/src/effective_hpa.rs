//! `EffectiveHorizontalPodAutoscaler`: autoscaling of one workload.
//!
//! crane's kind, field for field, on autoscaling/v2; fields of our own are optional additions, so
//! crane's manifests apply unchanged. The doc comments are the descriptions that
//! `kubectl explain` shows. Defaults that depend on other fields, time zones and cron
//! expressions are left to the validation of the service. The API server applies the defaults of the schema; these
//! types do not, so that an object is written back as it was read. The status is
//! [`crate::EffectiveHorizontalPodAutoscalerStatus`].

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscalerBehavior, MetricSpec,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{Algorithm, EffectiveHorizontalPodAutoscalerStatus, Passthrough, twins};

const CRON_FORM: &str = "a cron expression has five fields (minute hour day-of-month month day-of-week), such as '0 9 * * 1-5', or is one of @yearly @monthly @weekly @daily @hourly";
const CRON_EVERY: &str = "'@every' has no fixed times of day and cannot open or close a window; write five fields such as '0 */6 * * *'";

/// Desired behavior of an `EffectiveHorizontalPodAutoscaler`.
#[skip_serializing_none]
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "autoscaling.crane.io",
    version = "v1alpha1",
    kind = "EffectiveHorizontalPodAutoscaler",
    namespaced,
    status = "EffectiveHorizontalPodAutoscalerStatus",
    shortname = "ehpa",
    derive = "PartialEq",
    doc = "Scales one workload to the largest of what its observed metrics, the forecast of those metrics and its cron windows ask for.",
    printcolumn(
        name = "STRATEGY",
        type_ = "string",
        json_path = ".spec.scaleStrategy",
        description = "Auto scales the workload; Preview only shows the decision."
    ),
    printcolumn(
        name = "MINPODS",
        type_ = "integer",
        json_path = ".spec.minReplicas",
        description = "Fewest replicas."
    ),
    printcolumn(
        name = "MAXPODS",
        type_ = "integer",
        json_path = ".spec.maxReplicas",
        description = "Most replicas."
    ),
    printcolumn(
        name = "CURRENT",
        type_ = "integer",
        json_path = ".status.currentReplicas",
        description = "Replicas that run."
    ),
    printcolumn(
        name = "DESIRED",
        type_ = "integer",
        json_path = ".status.expectReplicas",
        description = "Replicas decided; Preview does not scale to them."
    ),
    printcolumn(
        name = "SPECIFICPODS",
        type_ = "integer",
        json_path = ".spec.specificReplicas",
        description = "Replicas that Preview scales to.",
        priority = 1
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(twins::BOUNDS)
        .message("minReplicas must not exceed maxReplicas; lower minReplicas or raise maxReplicas")
        .field_path(".minReplicas")
)]
pub struct EffectiveHorizontalPodAutoscalerSpec {
    /// The workload to scale: any kind with a scale subresource, in the same namespace.
    #[x_kube(validation = Rule::new(twins::TARGET)
        .message("scaleTargetRef needs the kind and the name of the workload (at most 63 and 253 characters; apiVersion at most 317), such as kind: Deployment, name: web"))]
    pub scale_target_ref: CrossVersionObjectReference,

    /// Fewest replicas. 0 allows scaling to zero, with a metric of type Object or External or a cron to scale up again; a
    /// FederatedHPA keeps one. Default 1.
    #[schemars(extend("default" = 1))]
    #[x_kube(validation = Rule::new("self >= 0")
        .message("minReplicas must be 0 or more; 0 allows scaling to zero"))]
    pub min_replicas: Option<i32>,

    /// Most replicas, also when the metrics, the forecast or a cron window require more.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 10000")
        .message("maxReplicas must be between 1 and 10000; to stop a workload scale it to 0 replicas"))]
    pub max_replicas: i32,

    /// `Auto` scales the workload. `Preview` computes and shows the decision, but scales only to `specificReplicas`,
    /// and only if that is set. A change takes effect at once. Default `Auto`.
    #[schemars(extend("default" = "Auto"))]
    pub scale_strategy: Option<ScaleStrategy>,

    /// Writer of the scale under `Auto`. `Delegated`: a HorizontalPodAutoscaler that this object owns, which continues
    /// to scale when the controller is down; its minReplicas is what forecasts and crons ask for. `Direct`: the
    /// controller itself. `Metric`: a HorizontalPodAutoscaler that this object owns, which reads forecasts and crons as
    /// External metrics from `foretide-servers adapter`, and applies its tolerance to them; not in a FederatedHPA. Default
    /// `Delegated`; `Direct` where a HorizontalPodAutoscaler cannot be used on every version of Kubernetes: with
    /// `minReplicas: 0` (except in a FederatedHPA), or, unless the mode is `Metric`, with crons and no metrics.
    pub mode: Option<Mode>,

    /// Under `Preview`, the number of replicas to scale to, kept within `minReplicas` and
    /// `maxReplicas`. If not set, `Preview` does not scale the workload.
    #[x_kube(validation = Rule::new("self >= 0")
        .message("specificReplicas must be 0 or more; leave it out to let Preview only watch"))]
    pub specific_replicas: Option<i32>,

    /// Metrics and their target values, as in an autoscaling/v2 HorizontalPodAutoscaler. The metric that requires the
    /// most replicas decides. A field that such a metric does not have is reported as `InvalidSpec`. If neither
    /// metrics nor crons are set, the target is a cpu utilization of 80 %.
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub metrics: Option<Vec<Passthrough<MetricSpec>>>,

    /// Times of the day or week at which a number of replicas is kept. Where windows overlap, the largest
    /// `targetReplicas` applies. Outside all windows, crons have no effect if there are metrics or a prediction;
    /// without these, the current number of replicas is kept.
    #[schemars(length(max = 32))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new(twins::CRON_NAMES)
            .message("each cron needs a name of its own; rename or remove the repeated one")
    )]
    pub crons: Option<Vec<CronSpec>>,

    /// Scaling policies and stabilization windows for both directions, as in an autoscaling/v2 HorizontalPodAutoscaler.
    /// A field that it does not have is reported as `InvalidSpec`.
    pub behavior: Option<Passthrough<HorizontalPodAutoscalerBehavior>>,

    /// Scales ahead of the load, by a forecast of each metric that has a history. If not set, nothing is forecast.
    pub prediction: Option<Prediction>,
}

/// Effect of the decisions on the workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum ScaleStrategy {
    /// Scale the workload.
    #[default]
    Auto,
    /// Compute and show; scale only to `specificReplicas`.
    Preview,
}

/// Writer of the scale under [`ScaleStrategy::Auto`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum Mode {
    /// A child HorizontalPodAutoscaler.
    #[default]
    Delegated,
    /// The controller.
    Direct,
    /// A child HorizontalPodAutoscaler that reads forecasts and crons as External metrics.
    Metric,
}

/// One cron window: a number of replicas, kept from each `start` to the next `end`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(twins::START_AND_END)
        .message("a cron needs start and end, such as start: '0 9 * * *' and end: '0 18 * * *'"),
    validation = Rule::new(twins::TARGET_REPLICAS)
        .message("a cron needs targetReplicas, the number of replicas to hold between start and end")
)]
pub struct CronSpec {
    /// Name of the window, shown in the status; unique within the object.
    #[schemars(length(max = 253))]
    pub name: Option<String>,

    /// Purpose of the window, as free text.
    #[schemars(length(max = 1024))]
    pub description: Option<String>,

    /// Time zone of `start` and `end`: a name of the IANA database such as `Europe/Berlin`, or
    /// `Local` for the zone the controller is configured with. Default UTC.
    #[schemars(length(max = 64))]
    pub timezone: Option<String>,

    /// Time at which the window opens, as five cron fields: minute, hour, day of month, month, day of week. `?` means `*`.
    /// Example: `0 9 * * 1-5`, weekdays at nine. If daylight saving skips the time, the window opens at the first
    /// instant after the gap; if it repeats the time, the window opens the first time.
    #[schemars(length(max = 128))]
    #[x_kube(
        validation = Rule::new(twins::NOT_EVERY).message(CRON_EVERY),
        validation = Rule::new(twins::IS_CRON).message(CRON_FORM)
    )]
    pub start: Option<String>,

    /// Time at which the window closes, in the format of `start`. It closes at the first `end` after each `start`, also on
    /// a later day. Replicas are then kept for the scale-down stabilization window (300 s unless set in `behavior`).
    #[schemars(length(max = 128))]
    #[x_kube(
        validation = Rule::new(twins::NOT_EVERY).message(CRON_EVERY),
        validation = Rule::new(twins::IS_CRON).message(CRON_FORM)
    )]
    pub end: Option<String>,

    /// Number of replicas to keep while the window is open; metrics and the prediction may require more.
    #[x_kube(validation = Rule::new("self >= 0 && self <= 10000")
        .message("targetReplicas must be between 0 and 10000"))]
    pub target_replicas: Option<i32>,
}

/// Settings of scaling ahead of the load.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(twins::ONE_QUANTILE)
        .message("quantile and maxUnderProvisionedPercent exclude each other: the second chooses the first; keep one")
)]
pub struct Prediction {
    /// Length of the window whose forecast peak is scaled for, in seconds. Used by `dsp`, `percentile` and other
    /// algorithms that forecast a path; `auto` looks ahead by `leadTimeSeconds` instead. Default 3600.
    #[schemars(extend("default" = 3600))]
    #[x_kube(validation = Rule::new("self >= 60 && self <= 604800")
        .message("predictionWindowSeconds must be between 60 and 604800 (one minute to seven days); 3600 is usual"))]
    pub prediction_window_seconds: Option<i32>,

    /// Algorithm of the forecast, and its parameters. Default `auto`.
    pub prediction_algorithm: Option<Algorithm>,

    /// Share of the time for which the forecast should cover the demand: with 0.94 the demand may exceed the forecast
    /// six minutes in a hundred (the current metrics still scale up then). A higher value costs more replicas. Default 0.94.
    #[x_kube(validation = Rule::new("double(self) >= 0.5 && double(self) <= 0.999")
        .message("quantile must be between 0.5 and 0.999; 0.94 is usual, 0.99 costs more replicas"))]
    pub quantile: Option<f64>,

    /// Time that a new replica takes from creation to ready, in seconds. If not set, it is measured from the
    /// workload's own pods; until there are any, it is 120.
    #[x_kube(validation = Rule::new("self >= 30 && self <= 1200")
        .message("leadTimeSeconds must be between 30 and 1200; leave it out to have it measured"))]
    pub lead_time_seconds: Option<i32>,

    /// Percentage of minutes that may be under-provisioned; replaces `quantile`. The quantile is then selected from
    /// the past demand and adjusted.
    #[x_kube(validation = Rule::new("double(self) > 0.0 && double(self) < 100.0")
        .message("maxUnderProvisionedPercent must be above 0 and below 100; 1 is one minute in a hundred"))]
    pub max_under_provisioned_percent: Option<f64>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::tests::ComparedRules;

    const EXAMPLES: [(&str, &str); 3] = [
        (
            "php-apache",
            include_str!("../../examples/php-apache-dsp.yaml"),
        ),
        (
            "php-apache-local",
            include_str!("../../examples/php-apache-local.yaml"),
        ),
        (
            "php-apache-multi-dimensions",
            include_str!("../../examples/php-apache-multi-dimensions.yaml"),
        ),
    ];

    /// The object of `yaml`, with members of `fragment` laid over it.
    fn merged(yaml: &str, fragment: &Value) -> Value {
        fn lay(over: &Value, on: &mut Value) {
            match (over, on) {
                (Value::Object(over), Value::Object(on)) => {
                    for (name, member) in over {
                        lay(member, on.entry(name.as_str()).or_insert(Value::Null));
                    }
                }
                (over, on) => *on = over.clone(),
            }
        }
        let mut object: Value = serde_saphyr::from_str(yaml).unwrap();
        lay(fragment, &mut object);
        object
    }

    fn read(object: &Value) -> EffectiveHorizontalPodAutoscaler {
        serde_json::from_value(object.clone()).unwrap()
    }

    #[test]
    fn every_autoscaler_under_examples_round_trips_and_is_valid() {
        let examples = ComparedRules::examples::<EffectiveHorizontalPodAutoscaler>();
        assert!(examples.len() >= EXAMPLES.len());
    }

    #[test]
    fn the_examples_have_the_intended_fields() {
        let [apache, local, multi] = EXAMPLES.map(|(_, yaml)| {
            serde_saphyr::from_str::<EffectiveHorizontalPodAutoscaler>(yaml)
                .unwrap()
                .spec
        });

        let metric = apache.metrics.as_ref().unwrap()[0].typed().unwrap();
        assert_eq!(
            metric.resource.unwrap().target.average_utilization,
            Some(50)
        );
        let algorithm = apache.prediction.unwrap().prediction_algorithm.unwrap();
        assert_eq!(algorithm.algorithm_type, Some(crate::AlgorithmType::Dsp));
        assert_eq!(algorithm.dsp.unwrap().history_length.as_deref(), Some("3d"));

        let targets: Vec<_> = local
            .crons
            .unwrap()
            .iter()
            .map(|c| c.target_replicas)
            .collect();
        assert_eq!(targets, [10, 80, 10, 80, 10, 80, 10].map(Some));
        assert_eq!((local.metrics, local.prediction), (None, None));

        assert!(multi.metrics.is_some() && multi.prediction.is_some());
        assert_eq!(multi.crons.unwrap()[0].timezone, Some("UTC".to_owned()));
    }

    #[test]
    fn unknown_fields_of_metrics_and_behavior_are_kept() {
        let object = merged(
            EXAMPLES[0].1,
            &json!({"spec": {
                "metrics": [{"type": "Resource", "fresh": 1, "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 50, "percentile": "p99"},
                }}],
                "behavior": {"scaleUp": {"tolerance": "0.05", "jitter": {"seconds": 3}}, "sideways": {}},
            }}),
        );
        assert_eq!(serde_json::to_value(read(&object)).unwrap(), object);
        assert_eq!(
            ComparedRules::of::<EffectiveHorizontalPodAutoscaler>().check(&object),
            []
        );
    }

    #[test]
    fn a_status_with_every_field_round_trips() {
        let status = json!({
            "expectReplicas": 7,
            "currentReplicas": 5,
            "lastScaleTime": "2026-03-01T10:00:00Z",
            "observedGeneration": 3,
            "decision": {
                "time": "2026-03-01T10:00:15Z",
                "currentReplicas": 5,
                "proposals": [
                    {"source": "observed", "name": "resource.cpu", "replicas": 5, "value": "50", "target": "50"},
                    {"source": "forecast", "name": "resource.cpu", "replicas": 7, "value": "1.3", "target": "0.2"},
                    {"source": "cron", "name": "night", "reason": "ZeroLength"},
                ],
                "winner": "forecast",
                "maximum": 7, "stabilized": 7, "limited": 7, "desired": 7, "floor": 7,
                "limit": "ScaleUpLimit",
                "message": "7 replicas, because the forecast of resource.cpu needs them",
            },
            "windows": [{"name": "night", "active": false, "nextTransition": "2026-03-01T22:00:00Z"}],
            "history": {
                "recommendations": [
                    {"time": "2026-03-01T10:00:00.250000Z", "lane": "observed", "replicas": 5, "mirrored": true},
                    {"time": "2026-03-01T10:00:00.250000Z", "lane": "floor", "replicas": 7},
                ],
                "events": [{"time": "2026-03-01T10:00:00.500000Z", "change": -2}],
            },
        });
        let object = merged(EXAMPLES[0].1, &json!({"status": status}));
        assert_eq!(serde_json::to_value(read(&object)).unwrap(), object);
        assert_eq!(
            ComparedRules::of::<EffectiveHorizontalPodAutoscaler>().check(&object),
            []
        );
    }

    #[test]
    fn an_object_with_an_unknown_algorithm_can_be_read() {
        let fragment =
            json!({"spec": {"prediction": {"predictionAlgorithm": {"algorithmType": "arima"}}}});
        let object = merged(EXAMPLES[0].1, &fragment);
        assert_eq!(serde_json::to_value(read(&object)).unwrap(), object);
    }
}
