//! R8: head-room is divided anew by the policy, when some member has almost none of it and another much. It refuses to
//! touch what runs.

use crate::domain::Replicas;
use crate::domain::federate::{Reason, Surplus, weights};

use super::assign::{candidate, store_estimates};
use super::fleet::{Fleet, MemberState, Part, sum};

/// Least time between two of them, in cooldowns.
const COOLDOWNS: i32 = 10;
/// Fewer replicas than these, and than one in so many of all head-room, are not worth a move. What a division gives
/// depends on what runs, and what runs on floors, which depend on the division: without a threshold the last unit
/// went back and forth.
const LEAST: u32 = 2;
const PART: u32 = 10;

/// Divides head-room anew if there is a cause.
pub(super) fn optimize(fleet: &mut Fleet<'_>) {
    if is_due(fleet) {
        divide_headroom(fleet);
    }
}

fn is_due(fleet: &Fleet<'_>) -> bool {
    let pause = fleet.policy.cooldown.checked_mul(COOLDOWNS);
    let recently = pause.is_none_or(|pause| fleet.within(fleet.ledger.optimized, pause));
    let disturbed = |seat: &MemberState<'_>| seat.blocked || fleet.cools(seat);
    let with_budget = || fleet.active().filter(|seat| seat.max() > 0);
    // Below a tenth and above a half of the maximum is unused.
    let is_tight = |seat: &MemberState<'_>| 10 * u64::from(headroom(seat)) < u64::from(seat.max());
    let is_loose = |seat: &MemberState<'_>| 2 * u64::from(headroom(seat)) > u64::from(seat.max());
    !recently
        && fleet.ledger.landing.is_none()
        && !fleet.active().any(disturbed)
        && with_budget().any(is_tight)
        && with_budget().any(is_loose)
}

fn headroom(seat: &MemberState<'_>) -> u32 {
    seat.max().saturating_sub(seat.replicas)
}

/// Whether the minima of those that run are enough for MIN, so that who sleeps needs none.
fn may_forget_sleepers(fleet: &Fleet<'_>) -> bool {
    let runs =
        |seat: &&MemberState<'_>| seat.role.is_pinned() || seat.is_active() && seat.is_awake();
    let minima = sum(fleet.seats.iter().filter(runs).map(MemberState::min));
    minima >= fleet.policy.bounds.min.get()
}

/// What a member keeps in any case.
fn base(seat: &MemberState<'_>, may_forget: bool) -> u32 {
    let minimum = if seat.is_awake() {
        seat.written_min()
    } else if may_forget {
        0
    } else {
        seat.min()
    };
    let some = seat.max().min(1);
    let replicas = seat.write.unwrap_or(seat.replicas);
    replicas
        .min(seat.max())
        .max(minimum)
        .max(seat.lo())
        .max(some)
}

/// The head-room of all, `sum(max - base)` and what is unassigned, by the policy over all members that can be changed.
/// Nobody gets more than it can run, but by what it had; marked ones, and where demand weighs all, not even that. The
/// rest is unassigned.
pub(super) fn divide_headroom(fleet: &mut Fleet<'_>) {
    let may_forget = may_forget_sleepers(fleet);
    let base = |seat: &MemberState<'_>| base(seat, may_forget);
    let (now, unassigned) = (fleet.now, fleet.ledger.unassigned.get());
    let unused = fleet
        .active()
        .map(|seat| seat.max().saturating_sub(base(seat)));
    let all = sum(unused).saturating_add(unassigned);
    let shares = fleet.spread(all, Surplus::Spread, |seat| {
        seat.is_active().then(|| part(fleet, seat, base(seat)))
    });
    let given = sum(shares.iter().copied());
    let gains = fleet
        .seats
        .iter()
        .zip(&shares)
        .filter(|(seat, _)| seat.is_active());
    let gained = sum(gains.map(|(seat, share)| (base(seat) + share).saturating_sub(seat.max())));
    if gained < LEAST.max(all / PART) {
        return;
    }
    let mut changed = false;
    for (seat, share) in fleet.seats.iter_mut().zip(shares) {
        if !seat.is_active() {
            continue;
        }
        let max = base(seat).saturating_add(share);
        if max != seat.max() {
            changed = true;
            seat.set_budget(seat.min().max(1).min(max), max);
            seat.entry.moved = Some(now);
            seat.tell(Reason::Optimized, || {
                format!("{all} replicas of head-room were divided anew")
            });
        }
    }
    if changed {
        fleet.ledger.unassigned = Replicas::new(all - given);
        fleet.ledger.optimized = Some(now);
        refresh(fleet);
    }
}

fn part(fleet: &Fleet<'_>, seat: &MemberState<'_>, base: u32) -> Part {
    let room = seat.capacity.saturating_sub(base);
    let hi = seat.hi().saturating_sub(base);
    // Demand says nothing about room: by demand alone a member that is full would get head-room for pods to hang in.
    let is_bound = seat.is_marked(fleet.now) || !fleet.weighs_capacity();
    // What is more than it can run it may keep, for nodes that are to come; more of that it does not get.
    let kept = if is_bound {
        0
    } else {
        seat.max().saturating_sub(base)
    };
    Part {
        hi: hi.min(room.max(kept)),
        capacity: room,
        priority: None,
    }
}

/// The estimates that this division was made by hold until the next one.
fn refresh(fleet: &mut Fleet<'_>) {
    let candidates: Vec<_> = fleet.active().map(|seat| candidate(seat, fleet)).collect();
    let weights = weights(fleet.policy, &candidates);
    store_estimates(fleet, &candidates, &weights);
}
