//! What rebalancing remembers: every timer and every stored estimate, as values.

use std::collections::BTreeMap;

use crate::domain::Replicas;

/// The memory of one fleet. Goes into a decision and comes out of it; kept in status, so that a restart resumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// The generation that was assigned last; absent before the first assignment.
    pub generation: Option<i64>,
    /// What no member could take.
    pub unassigned: Replicas,
    /// The members by name.
    pub members: BTreeMap<String, Entry>,
}

/// What is remembered of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry {
    /// Its budget: the smallest count.
    pub min: Replicas,
    /// Its budget: the largest count.
    pub max: Replicas,
}
