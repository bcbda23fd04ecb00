//! The open connections of one port: their limits, and the choice of one that is closed for a new one.
//!
//! Any pod that reaches a port may open connections. At the limit, one is closed for a new one, of the peer (an
//! address) that has the most: of those that answer no request now, one that never had a request, or else the one whose
//! last request is longest ago. So connections of one pod keep neither the probes of the kubelet nor the API server
//! out, nor KEDA, whether they are idle or busy.

use std::{
    cmp::Reverse,
    convert::Infallible,
    future::Future,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::{BoxError, Router, body::Bytes};
use futures::{Stream, StreamExt};
use http::{Extensions, Request, Response};
use hyper::body::{Body, Frame, SizeHint};
use tokio::task::{AbortHandle, JoinSet};
use tower::ServiceExt as _;

use super::body_deadline::BodyDeadline;

/// The address of the client, in the request's extensions. Clients behind one proxy have the same.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub IpAddr);

/// Use of one connection.
#[derive(Debug, Default)]
pub struct Activity {
    /// Requests whose response has not been sent to its end.
    in_flight: AtomicUsize,
    /// Place of the connection's last request among those of all connections; 0 before the first one.
    last_request: AtomicU64,
    /// Requests of all connections.
    requests: Arc<AtomicU64>,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub struct InFlight(Arc<Activity>);

/// The body of a response to a request that is in flight until the body has been sent.
#[derive(Debug)]
pub struct BodyInFlight<B> {
    body: B,
    _request: InFlight,
}

/// Limits of open connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub total: usize,
    /// Open connections from one address.
    pub of_peer: usize,
}

struct Open {
    peer: IpAddr,
    activity: Arc<Activity>,
    task: AbortHandle,
}

/// Serves connections as they come, with their peers, each in a task of its own, until there are no more and all have ended.
pub async fn serve_connections<S, I, F>(
    mut incoming: S,
    limits: ConnectionLimits,
    serve_one: impl Fn(IpAddr, I, Arc<Activity>) -> F,
) where
    S: Stream<Item = (IpAddr, I)> + Unpin,
    F: Future<Output = ()> + Send + 'static,
{
    let requests = Arc::<AtomicU64>::default();
    let mut tasks = JoinSet::new();
    // Ordered by the time of acceptance.
    let mut open: Vec<Open> = Vec::new();
    while let Some((peer, stream)) = incoming.next().await {
        // Without this, the set would keep a result of each connection that has ended, until the port is closed.
        while tasks.try_join_next().is_some() {}
        open.retain(|connection| !connection.task.is_finished());
        if let Some(position) = closed_for(peer, &open, limits) {
            open.remove(position).task.abort();
        }
        let activity = Arc::new(Activity::among(Arc::clone(&requests)));
        let task = tasks.spawn(serve_one(peer, stream, Arc::clone(&activity)));
        open.push(Open {
            peer,
            activity,
            task,
        });
    }
    // Closes the listener before the last requests end: connections that it accepts would not be served.
    drop(incoming);
    while tasks.join_next().await.is_some() {}
}

/// The connection that is closed for a new one of this peer, at a limit.
fn closed_for(peer: IpAddr, open: &[Open], limits: ConnectionLimits) -> Option<usize> {
    // The limit of the peer first: a peer that is at its own limit takes the place of nobody else.
    let from = if count_of(open, peer) >= limits.of_peer {
        peer
    } else if open.len() >= limits.total {
        // A connection of the peer with the most, the one that is needed least.
        open.iter()
            .min_by_key(|it| (Reverse(count_of(open, it.peer)), it.activity.rank()))?
            .peer
    } else {
        return None;
    };
    open.iter()
        .enumerate()
        .filter(|(_, one)| one.peer == from)
        .min_by_key(|(_, one)| one.activity.rank())
        .map(|(position, _)| position)
}

fn count_of(open: &[Open], peer: IpAddr) -> usize {
    open.iter().filter(|one| one.peer == peer).count()
}

// === impl PeerAddress ===

impl PeerAddress {
    /// The address that the connection of a request comes from.
    pub fn of(extensions: &Extensions) -> IpAddr {
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        extensions.get().map_or(unknown, |Self(peer)| *peer)
    }
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
    pub fn request(self: &Arc<Self>) -> InFlight {
        let place = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        self.last_request.store(place, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// The router's answer to a request, which is in flight until its body has been sent.
    pub fn answer<B>(
        self: &Arc<Self>,
        router: Router,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<BodyInFlight<axum::body::Body>>, Infallible>> + use<B>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let in_flight = self.request();
        let request = request.map(|body| axum::body::Body::new(BodyDeadline::new(body)));
        let response = router.oneshot(request);
        async { Ok(response.await?.map(|body| in_flight.until_sent(body))) }
    }

    fn rank(&self) -> (bool, u64) {
        let is_answering = self.in_flight.load(Ordering::Relaxed) > 0;
        // The smallest rank is closed first: `false` before `true`, and the longest unused before others.
        (is_answering, self.last_request.load(Ordering::Relaxed))
    }
}

// === impl InFlight ===

impl InFlight {
    /// Keeps the request in flight until `body` has been sent.
    pub fn until_sent<B>(self, body: B) -> BodyInFlight<B> {
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

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    /// Connections of these peers, in the order in which they were accepted.
    struct Rig {
        _tasks: JoinSet<()>,
        open: Vec<Open>,
        names: Vec<&'static str>,
    }

    impl Rig {
        fn new(all: &[(&'static str, u8)]) -> Self {
            let (mut tasks, requests) = (JoinSet::new(), Arc::default());
            let open = all.iter().map(|(_, number)| Open {
                peer: peer(*number),
                activity: Arc::new(Activity::among(Arc::clone(&requests))),
                task: tasks.spawn(pending()),
            });
            let (open, names) = (open.collect(), all.iter().map(|(name, _)| *name).collect());
            Self {
                _tasks: tasks,
                open,
                names,
            }
        }

        /// The connections that are closed one after another for new ones of this peer.
        fn closed_for(&mut self, number: u8, limits: ConnectionLimits) -> Vec<&'static str> {
            let mut closed = Vec::new();
            while let Some(position) = closed_for(peer(number), &self.open, limits) {
                self.open.remove(position);
                closed.push(self.names.remove(position));
            }
            closed
        }
    }

    #[tokio::test]
    async fn a_connection_that_answers_is_closed_last_and_one_without_a_request_first() {
        let mut rig = Rig::new(&[("answering", 1), ("second", 1), ("silent", 1), ("first", 1)]);
        let answering = rig.open[0].activity.request();
        drop(rig.open[3].activity.request());
        drop(rig.open[1].activity.request());
        let limits = ConnectionLimits {
            total: 1,
            of_peer: 1,
        };
        assert_eq!(
            rig.closed_for(1, limits),
            ["silent", "first", "second", "answering"]
        );
        drop(answering);
    }

    #[tokio::test]
    async fn at_the_limit_the_peer_with_the_most_loses_one_though_it_is_busy() {
        let (keda, stranger, other) = (1, 2, 3);
        let all = [
            ("keda", keda),
            ("busy", stranger),
            ("busier", stranger),
            ("other", other),
            ("silent", stranger),
        ];
        let mut rig = Rig::new(&all);
        let requests = [1, 2].map(|busy: usize| rig.open[busy].activity.request());
        let limits = |total| ConnectionLimits { total, of_peer: 3 };
        assert_eq!(rig.closed_for(keda, limits(6)), [] as [&str; 0]);
        assert_eq!(rig.closed_for(keda, limits(4)), ["silent", "busy"]);
        // Each peer has one now, and only the stranger's answers a request.
        assert_eq!(rig.closed_for(keda, limits(3)), ["keda"]);
        drop(requests);
    }

    #[tokio::test]
    async fn a_peer_that_has_as_many_as_it_may_loses_one_of_its_own() {
        let mut rig = Rig::new(&[("keda", 1), ("first", 2), ("second", 2)]);
        let limits = ConnectionLimits {
            total: 8,
            of_peer: 2,
        };
        assert_eq!(rig.closed_for(1, limits), [] as [&str; 0]);
        assert_eq!(rig.closed_for(2, limits), ["first"]);
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
        let (sender, incoming) = mpsc::unbounded();
        let (end, ended) = mpsc::unbounded::<()>();
        let ended = Arc::new(tokio::sync::Mutex::new(ended));
        let serve_one = move |_peer, (), _activity| {
            let ended = Arc::clone(&ended);
            async move {
                let _end = ended.lock().await.next().await;
            }
        };
        let limits = ConnectionLimits {
            total: 8,
            of_peer: 8,
        };
        let mut served = std::pin::pin!(serve_connections(incoming, limits, serve_one));
        sender.unbounded_send((peer(1), ())).unwrap();
        drop(sender);
        assert!(served.as_mut().now_or_never().is_none());
        drop(end);
        served.await;
    }
}
