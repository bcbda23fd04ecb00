//! Which clusters are meant: by name, label, provider, region and zone; and what a policy says about each of them.
//! It refuses to know whether a cluster can be reached.
//!
//! Source: `ClusterAffinity` of Karmada (`pkg/apis/policy/v1alpha1`, `pkg/util/selector.go`).

use std::{collections::BTreeMap, slice};

use super::{Kind, Policy, Preference, Standing};
use crate::domain::{Replicas, Requirement, Selector};

/// What a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Who runs it; empty when unknown.
    pub provider: String,
    /// Its region; empty when unknown.
    pub region: String,
    /// Its zones.
    pub zones: Vec<String>,
}

/// A choice of clusters; everything that is given must match, and the empty one matches every cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// By name; empty means every name.
    pub names: Vec<String>,
    /// Never these, whatever else matches.
    pub exclude: Vec<String>,
    /// By label; the default matches every cluster.
    pub labels: Selector,
    /// By the fields `provider`, `region` and `zone`.
    pub fields: Vec<Requirement>,
}

/// Why a cluster gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The policy's affinity does not match it.
    NotSelected,
    /// Weights are given, but none to it (`StaticWeighted`), or no priority is (`Prioritized`).
    NoPreference,
}

impl Affinity {
    /// Whether a cluster is meant. Exclusion always wins.
    #[must_use]
    pub fn matches(&self, cluster: &Profile) -> bool {
        !self.exclude.contains(&cluster.name)
            && (self.names.is_empty() || self.names.contains(&cluster.name))
            && self.labels.matches(&cluster.labels)
            && self.fields.iter().all(|field| cluster.has(field))
    }
}

impl Profile {
    /// Whether a requirement on fields holds. The provider and the region are one value each, or none; zones are any
    /// number: `In` asks for an overlap, `NotIn` for none. Other fields and the comparisons hold for no cluster.
    fn has(&self, field: &Requirement) -> bool {
        use Requirement::{Above, Absent, Below, Equal, Exists, In, NotEqual, NotIn};
        let values = match field.key() {
            "provider" => slice::from_ref(&self.provider),
            "region" => slice::from_ref(&self.region),
            "zone" => &self.zones,
            _ => return false,
        };
        let mut known = values.iter().filter(|value| !value.is_empty());
        match field {
            Equal(_, asked) => known.any(|value| value == asked),
            NotEqual(_, asked) => !known.any(|value| value == asked),
            In(_, asked) => known.any(|value| asked.contains(value)),
            NotIn(_, asked) => !known.any(|value| asked.contains(value)),
            Exists(_) => known.next().is_some(),
            Absent(_) => known.next().is_none(),
            Above(..) | Below(..) => false,
        }
    }
}

impl Policy {
    /// What the policy says about one cluster: of the preferences that match it the largest weight, the largest
    /// priority, the tightest thresholds, and elastic if any says so. None when the affinity does not match.
    ///
    /// Under [`Kind::Duplicated`] thresholds are ignored. A lower threshold wins over a smaller upper one. Whether
    /// the lack of a weight or priority matters depends on the other clusters: see [`Policy::standings`].
    #[must_use]
    pub fn standing(&self, cluster: &Profile) -> Option<Standing> {
        let matching = self.preferences.iter();
        self.standing_by(cluster, matching.filter(|p| p.targets.matches(cluster)))
    }

