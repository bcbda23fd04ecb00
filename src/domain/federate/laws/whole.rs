//! The laws over the whole loop: random fleets, an hour of random trouble, then an hour and more of constant input.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::domain::Replicas;
use crate::domain::federate::{
    Affinity, FailurePolicy, Kind, Ledger, Policy, Preference, Tenure, WeightBy, decide,
};

use super::fleets::{Random, at, n, policy, prefer};
use super::moves::Move;
use super::world::{Estimate, Site, Sync, World, ceil};

/// Steps of half a minute.
const TROUBLE: u32 = 110;
const CALM: u32 = 130;
/// The end of the calm, in which nothing may move.
const STILL: u32 = 50;

/// A law and how it was broken.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) law: &'static str,
    pub(super) how: String,
}

pub(super) fn broken(law: &'static str, how: String) -> Result<(), Broken> {
    Err(Broken { law, how })
}

/// What is different from the fleet that a seed has always stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twist {
    Nothing,
    /// A fleet divided by capacities is divided by demand.
    ByDemand,
    /// In a fleet of static weights every member has the whole.
    Whole,
}

impl Twist {
    const ALL: [Self; 3] = [Self::Nothing, Self::ByDemand, Self::Whole];

    /// Twists the policy, if it can be.
    fn apply(self, policy: &mut Policy) -> Option<()> {
        match (self, policy.kind) {
            (Self::Nothing, _) => {}
            (Self::ByDemand, Kind::DynamicWeighted) => policy.weight_by = WeightBy::Demand,
            (Self::Whole, Kind::StaticWeighted) => policy.kind = Kind::Duplicated,
            _ => return None,
        }
        Some(())
    }
}

/// Everything a run is made from.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) random: Random,
    /// Whether load belongs to regions.
    local: bool,
    /// Whether every capacity is known as it is.
    truthful: bool,
}

#[expect(clippy::too_many_lines, reason = "one draw after the other")]
fn scene(seed: u64) -> Scene {
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
            window,
            away: false,
            ledger: Ledger::default(),
            now: 0,
        },
        random,
        local,
        truthful,
    }
}

