//! R10: where members may sleep and all of them idle at their minimum, one is scaled to zero. The others must be able
//! to serve the load without it, and take over its share of the floor before its pods end.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;

use crate::{Ledger, Reason};
use foretide_domain::Replicas;

use super::fleet::{Floor, RuleContext, Step};
use super::floor;
use super::member::{Change, Effect, MemberState, sum};
use super::optimize::divide_headroom;

/// Puts one member to sleep, if all have idled for long enough: where the hub divides counts at once, so that nobody has
/// to take over anything first.
pub fn at_once<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let ledger = observed(fleet, is_idle(fleet) && is_least_together(fleet));
    match victim(fleet).filter(|_| fleet.settled(ledger.idle_since)) {
        Some(victim) => put_to_sleep(victim, ledger),
        None => Step::default().with_ledger(ledger),
    }
}

/// Puts one member to sleep, if all have idled for long enough and the user's behavior lets that many pods end. Before
/// that, the others take over its share of the floor and become ready.
pub fn after_handover<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let handover = fleet.ledger.handover;
    let victim = victim(fleet);
    let reassigned = victim.and_then(|victim| floor::reassigned(fleet, victim.name()));
    let idles = is_idle(fleet) && is_each_at_least(fleet, reassigned.as_ref());
    let ledger = observed(fleet, idles);
    let (Some(victim), Some(reassigned)) = (victim, reassigned) else {
        return Step::default().with_ledger(ledger);
    };
    let before = match handover {
        Some(before) => before.get(),
        None => sum(fleet.counted().map(|state| state.replicas)),
    };
    if !fleet.settled(ledger.idle_since)
        || will_be_left(fleet, victim.name(), &reassigned) < least(fleet, before)
    {
        let handover = handover.filter(|_| idles);
        return Step::default().with_ledger(Ledger { handover, ..ledger });
    }
    if have_taken_over(fleet, victim.name(), before) {
        return put_to_sleep(victim, ledger);
    }
    let ledger = Ledger {
        handover: Some(Replicas::new(before)),
        ..ledger
    };
    Step::default().with_ledger(ledger).with_floor(Floor {
        reassigned,
        ..fleet.floor.clone()
    })
}

/// Forgets what was observed where no member may sleep.
pub fn never<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    Step::default().with_ledger(observed(fleet, false))
}

/// The ledger after an observation: since when all members idle. A takeover that goes on is added to it.
fn observed(fleet: &RuleContext<'_>, idles: bool) -> Ledger {
    let since = fleet.ledger.idle_since.unwrap_or(fleet.now);
    Ledger {
        idle_since: idles.then_some(since),
        handover: None,
        ..fleet.ledger.clone()
    }
}

/// The number of replicas that must be left: as many as one autoscaler over the whole fleet would keep, after the user's window
/// and within the user's policies, of those that ran `before` the takeover began.
fn least(fleet: &RuleContext<'_>, before: u32) -> u32 {
    fleet.floor.kept.map_or(before, |kept| kept.min(before))
}

/// The replicas that are left without one member when the others run what they take over.
fn will_be_left(fleet: &RuleContext<'_>, victim: &str, taken_over: &BTreeMap<&str, u32>) -> u32 {
    sum(without(fleet, victim).map(|state| {
        let share = taken_over.get(state.name()).copied();
        state.replicas.max(share.unwrap_or(0))
    }))
}

fn without<'f, 'a>(
    fleet: &'f RuleContext<'a>,
    victim: &str,
) -> impl Iterator<Item = &'f MemberState<'a>> {
    fleet.counted().filter(move |state| state.name() != victim)
}

fn have_taken_over(fleet: &RuleContext<'_>, victim: &str, before: u32) -> bool {
    let others = fleet.awake().filter(|state| state.name() != victim);
    let ready = sum(others.map(|state| state.ready));
    let kept = sum(fleet.pinned().map(MemberState::min));
    let floor_is_met = ready.saturating_add(kept) >= fleet.floor.count;
    let left = sum(without(fleet, victim).map(|state| state.ready));
    floor_is_met && left >= least(fleet, before)
}

fn put_to_sleep<'a>(victim: &MemberState<'_>, ledger: Ledger) -> Step<'a> {
    let text = "all members idle at their minimum, and the others serve the load without it";
    let slept = Change::because(victim, Effect::Sleep, Reason::Slept, text.to_owned());
    Step::of([slept]).with_ledger(Ledger {
        idle_since: None,
        ..ledger
    })
}

/// A member that was just put to sleep keeps a maximum of at least one; the rest of its headroom goes to the running
/// ones.
pub fn share_headroom<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let mut members = fleet.members.iter();
    if members.any(|state| state.has_reason(Reason::Slept)) {
        divide_headroom(fleet)
    } else {
        Step::default()
    }
}

/// True if every awake member is below its target and has cooled down, minimums add up to more than MIN, and no landing is
/// in progress.
fn is_idle(fleet: &RuleContext<'_>) -> bool {
    let minimums = sum(fleet.awake().map(MemberState::min));
    fleet.ledger.landing.is_none()
        && fleet.awake().all(|state| is_calm(fleet, state))
        // The last one must stay awake.
        && fleet.awake().nth(1).is_some()
        && is_below_target(fleet)
        && fleet.floor.unmet == 0
        && minimums > fleet.policy.bounds.min.get()
}

