//! The scenario of a seed: a random fleet, an hour of random faults, and variants of it.

use crate::{Affinity, AssignmentKind, FailurePolicy, Ledger, Preference, WeightBy};

use super::fixtures::{Random, at, n, policy, prefer};
use super::reference::{Behavior, ReferenceAutoscaler};
use super::simulation::{Cluster, Estimate, Nonparticipant, Simulation};

/// Steps of half a minute.
pub const FAULT_STEPS: u32 = 110;
pub const CALM_STEPS: u32 = 130;

/// A variant of a seed's scenario. Variants are not drawn, so that every seed keeps its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    Unchanged,
    /// A fleet weighted by capacity is weighted by demand.
    ByDemand,
    /// A fleet with static weights is Duplicated.
    Duplicated,
    /// Clusters that take no part run pods of the same workload.
    Nonparticipants,
    /// The user sets a scale-down behavior.
    Behavior,
    /// Pods become not ready.
    Unready,
}

impl Variant {
    pub const ALL: [Self; 6] = [
        Self::Unchanged,
        Self::ByDemand,
        Self::Duplicated,
        Self::Nonparticipants,
        Self::Behavior,
        Self::Unready,
    ];

    /// The scenario of a seed with this variant, if it applies.
    pub fn of(self, seed: u64) -> Option<Scenario> {
        let mut scenario = scenario(seed);
        // A separate generator, so that the seed keeps its fleet.
        let mut random = Random::new(seed ^ 0x7477_6973_7400);
        let simulation = &mut scenario.simulation;
        match (self, simulation.policy.kind) {
            (Self::Unchanged, _) => {}
            (Self::ByDemand, AssignmentKind::DynamicWeighted) => {
                simulation.policy.weight_by = WeightBy::Demand;
            }
            (Self::Duplicated, AssignmentKind::StaticWeighted) => {
                simulation.policy.kind = AssignmentKind::Duplicated;
            }
            (Self::Nonparticipants, kind) => {
                for at in 0..random.within(1, 2) {
                    let cluster = nonparticipant(&mut random, kind, at);
                    simulation.clusters.push(cluster);
                }
            }
            (Self::Behavior, _) => {
                simulation.behavior = Behavior {
                    window: random.pick(&[0, 60, 180, 300, 600]),
                    policy: random.one_in(2).then(|| {
                        // Fast enough to converge within the hour.
                        let pods = random.within(2, 4);
                        (pods, random.pick(&[30, 60, 120]))
                    }),
                };
            }
            (Self::Unready, _) => scenario.fails = true,
            _ => return None,
        }
        Some(scenario)
    }
}

/// A cluster with pods that takes no part: no preference names it, or another autoscaler scales it.
fn nonparticipant(random: &mut Random, kind: AssignmentKind, at: u32) -> Cluster {
    let can_be_unnamed = matches!(
        kind,
        AssignmentKind::StaticWeighted | AssignmentKind::Prioritized
    );
    let foreign = !can_be_unnamed || random.one_in(2);
    let mut cluster = Cluster::new(format!("x{at}"), 40, random.within(1, 8));
    cluster.nonparticipant = Some(Nonparticipant {
        foreign,
        measured: random.one_in(2),
        shares_load: random.one_in(2),
    });
    cluster.load = random.unit() * f64::from(cluster.replicas) * 1.5;
    cluster
}

/// A simulation and what happens to it.
pub struct Scenario {
    pub simulation: Simulation,
    pub random: Random,
    /// Whether load belongs to regions.
    pub local: bool,
    /// Whether every estimate of capacity is correct.
    pub truthful: bool,
    /// Whether pods turn not ready.
    pub fails: bool,
}

#[expect(clippy::too_many_lines, reason = "one draw after the other")]
pub fn scenario(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let kind = random.pick(&[
        AssignmentKind::Prioritized,
        AssignmentKind::Prioritized,
        AssignmentKind::Aggregated,
        AssignmentKind::DynamicWeighted,
        AssignmentKind::DynamicWeighted,
        AssignmentKind::StaticWeighted,
    ]);
    let count = random.within(2, 5);
    let max = random.within(count, 40);
    let min = random.within(1, max.min(12));
    let mut policy = policy(kind, min, max);
    policy.scaling_to_zero = random.one_in(3);
    policy.failure = random.pick(&[
        FailurePolicy::Retain,
        FailurePolicy::Retain,
        FailurePolicy::Reassign,
    ]);
    let truthful = !random.one_in(4);
    let local = random.one_in(3);
    let mut clusters = Vec::new();
    for at in 0..count {
        let name = format!("m{at}");
        let capacity = random.within(0, 30);
        let mut cluster = Cluster::new(name.clone(), capacity, random.within(0, 6));
        if !truthful {
            cluster.estimate = match random.within(1, 4) {
                1 => Estimate::Unknown,
                2 => Estimate::TooHigh(random.within(1, 8)),
                3 => Estimate::TooLow(random.within(1, 8)),
                _ => Estimate::True,
            };
        }
        if local {
            cluster.load = random.unit() * f64::from(max) / f64::from(count) * 1.3;
        }
        let lower_limit = if random.one_in(6) {
            random.within(1, 3)
        } else {
            0
        };
        let upper_limit = random
            .one_in(5)
            .then(|| lower_limit.max(random.within(1, max)));
        policy.preferences.push(Preference {
            weight: Some(u64::from(random.within(1, 4))),
            priority: Some(i64::from(random.within(1, 3))),
            min: Some(n(lower_limit)),
            max: upper_limit.map(n),
            elastic: !truthful && random.one_in(8),
            ..prefer(&name)
        });
        clusters.push(cluster);
    }
    let load = if local {
        0.0
    } else {
        random.unit() * f64::from(max) * 1.1
    };
    let floor = random.one_in(2).then(|| random.within(min, max));
    let window = random.pick(&[300, 300, 60]);
    Scenario {
        simulation: Simulation {
            policy,
            clusters,
            load,
            floor,
            measured: true,
            behavior: Behavior {
                window,
                policy: None,
            },
            reference: ReferenceAutoscaler::default(),
            hub_is_down: false,
            ledger: Ledger::default(),
            now: 0,
        },
        random,
        local,
        truthful,
        fails: false,
    }
}

