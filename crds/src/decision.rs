//! Status of the autoscalers: what was decided, from what, and why.
//!
//! crane's fields come first and keep their meaning; the rest answers "why this many replicas?"
//! without logs. Only facts are here: sentences and reasons are made by whoever decides. Counts
//! are what the Kubernetes API calls replicas; a quantity with a unit is text, because floating
//! point numbers do not survive every client.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the controller decided and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveHorizontalPodAutoscalerStatus {
    /// Replicas decided, whether or not anything was scaled to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_replicas: Option<i32>,

    /// Replicas that the workload had when the decision was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,

    /// When the workload was last scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Time>,

    /// `Ready`, `PredictionReady`, `CronReady`, `AbleToScale`, `ScalingActive`, `ScalingLimited`; of a fleet also
    /// `Assigned`, `Balanced`, `MembersReachable`, `ReplicaConflict`, `CapacityKnown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Option<Vec<Condition>>,

    /// Generation of the spec that this status answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The last decision with all its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionStatus>,

    /// The cron windows and their next change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub windows: Option<Vec<WindowStatus>>,

    /// What the controller must remember over a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryStatus>,
}

/// One decision: the proposals, and how they became one number of replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionStatus {
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,

    /// Replicas of the workload at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,

    /// What each source asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub proposals: Option<Vec<ProposalStatus>>,

    /// Source of the largest proposal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<ProposalSource>,

    /// The largest proposal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<i32>,

    /// After the stabilization window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stabilized: Option<i32>,

    /// After the scaling policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited: Option<i32>,

    /// After `minReplicas` and `maxReplicas`: the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,

    /// What forecast and cron windows alone ask for, after their own stabilization and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<i32>,

    /// Reason of the limit that changed the result, such as `TooManyReplicas`; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,

    /// The decision in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What one source asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProposalStatus {
    /// Where the proposal comes from.
    pub source: ProposalSource,

    /// Which metric (such as `resource.cpu`) or which cron window.
    pub name: String,

    /// Replicas asked for; absent if the source asks for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// Value measured or predicted, in the metric's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,

    /// Value to hold, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,

    /// Why the proposal is absent or not what the value alone says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// What a forecast stands on; only for `forecast`. As of the last write of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastStatus>,
}

/// What a forecast stands on: who made it from what, and how well that has gone lately.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForecastStatus {
    /// The algorithm in use, such as `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,

    /// The quantile in use, as text: "0.9" is meant to be enough nine times out of ten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<String>,

    /// The part of the last three days' forecasts that were enough, as text. Near the quantile, the
    /// forecast is honest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<String>,

    /// How much better than "it stays as it is" the last three days' forecasts were, as text: 0 is
    /// no better, 1 is perfect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,

    /// The span that is provided for, in seconds: the lead time and three minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<i64>,

    /// How long added replicas are taken to need until they serve, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead_time_seconds: Option<i64>,

    /// Where the lead time is from: `spec`, `measured` (the workload's own pods) or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead_time_source: Option<String>,

    /// The first sample that was learnt from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_from: Option<Time>,

    /// Where the history ends that the forecast knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_until: Option<Time>,

    /// What is worth knowing about the forecast, in one word, such as `WarmingUp`, `NoSkill` or
    /// `Censored`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,

    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Where a proposal comes from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum ProposalSource {
    /// A metric as it is now.
    Observed,
    /// The forecast of a metric.
    Forecast,
    /// A cron window.
    Cron,
}

/// State of one cron window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowStatus {
    /// Name of the cron.
    pub name: String,

    /// Whether the window is open.
    pub active: bool,

    /// When it next opens or closes; absent if it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_transition: Option<Time>,
}

/// What the stabilization windows and scaling policies look back on. Saved with writes that happen
/// anyway, so it may be older than the last decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryStatus {
    /// Recent recommendations, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub recommendations: Option<Vec<RecommendationStatus>>,

    /// Recent changes of the number of replicas, oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub events: Option<Vec<ScaleEventStatus>>,
}

/// One recommendation of the past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecommendationStatus {
    /// When it was made.
    pub time: MicroTime,

    /// Which of the two lanes made it.
    pub lane: Lane,

    /// The recommendation.
    pub replicas: i32,

    /// Whether the child HorizontalPodAutoscaler can have made it too; only for `observed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrored: Option<bool>,
}

/// The two ways a number of replicas is arrived at; the larger result counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::shared::leave_description_to_field)]
pub enum Lane {
    /// From observed metrics.
    Observed,
    /// From forecast and cron windows.
    Floor,
}

/// One change of the number of replicas in the past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleEventStatus {
    /// When the workload was scaled.
    pub time: MicroTime,

    /// Replicas added; negative if removed.
    pub change: i32,
}
