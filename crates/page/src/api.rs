//! The answers of the API that the page reads, as plain data. `docs/schema/page.openapi.json` is made from these types
//! and from [`crate::http`]'s routes.
//!
//! Instants are RFC 3339 in UTC, or seconds since 1970 where a list has thousands of them. Counts are replicas. What is
//! not known is absent, or `null` in a column.

mod experiment;

use std::{borrow::Cow, collections::BTreeMap};

pub use self::experiment::{Changes, Experiment, ExperimentId, MetricHistory, NamedText};
use foretide_crds::{
    ClusterStatus, DecisionStatus, Mode, ReplicaChangeStatus, ScaleStrategy, WindowStatus,
    source_properties,
};
use foretide_domain::proposal::Source;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, IntoDeserializer as _, value},
};
use serde_with::skip_serializing_none;

/// State of an autoscaler, worst first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Word {
    /// Fewer replicas serve than its demand needs now.
    Short,
    /// Unable to act: `Ready` is False for another reason than a conflict.
    Unready,
    /// Another autoscaler or writer sets the same replicas.
    Conflict,
    /// `maxReplicas`, or what clusters can take, is below the highest proposal.
    Capped,
    /// A forecast or a cron is configured and not used, or a metric cannot be read.
    Untrusted,
    /// No problem.
    Fine,
}

/// Identity of an autoscaler: the plural name of its resource, its namespace and its name.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ObjectKey {
    /// `effectivehorizontalpodautoscalers` or `federatedhpas`.
    pub resource: String,
    /// Namespace of the autoscaler.
    pub namespace: String,
    /// Name of the autoscaler.
    pub name: String,
}

/// `GET api/v1/overview`: what this process is, and how fresh its data are.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Foretide's version.
    pub version: String,
    /// The time of the process; in a demo that of the simulation.
    pub now: String,
    /// Seconds of `now` that pass per second of real time: 1, or more in a demo.
    pub speed: f64,
    /// `cluster` or `demo`.
    pub source: String,
    /// True if this process leads. A standby decides nothing, so its page is empty.
    pub leads: bool,
    /// Identity of the leader, as the lease names it.
    pub leader: Option<String>,
    /// The name of the reader; absent where no token is asked for.
    pub reader: Option<String>,
    /// The namespaces that the reader may see; absent if all.
    pub namespaces: Option<Vec<String>>,
    /// Number of further namespaces for which the rights of the reader could not be reviewed; absent if none.
    pub unreviewed_namespaces: Option<usize>,
    /// True if the Lab can be used here: it computes beside the reader, never in the controller.
    pub lab: bool,
    /// The oldest minute that is kept of any autoscaler.
    pub recorded_since: Option<String>,
    /// Reason in words for which nothing older is kept.
    pub memory: String,
}

/// `GET api/v1/autoscalers`: a page of the fleet, worst first unless sorted otherwise.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetView {
    /// Time of the answer.
    pub now: String,
    /// Number of autoscalers that the reader may see, by word; before `word` and after `search`.
    pub counts: BTreeMap<Word, usize>,
    /// Sum of the current replicas of the counted autoscalers.
    pub current: i64,
    /// Sum of the desired replicas of the counted autoscalers.
    pub desired: i64,
    /// Number of autoscalers that match `word` and `search`.
    pub matching: usize,
    /// Rows from `offset` on, at most `limit`.
    pub rows: Vec<FleetRow>,
}

/// One autoscaler among others.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetRow {
    /// Identity of the autoscaler.
    #[serde(flatten)]
    pub key: ObjectKey,
    /// State of the autoscaler.
    pub word: Word,
    /// Reason in one sentence: the message of a problem, else that of the decision.
    pub sentence: String,
    /// `Deployment web`.
    pub target: String,
    /// `scaleStrategy`.
    pub strategy: ScaleStrategy,
    /// Replicas now.
    pub current: Option<i32>,
    /// Replicas decided.
    pub desired: Option<i32>,
    /// `minReplicas`.
    pub min: i32,
    /// `maxReplicas`.
    pub max: i32,
    /// The source of the highest proposal, as in `decision.winner`.
    pub winner: Option<String>,
    /// The next change of a cron window.
    pub next_window: Option<NextWindow>,
    /// The last hours, and the hours ahead.
    pub sparkline: Option<Sparkline>,
    /// Time of the last decision.
    pub decided: Option<String>,
}

/// The next opening or closing of a cron window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextWindow {
    /// Name of the cron.
    pub name: String,
    /// True if the window opens, false if it closes.
    pub opens: bool,
    /// Time of the opening or closing.
    pub at: String,
}

