//! The committed description of the API, against what the router answers.

use std::{collections::BTreeSet, path::Path};

use axum::{
    Router,
    body::{Body, to_bytes},
};
use foretide::cli::web::lab;
use foretide_base::clock::Clock;
use foretide_page::http::{PageSite, openapi};
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;

use super::{Answer, answer, context, demo_page, get, request, schema::mismatch};

const EXPERIMENTS: &str = "/lab/v1/experiments";

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "UPDATE is a switch of this test alone"
)]
fn the_committed_description_is_that_of_the_routes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema/page.openapi.json");
    let made = format!("{:#}\n", openapi());
    if std::env::var("UPDATE").is_ok_and(|update| update == "1") {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == committed,
        "docs/schema/page.openapi.json is stale; run UPDATE=1 cargo test --test it page::openapi"
    );
}

#[tokio::test]
async fn each_path_answers_as_it_is_described() {
    let router = PageSite::open(demo_page().await, &Clock::system()).router();
    let served = get(&router, "/api/v1/openapi.json").await;
    let document: Value = serde_json::from_str(&served.text).unwrap();
    assert_eq!(document, openapi());
    let fleet: Value =
        serde_json::from_str(&get(&router, "/api/v1/autoscalers").await.text).unwrap();
    let rows = fleet["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["resource"] == "federatedhpas"));
    let paths = document["paths"].as_object().unwrap();
    for (path, operations) in paths
        .iter()
        .filter(|(path, _)| !path.starts_with(EXPERIMENTS))
    {
        let responses = &operations["get"]["responses"];
        // Paths of one autoscaler are requested for each, other paths once.
        let asked: Vec<String> = if path.contains('{') {
            rows.iter().map(|row| filled(path, row)).collect()
        } else {
            vec![path.clone()]
        };
        for path in &asked {
            let found = get(&router, path).await;
            assert_eq!(found.status, 200, "{path}: {}", found.text);
            check(&document, &responses["200"], &found, path);
        }
        let unknown = filled(path, &serde_json::json!({}));
        if unknown != *path {
            let found = get(&router, &unknown).await;
            assert_eq!(found.status, 404, "{unknown}");
            check(
                &document,
                &document["components"]["responses"]["Refused"],
                &found,
                &unknown,
            );
        }
        let found = get(&router, &format!("{unknown}?nothing=1")).await;
        assert_eq!(found.status, 400, "{path}");
    }
}

/// An experiment with a sweep, and with all fields that can be given together.
fn experiment() -> Value {
    let lines = (0..3 * 288).map(|step: i64| {
        let (at, demand) = (1_772_409_600 + step * 300, 2 + step % 288 / 100);
        format!("{at},{demand}\n")
    });
    let history =
        json!({ "name": "demand.csv", "text": lines.collect::<String>(), "metric": null });
    json!({
        "manifests": [{ "name": "web.yaml", "text": include_str!("../../../src/cli/demo/autoscaler.yaml") }],
        "histories": [history],
        "name": null,
        "timeZone": "UTC",
        "shownIn": "Europe/Berlin",
        "requests": ["cpu=500m"],
        "changes": { "minReplicas": 1, "maxReplicas": 9, "quantile": 0.9, "leadTimeSeconds": 120, "algorithm": "auto" },
        "from": null,
        "warmUp": "2d",
        "until": null,
        "startUp": "90s",
        "sweep": [0.5, 0.95],
    })
}

/// The paths of the Lab with their descriptions.
fn of_lab(document: &Value) -> Vec<(&String, &Map<String, Value>)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let of_lab = paths.filter(|(path, _)| path.starts_with(EXPERIMENTS));
    of_lab
        .map(|(path, all)| (path, all.as_object().unwrap()))
        .collect()
}

async fn page_with_lab() -> Router {
    PageSite::open(demo_page().await, &Clock::system())
        .with_lab(lab::routes(&context()))
        .router()
}

