//! Wire types of Foretide's custom resources, and their generated manifests.
//!
//! Two kinds are crane's, so that crane's manifests apply unchanged:
//! [`EffectiveHorizontalPodAutoscaler`] and [`TimeSeriesPrediction`]; [`FederatedHPA`] is the first of them for
//! a fleet of clusters. This crate defines their wire format and the validation rules of the API server. What a value
//! means is left to the validation of the service. Start with `effective_hpa.rs`.
//!
//! ```
//! use foretide_crds::{EffectiveHorizontalPodAutoscaler, ScaleStrategy};
//!
//! let object: EffectiveHorizontalPodAutoscaler = serde_json::from_value(serde_json::json!({
//!     "apiVersion": "autoscaling.crane.io/v1alpha1",
//!     "kind": "EffectiveHorizontalPodAutoscaler",
//!     "metadata": { "name": "web", "namespace": "shop" },
//!     "spec": {
//!         "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
//!         "maxReplicas": 10,
//!         "scaleStrategy": "Preview",
//!     },
//! }))?;
//! assert_eq!(object.spec.scale_strategy, Some(ScaleStrategy::Preview));
//! # Ok::<(), serde_json::Error>(())
//! ```

#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each `pub` struct into a function body"
)]
#![expect(
    clippy::doc_markdown,
    reason = "kubectl explain shows the doc comments as they are"
)]
#![expect(
    clippy::duplicated_attributes,
    reason = "printer columns have types in common"
)]

mod decision;
mod effective_hpa;
mod federated_hpa;
mod fleet_status;
mod json_schema;
mod known_fields;
mod manifests;
mod passthrough;
mod rules;
mod shared;
mod sources;
mod time_series_prediction;
mod twins;

pub use decision::{
    DecisionStatus, EffectiveHorizontalPodAutoscalerStatus, ForecastStatus, HistoryStatus, Lane,
    ProposalStatus, RecommendationStatus, ReplicaChangeStatus, ScaleEventStatus, WindowStatus,
};
pub use effective_hpa::{
    CronSpec, EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerSpec, Mode,
    Prediction, ScaleStrategy,
};
pub use federated_hpa::{
    AssignmentType, ClusterAffinity, ClusterLabelSelector, DeletionPolicy, FailurePolicy,
    FederatedHPA, FederatedHPAAssignment, FederatedHPASpec, FieldSelector, MetricScope, Rebalance,
    Scope, TargetClusterAutoscalingPreference, WeightBy, WorkloadSource,
};
pub use fleet_status::{ClusterStatus, FederatedHPAStatus};
pub use json_schema::json_schema;
pub use known_fields::KnownFields;
pub use manifests::{definition, definitions, manifests, render};
pub use passthrough::Passthrough;
pub use rules::{Rules, Violation};
pub use shared::{
    Algorithm, AlgorithmType, Auto, Dsp, Estimators, FftEstimator, Histogram, MaxValueEstimator,
    Percentile, SeasonalNaive, Statistic,
};
pub use sources::properties as source_properties;
pub use time_series_prediction::{
    ExpressionQuery, Label, MetricQuery, PredictedSample, PredictedSeries, PredictionMetric,
    PredictionMetricStatus, QueryCondition, TimeSeriesPrediction, TimeSeriesPredictionSpec,
    TimeSeriesPredictionStatus,
};
