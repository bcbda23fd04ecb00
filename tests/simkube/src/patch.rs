//! Merge patches (RFC 7386) and JSON patches (RFC 6902), with the errors and the leniency of the library that the API
//! server uses.

use serde_json::{Map, Value};

/// Merges a patch into a value: objects by field, everything else as a whole; a null removes.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        patch.clone_into(target);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(fields) = target {
        for (key, value) in patch {
            if value.is_null() {
                fields.remove(key);
            } else {
                merge(fields.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

/// Applies the operations of a JSON patch in order.
///
/// # Errors
/// The first operation that cannot be applied, as the API server words it.
pub(crate) fn apply_operations(target: &mut Value, operations: &Value) -> Result<(), String> {
    let operations = operations
        .as_array()
        .ok_or("expected a list of operations")?;
    for operation in operations {
        let text = |field: &str| operation[field].as_str().unwrap_or_default();
        apply(target, text("op"), text("path"), &operation["value"])?;
    }
    Ok(())
}

fn apply(target: &mut Value, op: &str, path: &str, value: &Value) -> Result<(), String> {
    if op == "test" {
        // An absent field equals null.
        return if target.pointer(path).unwrap_or(&Value::Null) == value {
            Ok(())
        } else {
            Err(format!("testing value {path} failed: test failed"))
        };
    }
    let missing = |why: &str| format!("{op} operation does not apply: doc is missing {why}");
    let (parent, last) = path.rsplit_once('/').unwrap_or_default();
    let last = last.replace("~1", "/").replace("~0", "~");
    let no_parent = || missing(&format!("path: \"{path}\": missing value"));
    let no_key = || missing(&format!("key: {path}: missing value"));
    match target.pointer_mut(parent).ok_or_else(no_parent)? {
        Value::Object(fields) => match op {
            // The library also replaces absent fields.
            "add" | "replace" => drop(fields.insert(last, value.clone())),
            "remove" => drop(fields.remove(&last).ok_or_else(no_key)?),
            other => return Err(format!("unexpected kind: {other}")),
        },
        Value::Array(items) => {
            let index = if last == "-" {
                items.len()
            } else {
                last.parse().map_err(|_| no_key())?
            };
            match op {
                "add" if index <= items.len() => items.insert(index, value.clone()),
                "replace" => *items.get_mut(index).ok_or_else(no_key)? = value.clone(),
                "remove" if index < items.len() => drop(items.remove(index)),
                _ => return Err(no_key()),
            }
        }
        _ => return Err(no_parent()),
    }
    Ok(())
}