impl Scenario {
    /// Injects a fault, in one step of twelve.
    pub fn inject_fault(&mut self) {
        self.turn_pods();
        if !self.random.one_in(12) {
            return;
        }
        let simulation = &mut self.simulation;
        let random = &mut self.random;
        let max = simulation.policy.bounds.max.get();
        let count = simulation.members().count();
        let one =
            usize::try_from(random.within(0, u32::try_from(count - 1).expect("few"))).expect("few");
        match random.within(1, 9) {
            1 | 2 if self.local => {
                let share = f64::from(max) / f64::from(u32::try_from(count).expect("few"));
                simulation.clusters[one].load = random.unit() * share * 1.3;
            }
            1 | 2 => simulation.load = random.unit() * f64::from(max) * 1.1,
            3 => {
                let cluster = &mut simulation.clusters[one];
                cluster.reached = !cluster.reached;
                cluster.lost_since = at(simulation.now);
            }
            4 => {
                simulation.floor = random
                    .one_in(3)
                    .then(|| random.within(0, max))
                    .or(simulation.floor.map(|_| 0));
            }
            5 => {
                let max = random.within(u32::try_from(count).expect("few"), 40);
                simulation.policy.bounds.max = n(max);
                simulation.policy.bounds.min = n(random.within(1, max.min(12)));
                simulation.policy.generation += 1;
            }
            6 => simulation.hub_is_down = !simulation.hub_is_down,
            7 => {
                let name = format!("m{one}");
                let exclude = if simulation.policy.affinity.exclude.contains(&name) || count < 3 {
                    Vec::new()
                } else {
                    vec![name]
                };
                simulation.policy.affinity = Affinity {
                    exclude,
                    ..Affinity::default()
                };
                simulation.policy.generation += 1;
            }
            8 if count > 2 => simulation.clusters[one].listed = !simulation.clusters[one].listed,
            9 => simulation.clusters[one].capacity = random.within(0, 30),
            _ => simulation.measured = !simulation.measured,
        }
    }

    /// Pods become not ready and ready again, and nonparticipants are scaled, by a separate generator.
    fn turn_pods(&mut self) {
        let mut random = Random::new(self.random.peek());
        if self.fails && random.one_in(10) {
            let count = u32::try_from(self.simulation.clusters.len()).expect("few");
            let one = usize::try_from(random.within(0, count - 1)).expect("few");
            let cluster = &mut self.simulation.clusters[one];
            cluster.unready = random.within(0, cluster.placed());
        }
        let nonparticipants = self.simulation.clusters.iter_mut();
        for cluster in nonparticipants.filter(|cluster| cluster.nonparticipant.is_some()) {
            if random.one_in(20) {
                cluster.replicas = random.within(0, 9);
            }
        }
    }

    /// Ends all faults; nothing changes any more.
    pub fn calm(&mut self) {
        let lost = self.random.one_in(10);
        let simulation = &mut self.simulation;
        simulation.hub_is_down = false;
        simulation.measured = true;
        for (place, cluster) in simulation.clusters.iter_mut().enumerate() {
            let stays_lost = lost && place == 0 && cluster.seen.is_some();
            if !cluster.reached && !stays_lost {
                cluster.reached = true;
            } else if cluster.reached && stays_lost {
                cluster.reached = false;
                cluster.lost_since = at(simulation.now);
            }
            cluster.listed = true;
        }
    }
}

/// A fleet after its faults and half an hour of calm.
pub fn calmed(seed: u64) -> Scenario {
    let mut scenario = scenario(seed);
    for step in 0..FAULT_STEPS + CALM_STEPS / 2 {
        if step < FAULT_STEPS {
            scenario.inject_fault();
        } else if step == FAULT_STEPS {
            scenario.calm();
        }
        scenario.simulation.step();
    }
    scenario
}
