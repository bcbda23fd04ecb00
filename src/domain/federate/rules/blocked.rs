//! R5: a member whose pods find no node gives the budget that it cannot use to members with room. It refuses to
//! end pods that have a node.
//!
//! What was placed is remembered as the member's capacity, for ten minutes and then for twice as long each time:
//! feedback beats estimates, also those of members that are said to grow.

use jiff::{SignedDuration, Timestamp};

use crate::domain::Replicas;
use crate::domain::federate::{Backoff, Kind, Reason, Slot, Span, Surplus, divide::quota_split};

use super::fleet::{Fleet, MemberState, Part, sum};

const MARK: u32 = 600;
const LONGEST_MARK: u32 = 7_200;

/// Looks at unschedulable pods: who is blocked, and what capacities they prove.
pub(super) fn observe(fleet: &mut Fleet<'_>) {
    let (now, delay) = (fleet.now, fleet.policy.delay);
    let weighs = fleet.weighs_capacity();
    for seat in fleet.active_mut() {
        let old = |since: Timestamp| now.duration_since(since) >= delay;
        let pods = seat.member.pods.unwrap_or_default();
        seat.blocked = seat.placed < seat.replicas && pods.unschedulable_since.is_some_and(old);
        let placed = Replicas::new(seat.placed);
        let claimed = seat.estimate();
        if seat.entry.mark.is_some_and(|mark| placed > mark.placed) {
            seat.entry.mark = None;
        }
        if let Some(mark) = seat
            .entry
            .mark
            .as_mut()
            .filter(|mark| claimed > mark.claimed)
        {
            mark.span.until = mark.span.until.min(now);
        }
        if seat.blocked {
            seat.entry.mark = Some(marked(seat.entry.mark, placed, claimed, now));
            // What is stored proved wrong; when the mark ends, the estimate of today is tried next.
            if let Some(claimed) = claimed.filter(|c| seat.entry.capacity > Some(*c)) {
                seat.store_capacity(claimed, weighs);
            }
        }
        if let Some(mark) = seat.entry.mark.filter(|mark| now < mark.span.until) {
            seat.capacity = mark.placed.get();
        }
    }
}

fn marked(
    before: Option<Backoff>,
    placed: Replicas,
    claimed: Option<Replicas>,
    now: Timestamp,
) -> Backoff {
    let span = match before {
        Some(mark) if now < mark.span.until => mark.span,
        before => Span::next(before.map(|mark| mark.span), now, MARK, LONGEST_MARK),
    };
    Backoff {
        placed,
        claimed,
        span,
    }
}

impl Span {
    /// The next one: of `first` seconds, or twice the last one up to `longest`.
    pub(super) fn next(before: Option<Self>, now: Timestamp, first: u32, longest: u32) -> Self {
        let seconds = before.map_or(first, |span| span.seconds.saturating_mul(2).min(longest));
        let until = now.checked_add(SignedDuration::from_secs(i64::from(seconds)));
        Self {
            until: until.unwrap_or(Timestamp::MAX),
            seconds,
        }
    }
}

/// Moves what blocked members cannot use.
///
/// One group of donors after the other: under Prioritized those of one priority, else all. Receivers are not blocked,
/// have room by their capacity, and were not just shrunk; they may be asleep and need not have cooled down.
pub(super) fn relieve(fleet: &mut Fleet<'_>) {
    let mut tiers: Vec<_> = fleet
        .active()
        .filter(|seat| seat.blocked)
        .map(|seat| tier(fleet, seat))
        .collect();
    tiers.sort_unstable();
    tiers.dedup();
    for from in tiers.into_iter().rev() {
        relieve_tier(fleet, from);
    }
}

fn tier(fleet: &Fleet<'_>, seat: &MemberState<'_>) -> Option<i64> {
    let ordered = fleet.policy.kind == Kind::Prioritized;
    seat.standing.priority.filter(|_| ordered)
}

/// What a blocked member keeps: what is placed, at least one, at least its threshold.
fn keeps(seat: &MemberState<'_>) -> u32 {
    seat.placed.max(1).max(seat.lo())
}

