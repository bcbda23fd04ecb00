//! The assignment policies: by what each divides, and how. One row per policy, so that a division reads the row of its
//! policy and does not ask which one it is.
//!
//! Budgets change rarely and are divided by quota; floors and counts change with every sync, and are divided by
//! [`webster`], because a larger number must not take a replica from any member.
//!
//! Sources: the worked examples of the `FederatedHPA` proposal for Karmada (karmada-io/karmada pull request 3161), and
//! its steady re-assignment (`pkg/scheduler/core`), with bounds on both sides.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    AssignmentKind, Candidate, EffectivePreference, Policy, Recipient, Split, Surplus, Ties,
    WeightBy, divide::fill_by, fill, quota_split, webster,
};
use foretide_domain::Replicas;

/// An assignment policy.
pub struct Scheme {
    /// True if members serve for one another, so that bounds and counts are divided; otherwise each has all of them.
    pub divides: bool,
    /// True if budgets move at run time.
    pub moves_budgets: bool,
    /// True if the weights are capacities.
    pub weighs_capacity: bool,
    /// The remark if every weight is zero, where that is no accident of capacities.
    pub unweighted: Option<Remark>,
    /// The preferences of a cluster, or none where they leave it out; the flag says whether some cluster has a weight.
    pub admit: fn(EffectivePreference, bool) -> Option<EffectivePreference>,
    /// Divides budgets and headroom.
    share: fn(u32, &Parties<'_>, Surplus) -> Split,
    /// Divides a floor.
    pub floor: fn(u32, &Parties<'_>) -> Split,
    /// Divides a count in Direct; the last argument is what each runs now, within its bounds.
    count: fn(u32, &Parties<'_>, Vec<u32>) -> Split,
    /// The weight of a candidate; the second argument is its capacity where that is unknown.
    weight: fn(&Candidate<'_>, u32) -> Option<u64>,
    /// The tier of a candidate with this weight; the first in order is filled first.
    tier: for<'a> fn(&Candidate<'a>, u64) -> Tier<'a>,
}

/// The order of filling: by priority, then members that run the workload, then by weight, then by name.
type Tier<'a> = Reverse<(Option<i64>, bool, u64, Reverse<&'a str>)>;

/// The recipients of a division, in the order of its shares, and the position of each in the order of filling.
pub struct Parties<'a> {
    pub recipients: Vec<Recipient<'a>>,
    pub ranks: Vec<u32>,
}

/// A remark on budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remark {
    /// Every weight is zero, so all weigh the same.
    NoWeights,
    /// The lower limits add up to more than MIN, and win.
    ThresholdsAboveMin,
    /// The lower limits add up to more than MAX, and win.
    ThresholdsAboveMax,
    /// The upper limits add up to less than MAX, and win: the rest is unassigned.
    ThresholdsBelowMax,
}

impl Remark {
    /// The text: lower case, no full stop.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoWeights => "all weights are zero, so all members weigh the same",
            Self::ThresholdsAboveMin => {
                "the members' minReplicas add up to more than the fleet's minReplicas and take precedence"
            }
            Self::ThresholdsAboveMax => {
                "the members' minReplicas add up to more than the fleet's maxReplicas and take precedence"
            }
            Self::ThresholdsBelowMax => {
                "the members' maxReplicas add up to less than the fleet's maxReplicas and take precedence; the rest is unassigned"
            }
        }
    }
}

const DUPLICATED: Scheme = Scheme {
    divides: false,
    moves_budgets: false,
    weighs_capacity: false,
    unweighted: None,
    admit: |preference, _| Some(preference),
    share: |n, parties, _| each(parties, |_| n),
    floor: |n, parties| each(parties, |recipient| n.min(recipient.max)),
    count: |n, parties, _| each(parties, |recipient| within_bounds(n, recipient)),
    weight: |it, max| Some(it.capacity_or(max).into()),
    tier: |it, weight| Reverse((None, it.hosts, weight, Reverse(it.name))),
};

const STATIC_WEIGHTED: Scheme = Scheme {
    divides: true,
    unweighted: Some(Remark::NoWeights),
    admit: weighted,
    share: |n, parties, _| quota_split(n, &parties.recipients),
    floor: |n, parties| webster(n, &parties.recipients, Ties::default()),
    count: |n, parties, _| webster(n, &parties.recipients, Ties::default()),
    weight: |it, _| Some(it.preference.weight.unwrap_or_default()),
    ..DUPLICATED
};

const WEIGHTED_BY_CAPACITY: Scheme = Scheme {
    moves_budgets: true,
    weighs_capacity: true,
    admit: |preference, _| Some(preference),
    count: |n, parties, kept| sticky(n, parties, kept, u64::saturating_sub),
    weight: DUPLICATED.weight,
    ..STATIC_WEIGHTED
};

