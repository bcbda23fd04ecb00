//! First step of a sync: reads what the decisions about the due workloads of one cluster need.
//!
//! One list of pod usage per namespace serves all its workloads that are due together; other metrics are read one by
//! one. A metric that cannot be read in time is an `Err` among the readings; only an unreadable scale stops a workload.
//! Nothing is decided here, and nothing is written.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use foretide_domain::{
    Replicas, ScaleTarget,
    demand::{self, TargetError},
    forecast::{ForecastReading, Refused},
    hpa::MetricSpec,
    observation::{
        Cause, Container, Measured, NamespaceUsage, Observation, Pod, Reading, StaleSample,
        Unavailable,
    },
    proposal::Reason,
    workload::Workload,
};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, join_all},
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::{
    part::Part,
    related_hpas::{NamespaceHpas, RelatedHpas},
};
use crate::forecaster::{SeriesKey, forecasts::Forecasts};
use foretide_api::ports::{ClusterError, KedaPause, MetricQuery, ScaleView, Workloads};

/// Observation of a workload in one cluster, and of the target that runs it.
#[derive(Debug, Clone)]
pub struct TargetObservation {
    pub workload: WorkloadObservation,
    pub target: TargetView,
}

/// Observation of a workload: of one target, or of the members of a fleet together.
#[derive(Debug, Clone)]
pub struct WorkloadObservation {
    /// Counts, pods and readings.
    pub observation: Observation,
    /// One forecast per metric, when predictions are on.
    pub forecasts: Vec<ForecastReading>,
    /// Containers of the pod template with their requests, when the kind has one.
    pub template: Option<Arc<[Container]>>,
}

/// A target, and the other controllers that scale it.
#[derive(Debug, Clone)]
pub struct TargetView {
    /// The scale, and how to change it safely.
    pub scale: ScaleView,
    /// The HPAs that concern the target.
    pub hpas: RelatedHpas,
    /// The pause by KEDA of its scaling of the target.
    pub keda_pause: KedaPause,
}

/// Usage of every pod of a namespace, sorted by the pod's name.
type Usage = Result<Arc<NamespaceUsage>, Unavailable>;
/// A read of usage that many wait for.
type UsageRead = Shared<BoxFuture<'static, Usage>>;

/// The reads that the workloads of one cluster share which are due together.
#[derive(Debug)]
pub struct ClusterReads<C> {
    cluster: Arc<C>,
    /// The time of the reads.
    now: Timestamp,
    /// Time after which usage, and then every other metric, is unavailable.
    timeout: Duration,
    /// The reads of usage, by namespace.
    usage: Mutex<HashMap<String, UsageRead>>,
    /// The indexed HPAs, by namespace.
    hpas: Mutex<HashMap<String, Arc<NamespaceHpas>>>,
}

// === impl ClusterReads ===

impl<C: Workloads> ClusterReads<C> {
    /// Reads of a cluster; nothing is read yet.
    pub fn new(cluster: Arc<C>, now: Timestamp, timeout: Duration) -> Self {
        Self {
            cluster,
            now,
            timeout,
            usage: Mutex::default(),
            hpas: Mutex::default(),
        }
    }

    /// The cluster that is read.
    pub fn cluster(&self) -> &C {
        &self.cluster
    }

    /// Observes one part.
    ///
    /// # Errors
    /// When the scale of its target cannot be read.
    pub async fn observe(
        &self,
        forecasts: &Forecasts,
        part: &Part,
    ) -> Result<TargetObservation, ClusterError> {
        let cluster = &*self.cluster;
        let workload = &part.workload;
        let namespace = &workload.target.namespace;
        let scale = cluster.scale(&workload.target).await?;
        // The empty selector selects every pod of the namespace: other people's.
        let pods = if has_selector(&scale) {
            cluster.pods(namespace, &scale.selector)?
        } else {
            Vec::new()
        };
        let readings = if has_selector(&scale) {
            let reader = &MetricReader {
                cluster,
                namespace,
                selector: &scale.selector,
                pods: &pods,
                usage: self.usage_for(workload).await,
            };
            let metrics = workload.metrics.iter();
            join_all(metrics.map(|metric| within(self.timeout, reader.read(metric)))).await
        } else {
            vec![Err(no_selector(&workload.target)); workload.metrics.len()]
        };
        let series = ForecastSeries {
            forecasts,
            uid: &part.owner.uid,
            workload,
        };
        let hpas = part.related(&self.hpas(namespace));
        Ok(TargetObservation {
            workload: WorkloadObservation {
                forecasts: series.readings(&pods, scale.template.as_deref(), self.now),
                observation: Observation {
                    scale: scale.scale,
                    unseen: Replicas::ZERO,
                    undelivered: undelivered(&scale, &pods),
                    owned: scale.owned_pods,
                    pods,
                    readings,
                },
                template: scale.template.clone(),
            },
            target: TargetView {
                scale,
                hpas,
                // After the HPAs: one that KEDA has deleted since is seen as a pause.
                keda_pause: cluster.keda_pause(&workload.target).await,
            },
        })
    }

