//! Landing: after budgets were divided anew, pods stay where they are until others are ready. It refuses to wait
//! for ever, and to start more pods than the fleet ran before or needs now.

use jiff::SignedDuration;

use crate::domain::Replicas;
use crate::domain::federate::{Kind, Landing, Reason};
use crate::domain::workload::Mode;

use super::fleet::{Fleet, MemberState, Role, sum};

/// How long others have to become ready before a budget that shrank is enforced.
const LANDING: SignedDuration = SignedDuration::from_secs(600);

/// Begins to land, with so many replicas that served the fleet until now. While others land already, some of those were
/// started in the place of pods that are to end: then their number stays.
pub(super) fn begin(fleet: &mut Fleet<'_>, served: u32) {
    let before = fleet.ledger.landing.and_then(|landing| landing.served);
    let landing = |until| Landing {
        until,
        served: before.or(Some(Replicas::new(served))),
    };
    fleet.ledger.landing = fleet.now.checked_add(LANDING).ok().map(landing);
}

/// Begins to land where a member was out of reach when others did: it is back with pods beyond its share.
fn resume(fleet: &mut Fleet<'_>) {
    let is_back = |seat: &MemberState<'_>| {
        let may_end = matches!(seat.role, Role::Active | Role::Leaving);
        may_end && seat.entry.written > seat.entry.max && seat.replicas > seat.max()
    };
    let is_due = fleet.ledger.landing.is_none() && fleet.policy.kind != Kind::Duplicated;
    if is_due && fleet.seats.iter().any(is_back) {
        let placed = sum(fleet.counted().map(|seat| seat.placed));
        begin(fleet, placed);
    }
}

/// Lets members with more replicas than their new maximum keep them, and raises the floor so that the others grow,
/// while fewer pods are ready within the new budgets than are needed.
///
/// A member whose pods are to end though they never were the fleet's keeps them as well until it is known what they serve:
/// that alone is taken over.
pub(super) fn land(fleet: &mut Fleet<'_>) {
    resume(fleet);
    let Some(Landing { until, served }) = fleet.ledger.landing else {
        return;
    };
    let served = served.map_or_else(
        || sum(fleet.counted().map(|seat| seat.placed)),
        Replicas::get,
    );
    let goal = needed(fleet, served).min(sum(parties(fleet).map(MemberState::max)));
    let ready = sum(parties(fleet).map(|seat| seat.ready.min(seat.max())));
    let unmeasured = fleet
        .active()
        .any(|seat| is_displaced(seat) && seat.demand.is_none());
    if fleet.now >= until || ready >= goal && !unmeasured {
        fleet.ledger.landing = None;
        return;
    }
    let demand = demand(fleet).map_or(0, |demand| Replicas::from_f64_ceil(demand).get());
    fleet.ledger.landing = Some(Landing {
        until,
        served: Some(Replicas::new(served.max(demand))),
    });
    let floor = goal.saturating_add(kept_by_others(fleet));
    fleet.lands = floor > fleet.floor;
    fleet.floor = fleet.floor.max(floor);
    let all = fleet.policy.bounds.max;
    for seat in &mut fleet.seats {
        keep(seat, goal, all);
    }
}

/// Those whose pods are to serve when all has landed.
fn parties<'f, 'a>(fleet: &'f Fleet<'a>) -> impl Iterator<Item = &'f MemberState<'a>> {
    let takes_part = |seat: &&MemberState<'_>| {
        seat.role == Role::Active || seat.role.is_pinned() && seat.counted
    };
    fleet.seats.iter().filter(takes_part)
}

/// What of a floor is left to members that others scale: it is theirs to meet, and no part of what lands.
fn kept_by_others(fleet: &Fleet<'_>) -> u32 {
    let others = fleet
        .seats
        .iter()
        .filter(|seat| seat.role.is_pinned() && !seat.counted);
    let kept = sum(others.map(MemberState::min));
    // In Direct a count is divided over those who are seen, and nothing of it is left to others.
    if fleet.policy.mode == Mode::Direct {
        0
    } else {
        kept
    }
}

/// How many pods have to be ready before others end: the largest of MIN, the floor, the demand, and what one autoscaler
/// over the whole would still keep of what `served` when it began. Without MIN a fleet without load would be served by
/// nobody while members change.
fn needed(fleet: &Fleet<'_>, served: u32) -> u32 {
    // The count that Direct divides is for those who answer, and others are parties too.
    let is_partial =
        fleet.policy.mode == Mode::Direct && fleet.seats.iter().any(|seat| seat.role == Role::Lost);
    let desired = fleet.total.desired.filter(|_| !is_partial);
    let kept = served.min(desired.map_or(served, Replicas::get));
    let load = if let Some(demand) = demand(fleet) {
        kept.max(Replicas::from_f64_ceil(demand).get())
    } else {
        let displaced = displaced(fleet, |_| true);
        kept.saturating_add(Replicas::from_f64_ceil(displaced).get())
    };
    let asked = fleet.policy.bounds.min.get().max(fleet.floor);
    load.max(asked.saturating_sub(kept_by_others(fleet)))
}

/// What the fleet serves and will have to.
fn demand(fleet: &Fleet<'_>) -> Option<f64> {
    let demand = fleet.total.demand.filter(|demand| demand.is_finite())?;
    // What was counted is in the demand already.
    Some(demand + displaced(fleet, |seat| !seat.counted))
}

/// What the pods serve that are to end and never were the fleet's, as far as it is known.
fn displaced(fleet: &Fleet<'_>, is_meant: impl Fn(&MemberState<'_>) -> bool) -> f64 {
    let displaced = fleet.active().filter(|seat| is_displaced(seat));
    let displaced = displaced.filter(|seat| is_meant(seat));
    displaced.filter_map(|seat| seat.demand).sum()
}

/// Whether a member runs pods that are to end, as far as it has no share, and never were the fleet's.
fn is_displaced(seat: &MemberState<'_>) -> bool {
    let pods = seat.member.pods.filter(|_| !seat.member.foreign);
    let runs = pods.is_some_and(|pods| pods.ready > Replicas::ZERO);
    let is_new = seat.previous.is_none() && seat.max() == 0;
    runs && (is_new || !seat.counted)
}

/// Has a member keep the pods that it has beyond its share; those that never were the fleet's are all believed, for they
/// are asked of nobody else.
fn keep(seat: &mut MemberState<'_>, goal: u32, all: Replicas) {
    let runs = if is_displaced(seat) {
        seat.member
            .pods
            .map_or(0, |pods| pods.replicas.min(all).get())
    } else {
        seat.replicas
    };
    let may_stay = matches!(seat.role, Role::Active | Role::Leaving);
    if !may_stay || runs <= seat.max() {
        return;
    }
    seat.keep = runs;
    let max = seat.max();
    // Its maximum is what it keeps, whatever it was assigned.
    seat.tell_above(
        Reason::Landing,
        format!("it keeps {runs} replicas, its share being {max}, until {goal} pods are ready in the fleet"),
    );
}
