//! Server-side apply: the owners of the fields of an object, as `metadata.managedFields` records them.
//!
//! A path is a list of elements as `fieldsV1` writes them: `f:spec`, `f:replicas`; `k:{"name":"app"}` for an item of a
//! list that is merged by key; `v:"a"` for one of a set. Each owner has the paths of leaves: of texts, numbers, and of
//! lists and objects that change as a whole.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::kinds::{Kind, Trait};

/// Author of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The time of the write, in seconds.
    pub(crate) now: &'a str,
}

/// The fields of another manager that an apply would change: the manager as messages name it, and the fields.
pub(crate) type Conflicts = Vec<(String, Vec<String>)>;

type Path = Vec<String>;
type Fields = BTreeSet<Path>;

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq)]
struct Owner {
    manager: String,
    operation: String,
    subresource: String,
    api_version: String,
    time: String,
    fields: Fields,
}

/// Merging of a value at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Merging {
    /// Objects by field; lists as a whole.
    ByField,
    Whole,
    /// A list, by these fields of its items.
    ByKey(&'static [&'static str]),
    Set,
}

/// Metadata without owners.
const UNOWNED: [&str; 9] = [
    "f:name",
    "f:namespace",
    "f:uid",
    "f:resourceVersion",
    "f:generation",
    "f:creationTimestamp",
    "f:deletionTimestamp",
    "f:deletionGracePeriodSeconds",
    "f:managedFields",
];

/// Records that `after` was written in place of `before`, by anything but an apply.
pub(crate) fn record_update(kind: &Kind, writer: Writer<'_>, before: &Value, after: &mut Value) {
    let mut owners = owners(before);
    let count = kind
        .scale
        .as_ref()
        .filter(|_| writer.subresource == "scale");
    let count: Option<Path> = count.map(|paths| elements(&paths.spec));
    let is_tracked = |owner: &Owner| {
        count
            .as_ref()
            .is_none_or(|path| owner.fields.contains(path))
    };
    // An object, or a scale, without any owner stays without owners until it is applied.
    if before["metadata"]["uid"].is_string() && !owners.iter().any(is_tracked) {
        return write_owners(after, &owners);
    }
    let (old, mut new) = differing_fields(kind, writer, before, after);
    if let Some(path) = count.filter(|path| find(after, path) == Some(&json!(0))) {
        // A scale omits a count of zero.
        new.remove(&path);
    }
    let changed = new.iter().filter(|path| differ(kind, before, after, path));
    let changed: Fields = changed.cloned().collect();
    let removed: Fields = old.difference(&new).cloned().collect();
    let mine = |owner: &Owner| owner.is(writer, "Update");
    for owner in owners.iter_mut().filter(|owner| !mine(owner)) {
        owner
            .fields
            .retain(|path| !changed.contains(path) && !removed.contains(path));
    }
    let own = owners.iter().find(|owner| mine(owner));
    let mut fields = own.map_or_else(Fields::new, |owner| owner.fields.clone());
    fields.extend(changed);
    fields.retain(|path| !removed.contains(path));
    set_owner(&mut owners, kind, writer, ("Update", fields));
    write_owners(after, &owners);
}

/// Applies `config` to an object, or creates it from nothing; returns the new object.
///
/// # Errors
/// Fields of other owners would change, and the apply is not forced.
pub(crate) fn apply(
    kind: &Kind,
    writer: Writer<'_>,
    live: Option<&Value>,
    config: &Value,
    is_forced: bool,
) -> Result<Value, Conflicts> {
    let nothing = json!({});
    let live = live.unwrap_or(&nothing);
    let mut owners = owners(live);
    if owners.is_empty() {
        let untracked = Writer {
            manager: "before-first-apply",
            ..writer
        };
        set_owner(
            &mut owners,
            kind,
            untracked,
            ("Update", owned_fields(kind, untracked, live)),
        );
    }
    let fields = owned_fields(kind, writer, config);
    let mut merged = live.clone();
    merge(kind, &mut merged, config, &mut Path::new());
    let mine = |owner: &Owner| owner.is(writer, "Apply");
    let mut conflicts = Conflicts::new();
    for owner in owners.iter_mut().filter(|owner| !mine(owner)) {
        // The owner of an object that is merged by field does not own its fields.
        let is_whole = |path: &Path| {
            let value = find(&merged, path);
            !value.is_some_and(Value::is_object) || merging(kind, path) == Merging::Whole
        };
        let is_changed = |path: &Path| is_whole(path) && differ(kind, live, &merged, path);
        let taken: Vec<Path> = owner
            .fields
            .intersection(&fields)
            .filter(|path| is_changed(path))
            .cloned()
            .collect();
        owner.fields.retain(|path| !taken.contains(path));
        if !taken.is_empty() {
            conflicts.push((
                owner.described(),
                taken.iter().map(|path| shown(path)).collect(),
            ));
        }
    }
    if !is_forced && !conflicts.is_empty() {
        conflicts.sort();
        return Err(conflicts);
    }
    // Fields that this manager applied before, and that neither it nor another manager wants now.
    let before = owners
        .iter()
        .find(|owner| mine(owner))
        .map(|owner| owner.fields.clone());
    for path in before.unwrap_or_default().difference(&fields) {
        let others = owners.iter().filter(|owner| !mine(owner));
        let mut wanted = others.flat_map(|owner| &owner.fields).chain(&fields);
        if !wanted.any(|other| other.starts_with(path)) {
            remove(&mut merged, path);
        }
    }
    set_owner(&mut owners, kind, writer, ("Apply", fields));
    write_owners(&mut merged, &owners);
    Ok(merged)
}

