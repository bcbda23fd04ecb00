//! Laws of the election, over random schedules of several candidates: clocks of different rates, pauses, answers that
//! get lost, writes that arrive late, restarts and releases.
//!
//! - Never are two gates open at one instant, while the rates of the clocks differ by less than the ratio of lease
//!   duration to renew deadline.
//! - While the API server answers, some candidate leads within three lease durations.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use serde_json::Value;

use super::*;

const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};
/// Rates of clocks, in thousandths of the real rate. Their ratio is below 15/10.
const RATES: std::ops::Range<u64> = 1_000..1_500;

/// One process.
struct Process {
    elector: Elector,
    /// Rate of the clock, in thousandths of the real rate.
    rate: u64,
    /// Reading of the clock at the start, in seconds.
    offset: u64,
    awaits: Awaited,
    /// Beginning of the last attempt.
    began: Option<Monotonic>,
}

/// Event that a process waits for.
enum Awaited {
    Nothing,
    /// The request with this number.
    Request(usize),
    /// An answer that is on its way.
    Answer(Answer),
}

/// The API server, the network and the real time.
struct World {
    /// Real time in milliseconds.
    now: u64,
    version: u64,
    lease: Option<StoredLease>,
    /// Requests that have not arrived, including those of ended processes.
    sent: Vec<(usize, Request)>,
    requests: usize,
    identities: usize,
    processes: Vec<Process>,
}

impl Process {
    fn reading(&self, now: u64) -> ClockReading {
        let shown = Duration::from_micros(now * self.rate) + Duration::from_secs(self.offset);
        // Wall clocks are off by hours.
        let wall = Timestamp::from_second(i64::try_from(self.offset).unwrap() * 100).unwrap();
        ClockReading::new(wall, Monotonic::after_origin(shown))
    }

    fn gate_is_open(&self, now: u64) -> bool {
        let now = self.reading(now).monotonic();
        self.elector
            .token()
            .is_some_and(|token| now < token.valid_until)
    }
}

impl World {
    fn new(clocks: &[(u64, u64)]) -> Self {
        let mut world = Self {
            now: 0,
            version: 0,
            lease: None,
            sent: Vec::new(),
            requests: 0,
            identities: 0,
            processes: Vec::new(),
        };
        for (rate, offset) in clocks {
            let elector = world.candidate();
            world.processes.push(Process {
                elector,
                rate: *rate,
                offset: *offset,
                awaits: Awaited::Nothing,
                began: None,
            });
        }
        world
    }

    fn candidate(&mut self) -> Elector {
        self.identities += 1;
        Elector::new(format!("process-{}", self.identities), TIMING)
    }

    /// Returns the number of processes that may write now.
    fn open(&self) -> usize {
        let open = |process: &&Process| process.gate_is_open(self.now);
        self.processes.iter().filter(open).count()
    }

    fn send(&mut self, of: usize, request: Request) {
        self.requests += 1;
        self.sent.push((self.requests, request));
        self.processes[of].awaits = Awaited::Request(self.requests);
    }

    /// Lets a process do its next step: begin an attempt, or go on with it.
    fn step(&mut self, of: usize) {
        let process = &mut self.processes[of];
        let now = process.reading(self.now);
        let next = match std::mem::replace(&mut process.awaits, Awaited::Nothing) {
            Awaited::Nothing => {
                let elector = &process.elector;
                let next = process.began.map(|began| match elector.token() {
                    Some(_) => began + TIMING.retry_period,
                    None => elector.next_attempt(began),
                });
                if next.is_some_and(|next| now.monotonic() < next) {
                    return;
                }
                process.began = Some(now.monotonic());
                Some(process.elector.start(now))
            }
            Awaited::Request(number) => {
                process.awaits = Awaited::Request(number);
                return;
            }
            Awaited::Answer(answer) => process.elector.answer(answer, now),
        };
        if let Some(request) = next {
            self.send(of, request);
        }
    }

    /// Lets a request arrive at the API server, and its answer at the candidate, if that still waits for it.
    fn arrive(&mut self, position: usize) {
        let (number, request) = self.sent.remove(position);
        let answer = self.serve(request);
        for process in &mut self.processes {
            if matches!(process.awaits, Awaited::Request(awaited) if awaited == number) {
                process.awaits = Awaited::Answer(answer);
                return;
            }
        }
    }