/// Data of SVG paths in the view box `0 0 120 24`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sparkline {
    /// Replicas of the last hours.
    pub past: String,
    /// The forecast of the hours ahead; empty without one.
    pub ahead: String,
    /// For people: `3 to 12 replicas in the last 6 h, up to 14 expected in the next 3 h`.
    pub label: String,
}

/// `GET api/v1/autoscalers/{resource}/{namespace}/{name}`: one autoscaler as it is now.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerView {
    /// Time of the answer.
    pub now: String,
    /// Row of the autoscaler in the fleet.
    pub row: FleetRow,
    /// The mode in force.
    pub mode: Mode,
    /// `status.decision` as it is reported.
    pub decision: Option<DecisionStatus>,
    /// The numbers of `decision` as people write them, by source and name of the proposal: `0.54 cores of 0.4`.
    pub amounts: Vec<ProposalAmount>,
    /// `status.conditions`, those with a problem first.
    pub conditions: Vec<ConditionView>,
    /// `status.windows`.
    pub windows: Vec<WindowStatus>,
    /// The last changes of the replicas, the latest first.
    pub changes: Vec<ReplicaChangeStatus>,
    /// `status.clusters` of a fleet.
    pub clusters: Vec<ClusterStatus>,
    /// Minutes that are kept: from, until. Absent before the first.
    pub recorded: Option<Span>,
}

/// The amounts of a proposal, for people.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProposalAmount {
    /// The source, as in `decision.proposals`.
    pub source: String,
    /// The metric or cron.
    pub name: String,
    /// The value, if there is one.
    pub value: Option<String>,
    /// The target, if there is one.
    pub target: Option<String>,
    /// The predicted peak of a forecast.
    pub peak: Option<String>,
    /// The peak about when a replica added now is ready, of a forecast.
    pub raise: Option<String>,
    /// The peak until a replica added now is ready, of a forecast.
    pub hold: Option<String>,
}

/// A condition and its remedy.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConditionView {
    /// Condition of the status.
    #[serde(flatten)]
    pub condition: Condition,
    /// True if the condition is as it should be.
    pub healthy: bool,
    /// Advice to copy, if there is any.
    pub remedy: Option<Remedy>,
}

/// Advice on a condition.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remedy {
    /// One sentence.
    pub text: String,
    /// A command line or YAML, ready to copy.
    pub copy: Option<String>,
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// First second.
    pub from: i64,
    /// End.
    pub until: i64,
}

/// `GET …/{name}/history`: what was recorded, a column per series, all of the length of `times`: at most
/// 2,000.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryView {
    /// The beginning of each minute, in seconds since 1970.
    pub times: Vec<i64>,
    /// 60 if every recorded minute has a row. Else the length of equal spans of which only the minutes of the fewest and of
    /// the most replicas and of the greatest shortage have one.
    pub step_seconds: i64,
    /// Replicas that the demand of the minute needs at the target, before rounding.
    pub needed: Vec<Option<f32>>,
    /// Replicas that were expected to be needed, by the forecast of a lead time before.
    pub expected: Vec<Option<f32>>,
    /// Upper end of the expectation: the quantile in use.
    pub expected_upper: Vec<Option<f32>>,
    /// Replicas of the target.
    pub current: Vec<Option<u32>>,
    /// Replicas that served.
    pub ready: Vec<Option<u32>>,
    /// Highest proposal of each source, by its word.
    #[serde(flatten)]
    #[schemars(with = "ProposedColumns")]
    pub proposed: BTreeMap<Source, Vec<Option<u32>>>,
    /// `decision.maximum`: the highest proposal.
    pub highest: Vec<Option<u32>>,
    /// `decision.stabilized`.
    pub stabilized: Vec<Option<u32>>,
    /// `decision.limited`.
    pub limited: Vec<Option<u32>>,
    /// `decision.desired`.
    pub desired: Vec<Option<u32>>,
    /// `decision.floor`.
    pub floor: Vec<Option<u32>>,
    /// `minReplicas` in force.
    pub min: Vec<Option<u32>>,
    /// `maxReplicas` in force.
    pub max: Vec<Option<u32>>,
    /// The demand of each metric in its own unit.
    pub demand: Vec<DemandColumn>,
    /// The forecast in force beyond the last minute.
    pub ahead: Ahead,
    /// The sentences of the decisions that differed from the one before, each with its time: that of a moment is the last
    /// one not after it. At most the last 1,000.
    pub sentences: Vec<Sentence>,
    /// Cron windows that were or will be open in the span, at most the first 500.
    pub windows: Vec<WindowSpan>,
    /// True if there are more windows.
    pub windows_truncated: bool,
}

