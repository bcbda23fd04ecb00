//! Three simulated clusters: pods that take time to start, nodes with limited room, an HPA in each that keeps within
//! its bounds, and users who go to the nearest cluster with room for them.
//!
//! The bounds are those of `foretide_federate::decide`, called every fifteen seconds as by a controller. Everything follows from
//! the step alone: no randomness, no clock.

use std::collections::VecDeque;

use foretide_domain::{ReplicaBounds, Replicas};
use foretide_federate::{
    AssignmentKind, FailurePolicy, FleetDecision, Health, Ledger, Member, Pods, Policy, Profile,
    Total,
};
use jiff::{SignedDuration, Timestamp};

/// The length of one step.
const STEP: SignedDuration = SignedDuration::from_secs(15);
pub const STEPS_PER_MINUTE: u32 = 4;
/// The length of the course, in steps: an hour and a half.
const STEPS: u32 = 90 * STEPS_PER_MINUTE;
/// Number of steps after which the course starts over; from its end until then it stands still.
const PERIOD: u32 = 12 * 60 * STEPS_PER_MINUTE;
/// Steps that a pod takes to start.
const START_UP: u32 = 3;
/// Steps for which the highest recommendation delays a scale-down: the default of an HPA.
const HELD: usize = 20;
/// Ratio by which demand may deviate from the target of the ready pods without scaling.
const TOLERANCE: f64 = 0.1;
/// The most that a pod can serve, as a multiple of its target.
const STRETCH: f64 = 1.2;
/// MIN and MAX of the fleet.
const BOUNDS: (u32, u32) = (3, 24);

/// The scripted part of a cluster.
#[derive(Debug)]
struct ClusterScript {
    name: &'static str,
    /// Pods for which the nodes have room.
    room: u32,
    /// Further pods for which they seem to have room, and the minute until which they do.
    phantom_room: (u32, u32),
    /// Demand of the users nearby, in replicas: straight lines between these minutes.
    demand: &'static [(f64, f64)],
    /// The minutes in which the cluster cannot be reached.
    outage: std::ops::Range<u32>,
}

/// Frankfurt gets busy and full, Oslo has room to lend, Lisbon is cut off for a while. Ordered by name, as the members
/// of a decision are.
const CLUSTERS: [ClusterScript; 3] = [
    ClusterScript {
        name: "frankfurt",
        room: 10,
        phantom_room: (2, 25),
        demand: &[
            (0.0, 5.0),
            (6.0, 5.5),
            (22.0, 13.0),
            (62.0, 12.0),
            (74.0, 7.0),
            (90.0, 5.0),
        ],
        outage: 0..0,
    },
    ClusterScript {
        name: "lisbon",
        room: 8,
        phantom_room: (0, 0),
        demand: &[(0.0, 3.0), (40.0, 4.6), (90.0, 4.0)],
        outage: 45..62,
    },
    ClusterScript {
        name: "oslo",
        room: 14,
        phantom_room: (0, 0),
        demand: &[(0.0, 4.0), (30.0, 4.5), (90.0, 3.5)],
        outage: 0..0,
    },
];

/// The clusters and their current state.
#[derive(Debug)]
pub struct FleetSimulation {
    step: u32,
    /// Time of the first step.
    begin: Timestamp,
    policy: Policy,
    /// State of the rules.
    pub ledger: Ledger,
    pub clusters: Vec<Cluster>,
}

/// One cluster.
#[derive(Debug)]
pub struct Cluster {
    script: &'static ClusterScript,
    replicas: u32,
    pub ready: u32,
    /// Pods that start, with the steps that they still need.
    starting: VecDeque<(u32, u32)>,
    /// Bounds of the cluster's autoscaler.
    bounds: Option<ReplicaBounds>,
    wants: u32,
    wanted: VecDeque<u32>,
    /// Demand of the cluster's users, in replicas.
    demand: f64,
    waiting_since: Option<Timestamp>,
    /// The last observation of the hub.
    seen: Option<Member>,
}

// === impl FleetSimulation ===

impl FleetSimulation {
    /// Returns a simulation with four pods in each cluster and no bounds, at this time and this many minutes into its
    /// course, which repeats every twelve hours.
    pub fn beginning(at: Timestamp, minute: u32) -> Self {
        let step = minute * STEPS_PER_MINUTE;
        let passed = STEP * i32::try_from(step).unwrap_or(i32::MAX);
        Self {
            step,
            begin: at.saturating_sub(passed).unwrap_or(at),
            policy: policy(),
            ledger: Ledger::default(),
            clusters: CLUSTERS
                .iter()
                .map(|script| Cluster {
                    script,
                    replicas: 4,
                    ready: 4,
                    starting: VecDeque::new(),
                    bounds: None,
                    wants: 4,
                    wanted: VecDeque::new(),
                    demand: 0.0,
                    waiting_since: None,
                    seen: None,
                })
                .collect(),
        }
    }

