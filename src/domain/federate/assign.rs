//! The first assignment: MIN and MAX over the candidates, by policy.

use std::collections::BTreeMap;

use crate::domain::Replicas;

/// The budgets of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// By member; one without a budget is left out.
    pub members: BTreeMap<String, Budget>,
    /// What no member can take of MAX.
    pub unassigned: Replicas,
}

/// One member's budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Its smallest count.
    pub min: Replicas,
    /// Its largest count.
    pub max: Replicas,
}
