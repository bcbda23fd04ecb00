//! R9: a fleet that needs fewer replicas shrinks from the lowest priority upwards, never below what the whole fleet
//! needs, and at most once per cooldown, because metrics lag.
//!
//! The lowest tier above its minimum gives up the excess of its maximum. That ends pods at once, outside the user's
//! `behavior`, so it waits until one autoscaler over the whole fleet would end them. The freed budget goes to the
//! highest tier with room. Meanwhile the autoscalers of higher tiers must not scale down: they see the same low
//! utilization and would scale down first.

use jiff::{SignedDuration, Timestamp};

use crate::Replicas;
use crate::federate::{AssignmentKind, Reason, Recipient, Surplus, divide::quota_split};
use crate::words::counted;

use super::fleet::RuleContext;
use super::member::{DivisionLimits, MemberState, sum};

/// For how many cooldowns a shrunk member may take to end its pods.
const SHRINKING_COOLDOWNS: i32 = 10;

/// How many replicas the fleet has in excess.
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
    let demand = fleet.total.demand.filter(|demand| demand.is_finite())?;
    let count = |of: fn(&MemberState<'_>) -> u32| sum(fleet.sharing().map(of));
    // Pods beyond a share end without R9.
    let placed = count(|state| state.placed.min(state.max()));
    let there = f64::from(placed);
    if (demand - there).abs() <= fleet.policy.tolerance * there {
        return Some(Excess::default());
    }
    let demanded = Replicas::from_f64_ceil(demand).get();
    let needed = demanded.max(fleet.floor).max(fleet.policy.bounds.min.get());
    let least = fleet.total.desired.map(|desired| desired.get().max(needed));
    let ready = count(|state| state.ready.min(state.max()));
    let may_end = least.map_or(0, |least| ready.saturating_sub(least));
    Some(Excess {
        placed: placed.saturating_sub(needed),
        may_end,
    })
}

/// What R9 may take from a member: nothing that its local demand needs.
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

/// Whether a member that R9 shrank still reports replicas beyond its maximum. False after ten cooldowns, in case its
/// autoscaler does nothing.
pub(super) fn is_shrinking(
    state: &MemberState<'_>,
    cooldown: SignedDuration,
    now: Timestamp,
) -> bool {
    let limit = cooldown
        .checked_mul(SHRINKING_COOLDOWNS)
        .unwrap_or(cooldown);
    let taken = |at: Timestamp| now.duration_since(at) < limit;
    let reported = state.member.pods.map_or(0, |pods| pods.replicas.get());
    state.entry.shrunk.is_some_and(taken) && reported > state.max()
}

/// Shrinks one tier, if there has been an excess for long enough.
pub(super) fn shrink(fleet: &mut RuleContext<'_>) {
    if fleet.policy.kind != AssignmentKind::Prioritized {
        return;
    }
    // The pods of a member that cannot be read may serve a part of the demand.
    let known = excess(fleet).filter(|_| fleet.members.iter().all(|state| !state.role.is_pinned()));
    let Excess { placed, may_end } = known.unwrap_or_default();
    let since = fleet.ledger.excess_since;
    fleet.ledger.excess_since = (placed > 0).then(|| since.unwrap_or(fleet.now));
    let disturbed = |state: &MemberState<'_>| state.blocked || fleet.is_cooling_down(state);
    let may_act = fleet.settled(fleet.ledger.excess_since)
        && fleet.ledger.landing.is_none()
        && !fleet.within(fleet.ledger.shrunk, fleet.policy.cooldown)
        && !fleet.active().any(disturbed);
    if let Some(tier) = lowest(fleet).filter(|_| may_act && may_end > 0) {
        shrink_tier(fleet, tier, may_end);
    }
    if placed > 0 {
        explain_local_demand(fleet);
    }
    if known.is_some() {
        hold(fleet, placed);
    }
}

