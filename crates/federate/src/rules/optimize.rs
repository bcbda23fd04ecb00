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
pub(super) fn optimize<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    if is_due(fleet) {
        divide_headroom(fleet)
    } else {
        Step::default()
    }
}

fn is_due(fleet: &RuleContext<'_>) -> bool {
    let pause = fleet.policy.cooldown.checked_mul(COOLDOWNS);
    let recently = pause.is_none_or(|pause| fleet.within(fleet.ledger.optimized, pause));
    let disturbed = |state: &MemberState<'_>| state.blocked || fleet.is_cooling_down(state);
    let with_budget = || fleet.active().filter(|state| state.max() > 0);
    // Tight: less than a tenth of the maximum is unused. Loose: more than a half.
    let is_tight =
        |state: &MemberState<'_>| 10 * u64::from(headroom(state)) < u64::from(state.max());
    let is_loose =
        |state: &MemberState<'_>| 2 * u64::from(headroom(state)) > u64::from(state.max());
    !recently
        && fleet.ledger.landing.is_none()
        && !fleet.active().any(disturbed)
        && with_budget().any(is_tight)
        && with_budget().any(is_loose)
}

fn headroom(state: &MemberState<'_>) -> u32 {
    state.max().saturating_sub(state.replicas)
}

/// True if the minimums of running members cover MIN, so that sleeping ones need none.
fn may_forget_sleepers(fleet: &RuleContext<'_>) -> bool {
    let runs =
        |state: &&MemberState<'_>| state.role.is_pinned() || state.is_active() && state.is_awake();
    let minimums = sum(fleet.members.iter().filter(runs).map(MemberState::min));
    minimums >= fleet.policy.bounds.min.get()
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
    let replicas = state.decided.write.unwrap_or(state.replicas);
    replicas
        .min(state.max())
        .max(minimum)
        .max(state.lower_limit())
        .max(some)
}

/// Divides the headroom, `sum(max - base)` and what is unassigned, by the policy over the active members. A member gets
/// no more than it can run or already had; one with a proved capacity, and every one where members are weighted by
/// demand, no more than it can run. The rest is unassigned.
pub(super) fn divide_headroom<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let may_forget = may_forget_sleepers(fleet);
    let base = |state: &MemberState<'_>| base(state, may_forget);
    let unassigned = fleet.ledger.unassigned.get();
    let unused = fleet
        .active()
        .map(|state| state.max().saturating_sub(base(state)));
    let all = sum(unused).saturating_add(unassigned);
    let members = fleet.members.iter();
    let limits = members.map(|state| {
        let limits = || limits(fleet, state, base(state));
        state.is_active().then(limits)
    });
    let shares = fleet.divide(all, Surplus::Spread, &limits.collect::<Vec<_>>());
    let given = sum(shares.iter().copied());
    let maximums = fleet.members.iter().zip(shares).map(|(state, share)| {
        if state.is_active() {
            base(state).saturating_add(share)
        } else {
            state.max()
        }
    });
    let maximums: Vec<u32> = maximums.collect();
    let gains = fleet.members.iter().zip(&maximums);
    let gained = sum(gains.map(|(state, max)| max.saturating_sub(state.max())));
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
    let members = fleet.members.iter().zip(maximums);
    let moved = members.filter(|(state, max)| state.max() != **max);
    let changes = moved.map(|(state, max)| {
        let budget = Budget::new(state.min().max(1).min(*max), *max);
        let text = format!("redistributed {} of headroom", counted(all, "replica"));
        Change::because(state, Effect::Budget(budget), Reason::Optimized, text)
    });
    changes.collect()
}

/// The capacities, weights and ranks of this division, by which floors are divided until the next one.
fn new_bases(fleet: &RuleContext<'_>, maximums: &[u32]) -> Vec<Change> {
    let members = || fleet.members.iter().zip(maximums);
    let active = members().filter(|(state, _)| state.is_active());
    let candidates: Vec<_> = active
        .map(|(state, max)| candidate_with(state, *max))
        .collect();
    let all = floor_bases(fleet.policy, &candidates);
    let change = |state: &MemberState<'_>| {
        let basis = *all.get(state.name())?;
        Some(Change::silent(state, Effect::FloorBasis(basis)))
    };
    fleet.members.iter().filter_map(change).collect()
}

fn limits(fleet: &RuleContext<'_>, state: &MemberState<'_>, base: u32) -> DivisionLimits {
    let room = state.capacity.saturating_sub(base);
    let max = state.upper_limit().saturating_sub(base);
    // Demand says nothing about capacity: by demand alone a full member would get headroom for unschedulable pods.
    let is_bound = state.proved.is_some() || !fleet.policy.weighs_capacity();
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
