//! Serves a router over plain HTTP, with a limit on the time that each connection may take to send a request, and on how
//! many are open at a time.

use std::{io, net::IpAddr, time::Duration};

use axum::Router;
use futures::{Stream, StreamExt, stream};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

use super::connections::{ConnectionLimits, serve_connections};

/// Probes and a few scrapers need less than ten; they may come from one address.
const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 64,
    of_peer: 64,
};
/// How long the header of a request may take.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted: the process may have no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a router on a listener until it is dropped.
pub async fn serve(listener: TcpListener, router: Router) {
    serve_plain(accepted(listener).boxed(), router).await;
}

/// The connections of a listener, as they come, with the addresses of their clients.
pub(super) fn accepted(listener: TcpListener) -> impl Stream<Item = (IpAddr, TcpStream)> + Send {
    stream::unfold(listener, |listener| async {
        Some((accept(&listener).await, listener))
    })
}

async fn accept(listener: &TcpListener) -> (IpAddr, TcpStream) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // The frames of an answer would wait for each other's acknowledgement.
                drop(stream.set_nodelay(true));
                // An IPv4 client of an IPv6 socket is the same peer.
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
    let serve_one = |_peer, stream, _activity| serve_one(stream, router.clone());
    serve_connections(incoming, LIMITS, serve_one).await;
}

async fn serve_one<I>(stream: I, router: Router)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let served: Result<(), hyper::Error> = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
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
        Router::new().route("/", get(|| async { "ok\n" }))
    }

    /// What the server sends until it closes the connection.
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
        // Long before the idle connections reach their timeout.
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
}
