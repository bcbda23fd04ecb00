//! Hosts in one virtual time: each runs a process, and can be killed, paused, and started again.
//!
//! ```text
//!            10 ms            10 ms            160 ms: nothing is on its way
//! pod-0    ─────────┐      ┌─────────┐      ┌──────────────
//! pod-1      paused └────┐ │         └────┐ │                 one after the other, in the order of their names
//! servers                └─┘              └─┘
//! ```
//!
//! A host has a runtime of its own, so a host that does not run has no time: overdue timers fire at once when it goes
//! on, as for a process that was stopped by a signal.

use std::{collections::BTreeMap, fmt, future::Future, sync::Arc, task::Poll, time::Duration};

use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::{Instant, advance, sleep_until},
};

use crate::{Now, faults::Plan, network::Network, watch::present};

/// Time that hosts run before others hear of it, while data is on its way.
const SHORTEST: Duration = Duration::from_millis(10);
/// Time that hosts run before others hear of it, while no data is on its way.
const LONGEST: Duration = Duration::from_millis(160);
/// Number of tasks that a runtime polls in a turn.
const TURN: u32 = 7;

/// The hosts, the network between them and the servers, and the time of all.
pub struct DataCenter<T> {
    start: Timestamp,
    servers: Machine,
    network: Network,
    hosts: BTreeMap<String, Host<T>>,
    turn: Duration,
}

/// Stops the calling process for some time: in the middle of its work, as a signal can. It goes on at once with a later
/// time, and the other hosts catch up before it runs again; its sent data arrives then.
pub fn stop_here(span: Duration) {
    let _yielded = advance(span).now_or_never();
}

/// A host; dropping it ends its process as a kill does.
struct Host<T> {
    machine: Machine,
    process: JoinHandle<T>,
    run: Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Running,
    /// Stopped after this many more turns of its runtime, in which no time passes.
    Stopping(u32),
    Paused,
}

/// A runtime that has reached some time.
struct Machine {
    runtime: Runtime,
    /// The instant of its clock at the start of the simulation.
    origin: Instant,
    reached: Duration,
}

// === impl DataCenter ===

impl<T: Send + 'static> DataCenter<T> {
    /// A data center without hosts, at a time, with a network that has these faults.
    pub fn new(start: Timestamp, plan: Plan) -> Self {
        let servers = Machine::new(Duration::ZERO);
        let network = Network::new(servers.runtime.handle().clone(), plan);
        Self {
            start,
            servers,
            network,
            hosts: BTreeMap::new(),
            turn: SHORTEST,
        }
    }

    /// The network.
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// The time, as a function for everything that runs on the servers.
    pub fn clock(&self) -> Now {
        let (start, origin) = (self.start, self.servers.origin);
        let servers = self.servers.runtime.handle().clone();
        Arc::new(move || {
            let _context = servers.enter();
            start + present().duration_since(origin)
        })
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.start + self.servers.reached
    }

    /// Starts a host with a process, which is made where its clock runs, and returns what is made with it. A host of the
    /// same name is killed.
    pub fn start<P: Future<Output = T> + Send + 'static, W>(
        &mut self,
        host: &str,
        process: impl FnOnce(Timestamp) -> (P, W),
    ) -> W {
        let machine = Machine::new(self.servers.reached);
        let (process, with) = {
            let _context = machine.runtime.enter();
            let (process, with) = process(self.now());
            (machine.runtime.spawn(process), with)
        };
        self.hosts.insert(
            host.to_owned(),
            Host {
                machine,
                process,
                run: Run::Running,
            },
        );
        with
    }

    /// Runs code where the clock of a host runs.
    pub fn within(&self, host: &str, act: impl FnOnce()) {
        if let Some(host) = self.hosts.get(host) {
            let _context = host.machine.runtime.enter();
            act();
        }
    }

    /// Kills a host: its process is gone and its connections are closed.
    pub fn kill(&mut self, host: &str) {
        self.hosts.remove(host);
    }

    /// Pauses a host until it is resumed.
    pub fn pause(&mut self, host: &str) {
        self.stop_after(host, 0);
    }

    /// Pauses a host after this many more turns of its runtime, in the middle of its work. A host that is paused
    /// already does nothing more.
    pub fn stop_after(&mut self, host: &str, turns: u32) {
        let running = self.hosts.get_mut(host);
        if let Some(host) = running.filter(|host| host.run != Run::Paused) {
            host.run = if turns == 0 {
                Run::Paused
            } else {
                Run::Stopping(turns)
            };
        }
    }

    /// Lets a paused host go on.
    pub fn resume(&mut self, host: &str) {
        let now = self.servers.reached;
        if let Some(host) = self
            .hosts
            .get_mut(host)
            .filter(|host| host.run != Run::Running)
        {
            host.machine.jump_to(now);
            host.run = Run::Running;
        }
    }

    /// Returns the result of a host's process, if it has ended; the host is then down. A panic is the process's own.
    pub fn ended(&mut self, host: &str) -> Option<T> {
        let ended = (&mut self.hosts.get_mut(host)?.process).now_or_never()?;
        self.hosts.remove(host);
        match ended {
            Ok(result) => Some(result),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }

    /// Lets time pass.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.servers.reached + span;
        while self.servers.reached < end {
            let (carried, until) = (
                self.network.carried(),
                (self.servers.reached + self.turn).min(end),
            );
            self.hosts
                .values_mut()
                .for_each(|host| host.run_until(until));
            self.servers.run_until(until);
            let is_quiet = self.network.carried() == carried;
            self.turn = if is_quiet {
                (self.turn * 2).min(LONGEST)
            } else {
                SHORTEST
            };
        }
    }
}

