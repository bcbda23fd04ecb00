//! The condition type that the decisions for a workload and for a fleet share.

use super::observation::Status;

/// One condition; `K` lists the types that it can have.
///
/// `K` is an enum for each kind of object, so that a `match` over the types of its conditions is complete. It is
/// [`ConditionKind`](crate::autoscale::ConditionKind) for one workload, and another one of that name for a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition<K> {
    /// Its type.
    pub kind: K,
    /// Whether it holds.
    pub status: Status,
    /// Why: one `UpperCamelCase` word of a closed set.
    pub reason: &'static str,
    /// Why, for people: a sentence without a full stop.
    pub message: String,
}

impl<K> Condition<K> {
    /// A condition from its parts.
    pub const fn new(kind: K, status: Status, reason: &'static str, message: String) -> Self {
        Self {
            kind,
            status,
            reason,
            message,
        }
    }
}
