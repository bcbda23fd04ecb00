//! A simulation of the whole control loop: members with autoscalers, nodes that fill up, pods that take time to become
//! ready or become not ready, load that is shared or local, clusters that run pods of the same name and take no part,
//! and a hub that decides, is down, or cannot reach a member.

use std::collections::{BTreeSet, VecDeque};

use jiff::Timestamp;

use crate::{
    Action, ClassifiedFleet, FleetDecision, Health, Ledger, Member, Participation, Pods, Policy,
    Profile, Total, decide,
};
use foretide_domain::ReplicaBounds;
use foretide_domain::workload::Mode;

use super::fixtures::{PERIOD, at, ceil, n};
use super::reference::{Behavior, Reading, ReferenceAutoscaler};

/// The period of the members' autoscalers; the hub's is twice as long.
pub const PASS: i64 = 15;
/// Seconds from binding to readiness.
const STARTUP: i64 = 30;

/// The hub's estimate of a cluster's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    True,
    Unknown,
    /// Too high by this many.
    TooHigh(u32),
    TooLow(u32),
}

/// A cluster that takes no part in the fleet but runs pods of the same workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonparticipant {
    /// Whether another autoscaler scales it; otherwise no preference of the policy names it.
    pub foreign: bool,
    /// Whether its pods have metrics.
    pub measured: bool,
    /// Whether its pods serve part of the shared load.
    pub shares_load: bool,
}

/// One cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub name: String,
    /// Whether it is configured on the hub.
    pub listed: bool,
    /// Whether the hub can reach it; if not, it continues by itself.
    pub reached: bool,
    pub lost_since: Timestamp,
    /// How many pods its nodes can hold.
    pub capacity: u32,
    pub estimate: Estimate,
    /// Local load; the others serve it while nothing is ready here.
    pub load: f64,
    pub hpa: Option<(u32, u32)>,
    pub hold: bool,
    pub replicas: u32,
    /// Pods with a node, and when they become ready; the oldest first.
    pub pods: VecDeque<(i64, u32)>,
    /// How many of them became not ready; they end before the others.
    pub unready: u32,
    /// Set if it takes no part.
    pub nonparticipant: Option<Nonparticipant>,
    pub pending_since: Option<Timestamp>,
    pub desired: u32,
    /// The counts that the metrics needed, and when.
    pub log: VecDeque<(i64, u32)>,
    /// The scale-downs of its autoscaler, and when.
    pub downs: VecDeque<(i64, u32)>,
    /// The hub's last observation.
    pub seen: Option<Member>,
    /// What it reports instead of its state, if anything.
    pub false_report: Option<FalseReport>,
}

/// A false report of a member.
#[derive(Clone, Copy, Debug)]
pub struct FalseReport {
    pub pods: Pods,
    pub desired: Option<u32>,
    pub capacity: Option<u32>,
}

impl Cluster {
    pub fn new(name: String, capacity: u32, replicas: u32) -> Self {
        Self {
            name,
            listed: true,
            reached: true,
            lost_since: at(0),
            capacity,
            estimate: Estimate::True,
            load: 0.0,
            hpa: None,
            hold: false,
            replicas,
            pods: VecDeque::new(),
            unready: 0,
            nonparticipant: None,
            pending_since: None,
            desired: replicas,
            log: VecDeque::new(),
            downs: VecDeque::new(),
            seen: None,
            false_report: None,
        }
    }

    pub fn placed(&self) -> u32 {
        self.pods.iter().map(|(_, count)| count).sum()
    }

    pub fn ready(&self, now: i64) -> u32 {
        let started = self.pods.iter().filter(|(when, _)| *when <= now);
        let started: u32 = started.map(|(_, count)| count).sum();
        started.saturating_sub(self.unready)
    }

    /// Whether its pods serve part of the shared load.
    fn shares_load(&self) -> bool {
        self.nonparticipant
            .is_none_or(|nonparticipant| nonparticipant.shares_load)
    }

    /// Runs nodes and the workload's controller: pods start while there is room, the youngest end first.
    fn run(&mut self, now: i64) {
        let goal = self.replicas.min(self.capacity);
        let mut placed = self.placed();
        if placed < goal {
            self.pods.push_back((now + STARTUP, goal - placed));
        }
        while placed > goal {
            let (when, count) = self.pods.pop_back().expect("pods");
            let gone = count.min(placed - goal);
            if count > gone {
                self.pods.push_back((when, count - gone));
            }
            placed -= gone;
            self.unready = self.unready.saturating_sub(gone);
        }
        let pending = self.placed() < self.replicas;
        let since = self.pending_since.unwrap_or(at(now));
        self.pending_since = pending.then_some(since);
    }

