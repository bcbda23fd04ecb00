//! The description of the API in the `OpenAPI` format, made from the table of its routes.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    ErrorBody, lab,
    routes::{Answer, NoQuery, Route, parameters, routes},
};

/// Description of the API with the conventions of its answers.
const ABOUT: &str = "What Foretide sees, expects and decided, for its page. Read-only, but for the Lab. Instants are RFC 3339 in UTC, or \
                     seconds since 1970; counts are replicas. Fields and paths may be added within v1.";

/// All routes of the API.
pub fn table() -> Vec<Route> {
    let mut routes = routes();
    routes.push(Route::json::<NoQuery, Value>(
        "/api/v1/openapi.json",
        "This description.",
        |_, _| Ok(document()),
    ));
    routes
}

/// The description. `docs/schema/page.openapi.json` is the same.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut sent = settings.clone().for_deserialize().into_generator();
    let mut schemas = settings.for_serialize().into_generator();
    let error = schemas.subschema_for::<ErrorBody>();
    let error = json!({
        "description": "Refused; the sentence says why",
        "content": { "application/json": { "schema": error } },
    });
    let mut paths: Map<String, Value> = table()
        .iter()
        .map(|route| (route.path.to_owned(), route.described(&mut schemas)))
        .collect();
    paths.extend(lab::paths(&mut schemas, &mut sent));
    let mut definitions = schemas.take_definitions(true);
    definitions.extend(sent.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Foretide's page",
            "description": ABOUT,
            "version": "v1",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        // Relative to the address of this document, `/api/v1/openapi.json`.
        "servers": [{ "url": "../.." }],
        "security": [{ "bearer": [] }, {}],
        "tags": [lab::tag()],
        "paths": paths,
        "components": {
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "responses": { "Refused": error },
            "schemas": definitions,
        },
    })
}

// === impl Route ===

impl Route {
    fn described(&self, schemas: &mut SchemaGenerator) -> Value {
        let (media, schema) = match self.answer {
            Answer::Json(schema) => ("application/json", schema(schemas)),
            Answer::Text(media) => (media, schemars::json_schema!({ "type": "string" })),
        };
        json!({ "get": {
            "summary": self.about,
            "parameters": parameters(self.path, &(self.query)(schemas)),
            "responses": {
                "200": { "description": "OK", "content": { media: { "schema": schema } } },
                "default": { "$ref": "#/components/responses/Refused" },
            },
        } })
    }
}
