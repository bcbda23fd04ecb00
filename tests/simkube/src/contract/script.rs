//! The requests, by what they are about.

#![expect(clippy::too_many_lines, reason = "a script is one sequence of steps")]

use http::Method;
use serde_json::{Value, json};

use super::{JSON, Peer, Script, Sent};

const CONFIG_MAPS: &str = "/api/v1/namespaces/contract/configmaps";
const SECRETS: &str = "/api/v1/namespaces/contract/secrets";
const PODS: &str = "/api/v1/namespaces/contract/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/contract/deployments";
const HPAS: &str = "/apis/autoscaling/v2/namespaces/contract/horizontalpodautoscalers";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/contract/leases";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/contract/events";
const WIDGETS: &str = "/apis/contract.example/v1/namespaces/contract/widgets";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// A user who may do what the script's roles allow.
const USER: &str = "system:serviceaccount:contract:user";

pub(super) async fn run<P: Peer>(s: &mut Script<'_, P>) {
    namespaces(s).await;
    discovery(s).await;
    creation(s).await;
    replacement(s).await;
    patches(s).await;
    deletion(s).await;
    finalizers(s).await;
    lists(s).await;
    watches(s).await;
    leases(s).await;
    workloads(s).await;
    scales(s).await;
    autoscalers(s).await;
    pods(s).await;
    texts(s).await;
    definitions(s).await;
    custom_objects(s).await;
    custom_status(s).await;
    apply(s).await;
    apply_to_untracked(s).await;
    apply_conflicts(s).await;
    apply_preconditions(s).await;
    apply_lists(s).await;
    rights(s).await;
    reviews(s).await;
    s.peer.start_controllers().await;
    garbage(s).await;
    terminating_namespaces(s).await;
}

async fn namespaces<P: Peer>(s: &mut Script<'_, P>) {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "contract"}});
    s.post("/api/v1/namespaces", 201, namespace.clone()).await;
    s.post("/api/v1/namespaces", 409, namespace).await;
    s.get("/api/v1/namespaces/contract", 200).await;
    s.get("/api/v1/namespaces/none", 404).await;
}

async fn discovery<P: Peer>(s: &mut Script<'_, P>) {
    s.get("/readyz", 200).await;
    s.get_part("/version", 200, |version| version["major"].clone())
        .await;
    s.get_part("/api", 200, |api| json!([api["kind"], api["versions"]]))
        .await;
    s.get_part("/apis", 200, |apis| {
        let groups = apis["groups"].as_array().into_iter().flatten();
        let known = [
            "apps",
            "autoscaling",
            "coordination.k8s.io",
            "events.k8s.io",
        ];
        groups
            .filter(|group| known.iter().any(|name| group["name"] == *name))
            .map(|group| group["name"].clone())
            .count()
            .into()
    })
    .await;
    s.get_part("/api/v1", 200, |list| {
        resources(
            list,
            &["pods", "pods/status", "configmaps", "namespaces", "nodes"],
        )
    })
    .await;
    s.get_part("/apis/apps/v1", 200, |list| {
        resources(
            list,
            &[
                "deployments",
                "deployments/scale",
                "deployments/status",
                "statefulsets/scale",
                "replicasets/scale",
            ],
        )
    })
    .await;
    s.get_part("/apis/autoscaling/v2", 200, |list| {
        resources(list, &["horizontalpodautoscalers"])
    })
    .await;
    s.get("/apis/none.example/v1", 404).await;
    s.get("/apis/apps/v9", 404).await;
    s.get("/apis/apps/v1/namespaces/contract/nothing", 404)
        .await;
    s.get("/nothing", 404).await;
}

/// What discovery says of these resources.
fn resources(list: &Value, names: &[&str]) -> Value {
    let all = list["resources"].as_array().into_iter().flatten();
    let known = all.filter(|resource| names.iter().any(|name| resource["name"] == *name));
    let mut parts: Vec<Value> = known
        .map(|r| {
            json!([
                r["name"],
                r["kind"],
                r["namespaced"],
                r["singularName"],
                verbs(&r["verbs"]),
                r["group"],
                r["version"]
            ])
        })
        .collect();
    parts.sort_by_key(Value::to_string);
    json!([list["kind"], list["groupVersion"], parts])
}

/// `deletecollection` is used by nobody.
fn verbs(verbs: &Value) -> Value {
    let all = verbs.as_array().into_iter().flatten();
    let mut all: Vec<Value> = all
        .filter(|verb| **verb != "deletecollection")
        .cloned()
        .collect();
    all.sort_by_key(Value::to_string);
    all.into()
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn labelled(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

async fn creation<P: Peer>(s: &mut Script<'_, P>) {
    s.post(
        &format!("{CONFIG_MAPS}?dryRun=All"),
        201,
        config_map("dry", json!({"a": "1"})),
    )
    .await;
    s.get(&format!("{CONFIG_MAPS}/dry"), 404).await;
    s.post(CONFIG_MAPS, 201, config_map("a", json!({"a": "1"})))
        .await;
    s.post(CONFIG_MAPS, 409, config_map("a", json!({}))).await;
    s.post(
        &format!("{CONFIG_MAPS}?dryRun=All"),
        409,
        config_map("a", json!({})),
    )
    .await;
    s.post(
        "/api/v1/namespaces/none/configmaps",
        404,
        config_map("a", json!({})),
    )
    .await;
    s.post(
        CONFIG_MAPS,
        422,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
    )
    .await;
    let elsewhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "default"}});
    s.post(CONFIG_MAPS, 400, elsewhere).await;
    let another = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}});
    s.post(CONFIG_MAPS, 400, another).await;
    s.only(&["code", "reason"]);
    let generated =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "many-"}});
    s.post(CONFIG_MAPS, 201, generated.clone()).await;
    s.post(CONFIG_MAPS, 201, generated).await;
    s.post(
        CONFIG_MAPS,
        201,
        json!({"metadata": {"name": "bare", "labels": {}, "annotations": {"a": "b"}}}),
    )
    .await;
    s.get(&format!("{CONFIG_MAPS}/a"), 200).await;
    s.get(&format!("{CONFIG_MAPS}/none"), 404).await;
    s.get("/api/v1/namespaces/none/configmaps/none", 404).await;
}

