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

use crate::sources::{ProposalSource, SourceReplicas};

/// The last decision of the controller, and its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveHorizontalPodAutoscalerStatus {
    /// Number of replicas that was decided, even if the workload was not scaled to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_replicas: Option<i32>,

    /// Number of replicas of the workload when the decision was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,

    /// Time at which the workload was last scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,

    /// Conditions: `Ready`, `PredictionReady`, `CronReady`, `AbleToScale`, `ScalingActive`, `ScalingLimited`; for a
    /// FederatedHPA also `Assigned`, `Balanced`, `MembersReachable`, `ReplicaConflict`, `CapacityKnown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Option<Vec<Condition>>,

    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The last decision with its intermediate results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionStatus>,

    /// The cron windows and when each opens or closes next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub windows: Option<Vec<WindowStatus>>,

    /// State that the controller restores after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryStatus>,

    /// The last changes of the number of replicas, oldest first; at most ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionStatus {
    /// Time of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,

    /// Number of changes of the controller's leader before the one that wrote this: `leaseTransitions` of its Lease. Absent
    /// without leader election.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_epoch: Option<i32>,

    /// Number of replicas of the workload at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,

    /// The proposal of each source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub proposals: Option<Vec<ProposalStatus>>,

    /// The largest proposal of each source, in replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<SourceReplicas>")]
    pub sources: Option<BTreeMap<Source, i32>>,

    /// Source of the largest proposal. Of equal ones: one of the source that won last; then one whose value asks for so
    /// many, before one that is only held there; then the first in the order observed, forecast, cron.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProposalSource>")]
    pub winner: Option<Source>,

    /// The largest proposal, in replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<i32>,

    /// Replicas after the stabilization window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stabilized: Option<i32>,

    /// Replicas after the scaling policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<i32>,

    /// Replicas after `minReplicas` and `maxReplicas`: the result. In mode `Metric` these are the replicas that the
    /// HorizontalPodAutoscaler comes to, by its own tolerance and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,

    /// Replicas that forecast and cron windows alone require, after their own stabilization and limits. Absent in
    /// mode `Metric`, unless KEDA scales the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<i32>,

    /// Reason why a limit changed the result, such as `TooManyReplicas`; absent if no limit did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,

    /// The decision in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The proposal of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProposalStatus {
    /// Source of the proposal.
    #[schemars(with = "ProposalSource")]
    pub source: Source,

    /// Name of the metric, such as `resource.cpu`, or of the cron window.
    pub name: String,

    /// Number of replicas proposed; absent if the source proposes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// Measured value, in the unit of the metric; of a forecast the demand that the number of replicas is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,

    /// Target value of the metric, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,

    /// Reason why the proposal is absent, or differs from what the value alone would give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Algorithm, input and accuracy of the forecast; only for `forecast`. As of the last write of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastStatus>,

    /// Query that Prometheus is asked for the history of the forecast; only for `forecast`, also while it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// Algorithm and input of a forecast, and its recent accuracy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForecastStatus {
    /// Algorithm in use, such as `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,

    /// Quantile in use, as text: "0.9" means that the forecast should cover the demand nine times out of ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<String>,

    /// Predicted peak of the total demand in the window, in the unit of the metric, as text: what charts show and other
    /// autoscalers are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<String>,

    /// Peak of the total demand about when a replica added now is ready, as text: a number of replicas that carries less is
    /// raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raise: Option<String>,

    /// Peak of the total demand until then, as text: a number of replicas that carries more is lowered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,

    /// Share of the forecasts of the last three days that covered the demand, as text. It should be close to the
    /// quantile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<String>,

    /// Accuracy of the forecasts of the last three days, compared with repeating the current demand, as text: 0 is no
    /// better, 1 is perfect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,

    /// Share of the last day's minutes that were learned from readings of one minute, as text; the others are values of the
    /// query, which may be means over several minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minute_readings: Option<String>,

    /// Length of the window whose peak demand is forecast, in seconds: the lead time and one minute for `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<i64>,

    /// Assumed time from adding a replica until it serves, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead_time_seconds: Option<i64>,

    /// Source of the lead time: `spec`, `measured` (from the workload's own pods) or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead_time_source: Option<String>,

    /// Time of the first sample that the forecast uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_from: Option<Time>,

    /// End of the history that the forecast uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_until: Option<Time>,

    /// Remark on the forecast in one word, such as `WarmingUp`, `NoSkill` or `Censored`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,

    /// The remark as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// State of one cron window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowStatus {
    /// Name of the cron.
    pub name: String,

    /// True while the window is open.
    pub active: bool,

    /// Time at which the window next opens or closes; absent if it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_transition: Option<Time>,
}

/// Recent recommendations and scale events, which the stabilization windows and scaling policies use. Saved only with
/// other changes of the status, so it may be older than the last decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryStatus {
    /// Recent recommendations, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub recommendations: Option<Vec<RecommendationStatus>>,

    /// Recent scale events, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub events: Option<Vec<ScaleEventStatus>>,

    /// `true` if zero replicas are the work of an autoscaler, which wakes the workload. Otherwise a user has scaled it to
    /// zero, which pauses it. Saved before the workload is scaled to zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_to_zero: Option<bool>,
}

/// One past recommendation.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
