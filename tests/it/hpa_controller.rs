//! The rest of the upstream HPA controller, around the algorithm of the domain: reads that fail, conditions, the write
//! of the scale and the status.
//!
//! The vectors record what the whole controller does. The product needs only the algorithm, so the rest is emulated
//! here.
//!
//! Source: upstream `reconcileAutoscaler` and `setStatus` in `horizontal.go`.

use std::{cmp::Ordering, sync::Arc};

use foretide_domain::{
    Observation, Reading, Replicas, Scale,
    hpa::{
        ConditionReason, Hpa, Log, MetricProposal, Reconciliation, Settings, Verdict, ZeroRule,
        reconcile, record_scale,
    },
    observation::{Cause, Pod, Status, Unavailable},
};
use jiff::Timestamp;

/// How often a conflicting write of the scale is tried before it counts as failed.
pub(crate) const SCALE_UPDATE_ATTEMPTS: u32 = 5;

pub(crate) const ABLE_TO_SCALE: &str = "AbleToScale";
pub(crate) const SCALING_ACTIVE: &str = "ScalingActive";
pub(crate) const SCALING_LIMITED: &str = "ScalingLimited";
pub(crate) const SCALED_TO_ZERO: &str = "ScaledToZero";
const KINDS: [&str; 4] = [
    SCALING_ACTIVE,
    ABLE_TO_SCALE,
    SCALING_LIMITED,
    SCALED_TO_ZERO,
];
/// The reasons that only reads and writes give; the algorithm's own are [`ConditionReason::ALL`].
const READ_AND_WRITE_REASONS: [&str; 6] = [
    "SucceededGetScale",
    "FailedGetScale",
    "SucceededRescale",
    "FailedUpdateScale",
    "ScaledToZero",
    "NotScaledToZero",
];

/// One condition of an autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) status: Status,
    pub(crate) reason: &'static str,
}

/// An ordered list of conditions, at most one per type. Setting one that exists changes it in place: the order is part
/// of what the vectors record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions(pub(crate) Vec<Condition>);

/// Why a selector does not select the pods of one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectorProblem {
    Missing,
    Unparsable,
    /// Another autoscaler's target selects one of the same pods.
    Ambiguous,
}

impl SelectorProblem {
    const fn reason(self) -> ConditionReason {
        match self {
            Self::Missing | Self::Unparsable => ConditionReason::InvalidSelector,
            Self::Ambiguous => ConditionReason::AmbiguousSelector,
        }
    }
}

/// Everything the controller reads, failures included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads<'a> {
    pub(crate) scale: Result<Scale, ErrorKind>,
    pub(crate) selector: Result<(), SelectorProblem>,
    pub(crate) pods: &'a [Arc<Pod>],
    pub(crate) readings: &'a [Reading],
    /// The conditions in status. `ScaledToZero` counts like the log's own flag, so it survives a restart.
    pub(crate) conditions: &'a Conditions,
}

/// How writing the scale went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Written,
    Failed,
}

/// The origin of an error, as the controller's metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    Spec,
    Internal,
}

/// The direction of a change, as the controller's metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleAction {
    Up,
    Down,
    None,
}

/// What a reconciliation leaves in the autoscaler's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HpaStatus {
    pub(crate) current: Replicas,
    pub(crate) desired: Replicas,
    pub(crate) conditions: Conditions,
}

/// One reconciliation by the whole controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerPass {
    /// The algorithm's part; `None` when the scale or the selector could not be used.
    pub(crate) computed: Option<Reconciliation>,
    pub(crate) current: Replicas,
    pub(crate) desired: Replicas,
    pub(crate) conditions: Conditions,
    pub(crate) log: Log,
    pub(crate) applied: Option<Applied>,
    read_error: Option<ErrorKind>,
    has_scale: bool,
}

// === impl Condition ===

