//! The loop: it starts a sync of every object that is due, each as a task of its own, and waits for none of them.
//!
//! An object whose sync still runs when it is due again is synced again as soon as that one ends. One that panics is
//! quarantined: its state is dropped, and it waits longer after each panic in a row.

use std::{cell::LazyCell, collections::HashSet, future::Future, sync::Arc, time::Duration};

use jiff::SignedDuration;
use tokio::task::{JoinError, JoinSet};

use super::{
    conflicts,
    kind::{Changed, Kind, StatesOf},
    report::Reports,
    running_syncs::{Ended, Syncs},
    setup::{Setup, Shared},
    state::pause_from,
    sync::{DueObject, SyncContext},
    work_queue::{Entry, WorkQueue},
};
use foretide_api::autoscaler::Autoscaler;
use foretide_api::ports::{Cluster, ObjectKey};
use foretide_base::{
    clock::{Clock, Monotonic},
    leadership::Leadership,
};

/// Period of checking whether the cluster has been listed for the first time, and whether the loop may act.
const FIRST_LOOK: SignedDuration = SignedDuration::from_millis(200);
/// Time for which an object waits for the sync of an earlier one of its name to end.
const AFTER_OUTLIVED: SignedDuration = SignedDuration::from_secs(1);
/// Time for which nothing is decided after a pause of this process: what watches and probes deliver then is from after
/// it.
const AFTER_PAUSE: Duration = Duration::from_secs(2);
/// The controller of one kind of autoscaler.
#[derive(Debug)]
pub struct Controller<C, K: Kind> {
    context: Arc<SyncContext<C, K>>,
    leadership: Leadership,
    queue: WorkQueue,
    states: StatesOf<K>,
    syncs: Syncs,
    /// Releases and deletions of what is no longer needed, one run at a time.
    cleanup: JoinSet<()>,
    /// The time at which the last iteration of the loop began.
    turned: Monotonic,
}

// === impl Controller ===

impl<C: Cluster, K: Kind> Controller<C, K> {
    /// A controller of a kind whose objects are in `cluster`, without state.
    pub(crate) fn of_kind(
        cluster: Arc<C>,
        kind: K,
        clock: Clock,
        setup: Setup,
        shared: Shared,
    ) -> Self {
        let reports = Reports::new(cluster, Arc::clone(&shared.telemetry));
        Self {
            leadership: Leadership::default(),
            queue: WorkQueue::new(setup.sync_period),
            states: StatesOf::<K>::default(),
            syncs: Syncs::default(),
            cleanup: JoinSet::new(),
            turned: clock.monotonic(),
            context: Arc::new(SyncContext {
                kind,
                clock,
                setup,
                shared,
                reports: Arc::new(reports),
            }),
        }
    }

    /// The same controller, which waits while this process is not the leader.
    #[must_use]
    pub fn led_by(self, leadership: Leadership) -> Self {
        Self { leadership, ..self }
    }

