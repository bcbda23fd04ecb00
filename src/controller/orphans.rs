//! HPAs that an autoscaler adopted which does not exist any more: each is restored as it was before its adoption.
//!
//! The claim is an annotation that anybody who may write HPAs can forge, so it costs us little: a few are restored at
//! once, beside the syncs, and one that could not be restored waits before it is tried again.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};

use super::{apply::Writer, child_hpa};
use crate::{
    ports::{Cluster, HpaView},
    telemetry::Telemetry,
};

/// How many are restored at once.
const CONCURRENT_RESTORES: usize = 2;
/// How long one waits that could not be restored.
const RETRY_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// What is known of the orphans of one cluster.
#[derive(Debug)]
pub(super) struct Orphans<C> {
    cluster: Arc<C>,
    telemetry: Arc<Telemetry>,
    /// When each that could not be restored was tried last, by UID.
    failed: Mutex<HashMap<String, Timestamp>>,
}

// === impl Orphans ===

impl<C> Orphans<C> {
    pub(super) fn new(cluster: Arc<C>, telemetry: Arc<Telemetry>) -> Self {
        Self {
            cluster,
            telemetry,
            failed: Mutex::default(),
        }
    }

    fn failed(&self) -> MutexGuard<'_, HashMap<String, Timestamp>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Cluster> Orphans<C> {
    /// Restores the orphans, given the UIDs of the autoscalers that exist.
    pub(super) async fn restore(&self, existing: &HashSet<String>, now: Timestamp) {
        let mut hpas = self.cluster.every_hpa();
        // Adopted ones only: a child that we created is garbage-collected by its owner reference. The adopter of one
        // that a fleet adopted is in another cluster and not among these objects.
        hpas.retain(|hpa| {
            let adopter = child_hpa::adopted_by(hpa);
            adopter.is_some_and(|uid| !existing.contains(uid))
                && !child_hpa::is_adopted_by_a_fleet(hpa)
        });
        self.failed()
            .retain(|uid, _| hpas.iter().any(|hpa| hpa.uid == *uid));
        hpas.retain(|hpa| {
            let tried = self.failed().get(&hpa.uid).copied();
            // `abs`, so that a clock that is set back does not stop the attempts.
            tried.is_none_or(|tried| now.duration_since(tried).abs() >= RETRY_AFTER)
        });
        stream::iter(hpas)
            .for_each_concurrent(CONCURRENT_RESTORES, |hpa| self.restore_one(hpa, now))
            .await;
    }

    async fn restore_one(&self, hpa: Arc<HpaView>, now: Timestamp) {
        let writer = Writer {
            cluster: &*self.cluster,
            telemetry: &self.telemetry,
        };
        if let Err(error) = writer.restore_adopted(&hpa).await {
            let (namespace, name) = (&hpa.namespace, &hpa.name);
            tracing::warn!(%namespace, %name, %error, retry_after = ?RETRY_AFTER, "could not restore the adopted HPA");
            self.failed().insert(hpa.uid.clone(), now);
        }
    }
}
