//! The resources that a process takes from its machine: time, connections, randomness, memory, and threads that may
//! block.
//!
//! `main` makes one [`Machine`] and passes it on. Nothing else reads a clock, connects to an API server,
//! draws a random number or leaves the threads of tokio, so a simulation that gives its hosts a [`Machine::simulated`]
//! decides all of it: time is that of tokio, connections stay in memory, random numbers follow from a seed, and there is no
//! other thread. Equal seeds give equal runs.

use std::{
    fs,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::Router;
use futures::{FutureExt as _, future::BoxFuture};
use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
    time::timeout,
};
use tower::{BoxError, Service};

use crate::{clock::Clock, memory::Memory, opaque::Opaque};

/// Time without traffic on a connection after which the system probes the other end.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The machine of a process; clones refer to the same machine.
#[derive(Debug, Clone)]
pub struct Machine {
    clock: Clock,
    /// Absent without a limit.
    memory: Option<Memory>,
    /// Absent for the system.
    simulation: Option<Arc<Simulation>>,
}

/// A host of a simulation.
#[derive(Debug)]
struct Simulation {
    name: String,
    dial: Opaque<Box<dyn Dial>>,
    /// The state of the random numbers.
    random: Mutex<u64>,
}

/// A network that connects to servers by host and port.
pub trait Dial: Send + Sync + 'static {
    /// Opens a connection.
    ///
    /// # Errors
    /// The error that a socket would report.
    fn dial(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;

    /// Receives the router that would answer on the port of this host, which has none.
    fn serve(&self, _router: Router) {}
}

/// A connection: bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Opens the connections of an HTTP client.
#[derive(Debug, Clone)]
pub struct Connector {
    system: HttpConnector,
    simulation: Option<Arc<Simulation>>,
    limit: Option<Duration>,
}

// === impl Machine ===

impl Machine {
    /// The machine that this process runs on.
    pub fn system() -> Self {
        Self {
            clock: Clock::system(),
            memory: Memory::of_process(),
            simulation: None,
        }
    }

    /// The host of a simulation: its name and clock, the network around it, and the seed of its random numbers.
    pub fn simulated(name: &str, clock: Clock, network: impl Dial, seed: u64) -> Self {
        Self {
            clock,
            memory: None,
            simulation: Some(Arc::new(Simulation {
                name: name.to_owned(),
                dial: Opaque(Box::new(network)),
                random: Mutex::new(seed),
            })),
        }
    }

    /// The same machine with another clock, which a test sets against real servers.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// The same machine with other memory, whose limit a test sets.
    #[must_use]
    pub fn with_memory(self, memory: Option<Memory>) -> Self {
        Self { memory, ..self }
    }

    /// Memory of the machine, if it is limited.
    pub const fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    /// Clock of the machine.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Host name of the machine, which in a pod is the name of the pod.
    pub fn name(&self) -> String {
        match &self.simulation {
            None => fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default(),
            Some(simulation) => simulation.name.clone(),
        }
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        match &self.simulation {
            None => random_of_system(),
            Some(simulation) => simulation.random(),
        }
    }

    /// A random duration below `bound`, in whole milliseconds, so that clients that failed together do not retry together.
    pub fn jitter(&self, bound: Duration) -> Duration {
        let millis = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
        // No bound, no jitter.
        Duration::from_millis(self.random().checked_rem(millis).unwrap_or(0))
    }

    /// Runs work that would block the other tasks on a thread of its own; in a simulation as one more task, which takes
    /// no time.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.simulation {
            None => spawn_blocking(work),
            Some(_) => tokio::spawn(async move { work() }),
        }
    }

    /// Gives a simulation the router that would answer on a port.
    pub fn serve(&self, router: &Router) {
        if let Some(simulation) = &self.simulation {
            simulation.dial.0.serve(router.clone());
        }
    }

    /// Opens connections of plain bytes, each within `limit`.
    pub fn connector(&self, limit: Option<Duration>) -> Connector {
        let mut system = HttpConnector::new();
        // TLS is added around this connector, so the URIs that it gets are `https`.
        system.enforce_http(false);
        system.set_nodelay(true);
        system.set_keepalive(Some(KEEP_ALIVE));
        system.set_connect_timeout(limit);
        Connector {
            system,
            simulation: self.simulation.clone(),
            limit,
        }
    }

    /// Returns whether this machine is a host of a simulation.
    pub fn is_simulated(&self) -> bool {
        self.simulation.is_some()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one source of random numbers: a fresh `RandomState` is seeded by the operating system"
)]
fn random_of_system() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one way to a thread that may block"
)]
fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    tokio::task::spawn_blocking(work)
}

// === impl Simulation ===

impl Simulation {
    /// `SplitMix64`.
    fn random(&self) -> u64 {
        let mut state = self.random.lock();
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let once = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let twice = (once ^ (once >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        twice ^ (twice >> 31)
    }
}

// === impl Connector ===

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.system.poll_ready(context).map_err(BoxError::from)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Some(simulation) = &self.simulation else {
            let connecting = self.system.call(server);
            return async move {
                let stream: Box<dyn Stream> = Box::new(connecting.await?.into_inner());
                Ok(TokioIo::new(stream))
            }
            .boxed();
        };
        let (host, port) = (server.host().unwrap_or_default(), server.port_u16());
        let connecting = simulation.dial.0.dial(host, port.unwrap_or(80));
        let limit = self.limit.unwrap_or(Duration::MAX);
        async move { Ok(TokioIo::new(timeout(limit, connecting).await??)) }.boxed()
    }
}

impl Connection for Box<dyn Stream> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    /// A network without any server.
    struct Nobody;

    impl Dial for Nobody {
        fn dial(&self, _host: &str, _port: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
            async { Err(io::ErrorKind::ConnectionRefused.into()) }.boxed()
        }
    }

    fn host(seed: u64) -> Machine {
        let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
        Machine::simulated("pod-0", clock, Nobody, seed)
    }

    #[test]
    fn jitter_stays_below_its_bound() {
        for machine in [Machine::system(), host(1)] {
            assert_eq!(machine.jitter(Duration::ZERO), Duration::ZERO);
            for _again in 0..100 {
                assert!(machine.jitter(Duration::from_millis(7)) < Duration::from_millis(7));
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_random_numbers_and_others_do_not() {
        let drawn = |machine: Machine| [(); 20].map(|()| machine.random());
        assert_eq!(drawn(host(7)), drawn(host(7)));
        assert_ne!(drawn(host(7)), drawn(host(8)));
        assert_ne!(drawn(Machine::system()), drawn(Machine::system()));
        let shared = host(7);
        let (first, second) = (shared.random(), shared.clone().random());
        assert_eq!([first, second], drawn(host(7))[..2]);
    }

    #[tokio::test(start_paused = true)]
    async fn blocking_work_of_a_simulation_runs_on_its_own_thread_and_may_panic() {
        let own = std::thread::current().id();
        let thread = |machine: Machine| machine.run_blocking(|| std::thread::current().id());
        assert_eq!(thread(host(1)).await.unwrap(), own);
        assert_ne!(thread(Machine::system()).await.unwrap(), own);
        let panicked = host(1).run_blocking(|| panic!("no result"));
        assert!(panicked.await.unwrap_err().is_panic());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_of_a_simulation_are_opened_by_its_network() {
        let mut connector = host(1).connector(None);
        let refused = connector.call(Uri::from_static("http://hub")).await.err();
        let refused = refused.unwrap().downcast::<io::Error>().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
