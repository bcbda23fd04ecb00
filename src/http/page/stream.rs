//! Tells readers that something which they see has changed: server-sent events, of which nothing is sent while nothing
//! changes. A reader that is slow misses versions, not changes: the newest one waits.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::{
        IntoResponse, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures::{Stream, StreamExt as _, stream};
use tokio::{
    sync::watch,
    time::{Interval, MissedTickBehavior, interval, sleep},
};

use super::{PageSite, Reader, Refusal};
use crate::page::{
    Page, Visible,
    api::{ObjectKey, StreamQuery},
};

/// How many streams are open at a time: half of the connections of the port, so that the other half answers requests.
const STREAMS_MAX: usize = 32;
/// How many of them one reader has.
const STREAMS_OF_READER_MAX: usize = 8;
/// The least time between two looks of a stream, and so between two events: a look walks all that the reader sees, and
/// each autoscaler changes something each sync.
const PAUSE: Duration = Duration::from_secs(2);
/// After this time without an event, a comment shows that the stream is alive.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// A stream ends after this time. Browsers open it again, and the reader is reviewed again.
const LIFETIME: Duration = Duration::from_mins(10);

/// The open streams, by reader.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<Option<String>, usize>>);

/// The place of an open stream among [`Streams`], until it is dropped.
struct Place {
    streams: Arc<Streams>,
    reader: Option<String>,
}

/// What one stream tells about.
struct Watched {
    page: Arc<Page>,
    visible: Visible,
    of: Option<ObjectKey>,
    changes: watch::Receiver<u64>,
    /// The version that was sent last.
    sent: Option<u64>,
    /// When it may be looked again whether there is a newer one.
    looks: Interval,
    _place: Place,
}

/// `GET /api/v1/stream`
pub(super) async fn stream(
    State(site): State<Arc<PageSite>>,
    Extension(reader): Extension<Reader>,
    query: Result<Query<StreamQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Refusal> {
    let Query(query) = query?;
    let of = watched(query)?;
    if let Some(key) = &of {
        site.page.check(key, &reader.visible)?;
    }
    let watched = Watched {
        changes: site.page.log().changes(),
        page: Arc::clone(&site.page),
        visible: reader.visible,
        of,
        sent: None,
        looks: looks(),
        _place: site.streams.enter(reader.name)?,
    };
    Ok(Sse::new(watched.events()).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

/// One look at once, and each later one no sooner than after the pause.
fn looks() -> Interval {
    let mut looks = interval(PAUSE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// The autoscaler that a stream is about; none for all of them.
fn watched(query: StreamQuery) -> Result<Option<ObjectKey>, Refusal> {
    match (query.resource, query.namespace, query.name) {
        (None, None, None) => Ok(None),
        (Some(resource), Some(namespace), Some(name)) => Ok(Some(ObjectKey {
            resource,
            namespace,
            name,
        })),
        _ => Err(Refusal::bad_request(
            "expected resource, namespace and name together, or none of them",
        )),
    }
}

// === impl Watched ===

impl Watched {
    /// The version at once, so that no change between a view and its stream is missed, and then each newer one.
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        let versions = stream::unfold(self, |mut watched| async {
            let version = watched.next().await?;
            Some((version, watched))
        });
        let events = versions.map(|version| {
            let data = format!("{{\"version\":{version}}}");
            Ok(Event::default().event("changed").data(data))
        });
        events.take_until(Box::pin(sleep(LIFETIME)))
    }

    /// The next version that the reader has not; none if nothing is recorded any more.
    async fn next(&mut self) -> Option<u64> {
        loop {
            self.looks.tick().await;
            // Before the version is read: a change after this is seen by `changed` below.
            self.changes.borrow_and_update();
            let version = Some(self.page.version(&self.visible, self.of.as_ref()));
            if version != self.sent {
                self.sent = version;
                return version;
            }
            self.changes.changed().await.ok()?;
        }
    }
}

// === impl Streams ===

impl Streams {
    fn enter(self: &Arc<Self>, reader: Option<String>) -> Result<Place, Refusal> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_reader = open.get(&reader).copied().unwrap_or_default();
        if open.values().sum::<usize>() >= STREAMS_MAX || of_reader >= STREAMS_OF_READER_MAX {
            let message = "too many live views are open; close some of them";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        open.insert(reader.clone(), of_reader + 1);
        Ok(Place {
            streams: Arc::clone(self),
            reader,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self
            .streams
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.reader) {
            *count -= 1;
        }
        open.retain(|_, count| *count > 0);
    }
}
