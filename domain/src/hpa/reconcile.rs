//! One reconciliation of an autoscaler: from an observation to a count and the next log.
//!
//! [`reconcile`] decides and writes nothing. The caller writes the scale, and then records the change
//! with [`record_scale`](super::record_scale).
//!
//! Source: upstream `reconcileAutoscaler` and `computeReplicasForMetrics` in `horizontal.go`.

use jiff::Timestamp;

use super::{
    Behavior, ConditionReason, Hpa, Log, MetricContext, MetricKind, MetricProposal, MetricSpec,
    Settings, Step, normalize, propose,
};
use crate::{
    Observation, Replicas,
    observation::{Cause, Unavailable},
};

/// Result of a reconciliation, and the numbers behind it.
///
/// The fields follow the order of the steps; a field is `None` if its step was not reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconciliation {
    /// `spec.replicas` as observed.
    pub current: Replicas,
    /// One entry per metric; empty when metrics were not computed.
    pub proposals: Vec<Result<MetricProposal, Unavailable>>,
    /// The rule that decided.
    pub verdict: Verdict,
    /// The largest proposal. `None` when there is none to be logged.
    pub recommended: Option<Replicas>,
    /// The recommendation after the stabilization windows.
    pub stabilized: Option<Replicas>,
    /// The count to set; equal to `current` when nothing is to be written.
    pub desired: Replicas,
    /// Reason of the `ScalingActive` condition, which is true for `ValidMetricFound` only. `None` when the
    /// metrics were not computed.
    pub scaling_active: Option<ConditionReason>,
    /// Reason of the `AbleToScale` condition; `None` when the metrics give no count.
    pub able_to_scale: Option<ConditionReason>,
    /// Reason of the `ScalingLimited` condition, which is false for `DesiredWithinRange` only; `None` when
    /// the metrics give no count.
    pub scaling_limited: Option<ConditionReason>,
    /// The log with this recommendation in it. The change of scale is not: see
    /// [`record_scale`](super::record_scale).
    pub log: Log,
}

/// Rule that decided the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The workload is at zero replicas and stays there.
    Disabled,
    /// More replicas than `maxReplicas`: lowered to it without reading metrics.
    AboveMax,
    /// Fewer replicas than `minReplicas`: raised to it without reading metrics.
    BelowMin,
    /// All metrics failed, or some did and the others propose fewer replicas: the count is held.
    Unavailable {
        /// Number of metrics that failed.
        failed: usize,
    },
    /// The count is computed from metrics.
    Computed {
        /// Index of the metric with the largest proposal; the first of equals.
        winner: usize,
    },
}

/// One reconciliation of a workload whose scale and pods were observed.
///
/// The returned log has the recommendation in it when `min <= current <= max`, and is otherwise unchanged
/// (but started). Never lowers the count while a metric is unavailable.
///
/// ```
/// use foretide_domain::hpa::{Hpa, Log, MetricSpec, Settings, Target, reconcile};
/// use foretide_domain::observation::{Measured, Observation};
/// use foretide_domain::{ReplicaBounds, Replicas, Scale};
///
/// let metrics = [MetricSpec::External {
///     metric: "queue".into(),
///     selector: None,
///     target: Target::AverageValue(4_000),
/// }];
/// let hpa = Hpa {
///     bounds: ReplicaBounds::new(Replicas::new(1), Replicas::new(10)),
///     metrics: &metrics,
///     behavior: None,
/// };
/// let observation = Observation {
///     scale: Scale { spec: Replicas::new(2), status: Replicas::new(2) },
///     readings: vec![Ok(Measured::Total(vec![12_000]))],
///     ..Observation::default()
/// };
/// let now = "2026-03-01T10:00:00Z".parse()?;
/// let result = reconcile(&hpa, &observation, &Log::default(), &Settings::default(), now);
/// assert_eq!(result.desired, Replicas::new(3));
/// # Ok::<(), jiff::Error>(())
/// ```
pub fn reconcile(
    hpa: &Hpa<'_>,
    observation: &Observation,
    log: &Log,
    settings: &Settings,
    now: Timestamp,
) -> Reconciliation {
    let current = observation.scale.spec;
    let mut result = Reconciliation {
        current,
        proposals: Vec::new(),
        verdict: Verdict::Disabled,
        recommended: None,
        stabilized: None,
        desired: current,
        scaling_active: None,
        able_to_scale: None,
        scaling_limited: None,
        log: log.clone().started(current, now),
    };
    if current == Replicas::ZERO && !hpa.computes_at_zero(settings.zero, log.scaled_to_zero) {
        result.scaling_active = Some(ConditionReason::ScalingDisabled);
    // As upstream: from outside the bounds the count moves to the nearer one, and metrics are not read.
    } else if current > hpa.bounds.max {
        (result.verdict, result.desired) = (Verdict::AboveMax, hpa.bounds.max);
    } else if current != Replicas::ZERO && current < hpa.bounds.min {
        (result.verdict, result.desired) = (Verdict::BelowMin, hpa.bounds.min);
    } else {
        result.compute(hpa, observation, settings, now);
    }
    result
}

