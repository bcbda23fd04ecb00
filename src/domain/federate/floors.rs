//! The floor of the fleet as shares of its members. It refuses to move budgets: what does not fit is left.

use super::{Kind, Slot, Split, Surplus, Ties, fill, webster};

/// One member's part in dividing the floor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FloorSlot<'a> {
    /// Its name, its weight (or capacity) and the bounds of its share.
    pub(super) slot: Slot<'a>,
    /// Its tier under the policies that fill, lowest first.
    pub(super) rank: u32,
}

/// Divides a floor; the shares are in the order of the slots.
///
/// `Duplicated`: the whole for each, up to its `hi`. The weighted policies: bounded Webster, because floors change with
/// every pass and a larger floor must not take replicas away anywhere. `Aggregated`, `Prioritized`: tiers are filled in
/// the order of their ranks, and nothing beyond capacities.
pub(super) fn divide_floor(kind: Kind, floor: u32, slots: Vec<FloorSlot<'_>>) -> Split {
    match kind {
        Kind::Duplicated => Split {
            shares: slots.iter().map(|s| floor.min(s.slot.hi)).collect(),
            left: 0,
        },
        Kind::StaticWeighted | Kind::DynamicWeighted => {
            let slots: Vec<_> = slots.into_iter().map(|s| s.slot).collect();
            webster(floor, &slots, Ties::default())
        }
        Kind::Aggregated | Kind::Prioritized => by_rank(floor, slots),
    }
}

fn by_rank(floor: u32, slots: Vec<FloorSlot<'_>>) -> Split {
    let mut ordered: Vec<_> = slots.into_iter().enumerate().collect();
    ordered.sort_by_key(|(at, s)| (s.rank, *at));
    let places: Vec<usize> = ordered.iter().map(|(at, _)| *at).collect();
    let tiers = ordered.chunk_by(|(_, a), (_, b)| a.rank == b.rank);
    let tiers = tiers.map(|tier| tier.iter().map(|(_, s)| s.slot).collect());
    let tiers: Vec<Vec<Slot<'_>>> = tiers.collect();
    let split = fill(floor, &tiers, Surplus::Keep);
    let mut shares: Vec<_> = places.into_iter().zip(split.shares).collect();
    shares.sort_unstable();
    Split {
        shares: shares.into_iter().map(|(_, share)| share).collect(),
        left: split.left,
    }
}