async fn replacement<P: Peer>(s: &mut Script<'_, P>) {
    let a = format!("{CONFIG_MAPS}/a");
    let stored = s.get(&a, 200).await;
    let version = stored["metadata"]["resourceVersion"].clone();
    s.put(&a, 200, config_map("a", json!({"a": "2", "b": "1"})))
        .await;
    // Nothing differs.
    s.put(&a, 200, config_map("a", json!({"a": "2", "b": "1"})))
        .await;
    let mut stale = config_map("a", json!({"a": "3"}));
    stale["metadata"]["resourceVersion"] = version;
    s.put(&a, 409, stale).await;
    let mut other = config_map("a", json!({"a": "3"}));
    other["metadata"]["uid"] = json!("00000000-0000-4000-8000-00000000dead");
    s.put(&a, 409, other).await;
    s.put(&a, 400, config_map("b", json!({}))).await;
    let nodes = "/api/v1/nodes/none";
    s.put(nodes, 404, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "none", "resourceVersion": "1"}})).await;
    s.put(
        &format!("{a}?dryRun=All"),
        200,
        config_map("a", json!({"a": "9"})),
    )
    .await;
    s.get(&a, 200).await;
}

async fn patches<P: Peer>(s: &mut Script<'_, P>) {
    let a = format!("{CONFIG_MAPS}/a");
    let stored = s
        .merge(&a, 200, json!({"data": {"a": "4", "b": null}}))
        .await;
    s.merge(&a, 200, json!({"data": {"a": "4"}})).await;
    s.merge(&format!("{a}?dryRun=All"), 200, json!({"data": {"a": "5"}}))
        .await;
    let version = stored["metadata"]["resourceVersion"].clone();
    s.merge(
        &a,
        200,
        json!({"metadata": {"resourceVersion": version}, "data": {"a": "5"}}),
    )
    .await;
    s.merge(
        &a,
        409,
        json!({"metadata": {"resourceVersion": version}, "data": {"a": "6"}}),
    )
    .await;
    s.merge(
        &a,
        422,
        json!({"metadata": {"uid": "00000000-0000-4000-8000-00000000dead"}}),
    )
    .await;
    s.merge(
        &a,
        200,
        json!({"metadata": {"labels": {"x": "y"}, "annotations": {"foo/bar": "1"}}}),
    )
    .await;
    s.merge(&format!("{CONFIG_MAPS}/none"), 404, json!({"data": {}}))
        .await;
    let uid = stored["metadata"]["uid"].clone();
    let test = json!({"op": "test", "path": "/metadata/uid", "value": uid});
    let add = json!({"op": "add", "path": "/data/c", "value": "1"});
    s.patch(&a, 200, JSON, json!([test, add])).await;
    s.patch(
        &a,
        200,
        JSON,
        json!([{"op": "replace", "path": "/metadata/annotations/foo~1bar", "value": "2"}]),
    )
    .await;
    s.patch(
        &a,
        200,
        JSON,
        json!([{"op": "test", "path": "/data/none", "value": null}]),
    )
    .await;
    s.patch(
        &a,
        422,
        JSON,
        json!([{"op": "test", "path": "/metadata/uid", "value": "other"}, add]),
    )
    .await;
    s.patch(
        &a,
        422,
        JSON,
        json!([{"op": "add", "path": "/none/c", "value": "1"}]),
    )
    .await;
    s.patch(
        &a,
        422,
        JSON,
        json!([{"op": "remove", "path": "/data/none"}]),
    )
    .await;
    s.patch(
        &a,
        200,
        JSON,
        json!([{"op": "replace", "path": "/data/none", "value": "1"}]),
    )
    .await;
    s.patch(&a, 200, JSON, json!([{"op": "remove", "path": "/data/c"}]))
        .await;
    s.patch(&a, 415, "application/json", json!({})).await;
}

async fn deletion<P: Peer>(s: &mut Script<'_, P>) {
    let a = format!("{CONFIG_MAPS}/a");
    let stored = s.get(&a, 200).await;
    let options = |preconditions: Value| json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    s.delete(
        &a,
        409,
        options(json!({"uid": "00000000-0000-4000-8000-00000000dead"})),
    )
    .await;
    s.delete(&a, 409, options(json!({"resourceVersion": "1"})))
        .await;
    s.delete(&format!("{a}?dryRun=All"), 200, Value::Null).await;
    s.get(&a, 200).await;
    s.delete(&a, 200, options(json!({"uid": stored["metadata"]["uid"]})))
        .await;
    s.get(&a, 404).await;
    s.delete(&a, 404, options(json!({"uid": stored["metadata"]["uid"]})))
        .await;
    // Created again, it is another object.
    s.post(CONFIG_MAPS, 201, config_map("a", json!({"a": "1"})))
        .await;
    s.delete(&a, 409, options(json!({"uid": stored["metadata"]["uid"]})))
        .await;
    s.delete(&a, 200, Value::Null).await;
}

