//! The condition type that the decisions for a workload and for a fleet share.

use super::observation::Status;

/// One condition; `K` lists the types that it can have.
///
/// The type is an enum, so that a `match` over all types of a kind of object is complete:
/// [`autoscale::ConditionKind`](crate::autoscale::ConditionKind) for one workload, [`federate::ConditionKind`](crate::federate::ConditionKind) for a fleet.
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
    pub(super) const fn new(
        kind: K,
        status: Status,
        reason: &'static str,
        message: String,
    ) -> Self {
        Self {
            kind,
            status,
            reason,
            message,
        }
    }
}
