//! YAML texts as Kubernetes objects that keep their line numbers.
//!
//! A [`Document`] gives plain JSON for validation, and the line of a field path for messages.

use std::{fmt, sync::Arc};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA, ScaleStrategy};
use foretide_domain::api_group;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use crate::Error;
use foretide_api::autoscaler::Autoscaler;
use foretide_base::error::yaml;

/// Annotation in which `kubectl apply` keeps the last manifest.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// One object of a file.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    root: Node,
}

/// A place in a file, as editors and terminals link it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Name of the file.
    pub file: String,
    /// Line, from 1; absent where it is not known.
    pub line: Option<u64>,
}

/// A text that is not YAML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct YamlError {
    /// Place of the first error.
    pub place: Location,
    /// Description of the error.
    pub message: String,
}

/// A value and the line it begins on.
#[derive(Clone, Debug)]
struct Node {
    line: u64,
    value: Tree,
}

/// A value of YAML, with everything below it.
#[derive(Clone, Debug)]
enum Tree {
    Scalar(Value),
    List(Vec<Node>),
    Object(Vec<(Key, Node)>),
}

/// Name of a member, and its line.
#[derive(Clone, Debug)]
struct Key {
    line: u64,
    name: String,
}

// === impl Document ===

impl Document {
    /// An object that was not read from text, so its fields have no lines; `origin` stands for the file.
    pub fn of(origin: String, value: &Value) -> Self {
        Self {
            file: origin,
            root: Node::of(value),
        }
    }

    /// The text of a member at the top, such as `kind`; empty if there is none.
    #[must_use]
    pub fn text(&self, member: &str) -> &str {
        match self.root.member(member).map(|(_, node)| &node.value) {
            Some(Tree::Scalar(Value::String(text))) => text,
            _ => "",
        }
    }

    /// Group and version before the slash, such as `apps`; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        api_group(self.text("apiVersion"))
    }

    /// `metadata.name`; empty if there is none.
    #[must_use]
    pub fn name(&self) -> String {
        self.metadata("name")
    }

    /// `metadata.namespace`; empty if there is none.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.metadata("namespace")
    }

    /// The names of the members at the top; none if the document is no object.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        let members = match &self.root.value {
            Tree::Object(members) => members.as_slice(),
            Tree::Scalar(_) | Tree::List(_) => &[],
        };
        members.iter().map(|(key, _)| key.name.as_str())
    }

    /// Name of the document's shape, such as `a list`, if it is no object.
    pub fn other_shape(&self) -> Option<&'static str> {
        match &self.root.value {
            Tree::Object(_) => None,
            Tree::List(_) => Some("a list"),
            Tree::Scalar(Value::String(_)) => Some("a text"),
            Tree::Scalar(Value::Number(_)) => Some("a number"),
            Tree::Scalar(_) => Some("a value"),
        }
    }

    /// The object as plain JSON.
    #[must_use]
    pub fn value(&self) -> Value {
        self.root.plain()
    }

    /// Place of the beginning of the object.
    #[must_use]
    pub fn place(&self) -> Location {
        Location {
            file: self.file.clone(),
            line: known(self.root.line),
        }
    }

    /// The location of a field such as `spec.crons[0].start`, or of its nearest parent if the field does not exist.
    #[must_use]
    pub fn find(&self, path: &str) -> Location {
        self.locate(steps(path))
    }

    /// The location of an annotation, as [`Self::find`].
    pub fn find_annotation(&self, name: &str) -> Location {
        self.locate(["metadata", "annotations", name].into_iter())
    }

    fn locate<'a>(&self, steps: impl Iterator<Item = &'a str>) -> Location {
        let mut node = &self.root;
        let mut line = node.line;
        for step in steps {
            let Some((at, below)) = node.step(step) else {
                break;
            };
            line = at;
            node = below;
        }
        Location {
            file: self.file.clone(),
            line: known(line),
        }
    }

    fn metadata(&self, member: &str) -> String {
        let text = self
            .root
            .member("metadata")
            .and_then(|(_, metadata)| metadata.member(member));
        match text.map(|(_, node)| &node.value) {
            Some(Tree::Scalar(Value::String(text))) => text.clone(),
            _ => String::new(),
        }
    }
}

