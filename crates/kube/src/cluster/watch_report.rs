//! The state of the watches of one kind.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::api_server::CallError;
use foretide_base::clock::Contact;

/// Counters of the watches of one kind.
#[derive(Debug, Default)]
pub struct Counts {
    errors: AtomicU64,
    /// The status 403 or 404 if the server has answered that since it delivered last, else 0.
    refused: AtomicU16,
    failing: Mutex<Option<CallError>>,
}

/// The state of the watches of one kind, for readiness, metrics and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchReport {
    /// Kind of the objects.
    pub kind: &'static str,
    /// Objects held.
    pub objects: usize,
    /// Objects that are excluded: they cannot be decoded, or the memory limit has no room for them.
    pub unreadable: usize,
    /// True if every scope has a complete list.
    pub synced: bool,
    /// Lists and watches that failed.
    pub errors: u64,
    /// Time until which the oldest of its copies is known to be up to date: the last time at which its list was
    /// complete, or its watch delivered an event, a bookmark or its regular end. Absent while a scope has no list.
    pub last_contact: Option<Contact>,
    /// The last failure, until a request succeeds.
    pub failing: Option<String>,
    /// True if the last failure means that the kind may not be read or is not served (403, 404).
    pub forbidden_or_not_found: bool,
}

// === impl WatchReport ===

impl WatchReport {
    /// Time since when the most silent watch has received nothing, where watches run since `started`.
    pub fn silent_since<'a>(&'a self, started: &'a Contact) -> &'a Contact {
        self.last_contact.as_ref().unwrap_or(started)
    }
}

// === impl Counts ===

impl Counts {
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The status 403 or 404, if the server has answered that since it delivered last.
    pub fn refused(&self) -> Option<u16> {
        let status = self.refused.load(Ordering::Relaxed);
        (status != 0).then_some(status)
    }

    /// The last failure, until a request succeeds.
    pub fn failure(&self) -> Option<CallError> {
        self.failing.lock().clone()
    }

    pub fn failed(&self, error: &CallError) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if error.is_forbidden_or_not_found() {
            let status = if error.is_status(403) { 403 } else { 404 };
            self.refused.store(status, Ordering::Relaxed);
        }
        *self.failing.lock() = Some(error.clone());
    }

    pub fn recovered(&self) {
        self.refused.store(0, Ordering::Relaxed);
        *self.failing.lock() = None;
    }
}
