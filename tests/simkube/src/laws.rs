//! The laws of a server as its clients see it, over requests at random.

use std::{collections::BTreeMap, sync::Arc};

use axum::body::to_bytes;
use futures::FutureExt as _;
use http::{Method, Request};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Access, SimKube};

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
    /// With the version that was seen so many lists ago.
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

/// Does a write; what is conditional must fail exactly if the object has changed.
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

    /// All pages show the objects as they were at the first, whatever is written in between.
    #[test]
    fn pages_are_of_one_moment(writes in prop::collection::vec(write(), 1..24), limit in 1..4_u8) {
        let server = server();
        for n in 0..4 {
            act(&server, &Write::Create(n, n % 3), &[]);
        }
        let whole = items(&get(&server, MAPS));
        let (mut read, mut next) = (BTreeMap::new(), String::new());
        for write in writes.iter().map(Some).chain([None; 4]) {
            let page = get(&server, &format!("{MAPS}?limit={limit}{next}"));
            read.extend(items(&page));
            let Some(token) = page["metadata"]["continue"].as_str() else { break };
            let token: String = url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
            next = format!("&continue={token}");
            // A replacement needs the present list.
            if let Some(write) = write {
                act(&server, write, &[get(&server, MAPS)]);
            }
        }
        prop_assert_eq!(read, whole);
    }

    /// An apply that is not forced changes no field of another manager; what was applied is there, and applying it
    /// again changes nothing; and what nobody applies any more is gone.
    #[test]
    fn fields_belong_to_who_applied_them(
        applies in prop::collection::vec((0..3_u8, prop::collection::btree_map("[a-d]", "[12]", 0..4), any::<bool>()), 1..16),
    ) {
        let server = server();
        let mut configs: BTreeMap<u8, BTreeMap<String, String>> = BTreeMap::new();
        let path = format!("{MAPS}/m");
        let data = |server: &SimKube| -> BTreeMap<String, String> {
            serde_json::from_value(get(server, &path)["data"].clone()).unwrap_or_default()
        };
        for (manager, fields, force) in applies {
            let before = if configs.is_empty() { BTreeMap::new() } else { data(&server) };
            let line = format!("PATCH {path}?fieldManager={manager}&force={force}");
            let config = json!({"metadata": {"name": "m"}, "data": fields});
            let apply = || answer(&server, &line, "application/apply-patch+yaml", &config);
            let (code, object) = apply();
            let others = configs.iter().filter(|(other, _)| **other != manager);
            let differs = |(key, value): (&String, &String)| fields.get(key).is_some_and(|wanted| wanted != value);
            let conflicts = others.flat_map(|(_, config)| config).any(differs);
            if conflicts && !force {
                prop_assert_eq!(code, 409);
                prop_assert_eq!(data(&server), before);
                continue;
            }
            prop_assert!(code < 300, "{object}");
            for config in configs.values_mut() {
                config.retain(|key, value| fields.get(key).is_none_or(|wanted| wanted == value));
            }
            configs.insert(manager, fields.clone());
            let expected: BTreeMap<String, String> = configs.values().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
            prop_assert_eq!(data(&server), expected);
            prop_assert_eq!(apply().1, object);
        }
    }
}

