//! The observed members that count: those whose pods are the fleet's, by `ClassifiedFleet::participation`.

use std::collections::BTreeMap;

use foretide_federate::Participation;

use super::observation::{FleetObservation, ObservedMember, Present};
use crate::forecaster::shares::FleetMember;

/// The members that take part, and what was seen of them.
#[derive(Debug)]
pub struct Participants<'s, M> {
    /// Everything that was seen.
    pub observed: &'s FleetObservation<M>,
    pub by_name: &'s BTreeMap<String, Participation>,
    /// True if no pods are removed.
    pub previewed: bool,
}

// === impl Participants ===

impl<'s, M> Participants<'s, M> {
    /// The workload in each member whose pods are the fleet's and were seen.
    pub fn workloads(&self) -> Vec<(&'s str, &'s Present)> {
        self.counted()
            .filter_map(|(name, member)| Some((name, member.present()?)))
            .collect()
    }

    /// The members whose pods are the fleet's and were not seen.
    pub fn unseen(&self) -> impl Iterator<Item = &'s str> {
        self.counted()
            .filter_map(|(name, member)| member.is_unknown().then_some(name))
    }

    /// True if every member that counts was seen: what is measured without one is not the demand of the fleet.
    pub fn are_all_seen(&self) -> bool {
        self.unseen().next().is_none()
    }

    /// The members whose histories make up the fleet's demand, for its forecasts: including those without a share,
    /// unless something runs there that is not the fleet's.
    pub fn histories(&self) -> Vec<FleetMember> {
        let mut histories = Vec::new();
        for (name, member, part) in self.members() {
            let idle = member.is_idle();
            let is_part = match part {
                Participation::Counted => true,
                Participation::Eligible => self.previewed || idle,
                Participation::Excluded => false,
            };
            if is_part {
                histories.push(FleetMember {
                    name: name.into(),
                    prometheus: member.view.prometheus.as_deref().map(Into::into),
                    idle,
                });
            }
        }
        histories
    }

    /// The members that count. In Preview no pods are removed, so those that would be removed still serve and count.
    fn counted(&self) -> impl Iterator<Item = (&'s str, &'s ObservedMember<M>)> {
        let previewed = self.previewed;
        self.members()
            .filter_map(move |(name, member, part)| match part {
                Participation::Counted => Some((name, member)),
                Participation::Eligible => previewed.then_some((name, member)),
                Participation::Excluded => None,
            })
    }

    fn members(&self) -> impl Iterator<Item = (&'s str, &'s ObservedMember<M>, Participation)> {
        let by_name = self.by_name;
        self.observed
            .members
            .iter()
            .filter_map(move |(name, member)| {
                let part = by_name.get(name).copied()?;
                Some((&**name, member, part))
            })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use foretide_api::ports::MemberView;
    use foretide_federate::{Health, Membership, Profile};

    use super::*;
    use crate::{fleet::observation::MemberObservation, related_hpas::RelatedHpas};

    fn member(name: &str, is_seen: bool) -> (String, ObservedMember<()>) {
        let view = MemberView {
            profile: Profile {
                name: name.to_owned(),
                ..Profile::default()
            },
            membership: Membership::Listed,
            taints: Vec::new(),
            prometheus: None,
            health: Health::Ready,
            cluster: None,
            refused: false,
            problem: None,
            secret_problem: None,
        };
        let observed = if is_seen {
            MemberObservation::Absent {
                capacity: None,
                hpas: RelatedHpas::default(),
            }
        } else {
            MemberObservation::Unknown {
                problem: "no answer".to_owned(),
                answers: false,
            }
        };
        let view = Arc::new(view);
        (name.to_owned(), ObservedMember { view, observed })
    }

    #[test]
    fn a_member_that_was_not_seen_is_not_idle_and_leaves_no_whole_demand() {
        for (is_seen, idle) in [(true, [true, true]), (false, [true, false])] {
            let observed = FleetObservation {
                members: [member("a", true), member("b", is_seen), member("c", false)].into(),
                hub: BTreeMap::new(),
                template: None,
            };
            let parts = [
                ("a", Participation::Counted),
                ("b", Participation::Counted),
                ("c", Participation::Excluded),
            ];
            let by_name = parts.map(|(name, part)| (name.to_owned(), part)).into();
            let participants = Participants {
                observed: &observed,
                by_name: &by_name,
                previewed: false,
            };
            let found: Vec<_> = participants
                .histories()
                .iter()
                .map(|one| one.idle)
                .collect();
            assert_eq!(found, idle);
            assert_eq!(participants.are_all_seen(), is_seen);
        }
    }
}
