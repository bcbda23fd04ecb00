//! Each member's share of the floor, by what is stored of capacities and weights. It refuses to move budgets.

use std::collections::BTreeMap;

use crate::domain::Replicas;
use crate::domain::federate::{
    Kind, Slot, Split,
    floors::{FloorSlot, divide_floor},
};
use crate::domain::workload::Mode;

use super::fleet::{Fleet, MemberState, sum};

/// Divides the floor over the members that are awake and can be changed; the others count with the minimum they keep,
/// but not in Direct, where the floor is the count that is divided over the same members.
///
/// A share is at most the member's maximum, and at most its capacity where budgets can move; where the stored
/// capacities leave some of the floor unmet, larger present estimates take their place: a node that was added since
/// may serve.
pub(super) fn share_floor(fleet: &mut Fleet<'_>) {
    divide(fleet);
    if fleet.unmet > 0 && fleet.moves() && learn_room(fleet) {
        divide(fleet);
    }
}

fn divide(fleet: &mut Fleet<'_>) {
    let split = split(fleet, fleet.floor);
    let heirs = fleet.bequest.clone();
    fleet.seats.iter_mut().for_each(|seat| seat.floor = 0);
    let awake = fleet.active_mut().filter(|seat| seat.is_awake());
    for (seat, share) in awake.zip(split.shares) {
        let more = heirs.get(seat.name()).copied().unwrap_or(0);
        seat.floor = share.max(more);
    }
    fleet.unmet = split.left;
}

/// A floor as shares of the members that are awake and can be changed, in their order.
pub(super) fn split(fleet: &Fleet<'_>, floor: u32) -> Split {
    split_without(fleet, floor, None)
}

/// The shares that the others have when one of them sleeps; absent when they cannot run the whole.
pub(super) fn reassigned<'a>(fleet: &Fleet<'a>, by: &str) -> Option<BTreeMap<&'a str, u32>> {
    let split = split_without(fleet, fleet.floor, Some(by));
    let others = fleet.active().filter(|seat| seat.is_awake());
    let others = others.filter(|seat| seat.name() != by);
    let fits = |(seat, share): (&MemberState<'a>, u32)| {
        (share <= seat.capacity).then_some((seat.name(), share))
    };
    let shares = others.zip(split.shares).map(fits);
    shares.collect::<Option<_>>().filter(|_| split.left == 0)
}

fn split_without(fleet: &Fleet<'_>, floor: u32, absent: Option<&str>) -> Split {
    let pinned = fleet.seats.iter().filter(|seat| seat.role.is_pinned());
    let kept = sum(pinned.map(MemberState::min));
    // Under Duplicated nobody serves for another; and in Direct the count is what those who are seen need together.
    let is_for_those_seen =
        fleet.policy.kind == Kind::Duplicated || fleet.policy.mode == Mode::Direct;
    let floor = if is_for_those_seen {
        floor
    } else {
        floor.saturating_sub(kept)
    };
    if floor == 0 {
        return Split::default();
    }
    let awake = fleet.active().filter(|seat| seat.is_awake());
    let awake = awake.filter(|seat| Some(seat.name()) != absent);
    let slots = awake.map(|seat| slot(seat, fleet)).collect();
    divide_floor(fleet.policy.kind, floor, slots)
}

fn slot<'a>(seat: &MemberState<'a>, fleet: &Fleet<'_>) -> FloorSlot<'a> {
    let capacity = if fleet.moves() {
        seat.stored_capacity(fleet.now)
    } else {
        u32::MAX
    };
    // Feedback says how many pods fit: a weight that is a capacity follows it, one that is a demand has another unit.
    let weight = if fleet.weighs_capacity() && seat.is_marked(fleet.now) {
        seat.entry.weight.min(u64::from(capacity))
    } else {
        seat.entry.weight
    };
    // While a fleet lands, what runs within its share stays, and what is missing is divided: else members would start pods
    // because others have theirs elsewhere than the policy would.
    let runs = if fleet.lands {
        seat.placed.min(seat.max())
    } else {
        0
    };
    FloorSlot {
        slot: Slot {
            name: seat.name(),
            weight,
            lo: seat.min().max(runs).min(capacity),
            hi: seat.max().min(capacity),
        },
        rank: seat.entry.rank,
    }
}

/// Whether an estimate is larger than what is stored; it is stored then.
fn learn_room(fleet: &mut Fleet<'_>) -> bool {
    let mut learned = false;
    let weighs = fleet.weighs_capacity();
    for seat in fleet.active_mut() {
        let capacity = Replicas::new(seat.capacity);
        if seat.entry.capacity.is_some_and(|stored| stored < capacity) {
            seat.store_capacity(capacity, weighs);
            learned = true;
        }
    }
    learned
}
