//! Answers without the differences between two servers that behave alike.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Exchange;

/// The UIDs and versions that have appeared: words with the object and the number of each.
#[derive(Debug, Default)]
pub(super) struct Normal {
    uids: BTreeMap<String, String>,
    versions: BTreeMap<String, String>,
}

/// Differences of two runs of the script: the request, and the answer of each server.
pub fn differences(ours: &[Exchange], theirs: &[Exchange]) -> Vec<String> {
    let mut found = Vec::new();
    for (ours, theirs) in ours.iter().zip(theirs) {
        let mut paths = Vec::new();
        if ours.code != theirs.code {
            paths.push(format!("code: {} here, {} there", ours.code, theirs.code));
        }
        compare("", &ours.answer, &theirs.answer, &mut paths);
        if !paths.is_empty() {
            found.push(format!("{}\n    {}", ours.request, paths.join("\n    ")));
        }
    }
    if ours.len() != theirs.len() {
        found.push(format!(
            "{} exchanges here, {} there",
            ours.len(),
            theirs.len()
        ));
    }
    found
}

fn compare(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let (a, b) = (
                    a.get(key).unwrap_or(&Value::Null),
                    b.get(key).unwrap_or(&Value::Null),
                );
                compare(&format!("{path}.{key}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{n}]"), a, b, found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path}: {ours} here, {theirs} there")),
    }
}

impl Normal {
    /// The UID or the version that a word stands for.
    pub(super) fn value_of(&self, word: &str) -> Option<&str> {
        let mut all = self.uids.iter().chain(&self.versions);
        all.find(|(_, known)| *known == word)
            .map(|(value, _)| &**value)
    }

    /// The normalized answer.
    pub(super) fn of(&mut self, answer: &Value) -> Value {
        match answer {
            Value::Object(fields) => {
                let is_list = fields
                    .get("kind")
                    .and_then(Value::as_str)
                    .is_some_and(|kind| kind.ends_with("List"));
                let is_bookmark = fields.get("type").is_some_and(|kind| kind == "BOOKMARK");
                let normal = fields.iter().map(|(name, value)| {
                    let value = match (&**name, value) {
                        ("metadata", metadata) if is_list => list_metadata(metadata),
                        ("object", object) if is_bookmark => json!(object["kind"]),
                        ("metadata", metadata) => self.metadata(metadata),
                        // Sorted, because they have no order.
                        ("causes", causes) => sorted(self.of(causes)),
                        (_, value) => self.of(value),
                    };
                    (name.clone(), value)
                });
                Value::Object(normal.collect())
            }
            Value::Array(items) => items.iter().map(|item| self.of(item)).collect(),
            Value::String(text) => json!(self.text(text)),
            other => other.clone(),
        }
    }

    fn metadata(&mut self, metadata: &Value) -> Value {
        let Value::Object(fields) = metadata else {
            return self.of(metadata);
        };
        let text = |field: &str| fields.get(field).and_then(Value::as_str);
        let generated = text("generateName");
        let name = generated.or(text("name")).unwrap_or_default();
        if let Some(uid) = text("uid") {
            let uid = word(&format!("{name}#"), &mut self.uids, uid);
            if let Some(version) = text("resourceVersion") {
                word(&format!("{uid}@"), &mut self.versions, version);
            }
        }
        let normal = fields.iter().map(|(name, value)| {
            let value = match (&**name, value) {
                ("resourceVersion", Value::String(version)) => json!(self.versions.get(version)),
                ("creationTimestamp" | "deletionTimestamp", Value::String(_)) => json!("time"),
                ("name", Value::String(_)) if generated.is_some() => json!("generated"),
                ("managedFields", Value::Array(entries)) => {
                    let owners = self.of(&owners(entries));
                    let owners = owners.as_array().into_iter().flatten();
                    sorted(owners.cloned().map(sorted_leaves).collect())
                }
                (_, value) => self.of(value),
            };
            (name.clone(), value)
        });
        Value::Object(normal.collect())
    }

    /// A text in which UIDs, times and revisions are replaced, word by word.
    fn text(&mut self, text: &str) -> String {
        let words =
            text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | ':'));
        let words = words.map(|word| {
            let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            let end = &word[bare.len()..];
            if let Some(known) = self.uids.get(bare) {
                format!("{known}{end}")
            } else if text.len() > bare.len() + 12 && bare.parse::<Timestamp>().is_ok() {
                format!("time{end}")
            } else if bare.len() >= 3
                && bare.chars().all(|c| c.is_ascii_digit())
                && text.contains("ersion")
            {
                format!("N{end}")
            } else {
                word.to_owned()
            }
        });
        words.collect()
    }
}

/// Metadata of a list without its version, which is that of the last write to anything.
fn list_metadata(metadata: &Value) -> Value {
    let fields = metadata.as_object().into_iter().flatten();
    let present = fields.filter(|(_, value)| !value.is_null());
    let normal = present.map(|(name, value)| {
        let is_some = value.as_str().is_some_and(|text| !text.is_empty());
        let value = if is_some {
            json!("some")
        } else {
            value.clone()
        };
        (name.clone(), value)
    });
    Value::Object(normal.collect())
}

/// The word for a value: the prefix, and a number among the values with that prefix.
fn word(prefix: &str, known: &mut BTreeMap<String, String>, value: &str) -> String {
    let next = known
        .values()
        .filter(|word| word.starts_with(prefix))
        .count()
        + 1;
    known
        .entry(value.to_owned())
        .or_insert_with(|| format!("{prefix}{next}"))
        .clone()
}

/// The items in the order of their text.
pub(super) fn sorted(mut items: Value) -> Value {
    if let Some(items) = items.as_array_mut() {
        items.sort_by_key(Value::to_string);
    }
    items
}

/// The owners of leaves: manager, operation, subresource, version, and the paths.
fn owners(entries: &[Value]) -> Value {
    let owner = |entry: &Value| {
        let mut paths = Vec::new();
        leaves(&entry["fieldsV1"], "", &mut paths);
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let [manager, operation] = ["manager", "operation"].map(text);
        json!([
            manager,
            operation,
            text("subresource"),
            text("apiVersion"),
            paths
        ])
    };
    entries.iter().map(owner).collect()
}

fn sorted_leaves(mut owner: Value) -> Value {
    let paths = owner[4].take();
    owner[4] = sorted(paths);
    owner
}

fn leaves(tree: &Value, path: &str, paths: &mut Vec<String>) {
    let children = tree
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(element, _)| *element != ".");
    let mut is_leaf = true;
    for (element, child) in children {
        is_leaf = false;
        leaves(child, &format!("{path} {element}"), paths);
    }
    if is_leaf {
        paths.push(path.trim_start().to_owned());
    }
}
