//! One watch: lists a kind, follows its changes, and keeps a store up to date.
//!
//! ```text
//! relist ──► watch ──► watch ──► ...     a new watch request every 25 s
//!    ▲          │
//!    └──────────┘  the version expired (410), 3 failures in a row, or the server is at an older version
//! ```
//!
//! The copies are up to date when a list is complete, and whenever a watch delivers: an event, a bookmark, or its
//! regular end. A response that only begins proves nothing.
//!
//! # A server that was restored from a backup
//!
//! It continues at an older version, and a watch from a version of its future is silent until it gets there. After a
//! watch without any event, the version of the server is therefore asked for, and one that is older is listed again.
//!
//! # Why not `kube::runtime::watcher`
//!
//! It hides bookmarks, so a quiet watch cannot be distinguished from a dead one; it does not limit the size of lists
//! and events; and it keeps whole lists of whole objects in memory. Here every wait has a timeout, lists are read in
//! pages whose size follows that of the objects ([`Pages`]), and only compact values outlive their page.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _};
use http::Request;
use jiff::SignedDuration;
use kube::Client;
use tokio::{task::JoinSet, time::timeout};
use tracing::Instrument as _;

use super::{entry::Entry, store::Store, stored::Stored, watch_report::WatchReport};
use crate::api_server::{
    CallError, Connection, PageTurn, PageTurns, Pages, Resource, WATCH_MARGIN, WATCH_TIMEOUT,
    WatchEvent, query, response,
};
use foretide_api::ports::UnusableCopies;
use foretide_base::{clock::Clock, machine::Machine, redact::Redactor};

/// Number of failures in a row without progress after which the kind is listed again.
const FAILURES_BEFORE_RELIST: u32 = 3;
/// The longest pause that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(2);
/// Duration below which a watch that ends without an event was closed at once.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Largest age of copies that are acted on. A watch that works delivers twice as often, if only its end.
pub const MAX_STALENESS: SignedDuration = SignedDuration::from_secs(60);

/// The timeouts and pauses of a watch.
#[derive(Debug, Clone, Copy)]
pub struct WatchTimeouts {
    /// Timeout of the beginning of a response with a page of a list, and of the rest.
    pub page: Duration,
    /// Timeout of a watch without any event, also for its first response.
    pub silence: Duration,
    /// Pause after the first failure; doubles with each further one, plus up to a half at random.
    pub backoff: Duration,
    /// Maximum pause before the random part.
    pub max_backoff: Duration,
    /// Largest age of copies that are acted on.
    pub max_staleness: SignedDuration,
}

/// A store and its watches, of any kind of object.
pub trait Watched: Send + Sync {
    /// The state of its watches.
    fn report(&self) -> WatchReport;
    /// True if every scope has a complete list.
    fn is_synced(&self) -> bool;
    /// Problem of the copies of a namespace, or of every scope, if they are older than `max`.
    fn stale(&self, namespace: Option<&str>, max: SignedDuration) -> Option<UnusableCopies>;
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

    fn stale(&self, namespace: Option<&str>, max: SignedDuration) -> Option<UnusableCopies> {
        self.stale(namespace, max)
    }

