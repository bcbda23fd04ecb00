//! One Kubernetes cluster: the workloads that a sync reads and writes, and the objects that users write.

use std::{collections::BTreeSet, future::Future, sync::Arc};

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus, FederatedHPA,
    FederatedHPAStatus, TimeSeriesPrediction, TimeSeriesPredictionStatus,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::domain::{
    Replicas, ScaleTarget,
    hpa::ObjectRef,
    observation::{Container, Pod, PodSample, PodUsage, Scale, Unavailable},
};

/// The workloads of one Kubernetes cluster as a sync needs them, whichever cluster of a fleet it is: compact
/// snapshots to read, a handful of conditional writes, and the metrics APIs.
///
/// Snapshot methods read the stores and never block; everything `async` is one bounded API call.
pub trait Workloads: Send + Sync + 'static {
    /// Whether every store has seen a complete first list.
    fn is_synced(&self) -> bool;
    /// Every `HorizontalPodAutoscaler` of a namespace.
    fn hpas(&self, namespace: &str) -> Vec<Arc<HpaView>>;
    /// Every `HorizontalPodAutoscaler` of the watched namespaces.
    fn every_hpa(&self) -> Vec<Arc<HpaView>>;
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
    /// Usage of every pod of a namespace, from `metrics.k8s.io`.
    fn usage(
        &self,
        namespace: &str,
    ) -> impl Future<Output = Result<Vec<Arc<PodUsage>>, Unavailable>> + Send;
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
    /// Sets the replicas of a target, provided it is still the version that the decision was made from.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`] when somebody changed the target in between: decide again.
    fn write_scale(
        &self,
        target: &ScaleTarget,
        seen: &ScaleView,
        replicas: Replicas,
    ) -> impl Future<Output = Result<Replicas, ClusterError>> + Send;
    /// Server-side apply of a `HorizontalPodAutoscaler` (a whole manifest), with force.
    fn apply_hpa(
        &self,
        manifest: &Value,
    ) -> impl Future<Output = Result<Arc<HpaView>, ClusterError>> + Send;
    /// JSON patch of a `HorizontalPodAutoscaler`: gives an adopted one back, drops a field added by hand.
    fn patch_hpa(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> impl Future<Output = Result<Arc<HpaView>, ClusterError>> + Send;
    /// Deletes a `HorizontalPodAutoscaler`, provided it still has this UID; absent is success.
    fn delete_hpa(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
}

/// The cluster that our own objects are in: where users ask and are answered.
pub trait Cluster: Workloads {
    /// Waits until autoscalers appeared, vanished, or got another spec or other annotations; takes
    /// them all. Dropping it loses nothing.
    fn changed(&self) -> impl Future<Output = BTreeSet<ObjectKey>> + Send;
    /// The autoscalers of the watched namespaces, in the order of their namespace and name.
    fn autoscalers(&self) -> Vec<Arc<EffectiveHorizontalPodAutoscaler>>;
    /// Every `TimeSeriesPrediction` of the watched namespaces.
    fn every_prediction(&self) -> Vec<Arc<TimeSeriesPrediction>>;
    /// Server-side apply of a `TimeSeriesPrediction` (a whole manifest, no status), with force.
    fn apply_prediction(
        &self,
        manifest: &Value,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Server-side apply of the status of a `TimeSeriesPrediction`.
    fn write_prediction_status(
        &self,
        namespace: &str,
        name: &str,
        status: &TimeSeriesPredictionStatus,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Deletes a `TimeSeriesPrediction`, provided it still has this UID; absent is success.
    fn delete_prediction(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Server-side apply of the status of an autoscaler.
    fn write_status(
        &self,
        namespace: &str,
        name: &str,
        status: &EffectiveHorizontalPodAutoscalerStatus,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Records an event about an autoscaler.
    fn emit(
        &self,
        about: &EffectiveHorizontalPodAutoscaler,
        event: &EventNote,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Which cluster it is, for ever: what tells the fleets of one hub from those of another.
    fn identity(&self) -> impl Future<Output = Result<String, ClusterError>> + Send;
    /// Whether the federated autoscalers have been listed; never, where their kind is not installed.
    fn knows_federated(&self) -> bool;
    /// As [`Cluster::changed`], of federated autoscalers.
    fn federated_changed(&self) -> impl Future<Output = BTreeSet<ObjectKey>> + Send;
    /// The federated autoscalers of the watched namespaces, in the order of their namespace and name.
    fn federated(&self) -> Vec<Arc<FederatedHPA>>;
    /// All of them, to tell what nobody needs any more; absent while they have not been listed, and while one is left
    /// out because it cannot be read.
    fn every_federated(&self) -> Option<Vec<Arc<FederatedHPA>>>;
    /// Records an event about a federated autoscaler.
    fn emit_federated(
        &self,
        about: &FederatedHPA,
        event: &EventNote,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// Server-side apply of the status of a federated autoscaler.
    fn write_federated_status(
        &self,
        namespace: &str,
        name: &str,
        status: &FederatedHPAStatus,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// JSON patch of a federated autoscaler's metadata: its finalizer.
    fn patch_federated(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;
    /// The whole object that a scale target names, as JSON: the template of a fleet's workload.
    fn object(
        &self,
        target: &ScaleTarget,
    ) -> impl Future<Output = Result<Value, ClusterError>> + Send;
}

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The scale of a target, and what is needed to change it safely.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaleView {
    /// Replicas by spec and by status.
    pub scale: Scale,
    /// `status.selector`, in its text form; empty when the target has none.
    pub selector: String,
    /// The version that a write must still find.
    pub resource_version: String,
    /// Identity of the target: a recreated target starts with a fresh history.
    pub uid: String,
    /// Containers of the pod template with their requests, when the kind has one.
    pub template: Option<Arc<[Container]>>,
}

/// A `HorizontalPodAutoscaler` as it stands in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct HpaView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// UID of its controller, if any.
    pub controller_uid: Option<String>,
    /// Labels and annotations, as JSON objects.
    pub labels: Value,
    /// See `labels`.
    pub annotations: Value,
    /// What it scales.
    pub target: ScaleTarget,
    /// The whole `spec`, as JSON.
    pub spec: Value,
    /// The whole `status`, as JSON.
    pub status: Value,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `status.lastScaleTime` as an age against the wall clock at the time of the watch event,
    /// expressed on the controller's own clock.
    pub last_scale: Option<Timestamp>,
}

/// What to ask a custom or external metrics API for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricQuery<'a> {
    /// The namespace asked.
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
    /// Whether it is a `Warning` (else `Normal`).
    pub warning: bool,
    /// `UpperCamelCase` reason from a closed set.
    pub reason: &'static str,
    /// What was done or attempted.
    pub action: &'static str,
    /// One sentence.
    pub note: String,
}

/// Why a call to the cluster gave no answer.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum ClusterError {
    /// The object is not there.
    #[error("{what} not found")]
    NotFound {
        /// The object.
        what: String,
    },
    /// Somebody else changed the object in between.
    #[error("{what} was changed by somebody else meanwhile")]
    Conflict {
        /// The object.
        what: String,
    },
    /// The API server refused the request; only a change by a person helps.
    #[error("the API server refused {what}: {message}")]
    Refused {
        /// The request.
        what: String,
        /// The server's words.
        message: String,
    },
    /// The kind is unknown to the cluster or has no scale subresource.
    #[error("{what} cannot be scaled: {message}")]
    NotScalable {
        /// The target.
        what: String,
        /// What was expected.
        message: String,
    },
    /// Something in the object cannot be read.
    #[error("{what} is not valid: {message}")]
    Invalid {
        /// The object and field.
        what: String,
        /// What was expected.
        message: String,
    },
    /// No answer in time, connection lost, or the server is overloaded: the next sync tries again.
    #[error("no answer for {what}: {message}")]
    Unreachable {
        /// The request.
        what: String,
        /// What happened.
        message: String,
    },
}

// === impl ClusterError ===

impl ClusterError {
    /// The same, said to have happened in `place`.
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
