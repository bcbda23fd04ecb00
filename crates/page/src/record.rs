//! The record of a sync, or of a simulated run, for one autoscaler, and the part of it that is kept.

use std::sync::Arc;

use foretide_domain::{
    Replicas, autoscale::Decision, cron::Window, proposal::Unit, sim::PodTemplate,
    workload::Workload,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    api::{ObjectKey, Word},
    block::{Column, Expected, MINUTE, MetricRecord},
    rows::Snapshot,
};
use foretide_api::autoscaler::{Autoscaler, Status};

/// The reported status of one autoscaler, and the decision, if there is one.
#[derive(Debug)]
pub struct Record<'a> {
    /// Time of the sync.
    pub at: Timestamp,
    /// The autoscaler.
    pub autoscaler: &'a Autoscaler,
    /// Status as it is reported.
    pub status: &'a Status,
    /// Absent if nothing could be decided.
    pub decided: Option<Decided<'a>>,
}

/// A decision and its inputs.
#[derive(Debug)]
pub struct Decided<'a> {
    /// Workload of the decision.
    pub workload: &'a Arc<Workload>,
    /// The decision.
    pub decision: &'a Decision,
    /// Replicas of the target after the decision was carried out.
    pub current: Replicas,
    /// Replicas that serve.
    pub ready: Replicas,
    /// The demand of each metric, with its forecast.
    pub metrics: Vec<MetricRecord>,
    /// Requests of a pod of the workload, if they are known.
    pub template: Option<PodTemplate>,
    /// Measured start-up time of a replica, if there is one.
    pub start_up: Option<SignedDuration>,
}

/// Current state of an autoscaler.
#[derive(Debug)]
pub struct Latest {
    pub key: ObjectKey,
    pub at: Timestamp,
    pub autoscaler: Autoscaler,
    pub status: Status,
    pub word: Word,
    /// The last decision; absent before the first.
    pub decided: Option<Arc<LastDecision>>,
}

/// The parts of the last decision about an autoscaler that its status does not have.
#[derive(Debug)]
pub struct LastDecision {
    pub workload: Arc<Workload>,
    pub ready: Replicas,
    pub metrics: Vec<MetricRecord>,
    /// Unit of each proposal, in the order of the status.
    pub units: Vec<Unit>,
    pub template: Option<PodTemplate>,
    pub start_up: Option<SignedDuration>,
}

/// Everything that is recorded of one autoscaler, to be read without a lock.
#[derive(Debug)]
pub struct Recorded {
    pub latest: Arc<Latest>,
    pub minutes: Snapshot,
    /// The first recorded minute and the end of the last one, in seconds since 1970.
    pub span: Option<(i64, i64)>,
}

/// Returns the replicas that the demand needs, before rounding: the largest number among the metrics.
pub fn needed(metrics: &[MetricRecord]) -> Option<f64> {
    let needed = metrics.iter().filter_map(MetricRecord::needed);
    needed.reduce(f64::max)
}

// === impl Decided ===

impl Decided<'_> {
    /// Returns the known counts of the minute; `acted` if the decision scales the workload.
    pub(crate) fn counts(&self, acted: bool) -> Vec<(Column, u32)> {
        let decision = self.decision;
        let bounds = decision.bounds;
        let counts = [
            (Column::Current, Some(self.current)),
            (Column::Ready, Some(self.ready)),
            (Column::Highest, decision.maximum),
            (Column::Stabilized, Some(decision.stabilized)),
            (Column::Limited, Some(decision.limited)),
            (Column::Desired, Some(decision.desired)),
            (Column::Floor, decision.floor),
            (Column::Min, Some(bounds.min)),
            (Column::Max, Some(bounds.max)),
            (Column::Acted, Some(Replicas::new(acted.into()))),
        ];
        counts
            .into_iter()
            .filter_map(|(column, count)| Some((column, count?.get())))
            .collect()
    }
}

// === impl MetricRecord ===

impl MetricRecord {
    fn needed(&self) -> Option<f64> {
        Some(self.demand? / self.per_replica?)
    }

    /// Returns the forecast for the minute that begins a lead time after `at`, in replicas, read at its end.
    pub(crate) fn expected(&self, at: Timestamp) -> Option<Expected> {
        let (forecast, lead_time) = self.forecast.as_ref()?;
        let per_replica = self.per_replica?;
        let later = at.checked_add(lead_time.span).ok()?;
        let begin = later.as_second().div_euclid(MINUTE) * MINUTE;
        let end = Timestamp::from_second(begin + MINUTE).ok()?;
        let before = forecast.samples().take_while(|it| it.at <= end);
        Some(Expected::of(begin, &before.last()?, per_replica))
    }
}

// === impl Latest ===

impl Latest {
    /// The cron windows in the last decision.
    pub fn windows(&self) -> impl Iterator<Item = &Window> {
        self.decided
            .iter()
            .flat_map(|it| &it.workload.floor.windows)
    }
}

// === impl LastDecision ===

impl LastDecision {
    pub fn of(decided: Decided<'_>) -> Self {
        let units = decided.decision.proposals.iter().map(|it| it.unit);
        Self {
            workload: Arc::clone(decided.workload),
            ready: decided.ready,
            units: units.collect(),
            metrics: decided.metrics,
            template: decided.template,
            start_up: decided.start_up,
        }
    }
}
