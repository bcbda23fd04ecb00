//! R5: a member with unschedulable pods gives the budget that it cannot use to members with room. Pods that have a node
//! stay.
//!
//! The number of placed pods counts as the member's capacity for ten minutes, and for twice as long each time it is
//! proved again: it overrides every estimate, also for elastic members.

use jiff::{SignedDuration, Timestamp};

use crate::Replicas;
use crate::federate::{
    AssignmentKind, Backoff, Reason, Recipient, Span, Surplus, divide::quota_split,
};
use crate::words::counted;

use super::fleet::RuleContext;
use super::member::{DivisionLimits, MemberState, sum};

/// For how long placed pods count as the capacity of a member, the first time.
const BACKOFF_SECONDS: u32 = 600;
/// The most that this time grows to when it doubles.
const LONGEST_BACKOFF_SECONDS: u32 = 7_200;

/// Finds blocked members, and stores the capacities that unschedulable pods prove.
pub(super) fn observe(fleet: &mut RuleContext<'_>) {
    let (now, delay) = (fleet.now, fleet.policy.delay);
    let weighs = fleet.weighs_capacity();
    for state in fleet.active_mut() {
        let old = |since: Timestamp| now.duration_since(since) >= delay;
        let pods = state.member.pods.unwrap_or_default();
        state.blocked = state.placed < state.replicas && pods.unschedulable_since.is_some_and(old);
        let placed = Replicas::new(state.placed);
        let claimed = state.estimate();
        if state
            .entry
            .backoff
            .is_some_and(|backoff| placed > backoff.placed)
        {
            // More pods run than seemed possible: the proof is outdated.
            state.entry.backoff = None;
        }
        if let Some(backoff) = state
            .entry
            .backoff
            .as_mut()
            .filter(|backoff| claimed > backoff.claimed)
        {
            // The estimate has grown, perhaps by a new node, so it is tried now.
            backoff.span.until = backoff.span.until.min(now);
        }
        if state.blocked {
            state.entry.backoff = Some(next_backoff(state.entry.backoff, placed, claimed, now));
            // The stored capacity proved wrong; when the backoff ends, the present estimate is tried next.
            if let Some(claimed) = claimed.filter(|c| state.entry.capacity > Some(*c)) {
                state.store_capacity(claimed, weighs);
            }
        }
        if let Some(backoff) = state
            .entry
            .backoff
            .filter(|backoff| now < backoff.span.until)
        {
            // What is placed is proved; the scheduler found no node for more.
            state.capacity = backoff.placed.get();
        }
    }
}

fn next_backoff(
    before: Option<Backoff>,
    placed: Replicas,
    claimed: Option<Replicas>,
    now: Timestamp,
) -> Backoff {
    let span = match before {
        // A member that is still blocked does not double its backoff with every sync.
        Some(backoff) if now < backoff.span.until => backoff.span,
        before => Span::next(
            before.map(|backoff| backoff.span),
            now,
            BACKOFF_SECONDS,
            LONGEST_BACKOFF_SECONDS,
        ),
    };
    Backoff {
        placed,
        claimed,
        span,
    }
}

impl Span {
    /// The next span: of `first` seconds, or twice as long as `before`, up to `longest`.
    pub(super) fn next(before: Option<Self>, now: Timestamp, first: u32, longest: u32) -> Self {
        let seconds = before.map_or(first, |span| span.seconds.saturating_mul(2).min(longest));
        let until = now.checked_add(SignedDuration::from_secs(i64::from(seconds)));
        Self {
            until: until.unwrap_or(Timestamp::MAX),
            seconds,
        }
    }
}