    fn standing_by<'p>(
        &self,
        cluster: &Profile,
        matching: impl Iterator<Item = &'p Preference>,
    ) -> Option<Standing> {
        if !self.affinity.matches(cluster) {
            return None;
        }
        let mut standing = Standing::default();
        let mut most = None;
        for preference in matching {
            standing.lo = standing.lo.max(preference.min.unwrap_or_default());
            most = most.into_iter().chain(preference.max).min();
            standing.weight = standing.weight.max(preference.weight);
            standing.priority = standing.priority.max(preference.priority);
            standing.elastic |= preference.elastic;
        }
        if self.kind == Kind::Duplicated {
            (standing.lo, most) = (Replicas::ZERO, None);
        }
        standing.hi = most.unwrap_or(self.bounds.max).max(standing.lo);
        Some(standing)
    }

    /// What the policy says about each of all clusters, in their order.
    ///
    /// `StaticWeighted` drops clusters to which no preference gives a weight, but when that are all of them, each has
    /// the weight one. `Prioritized` drops clusters without a priority, even if that are all.
    #[must_use]
    pub fn standings<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a Profile>,
    ) -> Vec<Result<Standing, Dropped>> {
        let index = Index::of(&self.preferences);
        let all = clusters.into_iter();
        let all = all.map(|cluster| self.standing_by(cluster, index.matching(cluster)));
        let all: Vec<_> = all.collect();
        let is_weighted = all
            .iter()
            .flatten()
            .any(|standing| standing.weight.is_some());
        let judge = |standing: Option<Standing>| {
            let mut standing = standing.ok_or(Dropped::NotSelected)?;
            match self.kind {
                Kind::StaticWeighted if !is_weighted => standing.weight = Some(1),
                Kind::StaticWeighted if standing.weight.is_none() => {
                    return Err(Dropped::NoPreference);
                }
                Kind::Prioritized if standing.priority.is_none() => {
                    return Err(Dropped::NoPreference);
                }
                _ => {}
            }
            Ok(standing)
        };
        all.into_iter().map(judge).collect()
    }
}

/// The preferences by the names they mean, so that a hundred clusters with a preference each are not compared
/// ten thousand times.
struct Index<'p> {
    named: BTreeMap<&'p str, Vec<(usize, &'p Preference)>>,
    general: Vec<(usize, &'p Preference)>,
}

impl<'p> Index<'p> {
    fn of(all: &'p [Preference]) -> Self {
        let (mut by_name, mut general) = (BTreeMap::new(), Vec::new());
        for (at, preference) in all.iter().enumerate() {
            let meant = &preference.targets.names;
            if meant.is_empty() {
                general.push((at, preference));
            }
            for name in meant {
                let same: &mut Vec<_> = by_name.entry(name.as_str()).or_default();
                same.push((at, preference));
            }
        }
        Self {
            named: by_name,
            general,
        }
    }

    /// Those that match, in their order.
    fn matching(&self, cluster: &Profile) -> impl Iterator<Item = &'p Preference> {
        let named = self.named.get(cluster.name.as_str()).into_iter().flatten();
        let mut all: Vec<_> = named.chain(&self.general).copied().collect();
        all.sort_by_key(|(at, _)| *at);
        all.retain(|(_, preference)| preference.targets.matches(cluster));
        all.into_iter().map(|(_, preference)| preference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        Replicas,
        federate::{Preference, division_laws::policy},
    };

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

    fn standing(weight: Option<u64>, priority: Option<i64>, lo: u32, hi: u32) -> Standing {
        Standing {
            weight,
            priority,
            lo: Replicas::new(lo),
            hi: Replicas::new(hi),
            elastic: false,
        }
    }

    #[test]
    fn fields_match_by_value_overlap_and_presence() {
        use Requirement::{Above, Absent, Exists, In, NotIn};
        let key = |key: &str| key.to_owned();
        let of = |values: &[&str]| {
            values
                .iter()
                .map(|value| (*value).to_owned())
                .collect::<Vec<_>>()
        };
        let bare = cluster("bare");
        let zoned = Profile {
            region: "north".to_owned(),
            zones: of(&["n1", "n2"]),
            ..cluster("zoned")
        };
        for (field, on_bare, on_zoned) in [
            (In(key("zone"), of(&["n2", "s1"])), false, true),
            (NotIn(key("zone"), of(&["n2", "s1"])), true, false),
            (NotIn(key("zone"), of(&["s1"])), true, true),
            (Exists(key("zone")), false, true),
            (Absent(key("zone")), true, false),
            (In(key("region"), of(&["north", ""])), false, true),
            (Exists(key("region")), false, true),
            (Absent(key("provider")), true, true),
            (Above(key("zone"), 0), false, false),
            (NotIn(key("name"), of(&["x"])), false, false),
        ] {
            let affinity = Affinity {
                fields: vec![field.clone()],
                ..Affinity::default()
            };
            let got = (affinity.matches(&bare), affinity.matches(&zoned));
            assert_eq!(got, (on_bare, on_zoned), "{field:?}");
        }
    }

