//! Writes statuses and events asynchronously to the syncs: a limited number of objects at once, fewer of one namespace,
//! and the reports of one object one after the other.
//!
//! A report that waits is merged with the next one of its object: the last status replaces the earlier ones, and events
//! are kept. If the API server is slow or down, no decision is delayed, and one status per object is written when it is
//! back.

use std::{
    collections::{HashMap, hash_map::Entry},
    panic::AssertUnwindSafe,
    sync::Arc,
};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::{Report, written::NewStatus};
use foretide_api::autoscaler::Autoscaler;
use foretide_api::ports::{Cluster, EventNote};
use foretide_base::{
    shared_map::SharedMap,
    telemetry::{Telemetry, Write},
};

/// Number of objects that are reported at once: as many as the client has slots for writes of one API group.
const CONCURRENT_REPORTS: usize = 32;
/// Number of objects of one namespace that are reported at once, because every write in it may hang. At 20 ms each
/// these are 200 statuses a second.
const REPORTS_OF_NAMESPACE: usize = 4;
/// Number of namespaces that are remembered before idle ones are evicted.
const MAX_KNOWN_NAMESPACES: usize = 256;
/// Maximum number of events of one object that wait; older ones are dropped.
const MAX_WAITING_EVENTS: usize = 16;

/// Writes reports to the cluster of the objects.
#[derive(Debug)]
pub struct Reports<C> {
    cluster: Arc<C>,
    telemetry: Arc<Telemetry>,
    permits: Semaphore,
    /// The permits of each namespace.
    namespaces: SharedMap<String, Semaphore>,
    /// The objects that are being reported, by UID, with what is to be written next.
    pending: Mutex<HashMap<String, Option<Report>>>,
    /// Notified when nothing is pending.
    idle: Notify,
}

// === impl Reports ===

impl<C: Cluster> Reports<C> {
    pub fn new(cluster: Arc<C>, telemetry: Arc<Telemetry>) -> Self {
        Self {
            cluster,
            telemetry,
            permits: Semaphore::new(CONCURRENT_REPORTS),
            namespaces: SharedMap::new(MAX_KNOWN_NAMESPACES),
            pending: Mutex::new(HashMap::new()),
            idle: Notify::new(),
        }
    }

    /// Queues a report, which is written after the earlier ones of its object.
    pub fn submit(self: &Arc<Self>, report: Report) {
        let uid = report.autoscaler.uid().to_owned();
        match self.pending.lock().entry(uid.clone()) {
            Entry::Occupied(mut known) => {
                let next = match known.get_mut().take() {
                    Some(waiting) => waiting.followed_by(report),
                    None => report,
                };
                known.insert(Some(next));
            }
            Entry::Vacant(_) if report.is_empty() => {}
            Entry::Vacant(new) => {
                new.insert(None);
                let reports = Arc::clone(self);
                tokio::spawn(async move { reports.deliver(&uid, report).await });
            }
        }
    }

    /// Waits until every submitted report is written or has failed.
    pub async fn delivered(&self) {
        loop {
            // Before the check: `notify_waiters` reaches only the futures that exist already.
            let idle = self.idle.notified();
            if self.pending.lock().is_empty() {
                return;
            }
            idle.await;
        }
    }

    /// Writes a report, and those of the same object that are submitted meanwhile.
    async fn deliver(&self, uid: &str, report: Report) {
        let mut next = Some(report);
        while let Some(report) = next {
            // A report that panics must not stop the later ones of its object.
            let written = AssertUnwindSafe(self.write(report)).catch_unwind();
            if written.await.is_err() {
                tracing::error!(uid, "writing a report panicked; the report is lost");
            }
            next = self.next(uid);
        }
    }

    /// The next report of an object; without one it is no longer pending.
    fn next(&self, uid: &str) -> Option<Report> {
        let mut pending = self.pending.lock();
        let next = pending.get_mut(uid).and_then(Option::take);
        if next.is_none() {
            pending.remove(uid);
        }
        if pending.is_empty() {
            self.idle.notify_waiters();
        }
        next
    }

    async fn write(&self, report: Report) {
        let Report {
            autoscaler,
            events,
            status,
        } = report;
        let namespace = autoscaler.namespace().to_owned();
        let of_namespace = self
            .namespaces
            .get_or_insert_with(namespace, || Semaphore::new(REPORTS_OF_NAMESPACE));
        // Neither semaphore is ever closed. The namespace first: a report that waits for it must hold no permit that
        // others need.
        let _of_namespace = of_namespace.acquire().await;
        let _permit = self.permits.acquire().await;
        for event in &events {
            self.emit(&autoscaler, event).await;
        }
        if let Some(status) = status {
            self.write_status(&autoscaler, status).await;
        }
    }

    async fn write_status(&self, autoscaler: &Autoscaler, new: NewStatus) {
        let sent = new.write(|status| self.cluster.write_status(autoscaler, status));
        let Some(outcome) = sent.await else {
            return;
        };
        self.telemetry.wrote(Write::Status, outcome.is_ok());
        if let Err(error) = outcome {
            let (namespace, name) = (autoscaler.namespace(), autoscaler.name());
            tracing::warn!(%namespace, %name, %error, "could not update status");
        }
    }

    async fn emit(&self, autoscaler: &Autoscaler, event: &EventNote) {
        let (kind, about) = (autoscaler.kind(), autoscaler.metadata());
        let outcome = self.cluster.emit(kind, about, event).await;
        self.telemetry.wrote(Write::Event, outcome.is_ok());
        if let Err(error) = outcome {
            let (namespace, name) = (autoscaler.namespace(), autoscaler.name());
            tracing::warn!(%namespace, %name, reason = event.reason, %error, "could not record the event");
        }
    }
}

// === impl Report ===

impl Report {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.status.is_none()
    }

    /// Merges two reports of the same object.
    fn followed_by(mut self, later: Self) -> Self {
        self.events.extend(later.events);
        let surplus = self.events.len().saturating_sub(MAX_WAITING_EVENTS);
        self.events.drain(..surplus);
        Self {
            autoscaler: later.autoscaler,
            events: self.events,
            // None means that the status that was written last is current again.
            status: later.status,
        }
    }
}
