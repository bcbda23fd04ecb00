//! R6: a member that needs more than its maximum gets what others do not use; and the same for a floor that maxima do
//! not allow. It refuses to take what a donor's pods, autoscaler, minimum or threshold need.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use crate::domain::Replicas;
use crate::domain::federate::{Kind, Reason, ShareStatus, Span, Surplus};

use super::{
    fleet::{Fleet, MemberState, Part, sum},
    shrink::drains,
};

/// How often a member without known demand doubles what it asks for at most.
const DOUBLINGS: u32 = 16;
/// A member that needs budget back this many cooldowns after it was shrunk serves demand of its own.
const LOCAL_COOLDOWNS: i32 = 10;
const LOCAL: u32 = 3_600;
const LONGEST_LOCAL: u32 = 57_600;

/// Looks at who needs more than its maximum, by how much, and since when.
pub(super) fn observe(fleet: &mut Fleet<'_>) {
    let (now, cooldown, tolerance) = (fleet.now, fleet.policy.cooldown, fleet.policy.tolerance);
    let local = cooldown.checked_mul(LOCAL_COOLDOWNS).unwrap_or(cooldown);
    for seat in fleet.active_mut() {
        let rounds = rounds(seat.entry.saturated_since, cooldown, now);
        // What pods serve that are about to end is for others as soon as they have.
        seat.need = if drains(seat, cooldown, now) {
            0
        } else {
            need(seat, tolerance, rounds)
        };
        let recently = |when: Option<Timestamp>, span| {
            when.is_some_and(|when| now.duration_since(when) < span)
        };
        if seat.need > 0 {
            seat.entry.saturated_since.get_or_insert(now);
        } else if !recently(seat.entry.moved, cooldown) {
            // Until it has cooled down, a member that reaches its new maximum goes on from where it was.
            seat.entry.saturated_since = None;
        }
        if seat.need > 0 && recently(seat.entry.shrunk, local) {
            let span = Span::next(seat.entry.local, now, LOCAL, LONGEST_LOCAL);
            seat.entry.local = Some(span);
            seat.entry.shrunk = None;
        }
    }
}

fn rounds(since: Option<Timestamp>, cooldown: SignedDuration, now: Timestamp) -> u32 {
    let elapsed = since.map_or(0, |since| now.duration_since(since).as_secs().max(0));
    let rounds = elapsed.checked_div(cooldown.as_secs()).unwrap_or(0);
    u32::try_from(rounds).unwrap_or(DOUBLINGS).min(DOUBLINGS)
}

/// What a member needs beyond its maximum: by its demand; where that is unknown 1, 2, 4, ... round by round, provided
/// that its maximum is not its minimum, because then its autoscaler has no say.
fn need(seat: &MemberState<'_>, tolerance: f64, rounds: u32) -> u32 {
    let max = seat.max();
    let is_full = max > 0 && seat.replicas >= max && seat.placed == seat.replicas;
    let is_wanted = seat.desired.is_none_or(|desired| desired >= max);
    if !is_full || !is_wanted {
        return 0;
    }
    match seat.asks(tolerance) {
        Some(asked) => asked.saturating_sub(max),
        None if seat.desired.is_some() && max > seat.min() => 1 << rounds,
        None => 0,
    }
}

/// Where budget can be taken from.
#[derive(Clone, Copy)]
struct Offer {
    /// Position in the seats; absent for what is unassigned.
    at: Option<usize>,
    count: u32,
}

/// Moves budget to saturated members: from what is unassigned, then from blocked members, then from those with the
/// largest slack; under Prioritized the lowest priority gives first and the highest receives first.
///
/// What is unassigned nobody loses, so for that a member need not have cooled down: it may just have been shrunk, and the
/// load be back.
pub(super) fn feed(fleet: &mut Fleet<'_>) {
    let unassigned = vec![Offer {
        at: None,
        count: fleet.ledger.unassigned.get(),
    }];
    let cooling = needs(fleet, |seat| fleet.cools(seat));
    transfer(fleet, &cooling, unassigned, Reason::Saturated);
    let needs = needs(fleet, |seat| !fleet.cools(seat));
    let offers = offers(fleet, slack);
    transfer(fleet, &needs, offers, Reason::Saturated);
}

/// What each saturated member needs and can run, of those that are meant; parallel to the seats.
fn needs(fleet: &Fleet<'_>, is_meant: impl Fn(&MemberState<'_>) -> bool) -> Vec<u32> {
    let need = |seat: &MemberState<'_>| {
        let open = seat.is_active() && seat.need > 0 && !seat.blocked && is_meant(seat);
        if open { seat.need.min(seat.room()) } else { 0 }
    };
    fleet.seats.iter().map(need).collect()
}

