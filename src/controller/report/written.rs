//! The status of each object that was written last, and the order in which statuses are written.
//!
//! A sync of a fleet stores a changed ledger before it writes members, while statuses of earlier syncs may still wait.
//! The writes of one object therefore take turns, and a status that was made before a ledger was stored is dropped: the
//! sync that stored it makes a newer status.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foretide_crds::{FederatedHPA, Mode};

use super::{StatusFingerprint, conditions};
use crate::{
    api::autoscaler::{Autoscaler, Status},
    ports::{Cluster, ClusterError},
};

/// The status of an object that was written last; clones share it.
#[derive(Debug, Clone)]
pub(super) struct WrittenStatus(Arc<Written>);

#[derive(Debug)]
struct Written {
    last: Mutex<LastStatus>,
    /// Held while a status or a ledger of the object is written.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct LastStatus {
    fingerprint: StatusFingerprint,
    /// Whether it was there before the controller started.
    is_restored: bool,
    /// How many ledgers were stored by themselves.
    ledgers: u64,
}

/// A status that differs from the one that was written last.
#[derive(Debug)]
pub(super) struct NewStatus {
    status: Status,
    fingerprint: StatusFingerprint,
    /// How many ledgers had been stored by themselves when it was made.
    ledgers: u64,
    written: WrittenStatus,
}

/// A ledger that is to be stored before members are written by it.
#[derive(Debug)]
pub(in crate::controller) struct LedgerIntent {
    ledger: String,
    written: WrittenStatus,
}

// === impl WrittenStatus ===

impl WrittenStatus {
    /// After a restart the stored status counts as the one written last.
    pub(super) fn of_stored(autoscaler: &Autoscaler) -> Self {
        let publishes = autoscaler.spec().mode == Some(Mode::Metric)
            || conditions::is_scaled_by_keda(autoscaler);
        Self(Arc::new(Written {
            last: Mutex::new(LastStatus {
                fingerprint: StatusFingerprint::of(&autoscaler.stored_status(), publishes),
                is_restored: true,
                ledgers: 0,
            }),
            turn: tokio::sync::Mutex::new(()),
        }))
    }

    /// A status that is to be written; none if it equals the last one. `publishes` says whether others read its forecasts.
    pub(super) fn unless_equal(&self, status: Status, publishes: bool) -> Option<NewStatus> {
        let fingerprint = StatusFingerprint::of(&status, publishes);
        let last = self.last();
        fingerprint
            .is_news_after(&last.fingerprint)
            .then(|| NewStatus {
                status,
                fingerprint,
                ledgers: last.ledgers,
                written: self.clone(),
            })
    }

    /// A ledger that is to be stored before members are written; none if the last status has it.
    pub(super) fn intent(&self, ledger: String) -> Option<LedgerIntent> {
        let is_stored = self.ledger().is_some_and(|stored| stored == ledger);
        (!is_stored).then(|| LedgerIntent {
            ledger,
            written: self.clone(),
        })
    }

    /// The ledger that was written last.
    pub(super) fn ledger(&self) -> Option<String> {
        self.last().fingerprint.ledger().map(str::to_owned)
    }

    /// Whether others read the forecasts of the object, as far as the last status shows.
    pub(super) fn publishes(&self) -> bool {
        self.last().fingerprint.publishes()
    }

    /// Whether the controller has written none yet.
    pub(super) fn is_restored(&self) -> bool {
        self.last().is_restored
    }

    fn last(&self) -> MutexGuard<'_, LastStatus> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl NewStatus ===

impl NewStatus {
    /// Writes the status with `send`, unless it was written while this one waited, or a newer ledger was stored; returns
    /// what became of it if it was sent.
    pub(super) async fn write<F>(self, send: impl FnOnce(Status) -> F) -> Option<F::Output>
    where
        F: Future<Output = Result<(), ClusterError>>,
    {
        let Self {
            status,
            fingerprint,
            ledgers,
            written,
        } = self;
        let _turn = written.0.turn.lock().await;
        {
            let last = written.last();
            if !fingerprint.is_news_after(&last.fingerprint) || last.ledgers != ledgers {
                return None;
            }
        }
        let outcome = send(status).await;
        if outcome.is_ok() {
            let mut last = written.last();
            last.fingerprint = fingerprint;
            last.is_restored = false;
        }
        Some(outcome)
    }
}

// === impl LedgerIntent ===

impl LedgerIntent {
    /// Stores the ledger in the status of the fleet, after any write of that status that is in flight.
    ///
    /// # Errors
    /// When it is not known to be stored: then no member may be written by it.
    pub(in crate::controller) async fn store<C: Cluster>(
        &self,
        hub: &C,
        fdhpa: &FederatedHPA,
    ) -> Result<(), ClusterError> {
        let _turn = self.written.0.turn.lock().await;
        hub.write_ledger(fdhpa, &self.ledger).await?;
        let mut last = self.written.last();
        last.ledgers += 1;
        if fdhpa.status.is_none() {
            // It was written as the only field.
            last.fingerprint = StatusFingerprint::of(&Status::default(), false);
        }
        last.fingerprint.set_ledger(&self.ledger);
        Ok(())
    }
}
