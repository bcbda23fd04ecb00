//! Serves a router over TLS: HTTP/1.1 and HTTP/2, with a certificate that may change while connections are open.
//!
//! Each new connection gets the newest configuration; open ones go on with theirs. A handler finds the certificates
//! that the client presented in the request's extension [`PeerCertificates`]. `identity` decides on their owner.

use std::{
    future::{Future, ready},
    io,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use futures::{Stream, StreamExt};
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
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

use super::{
    connections::{Activity, ConnectionLimits, PeerAddress, serve_connections},
    serve::{HEADER_TIMEOUT, accepted, with_unread_timeout},
};

/// The time for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest header of a request. Headers of the API server name the groups of a user.
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// Sizes of the received and unread bodies of one connection, and of one body.
const CONNECTION_WINDOW: u32 = 256 * 1024;
const STREAM_WINDOW: u32 = 64 * 1024;
/// Period of the pings on a silent HTTP/2 connection, which show whether its client is there.
const PING_PERIOD: Duration = Duration::from_secs(30);
/// The time for requests in flight after the server was told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// The newest configuration of new connections; none while there is no certificate.
pub type TlsConfigs = watch::Receiver<Option<Arc<ServerConfig>>>;

/// Limits of the connections and requests of the clients of a port.
#[derive(Debug, Clone, Copy)]
pub struct PortLimits {
    /// Connections.
    pub connections: usize,
    /// Connections from one address. At either limit, one is closed for a new one.
    pub connections_of_peer: usize,
    /// Requests of one connection that are answered at a time over HTTP/2. The client holds back more.
    pub requests: u32,
}

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
    limits: PortLimits,
    stop: impl Future<Output = ()> + Send,
) {
    serve_incoming(accepted(listener).boxed(), configs, router, limits, stop).await;
}

/// Serves like [`serve_tls`], without TLS: HTTP/2 alone, from the first byte on, as clients of gRPC without TLS speak
/// it.
pub async fn serve_http2(
    listener: TcpListener,
    router: Router,
    limits: PortLimits,
    stop: impl Future<Output = ()> + Send,
) {
    let open = |stream| ready(Some(Opened::plaintext(stream)));
    serve_opened(accepted(listener).boxed(), open, router, limits, stop).await;
}

async fn serve_incoming<S, I>(
    incoming: S,
    configs: TlsConfigs,
    router: Router,
    limits: PortLimits,
    stop: impl Future<Output = ()>,
) where
    S: Stream<Item = (IpAddr, I)> + Unpin,
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let open = |stream| {
        let config = configs.borrow().clone();
        async { Some(Opened::encrypted(handshake(stream, config?).await?)) }
    };
    serve_opened(incoming, open, router, limits, stop).await;
}

/// Serves connections that `open` makes ready for requests; a connection for which it returns none is closed.
async fn serve_opened<S, I, O, F>(
    incoming: S,
    open: impl Fn(I) -> F,
    router: Router,
    limits: PortLimits,
    stop: impl Future<Output = ()>,
) where
    S: Stream<Item = (IpAddr, I)> + Unpin,
    O: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Future<Output = Option<Opened<O>>> + Send + 'static,
{
    let stopped = watch::Sender::new(false);
    let stopping = async {
        stop.await;
        stopped.send_replace(true);
    };
    // By value, so that the listener is closed before the requests in flight end: connections that it accepted would be
    // reset.
    let incoming = incoming.take_until(Box::pin(stopping));
    let serve_one = |peer, stream, activity| {
        let opened = open(stream);
        let connection = Connection {
            peer: PeerAddress(peer),
            activity,
            router: router.clone(),
            stopped: stopped.subscribe(),
            requests_max: limits.requests,
        };
        async move {
            if let Some(opened) = opened.await {
                connection.serve(opened).await;
            }
        }
    };
    let limits = ConnectionLimits {
        total: limits.connections,
        of_peer: limits.connections_of_peer,
    };
    serve_connections(incoming, limits, serve_one).await;
}

