//! Second step of a fleet's sync: of all members that were seen, those whose pods are the fleet's.
//!
//! The rules say who that is (`domain::federate::participation`); here it is applied to what was seen. It decides nothing.

use std::collections::BTreeMap;

use super::observe::{MemberSeen, Seen, Whole};
use crate::{domain::federate::Participation, forecaster::shares::FleetMember};

/// What was seen of the members that take part.
#[derive(Debug)]
pub(super) struct Participants<'s, M> {
    seen: &'s Seen<M>,
    by_name: &'s BTreeMap<String, Participation>,
    previewed: bool,
}

// === impl Participants ===

impl<'s, M> Participants<'s, M> {
    pub(super) fn of(
        seen: &'s Seen<M>,
        by_name: &'s BTreeMap<String, Participation>,
        previewed: bool,
    ) -> Self {
        Self {
            seen,
            by_name,
            previewed,
        }
    }

    /// Everything that was seen.
    pub(super) fn seen(&self) -> &'s Seen<M> {
        self.seen
    }

    /// The workload in each member whose pods are the fleet's and were seen.
    pub(super) fn workloads(&self) -> Vec<(&'s str, &'s Whole)> {
        let counted = self.counted();
        let workloads = counted.filter_map(|(name, member)| Some((name, member.whole()?)));
        workloads.collect()
    }

    /// The members whose pods are the fleet's and were not seen.
    pub(super) fn unseen(&self) -> impl Iterator<Item = &'s str> {
        let unseen = self.counted().filter(|(_, member)| member.is_unknown());
        unseen.map(|(name, _)| name)
    }

    /// Whether everybody who takes part was seen: what is measured without one is not the demand of the fleet.
    pub(super) fn are_all_seen(&self) -> bool {
        self.unseen().next().is_none()
    }

    /// Whose histories make up the fleet's demand, for its forecasts: also the past of members without a share, unless
    /// something runs there that is not the fleet's.
    pub(super) fn histories(&self) -> Vec<FleetMember> {
        let members = self.members().filter(|(_, member, part)| match part {
            Participation::Counted => true,
            Participation::Eligible => self.previewed || member.is_idle(),
            Participation::Excluded => false,
        });
        let histories = members.map(|(name, member, _)| FleetMember {
            name: name.into(),
            prometheus: member.view.prometheus.as_deref().map(Into::into),
            idle: member.is_idle(),
        });
        histories.collect()
    }

    /// Where nothing is ended, because all is only shown, what would end serves on.
    fn counted(&self) -> impl Iterator<Item = (&'s str, &'s MemberSeen<M>)> {
        let previewed = self.previewed;
        let counted = self.members().filter(move |(_, _, part)| match part {
            Participation::Counted => true,
            Participation::Eligible => previewed,
            Participation::Excluded => false,
        });
        counted.map(|(name, member, _)| (name, member))
    }

    fn members(&self) -> impl Iterator<Item = (&'s str, &'s MemberSeen<M>, Participation)> {
        let by_name = self.by_name;
        self.seen.members.iter().filter_map(move |(name, member)| {
            let part = by_name.get(name).copied()?;
            Some((&**name, member, part))
        })
    }
}
