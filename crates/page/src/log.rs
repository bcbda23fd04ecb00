//! The last decision about every autoscaler, and its last days by the minute, in bounded memory.
//!
//! A sync records in some microseconds and never waits for a reader: a reader clones pointers under the lock of one
//! autoscaler, and computes without it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use foretide_domain::autoscale::Decision;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::watch;

use super::{
    Visible,
    api::{ObjectKey, Sentence},
    block::Row,
    minutes::{Budget, Minutes},
    record::{Decided, LastDecision, Latest, Record, Recorded},
    word,
};
use foretide_api::{
    autoscaler::{Autoscaler, Status},
    ownership::OwnerKind,
};

/// The decisions of all autoscalers.
#[derive(Debug)]
pub struct DecisionLog {
    objects: RwLock<Objects>,
    budget: Arc<Budget>,
    version: watch::Sender<u64>,
}

type Objects = HashMap<ObjectKey, Arc<Mutex<Object>>>;

#[derive(Debug)]
struct Object {
    latest: Option<Arc<Latest>>,
    version: u64,
    minutes: Minutes,
}

// === impl DecisionLog ===

impl Default for DecisionLog {
    fn default() -> Self {
        Self::new(Self::DEFAULT_BYTES)
    }
}

impl DecisionLog {
    /// The memory for recorded minutes unless another amount is set: 64 MiB.
    const DEFAULT_BYTES: usize = 64 << 20;

    /// A log whose minutes take at most this much memory.
    pub fn new(bytes: usize) -> Self {
        Self {
            objects: RwLock::default(),
            budget: Arc::new(Budget::new(bytes)),
            version: watch::Sender::new(0),
        }
    }