/// Schema of a column for each source.
struct ProposedColumns;

/// The demand of one metric.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DemandColumn {
    /// `resource.cpu`.
    pub metric: String,
    /// `cores`, `bytes` or empty.
    pub unit: String,
    /// Demand of each minute.
    pub values: Vec<Option<f32>>,
}

/// The forecast in force, in replicas.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ahead {
    /// Instants, in seconds since 1970.
    pub times: Vec<i64>,
    /// Expected.
    pub expected: Vec<f32>,
    /// Upper end; absent where the algorithm has none.
    pub upper: Vec<Option<f32>>,
}

/// Reason for the number of replicas from an instant on.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sentence {
    /// In seconds since 1970.
    pub at: i64,
    /// The source of the highest proposal.
    pub winner: Option<String>,
    /// Reason for which a limit changed the result, as in `decision.limit`.
    pub limit: Option<String>,
    /// The decision's message.
    pub text: String,
}

/// One opening of a cron window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowSpan {
    /// The cron's name.
    pub name: String,
    /// In seconds since 1970.
    #[serde(flatten)]
    pub span: Span,
    /// Replicas of the cron.
    pub replicas: u32,
    /// The zone in which the times of the cron are written.
    pub zone: String,
}

/// `GET …/{name}/worth` and, summed up, `GET api/v1/worth`: what Foretide was worth beside a plain HPA.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Worth {
    /// Number of autoscalers that are counted.
    pub autoscalers: usize,
    /// Number of autoscalers that are not counted: too little is recorded, or Foretide does not scale them (Preview, a
    /// conflict).
    pub left_out: usize,
    /// Recorded span: from, until.
    pub span: Option<Span>,
    /// Actual result, in the minutes in which Foretide scaled the workload.
    pub actual: WorthScore,
    /// A plain HPA on the same demand.
    pub plain: WorthScore,
    /// One sentence; it may say that a plain HPA is enough.
    pub verdict: String,
    /// Assumptions of the comparison.
    pub assumptions: Vec<String>,
    /// Time of the computation; of a sum, that of its oldest part.
    pub computed: Option<String>,
    /// In `GET api/v1/worth` each autoscaler, most short minutes first, at most 200.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<WorthOf>,
}

/// Benefit of Foretide for one autoscaler among all.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorthOf {
    /// Identity of the autoscaler.
    pub autoscaler: ObjectKey,
    /// Recorded span: from, until.
    pub span: Span,
    /// Actual result, as in [`Worth`].
    pub actual: WorthScore,
    /// Result of a plain HPA, as in [`Worth`].
    pub plain: WorthScore,
    /// Verdict in one sentence, as in [`Worth`].
    pub verdict: String,
}

/// The totals of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorthScore {
    /// Evaluated minutes.
    pub minutes: u64,
    /// Minutes in which too few replicas served.
    pub short_minutes: u64,
    /// Replica-hours.
    pub replica_hours: f64,
    /// Changes of the count.
    pub actions: u64,
}

/// `GET api/v1/calendar`: the windows of all autoscalers over some weeks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CalendarView {
    /// The first day, at its beginning in `zone`.
    pub span: Span,
    /// The zone of the days.
    pub zone: String,
    /// Openings in the order of time, at most a thousand.
    pub windows: Vec<CalendarWindow>,
    /// True if there are more; those that ended before now are left out first.
    pub truncated: bool,
    /// Clock changes of the windows' zones in the span.
    pub clock_changes: Vec<ClockChange>,
    /// The weeks drawn, as SVG.
    pub svg: String,
}

/// An opening of a window of an autoscaler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CalendarWindow {
    /// Identity of the autoscaler.
    pub autoscaler: ObjectKey,
    /// The opening.
    #[serde(flatten)]
    pub window: WindowSpan,
}

/// A change of the clock in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClockChange {
    /// Time of the change, in seconds since 1970.
    pub at: i64,
    /// Zone of the change.
    pub zone: String,
    /// By how many seconds the clock goes forward; negative for back.
    pub forward: i32,
}

/// `GET api/v1/clusters`: the members of all fleets that the reader may see.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClustersView {
    /// By name.
    pub clusters: Vec<ClusterView>,
}

/// One member cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// Name of the member.
    pub name: String,
    /// True if the member answers; absent if that is not known.
    pub ready: Option<bool>,
    /// Seconds for which the member has not answered.
    pub silent_seconds: Option<f64>,
    /// Share of the member in each fleet: budget, floor, capacity, ready, pending, and the last move with its reason.
    pub shares: Vec<ClusterShare>,
}

