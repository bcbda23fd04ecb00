//! The lease by which the replicas of the controller agree on one leader.

use std::{future::Future, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::ClusterError;

/// The content of a lease: the `spec` of a `coordination.k8s.io/v1` `Lease`.
///
/// Its times are those of the holder's wall clock, for people: nothing is decided by them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Identity of the leader; empty if there is none.
    pub holder: String,
    /// The time for which others wait after the last renewal; absent if it is not positive.
    pub duration: Option<Duration>,
    /// The time at which the holder became the leader.
    pub acquired: Option<Timestamp>,
    /// The time at which it was last renewed.
    pub renewed: Option<Timestamp>,
    /// The number of changes of the holder.
    pub transitions: i32,
}

/// A lease as the cluster has it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredLease {
    /// The content of the lease.
    pub record: LeaseRecord,
    /// `metadata.resourceVersion`, which every write changes.
    pub version: String,
    /// The whole object, whose other fields a replacement keeps.
    pub object: Value,
}

/// One lease of a cluster. Each method is one API call with a short deadline, which is not retried.
pub trait LeaseStore: Send + Sync + 'static {
    /// The lease; absent if there is none.
    fn read(&self) -> impl Future<Output = Result<Option<StoredLease>, ClusterError>> + Send;
    /// Creates the lease.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] if there is one.
    fn create(
        &self,
        record: &LeaseRecord,
    ) -> impl Future<Output = Result<StoredLease, ClusterError>> + Send;
    /// Replaces the lease if it still is this version.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] if it is not; [`ClusterError::NotFound`] if it is gone.
    fn replace(
        &self,
        seen: &StoredLease,
        record: &LeaseRecord,
    ) -> impl Future<Output = Result<StoredLease, ClusterError>> + Send;
}
