//! One pass of the autoscaler: from what was read to a count, conditions and the next log.
//!
//! The pass decides and reports; it writes nothing. Whoever writes the scale tells the pass how that
//! went ([`Pass::applied`]), because conditions and the event log depend on it.
//!
//! Source: upstream `reconcileAutoscaler` and `computeReplicasForMetrics` in `horizontal.go`.

use std::sync::Arc;

use jiff::Timestamp;

use super::{
    Behavior, ConditionKind, ConditionReason, Conditions, Hpa, Log, MetricKind, MetricProposal,
    MetricSpec, SelectorProblem, Settings, Step, View, ZeroRule, normalise, propose, record_scale,
};
use crate::domain::{
    Observation, Reading, Replicas, Scale,
    observation::{Cause, Pod, Status, Unavailable},
};

/// How often a conflicting write of the scale is tried before it counts as failed.
pub const SCALE_UPDATE_ATTEMPTS: u32 = 5;

/// Everything a pass reads, failures included.
#[derive(Clone, Copy, Debug)]
pub struct Reads<'a> {
    /// The scale subresource, or whose fault it is that there is none.
    pub scale: Result<Scale, ErrorKind>,
    /// How many of its counts are where nothing can be seen; see [`Observation::unseen`].
    pub unseen: Replicas,
    /// Whether the scale's selector tells pods apart.
    pub selector: Result<(), SelectorProblem>,
    /// The selected pods.
    pub pods: &'a [Arc<Pod>],
    /// One reading per metric; a missing one counts as unavailable.
    pub readings: &'a [Reading],
    /// The conditions as they stand in status.
    pub conditions: &'a Conditions,
}

/// What a pass decided and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// `spec.replicas` as read; zero when it could not be read.
    pub current: Replicas,
    /// One entry per metric; empty when metrics were not computed.
    pub proposals: Vec<Result<MetricProposal, Unavailable>>,
    /// Which way the pass went.
    pub verdict: Verdict,
    /// The reading: what the metrics ask for together. `None` when there is none to be logged.
    pub recommended: Option<Replicas>,
    /// The reading after the stabilization windows.
    pub stabilized: Option<Replicas>,
    /// The count to set; equal to `current` when nothing is to be done.
    pub desired: Replicas,
    /// The conditions after the pass, in order.
    pub conditions: Conditions,
    /// The log after the pass: the reading is in it, the change of scale is not yet.
    pub log: Log,
    /// How writing the count went; `None` when nothing was written.
    pub applied: Option<Applied>,
}

/// Which way a pass went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The scale could not be read.
    NoScale(ErrorKind),
    /// At zero replicas, and to stay there.
    Disabled,
    /// More replicas than `maxReplicas`: set to it without reading metrics.
    AboveMax,
    /// Fewer replicas than `minReplicas`: set to it without reading metrics.
    BelowMin,
    /// The selector does not tell the pods apart.
    Selector(SelectorProblem),
    /// All metrics failed, or some did and the others ask for fewer replicas: the count is held.
    Unavailable {
        /// How many metrics failed.
        failed: usize,
    },
    /// Computed from metrics.
    Computed {
        /// Index of the metric that asked for the most; the first of equals.
        winner: usize,
    },
}

/// How writing the scale went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was written, possibly after conflicts.
    Written,
    /// It was not.
    Failed,
}

/// Whose fault an error is, as the controller's own metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The user's: the spec cannot work.
    Spec,
    /// Anybody else's.
    Internal,
}

/// Which way a count moves, as the controller's own metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleAction {
    /// More replicas.
    Up,
    /// Fewer replicas.
    Down,
    /// As many.
    None,
}

/// What a pass leaves in the autoscaler's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HpaStatus {
    /// `currentReplicas`: before the change.
    pub current: Replicas,
    /// `desiredReplicas`.
    pub desired: Replicas,
    /// `conditions`, in order.
    pub conditions: Conditions,
}

impl ErrorKind {
    /// The word used as a label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Internal => "internal",
        }
    }

    /// Whose fault it is that a metric gave no count.
    #[must_use]
    pub const fn of_metric(cause: Cause) -> Self {
        match cause {
            Cause::UnknownType => Self::Spec,
            _ => Self::Internal,
        }
    }
}

impl ScaleAction {
    /// The action that leads from one count to another.
    #[must_use]
    pub fn between(from: Replicas, to: Replicas) -> Self {
        match to.cmp(&from) {
            std::cmp::Ordering::Greater => Self::Up,
            std::cmp::Ordering::Less => Self::Down,
            std::cmp::Ordering::Equal => Self::None,
        }
    }

