//! The network between clients and servers: connections in memory, over which hyper serves HTTP/1.
//!
//! ```text
//! client ── Socket ══ duplex ══ carry ══ duplex ══ hyper ── fault? ── SimKube::answer
//!                               link: latency, blocked, refused
//!                               cable: stranded (half-open), reset
//! ```
//!
//! Everything runs on the runtime that the network is given. A request that has arrived there takes its effect, even if
//! its client or its connection ends.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt, io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, to_bytes};
use futures::future::pending;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf},
    runtime::Handle,
    sync::Notify,
    time::Instant,
};

use crate::{
    Backend, Now, SimKube,
    audit::Client,
    faults::{Fault, Plan},
    watch::{Disturbance, present},
};

/// Bytes that are on the way at once.
const BUFFER: usize = 64 << 10;
/// Time by which clients run ahead of the servers, because one runs after the other.
const AHEAD: Duration = Duration::from_millis(160);
/// Time after which a client that is refused with 429 may ask again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time after which a client may have given up its request: clients have deadlines of four seconds.
const HEARD: SignedDuration = SignedDuration::from_secs(4);
/// Larger requests are refused.
const REQUEST_MAX: usize = 8 << 20;

/// The state of the way between a client and a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Data takes this long.
    Open(Duration),
    /// Data waits until it is open again, and so do new connections.
    Blocked,
    /// New connections are refused: nothing listens there. Those that exist go on.
    Refused,
}

/// A network. Clones are the same network.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

/// Requests that all have the same fault, for as long as that lasts.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// Client of the requests; empty for all.
    pub client: String,
    /// Method of the requests; empty for all.
    pub method: &'static str,
    /// Texts that the path with the query must contain, all of them.
    pub parts: &'static [&'static str],
    /// Effect of the trouble on the requests.
    pub effect: Effect,
}

/// Effect of [`Trouble`] on requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Never answered, without effect.
    Hang,
    /// Refused with this code.
    Refused(u16),
    /// A watch begins, and sends nothing.
    Silent,
    /// Effective with a delay.
    Late(Duration),
}

/// Server of the requests to a host.
#[derive(Clone)]
enum Server {
    Api(SimKube),
    Other(Now, Backend),
}

struct Inner {
    runtime: Handle,
    servers: Mutex<BTreeMap<String, Server>>,
    /// Links by client and host, as `client host`.
    links: Mutex<BTreeMap<String, Arc<Link>>>,
    plan: Mutex<Plan>,
    troubles: Mutex<Vec<Trouble>>,
    /// Requests that were in trouble, with the time.
    troubled: Mutex<Vec<(Timestamp, String)>>,
    /// Times of the last refusal and of the end of its wait, by client, path and credentials of a read.
    asked_to_wait: Mutex<BTreeMap<Asker, (Timestamp, Timestamp)>>,
    /// Requests that were sent again too soon, with the time.
    impatient: Mutex<Vec<(Timestamp, String)>>,
    /// Number of times that data was carried.
    carried: AtomicU64,
}

struct Link {
    name: String,
    state: Mutex<LinkState>,
    changed: Notify,
}

struct LinkState {
    way: Way,
    requests: u64,
    cables: Vec<Arc<Cable>>,
}

/// One connection.
struct Cable {
    fate: Mutex<Fate>,
    /// Time of the opening, by the clock of the servers and by that of the client.
    opened: (Timestamp, Instant),
    /// Time of the opening by the runtime of the servers.
    arrived: Instant,
    /// Time from the opening to the last data of the client.
    sent: Mutex<Duration>,
    changed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Live,
    /// Open, but nothing arrives any more, and neither side notices.
    Stranded,
    Reset,
}

/// The client's end of a connection.
pub struct Socket {
    stream: DuplexStream,
    cable: Arc<Cable>,
}

// === impl Network ===

impl Network {
    /// A network with these faults, whose servers run on this runtime.
    pub fn new(runtime: Handle, plan: Plan) -> Self {
        Self(Arc::new(Inner {
            runtime,
            servers: Mutex::default(),
            links: Mutex::default(),
            plan: Mutex::new(plan),
            troubles: Mutex::default(),
            troubled: Mutex::default(),
            asked_to_wait: Mutex::default(),
            impatient: Mutex::default(),
            carried: AtomicU64::new(0),
        }))
    }

