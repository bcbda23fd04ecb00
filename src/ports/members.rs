//! The member clusters of a fleet: which there are, how each is doing, and what each has room for.

use std::{future::Future, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::cluster::{ClusterError, Workloads};
use crate::domain::{
    Replicas, ScaleTarget,
    federate::{Estimate, Health, PodShape, Profile, Taint},
};

/// A member cluster of a fleet: its workloads, what it has room for, and the workload that we place there.
pub trait Member: Workloads {
    /// How many replicas of a target its nodes and quotas hold in all, those that are there included, whether pods are
    /// being created, end or move at this moment or not; absent while nodes, pods or quotas are not known. `like`
    /// is what one replica needs where the member does not know the target's pod template.
    fn capacity(&self, target: &ScaleTarget, selector: &str, like: &PodShape) -> Option<Estimate>;
    /// Pods of a selector that no node has room for: how many, and since when the oldest waits.
    ///
    /// # Errors
    /// [`ClusterError::Invalid`] when the selector cannot be parsed.
    fn unschedulable(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<(Replicas, Option<Timestamp>), ClusterError>;
    /// Who last wrote `spec.replicas` of a target, if it is not the autoscaler or we: the field manager's name.
    fn replicas_written_by(
        &self,
        target: &ScaleTarget,
    ) -> impl Future<Output = Result<Option<String>, ClusterError>> + Send;
    /// UID of the fleet that a target was placed for, as it says itself; absent where nobody placed it.
    fn placed_for(
        &self,
        target: &ScaleTarget,
    ) -> impl Future<Output = Result<Option<String>, ClusterError>> + Send;
    /// Server-side apply of a workload that the hub places (a whole manifest, no replicas), with force.
    fn place(&self, manifest: &Value) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Deletes a workload that the hub placed, provided it still has this UID; absent is success.
    fn remove(
        &self,
        target: &ScaleTarget,
        uid: &str,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
}

/// The member clusters as they come and go.
pub trait Fleet: Send + Sync + 'static {
    /// One member.
    type Member: Member;
    /// Whether the members have been listed; before that none is known, which does not mean that there is none.
    fn is_synced(&self) -> bool;
    /// Every member that is configured, reachable or not, by name. Never blocks.
    fn members(&self) -> Vec<Arc<MemberView<Self::Member>>>;
    /// Without an answer for longer than this a member counts as lost.
    fn lost_after(&self) -> SignedDuration;
    /// Waits until members appeared, vanished, or changed their credentials, labels or taints.
    fn changed(&self) -> impl Future<Output = ()> + Send;
}

/// One member as the hub knows it.
#[derive(Debug)]
pub struct MemberView<M> {
    /// Its name and what it is.
    pub profile: Profile,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Name of the Prometheus endpoint that the administrator configured for it, if its Secret names one.
    pub prometheus: Option<String>,
    /// Whether it answers, as of now.
    pub health: Health,
    /// Its workloads; absent when its Secret cannot be used, and then `problem` says why.
    pub cluster: Option<Arc<M>>,
    /// Whether its last answer was that our credentials are not accepted, which may be before it counts as lost.
    pub refused: bool,
    /// What is wrong with it or with its Secret, for people.
    pub problem: Option<String>,
}