    /// The word used as a label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "scale_up",
            Self::Down => "scale_down",
            Self::None => "none",
        }
    }
}

/// One pass over a workload whose scale and pods were read.
///
/// The log it returns has the reading in it when `min <= current <= max`, and is otherwise unchanged
/// (but started). Never lowers the count while a metric is unavailable.
#[must_use]
pub fn reconcile(
    hpa: &Hpa<'_>,
    observation: &Observation,
    log: &Log,
    settings: &Settings,
    now: Timestamp,
) -> Pass {
    let reads = Reads {
        scale: Ok(observation.scale),
        unseen: observation.unseen,
        selector: Ok(()),
        pods: &observation.pods,
        readings: &observation.readings,
        conditions: &Conditions::default(),
    };
    reconcile_reads(hpa, &reads, log, settings, now)
}

/// One pass over whatever could be read; see [`reconcile`].
///
/// A `ScaledToZero` condition in status counts like the log's own memory of it, so it survives a restart.
#[must_use]
pub fn reconcile_reads(
    hpa: &Hpa<'_>,
    reads: &Reads<'_>,
    log: &Log,
    settings: &Settings,
    now: Timestamp,
) -> Pass {
    let mut pass = Pass::begin(reads, log);
    let scale = match reads.scale {
        Ok(scale) => scale,
        Err(fault) => {
            pass.set(
                ConditionKind::AbleToScale,
                Status::False,
                ConditionReason::FailedGetScale,
            );
            pass.verdict = Verdict::NoScale(fault);
            return pass;
        }
    };
    pass.set(
        ConditionKind::AbleToScale,
        Status::True,
        ConditionReason::SucceededGetScale,
    );
    pass.log = pass.log.started(scale.spec, now);
    (pass.current, pass.desired) = (scale.spec, scale.spec);
    let scaled_to_zero = pass.log.scaled_to_zero;
    if scale.spec == Replicas::ZERO && !settings.zero.computes_at_zero(hpa, scaled_to_zero) {
        pass.disable(settings.zero);
    } else if scale.spec > hpa.bounds.max {
        (pass.verdict, pass.desired) = (Verdict::AboveMax, hpa.bounds.max);
    } else if scale.spec != Replicas::ZERO && scale.spec < hpa.bounds.min {
        (pass.verdict, pass.desired) = (Verdict::BelowMin, hpa.bounds.min);
    } else if let Err(problem) = reads.selector {
        pass.set(
            ConditionKind::ScalingActive,
            Status::False,
            problem.reason(),
        );
        pass.verdict = Verdict::Selector(problem);
    } else {
        pass.compute(hpa, reads, settings, now);
    }
    pass
}

impl Pass {
    fn begin(reads: &Reads<'_>, log: &Log) -> Self {
        let conditions = reads.conditions.clone();
        let mut log = log.clone();
        log.scaled_to_zero |= conditions
            .get(ConditionKind::ScaledToZero)
            .is_some_and(|condition| condition.status == Status::True);
        Self {
            current: Replicas::ZERO,
            proposals: Vec::new(),
            verdict: Verdict::Disabled,
            recommended: None,
            stabilized: None,
            desired: Replicas::ZERO,
            conditions,
            log,
            applied: None,
        }
    }

    fn set(&mut self, kind: ConditionKind, status: Status, reason: ConditionReason) {
        self.conditions.set(kind, status, reason);
    }

    fn disable(&mut self, rule: ZeroRule) {
        self.set(
            ConditionKind::ScalingActive,
            Status::False,
            ConditionReason::ScalingDisabled,
        );
        if rule != ZeroRule::WhenScaledToZero {
            self.conditions.remove(ConditionKind::ScaledToZero);
        }
    }

