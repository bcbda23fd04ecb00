//! The condition type that the decisions for a workload and for a fleet share.

use super::observation::Status;

/// One condition; `K` lists the types that it can have.
///
/// `K` is an enum for each kind of object, so that a `match` over the types of its conditions is complete. A workload
/// has [`ConditionKind`](crate::autoscale::ConditionKind); a fleet has an enum of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition<K> {
    /// Type of the condition.
    pub kind: K,
    /// Status: true, false or unknown.
    pub status: Status,
    /// Reason for the status: one `UpperCamelCase` word of a closed set.
    pub reason: &'static str,
    /// Explanation of the status for people: a sentence without a full stop.
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
