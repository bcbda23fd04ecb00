//! R5: a member with unschedulable pods gives the budget that it cannot use to members with room. Pods that have a node
//! stay.

use std::{cmp::Reverse, collections::BTreeSet};

use jiff::Timestamp;

use crate::{Budget, Reason, Recipient, Surplus, divide::quota_split};
use foretide_domain::words::counted;

use super::fleet::{RuleContext, Step};
use super::member::{Change, DivisionLimits, Effect, MemberState, sum};

/// Moves the budget that blocked members cannot use, tier by tier.
pub fn relieve<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let mut budgets: Vec<_> = fleet.members.iter().map(|s| s.entry.budget()).collect();
    let mut changes = Vec::new();
    for Reverse(tier) in tiers(fleet) {
        let moved = relieve_tier(fleet, tier, &budgets);
        for (position, budget) in moved.iter().filter_map(Change::budget) {
            if let Some(place) = budgets.get_mut(position) {
                *place = budget;
            }
        }
        changes.extend(moved);
    }
    Step::of(changes)
}

/// The tiers of the blocked members: one under the policies without priorities. The highest priority comes first,
/// because the room of the others may not be enough for all.
fn tiers(fleet: &RuleContext<'_>) -> BTreeSet<Reverse<Option<i64>>> {
    fleet
        .active()
        .filter(|state| state.blocked)
        .map(|state| Reverse(fleet.tier(state)))
        .collect()
}

/// The number that a blocked member keeps: those placed, at least one, at least its threshold.
fn keeps(state: &MemberState<'_>) -> u32 {
    state.placed.max(1).max(state.lower_limit())
}

/// Moves the budget that the blocked members of one tier cannot use. `budgets`: what the tiers before it have left,
/// parallel to the members.
///
/// Receivers are not blocked, have room by their capacity, and were not just shrunk; they may be asleep, and need not
/// have cooled down.
fn relieve_tier(fleet: &RuleContext<'_>, tier: Option<i64>, budgets: &[Budget]) -> Vec<Change> {
    let offers: Vec<_> = fleet
        .members
        .iter()
        .map(|state| offer(fleet, tier, state))
        .collect();
    let offered = sum(offers.iter().copied());
    let gains = fleet.divide(offered, Surplus::Keep, |state| {
        let budget = budgets.get(state.position)?;
        let room = state.room_beyond(budget.max.get());
        (receives(fleet, state) && room > 0).then(|| DivisionLimits {
            priority: tier.map(|tier| nearness(tier, state)),
            ..DivisionLimits::room(room)
        })
    });
    let mut rest = sum(gains.iter().copied());
    let (mut minimum, mut cause) = (0_u32, None);
    let receivers = names(fleet, &gains);
    let mut changes = Vec::new();
    for (state, unusable) in fleet.members.iter().zip(offers) {
        let moved = unusable.min(rest);
        rest -= moved;
        if moved > 0 {
            let why = symptom(state, fleet.now);
            let budget = state.entry.budget().lowered(moved);
            minimum = minimum.saturating_add(state.min().saturating_sub(budget.min.get()));
            let text = format!(
                "{why}; moved {} of its budget to {receivers}",
                counted(moved, "replica")
            );
            let effect = Effect::Budget(budget);
            changes.push(Change::because(state, effect, Reason::Blocked, text));
            cause.get_or_insert(why);
        } else if state.blocked && unusable > 0 {
            let why = symptom(state, fleet.now);
            let text = format!("{why}, and no other member has capacity");
            let reason = Reason::NoCapacityAnywhere;
            changes.push(Change::because(state, Effect::Explain, reason, text));
        }
    }
    if let Some(cause) = cause {
        changes.extend(receive(fleet, budgets, &gains, minimum, &cause));
    }
    changes
}

/// The budget that a blocked member of this tier cannot use; zero for other members.
fn offer(fleet: &RuleContext<'_>, tier: Option<i64>, state: &MemberState<'_>) -> u32 {
    let is_donor = state.is_active() && state.blocked && fleet.tier(state) == tier;
    if is_donor && !fleet.is_cooling_down(state) {
        state.max().saturating_sub(keeps(state))
    } else {
        0
    }
}

/// The problem of a blocked member.
fn symptom(state: &MemberState<'_>, now: Timestamp) -> String {
    let pending = state.replicas - state.placed;
    let since = state.member.pods.and_then(|pods| pods.unschedulable_since);
    let age = since.map_or(0, |since| now.duration_since(since).as_secs());
    format!(
        "{} unschedulable for {age} s in {}",
        counted(pending, "pod"),
        state.name()
    )
}

/// Gives budget to the receivers, and with it `minimum` of the donors' minimums, in proportion.
fn receive(
    fleet: &RuleContext<'_>,
    budgets: &[Budget],
    gains: &[u32],
    minimum: u32,
    cause: &str,
) -> Vec<Change> {
    let recipients: Vec<_> = gains.iter().copied().map(Recipient::up_to).collect();
    let minimums = quota_split(minimum, &recipients).shares;
    let moves = budgets.iter().zip(gains).zip(minimums);
    let mut changes = Vec::new();
    for (state, ((before, gain), minimum)) in fleet.members.iter().zip(moves) {
        if *gain == 0 {
            continue;
        }
        let raised = before.raised(*gain);
        let min = raised.min.get().saturating_add(minimum);
        let budget = Budget::new(min.min(raised.max.get()), raised.max.get());
        let name = state.name();
        let text = format!("{cause}; {name} has capacity for {}", state.capacity);
        let effect = Effect::Budget(budget);
        changes.push(Change::because(state, effect, Reason::Relief, text));
    }
    changes
}

fn receives(fleet: &RuleContext<'_>, state: &MemberState<'_>) -> bool {
    state.is_active()
        && !state.blocked
        && state.proved.is_none()
        && !fleet.within(state.entry.shrunk, fleet.policy.cooldown)
}

/// The order in which tiers take over from a blocked one: its own, then the lower ones downwards, then the higher ones
/// upwards.
fn nearness(from: i64, state: &MemberState<'_>) -> i64 {
    // A quarter, so that the sums below cannot overflow.
    const FAR: i64 = i64::MAX / 4;
    let priority = state.preference.priority.unwrap_or(-FAR).clamp(-FAR, FAR);
    if priority <= from {
        2 * FAR + priority
    } else {
        -2 * FAR - priority
    }
}

fn names(fleet: &RuleContext<'_>, gains: &[u32]) -> String {
    fleet
        .with_amounts(gains)
        .map(|(state, _)| state.name())
        .collect::<Vec<_>>()
        .join(", ")
}
