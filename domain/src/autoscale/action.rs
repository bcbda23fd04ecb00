//! The action that carries out a decided count.
//!
//! | strategy | mode | action |
//! |---|---|---|
//! | Auto | Delegated, Metric | `Child`: the bounds of the child HPA; `Scale` to leave zero |
//! | Auto | Direct | `Scale`, or `Hold` at the desired count |
//! | Preview | any | `Pin` to `specificReplicas`, else `Hold` |
//!
//! An action states the desired state; applying it writes only what differs. Whether a child HPA exists at all
//! follows from strategy and mode.

use super::combine::Combined;
use super::limit::Limit;
use crate::workload::Writes;
use crate::{ReplicaBounds, Replicas};

/// The action to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write nothing.
    Hold {
        /// Reason for writing nothing.
        reason: HoldReason,
    },
    /// Write the scale subresource; Foretide is its only writer.
    Scale {
        /// The count the decision was made for; the write is conditional on it.
        from: Replicas,
        /// The count to set.
        to: Replicas,
    },
    /// Create the child HPA or update its bounds.
    Child {
        /// `minReplicas` of the child HPA.
        min: Replicas,
        /// `maxReplicas` of the child HPA.
        max: Replicas,
    },
    /// Write the scale of a previewed workload: `specificReplicas`, within the bounds.
    Pin {
        /// The count to set.
        to: Replicas,
    },
}

// === impl Action ===

impl Action {
    /// Returns true if the action sets the count to zero.
    pub fn scales_to_zero(self) -> bool {
        matches!(self, Self::Scale { to, .. } | Self::Pin { to } if to == Replicas::ZERO)
    }
}

words! {
    /// Reason for writing nothing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum HoldReason {
        /// The count is already the desired one.
        AtDesired,
        /// Strategy Preview: the decision is only reported.
        Preview,
        /// Strategy Preview, and the count is already `specificReplicas`.
        Pinned,
        /// `maxReplicas` is below `minReplicas`.
        InvalidBounds,
        /// Mode Direct: another writer keeps changing the count, and Foretide wrote its own less than a minute ago.
        ExternalWriter,
        /// Mode Direct: the status does not say yet that a count of zero is to be set by Foretide.
        ZeroNotStored,
    }
}

/// The action for a combined count, on what the course `writes`; `child` holds the bounds for the child HPA.
///
/// # Guarantees
/// - With `maxReplicas` below `minReplicas`: [`Action::Hold`].
/// - In Preview: [`Action::Hold`], or [`Action::Pin`] to `specificReplicas`.
pub(super) fn action(
    writes: Writes,
    current: Replicas,
    combined: &Combined,
    child: ReplicaBounds,
) -> Action {
    if combined.limit == Some(Limit::InvalidBounds) {
        return Action::Hold {
            reason: HoldReason::InvalidBounds,
        };
    }
    match writes {
        Writes::Pinned(to) => preview(to, current),
        // An HPA does not leave zero unless it scaled to zero itself, so the scale is written instead.
        Writes::Bounds if current > Replicas::ZERO || combined.desired == current => {
            Action::Child {
                min: child.min,
                max: child.max,
            }
        }
        Writes::Bounds | Writes::Count if combined.desired == current => Action::Hold {
            reason: HoldReason::AtDesired,
        },
        Writes::Bounds | Writes::Count => Action::Scale {
            from: current,
            to: combined.desired,
        },
    }
}

fn preview(to: Option<Replicas>, current: Replicas) -> Action {
    match to {
        None => Action::Hold {
            reason: HoldReason::Preview,
        },
        Some(to) if to == current => Action::Hold {
            reason: HoldReason::Pinned,
        },
        Some(to) => Action::Pin { to },
    }
}
