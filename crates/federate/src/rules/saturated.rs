//! R6: a member that needs more than its maximum gets budget that others do not use. The same is done for a floor above
//! the maximums. A donor keeps what its pods, autoscaler, minimum and lower limit need.

use std::cmp::Reverse;

use crate::{Ledger, Reason, ShareStatus, Span, Surplus};
use foretide_domain::Replicas;

use super::{
    fleet::{RuleContext, Step},
    member::{Change, DivisionLimits, Effect, MemberState, Need, sum},
    shrink::is_shrinking,
};

/// The number of times that a member without known demand doubles its need, at most.
const DOUBLINGS: u32 = 16;
/// A member that needs budget back within this many cooldowns after it was shrunk serves local demand.
const LOCAL_COOLDOWNS: i32 = 10;
/// For how long its demand counts as local, the first time.
const LOCAL_DEMAND_SECONDS: u32 = 3_600;
/// The most that this time grows to when it doubles.
const LONGEST_LOCAL_DEMAND_SECONDS: u32 = 57_600;

/// Finds members that need more than their maximum, by how much, and since when.
pub fn find_needs<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    Step::of(fleet.active().map(|state| {
        let need = need(fleet, state);
        Change::silent(state, Effect::Need(need))
    }))
}

fn need(fleet: &RuleContext<'_>, state: &MemberState<'_>) -> Need {
    let (now, cooldown) = (fleet.now, fleet.policy.cooldown);
    // The load of pods that are about to end goes to the others.
    let count = if is_shrinking(state, cooldown, now) {
        0
    } else {
        missing(state, fleet.policy.tolerance, rounds(fleet, state))
    };
    let since = state.entry.saturated_since;
    let since = if count > 0 {
        since.or(Some(now))
    } else {
        // While it cools down, a member that reaches its new maximum continues its doubling.
        since.filter(|_| fleet.is_cooling_down(state))
    };
    let soon = cooldown.checked_mul(LOCAL_COOLDOWNS).unwrap_or(cooldown);
    let is_local = count > 0 && fleet.within(state.entry.shrunk, soon);
    let before = state.entry.local;
    let local = if is_local {
        let (first, longest) = (LOCAL_DEMAND_SECONDS, LONGEST_LOCAL_DEMAND_SECONDS);
        Some(Span::next(before, now, first, longest))
    } else {
        before
    };
    Need {
        count,
        since,
        local,
        // Once for each time it was shrunk: otherwise the span would double with every sync.
        shrunk: state.entry.shrunk.filter(|_| !is_local),
    }
}

/// For how many cooldowns a member has needed more.
fn rounds(fleet: &RuleContext<'_>, state: &MemberState<'_>) -> u32 {
    let since = state.entry.saturated_since;
    let elapsed = since.map_or(0, |since| fleet.age(since).as_secs().max(0));
    let cooldown = fleet.policy.cooldown.as_secs();
    let rounds = elapsed.checked_div(cooldown).unwrap_or(0);
    u32::try_from(rounds).unwrap_or(DOUBLINGS).min(DOUBLINGS)
}

/// The amount that a member needs beyond its maximum: by its demand; where that is unknown 1, 2, 4, ... round by round, unless
/// its maximum equals its minimum, because then its desired count says nothing.
fn missing(state: &MemberState<'_>, tolerance: f64, rounds: u32) -> u32 {
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
    /// The position of the donor; absent for unassigned budget.
    donor: Option<usize>,
    count: u32,
}

/// Moves unassigned budget to saturated members that cool down: it is taken from no member, and they may just have been
/// shrunk when the load returned.
pub fn satisfy_at_once<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let needs = needs(fleet, |state| fleet.is_cooling_down(state));
    transfer(fleet, &needs, vec![unassigned(fleet)], Reason::Saturated)
}

/// Moves budget to saturated members: from what is unassigned, then from blocked members, then from those with the
/// largest slack; under Prioritized the lowest priority gives first and the highest receives first.
pub fn satisfy<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let needs = needs(fleet, |state| !fleet.is_cooling_down(state));
    transfer(fleet, &needs, offers(fleet, slack), Reason::Saturated)
}

/// The amounts that each saturated member for which `is_meant` holds needs and can run; parallel to the members.
fn needs(fleet: &RuleContext<'_>, is_meant: impl Fn(&MemberState<'_>) -> bool) -> Vec<u32> {
    let mut needs = vec![0; fleet.members.len()];
    for (state, need) in fleet.members.iter().zip(&mut needs) {
        if state.is_active() && !state.blocked && is_meant(state) {
            *need = state.decided.need.min(state.room());
        }
    }
    needs
}