impl<T> fmt::Debug for DataCenter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataCenter")
            .field("reached", &self.servers.reached)
            .finish_non_exhaustive()
    }
}

// === impl Host ===

impl<T> Host<T> {
    fn run_until(&mut self, time: Duration) {
        match self.run {
            Run::Running => self.machine.run_until(time),
            Run::Stopping(turns) => {
                // A host whose clock is ahead of all is stopped already.
                if self.machine.reached < time {
                    self.machine.run_turns(turns);
                }
                self.run = Run::Paused;
            }
            Run::Paused => {}
        }
    }
}

// === impl Machine ===

impl Machine {
    #[expect(
        clippy::expect_used,
        reason = "a simulation without a runtime cannot go on"
    )]
    fn new(reached: Duration) -> Self {
        // No I/O, because everything is in memory.
        let runtime = Builder::new_current_thread()
            .event_interval(TURN)
            .enable_time()
            .start_paused(true)
            .build();
        let runtime = runtime.expect("a runtime without threads and I/O needs nothing");
        let now = {
            let _context = runtime.enter();
            present()
        };
        // The origin before the host began, so that the clocks of all have the same one.
        let origin = now.checked_sub(reached).unwrap_or(now);
        Self {
            runtime,
            origin,
            reached,
        }
    }

    fn run_until(&mut self, time: Duration) {
        if time <= self.reached {
            return;
        }
        let deadline = self.origin + time;
        self.reached = self.runtime.block_on(async {
            sleep_until(deadline).await;
            present().duration_since(self.origin)
        });
    }

    /// Runs a part of the work that can be done now.
    fn run_turns(&self, mut turns: u32) {
        self.runtime.block_on(std::future::poll_fn(|context| {
            if turns == 0 {
                return Poll::Ready(());
            }
            turns -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }));
    }

    /// Advances the time in one step, so that overdue timers fire at once.
    fn jump_to(&mut self, time: Duration) {
        let deadline = self.origin + time;
        self.runtime.block_on(async {
            advance(deadline.saturating_duration_since(present())).await;
        });
        self.reached = self.reached.max(time);
    }
}
