//! R10: where members may sleep and all of them idle at their minimum, one is put to sleep. It refuses to leave the
//! others with more than they can carry, and to end pods that the floor needs before the others have taken it over.

use std::collections::BTreeMap;

use crate::domain::Replicas;
use crate::domain::federate::{Kind, Reason};
use crate::domain::workload::Mode;

use super::fleet::{Fleet, MemberState, sum};
use super::floor;
use super::optimize::divide_headroom;

/// Puts one member to sleep, if all have idled for long enough and the user lets so many pods end; before that, the
/// others take over its share of the floor, and it waits until they are ready.
pub(super) fn sleep(fleet: &mut Fleet<'_>) {
    let handover = fleet.ledger.handover.take();
    let may_sleep = fleet.policy.may_sleep() && fleet.ledger.landing.is_none();
    let victim = victim(fleet).filter(|_| may_sleep).map(str::to_owned);
    let bequest = victim.as_deref().and_then(|v| bequest(fleet, v));
    let idles = may_sleep && is_idle(fleet, bequest.as_ref());
    let since = fleet.ledger.idle_since;
    fleet.ledger.idle_since = idles.then(|| since.unwrap_or(fleet.now));
    let (Some(victim), Some(bequest)) = (victim, bequest) else {
        return;
    };
    let now = || sum(fleet.counted().map(|seat| seat.replicas));
    let before = handover.map_or_else(now, Replicas::get);
    if !fleet.settled(fleet.ledger.idle_since)
        || will_be_left(fleet, &victim, &bequest) < least(fleet, before)
    {
        fleet.ledger.handover = handover.filter(|_| idles);
        return;
    }
    if have_taken_over(fleet, &victim, before) {
        put_to_sleep(fleet, &victim);
    } else {
        fleet.bequest = bequest;
        fleet.ledger.handover = Some(Replicas::new(before));
    }
}

/// How many replicas have to be left: as many as one autoscaler over the whole would keep, after the user's window and
/// within the user's policies, of those that ran `before` others took anything over. In Direct the hub divides that
/// count, whoever sleeps.
fn least(fleet: &Fleet<'_>, before: u32) -> u32 {
    match fleet.policy.mode {
        Mode::Delegated => fleet
            .total
            .desired
            .map_or(before, Replicas::get)
            .min(before),
        Mode::Direct => 0,
    }
}

/// What is left without one member when the others run what they take over.
fn will_be_left(fleet: &Fleet<'_>, victim: &str, taken_over: &BTreeMap<&str, u32>) -> u32 {
    let others = without(fleet, victim);
    let runs = |seat: &MemberState<'_>| {
        let share = taken_over.get(seat.name()).copied();
        seat.replicas.max(share.unwrap_or(0))
    };
    sum(others.map(runs))
}

fn without<'f, 'a>(
    fleet: &'f Fleet<'a>,
    victim: &str,
) -> impl Iterator<Item = &'f MemberState<'a>> {
    fleet.counted().filter(move |seat| seat.name() != victim)
}

/// What the others take over. In Direct the hub divides counts, not floors, and does so at once.
fn bequest<'a>(fleet: &Fleet<'a>, victim: &str) -> Option<BTreeMap<&'a str, u32>> {
    match fleet.policy.mode {
        Mode::Delegated => floor::reassigned(fleet, victim),
        Mode::Direct => Some(BTreeMap::new()),
    }
}

fn have_taken_over(fleet: &Fleet<'_>, victim: &str, before: u32) -> bool {
    let others = awake(fleet).filter(|seat| seat.name() != victim);
    let ready = sum(others.map(|seat| seat.ready));
    let kept = fleet.seats.iter().filter(|seat| seat.role.is_pinned());
    let floor_is_met = ready.saturating_add(sum(kept.map(MemberState::min))) >= fleet.floor;
    let left = sum(without(fleet, victim).map(|seat| seat.ready));
    let may_end = left >= least(fleet, before);
    fleet.policy.mode == Mode::Direct || floor_is_met && may_end
}

fn put_to_sleep(fleet: &mut Fleet<'_>, victim: &str) {
    let now = fleet.now;
    fleet.ledger.idle_since = None;
    for seat in fleet.active_mut().filter(|seat| seat.name() == victim) {
        seat.write = Some(0);
        seat.floor = 0;
        seat.entry.moved = Some(now);
        seat.entry.slept = Some(now);
        seat.tell(Reason::Slept, || {
            "all members idle at their minimum, and the others serve without it".to_owned()
        });
    }
    // A sleeper keeps a maximum of one at least, and the rest of its head-room serves where the pods are.
    if fleet.moves() {
        divide_headroom(fleet);
    }
}

fn awake<'f, 'a>(fleet: &'f Fleet<'a>) -> impl Iterator<Item = &'f MemberState<'a>> {
    fleet.active().filter(|seat| seat.is_awake())
}

