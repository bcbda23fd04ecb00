//! The decision of one sync about one fleet, and its outcome.

use foretide_domain::autoscale::Decision;
use foretide_federate::FleetDecision;

use super::{
    apply::MemberApplied, decide::WorkloadDecided, item::FleetItem, member_plan::MemberPlan,
    observation::FleetObservation,
};
use crate::report::LedgerIntent;
use foretide_api::ports::ClusterError;

/// Decision of one sync about one fleet.
#[derive(Debug)]
pub struct FleetDecided<M> {
    pub item: FleetItem,
    /// The observation that it was made from.
    pub observed: FleetObservation<M>,
    /// The decision for the whole.
    pub whole: WorkloadDecided,
    /// The members as the rules read them.
    pub members: Vec<foretide_federate::Member>,
    /// The division of the whole by the rules.
    pub decision: FleetDecision,
    /// The plans of the members.
    pub plans: Vec<MemberPlan>,
    /// The ledger that is to be stored before a member is written, where it changed and members are written by it.
    pub intent: Option<LedgerIntent>,
}

// === impl FleetDecided ===

impl<M> FleetDecided<M> {
    /// The decision for the fleet as one workload.
    pub fn whole_decision(&self) -> &Decision {
        &self.whole.decided.decision
    }
}

/// Outcome of a decision about one fleet.
#[derive(Debug)]
pub struct FleetApplied<M> {
    /// The decision; its plans are with their outcomes.
    pub fleet: FleetDecided<M>,
    /// The outcome of each member's plan, or the reason why none was carried out.
    pub outcome: Result<Vec<MemberApplied>, ClusterError>,
}