    /// Usage in the namespace of a workload, if one of its metrics needs it.
    async fn usage_for(&self, workload: &Workload) -> Option<Usage> {
        if !workload.metrics.iter().any(reads_usage) {
            return None;
        }
        Some(self.usage(&workload.target.namespace).await)
    }

    async fn usage(&self, namespace: &str) -> Usage {
        let read = self
            .usage
            .lock()
            .entry(namespace.to_owned())
            .or_insert_with(|| self.read_usage(namespace.to_owned()))
            .clone();
        // Without the lock, which is not to be held while something is read.
        read.await
    }

    fn read_usage(&self, namespace: String) -> UsageRead {
        let (cluster, timeout) = (Arc::clone(&self.cluster), self.timeout);
        async move {
            let mut usage = within(timeout, cluster.usage(&namespace)).await?;
            // Sorted once, so that each workload finds its pods by binary search.
            usage
                .pods
                .sort_unstable_by(|one, other| one.pod.cmp(&other.pod));
            Ok(Arc::new(usage))
        }
        .boxed()
        .shared()
    }

    /// The HPAs of a namespace, as they were when it was first asked for.
    pub fn hpas(&self, namespace: &str) -> Arc<NamespaceHpas> {
        let mut known = self.hpas.lock();
        let indexed = known
            .entry(namespace.to_owned())
            .or_insert_with(|| Arc::new(NamespaceHpas::of(self.cluster.hpas(namespace))));
        Arc::clone(indexed)
    }
}

const fn reads_usage(metric: &MetricSpec) -> bool {
    matches!(
        metric,
        MetricSpec::Resource { .. } | MetricSpec::ContainerResource { .. }
    )
}

// === impl Part ===

impl Part {
    /// The HPAs of a namespace that concern the part.
    pub fn related(&self, hpas: &NamespaceHpas) -> RelatedHpas {
        RelatedHpas::of(
            &self.owner,
            &self.workload.target,
            hpas,
            &self.conflicts.uids,
            self.known_child.as_deref(),
        )
    }
}

/// Waits for a reading; one that does not arrive in time is unavailable.
pub async fn within<T>(
    timeout: Duration,
    read: impl Future<Output = Result<T, Unavailable>>,
) -> Result<T, Unavailable> {
    let Ok(reading) = tokio::time::timeout(timeout, read).await else {
        let message = format!("no answer within {timeout:?}");
        return Err(Unavailable::new(Cause::NotRead, message));
    };
    reading
}

/// Reads a metric that needs no pods: of an object, or from outside the cluster.
pub async fn read_without_pods<C: Workloads>(
    cluster: &C,
    namespace: &str,
    metric: &MetricSpec,
) -> Reading {
    let reader = MetricReader {
        cluster,
        namespace,
        selector: "",
        pods: &[],
        usage: None,
    };
    reader.read(metric).await
}

fn has_selector(scale: &ScaleView) -> bool {
    !scale.selector.trim().is_empty()
}

/// Number of pods that a target is expected to have beyond those that the copies list. Without them, a count by the
/// listed ones would be a scale-down for as long as a watch of pods is silent. Pods that have ended or are being
/// deleted are in no status of a `ReplicaSet`.
fn undelivered(scale: &ScaleView, pods: &[Arc<Pod>]) -> Replicas {
    let listed = pods.iter().filter(|pod| !pod.has_ended() && !pod.deleting);
    let listed = u32::try_from(listed.count()).unwrap_or(u32::MAX);
    scale.expected_pods.saturating_sub(Replicas::new(listed))
}

fn no_selector(target: &ScaleTarget) -> Unavailable {
    Unavailable::new(
        Cause::NoPods,
        format!(
            "the scale of {target} has no status.selector, so its pods cannot be identified; its \
             kind needs a labelSelectorPath"
        ),
    )
}

/// Reader of one workload's metrics.
struct MetricReader<'a, C> {
    cluster: &'a C,
    namespace: &'a str,
    selector: &'a str,
    pods: &'a [Arc<Pod>],
    /// Usage of the whole namespace, if it was read.
    usage: Option<Usage>,
}

// === impl MetricReader ===

