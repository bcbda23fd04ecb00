//! R3: assigns budgets when the spec, the set of candidates or the merged preferences of a candidate have changed.
//! Ready pods stay until others are ready: see `landing`.
//!
//! A member that cannot be changed keeps its last bounds in every assignment. The others divide what is left of MAX,
//! but none gets less than its share of MIN; therefore maximums may add up to more than MAX.

use jiff::Timestamp;

use crate::federate::{
    AssignmentKind, Budget, Budgets, Candidate, Health, Ledger, Reason, ShareStatus,
    WorkloadSource, assign as divide, weights,
};
use crate::{ReplicaBounds, Replicas};

use super::fleet::RuleContext;
use super::landing;
use super::member::{MemberRole, MemberState, sum};

/// Assigns budgets if something has changed; returns whether it did.
pub(super) fn assign(fleet: &mut RuleContext<'_>) -> bool {
    let changed = fleet.vanished || fleet.members.iter().any(has_changed);
    if fleet.ledger.generation == Some(fleet.policy.generation) && !changed {
        record_recovery(fleet);
        fill_missing_preferences(fleet);
        return false;
    }
    let candidates: Vec<_> = fleet
        .active()
        .map(|state| candidate(state, fleet))
        .collect();
    let budgets = budgets(fleet, &candidates);
    let weights = weights(fleet.policy, &candidates);
    store_estimates(fleet, &candidates, &weights);
    // Before the budgets are stored: afterwards it cannot be told whose pods have served so far.
    let had_share: Vec<bool> = fleet.members.iter().map(serves_for_fleet).collect();
    store_budgets(fleet, &budgets);
    fleet.ledger.generation = Some(fleet.policy.generation);
    fleet.ledger.unassigned = budgets.unassigned;
    // What was observed under the former budgets does not count for the new ones.
    fleet.ledger.excess_since = None;
    fleet.ledger.idle_since = None;
    if fleet.policy.kind != AssignmentKind::Duplicated {
        let members = fleet.members.iter().zip(had_share);
        let sharing = members.filter(|(state, had)| *had || state.is_active() && state.max() > 0);
        let served = sum(sharing.map(|(state, _)| state.placed));
        landing::begin(fleet, served);
    }
    true
}

/// Whether the member's pods are the fleet's because it has or had a share, and it has not been unavailable for long.
fn serves_for_fleet(state: &MemberState<'_>) -> bool {
    let is_gone =
        state.role == MemberRole::Failed && state.entry.share_status == ShareStatus::Failed;
    state.known && state.counted && !is_gone
}

/// Whether a member's role or merged preferences differ from those of the last assignment.
fn has_changed(state: &MemberState<'_>) -> bool {
    match state.role {
        MemberRole::Active => {
            let before = state.entry.preference.unwrap_or(state.preference);
            !state.known
                || state.entry.share_status != ShareStatus::Candidate
                || before != state.preference
        }
        // They keep their share, so they are no reason to divide again.
        MemberRole::Lost | MemberRole::Foreign => false,
        MemberRole::Failed | MemberRole::Recovering => {
            state.entry.share_status != ShareStatus::Failed
        }
        MemberRole::Draining => state.entry.share_status != ShareStatus::Draining,
        MemberRole::Outside(_) => state.known && state.entry.has_share(),
    }
}

fn record_recovery(fleet: &mut RuleContext<'_>) {
    let now = fleet.now;
    for state in &mut fleet.members {
        state.entry.recovered = recovered(state, now);
    }
}

/// Since when a member that has lost its share is healthy again. Also a silence that is tolerated begins that time anew.
fn recovered(state: &MemberState<'_>, now: Timestamp) -> Option<Timestamp> {
    let since = state.entry.recovered.or(Some(now));
    let is_healthy = state.member.health == Health::Ready;
    since.filter(|_| state.role == MemberRole::Recovering && is_healthy)
}

/// The next ledger of a fleet to which nothing can be assigned: unchanged, except since when members are healthy again.
/// Without that, a fleet all of whose members have lost their share would wait forever.
pub(super) fn waiting(fleet: &RuleContext<'_>, ledger: &Ledger) -> Ledger {
    let mut ledger = ledger.clone();
    for state in &fleet.members {
        if let Some(entry) = ledger.members.get_mut(state.name()) {
            entry.recovered = recovered(state, fleet.now);
        }
    }
    ledger
}

/// Stores the merged preferences that an older ledger lacks: nothing is known to have changed.
fn fill_missing_preferences(fleet: &mut RuleContext<'_>) {
    for state in fleet.active_mut() {
        state.entry.preference = state.entry.preference.or(Some(state.preference));
    }
}

/// A member as a candidate, with its present estimate and preferences.
pub(super) fn candidate<'a>(state: &MemberState<'a>, fleet: &RuleContext<'_>) -> Candidate<'a> {
    let backed_off = state.is_backed_off(fleet.now);
    let known = state.member.capacity.is_some() && !state.preference.elastic || backed_off;
    let mut preference = state.preference;
    // A taint keeps a member from a larger share, not from the one it has.
    preference.max = Replicas::new(state.upper_limit().max(state.lower_limit()));
    // A proved capacity counts even if the member is declared elastic.
    preference.elastic &= !backed_off;
    Candidate {
        name: state.name(),
        preference,
        capacity: known.then_some(state.capacity),
        demand: state.lasting_demand(),
        hosts: state.replicas > 0,
    }
}