    /// Asks every metric, takes the most, and normalises it.
    fn compute(&mut self, hpa: &Hpa<'_>, reads: &Reads<'_>, settings: &Settings, now: Timestamp) {
        let Ok(scale) = reads.scale else { return };
        let tolerance = Behavior::tolerance(hpa.behavior, settings);
        let view = View {
            scale,
            unseen: reads.unseen,
            pods: reads.pods,
            tolerance,
            settings,
            now,
        };
        let unread = Err(Unavailable::new(Cause::NotRead, "the metric was not read"));
        let readings = reads.readings.iter().chain(std::iter::repeat(&unread));
        let asked = hpa.metrics.iter().zip(readings);
        self.proposals = asked
            .map(|(metric, reading)| propose(metric, reading, &view))
            .collect();

        let failed = self.proposals.iter().filter(|p| p.is_err()).count();
        let best = self
            .best()
            .filter(|(_, best)| failed == 0 || *best >= self.current);
        let Some((winner, best)) = best else {
            let metrics = hpa.metrics.iter().zip(&self.proposals);
            let first = metrics
                .filter(|(_, p)| p.is_err())
                .map(|(m, _)| failure_reason(m))
                .next();
            if let Some(reason) = first {
                self.set(ConditionKind::ScalingActive, Status::False, reason);
            }
            self.verdict = Verdict::Unavailable { failed };
            return;
        };
        self.set(
            ConditionKind::ScalingActive,
            Status::True,
            ConditionReason::ValidMetricFound,
        );
        self.verdict = Verdict::Computed { winner };
        self.recommended = Some(best);
        self.normalise(hpa, best, settings, now);
    }

    /// The first of the metrics that ask for the most.
    fn best(&self) -> Option<(usize, Replicas)> {
        let counts = self.proposals.iter().enumerate();
        let counts = counts.filter_map(|(i, p)| p.as_ref().ok().map(|p| (i, p.replicas)));
        counts.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    fn normalise(&mut self, hpa: &Hpa<'_>, best: Replicas, settings: &Settings, now: Timestamp) {
        let step = Step {
            current: self.current,
            recommended: best,
        };
        let normal = normalise(hpa, step, std::mem::take(&mut self.log), settings, now);
        let limited = if normal.limited() {
            Status::True
        } else {
            Status::False
        };
        self.set(ConditionKind::AbleToScale, Status::True, normal.able);
        self.set(ConditionKind::ScalingLimited, limited, normal.limit);
        self.stabilized = Some(normal.stabilized);
        self.desired = normal.desired;
        self.log = normal.log;
        if self.current == Replicas::ZERO && self.log.scaled_to_zero {
            // Leaving zero ends at the minimum at once, whatever the limits left of it.
            self.desired = self.desired.max(hpa.bounds.min);
        }
    }

    /// Whether the scale is to be written.
    #[must_use]
    pub fn rescales(&self) -> bool {
        self.desired != self.current
    }

    /// The pass after the scale was written, or after that failed. Without a change to write it stays
    /// as it is.
    #[must_use]
    pub fn applied(
        mut self,
        hpa: &Hpa<'_>,
        settings: &Settings,
        outcome: Applied,
        now: Timestamp,
    ) -> Self {
        if !self.rescales() {
            return self;
        }
        self.applied = Some(outcome);
        if outcome == Applied::Failed {
            self.set(
                ConditionKind::AbleToScale,
                Status::False,
                ConditionReason::FailedUpdateScale,
            );
            return self;
        }
        self.set(
            ConditionKind::AbleToScale,
            Status::True,
            ConditionReason::SucceededRescale,
        );
        let log = std::mem::take(&mut self.log);
        self.log = record_scale(log, hpa.behavior, self.current, self.desired, now);
        self.log.scaled_to_zero &= hpa.bounds.min == Replicas::ZERO && hpa.reads_beyond_pods();
        let kind = ConditionKind::ScaledToZero;
        match (settings.zero, self.log.scaled_to_zero) {
            (ZeroRule::WhenScaledToZero, true) => {
                self.set(kind, Status::True, ConditionReason::ScaledToZero);
            }
            (ZeroRule::WhenScaledToZero, false) => {
                self.set(kind, Status::False, ConditionReason::NotScaledToZero);
            }
            _ => self.conditions.remove(kind),
        }
        self
    }

    /// What the pass leaves in status. The desired count stays as it was when none was reached.
    #[must_use]
    pub fn status(&self, previous: &HpaStatus) -> HpaStatus {
        let unknown = matches!(self.verdict, Verdict::NoScale(_));
        let undecided = matches!(
            self.verdict,
            Verdict::Selector(_) | Verdict::Unavailable { .. }
        );
        let unwritten = self.applied == Some(Applied::Failed);
        HpaStatus {
            current: if unknown {
                previous.current
            } else {
                self.current
            },
            desired: if unknown || undecided || unwritten {
                previous.desired
            } else {
                self.desired
            },
            conditions: self.conditions.clone(),
        }
    }

    /// What was done to the scale.
    #[must_use]
    pub fn action(&self) -> ScaleAction {
        match self.applied {
            Some(Applied::Written) => ScaleAction::between(self.current, self.desired),
            _ => ScaleAction::None,
        }
    }

    /// Whose fault it is that the pass did not go through as a whole; `None` when it did. A failed
    /// metric counts even when the others were enough.
    #[must_use]
    pub fn error(&self) -> Option<ErrorKind> {
        match self.verdict {
            Verdict::NoScale(fault) => Some(fault),
            Verdict::Selector(_) | Verdict::Unavailable { .. } => Some(ErrorKind::Internal),
            _ if self.applied == Some(Applied::Failed) => Some(ErrorKind::Internal),
            _ if self.proposals.iter().any(Result::is_err) => Some(ErrorKind::Internal),
            _ => None,
        }
    }
}

/// The reason `ScalingActive` gives when a metric is to blame.
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
    use crate::domain::{
        ReplicaBounds,
        hpa::{Condition, Target},
        observation::Measured,
    };

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn queue(per_pod: i64) -> MetricSpec {
        let target = Target::AverageValue(per_pod);
        MetricSpec::External {
            metric: "queue".into(),
            selector: None,
            target,
        }
    }

