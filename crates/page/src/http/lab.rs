//! The paths of a Lab, for the description of the API: `cli::web` serves them beside the page, the controller does not.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::routes::{NoQuery, parameters};
use crate::api::{Experiment, ExperimentId, WidthQuery};

/// The tag of the Lab's paths.
const TAG: &str = "lab";
const EXPERIMENTS: &str = "/lab/v1/experiments";

/// Request and answer of a path.
struct Operation {
    /// Part of the path after [`EXPERIMENTS`].
    path: &'static str,
    method: &'static str,
    about: &'static str,
    /// The schema of the parameters.
    query: fn(&mut SchemaGenerator) -> Schema,
    status: &'static str,
    /// The media type of the answer, and its schema if it is JSON; absent if there is no body.
    answer: Option<(&'static str, Option<AnswerSchema>)>,
}

type AnswerSchema = fn(&mut SchemaGenerator) -> Schema;

/// The tag with its description.
pub fn tag() -> Value {
    let about = "Served by `foretide ui` and `foretide demo --web` alone, on the machine of the reader and without a token: \
                 back-tests, of which the last eight are kept. An experiment that has not ended answers 409, one that failed 422.";
    json!({ "name": TAG, "description": about })
}

/// The descriptions of the paths. Requests have other schemas than answers: fields with a default may be left out.
pub fn paths(schemas: &mut SchemaGenerator, sent: &mut SchemaGenerator) -> Map<String, Value> {
    let mut paths = Map::new();
    for operation in operations() {
        let path = format!("{EXPERIMENTS}{}", operation.path);
        let mut described = operation.described(&path, schemas);
        if operation.method == "post" {
            let schema = sent.subschema_for::<Experiment>();
            let content = json!({ "application/json": { "schema": schema } });
            described["requestBody"] = json!({ "required": true, "content": content });
        }
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[operation.method] = described;
    }
    paths
}

fn operations() -> Vec<Operation> {
    vec![
        Operation {
            method: "post",
            status: "201",
            ..json::<ExperimentId>("", "Begins a back-test beside a plain HPA.")
        },
        json::<Value>("/{id}", "Its report, as of `foretide backtest -o json`."),
        Operation {
            method: "delete",
            status: "204",
            answer: None,
            ..get("/{id}", "Cancels and forgets it.", "")
        },
        get(
            "/{id}/events",
            "Server-sent events: `progress` with the `fraction` that is done, then `finished` with the `notes` on its histories, or \
             with an `error`.",
            "text/event-stream",
        ),
        get(
            "/{id}/report.html",
            "Its report, as of `foretide backtest -o html`.",
            "text/html; charset=utf-8",
        ),
        get(
            "/{id}/manifest.yaml",
            "The autoscaler with its changes.",
            "application/yaml",
        ),
        drawing("/{id}/chart.svg", "Both runs, drawn."),
        drawing(
            "/{id}/sweep.svg",
            "What each quantile costs, drawn; 404 without a sweep.",
        ),
    ]
}

fn get(path: &'static str, about: &'static str, media: &'static str) -> Operation {
    Operation {
        path,
        method: "get",
        about,
        query: NoQuery::json_schema,
        status: "200",
        answer: Some((media, None)),
    }
}

fn json<T: JsonSchema>(path: &'static str, about: &'static str) -> Operation {
    let schema: AnswerSchema = SchemaGenerator::subschema_for::<T>;
    Operation {
        answer: Some(("application/json", Some(schema))),
        ..get(path, about, "")
    }
}

fn drawing(path: &'static str, about: &'static str) -> Operation {
    Operation {
        query: WidthQuery::json_schema,
        ..get(path, about, "image/svg+xml")
    }
}

// === impl Operation ===

impl Operation {
    fn described(&self, path: &str, schemas: &mut SchemaGenerator) -> Value {
        let mut answer = json!({ "description": "OK" });
        if let Some((media, schema)) = self.answer {
            let schema = match schema {
                Some(schema) => schema(schemas),
                None => schemars::json_schema!({ "type": "string" }),
            };
            answer["content"] = json!({ media: { "schema": schema } });
        }
        json!({
            "tags": [TAG],
            "security": [],
            "summary": self.about,
            "parameters": parameters(path, &(self.query)(schemas)),
            "responses": {
                self.status: answer,
                "default": { "$ref": "#/components/responses/Refused" },
            },
        })
    }
}
