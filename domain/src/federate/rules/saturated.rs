//! R6: a member that needs more than its maximum gets budget that others do not use. The same is done for a floor above
//! the maximums. A donor keeps what its pods, autoscaler, minimum and lower limit need.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use crate::Replicas;
use crate::federate::{AssignmentKind, Reason, ShareStatus, Span, Surplus};

use super::{
    fleet::RuleContext,
    member::{DivisionLimits, MemberState, sum},
    shrink::is_shrinking,
};

/// How often a member without known demand doubles its need, at most.
const DOUBLINGS: u32 = 16;
/// A member that needs budget back within this many cooldowns after it was shrunk serves local demand.
const LOCAL_COOLDOWNS: i32 = 10;
/// For how long its demand counts as local, the first time.
const LOCAL_DEMAND_SECONDS: u32 = 3_600;
/// The most that this time grows to when it doubles.
const LONGEST_LOCAL_DEMAND_SECONDS: u32 = 57_600;

/// Finds members that need more than their maximum, by how much, and since when.
pub(super) fn observe(fleet: &mut RuleContext<'_>) {
    let (now, cooldown, tolerance) = (fleet.now, fleet.policy.cooldown, fleet.policy.tolerance);
    let local = cooldown.checked_mul(LOCAL_COOLDOWNS).unwrap_or(cooldown);
    for state in fleet.active_mut() {
        let rounds = rounds(state.entry.saturated_since, cooldown, now);
        // The load of pods that are about to end goes to the others.
        state.need = if is_shrinking(state, cooldown, now) {
            0
        } else {
            need(state, tolerance, rounds)
        };
        let recently = |when: Option<Timestamp>, span| {
            when.is_some_and(|when| now.duration_since(when) < span)
        };
        if state.need > 0 {
            state.entry.saturated_since.get_or_insert(now);
        } else if !recently(state.entry.moved, cooldown) {
            // While it cools down, a member that reaches its new maximum continues its doubling.
            state.entry.saturated_since = None;
        }
        if state.need > 0 && recently(state.entry.shrunk, local) {
            let span = Span::next(
                state.entry.local,
                now,
                LOCAL_DEMAND_SECONDS,
                LONGEST_LOCAL_DEMAND_SECONDS,
            );
            state.entry.local = Some(span);
            // Once for each time it was shrunk: otherwise the span would double with every sync.
            state.entry.shrunk = None;
        }
    }
}

fn rounds(since: Option<Timestamp>, cooldown: SignedDuration, now: Timestamp) -> u32 {
    let elapsed = since.map_or(0, |since| now.duration_since(since).as_secs().max(0));
    let rounds = elapsed.checked_div(cooldown.as_secs()).unwrap_or(0);
    u32::try_from(rounds).unwrap_or(DOUBLINGS).min(DOUBLINGS)
}

/// How much a member needs beyond its maximum: by its demand; where that is unknown 1, 2, 4, ... round by round, unless
/// its maximum equals its minimum, because then its desired count says nothing.
fn need(state: &MemberState<'_>, tolerance: f64, rounds: u32) -> u32 {
    let max = state.max();
    let is_full = max > 0 && state.replicas >= max && state.placed == state.replicas;
    let is_wanted = state.desired.is_none_or(|desired| desired >= max);
    if !is_full || !is_wanted {
        return 0;
    }
    match state.demanded_replicas(tolerance) {
        Some(demanded) => demanded.saturating_sub(max),
        None if state.desired.is_some() && max > state.min() => 1 << rounds,
        None => 0,
    }
}

/// Budget that can be taken.
#[derive(Clone, Copy)]
struct Offer {
    /// The donor's position in the members; absent for unassigned budget.
    at: Option<usize>,
    count: u32,
}

/// Moves budget to saturated members: from what is unassigned, then from blocked members, then from those with the
/// largest slack; under Prioritized the lowest priority gives first and the highest receives first.
///
/// Unassigned budget is taken from no member, so its receiver need not have cooled down: it may just have been shrunk
/// when the load returned.
pub(super) fn satisfy(fleet: &mut RuleContext<'_>) {
    let unassigned = vec![Offer {
        at: None,
        count: fleet.ledger.unassigned.get(),
    }];
    let cooling = needs(fleet, |state| fleet.is_cooling_down(state));
    transfer(fleet, &cooling, unassigned, Reason::Saturated);
    let needs = needs(fleet, |state| !fleet.is_cooling_down(state));
    let offers = offers(fleet, slack);
    transfer(fleet, &needs, offers, Reason::Saturated);
}

