//! A decision in words: proposals from readings, conditions, and one sentence that says why.
//!
//! Everything is derived from the numbers of a decision, so that status, log, command line and page
//! say the same. It decides nothing and formats for no medium; times are UTC.

mod condition;
mod sentence;

use super::hpa::{MetricProposal, MetricSpec, Target};
use super::observation::Unavailable;
use super::proposal::{Proposal, Reason, Source, Unit};

pub(super) use condition::conditions;
pub use condition::{Condition, ConditionKind};
pub use sentence::amount;

/// One metric's outcome in the observed lane as a proposal; `None` if the lane did not look at it.
pub(super) fn observed(
    metric: &MetricSpec,
    outcome: Option<&Result<MetricProposal, Unavailable>>,
) -> Proposal {
    let (unit, target) = target(metric);
    let absent = |reason, message: &str| Proposal {
        source: Source::Observed,
        name: metric.identifier(),
        replicas: None,
        value: None,
        target,
        unit,
        reason,
        message: message.to_owned(),
        grounds: None,
    };
    match outcome {
        Some(Ok(proposal)) => Proposal {
            replicas: Some(proposal.replicas),
            value: value(proposal, unit),
            ..absent(Reason::ValidMetricFound, "")
        },
        Some(Err(unavailable)) => absent(unavailable.reason.into(), &unavailable.message),
        None => absent(Reason::NotComputed, ""),
    }
}

/// The unit of a metric by its identifier: what a resource name says about it.
#[must_use]
pub fn unit_of(identifier: &str) -> Unit {
    let mut parts = identifier.split('.');
    match (parts.next(), parts.next()) {
        (Some("resource" | "container-resource"), Some("cpu")) => Unit::Cores,
        (Some("resource" | "container-resource"), Some("memory" | "ephemeral-storage")) => {
            Unit::Bytes
        }
        _ => Unit::Plain,
    }
}

fn target(metric: &MetricSpec) -> (Unit, Option<f64>) {
    let unit = unit_of(&metric.identifier());
    match metric.target() {
        Target::Utilization(percent) => (Unit::Percent, Some(f64::from(percent))),
        Target::AverageValue(milli) | Target::Value(milli) => (unit, Some(base_units(milli))),
        Target::Unusable => (unit, None),
    }
}

fn value(proposal: &MetricProposal, unit: Unit) -> Option<f64> {
    let value = proposal.value;
    match unit {
        Unit::Percent => value.average_utilization.map(f64::from),
        _ => value.average_value.or(value.value).map(base_units),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shown to people, not computed with"
)]
fn base_units(milli: i64) -> f64 {
    milli as f64 / 1000.0
}
