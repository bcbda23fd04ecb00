//! One Kubernetes cluster: the workloads that a sync reads and writes, and the objects that users write.

use std::{
    collections::{BTreeSet, HashSet},
    future::Future,
    sync::Arc,
};

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, FederatedHPA, TimeSeriesPrediction,
    TimeSeriesPredictionStatus,
};
use foretide_domain::{
    Replicas, ScaleTarget,
    hpa::ObjectRef,
    observation::{Container, NamespaceUsage, Pod, PodSample, Scale, Unavailable},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use crate::{
    autoscaler::{Autoscaler, Status},
    ownership::OwnerKind,
};

/// The workloads of one Kubernetes cluster, whether the controller's own or a member of a fleet.
///
/// Methods that are not `async` read the stores of watches and never block; each `async` method is one bounded API
/// call.
pub trait Workloads: Send + Sync + 'static {
    /// True if every store has seen a complete first list.
    fn is_synced(&self) -> bool;
    /// The copies that may be out of date among those that a decision about a target is made from. Nothing may be
    /// written then: the cluster may have changed.
    fn stale(&self, target: &ScaleTarget) -> Option<UnusableCopies>;
    /// Every `HorizontalPodAutoscaler` of a namespace.
    fn hpas(&self, namespace: &str) -> Vec<Arc<HpaView>>;
    /// Every `HorizontalPodAutoscaler` of the watched namespaces.
    fn every_hpa(&self) -> Vec<Arc<HpaView>>;
    /// The pause of KEDA's scaling of a target: as of the last watch event, or as of now where KEDA has no HPA on it.
    fn keda_pause(&self, target: &ScaleTarget) -> impl Future<Output = KedaPause> + Send;
    /// The pods that a label selector (in its text form) selects, sorted by name.
    ///
    /// # Errors
    /// [`ClusterError::Invalid`] when the selector cannot be parsed.
    fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Arc<Pod>>, ClusterError>;
    /// The scale subresource of a target, as of now or as of the last watch event of its kind.
    fn scale(
        &self,
        target: &ScaleTarget,
    ) -> impl Future<Output = Result<ScaleView, ClusterError>> + Send;
    /// Usage of every pod of a namespace, from `metrics.k8s.io`; a sample that is too old counts as missing, as in every
    /// other metric.
    fn usage(
        &self,
        namespace: &str,
    ) -> impl Future<Output = Result<NamespaceUsage, Unavailable>> + Send;
    /// A custom metric of the pods that `selector` selects.
    fn pods_metric(
        &self,
        query: &MetricQuery<'_>,
    ) -> impl Future<Output = Result<Vec<PodSample>, Unavailable>> + Send;
    /// A custom metric of one object, in milli-units.
    fn object_metric(
        &self,
        object: &ObjectRef,
        query: &MetricQuery<'_>,
    ) -> impl Future<Output = Result<i64, Unavailable>> + Send;
    /// The series of an external metric, in milli-units.
    fn external_metric(
        &self,
        query: &MetricQuery<'_>,
    ) -> impl Future<Output = Result<Vec<i64>, Unavailable>> + Send;
    /// Sets the replicas of a target, if it still is the object that was seen and has the count that was seen.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] when another writer has changed the count, or the target was created again: decide
    /// again.
    fn write_scale(
        &self,
        target: &ScaleTarget,
        seen: &ScaleView,
        replicas: Replicas,
    ) -> impl Future<Output = Result<Replicas, ClusterError>> + Send;
    /// Server-side apply of a `HorizontalPodAutoscaler` (a whole manifest), with force. With UID and `resourceVersion` in
    /// its metadata, only of that version of that object.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] when it was modified since: decide again.
    fn apply_hpa(
        &self,
        manifest: &Value,
    ) -> impl Future<Output = Result<Arc<HpaView>, ClusterError>> + Send;
    /// JSON patch of a `HorizontalPodAutoscaler`: to release an adopted one, or to remove a field that a user added.
    fn patch_hpa(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> impl Future<Output = Result<Arc<HpaView>, ClusterError>> + Send;
    /// Deletes a `HorizontalPodAutoscaler` if it has this UID; one that does not exist is a success.
    fn delete_hpa(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
}

/// The autoscalers of the watched namespaces.
#[derive(Debug, Clone, Default)]
pub struct ListedAutoscalers {
    /// In the order of their namespace and name.
    pub objects: Vec<Arc<EffectiveHorizontalPodAutoscaler>>,
    /// UIDs of those that exist and cannot be decoded, federated ones included: nothing is known of them but that they
    /// are not deleted.
    pub unreadable: HashSet<String>,
}

/// The cluster with the autoscalers that users write: their specs, statuses and events.
pub trait Cluster: Workloads {
    /// Waits until autoscalers of a kind are created, deleted, or changed in spec or annotations; returns and clears them
    /// all. Cancel safe.
    fn changed(&self, kind: OwnerKind) -> impl Future<Output = BTreeSet<ObjectKey>> + Send;
    /// The copies that may be out of date among the autoscalers of a kind in a namespace, or in all, as
    /// [`Workloads::stale`].
    fn stale_autoscalers(&self, kind: OwnerKind, namespace: Option<&str>)
    -> Option<UnusableCopies>;
    /// The same as [`Cluster::stale_autoscalers`], for all predictions.
    fn stale_predictions(&self) -> Option<UnusableCopies>;
    /// The autoscalers of the watched namespaces, at one time.
    fn autoscalers(&self) -> ListedAutoscalers;
    /// Every `TimeSeriesPrediction` of the watched namespaces.
    fn every_prediction(&self) -> Vec<Arc<TimeSeriesPrediction>>;
    /// Server-side apply of a `TimeSeriesPrediction` (a whole manifest, no status), with force; returns its UID.
    fn apply_prediction(
        &self,
        manifest: &Value,
    ) -> impl Future<Output = Result<String, ClusterError>> + Send;
    /// Replaces the status of a `TimeSeriesPrediction` if it has this UID.
    fn write_prediction_status(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        status: &TimeSeriesPredictionStatus,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Deletes a `TimeSeriesPrediction` if it has this UID; one that does not exist is a success.
    fn delete_prediction(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Replaces the status of an autoscaler, if the object is still the same one; one that was created again is not.
    fn write_status(
        &self,
        about: &Autoscaler,
        status: Status,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Records an event about an autoscaler.
    fn emit(
        &self,
        kind: OwnerKind,
        about: &ObjectMeta,
        event: &EventNote,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// A permanent identity of the cluster, which distinguishes the fleets of different hubs.
    fn identity(&self) -> impl Future<Output = Result<String, ClusterError>> + Send;
    /// True if the federated autoscalers have been listed; always false where their CRD is not installed.
    fn knows_federated(&self) -> bool;
    /// The federated autoscalers of the watched namespaces, in the order of their namespace and name.
    fn federated(&self) -> Vec<Arc<FederatedHPA>>;
    /// All federated autoscalers, for garbage collection: absent until they have been listed, and while one of them
    /// cannot be parsed.
    fn every_federated(&self) -> Option<Vec<Arc<FederatedHPA>>>;
    /// Replaces the ledger in the status of a federated autoscaler, if the object is still the same one; the other fields
    /// stay.
    ///
    /// # Errors
    /// Whenever it is not known to be stored.
    fn write_ledger(
        &self,
        about: &FederatedHPA,
        ledger: &str,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// JSON patch of a federated autoscaler's metadata, for its finalizer.
    fn patch_federated(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// The object that a scale target names, as JSON: the template of a fleet's workload.
    fn object(
        &self,
        target: &ScaleTarget,
    ) -> impl Future<Output = Result<Value, ClusterError>> + Send;
}

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// The pause of KEDA's scaling of a target. It has no HPA on the target then, and its webhook refuses to resume
/// while the target has another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KedaPause {
    /// No `ScaledObject` of the target is paused.
    #[default]
    Off,
    /// One is.
    On {
        /// The name.
        scaled_object: String,
        /// The annotation that pauses it.
        annotation: &'static str,
    },
    /// The `ScaledObject`s may not be read.
    Unseen,
}

/// The scale of a target, and what is needed to change it safely.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScaleView {
    /// Replicas by spec and by status.
    pub scale: Scale,
    /// `status.selector`, in its text form; empty when the target has none.
    pub selector: String,
    /// `metadata.resourceVersion`, which a write requires to be unchanged.
    pub resource_version: String,
    /// UID of the target: a recreated target has a new one and starts with an empty history.
    pub uid: String,
    /// Containers of the pod template with their requests, when the kind has one.
    pub template: Option<Arc<[Container]>>,
    /// The number of pods that are expected, also if the copies do not show them: the lesser of the counts by spec and by status;
    /// the count of our last write while the copies do not show that. Zero for a kind whose status may count something
    /// else than pods.
    pub expected_pods: Replicas,
    /// The number of pods that run of the `ReplicaSet`s that the target owns, selected or not. Zero for a kind that selects them all.
    pub owned_pods: Replicas,
}

/// Copies of the objects of one kind by which nothing may be decided.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum UnusableCopies {
    /// Copies that may be out of date, because their watch delivers nothing.
    #[display(
        "{}; nothing is written until it does: check the connection to the API server",
        since.map_or_else(
            || format!("objects of kind {kind} have not been listed yet"),
            |since| format!("the watch of {kind} has delivered nothing since {since:.0}"),
        )
    )]
    Stale {
        /// Kind of the objects.
        kind: &'static str,
        /// Until when they were up to date; absent if they have never been listed.
        since: Option<Timestamp>,
    },
    /// The memory limit does not hold all of the namespace.
    #[display(
        "the memory limit of the controller does not hold all objects of kind {kind} in this namespace, which holds most; \
         nothing is written until it does: raise the limit, or delete large or needless objects here"
    )]
    LeftOut {
        /// Kind of the objects.
        kind: &'static str,
    },
}

/// A `HorizontalPodAutoscaler` as the cluster has it.
#[derive(Debug, Clone, PartialEq)]
pub struct HpaView {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// `metadata.resourceVersion`, which a write requires to be unchanged.
    pub resource_version: String,
    /// The object that controls it, if any.
    pub controller: Option<OwnerReference>,
    /// The labels, as a JSON object.
    pub labels: Value,
    /// The annotations, as a JSON object.
    pub annotations: Value,
    /// The target that it scales.
    pub target: ScaleTarget,
    /// The whole `spec`, as JSON.
    pub spec: Value,
    /// The whole `status`, as JSON.
    pub status: Value,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `status.lastScaleTime`, converted to the controller's clock by its age when the HPA is read from the store.
    pub last_scale: Option<Timestamp>,
}

/// A query to a custom or external metrics API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricQuery<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// Metric name, as the user wrote it.
    pub metric: &'a str,
    /// Label selector of the metric's series, in its text form; absent sends no parameter.
    pub metric_selector: Option<&'a str>,
    /// Label selector of the pods (pods metrics only), in its text form.
    pub pod_selector: &'a str,
}

