//! The CEL rules of our kinds that are more than a range or a list, and every rule once more in Rust.
//!
//! The API server evaluates the CEL; `foretide validate`, which has no evaluator, asks the twin in Rust. The tests of
//! [`crate::rules`] compare both with kube-cel, an implementation of CEL, and find a rule without a twin.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

/// A spec: its bounds are in order.
// `maxReplicas` below 1 breaks a rule of its own: one error has one message.
pub(crate) const BOUNDS: &str =
    "!has(self.minReplicas) || self.maxReplicas < 1 || self.minReplicas <= self.maxReplicas";
/// A reference to a workload: kind and name are there, and nothing is too long.
// 317 characters: a group of 253, a slash, and a version of 63.
pub(crate) const TARGET: &str = "size(self.kind) >= 1 && size(self.kind) <= 63 && size(self.name) >= 1 && size(self.name) <= 253 && (!has(self.apiVersion) || size(self.apiVersion) <= 317)";
/// Crons: each has a name of its own.
pub(crate) const CRON_NAMES: &str =
    "self.all(a, self.exists_one(b, (has(a.name) ? a.name : '') == (has(b.name) ? b.name : '')))";
/// A cron: it has both ends.
pub(crate) const START_AND_END: &str =
    "has(self.start) && size(self.start) > 0 && has(self.end) && size(self.end) > 0";
/// A cron: it has a count.
pub(crate) const TARGET_REPLICAS: &str = "has(self.targetReplicas)";
/// A cron expression: not `@every`, which [`IS_CRON`] leaves to this rule and its message.
pub(crate) const NOT_EVERY: &str = "!self.contains('@every')";
/// A cron expression: an optional zone, then five fields or a name such as `@daily`.
// An empty one is refused by `START_AND_END`.
pub(crate) const IS_CRON: &str = r"self == '' || self.matches('^\\s*((CRON_)?TZ=\\S+\\s+)?(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|[^@\\s]\\S*(\\s+\\S+){4})\\s*$') || !(!self.contains('@every'))";
/// A prediction: its quantile is chosen in one way.
pub(crate) const ONE_QUANTILE: &str =
    "!(has(self.quantile) && has(self.maxUnderProvisionedPercent))";
/// A duration as crane writes them: `<n>d`, or a Go duration such as `1h30m`.
pub(crate) const IS_DURATION: &str =
    r"self.matches('^([0-9]{1,9}d|([0-9]{1,9}(\\.[0-9]{1,9})?(ms|s|m|h))+)$')";
/// A fleet: its mode is not Metric.
pub(crate) const NOT_METRIC: &str = "!has(self.mode) || self.mode != 'Metric'";
/// The scopes of metrics: each metric has one.
pub(crate) const SCOPED_METRICS: &str = "self.all(a, self.exists_one(b, a.metric == b.metric))";
/// The requirements of a selector: each has a known operator.
pub(crate) const OPERATORS: &str =
    "self.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])";
/// The requirements of a selector: each has the values that its operator needs.
pub(crate) const VALUES: &str = "self.all(e, !(e.operator in ['In', 'NotIn']) || (has(e.values) && size(e.values) > 0)) && self.all(e, !(e.operator in ['Exists', 'DoesNotExist']) || !has(e.values) || size(e.values) == 0)";
/// The requirements of a selector on fields: each has a known key.
pub(crate) const KEYS: &str = "self.all(e, e.key in ['provider', 'region', 'zone'])";
/// Tolerations: each has a known operator.
pub(crate) const TOLERATION_OPERATORS: &str =
    "self.all(t, !has(t.operator) || t.operator in ['', 'Equal', 'Exists'])";
/// Tolerations: one with `Exists` has no value, and one that compares has a key.
pub(crate) const TOLERATION_VALUES: &str = "self.all(t, !(has(t.operator) && t.operator == 'Exists') || !has(t.value) || t.value == '') && self.all(t, (has(t.operator) && !(t.operator in ['', 'Equal'])) || (has(t.key) && t.key != ''))";
/// Tolerations: each has a known effect, or none.
pub(crate) const TOLERATION_EFFECTS: &str = "self.all(t, !has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])";
/// Tolerations: only those of `NoExecute` have `tolerationSeconds`.
pub(crate) const TOLERATION_SECONDS: &str =
    "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))";
/// An assignment: under `Prioritized` some cluster has a priority.
pub(crate) const PRIORITIZED: &str = "!has(self.federatedHPAAssignmentType) || self.federatedHPAAssignmentType != 'Prioritized' || (has(self.clusterAutoscalingPreference) && self.clusterAutoscalingPreference.exists(p, has(p.priority)))";
/// The preference for a cluster: its thresholds are in order.
pub(crate) const THRESHOLDS: &str = "!has(self.autoscalingMinThreshold) || !has(self.autoscalingMaxThreshold) || self.autoscalingMinThreshold <= self.autoscalingMaxThreshold";

