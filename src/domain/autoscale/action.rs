//! From a decided count to what is to be done about it.
//!
//! Auto acts, in the mode in force; Preview does nothing but hold `specificReplicas`. An action says
//! what shall be, not what to send: whoever applies it writes only differences. That a child
//! autoscaler has no place in Preview and Direct follows from strategy and mode and is no action.

use super::{Joined, Limit};
use crate::domain::workload::{Mode, Strategy, Workload};
use crate::domain::{ReplicaBounds, Replicas};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Hold {
        /// Why not.
        reason: HoldReason,
    },
    /// Write the scale: we are its only writer.
    Scale {
        /// The count the decision was made for; the write is conditional on it.
        from: Replicas,
        /// The count to set.
        to: Replicas,
    },
    /// The child autoscaler shall exist and have these bounds; write only what differs.
    Child {
        /// Its `minReplicas`.
        min: Replicas,
        /// Its `maxReplicas`.
        max: Replicas,
    },
    /// Write the scale of a previewed workload: `specificReplicas`, within the bounds.
    Pin {
        /// The count to set.
        to: Replicas,
    },
}

/// Why nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldReason {
    /// The count is right already.
    AtDesired,
    /// Strategy Preview: the decision is only shown.
    Preview,
    /// Strategy Preview, and the count is `specificReplicas` already.
    Pinned,
    /// `maxReplicas` is below `minReplicas`.
    InvalidBounds,
}

impl HoldReason {
    /// The `UpperCamelCase` word used in status, logs and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AtDesired => "AtDesired",
            Self::Preview => "Preview",
            Self::Pinned => "Pinned",
            Self::InvalidBounds => "InvalidBounds",
        }
    }
}

/// The action for a joined count; `child` are the bounds the child autoscaler shall have.
///
/// # Guarantees
/// - Nothing with crossed bounds.
/// - In Preview nothing but [`Action::Pin`], and that only for `specificReplicas`.
pub(super) fn action(
    workload: &Workload,
    current: Replicas,
    joined: &Joined,
    child: ReplicaBounds,
) -> Action {
    if joined.limit == Some(Limit::InvalidBounds) {
        return Action::Hold {
            reason: HoldReason::InvalidBounds,
        };
    }
    match (workload.strategy, workload.mode_in_force()) {
        (Strategy::Preview, _) => preview(workload, current),
        // An autoscaler does not leave zero by itself unless it went there.
        (Strategy::Auto, Mode::Delegated)
            if current > Replicas::ZERO || joined.desired == current =>
        {
            Action::Child {
                min: child.min,
                max: child.max,
            }
        }
        (Strategy::Auto, _) if joined.desired == current => Action::Hold {
            reason: HoldReason::AtDesired,
        },
        (Strategy::Auto, _) => Action::Scale {
            from: current,
            to: joined.desired,
        },
    }
}

fn preview(workload: &Workload, current: Replicas) -> Action {
    match workload.specific_replicas.map(|n| workload.bounds.clamp(n)) {
        None => Action::Hold {
            reason: HoldReason::Preview,
        },
        Some(to) if to == current => Action::Hold {
            reason: HoldReason::Pinned,
        },
        Some(to) => Action::Pin { to },
    }
}