/// Moves budget so that the whole floor can be met: from members that cannot run what they may, to members with room.
pub(super) fn lift_floor(fleet: &mut Fleet<'_>) {
    if fleet.unmet == 0 {
        return;
    }
    let offers = offers(fleet, unusable);
    let offered = sum(offers.iter().map(|offer| offer.count));
    let needs = fleet.spread(fleet.unmet.min(offered), Surplus::Keep, |seat| {
        let open = seat.is_active() && !seat.blocked && !fleet.cools(seat) && !seat.is_asleep();
        (open && seat.room() > 0).then(|| Part::room(seat.room()))
    });
    transfer(fleet, &needs, offers, Reason::FloorLifted);
}

/// What a member does not use of its maximum.
fn slack(seat: &MemberState<'_>) -> u32 {
    let used = if seat.blocked {
        seat.placed.max(seat.min())
    } else if seat.need > 0 {
        return 0;
    } else {
        let wanted = seat.desired.unwrap_or(0);
        seat.replicas.max(wanted).max(seat.written_min())
    };
    seat.max().saturating_sub(used.max(seat.lo()).max(1))
}

/// What a member could not run even if it were asked to.
fn unusable(seat: &MemberState<'_>) -> u32 {
    let used = if seat.blocked {
        seat.placed
    } else {
        seat.replicas
    };
    let runs = seat.capacity.min(seat.max());
    let used = used.max(seat.written_min()).max(runs).max(seat.lo());
    seat.max().saturating_sub(used.max(1))
}

fn offers(fleet: &Fleet<'_>, of: fn(&MemberState<'_>) -> u32) -> Vec<Offer> {
    let seats = fleet.seats.iter().enumerate();
    let willing = seats.filter(|(_, seat)| {
        seat.is_active() && seat.entry.tenure == ShareStatus::Candidate && !fleet.cools(seat)
    });
    let mut offers: Vec<_> = willing
        .map(|(at, seat)| {
            let offer = Offer {
                at: Some(at),
                count: of(seat),
            };
            let tier = seat
                .standing
                .priority
                .filter(|_| fleet.policy.kind == Kind::Prioritized);
            ((!seat.blocked, tier, Reverse(offer.count), at), offer)
        })
        .filter(|(_, offer)| offer.count > 0)
        .collect();
    offers.sort_unstable_by_key(|(key, _)| *key);
    let unassigned = Offer {
        at: None,
        count: fleet.ledger.unassigned.get(),
    };
    std::iter::once(unassigned)
        .chain(offers.into_iter().map(|(_, offer)| offer))
        .collect()
}

/// Serves the needs from the offers, both in their order.
fn transfer(fleet: &mut Fleet<'_>, needs: &[u32], mut offers: Vec<Offer>, reason: Reason) {
    let ordered = fleet.policy.kind == Kind::Prioritized;
    let queue = fleet.seats.iter().zip(needs).enumerate();
    let mut queue: Vec<_> = queue
        .filter(|(_, (_, need))| **need > 0)
        .map(|(at, (seat, need))| {
            (
                Reverse(seat.standing.priority.filter(|_| ordered)),
                at,
                *need,
            )
        })
        .collect();
    queue.sort_unstable();
    let mut offers = offers.iter_mut();
    let mut offer = offers.next();
    let mut losses = vec![0u32; fleet.seats.len()];
    let mut gains = vec![0u32; fleet.seats.len()];
    for (_, to, mut need) in queue {
        while need > 0
            && let Some(open) = offer.as_mut()
        {
            let count = if open.at == Some(to) {
                0
            } else {
                need.min(open.count)
            };
            open.count -= count;
            need -= count;
            if let Some(sum) = gains.get_mut(to) {
                *sum += count;
            }
            match open.at {
                Some(at) => losses.get_mut(at).into_iter().for_each(|sum| *sum += count),
                None => fleet.ledger.unassigned = minus(fleet.ledger.unassigned, count),
            }
            if need > 0 {
                offer = offers.next();
            }
        }
    }
    apply(fleet, &losses, &gains, reason);
}

fn minus(from: Replicas, n: u32) -> Replicas {
    Replicas::new(from.get().saturating_sub(n))
}

fn apply(fleet: &mut Fleet<'_>, losses: &[u32], gains: &[u32], reason: Reason) {
    let now = fleet.now;
    let unmet = fleet.unmet;
    for ((seat, losses), gains) in fleet.seats.iter_mut().zip(losses).zip(gains) {
        if *losses > 0 {
            seat.lose(*losses, now);
            seat.tell(Reason::Donor, || {
                format!("other members need {losses} of what it does not use")
            });
        }
        if *gains > 0 {
            let (need, demand) = (seat.need, seat.demand);
            seat.gain(*gains, now);
            seat.tell(reason, || match (reason, demand) {
                (Reason::FloorLifted, _) => {
                    format!("the floor of the fleet is {unmet} replicas more than maxima allow")
                }
                (_, Some(demand)) => {
                    format!("its demand is {demand:.1} replicas, {need} more than it may have")
                }
                (_, None) => "it runs at its maximum".to_owned(),
            });
        }
    }
}
