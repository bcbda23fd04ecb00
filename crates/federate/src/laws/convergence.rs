//! The laws over the whole control loop: random fleets, an hour of random faults, then an hour and more of constant
//! input.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{AssignmentKind, Entry, ShareStatus, decide};
use foretide_domain::{ReplicaBounds, Replicas};

use super::fixtures::{Violation, at, ceil, n, violation};
use super::moves::Move;
use super::ready_pods::{ReadyPods, has_timed_out};
use super::reference_limits::{Count, measures_are_true, no_pod_ends_sooner};
use super::scenario::{CALM_STEPS, FAULT_STEPS, Scenario, Variant};
use super::simulation::{Cluster, Simulation, SyncRecord};

/// The last steps of the calm, in which nothing may move.
const REST_STEPS: u32 = 50;

/// Runs one seed; a variant that does not apply to its policy passes.
pub fn run(seed: u64, variant: Variant) -> Result<(), Violation> {
    let Some(mut scenario) = variant.of(seed) else {
        return Ok(());
    };
    let mut moves = Vec::new();
    let mut count = Count::default();
    for step in 0..FAULT_STEPS + CALM_STEPS {
        if step < FAULT_STEPS {
            scenario.inject_fault();
        } else if step == FAULT_STEPS {
            scenario.calm();
        }
        let sync = scenario.simulation.step();
        count.note(&scenario.simulation, step >= FAULT_STEPS)?;
        let Some(sync) = sync else {
            continue;
        };
        always(&scenario.simulation, &sync)?;
        needed_pods_live(&scenario.simulation, &sync)?;
        measures_are_true(&scenario.simulation, &sync)?;
        no_pod_ends_sooner(&scenario.simulation, &sync)?;
        if step >= FAULT_STEPS + CALM_STEPS - REST_STEPS && has_moved(&scenario.simulation, &sync) {
            moves.push((step, sync.decision.message()));
        }
    }
    at_rest(&mut scenario, &moves)
}

/// Whether a budget has changed or anything is written.
fn has_moved(simulation: &Simulation, sync: &SyncRecord) -> bool {
    let budget = |ledger: &crate::Ledger| -> Vec<_> {
        let all = ledger.members.iter();
        all.map(|(name, e)| (name.clone(), e.min, e.max)).collect()
    };
    budget(&simulation.ledger) != budget(&sync.before)
        || sync.decision.members.iter().any(|m| m.action.writes())
}

/// Checks what holds after every decision, whatever members report.
pub fn always(simulation: &Simulation, sync: &SyncRecord) -> Result<(), Violation> {
    let policy = &simulation.policy;
    let Some(_) = simulation.ledger.generation else {
        return Ok(());
    };
    if sync.decision.conditions.len() == 1 {
        return Ok(());
    }
    let preference = |name: &str| {
        let member = sync.members.iter().find(|m| m.profile.name == name);
        member.and_then(|m| policy.effective_preference(&m.profile))
    };
    let (mut maximums, mut lower_limits, mut pinned) = (0u32, 0u32, 0u32);
    for decided in &sync.decision.members {
        let Some(entry) = simulation.ledger.members.get(&decided.name) else {
            continue;
        };
        let mut clusters = simulation.clusters.iter();
        let lost = clusters.any(|s| s.name == decided.name && !s.reached);
        let (min, max) = (entry.min.get(), entry.max.get());
        if !entry.has_share() {
            continue;
        }
        let Some(preference) = preference(&decided.name) else {
            pinned += max.max(1);
            continue;
        };
        maximums += max;
        lower_limits += preference.min.get();
        if lost || entry.share_status == ShareStatus::Pinned {
            pinned += max;
            continue;
        }
        if max > 0 && !(1 <= min && min <= max && max <= preference.max.get()) {
            return violation("P1 1 <= min <= max <= hi", format!("{decided:?} {entry:?}"));
        }
        if max < preference.min.get() {
            return violation("X6 lo <= max", format!("{decided:?} {entry:?}"));
        }
        if max > 0 && (decided.min > decided.max || decided.min.get() == 0) {
            return violation("written min within 1 and max", format!("{decided:?}"));
        }
    }
    let all = policy.bounds.max.get();
    let unassigned = simulation.ledger.unassigned.get();
    let goal = all.max(lower_limits);
    if policy.kind != AssignmentKind::Duplicated && pinned == 0 && maximums + unassigned != goal {
        return violation(
            "P2 maximums and unassigned sum to MAX",
            format!(
                "{maximums} + {unassigned} != {goal}; {:?}",
                simulation.ledger
            ),
        );
    }
    moves_are_sound(simulation, sync)
}