async fn finalizers<P: Peer>(s: &mut Script<'_, P>) {
    let held = format!("{CONFIG_MAPS}/held");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["contract.example/one", "contract.example/two"]},
    });
    s.post(CONFIG_MAPS, 201, object.clone()).await;
    s.delete(&held, 200, json!({})).await;
    s.delete(&held, 200, json!({})).await;
    s.get(&held, 200).await;
    s.post(CONFIG_MAPS, 409, object).await;
    s.merge(&held, 200, json!({"data": {"a": "1"}})).await;
    s.patch(
        &held,
        200,
        JSON,
        json!([{"op": "remove", "path": "/metadata/finalizers/0"}]),
    )
    .await;
    s.merge(&held, 200, json!({"metadata": {"finalizers": null}}))
        .await;
    s.get(&held, 404).await;
}

async fn lists<P: Peer>(s: &mut Script<'_, P>) {
    for (name, labels) in [
        ("l1", json!({"set": "l", "tier": "a"})),
        ("l2", json!({"set": "l", "tier": "b"})),
        ("l3", json!({"set": "l"})),
        ("l4", json!({"set": "l", "tier": "a"})),
        ("l5", json!({"set": "other"})),
    ] {
        s.post(CONFIG_MAPS, 201, labelled(name, labels)).await;
    }
    for selector in [
        "set%3Dl",
        "set%3Dl,tier%3Da",
        "set%3Dl,tier!%3Da",
        "set%3Dl,!tier",
        "set%20in%20(l,other),tier",
        "set%20notin%20(l),set",
    ] {
        s.get(&format!("{CONFIG_MAPS}?labelSelector={selector}"), 200)
            .await;
    }
    s.get(
        &format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dl3"),
        200,
    )
    .await;
    s.get(&format!("{CONFIG_MAPS}?fieldSelector=data.a%3D1"), 400)
        .await;
    s.get("/api/v1/configmaps?labelSelector=set%3Dother", 200)
        .await;
    // Pages show the objects as they were at the first.
    let first = s
        .get(&format!("{CONFIG_MAPS}?labelSelector=set%3Dl&limit=2"), 200)
        .await;
    let next = first["metadata"]["continue"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    s.merge(
        &format!("{CONFIG_MAPS}/l3"),
        200,
        json!({"data": {"since": "1"}}),
    )
    .await;
    s.delete(&format!("{CONFIG_MAPS}/l4"), 200, json!({})).await;
    let next = url::form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>();
    s.get(
        &format!("{CONFIG_MAPS}?labelSelector=set%3Dl&limit=2&continue={next}"),
        200,
    )
    .await;
    s.named("the second page");
    s.get(&format!("{CONFIG_MAPS}?limit=500&continue=nonsense"), 400)
        .await;
    s.only(&["code", "reason"]);
    let version = first["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    let exact = format!(
        "{CONFIG_MAPS}?labelSelector=set%3Dl&resourceVersionMatch=Exact&resourceVersion={version}"
    );
    s.get(&exact, 200).await;
    s.get(
        &format!("{CONFIG_MAPS}?labelSelector=set%3Dl&resourceVersion=0"),
        200,
    )
    .await;
    s.get(&format!("{LEASES}?limit=1"), 200).await;
}

async fn watches<P: Peer>(s: &mut Script<'_, P>) {
    let w = labelled("w", json!({"set": "w"}));
    let before = s
        .get(&format!("{CONFIG_MAPS}?labelSelector=set%3Dw"), 200)
        .await;
    s.post(CONFIG_MAPS, 201, w.clone()).await;
    s.merge(
        &format!("{CONFIG_MAPS}/w"),
        200,
        json!({"data": {"a": "1"}}),
    )
    .await;
    s.merge(
        &format!("{CONFIG_MAPS}/w"),
        200,
        json!({"metadata": {"labels": {"set": "v"}}}),
    )
    .await;
    s.merge(
        &format!("{CONFIG_MAPS}/w"),
        200,
        json!({"metadata": {"labels": {"set": "w"}}}),
    )
    .await;
    s.delete(&format!("{CONFIG_MAPS}/w"), 200, json!({})).await;
    s.post(CONFIG_MAPS, 201, w).await;
    let version = before["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    let from = |more: &str| format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}&{more}");
    for (more, about) in [
        ("labelSelector=set%3Dw&timeoutSeconds=1", "a watch by label"),
        (
            "fieldSelector=metadata.name%3Dw&timeoutSeconds=1",
            "a watch by name",
        ),
        (
            "labelSelector=set%3Dnone&timeoutSeconds=1",
            "a watch of nothing",
        ),
        (
            "labelSelector=set%3Dw&timeoutSeconds=10&allowWatchBookmarks=true",
            "a watch with a bookmark",
        ),
    ] {
        s.get(&from(more), 200).await;
        s.named(about);
    }
    s.get(
        "/api/v1/configmaps?watch=true&labelSelector=set%3Dw&timeoutSeconds=1",
        200,
    )
    .await;
    s.get(
        "/api/v1/configmaps?watch=true&labelSelector=set%3Dw&timeoutSeconds=1&resourceVersion=0",
        200,
    )
    .await;
    s.get(
        "/apis/apps/v1/deployments?watch=true&resourceVersion=99999999&timeoutSeconds=1",
        200,
    )
    .await;
    // The next write is what the server then remembers.
    s.peer.forget().await;
    s.get(&from("timeoutSeconds=1"), 200).await;
    s.named("a watch that has expired");
}

async fn leases<P: Peer>(s: &mut Script<'_, P>) {
    let lease = |holder: &str, version: Value| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "leader", "namespace": "contract", "resourceVersion": version},
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": null,
                "renewTime": "2026-01-01T00:00:00.000001Z", "leaseTransitions": 0,
            },
        })
    };
    let leader = format!("{LEASES}/leader");
    s.get(&leader, 404).await;
    let created = s.post(LEASES, 201, lease("one", Value::Null)).await;
    s.post(LEASES, 409, lease("two", Value::Null)).await;
    let version = created["metadata"]["resourceVersion"].clone();
    let renewed = s.put(&leader, 200, lease("one", version.clone())).await;
    let taken = s
        .put(
            &leader,
            200,
            lease("two", renewed["metadata"]["resourceVersion"].clone()),
        )
        .await;
    s.put(&leader, 409, lease("one", version)).await;
    s.put(&leader, 422, lease("one", Value::Null)).await;
    // As it was read, with all its metadata.
    let mut whole = taken;
    whole["spec"]["renewTime"] = json!("2026-01-01T00:00:10.000000Z");
    s.put(&leader, 200, whole).await;
    s.get(&leader, 200).await;
}

