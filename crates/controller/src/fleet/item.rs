//! A fleet that is due, with what its spec means for the hub and for members.

use std::sync::Arc;

use foretide_crds::FederatedHPA;
use foretide_domain::workload::Workload;

use crate::{
    child_hpa,
    observe::TargetObservation,
    part::{Part, WorkItem},
};
use foretide_api::ports::{HpaView, Member, MemberView};
use foretide_api::validation::FleetSpec;

/// Meaning of a valid spec of a fleet.
#[derive(Debug)]
pub struct FleetTerms {
    /// The spec of the whole, and of its division.
    pub spec: FleetSpec,
    /// The workload as members observe it.
    pub observed_workload: Arc<Workload>,
}

/// A fleet that is due.
pub type FleetItem = WorkItem<FederatedHPA, FleetTerms>;

// === impl FleetItem ===

impl FleetItem {
    /// The spec in force: that of the whole, and of its division.
    pub fn fleet_spec(&self) -> &FleetSpec {
        &self.spec.spec
    }

    /// The fleet's part in a member, with the workload as every member observes it.
    pub fn observed_part(&self) -> Part {
        self.part(&self.spec.observed_workload)
    }

    /// True if the workload in a member is ours to act on.
    pub fn may_act(&self, seen: &TargetObservation) -> bool {
        self.observed_part().may_act(seen)
    }

    /// A foreign HPA that keeps us from acting in a member.
    pub fn foreign_hpa<'s>(&self, seen: &'s TargetObservation) -> Option<&'s Arc<HpaView>> {
        seen.hpas.foreign.as_ref().filter(|_| !self.may_act(seen))
    }

    /// True if a member has an HPA that the fleet created or adopted, as far as is known.
    pub fn has_hpas_in<M: Member>(&self, view: &MemberView<M>) -> bool {
        let namespace = &self.fleet_spec().workload.target.namespace;
        let hpas = view.cluster.as_ref().map(|it| it.hpas(namespace));
        let uid = &self.owner.uid;
        hpas.iter()
            .flatten()
            .any(|hpa| child_hpa::is_of_fleet(hpa, uid))
    }
}