impl Reconciliation {
    /// Computes every metric, takes the largest proposal, and normalizes it.
    fn compute(
        &mut self,
        hpa: &Hpa<'_>,
        observation: &Observation,
        settings: &Settings,
        now: Timestamp,
    ) {
        let context = MetricContext {
            scale: observation.scale,
            unseen: observation.unseen,
            undelivered: observation.undelivered,
            pods: &observation.pods,
            tolerance: Behavior::tolerance(hpa.behavior, settings),
            settings,
            now,
        };
        let unread = Err(Unavailable::new(Cause::NotRead, "the metric was not read"));
        let readings = observation
            .readings
            .iter()
            .chain(std::iter::repeat(&unread));
        let metrics = hpa.metrics.iter().zip(readings);
        self.proposals = metrics
            .map(|(metric, reading)| propose(metric, reading, &context))
            .collect();

        let failed = self.proposals.iter().filter(|p| p.is_err()).count();
        let best = self
            .largest()
            // As upstream: while a metric is unavailable, the others may scale up but not down.
            .filter(|(_, best)| failed == 0 || *best >= self.current);
        let Some((winner, recommended)) = best else {
            // As upstream, the condition is that of the first metric that failed.
            self.scaling_active = hpa
                .metrics
                .iter()
                .zip(&self.proposals)
                .find(|(_, proposal)| proposal.is_err())
                .map(|(metric, _)| failure_reason(metric));
            self.verdict = Verdict::Unavailable { failed };
            return;
        };
        self.scaling_active = Some(ConditionReason::ValidMetricFound);
        self.verdict = Verdict::Computed { winner };
        self.recommended = Some(recommended);
        self.normalize(hpa, recommended, settings, now);
    }

    /// The largest proposal and its index, the first of equals.
    fn largest(&self) -> Option<(usize, Replicas)> {
        self.proposals
            .iter()
            .enumerate()
            .filter_map(|(i, proposal)| Some((i, proposal.as_ref().ok()?.replicas)))
            .reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    fn normalize(
        &mut self,
        hpa: &Hpa<'_>,
        recommended: Replicas,
        settings: &Settings,
        now: Timestamp,
    ) {
        let step = Step {
            current: self.current,
            recommended,
        };
        let normalized = normalize(hpa, step, std::mem::take(&mut self.log), settings, now);
        self.able_to_scale = Some(normalized.able);
        self.scaling_limited = Some(normalized.limit);
        self.stabilized = Some(normalized.stabilized);
        self.desired = normalized.desired;
        self.log = normalized.log;
        if self.current == Replicas::ZERO && self.log.scaled_to_zero {
            // Upstream raises a count that leaves zero to the minimum at once, whatever the rate limits allow.
            self.desired = self.desired.max(hpa.bounds.min);
        }
    }
}

/// The reason of `ScalingActive` after a failure of this metric.
fn failure_reason(metric: &MetricSpec) -> ConditionReason {
    match metric.kind() {
        MetricKind::Resource => ConditionReason::FailedGetResourceMetric,
        MetricKind::ContainerResource => ConditionReason::FailedGetContainerResourceMetric,
        MetricKind::Pods => ConditionReason::FailedGetPodsMetric,
        MetricKind::Object => ConditionReason::FailedGetObjectMetric,
        MetricKind::External => ConditionReason::FailedGetExternalMetric,
        MetricKind::Unknown => ConditionReason::InvalidMetricSourceType,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReplicaBounds, Scale, hpa::Target, observation::Measured};

    #[test]
    fn the_first_of_the_metrics_with_the_largest_proposal_wins() {
        let totals = [2000, 5000, 5000];
        let metrics = totals.map(|_| MetricSpec::External {
            metric: "queue".into(),
            selector: None,
            target: Target::AverageValue(1000),
        });
        let hpa = Hpa {
            bounds: ReplicaBounds::new(Replicas::new(1), Replicas::new(100)),
            metrics: &metrics,
            behavior: None,
        };
        let count = Replicas::new(3);
        let observation = Observation {
            scale: Scale {
                spec: count,
                status: count,
            },
            pods: Vec::new(),
            readings: totals
                .map(|total| Ok(Measured::Total(vec![total])))
                .to_vec(),
            ..Observation::default()
        };
        let empty = Log {
            recommendations: Some(Vec::new()),
            ..Log::default()
        };
        let now = Timestamp::constant(1_800_000_000, 0);
        let result = reconcile(&hpa, &observation, &empty, &Settings::default(), now);
        assert_eq!(result.verdict, Verdict::Computed { winner: 1 });
        assert_eq!(result.recommended, Some(Replicas::new(5)));
    }
}
