//! Serves a router over plain HTTP, with a limit on the time that each connection may take to send a request and to take
//! what is sent, and on how many are open at a time.

use std::{io, net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use axum::Router;
use futures::{Stream, StreamExt, stream};
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_io_timeout::TimeoutStream;

use super::connections::{Activity, ConnectionLimits, PeerAddress, serve_connections};

/// Probes and a few scrapers need less than ten; they may come from one address. The streams of the page have half of them
/// at most. A new connection is always served: at the limit, one that answers no request is closed for it.
const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 64,
    of_peer: 64,
};
/// The time for the header of a request.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which a client may take nothing of an answer: meanwhile the answer is in memory.
pub const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Size of the buffers of one connection for a request's header, and for an answer that its reader is slow to take.
const BUFFER_MAX: usize = 64 * 1024;
/// The pause after a connection could not be accepted: the process may have no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a router on a listener until it is dropped.
pub async fn serve(listener: TcpListener, router: Router) {
    serve_plain(accepted(listener).boxed(), router).await;
}

/// The connections of a listener, as they come, with the addresses of their clients.
pub fn accepted(listener: TcpListener) -> impl Stream<Item = (IpAddr, TcpStream)> + Send {
    stream::unfold(listener, |listener| async {
        Some((accept(&listener).await, listener))
    })
}

async fn accept(listener: &TcpListener) -> (IpAddr, TcpStream) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Otherwise the frames of an answer would wait for each other's acknowledgement.
                drop(stream.set_nodelay(true));
                // Canonical, because an IPv4 client of an IPv6 socket is the same peer.
                return (peer.ip().to_canonical(), stream);
            }
            Err(error) => {
                tracing::debug!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves connections as they come, until there are no more and all have ended.
async fn serve_plain<S, I>(incoming: S, router: Router)
where
    S: Stream<Item = (IpAddr, I)> + Unpin,
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    serve_connections(incoming, LIMITS, |peer, stream, activity| {
        serve_one(PeerAddress(peer), stream, activity, router.clone())
    })
    .await;
}

/// The stream of a connection, which ends with an error when its client takes no sent data for [`UNREAD_TIMEOUT`].
pub fn with_unread_timeout<I>(stream: I) -> TokioIo<Pin<Box<TimeoutStream<I>>>>
where
    I: AsyncRead + AsyncWrite,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(UNREAD_TIMEOUT));
    TokioIo::new(Box::pin(stream))
}

async fn serve_one<I>(peer: PeerAddress, stream: I, activity: Arc<Activity>, router: Router)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        activity.answer(router.clone(), request)
    });
    let served: Result<(), hyper::Error> = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(BUFFER_MAX)
        .serve_connection(with_unread_timeout(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(error = %io::Error::other(error), "connection of the HTTP port ended");
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, net::Ipv4Addr};

    use axum::routing::get;
    use futures::{channel::mpsc, stream};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        time::timeout,
    };

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn router() -> Router {
        let large = || async { "a".repeat(BUFFER_MAX * 4) };
        Router::new()
            .route("/", get(|| async { "ok\n" }))
            .route("/large", get(large))
    }

    /// The text that the server sends until it closes the connection.
    async fn received(mut client: DuplexStream) -> String {
        let mut text = String::new();
        // A connection that is aborted may end with an error.
        let _ended = client.read_to_string(&mut text).await.is_ok();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_sent_too_slowly_is_ended() {
        let (mut slow, of_server) = duplex(1024);
        let served = tokio::spawn(serve_plain(stream::iter([(PEER, of_server)]), router()));
        slow.write_all(b"GET / HTTP/1.1\r\nhost").await.unwrap();
        let mut answer = std::pin::pin!(received(slow));
        let second = Duration::from_secs(1);
        let early = timeout(HEADER_TIMEOUT.saturating_sub(second), &mut answer).await;
        assert!(early.is_err(), "{early:?}");
        let answer = timeout(second * 2, answer).await.unwrap();
        assert!(!answer.contains("200"), "{answer}");
        served.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_limit_the_oldest_connection_is_closed_for_a_new_one() {
        let (sender, incoming) = mpsc::unbounded();
        let served = tokio::spawn(serve_plain(incoming, router()));
        let mut idle = VecDeque::new();
        for _ in 0..LIMITS.total {
            let (client, of_server) = duplex(1024);
            sender.unbounded_send((PEER, of_server)).unwrap();
            idle.push_back(client);
        }
        let (mut probe, of_server) = duplex(1024);
        sender.unbounded_send((PEER, of_server)).unwrap();
        probe.write_all(REQUEST).await.unwrap();
        // Earlier than the timeout of the idle connections.
        let soon = Duration::from_secs(1);
        let answer = timeout(soon, received(probe)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let oldest = timeout(soon, received(idle.pop_front().unwrap())).await;
        assert_eq!(oldest.unwrap(), "");
        let mut second = idle.pop_front().unwrap();
        second.write_all(REQUEST).await.unwrap();
        let answer = received(second).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        drop((sender, idle));
        served.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_of_an_answer_is_left() {
        let (mut client, of_server) = duplex(1024);
        let served = tokio::spawn(serve_plain(stream::iter([(PEER, of_server)]), router()));
        let request = b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n";
        client.write_all(request).await.unwrap();
        // A client that takes a little now and then is served.
        for _ in 0..3 {
            tokio::time::sleep(UNREAD_TIMEOUT / 2).await;
            client.read_exact(&mut [0; 1024]).await.unwrap();
        }
        assert!(!served.is_finished());
        tokio::time::sleep(UNREAD_TIMEOUT * 2).await;
        assert!(served.is_finished());
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_ends_its_request() {
        let echo = |body: String| async { body };
        let router = Router::new().route("/", axum::routing::post(echo));
        let (mut client, of_server) = duplex(1024);
        let served = tokio::spawn(serve_plain(stream::iter([(PEER, of_server)]), router));
        let begun = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n";
        client.write_all(begun).await.unwrap();
        // A byte now and then does not prolong the time.
        for _ in 0..4 {
            client.write_all(b"a").await.unwrap();
            tokio::time::sleep(Duration::from_secs(7)).await;
        }
        let answer = timeout(Duration::from_secs(3), received(client)).await;
        let answer = answer.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(
            answer.contains("expected the whole body within 30 s"),
            "{answer}"
        );
        served.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn readers_that_do_not_read_keep_no_probe_out() {
        let (sender, incoming) = mpsc::unbounded();
        let served = tokio::spawn(serve_plain(incoming, router()));
        let open = |peer| {
            let (client, of_server) = duplex(1024);
            sender.unbounded_send((peer, of_server)).unwrap();
            client
        };
        let mut slow = Vec::new();
        for _ in 0..LIMITS.total {
            let mut client = open(PEER);
            let request = b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n";
            client.write_all(request).await.unwrap();
            // The answer to this client has begun.
            client.read_exact(&mut [0; 8]).await.unwrap();
            slow.push(client);
        }
        let kubelet = IpAddr::from([10, 0, 0, 1]);
        for _ in 0..3 {
            let mut probe = open(kubelet);
            probe.write_all(REQUEST).await.unwrap();
            let answer = timeout(Duration::from_secs(1), received(probe)).await;
            assert!(answer.unwrap().starts_with("HTTP/1.1 200 OK"));
        }
        drop((sender, slow));
        served.await.unwrap();
    }
}
