//! The observed lane: computes the same counts as the Kubernetes horizontal pod autoscaler.
//!
//! ```text
//! metric, reading --propose--> count --max--> recommendation --normalize--> desired
//!                  per metric                    stabilization, policies, bounds
//! ```
//!
//! [`reconcile()`] does all of this for an observation. All arithmetic is in milli-units (`i64`, sums
//! and products in `i128`) and in `f64` in the order upstream writes it, because the roundings are part
//! of the result. Reading the cluster and writing the scale are left to the caller.
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
mod normalize;
mod ratio;
mod reconcile;
mod samples;
mod settings;
mod spec;

pub use behavior::{
    Behavior, PolicyKind, PolicySelect, ScalingPolicy, ScalingRules, StabilizationWindows,
    record_scale,
};
pub use calculator::{Basis, Held, MetricProposal, MetricValue, propose};
pub use condition::ConditionReason;
pub use grouping::{Grouped, Sample, group_pods, pod_requests};
pub use log::{Direction, Log, Recommendation, ScaleEvent};
pub use metric::{MetricKind, MetricSpec, ObjectRef, Target, WrittenTarget};
pub use normalize::{Normalized, Step, normalize};
pub use ratio::{Ratio, Tolerance, usage_ratio, utilization_ratio};
pub use reconcile::{Reconciliation, Verdict, reconcile};
pub use samples::MetricContext;
pub use settings::{Settings, ZeroRule};
pub use spec::Hpa;