const WEIGHTED_BY_DEMAND: Scheme = Scheme {
    weighs_capacity: false,
    count: |n, parties, kept| sticky(n, parties, kept, |demand, _| demand),
    weight: |it, _| it.demand_weight(),
    ..WEIGHTED_BY_CAPACITY
};

const AGGREGATED: Scheme = Scheme {
    unweighted: None,
    share: |n, parties, surplus| parties.filled(|tiers| fill(n, tiers, surplus)),
    floor: |n, parties| parties.filled(|tiers| fill(n, tiers, Surplus::Keep)),
    count: |n, parties, _| filled_by_room(n, parties),
    ..WEIGHTED_BY_CAPACITY
};

const PRIORITIZED: Scheme = Scheme {
    admit: |preference, _| preference.priority.map(|_| preference),
    tier: |it, _| Reverse((it.preference.priority, false, 0, Reverse(""))),
    ..AGGREGATED
};

impl Policy {
    /// The row of the assignment policy.
    pub(crate) fn scheme(&self) -> &'static Scheme {
        match (self.kind, self.weight_by) {
            (AssignmentKind::Duplicated, _) => &DUPLICATED,
            (AssignmentKind::StaticWeighted, _) => &STATIC_WEIGHTED,
            (AssignmentKind::DynamicWeighted, WeightBy::Capacity) => &WEIGHTED_BY_CAPACITY,
            (AssignmentKind::DynamicWeighted, WeightBy::Demand) => &WEIGHTED_BY_DEMAND,
            (AssignmentKind::Aggregated, _) => &AGGREGATED,
            (AssignmentKind::Prioritized, _) => &PRIORITIZED,
        }
    }

    /// True if members may be scaled to zero: `scaling_to_zero`, but never under [`AssignmentKind::Duplicated`], where
    /// no member serves for another.
    pub(crate) fn may_sleep(&self) -> bool {
        self.scaling_to_zero && self.scheme().divides
    }
}

