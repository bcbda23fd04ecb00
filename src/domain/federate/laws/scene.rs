//! The fleets that seeds stand for: what they are made of, an hour of random trouble, and what makes one seed another
//! fleet (a twist).

use crate::domain::federate::{Affinity, FailurePolicy, Kind, Ledger, Preference, WeightBy};

use super::fleets::{Random, at, n, policy, prefer};
use super::plain::{Behavior, Plain};
use super::world::{Bystander, Estimate, Site, World};

/// What is different from the fleet that a seed has always stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twist {
    Nothing,
    /// A fleet divided by capacities is divided by demand.
    ByDemand,
    /// In a fleet of static weights every member has the whole.
    Whole,
    /// Clusters that take no part run pods of the same workload.
    Bystanders,
    /// The user says how fast autoscalers may scale down.
    Behavior,
    /// Pods turn not ready.
    Unready,
}

impl Twist {
    pub(super) const ALL: [Self; 6] = [
        Self::Nothing,
        Self::ByDemand,
        Self::Whole,
        Self::Bystanders,
        Self::Behavior,
        Self::Unready,
    ];

    /// The fleet of a seed with this twist, if it can have it.
    pub(super) fn of(self, seed: u64) -> Option<Scene> {
        let mut scene = scene(seed);
        // Draws of its own: the seed stays the fleet that it was.
        let mut random = Random::new(seed ^ 0x7477_6973_7400);
        let world = &mut scene.world;
        match (self, world.policy.kind) {
            (Self::Nothing, _) => {}
            (Self::ByDemand, Kind::DynamicWeighted) => {
                world.policy.weight_by = WeightBy::Demand;
            }
            (Self::Whole, Kind::StaticWeighted) => world.policy.kind = Kind::Duplicated,
            (Self::Bystanders, kind) => {
                for at in 0..random.within(1, 2) {
                    let site = bystander(&mut random, kind, at);
                    world.sites.push(site);
                }
            }
            (Self::Behavior, _) => {
                world.behavior = Behavior {
                    window: random.pick(&[0, 60, 180, 300, 600]),
                    policy: random.one_in(2).then(|| {
                        // Not so slow that it does not come to rest within the hour.
                        let pods = random.within(2, 4);
                        (pods, random.pick(&[30, 60, 120]))
                    }),
                };
            }
            (Self::Unready, _) => scene.fails = true,
            _ => return None,
        }
        Some(scene)
    }
}

/// A cluster with pods that takes no part: no preference names it, or somebody else scales it.
fn bystander(random: &mut Random, kind: Kind, at: u32) -> Site {
    let can_be_unnamed = matches!(kind, Kind::StaticWeighted | Kind::Prioritized);
    let foreign = !can_be_unnamed || random.one_in(2);
    let mut site = Site::new(format!("x{at}"), 40, random.within(1, 8));
    site.bystander = Some(Bystander {
        foreign,
        measured: random.one_in(2),
        shares_load: random.one_in(2),
    });
    site.load = random.unit() * f64::from(site.replicas) * 1.5;
    site
}

/// Everything a run is made from.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) random: Random,
    /// Whether load belongs to regions.
    pub(super) local: bool,
    /// Whether every capacity is known as it is.
    pub(super) truthful: bool,
    /// Whether pods turn not ready.
    pub(super) fails: bool,
}