    #[test]
    fn a_standing_is_the_largest_weight_and_priority_and_the_tightest_thresholds() {
        let preferences = vec![
            prefer(&["a"], Some(2), None, [Some(1), None]),
            prefer(&["a", "b"], Some(5), Some(1), [Some(3), Some(2)]),
            prefer(&["a"], Some(3), Some(7), [None, Some(9)]),
        ];
        let asked = |kind| Policy {
            preferences: preferences.clone(),
            affinity: named(&["a", "b", "c"]),
            ..policy(kind, 1, 20)
        };
        let weighted = asked(Kind::DynamicWeighted);
        assert_eq!(
            weighted.standing(&cluster("a")),
            Some(standing(Some(5), Some(7), 3, 3))
        );
        let capped = Policy {
            preferences: vec![
                prefer(&["a", "b"], None, Some(1), [None, None]),
                prefer(&["a"], None, None, [None, Some(9)]),
                prefer(&["a", "b"], None, None, [Some(2), Some(12)]),
            ],
            ..asked(Kind::Prioritized)
        };
        assert_eq!(
            capped.standing(&cluster("a")),
            Some(standing(None, Some(1), 2, 9))
        );
        // Crossed thresholds: the lower one wins.
        assert_eq!(
            weighted.standing(&cluster("b")),
            Some(standing(Some(5), Some(1), 3, 3))
        );
        assert_eq!(
            weighted.standing(&cluster("c")),
            Some(standing(None, None, 0, 20))
        );
        assert_eq!(weighted.standing(&cluster("d")), None);
        let copied = asked(Kind::Duplicated);
        assert_eq!(
            copied.standing(&cluster("a")),
            Some(standing(Some(5), Some(7), 0, 20))
        );
    }

    #[test]
    fn clusters_without_a_preference_are_dropped_where_others_have_one() {
        use Dropped::{NoPreference, NotSelected};
        let clusters = [cluster("a"), cluster("b"), cluster("x")];
        let weighs = vec![prefer(&["a"], Some(4), None, [None, None])];
        let ranks = vec![prefer(&["a"], None, Some(4), [None, None])];
        let one = Ok(standing(Some(1), None, 0, 9));
        for (kind, preferences, want) in [
            (
                Kind::StaticWeighted,
                weighs.clone(),
                [Ok(standing(Some(4), None, 0, 9)), Err(NoPreference)],
            ),
            (
                Kind::StaticWeighted,
                ranks.clone(),
                [Ok(standing(Some(1), Some(4), 0, 9)), one],
            ),
            (Kind::StaticWeighted, vec![], [one, one]),
            (
                Kind::Prioritized,
                ranks,
                [Ok(standing(None, Some(4), 0, 9)), Err(NoPreference)],
            ),
            (
                Kind::Prioritized,
                vec![],
                [Err(NoPreference), Err(NoPreference)],
            ),
            (
                Kind::Aggregated,
                weighs,
                [
                    Ok(standing(Some(4), None, 0, 9)),
                    Ok(standing(None, None, 0, 9)),
                ],
            ),
        ] {
            let policy = Policy {
                preferences,
                affinity: named(&["a", "b"]),
                ..policy(kind, 1, 9)
            };
            let [a, b] = want;
            assert_eq!(
                policy.standings(&clusters),
                vec![a, b, Err(NotSelected)],
                "{kind:?}"
            );
        }
    }
}
