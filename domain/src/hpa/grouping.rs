//! The pods that count, the pods that are assumed to be idle or busy, and the requests of all of them.
//!
//! A pod is in exactly one group, by the first rule that matches. Ages of samples matter to the CPU
//! rule only: no sample is rejected for its age.
//!
//! Source: upstream `groupPods` and `calculateRequests`.

use std::{collections::HashMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use super::{Settings, ratio::narrow};
use crate::observation::{Cause, Container, Phase, Pod, Status, Unavailable};

/// One pod's value, summed over its containers where it has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The value, milli-units.
    pub value: i64,
    /// End of the interval measured.
    pub at: Timestamp,
    /// Length of the interval measured.
    pub window: SignedDuration,
}

/// The pods of one computation, by group.
#[derive(Clone, Debug, Default)]
pub struct Grouped<'a> {
    /// Pods that count, with their samples.
    pub ready: Vec<(&'a Pod, Sample)>,
    /// Pods that run or will run, but whose sample does not count yet.
    pub unready: Vec<&'a Pod>,
    /// Pods without a sample.
    pub missing: Vec<&'a Pod>,
    /// Pods that are being deleted or have failed.
    pub ignored: Vec<&'a Pod>,
    /// Samples of pods that were not listed. Plain averages include them, as upstream.
    pub unlisted: Vec<Sample>,
}

/// Groups `pods`; `samples` holds the value of each pod by name, `is_cpu` turns the readiness rules on.
///
/// | pod | group |
/// |---|---|
/// | is being deleted, or has failed | ignored |
/// | is pending | unready |
/// | has a sample, but of its start-up (CPU only) | unready |
/// | has a sample | ready |
/// | has none | missing |
pub fn group_pods<'a, S: std::hash::BuildHasher>(
    pods: &'a [Arc<Pod>],
    mut samples: HashMap<&str, Sample, S>,
    is_cpu: bool,
    settings: &Settings,
    now: Timestamp,
) -> Grouped<'a> {
    let mut grouped = Grouped {
        ready: Vec::with_capacity(pods.len()),
        ..Grouped::default()
    };
    for pod in pods {
        let sample = samples.remove(&*pod.name);
        if pod.deleting || pod.phase == Phase::Failed {
            grouped.ignored.push(pod);
        } else if pod.phase == Phase::Pending {
            grouped.unready.push(pod);
        } else if let Some(sample) = sample {
            // CPU usage during start-up says nothing about the load; other metrics count at once.
            if is_cpu && is_unready(pod, sample, settings, now) {
                grouped.unready.push(pod);
            } else {
                grouped.ready.push((pod, sample));
            }
        } else {
            grouped.missing.push(pod);
        }
    }
    grouped.unlisted.extend(samples.into_values());
    grouped
}

/// Returns true if the CPU sample of a pod is still start-up noise.
fn is_unready(pod: &Pod, sample: Sample, settings: &Settings, now: Timestamp) -> bool {
    // As upstream: without a readiness condition or a start time its CPU samples do not count.
    let (Some(ready), Some(started)) = (pod.ready, pod.started) else {
        return true;
    };
    // As upstream: a young pod counts once a whole window was measured since it became ready; an older one that is
    // not ready counts unless it has never been.
    let is_young = now.duration_since(started) < settings.cpu_initialization_period;
    if is_young {
        ready.status == Status::False || sample.at.duration_since(ready.since) < sample.window
    } else {
        let never_was = ready.since.duration_since(started) < settings.initial_readiness_delay;
        ready.status == Status::False && never_was
    }
}

/// Request of a pod for `resource`, milli-units: that of `container`, if one is named, else that of the pod level if
/// set (and switched on), else the sum over the containers.
///
/// # Errors
///
/// A container without a request, or no container of that name.
///
/// ```
/// use foretide_domain::hpa::{Settings, pod_requests};
/// use foretide_domain::observation::{Container, Phase, Pod};
///
/// let container = |name: &str, cpu: i64| Container {
///     name: name.into(),
///     requests: [("cpu", cpu)].into_iter().collect(),
/// };
/// let pod = Pod {
///     name: "web-1".into(),
///     phase: Phase::Running,
///     deleting: false,
///     created: None,
///     ready: None,
///     started: None,
///     containers: vec![container("app", 300), container("proxy", 100)].into(),
///     pod_level_requests: None,
/// };
/// let settings = Settings::default();
/// assert_eq!(pod_requests(&pod, "cpu", None, &settings), Ok(400));
/// assert_eq!(pod_requests(&pod, "cpu", Some("proxy"), &settings), Ok(100));
/// assert!(pod_requests(&pod, "memory", None, &settings).is_err());
/// ```
pub fn pod_requests(
    pod: &Pod,
    resource: &str,
    container: Option<&str>,
    settings: &Settings,
) -> Result<i64, Unavailable> {
    let pod_level = pod.pod_level_requests.as_ref();
    let pod_level = pod_level.filter(|_| settings.pod_level_resources && container.is_none());
    if let Some(request) = pod_level.and_then(|requests| requests.get(resource)) {
        return Ok(request);
    }
    let Some(name) = container else {
        return pod
            .containers
            .iter()
            .try_fold(0_i128, |sum, c| {
                Ok(sum + i128::from(container_request(pod, c, resource)?))
            })
            .map(narrow);
    };
    match pod.containers.iter().find(|c| &*c.name == name) {
        Some(found) => container_request(pod, found, resource),
        None => Err(Unavailable::new(
            Cause::MissingContainer,
            format!("container {name} not found in Pod {}", pod.name),
        )),
    }
}

fn container_request(pod: &Pod, container: &Container, resource: &str) -> Result<i64, Unavailable> {
    container.requests.get(resource).ok_or_else(|| {
        Unavailable::new(
            Cause::MissingRequest,
            format!(
                "missing request for {resource} in container {} of Pod {}",
                container.name, pod.name
            ),
        )
    })
}
