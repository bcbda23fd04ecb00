//! Direct mode: divides the count of a fleet into counts of its members.
//!
//! Counts change with every sync, so they are divided by [`webster`]: when the count grows, no member loses a replica.
//!
//! Source: the steady re-assignment of Karmada (`pkg/scheduler/core`), with bounds on both sides.

use std::collections::BTreeMap;

use super::{
    AssignmentKind, Candidate, Policy, Split, Surplus, Ties, WeightBy,
    assign::{in_order, recipients, tiers},
    divide::fill_by,
    webster,
};
use foretide_domain::Replicas;

/// Divides a count over the members by the policy; the shares are in the order of the candidates.
///
/// `min` and `max` of each preference bound its count: its budget, and what it can run.
///
/// - `Duplicated`: the count for each, within its bounds.
/// - `StaticWeighted`: [`webster`] by the weights; previous counts do not matter.
/// - `DynamicWeighted`: the previous counts, clamped to the bounds, stay. A larger count adds the difference by
///   [`webster`], weighted by what the members can run beyond their previous counts, or by demand. A smaller one is
///   divided by [`webster`] with the previous counts as weights.
/// - `Aggregated`, `Prioritized`: tiers as for budgets, each up to `max`, divided by [`webster`] with `max` as weights.
///
/// Unless `Duplicated`, the shares add up to the count within the sums of the bounds, and one replica more raises
/// exactly one member by one (with the same previous counts), or raises `left`. Under `Prioritized` one less is taken
/// from the lowest priority that is above its minimums.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use foretide_federate::{Candidate, EffectivePreference, AssignmentKind, Policy, distribute};
/// use foretide_domain::{ReplicaBounds, Replicas};
///
/// let candidate = |name, weight| Candidate {
///     name,
///     preference: EffectivePreference {
///         weight: Some(weight),
///         max: Replicas::new(9),
///         ..EffectivePreference::default()
///     },
///     ..Candidate::default()
/// };
/// let bounds = ReplicaBounds::new(Replicas::new(1), Replicas::new(20));
/// let policy = Policy::new(AssignmentKind::StaticWeighted, bounds);
/// let members = [candidate("eu", 1), candidate("us", 2)];
/// let split = distribute(&policy, Replicas::new(6), &members, &BTreeMap::new());
/// assert_eq!(split.shares, [2, 4]);
/// ```
#[must_use]
pub fn distribute(
    policy: &Policy,
    n: Replicas,
    candidates: &[Candidate<'_>],
    previous: &BTreeMap<String, Replicas>,
) -> Split {
    match policy.kind {
        AssignmentKind::Duplicated => duplicate(n, candidates),
        AssignmentKind::StaticWeighted => {
            webster(n.get(), &recipients(policy, candidates), Ties::default())
        }
        AssignmentKind::DynamicWeighted => sticky(policy, n, candidates, previous),
        AssignmentKind::Aggregated | AssignmentKind::Prioritized => {
            let recipients = recipients(policy, candidates);
            let (mut tiers, places) = tiers(policy.kind, candidates, recipients);
            for recipient in tiers.iter_mut().flatten() {
                recipient.weight = u64::from(recipient.top());
            }
            let split = fill_by(n.get(), &tiers, Surplus::Keep, |n, recipients| {
                webster(n, recipients, Ties::default())
            });
            in_order(&places, split)
        }
    }
}

fn duplicate(n: Replicas, candidates: &[Candidate<'_>]) -> Split {
    Split {
        shares: candidates.iter().map(|c| c.within_bounds(n)).collect(),
        left: 0,
    }
}

/// Keeps the previous counts and divides only the difference.
fn sticky(
    policy: &Policy,
    n: Replicas,
    candidates: &[Candidate<'_>],
    previous: &BTreeMap<String, Replicas>,
) -> Split {
    let mut kept = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let count = previous.get(candidate.name).copied();
        kept.push(candidate.within_bounds(count.unwrap_or_default()));
    }
    let held: u64 = kept.iter().map(|count| u64::from(*count)).sum();
    // Beyond `u32` the members hold more than any count, so nothing is added.
    let more = u32::try_from(held).map_or(0, |held| n.get().saturating_sub(held));
    // A smaller count is divided in proportion to the previous counts, so that all members shrink alike.
    if more == 0 {
        let recipients: Vec<_> = candidates
            .iter()
            .zip(kept)
            .map(|(candidate, kept)| candidate.recipient(u64::from(kept)))
            .collect();
        return webster(n.get(), &recipients, Ties::default());
    }
    let mut recipients = recipients(policy, candidates);
    for ((candidate, recipient), kept) in candidates.iter().zip(&mut recipients).zip(&kept) {
        if policy.weight_by == WeightBy::Capacity {
            recipient.weight = candidate.spare_capacity(*kept, policy);
        }
        (recipient.min, recipient.max) = (0, recipient.max.saturating_sub(*kept));
    }
    let added = webster(more, &recipients, Ties::default());
    for (share, more) in kept.iter_mut().zip(added.shares) {
        *share = share.saturating_add(more);
    }
    Split {
        shares: kept,
        left: added.left,
    }
}

impl Candidate<'_> {
    /// A count within its limits, of which the lower one wins.
    fn within_bounds(&self, n: Replicas) -> u32 {
        n.min(self.preference.max).max(self.preference.min).get()
    }

    /// The number that it can run beyond those that it keeps.
    fn spare_capacity(&self, kept: u32, policy: &Policy) -> u64 {
        let capacity = self.capacity_or(policy.bounds.max.get());
        u64::from(capacity.saturating_sub(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EffectivePreference, division_laws::policy};

    fn candidate(name: &str, min: u32, max: u32, capacity: u32) -> Candidate<'_> {
        Candidate {
            name,
            preference: EffectivePreference {
                weight: Some(u64::from(capacity)),
                priority: Some(i64::from(capacity)),
                min: Replicas::new(min),
                max: Replicas::new(max),
                elastic: false,
            },
            capacity: Some(capacity),
            ..Candidate::default()
        }
    }

    #[test]
    fn every_policy_divides_a_count_as_documented() {
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
            (AssignmentKind::Duplicated, 5, [0, 0, 0], [5, 5, 5], 0),
            (AssignmentKind::Duplicated, 50, [0, 0, 0], [9, 9, 9], 0),
            (AssignmentKind::StaticWeighted, 12, [9, 3, 0], [2, 4, 6], 0),
            // Nothing moves, one replica is added, half of them are removed.
            (AssignmentKind::DynamicWeighted, 12, [9, 3, 0], [9, 3, 0], 0),
            (AssignmentKind::DynamicWeighted, 13, [9, 3, 0], [9, 3, 1], 0),
            (AssignmentKind::DynamicWeighted, 6, [9, 3, 0], [4, 2, 0], 0),
            (AssignmentKind::Aggregated, 12, [9, 3, 0], [1, 2, 9], 0),
            (AssignmentKind::Prioritized, 12, [9, 3, 0], [1, 2, 9], 0),
            (AssignmentKind::Prioritized, 40, [9, 3, 0], [9, 9, 9], 13),
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