async fn handshake<I>(stream: I, config: Arc<ServerConfig>) -> Option<TlsStream<I>>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let accepted = timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await;
    match accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(stream) => Some(stream),
        Err(error) => {
            // At level debug, because any client that reaches the port can repeat it.
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
    }
}

/// A connection that is ready for requests.
struct Opened<I> {
    stream: I,
    is_http2: bool,
    certificates: PeerCertificates,
}

// === impl Opened ===

impl<I> Opened<TlsStream<I>> {
    fn encrypted(stream: TlsStream<I>) -> Self {
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates().unwrap_or_default().into();
        Self {
            is_http2: session.alpn_protocol() == Some(b"h2"),
            certificates: PeerCertificates(certificates),
            stream,
        }
    }
}

impl<I> Opened<I> {
    fn plaintext(stream: I) -> Self {
        Self {
            stream,
            is_http2: true,
            certificates: PeerCertificates::default(),
        }
    }
}

/// The service of one connection's requests.
struct Connection {
    peer: PeerAddress,
    activity: Arc<Activity>,
    router: Router,
    stopped: watch::Receiver<bool>,
    requests_max: u32,
}

// === impl Connection ===

impl Connection {
    async fn serve<I>(self, opened: Opened<I>)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Self {
            peer,
            activity,
            router,
            mut stopped,
            requests_max,
        } = self;
        let Opened {
            stream,
            is_http2,
            certificates,
        } = opened;
        let builder = builder(is_http2, requests_max);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(certificates.clone());
            request.extensions_mut().insert(peer);
            activity.answer(router.clone(), request)
        });
        let served = builder.serve_connection(with_unread_timeout(stream), service);
        let mut served = std::pin::pin!(served);
        let stop = async { drop(stopped.wait_for(|stopped| *stopped).await) };
        let ended = tokio::select! {
            biased;
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

/// Serves the protocol that the handshake agreed on. The builder could also tell it from the first bytes of the client,
/// but it would wait for them without a deadline.
fn builder(is_http2: bool, requests_max: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_PERIOD)
        .max_concurrent_streams(requests_max)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_header_list_size(HEADER_BYTES_MAX);
    if is_http2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    }
}

#[cfg(test)]
mod tests {
    use super::super::serve::UNREAD_TIMEOUT;
    use std::{net::Ipv4Addr, sync::Mutex};