    fn watch(
        self: Arc<Self>,
        connection: &Connection,
        timeouts: WatchTimeouts,
        tasks: &mut JoinSet<()>,
    ) {
        if let Some(memory) = connection.machine.memory() {
            let (cluster, clock) = (connection.cluster.clone(), connection.clock());
            self.charge_to(|store| memory.copies().open(cluster, store, clock));
        }
        for scope in self.scopes() {
            let watch = Watch {
                machine: connection.machine.clone(),
                client: connection.watch.0.clone(),
                redactor: connection.redactor.clone(),
                turns: connection.page_turns.clone(),
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
pub struct Watch<V> {
    pub machine: Machine,
    pub client: Client,
    pub redactor: Redactor,
    pub turns: PageTurns,
    pub store: Arc<Store<V>>,
    pub scope: Option<String>,
    pub timeouts: WatchTimeouts,
}

/// End of one watch request.
enum WatchEnd {
    /// The server closed it at its timeout, after events.
    Regular,
    /// The server closed it at its timeout, without any event.
    Quiet,
    /// The server no longer has the version to continue from.
    Expired,
    /// Any other failure.
    Failed(CallError),
}

/// Failures since the watch last delivered.
#[derive(Default)]
struct Outage {
    failures: u32,
    /// Number of requests without an answer in time.
    timeouts: u32,
    /// Pause that the server asked for with the last failure.
    retry_after: Duration,
}

// === impl WatchTimeouts ===

impl Default for WatchTimeouts {
    fn default() -> Self {
        Self {
            page: Duration::from_secs(30),
            silence: WATCH_TIMEOUT + WATCH_MARGIN,
            // As the reflector of client-go.
            backoff: Duration::from_millis(800),
            // With the jitter at most 15 s, so that what was held back is decided within two sync periods.
            max_backoff: Duration::from_secs(10),
            max_staleness: MAX_STALENESS,
        }
    }
}

// === impl Watch ===

impl<V: Stored> Watch<V> {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut outage = Outage::default();
        let mut known = None;
        loop {
            match self.relist(&outage).await {
                Ok(version) => {
                    self.store.counts.recovered();
                    if known.is_some_and(|known: String| is_older(&version, &known)) {
                        self.warn_of_restore();
                    }
                    known = Some(self.follow(version, &mut outage).await);
                }
                Err(error) => self.report(error, &mut outage),
            }
            self.pause(&outage).await;
        }
    }

    /// Reads a complete list into the store, and returns its version.
    async fn relist(&self, outage: &Outage) -> Result<String, CallError> {
        // All pages show the state of the first.
        let started = self.clock().contact();
        let mut pages = Pages::after_timeouts(outage.timeouts);
        let mut listing = self.store.list(self.scope.as_deref());
        let version = loop {
            match self.page(&pages).await {
                Ok((text, _turn)) => {
                    for entry in pages.read(&text)?.filter_map(Entry::read) {
                        listing.add(entry);
                    }
                }
                Err(error) => pages.retry_smaller(error)?,
            }
            if let Some(version) = pages.version() {
                break version.to_owned();
            }
        };
        listing.complete();
        self.store.contacted(self.scope.as_deref(), &started);
        Ok(version)
    }

    /// The text of the next page of a list, and the turn that lasts until it is decoded.
    async fn page(&self, pages: &Pages) -> Result<(String, PageTurn), CallError> {
        let limit = self.timeouts.page;
        let pairs = pages.query(self.store.selector_parameter().as_slice());
        let begun = response::send(&self.client, self.request(&pairs)?);
        let begun = response::within(limit, begun).await?;
        let read = async {
            // Only now: a server that does not answer takes nobody's turn.
            let turn = self.turns.take().await;
            let text = response::text(begun.into_body(), pages.max_bytes()).await?;
            Ok((text, turn))
        };
        response::within(limit, read).await
    }

    /// Follows the changes after `version` until the kind must be listed again; returns the version that it got to.
    async fn follow(&self, mut version: String, outage: &mut Outage) -> String {
        let mut failures = 0;
        while failures < FAILURES_BEFORE_RELIST {
            let before = version.clone();
            let end = match self.watch(&mut version, outage).await {
                WatchEnd::Quiet => self.after_silence(&version).await,
                end => end,
            };
            match end {
                WatchEnd::Regular | WatchEnd::Quiet => {
                    failures = 0;
                    self.delivered(outage);
                    if self.store.has_room_again() {
                        return version;
                    }
                }
                WatchEnd::Expired => {
                    self.expired(outage);
                    return version;
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
        version
    }

    /// End of a watch from `version` that had no event: expired if the server is not at that version yet.
    async fn after_silence(&self, version: &str) -> WatchEnd {
        let server = async {
            let (text, _turn) = self.page(&Pages::of_one_object()).await?;
            Pages::version_of(&text)
        };
        match server.await {
            Ok(server) if is_older(&server, version) => WatchEnd::Expired,
            Ok(_) => WatchEnd::Quiet,
            Err(error) => WatchEnd::Failed(error),
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
        let request = match self.request(&query(&pairs)) {
            Ok(request) => request,
            Err(error) => return WatchEnd::Failed(error),
        };
        let opening = response::within(silence, response::events(&self.client, request));
        let events = match opening.await {
            Ok(events) => events,
            Err(error) => return WatchEnd::from(error),
        };
        let mut events = pin!(events);
        let mut has_lasted = pin!(tokio::time::sleep(AT_ONCE));
        let mut has_events = false;
        loop {
            let event = match timeout(silence, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return WatchEnd::from(error),
                Ok(None) if has_events => return WatchEnd::Regular,
                // A watch that is closed at once, without an event, counts as failed: otherwise it would be reopened
                // without a pause.
                Ok(None) if has_lasted.as_mut().now_or_never().is_some() => return WatchEnd::Quiet,
                Ok(None) => return WatchEnd::Failed(CallError::Transport(CLOSED.to_owned())),
                Err(_elapsed) => return WatchEnd::Failed(CallError::Timeout(silence)),
            };
            if let Err(end) = self.apply(event, version) {
                return end;
            }
            has_events = true;
            self.delivered(outage);
        }
    }

    fn apply(&self, event: WatchEvent, version: &mut String) -> Result<(), WatchEnd> {
        match event {
            WatchEvent::Applied(object) => {
                if let Some(entry) = Entry::read(object.get()) {
                    advance(version, &entry.version);
                    self.store.apply(entry);
                }
            }
            WatchEvent::Deleted(object) => {
                if let Some(entry) = Entry::read(object.get()) {
                    advance(version, &entry.version);
                    self.store.delete(&entry);
                }
            }
            // From a server that was restored from a backup.
            WatchEvent::Bookmark(at) if is_older(&at, version) => return Err(WatchEnd::Expired),
            WatchEvent::Bookmark(at) => *version = at,
            WatchEvent::Error(status) => return Err(WatchEnd::from(CallError::from(*status))),
        }
        Ok(())
    }

    fn request(&self, query: &str) -> Result<Request<Vec<u8>>, CallError> {
        let path = self.store.resource.collection(self.scope.as_deref())?;
        Request::get(format!("{path}{query}"))
            .body(Vec::new())
            .map_err(|error| CallError::Request(error.to_string()))
    }

    fn clock(&self) -> Clock {
        self.machine.clock().clone()
    }

    /// Records that the copies are up to date, which ends an outage.
    fn delivered(&self, outage: &mut Outage) {
        self.store
            .contacted(self.scope.as_deref(), &self.clock().contact());
        if outage.failures > 0 {
            tracing::info!(kind = self.store.resource.kind, "watch recovered");
        }
        *outage = Outage::default();
        self.store.counts.recovered();
    }

    fn expired(&self, outage: &mut Outage) {
        // Counted, so that a server that expires every watch is listed with growing pauses.
        outage.failures = outage.failures.saturating_add(1);
        outage.retry_after = Duration::ZERO;
        tracing::debug!(
            kind = self.store.resource.kind,
            "watch expired; listing again"
        );
    }

    fn report(&self, error: CallError, outage: &mut Outage) {
        let error = error.redacted(&self.redactor);
        self.store.counts.failed(&error);
        outage.failures = outage.failures.saturating_add(1);
        let is_timeout = matches!(error, CallError::Timeout(_));
        outage.timeouts = outage.timeouts.saturating_add(is_timeout.into());
        outage.retry_after = error.retry_after().unwrap_or_default().min(RETRY_AFTER_MAX);
        if outage.failures == 1 {
            self.warn(&error);
        } else {
            tracing::debug!(kind = self.store.resource.kind, %error, "watch failed again");
        }
    }

    fn warn_of_restore(&self) {
        let kind = self.store.resource.kind;
        tracing::warn!(
            kind,
            "the API server continues at an older version, as after a restore from a backup; its objects were listed again"
        );
    }

    fn warn(&self, error: &CallError) {
        let Resource {
            kind, api_version, ..
        } = self.store.resource;
        if error.is_status(404) && self.store.resource == Resource::SCALED_OBJECT {
            // A cluster without KEDA.
            return;
        }
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
        tokio::time::sleep(base.max(outage.retry_after) + self.machine.jitter(base / 2)).await;
    }
}

const CLOSED: &str = "the server closed the watch at once, without any event";

/// True if a version of the server is before another. Versions that are no numbers cannot be compared.
pub fn is_older(version: &str, other: &str) -> bool {
    match (version.parse::<u64>(), other.parse()) {
        (Ok(version), Ok(other)) => version < other,
        _ => false,
    }
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

fn advance(version: &mut String, to: &str) {
    if !to.is_empty() {
        to.clone_into(version);
    }
}