fn workload(kind: &str, name: &str, more: Value) -> Value {
    let mut spec = json!({
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{
                "name": "app", "image": "app:1", "resources": {"requests": {"cpu": "200m"}},
            }]},
        },
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "contract"}, "spec": spec})
}

async fn workloads<P: Peer>(s: &mut Script<'_, P>) {
    s.post(DEPLOYMENTS, 201, workload("Deployment", "web", json!({})))
        .await;
    let sets = DEPLOYMENTS.replace("deployments", "statefulsets");
    s.post(
        &sets,
        201,
        workload(
            "StatefulSet",
            "db",
            json!({"serviceName": "db", "replicas": 2}),
        ),
    )
    .await;
    let sets = DEPLOYMENTS.replace("deployments", "replicasets");
    s.post(
        &sets,
        201,
        workload("ReplicaSet", "old", json!({"replicas": 0})),
    )
    .await;
    let web = format!("{DEPLOYMENTS}/web");
    // A new generation, the same one, and one whose status is not its part to write.
    s.merge(&web, 200, json!({"spec": {"replicas": 3}})).await;
    s.merge(&web, 200, json!({"metadata": {"annotations": {"a": "b"}}}))
        .await;
    s.merge(&web, 200, json!({"status": {"replicas": 9}})).await;
    s.merge(&format!("{web}/status"), 200, json!({"spec": {"replicas": 9}, "status": {"replicas": 3, "readyReplicas": 2, "observedGeneration": 2}})).await;
    s.get(&format!("{web}/status"), 200).await;
    s.get(&format!("{web}/nothing"), 404).await;
    s.get("/apis/apps/v1/deployments?labelSelector=none", 200)
        .await;
    s.get(&format!("{DEPLOYMENTS}?limit=5"), 200).await;
    s.delete(&format!("{web}?dryRun=All"), 200, Value::Null)
        .await;
}

async fn owners_of_web<P: Peer>(s: &mut Script<'_, P>) {
    s.get_part(&format!("{DEPLOYMENTS}/web"), 200, |web| {
        let owners = web["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten();
        owners
            .filter(|owner| owner[2] != "status")
            .map(|owner| {
                let has = owner[4]
                    .as_array()
                    .is_some_and(|paths| paths.iter().any(|path| path == "f:spec f:replicas"));
                json!([owner[0], owner[1], owner[2], has])
            })
            .collect()
    })
    .await;
}

async fn scales<P: Peer>(s: &mut Script<'_, P>) {
    let web = format!("{DEPLOYMENTS}/web/scale");
    let seen = s.get(&web, 200).await;
    let version = seen["metadata"]["resourceVersion"].clone();
    let change = |version: &Value, replicas: i64| json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}});
    s.merge(
        &format!("{web}?fieldManager=scaler"),
        200,
        change(&version, 5),
    )
    .await;
    owners_of_web(s).await;
    s.merge(
        &format!("{web}?fieldManager=scaler"),
        409,
        change(&version, 6),
    )
    .await;
    let uid = &seen["metadata"]["uid"];
    let conditional = |uid: &Value, seen: Value, replicas: i64| {
        json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/spec/replicas", "value": seen},
            {"op": "add", "path": "/spec/replicas", "value": replicas},
        ])
    };
    s.patch(
        &format!("{web}?fieldManager=scaler"),
        200,
        JSON,
        conditional(uid, json!(5), 0),
    )
    .await;
    owners_of_web(s).await;
    s.get(&web, 200).await;
    // A count of zero is left out.
    s.patch(&web, 422, JSON, conditional(uid, json!(0), 2))
        .await;
    s.patch(&web, 200, JSON, conditional(uid, Value::Null, 2))
        .await;
    owners_of_web(s).await;
    s.merge(
        &format!("{web}?fieldManager=other"),
        200,
        json!({"spec": {"replicas": 3}}),
    )
    .await;
    owners_of_web(s).await;
    s.merge(
        &format!("{web}?fieldManager=scaler"),
        200,
        json!({"spec": {"replicas": 2}}),
    )
    .await;
    owners_of_web(s).await;
    s.patch(&web, 422, JSON, conditional(&json!("other"), json!(2), 3))
        .await;
    s.merge(&web, 422, json!({"spec": {"replicas": -1}})).await;
    s.merge(&web, 409, json!({"metadata": {"uid": "00000000-0000-4000-8000-00000000dead"}, "spec": {"replicas": 4}})).await;
    let mut whole = s.get(&web, 200).await;
    whole["spec"]["replicas"] = json!(4);
    s.put(&web, 200, whole.clone()).await;
    s.put(&web, 409, whole).await;
    s.merge(
        &format!("{web}?dryRun=All"),
        200,
        json!({"spec": {"replicas": 8}}),
    )
    .await;
    s.get(&format!("{DEPLOYMENTS}/web"), 200).await;
    s.get(&format!("{DEPLOYMENTS}/none/scale"), 404).await;
    s.get(&format!("{CONFIG_MAPS}/l1/scale"), 404).await;
    s.merge(
        &format!("{DEPLOYMENTS}/none/scale"),
        404,
        json!({"spec": {"replicas": 1}}),
    )
    .await;
    s.get(
        &DEPLOYMENTS.replace("deployments", "statefulsets/db/scale"),
        200,
    )
    .await;
    s.get(
        &DEPLOYMENTS.replace("deployments", "replicasets/old/scale"),
        200,
    )
    .await;
}