    /// Returns the memory limit of the minutes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.budget.bytes()
    }

    /// Records what was decided about an autoscaler and reported of it.
    pub fn record(&self, record: Record<'_>) {
        let key = key_of(record.autoscaler);
        // All but the first sync of an object need only the read lock, which readers share.
        let object = self.known(&key).unwrap_or_else(|| self.add(key.clone()));
        if lock(&object).record(key, record) {
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Forgets an autoscaler that is gone.
    pub fn forget(&self, kind: OwnerKind, namespace: &str, name: &str) {
        // The lock is released before the version changes: the readers that this wakes take it.
        let gone = self.objects.write().remove(&key_at(kind, namespace, name));
        if gone.is_some() {
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Returns whether an autoscaler is recorded.
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        self.known(key).is_some()
    }

    /// The namespaces of recorded autoscalers.
    pub fn namespaces(&self) -> BTreeSet<String> {
        let objects = self.objects.read();
        objects.keys().map(|key| key.namespace.clone()).collect()
    }

    /// Returns a counter that changes whenever something that a reader sees has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Returns a number that changes whenever something about an autoscaler of these namespaces has changed.
    pub(crate) fn version(&self, visible: &Visible) -> u64 {
        self.objects
            .read()
            .iter()
            .filter(|(key, _)| visible.allows(&key.namespace))
            // One more for each object, so that a new object without a version changes the sum, too.
            .map(|(_, object)| 1 + lock(object).version)
            .fold(0, u64::wrapping_add)
    }

    /// Returns a number that changes whenever something about this autoscaler has changed; absent if it is not
    /// recorded.
    pub(crate) fn version_of(&self, key: &ObjectKey) -> Option<u64> {
        self.known(key).map(|object| lock(&object).version)
    }

    /// The current state of every autoscaler of these namespaces.
    pub(crate) fn all(&self, visible: &Visible) -> Vec<Arc<Latest>> {
        self.visible(visible)
            .iter()
            .filter_map(|object| lock(object).latest.clone())
            .collect()
    }

    /// The records of one autoscaler.
    pub(crate) fn recorded(&self, key: &ObjectKey) -> Option<Recorded> {
        let object = self.known(key)?;
        let object = lock(&object);
        Some(Recorded {
            latest: object.latest.clone()?,
            minutes: object.minutes.snapshot(),
            span: object.minutes.span(),
        })
    }

    /// The sentences of one autoscaler that were in force in `[from, until)`, in seconds since 1970.
    pub(crate) fn sentences(&self, key: &ObjectKey, from: i64, until: i64) -> Vec<Arc<Sentence>> {
        match self.known(key) {
            Some(object) => lock(&object).minutes.sentences(from, until),
            None => Vec::new(),
        }
    }

    /// The first recorded minute of any of these namespaces, in seconds since 1970.
    pub(crate) fn since(&self, visible: &Visible) -> Option<i64> {
        self.visible(visible)
            .iter()
            .filter_map(|object| Some(lock(object).minutes.span()?.0))
            .min()
    }

    /// The autoscalers of these namespaces, to be read without the lock of all.
    fn visible(&self, visible: &Visible) -> Vec<Arc<Mutex<Object>>> {
        self.objects
            .read()
            .iter()
            .filter(|(key, _)| visible.allows(&key.namespace))
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    fn known(&self, key: &ObjectKey) -> Option<Arc<Mutex<Object>>> {
        self.objects.read().get(key).cloned()
    }

    fn add(&self, key: ObjectKey) -> Arc<Mutex<Object>> {
        Arc::clone(self.objects.write().entry(key).or_insert_with(|| {
            Arc::new(Mutex::new(Object {
                latest: None,
                version: 0,
                minutes: Minutes::new(Arc::clone(&self.budget)),
            }))
        }))
    }
}

fn lock(object: &Mutex<Object>) -> MutexGuard<'_, Object> {
    object.lock()
}

/// The key of an object.
pub fn key_of(autoscaler: &Autoscaler) -> ObjectKey {
    key_at(autoscaler.kind(), autoscaler.namespace(), autoscaler.name())
}

/// The key of the object of this kind with this name.
fn key_at(kind: OwnerKind, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        resource: kind.plural().to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

// === impl Object ===

impl Object {
    /// Records a sync; returns whether a reader sees a change.
    fn record(&mut self, key: ObjectKey, record: Record<'_>) -> bool {
        let second = record.at.as_second();
        let is_new = record.decided.is_some() && self.minutes.is_new(second);
        let before = self.latest.take();
        let is_other = before
            .as_deref()
            .is_none_or(|before| differs(&before.status, record.status));
        let word = word::of(record.status, record.decided.as_ref());
        if let Some(decided) = &record.decided {
            let acted = word::acts(record.status, decided);
            self.record_minute(second, decided, (is_new.then_some(record.at), acted));
            if is_other {
                self.say(decided.decision);
            }
        }
        let decided = record.decided.map(LastDecision::of);
        // After a sync that could decide nothing, the last decision stays in view.
        let kept = before.as_ref().and_then(|before| before.decided.clone());
        let changed = is_other || is_new || before.is_none_or(|before| before.word != word);
        self.latest = Some(Arc::new(Latest {
            key,
            at: record.at,
            autoscaler: record.autoscaler.clone(),
            status: record.status.clone(),
            word,
            decided: decided.map(Arc::new).or(kept),
        }));
        self.version += u64::from(changed);
        changed
    }

    /// Records the row of a minute; at its first sync also the forecast for the minute a lead time later.
    fn record_minute(
        &mut self,
        second: i64,
        decided: &Decided<'_>,
        (first_at, acted): (Option<Timestamp>, bool),
    ) {
        let made = first_at
            .into_iter()
            .flat_map(|at| decided.metrics.iter().filter_map(move |it| it.expected(at)));
        let row = Row {
            counts: &decided.counts(acted),
            proposed: decided.decision.proposed(),
            metrics: &decided.metrics,
            // The highest forecast among several metrics counts, as in the decision.
            expected: made.max_by(|one, other| one.end().total_cmp(&other.end())),
        };
        self.minutes.record(second, &row);
    }

    fn say(&mut self, decision: &Decision) {
        self.minutes.say(Sentence {
            at: decision.at.as_second(),
            winner: decision
                .winner
                .as_ref()
                .map(|it| it.source.as_str().to_owned()),
            limit: decision.limit.map(|limit| limit.as_str().to_owned()),
            text: decision.message(),
        });
    }
}

/// Returns whether two statuses differ in counts, winner, limit, conditions, windows or clusters.
fn differs(before: &Status, now: &Status) -> bool {
    steps(before) != steps(now)
        || limit(before) != limit(now)
        || !windows(before).eq(windows(now))
        || !conditions(before).eq(conditions(now))
        || !clusters(before).eq(clusters(now))
}

/// The steps and the winner of the decision, the current replicas, and those that no cluster takes.
fn steps(status: &Status) -> impl PartialEq {
    let decision = status.common.decision.as_ref();
    (
        decision.map(|it| [it.maximum, it.stabilized, it.limited, it.desired, it.floor]),
        decision.and_then(|it| it.winner),
        status.common.current_replicas,
        status.fleet.unassigned,
    )
}

fn limit(status: &Status) -> Option<&str> {
    status.common.decision.as_ref()?.limit.as_deref()
}

fn windows(status: &Status) -> impl Iterator<Item = bool> {
    status.common.windows.iter().flatten().map(|it| it.active)
}

fn conditions(status: &Status) -> impl Iterator<Item = [&str; 3]> {
    let conditions = status.common.conditions.iter().flatten();
    conditions.map(|one| [&*one.type_, &*one.status, &*one.reason])
}

fn clusters(status: &Status) -> impl Iterator<Item = ([Option<i32>; 4], Option<&str>)> {
    let clusters = status.fleet.clusters.iter().flatten();
    clusters.map(|one| {
        (
            [one.min, one.max, one.ready, one.pending],
            one.reason.as_deref(),
        )
    })
}
