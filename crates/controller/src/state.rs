//! The state of each object that is kept between two syncs.
//!
//! All of it may be lost at any time: histories come back from status as far as a status was written, and what is
//! missing holds scale-down for a while. Nothing here is a source of truth about the cluster.

use std::{collections::BTreeMap, sync::Arc};

use derive_where::derive_where;
use foretide_domain::lead_time::LeadTimes;
use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use super::{
    child_hpa::ChildSpec,
    report::{ReportInput, ReportState},
    target::{StoredHistory, TargetState},
};
use foretide_api::{autoscaler::Autoscaler, validation::Invalid};
use foretide_base::clock::ClockReading;

/// The states of all objects of a kind, by UID.
#[derive(Debug)]
#[derive_where(Default)]
pub struct StateStore<S, O>(BTreeMap<String, StateCell<S, O>>);

/// The state of one object, which its sync changes step by step; clones share it.
#[derive(Debug)]
#[derive_where(Clone)]
pub struct StateCell<S, O>(Arc<Mutex<ObjectState<S, O>>>);

/// Adjusts the times in the state that only one kind has.
pub trait KindState {
    /// Shifts every time of our own clock by a step of the wall clock.
    fn shift(&mut self, _step: SignedDuration) {}
    /// Adjusts the state after a pause of the controller, in which nothing was observed.
    fn resume(&mut self, _pause: SignedDuration) {}
    /// Brings back the times of a restored state that are ahead of `now`.
    fn put_back(&mut self, _now: Timestamp) {}
}

impl KindState for () {}

/// Time without a sync beyond which this process was paused, where objects are synced with this period: four periods,
/// and longer than a slow sync takes.
pub fn pause_from(period: SignedDuration) -> SignedDuration {
    const SLOW_SYNC: SignedDuration = SignedDuration::from_secs(30);
    SLOW_SYNC.max(period * 4)
}

/// The state of one object.
#[derive(Debug)]
pub struct ObjectState<S, O> {
    /// The reading of the clocks for which its times were adjusted last.
    clocks: Option<ClockReading>,
    /// The state of its reports.
    pub report: ReportState,
    /// The meaning of the last valid spec.
    pub in_force: Option<InForce<S>>,
    /// The reason why the spec as it stands cannot be acted on, if any.
    pub invalid: Option<Invalid>,
    /// The object whose spec was validated last.
    pub validated: Option<Autoscaler>,
    /// The state of its workload: a fleet's is that of all members together.
    pub target: TargetState,
    /// Times that its pods took to start.
    pub lead_times: LeadTimes,
    /// The state that only this kind has.
    pub of_kind: O,
}

/// Meaning of a valid spec.
#[derive(Debug)]
#[derive_where(Clone)]
pub struct InForce<S> {
    /// The part for the decision.
    pub spec: Arc<S>,
    /// The part for the child.
    pub child: Arc<ChildSpec>,
}

// === impl StateStore ===

impl<S, O> StateStore<S, O> {
    /// The state of an object; one that is new to us is restored from its status, the part of its kind by `restore`.
    pub fn of(
        &mut self,
        autoscaler: &Autoscaler,
        restore: impl FnOnce(&ReportState) -> O,
    ) -> StateCell<S, O> {
        match self.0.get(autoscaler.uid()) {
            Some(known) => known.clone(),
            None => self.restart(autoscaler, restore),
        }
    }

    /// Restores the state of an object as if it were new to us, apart from what was reported of it.
    pub fn restart(
        &mut self,
        autoscaler: &Autoscaler,
        restore: impl FnOnce(&ReportState) -> O,
    ) -> StateCell<S, O> {
        let new = ReportState::new(autoscaler);
        let report = match self.0.remove(autoscaler.uid()) {
            Some(before) => std::mem::replace(&mut before.lock().report, new),
            None => new,
        };
        let state = StateCell::of(ObjectState::restored(autoscaler, report, restore));
        self.0.insert(autoscaler.uid().to_owned(), state.clone());
        state
    }

    /// The state of an object that is known.
    pub fn get(&self, uid: &str) -> Option<&StateCell<S, O>> {
        self.0.get(uid)
    }