impl Condition {
    /// The condition of these words, if upstream knows them.
    pub(crate) fn known(kind: &str, status: Status, reason: &str) -> Option<Self> {
        let reasons = ConditionReason::ALL.iter().map(|reason| reason.as_str());
        Some(Self {
            kind: KINDS.into_iter().find(|known| *known == kind)?,
            status,
            reason: reasons
                .chain(READ_AND_WRITE_REASONS)
                .find(|known| *known == reason)?,
        })
    }
}

// === impl Conditions ===

impl Conditions {
    fn get(&self, kind: &str) -> Option<Condition> {
        self.0.iter().find(|c| c.kind == kind).copied()
    }

    fn set(&mut self, kind: &'static str, status: Status, reason: &'static str) {
        let condition = Condition {
            kind,
            status,
            reason,
        };
        match self.0.iter_mut().find(|c| c.kind == kind) {
            Some(existing) => *existing = condition,
            None => self.0.push(condition),
        }
    }

    fn remove(&mut self, kind: &str) {
        self.0.retain(|c| c.kind != kind);
    }
}

impl FromIterator<Condition> for Conditions {
    fn from_iter<I: IntoIterator<Item = Condition>>(all: I) -> Self {
        let mut conditions = Self::default();
        all.into_iter()
            .for_each(|c| conditions.set(c.kind, c.status, c.reason));
        conditions
    }
}

// === impl ErrorKind ===

impl ErrorKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Internal => "internal",
        }
    }

    /// The origin of a metric's error.
    pub(crate) const fn of_metric(cause: Cause) -> Self {
        match cause {
            Cause::UnknownType => Self::Spec,
            _ => Self::Internal,
        }
    }
}

// === impl ScaleAction ===

impl ScaleAction {
    pub(crate) fn between(from: Replicas, to: Replicas) -> Self {
        match to.cmp(&from) {
            Ordering::Greater => Self::Up,
            Ordering::Less => Self::Down,
            Ordering::Equal => Self::None,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "scale_up",
            Self::Down => "scale_down",
            Self::None => "none",
        }
    }
}

// === impl ControllerPass ===

impl ControllerPass {
    /// One reconciliation over what could be read; nothing is written yet.
    pub(crate) fn run(
        hpa: &Hpa<'_>,
        reads: &Reads<'_>,
        log: &Log,
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        let mut log = log.clone();
        let scaled_to_zero = reads.conditions.get(SCALED_TO_ZERO);
        log.scaled_to_zero |= scaled_to_zero.is_some_and(|c| c.status == Status::True);
        let mut pass = Self {
            computed: None,
            current: Replicas::ZERO,
            desired: Replicas::ZERO,
            conditions: reads.conditions.clone(),
            log,
            applied: None,
            read_error: None,
            has_scale: true,
        };
        let scale = match reads.scale {
            Ok(scale) => scale,
            Err(kind) => {
                pass.conditions
                    .set(ABLE_TO_SCALE, Status::False, "FailedGetScale");
                (pass.read_error, pass.has_scale) = (Some(kind), false);
                return pass;
            }
        };
        pass.conditions
            .set(ABLE_TO_SCALE, Status::True, "SucceededGetScale");
        (pass.current, pass.desired) = (scale.spec, scale.spec);
        let observation = Observation {
            scale,
            unseen: Replicas::ZERO,
            pods: reads.pods.to_vec(),
            readings: reads.readings.to_vec(),
        };
        let computed = reconcile(hpa, &observation, &pass.log, settings, now);
        // The selector is used only where metrics are read.
        let reads_metrics = matches!(
            computed.verdict,
            Verdict::Computed { .. } | Verdict::Unavailable { .. }
        );
        match reads.selector {
            Err(problem) if reads_metrics => {
                let reason = problem.reason().as_str();
                pass.conditions.set(SCALING_ACTIVE, Status::False, reason);
                pass.read_error = Some(ErrorKind::Internal);
                pass.log = pass.log.started(scale.spec, now);
            }
            _ => pass.take(computed, settings),
        }
        pass
    }

