//! R8: headroom is redistributed by the policy when one member has almost none and another has much. Running pods stay.

use crate::{Budget, Ledger, Reason, Surplus};
use foretide_domain::Replicas;
use foretide_domain::words::counted;

use super::assign::{candidate_with, floor_bases};
use super::fleet::{RuleContext, Step};
use super::member::{Change, DivisionLimits, Effect, MemberState, sum};

/// Least time between two redistributions, in cooldowns.
const COOLDOWNS: i32 = 10;
/// Moves of fewer replicas than this, or of less than one in `PART` of all headroom, are not made. The division depends
/// on the running replicas, those on floors, and floors on the division: without a threshold the last replica would
/// oscillate.
const LEAST: u32 = 2;
const PART: u32 = 10;

/// Redistributes headroom if it is due.
pub fn optimize<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    if is_due(fleet) {
        divide_headroom(fleet)
    } else {
        Step::default()
    }
}

fn is_due(fleet: &RuleContext<'_>) -> bool {
    let pause = fleet.policy.cooldown.checked_mul(COOLDOWNS);
    let recently = pause.is_none_or(|pause| fleet.within(fleet.ledger.optimized, pause));
    !recently
        && fleet.ledger.landing.is_none()
        && !fleet.is_disturbed()
        && fleet.sharing().any(is_tight)
        && fleet.sharing().any(is_loose)
}

/// True if less than a tenth of a member's maximum is unused.
fn is_tight(state: &MemberState<'_>) -> bool {
    10 * u64::from(headroom(state)) < u64::from(state.max())
}

/// True if more than half of a member's maximum is unused.
fn is_loose(state: &MemberState<'_>) -> bool {
    2 * u64::from(headroom(state)) > u64::from(state.max())
}

fn headroom(state: &MemberState<'_>) -> u32 {
    state.max().saturating_sub(state.replicas)
}

/// True if the minimums of running members cover MIN, so that sleeping ones need none.
fn may_forget_sleepers(fleet: &RuleContext<'_>) -> bool {
    let running = fleet.pinned().chain(fleet.awake());
    sum(running.map(MemberState::min)) >= fleet.policy.bounds.min.get()
}

/// The number that a member keeps in any case.
fn base(state: &MemberState<'_>, may_forget: bool) -> u32 {
    let minimum = if state.is_awake() {
        state.written_min()
    } else if may_forget {
        0
    } else {
        state.min()
    };
    // A member without a maximum has no autoscaler, and could not be woken.
    let some = state.max().min(1);
    state
        .next_replicas()
        .min(state.max())
        .max(minimum)
        .max(state.lower_limit())
        .max(some)
}

/// Divides the headroom, `sum(max - base)` and what is unassigned, by the policy over the active members. A member gets
/// no more than it can run or already had; one with a proved capacity, and every one where members are weighted by
/// demand, no more than it can run. The rest is unassigned.
pub fn divide_headroom<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let may_forget = may_forget_sleepers(fleet);
    let unused = fleet
        .active()
        .map(|state| state.max().saturating_sub(base(state, may_forget)));
    let all = sum(unused).saturating_add(fleet.ledger.unassigned.get());
    let shares = fleet.divide(all, Surplus::Spread, |state| {
        state
            .is_active()
            .then(|| limits(fleet, state, base(state, may_forget)))
    });
    let given = sum(shares.iter().copied());
    let mut maximums = Vec::with_capacity(shares.len());
    let mut gained = 0_u32;
    for (state, share) in fleet.members.iter().zip(shares) {
        let max = if state.is_active() {
            base(state, may_forget).saturating_add(share)
        } else {
            state.max()
        };
        gained = gained.saturating_add(max.saturating_sub(state.max()));
        maximums.push(max);
    }
    // LEAST is above zero, so some budget moves.
    if gained < LEAST.max(all / PART) {
        return Step::default();
    }
    let changes = moved(fleet, &maximums, all);
    let bases = new_bases(fleet, &maximums);
    Step::of(changes.into_iter().chain(bases)).with_ledger(Ledger {
        unassigned: Replicas::new(all - given),
        optimized: Some(fleet.now),
        ..fleet.ledger.clone()
    })
}

/// The budgets that move. `maximums`: the new ones, parallel to the members; `all`: the headroom of the fleet.
fn moved(fleet: &RuleContext<'_>, maximums: &[u32], all: u32) -> Vec<Change> {
    let mut changes = Vec::new();
    for (state, max) in fleet.members.iter().zip(maximums) {
        if state.max() != *max {
            let budget = Budget::new(state.min().max(1).min(*max), *max);
            let text = format!("redistributed {} of headroom", counted(all, "replica"));
            let effect = Effect::Budget(budget);
            changes.push(Change::because(state, effect, Reason::Optimized, text));
        }
    }
    changes
}

/// The capacities, weights and ranks of this division, by which floors are divided until the next one.
fn new_bases(fleet: &RuleContext<'_>, maximums: &[u32]) -> Vec<Change> {
    let candidates: Vec<_> = fleet
        .members
        .iter()
        .zip(maximums)
        .filter(|(state, _)| state.is_active())
        .map(|(state, max)| candidate_with(state, *max))
        .collect();
    let by_name = floor_bases(fleet.policy, &candidates);
    let mut changes = Vec::new();
    for state in fleet.active() {
        if let Some(basis) = by_name.get(state.name()) {
            changes.push(Change::silent(state, Effect::FloorBasis(*basis)));
        }
    }
    changes
}

fn limits(fleet: &RuleContext<'_>, state: &MemberState<'_>, base: u32) -> DivisionLimits {
    let room = state.capacity.saturating_sub(base);
    let max = state.upper_limit().saturating_sub(base);
    // Demand says nothing about capacity: by demand alone a full member would get headroom for unschedulable pods.
    let is_bound = state.proved.is_some() || !fleet.policy.scheme().weighs_capacity;
    // A maximum above its capacity may stay, for nodes that are to be added, but does not grow.
    let kept = if is_bound {
        0
    } else {
        state.max().saturating_sub(base)
    };
    DivisionLimits {
        max: max.min(room.max(kept)),
        capacity: room,
        priority: None,
    }
}
