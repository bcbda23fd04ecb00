//! The member clusters of a fleet: which there are, how each is doing, and what each has room for.

use std::{future::Future, sync::Arc};

use foretide_domain::{Replicas, ScaleTarget};
use foretide_federate::{Estimate, Health, Membership, PodShape, Profile, Taint};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::cluster::{ClusterError, Workloads};

/// A member cluster of a fleet: its workloads, its capacity, and the workload that the hub places there.
pub trait Member: Workloads {
    /// The number of replicas of a target that its nodes and quotas hold in total, including existing ones; absent until nodes,
    /// pods and quotas have been listed. `like` is the size of one replica where the member has no pod template of the
    /// target.
    ///
    /// Pods that are being created, deleted or rescheduled do not change the estimate.
    fn capacity(&self, target: &ScaleTarget, selector: &str, like: &PodShape) -> Option<Estimate>;
    /// The replicas of a target that are unschedulable or cannot be created: how many, and since when the oldest has
    /// been waiting. `replicas` is the count that the target asks for.
    ///
    /// If more pods exist than that, as after a scale-down or in a rolling update, as many of the unschedulable ones are
    /// not counted. Pods of another workload that `selector` matches count like those of the target.
    ///
    /// # Errors
    /// [`ClusterError::Invalid`] when the selector cannot be parsed.
    fn unschedulable(
        &self,
        target: &ScaleTarget,
        selector: &str,
        replicas: Replicas,
    ) -> Result<(Replicas, Option<Timestamp>), ClusterError>;
    /// The field manager that last wrote `spec.replicas` of a target, if it is neither the HPA controller nor Foretide.
    fn replicas_written_by(
        &self,
        target: &ScaleTarget,
    ) -> impl Future<Output = Result<Option<String>, ClusterError>> + Send;
    /// UID of the fleet that a target was placed for, from its own metadata; absent if the hub did not place it.
    fn placed_for(
        &self,
        target: &ScaleTarget,
    ) -> impl Future<Output = Result<Option<String>, ClusterError>> + Send;
    /// Server-side apply of a workload that the hub places (a whole manifest, no replicas), with force.
    fn place(&self, manifest: &Value) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Deletes a workload that the hub placed if it has this UID; one that does not exist is a success.
    fn remove(
        &self,
        target: &ScaleTarget,
        uid: &str,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
}

/// The registry of member clusters.
pub trait Fleet: Send + Sync + 'static {
    /// One member.
    type Member: Member;
    /// True if the members have been listed; before that, [`members`](Self::members) is empty.
    fn is_synced(&self) -> bool;
    /// Every member that is configured, reachable or not, sorted by name, and those whose Secret is missing while the
    /// connection that it described serves. Never blocks.
    fn members(&self) -> Vec<Arc<MemberView<Self::Member>>>;
    /// A member that has not answered for longer than this counts as lost.
    fn lost_after(&self) -> SignedDuration;
    /// Waits until members are added or removed, or their credentials, labels or taints change.
    fn changed(&self) -> impl Future<Output = ()> + Send;
}

/// One member as the hub knows it.
#[derive(Debug)]
pub struct MemberView<M> {
    /// The name, labels and location.
    pub profile: Profile,
    /// The membership in the inventory.
    pub membership: Membership,
    /// The taints.
    pub taints: Vec<Taint>,
    /// Name of the Prometheus endpoint that the administrator configured for it, if its Secret names one.
    pub prometheus: Option<String>,
    /// The health as last heard.
    pub health: Health,
    /// The workloads; absent if its Secret is not usable, and then `problem` has the reason.
    pub cluster: Option<Arc<M>>,
    /// True if it last rejected the hub's credentials, even if it does not count as lost yet.
    pub refused: bool,
    /// The problem with it or with its Secret, in words.
    pub problem: Option<String>,
    /// The reason why its Secret cannot be used, while the connection that it described before serves.
    pub secret_problem: Option<String>,
}
