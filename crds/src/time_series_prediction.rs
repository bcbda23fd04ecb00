//! `TimeSeriesPrediction`: the forecast of one workload's metrics, for display.
//!
//! crane's kind, field for field. The controller writes these objects; it does not change objects that others made, and
//! sets a condition on them. As in crane, no field of the spec is required, so objects stored by crane can be read.

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{Algorithm, ForecastStatus};

/// Metrics and workload that a `TimeSeriesPrediction` forecasts.
#[skip_serializing_none]
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
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub prediction_metrics: Option<Vec<PredictionMetric>>,

    /// The workload that the metrics belong to.
    pub target_ref: Option<ObjectReference>,

    /// Length of the window to forecast, in seconds.
    pub prediction_window_seconds: Option<i32>,
}

/// One metric to forecast: the query for its history, and the algorithm.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictionMetric {
    /// Name of the metric within the object, such as `resource.cpu`.
    pub resource_identifier: Option<String>,

    /// Query in use: `ResourceQuery`, `MetricQuery` or `ExpressionQuery`.
    #[serde(rename = "type")]
    pub type_: Option<String>,

    /// A resource of the workload's pods: `cpu` or `memory`.
    pub resource_query: Option<String>,

    /// A metric and conditions on its labels.
    pub metric_query: Option<MetricQuery>,

    /// A query in the language of the metrics system.
    pub expression_query: Option<ExpressionQuery>,

    /// Algorithm of the forecast, and its parameters.
    pub algorithm: Option<Algorithm>,
}

/// A metric and conditions on its labels.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricQuery {
    /// Name of the metric.
    pub metric_name: Option<String>,

    /// Conditions on its labels; all must hold.
    pub labels: Option<Vec<QueryCondition>>,
}

/// A condition on one label.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryCondition {
    /// Name of the label.
    pub key: Option<String>,

    /// `=`, `!=`, `=~`, `!~` or `in`.
    pub operator: Option<String>,

    /// Values to compare with.
    pub value: Option<Vec<String>>,
}

/// A query in the language of the metrics system.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpressionQuery {
    /// The query; for Prometheus, `PromQL`.
    pub expression: Option<String>,
}

/// The forecasts.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeSeriesPredictionStatus {
    /// One entry per metric of the spec.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub prediction_metrics: Option<Vec<PredictionMetricStatus>>,

    /// `Ready`: True with reason `PredictSucceed`; False with `PredictPartial`, or `NotManaged` if
    /// the object was not made by the controller.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Option<Vec<Condition>>,
}

/// The forecast of one metric, or why there is none.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictionMetricStatus {
    /// Name of the metric, as in the spec.
    pub resource_identifier: Option<String>,

    /// The forecast series.
    pub prediction: Option<Vec<PredictedSeries>>,

    /// Highest value that is forecast for the prediction window, in the unit of the metric, as text. As of the last
    /// write of the status.
    pub peak: Option<String>,

    /// True if the forecast can be used.
    pub ready: bool,

    /// Reason why there is no forecast, in one word.
    pub reason: Option<String>,

    /// Reason why there is no forecast and what to do, as a sentence.
    pub message: Option<String>,

    /// Algorithm, input and accuracy of the forecast. As of the last write of the status.
    pub forecast: Option<ForecastStatus>,

    /// Query that Prometheus is asked for the history.
    pub query: Option<String>,
}

/// One forecast series.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictedSeries {
    /// Labels that distinguish this series from others of the same metric.
    pub labels: Option<Vec<Label>>,

    /// The forecast, earliest sample first.
    pub samples: Option<Vec<PredictedSample>>,
}

/// A label of a series.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Label {
    /// Name of the label.
    pub name: Option<String>,

    /// Value of the label.
    pub value: Option<String>,
}

/// One point of a forecast.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictedSample {
    /// Predicted value, in the unit of the metric, as text.
    pub value: Option<String>,

    /// Time of the value, in seconds since 1970.
    pub timestamp: Option<i64>,

    /// Upper bound at the configured quantile, as text; absent if the forecast is not calibrated.
    pub upper: Option<String>,
}