/// Returns whether two objects differ at a path. An item that is merged by field differs only if one of them lacks it.
fn differ(kind: &Kind, one: &Value, other: &Value, path: &[String]) -> bool {
    let (one, other) = (find(one, path), find(other, path));
    let is_item = path.last().is_some_and(|last| last.starts_with("k:"));
    if is_item && merging(kind, path) == Merging::ByField {
        return one.is_some() != other.is_some();
    }
    one != other
}

/// The paths of an object that a writer may own: those of the status only over its subresource.
fn owned_fields(kind: &Kind, writer: Writer<'_>, object: &Value) -> Fields {
    let mut fields = Fields::new();
    collect(kind, object, &mut Path::new(), &mut fields);
    fields.retain(|path| may_own(kind, writer, path));
    fields
}

/// The owned fields that differ in two objects, without the fields of objects that are equal in both.
fn differing_fields(
    kind: &Kind,
    writer: Writer<'_>,
    one: &Value,
    other: &Value,
) -> (Fields, Fields) {
    let mut fields = (Fields::new(), Fields::new());
    collect_differing(kind, (one, other), &mut Path::new(), &mut fields);
    fields.0.retain(|path| may_own(kind, writer, path));
    fields.1.retain(|path| may_own(kind, writer, path));
    fields
}

fn may_own(kind: &Kind, writer: Writer<'_>, path: &Path) -> bool {
    let is_of_status = path[0] == "f:status";
    match writer.subresource {
        "status" => is_of_status,
        "" if kind.has(Trait::Status) => !is_of_status,
        _ => true,
    }
}

fn collect_differing(
    kind: &Kind,
    (one, other): (&Value, &Value),
    path: &mut Path,
    fields: &mut (Fields, Fields),
) {
    match (one, other, merging(kind, path)) {
        (Value::Object(one), Value::Object(other), Merging::ByField)
            if !one.is_empty() && !other.is_empty() && !is_unowned(kind, path) =>
        {
            let added = other.keys().filter(|name| !one.contains_key(*name));
            for name in one.keys().chain(added) {
                let pair = (one.get(name), other.get(name));
                if pair.0 == pair.1 {
                    continue;
                }
                path.push(format!("f:{name}"));
                match pair {
                    (Some(one), Some(other)) => {
                        collect_differing(kind, (one, other), path, fields);
                    }
                    (Some(one), None) => collect(kind, one, path, &mut fields.0),
                    (None, Some(other)) => collect(kind, other, path, &mut fields.1),
                    (None, None) => {}
                }
                path.pop();
            }
        }
        _ => {
            collect(kind, one, path, &mut fields.0);
            collect(kind, other, path, &mut fields.1);
        }
    }
}

/// Returns whether the value at a path has no owner.
fn is_unowned(kind: &Kind, path: &[String]) -> bool {
    match path {
        [field] => matches!(&**field, "f:apiVersion" | "f:kind" | "f:deprecatedSource"),
        // Values that the server itself sets: the finalizers of a namespace, and the additions of admission to a pod.
        [spec, field] if spec == "f:spec" => match &*kind.kind {
            "Namespace" => field == "f:finalizers",
            "Pod" => matches!(
                &**field,
                "f:priority" | "f:preemptionPolicy" | "f:tolerations"
            ),
            _ => false,
        },
        [metadata, field] => metadata == "f:metadata" && UNOWNED.contains(&&**field),
        _ => false,
    }
}