#[test]
fn garbage_is_what_has_no_owner_left() {
    let server = server();
    let create = |name: &str, owners: &[&Value]| {
        let owner = |object: &&Value| json!({"name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
        let owners: Vec<Value> = owners.iter().map(owner).collect();
        let object = json!({"metadata": {"name": name, "ownerReferences": owners}});
        answer(&server, &format!("POST {MAPS}"), "", &object).1
    };
    let (a, b) = (create("a", &[]), create("b", &[]));
    create("of-a", &[&a]);
    create("of-both", &[&a, &b]);
    let names = || items(&get(&server, MAPS)).into_keys().collect::<Vec<_>>();
    server.collect_garbage();
    assert_eq!(names(), ["a", "b", "of-a", "of-both"]);
    answer(&server, &format!("DELETE {MAPS}/a"), "", &Value::Null);
    server.collect_garbage();
    assert_eq!(names(), ["b", "of-both"]);
}

/// The code of a request with a token.
fn code_with(server: &SimKube, token: &str, path: &str) -> u16 {
    let request = Request::get(path).header("authorization", format!("Bearer {token}"));
    let request = request.body(Vec::new()).unwrap();
    let response = server.answer(request).now_or_never().unwrap();
    response.status().as_u16()
}

#[test]
fn what_roles_grant_is_counted_and_what_is_forbidden_is_kept() {
    let server = server();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let reads = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]});
    let role = json!({"metadata": {"name": "r"}, "rules": [reads]});
    let account = json!({"kind": "ServiceAccount", "namespace": "n", "name": "a"});
    let reference = json!({"kind": "ClusterRole", "name": "r"});
    let binding = json!({"metadata": {"name": "r"}, "roleRef": reference, "subjects": [account]});
    answer(&server, &format!("POST {rbac}/clusterroles"), "", &role);
    let bindings = format!("POST {rbac}/clusterrolebindings");
    answer(&server, &bindings, "", &binding);
    server.add_token("t", "system:serviceaccount:n:a");
    assert_eq!(code_with(&server, "t", MAPS), 200);
    assert_eq!(code_with(&server, "other", MAPS), 401);
    assert_eq!(code_with(&server, "t", &format!("{MAPS}/a")), 403);
    let forbidden = server.forbidden();
    let (user, Access { verb, name, .. }) = &forbidden[0];
    assert_eq!((forbidden.len(), &**user), (1, "system:serviceaccount:n:a"));
    assert_eq!((&**verb, &**name), ("get", "a"));
    let unused = server.unused(&["r"]).into_iter();
    assert_eq!(
        unused.map(|grant| grant.verb).collect::<Vec<_>>(),
        ["watch"]
    );
}

#[test]
fn an_aggregated_api_is_there_with_its_registration_and_works_with_its_server() {
    let server = server();
    let usage = "GET /apis/m.example/v1/namespaces/n/usage";
    let code = || answer(&server, usage, "", &Value::Null).0;
    assert_eq!(code(), 404);
    let service = json!({"name": "m", "namespace": "n"});
    let spec = json!({"group": "m.example", "version": "v1", "service": service});
    let registration = json!({"metadata": {"name": "v1.m.example"}, "spec": spec});
    let registrations = "POST /apis/apiregistration.k8s.io/v1/apiservices";
    answer(&server, registrations, "", &registration);
    assert_eq!(code(), 503);
    let all = Arc::new(|_| Box::pin(async { http::Response::default() }) as _);
    server.aggregate("m.example/v1", all);
    assert_eq!(code(), 200);
    assert_eq!(
        get(&server, "/apis/m.example")["versions"][0]["version"],
        "v1"
    );
}

#[test]
fn a_generation_is_a_change_of_the_spec() {
    let server = server();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let generation = |object: &Value| object["metadata"]["generation"].as_u64();
    let object = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1}});
    let created = answer(&server, &format!("POST {path}"), "", &object).1;
    assert_eq!(generation(&created), Some(1));
    for (part, patch, expected) in [
        ("", json!({"spec": {"replicas": 2}}), 2),
        ("", json!({"spec": {"replicas": 2}}), 2),
        ("", json!({"metadata": {"labels": {"a": "b"}}}), 2),
        ("/status", json!({"status": {"replicas": 2}}), 2),
        ("", json!({"metadata": {"finalizers": ["e/f"]}}), 2),
        // Upstream counts the annotations of Deployments, and of no other kind.
        ("", json!({"metadata": {"annotations": {"a": "b"}}}), 3),
    ] {
        let line = format!("PATCH {path}/web{part}");
        let patched = answer(&server, &line, "application/merge-patch+json", &patch).1;
        assert_eq!(generation(&patched), Some(expected), "{patch}");
    }
    let deleted = answer(&server, &format!("DELETE {path}/web"), "", &Value::Null).1;
    assert_eq!(generation(&deleted), Some(4));
}
