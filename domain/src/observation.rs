//! Observation of a workload at one instant: its scale, its pods, and one reading per metric.
//!
//! All values are milli-units (`Quantity::milli_value`), all instants are on the controller's own
//! clock. Summing, and judging the age of samples, is left to [`hpa`](super::hpa).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::Replicas;

/// Everything that is read about one workload for a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// The scale subresource.
    pub scale: Scale,
    /// Number of replicas of both counts that cannot be observed, such as those in unreachable members of a fleet:
    /// their pods are not among `pods`, and they are assumed to be needed.
    pub unseen: Replicas,
    /// Number of pods that the workload is known to have beyond the listed ones, because a watch has not delivered them
    /// yet. They share the load of the listed ones: they hold a count, and raise none.
    pub undelivered: Replicas,
    /// Number of running pods that the workload owns, selected or not, if its kind may own pods that the selector does
    /// not select, such as a waiting preview.
    pub owned: Replicas,
    /// The pods the scale's selector selects.
    pub pods: Vec<Arc<Pod>>,
    /// One reading per metric of the spec, in the spec's order. A missing one counts as unavailable.
    pub readings: Vec<Reading>,
}

/// The two counts of a scale subresource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// `spec.replicas`: the desired count.
    pub spec: Replicas,
    /// `status.replicas`: what exists, surge included.
    pub status: Replicas,
}

/// One pod, reduced to what the calculator reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `status.phase`.
    pub phase: Phase,
    /// True if a deletion timestamp is set.
    pub deleting: bool,
    /// `metadata.creationTimestamp`, if known.
    pub created: Option<Timestamp>,
    /// The `Ready` condition, if there is one.
    pub ready: Option<Readiness>,
    /// `status.startTime`, if set.
    pub started: Option<Timestamp>,
    /// The app containers and the native sidecars (init containers that restart always), no others.
    pub containers: Arc<[Container]>,
    /// `spec.resources.requests`, if set.
    pub pod_level_requests: Option<Requests>,
}

impl Pod {
    /// Returns true if the pod runs and is not being deleted.
    pub fn runs(&self) -> bool {
        self.phase == Phase::Running && !self.deleting
    }

    /// Returns true if no container of the pod runs any more, or ever will.
    pub const fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// `status.phase` of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Accepted, not all containers started.
    Pending,
    /// Bound, at least one container running.
    Running,
    /// All containers terminated successfully.
    Succeeded,
    /// At least one container terminated in failure.
    Failed,
    /// Unknown, or a value this version does not know.
    Unknown,
}

/// The `Ready` condition of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Status of the condition.
    pub status: Status,
    /// `lastTransitionTime` of the condition.
    pub since: Timestamp,
}

words! {
    /// The three values a condition's status can have.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Status {
        /// The condition holds.
        True,
        /// The condition does not hold.
        False,
        /// The state of the condition is not known.
        Unknown,
    }
}

/// One container that counts towards its pod's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Name of the container.
    pub name: Arc<str>,
    /// `resources.requests`.
    pub requests: Requests,
}

/// Amounts by resource name, in milli-units. A handful of entries, so a list is the fastest map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(Vec<(Arc<str>, i64)>);

impl Requests {
    /// The amount of `resource`, if there is one.
    ///
    /// ```
    /// use foretide_domain::observation::Requests;
    ///
    /// let requests: Requests = [("cpu", 500), ("memory", 64_000)].into_iter().collect();
    /// assert_eq!(requests.get("cpu"), Some(500));
    /// assert_eq!(requests.get("nvidia.com/gpu"), None);
    /// ```
    pub fn get(&self, resource: &str) -> Option<i64> {
        self.0
            .iter()
            .find(|(name, _)| &**name == resource)
            .map(|(_, milli)| *milli)
    }

    /// All amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, milli)| (&**name, *milli))
    }
}

impl<N: Into<Arc<str>>> FromIterator<(N, i64)> for Requests {
    fn from_iter<I: IntoIterator<Item = (N, i64)>>(amounts: I) -> Self {
        Self(
            amounts
                .into_iter()
                .map(|(name, milli)| (name.into(), milli))
                .collect(),
        )
    }
}

/// The outcome of reading one metric.
pub type Reading = Result<Measured, Unavailable>;

/// The response of a metrics API, not yet summed or averaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measured {
    /// `metrics.k8s.io`: usage per container.
    Usage(Vec<Arc<PodUsage>>),
    /// A custom metric of pods: one value per pod.
    Samples(Vec<PodSample>),
    /// An object's value, or the series of an external metric; milli-units, not yet summed.
    Total(Vec<i64>),
}

/// The usage of one pod, by container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// Name of the pod.
    pub pod: Arc<str>,
    /// End of the interval measured.
    pub at: Timestamp,
    /// Length of the interval measured.
    pub window: SignedDuration,
    /// Usage of each container.
    pub containers: Vec<ContainerUsage>,
}

/// The usage of the pods of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceUsage {
    /// One entry per pod.
    pub pods: Vec<Arc<PodUsage>>,
    /// The pods whose only sample is too old, which are missing among `pods`.
    pub stale: Vec<StaleSample>,
}