    /// A pass over queues of one target and their totals.
    fn pass(min: u32, count: u32, totals: &[i64], log: &Log) -> (Pass, Pass) {
        let metrics: Vec<_> = totals.iter().map(|_| queue(1000)).collect();
        let bounds = ReplicaBounds::new(Replicas::new(min), Replicas::new(100));
        let hpa = Hpa {
            bounds,
            metrics: &metrics,
            behavior: None,
        };
        let count = Replicas::new(count);
        let readings = totals.iter().map(|total| Ok(Measured::Total(vec![*total])));
        let observation = Observation {
            scale: Scale {
                spec: count,
                status: count,
            },
            unseen: Replicas::ZERO,
            pods: Vec::new(),
            readings: readings.collect(),
        };
        let settings = Settings::default();
        let pass = reconcile(&hpa, &observation, log, &settings, NOW);
        (
            pass.clone(),
            pass.applied(&hpa, &settings, Applied::Written, NOW),
        )
    }

    #[test]
    fn the_first_of_the_metrics_that_ask_for_the_most_wins() {
        let empty = Log {
            recommendations: Some(Vec::new()),
            ..Log::default()
        };
        let (pass, _) = pass(1, 3, &[2000, 5000, 5000], &empty);
        assert_eq!(pass.verdict, Verdict::Computed { winner: 1 });
        assert_eq!(pass.recommended, Some(Replicas::new(5)));
    }

    #[test]
    fn scaling_to_zero_is_remembered_and_left_at_the_minimum() {
        let empty = Log {
            recommendations: Some(Vec::new()),
            ..Log::default()
        };
        let zero = |pass: &Pass| {
            let condition = pass.conditions.get(ConditionKind::ScaledToZero);
            condition.map(|Condition { status, reason, .. }| (status, reason))
        };
        let (_, down) = pass(0, 3, &[0], &empty);
        let marked = (Status::True, ConditionReason::ScaledToZero);
        assert_eq!((down.desired, zero(&down)), (Replicas::ZERO, Some(marked)));
        assert!(down.log.scaled_to_zero);
        // The user raises the minimum meanwhile, above what a first step without behavior may reach.
        let (_, up) = pass(6, 0, &[1000], &down.log);
        let unmarked = (Status::False, ConditionReason::NotScaledToZero);
        assert_eq!((up.desired, zero(&up)), (Replicas::new(6), Some(unmarked)));
        assert!(!up.log.scaled_to_zero);
        let (_, high) = pass(6, 0, &[50_000], &down.log);
        assert_eq!(
            high.desired,
            Replicas::new(6),
            "the doubling limit alone would stop at 4"
        );
    }

    #[test]
    fn zero_that_no_metric_can_leave_is_not_marked() {
        let cpu = MetricSpec::Resource {
            name: "cpu".into(),
            target: Target::AverageValue(1),
        };
        let bounds = ReplicaBounds::new(Replicas::ZERO, Replicas::ZERO);
        let hpa = Hpa {
            bounds,
            metrics: &[cpu],
            behavior: None,
        };
        let count = Replicas::new(2);
        let scale = Scale {
            spec: count,
            status: count,
        };
        let observation = Observation {
            scale,
            unseen: Replicas::ZERO,
            pods: Vec::new(),
            readings: Vec::new(),
        };
        let settings = Settings::default();
        let pass = reconcile(&hpa, &observation, &Log::default(), &settings, NOW);
        let pass = pass.applied(&hpa, &settings, Applied::Written, NOW);
        assert_eq!(
            (pass.desired, pass.log.scaled_to_zero),
            (Replicas::ZERO, false)
        );
    }
}
