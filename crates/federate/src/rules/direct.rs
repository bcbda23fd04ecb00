//! Direct mode: divides the count of the fleet over its active members. A member that does not answer keeps its last
//! count, in addition to what is divided here; what one runs that answers and cannot be changed is part of the count.
//! Pods that are ready stay until those are that others start instead.

use crate::{Candidate, Health, distribute};
use foretide_domain::Replicas;

use super::fleet::{Floor, RuleContext, Step};
use super::member::{Change, DivisionLimits, Effect, MemberState, sum};
use super::participation::MemberRole;

/// Adds the fleet's count to the floor. Both are for the active members only, so no other member meets a part of them.
pub fn claim<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let desired = of_active(fleet);
    // The count is for members that answer, but lost ones serve as well.
    let is_partial = fleet
        .members
        .iter()
        .any(|state| state.role == MemberRole::Lost);
    Step::default().with_floor(Floor {
        count: fleet.floor.count.max(desired.unwrap_or(0)),
        desired,
        kept: fleet.floor.kept.filter(|_| !is_partial),
        met: 0,
        met_by_others: 0,
        ..fleet.floor.clone()
    })
}

/// Divides the fleet's count over the awake members, within their budgets and capacities. Without such a count they
/// keep theirs, within their budgets. The others get none, except one that another writer keeps below its minimum, where
/// no HPA raises it.
pub fn count<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let awake: Vec<_> = fleet.awake().collect();
    let counts = if fleet.floor.desired.is_some() {
        with_ready(&awake, divided(fleet, &awake))
    } else {
        awake.iter().map(|state| kept(state)).collect()
    };
    let awake = awake.into_iter().zip(counts);
    let asleep = fleet.active().filter(|state| !state.is_awake());
    let raised = fleet
        .members
        .iter()
        .filter_map(|state| Some((state, raised(state)?)));
    let counts = awake.chain(asleep.map(|state| (state, 0))).chain(raised);
    Step::of(counts.map(|(state, count)| Change::silent(state, Effect::Count(count))))
}

/// The minimum of a member that another writer keeps below it. A pause may keep it there.
fn raised(state: &MemberState<'_>) -> Option<u32> {
    let member = state.member;
    let is_written = member.foreign_hpa.is_none() && member.paused_by.is_none();
    // A ledger may have been edited.
    let min = state.min().min(state.max());
    let is_below = 0 < state.replicas && state.replicas < min;
    (state.role == MemberRole::Foreign && is_written && is_below).then_some(min)
}

/// The replicas of a member within its budget.
fn kept(state: &MemberState<'_>) -> u32 {
    // Not `clamp`, which panics if a ledger from outside has a minimum above its maximum.
    state.replicas.max(state.min()).min(state.max())
}

/// Pods that are ready end only when those that others have instead are ready too.
fn with_ready(awake: &[&MemberState<'_>], mut counts: Vec<u32>) -> Vec<u32> {
    let starting = awake.iter().zip(&counts);
    let mut starting = sum(starting.map(|(state, count)| count.saturating_sub(state.ready)));
    for (state, count) in awake.iter().zip(&mut counts) {
        let beyond = state.ready_in_budget().saturating_sub(*count);
        let kept = starting.min(beyond);
        *count = count.saturating_add(kept);
        starting -= kept;
    }
    counts
}

/// The count of the fleet as counts of the awake members.
fn divided(fleet: &RuleContext<'_>, awake: &[&MemberState<'_>]) -> Vec<u32> {
    let previous = awake
        .iter()
        .map(|state| (state.name().to_owned(), Replicas::new(state.replicas)))
        .collect();
    let candidates: Vec<_> = awake.iter().map(|state| candidate(state)).collect();
    let count = Replicas::new(fleet.floor.count);
    distribute(fleet.policy, count, &candidates, &previous).shares
}

/// The most that a member can be given of the count.
pub fn most(state: &MemberState<'_>) -> u32 {
    state.max().min(state.capacity).max(state.min())
}

fn candidate<'a>(state: &MemberState<'a>) -> Candidate<'a> {
    let max = most(state);
    let mut candidate = state.candidate(DivisionLimits {
        max,
        capacity: state.capacity,
        priority: None,
    });
    candidate.preference.min = Replicas::new(state.min());
    candidate
}

/// The count of the fleet in Direct mode without the pods of members that are seen and cannot be changed, such as one
/// that is healthy again and gets a share after a cooldown.
///
/// The count was computed from all pods that run. While it is only kept, because a metric is missing or the history was
/// lost, it would otherwise make the active members start as many pods once more with every sync.
///
/// What is left is at least the demand, if that is known: pods of a member that has failed may not serve.
fn of_active(fleet: &RuleContext<'_>) -> Option<u32> {
    let desired = fleet.total.desired?.get();
    let kept = fleet.members.iter().filter(|state| is_kept(state));
    let kept = sum(kept.map(MemberState::reported));
    let least = fleet.total.finite_demand().map_or(0, |demand| {
        let demand = Replicas::from_f64_ceil(demand);
        demand.max(fleet.policy.bounds.min).get()
    });
    Some(desired.saturating_sub(kept).max(least).min(desired))
}

/// True if the pods of a member are in the count of the fleet, and neither written nor about to end.
fn is_kept(state: &MemberState<'_>) -> bool {
    let is_seen = !matches!(state.member.health, Health::Unknown { .. });
    let is_changed = matches!(state.role, MemberRole::Active | MemberRole::Draining);
    state.is_counted() && is_seen && !is_changed
}