/// A sample that counts as missing because it is older than [`stale_after`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleSample {
    /// Name of the pod.
    pub pod: Arc<str>,
    /// Age of the sample at the time of reading.
    pub age: SignedDuration,
}

/// Greatest age of a sample that was measured over `window`: `max(2 * window, 90 s)`; ten minutes without a window.
///
/// A metrics API that has stopped measuring goes on serving its last samples. A sample that is one window old when the
/// next one is due may be late by another window. Adapters that give no window may serve values of monitoring services,
/// which are published minutes after they were measured.
///
/// ```
/// use foretide_domain::observation::stale_after;
/// use jiff::SignedDuration;
///
/// // Windows of 15 s and of five minutes, and none.
/// assert_eq!(stale_after(Some(SignedDuration::from_secs(15))), SignedDuration::from_secs(90));
/// assert_eq!(stale_after(Some(SignedDuration::from_mins(5))), SignedDuration::from_mins(10));
/// assert_eq!(stale_after(None), SignedDuration::from_mins(10));
/// ```
pub fn stale_after(window: Option<SignedDuration>) -> SignedDuration {
    const SHORTEST: SignedDuration = SignedDuration::from_secs(90);
    const WITHOUT_WINDOW: SignedDuration = SignedDuration::from_mins(10);
    window.map_or(WITHOUT_WINDOW, |window| {
        window.saturating_add(window).max(SHORTEST)
    })
}

/// The usage of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Name of the container.
    pub name: Arc<str>,
    /// Usage by resource, milli-units.
    pub usage: Requests,
}

/// One value of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSample {
    /// Name of the pod.
    pub pod: Arc<str>,
    /// The value, milli-units.
    pub value: i64,
    /// End of the interval measured.
    pub at: Timestamp,
    /// Length of the interval measured; 60 s when the API gives none.
    pub window: SignedDuration,
}

/// Reason for which a metric gives no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unavailable {
    /// The cause, one of a closed set.
    pub reason: Cause,
    /// Explanation for people: the request and the response.
    pub message: String,
}

impl Unavailable {
    /// Only samples that are too old: `what` names them, and `age` is that of the newest.
    ///
    /// ```
    /// use foretide_domain::observation::{Cause, Unavailable};
    /// use jiff::SignedDuration;
    ///
    /// let unavailable = Unavailable::stale("pods.rps", SignedDuration::from_mins(11));
    /// assert_eq!(unavailable.reason, Cause::StaleSamples);
    /// ```
    pub fn stale(what: &str, age: SignedDuration) -> Self {
        // Whole seconds: the fraction would only make the message longer.
        let seconds = SignedDuration::from_secs(age.as_secs());
        let message =
            format!("the newest sample of {what} is {seconds:#} old, which is too old to count");
        Self::new(Cause::StaleSamples, message)
    }

    /// An unavailable metric, with its cause and a message for people.
    pub fn new(reason: Cause, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

words! {
    /// The closed set of causes for which a metric gives no number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Cause {
        /// The request to the metrics API failed, or its response could not be read.
        NotRead = "MetricNotRead",
        /// The API returned no samples.
        NoSamples,
        /// The API returned only samples that are older than [`stale_after`].
        StaleSamples,
        /// The selector selects no pod.
        NoPods,
        /// No pod that counts has a sample: all are unready, missing or being deleted.
        NoReadyPods,
        /// A container does not request the resource.
        MissingRequest,
        /// A pod has no container of the name the metric gives.
        MissingContainer,
        /// The metric's target gives no value this type of metric can use.
        UnusableTarget,
        /// The metric has a type this version does not know.
        UnknownType = "UnknownMetricType",
    }
}

/// Observations for tests.
#[cfg(test)]
pub(crate) mod examples {
    use super::*;
    use crate::hpa::{MetricSpec, Target};

    /// A metric of pods with a target of 1 per pod.
    pub(crate) fn busy() -> MetricSpec {
        MetricSpec::Pods {
            metric: "busy".into(),
            selector: None,
            target: Target::AverageValue(1000),
        }
    }

    /// Memory with a target of 1 per pod.
    pub(crate) fn memory() -> MetricSpec {
        MetricSpec::Resource {
            name: "memory".into(),
            target: Target::AverageValue(1000),
        }
    }

    /// A running pod without containers, created at `started`; the readiness has not changed since.
    pub(crate) fn pod(name: &str, started: Timestamp, status: Status) -> Pod {
        Pod {
            name: name.into(),
            phase: Phase::Running,
            deleting: false,
            created: Some(started),
            ready: Some(Readiness {
                status,
                since: started,
            }),
            started: Some(started),
            containers: Arc::new([]),
            pod_level_requests: None,
        }
    }

    /// A scale of `scale` replicas, all of whose pods are seen, and the reading of one metric.
    pub(crate) fn observation(scale: u32, pods: Vec<Arc<Pod>>, measured: Measured) -> Observation {
        let scale = Replicas::new(scale);
        Observation {
            scale: Scale {
                spec: scale,
                status: scale,
            },
            pods,
            readings: vec![Ok(measured)],
            ..Observation::default()
        }
    }
}
