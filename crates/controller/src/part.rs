//! An autoscaler that is due, and the parts that it acts on: one workload in one cluster each.

use std::sync::Arc;

use derive_where::derive_where;
use foretide_domain::{Replicas, workload::Workload};

use super::{child_hpa::ChildSpec, conflicts::TargetConflicts};
use foretide_api::{autoscaler::Autoscaler, ownership::Owner};

/// An autoscaler that is due, with what the spec in force means.
#[derive(Debug)]
#[derive_where(Clone)]
pub struct WorkItem<O, S> {
    /// The object as the user wrote it, valid or not.
    pub object: Arc<O>,
    /// The object as an autoscaler of whichever kind.
    pub autoscaler: Autoscaler,
    /// The object that children are created for.
    pub owner: Arc<Owner>,
    /// The meaning of the last valid spec.
    pub spec: Arc<S>,
    /// The child besides its bounds, by that spec.
    pub child: Arc<ChildSpec>,
    /// The other autoscalers that act on the same target.
    pub conflicts: TargetConflicts,
}

// === impl WorkItem ===

// Not derived: that would require `O: Clone` and `S: Clone`.

impl<O, S> WorkItem<O, S> {
    /// The part that carries out `workload`, with the child as the user wrote it and everything permitted.
    pub fn part(&self, workload: &Arc<Workload>) -> Part {
        Part {
            autoscaler: self.autoscaler.clone(),
            owner: Arc::clone(&self.owner),
            child: Arc::clone(&self.child),
            workload: Arc::clone(workload),
            permission: Permission::All,
            floor_share: None,
            conflicts: self.conflicts.clone(),
            known_child: None,
        }
    }
}

/// Permission to write a decision about one part, where we may act on its target at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// The whole decision.
    All,
    /// The whole decision, but in mode Direct a count only once a minute while another writer keeps changing it, unless
    /// that is below the minimum.
    AllUnlessContested,
    /// The bounds of the child. Whether a target at zero is scaled up is decided elsewhere.
    Child,
    /// Nothing; a child is released.
    Nothing,
}

/// A part of an autoscaler: its workload in one cluster.
#[derive(Debug, Clone)]
pub struct Part {
    /// The autoscaler that it is a part of.
    pub autoscaler: Autoscaler,
    /// The object that the child is created for.
    pub owner: Arc<Owner>,
    /// The child besides its bounds.
    pub child: Arc<ChildSpec>,
    /// The workload: its bounds, metrics, windows and predictions in this cluster.
    pub workload: Arc<Workload>,
    /// The permission for its decisions.
    pub permission: Permission,
    /// The share of a fleet's floor, where the part belongs to a fleet.
    pub floor_share: Option<Replicas>,
    /// The other autoscalers that act on the same target.
    pub conflicts: TargetConflicts,
    /// UID of the child that was written last, where no owner reference identifies it.
    pub known_child: Option<String>,
}