    fn take(&mut self, computed: Reconciliation, settings: &Settings) {
        if let Some(reason) = computed.scaling_active {
            let status = match reason {
                ConditionReason::ValidMetricFound => Status::True,
                _ => Status::False,
            };
            self.conditions.set(SCALING_ACTIVE, status, reason.as_str());
        }
        if computed.verdict == Verdict::Disabled && settings.zero != ZeroRule::WhenScaledToZero {
            self.conditions.remove(SCALED_TO_ZERO);
        }
        if let Some(reason) = computed.able_to_scale {
            self.conditions
                .set(ABLE_TO_SCALE, Status::True, reason.as_str());
        }
        if let Some(reason) = computed.scaling_limited {
            let status = match reason {
                ConditionReason::DesiredWithinRange => Status::False,
                _ => Status::True,
            };
            self.conditions
                .set(SCALING_LIMITED, status, reason.as_str());
        }
        self.desired = computed.desired;
        self.log = computed.log.clone();
        self.computed = Some(computed);
    }

    /// The outcome of each metric; empty when none was computed.
    pub(crate) fn proposals(&self) -> &[Result<MetricProposal, Unavailable>] {
        self.computed
            .as_ref()
            .map_or(&[], |computed| &computed.proposals)
    }

    /// The same after the scale was written, or after that failed. Without a change there is nothing to write.
    #[must_use]
    pub(crate) fn applied(
        mut self,
        hpa: &Hpa<'_>,
        settings: &Settings,
        outcome: Applied,
        now: Timestamp,
    ) -> Self {
        if self.desired == self.current {
            return self;
        }
        self.applied = Some(outcome);
        if outcome == Applied::Failed {
            self.conditions
                .set(ABLE_TO_SCALE, Status::False, "FailedUpdateScale");
            return self;
        }
        self.conditions
            .set(ABLE_TO_SCALE, Status::True, "SucceededRescale");
        self.log = record_scale(self.log, hpa.behavior, self.current, self.desired, now);
        self.log.scaled_to_zero &= hpa.bounds.min == Replicas::ZERO && hpa.reads_beyond_pods();
        match (settings.zero, self.log.scaled_to_zero) {
            (ZeroRule::WhenScaledToZero, true) => {
                self.conditions
                    .set(SCALED_TO_ZERO, Status::True, "ScaledToZero");
            }
            (ZeroRule::WhenScaledToZero, false) => {
                self.conditions
                    .set(SCALED_TO_ZERO, Status::False, "NotScaledToZero");
            }
            _ => self.conditions.remove(SCALED_TO_ZERO),
        }
        self
    }

    /// What is left in status. The desired count stays as it was when none was reached.
    pub(crate) fn status(&self, previous: &HpaStatus) -> HpaStatus {
        let unavailable = self
            .computed
            .as_ref()
            .is_some_and(|computed| matches!(computed.verdict, Verdict::Unavailable { .. }));
        let undecided = self.read_error.is_some() || unavailable;
        let unwritten = self.applied == Some(Applied::Failed);
        HpaStatus {
            current: if self.has_scale {
                self.current
            } else {
                previous.current
            },
            desired: if undecided || unwritten {
                previous.desired
            } else {
                self.desired
            },
            conditions: self.conditions.clone(),
        }
    }

    /// What was done to the scale.
    pub(crate) fn action(&self) -> ScaleAction {
        match self.applied {
            Some(Applied::Written) => ScaleAction::between(self.current, self.desired),
            _ => ScaleAction::None,
        }
    }

    /// The first error. A failed metric counts even when the others were enough, and so does one of no metrics.
    pub(crate) fn error(&self) -> Option<ErrorKind> {
        let computed = self.computed.as_ref();
        let unavailable = computed
            .is_some_and(|computed| matches!(computed.verdict, Verdict::Unavailable { .. }));
        let failed = unavailable
            || self.applied == Some(Applied::Failed)
            || self.proposals().iter().any(Result::is_err);
        self.read_error
            .or_else(|| failed.then_some(ErrorKind::Internal))
    }
}

#[cfg(test)]
mod tests {

