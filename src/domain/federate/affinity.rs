//! Which clusters are meant: by name, label, provider, region and zone.
//!
//! Source: `ClusterAffinity` of Karmada (`pkg/apis/policy/v1alpha1`, `pkg/util/selector.go`).

use std::collections::BTreeMap;

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

impl Affinity {
    /// Whether a cluster is meant.
    #[must_use]
    pub fn matches(&self, cluster: &Profile) -> bool {
        !self.exclude.contains(&cluster.name)
            && (self.names.is_empty() || self.names.contains(&cluster.name))
            && self.labels.matches(&cluster.labels)
    }
}
