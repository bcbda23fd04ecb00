//! The gate of all writes to a cluster.
//!
//! The gate is open at first. With leader election it is closed while another process is the leader: then a write fails
//! before anything is sent.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether this process may write; clones share their state.
#[derive(Debug, Clone)]
pub struct WriteGate(Arc<AtomicBool>);

// === impl WriteGate ===

impl Default for WriteGate {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl WriteGate {
    /// Opens or closes the gate. Writes in flight are not interrupted.
    pub fn set(&self, open: bool) {
        self.0.store(open, Ordering::Release);
    }

    /// Whether a write may start.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
