//! The objects that changed since the last call.
//!
//! A set of keys and not a queue of events: an object that changes a thousand times is in it once, so a slow reader
//! costs no memory. What changed is left to the store.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use foretide_api::ports::ObjectKey;

/// The objects that were created or deleted, or whose spec or annotations changed.
#[derive(Debug, Default)]
pub struct Changes {
    keys: Mutex<BTreeSet<ObjectKey>>,
    wake: Notify,
}

// === impl Changes ===

impl Changes {
    /// Waits until there is a change, and takes all changes; never empty.
    ///
    /// # Guarantees
    /// Cancel safe: no change is lost. Only one reader may call it.
    pub async fn next(&self) -> BTreeSet<ObjectKey> {
        loop {
            let taken = std::mem::take(&mut *self.keys.lock());
            if !taken.is_empty() {
                return taken;
            }
            self.wake.notified().await;
        }
    }

    pub fn add(&self, namespace: &str, name: &str) {
        self.keys.lock().insert(ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
        // Leaves a permit if nobody waits yet, so that a change between the look and the wait in `next` is not missed.
        self.wake.notify_one();
    }
}
