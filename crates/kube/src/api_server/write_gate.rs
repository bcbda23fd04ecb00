//! The gate of all writes to a cluster.
//!
//! Without leader election it is open. With it, a write fails before anything is sent unless this process is the leader
//! and remains it for longer than the write may take.

use std::time::Duration;

use super::error::CallError;
use foretide_base::leadership::{Leadership, WriteInFlight};

/// The right of this process to write; clones share their state.
#[derive(Debug, Clone, Default)]
pub struct WriteGate(Leadership);

// === impl WriteGate ===

impl WriteGate {
    /// The gate of a process with this leadership.
    pub fn of(leadership: Leadership) -> Self {
        Self(leadership)
    }

    /// True if the right to write depends on an election.
    pub(crate) fn is_elected(&self) -> bool {
        self.0.is_elected()
    }

    /// The epoch of the leader, if one is elected.
    pub(crate) fn epoch(&self) -> Option<i32> {
        self.0.epoch()
    }

    /// Counts a write that is sent now.
    pub(crate) fn begin_write(&self) -> WriteInFlight {
        self.0.begin_write()
    }

    /// The time for a write that takes at most `deadline` and starts now.
    ///
    /// # Errors
    /// [`CallError::NotLeader`] if the process does not lead for that long: another one may lead before the write ends.
    pub(crate) fn admit(&self, deadline: Duration) -> Result<Duration, CallError> {
        let left = self.0.time_left().filter(|left| *left >= deadline);
        left.map(|left| left.min(deadline))
            .ok_or(CallError::NotLeader)
    }
}
