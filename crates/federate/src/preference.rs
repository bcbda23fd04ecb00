//! What a policy says about one cluster, after all preferences that match it are merged.
//!
//! Whether the cluster can be reached is left to the rules.

use std::collections::BTreeMap;

use super::{EffectivePreference, Policy, Preference, Profile};
use foretide_domain::Replicas;

/// The reason why a cluster is no candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The policy's affinity does not match it.
    NotSelected,
    /// `StaticWeighted` gives weights to other clusters only, or `Prioritized` gives this one no priority.
    NoPreference,
}

impl Policy {
    /// Merges the preferences that match one cluster; `None` when the policy's affinity does not match it.
    ///
    /// A lower limit wins over a smaller upper one. `Duplicated` ignores limits. Whether a missing weight or priority
    /// excludes the cluster depends on the other clusters: see [`Policy::effective_preferences`].
    pub fn effective_preference(&self, cluster: &Profile) -> Option<EffectivePreference> {
        let matching = self.preferences.iter();
        self.merge(cluster, matching.filter(|p| p.targets.matches(cluster)))
    }

    fn merge<'p>(
        &self,
        cluster: &Profile,
        matching: impl Iterator<Item = &'p Preference>,
    ) -> Option<EffectivePreference> {
        if !self.affinity.matches(cluster) {
            return None;
        }
        let mut merged = EffectivePreference::default();
        let mut max = None;
        for preference in matching {
            // Bounds merge to the narrowest, weight and priority to the highest.
            merged.min = merged.min.max(preference.min.unwrap_or_default());
            max = max.into_iter().chain(preference.max).min();
            merged.weight = merged.weight.max(preference.weight);
            merged.priority = merged.priority.max(preference.priority);
            merged.elastic |= preference.elastic;
        }
        if !self.scheme().divides {
            // Each cluster has the bounds of the spec.
            (merged.min, max) = (Replicas::ZERO, None);
        }
        merged.max = max.unwrap_or(self.bounds.max).max(merged.min);
        Some(merged)
    }

    /// Merges the preferences of every cluster, in the order of the clusters.
    ///
    /// `StaticWeighted` drops clusters without a weight; if no cluster has one, each weighs one. `Prioritized` drops
    /// clusters without a priority, even if none remains.
    ///
    /// ```
    /// use foretide_federate::{
    ///     Affinity, AssignmentKind, Dropped, Policy, Preference, Profile,
    /// };
    /// use foretide_domain::{ReplicaBounds, Replicas};
    ///
    /// let bounds = ReplicaBounds::new(Replicas::new(2), Replicas::new(20));
    /// let eu_first = Preference {
    ///     targets: Affinity { names: vec!["eu".into()], ..Affinity::default() },
    ///     priority: Some(1),
    ///     ..Preference::default()
    /// };
    /// let policy = Policy {
    ///     preferences: vec![eu_first],
    ///     ..Policy::new(AssignmentKind::Prioritized, bounds)
    /// };
    /// let cluster = |name: &str| Profile { name: name.into(), ..Profile::default() };
    /// let merged = policy.effective_preferences(&[cluster("eu"), cluster("us")]);
    /// assert_eq!(merged[0].map(|preference| preference.priority), Ok(Some(1)));
    /// assert_eq!(merged[1], Err(Dropped::NoPreference));
    /// ```
    pub fn effective_preferences<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a Profile>,
    ) -> Vec<Result<EffectivePreference, Dropped>> {
        // Without it, every preference would be compared with every cluster.
        let index = PreferenceIndex::new(&self.preferences);
        let all: Vec<_> = clusters
            .into_iter()
            .map(|cluster| self.merge(cluster, index.matching(cluster)))
            .collect();
        let is_weighted = all
            .iter()
            .flatten()
            .any(|preference| preference.weight.is_some());
        all.into_iter()
            .map(|merged| {
                let merged = merged.ok_or(Dropped::NotSelected)?;
                (self.scheme().admit)(merged, is_weighted).ok_or(Dropped::NoPreference)
            })
            .collect()
    }
}

/// The preferences by cluster name, so that a hundred clusters with one preference each do not need ten thousand
/// comparisons.
struct PreferenceIndex<'p> {
    by_name: BTreeMap<&'p str, Vec<(usize, &'p Preference)>>,
    /// Preferences that name no cluster.
    unnamed: Vec<(usize, &'p Preference)>,
}

impl<'p> PreferenceIndex<'p> {
    fn new(all: &'p [Preference]) -> Self {
        let (mut by_name, mut unnamed) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
        for (at, preference) in all.iter().enumerate() {
            let names = &preference.targets.names;
            if names.is_empty() {
                unnamed.push((at, preference));
            }
            for name in names {
                by_name
                    .entry(name.as_str())
                    .or_default()
                    .push((at, preference));
            }
        }
        Self { by_name, unnamed }
    }

