//! The observed state of one member cluster, and what the fleet as a whole needs. Data only.

use jiff::Timestamp;
use serde::Serialize;

use super::{Profile, Taint};
use foretide_domain::{ReplicaBounds, Replicas};

/// One cluster of the fleet, as observed.
///
/// A failed observation does not change counts: the member is [`Health::Unknown`] and keeps those of its last
/// observation, never zero. The default member answers, and nothing else is known about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// The name, labels and location.
    pub profile: Profile,
    /// The membership in the inventory.
    pub membership: Membership,
    /// The health as last heard.
    pub health: Health,
    /// The taints.
    pub taints: Vec<Taint>,
    /// The workload's pods; absent when the workload does not exist in the member.
    pub pods: Option<Pods>,
    /// Bounds of Foretide's autoscaler, as read from the member; absent when it does not exist.
    pub hpa: Option<ReplicaBounds>,
    /// The `desiredReplicas` of the member's own autoscaler, if it has one.
    pub desired: Option<Replicas>,
    /// The demand in replicas: the largest, over the metrics, of usage divided by the target per pod. Absent when it
    /// cannot be measured.
    pub demand: Option<f64>,
    /// The number of replicas that its nodes and quotas hold in all, running ones included; absent when unknown.
    pub capacity: Option<Replicas>,
    /// True if `capacity` is only an upper bound, because spread constraints were not evaluated.
    pub is_capacity_soft: bool,
    /// The time at which it was observed last.
    pub observed: Option<Timestamp>,
    /// Another field manager that keeps writing the replicas, if there is one (R4).
    pub foreign_writer: Option<String>,
    /// An autoscaler of another owner that scales the same workload, if there is one (R4).
    pub foreign_hpa: Option<String>,
    /// The `ScaledObject` by which KEDA has paused the workload, if one has (R4).
    pub paused_by: Option<String>,
    /// True if the hub places the workload and the one that exists is not from the hub: it is neither drained nor
    /// deleted.
    pub foreign_workload: bool,
    /// The reason why it cannot be observed, or what will soon keep it from being observed: lower case, no full stop.
    pub problem: Option<String>,
}

impl Member {
    /// True if another autoscaler or another field manager controls its replicas, or a pause holds them (R4).
    pub(crate) fn is_scaled_by_others(&self) -> bool {
        self.foreign_writer.is_some() || self.foreign_hpa.is_some() || self.paused_by.is_some()
    }
}

/// The workload's pods in one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    /// `spec.replicas`.
    pub replicas: Replicas,
    /// Pods that are ready.
    pub ready: Replicas,
    /// The part of `replicas` that the scheduler reports unschedulable, and those that could not be created.
    pub unschedulable: Replicas,
    /// Since when the oldest of them is unschedulable.
    pub unschedulable_since: Option<Timestamp>,
}

impl Pods {
    /// The pods that have a node or will get one: all but the unschedulable.
    ///
    /// ```
    /// use foretide_domain::Replicas;
    /// use foretide_federate::Pods;
    ///
    /// let pods = Pods {
    ///     replicas: Replicas::new(7),
    ///     unschedulable: Replicas::new(2),
    ///     ..Pods::default()
    /// };
    /// assert_eq!(pods.placed(), Replicas::new(5));
    /// ```
    pub fn placed(&self) -> Replicas {
        Replicas::new(self.replicas.get().saturating_sub(self.unschedulable.get()))
    }
}

/// The place of a cluster in the hub's inventory.
///
/// A description that disappears (a Secret that is deleted and created again, a label that is dropped) is an accident
/// until somebody says otherwise: it is the same as a member that does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Membership {
    /// A member that is described.
    #[default]
    Listed,
    /// The description is gone, and with it the labels by which it was selected: the preferences of the last
    /// assignment stay.
    Missing,
    /// A member that leaves on purpose: it is drained and gets no share. If it is lost as well, its share goes to the others
    /// without a toleration, because nobody waits for it.
    Leaving,
}

/// The health of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// A member that answers.
    #[default]
    Ready,
    /// A member that answers, and reports that it is not healthy.
    NotReady {
        /// Since when.
        since: Timestamp,
    },
    /// A member that does not answer, or whose last answer is too old.
    Unknown {
        /// Since when it counts as lost; in the future while the last answer is still recent enough.
        since: Timestamp,
    },
}

/// The needs of the fleet as a whole, decided before it is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Total {
    /// The demand of the fleet in replicas: the largest, over the metrics, of total usage divided by the target per
    /// pod. Absent when a metric or a member is missing.
    pub demand: Option<f64>,
    /// The floor from forecast, cron windows and fleet-scoped metrics, after stabilization, which is to be divided.
    /// Absent when there is none.
    pub floor: Option<Replicas>,
    /// The count that one autoscaler over the whole fleet would set now, with the user's metrics, windows, policies and
    /// bounds. Direct divides it; Delegated, where each member has its own autoscaler, ends no ready pod below it. When
    /// it is absent, as under Duplicated, Direct keeps the counts and Delegated ends nothing.
    pub desired: Option<Replicas>,
}

impl Total {
    /// The demand, if it is known.
    pub(crate) fn finite_demand(&self) -> Option<f64> {
        self.demand.filter(|demand| demand.is_finite())
    }
}
