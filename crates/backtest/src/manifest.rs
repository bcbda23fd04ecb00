//! YAML texts as Kubernetes objects that keep their line numbers.
//!
//! A [`Document`] gives plain JSON for validation, and the line of a field path for messages.

use std::{collections::BTreeMap, fmt, sync::Arc};

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA, ScaleStrategy, Violation};
use foretide_domain::api_group;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{
    Serialize,
    de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_json::Value;
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
    value: Value,
    /// Line of each field, from 1, by its steps from the root; none of an object that was not read from text.
    lines: BTreeMap<Vec<String>, u64>,
}

/// A place in a file, as editors and terminals link it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// A value of YAML, with everything below it.
#[derive(Clone, Debug)]
enum Tree {
    Scalar(Value),
    List(Vec<Spanned<Self>>),
    Object(Vec<(Spanned<String>, Spanned<Self>)>),
}

// === impl Document ===

impl Document {
    /// An object that was not read from text, so its fields have no lines; `origin` stands for the file.
    pub fn of(origin: String, value: &Value) -> Self {
        Self {
            file: origin,
            value: value.clone(),
            lines: BTreeMap::new(),
        }
    }

    /// The text of a member at the top, such as `kind`; empty if there is none.
    pub fn text(&self, member: &str) -> &str {
        self.value[member].as_str().unwrap_or_default()
    }

    /// Group and version before the slash, such as `apps`; empty for the core group.
    pub fn group(&self) -> &str {
        api_group(self.text("apiVersion"))
    }

    /// `metadata.name`; empty if there is none.
    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// `metadata.namespace`; empty if there is none.
    pub fn namespace(&self) -> &str {
        let namespace = &self.value["metadata"]["namespace"];
        namespace.as_str().unwrap_or_default()
    }

    /// The names of the members at the top; none if the document is no object.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        let members = self.value.as_object().into_iter().flatten();
        members.map(|(name, _)| name.as_str())
    }

    /// Name of the document's shape, such as `a list`, if it is no object.
    pub(crate) fn other_shape(&self) -> Option<&'static str> {
        match &self.value {
            Value::Object(_) => None,
            Value::Array(_) => Some("a list"),
            Value::String(_) => Some("a text"),
            Value::Number(_) => Some("a number"),
            _ => Some("a value"),
        }
    }

    /// The object as plain JSON.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Place of the beginning of the object.
    pub fn place(&self) -> Location {
        self.locate([])
    }

    /// The location of a field such as `spec.crons[0].start`, or of its nearest parent if the field does not exist.
    pub fn find(&self, path: &str) -> Location {
        let steps = path.split(['.', '[', ']']);
        self.locate(steps.filter(|step| !step.is_empty()))
    }

    /// The location of an annotation, as [`Self::find`].
    pub fn find_annotation(&self, name: &str) -> Location {
        self.locate(["metadata", "annotations", name])
    }

    /// A violation with the place of its field.
    pub(crate) fn refusal(&self, violation: &Violation) -> String {
        format!("{}: {violation}", self.find(&violation.field))
    }

    fn locate<'a>(&self, steps: impl IntoIterator<Item = &'a str>) -> Location {
        let mut steps: Vec<_> = steps.into_iter().map(str::to_owned).collect();
        while !steps.is_empty() && !self.lines.contains_key(&steps) {
            steps.pop();
        }
        Location {
            file: self.file.clone(),
            line: self.lines.get(&steps).copied(),
        }
    }
}

// === impl Location ===

impl Location {
    /// The location of a whole file.
    pub fn of_file(file: impl Into<String>) -> Self {
        let (file, line) = (file.into(), None);
        Self { file, line }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// A field that breaks an expectation.
pub(crate) fn violation(field: impl Into<String>, message: impl Into<String>) -> Violation {
    let (field, message) = (field.into(), message.into());
    Violation { field, message }
}

/// The objects of a text.
///
/// # Errors
/// The text is not YAML.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>, YamlError> {
    let roots = serde_saphyr::from_multiple::<Spanned<Tree>>(text).map_err(|error| {
        let (line, message) = yaml(&error, text);
        let file = file.to_owned();
        YamlError {
            place: Location { file, line },
            message,
        }
    })?;
    let documents = roots.into_iter().flat_map(expanded).map(|root| {
        let (line, mut lines) = (root.referenced.line(), BTreeMap::new());
        Document {
            file: file.to_owned(),
            value: root.value.plain(line, &mut Vec::new(), &mut lines),
            lines,
        }
    });
    Ok(documents.collect())
}

/// The items of a `List`, or the object itself.
fn expanded(root: Spanned<Tree>) -> Vec<Spanned<Tree>> {
    let Tree::Object(members) = &root.value else {
        return vec![root];
    };
    let member = |name| {
        let member = members.iter().find(|(key, _)| key.value == name);
        member.map(|(_, node)| &node.value)
    };
    let is = |name, text: &str| matches!(member(name), Some(Tree::Scalar(it)) if it == text);
    match member("items") {
        Some(Tree::List(items)) if is("kind", "List") && is("apiVersion", "v1") => items.clone(),
        _ => vec![root],
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

// === impl Tree ===

impl Tree {
    /// The plain value; notes its line and those of its fields, whose steps begin with `path`.
    fn plain(
        self,
        line: u64,
        path: &mut Vec<String>,
        lines: &mut BTreeMap<Vec<String>, u64>,
    ) -> Value {
        // The line of an unknown place is 0.
        if line > 0 {
            lines.insert(path.clone(), line);
        }
        let mut below = |step: String, line, tree: Self| {
            path.push(step);
            let value = tree.plain(line, path, lines);
            path.pop();
            value
        };
        match self {
            Self::Scalar(value) => value,
            Self::List(items) => (0_usize..)
                .zip(items)
                .map(|(index, item)| below(index.to_string(), item.referenced.line(), item.value))
                .collect(),
            Self::Object(members) => members
                .into_iter()
                .map(|(name, member)| {
                    let line = match name.referenced.line() {
                        0 => member.referenced.line(),
                        line => line,
                    };
                    (name.value.clone(), below(name.value, line, member.value))
                })
                .collect(),
        }
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

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Tree, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Tree::List)
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
                ("Deployment", "web", "shop"),
                ("EffectiveHorizontalPodAutoscaler", "", ""),
            ]
        );
        assert_eq!(documents[0].group(), "apps");
        assert_eq!(
            *documents[1].value(),
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
