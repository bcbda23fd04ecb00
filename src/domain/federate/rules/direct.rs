//! Direct: the count of the fleet as counts of its members. It refuses to scale a member that cannot be changed: its last
//! count runs on beside what is divided here.

use std::collections::BTreeMap;

use crate::domain::Replicas;
use crate::domain::federate::{Candidate, distribute};
use crate::domain::workload::Mode;

use super::fleet::{Fleet, MemberState, Part};

/// Counts for the members that are awake, within their budgets and what they can run; without a count for the fleet
/// they keep what they have, within their budgets.
pub(super) fn count(fleet: &mut Fleet<'_>) {
    if fleet.policy.mode != Mode::Direct {
        return;
    }
    for seat in fleet.active_mut() {
        let kept = seat.replicas.clamp(seat.min(), seat.max());
        seat.count = if seat.is_awake() { kept } else { 0 };
    }
    if fleet.total.desired.is_some() {
        divide(fleet);
    }
}

fn divide(fleet: &mut Fleet<'_>) {
    let awake = || fleet.active().filter(|seat| seat.is_awake());
    let previous: BTreeMap<_, _> = awake()
        .map(|seat| (seat.name().to_owned(), Replicas::new(seat.replicas)))
        .collect();
    let candidates: Vec<_> = awake().map(candidate).collect();
    let count = Replicas::new(fleet.floor);
    let split = distribute(fleet.policy, count, &candidates, &previous);
    let awake = fleet.active_mut().filter(|seat| seat.is_awake());
    for (seat, share) in awake.zip(split.shares) {
        seat.count = share;
    }
}

fn candidate<'a>(seat: &MemberState<'a>) -> Candidate<'a> {
    let hi = seat.max().min(seat.capacity).max(seat.min());
    let mut candidate = seat.candidate(Part {
        hi,
        capacity: seat.capacity,
        priority: None,
    });
    candidate.standing.lo = Replicas::new(seat.min());
    candidate
}