fn hpa(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 5,
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "contract"}, "spec": spec,
    })
}

async fn autoscalers<P: Peer>(s: &mut Script<'_, P>) {
    let behavior = json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}});
    s.post(HPAS, 201, hpa("plain", json!({}))).await;
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    let first = hpa("child", json!({"minReplicas": 2, "metrics": metrics}));
    s.apply(
        &format!("{HPAS}/child?force=true"),
        "one",
        201,
        first.clone(),
    )
    .await;
    s.apply(&format!("{HPAS}/child?force=true"), "one", 200, first)
        .await;
    s.apply(
        &format!("{HPAS}/child?force=true"),
        "one",
        200,
        hpa("child", behavior),
    )
    .await;
    let status = json!({"status": {"currentReplicas": 2, "desiredReplicas": 3}});
    s.merge(&format!("{HPAS}/child/status"), 200, status).await;
    s.get(&format!("{HPAS}/child"), 200).await;
    s.get(&format!("{HPAS}?fieldSelector=metadata.name%3Dchild"), 200)
        .await;
}

async fn pods<P: Peer>(s: &mut Script<'_, P>) {
    let pod = |name: &str, more: Value| {
        let mut spec = json!({"containers": [{"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}]});
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec})
    };
    s.post(PODS, 201, pod("waiting", json!({}))).await;
    s.post(PODS, 201, pod("running", json!({"nodeName": "node-9"})))
        .await;
    s.merge(
        &format!("{PODS}/running/status"),
        200,
        json!({"status": {"phase": "Running"}}),
    )
    .await;
    s.get(&format!("{PODS}?fieldSelector=status.phase%3DRunning"), 200)
        .await;
    s.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-9", 200)
        .await;
    s.delete(&format!("{PODS}/waiting"), 200, json!({})).await;
    s.get(&format!("{PODS}/waiting"), 404).await;
    s.delete(&format!("{PODS}/running"), 200, json!({})).await;
    s.get(&format!("{PODS}/running"), 200).await;
    s.delete(
        &format!("{PODS}/running"),
        200,
        json!({"gracePeriodSeconds": 0}),
    )
    .await;
    s.get(&format!("{PODS}/running"), 404).await;
}

/// Secrets and events.
async fn texts<P: Peer>(s: &mut Script<'_, P>) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"a": "b"}},
        "stringData": {"k": "text"}, "data": {"d": "dGV4dA=="},
    });
    let created = s.post(SECRETS, 201, secret).await;
    s.get(&format!("{SECRETS}?labelSelector=a"), 200).await;
    let mut whole = created;
    whole["data"]["d"] = json!("b3RoZXI=");
    s.put(&format!("{SECRETS}/s"), 200, whole.clone()).await;
    s.put(&format!("{SECRETS}/s"), 409, whole).await;
    s.delete(
        &format!("{SECRETS}/s"),
        200,
        json!({"apiVersion": "v1", "kind": "DeleteOptions"}),
    )
    .await;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"generateName": "web-", "namespace": "contract"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "contract", "reportingInstance": "contract",
        "type": "Normal", "reason": "Tested", "action": "Test", "note": "a note",
        "regarding": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "contract", "name": "web"},
    });
    s.post(EVENTS, 201, event).await;
    s.get(&format!("{EVENTS}?limit=9"), 200).await;
}

async fn definitions<P: Peer>(s: &mut Script<'_, P>) {
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    s.get(WIDGETS, 404).await;
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "default": 2}, "replicas": {"type": "integer"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {"type": "array", "items": {"type": "string"}},
        "parts": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "weight": {"type": "integer", "default": 1},
        }}},
    }});
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.contract.example"},
        "spec": {
            "group": "contract.example", "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    });
    s.post(crds, 201, definition).await;
    if let Some(last) = s.exchanges.last_mut() {
        // Controllers complete it at once or later.
        last.answer = last.answer["metadata"]["generation"].take();
    }
    s.until(WIDGETS, 200).await;
    s.get_part("/apis/contract.example/v1", 200, |list| {
        resources(list, &["widgets", "widgets/scale", "widgets/status"])
    })
    .await;
}

fn widget(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "contract.example/v1", "kind": "Widget",
        "metadata": {"name": name, "namespace": "contract"}, "spec": spec,
    })
}

async fn custom_objects<P: Peer>(s: &mut Script<'_, P>) {
    let w = format!("{WIDGETS}/w");
    let mut first = widget(
        "w",
        json!({"parts": [{"name": "a"}, {"name": "b", "weight": 3}]}),
    );
    first["status"] = json!({"lost": true});
    let created = s.post(WIDGETS, 201, first).await;
    s.put(&w, 422, widget("w", json!({}))).await;
    let mut whole = created;
    whole["spec"]["size"] = json!(3);
    let stored = s.put(&w, 200, whole.clone()).await;
    s.put(&w, 409, whole).await;
    // Neither labels nor the status make a new generation.
    s.merge(
        &w,
        200,
        json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["contract.example/hold"]}}),
    )
    .await;
    s.merge(&w, 200, json!({"status": {"lost": true}})).await;
    s.merge(
        &w,
        200,
        json!({"spec": {"replicas": 2, "list": ["x", "y"]}}),
    )
    .await;
    s.merge(&w, 409, json!({"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]}, "spec": {"size": 4}})).await;
    s.get(&format!("{WIDGETS}?limit=500"), 200).await;
    s.get(
        "/apis/contract.example/v1/widgets?fieldSelector=metadata.name%3Dw",
        200,
    )
    .await;
    s.get(&format!("{w}/scale"), 200).await;
    s.merge(
        &format!("{w}/scale?fieldManager=scaler"),
        200,
        json!({"spec": {"replicas": 7}}),
    )
    .await;
    s.merge(
        &format!("{w}/scale?fieldManager=scaler"),
        200,
        json!({"spec": {"replicas": 0}}),
    )
    .await;
    s.delete(&w, 200, json!({})).await;
    s.get(&w, 200).await;
    let version = s.get(&w, 200).await["metadata"]["resourceVersion"].clone();
    let free = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]);
    s.patch(&w, 200, JSON, free).await;
    s.get(&w, 404).await;
}

