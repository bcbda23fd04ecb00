//! Second step of a sync: the decision about one workload in one cluster, made by the domain.
//!
//! The same for the autoscaler of one cluster, for a fleet as a whole and for each member of it. This settles who may
//! act (a target that another controller scales is only previewed) and what may be written ([`Permission`]). It changes
//! nothing but the target's state.

#[cfg(test)]
pub mod tests;

use std::sync::Arc;

use foretide_domain::{
    ReplicaBounds, Replicas,
    autoscale::{
        self, Child, Decision,
        action::{Action, HoldReason},
    },
    hpa::Settings,
    workload::{Mode, Strategy, Workload, Writes},
};
use jiff::Timestamp;

use super::{
    child_hpa,
    foreign_writes::ForeignWrites,
    observe::{TargetObservation, TargetView, WorkloadObservation},
    part::{Part, Permission},
    related_hpas::RelatedHpas,
    target::TargetState,
};
use foretide_api::ports::{HpaView, KedaPause};

/// Context of every decision of one sync.
#[derive(Debug, Clone, Copy)]
pub struct DecideContext<'a> {
    /// The algorithm's constants.
    pub settings: &'a Settings,
    /// The time of the decision.
    pub now: Timestamp,
}

/// A decision that is to be carried out in one cluster.
#[derive(Debug, Clone)]
pub struct Decided {
    /// The part that it is about.
    pub part: Part,
    /// The observation that it was made from.
    pub observation: WorkloadObservation,
    /// The target that it is about; a fleet as a whole has none.
    pub target: Option<TargetView>,
    /// The decision, with the action that is permitted.
    pub decision: Decision,
    /// True if a child writes the scale, by strategy, mode and permission.
    pub delegates: bool,
    /// True if the decision is carried out: not in Preview, and not while another autoscaler scales the target.
    pub is_carried_out: bool,
    /// True if others read the forecasts, cron windows or floor of this decision from the status.
    pub publishes: bool,
    /// The message of a conflict with another writer of the replicas that we write, if there is one.
    pub replica_conflict: Option<String>,
    /// The child as it was left, if that is known.
    pub child_left: Option<Arc<HpaView>>,
}

// === impl Decided ===

impl Decided {
    /// The HPA that acts for us on the target, if there is one.
    pub fn acting_hpa(&self) -> Option<&Arc<HpaView>> {
        self.target.as_ref()?.hpas.acting()
    }

    /// The HPA of another owner on the target, if there is one.
    pub fn foreign_hpa(&self) -> Option<&Arc<HpaView>> {
        self.target.as_ref()?.hpas.foreign.as_ref()
    }
}

// === impl DecideContext ===

impl DecideContext<'_> {
    /// Decides the workload of one target.
    pub fn decide(
        &self,
        state: &mut TargetState,
        part: Part,
        TargetObservation { workload, target }: TargetObservation,
    ) -> Decided {
        self.decide_workload(state, part, workload, Some(target))
    }

    /// Decides a fleet as one workload.
    pub fn decide_whole(
        &self,
        state: &mut TargetState,
        part: Part,
        observation: WorkloadObservation,
    ) -> Decided {
        self.decide_workload(state, part, observation, None)
    }

    fn decide_workload(
        &self,
        state: &mut TargetState,
        mut part: Part,
        observation: WorkloadObservation,
        target: Option<TargetView>,
    ) -> Decided {
        let Self { settings, now } = *self;
        let workload = in_force(&part, target.as_ref());
        let course = workload.course();
        let (by_child, by_us) = match course.writes {
            Writes::Bounds => (true, false),
            Writes::Count => (false, true),
            Writes::Pinned(_) => (false, false),
        };
        let behavior = workload.behavior.as_ref();
        // First: the history of a target that was deleted and created again does not count.
        let uid = (target.as_ref()).map_or(&part.owner.uid, |target| &target.scale.uid);
        state.restore(uid, behavior, settings, now);
        let current = observation.observation.scale.spec;
        if part.permission == Permission::AllUnlessContested {
            state.observe_writers(by_us, current, now);
        }
        let hpas = target.as_ref().map(|target| &target.hpas);
        if current == Replicas::ZERO {
            state.history.log.scaled_to_zero |= hpas.is_some_and(RelatedHpas::any_scaled_to_zero);
        }
        let seen = autoscale::Inputs {
            observation: observation.observation.clone(),
            forecasts: observation.forecasts.clone(),
            child: hpas
                .and_then(RelatedHpas::acting)
                .map(|hpa| as_left(hpa, state.child_min)),
            share: part.floor_share,
        };
        let (decision, history) =
            autoscale::decide(&workload, &seen, &state.history, settings, now);
        let action = permitted(decision.action, &part, state, now);
        state.history = history;
        state.saw_count(current, decision.action.scales_to_zero(), now);
        if course.publishes {
            let child = part.child.with_published(&workload, &decision.published);
            part.child = Arc::new(child);
        }
        Decided {
            delegates: by_child && part.permission != Permission::Nothing,
            is_carried_out: by_child || by_us,
            publishes: part.workload.mode == Mode::Metric
                || hpas.is_some_and(|hpas| part.keda_trigger(hpas).is_some()),
            child_left: state.child.clone(),
            replica_conflict: state.foreign_writes.message(),
            part,
            observation,
            target,
            decision: Decision { action, ..decision },
        }
    }
}

