//! One metric's proposal: the count, and the numbers behind it.
//!
//! Upstream has four formulas, A to D in the table of [`propose`]; the metric's type and target select
//! one. Missing data is assumed to work against the change: a missing pod counts as idle when scaling up
//! and as busy when scaling down.
//!
//! Source: upstream `replica_calculator.go` and `computeReplicasForMetric`.

use super::{
    Grouped, MetricContext, MetricKind, MetricSpec, Ratio, Target, pod_requests,
    ratio::{as_f64, narrow, usage_ratio, utilization_ratio},
    samples::{group, no_pods, no_ready_pods, total},
};
use crate::{
    Reading, Replicas,
    observation::{Cause, Phase, Pod, Status, Unavailable},
};

/// Proposal of one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricProposal {
    /// The count, not yet stabilized or bounded.
    pub replicas: Replicas,
    /// The value as `status.currentMetrics` shows it.
    pub value: MetricValue,
    /// The numbers behind the count.
    pub basis: Basis,
}

/// A metric's current value; fields that its type does not report are absent.
///
/// # Units
/// Percent, or milli-units of the metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricValue {
    /// Percent of the requests.
    pub average_utilization: Option<i32>,
    /// Milli-units per pod.
    pub average_value: Option<i64>,
    /// Milli-units in total.
    pub value: Option<i64>,
}

/// The numbers behind a proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Basis {
    /// Usage over target, from the samples alone.
    pub ratio: f64,
    /// Usage over target with assumed values for missing and unready pods, where any were assumed.
    pub filled_ratio: Option<f64>,
    /// The count that the ratio was multiplied by, or would have been.
    pub base: u32,
    /// Count by `ratio` alone: without a tolerance, and as if missing pods were like the others.
    pub asked: Replicas,
    /// Pods that count.
    pub ready: u32,
    /// Pods that are not ready yet.
    pub unready: u32,
    /// Pods without a sample.
    pub missing: u32,
    /// Pods that are being deleted or have failed.
    pub ignored: u32,
    /// Pods that are not listed, if the count was held because of them.
    pub undelivered: u32,
    /// Reason for which the current count was kept, if it was.
    pub held: Option<Held>,
}

/// Reason for which a metric keeps the current count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The ratio is within the tolerance.
    WithinTolerance,
    /// With assumed values for missing and unready pods the direction changed.
    DirectionFlipped,
    /// The product would go against the direction of the ratio.
    AgainstRatio,
}

/// Proposal of `metric`, given its reading.
///
/// | target | metric | count |
/// |---|---|---|
/// | A `Utilization` | Resource, `ContainerResource` | `ceil(ratio * pods)`, ratio of sums in whole percents |
/// | B `AverageValue` | Resource, `ContainerResource`, Pods | `ceil(ratio * pods)`, ratio of the truncated mean |
/// | C `Value` | Object, External | `ceil(total / target * running and ready pods)` |
/// | D `AverageValue` | Object, External | `ceil(total / target)` |
///
/// A and B first compute the ratio of the ready pods; missing and unready pods then get assumed values
/// that damp it. Within the tolerance all keep the current count: `spec.replicas` (A to C) or
/// `status.replicas` (D). At zero replicas C is `ceil(total / target)`.
///
/// # Errors
///
/// The reading failed or does not match the metric's type; no samples, pods, ready pods
/// or requests; a target this type of metric cannot use; an unknown metric type.
///
/// # Examples
/// ```
/// use foretide_domain::hpa::{MetricContext, MetricSpec, Settings, Target, Tolerance, propose};
/// use foretide_domain::observation::Measured;
/// use foretide_domain::{Replicas, Scale};
///
/// let metric = MetricSpec::External {
///     metric: "queue".into(),
///     selector: None,
///     target: Target::AverageValue(4_000),
/// };
/// let context = MetricContext {
///     scale: Scale { spec: Replicas::new(2), status: Replicas::new(2) },
///     unseen: Replicas::ZERO,
///     undelivered: Replicas::ZERO,
///     pods: &[],
///     tolerance: Tolerance { down: 0.1, up: 0.1 },
///     settings: &Settings::default(),
///     now: jiff::Timestamp::UNIX_EPOCH,
/// };
/// let proposal = propose(&metric, &Ok(Measured::Total(vec![12_000])), &context)?;
/// assert_eq!(proposal.replicas, Replicas::new(3));
/// # Ok::<(), foretide_domain::observation::Unavailable>(())
/// ```
pub fn propose(
    metric: &MetricSpec,
    reading: &Reading,
    context: &MetricContext<'_>,
) -> Result<MetricProposal, Unavailable> {
    if let MetricSpec::Unknown(kind) = metric {
        return Err(Unavailable::new(
            Cause::UnknownType,
            format!("unknown metric source type {kind:?}"),
        ));
    }
    if metric.target() == Target::Unusable {
        return Err(unusable_target(metric));
    }
    let measured = reading.as_ref().map_err(Clone::clone)?;
    let proposal = match (metric.kind(), metric.target()) {
        (MetricKind::Object | MetricKind::External, Target::Value(target)) => {
            by_total(total(metric, measured)?, target, context)?
        }
        (MetricKind::Object | MetricKind::External, Target::AverageValue(target)) => {
            let total = total(metric, measured)?;
            return Ok(by_total_per_pod(total, target, context));
        }
        (MetricKind::Resource | MetricKind::ContainerResource, Target::Utilization(target)) => {
            let grouped = group(metric, measured, context)?;
            by_utilization(metric, &grouped, target, context)?
        }
        (_, Target::AverageValue(target)) => {
            by_average(&group(metric, measured, context)?, target, context)?
        }
        (_, Target::Utilization(_) | Target::Value(_) | Target::Unusable) => {
            return Err(unusable_target(metric));
        }
    };
    Ok(held_by_undelivered(proposal, context))
}