    fn now(&self) -> Timestamp {
        let passed = STEP * i32::try_from(self.step).unwrap_or(i32::MAX);
        self.begin.saturating_add(passed).unwrap_or(self.begin)
    }

    fn minute(&self) -> u32 {
        self.course() / STEPS_PER_MINUTE
    }

    /// The step within the course.
    fn course(&self) -> u32 {
        match self.step {
            0 => 0,
            step => ((step - 1) % PERIOD + 1).min(STEPS),
        }
    }

    /// The replicas of all clusters, as far as the hub knows them.
    pub fn replicas(&self) -> u32 {
        let pods = self
            .clusters
            .iter()
            .filter_map(|cluster| cluster.seen.as_ref())
            .filter_map(|member| member.pods);
        pods.map(|pods| pods.replicas.get()).sum()
    }

    /// The demand of all clusters in replicas, while the hub can measure it.
    pub fn total_demand(&self) -> Option<f64> {
        let seen = self.clusters.iter().map(|cluster| cluster.seen.as_ref());
        seen.map(|seen| {
            let ready = seen.filter(|member| member.health == Health::Ready);
            ready?.demand
        })
        .sum()
    }

    /// The last observation of a cluster.
    pub fn seen(&self, name: &str) -> Option<&Member> {
        let cluster = self.clusters.iter().find(|cluster| cluster.name() == name);
        cluster?.seen.as_ref()
    }

    /// Simulates one step: users come, pods start, autoscalers scale, the hub decides.
    pub fn advance(&mut self) -> FleetDecision {
        self.step += 1;
        let (now, minute) = (self.now(), self.minute());
        self.route();
        for cluster in &mut self.clusters {
            cluster.run(now);
        }
        let members: Vec<Member> = self
            .clusters
            .iter_mut()
            .map(|cluster| cluster.observed(minute, now))
            .collect();
        let all_ready = members.iter().all(|member| member.health == Health::Ready);
        let demand = members.iter().filter_map(|member| member.demand).sum();
        // A cluster that cannot be reached contributes the demand of its last observation.
        let total = Total {
            demand: all_ready.then_some(demand),
            ..Total::default()
        };
        let (decision, ledger) =
            foretide_federate::decide(&self.policy, &total, &members, &self.ledger, now);
        self.ledger = ledger;
        for (cluster, decided) in self.clusters.iter_mut().zip(&decision.members) {
            if decided.action.writes() && !cluster.is_unreachable(minute) {
                cluster.bounds = Some(ReplicaBounds::new(decided.min, decided.max));
                cluster.replicas = decided.replicas.map_or(cluster.replicas, Replicas::get);
            }
        }
        decision
    }

    /// Sends users to the nearest cluster; users that it cannot serve go to the other clusters, in proportion to their
    /// room.
    fn route(&mut self) {
        let exact_minute = f64::from(self.course()) / f64::from(STEPS_PER_MINUTE);
        let minute = self.minute();
        let mut overflow = 0.0;
        for cluster in &mut self.clusters {
            let asked = along(cluster.script.demand, exact_minute);
            let takes = cluster.carries(minute);
            cluster.demand = asked.min(takes);
            overflow += asked - cluster.demand;
        }
        let room = |cluster: &Cluster| (cluster.carries(minute) - cluster.demand).max(0.0);
        let rooms: Vec<f64> = self.clusters.iter().map(room).collect();
        let all: f64 = rooms.iter().sum();
        let spilled = overflow.min(all);
        for (cluster, room) in self.clusters.iter_mut().zip(rooms) {
            if all > 0.0 {
                cluster.demand += spilled * room / all;
            }
        }
    }
}

// === impl Cluster ===

