//! The description of the API in the `OpenAPI` format, made from the table of its routes.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    ErrorBody,
    routes::{Answer, NoQuery, Route, views},
};

/// What it is and what every reader may expect.
const ABOUT: &str = "What Foretide sees, expects and decided, for its page. Read-only. Instants are RFC 3339 in UTC, or \
                     seconds since 1970; counts are replicas. Fields and paths may be added within v1.";

/// All routes of the API.
pub(super) fn table() -> Vec<Route> {
    let mut routes = views();
    routes.push(Route::json::<NoQuery, Value>(
        "/api/v1/openapi.json",
        "This description.",
        |_, _| Ok(document()),
    ));
    routes
}

/// The description. `docs/schema/page.openapi.json` is the same.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
        });
    let mut schemas = settings.into_generator();
    let error = schemas.subschema_for::<ErrorBody>();
    let error = json!({
        "description": "Refused; the sentence says why",
        "content": { "application/json": { "schema": error } },
    });
    let paths: Map<String, Value> = table()
        .iter()
        .map(|route| (route.path.to_owned(), route.described(&mut schemas)))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Foretide's page",
            "description": ABOUT,
            "version": "v1",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "../.." }],
        "security": [{ "bearer": [] }, {}],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "responses": { "Refused": error },
            "schemas": schemas.take_definitions(true),
        },
    })
}

// === impl Route ===

impl Route {
    fn described(&self, schemas: &mut SchemaGenerator) -> Value {
        let of_path = self.path.split(['{', '}']).skip(1).step_by(2);
        let mut parameters: Vec<Value> = of_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })).collect();
        let query = (self.query)(schemas);
        let of_query = query.get("properties").and_then(Value::as_object);
        for (name, schema) in of_query.into_iter().flatten() {
            parameters.push(json!({ "name": name, "in": "query", "schema": schema }));
        }
        let (media, schema) = match self.answer {
            Answer::Json(schema) => ("application/json", schema(schemas)),
            Answer::Text(media) => (media, schemars::json_schema!({ "type": "string" })),
        };
        json!({ "get": {
            "summary": self.about,
            "parameters": parameters,
            "responses": {
                "200": { "description": "OK", "content": { media: { "schema": schema } } },
                "default": { "$ref": "#/components/responses/Refused" },
            },
        } })
    }
}
