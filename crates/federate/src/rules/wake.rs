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
pub(super) fn wake<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let members = fleet.members.iter().zip(wanted(fleet));
    let woken = members.filter(|(state, _)| state.is_active() && state.is_asleep());
    let changes = woken.filter_map(|(state, why)| {
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
        Some(Change::because(
            state,
            effect,
            Reason::Woken,
            why?.to_owned(),
        ))
    });
    let changes: Vec<_> = changes.collect();
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
    let takeover_cause = |state: &MemberState<'_>| {
        let lifted = state.decided.reasons.contains(&Reason::FloorLifted);
        let gained = lifted || taken_over.contains(&state.position);
        gained.then_some("it takes over replicas that other members cannot run")
    };
    if !fleet.policy.may_sleep() {
        let cause = |state| takeover_cause(state).or(Some(always(state)));
        return fleet.members.iter().map(cause).collect();
    }
    let mut wanted: Vec<_> = fleet.members.iter().map(takeover_cause).collect();
    let Some(cause) = cause(fleet) else {
        return wanted;
    };
    if fleet.policy.kind != AssignmentKind::Prioritized {
        return wanted.into_iter().map(|own| own.or(Some(cause))).collect();
    }
    let recently = fleet.within(fleet.ledger.woken, fleet.policy.cooldown);
    let sleepers = fleet.active().filter(|state| state.is_asleep());
    // One at a time, the highest priority first; of equal ones the first by name.
    let first = sleepers.min_by_key(|state| Reverse(state.preference.priority));
    // With no member awake nothing serves, so the wait is skipped.
    if let Some(first) = first.filter(|_| !recently || awake(fleet).next().is_none())
        && let Some(place) = wanted.get_mut(first.position)
    {
        *place = place.or(Some(cause));
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
    let is_relief = |state: &&MemberState<'_>| {
        state.decided.reasons.contains(&Reason::Relief) && state.is_asleep()
    };
    let mut relieved: Vec<_> = fleet.members.iter().filter(is_relief).collect();
    if fleet.policy.kind == AssignmentKind::Prioritized {
        // Stable: equal priorities stay in the order of the names.
        relieved.sort_by_key(|state| Reverse(state.preference.priority));
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

fn awake<'f, 'a>(fleet: &'f RuleContext<'a>) -> impl Iterator<Item = &'f MemberState<'a>> {
    fleet.active().filter(|state| state.is_awake())
}

/// The reason why a sleeping member is needed.
fn cause(fleet: &RuleContext<'_>) -> Option<&'static str> {
    // A member that cannot be changed may serve all the same.
    let pinned = || fleet.members.iter().filter(|state| state.role.is_pinned());
    let with_budget = fleet.active().filter(|state| state.max() > 0);
    let minimums = sum(with_budget.map(MemberState::min));
    let kept = sum(pinned().map(MemberState::min));
    let least = fleet
        .policy
        .bounds
        .min
        .get()
        .saturating_sub(kept)
        .min(minimums);
    let hosts = sum(awake(fleet).map(|state| state.max().min(state.capacity)));
    let demand: f64 = awake(fleet).filter_map(|state| state.demand).sum();
    // Within the tolerance no autoscaler would scale up either.
    let most = f64::from(hosts) * (1.0 + fleet.policy.tolerance);
    if awake(fleet).next().is_none()
        && pinned().all(|state| state.role == MemberRole::Lost && state.replicas == 0)
    {
        Some("no member is awake")
    } else if sum(awake(fleet).map(MemberState::min)) < least {
        Some("the minimums of awake members add up to less than minReplicas")
    } else if fleet.floor.unmet > 0 {
        Some("awake members cannot run the floor of the fleet")
    } else if demand > most && Replicas::from_f64_ceil(demand).get() > hosts {
        Some("awake members cannot run what the demand needs")
    } else if awake(fleet).any(|state| state.decided.need > 0) {
        Some("a member needs more than its maximum")
    } else if awake(fleet).any(|state| state.blocked) {
        Some("a member has no capacity for its pods")
    } else {
        None
    }
}
