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
        // A field that is not there equals null.
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
            // The library replaces what is not there as well.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_sets_and_removes_fields() {
        // The examples of RFC 7386, appendix A, of which the target or the patch is an object.
        for (target, patch, merged) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"e": null, "a": 1}),
            ),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut value = target;
            merge(&mut value, &patch);
            assert_eq!(value, merged, "{patch}");
        }
    }

    #[test]
    fn operations_change_fields_and_items_and_fail_without_their_place() {
        let object = json!({"a": {"b/c": 1}, "list": [1, 2]});
        for (operation, outcome) in [
            (
                json!({"op": "add", "path": "/a/x", "value": 2}),
                Some(json!({"a": {"b/c": 1, "x": 2}, "list": [1, 2]})),
            ),
            (
                json!({"op": "replace", "path": "/a/b~1c", "value": 3}),
                Some(json!({"a": {"b/c": 3}, "list": [1, 2]})),
            ),
            (
                json!({"op": "remove", "path": "/a/b~1c"}),
                Some(json!({"a": {}, "list": [1, 2]})),
            ),
            (
                json!({"op": "add", "path": "/list/-", "value": 3}),
                Some(json!({"a": {"b/c": 1}, "list": [1, 2, 3]})),
            ),
            (
                json!({"op": "add", "path": "/list/0", "value": 0}),
                Some(json!({"a": {"b/c": 1}, "list": [0, 1, 2]})),
            ),
            (
                json!({"op": "remove", "path": "/list/0"}),
                Some(json!({"a": {"b/c": 1}, "list": [2]})),
            ),
            (
                json!({"op": "test", "path": "/none", "value": null}),
                Some(object.clone()),
            ),
            (json!({"op": "test", "path": "/a/b~1c", "value": 2}), None),
            (json!({"op": "add", "path": "/none/x", "value": 1}), None),
            (json!({"op": "remove", "path": "/none"}), None),
            (json!({"op": "add", "path": "/list/9", "value": 1}), None),
            (json!({"op": "move", "path": "/a"}), None),
        ] {
            let mut value = object.clone();
            let applied = apply_operations(&mut value, &json!([operation.clone()]));
            assert_eq!(applied.ok().map(|()| value), outcome, "{operation}");
        }
    }

    proptest! {
        /// A merge patch applied twice is the same as applied once.
        #[test]
        fn a_merge_patch_is_idempotent(target: [Option<u8>; 4], patch: [Option<u8>; 4]) {
            let object = |fields: [Option<u8>; 4]| {
                let fields = fields.into_iter().enumerate();
                Value::Object(fields.map(|(n, value)| (n.to_string(), value.into())).collect())
            };
            let (mut once, patch) = (object(target), object(patch));
            merge(&mut once, &patch);
            let mut twice = once.clone();
            merge(&mut twice, &patch);
            prop_assert_eq!(once, twice);
        }
    }
}
