//! Dividing whole numbers: quota for budgets, fill for tiers, Webster for replicas.

/// One party of a division.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Its name: ties go to the first by name.
    pub name: String,
    /// Its weight.
    pub weight: u64,
    /// At least this.
    pub lo: u32,
    /// At most this.
    pub hi: u32,
}

/// A division.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// What each slot has, in the order of the slots.
    pub shares: Vec<u32>,
    /// What none can take.
    pub left: u32,
}