impl<'a> Parties<'a> {
    /// The candidates, with their weights and ranks by the policy.
    pub(crate) fn new(policy: &Policy, candidates: &[Candidate<'a>]) -> Self {
        let weights = weights(policy, candidates);
        let (mut recipients, mut tiers) = (Vec::new(), Vec::new());
        for (candidate, weight) in candidates.iter().zip(weights) {
            tiers.push((policy.scheme().tier)(candidate, weight));
            recipients.push(Recipient {
                name: candidate.name,
                weight,
                min: candidate.preference.min.get(),
                max: candidate.preference.max.get(),
            });
        }
        let order: BTreeSet<_> = tiers.iter().collect();
        let order: BTreeMap<_, _> = order.into_iter().zip(0..).collect();
        Self {
            ranks: tiers
                .iter()
                .filter_map(|it| order.get(it).copied())
                .collect(),
            recipients,
        }
    }

    /// The division of the recipients in their tiers, in the order of the recipients again.
    fn filled(&self, fill: impl FnOnce(&[Vec<Recipient<'a>>]) -> Split) -> Split {
        let mut places: Vec<_> = self.ranks.iter().zip(0_usize..).collect();
        places.sort_unstable();
        let mut tiers = Vec::new();
        for tier in places.chunk_by(|(a, _), (b, _)| a == b) {
            let members = tier.iter().filter_map(|(_, at)| self.recipients.get(*at));
            tiers.push(members.copied().collect::<Vec<_>>());
        }
        let split = fill(&tiers);
        let mut shares: Vec<_> = places.iter().map(|(_, at)| *at).zip(split.shares).collect();
        shares.sort_unstable();
        Split {
            shares: shares.into_iter().map(|(_, share)| share).collect(),
            ..split
        }
    }
}

/// Divides a number over the candidates by the policy, within the limits of each; the shares are in the order of the
/// candidates.
///
/// `Duplicated`: the whole number for each. `StaticWeighted`, `DynamicWeighted`: [`quota_split`] by [`weights`].
/// `Aggregated`: [`fill`] with one tier per member: hosting members first, then the larger capacity, then by name.
/// `Prioritized`: [`fill`] with one tier per priority, highest first. `surplus` matters for the last two only.
///
/// ```
/// use foretide_federate::{
///     AssignmentKind, Candidate, EffectivePreference, Policy, Surplus, share,
/// };
/// use foretide_domain::{ReplicaBounds, Replicas};
///
/// let candidate = |name, priority, capacity| Candidate {
///     name,
///     capacity: Some(capacity),
///     preference: EffectivePreference {
///         priority: Some(priority),
///         max: Replicas::MAX,
///         ..EffectivePreference::default()
///     },
///     ..Candidate::default()
/// };
/// let members = [candidate("cloud", 1, 50), candidate("own", 2, 3)];
/// let bounds = ReplicaBounds::new(Replicas::new(1), Replicas::new(20));
/// let policy = Policy::new(AssignmentKind::Prioritized, bounds);
/// let split = share(&policy, Replicas::new(5), &members, Surplus::Keep);
/// assert_eq!(split.shares, [2, 3]);
/// ```
pub fn share(
    policy: &Policy,
    n: Replicas,
    candidates: &[Candidate<'_>],
    surplus: Surplus,
) -> Split {
    (policy.scheme().share)(n.get(), &Parties::new(policy, candidates), surplus)
}

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
pub fn distribute(
    policy: &Policy,
    n: Replicas,
    candidates: &[Candidate<'_>],
    previous: &BTreeMap<String, Replicas>,
) -> Split {
    let parties = Parties::new(policy, candidates);
    let kept = parties.recipients.iter().map(|recipient| {
        let count = previous.get(recipient.name).copied();
        within_bounds(count.unwrap_or_default().get(), recipient)
    });
    let kept = kept.collect();
    (policy.scheme().count)(n.get(), &parties, kept)
}

/// The weights of the candidates: those of the preferences, the demand, or otherwise the capacity, which is also what
/// [`fill`] fills up to.
///
/// Demand weighs as the sum over a member's pods, because an average per pod would change with every move. A member whose
/// demand is unknown counts as an average one.
///
/// # Units
/// Replicas for capacities, thousandths of a replica for demand, and the numbers of the spec for preferences; only
/// their ratios matter.
pub fn weights(policy: &Policy, candidates: &[Candidate<'_>]) -> Vec<u64> {
    let (max, weight) = (policy.bounds.max.get(), policy.scheme().weight);
    let weights: Vec<_> = candidates.iter().map(|it| weight(it, max)).collect();
    let known = weights.iter().flatten().count();
    let mean = weights
        .iter()
        .flatten()
        .sum::<u64>()
        .checked_div(u64::try_from(known).unwrap_or(u64::MAX))
        .unwrap_or_default();
    weights
        .into_iter()
        .map(|weight| weight.unwrap_or(mean))
        .collect()
}

/// Without any weight all clusters are equal; with some, a cluster without one is left out.
fn weighted(preference: EffectivePreference, is_weighted: bool) -> Option<EffectivePreference> {
    let weight = preference.weight.or((!is_weighted).then_some(1))?;
    Some(EffectivePreference {
        weight: Some(weight),
        ..preference
    })
}

fn each(parties: &Parties<'_>, share: impl Fn(&Recipient<'_>) -> u32) -> Split {
    Split {
        shares: parties.recipients.iter().map(share).collect(),
        left: 0,
    }
}

/// A count within the limits of a recipient, of which the lower one wins.
fn within_bounds(n: u32, recipient: &Recipient<'_>) -> u32 {
    n.min(recipient.max).max(recipient.min)
}

/// Fills tiers up to the bounds of their recipients, whatever their weights.
fn filled_by_room(n: u32, parties: &Parties<'_>) -> Split {
    parties.filled(|tiers| {
        let mut tiers = tiers.to_vec();
        for recipient in tiers.iter_mut().flatten() {
            recipient.weight = u64::from(recipient.top());
        }
        fill_by(n, &tiers, Surplus::Keep, |n, recipients| {
            webster(n, recipients, Ties::default())
        })
    })
}

/// Keeps what each runs now and divides only the difference; `weight` is that of a recipient for more, by its weight and
/// what it keeps.
fn sticky(n: u32, parties: &Parties<'_>, mut kept: Vec<u32>, weight: fn(u64, u64) -> u64) -> Split {
    let held: u64 = kept.iter().copied().map(u64::from).sum();
    // Beyond `u32` the members hold more than any count, so nothing is added.
    let more = u32::try_from(held).map_or(0, |held| n.saturating_sub(held));
    let mut recipients = parties.recipients.clone();
    for (recipient, kept) in recipients.iter_mut().zip(&kept) {
        if more == 0 {
            // A smaller count is divided in proportion to the previous counts, so that all members shrink alike.
            recipient.weight = u64::from(*kept);
        } else {
            recipient.weight = weight(recipient.weight, u64::from(*kept));
            (recipient.min, recipient.max) = (0, recipient.max.saturating_sub(*kept));
        }
    }
    if more == 0 {
        return webster(n, &recipients, Ties::default());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::division_laws::policy;

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