    use foretide_domain::{
        ReplicaBounds,
        hpa::{MetricSpec, Target},
        observation::Measured,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn observed_at(count: Replicas) -> Scale {
        Scale {
            spec: count,
            status: count,
        }
    }

    /// A pass over one queue with a target of 1 per pod, from `min` to 100 replicas, and its scale written.
    fn written(min: u32, count: u32, total: i64, log: &Log) -> ControllerPass {
        let target = Target::AverageValue(1000);
        let metrics = [MetricSpec::External {
            metric: "queue".into(),
            selector: None,
            target,
        }];
        let hpa = Hpa {
            bounds: ReplicaBounds::new(Replicas::new(min), Replicas::new(100)),
            metrics: &metrics,
            behavior: None,
        };
        let reads = Reads {
            scale: Ok(observed_at(Replicas::new(count))),
            selector: Ok(()),
            pods: &[],
            readings: &[Ok(Measured::Total(vec![total]))],
            conditions: &Conditions::default(),
        };
        let settings = Settings::default();
        let pass = ControllerPass::run(&hpa, &reads, log, &settings, NOW);
        pass.applied(&hpa, &settings, Applied::Written, NOW)
    }

    #[test]
    fn a_condition_is_changed_in_place_and_a_new_one_goes_last() {
        let mut conditions = Conditions::default();
        conditions.set(ABLE_TO_SCALE, Status::True, "SucceededGetScale");
        conditions.set(SCALING_ACTIVE, Status::True, "ValidMetricFound");
        conditions.set(ABLE_TO_SCALE, Status::True, "ReadyForNewScale");
        let reasons: Vec<_> = conditions.0.iter().map(|c| c.reason).collect();
        assert_eq!(reasons, ["ReadyForNewScale", "ValidMetricFound"]);
        conditions.remove(ABLE_TO_SCALE);
        assert_eq!(conditions.get(ABLE_TO_SCALE), None);
    }

    #[test]
    fn scaling_to_zero_is_remembered_and_left_at_the_minimum() {
        let empty = Log {
            recommendations: Some(Vec::new()),
            ..Log::default()
        };
        let zero = |pass: &ControllerPass| {
            let condition = pass.conditions.get(SCALED_TO_ZERO);
            condition.map(|Condition { status, reason, .. }| (status, reason))
        };
        let down = written(0, 3, 0, &empty);
        let marked = (Status::True, "ScaledToZero");
        assert_eq!((down.desired, zero(&down)), (Replicas::ZERO, Some(marked)));
        assert!(down.log.scaled_to_zero);
        // The user raises the minimum meanwhile, above what a first step without behavior may reach.
        let up = written(6, 0, 1000, &down.log);
        let unmarked = (Status::False, "NotScaledToZero");
        assert_eq!((up.desired, zero(&up)), (Replicas::new(6), Some(unmarked)));
        assert!(!up.log.scaled_to_zero);
        let high = written(6, 0, 50_000, &down.log);
        assert_eq!(
            high.desired,
            Replicas::new(6),
            "the doubling limit alone would stop at 4"
        );
    }

    #[test]
    fn zero_that_no_metric_can_leave_is_not_marked() {
        let metrics = [MetricSpec::Resource {
            name: "cpu".into(),
            target: Target::AverageValue(1),
        }];
        let hpa = Hpa {
            bounds: ReplicaBounds::new(Replicas::ZERO, Replicas::ZERO),
            metrics: &metrics,
            behavior: None,
        };
        let reads = Reads {
            scale: Ok(observed_at(Replicas::new(2))),
            selector: Ok(()),
            pods: &[],
            readings: &[],
            conditions: &Conditions::default(),
        };
        let settings = Settings::default();
        let pass = ControllerPass::run(&hpa, &reads, &Log::default(), &settings, NOW);
        let pass = pass.applied(&hpa, &settings, Applied::Written, NOW);
        assert_eq!(
            (pass.desired, pass.log.scaled_to_zero),
            (Replicas::ZERO, false)
        );
    }
}
