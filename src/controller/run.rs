//! The loop: one sync after the other over the autoscalers that are due.
//!
//! ```text
//! due -> observe -> decide -> apply -> record -> report
//! ```
//!
//! The steps are those of a [`Kind`]; this file says in which order, for which objects, and with which state.

use std::{collections::HashSet, future::Future, sync::Arc};

use futures::future::join;
use jiff::SignedDuration;

use super::{
    Setup, Shared,
    child_hpa::ChildSpec,
    conflicts::{self, TargetConflicts},
    decide::DecideContext,
    kind::{Changed, Cleanup, ItemOf, Kind, Observed, StatesOf},
    part::WorkItem,
    report::{INVALID_SPEC, ReportState, Reporter, Trouble},
    state::InForce,
    work_queue::{Entry, WorkQueue},
};
use crate::{
    api::{autoscaler::Autoscaler, validation::Invalid},
    clock::Clock,
    ports::{Cluster, ObjectKey},
};

/// How often the loop checks whether the cluster has been listed for the first time.
const FIRST_LOOK: SignedDuration = SignedDuration::from_millis(200);
/// How soon an object is decided again after a write that met a conflict.
const AFTER_CONFLICT: SignedDuration = SignedDuration::from_secs(1);

/// The controller of one kind of autoscaler.
#[derive(Debug)]
pub(super) struct Controller<C, K: Kind> {
    /// The cluster that the objects are in.
    cluster: Arc<C>,
    kind: K,
    clock: Clock,
    setup: Setup,
    shared: Shared,
    queue: WorkQueue,
    states: StatesOf<K>,
}

/// An autoscaler about which nothing could be decided, and why.
type Undecided = (Autoscaler, Vec<Trouble>);

// === impl Controller ===

impl<C: Cluster, K: Kind> Controller<C, K> {
    pub(super) fn new(
        cluster: Arc<C>,
        kind: K,
        clock: Clock,
        setup: Setup,
        shared: Shared,
    ) -> Self {
        let queue = WorkQueue::new(setup.sync_period);
        Self {
            cluster,
            kind,
            clock,
            setup,
            shared,
            queue,
            states: StatesOf::<K>::default(),
        }
    }