    /// One pass of the member's autoscaler.
    fn autoscale(&mut self, demand: f64, behavior: Behavior, tolerance: f64, now: i64) {
        let Some((min, max)) = self.hpa else { return };
        if self.replicas == 0 {
            return;
        }
        if self.replicas < min || self.replicas > max {
            self.scale(self.replicas.clamp(min, max), now);
            return;
        }
        let ready = f64::from(self.ready(now));
        let off = (demand - ready).abs() > tolerance * ready;
        let recommended = if off && ready > 0.0 {
            ceil(demand)
        } else {
            self.replicas
        };
        self.log.push_back((now, recommended));
        while self
            .log
            .front()
            .is_some_and(|(when, _)| now - when > behavior.window)
        {
            self.log.pop_front();
        }
        let highest = self.log.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let stabilized = recommended.max(highest.min(self.replicas.max(recommended)));
        let most = (2 * self.replicas).max(4);
        let least = behavior.least(self.replicas, &self.downs, now);
        let mut desired = stabilized.min(most).max(least).clamp(min, max);
        if self.hold {
            desired = desired.max(self.replicas);
        }
        self.scale(desired, now);
    }

    fn scale(&mut self, to: u32, now: i64) {
        if to < self.replicas {
            self.downs.push_back((now, self.replicas - to));
        }
        (self.desired, self.replicas) = (to, to);
    }

    fn is_measured(&self) -> bool {
        self.nonparticipant
            .is_none_or(|nonparticipant| nonparticipant.measured)
    }

    /// The hub's observation.
    fn observe(&self, demand: f64, measured: bool, now: i64) -> Member {
        let placed = self.placed();
        let capacity = match self.estimate {
            Estimate::True => Some(self.capacity),
            Estimate::Unknown => None,
            Estimate::TooHigh(by) => Some(self.capacity + by),
            Estimate::TooLow(by) => Some(self.capacity.saturating_sub(by).max(placed)),
        };
        Member {
            profile: Profile {
                name: self.name.clone(),
                ..Profile::default()
            },
            pods: Some(Pods {
                replicas: n(self.replicas),
                ready: n(self.ready(now)),
                unschedulable: n(self.replicas - placed.min(self.replicas)),
                unschedulable_since: self.pending_since,
            }),
            hpa: self
                .hpa
                .map(|(min, max)| ReplicaBounds::new(n(min), n(max))),
            desired: self.hpa.map(|_| n(self.desired)),
            demand: (measured && self.is_measured()).then_some(demand),
            capacity: capacity.map(n),
            observed: Some(at(now)),
            foreign_hpa: self
                .nonparticipant
                .filter(|b| b.foreign)
                .map(|_| "theirs".to_owned()),
            ..Member::default()
        }
    }
}

/// A fleet, its load and its hub.
pub struct Simulation {
    pub policy: Policy,
    pub clusters: Vec<Cluster>,
    /// The load that is spread over every ready pod.
    pub load: f64,
    pub floor: Option<u32>,
    /// Whether demand can be measured.
    pub measured: bool,
    /// The user's scale-down behavior.
    pub behavior: Behavior,
    /// The reference autoscaler.
    pub reference: ReferenceAutoscaler,
    /// Whether the hub is down.
    pub hub_is_down: bool,
    pub ledger: Ledger,
    pub now: i64,
}

/// One decision of the hub and its inputs.
pub struct SyncRecord {
    pub members: Vec<Member>,
    pub total: Total,
    pub before: Ledger,
    pub decision: FleetDecision,
}

impl Simulation {
    /// Demand by cluster, in replicas.
    pub fn demands(&self) -> Vec<f64> {
        let ready = |cluster: &Cluster| f64::from(cluster.ready(self.now));
        let sharing = self.clusters.iter().filter(|cluster| cluster.shares_load());
        let all: f64 = sharing.map(ready).sum();
        let homeless = self.members().filter(|cluster| ready(cluster) == 0.0);
        let shared: f64 = self.load + homeless.map(|cluster| cluster.load).sum::<f64>();
        let demand = |cluster: &Cluster| {
            if ready(cluster) == 0.0 {
                0.0
            } else if cluster.shares_load() {
                cluster.load + shared * ready(cluster) / all
            } else {
                cluster.load
            }
        };
        self.clusters.iter().map(demand).collect()
    }

    /// The clusters that take part.
    pub fn members(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters
            .iter()
            .filter(|cluster| cluster.nonparticipant.is_none())
    }