async fn ask(router: &Router, method: &str, path: &str) -> Answer {
    let asked = request(path)
        .method(&*method.to_uppercase())
        .header("content-type", "application/json");
    let body = if method == "post" {
        experiment().to_string()
    } else {
        String::new()
    };
    answer(router, asked.body(Body::from(body)).unwrap()).await
}

#[test]
fn the_paths_and_the_fields_of_the_lab_are_described() {
    let document = openapi();
    let table = format!("{:?}", lab::routes(&context()));
    let served = table
        .split('"')
        .filter(|path| path.starts_with(EXPERIMENTS));
    let described = of_lab(&document).into_iter().map(|(path, _)| path.as_str());
    assert_eq!(served.collect::<BTreeSet<_>>(), described.collect());

    let sent = &document["paths"][EXPERIMENTS]["post"]["requestBody"]["content"]["application/json"]
        ["schema"];
    let least = json!({ "manifests": [], "histories": [] });
    for experiment in [&experiment(), &least] {
        assert_eq!(mismatch(&document, sent, experiment), None);
    }
    let names = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<BTreeSet<_>>()
    };
    let fields = &document["components"]["schemas"]["Experiment"]["properties"];
    assert_eq!(names(fields), names(&experiment()));
}

#[tokio::test]
async fn the_lab_answers_as_it_is_described() {
    let document = openapi();
    let router = page_with_lab().await;
    let begun = ask(&router, "post", EXPERIMENTS).await;
    let responses = &document["paths"][EXPERIMENTS]["post"]["responses"];
    assert_eq!(begun.status, 201, "{}", begun.text);
    check(&document, &responses["201"], &begun, EXPERIMENTS);
    ended(&router, "1").await;
    // The deletion comes last.
    for method in ["get", "delete"] {
        for (path, operations) in of_lab(&document) {
            let Some(operation) = operations.get(method) else {
                continue;
            };
            assert_eq!(operation["tags"], json!(["lab"]), "{path}");
            let found = ask(&router, method, &path.replace("{id}", "1")).await;
            let response = operation["responses"].get(found.status.as_str());
            let response = response.unwrap_or_else(|| panic!("{method} {path}: {}", found.status));
            if response.get("content").is_some() {
                check(&document, response, &found, path);
            } else {
                assert_eq!(found.text, "", "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn the_lab_refuses_as_it_is_described() {
    let document = openapi();
    let router = page_with_lab().await;
    let refused = &document["components"]["responses"]["Refused"];
    for (path, operations) in of_lab(&document) {
        for method in ["get", "post", "put", "delete"] {
            let is_described = operations.contains_key(method);
            if is_described && !path.contains('{') {
                continue;
            }
            let found = ask(&router, method, path).await;
            assert_eq!(
                found.status,
                if is_described { 404 } else { 405 },
                "{method} {path}"
            );
            check(&document, refused, &found, path);
        }
    }
}

/// Waits until an experiment has ended: then its events end, too.
async fn ended(router: &Router, id: &str) {
    let path = format!("{EXPERIMENTS}/{id}/events");
    let events = request(&path).body(Body::empty()).unwrap();
    let events = router.clone().oneshot(events).await.unwrap().into_body();
    let events = to_bytes(events, 1 << 20).await.unwrap();
    let events = String::from_utf8_lossy(&events);
    assert!(events.contains("{\"notes\":"), "{events}");
}

/// A path with the names of a row; `none` for names that it lacks.
fn filled(path: &str, row: &Value) -> String {
    ["resource", "namespace", "name"]
        .iter()
        .fold(path.to_owned(), |path, name| {
            let value = row[name].as_str().unwrap_or("none");
            path.replace(&format!("{{{name}}}"), value)
        })
}

fn check(document: &Value, response: &Value, found: &Answer, path: &str) {
    let content = response["content"].as_object().unwrap();
    let (media, content) = content.iter().next().unwrap();
    assert_eq!(found.header("content-type"), media, "{path}");
    if media == "application/json" {
        let value: Value = serde_json::from_str(&found.text).unwrap();
        assert_eq!(
            mismatch(document, &content["schema"], &value),
            None,
            "{path}"
        );
    }
}
