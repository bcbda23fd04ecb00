//! The loop: it starts a sync of every object that is due, each as a task of its own, and waits for none of them.
//!
//! An object whose sync still runs when it is due again is synced again as soon as that one ends. One that panics is
//! quarantined: its state is dropped, and it waits longer after each panic in a row.

use std::{
    cell::LazyCell,
    collections::{HashMap, HashSet, hash_map},
    future::Future,
    sync::Arc,
    time::Duration,
};

use jiff::SignedDuration;
use tokio::task::{Id, JoinError, JoinSet};

use super::{
    conflicts,
    kind::{Changed, Kind, StatesOf},
    report::{ReportState, Reports},
    setup::{Setup, Shared},
    state::pause_from,
    sync::{DueObject, Next, SyncContext},
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
/// Delay before an object is decided again after a write that met a conflict; doubles with each further one in a row,
/// up to the sync period.
const AFTER_CONFLICT: SignedDuration = SignedDuration::from_secs(1);
/// Time for which an object waits for the sync of an earlier one of its name to end.
const AFTER_OUTLIVED: SignedDuration = SignedDuration::from_secs(1);
/// Time for which nothing is decided after a pause of this process: what watches and probes deliver then is from after
/// it.
const AFTER_PAUSE: Duration = Duration::from_secs(2);
/// Time for which an object waits after its first panic; doubles with each further one in a row.
const FIRST_QUARANTINE: SignedDuration = SignedDuration::from_secs(30);
/// Maximum number of doublings of a delay: that of a panic grows to 16 minutes.
const MOST_DOUBLINGS: u32 = 5;

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

/// The syncs that run now, and what is known of the objects that panicked.
#[derive(Debug, Default)]
struct Syncs {
    tasks: JoinSet<Next>,
    /// UIDs of the objects, by task: of one that panics only the id is returned.
    uids: HashMap<Id, String>,
    /// The objects whose sync runs, by UID.
    running: HashMap<String, Running>,
    /// The times at which the last syncs of objects ended, by UID, as long as a watch may not show yet what they wrote.
    ended: HashMap<String, Monotonic>,
    /// Panics in a row, by UID.
    panics: HashMap<String, u32>,
    /// Conflicts in a row, by UID.
    conflicts: HashMap<String, u32>,
}

/// An object whose sync runs.
#[derive(Debug, Clone, Copy)]
struct Running {
    /// The time at which it began.
    since: Monotonic,
    /// True if it has come due again.
    is_due_again: bool,
}

/// A sync that has ended.
#[derive(Debug)]
struct Ended {
    uid: String,
    is_due_again: bool,
    outcome: Result<Next, JoinError>,
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

    /// One sync of every object that is due, with its reports and the cleanup.
    pub async fn sync(&mut self) {
        self.start_cleanup();
        self.start_due();
        self.finish_all().await;
        while self.cleanup.join_next().await.is_some() {}
        self.publish();
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
            let restore = |reported: &ReportState| context.kind.restore(object, reported);
            let due = DueObject {
                object: Arc::clone(object),
                autoscaler: autoscaler.clone(),
                conflicts: conflicts.remove(autoscaler.uid()).unwrap_or_default(),
                state: self.states.of(autoscaler, restore),
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
        let exists = |uid: &str| {
            uids.contains(uid) || self.syncs.running.contains_key(uid) || existing.contains(uid)
        };
        for gone in self.states.retain(exists) {
            self.context.forget(&gone);
        }
        // What is left out because of its size must not stay in memory by its state.
        for (uid, state) in self.states.by_uid() {
            if !uids.contains(&**uid) && !self.syncs.running.contains_key(uid) {
                state.lock().forget_version();
            }
        }
        let syncs = &mut self.syncs;
        for counts in [&mut syncs.panics, &mut syncs.conflicts] {
            counts.retain(|uid, _| uids.contains(&**uid));
        }
    }

    /// The names of objects that are gone while their sync still runs. An object created again under such a name waits:
    /// metric series and page are kept by name, and are those of the earlier object until it is forgotten.
    fn outlived(&self, all: &[Autoscaler]) -> HashSet<ObjectKey> {
        let mut gone: HashSet<&str> = self.syncs.running.keys().map(String::as_str).collect();
        for autoscaler in all {
            gone.remove(autoscaler.uid());
        }
        let states = gone.into_iter().filter_map(|uid| self.states.get(uid));
        let names = states.map(|state| {
            let labels = &state.lock().report.labels;
            ObjectKey {
                namespace: labels.namespace.clone(),
                name: labels.name.clone(),
            }
        });
        names.collect()
    }

    /// Makes changed objects due at once.
    fn requeue(&mut self, changed: &Changed) {
        let now = self.context.clock.monotonic();
        let objects = self.context.kind.objects();
        for autoscaler in objects.into_iter().map(K::autoscaler) {
            let is_changed = match changed {
                Changed::Objects(keys) => keys.contains(&key_of(&autoscaler)),
                // One that panicked waits, unless it has changed itself.
                Changed::All => !self.syncs.panics.contains_key(autoscaler.uid()),
            };
            if is_changed {
                self.queue
                    .again(autoscaler.uid(), now, SignedDuration::ZERO);
            }
        }
    }

    /// Finishes a sync that has ended; returns true if its object is due before its regular time.
    fn finish(&mut self, ended: Ended) -> bool {
        let Ended {
            uid,
            is_due_again,
            outcome,
        } = ended;
        self.syncs
            .ended
            .insert(uid.clone(), self.context.clock.monotonic());
        let delay = match outcome {
            // Not at once: the watch needs a moment to deliver what was written.
            Ok(Next::AfterConflict) => {
                let delay = self.syncs.met_conflict(&uid);
                // What has changed meanwhile may end the conflict.
                Some(if is_due_again { AFTER_CONFLICT } else { delay })
            }
            Ok(Next::Regular) => {
                self.syncs.conflicts.remove(&uid);
                is_due_again.then_some(SignedDuration::ZERO)
            }
            // The process ends.
            Err(error) if error.is_cancelled() => return false,
            Err(error) => {
                self.quarantine(&uid, &error);
                return false;
            }
        };
        self.syncs.panics.remove(&uid);
        if let Some(delay) = delay {
            let now = self.context.clock.monotonic();
            self.queue.again(&uid, now, delay);
        }
        delay.is_some()
    }

    /// Lets an object whose sync panicked wait.
    fn quarantine(&mut self, uid: &str, error: &JoinError) {
        let context = Arc::clone(&self.context);
        let delay = self.syncs.panicked(uid);
        context.shared.telemetry.panicked(K::KIND.resource());
        self.queue.postpone(uid, context.clock.monotonic(), delay);
        let objects = context.kind.objects();
        let mut known = objects
            .iter()
            .map(|object| (object, K::autoscaler(Arc::clone(object))));
        let Some((object, autoscaler)) = known.find(|(_, known)| known.uid() == uid) else {
            // Deleted while its sync ran: there is no object to report the panic on.
            if let Some(gone) = self.states.remove(uid) {
                context.forget(&gone);
            }
            return;
        };
        // What the panic left may be half changed; the state is restored from status.
        let restore = |reported: &ReportState| context.kind.restore(object, reported);
        let state = self.states.restart(&autoscaler, restore);
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

// === impl Syncs ===

impl Syncs {
    /// Starts the sync of an object; one that still runs is followed by another.
    fn start(
        &mut self,
        uid: &str,
        now: Monotonic,
        sync: impl Future<Output = Next> + Send + 'static,
    ) {
        if let Some(running) = self.running.get_mut(uid) {
            running.is_due_again = true;
            return;
        }
        let running = Running {
            since: now,
            is_due_again: false,
        };
        let task = self.tasks.spawn(sync);
        self.uids.insert(task.id(), uid.to_owned());
        self.running.insert(uid.to_owned(), running);
    }

    /// The next sync that ends; none while none runs. Cancel safe.
    async fn next(&mut self) -> Option<Ended> {
        let ended = self.tasks.join_next_with_id().await?;
        self.ended(ended)
    }

    /// A sync that has ended, if one has.
    fn try_next(&mut self) -> Option<Ended> {
        let ended = self.tasks.try_join_next_with_id()?;
        self.ended(ended)
    }

    fn ended(&mut self, ended: Result<(Id, Next), JoinError>) -> Option<Ended> {
        let (id, outcome) = match ended {
            Ok((id, next)) => (id, Ok(next)),
            Err(error) => (error.id(), Err(error)),
        };
        let uid = self.uids.remove(&id)?;
        let running = self.running.remove(&uid)?;
        Some(Ended {
            uid,
            is_due_again: running.is_due_again,
            outcome,
        })
    }

    /// The objects that must not be cleaned up yet: a sync of them runs, or may have written what no watch shows yet.
    fn busy(&mut self, now: Monotonic) -> HashSet<String> {
        // As after a conflict: the watch needs a moment to deliver what was written.
        let settles = AFTER_CONFLICT.unsigned_abs();
        self.ended.retain(|_, ended| now.since(*ended) < settles);
        let busy = self.running.keys().chain(self.ended.keys());
        busy.cloned().collect()
    }

    /// Age of the oldest sync that runs.
    fn oldest(&self, now: Monotonic) -> SignedDuration {
        let ages = self
            .running
            .values()
            .map(|running| now.since(running.since));
        let oldest = ages.max().unwrap_or_default();
        SignedDuration::try_from(oldest).unwrap_or(SignedDuration::MAX)
    }

    /// Counts a panic; returns the time for which its object waits.
    fn panicked(&mut self, uid: &str) -> SignedDuration {
        self.conflicts.remove(uid);
        doubled(FIRST_QUARANTINE, self.panics.entry(uid.to_owned()))
    }

    /// Counts a conflict; returns the time for which its object waits, unless its regular time comes first.
    fn met_conflict(&mut self, uid: &str) -> SignedDuration {
        doubled(AFTER_CONFLICT, self.conflicts.entry(uid.to_owned()))
    }
}

/// A delay that doubles with each failure in a row; counts one more.
fn doubled(first: SignedDuration, failures: hash_map::Entry<'_, String, u32>) -> SignedDuration {
    let failures = failures.or_default();
    let doublings = (*failures).min(MOST_DOUBLINGS);
    *failures = failures.saturating_add(1);
    first * (1 << doublings)
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
