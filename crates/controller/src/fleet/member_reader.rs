//! A member as the rules of `foretide-federate` read it: from what was seen, or else from what was seen last.

use foretide_domain::{ReplicaBounds, Replicas, demand::is_available};
use foretide_federate::{Health, Member, Pods};
use jiff::{SignedDuration, Timestamp};

use super::{
    decide::largest_demand,
    item::FleetItem,
    observation::{FleetObservation, MemberObservation, ObservedMember, Present},
    state::{FleetState, MemberRecord, ShapedMin},
};
use crate::{
    child_hpa::as_child,
    observe::{TargetObservation, TargetView},
    related_hpas::RelatedHpas,
};
use foretide_api::ports::KedaPause;

/// Reads members for the rules.
#[derive(Debug, Clone, Copy)]
pub struct MemberReader<'a> {
    pub item: &'a FleetItem,
    /// The time of the sync.
    pub now: Timestamp,
    /// Time without an answer after which a member is lost.
    pub lost_after: SignedDuration,
}

// === impl MemberReader ===

impl MemberReader<'_> {
    /// Every member as the rules read it.
    pub fn read_all<M>(self, seen: &FleetObservation<M>, fleet: &mut FleetState) -> Vec<Member> {
        let mut members = Vec::new();
        for (name, member) in &seen.members {
            let record = fleet.members.entry(name.clone()).or_default();
            members.push(self.read(member, record));
        }
        members
    }

    /// A member as it was seen, or else as it was seen last.
    fn read<M>(self, seen: &ObservedMember<M>, record: &mut MemberRecord) -> Member {
        let view = &seen.view;
        let last = record.last.take();
        record.seen |= !seen.is_unknown();
        let mut foreign_write = None;
        let member = match &seen.observed {
            MemberObservation::Unknown { .. } => Member {
                health: self.lost(view.health, last.as_ref(), record.seen),
                ..last.unwrap_or_default()
            },
            MemberObservation::Absent { capacity, hpas } => Member {
                health: view.health,
                hpa: bounds_as_decided(hpas, record.shaped),
                observed: Some(self.now),
                capacity: capacity.map(|estimate| estimate.replicas),
                is_capacity_soft: capacity.is_some_and(|estimate| estimate.is_soft),
                ..Member::default()
            },
            MemberObservation::Present(present) => {
                let member = Member {
                    health: view.health,
                    ..self.present(present, record.shaped)
                };
                // Where a foreign HPA scales, or KEDA pauses, their writes are expected.
                let writer = present.replica_writer.as_ref();
                let is_expected = member.foreign_hpa.is_some() || member.paused_by.is_some();
                let unexpected = writer.filter(|_| !is_expected);
                foreign_write = unexpected.cloned();
                member
            }
        };
        record.foreign_writes.observe(foreign_write, self.now);
        // Preview never writes, so it cannot conflict.
        let is_previewed = self.item.fleet_spec().course.previewed;
        let writer = record.foreign_writes.conflict().filter(|_| !is_previewed);
        let member = Member {
            profile: view.profile.clone(),
            membership: view.membership,
            taints: view.taints.clone(),
            problem: seen.trouble(),
            foreign_writer: member.foreign_writer.or_else(|| writer.cloned()),
            ..member
        };
        record.last = Some(member.clone());
        member
    }

    /// The health of a member that cannot be observed. It counts as lost from a time that may be in the future: the one
    /// in its health, or `lost_after` after it was seen last, whichever was known first. A time restored from status
    /// does not count, because the controller may have been absent since.
    fn lost(self, health: Health, last: Option<&Member>, seen: bool) -> Health {
        let since = match (health, last.map(|member| member.health)) {
            (Health::Unknown { since }, Some(Health::Unknown { since: before })) => {
                since.min(before)
            }
            (Health::Unknown { since }, _) | (_, Some(Health::Unknown { since })) => since,
            _ => {
                let heard = last.filter(|_| seen).and_then(|member| member.observed);
                let at = heard.unwrap_or(self.now);
                at.saturating_add(self.lost_after).unwrap_or(at)
            }
        };
        Health::Unknown { since }
    }

    fn present(self, present: &Present, shaped: Option<ShapedMin>) -> Member {
        let TargetObservation { workload, target } = &present.observed;
        let TargetView {
            scale,
            hpas,
            keda_pause,
        } = target;
        let ready = workload
            .observation
            .pods
            .iter()
            .filter(|pod| is_available(pod));
        let child = hpas.acting().map(|hpa| as_child(hpa));
        // Preview never writes, so it cannot conflict.
        let is_previewed = self.item.fleet_spec().course.previewed;
        let foreign_hpa = self.item.foreign_hpa(target).filter(|_| !is_previewed);
        Member {
            pods: Some(Pods {
                replicas: scale.scale.spec,
                ready: Replicas::new(u32::try_from(ready.count()).unwrap_or(u32::MAX)),
                unschedulable: present.unschedulable,
                unschedulable_since: present.unschedulable_since,
            }),
            hpa: bounds_as_decided(hpas, shaped),
            desired: child.and_then(|child| child.desired),
            demand: self.demand(present),
            capacity: present.capacity.map(|estimate| estimate.replicas),
            is_capacity_soft: present.capacity.is_some_and(|estimate| estimate.is_soft),
            foreign_workload: present.foreign,
            observed: Some(self.now),
            foreign_hpa: foreign_hpa.map(|hpa| hpa.name.clone()),
            paused_by: match keda_pause {
                KedaPause::On { scaled_object, .. } if !is_previewed => Some(scaled_object.clone()),
                _ => None,
            },
            ..Member::default()
        }
    }

    /// Demand on a member's pods, in replicas.
    fn demand(self, present: &Present) -> Option<f64> {
        if present.is_idle() {
            return Some(0.0);
        }
        let metrics = &self.item.spec.observed_workload.metrics;
        let seen = &present.observed.workload;
        let readings = metrics.iter().zip(&seen.observation.readings);
        largest_demand(readings, seen, self.now)
    }
}

/// The bounds of the HPA that acts for us, as they were decided: a minimum that we shaped stands for the decided one,
/// unless another writer changed it.
fn bounds_as_decided(hpas: &RelatedHpas, shaped: Option<ShapedMin>) -> Option<ReplicaBounds> {
    let child = as_child(hpas.acting()?);
    let shaped = shaped.filter(|shaped| shaped.written == child.min);
    let min = shaped.map_or(child.min, |shaped| shaped.decided);
    Some(ReplicaBounds::new(min, child.max))
}