    /// The preferences that match a cluster, in the order of the policy.
    fn matching(&self, cluster: &Profile) -> impl Iterator<Item = &'p Preference> {
        let mut all = self.unnamed.clone();
        if let Some(named) = self.by_name.get(cluster.name.as_str()) {
            all.extend(named);
        }
        all.sort_by_key(|(at, _)| *at);
        all.retain(|(_, preference)| preference.targets.matches(cluster));
        all.into_iter().map(|(_, preference)| preference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Affinity, AssignmentKind, division_laws::policy};

    fn cluster(name: &str) -> Profile {
        Profile {
            name: name.to_owned(),
            ..Profile::default()
        }
    }

    fn named(names: &[&str]) -> Affinity {
        Affinity {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Affinity::default()
        }
    }

    fn prefer(
        names: &[&str],
        weight: Option<u64>,
        priority: Option<i64>,
        bounds: [Option<u32>; 2],
    ) -> Preference {
        let [min, max] = bounds.map(|bound| bound.map(Replicas::new));
        Preference {
            targets: named(names),
            weight,
            priority,
            min,
            max,
            elastic: false,
        }
    }

    fn preference(
        weight: Option<u64>,
        priority: Option<i64>,
        min: u32,
        max: u32,
    ) -> EffectivePreference {
        EffectivePreference {
            weight,
            priority,
            min: Replicas::new(min),
            max: Replicas::new(max),
            elastic: false,
        }
    }

    #[test]
    fn an_effective_preference_has_the_largest_weight_and_priority_and_the_tightest_limits() {
        let preferences = vec![
            prefer(&["a"], Some(2), None, [Some(1), None]),
            prefer(&["a", "b"], Some(5), Some(1), [Some(3), Some(2)]),
            prefer(&["a"], Some(3), Some(7), [None, Some(9)]),
        ];
        let policy_of = |kind| Policy {
            preferences: preferences.clone(),
            affinity: named(&["a", "b", "c"]),
            ..policy(kind, 1, 20)
        };
        let weighted = policy_of(AssignmentKind::DynamicWeighted);
        let capped = Policy {
            preferences: vec![
                prefer(&["a", "b"], None, Some(1), [None, None]),
                prefer(&["a"], None, None, [None, Some(9)]),
                prefer(&["a", "b"], None, None, [Some(2), Some(12)]),
            ],
            ..policy_of(AssignmentKind::Prioritized)
        };
        let copied = policy_of(AssignmentKind::Duplicated);
        for (policy, name, expected) in [
            (&weighted, "a", Some(preference(Some(5), Some(7), 3, 3))),
            (&capped, "a", Some(preference(None, Some(1), 2, 9))),
            // min 3, max 2: the lower limit wins.
            (&weighted, "b", Some(preference(Some(5), Some(1), 3, 3))),
            (&weighted, "c", Some(preference(None, None, 0, 20))),
            (&weighted, "d", None),
            (&copied, "a", Some(preference(Some(5), Some(7), 0, 20))),
        ] {
            let found = policy.effective_preference(&cluster(name));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn clusters_without_a_preference_are_dropped_where_others_have_one() {
        use Dropped::{NoPreference, NotSelected};
        let clusters = [cluster("a"), cluster("b"), cluster("x")];
        let weighs = vec![prefer(&["a"], Some(4), None, [None, None])];
        let ranks = vec![prefer(&["a"], None, Some(4), [None, None])];
        let one = Ok(preference(Some(1), None, 0, 9));
        for (kind, preferences, want) in [
            (
                AssignmentKind::StaticWeighted,
                weighs.clone(),
                [Ok(preference(Some(4), None, 0, 9)), Err(NoPreference)],
            ),
            (
                AssignmentKind::StaticWeighted,
                ranks.clone(),
                [Ok(preference(Some(1), Some(4), 0, 9)), one],
            ),
            (AssignmentKind::StaticWeighted, vec![], [one, one]),
            (
                AssignmentKind::Prioritized,
                ranks,
                [Ok(preference(None, Some(4), 0, 9)), Err(NoPreference)],
            ),
            (
                AssignmentKind::Prioritized,
                vec![],
                [Err(NoPreference), Err(NoPreference)],
            ),
            (
                AssignmentKind::Aggregated,
                weighs,
                [
                    Ok(preference(Some(4), None, 0, 9)),
                    Ok(preference(None, None, 0, 9)),
                ],
            ),
        ] {
            let policy = Policy {
                preferences,
                affinity: named(&["a", "b"]),
                ..policy(kind, 1, 9)
            };
            let [a, b] = want;
            let found = policy.effective_preferences(&clusters);
            assert_eq!(found, [a, b, Err(NotSelected)], "{kind:?}");
        }
    }
}