    fn serve(&mut self, request: Request) -> Answer {
        let record = match (request, &self.lease) {
            (Request::Read, Some(lease)) => return Answer::Lease(lease.clone()),
            (Request::Read | Request::Replace(..), None) => return Answer::Absent,
            (Request::Create(record), None) => record,
            (Request::Replace(seen, record), Some(lease)) if seen.version == lease.version => {
                if record == lease.record {
                    // A write that changes nothing does not change the version.
                    return Answer::Lease(lease.clone());
                }
                record
            }
            (Request::Create(_) | Request::Replace(..), Some(_)) => return Answer::Conflict,
        };
        self.version += 1;
        let lease = StoredLease {
            record,
            version: self.version.to_string(),
            object: Value::Null,
        };
        self.lease = Some(lease.clone());
        Answer::Lease(lease)
    }

    /// Lets a process give up waiting for an answer; its request may still arrive.
    fn time_out(&mut self, of: usize) {
        let process = &mut self.processes[of];
        if !matches!(process.awaits, Awaited::Nothing) {
            process.awaits = Awaited::Answer(Answer::Failed);
        }
    }

    /// Kills a process, and starts another one on its machine.
    fn restart(&mut self, of: usize) {
        self.processes[of].elector = self.candidate();
        self.processes[of].awaits = Awaited::Nothing;
        self.processes[of].began = None;
    }

    /// Ends a process in order: its gate is closed before it releases the lease.
    fn release(&mut self, of: usize) {
        let process = &mut self.processes[of];
        let wall = process.reading(self.now).wall();
        let released = self.lease.clone().and_then(|lease| {
            let record = process.elector.released(&lease, wall)?;
            Some(Request::Replace(lease, record))
        });
        self.restart(of);
        if let Some(request) = released {
            self.send(of, request);
            self.processes[of].awaits = Awaited::Nothing;
        }
    }

    /// Lets one random event happen.
    fn happen(&mut self, (what, which): (u8, u16)) {
        let of = usize::from(which) % self.processes.len();
        match what % 32 {
            0..12 => self.step(of),
            12..22 if !self.sent.is_empty() => {
                // Mostly the newest, so that elections get on.
                let age = usize::from(which / 8 % 7).saturating_sub(4);
                self.arrive(self.sent.len().saturating_sub(age + 1));
            }
            22..27 => self.now += u64::from(which % 1_500),
            27 => self.now += u64::from(which % 20_000),
            28..30 => self.time_out(of),
            30 if which % 4 == 0 => self.restart(of),
            31 if which % 4 == 0 => self.release(of),
            _ => {}
        }
    }
}

fn clocks() -> impl Strategy<Value = Vec<(u64, u64)>> {
    vec((RATES, 0_u64..100_000), 2..4)
}

fn events() -> impl Strategy<Value = Vec<(u8, u16)>> {
    vec(any::<(u8, u16)>(), 0..600)
}

proptest! {
    #[test]
    fn two_gates_are_never_open_at_one_instant(clocks in clocks(), events in events()) {
        let mut world = World::new(&clocks);
        for event in events {
            world.happen(event);
            prop_assert!(world.open() <= 1, "at {} ms", world.now);
        }
    }

    #[test]
    fn some_candidate_leads_soon_after_the_api_server_answers(
        clocks in clocks(),
        events in events(),
    ) {
        let mut world = World::new(&clocks);
        for event in events {
            world.happen(event);
        }
        world.sent.clear();
        let healthy = world.now;
        for process in 0..world.processes.len() {
            world.time_out(process);
        }
        let limit = u64::try_from(TIMING.lease_duration.as_millis()).unwrap() * 3;
        let mut led = false;
        while world.now < healthy + limit {
            for process in 0..world.processes.len() {
                world.step(process);
                while !world.sent.is_empty() {
                    world.arrive(0);
                    world.step(process);
                }
            }
            led |= world.open() == 1;
            prop_assert!(world.open() <= 1);
            world.now += 500;
        }
        prop_assert!(led);
        prop_assert_eq!(world.open(), 1);
    }
}

/// Checks that the schedules are rich enough for the laws: most of them have more than one leader, one after the other.
#[test]
fn random_schedules_change_the_leader() {
    let mut runner = TestRunner::deterministic();
    let mut changed = 0;
    for _case in 0..100 {
        let drawn = (clocks(), vec(any::<(u8, u16)>(), 600)).new_tree(&mut runner);
        let (clocks, events) = drawn.unwrap().current();
        let mut world = World::new(&clocks);
        let mut epochs = BTreeSet::new();
        for event in events {
            world.happen(event);
            let open = world
                .processes
                .iter()
                .filter(|one| one.gate_is_open(world.now));
            epochs.extend(open.filter_map(|one| Some(one.elector.token()?.epoch)));
        }
        changed += usize::from(epochs.len() > 1);
    }
    assert!(changed > 50, "{changed}");
}
