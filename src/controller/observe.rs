//! First step of a sync: everything that the due objects need to see, as data.
//!
//! One list of pod usage per namespace serves all its objects; other metrics are asked one by one,
//! a bounded number at a time. A metric that cannot be read is an `Err` among the readings; only an
//! unreadable scale stops an object. It decides nothing and writes nothing.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::{StreamExt, future::join_all, stream};
use jiff::Timestamp;

use super::{child_hpa::RelatedHpas, conflicts::TargetConflicts};
use crate::{
    api::ownership::OwnerKind,
    domain::{
        Replicas, ScaleTarget,
        demand::{self, NoTarget},
        forecast::{ForecastReading, Predicted, Refused},
        hpa::MetricSpec,
        observation::{Cause, Measured, Observation, Pod, PodUsage, Reading, Unavailable},
        proposal::Reason,
        workload::Workload,
    },
    forecaster::forecasts::{Forecasts, SeriesKey},
    ports::{ClusterError, HpaView, MetricQuery, ScaleView, Workloads},
};

/// How many reads run at once.
const CONCURRENT_READS: usize = 16;

/// An object whose turn it is, with what its spec means.
#[derive(Debug, Clone)]
pub(super) struct Due {
    /// The object as the user wrote it.
    pub(super) ehpa: Arc<EffectiveHorizontalPodAutoscaler>,
    /// The object as it was with the spec that counts: what a child is made of.
    pub(super) valid: Arc<EffectiveHorizontalPodAutoscaler>,
    /// What a child is to it.
    pub(super) kin: OwnerKind,
    /// What that spec means.
    pub(super) workload: Arc<Workload>,
    /// Who else acts on the same target.
    pub(super) rivals: TargetConflicts,
    /// UID of the child autoscaler as it was left, where it is known by no owner.
    pub(super) left: Option<String>,
}

/// What was seen of one object's workload.
#[derive(Debug, Clone)]
pub(super) struct TargetObservation {
    /// The scale, and how to change it safely.
    pub(super) scale: ScaleView,
    /// The autoscalers that share the target.
    pub(super) siblings: RelatedHpas,
    /// Pods and readings.
    pub(super) observation: Observation,
    /// One per metric, when predictions are on.
    pub(super) forecasts: Vec<ForecastReading>,
}

/// A due object and what was seen of it.
pub(super) type Seen = (Due, Result<TargetObservation, ClusterError>);

/// Usage of every pod by namespace, sorted by the pod's name.
type Usage = HashMap<String, Result<Vec<Arc<PodUsage>>, Unavailable>>;

/// What the due objects of one namespace share, read once for all of them.
struct Shared {
    usage: Usage,
    hpas: HashMap<String, Vec<Arc<HpaView>>>,
    patience: Option<Duration>,
}

/// Sees everything that `due` needs; usage, and then every other metric, that takes longer than `patience` is
/// unavailable.
pub(super) async fn gather<C: Workloads>(
    cluster: &C,
    forecasts: &Forecasts,
    due: Vec<Due>,
    (now, patience): (Timestamp, Option<Duration>),
) -> Vec<Seen> {
    let namespaces: BTreeSet<&String> = due.iter().map(namespace).collect();
    let hpas = namespaces
        .into_iter()
        .map(|namespace| (namespace.clone(), cluster.hpas(namespace)));
    let shared = &Shared {
        hpas: hpas.collect(),
        usage: usage_by_namespace(cluster, &due, patience).await,
        patience,
    };
    stream::iter(due)
        .map(|due| async move {
            let sighting = see(cluster, forecasts, &due, shared, now).await;
            (due, sighting)
        })
        .buffered(CONCURRENT_READS)
        .collect()
        .await
}

async fn usage_by_namespace<C: Workloads>(
    cluster: &C,
    due: &[Due],
    patience: Option<Duration>,
) -> Usage {
    let namespaces: BTreeSet<String> = due
        .iter()
        .filter(|due| due.workload.metrics.iter().any(reads_usage))
        .map(|due| namespace(due).clone())
        .collect();
    stream::iter(namespaces)
        .map(|namespace| async move {
            let mut usage = within(patience, cluster.usage(&namespace)).await;
            if let Ok(usage) = &mut usage {
                usage.sort_unstable_by(|one, other| one.pod.cmp(&other.pod));
            }
            (namespace, usage)
        })
        .buffer_unordered(CONCURRENT_READS)
        .collect()
        .await
}

fn namespace(due: &Due) -> &String {
    &due.workload.target.namespace
}

const fn reads_usage(metric: &MetricSpec) -> bool {
    matches!(
        metric,
        MetricSpec::Resource { .. } | MetricSpec::ContainerResource { .. }
    )
}