/// Checks the laws of one decision.
fn moves_are_sound(simulation: &Simulation, sync: &SyncRecord) -> Result<(), Violation> {
    let one = Move {
        policy: &simulation.policy,
        total: &sync.total,
        members: &sync.members,
        before: &sync.before,
        decision: &sync.decision,
        after: &simulation.ledger,
    };
    one.check()
}

/// X7: the hub ends no ready pod that the demand, MIN or the floor needs, unless a landing has timed out.
///
/// Not under Duplicated: MIN, MAX and the floor are each member's own, and no member serves for another, so no landing
/// waits when the user gives all of them a smaller maximum or excludes one.
fn needed_pods_live(simulation: &Simulation, sync: &SyncRecord) -> Result<(), Violation> {
    if has_timed_out(simulation, sync) || simulation.policy.kind == AssignmentKind::Duplicated {
        return Ok(());
    }
    let ReadyPods {
        before,
        after,
        room,
    } = ReadyPods::needed(simulation, sync);
    let demand = sync.total.demand.map_or(0, |d| ceil(d / 1.1));
    let floor = sync.total.floor.map_or(0, Replicas::get);
    let needed = demand.max(simulation.policy.bounds.min.get()).max(floor);
    if after < before && after < needed.min(room) {
        return violation(
            "X7 needed ready pods live",
            format!(
                "{before} were ready, {after} are left, {needed} are needed: {}",
                sync.decision.message()
            ),
        );
    }
    Ok(())
}

/// Checks what holds after an hour of constant input.
fn at_rest(scenario: &mut Scenario, moves: &[(u32, String)]) -> Result<(), Violation> {
    let simulation = &scenario.simulation;
    let any = |is: fn(&Entry) -> bool| simulation.ledger.members.values().any(is);
    let probing = any(|e| e.backoff.is_some_and(|m| m.span.seconds > 0) || e.local.is_some());
    // Wrong estimates and local demand are tried again, at times that double.
    let is_local = scenario.local || scenario.fails;
    let local = is_local && any(|e| e.local.is_some());
    let needed = any(|e| e.needed.is_some());
    let allowed = if local || needed || probing && !scenario.truthful {
        8
    } else {
        0
    };
    if moves.len() > allowed {
        return violation("no moves under constant input", format!("{moves:?}"));
    }
    let lost = simulation.clusters.iter().any(|s| !s.reached);
    let out = simulation.clusters.iter().any(|s| !s.listed);
    let moving = matches!(
        simulation.policy.kind,
        AssignmentKind::Aggregated | AssignmentKind::DynamicWeighted | AssignmentKind::Prioritized
    );
    // Where budgets do not move, a full member leaves a floor unmet by design, and a lost one keeps what others need.
    if !lost && !out && moving {
        serves(scenario)?;
    }
    fixpoint(scenario)
}

