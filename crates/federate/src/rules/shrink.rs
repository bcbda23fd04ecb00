//! R9: a fleet that needs fewer replicas shrinks from the lowest priority upwards, never below what the whole fleet
//! needs, and at most once per cooldown, because metrics lag.
//!
//! The lowest tier above its minimum gives up the excess of its maximum. That ends pods at once, outside the user's
//! `behavior`, so it waits until one autoscaler over the whole fleet would end them. The freed budget goes to the
//! highest tier with room. Meanwhile the autoscalers of higher tiers must not scale down: they see the same low
//! utilization and would scale down first.

use jiff::{SignedDuration, Timestamp};

use crate::{Ledger, Reason, Recipient, Surplus, divide::quota_split};
use foretide_domain::Replicas;
use foretide_domain::words::counted;

use super::fleet::{RuleContext, Step};
use super::member::{Change, DivisionLimits, Effect, MemberState, sum};

/// For how many cooldowns a shrunk member may take to end its pods.
const SHRINKING_COOLDOWNS: i32 = 10;

/// The number of replicas that the fleet has in excess.
#[derive(Clone, Copy, Debug, Default)]
struct Excess {
    /// Placed replicas beyond what the present demand needs: while there are any, higher priorities are held.
    placed: u32,
    /// The part of it that may end now.
    may_end: u32,
}

/// The replicas beyond what the fleet needs; absent when the need is not known.
///
/// No more may end than what is ready beyond the count that one autoscaler over the whole fleet would set now, after
/// the user's window and within the user's policies, because members apply a lowered maximum at once. Pods that are not
/// ready serve no load, so they are no reason to end others.
fn excess(fleet: &RuleContext<'_>) -> Option<Excess> {
    let demand = fleet.total.finite_demand()?;
    // Pods beyond a share end without R9.
    let placed = sum(fleet.sharing().map(MemberState::placed_in_budget));
    let there = f64::from(placed);
    if (demand - there).abs() <= fleet.policy.tolerance * there {
        return Some(Excess::default());
    }
    let needed = Replicas::from_f64_ceil(demand)
        .max(fleet.policy.bounds.min)
        .get()
        .max(fleet.floor.count);
    let ready = sum(fleet.sharing().map(MemberState::ready_in_budget));
    let may_end = fleet
        .total
        .desired
        .map_or(0, |desired| ready.saturating_sub(desired.get().max(needed)));
    let placed = placed.saturating_sub(needed);
    Some(Excess { placed, may_end })
}

/// The amount that R9 may take from a member: nothing that its local demand needs.
fn spare(state: &MemberState<'_>, now: Timestamp) -> u32 {
    let is_local = state.entry.local.is_some_and(|span| now < span.until);
    let needed = state.demand.map_or(state.replicas, |demand| {
        Replicas::from_f64_ceil(demand).get()
    });
    let most = state.replicas.min(state.max()).saturating_sub(needed);
    let beyond = beyond_bounds(state);
    if is_local { beyond.min(most) } else { beyond }
}

/// The replicas of a member beyond its minimum, lower limit and one.
fn beyond_bounds(state: &MemberState<'_>) -> u32 {
    let least = state.written_min().max(state.lower_limit()).max(1);
    state.replicas.min(state.max()).saturating_sub(least)
}

/// True if a member that R9 shrank still reports replicas beyond its maximum. False after ten cooldowns, in case its
/// autoscaler does nothing.
pub fn is_shrinking(state: &MemberState<'_>, cooldown: SignedDuration, now: Timestamp) -> bool {
    let limit = cooldown
        .checked_mul(SHRINKING_COOLDOWNS)
        .unwrap_or(cooldown);
    let shrunk = state.entry.shrunk;
    let is_recent = shrunk.is_some_and(|at| now.duration_since(at) < limit);
    is_recent && state.reported() > state.max()
}

/// Shrinks one tier, if there has been an excess for long enough.
pub fn shrink<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let Excess { placed, may_end } = if is_whole(fleet) {
        excess(fleet).unwrap_or_default()
    } else {
        Excess::default()
    };
    let since = fleet.ledger.excess_since.unwrap_or(fleet.now);
    let ledger = Ledger {
        excess_since: (placed > 0).then_some(since),
        ..fleet.ledger.clone()
    };
    let may_act = fleet.settled(ledger.excess_since)
        && fleet.ledger.landing.is_none()
        && !fleet.within(fleet.ledger.shrunk, fleet.policy.cooldown)
        && !fleet.is_disturbed();
    match lowest(fleet).filter(|_| may_act && may_end > 0) {
        Some(tier) => shrink_tier(fleet, tier, may_end, ledger),
        None => Step::default().with_ledger(ledger),
    }
}

/// True if every member can be read: the pods of another may serve a part of the demand.
fn is_whole(fleet: &RuleContext<'_>) -> bool {
    fleet.pinned().next().is_none()
}

