//! A fleet that is due, with what its spec means for the hub and for members.

use std::sync::Arc;

use foretide_crds::FederatedHPA;
use foretide_domain::workload::Workload;

use crate::{api::validation::FleetSpec, controller::part::WorkItem};

/// What a valid spec of a fleet means.
#[derive(Debug)]
pub(in crate::controller) struct FleetTerms {
    /// The spec of the whole, and how it is divided.
    pub(super) spec: FleetSpec,
    /// The workload as members observe it.
    pub(super) observed_workload: Arc<Workload>,
}

/// A fleet that is due.
pub(super) type FleetItem = WorkItem<FederatedHPA, FleetTerms>;