/// A member's share of one fleet.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterShare {
    /// The fleet.
    pub autoscaler: ObjectKey,
    /// Share as in the status of the fleet.
    pub status: ClusterStatus,
}

/// `GET api/v1/health`: what Foretide reads, and whether it is current.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthView {
    /// Reason for which the controller is not ready, if there is one.
    pub unready: Option<String>,
    /// Seconds between the time at which the most overdue autoscaler was due, and now.
    pub lag_seconds: f64,
    /// Watches, Prometheus servers, metrics APIs; for a reader of some namespaces one sum of them, without names.
    pub sources: Vec<SourceHealth>,
    /// Autoscalers that share a target with another one.
    pub conflicts: Vec<FleetRow>,
}

/// One thing that Foretide reads.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceHealth {
    /// `watch of deployments`, `Prometheus https://…` without credentials.
    pub name: String,
    /// True if the source is current.
    pub healthy: bool,
    /// Seconds since the last answer.
    pub age_seconds: Option<f64>,
    /// Failures since the start.
    pub errors: u64,
    /// Problem of the source, or empty.
    pub problem: String,
}

/// Selection of the fleet, for `GET api/v1/autoscalers`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FleetQuery {
    /// Only those with this word.
    #[serde(deserialize_with = "word_or_none")]
    #[schemars(with = "Option<Word>")]
    pub word: Option<Word>,
    /// Only those whose namespace, name or target contains this text, case-insensitive.
    pub search: String,
    /// The order: `word` (worst first), `name`, `current`, `desired`, `window`; `-` before it reverses it.
    pub sort: String,
    /// Number of rows that are left out before the first.
    pub offset: usize,
    /// Number of rows at most: 1 to 200, by default 50.
    pub limit: Option<usize>,
}

/// A word of a query; none is an empty one.
fn word_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Word>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    let word =
        Word::deserialize(text.as_str().into_deserializer()).map_err(|_: value::Error| {
            D::Error::custom(format!(
                "expected short, unready, conflict, capped, untrusted or fine, got {text:?}"
            ))
        })?;
    Ok(Some(word))
}

/// Span of minutes, in seconds since 1970; by default the last six hours, and two hours ahead for the forecast.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SpanQuery {
    /// From this second.
    pub from: Option<i64>,
    /// Until this second, which may be ahead of now, for the forecast.
    pub until: Option<i64>,
}

/// Selection of recorded demand, for `GET …/{name}/history.csv`; by default all of the first metric.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HistoryQuery {
    /// From this second.
    pub from: Option<i64>,
    /// Until this second.
    pub until: Option<i64>,
    /// Identifier of the metric, such as `resource.cpu`.
    pub metric: Option<String>,
}

/// Parameters of a chart, for `GET …/{name}/chart.svg`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ChartQuery {
    /// From this second.
    pub from: Option<i64>,
    /// Until this second, which may be ahead of now, for the forecast.
    pub until: Option<i64>,
    /// In pixels, 280 to 2,000; by default 860.
    pub width: Option<u32>,
    /// Time zone of the axis, by default UTC.
    pub zone: Option<String>,
    /// Layers to draw, separated by commas; all by default.
    pub layers: Option<String>,
}

/// Selection of weeks, for `GET api/v1/calendar`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CalendarQuery {
    /// A second of the first week; by default now.
    pub from: Option<i64>,
    /// 1 to 8, by default 2.
    pub weeks: Option<u32>,
    /// Time zone of the days, by default UTC.
    pub zone: Option<String>,
    /// Only this namespace.
    pub namespace: Option<String>,
    /// In pixels, as in [`ChartQuery`].
    pub width: Option<u32>,
}

/// Width of a picture, for `GET api/v1/clusters.svg`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WidthQuery {
    /// In pixels, as in [`ChartQuery`].
    pub width: Option<u32>,
}

/// Selection of changes, for `GET api/v1/stream`: those of one autoscaler, named in full, or of all.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StreamQuery {
    /// `effectivehorizontalpodautoscalers` or `federatedhpas`.
    pub resource: Option<String>,
    /// Namespace of the autoscaler.
    pub namespace: Option<String>,
    /// Name of the autoscaler.
    pub name: Option<String>,
}

// === impl ProposedColumns ===

impl JsonSchema for ProposedColumns {
    fn schema_name() -> Cow<'static, str> {
        "ProposedColumns".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let column = generator.subschema_for::<Vec<Option<u32>>>();
        let columns = source_properties(|source| {
            let mut column = column.clone();
            let description = format!("Highest proposal of {}.", source.phrases().legend);
            column.insert("description".to_owned(), description.into());
            column.into()
        });
        json_schema!({"type": "object", "properties": columns, "required": Source::words()})
    }
}