/// Every awake member is at its minimum, below its target, and has been left alone for a while; and minima sum to more
/// than MIN.
fn is_idle(fleet: &Fleet<'_>, bequest: Option<&BTreeMap<&str, u32>>) -> bool {
    let takes_over = |seat: &MemberState<'_>| seat.replicas > seat.written_min();
    let at_ease = |seat: &MemberState<'_>| {
        let runs = seat.placed == seat.replicas && seat.ready == seat.replicas;
        (runs || takes_over(seat) && !seat.blocked)
            && seat.need == 0
            && !fleet.cools(seat)
            && !fleet.within(seat.entry.woken, fleet.policy.cooldown)
    };
    let minima = sum(awake(fleet).map(MemberState::min));
    awake(fleet).all(at_ease)
        && awake(fleet).nth(1).is_some()
        && is_at_minimum(fleet, bequest)
        && is_below_target(fleet)
        && fleet.unmet == 0
        && minima > fleet.policy.bounds.min.get()
}

/// Whether no count could go down. In Direct the hub divides the count of the fleet, so that it is the sum that counts,
/// and a count that was asked for by metrics is no minimum.
///
/// Who takes over another's share of the floor is at its minimum with that share, and on the way to it.
fn is_at_minimum(fleet: &Fleet<'_>, bequest: Option<&BTreeMap<&str, u32>>) -> bool {
    if fleet.policy.mode == Mode::Delegated {
        return awake(fleet).all(|seat| {
            let least = seat.written_min();
            let share = bequest.and_then(|shares| shares.get(seat.name()));
            let most = share.map_or(least, |share| least.max((*share).min(seat.max())));
            (least..=most).contains(&seat.replicas)
        });
    }
    let mut shares = floor::split(fleet, fleet.asked).shares.into_iter();
    let least = awake(fleet).map(|seat| {
        let share = shares.next().unwrap_or(0);
        seat.min().max(share).min(seat.max())
    });
    let least = sum(least);
    sum(awake(fleet).map(|seat| seat.replicas)) <= least
}

/// Whether every member is below its target; where members measure nothing, because all metrics are the fleet's,
/// whether they are together.
fn is_below_target(fleet: &Fleet<'_>) -> bool {
    let load = |replicas: u32| (1.0 - fleet.policy.tolerance) * f64::from(replicas);
    if awake(fleet).any(|seat| seat.demand.is_some()) {
        let is_below = |demand: f64, seat: &MemberState<'_>| demand < load(seat.replicas);
        return awake(fleet).all(|seat| seat.demand.is_some_and(|demand| is_below(demand, seat)));
    }
    let ready = sum(awake(fleet).map(|seat| seat.ready));
    fleet
        .total
        .demand
        .is_some_and(|demand| demand < load(ready))
}

/// Whom the others can do without: the one the policy would rather have asleep, the last by name among equals.
fn victim<'f>(fleet: &'f Fleet<'_>) -> Option<&'f str> {
    let spared = |seat: &&MemberState<'_>| {
        let is_needed = seat.entry.needed.is_some_and(|span| fleet.now < span.until);
        seat.lo() == 0 && !is_needed && carries_on(fleet, seat)
    };
    let rank = |seat: &MemberState<'_>| match fleet.policy.kind {
        Kind::Prioritized => seat.standing.priority.unwrap_or(i64::MIN),
        Kind::Aggregated => i64::from(seat.replicas),
        _ => i64::try_from(seat.entry.weight).unwrap_or(i64::MAX),
    };
    let order = |a: &&MemberState<'_>, b: &&MemberState<'_>| {
        rank(a).cmp(&rank(b)).then_with(|| b.name().cmp(a.name()))
    };
    awake(fleet)
        .filter(spared)
        .min_by(order)
        .map(MemberState::name)
}

/// Whether the others keep MIN, can host what is asked for, and stay below their target without this one.
fn carries_on(fleet: &Fleet<'_>, without: &MemberState<'_>) -> bool {
    let others = || awake(fleet).filter(|seat| seat.name() != without.name());
    let least = fleet.policy.bounds.min.get();
    let hosts = sum(others().map(|seat| {
        let known = seat.member.capacity.is_some() || seat.is_marked(fleet.now);
        let runs = if known { seat.capacity } else { seat.placed };
        runs.min(seat.max())
    }));
    // Members that are no part of the fleet any more may serve now and not for long.
    let demand: f64 = awake(fleet).filter_map(|seat| seat.demand).sum();
    let demand = demand.max(fleet.total.demand.unwrap_or(0.0));
    let load = f64::from(sum(others().map(|seat| seat.ready))) * (1.0 - fleet.policy.tolerance);
    let needed = Replicas::from_f64_ceil(demand)
        .get()
        .max(fleet.floor)
        .max(least);
    sum(others().map(MemberState::min)) >= least && hosts >= needed && demand < load
}
