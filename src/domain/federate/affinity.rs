//! Which clusters are meant: by name, label, provider, region and zone; and what a policy says about each of them.
//! It refuses to know whether a cluster can be reached.
//!
//! Source: `ClusterAffinity` of Karmada (`pkg/apis/policy/v1alpha1`, `pkg/util/selector.go`).

use std::{collections::BTreeMap, slice};

use super::{Kind, Policy, Standing};
use crate::domain::hpa::{Requirement, Selector};

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
        use Requirement::{Above, Absent, Below, Exists, In, NotIn};
        let values = match field.key() {
            "provider" => slice::from_ref(&self.provider),
            "region" => slice::from_ref(&self.region),
            "zone" => &self.zones,
            _ => return false,
        };
        let mut known = values.iter().filter(|value| !value.is_empty());
        match field {
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
    /// priority, the thresholds of the first, and elastic if any says so. None when the affinity does not match.
    ///
    /// Under [`Kind::Duplicated`] thresholds are ignored. A lower threshold wins over a smaller upper one. Whether
    /// the lack of a weight or priority matters depends on the other clusters: see [`Policy::standings`].
    #[must_use]
    pub fn standing(&self, cluster: &Profile) -> Option<Standing> {
        let matching = || {
            self.preferences
                .iter()
                .filter(|p| p.targets.matches(cluster))
        };
        let bounds = matching().next().filter(|_| self.kind != Kind::Duplicated);
        let lo = bounds.and_then(|p| p.min).unwrap_or_default();
        let hi = bounds.and_then(|p| p.max).unwrap_or(self.bounds.max);
        self.affinity.matches(cluster).then(|| Standing {
            weight: matching().filter_map(|p| p.weight).max(),
            priority: matching().filter_map(|p| p.priority).max(),
            lo,
            hi: hi.max(lo),
            elastic: matching().any(|p| p.elastic),
        })
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
        let all = clusters.into_iter().map(|cluster| self.standing(cluster));
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
