//! R3: budgets are divided anew, because the spec, the set of candidates or what the policy says of one changed. It
//! refuses to end ready pods: landing does that when others serve.
//!
//! A member that cannot be changed keeps its last bounds in every assignment. The others divide what is left of MAX,
//! but none gets less than its share of MIN: maxima may sum to more than MAX by that.

use std::cmp::Reverse;

use jiff::Timestamp;

use crate::domain::federate::{
    Budget, Budgets, Candidate, Kind, Ledger, Reason, ShareStatus, WorkloadSource,
    assign as divide, weights,
};
use crate::domain::{ReplicaBounds, Replicas};

use super::fleet::{Fleet, MemberState, Role, sum};
use super::landing;

/// Assigns if there is a cause; true if it did.
pub(super) fn assign(fleet: &mut Fleet<'_>) -> bool {
    let changed = fleet.vanished || fleet.seats.iter().any(is_news);
    if fleet.ledger.generation == Some(fleet.policy.generation) && !changed {
        note_recovery(fleet);
        note_standings(fleet);
        return false;
    }
    let candidates: Vec<_> = fleet.active().map(|seat| candidate(seat, fleet)).collect();
    let budgets = budgets(fleet, &candidates);
    let weights = weights(fleet.policy, &candidates);
    store_estimates(fleet, &candidates, &weights);
    let had_share: Vec<bool> = fleet.seats.iter().map(has_share).collect();
    settle(fleet, &budgets);
    fleet.ledger.generation = Some(fleet.policy.generation);
    fleet.ledger.unassigned = budgets.unassigned;
    fleet.ledger.excess_since = None;
    fleet.ledger.idle_since = None;
    if fleet.policy.kind != Kind::Duplicated {
        let seats = fleet.seats.iter().zip(had_share);
        let sharing = seats.filter(|(seat, had)| *had || seat.is_active() && seat.max() > 0);
        let served = sum(sharing.map(|(seat, _)| seat.placed));
        landing::begin(fleet, served);
    }
    true
}

/// Whether pods run there that are the fleet's because it has or had a share. What is out of reach since long is not known
/// to serve.
fn has_share(seat: &MemberState<'_>) -> bool {
    let is_gone = seat.role == Role::Failed && seat.entry.tenure == ShareStatus::Failed;
    seat.known && seat.counted && !is_gone
}

/// Whether what a member is differs from what the last assignment took it for.
fn is_news(seat: &MemberState<'_>) -> bool {
    let had_share = matches!(
        seat.entry.tenure,
        ShareStatus::Candidate | ShareStatus::Pinned
    );
    match seat.role {
        Role::Active => {
            let stood = seat.entry.standing.unwrap_or(seat.standing);
            !seat.known || seat.entry.tenure != ShareStatus::Candidate || stood != seat.standing
        }
        Role::Lost | Role::Foreign => false,
        Role::Failed | Role::Recovering => seat.entry.tenure != ShareStatus::Failed,
        Role::Leaving => seat.entry.tenure != ShareStatus::Leaving,
        Role::Outside(_) => seat.known && had_share,
    }
}

fn note_recovery(fleet: &mut Fleet<'_>) {
    let now = fleet.now;
    for seat in &mut fleet.seats {
        seat.entry.recovered = recovered(seat, now);
    }
}

/// Since when a member is well again that has lost its share.
fn recovered(seat: &MemberState<'_>, now: Timestamp) -> Option<Timestamp> {
    let since = seat.entry.recovered.or(Some(now));
    since.filter(|_| seat.role == Role::Recovering)
}

/// The memory of a fleet to which nothing can be assigned now: as it was, but for since when members are well again.
/// Else a fleet all of whose members have lost their share would wait for ever.
pub(super) fn waiting(fleet: &Fleet<'_>, ledger: &Ledger) -> Ledger {
    let mut ledger = ledger.clone();
    for seat in &fleet.seats {
        if let Some(entry) = ledger.members.get_mut(seat.name()) {
            entry.recovered = recovered(seat, fleet.now);
        }
    }
    ledger
}

/// What an older memory lacks is taken as it stands: nothing is known to have changed.
fn note_standings(fleet: &mut Fleet<'_>) {
    for seat in fleet.active_mut() {
        seat.entry.standing = seat.entry.standing.or(Some(seat.standing));
    }
}

/// A member as its nodes and the policy stand now.
pub(super) fn candidate<'a>(seat: &MemberState<'a>, fleet: &Fleet<'_>) -> Candidate<'a> {
    let marked = seat.is_marked(fleet.now);
    let known = seat.member.capacity.is_some() && !seat.standing.elastic || marked;
    let mut standing = seat.standing;
    // Taints close a member to a new share, not to the one it has.
    standing.hi = Replicas::new(seat.hi().max(seat.lo()));
    // A mark counts whatever the member is declared to be.
    standing.elastic &= !marked;
    Candidate {
        name: seat.name(),
        standing,
        capacity: known.then_some(seat.capacity),
        demand: seat.lasting_demand(),
        hosts: seat.replicas > 0,
    }
}