    /// Every state with its UID.
    pub fn by_uid(&self) -> impl Iterator<Item = (&String, &StateCell<S, O>)> {
        self.0.iter()
    }

    /// UIDs of the objects whose state has a property.
    pub fn uids_where(&self, has: impl Fn(&ObjectState<S, O>) -> bool) -> Vec<String> {
        let states = self.0.iter().filter(|(_, state)| has(&state.lock()));
        states.map(|(uid, _)| uid.clone()).collect()
    }

    /// Forgets one object; returns its state.
    pub fn remove(&mut self, uid: &str) -> Option<StateCell<S, O>> {
        self.0.remove(uid)
    }

    /// Forgets the objects that are gone; returns their states.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) -> Vec<StateCell<S, O>> {
        let gone = self.0.extract_if(.., |uid, _| !exists(uid));
        gone.map(|(_, state)| state).collect()
    }
}

// === impl StateCell ===

impl<S, O> StateCell<S, O> {
    fn of(state: ObjectState<S, O>) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The state, for one step of a sync.
    pub fn lock(&self) -> MutexGuard<'_, ObjectState<S, O>> {
        // A sync that panicked leaves a state that the loop drops.
        self.0.lock()
    }
}

// Not derived: that would require `S: Clone` and `O: Clone`.

// === impl ObjectState ===

impl<S, O> ObjectState<S, O> {
    /// Drops the version that was synced last: the spec is validated again. What was valid stays in force.
    pub fn forget_version(&mut self) {
        self.validated = None;
    }

    /// The state of an object that is new to us: what its status holds.
    fn restored(
        autoscaler: &Autoscaler,
        report: ReportState,
        restore: impl FnOnce(&ReportState) -> O,
    ) -> Self {
        let status = autoscaler.status();
        let last_scale = status.and_then(|status| status.last_scale_time.as_ref());
        Self {
            clocks: None,
            of_kind: restore(&report),
            report,
            in_force: None,
            invalid: None,
            validated: None,
            target: TargetState {
                stored: StoredHistory::of(status),
                last_scale: last_scale.map(|time| time.0),
                ..TargetState::default()
            },
            lead_times: LeadTimes::default(),
        }
    }

    /// Brings every time in the state to the clocks as they are `now`, before it is used; `period` is that of its
    /// syncs.
    ///
    /// A step of the wall clock shifts all times, so that nothing ends or begins by it. A pause of this process is time
    /// that passed, but in which no member was asked and nothing was seen to last.
    pub fn follow(&mut self, now: ClockReading, period: SignedDuration)
    where
        O: KindState,
    {
        let Some(before) = self.clocks.replace(now) else {
            return self.of_kind.put_back(now.wall());
        };
        let step = now.step_since(before);
        if !step.is_zero() {
            self.target.shift(step);
            self.of_kind.shift(step);
        }
        let passed = now.passed_since(before);
        if passed > pause_from(period) {
            // Of the time between two syncs, one period is no pause.
            self.of_kind.resume(passed.saturating_sub(period));
        }
    }

    /// The input of the reporter.
    pub fn report_input(&mut self) -> ReportInput<'_> {
        ReportInput {
            state: &mut self.report,
            target: &self.target,
            invalid: self.invalid.as_ref(),
            start_up: self.lead_times.measured(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    /// A fleet with this ledger in its status.
    fn fleet(ledger: &str) -> Autoscaler {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9,
                "federatedHPAAssignment": {"federatedHPAAssignmentType": "Aggregated"},
            },
            "status": {"ledger": ledger},
        });
        Autoscaler::Federated(Arc::new(serde_json::from_value(object).unwrap()))
    }

    #[test]
    fn an_object_whose_state_is_dropped_goes_on_from_the_ledger_that_was_stored_last() {
        let mut states = StateStore::<(), Option<String>>::default();
        states.of(&fleet("newer"), |state| state.written.ledger());
        // The copy is older than the ledger.
        let restarted = states.restart(&fleet("older"), |state| state.written.ledger());
        assert_eq!(restarted.lock().of_kind.as_deref(), Some("newer"));
    }
}
