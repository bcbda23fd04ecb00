//! The observed lane: the Kubernetes horizontal pod autoscaler, to the last replica.
//!
//! [`reconcile`] is one pass of the upstream controller as a function of what it read: which count
//! each metric asks for ([`propose`]), what stabilization, rate limits and bounds leave of it
//! ([`normalise()`]), which conditions it sets, and the log it keeps. All arithmetic is in milli-units
//! (`i64`, sums and products in `i128`) and in `f64` in the order upstream writes it, because the
//! roundings are part of the result. Reading the cluster and writing the scale stay outside.
//!
//! Source: kubernetes/kubernetes `pkg/controller/podautoscaler`.

mod behavior;
mod calculator;
mod condition;
mod grouping;
#[cfg(test)]
mod laws;
mod log;
mod metric;
mod normalise;
mod pass;
mod ratio;
mod samples;
mod selector;

use jiff::SignedDuration;

pub use behavior::{Behavior, Direction, Policy, PolicyKind, Rules, Select};
pub use calculator::{Basis, Held, MetricProposal, MetricValue, View, propose};
pub use condition::{Condition, ConditionKind, ConditionReason, Conditions};
pub use grouping::{Grouped, Sample, group_pods, pod_requests};
pub use log::{Log, Recommendation, ScaleEvent, record_scale};
pub use metric::{MetricKind, MetricSpec, ObjectRef, Target, WrittenTarget};
pub use normalise::{Normalised, Step, normalise};
pub use pass::{
    Applied, ErrorKind, HpaStatus, Pass, Reads, SCALE_UPDATE_ATTEMPTS, ScaleAction, Verdict,
    reconcile, reconcile_reads,
};
pub use ratio::{Ratio, Tolerance, usage_ratio, utilization_ratio};
pub use selector::SelectorProblem;

use super::ReplicaBounds;

/// What a user asks of an autoscaler: a borrowed view, so another pair of bounds costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct Hpa<'a> {
    /// `minReplicas` and `maxReplicas`.
    pub bounds: ReplicaBounds,
    /// `metrics`, in the spec's order.
    pub metrics: &'a [MetricSpec],
    /// `behavior`; `None` is not the same as an empty one.
    pub behavior: Option<&'a Behavior>,
}

/// The flags of the controller that enter the arithmetic.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How far the ratio may be from 1 without a change, both ways, where `behavior` gives none.
    pub tolerance: f64,
    /// How long a recommendation holds a scale-down back, where `behavior` gives no window.
    pub downscale_stabilization: SignedDuration,
    /// How long after its start a pod's CPU sample is suspect.
    pub cpu_initialization_period: SignedDuration,
    /// How long after its start a pod that was never ready may still change its readiness.
    pub initial_readiness_delay: SignedDuration,
    /// Without `behavior`: a pass at most multiplies the count by this.
    pub scale_up_limit_factor: f64,
    /// Without `behavior`: a pass may always reach this count.
    pub scale_up_limit_minimum: f64,
    /// When metrics are computed at zero replicas.
    pub zero: ZeroRule,
    /// Whether pod-level resource requests take the place of the containers'.
    pub pod_level_resources: bool,
}

impl Default for Settings {
    /// The defaults of the controller manager's flags, with scale to zero and pod-level requests on.
    fn default() -> Self {
        Self {
            tolerance: 0.1,
            downscale_stabilization: SignedDuration::from_mins(5),
            cpu_initialization_period: SignedDuration::from_mins(5),
            initial_readiness_delay: SignedDuration::from_secs(30),
            scale_up_limit_factor: 2.0,
            scale_up_limit_minimum: 4.0,
            zero: ZeroRule::WhenScaledToZero,
            pod_level_resources: true,
        }
    }
}

/// When a workload at zero replicas is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroRule {
    /// Never: zero is a pause (feature gate `HPAScaleToZero` off).
    Never,
    /// When this autoscaler itself scaled to zero (Kubernetes 1.36 and newer, gate on).
    WhenScaledToZero,
    /// Whenever `minReplicas` is zero, whoever scaled down (before 1.36).
    WhenMinIsZero,
}

impl ZeroRule {
    /// Whether metrics are computed at zero replicas.
    ///
    /// `scaled_to_zero`: the last change was this autoscaler's own, from above zero to zero;
    /// `hpa` gives `min` and whether any metric is of type Object or External.
    #[must_use]
    pub fn computes_at_zero(self, hpa: &Hpa<'_>, scaled_to_zero: bool) -> bool {
        let min_is_zero = hpa.bounds.min == super::Replicas::ZERO;
        match self {
            Self::Never => false,
            Self::WhenScaledToZero => scaled_to_zero && (!min_is_zero || hpa.reads_beyond_pods()),
            Self::WhenMinIsZero => min_is_zero,
        }
    }
}

impl Hpa<'_> {
    /// Whether any metric can be read without pods: type Object or External.
    #[must_use]
    pub fn reads_beyond_pods(&self) -> bool {
        self.metrics
            .iter()
            .any(|m| matches!(m.kind(), MetricKind::Object | MetricKind::External))
    }
}
