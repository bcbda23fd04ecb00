//! The table of the API's routes with their handlers and the types of their queries and answers. `openapi` describes
//! the API from it, and adds the route of this description.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode},
    routing::{MethodRouter, get},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    PageSite, Reader, Refusal,
    answer::{Admitted, Text, takes_gzip},
    stream::stream,
};
use crate::{
    ViewError, Visible,
    api::{
        AutoscalerView, CalendarQuery, CalendarView, ChartQuery, ClustersView, FleetQuery,
        FleetView, HealthView, HistoryQuery, HistoryView, ObjectKey, Overview, SpanQuery,
        StreamQuery, WidthQuery, Worth,
    },
};

const JSON: &str = "application/json";
const SVG: &str = "image/svg+xml";
const CSV: &str = "text/csv; charset=utf-8";
const YAML: &str = "application/yaml";

/// A path of the API.
pub struct Route {
    pub path: &'static str,
    /// Summary of the answer, in one sentence.
    pub about: &'static str,
    /// The schema of the parameters.
    pub query: fn(&mut SchemaGenerator) -> Schema,
    pub answer: Answer,
    pub handler: MethodRouter<Arc<PageSite>>,
}

/// Form of an answer.
pub enum Answer {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Text of this media type.
    Text(&'static str),
}

/// A request for a view.
pub struct Ask<Q> {
    reader: Reader,
    /// The autoscaler that the path names; empty if it names none.
    key: ObjectKey,
    query: Q,
}

/// No parameters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

/// The routes of the API, but for that of its description.
pub fn routes() -> Vec<Route> {
    let mut routes = routes_of_all();
    routes.extend(routes_of_one());
    routes.push(Route {
        path: "/api/v1/stream",
        about: "Server-sent events `changed`, with the new version, when something that the reader sees has changed; \
                    at most one every two seconds.",
        query: StreamQuery::json_schema,
        answer: Answer::Text("text/event-stream"),
        handler: get(stream),
    });
    routes
}

/// The views of all autoscalers and of the process.
fn routes_of_all() -> Vec<Route> {
    vec![
        Route::json::<NoQuery, Overview>(
            "/api/v1/overview",
            "What this process is, and how fresh its data are.",
            |site, ask| {
                Ok(Overview {
                    lab: site.lab.is_some(),
                    unreviewed_namespaces: Some(ask.reader.unreviewed).filter(|it| *it > 0),
                    ..site.page.overview(ask.visible(), ask.reader.name.clone())
                })
            },
        ),
        Route::json::<FleetQuery, FleetView>(
            "/api/v1/autoscalers",
            "A page of the fleet, worst first unless sorted otherwise.",
            |site, ask| site.page.fleet(ask.visible(), &ask.query),
        ),
        Route::json::<NoQuery, Worth>(
            "/api/v1/worth",
            "What Foretide was worth beside a plain HPA, in all.",
            |site, ask| Ok(site.page.worth_of_all(ask.visible())),
        ),
        Route::json::<CalendarQuery, CalendarView>(
            "/api/v1/calendar",
            "The cron windows of all autoscalers over some weeks.",
            |site, ask| site.page.calendar(ask.visible(), &ask.query),
        ),
        Route::json::<NoQuery, ClustersView>(
            "/api/v1/clusters",
            "The members of all fleets.",
            |site, ask| Ok(site.page.clusters(ask.visible())),
        ),
        Route::text::<WidthQuery>(
            "/api/v1/clusters.svg",
            SVG,
            "The members of all fleets, drawn.",
            |site, ask| site.page.clusters_svg(ask.visible(), ask.query.width),
        ),
        Route::json::<NoQuery, HealthView>(
            "/api/v1/health",
            "What Foretide reads, and whether it is current.",
            |site, ask| Ok(site.page.health(ask.visible())),
        ),
    ]
}

/// The views of one autoscaler.
fn routes_of_one() -> Vec<Route> {
    vec![
        Route::json::<NoQuery, AutoscalerView>(
            "/api/v1/autoscalers/{resource}/{namespace}/{name}",
            "One autoscaler as it is now.",
            |site, ask| site.page.autoscaler(&ask.key, ask.visible()),
        ),
        Route::json::<SpanQuery, HistoryView>(
            "/api/v1/autoscalers/{resource}/{namespace}/{name}/history",
            "What was recorded of it, a column per series.",
            |site, ask| site.page.history(&ask.key, ask.visible(), &ask.query),
        ),
        Route::text::<ChartQuery>(
            "/api/v1/autoscalers/{resource}/{namespace}/{name}/chart.svg",
            SVG,
            "The same, drawn.",
            |site, ask| site.page.chart(&ask.key, ask.visible(), &ask.query),
        ),
        Route::text::<HistoryQuery>(
            "/api/v1/autoscalers/{resource}/{namespace}/{name}/history.csv",
            CSV,
            "Its recorded demand, as `foretide backtest --csv` reads it.",
            |site, ask| site.page.history_csv(&ask.key, ask.visible(), &ask.query),
        ),
        Route::text::<NoQuery>(
            "/api/v1/autoscalers/{resource}/{namespace}/{name}/manifest.yaml",
            YAML,
            "The object without its status.",
            |site, ask| site.page.manifest(&ask.key, ask.visible()),
        ),
        Route::json::<NoQuery, Worth>(
            "/api/v1/autoscalers/{resource}/{namespace}/{name}/worth",
            "What Foretide was worth to it beside a plain HPA.",
            |site, ask| site.page.worth(&ask.key, ask.visible()),
        ),
    ]
}

/// The parameters of a path, and those of its query.
pub fn parameters(path: &str, query: &Schema) -> Vec<Value> {
    let mut parameters = Vec::new();
    for name in path.split(['{', '}']).skip(1).step_by(2) {
        let text = json!({ "type": "string" });
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": text }));
    }
    let of_query = query.get("properties").and_then(Value::as_object);
    for (name, schema) in of_query.into_iter().flatten() {
        parameters.push(json!({ "name": name, "in": "query", "schema": schema }));
    }
    parameters
}

/// A view; everything that it needs is in memory.
pub type View<Q, T> = fn(&PageSite, &Ask<Q>) -> Result<T, ViewError>;

// === impl Route ===

impl Route {
    pub fn json<Q, T>(path: &'static str, about: &'static str, view: View<Q, T>) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        Self {
            path,
            about,
            query: Q::json_schema,
            answer: Answer::Json(SchemaGenerator::subschema_for::<T>),
            handler: handler(view, |value| {
                Ok(Text::new(JSON, serde_json::to_vec(&value)?))
            }),
        }
    }

