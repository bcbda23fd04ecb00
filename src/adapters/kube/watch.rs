//! One watch: lists a kind, follows its changes, and keeps a store up to date.
//!
//! ```text
//! relist ──► watch ──► watch ──► ...     a new watch request every 50 s
//!    ▲          │
//!    └──────────┘  the version expired (410), or 3 failures in a row
//! ```
//!
//! # Why not `kube::runtime::watcher`
//!
//! It hides bookmarks, so a quiet watch cannot be distinguished from a dead one; it does not limit the size of lists
//! and events; and it keeps whole lists of whole objects in memory. Here every wait has a timeout, and only compact
//! values outlive their page.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use http::Request;
use jiff::SignedDuration;
use kube::{Client, core::WatchEvent};
use serde::Deserialize;
use serde_json::Value;
use tokio::{task::JoinSet, time::timeout};
use tracing::Instrument as _;

use super::store::{Entry, Store, Stored, WatchReport};
use crate::{
    adapters::{
        api_server::{
            CallError, Connection, Resource, WATCH_MARGIN, WATCH_TIMEOUT, jitter, query, response,
        },
        redact::Redactor,
    },
    clock::{Clock, Contact, Monotonic},
};

/// After this many failures in a row without progress, the kind is listed again.
const FAILURES_BEFORE_RELIST: u32 = 3;
/// Maximum number of pages of a list: a faulty server may send a list without end.
const PAGES_MAX: u32 = 1_000;
/// Maximum number of objects of a list; the largest clusters have 150 000 pods.
const OBJECTS_MAX: usize = 250_000;

/// The timeouts and pauses of a watch.
#[derive(Debug, Clone, Copy)]
pub struct WatchTimeouts {
    /// Timeout of one page of a list.
    pub(super) page: Duration,
    /// Timeout of a watch without any event, also for its first response.
    pub(super) silence: Duration,
    /// Pause after the first failure; doubles with each further one, plus up to a half at random.
    pub(super) backoff: Duration,
    /// Maximum pause before the random part.
    pub(super) max_backoff: Duration,
    /// How long after the last contact with the server a store is used to estimate capacity.
    pub(super) max_staleness: SignedDuration,
}

/// A store and its watches, of any kind of object.
pub trait Watched: Send + Sync {
    /// The state of its watches.
    fn report(&self) -> WatchReport;
    /// Whether every scope has a complete list.
    fn is_synced(&self) -> bool;
    /// Starts its watches, one task per scope.
    fn watch(
        self: Arc<Self>,
        connection: &Connection,
        timeouts: WatchTimeouts,
        tasks: &mut JoinSet<()>,
    );
}

impl<V: Stored> Watched for Store<V> {
    fn report(&self) -> WatchReport {
        self.report()
    }

    fn is_synced(&self) -> bool {
        self.is_synced()
    }

    fn watch(
        self: Arc<Self>,
        connection: &Connection,
        timeouts: WatchTimeouts,
        tasks: &mut JoinSet<()>,
    ) {
        for scope in self.scopes() {
            let watch = Watch {
                client: connection.watch.clone(),
                redactor: connection.redactor.clone(),
                store: self.clone(),
                scope: scope.clone(),
                timeouts,
            };
            // The span names the cluster in log records.
            tasks.spawn(watch.run().in_current_span());
        }
    }
}

/// One watch of one kind in one scope.
pub(super) struct Watch<V> {
    pub(super) client: Client,
    pub(super) redactor: Redactor,
    pub(super) store: Arc<Store<V>>,
    pub(super) scope: Option<String>,
    pub(super) timeouts: WatchTimeouts,
}

/// How one watch request ended.
enum WatchEnd {
    /// The server closed it at its timeout.
    Regular,
    /// The server no longer has the version to continue from.
    Expired,
    /// Anything else.
    Failed(CallError),
}

/// Failures since the last successful response.
#[derive(Default)]
struct Outage {
    failures: u32,
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default)]
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

// === impl WatchTimeouts ===

