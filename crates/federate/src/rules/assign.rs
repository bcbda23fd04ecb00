//! R3: assigns budgets when the spec, the set of candidates or the merged preferences of a candidate have changed, and
//! when shares are written that were only shown before. Ready pods stay until others are ready: see `landing`.
//!
//! A member that cannot be changed keeps its last bounds in every assignment. The others divide what is left of MAX,
//! but none gets less than its share of MIN; therefore maximums may add up to more than MAX.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    Budget, Budgets, Candidate, EffectivePreference, Entry, Health, Ledger, Policy, Reason,
    ShareStatus, assign as divide, scheme::Parties,
};
use foretide_domain::{ReplicaBounds, Replicas};

use super::fleet::{RuleContext, Step};
use super::landing;
use super::member::{Assigned, Change, Effect, FloorBasis, MemberState, sum};
use super::participation::MemberRole;

/// Assigns budgets if something has changed.
pub fn assign<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let is_first = fleet.ledger.previewed && !fleet.policy.previewed;
    let changed = is_first || fleet.vanished || fleet.members.iter().any(has_changed);
    if fleet.ledger.generation == Some(fleet.policy.generation) && !changed {
        return Step::of(waits(fleet));
    }
    let candidates: Vec<_> = fleet.active().map(candidate).collect();
    let budgets = budgets(fleet, &candidates);
    let by_name = floor_bases(fleet.policy, &candidates);
    let mut shares = Vec::with_capacity(fleet.members.len());
    for state in &fleet.members {
        let budget = budgets.members.get(state.name()).copied();
        let basis = by_name.get(state.name()).copied();
        shares.push(share(fleet, state, budget.unwrap_or_default(), basis));
    }
    let ledger = Ledger {
        generation: Some(fleet.policy.generation),
        unassigned: budgets.unassigned,
        // What was observed under the former budgets does not count for the new ones.
        excess_since: None,
        idle_since: None,
        landing: landing::new_landing(fleet, served(fleet, &shares)).or(fleet.ledger.landing),
        ..fleet.ledger.clone()
    };
    let members = fleet.members.iter().zip(shares);
    Step::of(members.map(|(state, share)| change(state, share))).with_ledger(ledger)
}

/// The replicas that served the fleet until now, those of members with a new share among them.
fn served(fleet: &RuleContext<'_>, shares: &[Assigned]) -> u32 {
    let members = fleet.members.iter().zip(shares);
    let serving = members.filter(|(state, share)| {
        let has_share = state.is_active() && share.entry.max > Replicas::ZERO;
        serves_for_fleet(state) || has_share
    });
    sum(serving.map(|(state, _)| state.placed))
}

/// True if the member's pods are the fleet's because it has or had a share, and it has not been unavailable for long.
fn serves_for_fleet(state: &MemberState<'_>) -> bool {
    let is_gone =
        state.role == MemberRole::Failed && state.entry.share_status == ShareStatus::Failed;
    state.known && state.is_counted() && !is_gone
}

/// True if a member's role or merged preferences differ from those of the last assignment.
fn has_changed(state: &MemberState<'_>) -> bool {
    match state.role {
        MemberRole::Active => {
            !state.known
                || state.entry.share_status != ShareStatus::Candidate
                || merged_before(state) != state.preference
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

/// The merged preferences of the last assignment; those of a ledger without any count as unchanged.
fn merged_before(state: &MemberState<'_>) -> EffectivePreference {
    state.entry.preference.unwrap_or(state.preference)
}

/// Since when members are healthy again, and what their preferences are, where nothing is assigned.
fn waits(fleet: &RuleContext<'_>) -> impl Iterator<Item = Change> {
    fleet.members.iter().map(|state| {
        let active = state.is_active().then(|| merged_before(state));
        let effect = Effect::Wait {
            recovered: recovered(state, fleet.now),
            preference: active.or(state.entry.preference),
        };
        Change::silent(state, effect)
    })
}

/// Since when a member that has lost its share is healthy again. Also a silence that is tolerated begins that time anew.
fn recovered(state: &MemberState<'_>, now: Timestamp) -> Option<Timestamp> {
    let since = state.entry.recovered.or(Some(now));
    let is_healthy = state.member.health == Health::Ready;
    since.filter(|_| state.role == MemberRole::Recovering && is_healthy)
}

/// The next ledger of a fleet to which nothing can be assigned: unchanged, except since when members are healthy again.
/// Without that, a fleet all of whose members have lost their share would wait forever.
pub fn waiting(fleet: &RuleContext<'_>, ledger: &Ledger) -> Ledger {
    let mut ledger = ledger.clone();
    for state in &fleet.members {
        if let Some(entry) = ledger.members.get_mut(state.name()) {
            entry.recovered = recovered(state, fleet.now);
        }
    }
    ledger
}

/// A member as a candidate, with its present estimate and preferences.
pub fn candidate<'a>(state: &MemberState<'a>) -> Candidate<'a> {
    candidate_with(state, state.max())
}

/// The same as [`candidate`], if its maximum were `max`.
pub fn candidate_with<'a>(state: &MemberState<'a>, max: u32) -> Candidate<'a> {
    let backed_off = state.proved.is_some();
    let known = state.member.capacity.is_some() && !state.preference.elastic || backed_off;
    let mut preference = state.preference;
    // A taint keeps a member from a larger share, not from the one it has.
    preference.max = Replicas::new(state.upper_limit_with(max).max(state.lower_limit()));
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
    if fleet.holders().next().is_none() {
        return divide(fleet.policy, bounds, candidates);
    }
    // Divided among all first, so that each of the others gets its own share of MIN.
    let lost = fleet.holders().map(candidate);
    let all: Vec<_> = candidates.iter().copied().chain(lost).collect();
    let shares = divide(fleet.policy, bounds, &all).members;
    let mut raised = candidates.to_vec();
    for candidate in &mut raised {
        let share = shares.get(candidate.name).copied().unwrap_or_default();
        let preference = &mut candidate.preference;
        preference.min = preference.min.max(share.min);
        preference.max = preference.max.max(preference.min);
    }
    let min_held = sum(fleet.holders().map(MemberState::min));
    let max_held = sum(fleet.holders().map(MemberState::max));
    let left = ReplicaBounds::new(
        bounds.min.saturating_sub(Replicas::new(min_held)),
        bounds.max.saturating_sub(Replicas::new(max_held)),
    );
    divide(fleet.policy, left, &raised)
}

