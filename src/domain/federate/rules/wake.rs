//! R11: sleeping members are woken when the awake ones cannot carry what is needed. It refuses to wake a member without
//! a budget.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use crate::domain::Replicas;
use crate::domain::federate::{Kind, Reason, Span};

use super::fleet::{Fleet, MemberState, Role, sum};

/// So soon after it was put to sleep, in cooldowns, a member that is woken should not have been.
const SOON_COOLDOWNS: i32 = 10;
const VIGIL: u32 = 3_600;
const LONGEST_VIGIL: u32 = 57_600;

/// Wakes whoever is needed, with one replica, from which its autoscaler goes on; where members may not sleep, every
/// member with a budget, at its minimum.
pub(super) fn wake(fleet: &mut Fleet<'_>) {
    let (now, may_sleep) = (fleet.now, fleet.policy.may_sleep());
    let wanted = wanted(fleet);
    let soon = fleet.policy.cooldown.checked_mul(SOON_COOLDOWNS);
    let soon = soon.unwrap_or(fleet.policy.cooldown);
    let mut woken = false;
    for (seat, why) in fleet.seats.iter_mut().zip(wanted) {
        if let Some(why) = why.filter(|_| seat.is_active() && seat.is_asleep()) {
            woken = true;
            let is_there = seat.member.pods.is_some();
            let first = if may_sleep && is_there { 1 } else { seat.min() };
            seat.write = Some(first.max(1));
            seat.entry.woken = Some(now);
            stay_awake(seat, soon, now);
            seat.tell(Reason::Woken, || why.to_owned());
        }
    }
    if woken {
        fleet.ledger.woken = Some(now);
    }
}

/// One that is needed soon after it was put to sleep is not put to sleep again for an hour, and then for twice as long
/// each time: what its sleep was decided by, estimates of capacity above all, was wrong.
fn stay_awake(seat: &mut MemberState<'_>, soon: SignedDuration, now: Timestamp) {
    let slept = seat.entry.slept.take();
    if slept.is_some_and(|slept| now.duration_since(slept) < soon) {
        seat.entry.needed = Some(Span::next(seat.entry.needed, now, VIGIL, LONGEST_VIGIL));
    }
}

/// Why each member is to be woken, if it is asleep; parallel to the seats.
fn wanted(fleet: &Fleet<'_>) -> Vec<Option<&'static str>> {
    let taken_over = taken_over(fleet);
    let received = |(at, seat): (usize, &MemberState<'_>)| {
        let lifted = seat.reasons.contains(&Reason::FloorLifted);
        let gained = lifted || taken_over.contains(&at);
        gained.then_some("it takes over what others cannot run")
    };
    if !fleet.policy.may_sleep() {
        let all = fleet.seats.iter().enumerate();
        return all
            .map(|(at, seat)| received((at, seat)).or(Some(always(seat))))
            .collect();
    }
    let all = fleet.seats.iter().enumerate().map(received);
    let mut wanted: Vec<_> = all.collect();
    let Some(cause) = cause(fleet) else {
        return wanted;
    };
    if fleet.policy.kind != Kind::Prioritized {
        return wanted.into_iter().map(|own| own.or(Some(cause))).collect();
    }
    let recently = fleet.within(fleet.ledger.woken, fleet.policy.cooldown);
    let sleepers = fleet.seats.iter().enumerate();
    let sleepers = sleepers.filter(|(_, seat)| seat.is_active() && seat.is_asleep());
    let first = sleepers.min_by_key(|(at, seat)| (Reverse(seat.standing.priority), *at));
    if let Some((at, _)) = first.filter(|_| !recently || awake(fleet).next().is_none())
        && let Some(place) = wanted.get_mut(at)
    {
        *place = place.or(Some(cause));
    }
    wanted
}

/// Why a member with a budget is awake where members may not sleep.
const fn always(seat: &MemberState<'_>) -> &'static str {
    match seat.member.pods {
        None => "the hub places the workload there",
        Some(_) => "members may not sleep",
    }
}

/// The sleepers, by position, that were just given budget of blocked members (R5) and are needed for their pods. Under
/// Prioritized those of highest priority: budget may go further down than the pods do.
fn taken_over(fleet: &Fleet<'_>) -> Vec<usize> {
    let relieved = fleet.seats.iter().enumerate();
    let mut relieved: Vec<_> = relieved
        .filter(|(_, seat)| seat.reasons.contains(&Reason::Relief) && seat.is_asleep())
        .collect();
    if fleet.policy.kind == Kind::Prioritized {
        relieved.sort_by_key(|(at, seat)| (Reverse(seat.standing.priority), *at));
        let blocked = fleet.active().filter(|seat| seat.blocked);
        let mut homeless = sum(blocked.map(|seat| seat.replicas - seat.placed));
        relieved.retain(|(_, seat)| {
            let needed = homeless > 0;
            homeless = homeless.saturating_sub(seat.max().min(seat.capacity));
            needed
        });
    }
    relieved.into_iter().map(|(at, _)| at).collect()
}

fn awake<'f, 'a>(fleet: &'f Fleet<'a>) -> impl Iterator<Item = &'f MemberState<'a>> {
    fleet.active().filter(|seat| seat.is_awake())
}

/// Why some sleeper is needed.
fn cause(fleet: &Fleet<'_>) -> Option<&'static str> {
    let pinned = || fleet.seats.iter().filter(|seat| seat.role.is_pinned());
    let with_budget = fleet.active().filter(|seat| seat.max() > 0);
    let minima = sum(with_budget.map(MemberState::min));
    let kept = sum(pinned().map(MemberState::min));
    let least = fleet
        .policy
        .bounds
        .min
        .get()
        .saturating_sub(kept)
        .min(minima);
    let hosts = sum(awake(fleet).map(|seat| seat.max().min(seat.capacity)));
    let demand: f64 = awake(fleet).filter_map(|seat| seat.demand).sum();
    let most = f64::from(hosts) * (1.0 + fleet.policy.tolerance);
    if awake(fleet).next().is_none()
        && pinned().all(|seat| seat.role == Role::Lost && seat.replicas == 0)
    {
        Some("no member is awake")
    } else if sum(awake(fleet).map(MemberState::min)) < least {
        Some("awake members sum to less than minReplicas")
    } else if fleet.unmet > 0 {
        Some("awake members cannot run what the fleet must have")
    } else if demand > most && Replicas::from_f64_ceil(demand).get() > hosts {
        Some("awake members cannot run what the demand asks for")
    } else if awake(fleet).any(|seat| seat.need > 0) {
        Some("a member needs more than its maximum")
    } else if awake(fleet).any(|seat| seat.blocked) {
        Some("a member has no room for its pods")
    } else {
        None
    }
}
