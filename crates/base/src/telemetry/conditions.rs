//! The unhealthy conditions of autoscalers, in the metric registry of the controller.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};

use super::{Metrics, ObjectLabels, Telemetry};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct ConditionLabels {
    kind: &'static str,
    namespace: String,
    name: String,
    r#type: String,
    reason: String,
}

/// Metrics of the unhealthy conditions of each autoscaler.
#[derive(Debug)]
pub(super) struct Conditions {
    unhealthy: Family<ConditionLabels, Gauge>,
    /// The series of each object.
    published: Mutex<HashMap<ObjectLabels, BTreeSet<ConditionLabels>>>,
}

// === impl Conditions ===

impl Conditions {
    pub(super) fn new(metrics: &mut Metrics) -> Self {
        Self {
            unhealthy: metrics.add(
                "condition",
                "1 while a condition of an autoscaler is unhealthy, with its type and its reason",
            ),
            published: Mutex::default(),
        }
    }
}

// === impl Telemetry ===

impl Telemetry {
    /// Publishes the unhealthy conditions of an object, each by type and reason; those that are not among them any more
    /// lose their series.
    pub fn set_unhealthy<'a>(
        &self,
        object: &ObjectLabels,
        conditions: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) {
        if self.hides_objects() {
            return;
        }
        let mut now = BTreeSet::new();
        for (condition, reason) in conditions {
            now.insert(ConditionLabels {
                kind: object.kind,
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                r#type: condition.to_owned(),
                reason: reason.to_owned(),
            });
        }
        for labels in &now {
            self.conditions.unhealthy.get_or_create(labels).set(1);
        }
        let mut published = self.conditions.published.lock();
        let before = published.remove(object).unwrap_or_default();
        for healthy in before.difference(&now) {
            self.conditions.unhealthy.remove(healthy);
        }
        if !now.is_empty() {
            published.insert(object.clone(), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::object;

    #[test]
    fn a_condition_has_a_series_while_it_is_unhealthy() {
        let telemetry = Telemetry::default();
        let empty = telemetry.encode();
        let series = |condition: &str, reason: &str| {
            format!(
                "foretide_condition{{kind=\"federatedhpa\",namespace=\"shop\",name=\"web\",\
                 type=\"{condition}\",reason=\"{reason}\"}} 1"
            )
        };
        let [ready, cron] = [("Ready", "InvalidSpec"), ("CronReady", "NeverFires")];
        telemetry.set_unhealthy(&object(), [ready, cron]);
        let text = telemetry.encode();
        assert!(text.contains(&series(ready.0, ready.1)), "{text}");
        assert!(text.contains(&series(cron.0, cron.1)), "{text}");

        // An object of another kind with the same name is another object.
        let same_name = ObjectLabels {
            kind: "effectivehorizontalpodautoscaler",
            ..object()
        };
        telemetry.set_unhealthy(&same_name, []);
        assert_eq!(telemetry.encode(), text);

        telemetry.set_unhealthy(&object(), [("Ready", "FailedUpdateScale"), cron]);
        let text = telemetry.encode();
        assert!(!text.contains("InvalidSpec"), "{text}");
        assert!(
            text.contains(&series("Ready", "FailedUpdateScale")),
            "{text}"
        );
        telemetry.set_unhealthy(&object(), []);
        assert_eq!(telemetry.encode(), empty);
    }

    #[test]
    fn a_deleted_object_has_no_conditions() {
        let telemetry = Telemetry::default();
        let empty = telemetry.encode();
        telemetry.set_unhealthy(&object(), [("Ready", "InvalidSpec")]);
        telemetry.forget(&object(), []);
        assert_eq!(telemetry.encode(), empty);
    }

    #[test]
    fn conditions_can_be_hidden_with_the_other_series_of_objects() {
        let telemetry = Telemetry::default();
        telemetry.hide_objects();
        let empty = telemetry.encode();
        telemetry.set_unhealthy(&object(), [("Ready", "InvalidSpec")]);
        assert_eq!(telemetry.encode(), empty);
    }
}
