//! Leader election among the replicas of the controller: standbys keep their caches warm, and neither decide nor write.
//!
//! ```text
//! campaign ──► elector (pure) ──► Token ──► Leadership ◄── gate of writes, controllers, publisher of forecasts
//!    │
//!    └──► LeaseStore: one Lease object, written only at the version that was seen
//! ```
//!
//! [`Campaign`] takes the lease and renews it; [`Leadership`] is what everything else asks. The right to write is a
//! [`Token`] that ends by itself, by the monotonic clock: a process that was paused wakes up without it. Its
//! connections then send nothing more. A write that the network delivers late is fenced by its own precondition (the
//! version or the UID of the object), because no clock stops it.

mod campaign;
mod elector;

use std::{sync::Arc, time::Duration};

pub use self::{
    campaign::{Campaign, Ended},
    elector::{Timing, Token},
};
use parking_lot::RwLock;
use tokio::{runtime::Handle, sync::watch};

use crate::{clock::Clock, machine::Machine};

/// The longest that one write to a cluster may take. A write starts only if the token lasts at least that long.
pub const WRITE_TIME: Duration = Duration::from_secs(5);

/// The name of the Lease.
pub const LEASE: &str = "foretide";

/// An identity that no other process has: the name of this host, which is the pod's, and a random number, because a
/// container that was started again is another process.
pub fn identity(machine: &Machine) -> String {
    let (host, random) = (machine.name(), machine.random());
    match host.trim() {
        "" => format!("foretide_{random:016x}"),
        host => format!("{host}_{random:016x}"),
    }
}

/// Returns the host of an [`identity`], which is the name of its pod; absent for a text that is no such identity.
pub fn host_of(identity: &str) -> Option<&str> {
    let (host, random) = identity.rsplit_once('_')?;
    (!host.is_empty() && random.len() == 16).then_some(host)
}

/// The right of this process to act, with its remaining time; clones share their state.
#[derive(Debug, Clone)]
pub struct Leadership {
    right: Arc<RwLock<Right>>,
    /// Holder of the lease, if it is known.
    leader: Arc<RwLock<Option<String>>>,
    /// Number of writes in flight.
    writes: watch::Sender<usize>,
    /// Clock by which tokens are judged; absent without an election.
    clock: Option<Clock>,
}

/// A write that is in flight. One that is dropped before its end may still arrive, so it counts for [`WRITE_TIME`].
#[derive(Debug)]
pub struct WriteInFlight {
    writes: watch::Sender<usize>,
    has_ended: bool,
}

/// The right to write.
#[derive(Debug, Clone, Copy)]
enum Right {
    /// For ever: there is no election.
    Unlimited,
    /// The right of a leader, for the duration of the token; absent on a standby.
    Elected(Option<Token>),
    /// Ended for good: the process ends, holds the lease and writes no more.
    Closed,
}

// === impl Leadership ===

impl Default for Leadership {
    /// Returns the leadership of the only process, without an election.
    fn default() -> Self {
        Self {
            right: Arc::new(RwLock::new(Right::Unlimited)),
            leader: Arc::default(),
            writes: watch::Sender::new(0),
            clock: None,
        }
    }
}

impl Leadership {
    /// Returns the leadership of a process that takes part in an election and is not the leader yet.
    pub fn standby(clock: Clock) -> Self {
        Self {
            right: Arc::new(RwLock::new(Right::Elected(None))),
            leader: Arc::default(),
            writes: watch::Sender::new(0),
            clock: Some(clock),
        }
    }

    /// Sets the token of this process; absent if it does not lead.
    pub fn set(&self, token: Option<Token>) {
        let mut right = self.right.write();
        // A renewal that ends after the gate was closed does not open it again.
        if !matches!(*right, Right::Closed) {
            *right = Right::Elected(token);
        }
    }

    /// Sets the holder of the lease.
    pub(crate) fn set_leader(&self, leader: Option<String>) {
        *self.leader.write() = leader;
    }

    /// Returns the identity of the holder of the lease; absent if it is unknown, or without an election.
    pub fn leader(&self) -> Option<String> {
        self.leader.read().clone()
    }

    /// Ends the right to write for good, while the lease is still held.
    pub fn close(&self) {
        *self.right.write() = Right::Closed;
    }

    /// Counts a write that is sent now.
    pub fn begin_write(&self) -> WriteInFlight {
        self.writes.send_modify(|writes| *writes += 1);
        WriteInFlight {
            writes: self.writes.clone(),
            has_ended: false,
        }
    }

    /// Waits until no write is in flight.
    pub async fn written(&self) {
        // Waiting fails only without a sender, and `self.writes` is one.
        self.writes
            .subscribe()
            .wait_for(|writes| *writes == 0)
            .await
            .ok();
    }

    /// Returns the time for which this process may still write; absent if it may not.
    pub fn time_left(&self) -> Option<Duration> {
        match *self.right.read() {
            Right::Unlimited => Some(Duration::MAX),
            Right::Elected(None) | Right::Closed => None,
            Right::Elected(Some(token)) => {
                let now = self.clock.as_ref()?.monotonic();
                let left = token.valid_until.since(now);
                (!left.is_zero()).then_some(left)
            }
        }
    }

    /// Returns whether the right to write depends on an election.
    pub fn is_elected(&self) -> bool {
        !matches!(*self.right.read(), Right::Unlimited)
    }

    /// The epoch of the token; absent on a standby and without an election.
    pub fn epoch(&self) -> Option<i32> {
        match *self.right.read() {
            Right::Elected(token) => token.map(|token| token.epoch),
            Right::Unlimited | Right::Closed => None,
        }
    }

    /// Returns whether decisions may be made now: there is time for a write. A decision that cannot be written would
    /// leave the remembered state ahead of the cluster.
    pub fn may_act(&self) -> bool {
        self.time_left().is_some_and(|left| left >= WRITE_TIME)
    }
}

// === impl WriteInFlight ===

impl WriteInFlight {
    /// Records that the server has answered, or has not answered in time.
    pub fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for WriteInFlight {
    fn drop(&mut self) {
        let writes = self.writes.clone();
        let end = move || writes.send_modify(|writes| *writes = writes.saturating_sub(1));
        match Handle::try_current() {
            Ok(runtime) if !self.has_ended => {
                runtime.spawn(async move {
                    tokio::time::sleep(WRITE_TIME).await;
                    end();
                });
            }
            // Without a runtime there is no way to wait.
            _ => end(),
        }
    }
}

#[cfg(test)]
mod tests;
