//! The controller's process as clusters see it: its writes are counted, and it may end, or lose an answer, at one of
//! them.

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard},
};

use foretide::ports::ClusterError;
use tokio::sync::Notify;

/// What happens at one write, after the cluster has accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process ends before it sees the answer.
    Ends,
    /// The answer is lost, and the process goes on.
    LosesAnswer,
}

/// A process that writes to clusters; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Process(Arc<Shared>);

#[derive(Default)]
struct Shared {
    outbound: Mutex<Outbound>,
    ended: Notify,
}

#[derive(Default)]
struct Outbound {
    /// Every write that was accepted, in order.
    writes: Vec<String>,
    /// The position, from 1, of the write at which there is a fault.
    fault: Option<(usize, Fault)>,
    has_ended: bool,
}

// === impl Process ===

impl Process {
    /// A process with a fault at the write of this position, from 1.
    pub(crate) fn with_fault(position: usize, fault: Fault) -> Self {
        let process = Self::default();
        process.outbound().fault = Some((position, fault));
        process
    }

    /// Every write that was accepted, in order.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.outbound().writes.clone()
    }

    /// How many writes were accepted.
    pub(crate) fn written(&self) -> usize {
        self.outbound().writes.len()
    }

    /// Returns when the process has ended.
    pub(crate) async fn ended(&self) {
        while !self.outbound().has_ended {
            self.0.ended.notified().await;
        }
    }

    /// Never returns in a process that has ended: it sends no more requests.
    pub(crate) async fn request(&self) {
        if self.outbound().has_ended {
            pending::<()>().await;
        }
    }

    /// The answer to a write that a cluster has accepted.
    ///
    /// # Errors
    /// When the answer is lost.
    pub(crate) async fn answer(&self, write: String) -> Result<(), ClusterError> {
        let fault = {
            let mut outbound = self.outbound();
            outbound.writes.push(write.clone());
            let position = outbound.writes.len();
            let fault = outbound.fault.filter(|(at, _)| *at == position);
            let fault = fault.map(|(_, fault)| fault);
            outbound.has_ended |= fault == Some(Fault::Ends);
            fault
        };
        match fault {
            None => Ok(()),
            Some(Fault::LosesAnswer) => Err(ClusterError::Unreachable {
                what: write,
                message: "connection reset".to_owned(),
            }),
            Some(Fault::Ends) => {
                self.0.ended.notify_one();
                pending().await
            }
        }
    }

    fn outbound(&self) -> MutexGuard<'_, Outbound> {
        self.0.outbound.lock().unwrap()
    }
}
