//! One candidate of a division: its preferences, capacity and demand. Data only.

use serde::{Deserialize, Serialize};

use foretide_domain::Replicas;

/// The preferences that match one cluster, merged: the largest weight, the largest priority and the tightest limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EffectivePreference {
    /// Weight, if any preference gives one.
    #[serde(skip_serializing_if = "is_default")]
    pub weight: Option<u64>,
    /// Priority, if any preference gives one.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: Option<i64>,
    /// Lower limit of the cluster's share: zero where no preference sets one, and under `Duplicated`.
    #[serde(rename = "lo", skip_serializing_if = "is_default")]
    pub min: Replicas,
    /// Upper limit of the cluster's share: MAX where no preference sets one, and under `Duplicated`.
    #[serde(rename = "hi")]
    pub max: Replicas,
    /// True if the cluster adds nodes by itself.
    #[serde(skip_serializing_if = "is_default")]
    pub elastic: bool,
}

/// One member that takes part in a division.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate<'a> {
    /// The name.
    pub name: &'a str,
    /// The merged preferences; `min` and `max` bound its share.
    pub preference: EffectivePreference,
    /// The number of replicas of this workload that it can run in all, running ones included. Counts as MAX when unknown, and for
    /// an elastic member.
    pub capacity: Option<u32>,
    /// The demand in replicas; an unknown one counts as the mean of the known ones.
    pub demand: Option<f64>,
    /// True if it runs replicas already: `Aggregated` fills such members first.
    pub hosts: bool,
}

impl Candidate<'_> {
    /// The demand as a weight, in thousandths of a replica; none if it is not known.
    pub(crate) fn demand_weight(&self) -> Option<u64> {
        let demand = self.demand.filter(|demand| is_usable(*demand))?;
        let milli = Replicas::from_f64_trunc((demand * 1000.0).round());
        Some(u64::from(milli.get()))
    }

    /// The capacity; `max` where that is unknown or elastic.
    pub(crate) fn capacity_or(&self, max: u32) -> u32 {
        self.capacity
            .filter(|_| !self.preference.elastic)
            .unwrap_or(max)
    }
}

/// True if a number can be a demand.
pub fn is_usable(demand: f64) -> bool {
    demand.is_finite() && demand >= 0.0
}

/// True if a value is the default, which the ledger omits.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
