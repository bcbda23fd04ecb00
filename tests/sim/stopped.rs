//! The scenario of a leader that is stopped while it has much to write, or is asked to end while its lease is being renewed.
//!
//! ```text
//! three times:  all loads change ─► stopped in the middle of a reading of its clocks, or between two polls,
//!                                   for longer than its lease lasts, or for some seconds in which users scale or replace
//!                                   what it is about to write; or asked to end while a renewal is late
//! ```
//!
//! Two replicas, no other faults. Between the decision and the last byte of a write there are many places to be stopped in;
//! the seed chooses one.

use std::time::Duration;

use serde_json::json;
use simkube::{
    faults::Plan,
    network::{Effect, Trouble},
};

use crate::{
    cluster::{self, Cluster, MAX},
    laws::needed,
    schedule::Dice,
    seeds::{self, Scenario},
};

const HOSTS: [&str; 2] = ["pod-0", "pod-1"];
const APPS: usize = 10;
/// Seconds in which loads change; the leader is stopped soon afterwards.
const CHANGES: [u64; 3] = [20, 48, 76];
/// Approximate number of readings of its clocks while the leader scales all apps.
const READINGS: u64 = 400;

/// Way in which the leader is stopped.
#[derive(Debug, Clone, Copy)]
enum Stop {
    Reading(cluster::Stop),
    /// Stopped for so short that it still leads, while users change all apps.
    WhileEdited(cluster::Stop),
    /// Asked to end, while a renewal takes this long.
    WhileRenewing(Duration),
    Terminate,
}

struct Stopped {
    cluster: Cluster,
    stops: Vec<(u64, Stop)>,
    leader: String,
    /// Users wait for the leader to be stopped.
    edits: bool,
    /// Number of these edits.
    edited: usize,
}

fn app(number: usize) -> String {
    format!("app-{number}")
}

impl Scenario for Stopped {
    type Disruption = Stop;
    type Record = ();

    const DISRUPTIONS: &'static [&'static str] = &[
        "in a reading",
        "after a reading",
        "while renewing",
        "while users edit",
    ];
    const COMPARED: u64 = 0;
    const SHARE: u64 = 22;
    const HEALED: u64 = 105;
    const ALIVE: u64 = Self::HEALED + 40;
    /// Never at rest, because counts change until the end.
    const SETTLED: u64 = Self::END;
    const END: u64 = 151;

    fn rate(_seed: u64) -> u64 {
        0
    }

    fn new(seed: u64, plan: Plan) -> Self {
        let mut cluster = Cluster::new(seed, plan);
        let mut dice = Dice::new(seed);
        for number in 0..APPS {
            cluster.autoscaler(&app(number), 2, "Direct", &json!({}));
            cluster.needs(&app(number), 2);
        }
        for host in HOSTS {
            cluster.start(host);
        }
        let mut stops = Vec::new();
        for change in CHANGES {
            let at = change + dice.below(8);
            let span = Duration::from_secs(16 + dice.below(6));
            let mut number = |bound| u32::try_from(dice.below(bound)).unwrap();
            let stop = cluster::Stop {
                readings: number(READINGS),
                is_inside: seed.is_multiple_of(4),
                span,
            };
            match seed % 4 {
                0 | 1 => stops.push((at, Stop::Reading(stop))),
                2 => {
                    let span = Duration::from_secs(2 + u64::from(number(2)));
                    stops.push((at, Stop::WhileEdited(cluster::Stop { span, ..stop })));
                }
                _ => {
                    let late = Duration::from_millis(u64::from(number(4_000)));
                    stops.extend([(at, Stop::WhileRenewing(late)), (at + 3, Stop::Terminate)]);
                }
            }
        }
        Self {
            cluster,
            stops,
            leader: String::new(),
            edits: false,
            edited: 0,
        }
    }

    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn disruptions_at(&self, second: u64) -> Vec<(usize, Stop)> {
        let all = self.stops.iter().enumerate();
        let now = all.filter(|(_, (at, _))| *at == second);
        now.map(|(number, (_, stop))| (number, *stop)).collect()
    }

    fn kind_of(stop: &Stop) -> Option<&'static str> {
        match stop {
            Stop::Reading(stop) if stop.is_inside => Some(Self::DISRUPTIONS[0]),
            Stop::Reading(_) => Some(Self::DISRUPTIONS[1]),
            Stop::WhileRenewing(_) => Some(Self::DISRUPTIONS[2]),
            Stop::WhileEdited(_) => Some(Self::DISRUPTIONS[3]),
            Stop::Terminate => None,
        }
    }

    fn happen(&mut self, stop: &Stop) {
        let cluster = &mut self.cluster;
        if !matches!(stop, Stop::Terminate) {
            self.leader = cluster.leader();
        }
        let leader = &*self.leader;
        match *stop {
            Stop::Reading(stop) => cluster.stop_reading(leader, stop),
            Stop::WhileEdited(stop) => {
                cluster.stop_reading(leader, stop);
                self.edits = true;
            }
            Stop::WhileRenewing(late) => cluster.network().begin(Trouble {
                client: leader.to_owned(),
                method: "PUT",
                parts: &["/leases/"],
                effect: Effect::Late(late),
            }),
            Stop::Terminate => cluster.terminate(leader),
        }
    }

    fn heal(&mut self) {
        self.cluster.heal();
    }

    fn second(&mut self, second: u64) -> Result<(), String> {
        if CHANGES.contains(&second) {
            for number in 0..APPS {
                let pods = 2 + (second + number as u64) % 5;
                self.cluster.needs(&app(number), pods);
            }
        }
        if self.edits && !self.cluster.will_stop(&self.leader) {
            self.edits = false;
            for number in 0..APPS {
                // Each at most once: the product does not fight a user who scales by hand again and again.
                if (number + self.edited).is_multiple_of(4) {
                    self.cluster.scale_by_hand(&app(number), 1);
                } else {
                    self.cluster.recreate(&app(number));
                }
            }
            self.edited += 1;
        }
        self.cluster.second()
    }

    fn check_alive(&self) -> Result<(), String> {
        let short = (0..APPS).map(app).find(|app| {
            let load = self.cluster.load.at(app, self.cluster.now());
            self.cluster.replicas(app) < needed(load).min(MAX)
        });
        short.map_or(Ok(()), |app| Err(format!("alive: {app} has too few")))
    }
}

#[test]
fn no_seed_breaks_a_law() {
    seeds::play::<Stopped>();
}
