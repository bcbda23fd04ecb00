//! Differences between the kinds of autoscaler: where their objects come from, what a spec means, and how the parts
//! that an autoscaler acts on are observed, decided and written.
//!
//! An `EffectiveHorizontalPodAutoscaler` has one part: its workload in the controller's own cluster, with the bounds of
//! its spec. A `FederatedHPA` has one per member, with the member's share of the bounds. Everything else (the queue,
//! the store, the steps, the reports) is the same, and is in `run`.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Debug,
    future::Future,
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    decide::DecideContext,
    findings::Findings,
    part::WorkItem,
    report::{Report, ReportState, Reporter, Trouble},
    state::{KindState, ObjectState, StateCell, StateStore},
};
use foretide_api::ports::ObjectKey;
use foretide_api::{
    autoscaler::Autoscaler,
    ownership::{Owner, OwnerKind},
    validation::Invalid,
};
use foretide_base::clock::Monotonic;

/// Autoscalers that are due at once.
#[derive(Debug)]
pub enum Changed {
    /// The objects of these keys.
    Objects(BTreeSet<ObjectKey>),
    /// All objects.
    All,
}

/// The observation of an object, or the reasons why nothing can be decided about it.
pub type Observed<K> = Result<<K as Kind>::Observation, Vec<Trouble>>;
/// The state of one object of a kind.
pub type StateOf<K> = ObjectState<<K as Kind>::Spec, <K as Kind>::State>;
/// The state of one object, as syncs share it with the loop.
pub type StateCellOf<K> = StateCell<<K as Kind>::Spec, <K as Kind>::State>;
/// The states of all objects of a kind.
pub type StatesOf<K> = StateStore<<K as Kind>::Spec, <K as Kind>::State>;
/// An autoscaler of a kind that is due.
pub type ItemOf<K> = WorkItem<<K as Kind>::Object, <K as Kind>::Spec>;

/// A kind of autoscaler.
pub trait Kind: Send + Sync + Sized + 'static {
    const KIND: OwnerKind;
    /// The kind of the API.
    type Object: Debug + Send + Sync;
    /// Meaning of a valid spec.
    type Spec: Debug + Send + Sync;
    /// The state of an object between two syncs that only this kind has.
    type State: KindState + Debug + Send + Sync;
    /// Reads that objects which are due together share.
    type Round: Send + Sync;
    /// Observation of an object.
    type Observation: Send;
    /// Decision about an object.
    type Decided: Send;
    /// Outcome of a decision.
    type Applied: Send;

    /// True if the objects and the clusters that they act on have been listed.
    fn is_synced(&self) -> bool;
    /// True if deleted objects can be cleaned up: only by copies that are up to date, and maybe before all clusters
    /// have been listed.
    fn may_clean_up(&self) -> bool;
    /// True if the first cleanup has asked for what writes need to know, even if it was not answered.
    fn is_prepared(&self) -> bool {
        true
    }
    /// Publishes the readiness; called in every turn of the loop with [`Kind::is_synced`].
    fn publish_readiness(&self, _synced: bool) {}
    /// Waits until objects are due before their time.
    fn changed(&self) -> impl Future<Output = Changed> + Send;
    /// The objects that are there and not being deleted.
    fn objects(&self) -> Vec<Arc<Self::Object>>;
    /// An object as a managed autoscaler.
    fn autoscaler(object: Arc<Self::Object>) -> Autoscaler;
    /// UIDs of the objects that are there and not being deleted, also of those that cannot be decoded.
    fn uids(&self) -> HashSet<String> {
        let objects = self.objects().into_iter().map(Self::autoscaler);
        objects.map(|object| object.uid().to_owned()).collect()
    }
    /// True if [`Kind::uids`] is complete: only then has an object that it lacks been deleted.
    fn lists_all(&self) -> bool {
        true
    }
    /// The meaning of the spec of an object.
    ///
    /// # Errors
    /// Every violation, where it cannot be acted on.
    fn validate(&self, object: &Self::Object) -> Result<Self::Spec, Invalid>;
    /// The object that children are created for.
    fn owner(&self, object: &Self::Object, spec: &Self::Spec) -> Owner;
    /// The state that the status of a new object holds, or that was `reported` since.
    fn restore(&self, object: &Self::Object, reported: &ReportState) -> Self::State;
    /// Drops the state of a deleted object.
    fn forget(&self, _gone: &mut StateOf<Self>) {}
    /// Releases or deletes what is no longer needed, as far as that is possible now, but nothing of the objects in
    /// `busy`, by UID: their syncs may still write. It runs beside the syncs.
    fn cleanup(
        &self,
        states: &StatesOf<Self>,
        busy: &HashSet<String>,
        now: Monotonic,
    ) -> impl Future<Output = ()> + Send + 'static;
    /// The reads that objects which are due at `now` share.
    fn round(&self, now: Timestamp) -> Self::Round;
    /// Sees everything that a due autoscaler needs; writes nothing.
    fn observe(
        &self,
        item: &ItemOf<Self>,
        state: &StateCellOf<Self>,
        round: &Self::Round,
    ) -> impl Future<Output = Observed<Self>> + Send;
    /// Decides one autoscaler by what was seen, by the forecasts in force and by its state; changes nothing but that
    /// state.
    fn decide(
        &self,
        context: &DecideContext<'_>,
        state: &mut StateOf<Self>,
        item: ItemOf<Self>,
        observation: Self::Observation,
    ) -> (Self::Decided, Findings);
    /// Carries out what was decided.
    fn apply(&self, decided: Self::Decided) -> impl Future<Output = Self::Applied> + Send;
    /// Remembers the outcome of a decision; returns true if it is to be decided again at once.
    fn record(&self, state: &mut StateOf<Self>, applied: &Self::Applied, now: Timestamp) -> bool;
    /// Publishes metrics and log of one autoscaler; returns its status and events, which are written later.
    fn report(
        &self,
        state: &mut StateOf<Self>,
        applied: Self::Applied,
        reporter: &Reporter<'_>,
    ) -> Report;
    /// Publishes the duration of one sync, in seconds.
    fn publish_sync(&self, seconds: f64);
    /// Publishes what is known after every turn of the loop.
    fn publish_states(&self, _states: &StatesOf<Self>) {}
    /// True if something must not be left as it is when the controller ends.
    fn must_release(_state: &StateOf<Self>) -> bool {
        false
    }
    /// Begins the release: from now on nothing may be written that a controller would have to undo later.
    fn begin_release(&self) {}
}
