//! The syncs that run now, one per object, and the delays after those that panicked or met a conflict.

use std::{
    collections::{HashMap, HashSet, hash_map},
    future::Future,
};

use jiff::SignedDuration;
use tokio::task::{Id, JoinError, JoinSet};

use super::sync::Next;
use foretide_base::clock::Monotonic;

/// Delay before an object is decided again after a write that met a conflict; doubles with each further one in a row,
/// up to the sync period.
const AFTER_CONFLICT: SignedDuration = SignedDuration::from_secs(1);
/// Time for which an object waits after its first panic; doubles with each further one in a row.
const FIRST_QUARANTINE: SignedDuration = SignedDuration::from_secs(30);
/// Maximum number of doublings of a delay: that of a panic grows to 16 minutes.
const MOST_DOUBLINGS: u32 = 5;

/// The syncs that run now, and what is known of the objects that panicked.
#[derive(Debug, Default)]
pub struct Syncs {
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
pub struct Ended {
    pub uid: String,
    is_due_again: bool,
    outcome: Result<Next, JoinError>,
}

// === impl Syncs ===

impl Syncs {
    /// Starts the sync of an object; one that still runs is followed by another.
    pub fn start(
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
    pub async fn next(&mut self) -> Option<Ended> {
        let ended = self.tasks.join_next_with_id().await?;
        self.ended(ended)
    }

    /// A sync that has ended, if one has.
    pub fn try_next(&mut self) -> Option<Ended> {
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

    /// UIDs of the objects whose sync runs.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        self.running.keys().map(String::as_str)
    }

    /// True if the sync of an object runs.
    pub fn runs(&self, uid: &str) -> bool {
        self.running.contains_key(uid)
    }

    /// Forgets the failures of all objects but these.
    pub fn keep_failures_of(&mut self, uids: &HashSet<&str>) {
        for counts in [&mut self.panics, &mut self.conflicts] {
            counts.retain(|uid, _| uids.contains(&**uid));
        }
    }

    /// The objects that must not be cleaned up yet: a sync of them runs, or may have written what no watch shows yet.
    pub fn busy(&mut self, now: Monotonic) -> HashSet<String> {
        // As after a conflict: the watch needs a moment to deliver what was written.
        let settles = AFTER_CONFLICT.unsigned_abs();
        self.ended.retain(|_, ended| now.since(*ended) < settles);
        self.running
            .keys()
            .chain(self.ended.keys())
            .cloned()
            .collect()
    }

    /// Age of the oldest sync that runs.
    pub fn oldest(&self, now: Monotonic) -> SignedDuration {
        let began = self.running.values().map(|running| running.since).min();
        let oldest = now.since(began.unwrap_or(now));
        SignedDuration::try_from(oldest).unwrap_or(SignedDuration::MAX)
    }

    /// Counts a panic; returns the time for which its object waits.
    pub fn panicked(&mut self, uid: &str) -> SignedDuration {
        self.conflicts.remove(uid);
        doubled(FIRST_QUARANTINE, self.panics.entry(uid.to_owned()))
    }

    /// True if the last sync of an object panicked.
    pub fn has_panicked(&self, uid: &str) -> bool {
        self.panics.contains_key(uid)
    }

    /// Records how a sync ended; returns the delay after which its object is due, if that is before its regular time.
    ///
    /// # Errors
    /// When the sync panicked, or was cancelled.
    pub fn finish(
        &mut self,
        ended: Ended,
        now: Monotonic,
    ) -> Result<Option<SignedDuration>, JoinError> {
        let Ended {
            uid,
            is_due_again,
            outcome,
        } = ended;
        self.ended.insert(uid.clone(), now);
        let next = outcome?;
        self.panics.remove(&uid);
        Ok(match next {
            // Not at once: the watch needs a moment to deliver what was written.
            Next::AfterConflict => {
                let delay = doubled(AFTER_CONFLICT, self.conflicts.entry(uid));
                // What has changed meanwhile may end the conflict.
                Some(if is_due_again { AFTER_CONFLICT } else { delay })
            }
            Next::Regular => {
                self.conflicts.remove(&uid);
                is_due_again.then_some(SignedDuration::ZERO)
            }
        })
    }
}

/// A delay that doubles with each failure in a row; counts one more.
fn doubled(first: SignedDuration, failures: hash_map::Entry<'_, String, u32>) -> SignedDuration {
    let failures = failures.or_default();
    let doublings = (*failures).min(MOST_DOUBLINGS);
    *failures = failures.saturating_add(1);
    first * (1 << doublings)
}
