//! When each autoscaler was decided, from the log of the controller: one record per decision.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::PERIOD;

/// Namespace and name of an autoscaler.
pub(super) type Object = (String, String);

/// The decisions of one measurement.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    by_object: BTreeMap<Object, Vec<Decision>>,
    /// How often each warning was logged.
    pub(super) warnings: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, Copy)]
struct Decision {
    at: Timestamp,
    desired: i64,
    /// Whether everything that it asks for was written.
    is_applied: bool,
    /// Whether a metric of it could not be read.
    lacks_metric: bool,
}

/// Times between one decision of an object and the next, in seconds, shortest first.
#[derive(Debug)]
pub(super) struct Ages(Vec<f64>);

/// A stretch of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

// === impl Decisions ===

impl Decisions {
    /// Takes in one line of the log, in JSON.
    pub(super) fn read(&mut self, line: &str) {
        let Ok(record) = serde_json::from_str::<Value>(line) else {
            self.warn(line.to_owned());
            return;
        };
        let text = |pointer| record.pointer(pointer).and_then(Value::as_str);
        let decision = || {
            let object = (
                text("/fields/namespace")?.to_owned(),
                text("/fields/name")?.to_owned(),
            );
            let decision = Decision {
                at: text("/timestamp")?.parse().ok()?,
                desired: record.pointer("/fields/desired")?.as_i64()?,
                is_applied: text("/fields/error").is_none(),
                lacks_metric: text("/fields/message")
                    .is_some_and(|message| message.contains("metrics are unavailable")),
            };
            Some((object, decision))
        };
        if let Some((object, decision)) = decision() {
            self.by_object.entry(object).or_default().push(decision);
        }
        if matches!(text("/level"), Some("WARN" | "ERROR")) {
            let message = text("/fields/message").unwrap_or_default();
            self.warn(message.to_owned());
        }
    }

    fn warn(&mut self, message: String) {
        *self.warnings.entry(message).or_default() += 1;
    }

    /// How many of these objects were decided at least this often.
    pub(super) fn decided<'o>(
        &self,
        objects: impl IntoIterator<Item = &'o Object>,
        times: usize,
    ) -> usize {
        let often = |object: &&Object| {
            let decisions = self.by_object.get(object);
            decisions.is_some_and(|decisions| decisions.len() >= times)
        };
        objects.into_iter().filter(often).count()
    }

    /// The ages of the decisions about these objects in a span. An object that waits at its end for longer than a period
    /// counts with the time it has waited.
    pub(super) fn ages<'o>(
        &self,
        objects: impl IntoIterator<Item = &'o Object>,
        span: Span,
    ) -> Ages {
        let mut ages = Vec::new();
        for object in objects {
            let mut before = None;
            for decision in self.by_object.get(object).into_iter().flatten() {
                if decision.at >= span.to {
                    break;
                }
                let age = before.map(|before| decision.at.duration_since(before));
                ages.extend(age.filter(|_| decision.at >= span.from));
                before = Some(decision.at);
            }
            let waiting = before.map(|before| span.to.duration_since(before));
            ages.extend(waiting.filter(|waiting| *waiting > PERIOD));
        }
        let mut ages: Vec<f64> = ages.iter().map(jiff::SignedDuration::as_secs_f64).collect();
        ages.sort_unstable_by(f64::total_cmp);
        Ages(ages)
    }

    /// How many decisions about these objects in a span were made without a metric.
    pub(super) fn without_metric<'o>(
        &self,
        objects: impl IntoIterator<Item = &'o Object>,
        span: Span,
    ) -> usize {
        let all = objects
            .into_iter()
            .filter_map(|object| self.by_object.get(object));
        let in_span = |decision: &&Decision| decision.at >= span.from && decision.at < span.to;
        let without = all.flatten().filter(in_span);
        without.filter(|decision| decision.lacks_metric).count()
    }

    /// How long after `opens` an object was given at least `replicas`, in seconds.
    pub(super) fn reached(&self, object: &Object, replicas: i64, opens: Timestamp) -> Option<f64> {
        let decisions = self.by_object.get(object)?.iter();
        let mut reached = decisions.filter(|decision| {
            decision.is_applied && decision.at >= opens && decision.desired >= replicas
        });
        let first = reached.next()?;
        Some(first.at.duration_since(opens).as_secs_f64())
    }
}

// === impl Ages ===

impl Ages {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The age that this percentage of the decisions does not exceed (nearest rank); zero without decisions.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }

    pub(super) fn worst(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: &str, name: &str, desired: i64) -> String {
        format!(
            r#"{{"timestamp":"2026-01-01T00:{at}Z","level":"DEBUG","fields":{{"namespace":"shop","name":"{name}","desired":{desired}}}}}"#
        )
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-01-01T00:{time}Z").parse().unwrap()
    }

    #[test]
    fn an_object_that_waits_counts_with_the_time_it_has_waited() {
        let mut decisions = Decisions::default();
        for (time, name) in [
            ("00:00", "web"),
            ("00:15", "web"),
            ("00:20", "late"),
            ("00:30.5", "web"),
        ] {
            decisions.read(&record(time, name, 2));
        }
        let objects = ["web", "late"].map(|name| ("shop".to_owned(), name.to_owned()));
        let span = Span {
            from: at("00:10"),
            to: at("00:40"),
        };
        let ages = decisions.ages(&objects, span);
        assert_eq!(ages.0, [15.0, 15.5, 20.0]);
        assert_eq!((ages.percentile(50), ages.percentile(99)), (15.5, 20.0));
        assert_eq!(decisions.decided(&objects, 2), 1);
        assert_eq!(decisions.reached(&objects[0], 2, at("00:20")), Some(10.5));
        assert_eq!(decisions.reached(&objects[0], 3, at("00:20")), None);
    }
}
