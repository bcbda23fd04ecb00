//! Whose pods are the fleet's: what counts as its replicas, its load and its past. It refuses to look at what those pods do.
//!
//! A cluster can run pods of the same workload and take no part: no preference names it, somebody else scales it, or the
//! policy gives it nothing. Counted as the fleet's, such pods would be load that nobody has to serve.

use crate::domain::Replicas;
use crate::domain::federate::Reason;

use super::fleet::{MemberState, Role};

/// What runs for a fleet in one of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Participation {
    /// Its pods are the fleet's: they are its current replicas, and what they serve is its load. So are those of a member
    /// that leaves or has lost its share, for as long as they run: others are to take over what they serve.
    Counted,
    /// It has no share and may get one. Its pods are not the fleet's, but the load of its past is: it went to the others.
    Eligible,
    /// It takes no part, and nothing that runs there is the fleet's.
    Excluded,
}

impl MemberState<'_> {
    /// What runs for the fleet there. A share that was divided away counts until its pods have ended.
    pub(super) fn participation(&self) -> Participation {
        let has_bounds = self.entry.max.max(self.entry.written) > Replicas::ZERO;
        match self.role {
            // Out of reach it is still theirs.
            Role::Lost | Role::Failed if self.member.is_scaled_by_others() => {
                Participation::Excluded
            }
            Role::Active if self.known && !has_bounds => Participation::Eligible,
            Role::Active | Role::Lost | Role::Failed | Role::Recovering | Role::Leaving => {
                Participation::Counted
            }
            Role::Outside(Reason::TargetAbsent) => Participation::Eligible,
            Role::Foreign | Role::Outside(_) => Participation::Excluded,
        }
    }
}