/// Capacities, weights and the order of filling, by member: floors are divided by them until the next assignment.
pub fn floor_bases<'a>(
    policy: &Policy,
    candidates: &[Candidate<'a>],
) -> BTreeMap<&'a str, FloorBasis> {
    let Parties { recipients, ranks } = Parties::new(policy, candidates);
    let mut by_name = BTreeMap::new();
    for ((candidate, recipient), rank) in candidates.iter().zip(recipients).zip(ranks) {
        let basis = FloorBasis {
            capacity: candidate.capacity.map(Replicas::new),
            weight: recipient.weight,
            rank,
        };
        by_name.insert(candidate.name, basis);
    }
    by_name
}

/// The share of a member. `budget` and `basis` are those of the division, for an active one.
fn share(
    fleet: &RuleContext<'_>,
    state: &MemberState<'_>,
    budget: Budget,
    basis: Option<FloorBasis>,
) -> Assigned {
    let mut entry = state.entry;
    entry.recovered = recovered(state, fleet.now);
    let (mut known, mut write) = (state.known, None);
    match state.role {
        MemberRole::Active => {
            entry.set_floor_basis(basis.unwrap_or_else(|| entry.floor_basis()));
            take_budget(&mut entry, state, budget, fleet.now);
            known = true;
            // Of another source it is no candidate then.
            if state.member.pods.is_none() {
                write = Some(budget.start(None, fleet.policy.may_sleep()).get());
            }
        }
        MemberRole::Lost | MemberRole::Foreign => entry.share_status = ShareStatus::Pinned,
        MemberRole::Failed | MemberRole::Recovering => {
            entry.share_status = ShareStatus::Failed;
            entry.set_budget(Budget::default());
        }
        MemberRole::Draining => {
            known = true;
            entry.share_status = ShareStatus::Draining;
            entry.set_budget(Budget::default());
        }
        MemberRole::Outside(_) => known = false,
    }
    Assigned {
        entry,
        known,
        write,
    }
}

fn take_budget(entry: &mut Entry, state: &MemberState<'_>, budget: Budget, now: Timestamp) {
    if entry.budget() != budget {
        entry.moved = Some(now);
    }
    entry.share_status = ShareStatus::Candidate;
    entry.preference = Some(state.preference);
    entry.set_budget(budget);
    // What it needed beyond its former maximum says nothing about the new one.
    entry.saturated_since = None;
    if !state.known {
        entry.written = budget.max;
    }
}

/// The share as a change of its member; only an active one gets a reason.
fn change(state: &MemberState<'_>, share: Assigned) -> Change {
    let Entry { max, capacity, .. } = share.entry;
    let effect = Effect::Assign(Box::new(share));
    if !state.is_active() {
        return Change::silent(state, effect);
    }
    if max == Replicas::ZERO {
        return Change::because(state, effect, Reason::NoBudget, String::new());
    }
    let by = match capacity {
        Some(_) => format!(", with a capacity of {}", state.capacity),
        None if state.preference.elastic => {
            "; elastic, so its capacity counts as maxReplicas".to_owned()
        }
        None => ", with an unknown capacity".to_owned(),
    };
    let text = format!("its share of the budget by the policy{by}");
    Change::because(state, effect, Reason::Assigned, text)
}