async fn custom_status<P: Peer>(s: &mut Script<'_, P>) {
    let created = s.post(WIDGETS, 201, widget("s", json!({}))).await;
    let path = format!("{WIDGETS}/s/status?fieldManager=one");
    let uid = &created["metadata"]["uid"];
    let test = |uid: &Value| json!({"op": "test", "path": "/metadata/uid", "value": uid});
    let missing = json!({"op": "test", "path": "/status", "value": null});
    let add = |value: Value| json!({"op": "add", "path": "/status", "value": value});
    s.patch(
        &path,
        200,
        JSON,
        json!([
            test(uid),
            missing,
            add(json!({"replicas": 2, "selector": "a=b"}))
        ]),
    )
    .await;
    s.patch(
        &path,
        422,
        JSON,
        json!([test(uid), missing, add(json!({}))]),
    )
    .await;
    s.patch(
        &path,
        422,
        JSON,
        json!([test(&json!("other")), add(json!({}))]),
    )
    .await;
    s.patch(
        &path,
        200,
        JSON,
        json!([
            test(uid),
            add(json!({"replicas": 3, "rows": [{"name": "a"}]}))
        ]),
    )
    .await;
    s.patch(
        &path,
        200,
        JSON,
        json!([
            test(uid),
            add(json!({"replicas": 3, "rows": [{"name": "a"}]}))
        ]),
    )
    .await;
    s.patch(
        &path,
        200,
        JSON,
        json!([test(uid), {"op": "add", "path": "/status/rows", "value": []}]),
    )
    .await;
    s.merge(
        &format!("{WIDGETS}/s/status"),
        200,
        json!({"metadata": {"labels": {"x": "y"}}, "spec": {"size": 9}, "status": {"replicas": 4}}),
    )
    .await;
    s.patch(
        &format!("{WIDGETS}/none/status"),
        404,
        JSON,
        json!([add(json!({}))]),
    )
    .await;
    s.get(&format!("{WIDGETS}/s/scale"), 500).await;
    s.delete(&format!("{WIDGETS}/s"), 200, json!({})).await;
}

async fn apply<P: Peer>(s: &mut Script<'_, P>) {
    let path = format!("{CONFIG_MAPS}/applied");
    let of = |data: Value| config_map("applied", data);
    s.apply(
        &format!("{path}?dryRun=All"),
        "one",
        201,
        of(json!({"a": "1", "b": "1"})),
    )
    .await;
    s.get(&path, 404).await;
    s.apply(&path, "one", 201, of(json!({"a": "1", "b": "1"})))
        .await;
    s.apply(&path, "one", 200, of(json!({"a": "1", "b": "1"})))
        .await;
    // Both own `a`; without the first, it stays.
    s.apply(&path, "two", 200, of(json!({"a": "1", "c": "1"})))
        .await;
    s.apply(&path, "one", 200, of(json!({"b": "1"}))).await;
    s.apply(&path, "one", 200, of(json!({}))).await;
    s.apply(&path, "one", 200, of(json!({"e": "1"}))).await;
    s.apply(&path, "one", 200, of(json!({}))).await;
    s.merge(
        &format!("{path}?fieldManager=three"),
        200,
        json!({"data": {"c": "2", "d": "1"}}),
    )
    .await;
    s.apply(&path, "two", 200, of(json!({"a": "2"}))).await;
    s.apply(
        &format!("{path}?dryRun=All"),
        "two",
        200,
        of(json!({"a": "3"})),
    )
    .await;
    s.get(&path, 200).await;
}

/// Nobody owns a field of an object that had none; the first apply finds that somebody does.
async fn apply_to_untracked<P: Peer>(s: &mut Script<'_, P>) {
    let path = format!("{CONFIG_MAPS}/untracked");
    s.post(
        CONFIG_MAPS,
        201,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "untracked"}}),
    )
    .await;
    s.merge(&path, 200, json!({"data": {"a": "1", "b": "1"}}))
        .await;
    s.apply(
        &path,
        "one",
        409,
        config_map("untracked", json!({"a": "2"})),
    )
    .await;
    s.apply(
        &path,
        "one",
        200,
        config_map("untracked", json!({"a": "1", "c": "1"})),
    )
    .await;
    s.merge(&path, 200, json!({"data": {"d": "1"}})).await;
}

