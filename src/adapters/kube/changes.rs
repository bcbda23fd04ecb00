//! Which autoscalers changed since somebody last asked.
//!
//! A set rather than a queue: an object that changes a thousand times before the next look is there
//! once, so a slow or absent reader costs nothing. It refuses to say what changed; the store knows.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::ports::ObjectKey;

/// The autoscalers that appeared, vanished, or got another spec or other annotations.
#[derive(Debug, Default)]
pub struct Changes {
    keys: Mutex<BTreeSet<ObjectKey>>,
    wake: Notify,
}

// === impl Changes ===

impl Changes {
    /// Waits until there is a change, and takes all there are; never empty.
    ///
    /// # Guarantees
    /// Safe to drop before it is ready: nothing is lost. For one reader.
    pub async fn next(&self) -> BTreeSet<ObjectKey> {
        loop {
            let taken = std::mem::take(&mut *self.keys());
            if !taken.is_empty() {
                return taken;
            }
            self.wake.notified().await;
        }
    }

    pub(super) fn add(&self, namespace: &str, name: &str) {
        self.keys().insert(ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
        self.wake.notify_one();
    }

    fn keys(&self) -> std::sync::MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
