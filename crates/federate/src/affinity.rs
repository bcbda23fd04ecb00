//! Cluster affinity: which clusters a policy selects, by name, label, provider, region and zone.
//!
//! Source: `ClusterAffinity` of Karmada (`pkg/apis/policy/v1alpha1`, `pkg/util/selector.go`).

use std::{collections::BTreeMap, slice};

use foretide_domain::{Requirement, Selector};

/// The properties of a cluster that an affinity looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The name.
    pub name: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The cloud provider; empty when unknown.
    pub provider: String,
    /// The region; empty when unknown.
    pub region: String,
    /// The zones.
    pub zones: Vec<String>,
}

/// A selection of clusters. All fields that are set must match; the default matches every cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// By name; empty means every name.
    pub names: Vec<String>,
    /// Never these, even if other fields match.
    pub exclude: Vec<String>,
    /// By label; the default matches every cluster.
    pub labels: Selector,
    /// By the fields `provider`, `region` and `zone`.
    pub fields: Vec<Requirement>,
}

impl Affinity {
    /// True if a cluster is selected. `exclude` wins over all other fields.
    ///
    /// ```
    /// use foretide_domain::Requirement;
    /// use foretide_federate::{Affinity, Profile};
    ///
    /// let cluster = |name: &str, region: &str| Profile {
    ///     name: name.into(),
    ///     region: region.into(),
    ///     ..Profile::default()
    /// };
    /// let european = Affinity {
    ///     exclude: vec!["eu-test".into()],
    ///     fields: vec![Requirement::Equal("region".into(), "europe".into())],
    ///     ..Affinity::default()
    /// };
    /// assert!(european.matches(&cluster("eu-1", "europe")));
    /// assert!(!european.matches(&cluster("eu-test", "europe")));
    /// assert!(!european.matches(&cluster("us-1", "america")));
    /// ```
    pub fn matches(&self, cluster: &Profile) -> bool {
        !self.exclude.contains(&cluster.name)
            && (self.names.is_empty() || self.names.contains(&cluster.name))
            && self.labels.matches(&cluster.labels)
            && self.fields.iter().all(|field| cluster.has(field))
    }
}

impl Profile {
    /// True if a requirement on fields holds. The provider and the region have at most one value each, the zones any
    /// number: `In` requires an overlap, `NotIn` none. Other fields, `GreaterThan` and `LessThan` match no cluster.
    fn has(&self, field: &Requirement) -> bool {
        use Requirement::{
            DoesNotExist, Equal, Exists, GreaterThan, In, LessThan, NotEqual, NotIn,
        };
        let values = match field.key() {
            "provider" => slice::from_ref(&self.provider),
            "region" => slice::from_ref(&self.region),
            "zone" => &self.zones,
            _ => return false,
        };
        // An empty provider or region is unknown: no requirement may take it for a value.
        let mut known = values.iter().filter(|value| !value.is_empty());
        match field {
            Equal(_, wanted) => known.any(|value| value == wanted),
            NotEqual(_, wanted) => !known.any(|value| value == wanted),
            In(_, wanted) => known.any(|value| wanted.contains(value)),
            NotIn(_, wanted) => !known.any(|value| wanted.contains(value)),
            Exists(_) => known.next().is_some(),
            DoesNotExist(_) => known.next().is_none(),
            GreaterThan(..) | LessThan(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> Profile {
        Profile {
            name: name.to_owned(),
            ..Profile::default()
        }
    }

    #[test]
    fn fields_match_by_value_overlap_and_presence() {
        use Requirement::{DoesNotExist, Exists, GreaterThan, In, NotIn};
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
            (DoesNotExist(key("zone")), true, false),
            (In(key("region"), of(&["north", ""])), false, true),
            (Exists(key("region")), false, true),
            (DoesNotExist(key("provider")), true, true),
            (GreaterThan(key("zone"), 0), false, false),
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
}