async fn apply_conflicts<P: Peer>(s: &mut Script<'_, P>) {
    let path = format!("{CONFIG_MAPS}/applied");
    let of = |data: Value| config_map("applied", data);
    s.apply(&path, "four", 409, of(json!({"a": "9"}))).await;
    s.apply(
        &path,
        "four",
        409,
        of(json!({"a": "9", "c": "9", "d": "9"})),
    )
    .await;
    s.apply(&path, "three", 409, of(json!({"d": "9"}))).await;
    s.apply(
        &format!("{path}?force=true"),
        "four",
        200,
        of(json!({"a": "9", "d": "9"})),
    )
    .await;
    s.apply(&path, "two", 409, of(json!({"a": "2"}))).await;
    s.apply(&path, "two", 200, of(json!({}))).await;
    // The replicas belong to who scaled last, but only if somebody owned them before.
    let web = format!("{DEPLOYMENTS}/web");
    let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 1}});
    s.merge(
        &format!("{web}/scale?fieldManager=scaler"),
        200,
        json!({"spec": {"replicas": 6}}),
    )
    .await;
    s.apply(&web, "one", 200, scaled.clone()).await;
    s.merge(
        &format!("{web}/scale?fieldManager=scaler"),
        200,
        json!({"spec": {"replicas": 6}}),
    )
    .await;
    s.apply(&web, "one", 409, scaled.clone()).await;
    s.apply(&format!("{web}?force=true"), "one", 200, scaled)
        .await;
    s.merge(
        &format!("{web}/scale?fieldManager=scaler"),
        200,
        json!({"spec": {"replicas": 2}}),
    )
    .await;
    s.put(&path, 200, of(json!({"a": "9", "z": "1"}))).await;
    s.get(&path, 200).await;
}

async fn apply_preconditions<P: Peer>(s: &mut Script<'_, P>) {
    let path = format!("{CONFIG_MAPS}/applied");
    let live = s.get(&path, 200).await;
    let of = |name: &str, metadata: Value| {
        let mut object = config_map(name, json!({"p": "1"}));
        if let (Some(all), Value::Object(more)) = (object["metadata"].as_object_mut(), metadata) {
            all.extend(more);
        }
        object
    };
    let (uid, version) = (
        &live["metadata"]["uid"],
        &live["metadata"]["resourceVersion"],
    );
    s.apply(
        &path,
        "p",
        200,
        of("applied", json!({"uid": uid, "resourceVersion": version})),
    )
    .await;
    s.apply(
        &path,
        "p",
        409,
        of(
            "applied",
            json!({"resourceVersion": version, "labels": {"a": "b"}}),
        ),
    )
    .await;
    s.apply(
        &path,
        "p",
        422,
        of(
            "applied",
            json!({"uid": "00000000-0000-4000-8000-00000000dead"}),
        ),
    )
    .await;
    s.apply(&path, "p", 400, of("other", json!({}))).await;
    s.apply(
        &format!("{CONFIG_MAPS}/none"),
        "p",
        409,
        of("none", json!({"uid": uid})),
    )
    .await;
    s.apply(
        &format!("{CONFIG_MAPS}/none"),
        "p",
        201,
        of("none", json!({"resourceVersion": "1"})),
    )
    .await;
    s.patch(&path, 422, super::APPLY, of("applied", json!({})))
        .await;
    s.apply(
        "/api/v1/namespaces/none/configmaps/a",
        "p",
        404,
        config_map("a", json!({})),
    )
    .await;
}

async fn apply_lists<P: Peer>(s: &mut Script<'_, P>) {
    let path = format!("{CONFIG_MAPS}/listed");
    let of = |finalizers: Value, owners: Value| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "listed", "finalizers": finalizers, "ownerReferences": owners},
        })
    };
    let owner = |uid: &str, name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let [x, y] = [
        "00000000-0000-4000-8000-000000000001",
        "00000000-0000-4000-8000-000000000002",
    ];
    s.apply(
        &path,
        "one",
        201,
        of(json!(["e/a"]), json!([owner(x, "x")])),
    )
    .await;
    s.apply(
        &path,
        "two",
        200,
        of(json!(["e/b"]), json!([owner(y, "y")])),
    )
    .await;
    s.apply(&path, "one", 200, of(json!(["e/c"]), json!([])))
        .await;
    s.apply(&path, "two", 200, of(json!([]), json!([]))).await;
    s.apply(&path, "one", 200, of(json!([]), json!([]))).await;
    s.delete(&path, 200, json!({})).await;
    let web = format!("{DEPLOYMENTS}/web");
    let containers = |list: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"template": {"spec": {"containers": list}}},
        })
    };
    let sidecar =
        json!([{"name": "side", "image": "side:1", "env": [{"name": "A", "value": "1"}]}]);
    s.apply(&web, "sidecar", 200, containers(sidecar)).await;
    s.apply(
        &web,
        "sidecar",
        409,
        containers(json!([{"name": "app", "image": "app:2"}])),
    )
    .await;
    s.apply(
        &web,
        "sidecar",
        200,
        containers(json!([{"name": "side", "image": "side:2"}])),
    )
    .await;
    s.apply(
        &web,
        "sidecar",
        200,
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}),
    )
    .await;
    let custom = format!("{WIDGETS}/applied");
    s.apply(
        &custom,
        "one",
        201,
        widget("applied", json!({"list": ["a"], "labels": {"x": "1"}})),
    )
    .await;
    s.apply(
        &custom,
        "two",
        409,
        widget("applied", json!({"list": ["b"]})),
    )
    .await;
    s.apply(
        &custom,
        "two",
        200,
        widget("applied", json!({"labels": {"y": "1"}, "size": 2})),
    )
    .await;
    s.apply(&custom, "one", 200, widget("applied", json!({})))
        .await;
    s.apply(&custom, "two", 200, widget("applied", json!({"size": 5})))
        .await;
    s.apply(&format!("{custom}/status"), "two", 200, json!({"apiVersion": "contract.example/v1", "kind": "Widget", "metadata": {"name": "applied"}, "status": {"a": 1}})).await;
}

