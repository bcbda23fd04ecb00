//! The few traits between the story (`autoscaler`, `forecaster`) and the edge (`adapters`).
//!
//! A port speaks the domain's words: it takes and returns domain values, and its errors say whether to
//! try again. It refuses to know how an answer was fetched. Read `adapters::kube` for the clusters
//! behind [`Workloads`] and [`Cluster`] and `adapters::prometheus` for the history behind [`HistoryReader`].

use std::{collections::BTreeSet, error::Error, future::Future, sync::Arc};

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus, FederatedHPA,
    FederatedHPAStatus, TimeSeriesPrediction,
};
use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::domain::{
    Replicas, ScaleTarget,
    federate::{Estimate, Health, PodShape, Profile, Taint},
    forecast::Refused,
    hpa::MetricSpec,
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
        object: &crate::domain::hpa::ObjectRef,
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
        status: &foretide_crds::TimeSeriesPredictionStatus,
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

/// What the history of a metric is asked for by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand<'a> {
    /// The workload whose total demand it is.
    pub target: &'a ScaleTarget,
    /// The metric that the workload is scaled on.
    pub metric: &'a MetricSpec,
    /// The query that the user wrote for it, if any.
    pub written: Option<&'a str>,
    /// How far back the history goes.
    pub span: SignedDuration,
    /// The member cluster whose part is meant; absent means the whole, wherever its pods are.
    pub member: Option<MemberSeries<'a>>,
}

/// How the series of one member cluster are told from those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberSeries<'a> {
    /// Name of the member, which is the value of the cluster label.
    pub name: &'a str,
    /// Name of the endpoint that has the series of this member; absent means that the hub's has them, told apart
    /// by the cluster label.
    pub endpoint: Option<&'a str>,
    /// Whether no other member of the fleet names that endpoint: then what has no cluster label there is this one's.
    pub alone: bool,
}

/// A query, and whom to ask.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryQuery {
    /// Name of the endpoint; absent means that of the hub.
    pub endpoint: Option<Arc<str>>,
    /// Its text.
    pub text: Arc<str>,
}

/// Knows which query answers for the total demand of a workload, or of its part in one member cluster.
pub trait DemandQueries: Send + Sync {
    /// The query: the user's, else that of the administrator's rules, both restricted to what the object may see,
    /// else a built-in one.
    ///
    /// For a member, a value below zero means: its series are there, and the workload had no pods.
    ///
    /// # Errors
    /// Why no query may be asked, and what would be accepted.
    fn query(&self, demand: &Demand<'_>) -> Result<HistoryQuery, Refused>;

    /// Differs from what it was before whenever the same demand may get another query than before.
    fn version(&self) -> u64;
}

/// Reads the past of one number: Prometheus in production, a recorded series in tests.
pub trait HistoryReader: Send + Sync {
    /// The samples of `query` at `from`, `from + step`, ... up to `to`, both included, oldest first.
    ///
    /// `step` is a positive whole number of seconds, and `from` and `to` lie on whole seconds.
    /// Points at which the query has no value are left out; NaN and infinities are passed on.
    ///
    /// # Errors
    /// [`HistoryError`]; an answer that is not whole (several series, warnings, cut off) is an error, never a smaller
    /// number.
    fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> impl Future<Output = Result<Vec<Sample>, HistoryError>> + Send;
}

/// Why there is no history. Every variant has a stable [reason](HistoryError::reason).
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// No connection, or it broke before the answer was complete.
    #[error("cannot reach the history at {endpoint}")]
    Unreachable {
        /// Where it was looked for, without credentials.
        endpoint: String,
        /// What went wrong below.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// No complete answer within the deadline, ours or the server's.
    #[error("the history at {endpoint} did not answer in time: {message}")]
    Timeout {
        /// Where it was looked for.
        endpoint: String,
        /// Whose deadline passed.
        message: String,
    },
    /// The server is up and cannot serve now (429 or 5xx): ask later.
    #[error("the history is not available now (status {status}): {message}")]
    Unavailable {
        /// The HTTP status.
        status: u16,
        /// The server's words, shortened.
        message: String,
    },
    /// The server did not let us in, or is not a history server (redirect, 401, 403, 404).
    #[error(
        "the history endpoint rejected the request (status {status}): {message}; \
         check its URL and credentials"
    )]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The server's words, shortened.
        message: String,
    },
    /// The server understood the request and says that the query is wrong.
    #[error("the history server refuses the query: {message}")]
    QueryRefused {
        /// The server's words.
        message: String,
    },
    /// The query touches more samples than the server or we allow.
    #[error("the query reads too many samples: {message}; narrow its selectors")]
    TooManySamples {
        /// Whose limit it was.
        message: String,
    },
    /// The answer is not what the protocol says.
    #[error("cannot read the answer of the history server: {message}")]
    Malformed {
        /// What was expected and what was there.
        message: String,
    },
    /// No series, or only native histograms, which have no single value.
    #[error("the query returned no samples")]
    Empty,
    /// Several series where one number at a time is needed.
    #[error("the query returned {0} series, expected one; wrap it in sum(...)")]
    MultiSeries(usize),
    /// The server says that part of the data is missing. A total of a part would be too small, so nothing is used.
    #[error("the history server answered in part only: {message}")]
    Partial {
        /// The server's warnings, joined.
        message: String,
    },
    /// The part of one cluster of a fleet is missing. A total of the others would be too small, so nothing is used.
    #[error("the history of cluster {member} is missing")]
    Member {
        /// The cluster.
        member: Arc<str>,
        /// What is known of it.
        #[source]
        source: Box<HistoryError>,
    },
    /// There is a history, and it ended a while ago.
    #[error("nothing has come since {newest}, while other clusters have samples up to {others}")]
    Stopped {
        /// The newest sample.
        newest: Timestamp,
        /// The newest one of any other cluster.
        others: Timestamp,
    },
    /// The query names an endpoint that is not configured.
    #[error(
        "no Prometheus endpoint {name:?} is configured; give its address with --prometheus-endpoint {name}=URL"
    )]
    UnknownEndpoint {
        /// Its name; `hub` for the one of `--prometheus`.
        name: String,
    },
}

impl HistoryError {
    /// The stable `UpperCamelCase` word for conditions, metrics and documentation.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "Unreachable",
            Self::Timeout { .. } => "Timeout",
            Self::Unavailable { .. } => "Unavailable",
            Self::Rejected { .. } => "Rejected",
            Self::QueryRefused { .. } => "QueryRefused",
            Self::TooManySamples { .. } => "TooManySamples",
            Self::Malformed { .. } => "Malformed",
            Self::Empty => "NoData",
            Self::Stopped { .. } => "Stopped",
            Self::MultiSeries(_) => "MultiSeries",
            Self::Partial { .. } | Self::Member { .. } => "Partial",
            Self::UnknownEndpoint { .. } => "UnknownEndpoint",
        }
    }
}
