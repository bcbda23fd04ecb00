//! Direct mode: divides the count of the fleet over its active members. A member that does not answer keeps its last
//! count, in addition to what is divided here; what one runs that answers and cannot be changed is part of the count.
//! Pods that are ready stay until those are that others start instead.

use crate::{Candidate, distribute};
use foretide_domain::Replicas;
use foretide_domain::workload::Mode;

use super::fleet::{RuleContext, Step};
use super::member::{Change, DivisionLimits, Effect, MemberState, sum};

/// Divides the fleet's count over the awake members, within their budgets and capacities. Without such a count they
/// keep theirs, within their budgets.
pub fn count<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    if fleet.policy.mode != Mode::Direct {
        return Step::default();
    }
    let awake: Vec<_> = fleet.awake().collect();
    let counts = if fleet.total.desired.is_some() {
        with_ready(&awake, divided(fleet, &awake))
    } else {
        awake.iter().map(|state| kept(state)).collect()
    };
    let awake = awake.into_iter().zip(counts);
    Step::of(awake.map(|(state, count)| Change::silent(state, Effect::Count(count))))
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