    /// Syncs until `stop` completes, and then releases what must not be left as it is.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        loop {
            // Before the first lists are complete, every HPA would look missing and be created again.
            let synced = self.kind.is_synced();
            self.kind.publish_readiness(synced);
            if synced {
                self.sync().await;
            }
            let wait = if synced {
                self.queue.until_next(self.clock.now())
            } else {
                FIRST_LOOK
            };
            let changed = tokio::select! {
                () = &mut stop => break,
                () = self.clock.sleep(wait) => continue,
                changed = self.kind.changed() => changed,
            };
            self.requeue(&changed);
        }
        self.release().await;
    }

    /// One sync: every autoscaler that is due is observed, decided, written and reported; besides, what is no longer
    /// needed is cleaned up.
    pub(super) async fn sync(&mut self) {
        let now = self.clock.now();
        let cleanup = self.kind.cleanup(&self.states, now).await;
        // Together, so that a cleanup that waits for an unreachable member delays no decision.
        join(cleanup.run(), self.sync_due()).await;
        self.kind.publish_states(&self.states);
    }

    async fn sync_due(&mut self) {
        let due = self.due().await;
        if due.is_empty() {
            return;
        }
        let started = self.clock.now();
        let observed = self.kind.observe(due, &self.states, started).await;
        let (decided, undecided) = self.decide(observed);
        let applied = self.kind.apply(decided).await;
        self.record(&applied);
        self.report(applied, &undecided).await;
        let elapsed = self.clock.now().duration_since(started).as_secs_f64();
        self.kind.publish_sync(elapsed);
    }

    /// Makes changed objects due at once.
    fn requeue(&mut self, changed: &Changed) {
        let now = self.clock.now();
        for autoscaler in self.kind.objects().into_iter().map(K::autoscaler) {
            let is_changed = match changed {
                Changed::Objects(keys) => keys.contains(&key_of(&autoscaler)),
                Changed::All => true,
            };
            if is_changed {
                self.queue
                    .again(autoscaler.uid(), now, SignedDuration::ZERO);
            }
        }
    }

    /// The objects that are due, validated; forgets the ones that are gone.
    async fn due(&mut self) -> Vec<ItemOf<K>> {
        let objects = self.kind.objects();
        let all: Vec<_> = objects.iter().cloned().map(K::autoscaler).collect();
        let uids: HashSet<&str> = all.iter().map(Autoscaler::uid).collect();
        // An object that is missing from an incomplete list is not deleted.
        if self.kind.lists_all() {
            for gone in self.states.retain(|uid| uids.contains(uid)) {
                let ReportState {
                    labels, forecast, ..
                } = &gone.report;
                self.shared.telemetry.forget(labels, forecast);
                self.kind.forget(gone);
            }
        }
        self.shared
            .telemetry
            .set_objects(K::KIND.resource(), uids.len());
        let entries: Vec<Entry<'_>> = all.iter().map(entry).collect();
        let positions = self.queue.due(&entries, self.clock.now());
        // Among all objects, not only those that are due: the oldest one on a target may be due later.
        let mut conflicts = conflicts::among(&all);
        let known: Vec<_> = objects.iter().zip(&all).collect();
        let mut due = Vec::with_capacity(positions.len());
        for (object, autoscaler) in positions.into_iter().filter_map(|at| known.get(at)) {
            let conflicts = conflicts.remove(autoscaler.uid()).unwrap_or_default();
            due.extend(self.validate(object, autoscaler, conflicts).await);
        }
        due
    }

    /// What an object asks for; while its spec is invalid, the last valid one stays in force.
    async fn validate(
        &mut self,
        object: &Arc<K::Object>,
        autoscaler: &Autoscaler,
        conflicts: TargetConflicts,
    ) -> Option<ItemOf<K>> {
        let validated = self.kind.validate(object);
        let state = self.states.of(autoscaler, || self.kind.restore(object));
        state.invalid = None;
        match validated {
            Ok(spec) => {
                state.in_force = Some(InForce {
                    spec: Arc::new(spec),
                    child: Arc::new(ChildSpec::of(autoscaler.spec())),
                });
            }
            // `in_force` stays: a mistake in the spec must not stop autoscaling.
            Err(invalid) => state.invalid = Some(invalid),
        }
        let Some(InForce { spec, child }) = state.in_force.clone() else {
            let trouble = state.invalid.as_ref().map(never_valid);
            self.report_trouble(autoscaler, trouble.as_slice()).await;
            return None;
        };
        Some(WorkItem {
            owner: Arc::new(self.kind.owner(object, &spec)),
            object: Arc::clone(object),
            autoscaler: autoscaler.clone(),
            spec,
            child,
            conflicts,
        })
    }

    /// Decides every object that could be observed; for the others, returns why not.
    fn decide(&mut self, observed: Vec<Observed<K>>) -> (Vec<K::Decided>, Vec<Undecided>) {
        let context = DecideContext {
            settings: &self.setup.settings,
            telemetry: &self.shared.telemetry,
            now: self.clock.now(),
        };
        let mut decided = Vec::with_capacity(observed.len());
        let mut undecided = Vec::new();
        for (item, observation) in observed {
            match observation {
                Ok(observation) => {
                    let state = self.states.get_mut(&item.autoscaler);
                    let kind = &self.kind;
                    decided
                        .extend(state.map(|state| kind.decide(&context, state, item, observation)));
                }
                Err(troubles) => undecided.push((item.autoscaler, troubles)),
            }
        }
        (decided, undecided)
    }

    fn record(&mut self, applied: &[K::Applied]) {
        let now = self.clock.now();
        for applied in applied {
            let autoscaler = K::applied_to(applied);
            let state = self.states.get_mut(autoscaler);
            if state.is_some_and(|state| self.kind.record(state, applied, now)) {
                // Not at once: the watch needs a moment to deliver what was written.
                self.queue.again(autoscaler.uid(), now, AFTER_CONFLICT);
            }
        }
    }

    async fn report(&mut self, applied: Vec<K::Applied>, undecided: &[Undecided]) {
        let now = self.clock.now();
        for applied in applied {
            if let Some(state) = self.states.get_mut(K::applied_to(&applied)) {
                self.kind.report(state, applied, now).await;
            }
        }
        for (autoscaler, troubles) in undecided {
            self.report_trouble(autoscaler, troubles).await;
        }
    }

    async fn report_trouble(&mut self, autoscaler: &Autoscaler, troubles: &[Trouble]) {
        let reporter = Reporter {
            cluster: &*self.cluster,
            telemetry: &self.shared.telemetry,
            now: self.clock.now(),
        };
        if let Some(state) = self.states.get_mut(autoscaler) {
            reporter
                .trouble(&mut state.report, autoscaler, troubles)
                .await;
        }
    }

    /// One last sync of the objects that must not be left as they are.
    async fn release(&mut self) {
        let now = self.clock.now();
        let mut held = self.states.uids_where(K::must_release).peekable();
        if held.peek().is_none() {
            return;
        }
        for uid in held {
            self.queue.again(uid, now, SignedDuration::ZERO);
        }
        self.kind.begin_release();
        // Time to observe, to write, and to report.
        let limit = self.setup.member_deadline * 3;
        if tokio::time::timeout(limit, self.sync_due()).await.is_err() {
            tracing::warn!(
                ?limit,
                "no time left to end the scale-down holds of members; some may remain"
            );
        }
    }
}

fn key_of(autoscaler: &Autoscaler) -> ObjectKey {
    ObjectKey {
        namespace: autoscaler.namespace().to_owned(),
        name: autoscaler.name().to_owned(),
    }
}

fn entry(autoscaler: &Autoscaler) -> Entry<'_> {
    Entry {
        uid: autoscaler.uid(),
        namespace: autoscaler.namespace(),
        generation: autoscaler.generation().unwrap_or_default(),
    }
}

/// The trouble of an object that never had a valid spec.
fn never_valid(invalid: &Invalid) -> Trouble {
    let message = format!("{invalid}; not reconciled until the spec is fixed");
    ("Ready", INVALID_SPEC, message)
}
