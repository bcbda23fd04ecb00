//! Direct mode: a count of the fleet as counts of its members.
//!
//! Counts change with every pass, so within a policy they are divided by seats: when the count grows, no member loses
//! a replica. This file refuses to decide the count, and to know why a member's bounds are what they are.
//!
//! Source: the steady re-assignment of Karmada (`pkg/scheduler/core`), with bounds on both sides.

use std::collections::BTreeMap;

use super::{
    Candidate, Kind, Policy, Slot, Split, Surplus, Ties, WeightBy,
    assign::{in_order, tiers},
    divide::fill_by,
    webster, weights,
};
use crate::domain::Replicas;

/// Divides a count over the members as the policy says; the shares are in the order of the candidates.
///
/// `lo` and `hi` of each standing bound its count: its budget, and what it can run (`previous` plus what fits).
///
/// - `Duplicated`: the count for each, within its bounds.
/// - `StaticWeighted`: [`webster`] by the weights, without memory.
/// - `DynamicWeighted`: the previous counts, cut to the bounds, stay. A larger count adds the difference by [`webster`]
///   from no seats, weighing by what the members can run beyond their previous counts, or by demand. A smaller one is
///   divided by [`webster`] with the previous counts as weights. Nothing previous means no memory.
/// - `Aggregated`, `Prioritized`: tiers as for budgets, each up to `hi`, divided by [`webster`] with `hi` as weights.
///
/// Unless `Duplicated`, the shares sum to `clamp(n, sum lo, sum hi)`, and one replica more raises exactly one member by
/// one (the same previous counts given), or is left. Under `Prioritized` one less is taken from the lowest priority
/// that is above its bounds.
#[must_use]
pub fn distribute(
    policy: &Policy,
    n: Replicas,
    candidates: &[Candidate<'_>],
    previous: &BTreeMap<String, Replicas>,
) -> Split {
    let weighted = || {
        let weights = weights(policy, candidates);
        let slots = candidates
            .iter()
            .zip(weights)
            .map(|(c, weight)| c.slot(weight));
        slots.collect::<Vec<_>>()
    };
    match policy.kind {
        Kind::Duplicated => whole(n, candidates),
        Kind::StaticWeighted => webster(n.get(), &weighted(), Ties::default()),
        Kind::DynamicWeighted => sticky(policy, n, candidates, previous),
        Kind::Aggregated | Kind::Prioritized => {
            let (mut tiers, places) = tiers(policy.kind, candidates, weighted());
            for slot in tiers.iter_mut().flatten() {
                slot.weight = u64::from(slot.top());
            }
            let by_seats = |n, slots: &[Slot<'_>]| webster(n, slots, Ties::default());
            in_order(&places, fill_by(n.get(), &tiers, Surplus::Keep, by_seats))
        }
    }
}

fn whole(n: Replicas, candidates: &[Candidate<'_>]) -> Split {
    let cut = |c: &Candidate<'_>| n.min(c.standing.hi).max(c.standing.lo).get();
    Split {
        shares: candidates.iter().map(cut).collect(),
        left: 0,
    }
}

/// Keeps what is there and divides only the difference.
fn sticky(
    policy: &Policy,
    n: Replicas,
    candidates: &[Candidate<'_>],
    previous: &BTreeMap<String, Replicas>,
) -> Split {
    let there = |c: &Candidate<'_>| {
        let count = previous.get(c.name).copied().unwrap_or_default();
        count.min(c.standing.hi).max(c.standing.lo).get()
    };
    let kept: Vec<_> = candidates.iter().map(there).collect();
    let of_all = || candidates.iter().zip(&kept);
    let held: u64 = kept.iter().map(|count| u64::from(*count)).sum();
    let more = u32::try_from(held).map_or(0, |held| n.get().saturating_sub(held));
    if more == 0 {
        let slots: Vec<_> = of_all().map(|(c, kept)| c.slot(u64::from(*kept))).collect();
        return webster(n.get(), &slots, Ties::default());
    }
    let weights = match policy.weight_by {
        WeightBy::Demand => weights(policy, candidates),
        WeightBy::Capacity => of_all().map(|(c, kept)| c.beyond(*kept, policy)).collect(),
    };
    let slots = of_all().zip(weights).map(|((c, kept), weight)| Slot {
        lo: 0,
        hi: c.standing.hi.get().saturating_sub(*kept),
        ..c.slot(weight)
    });
    let slots: Vec<_> = slots.collect();
    let added = webster(more, &slots, Ties::default());
    let shares = kept
        .iter()
        .zip(added.shares)
        .map(|(kept, more)| kept.saturating_add(more));
    Split {
        shares: shares.collect(),
        left: added.left,
    }
}

impl Candidate<'_> {
    /// What it can run beyond what it has.
    fn beyond(&self, kept: u32, policy: &Policy) -> u64 {
        let capacity = self.capacity_or(policy.bounds.max.get());
        u64::from(capacity.saturating_sub(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::federate::{Standing, division_laws::policy};

    fn candidate(name: &str, lo: u32, hi: u32, capacity: u32) -> Candidate<'_> {
        Candidate {
            name,
            standing: Standing {
                weight: Some(u64::from(capacity)),
                priority: Some(i64::from(capacity)),
                lo: Replicas::new(lo),
                hi: Replicas::new(hi),
                elastic: false,
            },
            capacity: Some(capacity),
            ..Candidate::default()
        }
    }

    #[test]
    fn each_policy_divides_a_count_in_its_way() {
        let fleet = [
            candidate("a", 1, 9, 10),
            candidate("b", 0, 9, 20),
            candidate("c", 0, 9, 30),
        ];
        let previous = |counts: [u32; 3]| {
            ["a", "b", "c"]
                .map(str::to_owned)
                .into_iter()
                .zip(counts.map(Replicas::new))
                .collect()
        };
        for (kind, n, before, want, left) in [
            (Kind::Duplicated, 5, [0, 0, 0], [5, 5, 5], 0),
            (Kind::Duplicated, 50, [0, 0, 0], [9, 9, 9], 0),
            (Kind::StaticWeighted, 12, [9, 3, 0], [2, 4, 6], 0),
            // Nothing moves, one more is added, half of it goes.
            (Kind::DynamicWeighted, 12, [9, 3, 0], [9, 3, 0], 0),
            (Kind::DynamicWeighted, 13, [9, 3, 0], [9, 3, 1], 0),
            (Kind::DynamicWeighted, 6, [9, 3, 0], [4, 2, 0], 0),
            (Kind::Aggregated, 12, [9, 3, 0], [1, 2, 9], 0),
            (Kind::Prioritized, 12, [9, 3, 0], [1, 2, 9], 0),
            (Kind::Prioritized, 40, [9, 3, 0], [9, 9, 9], 13),
        ] {
            let split = distribute(
                &policy(kind, 1, 50),
                Replicas::new(n),
                &fleet,
                &previous(before),
            );
            let want = Split {
                shares: want.to_vec(),
                left,
            };
            assert_eq!(split, want, "{kind:?} {n}");
        }
    }
}
