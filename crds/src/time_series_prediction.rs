//! `TimeSeriesPrediction`: the forecast of one workload's metrics, for display.
//!
//! crane's kind, field for field. The controller writes these objects; it does not change objects that others made, and
//! sets a condition on them. As in crane, no field of the spec is required, so objects stored by crane can be read.

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Algorithm, ForecastStatus};

/// Metrics and workload that a `TimeSeriesPrediction` forecasts.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "prediction.crane.io",
    version = "v1alpha1",
    kind = "TimeSeriesPrediction",
    namespaced,
    status = "TimeSeriesPredictionStatus",
    shortname = "tsp",
    derive = "PartialEq",
    derive = "Default",
    doc = "The forecast of one workload's metrics, or the reason why there is none. Written by the controller for every EffectiveHorizontalPodAutoscaler with a prediction.",
    printcolumn(
        name = "TargetRefName",
        type_ = "string",
        json_path = ".spec.targetRef.name",
        description = "Name of the workload."
    ),
    printcolumn(
        name = "TargetRefKind",
        type_ = "string",
        json_path = ".spec.targetRef.kind",
        description = "Kind of the workload."
    ),
    printcolumn(
        name = "PredictionWindowSeconds",
        type_ = "integer",
        json_path = ".spec.predictionWindowSeconds",
        description = "How far ahead the forecast looks."
    ),
    printcolumn(
        name = "READY",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether every metric has a forecast."
    ),
    printcolumn(
        name = "PEAK",
        type_ = "string",
        json_path = ".status.predictionMetrics[0].peak",
        description = "Highest value forecast for the first metric, in its unit, when the status was written."
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    )
)]
#[serde(rename_all = "camelCase")]
pub struct TimeSeriesPredictionSpec {
    /// The metrics to forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub prediction_metrics: Option<Vec<PredictionMetric>>,

    /// The workload that the metrics belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<ObjectReference>,

    /// Length of the window to forecast, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction_window_seconds: Option<i32>,
}

/// One metric to forecast: the query for its history, and the algorithm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictionMetric {
    /// Name of the metric within the object, such as `resource.cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_identifier: Option<String>,

    /// Query in use: `ResourceQuery`, `MetricQuery` or `ExpressionQuery`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,

    /// A resource of the workload's pods: `cpu` or `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_query: Option<String>,

    /// A metric and conditions on its labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric_query: Option<MetricQuery>,

    /// A query in the language of the metrics system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression_query: Option<ExpressionQuery>,

    /// Algorithm of the forecast, and its parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
}

/// A metric and conditions on its labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricQuery {
    /// Name of the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric_name: Option<String>,

    /// Conditions on its labels; all must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<QueryCondition>>,
}

/// A condition on one label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryCondition {
    /// Name of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,

    /// `=`, `!=`, `=~`, `!~` or `in`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,

    /// Values to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Vec<String>>,
}

/// A query in the language of the metrics system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpressionQuery {
    /// The query; for Prometheus, `PromQL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expression: Option<String>,
}

/// The forecasts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeSeriesPredictionStatus {
    /// One entry per metric of the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub prediction_metrics: Option<Vec<PredictionMetricStatus>>,

    /// `Ready`: True with reason `PredictSucceed`; False with `PredictPartial`, or `NotManaged` if
    /// the object was not made by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Option<Vec<Condition>>,
}

/// The forecast of one metric, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictionMetricStatus {
    /// Name of the metric, as in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_identifier: Option<String>,

    /// The forecast series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Vec<PredictedSeries>>,

    /// Highest value that is forecast for the prediction window, in the unit of the metric, as text. As of the last
    /// write of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<String>,

    /// True if the forecast can be used.
    pub ready: bool,

    /// Reason why there is no forecast, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Reason why there is no forecast and what to do, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Algorithm, input and accuracy of the forecast. As of the last write of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastStatus>,

    /// Query that Prometheus is asked for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// One forecast series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictedSeries {
    /// Labels that distinguish this series from others of the same metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<Label>>,

    /// The forecast, earliest sample first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Vec<PredictedSample>>,
}

/// A label of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Label {
    /// Name of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Value of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// One point of a forecast.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictedSample {
    /// Predicted value, in the unit of the metric, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,

    /// Time of the value, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,

    /// Upper bound at the configured quantile, as text; absent if the forecast is not calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<String>,
}
