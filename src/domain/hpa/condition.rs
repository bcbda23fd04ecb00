//! The conditions a pass sets: an ordered list in which tools match type, status and reason.
//!
//! Setting a condition that exists changes it in place, a new one is appended: the order is part of
//! the contract. Messages and transition times belong to whoever writes the status.

use crate::domain::observation::Status;

/// One condition of an autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub kind: ConditionKind,
    /// Whether it holds.
    pub status: Status,
    /// Why.
    pub reason: ConditionReason,
}

/// The type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionKind {
    /// Whether a count could be computed from metrics.
    ScalingActive,
    /// Whether the scale subresource can be read and written.
    AbleToScale,
    /// Whether a bound or rate limit changed the count.
    ScalingLimited,
    /// Whether this autoscaler scaled the workload to zero.
    ScaledToZero,
}

/// An ordered list of conditions, at most one per type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// The conditions in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Condition] {
        &self.0
    }

    /// The condition of one type.
    #[must_use]
    pub fn get(&self, kind: ConditionKind) -> Option<Condition> {
        self.0.iter().find(|c| c.kind == kind).copied()
    }

    /// Sets a condition, in place if its type is already there, else at the end.
    pub fn set(&mut self, kind: ConditionKind, status: Status, reason: ConditionReason) {
        let condition = Condition {
            kind,
            status,
            reason,
        };
        match self.0.iter_mut().find(|c| c.kind == kind) {
            Some(existing) => *existing = condition,
            None => self.0.push(condition),
        }
    }

    /// Removes the condition of one type.
    pub fn remove(&mut self, kind: ConditionKind) {
        self.0.retain(|c| c.kind != kind);
    }
}

impl FromIterator<Condition> for Conditions {
    fn from_iter<I: IntoIterator<Item = Condition>>(all: I) -> Self {
        let mut conditions = Self::default();
        all.into_iter()
            .for_each(|c| conditions.set(c.kind, c.status, c.reason));
        conditions
    }
}

impl ConditionKind {
    /// All types.
    pub const ALL: [Self; 4] = [
        Self::ScalingActive,
        Self::AbleToScale,
        Self::ScalingLimited,
        Self::ScaledToZero,
    ];

    /// The word the API uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ScalingActive => "ScalingActive",
            Self::AbleToScale => "AbleToScale",
            Self::ScalingLimited => "ScalingLimited",
            Self::ScaledToZero => "ScaledToZero",
        }
    }
}

/// Declares the closed set of reasons once: the variant is the word.
macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident),+ $(,)?) => {
        /// Why a condition has its status: the closed set of words upstream uses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ConditionReason { $($(#[$doc])+ $name),+ }

        impl ConditionReason {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The word the API uses.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }
        }
    };
}

reasons! {
    /// The scale subresource was read.
    SucceededGetScale,
    /// The scale subresource could not be read.
    FailedGetScale,
    /// The scale was written.
    SucceededRescale,
    /// The scale could not be written.
    FailedUpdateScale,
    /// Nothing holds a change back.
    ReadyForNewScale,
    /// A lower recommendation of the scale-up window holds the count down.
    ScaleUpStabilized,
    /// A higher recommendation of the scale-down window holds the count up.
    ScaleDownStabilized,
    /// At least one metric gave a count.
    ValidMetricFound,
    /// The workload is at zero replicas and stays there.
    ScalingDisabled,
    /// The scale has no selector, or one that cannot be parsed.
    InvalidSelector,
    /// Another autoscaler's target selects the same pods.
    AmbiguousSelector,
    /// A metric has an unknown type.
    InvalidMetricSourceType,
    /// A Resource metric gave no count.
    FailedGetResourceMetric,
    /// A `ContainerResource` metric gave no count.
    FailedGetContainerResourceMetric,
    /// A Pods metric gave no count.
    FailedGetPodsMetric,
    /// An Object metric gave no count.
    FailedGetObjectMetric,
    /// An External metric gave no count.
    FailedGetExternalMetric,
    /// The count is within all bounds.
    DesiredWithinRange,
    /// Raised to `minReplicas`.
    TooFewReplicas,
    /// Lowered to `maxReplicas`.
    TooManyReplicas,
    /// Lowered to what scaling up may reach now.
    ScaleUpLimit,
    /// Raised to what scaling down may reach now.
    ScaleDownLimit,
    /// This autoscaler scaled to zero.
    ScaledToZero,
    /// It did not.
    NotScaledToZero,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_place_and_a_new_one_goes_last() {
        use ConditionKind::{AbleToScale, ScalingActive};
        use ConditionReason::{ReadyForNewScale, SucceededGetScale, ValidMetricFound};
        let mut conditions = Conditions::default();
        conditions.set(AbleToScale, Status::True, SucceededGetScale);
        conditions.set(ScalingActive, Status::True, ValidMetricFound);
        conditions.set(AbleToScale, Status::True, ReadyForNewScale);
        let reasons: Vec<_> = conditions.as_slice().iter().map(|c| c.reason).collect();
        assert_eq!(reasons, [ReadyForNewScale, ValidMetricFound]);
        conditions.remove(AbleToScale);
        assert_eq!(conditions.get(AbleToScale), None);
    }
}
