//! The result of a decision, with every number between the proposals and the count.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::action::Action;
use super::floor::Floor;
use super::limit::Limit;
use super::published::PublishedMetric;
use crate::condition;
use crate::cron::{WindowState, Zone};
use crate::hpa::Reconciliation;
use crate::proposal::{Proposal, Source, of_source};
use crate::{ReplicaBounds, Replicas};

/// Result of a decision, and the reasons for it.
///
/// The fields `maximum`, `stabilized`, `limited` and `desired` are the count after each step, so that a difference
/// between two of them shows which step changed it. Status, events, metrics and the command line are made from this
/// value alone.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Time of the decision.
    pub at: Timestamp,
    /// The count at the time of the decision.
    pub current: Replicas,
    /// The proposals of all sources, in the order of [`Source::ALL`].
    pub proposals: Vec<Proposal>,
    /// The source of the largest proposal; see [`Winner`].
    pub winner: Option<Winner>,
    /// The largest proposal.
    pub maximum: Option<Replicas>,
    /// The count after the stabilization windows of both lanes.
    pub stabilized: Replicas,
    /// The count after the scaling policies of both lanes.
    pub limited: Replicas,
    /// The count after bounds, pause and hold: the result. In mode Metric this is the count that the child HPA comes
    /// to.
    pub desired: Replicas,
    /// The floor lane's result; absent if forecast and cron propose nothing and nothing is held, and in mode Metric.
    pub floor: Option<Replicas>,
    /// The last limit that made the result differ from the largest proposal, if any did.
    pub limit: Option<Limit>,
    /// End of `limit`, if it is a window or a hold.
    pub limit_until: Option<Timestamp>,
    /// The metrics that the child HPA reads in addition to those of the spec, in mode Metric.
    pub published: Vec<PublishedMetric>,
    /// True if totals over time count more pods than the scale asks for, as during a rolling update and shortly after.
    pub surplus: bool,
    /// The cron windows.
    pub windows: Vec<DecidedWindow>,
    /// `Ready`, `PredictionReady`, `CronReady`, `AbleToScale`, `ScalingActive`, `ScalingLimited`; with
    /// a child HPA the last three are replaced by its own.
    pub conditions: Vec<Condition>,
    /// The action to take.
    pub action: Action,
    /// The observed lane; absent without metrics.
    pub observed: Option<Reconciliation>,
    /// The floor lane, step by step.
    pub floor_lane: Floor,
    /// The count that the child HPA is expected to reach from this reading, under the bounds it has.
    pub child_desired: Option<Replicas>,
    /// The bounds of the workload at the time of the decision.
    pub bounds: ReplicaBounds,
    /// The prediction window, if forecasts are configured.
    pub prediction_window: Option<SignedDuration>,
}

impl Decision {
    /// The largest proposal of each source; without those that are not configured or propose no count.
    pub fn proposed(&self) -> BTreeMap<Source, Replicas> {
        Source::ALL
            .iter()
            .filter_map(|source| {
                let counts = of_source(&self.proposals, *source).filter_map(|it| it.replicas);
                Some((*source, counts.max()?))
            })
            .collect()
    }
}

/// The source of the largest proposal, which is why the count is not lower.
///
/// Among equal proposals, the winner is one of the source that won last, which asked for the count first; then one
/// whose value asks for this count, before one whose value asks for less and is only held at it ([`Proposal::asked`]);
/// else the first in the order of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Winner {
    /// The source.
    pub source: Source,
    /// Name of the metric or the cron.
    pub name: String,
}

/// A cron window at the time of the decision.
#[derive(Clone, Debug)]
pub struct DecidedWindow {
    /// The cron's name.
    pub name: String,
    /// The zone that its times are written in.
    pub zone: Zone,
    /// State of the window, and the time of its next change.
    pub state: WindowState,
}

/// One condition of a decision.
pub type Condition = condition::Condition<ConditionKind>;

words! {
    /// The type of a condition.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ConditionKind {
        /// True if the spec can be acted on as it is.
        Ready,
        /// True if every forecast is available. Absent without `prediction`.
        PredictionReady,
        /// True if every cron can be used. Absent without `crons`.
        CronReady,
        /// True if the count can be changed now.
        AbleToScale,
        /// True if a count could be computed.
        ScalingActive,
        /// True if a bound or a policy changed the count.
        ScalingLimited,
    }
}