fn budgets(fleet: &Fleet<'_>, candidates: &[Candidate<'_>]) -> Budgets {
    let bounds = fleet.policy.bounds;
    let pinned = || fleet.seats.iter().filter(|seat| seat.role.is_pinned());
    if fleet.policy.kind == Kind::Duplicated || pinned().next().is_none() {
        return divide(fleet.policy, bounds, candidates);
    }
    let lost = pinned().map(|seat| candidate(seat, fleet));
    let all: Vec<_> = candidates.iter().copied().chain(lost).collect();
    let whole = divide(fleet.policy, bounds, &all);
    let least = |name: &str| whole.members.get(name).map_or(Replicas::ZERO, |b| b.min);
    let raised = candidates.iter().copied().map(|mut candidate| {
        let standing = &mut candidate.standing;
        standing.lo = standing.lo.max(least(candidate.name));
        standing.hi = standing.hi.max(standing.lo);
        candidate
    });
    let raised: Vec<_> = raised.collect();
    let left = |whole: Replicas, held: u32| Replicas::new(whole.get().saturating_sub(held));
    let bounds = ReplicaBounds::new(
        left(bounds.min, sum(pinned().map(MemberState::min))),
        left(bounds.max, sum(pinned().map(MemberState::max))),
    );
    divide(fleet.policy, bounds, &raised)
}

/// Capacities, weights and the order of filling, for the floors until budgets are divided anew.
pub(super) fn store_estimates(
    fleet: &mut Fleet<'_>,
    candidates: &[Candidate<'_>],
    weights: &[u64],
) {
    let tier = |at: usize, candidate: &Candidate<'_>, weight: u64| match fleet.policy.kind {
        Kind::Prioritized => (
            Reverse(candidate.standing.priority),
            Reverse(false),
            Reverse(0),
            0,
        ),
        _ => (Reverse(None), Reverse(candidate.hosts), Reverse(weight), at),
    };
    let keyed = candidates.iter().zip(weights).enumerate();
    let mut keyed: Vec<_> = keyed
        .map(|(at, (candidate, weight))| (tier(at, candidate, *weight), at))
        .collect();
    keyed.sort_unstable();
    let mut ranks = vec![0; keyed.len()];
    let tiers = keyed.chunk_by(|(a, _), (b, _)| a == b);
    for (rank, tier) in (0u32..).zip(tiers) {
        for (_, at) in tier {
            if let Some(place) = ranks.get_mut(*at) {
                *place = rank;
            }
        }
    }
    let estimates = candidates.iter().zip(weights).zip(ranks);
    for (seat, ((candidate, weight), rank)) in fleet.active_mut().zip(estimates) {
        seat.entry.capacity = candidate.capacity.map(Replicas::new);
        seat.entry.weight = *weight;
        seat.entry.rank = rank;
    }
}

/// Writes the budgets down and what each member is now.
fn settle(fleet: &mut Fleet<'_>, budgets: &Budgets) {
    let (now, policy) = (fleet.now, fleet.policy);
    for seat in &mut fleet.seats {
        seat.entry.recovered = recovered(seat, now);
        match seat.role {
            Role::Active => {
                let budget = budgets.members.get(seat.name()).copied();
                take_budget(seat, budget.unwrap_or_default(), now);
                if seat.member.pods.is_none() && policy.source == WorkloadSource::Hub {
                    let start = budget.unwrap_or_default().start(None, policy.may_sleep());
                    seat.write = Some(start.get());
                }
            }
            Role::Lost | Role::Foreign => seat.entry.tenure = ShareStatus::Pinned,
            Role::Failed | Role::Recovering => {
                seat.entry.tenure = ShareStatus::Failed;
                seat.set_budget(0, 0);
            }
            Role::Leaving => {
                seat.known = true;
                seat.entry.tenure = ShareStatus::Leaving;
                seat.set_budget(0, 0);
            }
            Role::Outside(_) => seat.known = false,
        }
    }
}

fn take_budget(seat: &mut MemberState<'_>, budget: Budget, now: Timestamp) {
    let Budget { min, max } = budget;
    if (seat.entry.min, seat.entry.max) != (min, max) {
        seat.entry.moved = Some(now);
    }
    let (is_new, capacity, elastic) = (!seat.known, seat.capacity, seat.standing.elastic);
    seat.known = true;
    seat.entry.tenure = ShareStatus::Candidate;
    seat.entry.standing = Some(seat.standing);
    seat.set_budget(min.get(), max.get());
    seat.entry.saturated_since = None;
    if is_new {
        seat.entry.written = max;
    }
    let reason = if max == Replicas::ZERO {
        Reason::NoBudget
    } else {
        Reason::Assigned
    };
    let known = seat.entry.capacity.is_some();
    seat.tell(reason, || {
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
