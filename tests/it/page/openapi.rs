//! The committed description of the API, against what the router answers.

use std::path::Path;

use foretide::http::page::{PageSite, openapi};
use serde_json::Value;

use super::{demo_page, get, schema::mismatch};

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
    for (path, operations) in paths {
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

/// A path with the names of a row; `none` for what it has not.
fn filled(path: &str, row: &Value) -> String {
    ["resource", "namespace", "name"]
        .iter()
        .fold(path.to_owned(), |path, name| {
            let value = row[name].as_str().unwrap_or("none");
            path.replace(&format!("{{{name}}}"), value)
        })
}

fn check(document: &Value, response: &Value, found: &super::Answer, path: &str) {
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
