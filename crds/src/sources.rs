//! The sources of proposals in schemas and in the columns of `kubectl get`, made from the table of sources.

use std::borrow::Cow;

use foretide_domain::proposal::Source;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// Schema of a [`Source`].
pub struct ProposalSource;

/// Schema of a count for each [`Source`].
pub struct SourceReplicas;

/// Properties of an object that has one value for each source; `property` is the schema of the value.
pub fn properties(property: impl Fn(Source) -> Value) -> Map<String, Value> {
    Source::ALL
        .iter()
        .map(|source| (source.as_str().to_owned(), property(*source)))
        .collect()
}

/// The columns about a decision: the source that wins, the state of the object, and the proposal of each source.
pub fn columns() -> Vec<CustomResourceColumnDefinition> {
    let winner = CustomResourceColumnDefinition {
        name: "WINNER".to_owned(),
        type_: "string".to_owned(),
        json_path: ".status.decision.winner".to_owned(),
        description: Some(format!("Source of the largest proposal: {}.", either())),
        ..CustomResourceColumnDefinition::default()
    };
    let ready = CustomResourceColumnDefinition {
        name: "READY".to_owned(),
        type_: "string".to_owned(),
        json_path: ".status.conditions[?(@.type==\"Ready\")].status".to_owned(),
        description: Some("Whether the spec is valid and was applied.".to_owned()),
        ..CustomResourceColumnDefinition::default()
    };
    let replicas = Source::ALL.iter().map(|source| {
        let askers = source.phrases().askers;
        CustomResourceColumnDefinition {
            name: source.as_str().to_ascii_uppercase(),
            type_: "integer".to_owned(),
            json_path: format!(".status.decision.sources.{source}"),
            description: Some(format!("Replicas that {askers} ask for.")),
            priority: Some(1),
            ..CustomResourceColumnDefinition::default()
        }
    });
    [winner, ready].into_iter().chain(replicas).collect()
}

/// The words of all sources: `observed, forecast or cron`.
fn either() -> String {
    match Source::words().split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

// === impl ProposalSource ===

impl JsonSchema for ProposalSource {
    fn schema_name() -> Cow<'static, str> {
        "ProposalSource".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<_> = Source::ALL
            .iter()
            .map(|source| {
                let description = source.phrases().description;
                json!({"const": source, "description": description, "type": "string"})
            })
            .collect();
        json_schema!({ "oneOf": words })
    }
}

// === impl SourceReplicas ===

impl JsonSchema for SourceReplicas {
    fn schema_name() -> Cow<'static, str> {
        "SourceReplicas".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let replicas = properties(|source| {
            let description = format!("Replicas proposed by {}.", source.phrases().proposers);
            json!({"description": description, "format": "int32", "type": ["integer", "null"]})
        });
        json_schema!({
            "description": "The largest number of replicas that each source proposes; absent if it proposes none.",
            "type": "object",
            "properties": replicas,
        })
    }
}
