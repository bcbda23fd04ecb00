//! Participation: whether the pods of a member count as the fleet's replicas, load and history.
//!
//! A cluster can run pods of the same workload and take no part: no preference names it, another autoscaler scales it,
//! or the policy gives it no share. If such pods counted, the fleet would scale for load that it does not have to
//! serve.

use crate::Replicas;
use crate::federate::Reason;

use super::member::{MemberRole, MemberState};

/// Whether what runs in a member belongs to its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Participation {
    /// Its pods are replicas of the fleet, and what they serve is the fleet's load. So are those of a member that
    /// leaves or has lost its share, for as long as they run: other members are to take over their load.
    Counted,
    /// It has no share and may get one. Its pods are not the fleet's; its load history is, because others took it over.
    Eligible,
    /// It takes no part, and nothing that runs in it is the fleet's.
    Excluded,
}

impl MemberState<'_> {
    /// Whether its pods count. A share that went to others counts until its pods have ended.
    pub(super) fn participation(&self) -> Participation {
        let has_bounds = self.entry.max.max(self.entry.written) > Replicas::ZERO;
        match self.role {
            // An unreachable member is still scaled by the other autoscaler.
            MemberRole::Lost | MemberRole::Failed if self.member.is_scaled_by_others() => {
                Participation::Excluded
            }
            MemberRole::Active if self.known && !has_bounds => Participation::Eligible,
            MemberRole::Active
            | MemberRole::Lost
            | MemberRole::Failed
            | MemberRole::Recovering
            | MemberRole::Draining => Participation::Counted,
            MemberRole::Outside(Reason::TargetAbsent) => Participation::Eligible,
            MemberRole::Foreign | MemberRole::Outside(_) => Participation::Excluded,
        }
    }
}