fn relieve_tier(fleet: &mut Fleet<'_>, from: Option<i64>) {
    let gives = |fleet: &Fleet<'_>, seat: &MemberState<'_>| {
        let is_donor = seat.is_active() && seat.blocked && tier(fleet, seat) == from;
        if is_donor && !fleet.cools(seat) {
            seat.max().saturating_sub(keeps(seat))
        } else {
            0
        }
    };
    let offers: Vec<u32> = fleet.seats.iter().map(|seat| gives(fleet, seat)).collect();
    let spare = sum(offers.iter().copied());
    let gains = fleet.spread(spare, Surplus::Keep, |seat| {
        let open = receives(fleet, seat);
        open.then(|| Part {
            priority: from.map(|from| nearness(from, seat)),
            ..Part::room(seat.room())
        })
    });
    let mut rest = sum(gains.iter().copied());
    let (now, mut minimum, mut cause) = (fleet.now, 0, None);
    let receivers = names(fleet, &gains);
    for (seat, unusable) in fleet.seats.iter_mut().zip(offers) {
        let moved = unusable.min(rest);
        rest -= moved;
        if moved > 0 {
            let why = symptom(seat, now);
            let before = seat.min();
            seat.lose(moved, now);
            minimum += before - seat.min();
            seat.tell(Reason::Blocked, || {
                format!("{why}; {moved} of its budget go to {receivers}")
            });
            cause.get_or_insert(why);
        } else if seat.blocked && unusable > 0 {
            let why = symptom(seat, now);
            seat.tell(Reason::NoCapacityAnywhere, || {
                format!("{why}, and no other member has room")
            });
        }
    }
    if let Some(cause) = cause {
        receive(fleet, &gains, minimum, &cause);
    }
}

/// What is wrong with a blocked member, for people.
fn symptom(seat: &MemberState<'_>, now: Timestamp) -> String {
    let pending = seat.replicas - seat.placed;
    let since = seat.member.pods.and_then(|pods| pods.unschedulable_since);
    let age = since.map_or(0, |since| now.duration_since(since).as_secs());
    format!(
        "{pending} pods unschedulable for {age} s in {}",
        seat.name()
    )
}

/// Hands budget out, and with it `minimum` of the donors' minima, in proportion.
fn receive(fleet: &mut Fleet<'_>, gains: &[u32], minimum: u32, cause: &str) {
    let now = fleet.now;
    let slots = gains.iter().map(|gain| Slot {
        weight: u64::from(*gain),
        hi: *gain,
        ..Slot::default()
    });
    let slots: Vec<_> = slots.collect();
    let minima = quota_split(minimum, &slots).shares;
    for ((seat, gain), minimum) in fleet.seats.iter_mut().zip(gains).zip(minima) {
        if *gain > 0 {
            let text = format!("{cause}; {} has room for {}", seat.name(), seat.capacity);
            seat.gain(*gain, now);
            let min = seat.min().saturating_add(minimum).min(seat.max());
            seat.set_budget(min, seat.max());
            seat.tell(Reason::Relief, || text);
        }
    }
}

fn receives(fleet: &Fleet<'_>, seat: &MemberState<'_>) -> bool {
    seat.is_active()
        && !seat.blocked
        && !seat.is_marked(fleet.now)
        && seat.room() > 0
        && !fleet.within(seat.entry.shrunk, fleet.policy.cooldown)
}

/// The tiers as seen from a blocked one: its own, then the lower ones downwards, then the higher ones upwards.
fn nearness(from: i64, seat: &MemberState<'_>) -> i64 {
    const FAR: i64 = i64::MAX / 4;
    let priority = seat.standing.priority.unwrap_or(-FAR).clamp(-FAR, FAR);
    if priority <= from {
        2 * FAR + priority
    } else {
        -2 * FAR - priority
    }
}

fn names(fleet: &Fleet<'_>, gains: &[u32]) -> String {
    let receivers = fleet.seats.iter().zip(gains).filter(|(_, gain)| **gain > 0);
    let names: Vec<_> = receivers.map(|(seat, _)| seat.name()).collect();
    names.join(", ")
}