/// Fewest and most seconds of a sample interval, which also divides a day.
const SAMPLE_INTERVAL: [u64; 2] = [15, 3_600];
/// Fewest and most seconds of the history to learn from.
pub(crate) const HISTORY_LENGTH: [u64; 2] = [3_600, 2_592_000];
const DAY: u64 = 86_400;

/// Nanoseconds of the units of a duration. `ms` comes before `m`, so that it is found first.
const UNITS: [(&str, u128); 5] = [
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// A rule in CEL, and its test in Rust.
type Twin = (&'static str, fn(&Value) -> bool);

/// The twin of each rule above.
const TWINS: [Twin; 20] = [
    (BOUNDS, |spec| {
        let (min, max) = (integer(spec, "minReplicas"), integer(spec, "maxReplicas"));
        // Without `minReplicas`, `None` is less than any number.
        max < Some(1) || min <= max
    }),
    (TARGET, |target| {
        (1..=63).contains(&length(target, "kind"))
            && (1..=253).contains(&length(target, "name"))
            && length(target, "apiVersion") <= 317
    }),
    (CRON_NAMES, |crons| are_distinct(crons, "name")),
    (START_AND_END, |cron| {
        !text(cron, "start").is_empty() && !text(cron, "end").is_empty()
    }),
    (TARGET_REPLICAS, |cron| has(cron, "targetReplicas")),
    (NOT_EVERY, |cron| !is_every(cron)),
    (IS_CRON, |cron| {
        cron == "" || is_every(cron) || has_form(IS_CRON, cron)
    }),
    (ONE_QUANTILE, |prediction| {
        !(has(prediction, "quantile") && has(prediction, "maxUnderProvisionedPercent"))
    }),
    (IS_DURATION, |duration| has_form(IS_DURATION, duration)),
    (NOT_METRIC, |spec| text(spec, "mode") != "Metric"),
    (SCOPED_METRICS, |scopes| are_distinct(scopes, "metric")),
    (OPERATORS, |requirements| {
        items(requirements).all(|requirement| {
            let operator = text(requirement, "operator");
            ["In", "NotIn", "Exists", "DoesNotExist"].contains(&operator)
        })
    }),
    (VALUES, |requirements| {
        items(requirements).all(|requirement| {
            let count = items(&requirement["values"]).count();
            match text(requirement, "operator") {
                "In" | "NotIn" => count > 0,
                "Exists" | "DoesNotExist" => count == 0,
                _ => true,
            }
        })
    }),
    (KEYS, |requirements| {
        items(requirements).all(|it| ["provider", "region", "zone"].contains(&text(it, "key")))
    }),
    (TOLERATION_OPERATORS, |tolerations| {
        items(tolerations).all(|it| ["", "Equal", "Exists"].contains(&text(it, "operator")))
    }),
    (TOLERATION_VALUES, |tolerations| {
        items(tolerations).all(|toleration| match text(toleration, "operator") {
            "Exists" => text(toleration, "value").is_empty(),
            "" | "Equal" => !text(toleration, "key").is_empty(),
            _ => true,
        })
    }),
    (TOLERATION_EFFECTS, |tolerations| {
        let effects = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
        items(tolerations).all(|it| effects.contains(&text(it, "effect")))
    }),
    (TOLERATION_SECONDS, |tolerations| {
        items(tolerations)
            .all(|it| !has(it, "tolerationSeconds") || text(it, "effect") == "NoExecute")
    }),
    (PRIORITIZED, |assignment| {
        let mut preferences = items(&assignment["clusterAutoscalingPreference"]);
        text(assignment, "federatedHPAAssignmentType") != "Prioritized"
            || preferences.any(|preference| has(preference, "priority"))
    }),
    (THRESHOLDS, |preference| {
        let least = integer(preference, "autoscalingMinThreshold");
        let most = integer(preference, "autoscalingMaxThreshold");
        // `None` would be less than any `autoscalingMinThreshold`.
        most.is_none() || least <= most
    }),
];

/// CEL: seconds of a duration for which [`IS_DURATION`] holds.
const SECONDS: &str =
    "(self.endsWith('d') ? int(self.replace('d', '')) * 86400 : duration(self).getSeconds())";

/// CEL: not a duration, or one within the given bounds, so that each error has one message.
pub(crate) fn seconds_between([least, most]: [u64; 2]) -> String {
    format!("!{IS_DURATION} || ({SECONDS} >= {least} && {SECONDS} <= {most})")
}

/// CEL: not a duration, or a valid sample interval.
pub(crate) fn is_sample_interval() -> String {
    format!(
        "{} && (!{IS_DURATION} || 86400 % {SECONDS} == 0)",
        seconds_between(SAMPLE_INTERVAL)
    )
}

/// Evaluates a rule of our kinds on a value of the type that its schema has; `None` if the rule has no twin.
pub(crate) fn holds(rule: &str, value: &Value) -> Option<bool> {
    if let Some((_, twin)) = TWINS.iter().find(|(text, _)| *text == rule) {
        return Some(twin(value));
    }
    if let Some(values) = rule.strip_prefix("self in [") {
        let wanted = format!("'{}'", value.as_str()?);
        let mut values = values.trim_end_matches(']').split(", ");
        return Some(values.any(|value| value == wanted));
    }
    if rule.contains(IS_DURATION) {
        return is_duration_in_range(rule, value);
    }
    is_in_range(rule, value)
}

/// A rule such as `self >= 1 && self <= 30` or `double(self) > 0.0`.
fn is_in_range(rule: &str, value: &Value) -> Option<bool> {
    let number = value.as_f64()?;
    let mut holds = true;
    // Every bound is read, also after one that does not hold, so that a rule of another form is never taken for a
    // range.
    for bound in rule.split(" && ") {
        let parts: Vec<_> = bound.split(' ').collect();
        let &["self" | "double(self)", operator, limit] = parts.as_slice() else {
            return None;
        };
        let limit: f64 = limit.parse().ok()?;
        holds &= match operator {
            ">" => number > limit,
            ">=" => number >= limit,
            "<" => number < limit,
            "<=" => number <= limit,
            _ => return None,
        };
    }
    Some(holds)
}

/// A rule of [`seconds_between`] or [`is_sample_interval`].
fn is_duration_in_range(rule: &str, value: &Value) -> Option<bool> {
    let divides_day = rule == is_sample_interval();
    let [least, most] = [SAMPLE_INTERVAL, HISTORY_LENGTH]
        .into_iter()
        .find(|range| divides_day || rule == seconds_between(*range))?;
    if !has_form(IS_DURATION, value) {
        return Some(true);
    }
    let seconds = seconds(value.as_str()?)?;
    Some((least..=most).contains(&seconds) && (!divides_day || DAY.is_multiple_of(seconds)))
}

/// Whole seconds of a text for which [`IS_DURATION`] holds, rounded down.
fn seconds(text: &str) -> Option<u64> {
    let (mut rest, mut total) = (text, 0_u128);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| c != '.' && !c.is_ascii_digit())?);
        let (unit, nanoseconds) = *UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = u32::try_from(fraction.len()).ok()?;
        // `IS_DURATION` allows nine digits, which fit.
        let parts = nanoseconds * u128::from(fraction.parse::<u32>().ok()?);
        total += nanoseconds * u128::from(whole.parse::<u32>().ok()?);
        total += parts / 10_u128.checked_pow(digits)?;
        rest = after.strip_prefix(unit)?;
    }
    u64::try_from(total / 1_000_000_000).ok()
}

