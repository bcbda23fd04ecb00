//! The committed description of the API, against what the router answers.

use std::{collections::BTreeSet, path::Path};

use axum::{
    Router,
    body::{Body, to_bytes},
};
use foretide::{
    cli::web::lab,
    http::page::{PageSite, openapi},
};
use serde_json::{Value, json};
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
    let router = PageSite::open(demo_page().await).router();
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
        // Paths of one autoscaler are asked of each, others once.
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

#[tokio::test]
async fn the_lab_has_the_paths_that_are_described_and_answers_as_they_say() {
    let document = openapi();
    let paths = document["paths"].as_object().unwrap();
    let of_lab = || {
        paths
            .iter()
            .filter(|(path, _)| path.starts_with(EXPERIMENTS))
    };
    let table = format!("{:?}", lab(&context()));
    let served: BTreeSet<_> = table
        .split('"')
        .filter(|path| path.starts_with(EXPERIMENTS))
        .collect();
    assert_eq!(served, of_lab().map(|(path, _)| path.as_str()).collect());

    let router = PageSite::open(demo_page().await)
        .with_lab(lab(&context()))
        .router();
    let post = &paths[EXPERIMENTS]["post"];
    let sent = &post["requestBody"]["content"]["application/json"]["schema"];
    let fields = &document["components"]["schemas"]["Experiment"]["properties"];
    let experiment = experiment();
    assert_eq!(mismatch(&document, sent, &experiment), None);
    let names = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(names(fields), names(&experiment));
    let least = json!({ "manifests": [], "histories": [] });
    assert_eq!(mismatch(&document, sent, &least), None);

    let ask = async |method: &str, path: &str| {
        let body = if method == "POST" {
            experiment.to_string()
        } else {
            String::new()
        };
        let asked = request(path)
            .method(method)
            .header("content-type", "application/json");
        answer(&router, asked.body(Body::from(body)).unwrap()).await
    };
    let begun = ask("POST", EXPERIMENTS).await;
    assert_eq!(begun.status, 201, "{}", begun.text);
    check(&document, &post["responses"]["201"], &begun, EXPERIMENTS);
    let id = serde_json::from_str::<Value>(&begun.text).unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    ended(&router, &id).await;
    // What forgets it comes last.
    for method in ["get", "delete"] {
        for (path, operations) in
            of_lab().filter(|(_, operations)| operations.get(method).is_some())
        {
            let operation = &operations[method];
            assert_eq!(operation["tags"], json!(["lab"]), "{path}");
            let (status, response) = operation["responses"]
                .as_object()
                .unwrap()
                .iter()
                .next()
                .unwrap();
            let found = ask(&method.to_uppercase(), &path.replace("{id}", &id)).await;
            assert_eq!(
                found.status.as_str(),
                status,
                "{method} {path}: {}",
                found.text
            );
            if response.get("content").is_some() {
                check(&document, response, &found, path);
            } else {
                assert!(found.text.is_empty(), "{method} {path}: {}", found.text);
            }
        }
    }
    let refused = &document["components"]["responses"]["Refused"];
    for (path, operations) in of_lab() {
        for method in ["get", "post", "put", "delete"] {
            if operations.get(method).is_none() {
                assert_eq!(
                    ask(&method.to_uppercase(), path).await.status,
                    405,
                    "{method} {path}"
                );
            } else if path.contains('{') {
                let found = ask(&method.to_uppercase(), path).await;
                assert_eq!(found.status, 404, "{method} {path}");
                check(&document, refused, &found, path);
            }
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

/// A path with the names of a row; `none` for what it has not.
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
