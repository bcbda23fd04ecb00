//! Direct mode: divides the count of the fleet over its active members. A member that cannot be changed keeps its last
//! count, in addition to what is divided here; and pods that are ready stay until those are that others start instead.

use std::collections::BTreeMap;

use crate::Replicas;
use crate::federate::{Candidate, distribute};
use crate::workload::Mode;

use super::fleet::RuleContext;
use super::member::{DivisionLimits, MemberState, sum};

/// Divides the fleet's count over the awake members, within their budgets and capacities. Without such a count they
/// keep theirs, within their budgets.
pub(super) fn count(fleet: &mut RuleContext<'_>) {
    if fleet.policy.mode != Mode::Direct {
        return;
    }
    for state in fleet.active_mut() {
        let kept = state.replicas.clamp(state.min(), state.max());
        state.count = if state.is_awake() { kept } else { 0 };
    }
    if fleet.total.desired.is_some() {
        divide(fleet);
        keep_ready(fleet);
    }
}

/// Pods that are ready end only when those that others have instead are ready too.
fn keep_ready(fleet: &mut RuleContext<'_>) {
    let mut starting = sum(fleet
        .active()
        .map(|state| state.count.saturating_sub(state.ready)));
    let awake = fleet.active_mut().filter(|state| state.is_awake());
    for state in awake {
        let ready = state.ready.min(state.max());
        let kept = ready.saturating_sub(state.count).min(starting);
        state.count = state.count.saturating_add(kept);
        starting -= kept;
    }
}

fn divide(fleet: &mut RuleContext<'_>) {
    let awake = || fleet.active().filter(|state| state.is_awake());
    let previous: BTreeMap<_, _> = awake()
        .map(|state| (state.name().to_owned(), Replicas::new(state.replicas)))
        .collect();
    let candidates: Vec<_> = awake().map(candidate).collect();
    let count = Replicas::new(fleet.floor);
    let split = distribute(fleet.policy, count, &candidates, &previous);
    let awake = fleet.active_mut().filter(|state| state.is_awake());
    for (state, share) in awake.zip(split.shares) {
        state.count = share;
    }
}

fn candidate<'a>(state: &MemberState<'a>) -> Candidate<'a> {
    let max = state.max().min(state.capacity).max(state.min());
    let mut candidate = state.candidate(DivisionLimits {
        max,
        capacity: state.capacity,
        priority: None,
    });
    candidate.preference.min = Replicas::new(state.min());
    candidate
}
