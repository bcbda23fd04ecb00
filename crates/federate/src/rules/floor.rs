//! The floor of the fleet as shares of its members, by their stored capacities and weights. Budgets do not move here.

use std::collections::BTreeMap;

use crate::{Recipient, Split, scheme::Parties};
use foretide_domain::Replicas;

use super::fleet::{Floor, RuleContext, Step};
use super::member::{Change, Effect, FloorBasis, MemberState};

/// Divides the floor over the awake active members; what others meet of it is not divided. A share is at most the member's
/// maximum.
pub fn set_shares<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    shared(fleet, split(fleet, fleet.floor.count), Vec::new())
}

/// Divides the floor like [`set_shares`], where budgets can move: a share is at most the stored capacity too. Where stored
/// capacities leave some of the floor unmet, larger present estimates replace them, because nodes may have been added.
pub fn set_shares_of_grown<'a>(fleet: &RuleContext<'a>) -> Step<'a> {
    let stored = split(fleet, fleet.floor.count);
    if stored.left == 0 {
        return shared(fleet, stored, Vec::new());
    }
    let mut changes = Vec::new();
    for state in fleet.active().filter(|state| has_grown(state)) {
        let basis = grown_basis(fleet, state);
        changes.push(Change::silent(state, Effect::FloorBasis(basis)));
    }
    let grown = split_by(fleet, fleet.floor.count, None, |state| {
        grown_basis(fleet, state)
    });
    shared(fleet, grown, changes)
}

/// The changes so far, and the shares of the awake active members.
fn shared<'a>(fleet: &RuleContext<'a>, split: Split, mut changes: Vec<Change>) -> Step<'a> {
    let mut shares = split.shares.into_iter();
    for state in &fleet.members {
        let share = if state.is_active() && state.is_awake() {
            let more = fleet.floor.reassigned.get(state.name()).copied();
            shares.next().unwrap_or(0).max(more.unwrap_or(0))
        } else {
            0
        };
        changes.push(Change::silent(state, Effect::Floor(share)));
    }
    Step::of(changes).with_floor(Floor {
        unmet: split.left,
        ..fleet.floor.clone()
    })
}

/// A floor as shares of the awake active members, in their order.
pub fn split(fleet: &RuleContext<'_>, floor: u32) -> Split {
    split_by(fleet, floor, None, |state| state.entry.floor_basis())
}

/// The shares of the others while one member sleeps; absent when they cannot run the whole floor.
pub fn reassigned<'a>(fleet: &RuleContext<'a>, by: &str) -> Option<BTreeMap<&'a str, u32>> {
    let split = split_by(fleet, fleet.floor.count, Some(by), |s| {
        s.entry.floor_basis()
    });
    if split.left > 0 {
        return None;
    }
    fleet
        .awake()
        .filter(|state| state.name() != by)
        .zip(split.shares)
        .map(|(state, share)| (share <= state.capacity).then_some((state.name(), share)))
        .collect()
}

fn split_by(
    fleet: &RuleContext<'_>,
    floor: u32,
    absent: Option<&str>,
    basis: impl Fn(&MemberState<'_>) -> FloorBasis,
) -> Split {
    let floor = floor.saturating_sub(fleet.floor.met);
    if floor == 0 {
        return Split::default();
    }
    let (recipients, ranks) = fleet
        .awake()
        .filter(|state| Some(state.name()) != absent)
        .map(|state| {
            let basis = basis(state);
            (recipient(state, basis, fleet), basis.rank)
        })
        .unzip();
    (fleet.policy.scheme().floor)(floor, &Parties { recipients, ranks })
}

fn recipient<'a>(
    state: &MemberState<'a>,
    basis: FloorBasis,
    fleet: &RuleContext<'_>,
) -> Recipient<'a> {
    let scheme = fleet.policy.scheme();
    let capacity = if scheme.moves_budgets {
        let estimated = basis.capacity.map_or(u32::MAX, Replicas::get);
        state
            .proved
            .map_or(estimated, |proved| proved.min(estimated))
    } else {
        u32::MAX
    };
    // A proved capacity caps a weight that is a capacity; a weight that is a demand has another unit.
    let weight = if scheme.weighs_capacity && state.proved.is_some() {
        basis.weight.min(u64::from(capacity))
    } else {
        basis.weight
    };
    // During a landing, replicas within a share stay and only the missing ones are divided. Otherwise members would
    // start pods because others run theirs elsewhere than the policy would place them.
    let runs = if fleet.floor.lands {
        state.placed_in_budget()
    } else {
        0
    };
    Recipient {
        name: state.name(),
        weight,
        min: state.min().max(runs).min(capacity),
        max: state.max().min(capacity),
    }
}

/// True if a member's present capacity is larger than the stored one.
fn has_grown(state: &MemberState<'_>) -> bool {
    let stored = state.entry.capacity;
    stored.is_some_and(|stored| stored.get() < state.capacity)
}

/// The stored basis of a member, with its present capacity if that is larger.
fn grown_basis(fleet: &RuleContext<'_>, state: &MemberState<'_>) -> FloorBasis {
    let stored = state.entry.floor_basis();
    if has_grown(state) {
        let capacity = Replicas::new(state.capacity);
        stored.with_capacity(capacity, fleet.policy.scheme().weighs_capacity)
    } else {
        stored
    }
}