/// Returns true if a text matches the pattern of a rule, which CEL has in quotes and with each backslash twice.
fn has_form(rule: &str, value: &Value) -> bool {
    let after = rule.split_once("matches('").map_or("", |(_, after)| after);
    let pattern = after.split_once("')").map_or("", |(pattern, _)| pattern);
    let pattern = Regex::new(&pattern.replace(r"\\", r"\")).ok();
    pattern
        .zip(value.as_str())
        .is_some_and(|(pattern, text)| pattern.is_match(text))
}

fn is_every(expression: &Value) -> bool {
    expression
        .as_str()
        .is_some_and(|text| text.contains("@every"))
}

/// Returns true if the text in `field` is another one in every item of a list.
fn are_distinct(list: &Value, field: &str) -> bool {
    let mut seen = BTreeSet::new();
    items(list).all(|item| seen.insert(text(item, field)))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn has(object: &Value, field: &str) -> bool {
    object.get(field).is_some()
}

/// The text in `field`; empty if there is none.
fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object[field].as_str().unwrap_or_default()
}

fn length(object: &Value, field: &str) -> usize {
    text(object, field).chars().count()
}

fn integer(object: &Value, field: &str) -> Option<i64> {
    object[field].as_i64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn a_duration_has_the_seconds_that_a_complete_implementation_finds(
            parts in prop::collection::vec(("[0-9]{1,4}(\\.[0-9]{1,2})?", "ms|s|m|h"), 1..4),
            expected in 0..20_000_000_u64,
        ) {
            let text: String = parts.into_iter().map(|(number, unit)| number + &unit).collect();
            let rule = format!("duration(self).getSeconds() >= {expected}");
            let schema = json!({"x-kubernetes-validations": [{"rule": rule, "message": "no"}]});
            let answer = kube_cel::Validator::new().validate(&schema, &json!(text), None);
            prop_assert_eq!(seconds(&text).unwrap() >= expected, answer.is_ok());
        }
    }
}
