//! Status of the autoscalers: the last decision, its inputs and its reasons.
//!
//! crane's fields come first and keep their meaning; the others explain the number of replicas without logs. The
//! controller writes the reasons and messages. A quantity with a unit is text, because some clients change floating
//! point numbers.

use std::collections::BTreeMap;

use foretide_domain::proposal::Source;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::sources::{ProposalSource, SourceReplicas};

/// The last decision of the controller, and its result.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveHorizontalPodAutoscalerStatus {
    /// Number of replicas that was decided, even if the workload was not scaled to it.
    pub expect_replicas: Option<i32>,

    /// Number of replicas of the workload when the decision was made.
    pub current_replicas: Option<i32>,

    /// Time at which the workload was last scaled.
    pub last_scale_time: Option<Time>,

    /// Conditions: `Ready`, `PredictionReady`, `CronReady`, `AbleToScale`, `ScalingActive`, `ScalingLimited`; for a
    /// FederatedHPA also `Assigned`, `Balanced`, `MembersReachable`, `ReplicaConflict`, `CapacityKnown`.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Option<Vec<Condition>>,

    /// Generation of the spec that this status was computed from.
    pub observed_generation: Option<i64>,

    /// The last decision with its intermediate results.
    pub decision: Option<DecisionStatus>,

    /// The cron windows and when each opens or closes next.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub windows: Option<Vec<WindowStatus>>,

    /// State that the controller restores after a restart.
    pub history: Option<HistoryStatus>,

    /// The last changes of the number of replicas, oldest first; at most ten.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub changes: Option<Vec<ReplicaChangeStatus>>,
}

impl EffectiveHorizontalPodAutoscalerStatus {
    /// Returns true if it says that zero replicas are the work of an autoscaler.
    pub fn has_own_zero(&self) -> bool {
        let history = self.history.as_ref();
        history.is_some_and(|history| history.scaled_to_zero == Some(true))
    }
}

/// One change of the number of replicas, and why it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaChangeStatus {
    /// Time at which the change was seen.
    pub time: Time,

    /// Number of replicas before.
    pub from: i32,

    /// Number of replicas after.
    pub to: i32,

    /// The sentence of the decision that made the change.
    pub message: String,
}

/// One decision: the proposals, and the steps from them to one number of replicas.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionStatus {
    /// Time of the decision.
    pub time: Option<Time>,

    /// Number of changes of the controller's leader before the one that wrote this: `leaseTransitions` of its Lease. Absent
    /// without leader election.
    pub leader_epoch: Option<i32>,

    /// Number of replicas of the workload at that time.
    pub current_replicas: Option<i32>,

    /// The proposal of each source.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub proposals: Option<Vec<ProposalStatus>>,

    /// The largest proposal of each source, in replicas.
    #[schemars(with = "Option<SourceReplicas>")]
    pub sources: Option<BTreeMap<Source, i32>>,

    /// Source of the largest proposal. Of equal ones: one of the source that won last; then one whose value asks for so
    /// many, before one that is only held there; then the first in the order of the values.
    #[schemars(with = "Option<ProposalSource>")]
    pub winner: Option<Source>,

    /// The largest proposal, in replicas.
    pub maximum: Option<i32>,

    /// Replicas after the stabilization window.
    pub stabilized: Option<i32>,

    /// Replicas after the scaling policies.
    pub limited: Option<i32>,

    /// Replicas after `minReplicas` and `maxReplicas`: the result. In mode `Metric` these are the replicas that the
    /// HorizontalPodAutoscaler comes to, by its own tolerance and limits.
    pub desired: Option<i32>,

    /// Replicas that forecast and cron windows alone require, after their own stabilization and limits. Absent in
    /// mode `Metric`, unless KEDA scales the target.
    pub floor: Option<i32>,

    /// Reason why a limit changed the result, such as `TooManyReplicas`; absent if no limit did.
    pub limit: Option<String>,

    /// The decision in one sentence.
    pub message: Option<String>,
}