    use axum::{
        Extension,
        body::{Body, Bytes, to_bytes},
        routing::get,
    };
    use futures::channel::mpsc;
    use hyper::client::conn::http2;
    use rig::{Identity, Pki};
    use rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{PrivateKeyDer, ServerName, pem::PemObject as _},
        server::WebPkiClientVerifier,
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        sync::oneshot,
        task::JoinHandle,
    };
    use tokio_rustls::{TlsConnector, client};

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const LIMITS: PortLimits = PortLimits {
        connections: 8,
        connections_of_peer: 8,
        requests: 8,
    };
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    fn der(identity: &Identity) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()
    }

    fn roots(pki: &Pki) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let pem = pki.ca_pem().as_bytes();
        roots
            .add(CertificateDer::from_pem_slice(pem).unwrap())
            .unwrap();
        Arc::new(roots)
    }

    fn server(pki: &Pki, name: &str) -> Arc<ServerConfig> {
        let identity = pki.server(name).unwrap();
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots(pki), provider.clone());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.allow_unauthenticated().build().unwrap());
        let mut config = builder.with_single_cert(vec![der(&identity)], key).unwrap();
        // A client that names no protocol gets HTTP/1.1.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }

    /// A server whose connections come from [`Port::connect`].
    struct Port {
        pki: Pki,
        connections: mpsc::UnboundedSender<(IpAddr, DuplexStream)>,
        configs: watch::Sender<Option<Arc<ServerConfig>>>,
        stop: Option<oneshot::Sender<()>>,
        served: JoinHandle<()>,
    }

    impl Port {
        fn new(router: Router) -> Self {
            let (connections, incoming) = mpsc::unbounded();
            let (configs, newest) = watch::channel(None);
            let (stop, stopped) = oneshot::channel();
            let stopped = async { drop(stopped.await) };
            Self {
                pki: Pki::new().unwrap(),
                connections,
                configs,
                stop: Some(stop),
                served: tokio::spawn(serve_incoming(incoming, newest, router, LIMITS, stopped)),
            }
        }

        /// A new connection, before its handshake.
        fn open(&self) -> DuplexStream {
            let (near, far) = duplex(64 * 1024);
            self.connections.unbounded_send((PEER, far)).unwrap();
            near
        }

        async fn connect(
            &self,
            name: &'static str,
            identity: Option<&Identity>,
        ) -> io::Result<client::TlsStream<DuplexStream>> {
            self.connect_speaking(&[], name, identity).await
        }

        /// A connection of a client that speaks these protocols.
        async fn connect_speaking(
            &self,
            protocols: &[&[u8]],
            name: &'static str,
            identity: Option<&Identity>,
        ) -> io::Result<client::TlsStream<DuplexStream>> {
            let provider = Arc::new(ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots(&self.pki));
            let mut config = match identity {
                None => builder.with_no_client_auth(),
                Some(identity) => {
                    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                    let chain = vec![der(identity)];
                    builder.with_client_auth_cert(chain, key).unwrap()
                }
            };
            config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
            let name = ServerName::try_from(name).unwrap();
            let connector = TlsConnector::from(Arc::new(config));
            connector.connect(name, self.open()).await
        }
    }

    /// The text that the server sends until it closes the connection.
    async fn received<I: AsyncRead + Unpin>(stream: &mut I) -> String {
        let mut text = Vec::new();
        // A connection that is aborted may end with an error.
        let _ended = stream.read_to_end(&mut text).await.is_ok();
        String::from_utf8(text).unwrap()
    }

    async fn exchange(mut stream: client::TlsStream<DuplexStream>) -> String {
        stream.write_all(REQUEST).await.unwrap();
        received(&mut stream).await
    }

    fn names_peers() -> Router {
        let handler = |Extension(PeerAddress(peer)), Extension(PeerCertificates(shown))| async move {
            format!("{peer}, {} certificates", shown.len())
        };
        Router::new().route("/", get(handler))
    }

    #[tokio::test]
    async fn a_new_connection_gets_the_newest_certificate_and_an_open_one_goes_on() {
        let port = Port::new(names_peers());
        let refused = port.connect("first", None).await;
        assert!(refused.is_err(), "there is no certificate yet");
        port.configs.send_replace(Some(server(&port.pki, "first")));
        let open = port.connect("first", None).await.unwrap();
        port.configs.send_replace(Some(server(&port.pki, "second")));
        assert!(port.connect("first", None).await.is_err());
        let new = port.connect("second", None).await.unwrap();
        for stream in [open, new] {
            let answer = exchange(stream).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_handler_sees_the_address_and_the_certificates_of_the_client() {
        let port = Port::new(names_peers());
        port.configs.send_replace(Some(server(&port.pki, "name")));
        let someone = port.pki.client("someone", None).unwrap();
        for (identity, count) in [
            (None, "127.0.0.1, 0 certificates"),
            (Some(&someone), "127.0.0.1, 1 certificates"),
        ] {
            let stream = port.connect("name", identity).await.unwrap();
            let answer = exchange(stream).await;
            assert!(answer.ends_with(count), "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_of_an_answer_is_left() {
        let (sent, mut ended) = oneshot::channel::<()>();
        let sent = Arc::new(Mutex::new(Some(sent)));
        let large = move || {
            let sent = sent.lock().unwrap().take();
            let chunks = futures::stream::repeat(Bytes::from(vec![b'a'; 4096]));
            let chunks = chunks.map(move |chunk| {
                let _until_dropped = &sent;
                Ok::<_, io::Error>(chunk)
            });
            async { Body::from_stream(chunks) }
        };
        let port = Port::new(Router::new().route("/", get(large)));
        port.configs.send_replace(Some(server(&port.pki, "name")));
        let mut client = port.connect("name", None).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        client.read_exact(&mut [0; 4096]).await.unwrap();
        assert!(timeout(UNREAD_TIMEOUT / 2, &mut ended).await.is_err());
        let ended = timeout(UNREAD_TIMEOUT * 2, ended).await;
        assert!(
            ended.is_ok_and(|sent| sent.is_err()),
            "the answer is dropped"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_does_not_begin_is_ended() {
        let port = Port::new(names_peers());
        port.configs.send_replace(Some(server(&port.pki, "name")));
        let mut silent = port.open();
        let mut ended = std::pin::pin!(received(&mut silent));
        let second = Duration::from_secs(1);
        let early = timeout(HANDSHAKE_TIMEOUT.saturating_sub(second), &mut ended).await;
        assert!(early.is_err());
        assert_eq!(timeout(second * 2, ended).await.unwrap(), "");
    }

    /// A router that reports the arrival of its only request, and answers it when it is told to.
    fn waits() -> (Router, mpsc::UnboundedReceiver<()>, oneshot::Sender<()>) {
        let (answer, waits) = oneshot::channel::<()>();
        let waits = Arc::new(Mutex::new(Some(waits)));
        let (started, has_started) = mpsc::unbounded();
        let handler = move || {
            started.unbounded_send(()).unwrap();
            let waits = waits.lock().unwrap().take().unwrap();
            async move { waits.await.map_or("dropped", |()| "answered") }
        };
        let router = Router::new().route("/", get(handler));
        (router, has_started, answer)
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_requests_in_flight_are_answered_and_no_others() {
        let (router, mut has_started, answer) = waits();
        let mut port = Port::new(router);
        port.configs.send_replace(Some(server(&port.pki, "name")));
        let stream = port.connect("name", None).await.unwrap();
        let idle = port.connect("name", None).await.unwrap();
        let exchanged = tokio::spawn(exchange(stream));
        has_started.next().await.unwrap();
        port.stop.take().unwrap().send(()).unwrap();
        tokio::time::advance(GRACE / 2).await;
        assert_eq!(received(&mut { idle }).await, "");
        assert!(port.connections.is_closed(), "the port is open");
        answer.send(()).unwrap();
        let text = exchanged.await.unwrap();
        assert!(text.ends_with("answered"), "{text}");
        port.served.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_an_http2_connection_takes_no_more_requests_and_answers_those_it_has() {
        let (router, mut has_started, answer) = waits();
        let mut port = Port::new(router);
        port.configs.send_replace(Some(server(&port.pki, "name")));
        let stream = port.connect_speaking(&[b"h2"], "name", None).await.unwrap();
        let executor = TokioExecutor::new();
        let (mut sender, connection) =
            http2::handshake(executor, hyper_util::rt::TokioIo::new(stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let request = || Request::get("https://name/").body(Body::empty()).unwrap();
        let exchanged = tokio::spawn(sender.send_request(request()));
        has_started.next().await.unwrap();
        port.stop.take().unwrap().send(()).unwrap();
        tokio::time::advance(GRACE / 2).await;
        answer.send(()).unwrap();
        let response = exchanged.await.unwrap().unwrap();
        let body = to_bytes(Body::new(response.into_body()), 64).await.unwrap();
        assert_eq!(body, "answered");
        connection.await.unwrap().unwrap();
        assert!(sender.send_request(request()).await.is_err());
        port.served.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_does_not_keep_the_server_from_ending() {
        let handler = || std::future::pending::<&str>();
        let mut port = Port::new(Router::new().route("/", get(handler)));
        port.configs.send_replace(Some(server(&port.pki, "name")));
        let stream = port.connect("name", None).await.unwrap();
        let exchanged = tokio::spawn(exchange(stream));
        port.stop.take().unwrap().send(()).unwrap();
        timeout(GRACE * 2, port.served).await.unwrap().unwrap();
        assert!(!exchanged.await.unwrap().contains("200"));
    }
}