fn collect(kind: &Kind, value: &Value, path: &mut Path, fields: &mut Fields) {
    if is_unowned(kind, path) {
        return;
    }
    match (value, merging(kind, path)) {
        (Value::Object(object), Merging::ByField) if !object.is_empty() => {
            for (name, field) in object {
                path.push(format!("f:{name}"));
                collect(kind, field, path, fields);
                path.pop();
            }
        }
        (Value::Array(items), by @ (Merging::ByKey(_) | Merging::Set)) => {
            for item in items {
                path.push(element(item, by));
                fields.insert(path.clone());
                if item.is_object() {
                    collect(kind, item, path, fields);
                }
                path.pop();
            }
        }
        _ if path.is_empty() || path[..] == ["f:metadata"] => {}
        _ => drop(fields.insert(path.clone())),
    }
}

/// Merging of the value at a path: the markers `x-kubernetes-list-type` and `x-kubernetes-map-type` of upstream's API.
/// Lists of custom objects have none.
fn merging(kind: &Kind, path: &[String]) -> Merging {
    if path.len() == 3 && path[1] == "f:ownerReferences" {
        return Merging::Whole;
    }
    let is_metadata = path.first().is_some_and(|first| first == "f:metadata");
    match path.last().map(|last| &**last) {
        Some("f:ownerReferences") if is_metadata => Merging::ByKey(&["uid"]),
        Some("f:finalizers") if is_metadata => Merging::Set,
        Some(_) if kind.is_custom || is_metadata => Merging::ByField,
        Some("f:conditions") => Merging::ByKey(&["type"]),
        Some(
            "f:containers" | "f:initContainers" | "f:env" | "f:volumes" | "f:imagePullSecrets",
        ) => Merging::ByKey(&["name"]),
        Some("f:ports") => Merging::ByKey(&["containerPort", "protocol"]),
        Some("f:volumeMounts") => Merging::ByKey(&["mountPath"]),
        Some(
            "f:regarding" | "f:selector" | "f:labelSelector" | "f:nodeSelector" | "f:roleRef"
            | "f:secretKeyRef" | "f:configMapKeyRef",
        ) => Merging::Whole,
        _ => Merging::ByField,
    }
}

/// The element of a path that stands for an item of a list.
fn element(item: &Value, by: Merging) -> String {
    match by {
        Merging::ByKey(keys) => {
            let fields = keys
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone())));
            format!("k:{}", Value::Object(fields.collect()))
        }
        _ => format!("v:{item}"),
    }
}

fn merge(kind: &Kind, live: &mut Value, config: &Value, path: &mut Path) {
    match (&mut *live, config, merging(kind, path)) {
        (Value::Object(fields), Value::Object(wanted), Merging::ByField) => {
            for (name, value) in wanted {
                path.push(format!("f:{name}"));
                merge(
                    kind,
                    fields.entry(name.clone()).or_insert(Value::Null),
                    value,
                    path,
                );
                path.pop();
            }
        }
        (Value::Array(items), Value::Array(wanted), by @ (Merging::ByKey(_) | Merging::Set)) => {
            for value in wanted {
                let key = element(value, by);
                match items.iter_mut().find(|item| element(item, by) == key) {
                    Some(item) => {
                        path.push(key);
                        merge(kind, item, value, path);
                        path.pop();
                    }
                    None => items.push(value.clone()),
                }
            }
        }
        _ => config.clone_into(live),
    }
}

/// The value at a path.
fn find<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter()
        .try_fold(value, |value, element| match element.split_at(2) {
            ("f:", name) => value.get(name),
            _ => value.as_array()?.iter().find(|item| is_at(item, element)),
        })
}

/// The path of a JSON pointer to a field.
fn elements(pointer: &str) -> Path {
    pointer
        .split('/')
        .skip(1)
        .map(|name| format!("f:{name}"))
        .collect()
}

/// Removes the value at a path, and objects that become empty.
fn remove(value: &mut Value, path: &[String]) {
    match (value, path) {
        (Value::Object(fields), [last]) => drop(fields.remove(&last[2..])),
        (Value::Array(items), [last]) => items.retain(|item| !is_at(item, last)),
        (Value::Object(fields), [first, rest @ ..]) => {
            let Some(field) = fields.get_mut(&first[2..]) else {
                return;
            };
            remove(field, rest);
            if field.as_object().is_some_and(Map::is_empty)
                || field.as_array().is_some_and(Vec::is_empty)
            {
                fields.remove(&first[2..]);
            }
        }
        (Value::Array(items), [first, rest @ ..]) => {
            let item = items.iter_mut().find(|item| is_at(item, first));
            if let Some(item) = item {
                remove(item, rest);
            }
        }
        _ => {}
    }
}