fn budgets(fleet: &RuleContext<'_>, candidates: &[Candidate<'_>]) -> Budgets {
    let bounds = fleet.policy.bounds;
    let pinned = || fleet.members.iter().filter(|state| state.role.is_pinned());
    if fleet.policy.kind == AssignmentKind::Duplicated || pinned().next().is_none() {
        return divide(fleet.policy, bounds, candidates);
    }
    // Divided among all first, so that each of the others gets its own share of MIN.
    let lost = pinned().map(|state| candidate(state, fleet));
    let all: Vec<_> = candidates.iter().copied().chain(lost).collect();
    let all_budgets = divide(fleet.policy, bounds, &all);
    let least = |name: &str| {
        all_budgets
            .members
            .get(name)
            .map_or(Replicas::ZERO, |b| b.min)
    };
    let raised = candidates.iter().copied().map(|mut candidate| {
        let preference = &mut candidate.preference;
        preference.min = preference.min.max(least(candidate.name));
        preference.max = preference.max.max(preference.min);
        candidate
    });
    let raised: Vec<_> = raised.collect();
    let left = |bound: Replicas, held: u32| Replicas::new(bound.get().saturating_sub(held));
    let bounds = ReplicaBounds::new(
        left(bounds.min, sum(pinned().map(MemberState::min))),
        left(bounds.max, sum(pinned().map(MemberState::max))),
    );
    divide(fleet.policy, bounds, &raised)
}

/// Stores capacities, weights and the order of filling: floors are divided by them until the next assignment.
pub(super) fn store_estimates(
    fleet: &mut RuleContext<'_>,
    candidates: &[Candidate<'_>],
    weights: &[u64],
) {
    let is_prioritized = fleet.policy.kind == AssignmentKind::Prioritized;
    let mut order: Vec<_> = candidates.iter().zip(weights).enumerate().collect();
    // `b` is compared with `a`, so that the larger one comes first; equal ones stay in the order of the members.
    order.sort_by(|(_, (a, x)), (_, (b, y))| {
        if is_prioritized {
            b.preference.priority.cmp(&a.preference.priority)
        } else {
            b.hosts.cmp(&a.hosts).then(y.cmp(x))
        }
    });
    let mut ranks = vec![0; order.len()];
    // Members of one priority are filled together, under the other policies one after the other.
    let tiers = order.chunk_by(|(_, (a, _)), (_, (b, _))| {
        is_prioritized && a.preference.priority == b.preference.priority
    });
    for (rank, tier) in (0u32..).zip(tiers) {
        for (at, _) in tier {
            if let Some(place) = ranks.get_mut(*at) {
                *place = rank;
            }
        }
    }
    let estimates = candidates.iter().zip(weights).zip(ranks);
    for (state, ((candidate, weight), rank)) in fleet.active_mut().zip(estimates) {
        state.entry.capacity = candidate.capacity.map(Replicas::new);
        state.entry.weight = *weight;
        state.entry.rank = rank;
    }
}

/// Stores each member's budget and share status.
fn store_budgets(fleet: &mut RuleContext<'_>, budgets: &Budgets) {
    let (now, policy) = (fleet.now, fleet.policy);
    for state in &mut fleet.members {
        state.entry.recovered = recovered(state, now);
        match state.role {
            MemberRole::Active => {
                let budget = budgets.members.get(state.name()).copied();
                take_budget(state, budget.unwrap_or_default(), now);
                if state.member.pods.is_none() && policy.source == WorkloadSource::Hub {
                    let start = budget.unwrap_or_default().start(None, policy.may_sleep());
                    state.write = Some(start.get());
                }
            }
            MemberRole::Lost | MemberRole::Foreign => {
                state.entry.share_status = ShareStatus::Pinned;
            }
            MemberRole::Failed | MemberRole::Recovering => {
                state.entry.share_status = ShareStatus::Failed;
                state.set_budget(0, 0);
            }
            MemberRole::Draining => {
                state.known = true;
                state.entry.share_status = ShareStatus::Draining;
                state.set_budget(0, 0);
            }
            MemberRole::Outside(_) => state.known = false,
        }
    }
}

fn take_budget(state: &mut MemberState<'_>, budget: Budget, now: Timestamp) {
    let Budget { min, max } = budget;
    if (state.entry.min, state.entry.max) != (min, max) {
        state.entry.moved = Some(now);
    }
    let (is_new, capacity, elastic) = (!state.known, state.capacity, state.preference.elastic);
    state.known = true;
    state.entry.share_status = ShareStatus::Candidate;
    state.entry.preference = Some(state.preference);
    state.set_budget(min.get(), max.get());
    // What it needed beyond its former maximum says nothing about the new one.
    state.entry.saturated_since = None;
    if is_new {
        state.entry.written = max;
    }
    let reason = if max == Replicas::ZERO {
        Reason::NoBudget
    } else {
        Reason::Assigned
    };
    let known = state.entry.capacity.is_some();
    state.add_reason(reason, || {
        if max == Replicas::ZERO {
            String::new()
        } else if elastic && !known {
            "its share of the budget by the policy; elastic, so its capacity counts as maxReplicas"
                .to_owned()
        } else if known {
            format!("its share of the budget by the policy, with a capacity of {capacity}")
        } else {
            "its share of the budget by the policy, with an unknown capacity".to_owned()
        }
    });
}
