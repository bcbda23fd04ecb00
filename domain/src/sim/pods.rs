//! The pods of a simulated workload: each serves after its start-up time, and the youngest are removed first. No pod
//! crashes, waits for a node, or starts slower than the others.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::{
    Replicas,
    observation::{Container, Phase, Pod, Readiness, Requests, Status},
};

/// Time for which the first pods have served: longer than the periods in which young pods may be ignored.
const SERVED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// Properties of every pod of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTemplate {
    /// Containers of the pod.
    pub containers: Arc<[Container]>,
    /// Requests of the pod itself, if they are written.
    pub pod_level: Option<Requests>,
}

/// The pods of one workload.
///
/// ```
/// use foretide_domain::Replicas;
/// use foretide_domain::sim::{PodTemplate, SimulatedPods};
/// use jiff::{SignedDuration, Timestamp};
///
/// let template = PodTemplate { containers: Vec::new().into(), pod_level: None };
/// let now = Timestamp::UNIX_EPOCH;
/// let start_up = SignedDuration::from_mins(2);
/// let mut pods = SimulatedPods::new("web", template, start_up, Replicas::new(2), now);
/// pods.scale_to(Replicas::new(5), now);
/// assert_eq!((pods.count().get(), pods.ready().get()), (5, 2));
/// pods.advance(now + start_up);
/// assert_eq!(pods.ready().get(), 5);
/// ```
#[derive(Clone, Debug)]
pub struct SimulatedPods {
    workload: Arc<str>,
    template: PodTemplate,
    start_up: SignedDuration,
    /// Oldest first; the pods that serve come before those that do not yet.
    pods: Vec<Arc<Pod>>,
    serving: usize,
    named: u64,
}

// === impl PodTemplate ===

impl PodTemplate {
    /// A pod that has served since an hour before `now`.
    pub fn serving(&self, name: &str, now: Timestamp) -> Arc<Pod> {
        let since = now.checked_sub(SERVED_FOR).unwrap_or(now);
        Arc::new(Pod {
            phase: Phase::Running,
            ready: Some(ready(Status::True, since)),
            started: Some(since),
            ..self.pending(name)
        })
    }

    fn pending(&self, name: &str) -> Pod {
        Pod {
            name: name.into(),
            phase: Phase::Pending,
            deleting: false,
            created: None,
            ready: None,
            started: None,
            containers: Arc::clone(&self.containers),
            pod_level_requests: self.pod_level.clone(),
        }
    }
}

// === impl SimulatedPods ===

impl SimulatedPods {
    /// `count` pods that have served for long; pods asked for later serve after `start_up`.
    pub fn new(
        workload: &str,
        template: PodTemplate,
        start_up: SignedDuration,
        count: Replicas,
        now: Timestamp,
    ) -> Self {
        let mut pods = Self {
            workload: workload.into(),
            template,
            start_up,
            pods: Vec::new(),
            serving: size(count),
            named: 0,
        };
        for _ in 0..pods.serving {
            let name = pods.name();
            pods.pods.push(pods.template.serving(&name, now));
        }
        pods
    }

    /// Asks for `count` pods. New ones start; surplus ones are removed at once, the youngest first.
    pub fn scale_to(&mut self, count: Replicas, now: Timestamp) {
        self.pods.truncate(size(count));
        self.serving = self.serving.min(self.pods.len());
        while self.pods.len() < size(count) {
            let name = self.name();
            self.pods.push(Arc::new(Pod {
                started: Some(now),
                ..self.template.pending(&name)
            }));
        }
        self.advance(now);
    }

    /// Lets the pods serve whose start-up is over at `now`.
    pub fn advance(&mut self, now: Timestamp) {
        while let Some(pod) = self.pods.get_mut(self.serving) {
            let since = pod
                .started
                .and_then(|at| at.checked_add(self.start_up).ok());
            let Some(since) = since.filter(|since| *since <= now) else {
                return;
            };
            let pod = Arc::make_mut(pod);
            pod.phase = Phase::Running;
            pod.ready = Some(ready(Status::True, since));
            self.serving += 1;
        }
    }

    /// Number of pods that were asked for.
    pub fn count(&self) -> Replicas {
        replicas(self.pods.len())
    }

    /// Number of pods that serve.
    pub fn ready(&self) -> Replicas {
        replicas(self.serving)
    }

    /// All pods, oldest first.
    pub fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    /// The pods that have served since `at`.
    pub(super) fn serving_since(&self, at: Timestamp) -> &[Arc<Pod>] {
        let count = self
            .pods
            .partition_point(|pod| pod.ready.is_some_and(|ready| ready.since <= at));
        self.pods.get(..count).unwrap_or_default()
    }

    fn name(&mut self) -> String {
        self.named += 1;
        format!("{}-{}", self.workload, self.named)
    }
}

const fn ready(status: Status, since: Timestamp) -> Readiness {
    Readiness { status, since }
}

fn size(count: Replicas) -> usize {
    usize::try_from(count.get()).unwrap_or(usize::MAX)
}

fn replicas(count: usize) -> Replicas {
    Replicas::new(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pods(start_up: i64, count: u32) -> SimulatedPods {
        let template = PodTemplate {
            containers: Arc::new([]),
            pod_level: None,
        };
        let start_up = SignedDuration::from_mins(start_up);
        let count = Replicas::new(count);
        SimulatedPods::new("web", template, start_up, count, Timestamp::UNIX_EPOCH)
    }

    fn minute(index: usize) -> Timestamp {
        Timestamp::from_second(i64::try_from(index).unwrap() * 60).unwrap()
    }

    proptest! {
        /// The rule of the replay: a pod asked for at t serves from t + S, and removal is immediate.
        #[test]
        fn the_serving_pods_are_the_least_requested_since_the_start_up_began(
            counts in prop::collection::vec(0_u32..9, 1..40), start_up in 0_usize..6, first in 0_u32..9,
        ) {
            let mut pods = pods(i64::try_from(start_up).unwrap(), first);
            for (t, count) in counts.iter().enumerate() {
                pods.advance(minute(t));
                pods.scale_to(Replicas::new(*count), minute(t));
                let recent = counts[t.saturating_sub(start_up)..=t].iter();
                let before = (t < start_up).then_some(&first);
                let expected = recent.chain(before).min().copied();
                prop_assert_eq!(Some(pods.ready().get()), expected, "minute {}", t);
                prop_assert_eq!(pods.count().get(), *count);
            }
        }
    }

    #[test]
    fn a_pod_has_served_for_a_minute_one_minute_after_it_became_ready() {
        let mut pods = pods(2, 1);
        pods.scale_to(Replicas::new(3), minute(0));
        pods.advance(minute(2));
        assert_eq!(pods.ready(), Replicas::new(3));
        assert_eq!(pods.serving_since(minute(1)).len(), 1);
        assert_eq!(pods.serving_since(minute(2)).len(), 3);
    }
}