impl Cluster {
    pub fn name(&self) -> &'static str {
        self.script.name
    }

    fn is_unreachable(&self, minute: u32) -> bool {
        self.script.outage.contains(&minute)
    }

    /// Pods for which no node has room.
    fn pending(&self) -> u32 {
        self.replicas.saturating_sub(self.placed())
    }

    fn placed(&self) -> u32 {
        self.ready + self.starting.iter().map(|(count, _)| count).sum::<u32>()
    }

    fn carries(&self, minute: u32) -> f64 {
        if self.is_unreachable(minute) {
            0.0
        } else {
            f64::from(self.ready) * STRETCH
        }
    }

    fn run(&mut self, now: Timestamp) {
        self.start();
        self.scale();
        let room = self.script.room.saturating_sub(self.placed());
        let new = self.replicas.saturating_sub(self.placed()).min(room);
        if new > 0 {
            self.starting.push_back((new, START_UP));
        }
        let waits = self.pending() > 0;
        self.waiting_since = waits.then(|| self.waiting_since.unwrap_or(now));
    }

    /// Lets pods become ready, and removes surplus pods.
    fn start(&mut self) {
        for (_, left) in &mut self.starting {
            *left = left.saturating_sub(1);
        }
        while let Some((count, _)) = self.starting.pop_front_if(|(_, left)| *left == 0) {
            self.ready += count;
        }
        // A ReplicaSet removes pods that are not ready first, the youngest of them before others.
        let mut excess = self.placed().saturating_sub(self.replicas);
        while let Some((count, _)) = self.starting.back_mut().filter(|_| excess > 0) {
            let ended = excess.min(*count);
            *count -= ended;
            excess -= ended;
            if *count == 0 {
                self.starting.pop_back();
            }
        }
        self.ready = self.ready.saturating_sub(excess);
    }

    /// A simplified HPA of the cluster.
    fn scale(&mut self) {
        let Some(bounds) = self.bounds else {
            return;
        };
        let carries = f64::from(self.ready.max(1));
        let within = (self.demand / carries - 1.0).abs() <= TOLERANCE;
        let wants = if within {
            self.ready
        } else {
            Replicas::from_f64_ceil(self.demand).get()
        };
        self.wanted.push_back(wants);
        if self.wanted.len() > HELD {
            self.wanted.pop_front();
        }
        let highest = self.wanted.iter().copied().max().unwrap_or(wants);
        let stable = if wants < self.replicas {
            highest.min(self.replicas)
        } else {
            wants
        };
        // The default policies of an HPA: four pods more, or twice as many, every 15 s.
        let stable = stable.min((self.replicas + 4).max(self.replicas * 2));
        self.wants = bounds.clamp(Replicas::new(stable)).get();
        self.replicas = self.wants;
    }

    /// Observation of the hub; while the cluster is unreachable, the last one.
    fn observed(&mut self, minute: u32, now: Timestamp) -> Member {
        if self.is_unreachable(minute)
            && let Some(last) = &mut self.seen
        {
            if last.health == Health::Ready {
                last.health = Health::Unknown { since: now };
            }
            return last.clone();
        }
        let (more, until) = self.script.phantom_room;
        let seems = if minute < until { more } else { 0 };
        let member = Member {
            profile: Profile {
                name: self.script.name.to_owned(),
                ..Profile::default()
            },
            pods: Some(Pods {
                replicas: Replicas::new(self.replicas),
                ready: Replicas::new(self.ready),
                unschedulable: Replicas::new(self.pending()),
                unschedulable_since: self.waiting_since,
            }),
            hpa: self.bounds,
            desired: self.bounds.map(|_| Replicas::new(self.wants)),
            demand: Some(self.demand),
            capacity: Some(Replicas::new(self.script.room + seems)),
            observed: Some(now),
            ..Member::default()
        };
        self.seen = Some(member.clone());
        member
    }
}

fn policy() -> Policy {
    let (min, max) = BOUNDS;
    let bounds = ReplicaBounds::new(Replicas::new(min), Replicas::new(max));
    Policy {
        failure: FailurePolicy::Reassign,
        toleration: SignedDuration::from_secs(180),
        period: STEP,
        tolerance: TOLERANCE,
        ..Policy::new(AssignmentKind::DynamicWeighted, bounds)
    }
}

/// The height at `x` of straight lines through points, in their order; level before the first and after the last.
fn along(points: &[(f64, f64)], x: f64) -> f64 {
    let mut before: Option<(f64, f64)> = None;
    for (at, value) in points {
        if x <= *at {
            return before.map_or(*value, |(from, low)| {
                low + (value - low) * (x - from) / (at - from)
            });
        }
        before = Some((*at, *value));
    }
    before.map_or(0.0, |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_whose_shares_move_keeps_within_its_bounds() {
        let mut fleet = FleetSimulation::beginning(Timestamp::UNIX_EPOCH, 0);
        for _ in 0..STEPS {
            let decision = fleet.advance();
            let given: u32 = decision.members.iter().map(|member| member.max.get()).sum();
            assert!(
                given + decision.unassigned.get() <= BOUNDS.1 + 8,
                "{decision:?}"
            );
        }
    }

    #[test]
    fn lines_go_through_their_points() {
        let points = [(1.0, 2.0), (3.0, 6.0)];
        let heights = [0.0, 1.0, 2.0, 3.0, 9.0].map(|x| along(&points, x));
        let want = [2.0, 2.0, 4.0, 6.0, 6.0];
        assert!(
            heights
                .iter()
                .zip(want)
                .all(|(one, other)| (one - other).abs() < 1e-9)
        );
    }
}