/// What each saturated member for which `is_meant` holds needs and can run; parallel to the members.
fn needs(fleet: &RuleContext<'_>, is_meant: impl Fn(&MemberState<'_>) -> bool) -> Vec<u32> {
    let need = |state: &MemberState<'_>| {
        let open = state.is_active() && state.need > 0 && !state.blocked && is_meant(state);
        if open {
            state.need.min(state.room())
        } else {
            0
        }
    };
    fleet.members.iter().map(need).collect()
}

/// Moves budget so that the whole floor can be met: from members that cannot run their maximum to members with room.
pub(super) fn lift_floor(fleet: &mut RuleContext<'_>) {
    if fleet.unmet == 0 {
        return;
    }
    let offers = offers(fleet, unusable);
    let offered = sum(offers.iter().map(|offer| offer.count));
    let needs = fleet.divide(fleet.unmet.min(offered), Surplus::Keep, |state| {
        let open = state.is_active()
            && !state.blocked
            && !fleet.is_cooling_down(state)
            && !state.is_asleep();
        (open && state.room() > 0).then(|| DivisionLimits::room(state.room()))
    });
    transfer(fleet, &needs, offers, Reason::FloorLifted);
}

/// The part of its maximum that a member does not use.
fn slack(state: &MemberState<'_>) -> u32 {
    let used = if state.blocked {
        state.placed.max(state.min())
    } else if state.need > 0 {
        return 0;
    } else {
        let wanted = state.desired.unwrap_or(0);
        state.replicas.max(wanted).max(state.written_min())
    };
    state
        .max()
        .saturating_sub(used.max(state.lower_limit()).max(1))
}

/// The part of its maximum that a member could not run.
fn unusable(state: &MemberState<'_>) -> u32 {
    let used = if state.blocked {
        state.placed
    } else {
        state.replicas
    };
    let runs = state.capacity.min(state.max());
    let used = used
        .max(state.written_min())
        .max(runs)
        .max(state.lower_limit());
    state.max().saturating_sub(used.max(1))
}

fn offers(fleet: &RuleContext<'_>, of: fn(&MemberState<'_>) -> u32) -> Vec<Offer> {
    let members = fleet.members.iter().enumerate();
    let willing = members.filter(|(_, state)| {
        state.is_active()
            && state.entry.share_status == ShareStatus::Candidate
            && !fleet.is_cooling_down(state)
    });
    let mut offers: Vec<_> = willing
        .map(|(at, state)| {
            let offer = Offer {
                at: Some(at),
                count: of(state),
            };
            let tier = state
                .preference
                .priority
                .filter(|_| fleet.policy.kind == AssignmentKind::Prioritized);
            ((!state.blocked, tier, Reverse(offer.count), at), offer)
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

/// Serves the needs from the offers, both in order.
fn transfer(fleet: &mut RuleContext<'_>, needs: &[u32], mut offers: Vec<Offer>, reason: Reason) {
    let ordered = fleet.policy.kind == AssignmentKind::Prioritized;
    let queue = fleet.members.iter().zip(needs).enumerate();
    let mut queue: Vec<_> = queue
        .filter(|(_, (_, need))| **need > 0)
        .map(|(at, (state, need))| {
            (
                Reverse(state.preference.priority.filter(|_| ordered)),
                at,
                *need,
            )
        })
        .collect();
    queue.sort_unstable();
    let mut offers = offers.iter_mut();
    let mut offer = offers.next();
    let mut losses = vec![0u32; fleet.members.len()];
    let mut gains = vec![0u32; fleet.members.len()];
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

fn apply(fleet: &mut RuleContext<'_>, losses: &[u32], gains: &[u32], reason: Reason) {
    let now = fleet.now;
    let unmet = fleet.unmet;
    for ((state, losses), gains) in fleet.members.iter_mut().zip(losses).zip(gains) {
        if *losses > 0 {
            state.lose(*losses, now);
            state.add_reason(Reason::Donor, || {
                format!("other members need {losses} of its unused replicas")
            });
        }
        if *gains > 0 {
            let (need, demand) = (state.need, state.demand);
            state.gain(*gains, now);
            state.add_reason(reason, || match (reason, demand) {
                (Reason::FloorLifted, _) => {
                    format!("the floor of the fleet is {unmet} above the maximums of its members")
                }
                (_, Some(demand)) => {
                    format!("its demand is {demand:.1} replicas, {need} above its maximum")
                }
                (_, None) => "it runs at its maximum".to_owned(),
            });
        }
    }
}
