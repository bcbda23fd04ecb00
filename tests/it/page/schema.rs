//! Comparison of a value with a JSON Schema, for the keywords that schemars writes. A member that the schema does not
//! name is a mistake, too: all answers of the API are described.

use serde_json::Value;

/// The first place at which `value` does not match `schema`; none if there is no such place.
pub(super) fn mismatch(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    let checked = Checked { document };
    checked.mismatch(schema, value, "")
}

struct Checked<'a> {
    document: &'a Value,
}

// === impl Checked ===

impl Checked<'_> {
    fn mismatch(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.document.pointer(reference.trim_start_matches('#'));
            return self.mismatch(target.expect(reference), value, at);
        }
        for choice in ["anyOf", "oneOf"] {
            if let Some(choices) = schema[choice].as_array() {
                let fits = |choice: &Value| self.mismatch(choice, value, at).is_none();
                return (!choices.iter().any(fits))
                    .then(|| format!("{at}: {value} fits no choice"));
            }
        }
        let constant = schema
            .get("const")
            .is_some_and(|constant| constant != value);
        let outside = schema["enum"]
            .as_array()
            .is_some_and(|all| !all.contains(value));
        if constant || outside || !has_type(&schema["type"], value) {
            return Some(format!("{at}: {value} is not {schema}"));
        }
        match value {
            Value::Object(_) => self.member_mismatch(schema, value, at),
            Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
                let schema = schema.get("items")?;
                self.mismatch(schema, item, &format!("{at}/{index}"))
            }),
            _ => None,
        }
    }

    fn member_mismatch(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        let required = schema["required"].as_array();
        let missing = required
            .into_iter()
            .flatten()
            .find(|name| value.get(name.as_str().unwrap()).is_none());
        if let Some(name) = missing {
            return Some(format!("{at}: {name} is missing"));
        }
        value
            .as_object()
            .unwrap()
            .iter()
            .find_map(|(name, member)| {
                let at = format!("{at}/{name}");
                let named = schema.pointer(&format!(
                    "/properties/{}",
                    name.replace('~', "~0").replace('/', "~1")
                ));
                match named.or_else(|| schema.get("additionalProperties")) {
                    Some(schema) => self.mismatch(schema, member, &at),
                    // A schema without properties accepts any.
                    None => schema
                        .get("properties")
                        .map(|_| format!("{at} is not described")),
                }
            })
    }
}

fn has_type(types: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    };
    match types {
        Value::Null => true,
        Value::Array(types) => types.iter().any(is),
        one => is(one),
    }
}

#[test]
fn what_is_not_described_is_found() {
    use serde_json::json;

    let document =
        json!({ "components": { "schemas": { "Word": { "enum": ["short", "fine"] } } } });
    let schema = json!({
        "type": "object",
        "required": ["word"],
        "properties": {
            "word": { "$ref": "#/components/schemas/Word" },
            "count": { "type": ["integer", "null"] },
            "rows": { "type": "array", "items": { "anyOf": [{ "type": "string" }, { "type": "null" }] } },
            "by": { "type": "object", "additionalProperties": { "type": "number" } },
        },
    });
    let good = json!({ "word": "fine", "count": null, "rows": ["a", null], "by": { "a": 1.5 } });
    assert_eq!(mismatch(&document, &schema, &good), None);
    for (bad, at) in [
        (json!({ "count": 1 }), ": \"word\" is missing"),
        (json!({ "word": "odd" }), "/word: "),
        (json!({ "word": "fine", "count": 1.5 }), "/count: "),
        (
            json!({ "word": "fine", "more": 1 }),
            "/more is not described",
        ),
        (json!({ "word": "fine", "rows": ["a", 1] }), "/rows/1: "),
        (json!({ "word": "fine", "by": { "a": "1" } }), "/by/a: "),
    ] {
        let found = mismatch(&document, &schema, &bad).unwrap();
        assert!(found.starts_with(at), "{found}");
    }
}