    /// The load of the fleet in replicas, without what nonparticipants serve of it.
    pub fn fleet_load(&self) -> f64 {
        let demands = self.clusters.iter().zip(self.demands());
        let sharing = demands
            .filter(|(cluster, _)| cluster.nonparticipant.is_some() && cluster.shares_load());
        let theirs: f64 = sharing
            .map(|(cluster, demand)| (demand - cluster.load).max(0.0))
            .sum();
        self.total_load() - theirs
    }

    /// The load of the fleet in replicas, if nonparticipants served nothing of it.
    pub fn total_load(&self) -> f64 {
        self.load + self.members().map(|cluster| cluster.load).sum::<f64>()
    }

    /// The hub's observations, in the order of the listed clusters.
    fn observe(&mut self) -> (Vec<Member>, Total) {
        let demands = self.demands();
        let (now, measured) = (self.now, self.measured);
        for (cluster, demand) in self.clusters.iter_mut().zip(&demands) {
            if cluster.reached {
                let mut seen = cluster.observe(*demand, measured, now);
                if let Some(report) = cluster.false_report {
                    seen.pods = Some(report.pods);
                    seen.desired = report.desired.map(n);
                    seen.capacity = report.capacity.map(n);
                }
                cluster.seen = Some(seen);
            } else if let Some(seen) = cluster.seen.as_mut() {
                seen.health = Health::Unknown {
                    since: cluster.lost_since,
                };
            }
        }
        let listed = self.clusters.iter().filter(|cluster| cluster.listed);
        let members: Vec<_> = listed.filter_map(|cluster| cluster.seen.clone()).collect();
        let total = self.total(&members);
        (members, total)
    }

    /// The observations as those of one workload.
    fn total(&mut self, members: &[Member]) -> Total {
        let fleet = ClassifiedFleet::new(&self.policy, members, &self.ledger, at(self.now));
        let participation = fleet.participation();
        let counted = participation.into_iter();
        let counted = counted.filter(|(_, part)| *part == Participation::Counted);
        let counted: BTreeSet<String> = counted.map(|(name, _)| name).collect();
        let parts = || {
            let parts = members.iter();
            parts.filter(|member| counted.contains(&member.profile.name))
        };
        let is_seen = |member: &Member| member.health == Health::Ready;
        let demand = parts().map(|member| member.demand.filter(|_| is_seen(member)));
        let demand = demand.sum::<Option<f64>>().filter(|_| self.measured);
        let count =
            |of: fn(&Pods) -> u32| -> u32 { parts().filter_map(|m| m.pods.as_ref()).map(of).sum() };
        let reading = Reading {
            counted: counted.clone(),
            current: count(|pods| pods.replicas.get()),
            ready: count(|pods| pods.ready.get()),
            demand,
            floor: self.floor,
        };
        let desired = self
            .reference
            .pass(&self.policy, self.behavior, reading, self.now);
        Total {
            demand,
            floor: self.floor.map(n),
            desired: Some(n(desired)),
        }
    }

    /// One step of half a minute: two passes of the autoscalers, then the hub.
    pub fn step(&mut self) -> Option<SyncRecord> {
        for _ in 0..PERIOD / PASS {
            self.now += PASS;
            let demands = self.demands();
            for (cluster, demand) in self.clusters.iter_mut().zip(demands) {
                cluster.autoscale(demand, self.behavior, self.policy.tolerance, self.now);
                cluster.run(self.now);
            }
        }
        (!self.hub_is_down).then(|| self.sync())
    }

    fn sync(&mut self) -> SyncRecord {
        let (members, total) = self.observe();
        let now = at(self.now);
        let (decision, ledger) = decide(&self.policy, &total, &members, &self.ledger, now);
        let before = std::mem::replace(&mut self.ledger, ledger);
        for place in &decision.order {
            let decided = &decision.members[*place];
            let cluster = self
                .clusters
                .iter_mut()
                .find(|cluster| cluster.name == decided.name);
            let cluster = cluster.expect("a decision is about a member");
            assert!(
                cluster.reached,
                "{} is written to, and not reached",
                cluster.name
            );
            if self.policy.mode == Mode::Delegated {
                let bounds = (decided.min.get(), decided.max.get());
                cluster.hpa = (bounds.1 > 0).then_some(bounds);
                cluster.hold = decided.hold;
            }
            if decided.action == Action::Delete {
                cluster.hpa = None;
            }
            if let Some(replicas) = decided.replicas {
                cluster.replicas = replicas.get();
            }
            cluster.run(self.now);
        }
        SyncRecord {
            members,
            total,
            before,
            decision,
        }
    }
}
