//! Second step of a sync: what is to be done about one workload in one cluster, decided by the domain.
//!
//! The same for an autoscaler of its own cluster and for each part of a fleet. It settles who may act (a
//! target that belongs to somebody else is only previewed) and compares the child autoscaler's answers
//! with what was expected of it. It reads and writes nothing.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    apply::Planned,
    child_hpa, conformance,
    observe::{Due, TargetObservation},
    state::TargetState,
};
use crate::{
    domain::{
        Replicas,
        autoscale::{self, Child, decide},
        hpa::Settings,
        workload::{Mode, Strategy, Workload},
    },
    ports::HpaView,
    telemetry::Telemetry,
};

/// What every decision of one sync is made with.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecideContext<'a> {
    /// The algorithm's constants.
    pub(super) settings: &'a Settings,
    /// Where comparisons are counted.
    pub(super) telemetry: &'a Telemetry,
    /// When it is decided.
    pub(super) now: Timestamp,
}

// === impl DecideContext ===

impl DecideContext<'_> {
    /// Decides one workload; `share` is its part of a fleet's floor, if it is part of one.
    pub(super) fn plan(
        &self,
        track: &mut TargetState,
        due: Due,
        sighting: TargetObservation,
        share: Option<Replicas>,
    ) -> Planned {
        let Self { settings, now, .. } = *self;
        let workload = in_force(&due, &sighting);
        let target = (&*due.ehpa, &*sighting.scale.uid);
        track.recall(target, workload.behavior.as_ref(), settings, now);
        let acting = sighting.siblings.acting().map(|hpa| &**hpa);
        let seen = autoscale::Seen {
            observation: sighting.observation.clone(),
            forecasts: sighting.forecasts.clone(),
            child: acting.map(|hpa| as_left(hpa, track.child_min)),
            share,
        };
        let (decision, history) = decide(&workload, &seen, &track.history, settings, now);
        track.history = history;
        let untouched =
            acting.filter(|hpa| child_hpa::as_child(hpa) == as_left(hpa, track.child_min));
        let values = conformance::values(&decision);
        let pods = &sighting.observation.pods;
        let sync = conformance::Sync::of(&decision, values.as_deref(), pods, &track.history.log);
        let rules = conformance::Rules {
            behavior: workload.behavior.as_ref(),
            settings,
        };
        if let Some(agreed) = track.shadow.watch(&sync, untouched, rules) {
            self.telemetry.compared(agreed);
        }
        Planned {
            ehpa: due.ehpa,
            valid: due.valid,
            kin: due.kin,
            target: workload.target.clone(),
            sighting,
            decision,
            delegates: delegates(&workload),
            older: due.rivals.older,
            left: track.left.clone(),
        }
    }
}

/// The workload as it is decided: a target that belongs to somebody else is only previewed. What was
/// adopted and may no longer be is somebody else's again.
fn in_force(due: &Due, sighting: &TargetObservation) -> Arc<Workload> {
    if may_act(due, sighting) {
        return Arc::clone(&due.workload);
    }
    let preview = Workload {
        strategy: Strategy::Preview,
        specific_replicas: None,
        ..Workload::clone(&due.workload)
    };
    Arc::new(preview)
}

/// Whether the target is the object's to act on.
pub(super) fn may_act(due: &Due, sighting: &TargetObservation) -> bool {
    let siblings = &sighting.siblings;
    let alone = siblings.foreign.is_none() && siblings.adopted.is_none();
    due.rivals.older.is_none() && (alone || may_adopt(due, sighting))
}

fn may_adopt(due: &Due, sighting: &TargetObservation) -> bool {
    let siblings = &sighting.siblings;
    let free = |hpa: &Arc<HpaView>| siblings.adopted.is_some() || child_hpa::is_unclaimed(hpa);
    delegates(&due.workload)
        && child_hpa::wants_adoption(&due.ehpa)
        && siblings.foreign.as_ref().is_none_or(free)
}

/// Whether a child autoscaler writes the scale.
pub(super) fn delegates(workload: &Workload) -> bool {
    workload.strategy == Strategy::Auto && workload.mode_in_force() == Mode::Delegated
}

/// The child with the minimum that we left it with: another one is an edit by hand, to be undone.
fn as_left(hpa: &HpaView, min: Option<Replicas>) -> Child {
    let live = child_hpa::as_child(hpa);
    Child {
        min: min.unwrap_or(live.min),
        ..live
    }
}
