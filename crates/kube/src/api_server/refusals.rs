//! The reads that the server has refused for a time (`Retry-After`).
//!
//! The time holds for the whole process: the next sync, or another part of the controller, does not send a read again
//! that the server has asked another one to wait with.

use std::{collections::HashMap, time::Duration};

use http::Uri;
use parking_lot::Mutex;

use super::error::CallError;
use foretide_base::clock::{Clock, Monotonic};

/// Longest time for which a refusal is heeded, whatever the server asks for.
const LONGEST: Duration = Duration::from_mins(2);
/// Maximum number of refusals that are kept: paths contain names that users choose.
const MAX_KNOWN: usize = 1_000;

/// The refused reads of one API server, by URL.
#[derive(Debug)]
pub struct Refusals {
    clock: Clock,
    by_url: Mutex<HashMap<Uri, Refusal>>,
}

#[derive(Debug, Clone)]
struct Refusal {
    until: Monotonic,
    error: CallError,
}

// === impl Refusals ===

impl Refusals {
    /// No refusals yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            by_url: Mutex::default(),
        }
    }

    /// Keeps an error in which the server asks to wait.
    pub fn record(&self, url: &Uri, error: &CallError) {
        let Some(asked) = error.retry_after() else {
            return;
        };
        let now = self.clock.monotonic();
        let mut by_url = self.by_url.lock();
        by_url.retain(|_, refusal| refusal.until > now);
        if by_url.len() < MAX_KNOWN {
            let refusal = Refusal {
                until: now + asked.min(LONGEST),
                error: error.clone(),
            };
            by_url.insert(url.clone(), refusal);
        }
    }

    /// The error that a read of this URL got before, with the time that is left of what the server asked for.
    pub fn in_force(&self, url: &Uri) -> Option<CallError> {
        let Refusal { until, error } = self.by_url.lock().get(url).cloned()?;
        let left = until.since(self.clock.monotonic());
        (!left.is_zero()).then(|| error.with_retry_after(Some(left)))
    }
}