#[expect(clippy::too_many_lines, reason = "one draw after the other")]
pub(super) fn scene(seed: u64) -> Scene {
    let mut random = Random::new(seed);
    let kind = random.pick(&[
        Kind::Prioritized,
        Kind::Prioritized,
        Kind::Aggregated,
        Kind::DynamicWeighted,
        Kind::DynamicWeighted,
        Kind::StaticWeighted,
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
    let mut sites = Vec::new();
    for at in 0..count {
        let name = format!("m{at}");
        let capacity = random.within(0, 30);
        let mut site = Site::new(name.clone(), capacity, random.within(0, 6));
        if !truthful {
            site.estimate = match random.within(1, 4) {
                1 => Estimate::Unknown,
                2 => Estimate::TooHigh(random.within(1, 8)),
                3 => Estimate::TooLow(random.within(1, 8)),
                _ => Estimate::True,
            };
        }
        if local {
            site.load = random.unit() * f64::from(max) / f64::from(count) * 1.3;
        }
        let lo = if random.one_in(6) {
            random.within(1, 3)
        } else {
            0
        };
        let hi = random.one_in(5).then(|| lo.max(random.within(1, max)));
        policy.preferences.push(Preference {
            weight: Some(u64::from(random.within(1, 4))),
            priority: Some(i64::from(random.within(1, 3))),
            min: Some(n(lo)),
            max: hi.map(n),
            elastic: !truthful && random.one_in(8),
            ..prefer(&name)
        });
        sites.push(site);
    }
    let load = if local {
        0.0
    } else {
        random.unit() * f64::from(max) * 1.1
    };
    let floor = random.one_in(2).then(|| random.within(min, max));
    let window = random.pick(&[300, 300, 60]);
    Scene {
        world: World {
            policy,
            sites,
            load,
            floor,
            measured: true,
            behavior: Behavior {
                window,
                policy: None,
            },
            plain: Plain::default(),
            away: false,
            ledger: Ledger::default(),
            now: 0,
        },
        random,
        local,
        truthful,
        fails: false,
    }
}

impl Scene {
    /// Something happens, most of the time nothing.
    pub(super) fn trouble(&mut self) {
        self.turn_pods();
        if !self.random.one_in(12) {
            return;
        }
        let world = &mut self.world;
        let random = &mut self.random;
        let max = world.policy.bounds.max.get();
        let count = world.members().count();
        let one =
            usize::try_from(random.within(0, u32::try_from(count - 1).expect("few"))).expect("few");
        match random.within(1, 9) {
            1 | 2 if self.local => {
                let share = f64::from(max) / f64::from(u32::try_from(count).expect("few"));
                world.sites[one].load = random.unit() * share * 1.3;
            }
            1 | 2 => world.load = random.unit() * f64::from(max) * 1.1,
            3 => {
                let site = &mut world.sites[one];
                site.reached = !site.reached;
                site.lost_since = at(world.now);
            }
            4 => {
                world.floor = random
                    .one_in(3)
                    .then(|| random.within(0, max))
                    .or(world.floor.map(|_| 0));
            }
            5 => {
                let max = random.within(u32::try_from(count).expect("few"), 40);
                world.policy.bounds.max = n(max);
                world.policy.bounds.min = n(random.within(1, max.min(12)));
                world.policy.generation += 1;
            }
            6 => world.away = !world.away,
            7 => {
                let name = format!("m{one}");
                let exclude = if world.policy.affinity.exclude.contains(&name) || count < 3 {
                    Vec::new()
                } else {
                    vec![name]
                };
                world.policy.affinity = Affinity {
                    exclude,
                    ..Affinity::default()
                };
                world.policy.generation += 1;
            }
            8 if count > 2 => world.sites[one].listed = !world.sites[one].listed,
            9 => world.sites[one].capacity = random.within(0, 30),
            _ => world.measured = !world.measured,
        }
    }

    /// Pods turn not ready and ready again, and bystanders are scaled, by draws that the seed does not notice.
    fn turn_pods(&mut self) {
        let mut random = Random::new(self.random.peek());
        if self.fails && random.one_in(10) {
            let count = u32::try_from(self.world.sites.len()).expect("few");
            let one = usize::try_from(random.within(0, count - 1)).expect("few");
            let site = &mut self.world.sites[one];
            site.unready = random.within(0, site.placed());
        }
        let bystanders = self.world.sites.iter_mut();
        for site in bystanders.filter(|site| site.bystander.is_some()) {
            if random.one_in(20) {
                site.replicas = random.within(0, 9);
            }
        }
    }

    /// Everybody is there again, and nothing changes any more.
    pub(super) fn calm(&mut self) {
        let lost = self.random.one_in(10);
        let world = &mut self.world;
        world.away = false;
        world.measured = true;
        for (place, site) in world.sites.iter_mut().enumerate() {
            let stays_lost = lost && place == 0 && site.seen.is_some();
            if !site.reached && !stays_lost {
                site.reached = true;
            } else if site.reached && stays_lost {
                site.reached = false;
                site.lost_since = at(world.now);
            }
            site.listed = true;
        }
    }
}
