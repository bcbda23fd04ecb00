//! Tells readers that something which they see has changed: server-sent events, of which nothing is sent while nothing
//! changes. A reader that is slow misses versions, not changes: the newest one waits.

#[cfg(test)]
mod tests;

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
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
use crate::{
    Page, Visible,
    api::{ObjectKey, StreamQuery},
};
use foretide_base::http::{Limits, Permit};

/// Half of the connections of the port, so that the other half answers requests.
pub const STREAMS: Limits = Limits {
    what: "live views",
    total: 32,
    per_holder: 8,
    holder: "reader",
    advice: "close some of them",
};
/// The least time between two looks of a stream, and so between two events: a look walks all that the reader sees, and
/// each autoscaler changes something each sync.
const PAUSE: Duration = Duration::from_secs(2);
/// After this time without an event, a comment shows that the stream is alive.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// A stream ends after this time. Browsers open it again, and the reader is reviewed again.
const LIFETIME: Duration = Duration::from_mins(10);

/// Subject of one stream, with its last event.
struct Watched {
    page: Arc<Page>,
    visible: Visible,
    of: Option<ObjectKey>,
    changes: watch::Receiver<u64>,
    /// The version that was sent last.
    sent: Option<u64>,
    /// Pace of the looks for a newer version.
    looks: Interval,
}

/// `GET /api/v1/stream`
pub async fn stream(
    State(site): State<Arc<PageSite>>,
    Extension(reader): Extension<Reader>,
    query: Result<Query<StreamQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Refusal> {
    let Query(query) = query?;
    let of = watched(query)?;
    if let Some(key) = &of {
        site.page.check(key, &reader.visible)?;
    }
    let permit = site.streams.acquire(reader.tenant())?;
    let watched = Watched {
        changes: site.page.log().changes(),
        page: Arc::clone(&site.page),
        visible: reader.visible,
        of,
        sent: None,
        looks: looks(),
    };
    Ok(Sse::new(watched.events(permit)).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

/// The pace of looks: one at once, and each later one no sooner than after the pause.
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
    fn events(self, mut permit: Permit<Arc<str>>) -> impl Stream<Item = Result<Event, Infallible>> {
        let events = stream::unfold(self, |mut watched| async {
            let data = format!("{{\"version\":{}}}", watched.next().await?);
            Some((Ok(Event::default().event("changed").data(data)), watched))
        });
        let ended = async move {
            tokio::select! {
                biased;
                _evicted = permit.evicted() => {}
                () = sleep(LIFETIME) => {}
            }
        };
        events.take_until(Box::pin(ended))
    }

    /// The next version that the reader has not seen; none if nothing is recorded any more.
    async fn next(&mut self) -> Option<u64> {
        loop {
            self.looks.tick().await;
            // Marked as seen before the version is read, so that `changed` below reports every later change.
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
