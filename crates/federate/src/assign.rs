//! Assignment: divides MIN and MAX into budgets of the candidates, by policy.
//!
//! The caller has selected the candidates by affinity, health and timers. Freed budget and headroom are divided later
//! by [`share`], the same function that budgets come from.
//!
//! Source: the worked examples of the `FederatedHPA` proposal for Karmada (karmada-io/karmada pull request 3161).

use std::collections::{BTreeMap, BTreeSet};

use super::{Candidate, EffectivePreference, Policy, Remark, Surplus, share, weights};
use foretide_domain::{ReplicaBounds, Replicas};

/// The budgets of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// By member; one without a budget (a maximum of zero) is left out and stays a candidate.
    pub members: BTreeMap<String, Budget>,
    /// The part of MAX that no member can take.
    pub unassigned: Replicas,
    /// Remarks for status.
    pub remarks: BTreeSet<Remark>,
}

/// One member's budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The smallest count.
    pub min: Replicas,
    /// The largest count.
    pub max: Replicas,
}

impl Budget {
    /// The replicas to start with: existing ones stay; a new workload starts with its minimum, or with zero where
    /// members may sleep.
    ///
    /// ```
    /// use foretide_domain::Replicas;
    /// use foretide_federate::Budget;
    ///
    /// let budget = Budget { min: Replicas::new(2), max: Replicas::new(8) };
    /// assert_eq!(budget.start(None, false), Replicas::new(2));
    /// assert_eq!(budget.start(None, true), Replicas::ZERO);
    /// // More than the budget stays too: the member's autoscaler lowers it.
    /// assert_eq!(budget.start(Some(Replicas::new(9)), true), Replicas::new(9));
    /// ```
    pub fn start(self, present: Option<Replicas>, scaling_to_zero: bool) -> Replicas {
        let new = if scaling_to_zero {
            Replicas::ZERO
        } else {
            self.min
        };
        present.unwrap_or(new)
    }
}

