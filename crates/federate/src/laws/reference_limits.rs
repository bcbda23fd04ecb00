//! X11 and X12: a fleet is no larger than its demand, floor and minimum need, and shrinks no sooner than the reference
//! autoscaler.

use std::collections::{BTreeMap, VecDeque};

use crate::{AssignmentKind, ShareStatus};

use super::fixtures::{Violation, ceil, violation};
use super::ready_pods::{ReadyPods, has_timed_out};
use super::reference::Behavior;
use super::scenario::calmed;
use super::simulation::{Simulation, SyncRecord};

/// For how many steps a past demand may still be served: windows, start-up, and a few decisions.
const PAST: usize = 30;

/// X11: under constant demand the count never rises above what the demand, the floor and the minimum need.
///
/// It may start above that, and be above it where members that run no pods get a share of the minimum.
#[derive(Debug, Default)]
pub struct Count {
    demands: VecDeque<f64>,
    start: u32,
    minimums: BTreeMap<String, u32>,
    last: u32,
}

impl Count {
    /// Checks the count after one step; `calm` means that nothing changed in it.
    pub fn note(&mut self, simulation: &Simulation, calm: bool) -> Result<(), Violation> {
        self.demands.push_back(simulation.total_load());
        if self.demands.len() > PAST {
            self.demands.pop_front();
        }
        let count = count(simulation);
        let rises = count > self.last;
        self.last = count;
        let minimums = minimums(simulation);
        if !calm || self.minimums != minimums {
            let runs = simulation.members().map(|cluster| {
                let least = minimums.get(&cluster.name).copied();
                cluster.replicas.max(least.unwrap_or(0))
            });
            self.start = if calm { self.start } else { 0 }.max(runs.sum());
            self.minimums = minimums;
        }
        let most = self.start.max(self.requested(simulation));
        if calm && rises && count > most {
            return violation(
                "X11 the count is what demand, floor and minimum ask for",
                format!("{count} replicas, at most {most}: {:?}", simulation.ledger),
            );
        }
        Ok(())
    }

    /// The replicas needed: the demand with the tolerance and one replica of each member for rounding, the floor and
    /// the minimums. It is a sum, because one member may run for the demand and another for the floor. Pods that are
    /// not ready serve nothing of it.
    fn requested(&self, simulation: &Simulation) -> u32 {
        let demand = self.demands.iter().copied().fold(0.0, f64::max);
        let members = u32::try_from(simulation.members().count()).expect("few");
        let demand = ceil(demand * (1.0 + simulation.policy.tolerance)) + members;
        let floor = simulation.floor.unwrap_or(0);
        let floor = match simulation.policy.kind {
            AssignmentKind::Duplicated => floor * members,
            _ => floor,
        };
        let unready: u32 = simulation.members().map(|cluster| cluster.unready).sum();
        // An unreachable member counts with its last observation.
        let unseen = simulation.members().filter(|cluster| !cluster.reached);
        let unseen = unseen.filter_map(|cluster| cluster.seen.as_ref()?.pods);
        let unseen: u32 = unseen.map(|pods| pods.replicas.get()).sum();
        demand + floor + self.minimums.values().sum::<u32>() + unready + unseen
    }
}

/// The minimum of every member with a share.
fn minimums(simulation: &Simulation) -> BTreeMap<String, u32> {
    let entries = simulation.ledger.members.iter();
    let sharing =
        entries.filter(|(_, e)| e.share_status == ShareStatus::Candidate && e.max.get() > 0);
    sharing
        .map(|(name, entry)| (name.clone(), entry.min.get()))
        .collect()
}

/// Placed pods within their shares: those beyond a share end when others have replaced them.
fn count(simulation: &Simulation) -> u32 {
    let share = |name: &str| {
        let entry = simulation.ledger.members.get(name);
        let entry = entry.filter(|entry| entry.share_status == ShareStatus::Candidate);
        entry.map_or(0, |entry| entry.max.get())
    };
    let within = simulation
        .members()
        .map(|cluster| cluster.placed().min(share(&cluster.name)));
    within.sum()
}