// === impl TargetState ===

impl TargetState {
    /// Records foreign writes of the replicas, where we write them ourselves.
    fn observe_writers(&mut self, is_ours: bool, current: Replicas, now: Timestamp) {
        if is_ours {
            self.foreign_writes.observe(current, now);
        } else {
            self.foreign_writes = ForeignWrites::default();
        }
    }
}

/// The action of a decision, or what is permitted of it.
fn permitted(action: Action, part: &Part, state: &TargetState, now: Timestamp) -> Action {
    let hold = |reason| Action::Hold { reason };
    let bounds = part.workload.bounds;
    match (part.permission, action) {
        (Permission::Nothing, _) => hold(HoldReason::AtDesired),
        (Permission::Child, Action::Scale { .. }) => {
            let ReplicaBounds { min, max } = bounds;
            Action::Child { min, max }
        }
        (Permission::AllUnlessContested, Action::Scale { from, .. })
            // Below the minimum each sync writes, whoever lowers the count.
            if (from == Replicas::ZERO || from >= bounds.min) && !state.foreign_writes.may_write(now) =>
        {
            hold(HoldReason::ExternalWriter)
        }
        (_, action) => action,
    }
}

/// The workload as it is decided: a target that is not ours to act on is only previewed.
fn in_force(part: &Part, target: Option<&TargetView>) -> Arc<Workload> {
    let may_act = match target {
        Some(target) => part.may_act(target),
        None => part.conflicts.older.is_none(),
    };
    if may_act {
        return Arc::clone(&part.workload);
    }
    let trigger = target.and_then(|target| part.keda_trigger(&target.hpas));
    Arc::new(Workload {
        strategy: Strategy::Preview,
        // KEDA keeps the target at the floor, as a child would.
        mode: trigger.map_or(part.workload.mode, |_| Mode::Delegated),
        // In Preview this count would be written.
        specific_replicas: None,
        ..Workload::clone(&part.workload)
    })
}

// === impl Part ===

impl Part {
    /// True if the target is ours to act on: no older autoscaler of ours acts on it, KEDA has not paused it, and a foreign
    /// HPA on it, if there is one, is or may be adopted.
    pub fn may_act(&self, target: &TargetView) -> bool {
        let hpas = &target.hpas;
        let is_alone = hpas.foreign.is_none() && hpas.adopted.is_none();
        // Without the user's annotation an adopted HPA is foreign again.
        let adopts = self.workload.course().writes == Writes::Bounds
            && self.autoscaler.wants_adoption()
            && (hpas.foreign.as_ref())
                .is_none_or(|hpa| hpas.adopted.is_some() || child_hpa::is_unclaimed(hpa));
        self.conflicts.older.is_none()
            && !matches!(target.keda_pause, KedaPause::On { .. })
            && (is_alone || adopts)
    }
}

/// The child with the minimum that we wrote last: any other value is a manual edit, which is reverted.
fn as_left(hpa: &HpaView, min: Option<Replicas>) -> Child {
    let live = child_hpa::as_child(hpa);
    Child {
        min: min.unwrap_or(live.min),
        ..live
    }
}
