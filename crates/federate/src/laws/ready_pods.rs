//! How many ready pods one decision leaves: before its writes, after them, and at most.

use crate::Ledger;

use super::fixtures::{at, n};
use super::simulation::{Simulation, SyncRecord};

/// The ready pods of a fleet around one decision.
pub struct ReadyPods {
    /// Before it.
    pub before: u32,
    /// After its writes, if those that are not ready end first.
    pub after: u32,
    /// How many may be left at most, by the bounds that it writes.
    pub room: u32,
}

impl ReadyPods {
    /// Pods that may be needed: during a landing also those that never were the fleet's.
    pub fn needed(simulation: &Simulation, sync: &SyncRecord) -> Self {
        let lands = sync.before.landing.is_some() || simulation.ledger.landing.is_some();
        Self::around(simulation, sync, |name| {
            let is_known = sync.before.members.contains_key(name);
            lands || !is_known || shares(&sync.before, name)
        })
    }

    /// Pods of members that had a share.
    pub fn of_shares(simulation: &Simulation, sync: &SyncRecord) -> Self {
        Self::around(simulation, sync, |name| {
            let is_known = sync.before.members.contains_key(name);
            shares(&sync.before, name) || !is_known && shares(&simulation.ledger, name)
        })
    }

    /// Pods of members that had a share or got one.
    pub fn of_all_shares(simulation: &Simulation, sync: &SyncRecord) -> Self {
        Self::around(simulation, sync, |name| {
            shares(&sync.before, name) || shares(&simulation.ledger, name)
        })
    }

    fn around(simulation: &Simulation, sync: &SyncRecord, is_meant: impl Fn(&str) -> bool) -> Self {
        let (mut before, mut after, mut room) = (0, 0, 0);
        for cluster in simulation
            .members()
            .filter(|cluster| is_meant(&cluster.name))
        {
            let seen = sync.members.iter().find(|m| m.profile.name == cluster.name);
            let decided = sync.decision.member(&cluster.name);
            let (Some(seen), Some(decided)) = (seen, decided) else {
                continue;
            };
            let count = seen.pods.map_or(0, |pods| pods.ready.get());
            // A new member is trusted up to MAX.
            let count = match sync.before.members.get(&cluster.name) {
                Some(_) => count,
                None => count.min(simulation.policy.bounds.max.get()),
            };
            let untouched = !decided.action.writes() || !cluster.reached;
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

/// Whether a landing has timed out: then pods end even if the others are not ready.
pub fn has_timed_out(simulation: &Simulation, sync: &SyncRecord) -> bool {
    let now = at(simulation.now);
    sync.before
        .landing
        .is_some_and(|landing| now >= landing.until)
}