/// An event about an autoscaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventNote {
    /// True if it is a `Warning` (else `Normal`).
    pub warning: bool,
    /// `UpperCamelCase` reason from a closed set.
    pub reason: &'static str,
    /// The action that was taken or attempted.
    pub action: &'static str,
    /// One sentence.
    pub note: String,
}

/// The reason why a call to the cluster failed.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum ClusterError {
    /// The object does not exist.
    #[error("{what} not found")]
    NotFound {
        /// The object.
        what: String,
    },
    /// The object was modified since it was read.
    #[error("conflict: {what} was modified since it was read")]
    Conflict {
        /// The object.
        what: String,
    },
    /// The API server rejected the request; trying again does not help.
    #[error("the API server refused {what}: {message}")]
    Refused {
        /// The request.
        what: String,
        /// The server's message.
        message: String,
    },
    /// The kind is unknown to the cluster or has no scale subresource.
    #[error("{what} cannot be scaled: {message}")]
    NotScalable {
        /// The target.
        what: String,
        /// The expected form.
        message: String,
    },
    /// A field of the object cannot be parsed.
    #[error("{what} is not valid: {message}")]
    Invalid {
        /// The object and field.
        what: String,
        /// The expected form.
        message: String,
    },
    /// Timeout, lost connection, or an overloaded server: the next sync tries again.
    #[error("request for {what} failed: {message}")]
    Unreachable {
        /// The request.
        what: String,
        /// The failure in words.
        message: String,
    },
}

// === impl UnusableCopies ===

impl UnusableCopies {
    /// The reason of conditions.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Stale { .. } => "CacheStale",
            Self::LeftOut { .. } => "MemoryLimit",
        }
    }
}

// === impl ClusterError ===

impl ClusterError {
    /// Adds the place, such as a cluster, to the message.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        let (Self::NotFound { what }
        | Self::Conflict { what }
        | Self::Refused { what, .. }
        | Self::NotScalable { what, .. }
        | Self::Invalid { what, .. }
        | Self::Unreachable { what, .. }) = &mut self;
        *what = format!("{what} in {place}");
        self
    }
}