/// Checks that a fleet without lost members serves its demand and floor in the end.
#[expect(clippy::too_many_lines, reason = "one law after the other")]
fn serves(scenario: &Scenario) -> Result<(), Violation> {
    let simulation = &scenario.simulation;
    let policy = &simulation.policy;
    let takes_part = |s: &&Cluster| !policy.affinity.exclude.contains(&s.name);
    let preference = |s: &Cluster| {
        let mut all = policy.preferences.iter();
        all.find(|p| p.targets.names.contains(&s.name))
    };
    let upper_limit = |s: &Cluster| {
        let max = preference(s).and_then(|p| p.max);
        max.unwrap_or(policy.bounds.max).get()
    };
    let lower_limit = |s: &Cluster| {
        let min = preference(s).and_then(|p| p.min);
        min.map_or(0, Replicas::get)
    };
    let clusters = || simulation.members().filter(takes_part);
    // A member whose capacity is below its lower limit, or zero, keeps budget that no member can use.
    let stuck: u32 = clusters()
        .map(|s| lower_limit(s).saturating_sub(s.capacity))
        .sum::<u32>()
        + clusters()
            .map(|s| u32::from(s.capacity == 0 && lower_limit(s) == 0))
            .sum::<u32>();
    let reach: u32 = clusters()
        .map(|s| s.capacity.min(upper_limit(s)))
        .sum::<u32>();
    let reach = reach.min(
        policy
            .bounds
            .max
            .get()
            .max(clusters().map(lower_limit).sum())
            .saturating_sub(stuck),
    );
    let placed: u32 = clusters().map(Cluster::placed).sum();
    let state = || {
        let all = clusters().map(|s| {
            format!(
                "{} r{} p{} cap{} hpa{:?} upper_limit{} lower_limit{}",
                s.name,
                s.replicas,
                s.placed(),
                s.capacity,
                s.hpa,
                upper_limit(s),
                lower_limit(s)
            )
        });
        format!(
            "{:?} {:?} reach {reach} placed {placed} load {} floor {:?} {}",
            policy.kind,
            policy.bounds,
            simulation.fleet_load(),
            simulation.floor,
            all.collect::<Vec<_>>().join("; ")
        )
    };
    if let Some(floor) = simulation.floor
        && placed < floor.min(reach)
        && (scenario.truthful)
    {
        return violation("the floor is met where capacity allows", state());
    }
    let needed = ceil(simulation.fleet_load() / (1.0 + policy.tolerance) - 1e-9);
    // Autoscalers do not see the demand that pods cannot serve because they are not ready.
    let all_ready = clusters().all(|s| s.unready == 0);
    // Members that left the fleet may still serve part of it.
    let all: u32 = simulation.members().map(Cluster::placed).sum();
    if !scenario.local && all < needed.min(reach) && scenario.truthful && all_ready {
        return violation("demand is served where capacity and MAX allow", state());
    }
    if scenario.truthful {
        for s in clusters() {
            let min = s.hpa.map_or(0, |(min, _)| min);
            let budget = simulation
                .ledger
                .members
                .get(&s.name)
                .map_or(0, |e| e.min.get());
            if min > s.capacity.max(lower_limit(s)).max(1).max(budget.min(min)) {
                return violation(
                    "X2 no floor beyond known capacity",
                    format!("{} {}", s.name, state()),
                );
            }
        }
        starving(simulation, &state)?;
    }
    lowest_first(simulation, &state)
}

/// X8: in the end no member of a lower priority runs more than its minimum while the fleet runs more than it needs.
fn lowest_first(simulation: &Simulation, state: &dyn Fn() -> String) -> Result<(), Violation> {
    let has_pending = simulation.members().any(|s| s.placed() < s.replicas);
    if simulation.policy.kind != AssignmentKind::Prioritized || has_pending {
        return Ok(());
    }
    // Pods that are not ready are no excess.
    let ready: u32 = simulation.members().map(|s| s.ready(simulation.now)).sum();
    let there = f64::from(ready);
    let load = simulation.fleet_load();
    let needed = ceil(load)
        .max(simulation.floor.unwrap_or(0))
        .max(simulation.reference.desired)
        .max(simulation.policy.bounds.min.get());
    if ready <= needed || (load - there).abs() <= simulation.policy.tolerance * there {
        return Ok(());
    }
    let priority = |s: &Cluster| {
        simulation
            .policy
            .effective_preference(&profile(&s.name))
            .and_then(|st| st.priority)
    };
    let highest = simulation
        .clusters
        .iter()
        .filter(|s| s.hpa.is_some())
        .map(priority)
        .max()
        .flatten();
    for s in simulation.clusters.iter().filter(|s| priority(s) < highest) {
        let entry = simulation.ledger.members.get(&s.name);
        let spared = entry.is_some_and(|e| e.local.is_some());
        let Some((min, _)) = s.hpa else { continue };
        if s.placed() > min && !spared {
            return violation(
                "X8 the lowest priority shrinks first",
                format!("{}: {}", s.name, state()),
            );
        }
    }
    Ok(())
}

/// X5: no member with room starves at its maximum while others have more than they use.
fn starving(simulation: &Simulation, state: &dyn Fn() -> String) -> Result<(), Violation> {
    let demands = simulation.demands();
    for (s, demand) in simulation.clusters.iter().zip(&demands) {
        let Some((_, max)) = s.hpa else { continue };
        let upper_limit = simulation
            .policy
            .effective_preference(&profile(&s.name))
            .map_or(0, |st| st.max.get());
        let starves = s.replicas == max
            && *demand > 1.1 * f64::from(s.replicas)
            && max < upper_limit.min(s.capacity)
            && s.placed() == s.replicas;
        let slack = simulation
            .clusters
            .iter()
            .filter(|o| o.name != s.name)
            .any(|o| {
                let (min, max) = o.hpa.unwrap_or_default();
                let lower_limit = simulation
                    .policy
                    .effective_preference(&profile(&o.name))
                    .map_or(0, |st| st.min.get());
                max > o.replicas.max(min).max(o.desired).max(lower_limit).max(1)
            });
        // A member that was just moved cools down.
        let entry = simulation.ledger.members.get(&s.name);
        let moved = entry.and_then(|entry| entry.moved);
        let rests = moved.is_some_and(|moved| {
            at(simulation.now).duration_since(moved) < simulation.policy.cooldown
        });
        let starves = starves && !rests;
        if starves && (slack || simulation.ledger.unassigned > n(0)) {
            return violation(
                "no member starves while there is slack",
                format!("{} demand {demand}: {}", s.name, state()),
            );
        }
    }
    Ok(())
}

