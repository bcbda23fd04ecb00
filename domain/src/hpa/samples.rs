//! Conversion of the response of a metrics API for the calculator: samples of pods by group, or one total.
//!
//! A pod whose usage lacks a container or the resource has no sample; the calculator assumes a value for it.
//!
//! Source: upstream `metrics/client.go`.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;

use super::{
    Grouped, MetricKind, MetricSpec, Sample, Settings, Tolerance, group_pods, ratio::narrow,
};
use crate::{
    Replicas, Scale,
    observation::{Cause, Measured, Pod, PodSample, PodUsage, Unavailable},
};

/// Inputs of the computation of a metric, apart from its spec and its reading.
#[derive(Clone, Copy, Debug)]
pub struct MetricContext<'a> {
    /// The scale subresource.
    pub scale: Scale,
    /// Number of replicas that cannot be observed; see [`crate::Observation::unseen`].
    pub unseen: Replicas,
    /// Number of pods that are not listed; see [`crate::Observation::undelivered`].
    pub undelivered: Replicas,
    /// The selected pods.
    pub pods: &'a [Arc<Pod>],
    /// Distance of the ratio from 1 up to which nothing changes.
    pub tolerance: Tolerance,
    /// The controller's flags.
    pub settings: &'a Settings,
    /// The instant of the reconciliation.
    pub now: Timestamp,
}

/// The samples of a metric that is read per pod, by group.
pub(super) fn group<'a>(
    metric: &MetricSpec,
    measured: &'a Measured,
    context: &MetricContext<'a>,
) -> Result<Grouped<'a>, Unavailable> {
    // The checks below are in upstream's order: the first one that fails gives the message.
    let (resource, container) = metric.resource().unwrap_or_default();
    let samples = match (metric.kind(), measured) {
        (MetricKind::Resource | MetricKind::ContainerResource, Measured::Usage(usage)) => {
            if usage.is_empty() {
                return Err(no_samples(metric, "resource"));
            }
            usage
                .iter()
                .filter_map(|pod| Some((&*pod.pod, usage_of(pod, resource, container)?)))
                .collect::<HashMap<_, _>>()
        }
        (MetricKind::Pods, Measured::Samples(samples)) => {
            if samples.is_empty() {
                return Err(no_samples(metric, "custom"));
            }
            samples.iter().map(sample_of).collect()
        }
        _ => return Err(mismatch(metric)),
    };
    if context.pods.is_empty() {
        return Err(no_pods());
    }
    let pods = group_pods(
        context.pods,
        samples,
        resource == "cpu",
        context.settings,
        context.now,
    );
    if pods.ready.is_empty() && pods.unlisted.is_empty() {
        return Err(no_ready_pods());
    }
    Ok(pods)
}

/// The name of a pod and its sample of a custom metric.
fn sample_of(sample: &PodSample) -> (&str, Sample) {
    let &PodSample {
        value, at, window, ..
    } = sample;
    (&sample.pod, Sample { value, at, window })
}

/// The usage of a pod, or of one of its containers; `None` leaves the pod without a sample.
fn usage_of(pod: &PodUsage, resource: &str, container: Option<&str>) -> Option<Sample> {
    let value = match container {
        Some(name) => pod
            .containers
            .iter()
            .find(|c| &*c.name == name)?
            .usage
            .get(resource)?,
        // As upstream: a sum over no containers would be zero, which is a sample.
        None if pod.containers.is_empty() => return None,
        None => {
            let mut usage = pod.containers.iter().map(|c| c.usage.get(resource));
            narrow(usage.try_fold(0_i128, |sum, milli| Some(sum + i128::from(milli?)))?)
        }
    };
    Some(Sample {
        value,
        at: pod.at,
        window: pod.window,
    })
}

/// The sum of an external metric's series, or the one value of an object.
pub(super) fn total(metric: &MetricSpec, measured: &Measured) -> Result<i64, Unavailable> {
    let Measured::Total(values) = measured else {
        return Err(mismatch(metric));
    };
    match (metric.kind(), values.as_slice()) {
        (MetricKind::External, []) => Err(no_samples(metric, "external")),
        (MetricKind::External, all) => Ok(narrow(all.iter().map(|v| i128::from(*v)).sum())),
        (_, [one]) => Ok(*one),
        (_, []) => Err(no_samples(metric, "custom")),
        (_, all) => Err(Unavailable::new(
            Cause::NotRead,
            format!(
                "expected one value for {}, got {}",
                metric.identifier(),
                all.len()
            ),
        )),
    }
}

fn mismatch(metric: &MetricSpec) -> Unavailable {
    let name = metric.identifier();
    Unavailable::new(
        Cause::NotRead,
        format!("the reading of {name} does not match its metric type"),
    )
}

fn no_samples(metric: &MetricSpec, api: &str) -> Unavailable {
    let what = match metric.resource() {
        Some((name, _)) => format!("metrics for resource {name}"),
        None => format!("metric {}", metric.identifier()),
    };
    Unavailable::new(
        Cause::NoSamples,
        format!("unable to get {what}: no metrics returned from {api} metrics API"),
    )
}

pub(super) fn no_pods() -> Unavailable {
    let message = "no pods returned by selector while calculating replica count";
    Unavailable::new(Cause::NoPods, message)
}

pub(super) fn no_ready_pods() -> Unavailable {
    let message = "did not receive metrics for targeted pods (pods might be unready)";
    Unavailable::new(Cause::NoReadyPods, message)
}