/// Holds the tiers above one that shrinks: after it has shrunk, because those above one that still has pods to end are
/// held.
pub fn hold<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let mut changes = Vec::new();
    let has_excess = fleet.ledger.excess_since.is_some();
    if has_excess {
        changes.extend(local_demand(fleet));
    }
    if excess(fleet).is_some() && is_whole(fleet) {
        changes.extend(held(fleet, has_excess));
    }
    Step::of(changes)
}

/// Explains why members of lower priorities keep replicas: for local demand.
fn local_demand(fleet: &RuleContext<'_>) -> Vec<Change> {
    let highest = fleet.active().filter_map(MemberState::priority).max();
    explained(
        fleet,
        || Effect::Explain,
        Reason::LocalDemand,
        |state| {
            state.is_active()
                && state.priority() < highest
                && spare(state, fleet.now) < beyond_bounds(state)
        },
    )
}

/// The lowest priority from which something can be taken; none if that is the highest one, which its own autoscalers
/// scale down.
fn lowest(fleet: &RuleContext<'_>) -> Option<i64> {
    let highest = fleet.active().filter_map(MemberState::priority).max()?;
    let lowest = fleet
        .active()
        .filter(|state| spare(state, fleet.now) > 0)
        .filter_map(MemberState::priority)
        .min()?;
    (lowest < highest).then_some(lowest)
}

fn shrink_tier<'a>(fleet: &RuleContext<'a>, tier: i64, excess: u32, ledger: Ledger) -> Step<'a> {
    let mut recipients = vec![Recipient::default(); fleet.members.len()];
    for (state, recipient) in fleet.members.iter().zip(&mut recipients) {
        if state.is_active() && state.priority() == Some(tier) {
            *recipient = Recipient::up_to(spare(state, fleet.now));
        }
    }
    let shares = quota_split(excess, &recipients).shares;
    let mut freed = 0_u32;
    let mut changes = Vec::new();
    for (state, less) in fleet.with_amounts(&shares) {
        // The new maximum is the replicas less `less`: budget that no pod uses is given up as well, or pods could
        // start again. `less` is at most `spare`.
        let given = state.max() - (state.replicas.min(state.max()) - less);
        freed = freed.saturating_add(given);
        let text = format!(
            "the fleet has {} more than it needs, and the lowest priority shrinks first",
            counted(excess, "replica")
        );
        let effect = Effect::Shrink(state.entry.budget().lowered(given));
        changes.push(Change::because(state, effect, Reason::ShrinkOrder, text));
    }
    let shares = shares_of_higher_tiers(fleet, tier, freed);
    let left = freed - sum(shares.iter().copied());
    changes.extend(raised(fleet, &shares));
    Step::of(changes).with_ledger(Ledger {
        shrunk: Some(fleet.now),
        unassigned: Replicas::new(ledger.unassigned.get().saturating_add(left)),
        ..ledger
    })
}

/// Freed budget as shares of the tiers above, no more than they can run; parallel to the members.
fn shares_of_higher_tiers(fleet: &RuleContext<'_>, tier: i64, freed: u32) -> Vec<u32> {
    fleet.divide(freed, Surplus::Keep, |state| {
        let above = state.is_active() && state.priority() > Some(tier);
        (above && state.room() > 0).then(|| DivisionLimits::room(state.room()))
    })
}

fn raised<'f>(fleet: &'f RuleContext<'_>, shares: &'f [u32]) -> impl Iterator<Item = Change> {
    fleet.with_amounts(shares).map(|(state, share)| {
        let effect = Effect::Budget(state.entry.budget().raised(share));
        let text = format!("it gets {share} of the replicas that a lower priority gave up");
        Change::because(state, effect, Reason::ShrinkOrder, text)
    })
}

/// The members whose autoscalers must not scale down: all those above a tier that can still give, or that was shrunk
/// and still has replicas above its maximum.
fn held(fleet: &RuleContext<'_>, has_excess: bool) -> Vec<Change> {
    let (cooldown, now) = (fleet.policy.cooldown, fleet.now);
    let shrinking = fleet
        .active()
        .filter(|state| is_shrinking(state, cooldown, now))
        .filter_map(MemberState::priority)
        .min();
    let giving = if has_excess { lowest(fleet) } else { None };
    let Some(lowest) = shrinking.into_iter().chain(giving).min() else {
        return Vec::new();
    };
    explained(
        fleet,
        || Effect::Hold,
        Reason::Held,
        |state| {
            // Pods that cannot be scheduled serve nothing, so the HPA may end them.
            let has_pending = state.placed < state.replicas;
            state.is_active() && state.is_awake() && !has_pending && state.priority() > Some(lowest)
        },
    )
}

/// The same effect, for a reason whose text says it all, on the members that are meant.
fn explained(
    fleet: &RuleContext<'_>,
    effect: fn() -> Effect,
    reason: Reason,
    is_meant: impl Fn(&MemberState<'_>) -> bool,
) -> Vec<Change> {
    fleet
        .members
        .iter()
        .filter(|state| is_meant(state))
        .map(|state| Change::because(state, effect(), reason, String::new()))
        .collect()
}