fn profile(name: &str) -> crate::Profile {
    crate::Profile {
        name: name.to_owned(),
        ..Default::default()
    }
}

/// P16: the decision on its own result is the same decision.
fn fixpoint(scenario: &mut Scenario) -> Result<(), Violation> {
    let simulation = &mut scenario.simulation;
    if !scenario.truthful {
        return Ok(());
    }
    let Some(sync) = simulation.step() else {
        return Ok(());
    };
    // A retry may be due in this very step; then there is no fixpoint to check.
    if has_moved(simulation, &sync) {
        return Ok(());
    }
    let mut members = sync.members.clone();
    for decided in &sync.decision.members {
        let named = |m: &&mut crate::Member| m.profile.name == decided.name;
        let Some(member) = members.iter_mut().find(named) else {
            continue;
        };
        if decided.action.writes() {
            member.hpa =
                (decided.max > n(0)).then_some(ReplicaBounds::new(decided.min, decided.max));
        }
    }
    let now = at(simulation.now);
    let (again, ledger) = decide(
        &simulation.policy,
        &sync.total,
        &members,
        &simulation.ledger,
        now,
    );
    let writes: Vec<_> = again.members.iter().filter(|m| m.action.writes()).collect();
    if !writes.is_empty() || ledger != simulation.ledger {
        return violation(
            "P16 the decision on its own result changes nothing",
            format!("{writes:?}, {:?} after {:?}", ledger, simulation.ledger),
        );
    }
    Ok(())
}

/// How many variants of a seed run, besides the unchanged one.
#[derive(Clone, Copy)]
enum VariantSelection {
    /// One variant for one seed in three.
    Few,
    /// Every variant.
    All,
}

impl VariantSelection {
    fn of(self, seed: u64) -> Vec<Variant> {
        let variants = Variant::ALL.iter().copied();
        match self {
            Self::All => variants.collect(),
            Self::Few if seed.is_multiple_of(3) => {
                let at = usize::try_from(seed / 3).expect("small") % (Variant::ALL.len() - 1);
                vec![Variant::Unchanged, Variant::ALL[at + 1]]
            }
            Self::Few => vec![Variant::Unchanged],
        }
    }
}

/// Runs seeds and collects the violations by law.
fn run_seeds(
    seeds: Range<u64>,
    variants: VariantSelection,
) -> BTreeMap<&'static str, Vec<(u64, Variant, String)>> {
    let mut failures = BTreeMap::<_, Vec<_>>::new();
    let runs = seeds.flat_map(|seed| {
        variants
            .of(seed)
            .into_iter()
            .map(move |variant| (seed, variant))
    });
    for (seed, variant) in runs {
        if let Err(violation) = run(seed, variant) {
            let failures = failures.entry(violation.law).or_default();
            failures.push((seed, variant, violation.how));
        }
    }
    failures
}

fn report(seeds: Range<u64>, variants: VariantSelection) {
    let failures = run_seeds(seeds.clone(), variants);
    let text = failures.iter().map(|(law, all)| {
        let seeds: Vec<_> = all
            .iter()
            .take(8)
            .map(|(seed, variant, _)| (seed, variant))
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
fn simulated_fleets_converge_and_serve_their_demand() {
    report(0..750, VariantSelection::Few);
}

#[test]
fn more_simulated_fleets_converge_and_serve_their_demand() {
    report(750..1_500, VariantSelection::Few);
}

/// `cargo test --workspace --lib -- --ignored ten_thousand`.
#[test]
#[ignore = "a minute or two: `just nightly`"]
fn ten_thousand_simulated_fleets_converge_and_serve_their_demand() {
    report(1_000..6_000, VariantSelection::All);
}

#[test]
#[ignore = "a minute or two: `just nightly`"]
fn the_other_half_of_ten_thousand_simulated_fleets() {
    report(6_000..11_000, VariantSelection::All);
}

/// In this run the hub decides nothing while a landing expires, and assigns anew afterwards.
#[test]
fn a_landing_that_expired_while_nothing_was_decided_asks_for_no_pods() {
    report(4_775..4_776, VariantSelection::All);
}