impl<C: Workloads> MetricReader<'_, C> {
    async fn read(&self, metric: &MetricSpec) -> Reading {
        match metric {
            MetricSpec::Resource { .. } | MetricSpec::ContainerResource { .. } => self.usage(),
            MetricSpec::Pods {
                metric, selector, ..
            } => {
                let query = self.query(metric, selector.as_deref());
                self.cluster
                    .pods_metric(&query)
                    .await
                    .map(Measured::Samples)
            }
            MetricSpec::Object {
                described,
                metric,
                selector,
                ..
            } => {
                let query = self.query(metric, selector.as_deref());
                let value = self.cluster.object_metric(described, &query).await?;
                Ok(Measured::Total(vec![value]))
            }
            MetricSpec::External {
                metric, selector, ..
            } => {
                let query = self.query(metric, selector.as_deref());
                self.cluster
                    .external_metric(&query)
                    .await
                    .map(Measured::Total)
            }
            MetricSpec::Unknown(kind) => Err(Unavailable::new(
                Cause::UnknownType,
                format!(
                    "metric type {kind:?} is not known; expected Resource, ContainerResource, Pods, \
                     Object or External"
                ),
            )),
        }
    }

    /// The usage of the workload's own pods, out of its namespace's list.
    fn usage(&self) -> Reading {
        let Some(read) = &self.usage else {
            let message = "pod usage was not read in this sync";
            return Err(Unavailable::new(Cause::NotRead, message));
        };
        let of_namespace = read.as_ref().map_err(Clone::clone)?;
        let known = &of_namespace.pods;
        let mut own = Vec::new();
        for pod in self.pods {
            let found = known.binary_search_by(|usage| (*usage.pod).cmp(&*pod.name));
            own.extend(found.ok().and_then(|i| known.get(i).cloned()));
        }
        match self.youngest_stale(&of_namespace.stale) {
            Some(age) if own.is_empty() => Err(Unavailable::stale("pod usage", age)),
            // A pod whose sample is too old is missing.
            _ => Ok(Measured::Usage(own)),
        }
    }

    /// The age of the newest of the samples of the workload's own pods that are too old.
    fn youngest_stale(&self, stale: &[StaleSample]) -> Option<SignedDuration> {
        let own = stale.iter().filter_map(|sample| {
            // The cluster returns pods sorted by name.
            self.pods
                .binary_search_by(|pod| pod.name.cmp(&sample.pod))
                .ok()?;
            Some(sample.age)
        });
        own.min()
    }

    fn query<'q>(&'q self, metric: &'q str, selector: Option<&'q str>) -> MetricQuery<'q> {
        MetricQuery {
            namespace: self.namespace,
            metric,
            metric_selector: selector,
            pod_selector: self.selector,
        }
    }
}

/// The series that one workload's forecasts are about.
#[derive(Debug, Clone, Copy)]
pub struct ForecastSeries<'a> {
    /// The forecasts in force.
    pub forecasts: &'a Forecasts,
    /// Key of the series: the UID of the autoscaler, or of a member's part of it.
    pub uid: &'a str,
    pub workload: &'a Workload,
}

// === impl ForecastSeries ===

impl ForecastSeries<'_> {
    /// The forecasts for every metric of the workload; none where predictions are off.
    pub fn readings(
        &self,
        pods: &[Arc<Pod>],
        template: Option<&[Container]>,
        now: Timestamp,
    ) -> Vec<ForecastReading> {
        let Some(prediction) = &self.workload.floor.prediction else {
            return Vec::new();
        };
        let mut seen = HashSet::new();
        let mut readings = Vec::new();
        for metric in &self.workload.metrics {
            let key = SeriesKey {
                uid: self.uid.to_owned(),
                metric: metric.identifier(),
            };
            let target = demand::target(metric, pods, template);
            // A series is identified by its metric, so a repeated metric would get the forecast of the first one.
            let read = match target {
                _ if !seen.insert(key.metric.clone()) => Err(repeated(&key.metric)),
                Err(error) => Err(no_target(&error)),
                Ok(target) => (self.forecasts).predicted(&key, now, prediction.window, target),
            };
            let (outcome, details) = match read {
                Ok((predicted, grounds)) => (Ok(predicted), Some(grounds)),
                Err(refused) => (Err(refused), None),
            };
            readings.push(ForecastReading {
                query: self.forecasts.query(&key),
                name: key.metric,
                details,
                outcome,
            });
        }
        readings
    }
}

fn repeated(metric: &str) -> Refused {
    let message =
        format!("{metric} is listed twice in spec.metrics; only the first one is forecast");
    Refused::new(Reason::NotForecastable, message)
}

fn no_target(error: &TargetError) -> Refused {
    let reason = match error {
        TargetError::MissingRequest { .. } => Reason::MissingRequest,
        TargetError::NotForecastable { .. } => Reason::NotForecastable,
    };
    Refused::new(reason, error.to_string())
}

#[cfg(test)]
mod tests {
    use foretide_domain::{Scale, observation::Phase};

    use super::*;

    fn pod(phase: Phase) -> Arc<Pod> {
        Arc::new(Pod {
            name: "web-0".into(),
            phase,
            deleting: false,
            created: None,
            ready: None,
            started: None,
            containers: Arc::new([]),
            pod_level_requests: None,
        })
    }

    #[test]
    fn pods_that_end_are_not_those_that_are_expected() {
        let scale = |expected| ScaleView {
            scale: Scale::default(),
            selector: "app=web".to_owned(),
            resource_version: "1".to_owned(),
            uid: "u".to_owned(),
            expected_pods: Replicas::new(expected),
            ..ScaleView::default()
        };
        let deleted = Arc::new(Pod {
            deleting: true,
            ..Pod::clone(&pod(Phase::Running))
        });
        let pods = [
            pod(Phase::Running),
            pod(Phase::Pending),
            pod(Phase::Failed),
            pod(Phase::Succeeded),
            deleted,
        ];
        for (expected, missing) in [(0, 0), (2, 0), (5, 3)] {
            assert_eq!(undelivered(&scale(expected), &pods), Replicas::new(missing));
        }
    }
}