    /// Lets a server be reached as `host`.
    pub fn add(&self, host: &str, server: SimKube) {
        lock(&self.0.servers).insert(host.to_owned(), Server::Api(server));
    }

    /// Lets another backend be reached as `host`.
    pub fn add_other(&self, host: &str, now: Now, backend: Backend) {
        let server = Server::Other(now, backend);
        lock(&self.0.servers).insert(host.to_owned(), server);
    }

    /// Changes the way between a client and a host; at first it is open without latency.
    pub fn set(&self, client: &str, host: &str, way: Way) {
        let link = self.link(client, host);
        lock(&link.state).way = way;
        link.changed.notify_waiters();
    }

    /// The way between a client and a host.
    pub fn way(&self, client: &str, host: &str) -> Way {
        lock(&self.link(client, host).state).way
    }

    /// Makes the connections between a client and a host half-open: they stay, and nothing arrives over them any more.
    pub fn strand(&self, client: &str, host: &str) {
        self.link(client, host).end_cables(Fate::Stranded);
    }

    /// Resets the connections between a client and a host.
    pub fn reset(&self, client: &str, host: &str) {
        self.link(client, host).end_cables(Fate::Reset);
    }

    /// Begins a trouble of requests.
    pub fn begin(&self, trouble: Trouble) {
        lock(&self.0.troubles).push(trouble);
    }

    /// Ends the trouble of these requests.
    pub fn end(&self, parts: &[&str]) {
        lock(&self.0.troubles).retain(|trouble| trouble.parts != parts);
    }

    /// Ends all trouble.
    pub fn end_all(&self) {
        lock(&self.0.troubles).clear();
    }

    /// Returns the requests that had trouble until now, with the time and as `client path`.
    pub fn troubled(&self) -> Vec<(Timestamp, String)> {
        lock(&self.0.troubled).clone()
    }

    /// Returns the refused reads that were sent again sooner than their client was asked to, with the time, the client
    /// and the request.
    pub fn impatient(&self) -> Vec<(Timestamp, String)> {
        lock(&self.0.impatient).clone()
    }

    /// Returns the number of times that data was carried until now, which does not change while nothing is on its way.
    pub fn carried(&self) -> u64 {
        self.0.carried.load(Ordering::Relaxed)
    }

