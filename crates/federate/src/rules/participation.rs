//! The role of a member, and its participation: whether its pods count as the fleet's replicas, load and history.
//!
//! A cluster can run pods of the same workload and take no part: no preference names it, another autoscaler scales it,
//! or the policy gives it no share. If such pods counted, the fleet would scale for load that it does not have to
//! serve.

use crate::{Entry, Member, Reason};
use foretide_domain::Replicas;

/// The role of a member in its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberRole {
    /// A member that takes part and can be changed.
    Active,
    /// A member that has a share and cannot be changed: it does not answer, or has been unhealthy for longer than tolerated.
    Lost,
    /// A member that has a share and is not changed, because another writer or autoscaler controls its replicas.
    Foreign,
    /// The share went to the others.
    Failed,
    /// The same as `Failed`, but healthy again for less than a cooldown.
    Recovering,
    /// A member that is to be drained.
    Draining,
    /// A member that takes no part, for this reason.
    Outside(Reason),
}

impl MemberRole {
    /// True if it keeps its share while the others divide the rest.
    pub fn is_pinned(self) -> bool {
        matches!(self, Self::Lost | Self::Foreign)
    }
}

/// The relation of what runs in a member to its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Participation {
    /// The pods are replicas of the fleet, and what they serve is the fleet's load. So are those of a member that
    /// leaves or has lost its share, for as long as they run: other members are to take over their load.
    Counted,
    /// A member that has no share and may get one. Its pods are not the fleet's; its load history is, because others took it over.
    Eligible,
    /// A member that takes no part, and nothing that runs in it is the fleet's.
    Excluded,
}

impl Participation {
    /// The participation of a member with this role. A share that went to others counts until its pods have ended.
    pub(crate) fn of(member: &Member, role: MemberRole, entry: Option<&Entry>) -> Self {
        match role {
            // An unreachable member is still scaled by the other autoscaler.
            MemberRole::Lost | MemberRole::Failed if member.is_scaled_by_others() => Self::Excluded,
            MemberRole::Active if entry.is_some_and(has_no_bounds) => Self::Eligible,
            MemberRole::Active
            | MemberRole::Lost
            | MemberRole::Failed
            | MemberRole::Recovering
            | MemberRole::Draining => Self::Counted,
            MemberRole::Outside(Reason::TargetAbsent) => Self::Eligible,
            MemberRole::Foreign | MemberRole::Outside(_) => Self::Excluded,
        }
    }
}

/// True if a member has no budget, and none that was written for it is in force still.
fn has_no_bounds(entry: &Entry) -> bool {
    entry.max.max(entry.written) == Replicas::ZERO
}