impl Default for WatchTimeouts {
    fn default() -> Self {
        Self {
            page: Duration::from_secs(30),
            silence: WATCH_TIMEOUT + WATCH_MARGIN,
            backoff: Duration::from_millis(800),
            max_backoff: Duration::from_secs(20),
            max_staleness: SignedDuration::from_secs(90),
        }
    }
}

impl WatchTimeouts {
    /// The same timeouts with another maximum staleness.
    #[must_use]
    pub fn with_max_staleness(self, max_staleness: SignedDuration) -> Self {
        Self {
            max_staleness,
            ..self
        }
    }
}

// === impl Watch ===

impl<V: Stored> Watch<V> {
    /// Runs until it is dropped.
    pub(super) async fn run(self) {
        let mut outage = Outage::default();
        loop {
            match self.relist().await {
                Ok(version) => {
                    self.store.counts.recovered();
                    self.follow(version, &mut outage).await;
                }
                Err(error) => self.report(error, &mut outage),
            }
            self.pause(&outage).await;
        }
    }

    /// Fetches a complete list, replaces the objects of the scope, and returns the version of the list.
    async fn relist(&self) -> Result<String, CallError> {
        let mut fresh = Vec::new();
        let mut next = None;
        let mut pages = 0..PAGES_MAX;
        let version = loop {
            if pages.next().is_none() || fresh.len() > OBJECTS_MAX {
                return Err(CallError::Response(format!(
                    "list longer than the limit of {PAGES_MAX} pages or {OBJECTS_MAX} objects"
                )));
            }
            let page = self.page(next.as_deref()).await?;
            fresh.extend(
                page.items
                    .unwrap_or_default()
                    .into_iter()
                    .filter_map(Entry::decode),
            );
            // An empty token marks the last page, like an absent one.
            next = page.metadata.next.filter(|token| !token.is_empty());
            if next.is_none() {
                break page.metadata.resource_version;
            }
        };
        self.store.replace(self.scope.as_deref(), fresh);
        self.store.counts.relisted();
        Ok(version)
    }

    async fn page(&self, next: Option<&str>) -> Result<Page, CallError> {
        // The page size of client-go.
        let mut pairs = vec![("limit", "500")];
        pairs.extend(self.store.selector_parameter());
        pairs.extend(next.map(|token| ("continue", token)));
        let read = response::text(&self.client, self.request(&pairs)?);
        let text = timeout(self.timeouts.page, read)
            .await
            .map_err(|_elapsed| CallError::Timeout(self.timeouts.page))??;
        self.contacted();
        serde_json::from_str(&text).map_err(|error| CallError::Response(error.to_string()))
    }

    /// Follows the changes after `version` until the kind must be listed again.
    async fn follow(&self, mut version: String, outage: &mut Outage) {
        let mut failures = 0;
        while failures < FAILURES_BEFORE_RELIST {
            let before = version.clone();
            let end = self.watch(&mut version, outage).await;
            match end {
                WatchEnd::Regular => {
                    failures = 0;
                    self.recover(outage);
                }
                WatchEnd::Expired => {
                    // Counted, so that a server that expires every watch is listed with growing pauses.
                    outage.failures = outage.failures.saturating_add(1);
                    tracing::debug!(
                        kind = self.store.resource.kind,
                        "watch expired; listing again"
                    );
                    return;
                }
                WatchEnd::Failed(error) => {
                    // A watch that received events before it failed has made progress.
                    failures = if version == before { failures + 1 } else { 1 };
                    self.report(error, outage);
                    if failures < FAILURES_BEFORE_RELIST {
                        self.pause(outage).await;
                    }
                }
            }
        }
    }

