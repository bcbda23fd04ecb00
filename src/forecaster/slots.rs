//! Slots for work that many namespaces ask for: the slow work of one delays no other.
//!
//! ```text
//! one queue for each namespace ─┬─► prompt lane ▣▣▢▢▢   namespaces whose work ends soon
//!                               │        │ after two seconds
//!                               └─► slow lane   ▣▢▢▢▢   the others, one minute long
//! ```
//!
//! A free slot goes to the namespace that holds the fewest, and of those to the one whose work has held slots for the
//! least time. The last free slot of a lane is kept for a namespace that holds none of them. A namespace of which nothing
//! is known has one slot until its work has ended once.

mod lanes;

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

use self::lanes::{HoldId, Lanes};
use crate::clock::{Clock, Monotonic};

/// Work that takes longer is slow: a fifth of what a query may take, and many times what one takes that reads two weeks
/// of minutes.
const PROMPT: Duration = Duration::from_secs(2);

/// Slots of two lanes, shared by namespaces; clones share them.
#[derive(Debug, Clone)]
pub(super) struct FairSlots(Arc<Mutex<Lanes<oneshot::Sender<Slot>>>>);

/// The right to work, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: FairSlots,
    hold: HoldId,
}

// === impl FairSlots ===

impl FairSlots {
    /// This many slots in each lane; at least two, or none could be kept free.
    pub(super) fn new(slots: usize) -> Self {
        Self(Arc::new(Mutex::new(Lanes::new(slots))))
    }

    /// Waits for a slot. Whoever is dropped while it waits leaves the queue.
    pub(super) async fn acquire(&self, namespace: &Arc<str>) -> Slot {
        loop {
            let (sender, slot) = oneshot::channel();
            self.lanes().enqueue(namespace, sender);
            self.start_waiting();
            // A sender is only dropped with its slot sent.
            if let Ok(slot) = slot.await {
                return slot;
            }
        }
    }

    /// The namespaces whose work is slow.
    pub(super) fn slow_namespaces(&self) -> Vec<Arc<str>> {
        self.lanes().slow_namespaces(now())
    }

    /// Hands out the slots that are free.
    fn start_waiting(&self) {
        loop {
            let started = self.lanes().start_next(now(), oneshot::Sender::is_closed);
            let Some((hold, waiting)) = started else {
                return;
            };
            let slots = self.clone();
            // One that is not awaited any more is free again: `Slot::drop`.
            drop(waiting.send(Slot { slots, hold }));
        }
    }

    /// No holder of this lock can leave the lanes half-changed, so a poisoned lock is still usable.
    fn lanes(&self) -> MutexGuard<'_, Lanes<oneshot::Sender<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Slot ===

impl Slot {
    /// Does work, by which the namespace is judged: what takes longer than two seconds goes on in the slow lane.
    pub(super) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(result) = timeout(PROMPT, &mut work).await {
            self.slots.lanes().was_prompt(self.hold, now());
            return result;
        }
        self.is_slow();
        let result = work.await;
        self.is_slow();
        result
    }

    fn is_slow(&self) {
        self.slots.lanes().is_slow(self.hold, now());
        self.slots.start_waiting();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lanes().release(self.hold, now());
        self.slots.start_waiting();
    }
}

fn now() -> Monotonic {
    Clock::system().monotonic()
}

#[cfg(test)]
mod tests;
