//! Why the selector of a scale target cannot be used.

use super::ConditionReason;

/// Why a selector does not identify the pods of one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorProblem {
    /// There is none.
    Missing,
    /// It cannot be parsed.
    Unparsable,
    /// Another autoscaler's target selects one of the same pods.
    Ambiguous,
}

impl SelectorProblem {
    /// The reason `ScalingActive` gives.
    #[must_use]
    pub const fn reason(self) -> ConditionReason {
        match self {
            Self::Missing | Self::Unparsable => ConditionReason::InvalidSelector,
            Self::Ambiguous => ConditionReason::AmbiguousSelector,
        }
    }
}