impl Scene {
    /// Something happens, most of the time nothing.
    fn trouble(&mut self) {
        if !self.random.one_in(12) {
            return;
        }
        let world = &mut self.world;
        let random = &mut self.random;
        let max = world.policy.bounds.max.get();
        let count = world.sites.len();
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

    /// Everybody is there again, and nothing changes any more.
    fn calm(&mut self) {
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

/// A fleet after its trouble and half an hour of calm.
pub(super) fn calmed(seed: u64) -> Scene {
    let mut scene = scene(seed);
    for step in 0..TROUBLE + CALM / 2 {
        if step < TROUBLE {
            scene.trouble();
        } else if step == TROUBLE {
            scene.calm();
        }
        scene.world.step();
    }
    scene
}

/// Runs one seed through; a twist that does not fit its policy breaks nothing.
pub(super) fn run(seed: u64, twist: Twist) -> Result<(), Broken> {
    let mut scene = scene(seed);
    if twist.apply(&mut scene.world.policy).is_none() {
        return Ok(());
    }
    let mut moves = Vec::new();
    for step in 0..TROUBLE + CALM {
        if step < TROUBLE {
            scene.trouble();
        } else if step == TROUBLE {
            scene.calm();
        }
        let Some(sync) = scene.world.step() else {
            continue;
        };
        always(&scene.world, &sync)?;
        needed_pods_live(&scene.world, &sync)?;
        if step >= TROUBLE + CALM - STILL && has_moved(&scene.world, &sync) {
            moves.push((step, sync.decision.message()));
        }
    }
    at_rest(&mut scene, &moves)
}

/// Whether a budget is not what it was.
fn has_moved(world: &World, sync: &Sync) -> bool {
    let budget = |ledger: &crate::domain::federate::Ledger| -> Vec<_> {
        let all = ledger.members.iter();
        all.map(|(name, e)| (name.clone(), e.min, e.max)).collect()
    };
    budget(&world.ledger) != budget(&sync.before)
        || sync.decision.members.iter().any(|m| m.action.writes())
}

/// What holds after every decision, whatever members say of themselves.
pub(super) fn always(world: &World, sync: &Sync) -> Result<(), Broken> {
    let policy = &world.policy;
    let Some(_) = world.ledger.generation else {
        return Ok(());
    };
    if sync.decision.conditions.len() == 1 {
        return Ok(());
    }
    let standing = |name: &str| {
        let member = sync.members.iter().find(|m| m.profile.name == name);
        member.and_then(|m| policy.standing(&m.profile))
    };
    let mut sums = (0u32, 0u32, 0u32);
    let mut pinned = 0u32;
    for decided in &sync.decision.members {
        let Some(entry) = world.ledger.members.get(&decided.name) else {
            continue;
        };
        let lost = world
            .sites
            .iter()
            .any(|s| s.name == decided.name && !s.reached);
        let (min, max) = (entry.min.get(), entry.max.get());
        if entry.tenure == Tenure::Failed || entry.tenure == Tenure::Leaving {
            continue;
        }
        let Some(standing) = standing(&decided.name) else {
            pinned += max.max(1);
            continue;
        };
        sums = (
            sums.0 + max,
            sums.1 + standing.lo.get(),
            sums.2.saturating_add(standing.hi.get()),
        );
        if lost || entry.tenure == Tenure::Pinned {
            pinned += max;
            continue;
        }
        if max > 0 && !(1 <= min && min <= max && max <= standing.hi.get()) {
            return broken("P1 1 <= min <= max <= hi", format!("{decided:?} {entry:?}"));
        }
        if max < standing.lo.get() {
            return broken("max never below lo", format!("{decided:?} {entry:?}"));
        }
        if max > 0 && (decided.min > decided.max || decided.min.get() == 0) {
            return broken("written min within 1 and max", format!("{decided:?}"));
        }
    }
    let all = policy.bounds.max.get();
    let unassigned = world.ledger.unassigned.get();
    let goal = all.max(sums.1);
    if policy.kind != Kind::Duplicated && pinned == 0 && sums.0 + unassigned != goal {
        return broken(
            "P2 maxima and unassigned sum to MAX",
            format!("{} + {unassigned} != {goal}; {:?}", sums.0, world.ledger),
        );
    }
    moves_are_sound(world, sync)
}

/// The laws of one decision.
fn moves_are_sound(world: &World, sync: &Sync) -> Result<(), Broken> {
    let one = Move {
        policy: &world.policy,
        total: &sync.total,
        members: &sync.members,
        before: &sync.before,
        decision: &sync.decision,
        after: &world.ledger,
    };
    one.check()
}

/// Whether the hub ended ready pods that are needed, for the demand, for MIN or for the floor, other than after landing has
/// timed out.
///
/// Not under Duplicated: there MIN, MAX and the floor are each member's own and nobody serves for another, so that no
/// landing waits for others when the user gives all of them a smaller maximum or takes one out.
fn needed_pods_live(world: &World, sync: &Sync) -> Result<(), Broken> {
    let now = at(world.now);
    let timed_out = sync.before.landing.is_some_and(|until| now >= until);
    if timed_out || world.policy.kind == Kind::Duplicated {
        return Ok(());
    }
    let site = |name: &str| world.sites.iter().find(|s| s.name == name);
    let ends = |name: &str| sync.decision.members.iter().find(|m| m.name == name);
    let (mut killed, mut served, mut room) = (0, 0, 0);
    for member in &sync.members {
        let name = member.profile.name.as_str();
        let count = &member.pods.map_or(0, |pods| pods.ready.get());
        let Some(decided) = ends(name) else { continue };
        // Of a member that nobody remembers, no more than MAX is believed.
        let count = &match sync.before.members.get(name) {
            Some(_) => *count,
            None => (*count).min(world.policy.bounds.max.get()),
        };
        let untouched = !decided.action.writes() || site(name).is_some_and(|s| !s.reached);
        let most = if untouched {
            *count
        } else {
            decided
                .replicas
                .map_or(decided.max, |r| if r == n(0) { r } else { decided.max })
                .get()
        };
        let after = (*count).min(most);
        killed += count - after;
        served += after;
        room += most;
    }
    let demand = sync.total.demand.map_or(0, |d| ceil(d / 1.1));
    let floor = sync.total.floor.map_or(0, Replicas::get);
    let needed = demand.max(world.policy.bounds.min.get()).max(floor);
    if killed > 0 && served < needed.min(room) {
        return broken(
            "needed ready pods live",
            format!(
                "{killed} ended, {served} are left, {needed} are needed: {}",
                sync.decision.message()
            ),
        );
    }
    Ok(())
}

/// What holds after an hour of constant input.
fn at_rest(scene: &mut Scene, moves: &[(u32, String)]) -> Result<(), Broken> {
    let world = &scene.world;
    let probing = world
        .ledger
        .members
        .values()
        .any(|e| e.mark.is_some_and(|m| m.span.seconds > 0) || e.local.is_some());
    // Feedback on wrong estimates and on demand that belongs to a region is tried again, at times that double.
    let local = scene.local && world.ledger.members.values().any(|e| e.local.is_some());
    let needed = world.ledger.members.values().any(|e| e.needed.is_some());
    let allowed = if local || needed || probing && !scene.truthful {
        8
    } else {
        0
    };
    if moves.len() > allowed {
        return broken("no moves under constant input", format!("{moves:?}"));
    }
    let lost = world.sites.iter().any(|s| !s.reached);
    let out = world.sites.iter().any(|s| !s.listed);
    let moving = matches!(
        world.policy.kind,
        Kind::Aggregated | Kind::DynamicWeighted | Kind::Prioritized
    );
    // Where budgets do not move, a full member leaves a floor unmet by design, and who is lost keeps what others need.
    if !lost && !out && moving {
        serves(scene)?;
    }
    fixpoint(scene)
}

/// What a fleet gives in the end, all of whose members are there.
#[expect(clippy::too_many_lines, reason = "one law after the other")]
fn serves(scene: &Scene) -> Result<(), Broken> {
    let world = &scene.world;
    let policy = &world.policy;
    let takes_part = |s: &&Site| !policy.affinity.exclude.contains(&s.name);
    let hi = |s: &Site| {
        let preference = policy
            .preferences
            .iter()
            .find(|p| p.targets.names.contains(&s.name));
        preference
            .and_then(|p| p.max)
            .map_or(policy.bounds.max.get(), Replicas::get)
    };
    let lo = |s: &Site| {
        let preference = policy
            .preferences
            .iter()
            .find(|p| p.targets.names.contains(&s.name));
        preference.and_then(|p| p.min).map_or(0, Replicas::get)
    };
    let sites = || world.sites.iter().filter(takes_part);
    // A member whose nodes hold less than its threshold, or nothing, keeps budget that nobody can use.
    let stuck: u32 = sites()
        .map(|s| lo(s).saturating_sub(s.capacity))
        .sum::<u32>()
        + sites()
            .map(|s| u32::from(s.capacity == 0 && lo(s) == 0))
            .sum::<u32>();
    let reach: u32 = sites().map(|s| s.capacity.min(hi(s))).sum::<u32>();
    let reach = reach.min(
        policy
            .bounds
            .max
            .get()
            .max(sites().map(lo).sum())
            .saturating_sub(stuck),
    );
    let placed: u32 = sites().map(Site::placed).sum();
    let state = || {
        let all = sites().map(|s| {
            format!(
                "{} r{} p{} cap{} hpa{:?} hi{} lo{}",
                s.name,
                s.replicas,
                s.placed(),
                s.capacity,
                s.hpa,
                hi(s),
                lo(s)
            )
        });
        format!(
            "{:?} {:?} reach {reach} placed {placed} load {} floor {:?} {}",
            policy.kind,
            policy.bounds,
            world.whole(),
            world.floor,
            all.collect::<Vec<_>>().join("; ")
        )
    };
    if let Some(floor) = world.floor
        && placed < floor.min(reach)
        && (scene.truthful)
    {
        return broken("the floor is met where capacity allows", state());
    }
    let needed = ceil(world.whole() / (1.0 + policy.tolerance) - 1e-9);
    // Members that are not of the fleet may serve some of it.
    let all: u32 = world.sites.iter().map(Site::placed).sum();
    if !scene.local && all < needed.min(reach) && scene.truthful {
        return broken("demand is served where capacity and MAX allow", state());
    }
    if scene.truthful {
        for s in sites() {
            let min = s.hpa.map_or(0, |(min, _)| min);
            let budget = world.ledger.members.get(&s.name).map_or(0, |e| e.min.get());
            if min > s.capacity.max(lo(s)).max(1).max(budget.min(min)) {
                return broken(
                    "X2 no floor beyond known capacity",
                    format!("{} {}", s.name, state()),
                );
            }
        }
        starving(world, &state)?;
    }
    lowest_first(world, &state)
}

/// In the end no member of a lower priority runs more than its minimum while the fleet runs more than it needs.
fn lowest_first(world: &World, state: &dyn Fn() -> String) -> Result<(), Broken> {
    let has_pending = world.sites.iter().any(|s| s.placed() < s.replicas);
    if world.policy.kind != Kind::Prioritized || has_pending {
        return Ok(());
    }
    let placed: u32 = world.sites.iter().map(Site::placed).sum();
    let there = f64::from(placed);
    let whole = world.whole();
    let needed = ceil(whole)
        .max(world.floor.unwrap_or(0))
        .max(world.policy.bounds.min.get());
    if placed <= needed || (whole - there).abs() <= world.policy.tolerance * there {
        return Ok(());
    }
    let priority = |s: &Site| {
        world
            .policy
            .standing(&profile(&s.name))
            .and_then(|st| st.priority)
    };
    let highest = world
        .sites
        .iter()
        .filter(|s| s.hpa.is_some())
        .map(priority)
        .max()
        .flatten();
    for s in world.sites.iter().filter(|s| priority(s) < highest) {
        let entry = world.ledger.members.get(&s.name);
        let spared = entry.is_some_and(|e| e.local.is_some());
        let Some((min, _)) = s.hpa else { continue };
        if s.placed() > min && !spared {
            return broken(
                "X8 the lowest priority shrinks first",
                format!("{}: {}", s.name, state()),
            );
        }
    }
    Ok(())
}

/// No member starves at its maximum with room, while others have more than they use.
fn starving(world: &World, state: &dyn Fn() -> String) -> Result<(), Broken> {
    let demands = world.demands();
    for (s, demand) in world.sites.iter().zip(&demands) {
        let Some((_, max)) = s.hpa else { continue };
        let hi = world
            .policy
            .standing(&profile(&s.name))
            .map_or(0, |st| st.hi.get());
        let starves = s.replicas == max
            && *demand > 1.1 * f64::from(s.replicas)
            && max < hi.min(s.capacity)
            && s.placed() == s.replicas;
        let slack = world.sites.iter().filter(|o| o.name != s.name).any(|o| {
            let (min, max) = o.hpa.unwrap_or_default();
            let lo = world
                .policy
                .standing(&profile(&o.name))
                .map_or(0, |st| st.lo.get());
            max > o.replicas.max(min).max(o.desired).max(lo).max(1)
        });
        if starves && (slack || world.ledger.unassigned > n(0)) {
            return broken(
                "no member starves while there is slack",
                format!("{} demand {demand}: {}", s.name, state()),
            );
        }
    }
    Ok(())
}

fn profile(name: &str) -> crate::domain::federate::Profile {
    crate::domain::federate::Profile {
        name: name.to_owned(),
        ..Default::default()
    }
}

/// The decision on its own result is the same decision.
fn fixpoint(scene: &mut Scene) -> Result<(), Broken> {
    let world = &mut scene.world;
    if !scene.truthful {
        return Ok(());
    }
    let Some(sync) = world.step() else {
        return Ok(());
    };
    let mut members = sync.members.clone();
    for decided in &sync.decision.members {
        let named = |m: &&mut crate::domain::federate::Member| m.profile.name == decided.name;
        let Some(member) = members.iter_mut().find(named) else {
            continue;
        };
        if decided.action.writes() {
            member.hpa = (decided.max > n(0)).then_some((decided.min, decided.max));
        }
    }
    let now = at(world.now);
    let (again, ledger) = decide(&world.policy, &sync.total, &members, &world.ledger, now);
    let writes: Vec<_> = again.members.iter().filter(|m| m.action.writes()).collect();
    if !writes.is_empty() || ledger != world.ledger {
        return broken(
            "P16 the decision on its own result changes nothing",
            format!("{writes:?}"),
        );
    }
    Ok(())
}

/// Runs seeds, each with every twist, and gathers what broke, by law.
fn sweep(
    seeds: Range<u64>,
    twisted: impl Fn(u64) -> bool,
) -> BTreeMap<&'static str, Vec<(u64, Twist, String)>> {
    let mut failures = BTreeMap::<_, Vec<_>>::new();
    for (seed, twist) in seeds.flat_map(|seed| Twist::ALL.map(|twist| (seed, twist))) {
        let runs = twist == Twist::Nothing || twisted(seed);
        if let Some(Err(broken)) = runs.then(|| run(seed, twist)) {
            let failures = failures.entry(broken.law).or_default();
            failures.push((seed, twist, broken.how));
        }
    }
    failures
}

fn report(seeds: Range<u64>, twisted: impl Fn(u64) -> bool) {
    let failures = sweep(seeds.clone(), twisted);
    let text = failures.iter().map(|(law, all)| {
        let seeds: Vec<_> = all
            .iter()
            .take(8)
            .map(|(seed, twist, _)| (seed, twist))
            .collect();
        let how = all.first().map_or("", |(_, _, how)| how);
        format!("{law}: {} runs, seeds {seeds:?} ...\n    {how}", all.len())
    });
    let text: Vec<_> = text.collect();
    assert!(
        text.is_empty(),
        "{} runs\n{}",
        seeds.end - seeds.start,
        text.join("\n")
    );
}

// Two tests, so that two cores share the work; one seed in three is twisted too.
#[test]
fn whole_fleets_come_to_rest_and_serve() {
    report(0..750, |seed| seed % 3 == 0);
}

#[test]
fn more_whole_fleets_come_to_rest_and_serve() {
    report(750..1_500, |seed| seed % 3 == 0);
}

/// `cargo test --release -- --ignored ten_thousand`.
#[test]
#[ignore = "minutes in a release build"]
fn ten_thousand_whole_fleets_come_to_rest_and_serve() {
    report(1_000..11_000, |_| true);
}
