//! R11: sleeping members with a budget are woken when the awake ones cannot run what is needed.

use std::cmp::Reverse;

use crate::{AssignmentKind, Ledger, Reason, Span};
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

/// Wakes the members that are needed, with one replica, from which their autoscalers continue; where members must
/// not sleep, every member with a budget, at its minimum.
pub fn wake<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let mut changes = Vec::new();
    for (state, why) in fleet.members.iter().zip(wanted(fleet)) {
        let Some(why) = why.filter(|_| state.is_active() && state.is_asleep()) else {
            continue;
        };
        let is_there = state.member.pods.is_some();
        let first = if fleet.policy.may_sleep() && is_there {
            1
        } else {
            state.min().max(1)
        };
        let effect = Effect::Wake {
            count: first,
            stays_awake: longer_stay_awake(fleet, state),
        };
        let text = why.to_owned();
        changes.push(Change::because(state, effect, Reason::Woken, text));
    }
    if changes.is_empty() {
        return Step::default();
    }
    Step::of(changes).with_ledger(Ledger {
        woken: Some(fleet.now),
        ..fleet.ledger.clone()
    })
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

/// The reason why each member is to be woken if it is asleep; parallel to the members.
fn wanted(fleet: &RuleContext<'_>) -> Vec<Option<&'static str>> {
    let taken_over = taken_over(fleet);
    let mut wanted = vec![None; fleet.members.len()];
    for (state, why) in fleet.members.iter().zip(&mut wanted) {
        if state.has_reason(Reason::FloorLifted) || taken_over.contains(&state.position) {
            *why = Some("it takes over replicas that other members cannot run");
        } else if !fleet.policy.may_sleep() {
            *why = Some(always(state));
        }
    }
    if !fleet.policy.may_sleep() {
        return wanted;
    }
    let Some(cause) = cause(fleet) else {
        return wanted;
    };
    if fleet.policy.kind != AssignmentKind::Prioritized {
        for why in &mut wanted {
            why.get_or_insert(cause);
        }
        return wanted;
    }
    // One at a time, the highest priority first; of equal ones the first by name.
    let first = fleet
        .active()
        .filter(|state| state.is_asleep())
        .min_by_key(|state| Reverse(state.priority()));
    // With no member awake nothing serves, so the wait is skipped.
    let is_due =
        !fleet.within(fleet.ledger.woken, fleet.policy.cooldown) || fleet.awake().next().is_none();
    if let Some(first) = first.filter(|_| is_due)
        && let Some(why) = wanted.get_mut(first.position)
    {
        why.get_or_insert(cause);
    }
    wanted
}

/// The reason why a member with a budget is awake where members must not sleep.
fn always(state: &MemberState<'_>) -> &'static str {
    match state.member.pods {
        None => "the hub places the workload there",
        Some(_) => "the policy does not let members scale to zero",
    }
}

/// The positions of sleeping members that were just given budget of blocked ones (R5) and are needed for their pods.
/// Under Prioritized only those of the highest priorities: budget may go further down than the pods do.
fn taken_over(fleet: &RuleContext<'_>) -> Vec<usize> {
    let mut relieved: Vec<_> = fleet.members.iter().collect();
    relieved.retain(|state| state.has_reason(Reason::Relief) && state.is_asleep());
    if fleet.policy.kind == AssignmentKind::Prioritized {
        // Stable: equal priorities stay in the order of the names.
        relieved.sort_by_key(|state| Reverse(state.priority()));
        let blocked = fleet.active().filter(|state| state.blocked);
        let mut unplaced = sum(blocked.map(|state| state.replicas - state.placed));
        relieved.retain(|state| {
            let needed = unplaced > 0;
            unplaced = unplaced.saturating_sub(state.max().min(state.capacity));
            needed
        });
    }
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