// === impl Location ===

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// The objects of a text.
///
/// # Errors
/// The text is not YAML.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>, YamlError> {
    let roots = serde_saphyr::from_multiple::<Node>(text).map_err(|error| {
        let (line, message) = yaml(&error, text);
        let file = file.to_owned();
        YamlError {
            place: Location { file, line },
            message,
        }
    })?;
    let documents = roots.into_iter().map(|root| Document {
        file: file.to_owned(),
        root,
    });
    Ok(documents.flat_map(expanded).collect())
}

/// The items of a `List`, or the object itself.
fn expanded(document: Document) -> Vec<Document> {
    let is_list = document.text("kind") == "List" && document.text("apiVersion") == "v1";
    match document.root.member("items").map(|(_, items)| &items.value) {
        Some(Tree::List(items)) if is_list => {
            let item = |root: &Node| Document {
                file: document.file.clone(),
                root: root.clone(),
            };
            items.iter().map(item).collect()
        }
        _ => vec![document],
    }
}

/// An autoscaler as a manifest to be applied: without its status, and without the fields that the API server sets.
///
/// # Errors
/// The object cannot be written as YAML.
pub fn written(autoscaler: &Autoscaler) -> Result<String, Error> {
    let cleaned = |metadata: &ObjectMeta| ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone().map(|mut annotations| {
            annotations.remove(LAST_APPLIED);
            annotations
        }),
        ..ObjectMeta::default()
    };
    let text = match autoscaler {
        Autoscaler::Effective(ehpa) => serde_saphyr::to_string(&EffectiveHorizontalPodAutoscaler {
            metadata: cleaned(&ehpa.metadata),
            spec: ehpa.spec.clone(),
            status: None,
        }),
        Autoscaler::Federated(fdhpa) => serde_saphyr::to_string(&FederatedHPA {
            metadata: cleaned(&fdhpa.metadata),
            spec: fdhpa.spec.clone(),
            status: None,
        }),
    };
    Ok(text?)
}

/// Switches an autoscaler to Preview, as `foretide convert` does: applying the manifest of a report must not make it
/// act.
pub fn preview(autoscaler: &mut Autoscaler) {
    if let Autoscaler::Effective(ehpa) = autoscaler {
        Arc::make_mut(ehpa).spec.scale_strategy = Some(ScaleStrategy::Preview);
    }
}

fn known(line: u64) -> Option<u64> {
    (line > 0).then_some(line)
}

/// The steps of a path: `spec.crons[0].start` as `spec`, `crons`, `0`, `start`.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[', ']']).filter(|step| !step.is_empty())
}

// === impl Node ===

impl Node {
    fn of(value: &Value) -> Self {
        let value = match value {
            Value::Array(items) => Tree::List(items.iter().map(Self::of).collect()),
            Value::Object(members) => {
                let members = members.iter().map(|(name, member)| {
                    let name = name.clone();
                    (Key { line: 0, name }, Self::of(member))
                });
                Tree::Object(members.collect())
            }
            scalar => Tree::Scalar(scalar.clone()),
        };
        Self { line: 0, value }
    }

    fn member(&self, name: &str) -> Option<(u64, &Self)> {
        match &self.value {
            Tree::Object(members) => {
                let (key, node) = members.iter().find(|(key, _)| key.name == name)?;
                Some((if key.line > 0 { key.line } else { node.line }, node))
            }
            Tree::Scalar(_) | Tree::List(_) => None,
        }
    }

    fn step(&self, step: &str) -> Option<(u64, &Self)> {
        match &self.value {
            Tree::List(items) => {
                let node = items.get(step.parse::<usize>().ok()?)?;
                Some((node.line, node))
            }
            Tree::Object(_) => self.member(step),
            Tree::Scalar(_) => None,
        }
    }