    /// The plan of faults, with what has happened.
    pub fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.0.plan)
    }

    /// Connects a client to a host.
    ///
    /// # Errors
    /// Nothing listens there, or the way is closed to new connections.
    pub async fn dial(&self, client: &str, host: &str) -> io::Result<Socket> {
        let server = lock(&self.0.servers).get(host).cloned();
        let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
        let link = self.link(client, host);
        let latency = loop {
            let changed = link.changed.notified();
            let way = lock(&link.state).way;
            match way {
                Way::Open(latency) => break latency,
                Way::Refused => return Err(io::ErrorKind::ConnectionRefused.into()),
                Way::Blocked => changed.await,
            }
        };
        // Data travels there and back.
        tokio::time::sleep(latency * 2).await;
        Ok(self.connect(&link, server))
    }

    fn connect(&self, link: &Arc<Link>, server: Server) -> Socket {
        let arrived = {
            let _context = self.0.runtime.enter();
            present()
        };
        let cable = Arc::new(Cable {
            fate: Mutex::new(Fate::Live),
            opened: (server.now(), present()),
            arrived,
            sent: Mutex::default(),
            changed: Notify::new(),
        });
        let mut state = lock(&link.state);
        state.cables.retain(|cable| Arc::strong_count(cable) > 1);
        state.cables.push(Arc::clone(&cable));
        drop(state);
        let (near, client) = tokio::io::duplex(BUFFER);
        let (far, inner) = tokio::io::duplex(BUFFER);
        let runtime = &self.0.runtime;
        runtime.spawn(carry(
            self.clone(),
            Arc::clone(link),
            Arc::clone(&cable),
            near,
            far,
        ));
        let (network, link, of_requests) = (self.clone(), Arc::clone(link), Arc::clone(&cable));
        let service = service_fn(move |request| {
            let arrived = Arrived {
                network: network.clone(),
                link: Arc::clone(&link),
                cable: Arc::clone(&of_requests),
                server: server.clone(),
            };
            // A task of its own does not end with a lost connection.
            let answer = network.0.runtime.spawn(arrived.answer(request));
            async move { Ok::<_, Infallible>(answer.await.unwrap_or_default()) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(inner), service);
        runtime.spawn(async move { drop(connection.await) });
        Socket {
            stream: client,
            cable,
        }
    }

    fn link(&self, client: &str, host: &str) -> Arc<Link> {
        let name = format!("{client} {host}");
        let mut links = lock(&self.0.links);
        let link = links.entry(name.clone()).or_insert_with(|| {
            let way = Way::Open(Duration::ZERO);
            let state = Mutex::new(LinkState {
                way,
                requests: 0,
                cables: Vec::new(),
            });
            Arc::new(Link {
                name,
                state,
                changed: Notify::new(),
            })
        });
        Arc::clone(link)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

// === impl Server ===

impl Server {
    fn now(&self) -> Timestamp {
        match self {
            Self::Api(server) => server.now(),
            Self::Other(now, _) => now(),
        }
    }

    async fn answer(&self, request: Request<Vec<u8>>) -> Response<Body> {
        match self {
            Self::Api(server) => server.answer(request).await,
            Self::Other(_, backend) => backend(request).await,
        }
    }

    /// Forgets the history of an API server, which alone has watches.
    fn compact(&self) {
        if let Self::Api(server) = self {
            server.compact();
        }
    }
}

/// Request of a client that is asked to wait.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asker {
    request: String,
    credentials: Option<HeaderValue>,
}

/// A request that a server has received.
struct Arrived {
    network: Network,
    link: Arc<Link>,
    cable: Arc<Cable>,
    server: Server,
}

impl Arrived {
    async fn answer(self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let Ok(body) = to_bytes(Body::new(body), REQUEST_MAX).await else {
            return refusal(400);
        };
        let mut request = Request::from_parts(head, body.to_vec());
        request.extensions_mut().insert(Client {
            host: self.link.client().to_owned(),
            sent: Some(self.cable.sent()),
        });
        self.note_patience(&request);
        match self.trouble(&request) {
            None => {}
            Some(Effect::Hang) => return pending().await,
            Some(Effect::Refused(code)) => return self.refuse(code, &request),
            Some(Effect::Silent) => return Response::new(silence()),
            Some(Effect::Late(time)) => tokio::time::sleep(time).await,
        }
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let number = self.link.next_request();
        let fault = self
            .network
            .plan()
            .fault((self.link.name.clone(), number), is_watch);
        match fault {
            None => {}
            Some(Fault::Refused(code)) => return self.refuse(code, &request),
            Some(Fault::Hang) => return pending().await,
            Some(Fault::Late(time)) => tokio::time::sleep(time).await,
            Some(Fault::Compaction) => self.server.compact(),
            Some(Fault::WatchLag(lag)) => {
                let disturbance = Disturbance {
                    lag,
                    ends_after: None,
                };
                request.extensions_mut().insert(disturbance);
            }
            Some(Fault::WatchDropped(after)) => {
                let disturbance = Disturbance {
                    lag: Duration::ZERO,
                    ends_after: Some(after),
                };
                request.extensions_mut().insert(disturbance);
            }
            Some(Fault::LostAnswer) => {
                drop(self.server.answer(request).await);
                return pending().await;
            }
            Some(Fault::Cut) => {
                drop(self.server.answer(request).await);
                self.cable.end(Fate::Reset);
                return pending().await;
            }
        }
        self.server.answer(request).await
    }

    fn refuse(&self, code: u16, request: &Request<Vec<u8>>) -> Response<Body> {
        let response = refusal(code);
        // A later write at the same path may be another one. On a blocked way it is unknown when the client hears the
        // refusal.
        let is_read = request.method() == Method::GET;
        if is_read
            && response.headers().contains_key(header::RETRY_AFTER)
            && let Some(latency) = self.link.latency()
        {
            let known = self.server.now() + latency;
            // A client that has given the request up does not hear it.
            if known.duration_since(self.cable.sent()) > HEARD {
                return response;
            }
            let waits = (known, known + RETRY_AFTER);
            lock(&self.network.0.asked_to_wait).insert(self.asker(request), waits);
        }
        response
    }

    /// Notes a request that was refused and is sent again too soon.
    fn note_patience(&self, request: &Request<Vec<u8>>) {
        let mut waiting = lock(&self.network.0.asked_to_wait);
        if waiting.is_empty() || request.method() != Method::GET {
            return;
        }
        let (what, sent) = (self.what(request), self.cable.sent());
        let waits = waiting.remove(&self.asker(request));
        drop(waiting);
        let Some((since, until)) = waits else {
            return;
        };
        // Clocks of hosts are ahead of that of the server, and requests from before do not know of the refusal.
        if sent > since + AHEAD && sent < until - AHEAD {
            lock(&self.network.0.impatient).push((sent, what));
        }
    }

    fn what(&self, request: &Request<Vec<u8>>) -> String {
        format!("{} {}", self.link.name, request.uri())
    }

    /// The key of a refusal. A client that tries new credentials beside those in use has two connections, and a server
    /// asks only the user of the refused request to wait.
    fn asker(&self, request: &Request<Vec<u8>>) -> Asker {
        let credentials = request.headers().get(header::AUTHORIZATION).cloned();
        Asker {
            request: self.what(request),
            credentials,
        }
    }

    /// The trouble of a request, if there is any.
    fn trouble(&self, request: &Request<Vec<u8>>) -> Option<Effect> {
        let (client, path) = (self.link.client(), request.uri().to_string());
        let is_in = |trouble: &&Trouble| {
            (trouble.client.is_empty() || trouble.client == client)
                && (trouble.method.is_empty() || request.method() == trouble.method)
                && trouble.parts.iter().all(|part| path.contains(part))
        };
        let effect = lock(&self.network.0.troubles).iter().find(is_in)?.effect;
        let request = (self.server.now(), format!("{client} {path}"));
        lock(&self.network.0.troubled).push(request);
        Some(effect)
    }
}

/// A body that never ends.
fn silence() -> Body {
    Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>())
}

/// The answer of a server that is overloaded or fails.
fn refusal(code: u16) -> Response<Body> {
    // Servers may write any text into a refusal.
    let text = format!("refused with {code}\n\u{1b}[2J\u{202e}");
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
    if code == 429 {
        let seconds = HeaderValue::from(RETRY_AFTER.as_secs());
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

/// Carries data in both directions until an end is closed or the connection is reset.
async fn carry(
    network: Network,
    link: Arc<Link>,
    cable: Arc<Cable>,
    near: DuplexStream,
    far: DuplexStream,
) {
    let (near_in, near_out) = tokio::io::split(near);
    let (far_in, far_out) = tokio::io::split(far);
    let both = async {
        let carried = &network.0.carried;
        tokio::join!(
            carry_to(carried, (&link, &cable, true), near_in, far_out),
            carry_to(carried, (&link, &cable, false), far_in, near_out),
        );
    };
    tokio::select! {
        biased;
        () = cable.until(Fate::Reset) => {}
        () = both => {}
    }
}

async fn carry_to(
    carried: &AtomicU64,
    (link, cable, is_of_client): (&Link, &Cable, bool),
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or_default();
        carried.fetch_add(1, Ordering::Relaxed);
        if is_of_client {
            cable.wait_for_client().await;
        }
        link.pass().await;
        if cable.fate() == Fate::Stranded {
            return pending().await;
        }
        let written = if read == 0 {
            to.shutdown().await
        } else {
            to.write_all(&buffer[..read]).await
        };
        if read == 0 || written.is_err() {
            return;
        }
    }
}

// === impl Link ===

impl Link {
    /// Takes the time that data needs on the way.
    async fn pass(&self) {
        let mut has_waited = false;
        loop {
            let changed = self.changed.notified();
            let way = lock(&self.state).way;
            match way {
                Way::Blocked => changed.await,
                Way::Open(latency) if !has_waited => {
                    tokio::time::sleep(latency).await;
                    has_waited = true;
                }
                Way::Open(_) | Way::Refused => return,
            }
        }
    }

    /// The present latency; absent while the way is blocked.
    fn latency(&self) -> Option<Duration> {
        match lock(&self.state).way {
            Way::Open(latency) => Some(latency),
            Way::Refused => Some(Duration::ZERO),
            Way::Blocked => None,
        }
    }

    /// The client.
    fn client(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    fn next_request(&self) -> u64 {
        let mut state = lock(&self.state);
        state.requests += 1;
        state.requests
    }

    fn end_cables(&self, fate: Fate) {
        let cables = lock(&self.state).cables.clone();
        for cable in cables {
            cable.end(fate);
        }
    }
}

// === impl Cable ===

impl Cable {
    fn fate(&self) -> Fate {
        *lock(&self.fate)
    }

    fn note_sent(&self) {
        let (_, opened) = self.opened;
        *lock(&self.sent) = present().duration_since(opened);
    }

    /// Returns the time of the last data of the client.
    fn sent(&self) -> Timestamp {
        self.opened.0 + *lock(&self.sent)
    }

    /// Waits until the time of sending, because a client may be ahead of the servers.
    async fn wait_for_client(&self) {
        let ahead = lock(&self.sent).saturating_sub(present().duration_since(self.arrived));
        if ahead > AHEAD {
            tokio::time::sleep(ahead).await;
        }
    }

    fn end(&self, fate: Fate) {
        *lock(&self.fate) = fate;
        self.changed.notify_waiters();
    }

    async fn until(&self, fate: Fate) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.fate() == fate {
                return;
            }
            changed.await;
        }
    }
}

// === impl Socket ===

impl Socket {
    /// Turns the regular end of a reset connection into an error.
    fn check(&self, poll: Poll<io::Result<()>>, is_end: bool) -> Poll<io::Result<()>> {
        match poll {
            Poll::Ready(outcome)
                if self.cable.fate() == Fate::Reset && (is_end || outcome.is_err()) =>
            {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            poll => poll,
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.cable.fate()).finish()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        let is_end = buffer.filled().len() == before;
        self.check(poll, is_end)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.cable.fate() == Fate::Reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        self.cable.note_sent();
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use jiff::Timestamp;
    use tokio::time::timeout;

    use super::*;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    fn network(plan: Plan) -> (Network, SimKube) {
        let server = SimKube::new(1, Arc::new(|| Timestamp::UNIX_EPOCH));
        let network = Network::new(Handle::current(), plan);
        network.add("hub", server.clone());
        (network, server)
    }

    /// Sends one request over a connection of its own; returns the whole answer.
    async fn send(network: &Network, line: &str, body: &str) -> io::Result<String> {
        let mut socket = network.dial("a", "hub").await?;
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        socket.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    async fn create(network: &Network, name: &str) -> io::Result<String> {
        let body = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}");
        send(network, &format!("POST {MAPS}"), &body).await
    }

    fn names(server: &SimKube) -> Vec<String> {
        let maps = server.objects("configmaps").into_iter();
        maps.filter_map(|map| Some(map["metadata"]["name"].as_str()?.to_owned()))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_takes_the_latency_of_its_link() {
        let (network, server) = network(Plan::default());
        network.set("a", "hub", Way::Open(Duration::from_millis(10)));
        let started = present();
        let answer = create(&network, "one").await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 201")
                && answer.contains("date: Thu, 01 Jan 1970 00:00:00 GMT"),
            "{answer}"
        );
        assert!(
            (40..80).contains(&started.elapsed().as_millis()),
            "{:?}",
            started.elapsed()
        );
        assert_eq!(names(&server), ["one"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_blocked_link_delivers_when_it_opens() {
        let (network, server) = network(Plan::default());
        network.set("a", "hub", Way::Blocked);
        let mut answer = std::pin::pin!(create(&network, "one"));
        assert!(timeout(Duration::from_hours(1), &mut answer).await.is_err());
        assert!(names(&server).is_empty());
        network.set("a", "hub", Way::Open(Duration::ZERO));
        assert!(answer.await.unwrap().contains("201"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranded_connection_is_silent_and_another_one_works() {
        let (network, _server) = network(Plan::default());
        let watch = format!("GET {MAPS}?watch=true&timeoutSeconds=9");
        let mut stranded = std::pin::pin!(send(&network, &watch, ""));
        assert!(
            timeout(Duration::from_secs(1), &mut stranded)
                .await
                .is_err()
        );
        network.strand("a", "hub");
        assert!(create(&network, "one").await.unwrap().contains("201"));
        assert!(timeout(Duration::from_hours(1), stranded).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_is_an_error_and_not_an_end() {
        let (network, _server) = network(Plan::default());
        let watch = format!("GET {MAPS}?watch=true&timeoutSeconds=9");
        let mut watch = std::pin::pin!(send(&network, &watch, ""));
        assert!(timeout(Duration::from_secs(1), &mut watch).await.is_err());
        network.reset("a", "hub");
        assert_eq!(
            watch.await.unwrap_err().kind(),
            io::ErrorKind::ConnectionReset
        );
        network.set("a", "hub", Way::Refused);
        assert_eq!(
            create(&network, "one").await.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        let nowhere = network.dial("a", "other").now_or_never().unwrap();
        assert_eq!(
            nowhere.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_outlives_its_client() {
        let (network, server) = network(Plan::default());
        let mut socket = network.dial("a", "hub").await.unwrap();
        let body = "{\"metadata\":{\"name\":\"one\"}}";
        let request = format!(
            "POST {MAPS} HTTP/1.1\r\nHost: hub\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        drop(socket);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(names(&server), ["one"]);
    }

    /// Each fault has its effect on the object, and on the answer of the client.
    #[tokio::test(start_paused = true)]
    async fn faults_take_effect_or_do_not() {
        let (network, server) = network(Plan::new(3, 1_000));
        for n in 0..60 {
            let name = format!("n{n:02}");
            let answer = timeout(Duration::from_mins(1), create(&network, &name)).await;
            let (_, fault) = network.plan().happened().last().unwrap().clone();
            let exists = names(&server).contains(&name);
            match (fault, answer) {
                (Fault::Refused(code), Ok(Ok(answer))) => {
                    assert!(answer.contains(&code.to_string()) && !exists);
                    assert_eq!(answer.contains("retry-after"), code == 429);
                }
                (Fault::Hang, Err(_)) => assert!(!exists),
                (Fault::LostAnswer, Err(_)) => assert!(exists),
                (Fault::Cut, Ok(Err(error))) => {
                    assert!(exists && error.kind() == io::ErrorKind::ConnectionReset);
                }
                (Fault::Late(_), Ok(Ok(answer))) => assert!(exists && answer.contains("201")),
                (fault, answer) => panic!("{fault:?}: {answer:?}"),
            }
        }
        let counts = network.plan().counts();
        let of_watches = ["watch lag", "watch dropped", "compaction"];
        assert!(
            counts
                .iter()
                .all(|(kind, count)| *count > 0 || of_watches.contains(kind)),
            "{counts:?}"
        );
        network.plan().end();
        assert!(create(&network, "last").await.unwrap().contains("201"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_compaction_expires_a_watch_and_a_lag_delays_it() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let (network, server) = network(Plan::default());
            create(&network, "one").await.unwrap();
            *network.plan() = Plan::new(seed, 1_000);
            let started = present();
            let watch = format!("GET {MAPS}?watch=true&timeoutSeconds=30&resourceVersion=104");
            let answer = timeout(Duration::from_mins(1), send(&network, &watch, "")).await;
            let (_, fault) = network.plan().happened()[0].clone();
            let passed = started.elapsed();
            match (fault, answer) {
                (Fault::Compaction, Ok(Ok(answer))) => {
                    assert!(answer.contains("too old resource version: 104"));
                }
                (Fault::WatchLag(_), Ok(Ok(answer))) => {
                    assert!(answer.contains("ADDED") && passed.as_secs() >= 30);
                }
                (Fault::WatchDropped(after), Ok(Ok(_))) => {
                    assert!(passed >= after && passed.as_secs() < 30);
                }
                (Fault::Refused(_), Ok(_)) | (Fault::Hang, Err(_)) => {}
                (fault, answer) => panic!("{fault:?}: {answer:?}"),
            }
            seen.insert(fault.name());
            drop(server);
        }
        assert_eq!(seen.len(), 5, "{seen:?}");
    }
}
