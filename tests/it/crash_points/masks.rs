//! What may differ between two runs that reach the same: times, identities, measured values and sentences.

use serde_json::{Map, Value};

/// Fields of a status that are times, measured values, or the sentences that name them. A change of one of them alone is
/// not worth a write of the status either.
const MASKED: [&str; 13] = [
    "changes",
    "lastTransitionTime",
    "lastScaleTime",
    "lastTransfer",
    "observed",
    "time",
    "leaderEpoch",
    "message",
    "history",
    "value",
    "capacity",
    "utilization",
    "observedGeneration",
];

/// Timers of the ledger.
const TIMERS: [&str; 13] = [
    "landing",
    "optimized",
    "shrunk",
    "excessSince",
    "idleSince",
    "woken",
    "moved",
    "saturatedSince",
    "slept",
    "recovered",
    "tainted",
    "local",
    "needed",
];

/// The reasons in a member's row that say how it came to its bounds, while the member has no problem. A controller that ends
/// between a move and the status with its reason leaves no trace of the reason, only of the move.
const MOVES: [&str; 14] = [
    "Assigned",
    "Donor",
    "Floor",
    "FloorLifted",
    "Landed",
    "Optimized",
    "Relief",
    "Restored",
    "Saturated",
    "ShrinkOrder",
    "Slept",
    "Starved",
    "Steady",
    "Woken",
];

/// A status without what may differ.
pub(super) fn status(mut status: Value) -> Value {
    if let Some(ledger) = status.get_mut("ledger") {
        *ledger = serde_json::from_str(ledger.as_str().unwrap()).unwrap();
        mask(ledger, &|field, value| {
            if TIMERS.contains(&field) {
                *value = Value::from("a time");
            }
        });
    }
    let rows = status.get_mut("clusters").and_then(Value::as_array_mut);
    for reason in rows
        .into_iter()
        .flatten()
        .filter_map(|row| row.get_mut("reason"))
    {
        let word = reason
            .as_str()
            .unwrap()
            .split(':')
            .next()
            .unwrap_or_default();
        *reason = if MOVES.contains(&word) {
            "Steady"
        } else {
            word
        }
        .into();
    }
    mask(&mut status, &|field, value| {
        if MASKED.contains(&field) {
            *value = Value::Null;
        }
    });
    status
}

/// The spec of an HPA without what may differ: after a restart, a minimum that was raised to lead the HPA to a count
/// stays until fewer are needed; up to the present count it has no effect.
pub(super) fn hpa_spec(mut spec: Value, replicas: u32) -> Value {
    if let Some(min) = spec.get_mut("minReplicas")
        && min.as_u64() <= Some(replicas.into())
    {
        *min = Value::from("no more than there are");
    }
    spec
}

fn mask(value: &mut Value, change: &impl Fn(&str, &mut Value)) {
    let fields = |fields: &mut Map<String, Value>| {
        for (field, value) in fields {
            change(field, value);
            mask(value, change);
        }
    };
    match value {
        Value::Object(object) => fields(object),
        Value::Array(all) => all.iter_mut().for_each(|value| mask(value, change)),
        _ => {}
    }
}

/// The paths below `path` at which two values differ, with both.
pub(super) fn differing(path: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(before), Value::Object(after)) => {
            let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
            for name in names {
                let of =
                    |object: &Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                differing(&format!("{path}.{name}"), &of(before), &of(after), found);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (position, (before, after)) in before.iter().zip(after).enumerate() {
                differing(&format!("{path}[{position}]"), before, after, found);
            }
        }
        (before, after) if before == after => {}
        (before, after) => found.push(format!("{path}: {after} instead of {before}")),
    }
}