/// Adds the pods that are not listed to a count by listed pods, up to the present count: upstream would take them away.
fn held_by_undelivered(proposal: MetricProposal, context: &MetricContext<'_>) -> MetricProposal {
    let with_all = proposal.replicas.saturating_add(context.undelivered);
    let held = with_all.min(context.scale.spec);
    if held <= proposal.replicas {
        return proposal;
    }
    let basis = Basis {
        undelivered: context.undelivered.get(),
        ..proposal.basis
    };
    MetricProposal {
        replicas: held,
        basis,
        ..proposal
    }
}

fn unusable_target(metric: &MetricSpec) -> Unavailable {
    let (kind, name) = (metric.kind().as_str(), metric.identifier());
    Unavailable::new(
        Cause::UnusableTarget,
        format!("the target of {name} sets no value that a metric of type {kind} can use"),
    )
}

/// Formula A.
fn by_utilization(
    metric: &MetricSpec,
    pods: &Grouped<'_>,
    target: i32,
    context: &MetricContext<'_>,
) -> Result<MetricProposal, Unavailable> {
    let (resource, container) = metric.resource().unwrap_or_default();
    let request = |pod: &&Pod| pod_requests(pod, resource, container, context.settings);
    // Every listed pod must have a request, including those that do not count.
    pods.ignored
        .iter()
        .try_for_each(|pod| request(pod).map(|_| ()))?;
    let missing = pods
        .missing
        .iter()
        .map(request)
        .collect::<Result<Vec<_>, _>>()?;
    let unready = pods
        .unready
        .iter()
        .map(request)
        .collect::<Result<Vec<_>, _>>()?;
    let mut known = pods
        .ready
        .iter()
        .map(|(pod, sample)| Ok((sample.value, request(pod)?)))
        .collect::<Result<Vec<_>, _>>()?;
    let first = utilization_ratio(known.iter().copied(), target).ok_or_else(|| {
        Unavailable::new(Cause::NoReadyPods, "no metrics returned matched known pods")
    })?;

    let (replicas, basis) = settle(pods, first, context, |assumed| {
        // As upstream: 100 % of the request, or the target if that is higher.
        let busy = i128::from(target.max(100));
        match assumed.missing {
            Some(Assumption::Idle) => known.extend(missing.iter().map(|r| (0, *r))),
            Some(Assumption::Busy) => known.extend(
                missing
                    .iter()
                    .map(|r| (narrow(i128::from(*r) * busy / 100), *r)),
            ),
            None => {}
        }
        if assumed.unready_idle {
            known.extend(unready.iter().map(|r| (0, *r)));
        }
        utilization_ratio(known, target)
    });
    let value = MetricValue {
        average_utilization: i32::try_from(first.usage).ok(),
        average_value: Some(first.raw_average),
        value: None,
    };
    Ok(MetricProposal {
        replicas,
        value,
        basis,
    })
}

