//! One watch: lists a kind, follows its changes, and keeps a store true to the server.
//!
//! Written on list and watch requests rather than on the client library's stream, for three reasons:
//! that stream hides bookmarks, so a quiet watch cannot be told from a dead one; it does not bound its
//! lists and events; and it holds whole lists of whole objects. Here every wait has a limit, a failure is data, and
//! only compact values outlive their page. Each watch has its own pauses: one joint backoff over several
//! watches makes recovery an order of magnitude slower.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::StreamExt;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, core::WatchEvent};
use serde::Deserialize;
use serde_json::Value;
use tokio::{task::JoinSet, time::timeout};
use tracing::Instrument as _;

use super::store::{Seen, Store, Stored, WatchReport};
use crate::{
    adapters::api_server::{
        CallError, Connection, Redactor, Resource, WATCH_MARGIN, WATCH_TIMEOUT, jitter, query,
        response,
    },
    clock::Clock,
};

/// After so many failures in a row the version we follow is given up, and the kind is listed anew.
const FAILURES_BEFORE_RELIST: u32 = 3;
/// A list of more pages than this is given up: a server may go on for ever.
const PAGES_MAX: u32 = 1_000;
/// A list of more objects than this is given up: the largest clusters have 150 000 pods.
const OBJECTS_MAX: usize = 250_000;

/// The times of a watch.
#[derive(Debug, Clone, Copy)]
pub struct WatchTimeouts {
    /// Limit of one page of a list.
    pub(super) page: Duration,
    /// Limit of silence on a watch, its opening included.
    pub(super) silence: Duration,
    /// Pause after the first failure; doubles with each further one, plus up to a half at random.
    pub(super) pause: Duration,
    /// Upper bound of the doubling.
    pub(super) longest_pause: Duration,
    /// For how long what a watch said holds after the last word from the server, where nothing else tells.
    pub(super) believed: SignedDuration,
}

/// A store as its watches see it, whatever it keeps.
pub trait Watched: Send + Sync {
    /// How its watches are doing.
    fn report(&self) -> WatchReport;
    /// Whether every scope has seen a complete list.
    fn is_synced(&self) -> bool;
    /// Starts its watches, one task per scope.
    fn watch(
        self: Arc<Self>,
        connection: &Connection,
        pace: WatchTimeouts,
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
        pace: WatchTimeouts,
        tasks: &mut JoinSet<()>,
    ) {
        for scope in self.scopes() {
            let watch = Watch {
                client: connection.watch.clone(),
                hidden: connection.hidden.clone(),
                store: self.clone(),
                scope: scope.clone(),
                pace,
            };
            // Of several clusters, the span says which one a record is about.
            tasks.spawn(watch.run().in_current_span());
        }
    }
}

/// One watch of one kind in one scope.
pub(super) struct Watch<V> {
    pub(super) client: Client,
    pub(super) hidden: Redactor,
    pub(super) store: Arc<Store<V>>,
    pub(super) scope: Option<String>,
    pub(super) pace: WatchTimeouts,
}

/// How one watch request ended.
enum End {
    /// The server closed it in the regular way.
    Regular,
    /// The version is too old to go on from.
    Expired,
    /// Anything else.
    Failed(CallError),
}

/// Failures since the server last answered well.
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
            pause: Duration::from_millis(800),
            longest_pause: Duration::from_secs(20),
            believed: SignedDuration::from_secs(90),
        }
    }
}

