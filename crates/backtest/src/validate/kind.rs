//! Documents that are checked, that are skipped, and that can be no object.

use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA, TimeSeriesPrediction};
use foretide_domain::api_group;
use kube::Resource;

use crate::{API_VERSION, CONFIG_KIND, assign::clusters, manifest::Document};

/// The group of Karmada's own `FederatedHPA`.
const KARMADA: &str = "autoscaling.karmada.io";
/// The kinds of crane's groups that Foretide does not manage.
const OTHER_KINDS_OF_CRANE: [&str; 3] = [
    "ClusterNodePrediction",
    "EffectiveVerticalPodAutoscaler",
    "Substitute",
];

/// Kind of a document.
#[derive(Debug, PartialEq, Eq)]
pub enum DocumentKind {
    Ehpa,
    Fdhpa,
    Tsp,
    /// An object that is not Foretide's, with a note if it may be taken for one.
    Other {
        kind: String,
        note: Option<String>,
    },
    /// Nothing that the API server or Foretide accepts.
    Invalid {
        field: &'static str,
        message: String,
    },
}

/// A kind of Foretide.
struct OwnKind {
    kind: String,
    api_version: String,
    is: DocumentKind,
}

// === impl OwnKind ===

impl OwnKind {
    fn of<K: Resource<DynamicType = ()>>(is: DocumentKind) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            api_version: K::api_version(&()).into_owned(),
            is,
        }
    }

    fn all() -> [Self; 3] {
        [
            Self::of::<EffectiveHorizontalPodAutoscaler>(DocumentKind::Ehpa),
            Self::of::<FederatedHPA>(DocumentKind::Fdhpa),
            Self::of::<TimeSeriesPrediction>(DocumentKind::Tsp),
        ]
    }
}

// === impl DocumentKind ===

impl DocumentKind {
    pub fn of(document: &Document) -> Self {
        if let Some(shape) = document.other_shape() {
            let message = format!(
                "expected an object with apiVersion, kind, metadata and spec, found {shape}"
            );
            return invalid("", message);
        }
        for field in ["apiVersion", "kind"] {
            if document.members().any(|name| name == field) && document.text(field).is_empty() {
                return invalid(field, format!("{field}: expected text (put it in quotes)"));
            }
        }
        match document.text("kind") {
            "" => without_kind(document),
            kind => named(kind, document.text("apiVersion")),
        }
    }
}

fn invalid(field: &'static str, message: String) -> DocumentKind {
    DocumentKind::Invalid { field, message }
}

fn without_kind(document: &Document) -> DocumentKind {
    if document
        .members()
        .any(|name| ["apiVersion", "metadata", "spec"].contains(&name))
    {
        let message = "kind: is required, such as EffectiveHorizontalPodAutoscaler".to_owned();
        return invalid("", message);
    }
    DocumentKind::Other {
        kind: "an object without kind".to_owned(),
        note: None,
    }
}

fn named(kind: &str, api_version: &str) -> DocumentKind {
    let group = api_group(api_version);
    let mut all = OwnKind::all().into_iter();
    if let Some(own) = all.find(|own| own.kind == kind) {
        return if own.api_version == api_version {
            own.is
        } else if own.is == DocumentKind::Fdhpa && group == KARMADA {
            other(
                kind,
                format!(
                    "{kind} ({api_version}) is not managed by Foretide, whose {kind} is of {}; skipped",
                    own.api_version
                ),
            )
        } else {
            let mut message = format!(
                "apiVersion: must be {} for the kind {kind}",
                own.api_version
            );
            if !api_version.is_empty() {
                message = format!("{message}, not {api_version:?}");
            }
            invalid("apiVersion", message)
        };
    }
    let all = OwnKind::all();
    let mut expected: Vec<&str> = all
        .iter()
        .filter(|own| api_group(&own.api_version) == group)
        .map(|own| own.kind.as_str())
        .collect();
    if api_version == API_VERSION {
        expected.extend([CONFIG_KIND, clusters::KIND]);
    }
    if expected.is_empty() || kind == clusters::KIND && api_version == API_VERSION {
        return DocumentKind::Other {
            kind: kind.to_owned(),
            note: None,
        };
    }
    if OTHER_KINDS_OF_CRANE.contains(&kind) {
        let note =
            format!("{kind} ({api_version}) is crane's, and not managed by Foretide; skipped");
        return other(kind, note);
    }
    let expected = expected.join(" or ");
    invalid(
        "kind",
        format!("kind: must be {expected} in {api_version}, not {kind:?}"),
    )
}

fn other(kind: &str, note: String) -> DocumentKind {
    DocumentKind::Other {
        kind: kind.to_owned(),
        note: Some(note),
    }
}
