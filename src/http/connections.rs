//! The open connections of one port: how many there may be, and which one is closed for a new one.
//!
//! Any pod that reaches a port may open connections. At the limit, one is closed for a new one: of those that answer no
//! request now, one that never had a request, or else the one whose last request is longest ago. So idle connections
//! keep neither the probes of the kubelet nor the API server out.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use futures::{Stream, StreamExt};
use hyper::body::{Body, Frame, SizeHint};
use tokio::task::{AbortHandle, JoinSet};

/// What one connection does.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests whose response has not been sent to its end.
    in_flight: AtomicUsize,
    /// Place of its last request among those of all connections; 0 before the first one.
    last_request: AtomicU64,
    /// Requests of all connections.
    requests: Arc<AtomicU64>,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Activity>);

/// The body of a response to a request that is in flight until the body has been sent.
#[derive(Debug)]
pub(super) struct BodyInFlight<B> {
    body: B,
    _request: InFlight,
}

struct Open {
    activity: Arc<Activity>,
    task: AbortHandle,
}

/// Serves connections as they come, each in a task of its own, until there are no more and all have ended.
pub(super) async fn serve_connections<S, I, F>(
    mut incoming: S,
    limit: usize,
    serve_one: impl Fn(I, Arc<Activity>) -> F,
) where
    S: Stream<Item = I> + Unpin,
    F: Future<Output = ()> + Send + 'static,
{
    let requests = Arc::<AtomicU64>::default();
    let mut tasks = JoinSet::new();
    // In the order in which they were accepted.
    let mut open: Vec<Open> = Vec::new();
    while let Some(stream) = incoming.next().await {
        while tasks.try_join_next().is_some() {}
        open.retain(|connection| !connection.task.is_finished());
        if open.len() >= limit
            && let Some(position) = least_needed(&open)
        {
            open.remove(position).task.abort();
        }
        let activity = Arc::new(Activity::among(Arc::clone(&requests)));
        let task = tasks.spawn(serve_one(stream, Arc::clone(&activity)));
        open.push(Open { activity, task });
    }
    drop(incoming);
    while tasks.join_next().await.is_some() {}
}

/// The connection that is closed for a new one.
fn least_needed(open: &[Open]) -> Option<usize> {
    let use_of = |(_, connection): &(usize, &Open)| connection.activity.rank();
    let least = open.iter().enumerate().min_by_key(use_of);
    least.map(|(position, _)| position)
}

// === impl Activity ===

impl Activity {
    fn among(requests: Arc<AtomicU64>) -> Self {
        Self {
            requests,
            ..Self::default()
        }
    }

    /// Records a request; it is in flight until the value is dropped.
    pub(super) fn request(self: &Arc<Self>) -> InFlight {
        let place = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        self.last_request.store(place, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    fn rank(&self) -> (bool, u64) {
        let is_answering = self.in_flight.load(Ordering::Relaxed) > 0;
        (is_answering, self.last_request.load(Ordering::Relaxed))
    }
}

// === impl InFlight ===

impl InFlight {
    /// Keeps the request in flight until `body` has been sent.
    pub(super) fn until_sent<B>(self, body: B) -> BodyInFlight<B> {
        BodyInFlight {
            body,
            _request: self,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl BodyInFlight ===

impl<B: Body + Unpin> Body for BodyInFlight<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, channel::mpsc, future::pending};

    use super::*;

    fn open(tasks: &mut JoinSet<()>, requests: &Arc<AtomicU64>) -> Open {
        Open {
            activity: Arc::new(Activity::among(Arc::clone(requests))),
            task: tasks.spawn(pending()),
        }
    }

    #[tokio::test]
    async fn a_connection_that_answers_is_closed_last_and_one_without_a_request_first() {
        let (mut tasks, requests) = (JoinSet::new(), Arc::default());
        let mut all: Vec<Open> = (0..4).map(|_| open(&mut tasks, &requests)).collect();
        let answering = all[0].activity.request();
        drop(all[3].activity.request());
        drop(all[1].activity.request());
        let mut closed = Vec::new();
        let mut names = vec!["answering", "second", "silent", "first"];
        while let Some(position) = least_needed(&all) {
            all.remove(position);
            closed.push(names.remove(position));
        }
        assert_eq!(closed, ["silent", "first", "second", "answering"]);
        drop(answering);
    }

    #[test]
    fn a_request_is_in_flight_until_its_body_has_been_sent() {
        let activity = Arc::new(Activity::default());
        let request = activity.request();
        let body = request.until_sent(axum::body::Body::from("text"));
        assert_eq!(
            (activity.rank(), body.size_hint().exact()),
            ((true, 1), Some(4))
        );
        drop(body);
        assert_eq!(activity.rank(), (false, 1));
    }

    #[tokio::test]
    async fn it_ends_when_no_more_connections_come_and_all_have_ended() {
        let (sender, incoming) = mpsc::unbounded::<()>();
        let (end, ended) = mpsc::unbounded::<()>();
        let ended = Arc::new(tokio::sync::Mutex::new(ended));
        let serve_one = move |(), _activity| {
            let ended = Arc::clone(&ended);
            async move {
                let _end = ended.lock().await.next().await;
            }
        };
        let mut served = std::pin::pin!(serve_connections(incoming, 8, serve_one));
        sender.unbounded_send(()).unwrap();
        drop(sender);
        assert!(served.as_mut().now_or_never().is_none());
        drop(end);
        served.await;
    }
}
