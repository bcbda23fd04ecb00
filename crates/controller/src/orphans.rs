//! HPAs that an autoscaler adopted which does not exist any more: each is restored as it was before its adoption.
//!
//! The claim is an annotation that anybody who may write HPAs can forge, so it costs us little: a few are restored at
//! once, beside the syncs, and one that could not be restored waits before it is tried again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use parking_lot::Mutex;

use super::{apply::Writer, child_hpa};
use foretide_api::ports::{Cluster, HpaView};
use foretide_base::{clock::Monotonic, telemetry::Telemetry};

/// Number of HPAs that are restored at once.
const CONCURRENT_RESTORES: usize = 2;
/// Time for which an HPA waits that could not be restored.
const RETRY_AFTER: Duration = Duration::from_mins(5);

/// State of the orphans of one cluster.
#[derive(Debug)]
pub struct Orphans<C> {
    cluster: Arc<C>,
    telemetry: Arc<Telemetry>,
    /// The last attempt for each that could not be restored, by UID.
    failed: Mutex<HashMap<String, Monotonic>>,
}

// === impl Orphans ===

impl<C> Orphans<C> {
    pub fn new(cluster: Arc<C>, telemetry: Arc<Telemetry>) -> Self {
        Self {
            cluster,
            telemetry,
            failed: Mutex::default(),
        }
    }
}

impl<C: Cluster> Orphans<C> {
    /// Restores orphans: a few at once, and none that failed a moment ago.
    pub async fn restore(&self, mut hpas: Vec<Arc<HpaView>>, now: Monotonic) {
        self.failed
            .lock()
            .retain(|uid, _| hpas.iter().any(|hpa| hpa.uid == *uid));
        hpas.retain(|hpa| {
            let tried = self.failed.lock().get(&hpa.uid).copied();
            tried.is_none_or(|tried| now.since(tried) >= RETRY_AFTER)
        });
        stream::iter(hpas)
            .for_each_concurrent(CONCURRENT_RESTORES, |hpa| self.restore_one(hpa, now))
            .await;
    }

    async fn restore_one(&self, hpa: Arc<HpaView>, now: Monotonic) {
        let writer = Writer {
            cluster: &*self.cluster,
            telemetry: &self.telemetry,
        };
        if let Err(error) = writer.restore_adopted(&hpa).await {
            let (namespace, name) = (&hpa.namespace, &hpa.name);
            tracing::warn!(%namespace, %name, %error, retry_after = ?RETRY_AFTER, "could not restore the adopted HPA");
            self.failed.lock().insert(hpa.uid.clone(), now);
        }
    }
}

/// The HPAs that claim to be adopted by an autoscaler of their own cluster.
///
/// Adopted ones only: a child that we created is garbage-collected by its owner reference. The adopter of one that a
/// fleet adopted is in another cluster.
pub fn adopted<C: Cluster>(cluster: &C) -> Vec<Arc<HpaView>> {
    let mut hpas = cluster.every_hpa();
    hpas.retain(|hpa| {
        child_hpa::adopted_by(hpa).is_some() && !child_hpa::is_adopted_by_a_fleet(hpa)
    });
    hpas
}

/// True if the adopter of an HPA is in one of these sets of UIDs.
pub fn is_of_any(hpa: &HpaView, uids: &[&HashSet<String>]) -> bool {
    let adopter = child_hpa::adopted_by(hpa);
    adopter.is_some_and(|adopter| uids.iter().any(|uids| uids.contains(adopter)))
}
