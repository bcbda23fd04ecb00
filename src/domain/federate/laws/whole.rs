//! The laws over the whole loop: random fleets, an hour of random trouble, then an hour and more of constant input.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::domain::Replicas;
use crate::domain::federate::{Kind, Ledger, ShareStatus, decide};

use super::fleets::{at, n};
use super::moves::Move;
use super::patience::{Count, measures_are_true, no_pod_ends_sooner};
use super::scene::{Scene, Twist, scene};
use super::world::{Site, Sync, World, ceil};

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
    let Some(mut scene) = twist.of(seed) else {
        return Ok(());
    };
    let mut moves = Vec::new();
    let mut count = Count::default();
    for step in 0..TROUBLE + CALM {
        if step < TROUBLE {
            scene.trouble();
        } else if step == TROUBLE {
            scene.calm();
        }
        let sync = scene.world.step();
        count.note(&scene.world, step >= TROUBLE)?;
        let Some(sync) = sync else {
            continue;
        };
        always(&scene.world, &sync)?;
        needed_pods_live(&scene.world, &sync)?;
        measures_are_true(&scene.world, &sync)?;
        no_pod_ends_sooner(&scene.world, &sync)?;
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
        if entry.tenure == ShareStatus::Failed || entry.tenure == ShareStatus::Leaving {
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
        if lost || entry.tenure == ShareStatus::Pinned {
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

/// The ready pods of a fleet around one decision.
pub(super) struct Ready {
    /// Before it.
    pub(super) before: u32,
    /// After its writes, if those that are not ready end first.
    pub(super) after: u32,
    /// How many may be left at most, by the bounds that it writes.
    pub(super) room: u32,
}

impl Ready {
    /// Those that may be needed: while a fleet lands also those that never were its own.
    fn needed(world: &World, sync: &Sync) -> Self {
        let lands = sync.before.landing.is_some() || world.ledger.landing.is_some();
        Self::around(world, sync, |name| {
            let is_known = sync.before.members.contains_key(name);
            lands || !is_known || shares(&sync.before, name)
        })
    }

    /// Those of members that had a share.
    pub(super) fn of_shares(world: &World, sync: &Sync) -> Self {
        Self::around(world, sync, |name| {
            let is_known = sync.before.members.contains_key(name);
            shares(&sync.before, name) || !is_known && shares(&world.ledger, name)
        })
    }

    /// And of members that got one.
    pub(super) fn of_all_shares(world: &World, sync: &Sync) -> Self {
        Self::around(world, sync, |name| {
            shares(&sync.before, name) || shares(&world.ledger, name)
        })
    }

    fn around(world: &World, sync: &Sync, is_meant: impl Fn(&str) -> bool) -> Self {
        let (mut before, mut after, mut room) = (0, 0, 0);
        for site in world.members().filter(|site| is_meant(&site.name)) {
            let seen = sync.members.iter().find(|m| m.profile.name == site.name);
            let decided = sync.decision.member(&site.name);
            let (Some(seen), Some(decided)) = (seen, decided) else {
                continue;
            };
            let count = seen.pods.map_or(0, |pods| pods.ready.get());
            // Of a member that nobody remembers, no more than MAX is believed.
            let count = match sync.before.members.get(&site.name) {
                Some(_) => count,
                None => count.min(world.policy.bounds.max.get()),
            };
            let untouched = !decided.action.writes() || !site.reached;
            let most = if untouched {
                count
            } else {
                let replicas = decided.replicas.filter(|replicas| *replicas == n(0));
                replicas.unwrap_or(decided.max).get()
            };
            before += count;
            after += count.min(most);
            room += most;
        }
        Self {
            before,
            after,
            room,
        }
    }
}

fn shares(ledger: &Ledger, name: &str) -> bool {
    let entry = ledger.members.get(name);
    entry.is_some_and(|entry| entry.max.max(entry.written) > n(0))
}

/// Whether a landing has timed out: then pods end whatever is ready.
pub(super) fn has_timed_out(world: &World, sync: &Sync) -> bool {
    let now = at(world.now);
    sync.before
        .landing
        .is_some_and(|landing| now >= landing.until)
}

/// Whether the hub ended ready pods that are needed, for the demand, for MIN or for the floor, other than after landing has
/// timed out.
///
/// Not under Duplicated: there MIN, MAX and the floor are each member's own and nobody serves for another, so that no
/// landing waits for others when the user gives all of them a smaller maximum or takes one out.
fn needed_pods_live(world: &World, sync: &Sync) -> Result<(), Broken> {
    if has_timed_out(world, sync) || world.policy.kind == Kind::Duplicated {
        return Ok(());
    }
    let Ready {
        before,
        after,
        room,
    } = Ready::needed(world, sync);
    let demand = sync.total.demand.map_or(0, |d| ceil(d / 1.1));
    let floor = sync.total.floor.map_or(0, Replicas::get);
    let needed = demand.max(world.policy.bounds.min.get()).max(floor);
    if after < before && after < needed.min(room) {
        return broken(
            "X7 needed ready pods live",
            format!(
                "{before} were ready, {after} are left, {needed} are needed: {}",
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
    let is_local = scene.local || scene.fails;
    let local = is_local && world.ledger.members.values().any(|e| e.local.is_some());
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
    let sites = || world.members().filter(takes_part);
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
    // Autoscalers do not see the demand that pods cannot serve because they are not ready.
    let all_ready = sites().all(|s| s.unready == 0);
    // Members that are not of the fleet may serve some of it.
    let all: u32 = world.members().map(Site::placed).sum();
    if !scene.local && all < needed.min(reach) && scene.truthful && all_ready {
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
    let has_pending = world.members().any(|s| s.placed() < s.replicas);
    if world.policy.kind != Kind::Prioritized || has_pending {
        return Ok(());
    }
    // What is not ready is no surplus.
    let ready: u32 = world.members().map(|s| s.ready(world.now)).sum();
    let there = f64::from(ready);
    let whole = world.whole();
    let needed = ceil(whole)
        .max(world.floor.unwrap_or(0))
        .max(world.plain.desired)
        .max(world.policy.bounds.min.get());
    if ready <= needed || (whole - there).abs() <= world.policy.tolerance * there {
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
        // Who was just moved rests.
        let entry = world.ledger.members.get(&s.name);
        let moved = entry.and_then(|entry| entry.moved);
        let rests =
            moved.is_some_and(|moved| at(world.now).duration_since(moved) < world.policy.cooldown);
        let starves = starves && !rests;
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
    // What is tried again after an hour may be tried just now; what ends by that is news.
    if has_moved(world, &sync) {
        return Ok(());
    }
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
            format!("{writes:?}, {:?} after {:?}", ledger, world.ledger),
        );
    }
    Ok(())
}

/// How many of its twists a seed is run with, beside the fleet that it is.
#[derive(Clone, Copy)]
enum Twists {
    /// One of them for one seed in three.
    Few,
    /// Every one.
    All,
}

impl Twists {
    fn of(self, seed: u64) -> Vec<Twist> {
        let twists = Twist::ALL.iter().copied();
        match self {
            Self::All => twists.collect(),
            Self::Few if seed.is_multiple_of(3) => {
                let at = usize::try_from(seed / 3).expect("small") % (Twist::ALL.len() - 1);
                vec![Twist::Nothing, Twist::ALL[at + 1]]
            }
            Self::Few => vec![Twist::Nothing],
        }
    }
}

/// Runs seeds and gathers what broke, by law.
fn sweep(seeds: Range<u64>, twists: Twists) -> BTreeMap<&'static str, Vec<(u64, Twist, String)>> {
    let mut failures = BTreeMap::<_, Vec<_>>::new();
    let runs = seeds.flat_map(|seed| twists.of(seed).into_iter().map(move |twist| (seed, twist)));
    for (seed, twist) in runs {
        if let Err(broken) = run(seed, twist) {
            let failures = failures.entry(broken.law).or_default();
            failures.push((seed, twist, broken.how));
        }
    }
    failures
}

fn report(seeds: Range<u64>, twists: Twists) {
    let failures = sweep(seeds.clone(), twists);
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

// Two tests each, so that two cores share the work.
#[test]
fn whole_fleets_come_to_rest_and_serve() {
    report(0..750, Twists::Few);
}

#[test]
fn more_whole_fleets_come_to_rest_and_serve() {
    report(750..1_500, Twists::Few);
}

/// `CARGO_PROFILE_DEV_OPT_LEVEL=2 cargo test -p foretide --lib -- --ignored ten_thousand`.
#[test]
#[ignore = "minutes, even in an optimized build"]
fn ten_thousand_whole_fleets_come_to_rest_and_serve() {
    report(1_000..6_000, Twists::All);
}

#[test]
#[ignore = "minutes, even in an optimized build"]
fn the_other_half_of_ten_thousand_whole_fleets() {
    report(6_000..11_000, Twists::All);
}
