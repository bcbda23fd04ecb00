//! The back-tests of a Lab, as a page asks for them.

use foretide_crds::AlgorithmType;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A back-test, as a person describes it in a page: `POST lab/v1/experiments`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Experiment {
    /// YAML or JSON of the autoscaler, and of its workload if available, as the files of `-f`.
    pub manifests: Vec<NamedText>,
    /// Name of the autoscaler, if there are several.
    #[serde(default)]
    pub name: Option<String>,
    /// Histories, as the files of `--csv`.
    pub histories: Vec<MetricHistory>,
    /// The zone of times without one, such as `Europe/Berlin`.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// The zone of the times of the chart; by default UTC.
    #[serde(default)]
    pub shown_in: Option<String>,
    /// Resource requests of a pod that no manifest sets, such as `cpu=200m`.
    #[serde(default)]
    pub requests: Vec<String>,
    /// Differences from the manifest.
    #[serde(default)]
    pub changes: Changes,
    /// Start of the evaluation; earlier samples only train the forecaster.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub from: Option<Timestamp>,
    /// Part that only trains the forecaster, such as `3d`; instead of `from`.
    #[serde(default)]
    pub warm_up: Option<String>,
    /// End of the evaluation.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub until: Option<Timestamp>,
    /// Time from requesting a pod until it serves, such as `90s`.
    #[serde(default)]
    pub start_up: Option<String>,
    /// Quantiles of a sweep; none for no sweep.
    #[serde(default)]
    pub sweep: Vec<f64>,
}

/// A text with the name that messages call it by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamedText {
    /// Name of the file that it was in.
    pub name: String,
    /// Content of the file.
    pub text: String,
}

/// The history of one metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricHistory {
    /// Identifier of the metric, such as `resource.cpu`; by default the first one of the autoscaler.
    #[serde(default)]
    pub metric: Option<String>,
    /// Name of the file that it was in.
    pub name: String,
    /// Lines of timestamp,value, or the JSON of a range query.
    pub text: String,
}

/// Fields of the spec to be set; what is absent or `null` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Changes {
    /// `minReplicas`.
    #[serde(default)]
    pub min_replicas: Option<i32>,
    /// `maxReplicas`.
    #[serde(default)]
    pub max_replicas: Option<i32>,
    /// `prediction.quantile`; replaces `prediction.maxUnderProvisionedPercent`.
    #[serde(default)]
    pub quantile: Option<f64>,
    /// `prediction.leadTimeSeconds`.
    #[serde(default)]
    pub lead_time_seconds: Option<i32>,
    /// `prediction.predictionAlgorithm.algorithmType`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub algorithm: Option<AlgorithmType>,
}

/// An experiment that begins, of `POST lab/v1/experiments`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExperimentId {
    /// Identifier of the experiment in paths.
    pub id: String,
}
