//! Watches: the changes of a collection as lines of JSON, from a revision on until their time is up.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::body::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{SimKube, kinds::Kind, request::Selection, store::Change, text};

/// Interval of the bookmarks of a watch. A real server does not send one before the end of a shorter watch.
const BOOKMARK: Duration = Duration::from_mins(1);

/// Disturbance of a watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Disturbance {
    /// Delay of each event after the write.
    pub(crate) lag: Duration,
    /// Time after which the watch ends without a word.
    pub(crate) ends_after: Option<Duration>,
}

/// Time of the first bookmark of a watch that begins now.
pub(crate) fn first_bookmark() -> Instant {
    present() + BOOKMARK
}

/// A watch.
pub(crate) struct Watch {
    pub(crate) server: SimKube,
    pub(crate) kind: Arc<Kind>,
    /// Prefix of the keys.
    pub(crate) prefix: String,
    pub(crate) selection: Selection,
    /// The revision of the last sent change.
    pub(crate) at: u64,
    /// Objects that are sent first, as if they were created.
    pub(crate) first: Vec<Arc<Value>>,
    pub(crate) end: Instant,
    pub(crate) next_bookmark: Option<Instant>,
    pub(crate) lag: Duration,
}

impl Watch {
    /// The lines of the watch.
    pub(crate) fn lines(self) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        stream::unfold(self, async |mut watch| {
            let lines = watch.next().await?;
            Some((Ok(Bytes::from(lines)), watch))
        })
    }

    async fn next(&mut self) -> Option<String> {
        let first: String = self
            .first
            .drain(..)
            .map(|object| line("ADDED", &object))
            .collect();
        if !first.is_empty() {
            return Some(first);
        }
        loop {
            // Registered before the look at the changes, so that none is missed.
            let server = self.server.clone();
            let mut moved = std::pin::pin!(server.moved());
            moved.as_mut().enable();
            match self.changes() {
                Some(lines) if !lines.is_empty() => {
                    if !self.lag.is_zero() {
                        sleep_until((present() + self.lag).min(self.end)).await;
                    }
                    return Some(lines);
                }
                Some(_) => {}
                None => return None,
            }
            let wake = self.next_bookmark.unwrap_or(self.end).min(self.end);
            if timeout_at(wake, moved).await.is_err() {
                if wake == self.end {
                    return None;
                }
                self.next_bookmark = Some(present() + BOOKMARK);
                return Some(self.bookmark());
            }
        }
    }

    /// The events since the last look; none if the history no longer reaches back.
    fn changes(&mut self) -> Option<String> {
        let server = self.server.clone();
        let state = server.state();
        let collection = self.kind.collection();
        let mut lines = String::new();
        for change in state.store.since(self.at).ok()? {
            if change.collection == collection && change.key.starts_with(&self.prefix) {
                lines.extend(self.event(change));
            }
        }
        self.at = self.at.max(state.store.revision());
        Some(lines)
    }

    /// A change as a watch of this selection sees it.
    fn event(&self, change: &Change) -> Option<String> {
        let selects = |object: &Value| self.selection.matches(object);
        let was = change.before.as_deref().is_some_and(selects);
        let is = !change.is_deletion && selects(&change.object);
        let kind = match (was, is) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return None,
        };
        if was && !is && !change.is_deletion {
            // The object has left the selection: its last state in it, at the revision of the change.
            let mut last = change.before.as_deref().cloned()?;
            last["metadata"]["resourceVersion"] =
                change.object["metadata"]["resourceVersion"].clone();
            return Some(line(kind, &last));
        }
        Some(line(kind, &change.object))
    }

    fn bookmark(&self) -> String {
        let metadata = json!({"resourceVersion": self.at.to_string(), "creationTimestamp": null});
        let (kind, version) = (&self.kind.kind, self.kind.api_version());
        line(
            "BOOKMARK",
            &json!({"kind": kind, "apiVersion": version, "metadata": metadata}),
        )
    }
}

/// The present of the runtime.
#[expect(
    clippy::disallowed_methods,
    reason = "waiting goes by the runtime, whose time tests pause"
)]
pub(crate) fn present() -> Instant {
    Instant::now()
}

/// One event, in the order of upstream's fields: a reader need not keep the rest after the type.
pub(crate) fn line(kind: &str, object: &Value) -> String {
    let object = text(object);
    format!(r#"{{"type":"{kind}","object":{object}}}"#) + "\n"
}