async fn see<C: Workloads>(
    cluster: &C,
    forecasts: &Forecasts,
    due: &Due,
    shared: &Shared,
    now: Timestamp,
) -> Result<TargetObservation, ClusterError> {
    let workload = &due.workload;
    let namespace = &workload.target.namespace;
    let scale = cluster.scale(&workload.target).await?;
    // The empty selector selects every pod of the namespace: other people's.
    let pods = if has_selector(&scale) {
        cluster.pods(namespace, &scale.selector)?
    } else {
        Vec::new()
    };
    let sight = &Observer {
        cluster,
        namespace,
        selector: &scale.selector,
        pods: &pods,
        usage: &shared.usage,
    };
    let readings = workload.metrics.iter().map(|metric| async {
        if has_selector(&scale) {
            within(shared.patience, sight.read(metric)).await
        } else {
            Err(no_selector(&workload.target))
        }
    });
    let readings = join_all(readings).await;
    let hpas = shared.hpas.get(namespace).map_or(&[][..], Vec::as_slice);
    let uid = due.ehpa.metadata.uid.as_deref().unwrap_or_default();
    Ok(TargetObservation {
        siblings: RelatedHpas::of(
            (&due.ehpa, due.kin),
            &workload.target,
            hpas,
            (&due.rivals.uids, due.left.as_deref()),
        ),
        forecasts: predicted(forecasts, (uid, workload), &pods, &scale, now),
        observation: Observation {
            scale: scale.scale,
            unseen: Replicas::ZERO,
            pods,
            readings,
        },
        scale,
    })
}

/// What comes in time.
pub(super) async fn within<T>(
    patience: Option<Duration>,
    read: impl Future<Output = Result<T, Unavailable>>,
) -> Result<T, Unavailable> {
    let Some(patience) = patience else {
        return read.await;
    };
    let late = || Unavailable::new(Cause::NotRead, format!("no answer within {patience:?}"));
    let read = tokio::time::timeout(patience, read).await;
    read.unwrap_or_else(|_elapsed| Err(late()))
}

/// Asks for a metric that needs no pods: of an object, or from outside the cluster.
pub(super) async fn ask<C: Workloads>(
    cluster: &C,
    namespace: &str,
    metric: &MetricSpec,
) -> Reading {
    let sight = Observer {
        cluster,
        namespace,
        selector: "",
        pods: &[],
        usage: &Usage::new(),
    };
    sight.read(metric).await
}

fn has_selector(scale: &ScaleView) -> bool {
    !scale.selector.trim().is_empty()
}

fn no_selector(target: &ScaleTarget) -> Unavailable {
    Unavailable::new(
        Cause::NoPods,
        format!(
            "the scale of {target} has no status.selector, so its pods cannot be told from others; its \
             kind needs a labelSelectorPath"
        ),
    )
}

/// Where one workload's metrics are read from.
struct Observer<'a, C> {
    cluster: &'a C,
    namespace: &'a str,
    selector: &'a str,
    pods: &'a [Arc<Pod>],
    usage: &'a Usage,
}

// === impl Observer ===

impl<C: Workloads> Observer<'_, C> {
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
        let not_asked =
            || Unavailable::new(Cause::NotRead, "pod usage was not asked for in this pass");
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

/// What the forecasts in force say about every metric of a workload.
pub(super) fn predicted(
    forecasts: &Forecasts,
    (uid, workload): (&str, &Workload),
    pods: &[Arc<Pod>],
    scale: &ScaleView,
    now: Timestamp,
) -> Vec<ForecastReading> {
    let Some(prediction) = &workload.prediction else {
        return Vec::new();
    };
    let mut asked = HashSet::new();
    let mut read = |metric: &MetricSpec| {
        let key = SeriesKey {
            uid: uid.to_owned(),
            metric: metric.identifier(),
        };
        if !asked.insert(key.metric.clone()) {
            return Err(twin(&key.metric));
        }
        let target = demand::target(metric, pods, scale.template.as_deref())
            .map_err(|error| no_target(&error))?;
        let (value, grounds) = forecasts.outlook(&key, now, prediction.window)?;
        Ok((Predicted { value, target }, grounds))
    };
    workload
        .metrics
        .iter()
        .map(|metric| {
            let (outcome, grounds) = match read(metric) {
                Ok((predicted, grounds)) => (Ok(predicted), Some(grounds)),
                Err(refused) => (Err(refused), None),
            };
            ForecastReading {
                name: metric.identifier(),
                grounds,
                outcome,
            }
        })
        .collect()
}

fn twin(metric: &str) -> Refused {
    let message = format!("{metric} stands twice in spec.metrics: only the first one is forecast");
    Refused::new(Reason::NotForecastable, message)
}

fn no_target(error: &NoTarget) -> Refused {
    let reason = match error {
        NoTarget::MissingRequest { .. } => Reason::MissingRequest,
        NoTarget::NotForecastable { .. } => Reason::NotForecastable,
    };
    Refused::new(reason, error.to_string())
}