/// Moves budget so that the whole floor can be met: from members that cannot run their maximum to members with room.
pub fn lift_floor<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let offers = offers(fleet, unusable);
    let offered = sum(offers.iter().map(|offer| offer.count));
    let unmet = fleet.floor.unmet.min(offered);
    let needs = fleet.divide(unmet, Surplus::Keep, |state| {
        let open = state.is_active()
            && !state.blocked
            && !fleet.is_cooling_down(state)
            && !state.is_asleep();
        (open && state.room() > 0).then(|| DivisionLimits::room(state.room()))
    });
    transfer(fleet, &needs, offers, Reason::FloorLifted)
}

/// The part of its maximum that a member does not use.
fn slack(state: &MemberState<'_>) -> u32 {
    let used = if state.blocked {
        state.placed.max(state.min())
    } else if state.decided.need > 0 {
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

/// Unassigned budget, then what members offer: the blocked ones first, then the lowest tier, then the largest offer.
fn offers(fleet: &RuleContext<'_>, of: fn(&MemberState<'_>) -> u32) -> Vec<Offer> {
    let mut donors: Vec<_> = fleet.active().collect();
    donors.retain(|state| {
        state.entry.share_status == ShareStatus::Candidate
            && !fleet.is_cooling_down(state)
            && of(state) > 0
    });
    donors.sort_by_key(|state| (!state.blocked, fleet.tier(state), Reverse(of(state))));
    let offers = donors.into_iter().map(|state| Offer {
        donor: Some(state.position),
        count: of(state),
    });
    std::iter::once(unassigned(fleet)).chain(offers).collect()
}

fn unassigned(fleet: &RuleContext<'_>) -> Offer {
    Offer {
        donor: None,
        count: fleet.ledger.unassigned.get(),
    }
}

/// Serves the needs from the offers, both in order.
fn transfer<'a>(
    fleet: &RuleContext<'a>,
    needs: &[u32],
    offers: Vec<Offer>,
    reason: Reason,
) -> Step<'a> {
    let mut queue: Vec<_> = fleet.with_amounts(needs).collect();
    queue.sort_by_key(|(state, _)| Reverse(fleet.tier(state)));
    let mut unassigned = fleet.ledger.unassigned.get();
    let mut open_offers = offers.into_iter();
    let mut offer = open_offers.next();
    let mut losses = vec![0u32; fleet.members.len()];
    let mut gains = vec![0u32; fleet.members.len()];
    for (receiver, mut need) in queue {
        while need > 0
            && let Some(open) = offer.as_mut()
        {
            let count = if open.donor == Some(receiver.position) {
                0
            } else {
                need.min(open.count)
            };
            open.count -= count;
            need -= count;
            if let Some(sum) = gains.get_mut(receiver.position) {
                *sum += count;
            }
            match open.donor {
                Some(at) => losses.get_mut(at).into_iter().for_each(|sum| *sum += count),
                None => unassigned = unassigned.saturating_sub(count),
            }
            if need > 0 {
                offer = open_offers.next();
            }
        }
    }
    let donations = donations(fleet, &losses);
    let receipts = receipts(fleet, &gains, reason);
    Step::of(donations.chain(receipts)).with_ledger(Ledger {
        unassigned: Replicas::new(unassigned),
        ..fleet.ledger.clone()
    })
}

fn donations<'f>(fleet: &'f RuleContext<'_>, losses: &'f [u32]) -> impl Iterator<Item = Change> {
    fleet.with_amounts(losses).map(|(state, loss)| {
        let budget = state.entry.budget().lowered(loss);
        let text = format!("other members need {loss} of its unused replicas");
        Change::because(state, Effect::Budget(budget), Reason::Donor, text)
    })
}

fn receipts<'f>(
    fleet: &'f RuleContext<'_>,
    gains: &'f [u32],
    reason: Reason,
) -> impl Iterator<Item = Change> {
    fleet.with_amounts(gains).map(move |(state, gain)| {
        // A member that needs budget offers none, so no donation is overwritten.
        let budget = state.entry.budget().raised(gain);
        let text = match (reason, state.demand) {
            (Reason::FloorLifted, _) => format!(
                "the floor of the fleet is {} above the maximums of its members",
                fleet.floor.unmet
            ),
            (_, Some(demand)) => format!(
                "its demand is {demand:.1} replicas, {} above its maximum",
                state.decided.need
            ),
            (_, None) => "it runs at its maximum".to_owned(),
        };
        Change::because(state, Effect::Budget(budget), reason, text)
    })
}