    /// Sends one watch request from `version`, and advances `version` with every event.
    async fn watch(&self, version: &mut String, outage: &mut Outage) -> WatchEnd {
        let silence = self.timeouts.silence;
        let seconds = WATCH_TIMEOUT.as_secs().to_string();
        let mut pairs = vec![
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", seconds.as_str()),
            ("resourceVersion", version.as_str()),
        ];
        pairs.extend(self.store.selector_parameter());
        let request = match self.request(&pairs) {
            Ok(request) => request,
            Err(error) => return WatchEnd::Failed(error),
        };
        let events = match timeout(silence, response::events(&self.client, request)).await {
            Ok(Ok(events)) => events,
            Ok(Err(error)) => return WatchEnd::from(error),
            Err(_elapsed) => return WatchEnd::Failed(CallError::Timeout(silence)),
        };
        // A kind without changes may send neither events nor bookmarks, so the response itself counts as contact.
        self.contacted();
        let mut events = pin!(events);
        let opened = Clock::system().monotonic();
        let mut has_events = false;
        loop {
            let event = match timeout(silence, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return WatchEnd::from(error),
                // A watch that is closed at once, without an event, counts as failed: otherwise it would be reopened
                // without a pause.
                Ok(None) if has_events || lasted(opened) => return WatchEnd::Regular,
                Ok(None) => return WatchEnd::Failed(CallError::Transport(CLOSED.to_owned())),
                Err(_elapsed) => return WatchEnd::Failed(CallError::Timeout(silence)),
            };
            if let Err(end) = self.apply(event, version) {
                return end;
            }
            has_events = true;
            self.contacted();
            self.recover(outage);
        }
    }

    fn apply(&self, event: WatchEvent<Value>, version: &mut String) -> Result<(), WatchEnd> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                advance(version, &object);
                if let Some(entry) = Entry::decode(object) {
                    self.store.apply(entry);
                }
            }
            WatchEvent::Deleted(object) => {
                advance(version, &object);
                if let Some(entry) = Entry::decode(object) {
                    self.store.delete(&entry);
                }
            }
            WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(WatchEnd::from(CallError::from(*status))),
        }
        Ok(())
    }

    fn request(&self, pairs: &[(&str, &str)]) -> Result<Request<Vec<u8>>, CallError> {
        let path = self.store.resource.collection(self.scope.as_deref())?;
        Request::get(format!("{path}{}", query(pairs)))
            .body(Vec::new())
            .map_err(|error| CallError::Request(error.to_string()))
    }

    fn contacted(&self) {
        self.store.contacted(self.scope.as_deref(), Contact::now());
    }

    fn recover(&self, outage: &mut Outage) {
        if outage.failures > 0 {
            tracing::info!(kind = self.store.resource.kind, "watch recovered");
        }
        outage.failures = 0;
        self.store.counts.recovered();
    }

    fn report(&self, error: CallError, outage: &mut Outage) {
        let error = error.redacted(&self.redactor);
        self.store.counts.failed(&error);
        outage.failures = outage.failures.saturating_add(1);
        if outage.failures == 1 {
            self.warn(&error);
        } else {
            tracing::debug!(kind = self.store.resource.kind, %error, "watch failed again");
        }
    }

    fn warn(&self, error: &CallError) {
        let Resource {
            kind, api_version, ..
        } = self.store.resource;
        let message = if error.is_status(404) {
            "the cluster does not serve this kind yet; install the CRDs (`foretide crds`)"
        } else {
            "watch failed; will retry"
        };
        tracing::warn!(kind, api_version, scope = self.scope.as_deref(), %error, "{message}");
    }

    async fn pause(&self, outage: &Outage) {
        if outage.failures == 0 {
            return;
        }
        // Limited so that the power does not overflow; `max_backoff` is reached earlier.
        let doublings = (outage.failures - 1).min(16);
        let base = (self.timeouts.backoff * 2_u32.pow(doublings)).min(self.timeouts.max_backoff);
        tokio::time::sleep(base + jitter(base / 2)).await;
    }
}

const CLOSED: &str = "the server closed the watch at once, without any event";

/// Whether a watch without events lasted so long that its end is regular.
fn lasted(opened: Monotonic) -> bool {
    Clock::system().monotonic().since(opened) >= Duration::from_secs(1)
}

// === impl WatchEnd ===

impl From<CallError> for WatchEnd {
    fn from(error: CallError) -> Self {
        if error.is_status(410) {
            Self::Expired
        } else {
            Self::Failed(error)
        }
    }
}

fn advance(version: &mut String, object: &Value) {
    if let Some(entry) = object
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
    {
        entry.clone_into(version);
    }
}