/// Moves the budget that blocked members cannot use.
///
/// Donors give tier by tier under Prioritized, all at once otherwise. Receivers are not blocked, have room by their
/// capacity, and were not just shrunk; they may be asleep, and need not have cooled down.
pub(super) fn relieve(fleet: &mut RuleContext<'_>) {
    let mut tiers: Vec<_> = fleet
        .active()
        .filter(|state| state.blocked)
        .map(|state| tier(fleet, state))
        .collect();
    tiers.sort_unstable();
    tiers.dedup();
    // The highest priority first, because the room of the others may not be enough for all.
    for from in tiers.into_iter().rev() {
        relieve_tier(fleet, from);
    }
}

fn tier(fleet: &RuleContext<'_>, state: &MemberState<'_>) -> Option<i64> {
    let ordered = fleet.policy.kind == AssignmentKind::Prioritized;
    state.preference.priority.filter(|_| ordered)
}

/// What a blocked member keeps: what is placed, at least one, at least its threshold.
fn keeps(state: &MemberState<'_>) -> u32 {
    state.placed.max(1).max(state.lower_limit())
}

fn relieve_tier(fleet: &mut RuleContext<'_>, from: Option<i64>) {
    let gives = |fleet: &RuleContext<'_>, state: &MemberState<'_>| {
        let is_donor = state.is_active() && state.blocked && tier(fleet, state) == from;
        if is_donor && !fleet.is_cooling_down(state) {
            state.max().saturating_sub(keeps(state))
        } else {
            0
        }
    };
    let offers: Vec<u32> = fleet
        .members
        .iter()
        .map(|state| gives(fleet, state))
        .collect();
    let spare = sum(offers.iter().copied());
    let gains = fleet.divide(spare, Surplus::Keep, |state| {
        let open = receives(fleet, state);
        open.then(|| DivisionLimits {
            priority: from.map(|from| nearness(from, state)),
            ..DivisionLimits::room(state.room())
        })
    });
    let mut rest = sum(gains.iter().copied());
    let (now, mut minimum, mut cause) = (fleet.now, 0_u32, None);
    let receivers = names(fleet, &gains);
    for (state, unusable) in fleet.members.iter_mut().zip(offers) {
        let moved = unusable.min(rest);
        rest -= moved;
        if moved > 0 {
            let why = symptom(state, now);
            let before = state.min();
            state.lose(moved, now);
            minimum = minimum.saturating_add(before.saturating_sub(state.min()));
            state.add_reason(Reason::Blocked, || {
                format!(
                    "{why}; moved {} of its budget to {receivers}",
                    counted(moved, "replica")
                )
            });
            cause.get_or_insert(why);
        } else if state.blocked && unusable > 0 {
            let why = symptom(state, now);
            state.add_reason(Reason::NoCapacityAnywhere, || {
                format!("{why}, and no other member has capacity")
            });
        }
    }
    if let Some(cause) = cause {
        receive(fleet, &gains, minimum, &cause);
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
fn receive(fleet: &mut RuleContext<'_>, gains: &[u32], minimum: u32, cause: &str) {
    let now = fleet.now;
    let recipients = gains.iter().map(|gain| Recipient {
        weight: u64::from(*gain),
        max: *gain,
        ..Recipient::default()
    });
    let recipients: Vec<_> = recipients.collect();
    let minimums = quota_split(minimum, &recipients).shares;
    for ((state, gain), minimum) in fleet.members.iter_mut().zip(gains).zip(minimums) {
        if *gain > 0 {
            let text = format!(
                "{cause}; {} has capacity for {}",
                state.name(),
                state.capacity
            );
            state.gain(*gain, now);
            let min = state.min().saturating_add(minimum).min(state.max());
            state.set_budget(min, state.max());
            state.add_reason(Reason::Relief, || text);
        }
    }
}

fn receives(fleet: &RuleContext<'_>, state: &MemberState<'_>) -> bool {
    state.is_active()
        && !state.blocked
        && !state.is_backed_off(fleet.now)
        && state.room() > 0
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
    let receivers = fleet
        .members
        .iter()
        .zip(gains)
        .filter(|(_, gain)| **gain > 0);
    let names: Vec<_> = receivers.map(|(state, _)| state.name()).collect();
    names.join(", ")
}