/// Formula B.
fn by_average(
    pods: &Grouped<'_>,
    target: i64,
    context: &MetricContext<'_>,
) -> Result<MetricProposal, Unavailable> {
    let ready = pods.ready.iter().map(|(_, sample)| sample.value);
    let known = ready.chain(pods.unlisted.iter().map(|sample| sample.value));
    let first = usage_ratio(known.clone(), target).ok_or_else(no_ready_pods)?;
    let (replicas, basis) = settle(pods, first, context, |assumed| {
        let value = if assumed.missing == Some(Assumption::Busy) {
            target
        } else {
            0
        };
        let missing = assumed.missing.map_or(0, |_| pods.missing.len());
        let unready = if assumed.unready_idle {
            pods.unready.len()
        } else {
            0
        };
        let filled = std::iter::repeat_n(value, missing).chain(std::iter::repeat_n(0, unready));
        usage_ratio(known.chain(filled), target)
    });
    let value = MetricValue {
        average_value: Some(first.usage),
        ..MetricValue::default()
    };
    Ok(MetricProposal {
        replicas,
        value,
        basis,
    })
}

/// Assumptions about pods whose samples cannot be used.
#[derive(Clone, Copy)]
struct Assumed {
    missing: Option<Assumption>,
    unready_idle: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Assumption {
    Idle,
    Busy,
}

/// The common part of A and B: from the first ratio to a count. Replicas that cannot be observed are taken to be needed
/// and added to the count. `refill` gives the ratio with the assumed values.
fn settle(
    pods: &Grouped<'_>,
    first: Ratio,
    context: &MetricContext<'_>,
    refill: impl FnOnce(Assumed) -> Option<Ratio>,
) -> (Replicas, Basis) {
    let (replicas, basis) = settle_observed(pods, first, context, refill);
    let basis = Basis {
        asked: basis.asked.saturating_add(context.unseen),
        ..basis
    };
    (replicas.saturating_add(context.unseen), basis)
}

fn settle_observed(
    pods: &Grouped<'_>,
    first: Ratio,
    context: &MetricContext<'_>,
    refill: impl FnOnce(Assumed) -> Option<Ratio>,
) -> (Replicas, Basis) {
    // The ratio is of the pods that were observed, so it applies to their part of the count.
    let current = context.scale.spec.saturating_sub(context.unseen);
    let r1 = first.ratio;
    let mut basis = counts(pods, r1);
    // As upstream: unready pods damp a scale-up, and do not count for a scale-down.
    let unready_idle = !pods.unready.is_empty() && r1 > 1.0;
    if !unready_idle && pods.missing.is_empty() {
        basis.held = context
            .tolerance
            .covers(r1)
            .then_some(Held::WithinTolerance);
        let replicas = basis.held.map_or(basis.asked, |_| current);
        return (replicas, basis);
    }
    let missing = match r1 {
        _ if pods.missing.is_empty() => None,
        // Each assumption works against the direction of the ratio, so that a missing sample never causes a change.
        r if r < 1.0 => Some(Assumption::Busy),
        r if r > 1.0 => Some(Assumption::Idle),
        _ => None,
    };
    let r2 = refill(Assumed {
        missing,
        unready_idle,
    })
    .map_or(r1, |filled| filled.ratio);
    let filled = missing.map_or(0, |_| pods.missing.len())
        + if unready_idle { pods.unready.len() } else { 0 };
    // As upstream, whose number of samples includes pods that were not listed, also for A.
    let base = count(pods.ready.len() + pods.unlisted.len() + filled);
    let replicas = Replicas::from_f64_ceil(r2 * f64::from(base));
    let held = if context.tolerance.covers(r2) {
        Some(Held::WithinTolerance)
    } else if (r1 < 1.0 && r2 > 1.0) || (r1 > 1.0 && r2 < 1.0) {
        Some(Held::DirectionFlipped)
    } else if (r2 < 1.0 && replicas > current) || (r2 > 1.0 && replicas < current) {
        Some(Held::AgainstRatio)
    } else {
        None
    };
    let basis = Basis {
        filled_ratio: Some(r2),
        base,
        // Only some of the pods are ready; the others are taken to be like them.
        asked: Replicas::from_f64_ceil(r1 * current.as_f64()),
        held,
        ..basis
    };
    (held.map_or(replicas, |_| current), basis)
}

fn counts(pods: &Grouped<'_>, ratio: f64) -> Basis {
    let ready = count(pods.ready.len());
    Basis {
        ratio,
        filled_ratio: None,
        base: ready,
        asked: Replicas::from_f64_ceil(ratio * f64::from(ready)),
        ready,
        unready: count(pods.unready.len()),
        missing: count(pods.missing.len()),
        ignored: count(pods.ignored.len()),
        undelivered: 0,
        held: None,
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Returns true if formula C counts a pod: it runs and is ready, even if it is being deleted.
fn is_ready(pod: &Pod) -> bool {
    pod.phase == Phase::Running && pod.ready.is_some_and(|r| r.status == Status::True)
}

/// Formula C.
fn by_total(
    total: i64,
    target: i64,
    context: &MetricContext<'_>,
) -> Result<MetricProposal, Unavailable> {
    let ratio = as_f64(total) / as_f64(target);
    let current = context.scale.spec;
    let mut basis = Basis {
        ratio,
        base: 1,
        ..Basis::default()
    };
    let replicas = if current == Replicas::ZERO {
        basis.asked = Replicas::from_f64_ceil(ratio);
        basis.asked
    } else if context.tolerance.covers(ratio) {
        basis = Basis {
            base: current.get(),
            asked: Replicas::from_f64_ceil(ratio * current.as_f64()),
            held: Some(Held::WithinTolerance),
            ..basis
        };
        current
    } else if context.pods.is_empty() {
        return Err(no_pods());
    } else {
        let ready = count(context.pods.iter().filter(|pod| is_ready(pod)).count());
        // The total is of the whole fleet, so replicas that cannot be observed carry their part of it.
        let serving = ready.saturating_add(context.unseen.get());
        basis = Basis {
            base: ready,
            asked: Replicas::from_f64_ceil(ratio * f64::from(serving)),
            ready,
            ..basis
        };
        basis.asked
    };
    let value = MetricValue {
        value: Some(total),
        ..MetricValue::default()
    };
    Ok(MetricProposal {
        replicas,
        value,
        basis,
    })
}

/// Formula D, which compares and keeps `status.replicas`, as upstream.
fn by_total_per_pod(total: i64, target: i64, context: &MetricContext<'_>) -> MetricProposal {
    let running = context.scale.status;
    let ratio = as_f64(total) / (as_f64(target) * running.as_f64());
    // At zero replicas the ratio is infinite or NaN, which no tolerance covers.
    let within = context.tolerance.covers(ratio);
    let asked = Replicas::from_f64_ceil(as_f64(total) / as_f64(target));
    let replicas = if within { running } else { asked };
    let average_value = match (running, total) {
        (Replicas::ZERO, _) => None,
        (_, i64::MAX) => Some(i64::MAX),
        _ => Some(ceil_i64(as_f64(total) / running.as_f64())),
    };
    MetricProposal {
        replicas,
        value: MetricValue {
            average_value,
            ..MetricValue::default()
        },
        basis: Basis {
            ratio,
            base: running.get(),
            asked,
            held: within.then_some(Held::WithinTolerance),
            ..Basis::default()
        },
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, as intended"
)]
fn ceil_i64(x: f64) -> i64 {
    x.ceil() as i64
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{
        Scale,
        hpa::{Settings, Tolerance},
        observation::Measured,
    };

    fn external(target: Target) -> MetricSpec {
        MetricSpec::External {
            metric: "queue".into(),
            selector: None,
            target,
        }
    }

    fn proposal(
        metric: &MetricSpec,
        reading: &Reading,
        count: u32,
    ) -> Result<MetricProposal, Cause> {
        let settings = Settings::default();
        propose(metric, reading, &context(&settings, count)).map_err(|e| e.reason)
    }

    /// A workload of this many pods, none of which is listed.
    fn context(settings: &Settings, count: u32) -> MetricContext<'_> {
        let count = Replicas::new(count);
        MetricContext {
            scale: Scale {
                spec: count,
                status: count,
            },
            unseen: Replicas::ZERO,
            undelivered: Replicas::ZERO,
            pods: &[],
            tolerance: Tolerance { down: 0.1, up: 0.1 },
            settings,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn pods_that_are_not_listed_hold_a_count_and_raise_none() {
        let held = |undelivered, replicas| {
            let proposal = MetricProposal {
                replicas: Replicas::new(replicas),
                value: MetricValue::default(),
                basis: Basis::default(),
            };
            let settings = Settings::default();
            let context = MetricContext {
                undelivered: Replicas::new(undelivered),
                ..context(&settings, 6)
            };
            let proposal = held_by_undelivered(proposal, &context);
            (proposal.replicas.get(), proposal.basis.undelivered)
        };
        assert_eq!(held(0, 2), (2, 0));
        assert_eq!(held(3, 2), (5, 3));
        assert_eq!(held(3, 4), (6, 3), "not beyond the present count");
        assert_eq!(held(3, 6), (6, 0));
        assert_eq!(held(3, 8), (8, 0));
    }

    #[test]
    fn a_total_needs_pods_only_to_multiply_with_them() {
        let total = |milli| Ok(Measured::Total(vec![milli]));
        let count = |metric: &MetricSpec, milli, count| {
            proposal(metric, &total(milli), count).map(|p| (p.replicas.get(), p.value))
        };
        let value = |milli| MetricValue {
            value: Some(milli),
            ..MetricValue::default()
        };
        let average = |average_value| MetricValue {
            average_value,
            ..MetricValue::default()
        };
        let per_pod = external(Target::AverageValue(1000));
        let whole = external(Target::Value(1000));
        let most = Ok((i32::MAX.unsigned_abs(), average(Some(i64::MAX))));
        for (metric, milli, current, want) in [
            (&per_pod, 2500, 0, Ok((3, average(None)))),
            (&per_pod, 2500, 1, Ok((3, average(Some(2500))))),
            (&per_pod, 2050, 2, Ok((2, average(Some(1025))))),
            (&per_pod, i64::MAX, 2, most),
            (&per_pod, -5000, 2, Ok((0, average(Some(-2500))))),
            (&whole, 1050, 0, Ok((2, value(1050)))),
            (&whole, 1050, 7, Ok((7, value(1050)))),
            (&whole, 1200, 7, Err(Cause::NoPods)),
        ] {
            assert_eq!(
                count(metric, milli, current),
                want,
                "{metric:?} {milli} at {current}"
            );
        }
    }

    #[test]
    fn a_metric_that_cannot_be_computed_names_the_cause() {
        let target = Target::AverageValue(1000);
        let object = |target| MetricSpec::Object {
            described: super::super::ObjectRef {
                api_version: "v1".into(),
                kind: "Service".into(),
                name: "web".into(),
            },
            metric: "qps".into(),
            selector: None,
            target,
        };
        let cpu = MetricSpec::Resource {
            name: "cpu".into(),
            target,
        };
        let total = |values: &[i64]| Ok(Measured::Total(values.to_vec()));
        let failed = Err(Unavailable::new(Cause::NotRead, "503"));
        let unknown = MetricSpec::Unknown("Sun".into());
        let unusable = [Target::Unusable, Target::Utilization(5)].map(external);
        let unused = Ok(Measured::Usage(Vec::new()));
        let unsampled = Ok(Measured::Samples(Vec::new()));
        for (metric, reading, want) in [
            (unknown, total(&[1]), Cause::UnknownType),
            (unusable[0].clone(), total(&[1]), Cause::UnusableTarget),
            (unusable[1].clone(), total(&[1]), Cause::UnusableTarget),
            (cpu.clone(), total(&[1]), Cause::NotRead),
            (cpu.clone(), unused, Cause::NoSamples),
            (external(target), total(&[]), Cause::NoSamples),
            (object(target), total(&[]), Cause::NoSamples),
            (object(target), total(&[1, 2]), Cause::NotRead),
            (external(target), unsampled, Cause::NotRead),
            (external(target), failed, Cause::NotRead),
        ] {
            assert_eq!(
                proposal(&metric, &reading, 3),
                Err(want),
                "{metric:?} {reading:?}"
            );
        }
    }
}
