//! First step of a sync: reads what the decisions about the due workloads of one cluster need.
//!
//! One list of pod usage per namespace serves all its workloads; other metrics are read one by one, a bounded number at
//! a time. A metric that cannot be read is an `Err` among the readings; only an unreadable scale stops a workload.
//! Nothing is decided here, and nothing is written.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream};
use jiff::Timestamp;

use super::{child_hpa::RelatedHpas, part::Part};
use crate::{
    domain::{
        Replicas, ScaleTarget,
        demand::{self, TargetError},
        forecast::{ForecastReading, Predicted, Refused},
        hpa::MetricSpec,
        observation::{Cause, Measured, Observation, Pod, PodUsage, Reading, Unavailable},
        proposal::Reason,
        workload::Workload,
    },
    forecaster::{SeriesKey, forecasts::Forecasts},
    ports::{ClusterError, HpaView, MetricQuery, ScaleView, Workloads},
};

/// How many reads run at once.
const CONCURRENT_READS: usize = 16;

/// What was seen of one workload.
#[derive(Debug, Clone)]
pub(super) struct TargetObservation {
    /// The scale, and how to change it safely.
    pub(super) scale: ScaleView,
    /// The HPAs that concern the target.
    pub(super) hpas: RelatedHpas,
    /// Pods and readings.
    pub(super) observation: Observation,
    /// One per metric, when predictions are on.
    pub(super) forecasts: Vec<ForecastReading>,
}

/// When a cluster is observed, and for how long each metric may keep it waiting.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadTime {
    /// The time of the sync.
    pub(super) now: Timestamp,
    /// After this long usage, and then every other metric, is unavailable; absent: as long as a request may take.
    pub(super) timeout: Option<Duration>,
}

/// Usage of every pod by namespace, sorted by the pod's name.
type Usage = HashMap<String, Result<Vec<Arc<PodUsage>>, Unavailable>>;

/// What the workloads of one namespace share, read once for all of them.
struct SharedReads {
    usage: Usage,
    hpas: HashMap<String, Vec<Arc<HpaView>>>,
    time: ReadTime,
}

/// Observes every part, in their order.
pub(super) async fn observe<C: Workloads>(
    cluster: &C,
    forecasts: &Forecasts,
    parts: &[Part],
    time: ReadTime,
) -> Vec<Result<TargetObservation, ClusterError>> {
    let namespaces: BTreeSet<&String> = parts.iter().map(namespace).collect();
    let hpas = namespaces
        .into_iter()
        .map(|namespace| (namespace.clone(), cluster.hpas(namespace)));
    let shared = &SharedReads {
        hpas: hpas.collect(),
        usage: usage_by_namespace(cluster, parts, time.timeout).await,
        time,
    };
    let reads: Vec<_> = parts
        .iter()
        .map(|part| observe_part(cluster, forecasts, part, shared))
        .collect();
    stream::iter(reads)
        // `buffered` keeps the order of the parts.
        .buffered(CONCURRENT_READS)
        .collect()
        .await
}

async fn usage_by_namespace<C: Workloads>(
    cluster: &C,
    parts: &[Part],
    timeout: Option<Duration>,
) -> Usage {
    // The metrics API lists usage by namespace, so one request serves all workloads in it.
    let namespaces: BTreeSet<String> = parts
        .iter()
        .filter(|part| part.workload.metrics.iter().any(reads_usage))
        .map(|part| namespace(part).clone())
        .collect();
    stream::iter(namespaces)
        .map(|namespace| async move {
            let mut usage = within(timeout, cluster.usage(&namespace)).await;
            if let Ok(usage) = &mut usage {
                // Sorted once, so that each workload finds its pods by binary search.
                usage.sort_unstable_by(|one, other| one.pod.cmp(&other.pod));
            }
            (namespace, usage)
        })
        .buffer_unordered(CONCURRENT_READS)
        .collect()
        .await
}

fn namespace(part: &Part) -> &String {
    &part.workload.target.namespace
}

const fn reads_usage(metric: &MetricSpec) -> bool {
    matches!(
        metric,
        MetricSpec::Resource { .. } | MetricSpec::ContainerResource { .. }
    )
}