    fn text<Q>(
        path: &'static str,
        media: &'static str,
        about: &'static str,
        view: View<Q, String>,
    ) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
    {
        Self {
            path,
            about,
            query: Q::json_schema,
            answer: Answer::Text(media),
            handler: handler(view, move |text| Ok(Text::new(media, text))),
        }
    }
}

fn handler<Q, T>(
    view: View<Q, T>,
    write: impl Fn(T) -> serde_json::Result<Text> + Clone + Send + Sync + 'static,
) -> MethodRouter<Arc<PageSite>>
where
    Q: DeserializeOwned + Send + 'static,
    T: Send + 'static,
{
    get(
        async move |State(site): State<Arc<PageSite>>,
                    Extension(reader): Extension<Reader>,
                    names: Result<Path<HashMap<String, String>>, PathRejection>,
                    headers: HeaderMap,
                    query: Result<Query<Q>, QueryRejection>| {
            let Query(query) = query?;
            let Path(names) = names?;
            let key = named(names);
            let ask = Ask { reader, key, query };
            let takes_gzip = takes_gzip(&headers);
            site.rendered(ask.reader.tenant(), takes_gzip, move |site| {
                write(view(site, &ask)?).map_err(|error| unrendered(&error))
            })
            .await
        },
    )
}

/// The autoscaler that a path names.
fn named(mut names: HashMap<String, String>) -> ObjectKey {
    let mut take = |name| names.remove(name).unwrap_or_default();
    ObjectKey {
        resource: take("resource"),
        namespace: take("namespace"),
        name: take("name"),
    }
}

// === impl Ask ===

impl<Q> Ask<Q> {
    fn visible(&self) -> &Visible {
        &self.reader.visible
    }
}

// === impl PageSite ===

impl PageSite {
    /// Renders and compresses on a thread of its own, so that syncs go on. A reader that leaves frees its turn when the
    /// rendering has ended.
    #[expect(
        clippy::disallowed_methods,
        reason = "pages are for people, and no part of a simulation"
    )]
    async fn rendered(
        self: Arc<Self>,
        tenant: Arc<str>,
        takes_gzip: bool,
        render: impl FnOnce(&Self) -> Result<Text, Refusal> + Send + 'static,
    ) -> Result<Admitted, Refusal> {
        let turn = self.rendering.acquire(&tenant).await;
        let rendered = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let text = render(&self)?;
            let text = if takes_gzip { text.compressed() } else { text };
            self.unsent.admit(tenant, text)
        });
        rendered
            .await
            .unwrap_or_else(|error| Err(unrendered(&error)))
    }
}

fn unrendered(error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::error!(error, "a view of the page could not be rendered");
    let message = "the view could not be rendered; the log of the controller says why";
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}