async fn rights<P: Peer>(s: &mut Script<'_, P>) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "contract"},
        "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]},
            {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["patch"]},
        ],
    });
    let get = async |s: &mut Script<'_, P>, path: &str, code| {
        s.send(Sent::get(path).by(USER), code).await
    };
    get(s, CONFIG_MAPS, 403).await;
    s.post(&format!("{RBAC}/clusterroles"), 201, role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "contract"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "contract"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "contract", "name": "user"}],
    });
    s.post(
        &format!("{RBAC}/namespaces/contract/rolebindings"),
        201,
        binding.clone(),
    )
    .await;
    // The server learns of roles by a watch.
    for _ in 0..100 {
        let (code, _) = s.exchange(&Sent::get(CONFIG_MAPS).by(USER)).await;
        if code == 200 {
            break;
        }
    }
    let selected = format!("{CONFIG_MAPS}?labelSelector=set%3Dother");
    get(s, &selected, 200).await;
    get(s, &format!("{CONFIG_MAPS}/l1"), 403).await;
    get(s, "/api/v1/configmaps", 403).await;
    get(s, "/api/v1/namespaces/kube-system", 403).await;
    get(s, &format!("{DEPLOYMENTS}/web/scale"), 403).await;
    let scale = format!("{DEPLOYMENTS}/web/scale");
    s.send(
        Sent::with_body(
            Method::PATCH,
            &scale,
            super::MERGE,
            json!({"spec": {"replicas": 3}}),
        )
        .by(USER),
        200,
    )
    .await;
    s.send(
        Sent::with_body(
            Method::PATCH,
            &format!("{DEPLOYMENTS}/web"),
            super::MERGE,
            json!({}),
        )
        .by(USER),
        403,
    )
    .await;
    s.send(
        Sent::with_body(
            Method::POST,
            CONFIG_MAPS,
            "application/json",
            config_map("x", json!({})),
        )
        .by(USER),
        403,
    )
    .await;
    // An apply that creates needs the right to create.
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "mine"}});
    s.send(
        Sent::with_body(
            Method::PATCH,
            &format!("{LEASES}/mine?fieldManager=u"),
            super::APPLY,
            lease,
        )
        .by(USER),
        403,
    )
    .await;
    get(s, "/apis/apps/v1/nodes", 403).await;
}

async fn reviews<P: Peer>(s: &mut Script<'_, P>) {
    let review = |kind: &str, user: Option<&str>, attributes: Value| {
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": kind,
            "spec": {"user": user, "resourceAttributes": attributes},
        })
    };
    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let any = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let list = json!({"verb": "list", "resource": "configmaps", "namespace": "contract"});
    let delete = json!({"verb": "delete", "resource": "configmaps", "namespace": "contract"});
    for attributes in [&list, &delete] {
        let body = review("SelfSubjectAccessReview", None, attributes.clone());
        s.send(
            Sent::with_body(Method::POST, own, "application/json", body).by(USER),
            201,
        )
        .await;
        s.post(
            any,
            201,
            review("SubjectAccessReview", Some(USER), attributes.clone()),
        )
        .await;
    }
    for exchange in s.exchanges.iter_mut().rev().take(4) {
        // The reason is for people.
        exchange.answer = exchange.answer["status"]["allowed"].take();
    }
    s.send(
        Sent::with_body(
            Method::POST,
            any,
            "application/json",
            review("SubjectAccessReview", Some(USER), list),
        )
        .by(USER),
        403,
    )
    .await;
}

async fn garbage<P: Peer>(s: &mut Script<'_, P>) {
    let owner = |object: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
    let first = s
        .post(CONFIG_MAPS, 201, config_map("owner-1", json!({})))
        .await;
    let second = s
        .post(CONFIG_MAPS, 201, config_map("owner-2", json!({})))
        .await;
    for (name, owners) in [
        ("one", json!([owner(&first)])),
        ("both", json!([owner(&first), owner(&second)])),
    ] {
        let mut object = config_map(&format!("owned-by-{name}"), json!({}));
        object["metadata"]["ownerReferences"] = owners;
        s.post(CONFIG_MAPS, 201, object).await;
    }
    let mut hpa = hpa("owned", json!({}));
    hpa["metadata"]["ownerReferences"] = json!([owner(&first)]);
    s.post(HPAS, 201, hpa).await;
    let mut again = config_map("owned-by-owned", json!({}));
    let one = s.get(&format!("{CONFIG_MAPS}/owned-by-one"), 200).await;
    again["metadata"]["ownerReferences"] = json!([owner(&one)]);
    s.post(CONFIG_MAPS, 201, again).await;
    s.delete(&format!("{CONFIG_MAPS}/owner-1"), 200, json!({}))
        .await;
    s.until(&format!("{CONFIG_MAPS}/owned-by-one"), 404).await;
    s.until(&format!("{CONFIG_MAPS}/owned-by-owned"), 404).await;
    s.until(&format!("{HPAS}/owned"), 404).await;
    s.get_part(&format!("{CONFIG_MAPS}/owned-by-both"), 200, |object| {
        object["metadata"]["name"].clone()
    })
    .await;
    s.delete(&format!("{CONFIG_MAPS}/owner-2"), 200, json!({}))
        .await;
    s.until(&format!("{CONFIG_MAPS}/owned-by-both"), 404).await;
}

async fn terminating_namespaces<P: Peer>(s: &mut Script<'_, P>) {
    let maps = "/api/v1/namespaces/ends/configmaps";
    s.post(
        "/api/v1/namespaces",
        201,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ends"}}),
    )
    .await;
    let mut held = config_map("held", json!({}));
    held["metadata"]["finalizers"] = json!(["contract.example/hold"]);
    s.post(maps, 201, held).await;
    s.post(maps, 201, config_map("free", json!({}))).await;
    s.delete("/api/v1/namespaces/ends", 200, json!({})).await;
    s.post(maps, 403, config_map("late", json!({}))).await;
    s.until(&format!("{maps}/free"), 404).await;
    s.get_part("/api/v1/namespaces/ends", 200, |namespace| {
        namespace["status"]["phase"].clone()
    })
    .await;
    s.merge(
        &format!("{maps}/held"),
        200,
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    s.until("/api/v1/namespaces/ends", 404).await;
}
