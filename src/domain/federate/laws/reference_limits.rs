//! What a fleet owes to the one autoscaler that it stands for: it is no larger than what is asked of it, whatever else
//! runs in its clusters, and it shrinks no sooner.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::federate::{Kind, ShareStatus};

use super::convergence::{Ready, Violation, calmed, has_timed_out, violation};
use super::reference::Behavior;
use super::simulation::{Simulation, SyncRecord, ceil};

/// For how many steps a demand may still be served that is over: windows, start-up, and a few decisions.
const PAST: usize = 30;

/// X11: under constant demand the count never rises above what the demand, the floor and the minimum ask for.
///
/// It may be above that where it starts, and where others get a share of the minimum than those who run the pods.
#[derive(Debug, Default)]
pub(super) struct Count {
    demands: VecDeque<f64>,
    start: u32,
    minima: BTreeMap<String, u32>,
    last: u32,
}

impl Count {
    /// After one step, in which nothing changed if it is `calm`.
    pub(super) fn note(&mut self, simulation: &Simulation, calm: bool) -> Result<(), Violation> {
        self.demands.push_back(simulation.most());
        if self.demands.len() > PAST {
            self.demands.pop_front();
        }
        let count = count(simulation);
        let rises = count > self.last;
        self.last = count;
        let minima = minima(simulation);
        if !calm || self.minima != minima {
            let runs = simulation.members().map(|cluster| {
                let least = minima.get(&cluster.name).copied();
                cluster.replicas.max(least.unwrap_or(0))
            });
            self.start = if calm { self.start } else { 0 }.max(runs.sum());
            self.minima = minima;
        }
        let most = self.start.max(self.asked(simulation));
        if calm && rises && count > most {
            return violation(
                "X11 the count is what demand, floor and minimum ask for",
                format!("{count} replicas, at most {most}: {:?}", simulation.ledger),
            );
        }
        Ok(())
    }

    /// What is asked for: the demand with the tolerance and a replica of each member for rounding, the floor and the minima.
    /// It is a sum, because one member may run for the demand and another for the floor. Pods that are not ready serve
    /// nothing of it.
    fn asked(&self, simulation: &Simulation) -> u32 {
        let demand = self.demands.iter().copied().fold(0.0, f64::max);
        let members = u32::try_from(simulation.members().count()).expect("few");
        let demand = ceil(demand * (1.0 + simulation.policy.tolerance)) + members;
        let floor = simulation.floor.unwrap_or(0);
        let floor = match simulation.policy.kind {
            Kind::Duplicated => floor * members,
            _ => floor,
        };
        let unready: u32 = simulation.members().map(|cluster| cluster.unready).sum();
        // Of who is out of reach is known what ran there then.
        let unseen = simulation.members().filter(|cluster| !cluster.reached);
        let unseen = unseen.filter_map(|cluster| cluster.seen.as_ref()?.pods);
        let unseen: u32 = unseen.map(|pods| pods.replicas.get()).sum();
        demand + floor + self.minima.values().sum::<u32>() + unready + unseen
    }
}

/// The minimum of everybody with a share.
fn minima(simulation: &Simulation) -> BTreeMap<String, u32> {
    let entries = simulation.ledger.members.iter();
    let sharing =
        entries.filter(|(_, e)| e.share_status == ShareStatus::Candidate && e.max.get() > 0);
    sharing
        .map(|(name, entry)| (name.clone(), entry.min.get()))
        .collect()
}

/// Pods within their shares: what is kept beyond one ends when others have taken its place, and what has no node does not
/// run.
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

/// What X12 is measured by is not what the rules would like it to be: all that has a share is counted, and what a landing
/// takes for having served is no less than what ran in shares.
pub(super) fn measures_are_true(
    simulation: &Simulation,
    sync: &SyncRecord,
) -> Result<(), Violation> {
    let shares = |name: &str| {
        let entry = sync.before.members.get(name);
        entry.is_some_and(|entry| entry.max.get() > 0)
    };
    let counts = |name: &str| simulation.reference.counted.contains(name);
    // Where the policy means no member to which it gives a weight, all that it means weigh the same; who had a share by that
    // is the fleet's until it has left.
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
    let taken = begun.and_then(|landing| landing.served);
    if taken.is_some_and(|taken| taken.get() < served) {
        return violation(
            "X12 a landing knows what served",
            format!("{served} ran in shares, {taken:?} are taken for it"),
        );
    }
    Ok(())
}

/// X12: the hub ends no ready pod sooner than one autoscaler over the whole, with the same behavior, would.
///
/// Not where the user takes the room away, not after a landing has timed out, and not under Duplicated, where every
/// member is a whole.
pub(super) fn no_pod_ends_sooner(
    simulation: &Simulation,
    sync: &SyncRecord,
) -> Result<(), Violation> {
    if simulation.policy.kind == Kind::Duplicated || has_timed_out(simulation, sync) {
        return Ok(());
    }
    let own = Ready::of_shares(simulation, sync);
    let Ready { after, room, .. } = Ready::of_all_shares(simulation, sync);
    // What started in the place of pods that are to end is not what one autoscaler would keep.
    let landing = sync.before.landing.or(simulation.ledger.landing);
    let served = landing.and_then(|landing| landing.served);
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
    // The new behavior has to be in force before anything happens.
    for _ in 0..25 {
        simulation.step();
    }
    let (before, served) = (ready(simulation), ceil(simulation.whole()));
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
fn a_dip_that_is_shorter_than_the_window_takes_no_replica_and_a_longer_one_none_before_its_end() {
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
