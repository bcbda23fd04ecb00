//! The permanent conformance check: our observed lane beside the child autoscaler's own answers.
//!
//! Every sync leaves an expectation: for this count, these readings and these bounds the child will
//! answer so. When the child's status shows a pass over the same inputs, the answers are compared.
//! Nothing is compared before one stabilization window has passed for both sides, because logs that
//! began at different times may rightly differ. It changes nothing.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    domain::{Replicas, decide::Decision, hpa::MetricValue, quantity::Quantity},
    ports::HpaView,
};

/// How many syncs an expectation may wait for the child's status.
const MEMORY: usize = 4;

/// What the child is expected to answer to one reading.
#[derive(Debug, Clone, PartialEq)]
struct Expectation {
    current: Replicas,
    values: Vec<MetricValue>,
    generation: Option<i64>,
    desired: Replicas,
}

/// The expectations about one child, and which of its answers was compared last.
#[derive(Debug, Clone, Default)]
pub(super) struct Shadow {
    since: Option<Timestamp>,
    child: String,
    expected: VecDeque<Expectation>,
    compared: Option<Value>,
}

// === impl Shadow ===

impl Shadow {
    /// Takes one sync in; says whether an answer of the child could be compared, and whether it agreed.
    pub(super) fn watch(
        &mut self,
        decision: &Decision,
        child: Option<&HpaView>,
        window: SignedDuration,
    ) -> Option<bool> {
        let Some(child) = child else {
            *self = Self::default();
            return None;
        };
        if self.child != child.uid {
            *self = Self {
                child: child.uid.clone(),
                since: Some(decision.at),
                ..Self::default()
            };
        }
        self.expected.extend(Expectation::of(decision, child));
        while self.expected.len() > MEMORY {
            self.expected.pop_front();
        }
        let settled = self
            .since
            .is_some_and(|since| decision.at.duration_since(since) > window);
        if !settled || self.compared.as_ref() == Some(&child.status) {
            return None;
        }
        let verdict = self
            .expected
            .iter()
            .rev()
            .find_map(|expected| expected.judge(child))?;
        self.compared = Some(child.status.clone());
        Some(verdict)
    }
}

// === impl Expectation ===

impl Expectation {
    fn of(decision: &Decision, child: &HpaView) -> Option<Self> {
        let pass = decision.observed.as_ref()?;
        let values: Option<Vec<_>> = pass
            .proposals
            .iter()
            .map(|p| p.as_ref().ok().map(|p| p.value))
            .collect();
        Some(Self {
            current: decision.current,
            values: values.filter(|values| !values.is_empty())?,
            generation: child.generation,
            desired: decision.mirror_desired?,
        })
    }

    /// Whether the child answered to the same inputs as expected; `None` for other inputs.
    fn judge(&self, child: &HpaView) -> Option<bool> {
        let count = |name: &str| child.status.get(name).and_then(Value::as_u64);
        let observed = child
            .status
            .get("observedGeneration")
            .and_then(Value::as_i64);
        let same = count("currentReplicas") == Some(self.current.get().into())
            && child.generation == self.generation
            && observed.is_none_or(|observed| Some(observed) == self.generation)
            && self.same_values(child.status.get("currentMetrics")?.as_array()?);
        same.then(|| count("desiredReplicas") == Some(self.desired.get().into()))
    }

    fn same_values(&self, statuses: &[Value]) -> bool {
        statuses.len() == self.values.len()
            && statuses
                .iter()
                .zip(&self.values)
                .all(|(status, value)| reported(status) == Some(*value))
    }
}

/// The value that a child reports for one metric, in the shape of our own.
fn reported(status: &Value) -> Option<MetricValue> {
    let blocks = [
        "resource",
        "containerResource",
        "pods",
        "object",
        "external",
    ];
    let current = blocks
        .iter()
        .find_map(|block| status.get(block))?
        .get("current")?;
    let milli = |name: &str| {
        let text = current.get(name)?.as_str()?;
        Some(text.parse::<Quantity>().ok()?.milli_value().value)
    };
    Some(MetricValue {
        average_utilization: current
            .get("averageUtilization")
            .and_then(Value::as_i64)
            .and_then(|n| i32::try_from(n).ok()),
        average_value: milli("averageValue"),
        value: milli("value"),
    })
}
