//! R11: sleeping members with a budget are woken when the awake ones cannot run what is needed.

use std::cmp::Reverse;

use crate::{Ledger, Reason, Span};
use foretide_domain::Replicas;

use super::fleet::{RuleContext, Step};
use super::member::{Change, Effect, MemberState, sum};
use super::participation::MemberRole;

/// A member that is woken within this many cooldowns was put to sleep too early.
const SOON_COOLDOWNS: i32 = 10;
/// The time for which it then stays awake, the first time.
const STAY_AWAKE_SECONDS: u32 = 3_600;
/// The most that this time grows to when it doubles.
const LONGEST_STAY_AWAKE_SECONDS: u32 = 57_600;

/// Wakes the members that are needed, all at once.
pub fn wake_all<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let cause = cause(fleet);
    wake(fleet, |_| cause, one)
}

/// Wakes the members that are needed, one at a time, the highest priority first; of equal ones the first by name.
pub fn wake_next<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    // With no member awake nothing serves, so the wait is skipped.
    let is_due =
        !fleet.within(fleet.ledger.woken, fleet.policy.cooldown) || fleet.awake().next().is_none();
    let first = fleet
        .active()
        .filter(|state| state.is_asleep() && is_due)
        .min_by_key(|state| Reverse(state.priority()))
        .map(|state| state.position);
    let cause = cause(fleet);
    wake(
        fleet,
        |state| cause.filter(|_| first == Some(state.position)),
        one,
    )
}

/// Wakes every member with a budget, at its minimum, where members must not sleep.
pub fn keep_awake<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    wake(fleet, |state| Some(always(state)), all)
}

/// Wakes the sleeping members that are `wanted` for a reason, and those that take over replicas of others; `first` is the
/// count of each.
fn wake<'a>(
    fleet: &RuleContext<'a>,
    wanted: impl Fn(&MemberState<'_>) -> Option<&'static str>,
    first: fn(&MemberState<'_>) -> u32,
) -> Step<'a> {
    let taken_over = taken_over(fleet);
    let mut changes = Vec::new();
    for state in fleet.active().filter(|state| state.is_asleep()) {
        let is_lifted = state.has_reason(Reason::FloorLifted);
        let why = if is_lifted || taken_over.contains(&state.position) {
            Some("it takes over replicas that other members cannot run")
        } else {
            wanted(state)
        };
        if let Some(why) = why {
            let effect = Effect::Wake {
                count: first(state),
                stays_awake: longer_stay_awake(fleet, state),
            };
            changes.push(Change::because(
                state,
                effect,
                Reason::Woken,
                why.to_owned(),
            ));
        }
    }
    if changes.is_empty() {
        return Step::default();
    }
    Step::of(changes).with_ledger(Ledger {
        woken: Some(fleet.now),
        ..fleet.ledger.clone()
    })
}

/// One replica, from which its autoscaler continues; of a new workload its minimum.
fn one(state: &MemberState<'_>) -> u32 {
    state.member.pods.map_or_else(|| all(state), |_| 1)
}

/// The minimum, at least one.
fn all(state: &MemberState<'_>) -> u32 {
    state.min().max(1)
}

/// A member that is needed soon after it was put to sleep is not put to sleep again for an hour, and for twice as long
/// each time: the estimates that decided its sleep were wrong.
fn longer_stay_awake(fleet: &RuleContext<'_>, state: &MemberState<'_>) -> Option<Span> {
    let cooldown = fleet.policy.cooldown;
    let soon = cooldown.checked_mul(SOON_COOLDOWNS).unwrap_or(cooldown);
    fleet.within(state.entry.slept, soon).then(|| {
        Span::next(
            state.entry.needed,
            fleet.now,
            STAY_AWAKE_SECONDS,
            LONGEST_STAY_AWAKE_SECONDS,
        )
    })
}

/// The reason why a member with a budget is awake where members must not sleep.
fn always(state: &MemberState<'_>) -> &'static str {
    match state.member.pods {
        None => "the hub places the workload there",
        Some(_) => "the policy does not let members scale to zero",
    }
}

/// The positions of sleeping members that were just given budget of blocked ones (R5) and are needed for their pods.
/// Where members have priorities, only those of the highest ones: budget may go further down than the pods do.
fn taken_over(fleet: &RuleContext<'_>) -> Vec<usize> {
    let mut relieved: Vec<_> = fleet.members.iter().collect();
    relieved.retain(|state| state.has_reason(Reason::Relief) && state.is_asleep());
    // Stable: equal priorities stay in the order of the names.
    relieved.sort_by_key(|state| Reverse(fleet.tier(state)));
    let blocked = fleet.active().filter(|state| state.blocked);
    let mut unplaced = sum(blocked.map(|state| state.replicas - state.placed));
    relieved.retain(|state| {
        let needed = unplaced > 0;
        unplaced = unplaced.saturating_sub(state.max().min(state.capacity));
        needed || fleet.tier(state).is_none()
    });
    relieved.into_iter().map(|state| state.position).collect()
}

/// The reason why a sleeping member is needed.
fn cause(fleet: &RuleContext<'_>) -> Option<&'static str> {
    // A member that cannot be changed may serve all the same.
    let kept = sum(fleet.pinned().map(MemberState::min));
    let minimums = sum(fleet.sharing().map(MemberState::min));
    let least = fleet
        .policy
        .bounds
        .min
        .get()
        .saturating_sub(kept)
        .min(minimums);
    let hosts = sum(fleet.awake().map(|state| state.max().min(state.capacity)));
    let demand: f64 = fleet.awake().filter_map(|state| state.demand).sum();
    // Within the tolerance no autoscaler would scale up either.
    let most = f64::from(hosts) * (1.0 + fleet.policy.tolerance);
    let nobody_serves = fleet.awake().next().is_none()
        && fleet
            .pinned()
            .all(|state| state.role == MemberRole::Lost && state.replicas == 0);
    if nobody_serves {
        Some("no member is awake")
    } else if sum(fleet.awake().map(MemberState::min)) < least {
        Some("the minimums of awake members add up to less than minReplicas")
    } else if fleet.floor.unmet > 0 {
        Some("awake members cannot run the floor of the fleet")
    } else if demand > most && Replicas::from_f64_ceil(demand).get() > hosts {
        Some("awake members cannot run what the demand needs")
    } else if fleet.awake().any(|state| state.decided.need > 0) {
        Some("a member needs more than its maximum")
    } else if fleet.awake().any(|state| state.blocked) {
        Some("a member has no capacity for its pods")
    } else {
        None
    }
}