/// Adds a reason to members that keep replicas for local demand.
fn explain_local_demand(fleet: &mut RuleContext<'_>) {
    let now = fleet.now;
    let highest = fleet.active().filter_map(|s| s.preference.priority).max();
    let lower = fleet
        .active_mut()
        .filter(|state| state.preference.priority < highest);
    for state in lower.filter(|state| spare(state, now) < beyond_bounds(state)) {
        state.add_reason(Reason::LocalDemand, String::new);
    }
}

/// The lowest priority from which something can be taken; none if that is the highest one, which its own autoscalers
/// scale down.
fn lowest(fleet: &RuleContext<'_>) -> Option<i64> {
    let tiers = fleet.active().filter_map(|state| state.preference.priority);
    let highest = tiers.max()?;
    let giving = fleet.active().filter(|state| spare(state, fleet.now) > 0);
    let lowest = giving.filter_map(|state| state.preference.priority).min()?;
    (lowest < highest).then_some(lowest)
}

fn shrink_tier(fleet: &mut RuleContext<'_>, tier: i64, excess: u32) {
    let now = fleet.now;
    let recipients = fleet.members.iter().map(|state| {
        let in_tier = state.is_active() && state.preference.priority == Some(tier);
        let spare = if in_tier { spare(state, now) } else { 0 };
        Recipient {
            weight: u64::from(spare),
            max: spare,
            // All names are empty: equal recipients then stay in the order of the members.
            ..Recipient::default()
        }
    });
    let recipients: Vec<_> = recipients.collect();
    let mut freed = 0_u32;
    for (state, less) in fleet
        .members
        .iter_mut()
        .zip(quota_split(excess, &recipients).shares)
    {
        if less == 0 {
            continue;
        }
        // From the replicas, because a maximum that is only lowered to them would end no pod; `less` is at most
        // `spare`.
        let max = state.replicas.min(state.max()) - less;
        freed = freed.saturating_add(state.max() - max);
        state.lose(state.max() - max, now);
        state.entry.shrunk = Some(now);
        state.add_reason(Reason::ShrinkOrder, || {
            format!(
                "the fleet has {} more than it needs, and the lowest priority shrinks first",
                counted(excess, "replica")
            )
        });
    }
    fleet.ledger.shrunk = Some(now);
    raise_higher_tiers(fleet, tier, freed);
}

/// Gives freed budget to the tiers above, no more than they can run; the rest is unassigned.
fn raise_higher_tiers(fleet: &mut RuleContext<'_>, tier: i64, freed: u32) {
    let now = fleet.now;
    let shares = fleet.divide(freed, Surplus::Keep, |state| {
        let above = state.is_active() && state.preference.priority > Some(tier);
        (above && state.room() > 0).then(|| DivisionLimits::room(state.room()))
    });
    let mut left = freed;
    for (state, share) in fleet.members.iter_mut().zip(shares) {
        if share > 0 {
            left -= share;
            state.gain(share, now);
            state.add_reason(Reason::ShrinkOrder, || {
                format!("it gets {share} of the replicas that a lower priority gave up")
            });
        }
    }
    let unassigned = fleet.ledger.unassigned.get().saturating_add(left);
    fleet.ledger.unassigned = Replicas::new(unassigned);
}

/// Keeps autoscalers from scaling down: all those above a tier that can still give, or that was shrunk and still
/// has replicas above its maximum.
fn hold(fleet: &mut RuleContext<'_>, excess: u32) {
    let (cooldown, now) = (fleet.policy.cooldown, fleet.now);
    let shrinking = fleet
        .active()
        .filter(|state| is_shrinking(state, cooldown, now));
    let shrinking = shrinking
        .filter_map(|state| state.preference.priority)
        .min();
    let giving = lowest(fleet).filter(|_| excess > 0);
    let Some(lowest) = giving.into_iter().chain(shrinking).min() else {
        return;
    };
    for state in fleet.active_mut() {
        // Pods that cannot be scheduled serve nothing, so the HPA may end them.
        let has_pending = state.placed < state.replicas;
        state.hold = state.is_awake() && !has_pending && state.preference.priority > Some(lowest);
        if state.hold {
            state.add_reason(Reason::Held, String::new);
        }
    }
}