/// True if a member's pods run, it needs no more of them, and neither its budget nor its sleep has just changed.
fn is_calm(fleet: &RuleContext<'_>, state: &MemberState<'_>) -> bool {
    let runs = state.placed == state.replicas && state.ready == state.replicas;
    // What a member starts for a takeover need not be ready yet.
    let takes_over = state.replicas > state.written_min() && !state.blocked;
    (runs || takes_over)
        && state.decided.need == 0
        && !fleet.is_cooling_down(state)
        && !fleet.within(state.entry.woken, fleet.policy.cooldown)
}

/// True if no member's count could go down. One that takes over another's share of the floor may be anywhere up to its
/// minimum with that share.
fn is_each_at_least(fleet: &RuleContext<'_>, reassigned: Option<&BTreeMap<&str, u32>>) -> bool {
    fleet.awake().all(|state| {
        let least = state.written_min();
        let share = reassigned.and_then(|shares| shares.get(state.name()));
        let most = share.map_or(least, |share| least.max((*share).min(state.max())));
        (least..=most).contains(&state.replicas)
    })
}

/// True if the fleet's count could not go down: the sum counts where the hub divides it, and a count that metrics ask for
/// is no minimum.
fn is_least_together(fleet: &RuleContext<'_>) -> bool {
    let shares = floor::split(fleet, fleet.floor.requested).shares;
    let mut shares = shares.into_iter();
    let least = fleet.awake().map(|state| {
        let share = shares.next().unwrap_or(0);
        state.min().max(share).min(state.max())
    });
    let least = sum(least);
    sum(fleet.awake().map(|state| state.replicas)) <= least
}

/// True if every member is below its target; where no member has a demand, because all metrics are the fleet's, whether
/// they are together.
fn is_below_target(fleet: &RuleContext<'_>) -> bool {
    if fleet.awake().any(|state| state.demand.is_some()) {
        fleet.awake().all(|state| {
            let low = fleet.low_demand(state.replicas);
            state.demand.is_some_and(|demand| demand < low)
        })
    } else {
        let low = fleet.low_demand(sum(fleet.awake().map(|state| state.ready)));
        fleet.total.demand.is_some_and(|demand| demand < low)
    }
}

/// The member to put to sleep, if the others can serve without it: the one that the policy ranks last, the last by name
/// among equals. None while a landing is in progress.
fn victim<'f, 'a>(fleet: &'f RuleContext<'a>) -> Option<&'f MemberState<'a>> {
    if fleet.ledger.landing.is_some() {
        return None;
    }
    let all = Service::of_all(fleet.awake());
    // Members that leave the fleet may still serve part of the demand.
    let demand: f64 = fleet.awake().filter_map(|state| state.demand).sum();
    let demand = demand.max(fleet.total.demand.unwrap_or(0.0));
    fleet
        .awake()
        .filter(|state| {
            let others = all.without(Service::of(state));
            may_sleep(state, fleet.now) && others.is_enough(fleet, demand)
        })
        .min_by_key(|state| ((fleet.rule_set.rank)(state), Reverse(state.name())))
}

/// True if a member may be without replicas by its own limits, and was not needed soon after its last sleep.
fn may_sleep(state: &MemberState<'_>, now: Timestamp) -> bool {
    let is_needed = state.entry.needed.is_some_and(|span| now < span.until);
    state.lower_limit() == 0 && !is_needed
}

/// The abilities of members together. Sums do not saturate, so that one of them can be taken away again.
#[derive(Clone, Copy, Default)]
struct Service {
    /// The floor that they keep.
    min: u64,
    /// The replicas that they can run.
    hosts: u64,
    /// The replicas that are ready.
    ready: u64,
}

// === impl Service ===

impl Service {
    fn of(state: &MemberState<'_>) -> Self {
        // Without a known capacity, only what is placed is certain.
        let is_known = state.member.capacity.is_some() || state.proved.is_some();
        let runs = if is_known {
            state.capacity
        } else {
            state.placed
        };
        Self {
            min: state.min().into(),
            hosts: runs.min(state.max()).into(),
            ready: state.ready.into(),
        }
    }

    fn of_all<'a>(states: impl Iterator<Item = &'a MemberState<'a>>) -> Self {
        states.map(Self::of).fold(Self::default(), |all, one| Self {
            min: all.min + one.min,
            hosts: all.hosts + one.hosts,
            ready: all.ready + one.ready,
        })
    }

    /// The same without one of the members.
    const fn without(self, one: Self) -> Self {
        Self {
            min: self.min - one.min,
            hosts: self.hosts - one.hosts,
            ready: self.ready - one.ready,
        }
    }

    /// True if it keeps MIN, can run the floor and this demand in replicas, and stays below its target.
    fn is_enough(self, fleet: &RuleContext<'_>, demand: f64) -> bool {
        let least = fleet.policy.bounds.min.get();
        let ready = u32::try_from(self.ready).unwrap_or(u32::MAX);
        let needed = Replicas::from_f64_ceil(demand)
            .get()
            .max(fleet.floor.count)
            .max(least);
        self.min >= least.into() && self.hosts >= needed.into() && demand < fleet.low_demand(ready)
    }
}
