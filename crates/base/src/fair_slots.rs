//! Slots for work of many tenants, such as namespaces or readers: the slow work of one tenant does not delay the others.
//!
//! ```text
//! one queue for each tenant ─┬─► prompt lane ▣▣▢▢▢   tenants whose work is prompt
//!                            │        │ after two seconds
//!                            └─► slow lane   ▣▢▢▢▢   tenants with slow work in the last minute
//! ```
//!
//! A free slot goes to the tenant that holds the fewest slots; among equals, to the one that has used slots for the
//! least time. The last free slot of a lane is reserved for a tenant that holds no slot of this lane. A tenant whose
//! latency is unknown has one slot until its first work has ended.

mod lanes;

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::timeout};

use self::lanes::{HoldId, Lanes};
use crate::clock::{Clock, Monotonic};

/// Work that takes longer is slow. This is a fifth of the timeout of a query, and many times what a query takes that reads
/// two weeks of minutes.
pub const PROMPT: Duration = Duration::from_secs(2);

/// Slots of two lanes, shared by tenants; clones share them.
#[derive(Debug, Clone)]
pub struct FairSlots {
    lanes: Arc<Mutex<Lanes<oneshot::Sender<Slot>>>>,
    clock: Clock,
}

/// The right to work, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: FairSlots,
    hold: HoldId,
}

// === impl FairSlots ===

impl FairSlots {
    /// Returns this number of free slots in each lane; at least two are needed, because one is reserved. The clock
    /// measures the work.
    pub fn new(slots: usize, clock: Clock) -> Self {
        Self {
            lanes: Arc::new(Mutex::new(Lanes::new(slots))),
            clock,
        }
    }

    /// Waits for a slot. Dropping the future removes it from the queue.
    pub async fn acquire(&self, tenant: &Arc<str>) -> Slot {
        loop {
            let (sender, slot) = oneshot::channel();
            self.lanes.lock().enqueue(tenant, sender);
            self.start_waiting();
            // A sender is dropped only after it has sent its slot.
            if let Ok(slot) = slot.await {
                return slot;
            }
        }
    }

    /// The tenants whose work is slow.
    pub fn slow_tenants(&self) -> Vec<Arc<str>> {
        self.lanes.lock().slow_tenants(self.now())
    }

    /// Assigns the free slots to waiting work.
    fn start_waiting(&self) {
        loop {
            let started = self
                .lanes
                .lock()
                .start_next(self.now(), oneshot::Sender::is_closed);
            // The lock is free again here: a slot that cannot be sent is dropped, which takes it.
            let Some((hold, waiting)) = started else {
                return;
            };
            let slots = self.clone();
            // If the receiver is gone, dropping the slot releases it.
            drop(waiting.send(Slot { slots, hold }));
        }
    }

    fn now(&self) -> Monotonic {
        self.clock.monotonic()
    }
}

// === impl Slot ===

impl Slot {
    /// Runs work and measures the latency of its tenant: after two seconds the work moves to the slow lane.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if let Ok(result) = timeout(PROMPT, &mut work).await {
            self.slots
                .lanes
                .lock()
                .was_prompt(self.hold, self.slots.now());
            return result;
        }
        self.is_slow();
        let result = work.await;
        // The tenant counts as slow for a minute from the end of the work.
        self.is_slow();
        result
    }

    fn is_slow(&self) {
        self.slots.lanes.lock().is_slow(self.hold, self.slots.now());
        self.slots.start_waiting();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lanes.lock().release(self.hold, self.slots.now());
        self.slots.start_waiting();
    }
}

#[cfg(test)]
mod tests;