/// Divides MIN and MAX (`bounds`: the policy's, or what is left of them) over the candidates.
///
/// `max` is the [`share`] of `max(MAX, sum of lower limits)`, `min` that of `max(MIN, sum of lower limits)` with `max`
/// as upper limit; a minimum of zero becomes one where there is a maximum, because an HPA needs one. Under
/// `Duplicated` every member has MIN and MAX.
///
/// Guarantees: `1 <= min <= max <= upper limit` for each member; maximums and `unassigned` add up to MAX, or to the sum
/// of lower limits if that is more; minimums add up to at least `min(MIN, sum of maximums)`, and at most `max(MIN, sum
/// of lower limits)` plus the raised ones. The order of the candidates does not matter as long as names differ.
///
/// ```
/// use foretide_federate::{Candidate, EffectivePreference, AssignmentKind, Policy, assign};
/// use foretide_domain::{ReplicaBounds, Replicas};
///
/// let candidate = |name, weight| Candidate {
///     name,
///     preference: EffectivePreference {
///         weight: Some(weight),
///         max: Replicas::MAX,
///         ..EffectivePreference::default()
///     },
///     ..Candidate::default()
/// };
/// let bounds = ReplicaBounds::new(Replicas::new(2), Replicas::new(10));
/// let policy = Policy::new(AssignmentKind::StaticWeighted, bounds);
/// let budgets = assign(&policy, bounds, &[candidate("eu", 1), candidate("us", 4)]);
/// let max = |name: &str| budgets.members[name].max.get();
/// assert_eq!((max("eu"), max("us")), (2, 8));
/// ```
pub fn assign(policy: &Policy, bounds: ReplicaBounds, candidates: &[Candidate<'_>]) -> Budgets {
    let most = share(policy, bounds.max, candidates, Surplus::Spread);
    let mut capped = candidates.to_vec();
    for (candidate, max) in capped.iter_mut().zip(&most.shares) {
        // So that no minimum exceeds its maximum.
        candidate.preference.max = Replicas::new(*max);
    }
    let least = share(policy, bounds.min, &capped, Surplus::Spread);
    let mut members = BTreeMap::new();
    for (candidate, (min, max)) in candidates.iter().zip(least.shares.iter().zip(&most.shares)) {
        if *max > 0 {
            // 1 is the least that an HPA accepts.
            let budget = Budget::new((*min).max(1).min(*max), *max);
            members.insert(candidate.name.to_owned(), budget);
        }
    }
    Budgets {
        members,
        unassigned: Replicas::new(most.left),
        remarks: remarks(policy, bounds, candidates),
    }
}

fn remarks(
    policy: &Policy,
    bounds: ReplicaBounds,
    candidates: &[Candidate<'_>],
) -> BTreeSet<Remark> {
    let mut weights = weights(policy, candidates).into_iter();
    let no_weights = !candidates.is_empty() && weights.all(|weight| weight == 0);
    let mut remarks = thresholds(bounds, candidates.iter().map(|c| &c.preference));
    remarks.extend(policy.scheme().unweighted.filter(|_| no_weights));
    remarks
}

/// The contradiction between the limits of all members and the bounds of the fleet; the limits win.
pub fn thresholds<'s>(
    bounds: ReplicaBounds,
    preferences: impl Iterator<Item = &'s EffectivePreference>,
) -> BTreeSet<Remark> {
    let (mut least, mut most, mut any) = (0u64, 0u64, false);
    for preference in preferences {
        least = least.saturating_add(u64::from(preference.min.get()));
        most = most.saturating_add(u64::from(preference.max.get()));
        any = true;
    }
    let (min, max) = (u64::from(bounds.min.get()), u64::from(bounds.max.get()));
    let all = [
        (Remark::ThresholdsAboveMin, least > min),
        (Remark::ThresholdsAboveMax, least > max),
        (Remark::ThresholdsBelowMax, most < max && any),
    ];
    all.into_iter()
        .filter_map(|(remark, holds)| holds.then_some(remark))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AssignmentKind, WeightBy, division_laws::policy};

    fn candidate(name: &str, capacity: Option<u32>) -> Candidate<'_> {
        Candidate {
            name,
            preference: EffectivePreference {
                max: Replicas::MAX,
                ..EffectivePreference::default()
            },
            capacity,
            ..Candidate::default()
        }
    }

    fn weighted(name: &str, weight: u64) -> Candidate<'_> {
        let mut candidate = candidate(name, None);
        candidate.preference.weight = Some(weight);
        candidate
    }

    /// Fails unless exactly these candidates have a budget; returns what else was decided.
    fn assigned(
        policy: &Policy,
        candidates: &[Candidate<'_>],
        expected: &[(&str, u32, u32)],
    ) -> Budgets {
        let all = assign(policy, policy.bounds, candidates);
        let budgets = all.members.iter();
        let budgets = budgets.map(|(name, b)| (&**name, b.min.get(), b.max.get()));
        assert_eq!(budgets.collect::<Vec<_>>(), expected);
        all
    }

    #[test]
    fn aggregated_fills_hosts_first_then_the_largest_then_by_name() {
        let policy = policy(AssignmentKind::Aggregated, 1, 9);
        let hosting = Candidate {
            hosts: true,
            ..candidate("c", Some(2))
        };
        let others = [candidate("b", Some(5)), candidate("a", Some(5)), hosting];
        assigned(&policy, &others, &[("a", 1, 5), ("b", 1, 2), ("c", 1, 2)]);
    }

    #[test]
    fn unknown_and_elastic_capacity_counts_as_max() {
        let mut elastic = candidate("b", Some(0));
        elastic.preference.elastic = true;
        let of = [candidate("a", None), elastic, candidate("c", Some(12))];
        assert_eq!(
            weights(&policy(AssignmentKind::DynamicWeighted, 1, 24), &of),
            [24, 24, 12]
        );
    }

    #[test]
    fn demand_weighs_by_its_sum_and_unknown_demand_as_the_mean() {
        let demanding = |name: &'static str, demand| Candidate {
            demand,
            ..candidate(name, Some(1))
        };
        let policy = Policy {
            weight_by: WeightBy::Demand,
            ..policy(AssignmentKind::DynamicWeighted, 4, 24)
        };
        let of = [
            demanding("a", Some(9.0)),
            demanding("b", Some(3.0)),
            demanding("c", None),
            demanding("d", Some(f64::NAN)),
        ];
        assert_eq!(weights(&policy, &of), [9000, 3000, 6000, 6000]);
        let expected = [("a", 2, 9), ("b", 1, 3), ("c", 1, 6), ("d", 1, 6)];
        assigned(&policy, &of, &expected);
        let silent = [demanding("a", Some(0.0)), demanding("b", None)];
        let remarks = assigned(&policy, &silent, &[("a", 2, 12), ("b", 2, 12)]).remarks;
        assert_eq!(remarks, BTreeSet::from([Remark::NoWeights]));
    }

    #[test]
    fn member_limits_take_precedence_over_fleet_bounds_and_leave_a_remark() {
        let bounded = |name: &'static str, min, max| {
            let mut candidate = weighted(name, 1);
            candidate.preference.min = Replicas::new(min);
            candidate.preference.max = Replicas::new(max);
            candidate
        };
        let policy = policy(AssignmentKind::StaticWeighted, 4, 6);
        let above = [bounded("a", 4, 9), bounded("b", 3, 9)];
        let remarks = assigned(&policy, &above, &[("a", 4, 4), ("b", 3, 3)]).remarks;
        let expected = [Remark::ThresholdsAboveMin, Remark::ThresholdsAboveMax];
        assert_eq!(remarks, BTreeSet::from(expected));
        let below = [bounded("a", 0, 2), bounded("b", 0, 1)];
        let rest = assigned(&policy, &below, &[("a", 2, 2), ("b", 1, 1)]);
        assert_eq!(rest.unassigned, Replicas::new(3));
        assert_eq!(rest.remarks, BTreeSet::from([Remark::ThresholdsBelowMax]));
    }

    #[test]
    fn a_member_without_a_maximum_has_no_budget_and_without_members_max_is_unassigned() {
        let policy = policy(AssignmentKind::DynamicWeighted, 1, 4);
        let of = [candidate("a", Some(0)), candidate("b", Some(3))];
        assigned(&policy, &of, &[("b", 1, 4)]);
        let expected = Budgets {
            unassigned: Replicas::new(4),
            ..Budgets::default()
        };
        assert_eq!(assigned(&policy, &[], &[]), expected);
    }
}
