//! The rest of the upstream HPA controller, around the algorithm of the domain: reads that fail, conditions, the write
//! of the scale and the status.
//!
//! The vectors record the results of the whole controller. The product needs only the algorithm, so the rest is
//! emulated here.
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

/// Number of attempts of a conflicting write of the scale before it counts as failed.
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
/// The reasons of reads and writes; the algorithm's own are [`ConditionReason::ALL`].
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

/// An ordered list of conditions, at most one per type. Setting an existing one changes it in place: the vectors record
/// the order, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions(pub(crate) Vec<Condition>);

/// The results of all reads, including failures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads<'a> {
    pub(crate) scale: Result<Scale, ErrorKind>,
    /// The selector selects the pods of one workload; otherwise the reason.
    pub(crate) selector: Result<(), ConditionReason>,
    pub(crate) pods: &'a [Arc<Pod>],
    pub(crate) readings: &'a [Reading],
    /// The conditions in status. `ScaledToZero` counts like the log's own flag, so it survives a restart.
    pub(crate) conditions: &'a Conditions,
}

/// Result of the write of the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Written,
    Failed,
}

/// The origin of an error, as the controller's metrics name it.
pub(crate) type ErrorKind = &'static str;
pub(crate) const SPEC: ErrorKind = "spec";
pub(crate) const INTERNAL: ErrorKind = "internal";

/// Action without a change of the count.
pub(crate) const UNCHANGED: &str = "none";

/// The autoscaler's status after a reconciliation.
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

/// The origin of a metric's error.
pub(crate) const fn origin(cause: Cause) -> ErrorKind {
    match cause {
        Cause::UnknownType => SPEC,
        _ => INTERNAL,
    }
}

/// The direction of a change, as the controller's metrics name it.
pub(crate) fn direction(from: Replicas, to: Replicas) -> &'static str {
    match to.cmp(&from) {
        Ordering::Greater => "scale_up",
        Ordering::Less => "scale_down",
        Ordering::Equal => UNCHANGED,
    }
}

// === impl ControllerPass ===

impl ControllerPass {
    /// One reconciliation over the results of the reads; nothing is written yet.
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
            pods: reads.pods.to_vec(),
            readings: reads.readings.to_vec(),
            ..Observation::default()
        };
        let computed = reconcile(hpa, &observation, &pass.log, settings, now);
        // The selector is used only where metrics are read.
        let reads_metrics = matches!(
            computed.verdict,
            Verdict::Computed { .. } | Verdict::Unavailable { .. }
        );
        match reads.selector {
            Err(reason) if reads_metrics => {
                pass.conditions
                    .set(SCALING_ACTIVE, Status::False, reason.as_str());
                pass.read_error = Some(INTERNAL);
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

    /// The pass after the scale was written, or after that failed. Without a change there is nothing to write.
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

    /// Returns the status after the pass. The desired count stays as it was when none was reached.
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

    /// Returns the action on the scale.
    pub(crate) fn action(&self) -> &'static str {
        match self.applied {
            Some(Applied::Written) => direction(self.current, self.desired),
            _ => UNCHANGED,
        }
    }

    /// The first error. A failed metric counts even when the other metrics were enough, and also that there are none.
    pub(crate) fn error(&self) -> Option<ErrorKind> {
        let computed = self.computed.as_ref();
        let unavailable = computed
            .is_some_and(|computed| matches!(computed.verdict, Verdict::Unavailable { .. }));
        let failed = unavailable
            || self.applied == Some(Applied::Failed)
            || self.proposals().iter().any(Result::is_err);
        self.read_error.or_else(|| failed.then_some(INTERNAL))
    }
}
