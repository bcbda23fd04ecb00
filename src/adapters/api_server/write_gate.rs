//! The gate that every write to a cluster goes through.
//!
//! Open from the start. Whoever elects a leader closes it while another process leads: a closed gate
//! refuses a write before anything is sent. It refuses to know why it is closed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether this process may write; clones are the same gate.
#[derive(Debug, Clone)]
pub struct WriteGate(Arc<AtomicBool>);

// === impl WriteGate ===

impl Default for WriteGate {
    fn default() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }
}

impl WriteGate {
    /// Opens or closes the gate; writes that have begun go on.
    pub fn set(&self, open: bool) {
        self.0.store(open, Ordering::Release);
    }

    /// Whether a write may begin.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
