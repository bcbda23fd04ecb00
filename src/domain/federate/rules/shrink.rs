//! R9: a fleet that needs less shrinks from the lowest priority upwards. It refuses to go below what the whole fleet
//! needs, and to act twice on one lag of the metrics.
//!
//! The lowest tier that is above its minimum gives up what is too much of its maximum, which ends the pods at once, outside
//! the user's `behavior`: so it waits until one autoscaler over the whole would end them. The freed budget goes to the
//! highest tier with room. Meanwhile the autoscalers of higher tiers may not scale down: they
//! would drain first otherwise, since every one of them sees the same low utilization.

use jiff::{SignedDuration, Timestamp};

use crate::domain::Replicas;
use crate::domain::federate::{Kind, Reason, Slot, Surplus, divide::quota_split};

use super::fleet::{Fleet, MemberState, Part, sum};

/// For how many cooldowns a member may take to end what it has to give.
const DRAINING_COOLDOWNS: i32 = 10;

/// How much is too much.
#[derive(Clone, Copy, Debug, Default)]
struct Excess {
    /// What is placed beyond what the demand of this moment needs: for as long, higher priorities are held.
    placed: u32,
    /// What of it may end now.
    may_end: u32,
}

/// What is placed beyond what the fleet needs; absent when the need is not known.
///
/// Of that no more may end than what is ready beyond the count that one autoscaler over the whole would set now, after the
/// user's window and within the user's policies: members obey a lowered maximum at once. Pods that are not ready serve
/// nobody, so they are no reason to end others.
fn excess(fleet: &Fleet<'_>) -> Option<Excess> {
    let demand = fleet.total.demand.filter(|demand| demand.is_finite())?;
    let count = |of: fn(&MemberState<'_>) -> u32| sum(fleet.sharing().map(of));
    // What is beyond a share ends without R9.
    let placed = count(|seat| seat.placed.min(seat.max()));
    let there = f64::from(placed);
    if (demand - there).abs() <= fleet.policy.tolerance * there {
        return Some(Excess::default());
    }
    let needed = Replicas::from_f64_ceil(demand).get().max(fleet.floor);
    let needed = needed.max(fleet.policy.bounds.min.get());
    let desired = fleet.total.desired.map(|desired| desired.get().max(needed));
    let ready = count(|seat| seat.ready.min(seat.max()));
    let may_end = desired.map_or(0, |desired| ready.saturating_sub(desired));
    let placed = placed.saturating_sub(needed);
    Some(Excess { placed, may_end })
}

/// What R9 may take from a member: nothing that its own demand needs, if it serves some.
fn spare(seat: &MemberState<'_>, now: Timestamp) -> u32 {
    let is_local = seat.entry.local.is_some_and(|span| now < span.until);
    let needed = seat.demand.map_or(seat.replicas, |demand| {
        Replicas::from_f64_ceil(demand).get()
    });
    let most = seat.replicas.min(seat.max()).saturating_sub(needed);
    let beyond = beyond_bounds(seat);
    if is_local { beyond.min(most) } else { beyond }
}

/// What a member runs beyond what it has to in any case.
fn beyond_bounds(seat: &MemberState<'_>) -> u32 {
    let least = seat.written_min().max(seat.lo()).max(1);
    seat.replicas.min(seat.max()).saturating_sub(least)
}

/// Whether what R9 took from a member is still asked for there, as it says itself. Not for ever: nobody waits for an
/// autoscaler that does nothing.
pub(super) fn drains(seat: &MemberState<'_>, cooldown: SignedDuration, now: Timestamp) -> bool {
    let patience = cooldown.checked_mul(DRAINING_COOLDOWNS).unwrap_or(cooldown);
    let taken = |at: Timestamp| now.duration_since(at) < patience;
    let says = seat.member.pods.map_or(0, |pods| pods.replicas.get());
    seat.entry.shrunk.is_some_and(taken) && says > seat.max()
}

/// Takes one tier down, if there is too much for long enough.
pub(super) fn shrink(fleet: &mut Fleet<'_>) {
    if fleet.policy.kind != Kind::Prioritized {
        return;
    }
    let known = excess(fleet).filter(|_| fleet.seats.iter().all(|seat| !seat.role.is_pinned()));
    let Excess { placed, may_end } = known.unwrap_or_default();
    let since = fleet.ledger.excess_since;
    fleet.ledger.excess_since = (placed > 0).then(|| since.unwrap_or(fleet.now));
    let disturbed = |seat: &MemberState<'_>| seat.blocked || fleet.cools(seat);
    let may_act = fleet.settled(fleet.ledger.excess_since)
        && fleet.ledger.landing.is_none()
        && !fleet.within(fleet.ledger.shrunk, fleet.policy.cooldown)
        && !fleet.active().any(disturbed);
    if let Some(tier) = lowest(fleet).filter(|_| may_act && may_end > 0) {
        take(fleet, tier, may_end);
    }
    if placed > 0 {
        spared(fleet);
    }
    if known.is_some() {
        hold(fleet, placed);
    }
}

/// Says who keeps more than it would, for demand of its own.
fn spared(fleet: &mut Fleet<'_>) {
    let now = fleet.now;
    let highest = fleet.active().filter_map(|s| s.standing.priority).max();
    let lower = fleet
        .active_mut()
        .filter(|seat| seat.standing.priority < highest);
    for seat in lower.filter(|seat| spare(seat, now) < beyond_bounds(seat)) {
        seat.tell(Reason::LocalDemand, String::new);
    }
}

/// The lowest priority from which something can be taken, and below which there is nothing to protect: the highest
/// tier is left to its own autoscalers.
fn lowest(fleet: &Fleet<'_>) -> Option<i64> {
    let tiers = fleet.active().filter_map(|seat| seat.standing.priority);
    let highest = tiers.max()?;
    let giving = fleet.active().filter(|seat| spare(seat, fleet.now) > 0);
    let lowest = giving.filter_map(|seat| seat.standing.priority).min()?;
    (lowest < highest).then_some(lowest)
}

fn take(fleet: &mut Fleet<'_>, tier: i64, excess: u32) {
    let now = fleet.now;
    let slots = fleet.seats.iter().map(|seat| {
        let in_tier = seat.is_active() && seat.standing.priority == Some(tier);
        let spare = if in_tier { spare(seat, now) } else { 0 };
        Slot {
            weight: u64::from(spare),
            hi: spare,
            ..Slot::default()
        }
    });
    let slots: Vec<_> = slots.collect();
    let mut freed = 0;
    for (seat, less) in fleet
        .seats
        .iter_mut()
        .zip(quota_split(excess, &slots).shares)
    {
        if less == 0 {
            continue;
        }
        let max = seat.replicas.min(seat.max()) - less;
        freed += seat.max() - max;
        seat.lose(seat.max() - max, now);
        seat.entry.shrunk = Some(now);
        seat.tell(Reason::ShrinkOrder, || {
            format!("the fleet has {excess} replicas more than it needs, and the lowest priority shrinks first")
        });
    }
    fleet.ledger.shrunk = Some(now);
    hand_up(fleet, tier, freed);
}

/// Gives freed budget to the tiers above, no more than they can run; the rest is unassigned, for whoever needs it first.
fn hand_up(fleet: &mut Fleet<'_>, tier: i64, freed: u32) {
    let now = fleet.now;
    let shares = fleet.spread(freed, Surplus::Keep, |seat| {
        let above = seat.is_active() && seat.standing.priority > Some(tier);
        (above && seat.room() > 0).then(|| Part::room(seat.room()))
    });
    let mut left = freed;
    for (seat, share) in fleet.seats.iter_mut().zip(shares) {
        if share > 0 {
            left -= share;
            seat.gain(share, now);
            seat.tell(Reason::ShrinkOrder, || {
                format!("it gets {share} of what a member of lower priority gave up")
            });
        }
    }
    let unassigned = fleet.ledger.unassigned.get().saturating_add(left);
    fleet.ledger.unassigned = Replicas::new(unassigned);
}

/// Whose autoscaler may not scale down: while there is too much, all those above a tier that can still give, or that was
/// told to and still drains.
fn hold(fleet: &mut Fleet<'_>, excess: u32) {
    let (cooldown, now) = (fleet.policy.cooldown, fleet.now);
    let draining = fleet.active().filter(|seat| drains(seat, cooldown, now));
    let draining = draining.filter_map(|seat| seat.standing.priority).min();
    let giving = lowest(fleet).filter(|_| excess > 0);
    let Some(lowest) = giving.into_iter().chain(draining).min() else {
        return;
    };
    for seat in fleet.active_mut() {
        let has_pending = seat.placed < seat.replicas;
        seat.hold = seat.is_awake() && !has_pending && seat.standing.priority > Some(lowest);
        if seat.hold {
            seat.tell(Reason::Held, String::new);
        }
    }
}