/// The inputs of X11 and X12 are correct: every member with a share is counted, and a landing starts from no less than
/// what ran within shares.
pub fn measures_are_true(simulation: &Simulation, sync: &SyncRecord) -> Result<(), Violation> {
    let shares = |name: &str| {
        let entry = sync.before.members.get(name);
        entry.is_some_and(|entry| entry.max.get() > 0)
    };
    let counts = |name: &str| simulation.reference.counted.contains(name);
    // If the policy gives no selected member a weight, all weigh the same. A member that had a share for that reason
    // counts until it has left.
    let is_member = |name: &str| simulation.members().any(|cluster| cluster.name == name);
    let is_named = sync.members.iter().any(|member| {
        let is_meant = simulation
            .policy
            .effective_preference(&member.profile)
            .is_some();
        is_meant && is_member(&member.profile.name)
    });
    let mut served = 0;
    for member in &sync.members {
        let name = member.profile.name.as_str();
        let is_missed = is_member(name) && shares(name) && !counts(name);
        let is_new = !sync.before.members.contains_key(name);
        if is_missed || !is_member(name) && is_named && is_new && counts(name) {
            return violation(
                "X11 the fleet's pods are counted",
                format!("{name}: {:?}", simulation.reference),
            );
        }
        let entry = sync.before.members.get(name).filter(|_| shares(name));
        let most = entry.map_or(0, |entry| entry.written.get());
        served += member.pods.map_or(0, |pods| pods.placed().get()).min(most);
    }
    let begun = simulation
        .ledger
        .landing
        .filter(|_| sync.before.landing.is_none());
    let taken = begun.map(|landing| landing.served);
    if taken.is_some_and(|taken| taken.get() < served) {
        return violation(
            "X12 a landing knows what served",
            format!("{served} ran in shares, {taken:?} are taken for it"),
        );
    }
    Ok(())
}

/// X12: the hub ends no ready pod sooner than the reference autoscaler with the same behavior.
///
/// Not where the user lowers bounds, not after a landing has timed out, and not under Duplicated, where members are
/// independent.
pub fn no_pod_ends_sooner(simulation: &Simulation, sync: &SyncRecord) -> Result<(), Violation> {
    if simulation.policy.kind == AssignmentKind::Duplicated || has_timed_out(simulation, sync) {
        return Ok(());
    }
    let own = ReadyPods::of_shares(simulation, sync);
    let ReadyPods { after, room, .. } = ReadyPods::of_all_shares(simulation, sync);
    // The reference would not keep pods that were started to replace others.
    let landing = sync.before.landing.or(simulation.ledger.landing);
    let served = landing.map(|landing| landing.served);
    let replaced = served.into_iter().chain(sync.before.handover).min();
    let least = simulation.reference.desired.min(room);
    let least = replaced.map_or(least, |replaced| least.min(replaced.get()));
    if own.after < own.before && after < least {
        return violation(
            "X12 no ready pod ends sooner than under one autoscaler",
            format!(
                "{} were ready, {after} are left, one autoscaler would keep {least}: {}",
                own.before,
                sync.decision.message()
            ),
        );
    }
    Ok(())
}

/// A fleet at rest whose load falls to a third, for shorter than the window or for good.
fn dip(seed: u64, behavior: Behavior, steps: Option<u32>) -> Result<(), Violation> {
    let mut scenario = calmed(seed);
    let simulation = &mut scenario.simulation;
    simulation.behavior = behavior;
    // Let the new behavior take effect first.
    for _ in 0..25 {
        simulation.step();
    }
    let (before, served) = (ready(simulation), ceil(simulation.fleet_load()));
    let loads: Vec<f64> = simulation
        .clusters
        .iter()
        .map(|cluster| cluster.load)
        .collect();
    let (load, began) = (simulation.load, simulation.now);
    let back = steps.unwrap_or(u32::MAX);
    for step in 0..back.min(40) + 20 {
        let part = if step < back { 0.3 } else { 1.0 };
        simulation.load = load * part;
        for (cluster, load) in simulation.clusters.iter_mut().zip(&loads) {
            cluster.load = load * part;
        }
        simulation.step();
        let lasted = simulation.now - began;
        let waits = steps.is_some() || lasted <= behavior.window;
        if waits && ready(simulation) < before.min(served) {
            let left = ready(simulation);
            let how = format!("{left} of {before} are ready {lasted} s after the load fell");
            return violation("X12 a dip shorter than the window takes no replica", how);
        }
    }
    Ok(())
}

fn ready(simulation: &Simulation) -> u32 {
    simulation
        .members()
        .map(|cluster| cluster.ready(simulation.now))
        .sum()
}

#[test]
fn a_dip_shorter_than_the_window_ends_no_pod_and_a_longer_one_none_before_the_window_ends() {
    let mut violations = Vec::new();
    for seed in 0..30 {
        let window = [60, 180, 300][usize::try_from(seed % 3).expect("small")];
        let behavior = Behavior {
            window,
            policy: None,
        };
        // Half a minute less than the window, for the autoscalers' own periods.
        let short = u32::try_from(window / 30 - 1).expect("small");
        for steps in [Some(1), Some(short), None] {
            violations.extend(
                dip(seed, behavior, steps)
                    .err()
                    .map(|how| (seed, steps, how)),
            );
        }
    }
    assert!(
        violations.is_empty(),
        "{} runs: {:?}",
        violations.len(),
        &violations[..violations.len().min(4)]
    );
}