/// Returns whether an item of a list is the one that an element stands for.
fn is_at(item: &Value, element: &str) -> bool {
    let (by, key) = element.split_at(2);
    let Ok(key) = serde_json::from_str::<Value>(key) else {
        return false;
    };
    match key.as_object().filter(|_| by == "k:") {
        Some(keys) => keys
            .iter()
            .all(|(name, value)| item.get(name) == Some(value)),
        None => *item == key,
    }
}

/// A path as messages write it: `.spec.containers[name="app"].image`.
fn shown(path: &[String]) -> String {
    let element = |element: &String| match element.split_at(2) {
        ("f:", name) => format!(".{name}"),
        ("k:", keys) => {
            let keys: Value = serde_json::from_str(keys).unwrap_or_default();
            let keys = keys.as_object().into_iter().flatten();
            let keys: Vec<String> = keys
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!("[{}]", keys.join(","))
        }
        (_, value) => format!("[={value}]"),
    };
    path.iter().map(element).collect()
}

// === impl Owner ===

impl Owner {
    fn is(&self, writer: Writer<'_>, operation: &str) -> bool {
        self.manager == writer.manager
            && self.subresource == writer.subresource
            && self.operation == operation
    }

    fn described(&self) -> String {
        let subresource = match &*self.subresource {
            "" => String::new(),
            subresource => format!(" with subresource \"{subresource}\""),
        };
        let using = match &*self.operation {
            "Update" => format!(" using {}", self.api_version),
            _ => String::new(),
        };
        format!("\"{}\"{subresource}{using}", self.manager)
    }

    fn read(entry: &Value) -> Self {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let mut fields = Fields::new();
        read_fields(&entry["fieldsV1"], &mut Path::new(), &mut fields);
        Self {
            manager: text("manager"),
            operation: text("operation"),
            subresource: text("subresource"),
            api_version: text("apiVersion"),
            time: text("time"),
            fields,
        }
    }

    fn entry(&self) -> Value {
        let mut tree = json!({});
        for path in &self.fields {
            write_field(&mut tree, path);
        }
        let mut entry = json!({
            "manager": self.manager, "operation": self.operation, "apiVersion": self.api_version, "time": self.time,
            "fieldsType": "FieldsV1", "fieldsV1": tree,
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = json!(self.subresource);
        }
        entry
    }
}

/// The owners of the fields of an object.
fn owners(object: &Value) -> Vec<Owner> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().map(Owner::read).collect()
}

fn write_owners(object: &mut Value, owners: &[Owner]) {
    let owners = owners.iter().filter(|owner| !owner.fields.is_empty());
    let entries: Vec<Value> = owners.map(Owner::entry).collect();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }
}

/// Gives a writer these fields; the time changes only with them.
fn set_owner(
    owners: &mut Vec<Owner>,
    kind: &Kind,
    writer: Writer<'_>,
    (operation, fields): (&str, Fields),
) {
    let owner = match owners.iter_mut().find(|owner| owner.is(writer, operation)) {
        Some(owner) if owner.fields == fields => return,
        Some(owner) => owner,
        None => owners.push_mut(Owner {
            manager: writer.manager.to_owned(),
            operation: operation.to_owned(),
            subresource: writer.subresource.to_owned(),
            api_version: kind.api_version(),
            time: String::new(),
            fields: Fields::new(),
        }),
    };
    owner.fields = fields;
    writer.now.clone_into(&mut owner.time);
}

fn read_fields(tree: &Value, path: &mut Path, fields: &mut Fields) {
    let children = tree.as_object().into_iter().flatten();
    let mut is_leaf = true;
    for (element, child) in children {
        if element == "." {
            fields.insert(path.clone());
        } else {
            path.push(element.clone());
            read_fields(child, path, fields);
            path.pop();
        }
        is_leaf = false;
    }
    if is_leaf && !path.is_empty() {
        fields.insert(path.clone());
    }
}

fn write_field(tree: &mut Value, path: &[String]) {
    let Some(node) = tree.as_object_mut() else {
        return;
    };
    match path {
        // Paths come in order, so that of an item comes before those in it.
        [] => {}
        [first, rest @ ..] => {
            let is_owned_itself = |child: &Map<String, Value>| child.is_empty() && !rest.is_empty();
            let is_new = !node.contains_key(first);
            let child = node.entry(first.clone()).or_insert_with(|| json!({}));
            if let Some(fields) = child.as_object_mut()
                && !is_new
                && is_owned_itself(fields)
            {
                fields.insert(".".to_owned(), json!({}));
            }
            write_field(child, rest);
        }
    }
}