impl WatchTimeouts {
    /// The same times, with what a silent watch said believed for `believed`.
    #[must_use]
    pub fn believing(self, believed: SignedDuration) -> Self {
        Self { believed, ..self }
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

    /// Fetches a complete list, puts it in place of the scope, and gives its version.
    async fn relist(&self) -> Result<String, CallError> {
        let mut fresh = Vec::new();
        let mut next = None;
        let mut pages = 0..PAGES_MAX;
        let version = loop {
            if pages.next().is_none() || fresh.len() > OBJECTS_MAX {
                return Err(CallError::Answer(format!(
                    "the list has more than {PAGES_MAX} pages or {OBJECTS_MAX} objects, the most that is read"
                )));
            }
            let page = self.page(next.as_deref()).await?;
            fresh.extend(
                page.items
                    .unwrap_or_default()
                    .into_iter()
                    .filter_map(Seen::decode),
            );
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
        let mut pairs = vec![("limit", "500")];
        pairs.extend(self.store.narrowed_by());
        pairs.extend(next.map(|token| ("continue", token)));
        let read = response::text(&self.client, self.request(&pairs)?);
        let text = timeout(self.pace.page, read)
            .await
            .map_err(|_elapsed| CallError::Late(self.pace.page))??;
        self.heard();
        serde_json::from_str(&text).map_err(|error| CallError::Answer(error.to_string()))
    }

    /// Follows the changes after `version` until the server has forgotten it.
    async fn follow(&self, mut version: String, outage: &mut Outage) {
        let mut fruitless = 0;
        while fruitless < FAILURES_BEFORE_RELIST {
            let before = version.clone();
            let end = self.watch(&mut version, outage).await;
            match end {
                End::Regular => {
                    fruitless = 0;
                    self.recover(outage);
                }
                End::Expired => {
                    outage.failures = outage.failures.saturating_add(1);
                    tracing::debug!(
                        kind = self.store.resource.kind,
                        "watch expired, listing anew"
                    );
                    return;
                }
                End::Failed(error) => {
                    fruitless = if version == before { fruitless + 1 } else { 1 };
                    self.report(error, outage);
                    if fruitless < FAILURES_BEFORE_RELIST {
                        self.pause(outage).await;
                    }
                }
            }
        }
    }

    /// One watch request, from `version`, which it moves forward.
    async fn watch(&self, version: &mut String, outage: &mut Outage) -> End {
        let silence = self.pace.silence;
        let seconds = WATCH_TIMEOUT.as_secs().to_string();
        let mut pairs = vec![
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", seconds.as_str()),
            ("resourceVersion", version.as_str()),
        ];
        pairs.extend(self.store.narrowed_by());
        let request = match self.request(&pairs) {
            Ok(request) => request,
            Err(error) => return End::Failed(error),
        };
        let events = match timeout(silence, response::events(&self.client, request)).await {
            Ok(Ok(events)) => events,
            Ok(Err(error)) => return End::from(error),
            Err(_elapsed) => return End::Failed(CallError::Late(silence)),
        };
        // A kind that nobody changes gets neither events nor bookmarks: that the server lets us watch is what it says.
        self.heard();
        let mut events = pin!(events);
        let opened = Clock::system().now();
        let mut heard = false;
        loop {
            let event = match timeout(silence, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return End::from(error),
                Ok(None) if heard || lasted(opened) => return End::Regular,
                Ok(None) => return End::Failed(CallError::Transport(CLOSED.to_owned())),
                Err(_elapsed) => return End::Failed(CallError::Late(silence)),
            };
            if let Err(end) = self.take(event, version) {
                return end;
            }
            heard = true;
            self.heard();
            self.recover(outage);
        }
    }

    fn take(&self, event: WatchEvent<Value>, version: &mut String) -> Result<(), End> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                advance(version, &object);
                if let Some(seen) = Seen::decode(object) {
                    self.store.apply(seen);
                }
            }
            WatchEvent::Deleted(object) => {
                advance(version, &object);
                if let Some(seen) = Seen::decode(object) {
                    self.store.delete(&seen);
                }
            }
            WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(End::from(CallError::from(*status))),
        }
        Ok(())
    }

    fn request(&self, pairs: &[(&str, &str)]) -> Result<Request<Vec<u8>>, CallError> {
        let path = self.store.resource.collection(self.scope.as_deref())?;
        Request::get(format!("{path}{}", query(pairs)))
            .body(Vec::new())
            .map_err(|error| CallError::Request(error.to_string()))
    }

    fn heard(&self) {
        self.store.counts.heard(Clock::system().now());
    }

    fn recover(&self, outage: &mut Outage) {
        if outage.failures > 0 {
            tracing::info!(
                kind = self.store.resource.kind,
                "watch follows the server again"
            );
        }
        outage.failures = 0;
        self.store.counts.recovered();
    }

    fn report(&self, error: CallError, outage: &mut Outage) {
        let error = self.hidden.out_of(error);
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
            "watch failed; trying again"
        };
        tracing::warn!(kind, api_version, scope = self.scope.as_deref(), %error, "{message}");
    }

    async fn pause(&self, outage: &Outage) {
        if outage.failures == 0 {
            return;
        }
        let doublings = (outage.failures - 1).min(16);
        let base = (self.pace.pause * 2_u32.pow(doublings)).min(self.pace.longest_pause);
        tokio::time::sleep(base + jitter(base / 2)).await;
    }
}

const CLOSED: &str = "the watch was closed at once, before it said anything";

/// Whether a watch lasted long enough that its end is no sign of trouble.
fn lasted(opened: Timestamp) -> bool {
    Clock::system().now().duration_since(opened) >= SignedDuration::from_secs(1)
}

// === impl End ===

impl From<CallError> for End {
    fn from(error: CallError) -> Self {
        if error.is_status(410) {
            Self::Expired
        } else {
            Self::Failed(error)
        }
    }
}

fn advance(version: &mut String, object: &Value) {
    if let Some(seen) = object
        .pointer("/metadata/resourceVersion")
        .and_then(Value::as_str)
    {
        seen.clone_into(version);
    }
}
