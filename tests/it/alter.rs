//! Changes of JSON by the bytes of a fuzzer.

use serde_json::{Value, json};

/// Walks down by the first bytes, and replaces the value there by the one that the last byte names.
pub(crate) fn alter(object: &mut Value, change: &[u8]) {
    let Some((last, walk)) = change.split_last() else {
        return;
    };
    let mut at = object;
    for step in walk {
        let count = match &*at {
            Value::Object(members) => members.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if count == 0 || *step == 0 {
            break;
        }
        let index = usize::from(*step) % count;
        at = match at {
            Value::Object(members) => members.values_mut().nth(index).unwrap(),
            Value::Array(items) => &mut items[index],
            _ => unreachable!(),
        };
    }
    *at = odd(*last, at);
}

/// A value in place of `old`: some are plausible, some are not.
fn odd(which: u8, old: &Value) -> Value {
    match which % 24 {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(0),
        3 => json!(i64::MAX),
        4 => json!(i32::MAX),
        5 => json!(i32::MIN),
        6 => json!(0.5),
        7 => json!(1e300),
        8 => json!(""),
        9 => json!("9223372036854775807Ei"),
        10 => json!("-1n"),
        11 => json!("0 0 30 2 *"),
        12 => json!("TZ=Europe/Berlin 30 2 * * *"),
        13 => json!("Local"),
        14 => json!("999999999d"),
        15 => json!("1e999"),
        16 => json!("\u{1f980}"),
        17 => json!([]),
        18 => json!({}),
        19 => json!([old, old]),
        20 => json!({ "name": old }),
        21 => json!(true),
        22 => json!("x".repeat(300)),
        _ => json!("Object"),
    }
}