    /// Syncs until `stop` completes, and then releases what must not be left as it is: the scale-down holds of members.
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        let context = Arc::clone(&self.context);
        loop {
            if self.has_paused() {
                // Otherwise it would be decided from what the stores held before the pause.
                tokio::time::sleep(AFTER_PAUSE).await;
            }
            // Before the first lists are complete, every HPA would look missing and be created again.
            let synced = context.kind.is_synced();
            self.publish();
            context.kind.publish_readiness(synced);
            // A standby has no states: it restores them from the statuses when it takes over.
            let acts = synced && self.leadership.may_act() && context.kind.is_prepared();
            // Without `acts`: a fleet is prepared only after its first cleanup.
            if self.leadership.may_act() {
                self.start_cleanup();
            }
            if acts {
                self.start_due();
            }
            let wait = if acts {
                self.queue.until_next(context.clock.monotonic())
            } else {
                FIRST_LOOK
            };
            tokio::select! {
                biased;
                () = &mut stop => break,
                // First, so that changes that never cease do not keep syncs from their end.
                () = self.finish_until_due() => {}
                changed = context.kind.changed() => self.requeue(&changed),
                () = context.clock.sleep(wait) => {}
            }
        }
        self.release().await;
    }

    /// True if more time passed since the last turn than the loop ever waits.
    fn has_paused(&mut self) -> bool {
        let now = self.context.clock.monotonic();
        let before = std::mem::replace(&mut self.turned, now);
        now.since(before) > pause_from(self.context.setup.sync_period).unsigned_abs()
    }

    /// Finishes syncs as they end, until one makes its object due before its regular time. Cancel safe.
    async fn finish_until_due(&mut self) {
        loop {
            let Some(ended) = self.syncs.next().await else {
                // While no sync runs, `next` returns at once, and the loop would never wait.
                return std::future::pending().await;
            };
            let mut is_due = self.finish(ended);
            // Together, because every look goes through all objects.
            while let Some(ended) = self.syncs.try_next() {
                is_due |= self.finish(ended);
            }
            if is_due {
                return;
            }
        }
    }

    /// Publishes by how much the loop is late, and what the last syncs found.
    fn publish(&self) {
        let now = self.context.clock.monotonic();
        // An object whose sync hangs is not late in the queue, which has its next turn already.
        let lag = self.queue.lateness(now).max(self.syncs.oldest(now));
        let telemetry = &self.context.shared.telemetry;
        telemetry.turned(K::KIND.resource(), lag.as_secs_f64());
        self.context.kind.publish_states(&self.states);
    }

    /// Starts a cleanup, if nothing that exists can be missing from the copies, unless one runs.
    fn start_cleanup(&mut self) {
        if !self.context.kind.may_clean_up() {
            return;
        }
        // A `JoinSet` counts tasks that have ended until they are joined.
        while self.cleanup.try_join_next().is_some() {}
        if self.cleanup.is_empty() {
            let now = self.context.clock.monotonic();
            let busy = self.syncs.busy(now);
            let cleanup = self.context.kind.cleanup(&self.states, &busy, now);
            self.cleanup.spawn(cleanup);
        }
    }

    /// Starts a sync of every object that is due; forgets the ones that are gone.
    fn start_due(&mut self) {
        let context = Arc::clone(&self.context);
        let objects = context.kind.objects();
        let all: Vec<_> = objects.iter().cloned().map(K::autoscaler).collect();
        self.forget_gone(&all);
        let outlived = self.outlived(&all);
        let entries: Vec<Entry<'_>> = all.iter().map(entry).collect();
        let now = context.clock.monotonic();
        let positions = self.queue.due(&entries, now);
        // Among all objects, not only those that are due: the oldest one on a target may be due later.
        let mut conflicts = conflicts::among(&all);
        let known: Vec<_> = objects.iter().zip(&all).collect();
        let round = Arc::new(context.kind.round(context.clock.now()));
        for &(object, autoscaler) in positions.into_iter().filter_map(|at| known.get(at)) {
            if outlived.contains(&key_of(autoscaler)) {
                self.queue.again(autoscaler.uid(), now, AFTER_OUTLIVED);
                continue;
            }
            let state = self
                .states
                .of(autoscaler, |report| context.kind.restore(object, report));
            let due = DueObject {
                object: Arc::clone(object),
                autoscaler: autoscaler.clone(),
                conflicts: conflicts.remove(autoscaler.uid()).unwrap_or_default(),
                state,
                round: Arc::clone(&round),
            };
            let syncing = Arc::clone(&context);
            let sync = async move { syncing.sync(due).await };
            self.syncs.start(autoscaler.uid(), now, sync);
        }
    }

    fn forget_gone(&mut self, all: &[Autoscaler]) {
        let telemetry = &self.context.shared.telemetry;
        let uids: HashSet<&str> = all.iter().map(Autoscaler::uid).collect();
        telemetry.set_objects(K::KIND.resource(), uids.len());
        // An object that is missing from an incomplete list, or cannot be decoded, is not deleted.
        if !self.context.kind.lists_all() {
            return;
        }
        // Listed only if one is missing among the decoded objects.
        let existing = LazyCell::new(|| self.context.kind.uids());
        // An object whose sync still runs is forgotten after it: its report would bring the metric series back.
        for gone in self
            .states
            .retain(|uid| uids.contains(uid) || self.syncs.runs(uid) || existing.contains(uid))
        {
            self.context.forget(&gone);
        }
        // What is left out because of its size must not stay in memory by its state.
        for (uid, state) in self.states.by_uid() {
            if !uids.contains(&**uid) && !self.syncs.runs(uid) {
                state.lock().forget_version();
            }
        }
        self.syncs.keep_failures_of(&uids);
    }

    /// The names of objects that are gone while their sync still runs. An object created again under such a name waits:
    /// metric series and page are kept by name, and are those of the earlier object until it is forgotten.
    fn outlived(&self, all: &[Autoscaler]) -> HashSet<ObjectKey> {
        let mut gone: HashSet<&str> = self.syncs.uids().collect();
        for autoscaler in all {
            gone.remove(autoscaler.uid());
        }
        gone.into_iter()
            .filter_map(|uid| {
                let state = self.states.get(uid)?.lock();
                Some(ObjectKey {
                    namespace: state.report.labels.namespace.clone(),
                    name: state.report.labels.name.clone(),
                })
            })
            .collect()
    }

    /// Makes changed objects due at once.
    fn requeue(&mut self, changed: &Changed) {
        let now = self.context.clock.monotonic();
        let objects = self.context.kind.objects();
        for autoscaler in objects.into_iter().map(K::autoscaler) {
            let is_changed = match changed {
                Changed::Objects(keys) => keys.contains(&key_of(&autoscaler)),
                // One that panicked waits, unless it has changed itself.
                Changed::All => !self.syncs.has_panicked(autoscaler.uid()),
            };
            if is_changed {
                self.queue
                    .again(autoscaler.uid(), now, SignedDuration::ZERO);
            }
        }
    }

    /// Finishes a sync that has ended; returns true if its object is due before its regular time.
    fn finish(&mut self, ended: Ended) -> bool {
        let (uid, now) = (ended.uid.clone(), self.context.clock.monotonic());
        match self.syncs.finish(ended, now) {
            Ok(None) => false,
            Ok(Some(delay)) => {
                self.queue.again(&uid, now, delay);
                true
            }
            // The process ends.
            Err(error) if error.is_cancelled() => false,
            Err(error) => {
                self.quarantine(&uid, &error);
                false
            }
        }
    }

    /// Lets an object whose sync panicked wait.
    fn quarantine(&mut self, uid: &str, error: &JoinError) {
        let context = Arc::clone(&self.context);
        let delay = self.syncs.panicked(uid);
        context.shared.telemetry.panicked(K::KIND.resource());
        self.queue.postpone(uid, context.clock.monotonic(), delay);
        let found = context.kind.objects().into_iter().find_map(|object| {
            let autoscaler = K::autoscaler(Arc::clone(&object));
            (autoscaler.uid() == uid).then_some((object, autoscaler))
        });
        let Some((object, autoscaler)) = found else {
            // Deleted while its sync ran: there is no object to report the panic on.
            if let Some(gone) = self.states.remove(uid) {
                context.forget(&gone);
            }
            return;
        };
        // What the panic left may be half changed; the state is restored from status.
        let state = self
            .states
            .restart(&autoscaler, |report| context.kind.restore(&object, report));
        let (namespace, name) = (autoscaler.namespace(), autoscaler.name());
        tracing::error!(%namespace, %name, %error, ?delay, "the sync of the object panicked; next attempt after the delay");
        let message = format!(
            "the controller panicked while it synced this object; next attempt in {delay:#}; \
             report the panic message of the controller's log as a bug"
        );
        context.report_trouble(&autoscaler, &state, &[("Ready", "InternalError", message)]);
    }

    /// Waits until every sync that was started has ended and is reported.
    async fn finish_all(&mut self) {
        while let Some(ended) = self.syncs.next().await {
            self.finish(ended);
        }
        self.context.reports.delivered().await;
    }

    /// Finishes the syncs that run, and then syncs once more the objects that must not be left as they are.
    async fn release(&mut self) {
        // Time to observe, to write, and to report.
        let limit = self.context.setup.member_deadline * 3;
        let last = async {
            self.finish_all().await;
            let held = self.states.uids_where(K::must_release);
            if held.is_empty() {
                return;
            }
            let now = self.context.clock.monotonic();
            for uid in &held {
                self.queue.again(uid, now, SignedDuration::ZERO);
            }
            // Before these syncs, which would otherwise hold the members again.
            self.context.kind.begin_release();
            self.start_due();
            self.finish_all().await;
        };
        if tokio::time::timeout(limit, last).await.is_err() {
            tracing::warn!(
                ?limit,
                "no time left to finish; some members may still be held from scaling down"
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