async fn observe_part<C: Workloads>(
    cluster: &C,
    forecasts: &Forecasts,
    part: &Part,
    shared: &SharedReads,
) -> Result<TargetObservation, ClusterError> {
    let workload = &part.workload;
    let namespace = &workload.target.namespace;
    let scale = cluster.scale(&workload.target).await?;
    // The empty selector would select every pod of the namespace, those of other workloads included.
    let pods = if has_selector(&scale) {
        cluster.pods(namespace, &scale.selector)?
    } else {
        Vec::new()
    };
    let reader = &MetricReader {
        cluster,
        namespace,
        selector: &scale.selector,
        pods: &pods,
        usage: &shared.usage,
    };
    let readings = workload.metrics.iter().map(|metric| async {
        if has_selector(&scale) {
            within(shared.time.timeout, reader.read(metric)).await
        } else {
            Err(no_selector(&workload.target))
        }
    });
    let readings = join_all(readings).await;
    let hpas = shared.hpas.get(namespace).map_or(&[][..], Vec::as_slice);
    let series = ForecastSeries {
        forecasts,
        uid: &part.owner.uid,
        workload,
    };
    Ok(TargetObservation {
        hpas: part.related(hpas),
        forecasts: series.readings(&pods, &scale, shared.time.now),
        observation: Observation {
            scale: scale.scale,
            unseen: Replicas::ZERO,
            pods,
            readings,
        },
        scale,
    })
}

// === impl Part ===

impl Part {
    /// Those of a namespace's HPAs that concern the part.
    pub(super) fn related(&self, hpas: &[Arc<HpaView>]) -> RelatedHpas {
        RelatedHpas::of(
            &self.owner,
            &self.workload.target,
            hpas,
            &self.conflicts.uids,
            self.known_child.as_deref(),
        )
    }
}

/// A reading that does not arrive in time is unavailable.
pub(super) async fn within<T>(
    timeout: Option<Duration>,
    read: impl Future<Output = Result<T, Unavailable>>,
) -> Result<T, Unavailable> {
    let Some(timeout) = timeout else {
        return read.await;
    };
    let late = || Unavailable::new(Cause::NotRead, format!("no answer within {timeout:?}"));
    let read = tokio::time::timeout(timeout, read).await;
    read.unwrap_or_else(|_elapsed| Err(late()))
}

/// Reads a metric that needs no pods: of an object, or from outside the cluster.
pub(super) async fn read_without_pods<C: Workloads>(
    cluster: &C,
    namespace: &str,
    metric: &MetricSpec,
) -> Reading {
    let reader = MetricReader {
        cluster,
        namespace,
        selector: "",
        pods: &[],
        usage: &Usage::new(),
    };
    reader.read(metric).await
}

fn has_selector(scale: &ScaleView) -> bool {
    !scale.selector.trim().is_empty()
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

/// Where one workload's metrics are read from.
struct MetricReader<'a, C> {
    cluster: &'a C,
    namespace: &'a str,
    selector: &'a str,
    pods: &'a [Arc<Pod>],
    usage: &'a Usage,
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
        let not_asked = || Unavailable::new(Cause::NotRead, "pod usage was not read in this sync");
        let of_namespace = self.usage.get(self.namespace).ok_or_else(not_asked)?;
        let of_namespace = of_namespace.as_ref().map_err(Clone::clone)?;
        let own = |pod: &Arc<Pod>| {
            let found = of_namespace.binary_search_by(|usage| (*usage.pod).cmp(&*pod.name));
            found.ok().and_then(|i| of_namespace.get(i).cloned())
        };
        Ok(Measured::Usage(self.pods.iter().filter_map(own).collect()))
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
pub(super) struct ForecastSeries<'a> {
    /// The forecasts in force.
    pub(super) forecasts: &'a Forecasts,
    /// What the series are keyed by: the UID of the autoscaler, or of a member's part of it.
    pub(super) uid: &'a str,
    /// The workload.
    pub(super) workload: &'a Workload,
}

// === impl ForecastSeries ===

impl ForecastSeries<'_> {
    /// What the forecasts say about every metric of the workload; nothing where predictions are off.
    pub(super) fn readings(
        &self,
        pods: &[Arc<Pod>],
        scale: &ScaleView,
        now: Timestamp,
    ) -> Vec<ForecastReading> {
        let Some(prediction) = &self.workload.prediction else {
            return Vec::new();
        };
        let mut seen = HashSet::new();
        let mut read = |metric: &MetricSpec| {
            let key = SeriesKey {
                uid: self.uid.to_owned(),
                metric: metric.identifier(),
            };
            // A series is identified by its metric, so a repeated metric would get the forecast of the first one.
            if !seen.insert(key.metric.clone()) {
                return Err(repeated(&key.metric));
            }
            let target = demand::target(metric, pods, scale.template.as_deref())
                .map_err(|error| no_target(&error))?;
            let (value, grounds) = self.forecasts.peak(&key, now, prediction.window)?;
            Ok((Predicted { value, target }, grounds))
        };
        let metrics = self.workload.metrics.iter();
        let readings = metrics.map(|metric| {
            let (outcome, grounds) = match read(metric) {
                Ok((predicted, grounds)) => (Ok(predicted), Some(grounds)),
                Err(refused) => (Err(refused), None),
            };
            ForecastReading {
                name: metric.identifier(),
                details: grounds,
                outcome,
            }
        });
        readings.collect()
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
