//! Serves a router over TLS: HTTP/1.1 and HTTP/2, with a certificate that may change while connections are open.
//!
//! Each new connection gets the newest configuration; open ones go on with theirs. A handler finds the certificates
//! that the client presented in the request's extension [`PeerCertificates`]. Whom they belong to is left to `identity`.

use std::{
    future::{Future, ready},
    io,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use futures::{Stream, StreamExt};
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower::ServiceExt as _;

use super::{
    connections::{Activity, serve_connections},
    serve::{HEADER_TIMEOUT, accepted},
};

/// How many connections may be open. The API servers and KEDA hold a few each, with many requests on one.
const CONNECTIONS_MAX: usize = 256;
/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests of one HTTP/2 connection are answered at a time. KEDA holds all its streams on one connection, two for
/// each trigger of type external-push; beyond the limit its other requests would wait.
const STREAMS_MAX: u32 = 4096;
/// The largest header of a request. Those of the API server name the groups of a user.
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// How often a silent HTTP/2 connection is asked whether its client is there.
const PING_PERIOD: Duration = Duration::from_secs(30);
/// How long requests in flight may take after the server was told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// The newest configuration of new connections; none while there is no certificate.
pub type TlsConfigs = watch::Receiver<Option<Arc<ServerConfig>>>;

/// The certificates that the client of a connection presented, its own first; none without a client certificate.
///
/// # Guarantees
/// The client has the key of the first one. Whether anything trusts it depends on the configuration of the connection.
#[derive(Debug, Clone, Default)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// Serves a router on a listener until `stop` completes and the requests in flight have ended, or five seconds after it.
///
/// Connections are refused while there is no configuration. Its `alpn_protocols` decide whether HTTP/2 is offered.
pub async fn serve_tls(
    listener: TcpListener,
    configs: TlsConfigs,
    router: Router,
    stop: impl Future<Output = ()> + Send,
) {
    serve_incoming(accepted(listener).boxed(), configs, router, stop).await;
}

/// As [`serve_tls`], without TLS: HTTP/2 alone, from the first byte on, as clients of gRPC without TLS speak it.
pub async fn serve_http2(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send,
) {
    let open = |stream| ready(Some(Opened::plaintext(stream)));
    serve_opened(accepted(listener).boxed(), open, router, stop).await;
}

async fn serve_incoming<S, I>(
    incoming: S,
    configs: TlsConfigs,
    router: Router,
    stop: impl Future<Output = ()>,
) where
    S: Stream<Item = I> + Unpin,
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let open = |stream| {
        let config = configs.borrow().clone();
        async { Some(Opened::encrypted(handshake(stream, config?).await?)) }
    };
    serve_opened(incoming, open, router, stop).await;
}

/// Serves connections that `open` makes ready for requests; none for one that is closed instead.
async fn serve_opened<S, I, O, F>(
    incoming: S,
    open: impl Fn(I) -> F,
    router: Router,
    stop: impl Future<Output = ()>,
) where
    S: Stream<Item = I> + Unpin,
    O: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Future<Output = Option<Opened<O>>> + Send + 'static,
{
    let stopped = watch::Sender::new(false);
    let stopping = async {
        stop.await;
        stopped.send_replace(true);
    };
    let incoming = incoming.take_until(stopping);
    let serve_one = |stream, activity| {
        let opened = open(stream);
        let connection = Connection {
            activity,
            router: router.clone(),
            stopped: stopped.subscribe(),
        };
        async move {
            if let Some(opened) = opened.await {
                connection.serve(opened).await;
            }
        }
    };
    serve_connections(std::pin::pin!(incoming), CONNECTIONS_MAX, serve_one).await;
}

async fn handshake<I>(stream: I, config: Arc<ServerConfig>) -> Option<TlsStream<I>>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let accepted = timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await;
    match accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => Some(stream),
        Err(error) => {
            // At level debug: any client that reaches the port can repeat it.
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
    }
}

/// A connection that is ready for requests.
struct Opened<I> {
    stream: I,
    is_http2: bool,
    peer: PeerCertificates,
}

// === impl Opened ===

impl<I> Opened<TlsStream<I>> {
    fn encrypted(stream: TlsStream<I>) -> Self {
        let (_, session) = stream.get_ref();
        let peer = session.peer_certificates().unwrap_or_default().into();
        Self {
            is_http2: session.alpn_protocol() == Some(b"h2"),
            peer: PeerCertificates(peer),
            stream,
        }
    }
}

impl<I> Opened<I> {
    fn plaintext(stream: I) -> Self {
        Self {
            stream,
            is_http2: true,
            peer: PeerCertificates::default(),
        }
    }
}

/// What serves the requests of one connection.
struct Connection {
    activity: Arc<Activity>,
    router: Router,
    stopped: watch::Receiver<bool>,
}

// === impl Connection ===

impl Connection {
    async fn serve<I>(self, opened: Opened<I>)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Self {
            activity,
            router,
            mut stopped,
        } = self;
        let Opened {
            stream,
            is_http2,
            peer,
        } = opened;
        let builder = builder(is_http2);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let in_flight = activity.request();
            request.extensions_mut().insert(peer.clone());
            let response = router.clone().oneshot(request);
            async move {
                let response = response.await;
                response.map(|response| response.map(|body| in_flight.until_sent(body)))
            }
        });
        let served = builder.serve_connection(TokioIo::new(stream), service);
        let mut served = std::pin::pin!(served);
        let stop = async { drop(stopped.wait_for(|stopped| *stopped).await) };
        let ended = tokio::select! {
            ended = served.as_mut() => ended,
            () = stop => {
                served.as_mut().graceful_shutdown();
                timeout(GRACE, served).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }
}

/// One protocol per connection, as the handshake settled: waiting for the first bytes to tell it has no deadline.
fn builder(is_http2: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_PERIOD)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX);
    if is_http2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    }
}
