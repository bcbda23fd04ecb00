//! A fleet that is due, with what its spec means for the hub and for members.

use std::sync::Arc;

use foretide_crds::FederatedHPA;
use foretide_domain::workload::{Mode, Workload};

use crate::{
    child_hpa,
    observe::TargetView,
    part::{Part, Permission, WorkItem},
};
use foretide_api::ports::{HpaView, Member, MemberView};
use foretide_api::validation::FleetSpec;

/// Meaning of a valid spec of a fleet: what it is for the hub and for a member, worked out once.
#[derive(Debug)]
pub struct FleetTerms {
    /// The spec of the whole, and of its division.
    pub spec: FleetSpec,
    /// The workload as members observe it.
    pub observed_workload: Arc<Workload>,
    /// The workload as a member decides it, but for its bounds: its own metrics, and where nothing is divided the windows and
    /// predictions as well.
    pub member_workload: Workload,
    /// The workload with the fleet's own metrics only, decided as if the hub were the only writer; without what each member
    /// decides for itself.
    pub fleet_metrics: Workload,
    /// The permission of a member's own decision while it runs.
    pub member_permission: Permission,
}

// === impl FleetTerms ===

impl FleetTerms {
    pub fn new(spec: FleetSpec) -> Self {
        let course = spec.course;
        let observed_workload = spec.observed_workload();
        let metrics = spec.workload.metrics.iter().cloned();
        let (own, of_fleet) = metrics.partition(|metric| spec.is_members_own(metric));
        let mut member_workload = Workload {
            metrics: own,
            mode: spec.policy.mode,
            ..observed_workload.clone()
        };
        let mut fleet_metrics = Workload {
            metrics: of_fleet,
            mode: Mode::Direct,
            ..spec.workload.clone()
        };
        if !course.divides {
            member_workload.floor = std::mem::take(&mut fleet_metrics.floor);
        }
        Self {
            member_permission: match (course.previewed || course.writes_counts, spec.policy.mode) {
                (true, _) => Permission::Nothing,
                (false, Mode::Direct) => Permission::All,
                // Whether a member at zero wakes is decided for the fleet, not by what this member ran a while ago.
                (false, Mode::Delegated | Mode::Metric) => Permission::Child,
            },
            observed_workload: Arc::new(observed_workload),
            member_workload,
            fleet_metrics,
            spec,
        }
    }
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
    pub fn may_act(&self, target: &TargetView) -> bool {
        self.observed_part().may_act(target)
    }

    /// A foreign HPA that keeps us from acting in a member.
    pub fn foreign_hpa<'s>(&self, target: &'s TargetView) -> Option<&'s Arc<HpaView>> {
        target
            .hpas
            .foreign
            .as_ref()
            .filter(|_| !self.may_act(target))
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
