//! The laws of a server as its clients see it, over requests at random.

use std::{collections::BTreeMap, sync::Arc};

use axum::body::to_bytes;
use futures::FutureExt as _;
use http::{Method, Request};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::SimKube;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn server() -> SimKube {
    SimKube::new(1, Arc::new(|| Timestamp::UNIX_EPOCH))
}

/// The answer of a server that does not wait.
fn answer(server: &SimKube, line: &str, content_type: &str, body: &Value) -> (u16, Value) {
    let (method, path) = line.split_once(' ').unwrap();
    let request = Request::builder()
        .method(method.parse::<Method>().unwrap())
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "test/1")
        .body(body.to_string().into_bytes());
    let response = server.answer(request.unwrap()).now_or_never().unwrap();
    let code = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX)
        .now_or_never()
        .unwrap()
        .unwrap();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

fn get(server: &SimKube, path: &str) -> Value {
    let (code, object) = answer(server, &format!("GET {path}"), "", &Value::Null);
    assert_eq!(code, 200, "{path}: {object}");
    object
}

/// The events of a watch from a version, until it would wait.
fn events(server: &SimKube, version: &str, selector: &str) -> Vec<Value> {
    let path = format!("{MAPS}?watch=true&resourceVersion={version}&labelSelector={selector}");
    let request = Request::get(path).body(Vec::new()).unwrap();
    let response = server.answer(request).now_or_never().unwrap();
    let mut stream = response.into_body().into_data_stream();
    let mut lines = Vec::new();
    while let Some(Some(Ok(chunk))) = futures::StreamExt::next(&mut stream).now_or_never() {
        lines.extend(chunk);
    }
    let lines = String::from_utf8(lines).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The objects of a list by name, as items show them.
fn items(list: &Value) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            (
                item["metadata"]["name"].as_str().unwrap().to_owned(),
                item.clone(),
            )
        })
        .collect()
}

#[derive(Debug, Clone)]
enum Write {
    Create(u8, u8),
    /// Replaces an object with the version that was seen this many lists ago.
    Replace(u8, u8, usize),
    Merge(u8, u8),
    Delete(u8),
}

fn write() -> impl Strategy<Value = Write> {
    let (name, label) = (0..4_u8, 0..3_u8);
    prop_oneof![
        (name.clone(), label.clone()).prop_map(|(name, label)| Write::Create(name, label)),
        (name.clone(), label.clone(), 0..4_usize)
            .prop_map(|(name, label, ago)| Write::Replace(name, label, ago)),
        (name.clone(), label).prop_map(|(name, label)| Write::Merge(name, label)),
        name.prop_map(Write::Delete),
    ]
}

/// Does a write, which must fail if it is conditional and the object has changed.
fn act(server: &SimKube, write: &Write, lists: &[Value]) {
    let labels = |label: u8| json!({"set": label.to_string()});
    match write {
        Write::Create(name, label) => {
            let object =
                json!({"metadata": {"name": format!("m{name}"), "labels": labels(*label)}});
            answer(server, &format!("POST {MAPS}"), "", &object);
        }
        Write::Merge(name, label) => {
            let patch = json!({"metadata": {"labels": labels(*label)}});
            answer(
                server,
                &format!("PATCH {MAPS}/m{name}"),
                "application/merge-patch+json",
                &patch,
            );
        }
        Write::Delete(name) => drop(answer(
            server,
            &format!("DELETE {MAPS}/m{name}"),
            "",
            &Value::Null,
        )),
        Write::Replace(name, label, ago) => {
            let name = format!("m{name}");
            let seen = items(&lists[lists.len().saturating_sub(ago + 1)]).remove(&name);
            let Some(mut object) = seen else { return };
            let version = object["metadata"]["resourceVersion"].clone();
            let now = items(lists.last().unwrap()).remove(&name);
            object["metadata"]["labels"] = labels(*label);
            let (code, _) = answer(server, &format!("PUT {MAPS}/{name}"), "", &object);
            let expected = match now {
                None => 404,
                Some(now) if now["metadata"]["resourceVersion"] == version => 200,
                Some(_) => 409,
            };
            assert_eq!(code, expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A watch from any list leads to the present list, also of those that a label selects; versions only grow, and
    /// change exactly with the objects.
    #[test]
    fn a_list_and_its_watch_make_the_next_list(writes in prop::collection::vec(write(), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let server = server();
        let list = |selector: &str| get(&server, &format!("{MAPS}?labelSelector={selector}"));
        let selected = ["", "set%3D1"];
        let mut lists = vec![selected.map(list)];
        for write in writes {
            let seen: Vec<Value> = lists.iter().map(|lists| lists[0].clone()).collect();
            act(&server, &write, &seen);
            let (before, after) = (&lists[lists.len() - 1], selected.map(list));
            let version = |list: &Value| list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
            prop_assert!(version(&after[0]) >= version(&before[0]));
            prop_assert_eq!(version(&after[0]) == version(&before[0]), items(&after[0]) == items(&before[0]));
            lists.push(after);
        }
        for list in &lists {
            for (n, selector) in selected.iter().enumerate() {
                let mut followed = items(&list[n]);
                for event in events(&server, list[n]["metadata"]["resourceVersion"].as_str().unwrap(), selector) {
                    let mut object = event["object"].clone();
                    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                    let fields = object.as_object_mut().unwrap();
                    fields.retain(|field, _| field != "kind" && field != "apiVersion");
                    let before = if event["type"] == "DELETED" {
                        followed.remove(&name)
                    } else {
                        followed.insert(name, object)
                    };
                    prop_assert_eq!(before.is_none(), event["type"] == "ADDED");
                }
                prop_assert_eq!(&followed, &items(&lists[lists.len() - 1][n]));
            }
        }
    }
}