/// The proposal of one source.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProposalStatus {
    /// Source of the proposal.
    #[schemars(with = "ProposalSource")]
    pub source: Source,

    /// Name of the metric, such as `resource.cpu`, or of the cron window.
    pub name: String,

    /// Number of replicas proposed; absent if the source proposes none.
    pub replicas: Option<i32>,

    /// Measured value, in the unit of the metric; of a forecast the demand that the number of replicas is for.
    pub value: Option<String>,

    /// Target value of the metric, in the same unit.
    pub target: Option<String>,

    /// Reason why the proposal is absent, or differs from what the value alone would give.
    pub reason: Option<String>,

    /// Algorithm, input and accuracy of the forecast; only for `forecast`. As of the last write of the status.
    pub forecast: Option<ForecastStatus>,

    /// Query that Prometheus is asked for the history of the forecast; only for `forecast`, also while it is absent.
    pub query: Option<String>,
}

/// Algorithm and input of a forecast, and its recent accuracy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForecastStatus {
    /// Algorithm in use, such as `auto`.
    pub algorithm: Option<String>,

    /// Quantile in use, as text: "0.9" means that the forecast should cover the demand nine times out of ten.
    pub quantile: Option<String>,

    /// Predicted peak of the total demand in the window, in the unit of the metric, as text: what charts show and other
    /// autoscalers are told.
    pub peak: Option<String>,

    /// Peak of the total demand about when a replica added now is ready, as text: a number of replicas that carries less is
    /// raised.
    pub raise: Option<String>,

    /// Peak of the total demand until then, as text: a number of replicas that carries more is lowered.
    pub hold: Option<String>,

    /// Share of the forecasts of the last three days that covered the demand, as text. It should be close to the
    /// quantile.
    pub coverage: Option<String>,

    /// Accuracy of the forecasts of the last three days, compared with repeating the current demand, as text: 0 is no
    /// better, 1 is perfect.
    pub skill: Option<String>,

    /// Share of the last day's minutes that were learned from readings of one minute, as text; the others are values of the
    /// query, which may be means over several minutes.
    pub minute_readings: Option<String>,

    /// Length of the window whose peak demand is forecast, in seconds: the lead time and one minute for `auto`.
    pub window_seconds: Option<i64>,

    /// Assumed time from adding a replica until it serves, in seconds.
    pub lead_time_seconds: Option<i64>,

    /// Source of the lead time: `spec`, `measured` (from the workload's own pods) or `default`.
    pub lead_time_source: Option<String>,

    /// Time of the first sample that the forecast uses.
    pub learnt_from: Option<Time>,

    /// End of the history that the forecast uses.
    pub known_until: Option<Time>,

    /// Remark on the forecast in one word, such as `WarmingUp`, `NoSkill` or `Censored`.
    pub remark: Option<String>,

    /// The remark as a sentence.
    pub message: Option<String>,
}

/// State of one cron window.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowStatus {
    /// Name of the cron.
    pub name: String,

    /// True while the window is open.
    pub active: bool,

    /// Time at which the window next opens or closes; absent if it never does.
    pub next_transition: Option<Time>,
}

/// Recent recommendations and scale events, which the stabilization windows and scaling policies use. Saved only with
/// other changes of the status, so it may be older than the last decision.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryStatus {
    /// Recent recommendations, oldest first.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub recommendations: Option<Vec<RecommendationStatus>>,

    /// Recent scale events, oldest first.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub events: Option<Vec<ScaleEventStatus>>,

    /// `true` if zero replicas are the work of an autoscaler, which wakes the workload. Otherwise a user has scaled it to
    /// zero, which pauses it. Saved before the workload is scaled to zero.
    pub scaled_to_zero: Option<bool>,
}

/// One past recommendation.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecommendationStatus {
    /// Time of the recommendation.
    pub time: MicroTime,

    /// Lane that made the recommendation.
    pub lane: Lane,

    /// Recommended number of replicas.
    pub replicas: i32,

    /// True if the child HorizontalPodAutoscaler can have made the same recommendation; only for `observed`.
    pub mirrored: Option<bool>,
}

/// The two calculations of the number of replicas; the larger result is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum Lane {
    /// From observed metrics.
    Observed,
    /// From forecast and cron windows.
    Floor,
}

/// One past change of the number of replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleEventStatus {
    /// Time of the change.
    pub time: MicroTime,

    /// Replicas added; negative if removed.
    pub change: i32,
}
