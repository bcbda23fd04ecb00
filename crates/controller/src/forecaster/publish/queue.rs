//! Writes predictions asynchronously to the passes: a few at once, one write per object at a time. Namespaces share the
//! slots.
//!
//! Every pass submits all writes that are due now, and replaces those that still wait. A write that is in flight
//! continues, and the next pass reads its result. The content is built when the write starts, so that the latest
//! forecast is published and no backlog grows while the API server is slow. Writes start only while this process is the
//! leader.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc};

use foretide_crds::TimeSeriesPrediction;
use futures::FutureExt;
use kube::ResourceExt;
use parking_lot::Mutex;

use super::{Publication, not_managed};
use crate::forecaster::{ForecasterSetup, forecasts::Forecasts, source::ForecastSource};
use foretide_api::ports::{Cluster, ClusterError};
use foretide_base::{
    clock::Clock,
    fair_slots::{FairSlots, Slot},
    leadership::Leadership,
    telemetry::{Telemetry, Write},
};

/// Number of objects that are written at once, and as many more whose writes are slow.
const CONCURRENT_WRITES: usize = 5;

/// Writes predictions to the cluster of the autoscalers.
#[derive(Debug)]
pub struct Queue<C> {
    pub cluster: Arc<C>,
    pub forecasts: Arc<Forecasts>,
    clock: Clock,
    telemetry: Arc<Telemetry>,
    leadership: Leadership,
    slots: FairSlots,
    pending: Mutex<BTreeMap<WriteKey, Pending>>,
}

/// The object that is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteKey {
    pub namespace: Arc<str>,
    pub name: String,
}

/// A write of one object.
#[derive(Debug)]
pub enum PredictionWrite {
    /// The prediction of an autoscaler.
    Publish {
        source: Arc<ForecastSource>,
        live: Option<Arc<TimeSeriesPrediction>>,
    },
    /// The deletion of a prediction that its autoscaler no longer asks for.
    Delete(Arc<TimeSeriesPrediction>),
    /// The mark of a prediction that no autoscaler owns.
    MarkNotManaged(Arc<TimeSeriesPrediction>),
}

/// The state of an object that has a task.
#[derive(Debug)]
enum Pending {
    /// The task waits for a slot, and then writes this; none if the write is no longer required.
    Waiting(Option<PredictionWrite>),
    /// The task writes.
    Writing,
}

// === impl Queue ===

impl<C: Cluster> Queue<C> {
    pub fn new(cluster: &Arc<C>, forecasts: &Arc<Forecasts>, setup: &ForecasterSetup) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            forecasts: Arc::clone(forecasts),
            clock: setup.machine.clock().clone(),
            telemetry: Arc::clone(&setup.telemetry),
            leadership: setup.leadership.clone(),
            slots: FairSlots::new(CONCURRENT_WRITES, setup.machine.clock().clone()),
            pending: Mutex::default(),
        }
    }

    /// Replaces the writes that still wait.
    pub fn submit(self: &Arc<Self>, mut wanted: BTreeMap<WriteKey, PredictionWrite>) {
        let mut pending = self.pending.lock();
        for (key, known) in pending.iter_mut() {
            // Also where a write is in flight: the next pass decides from its result.
            let latest = wanted.remove(key);
            if let Pending::Waiting(write) = known {
                *write = latest;
            }
        }
        for (key, write) in wanted {
            pending.insert(key.clone(), Pending::Waiting(Some(write)));
            let queue = Arc::clone(self);
            tokio::spawn(async move { queue.deliver(key).await });
        }
    }

    /// Waits for a slot, and then does the write that is due for an object.
    async fn deliver(&self, key: WriteKey) {
        let slot = self.slots.acquire(&key.namespace).await;
        if let Some(write) = self.start(&key) {
            // A write that panics must not stop the later ones of its object.
            let written = AssertUnwindSafe(self.write(&key, write, &slot)).catch_unwind();
            if written.await.is_err() {
                let WriteKey { namespace, name } = &key;
                tracing::error!(%namespace, %name, "writing the TimeSeriesPrediction panicked");
            }
        }
        self.pending.lock().remove(&key);
    }

    /// The write that is due for an object now, if there is one.
    fn start(&self, key: &WriteKey) -> Option<PredictionWrite> {
        let before = self.pending.lock().insert(key.clone(), Pending::Writing);
        match before {
            // Asked again here, because the write may have waited for long.
            Some(Pending::Waiting(write)) => write.filter(|_| self.leadership.may_act()),
            Some(Pending::Writing) | None => None,
        }
    }

    async fn write(&self, key: &WriteKey, write: PredictionWrite, slot: &Slot) {
        if let Err(error) = slot.run(self.send(key, write)).await {
            let WriteKey { namespace, name } = key;
            tracing::warn!(%namespace, %name, %error, "could not write TimeSeriesPrediction");
        }
    }

    async fn send(&self, key: &WriteKey, write: PredictionWrite) -> Result<(), ClusterError> {
        let WriteKey { namespace, name } = key;
        let (cluster, now) = (&self.cluster, self.clock.now());
        match write {
            PredictionWrite::Publish { source, live } => {
                let publication = Publication::new(&source, live.as_ref(), &self.forecasts, now);
                self.send_publication(key, &publication).await
            }
            PredictionWrite::Delete(tsp) => {
                let uid = tsp.uid().unwrap_or_default();
                self.counted(cluster.delete_prediction(namespace, name, &uid).await)
            }
            PredictionWrite::MarkNotManaged(tsp) => {
                let uid = tsp.uid().unwrap_or_default();
                let status = not_managed(tsp.status.as_ref(), now);
                let written = cluster.write_prediction_status(namespace, name, &uid, &status);
                self.counted(written.await)
            }
        }
    }

    /// Writes the spec if it differs from the desired one, and the status if it is due.
    async fn send_publication(
        &self,
        WriteKey { namespace, name }: &WriteKey,
        publication: &Publication<'_>,
    ) -> Result<(), ClusterError> {
        // Before the status, which is written only to an object with this UID.
        let uid = match publication.live {
            Some(live) if publication.has_spec() => live.uid().unwrap_or_default(),
            _ => {
                let manifest = publication.manifest();
                self.counted(self.cluster.apply_prediction(&manifest).await)?
            }
        };
        let Some(status) = publication.status(&self.forecasts) else {
            return Ok(());
        };
        let written = (self.cluster).write_prediction_status(namespace, name, &uid, &status);
        self.counted(written.await)
    }

    fn counted<T>(&self, outcome: Result<T, ClusterError>) -> Result<T, ClusterError> {
        self.telemetry.wrote(Write::Prediction, outcome.is_ok());
        outcome
    }
}