    fn plain(&self) -> Value {
        match &self.value {
            Tree::Scalar(value) => value.clone(),
            Tree::List(items) => items.iter().map(Self::plain).collect(),
            Tree::Object(members) => {
                let members = members
                    .iter()
                    .map(|(key, node)| (key.name.clone(), node.plain()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Tree>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            name: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Tree, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = object.next_entry()? {
            members.push(member);
        }
        Ok(Tree::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TWO: &str = "\
# first comes a comment
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
---
apiVersion: autoscaling.crane.io/v1alpha1
kind: EffectiveHorizontalPodAutoscaler
spec:
  maxReplicas: 10
  crons:
    - name: day
      start: \"0 9 * * *\"
    -
      name: night
  quoted: '10'
  ratio: 0.5
  nothing:
";

    #[test]
    fn documents_are_read_as_plain_json() {
        let documents = parse("two.yaml", TWO).unwrap();
        assert_eq!(documents.len(), 2);
        assert_eq!(
            documents
                .iter()
                .map(|d| (d.text("kind"), d.name(), d.namespace()))
                .collect::<Vec<_>>(),
            [
                ("Deployment", "web".to_owned(), "shop".to_owned()),
                (
                    "EffectiveHorizontalPodAutoscaler",
                    String::new(),
                    String::new()
                ),
            ]
        );
        assert_eq!(documents[0].group(), "apps");
        assert_eq!(
            documents[1].value(),
            json!({
                "apiVersion": "autoscaling.crane.io/v1alpha1",
                "kind": "EffectiveHorizontalPodAutoscaler",
                "spec": {
                    "maxReplicas": 10,
                    "crons": [{"name": "day", "start": "0 9 * * *"}, {"name": "night"}],
                    "quoted": "10",
                    "ratio": 0.5,
                    "nothing": null,
                },
            })
        );
    }

    #[test]
    fn a_field_is_found_by_its_path_and_a_missing_one_by_its_parent() {
        let documents = parse("two.yaml", TWO).unwrap();
        let line = |path| documents[1].find(path).line;
        for (path, expected) in [
            ("spec.maxReplicas", 9),
            ("spec.crons", 10),
            ("spec.crons[0]", 11),
            ("spec.crons[0].start", 12),
            ("spec.crons[0].end", 11),
            ("spec.crons[1].name", 14),
            ("spec.crons[7].name", 10),
            ("spec.scaleTargetRef.kind", 8),
            ("spec.crons[].name", 10),
            ("", 6),
        ] {
            assert_eq!(line(path), Some(expected), "{path}");
        }
        assert_eq!(documents[1].find("spec.ratio").to_string(), "two.yaml:16");
    }

    #[test]
    fn a_list_is_its_items() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- kind: A\n- kind: B\n";
        let documents = parse("list.yaml", text).unwrap();
        let kinds: Vec<_> = documents
            .iter()
            .map(|d| (d.text("kind"), d.place().line))
            .collect();
        assert_eq!(kinds, [("A", Some(4)), ("B", Some(5))]);
    }

    #[test]
    fn invalid_yaml_is_rejected_with_its_line() {
        let error = |text| parse("bad.yaml", text).unwrap_err().to_string();
        assert!(
            error("a: 1\nb: [1, 2\n").starts_with("bad.yaml:"),
            "{}",
            error("a: 1\nb: [1, 2\n")
        );
        let twice = error("a: 1\nb: 2\na: 3\n");
        assert!(twice.starts_with("bad.yaml:3: "), "{twice}");
        assert!(twice.contains("duplicate"), "{twice}");
    }

    #[test]
    fn an_empty_file_has_no_objects() {
        assert_eq!(parse("e.yaml", "").unwrap().len(), 0);
        assert_eq!(parse("e.yaml", "# nothing\n---\n").unwrap().len(), 0);
    }
}
