//! The hub: exact requests, and what becomes of their responses.

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus, FederatedHPA,
    FederatedHPAStatus, TimeSeriesPredictionStatus,
};
use foretide_domain::{Replicas, ScaleTarget, observation::Scale};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::super::{KubeCluster, Options, store::Entry, watch::WatchTimeouts};
use crate::{
    adapters::api_server::{
        Connection, Limits, WriteGate,
        fake::{FakeServer, Reply, Sent},
    },
    clock::Clock,
    leadership::{Leadership, Token},
    ports::{Cluster, ClusterError, EventNote, ScaleView, Workloads},
};

fn cluster(client: Client) -> KubeCluster {
    gated(client, WriteGate::default())
}

fn gated(client: Client, gate: WriteGate) -> KubeCluster {
    let limits = Limits {
        backoff: std::time::Duration::ZERO,
        ..Limits::default()
    };
    let options = Options {
        namespaces: &[],
        limits,
        timeouts: WatchTimeouts::default(),
        gate,
    };
    KubeCluster::hub(Connection::over(client), options)
}

fn server(
    reply: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static,
) -> (FakeServer, KubeCluster) {
    let (server, client) = FakeServer::new(reply);
    (server, cluster(client))
}

fn target(api_version: &str, kind: &str) -> ScaleTarget {
    ScaleTarget {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: "shop".into(),
        name: "web".into(),
    }
}

fn scale_view(version: &str) -> ScaleView {
    ScaleView {
        scale: Scale {
            spec: Replicas::new(2),
            status: Replicas::new(2),
        },
        selector: "app=web".into(),
        resource_version: version.into(),
        uid: "u".into(),
        template: None,
    }
}

fn scale_object(replicas: i32) -> Value {
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "41"},
        "spec": {"replicas": replicas},
        "status": {"replicas": 1, "selector": "app=web"},
    })
}

fn deployment() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "40"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"replicas": 2},
    })
}

fn resource_list(_sent: &Sent, _before: usize) -> Reply {
    Reply::Ok(json!({"groupVersion": "example.com/v1", "resources": [
        {"name": "queues", "kind": "Queue", "namespaced": true, "verbs": ["get"]},
        {"name": "queues/scale", "kind": "Scale", "namespaced": true, "verbs": ["get", "patch"]},
        {"name": "topics", "kind": "Topic", "namespaced": true, "verbs": ["get"]},
        {"name": "regions", "kind": "Region", "namespaced": false, "verbs": ["get"]},
        {"name": "regions/scale", "kind": "Scale", "namespaced": false, "verbs": ["get"]},
    ]}))
}

#[tokio::test]
async fn a_deployments_scale_comes_from_the_store_and_costs_no_request() {
    let (server, cluster) = server(|_, _| Reply::Hang);
    let web = target("apps/v1", "Deployment");
    let before = cluster.scale(&web).await;
    assert!(
        matches!(before, Err(ClusterError::Unreachable { .. })),
        "{before:?}"
    );

    let [deployments, ..] = &cluster.stores.workloads;
    deployments.replace(None, Vec::from_iter(Entry::decode(deployment())));
    let view = cluster.scale(&web).await.unwrap();
    assert_eq!(
        view,
        ScaleView {
            resource_version: "40".into(),
            ..scale_view("")
        }
    );

    let absent = ScaleTarget {
        name: "gone".into(),
        ..web
    };
    let what = "Deployment shop/gone".to_owned();
    assert_eq!(
        cluster.scale(&absent).await,
        Err(ClusterError::NotFound { what })
    );
    assert_eq!(server.lines(), [] as [&str; 0]);
    assert!(!cluster.is_synced(), "other kinds have no list yet");
}

#[tokio::test]
async fn any_kind_with_a_scale_subresource_is_found_by_discovery() {
    let (server, cluster) = server(|sent, before| {
        if sent.line.ends_with("/scale") {
            Reply::Ok(scale_object(2))
        } else {
            resource_list(sent, before)
        }
    });
    let queue = target("example.com/v1", "Queue");
    let view = cluster.scale(&queue).await.unwrap();
    let scale = Scale {
        spec: Replicas::new(2),
        status: Replicas::new(1),
    };
    assert_eq!(
        view,
        ScaleView {
            scale,
            ..scale_view("41")
        }
    );
    cluster.scale(&queue).await.unwrap();
    assert_eq!(
        server.lines(),
        [
            "GET /apis/example.com/v1",
            "GET /apis/example.com/v1/namespaces/shop/queues/web/scale",
            "GET /apis/example.com/v1/namespaces/shop/queues/web/scale",
        ]
    );
}

#[tokio::test]
async fn a_kind_without_a_scale_is_refused_and_discovered_once() {
    let (server, cluster) = server(resource_list);
    for (kind, want) in [
        (
            "Topic",
            "Topic shop/web cannot be scaled: Topic of example.com/v1 is not a namespaced kind with a \
             scale subresource",
        ),
        (
            "Region",
            "Region shop/web cannot be scaled: Region of example.com/v1 is not a namespaced kind with a \
             scale subresource",
        ),
        (
            "Quue",
            "Quue shop/web cannot be scaled: the cluster has no kind Quue in example.com/v1; \
             correct scaleTargetRef or install its CRD",
        ),
    ] {
        for _again in 0..2 {
            let error = cluster
                .scale(&target("example.com/v1", kind))
                .await
                .unwrap_err();
            assert_eq!(error.to_string(), want);
            assert!(matches!(error, ClusterError::NotScalable { .. }));
        }
    }
    assert_eq!(server.lines(), ["GET /apis/example.com/v1"]);
}

#[tokio::test]
async fn a_group_that_is_not_installed_is_not_scalable_and_a_failing_one_is_unreachable() {
    let (_server, missing) = server(|_, _| Reply::Fail(404, "page not found"));
    let error = missing
        .scale(&target("example.com/v1", "Queue"))
        .await
        .unwrap_err();
    assert!(matches!(error, ClusterError::NotScalable { .. }), "{error}");
    let (_server, down) = server(|_, _| Reply::Fail(503, "unavailable"));
    let error = down
        .scale(&target("example.com/v1", "Queue"))
        .await
        .unwrap_err();
    assert!(matches!(error, ClusterError::Unreachable { .. }), "{error}");
    let (server, odd) = server(|_, _| Reply::Hang);
    let error = odd.scale(&target("../v1", "Queue")).await.unwrap_err();
    assert!(matches!(error, ClusterError::Invalid { .. }), "{error}");
    assert_eq!(server.lines(), [] as [&str; 0]);
}

#[tokio::test]
async fn replicas_are_written_with_the_version_they_were_decided_from() {
    let (server, cluster) = server(|_, _| Reply::Ok(scale_object(5)));
    let web = target("apps/v1", "Deployment");
    let written = cluster
        .write_scale(&web, &scale_view("40"), Replicas::new(5))
        .await;
    assert_eq!(written, Ok(Replicas::new(5)));
    let sent = Sent {
        line: "PATCH /apis/apps/v1/namespaces/shop/deployments/web/scale?fieldManager=foretide"
            .into(),
        content_type: Some("application/merge-patch+json".into()),
        body: json!({"metadata": {"resourceVersion": "40"}, "spec": {"replicas": 5}}),
    };
    assert_eq!(server.sent(), [sent]);

    let without_version = cluster
        .write_scale(&web, &scale_view(""), Replicas::new(5))
        .await;
    assert!(
        matches!(without_version, Err(ClusterError::Invalid { .. })),
        "{without_version:?}"
    );
    assert_eq!(
        server.lines().len(),
        1,
        "nothing is written without a version"
    );
}

#[tokio::test]
async fn a_copy_from_before_our_write_shows_what_was_written_and_a_later_one_itself() {
    let (_server, cluster) = server(|_, _| Reply::Ok(scale_object(5)));
    let web = target("apps/v1", "Deployment");
    let [deployments, ..] = &cluster.stores.workloads;
    let shows = |version: &str, uid: &str, replicas: u32| {
        let mut copy = deployment();
        copy["metadata"]["resourceVersion"] = version.into();
        copy["metadata"]["uid"] = uid.into();
        copy["spec"]["replicas"] = replicas.into();
        deployments.apply(Entry::decode(copy).unwrap());
    };
    let count = async || {
        let view = cluster.scale(&web).await.unwrap();
        (view.scale.spec.get(), view.resource_version)
    };
    deployments.replace(None, Vec::from_iter(Entry::decode(deployment())));
    let seen = cluster.scale(&web).await.unwrap();
    let write = || cluster.write_scale(&web, &seen, Replicas::new(5));
    // It is stored with version 41.
    write().await.unwrap();
    assert_eq!(count().await, (5, "41".to_owned()));
    // A crash of a pod that came in between.
    shows("40", "u", 2);
    assert_eq!(count().await, (5, "41".to_owned()));
    // Another writer.
    shows("42", "u", 3);
    assert_eq!(count().await, (3, "42".to_owned()));
    shows("40", "u", 2);
    assert_eq!(count().await, (2, "40".to_owned()), "known to be delivered");
    // Another object of this name.
    write().await.unwrap();
    shows("40", "v", 1);
    assert_eq!(count().await, (1, "40".to_owned()));
}

/// A scale with this count, whose version changes all the time: a merge patch with a version is a conflict.
fn restless_scale(count: i32) -> impl Fn(&Sent, usize) -> Reply + Send + Sync {
    move |sent, _| match &sent.body {
        Value::Array(operations) => {
            let spec = if count == 0 {
                json!({})
            } else {
                json!({"replicas": count})
            };
            let stored = json!({"metadata": {"uid": "u"}, "spec": spec});
            let fails = |operation: &Value| {
                let found = stored.pointer(operation["path"].as_str().unwrap());
                operation["op"] == "test" && *found.unwrap_or(&Value::Null) != operation["value"]
            };
            if operations.iter().any(fails) {
                return Reply::Fail(422, "testing value /spec/replicas failed: test failed");
            }
            let written = operations.last().unwrap()["value"].as_i64().unwrap();
            Reply::Ok(scale_object(i32::try_from(written).unwrap()))
        }
        _ => Reply::Fail(409, "the object has been modified"),
    }
}

#[tokio::test]
async fn a_target_is_scaled_although_its_status_changes_all_the_time() {
    let (server, cluster) = server(restless_scale(2));
    let web = target("apps/v1", "StatefulSet");
    let written = cluster
        .write_scale(&web, &scale_view("40"), Replicas::new(5))
        .await;
    assert_eq!(written, Ok(Replicas::new(5)));
    let scale = "PATCH /apis/apps/v1/namespaces/shop/statefulsets/web/scale?fieldManager=foretide";
    let sent = |content_type: &str, body| Sent {
        line: scale.into(),
        content_type: Some(format!("application/{content_type}+json")),
        body,
    };
    assert_eq!(
        server.sent(),
        [
            sent(
                "merge-patch",
                json!({"metadata": {"resourceVersion": "40"}, "spec": {"replicas": 5}})
            ),
            sent(
                "json-patch",
                json!([
                    {"op": "test", "path": "/metadata/uid", "value": "u"},
                    {"op": "test", "path": "/spec/replicas", "value": 2},
                    {"op": "add", "path": "/spec/replicas", "value": 5},
                ])
            ),
        ]
    );
}

#[tokio::test]
async fn a_target_at_zero_is_scaled_although_its_status_changes() {
    let (_server, cluster) = server(restless_scale(0));
    let mut seen = scale_view("40");
    seen.scale.spec = Replicas::ZERO;
    let web = target("apps/v1", "StatefulSet");
    let written = cluster.write_scale(&web, &seen, Replicas::new(1)).await;
    assert_eq!(written, Ok(Replicas::new(1)));
}

#[tokio::test]
async fn a_target_whose_count_was_changed_or_that_was_created_again_is_a_conflict() {
    let other = ScaleView {
        uid: "another".into(),
        ..scale_view("40")
    };
    for (seen, count) in [(scale_view("40"), 3), (scale_view("40"), 0), (other, 2)] {
        let (server, cluster) = server(restless_scale(count));
        let web = target("apps/v1", "StatefulSet");
        let written = cluster.write_scale(&web, &seen, Replicas::new(5)).await;
        assert_eq!(
            written,
            Err(ClusterError::Conflict {
                what: "StatefulSet shop/web".into()
            })
        );
        assert_eq!(
            server.lines().len(),
            2,
            "it is tried once more, not again and again"
        );
    }
}

fn manifest(kind: &str) -> Value {
    json!({
        "kind": kind,
        "metadata": {"namespace": "shop", "name": "ehpa-web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 3,
        },
    })
}

#[tokio::test]
async fn our_objects_are_applied_with_force() {
    let (server, cluster) = server(|sent, _| Reply::Ok(sent.body.clone()));
    let applied = cluster
        .apply_hpa(&manifest("HorizontalPodAutoscaler"))
        .await
        .unwrap();
    assert_eq!(
        (applied.name.as_str(), &applied.spec["maxReplicas"]),
        ("ehpa-web", &json!(3))
    );
    cluster
        .apply_prediction(&manifest("TimeSeriesPrediction"))
        .await
        .unwrap();
    let sent = |line: &str, kind| Sent {
        line: line.into(),
        content_type: Some("application/apply-patch+yaml".into()),
        body: manifest(kind),
    };
    let hpa = "PATCH /apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/ehpa-web\
               ?fieldManager=foretide&force=true";
    let tsp = "PATCH /apis/prediction.crane.io/v1alpha1/namespaces/shop/timeseriespredictions/ehpa-web\
               ?fieldManager=foretide&force=true";
    assert_eq!(
        server.sent(),
        [
            sent(hpa, "HorizontalPodAutoscaler"),
            sent(tsp, "TimeSeriesPrediction")
        ]
    );

    let nameless = cluster
        .apply_hpa(&json!({"metadata": {"namespace": "shop"}}))
        .await;
    assert!(
        matches!(nameless, Err(ClusterError::Invalid { .. })),
        "{nameless:?}"
    );
    assert_eq!(server.lines().len(), 2);
}

#[tokio::test]
async fn a_status_is_written_to_the_object_that_was_decided_about_and_no_other() {
    let (server, cluster) = server(|_, _| Reply::Ok(json!({})));
    let status = TimeSeriesPredictionStatus::default();
    cluster
        .write_prediction_status("shop", "web", "u1", &status)
        .await
        .unwrap();
    let autoscaler = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u2", "resourceVersion": "9"},
        "spec": manifest("EffectiveHorizontalPodAutoscaler")["spec"],
    }));
    let status = foretide_crds::EffectiveHorizontalPodAutoscalerStatus {
        expect_replicas: Some(4),
        ..Default::default()
    };
    cluster
        .write_status(&autoscaler.unwrap(), &status)
        .await
        .unwrap();
    let sent = |path: &str, uid: &str, status: Value| Sent {
        line: format!("PATCH /apis/{path}/web/status?fieldManager=foretide"),
        content_type: Some("application/json-patch+json".into()),
        body: json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": status},
        ]),
    };
    let prediction = "prediction.crane.io/v1alpha1/namespaces/shop/timeseriespredictions";
    let autoscaler =
        "autoscaling.crane.io/v1alpha1/namespaces/shop/effectivehorizontalpodautoscalers";
    assert_eq!(
        server.sent(),
        [
            sent(prediction, "u1", json!({})),
            sent(autoscaler, "u2", json!({"expectReplicas": 4})),
        ]
    );
}

#[tokio::test]
async fn a_status_from_an_old_copy_replaces_only_the_conditions() {
    let (server, cluster) = server(|_, _| Reply::Ok(json!({})));
    let object = json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u"},
        "spec": manifest("EffectiveHorizontalPodAutoscaler")["spec"],
        "status": {"expectReplicas": 4},
    });
    let autoscaler: EffectiveHorizontalPodAutoscaler =
        serde_json::from_value(object.clone()).unwrap();
    let fdhpa: FederatedHPA = serde_json::from_value(object).unwrap();
    let old = foretide_crds::EffectiveHorizontalPodAutoscalerStatus {
        expect_replicas: Some(4),
        conditions: Some(Vec::new()),
        ..Default::default()
    };
    let old_fleet = FederatedHPAStatus {
        fleet: old.clone(),
        ..FederatedHPAStatus::default()
    };
    let written = async || {
        cluster.write_status(&autoscaler, &old).await.unwrap();
        let written = cluster.write_federated_status(&fdhpa, &old_fleet);
        written.await.unwrap();
        let sent = server.sent();
        let last = sent.iter().rev().take(2);
        last.map(|sent| sent.body[1]["path"].clone())
            .collect::<Vec<_>>()
    };
    // Never listed, and therefore not known to be up to date.
    assert_eq!(written().await, ["/status/conditions"; 2]);
    cluster
        .role
        .autoscalers
        .contacted(None, &Clock::system().contact());
    cluster
        .role
        .federated
        .contacted(None, &Clock::system().contact());
    assert_eq!(written().await, ["/status"; 2]);
}

#[tokio::test]
async fn a_status_says_which_leader_wrote_its_decision() {
    let (server, client) = FakeServer::always(|| Reply::Ok(json!({})));
    let leadership = Leadership::standby(Clock::system());
    leadership.set(Some(Token {
        epoch: 7,
        valid_until: Clock::system().monotonic() + std::time::Duration::from_hours(1),
    }));
    let cluster = gated(client, WriteGate::of(leadership));
    let status: foretide_crds::EffectiveHorizontalPodAutoscalerStatus =
        serde_json::from_value(json!({"decision": {"desired": 4}})).unwrap();
    let spec = &manifest("EffectiveHorizontalPodAutoscaler")["spec"];
    let metadata = json!({"namespace": "shop", "name": "web", "uid": "u"});
    let autoscaler = json!({"metadata": metadata, "spec": spec});
    let autoscaler = serde_json::from_value(autoscaler).unwrap();
    cluster.write_status(&autoscaler, &status).await.unwrap();
    let fleet = FederatedHPAStatus {
        fleet: status,
        ..FederatedHPAStatus::default()
    };
    let fdhpa = json!({"metadata": metadata, "spec": spec});
    let fdhpa = serde_json::from_value(fdhpa).unwrap();
    cluster
        .write_federated_status(&fdhpa, &fleet)
        .await
        .unwrap();
    let sent = server.sent();
    let decisions = sent.iter().map(|sent| &sent.body[1]["value"]["decision"]);
    let expected = json!({"desired": 4, "leaderEpoch": 7});
    assert_eq!(decisions.collect::<Vec<_>>(), [&expected; 2]);
}

#[tokio::test]
async fn a_standby_writes_nothing_of_any_kind() {
    let (server, client) = FakeServer::always(|| Reply::Ok(json!({})));
    let cluster = gated(client, WriteGate::of(Leadership::standby(Clock::system())));
    let spec = &manifest("EffectiveHorizontalPodAutoscaler")["spec"];
    let object =
        json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u"}, "spec": spec});
    let ehpa: EffectiveHorizontalPodAutoscaler = serde_json::from_value(object.clone()).unwrap();
    let fdhpa: FederatedHPA = serde_json::from_value(object).unwrap();
    let hpa = manifest("HorizontalPodAutoscaler");
    let tsp = manifest("TimeSeriesPrediction");
    let event = EventNote {
        warning: false,
        reason: "Scaled",
        action: "Scale",
        note: String::new(),
    };
    let web = target("apps/v1", "Deployment");
    let (seen, four, patch) = (scale_view("40"), Replicas::new(4), json!({}));
    let refused = [
        cluster.write_scale(&web, &seen, four).await.map(drop),
        cluster.apply_hpa(&hpa).await.map(drop),
        cluster.patch_hpa("shop", "web", &patch).await.map(drop),
        cluster.delete_hpa("shop", "web", "u").await,
        cluster.apply_prediction(&tsp).await.map(drop),
        cluster
            .write_prediction_status("shop", "web", "u", &TimeSeriesPredictionStatus::default())
            .await,
        cluster.delete_prediction("shop", "web", "u").await,
        cluster
            .write_status(&ehpa, &EffectiveHorizontalPodAutoscalerStatus::default())
            .await,
        cluster.emit(&ehpa, &event).await,
        cluster.emit_federated(&fdhpa, &event).await,
        cluster
            .write_federated_status(&fdhpa, &FederatedHPAStatus::default())
            .await,
        cluster.write_ledger(&fdhpa, "{}").await,
        cluster.patch_federated("shop", "web", &patch).await,
    ];
    for (nth, outcome) in refused.into_iter().enumerate() {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("not the leader"), "write {nth}: {error}");
    }
    assert_eq!(server.lines(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_ledger_replaces_one_field_of_a_status_of_the_same_object() {
    let (server, cluster) = server(|_, _| Reply::Ok(json!({})));
    let spec = &manifest("EffectiveHorizontalPodAutoscaler")["spec"];
    let fdhpa = |status: Value| -> FederatedHPA {
        let metadata = json!({"namespace": "shop", "name": "web", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status}))
            .unwrap()
    };
    for status in [json!({"unassigned": 2}), Value::Null] {
        cluster.write_ledger(&fdhpa(status), "{}").await.unwrap();
    }
    let same = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
    let expected = [
        json!([same, {"op": "add", "path": "/status/ledger", "value": "{}"}]),
        // Without a status there is nothing to add a field to, and one that came meanwhile is not replaced.
        json!([
            same, {"op": "test", "path": "/status", "value": null},
            {"op": "add", "path": "/status", "value": {"ledger": "{}"}},
        ]),
    ];
    let line = "PATCH /apis/autoscaling.foretide.io/v1alpha1/namespaces/shop/federatedhpas/web/status\
                ?fieldManager=foretide";
    let expected = expected.map(|body| Sent {
        line: line.into(),
        content_type: Some("application/json-patch+json".into()),
        body,
    });
    assert_eq!(server.sent(), expected);
}

#[tokio::test]
async fn an_adopted_hpa_is_released_by_a_json_patch() {
    let (server, cluster) = server(|_, _| Reply::Ok(manifest("HorizontalPodAutoscaler")));
    let patch = json!([{"op": "remove", "path": "/metadata/ownerReferences"}]);
    cluster.patch_hpa("shop", "web", &patch).await.unwrap();
    let sent = Sent {
        line: "PATCH /apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web\
               ?fieldManager=foretide"
            .into(),
        content_type: Some("application/json-patch+json".into()),
        body: patch,
    };
    assert_eq!(server.sent(), [sent]);
}

#[tokio::test]
async fn a_deletion_has_the_uid_as_precondition_and_succeeds_if_the_object_is_gone() {
    let (server, cluster) = server(|_, before| match before {
        0 => Reply::Ok(json!({})),
        1 => Reply::Fail(404, "not found"),
        2 => Reply::Fail(409, "the UID in the precondition does not match"),
        _ => Reply::Fail(403, "forbidden"),
    });
    assert_eq!(cluster.delete_hpa("shop", "web", "u1").await, Ok(()));
    assert_eq!(cluster.delete_prediction("shop", "web", "u1").await, Ok(()));
    let what = "HorizontalPodAutoscaler shop/web".to_owned();
    let conflict = ClusterError::Conflict { what: what.clone() };
    assert_eq!(cluster.delete_hpa("shop", "web", "u1").await, Err(conflict));
    let refused = ClusterError::Refused {
        what,
        message: "forbidden".into(),
    };
    assert_eq!(cluster.delete_hpa("shop", "web", "u1").await, Err(refused));
    assert_eq!(
        server.sent()[0],
        Sent {
            line: "DELETE /apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web".into(),
            content_type: Some("application/json".into()),
            body: json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u1"},
            }),
        }
    );
}

#[tokio::test]
async fn an_event_is_created_in_the_namespace_of_its_object_with_a_note_of_at_most_a_kibibyte() {
    let (server, cluster) = server(|_, _| Reply::Ok(json!({})));
    let about: EffectiveHorizontalPodAutoscaler = serde_json::from_value(json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "8"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10, "scaleStrategy": "Auto",
        },
    }))
    .unwrap();
    let event = EventNote {
        warning: true,
        reason: "TargetConflict",
        action: "Hold",
        note: format!("a{}", "é".repeat(600)),
    };
    cluster.emit(&about, &event).await.unwrap();
    let Sent { line, mut body, .. } = server.sent().remove(0);
    assert_eq!(line, "POST /apis/events.k8s.io/v1/namespaces/shop/events");
    let time = body["eventTime"].take();
    let time = time.as_str().unwrap();
    assert!(
        time.parse::<Timestamp>().is_ok() && time.len() == "2026-01-01T00:00:00.123456Z".len(),
        "{time}"
    );
    assert_eq!(
        body,
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"namespace": "shop", "generateName": "web-"},
            "eventTime": null,
            "reportingController": "foretide", "reportingInstance": "foretide",
            "type": "Warning", "reason": "TargetConflict", "action": "Hold",
            "note": format!("a{}", "é".repeat(511)),
            "regarding": {
                "apiVersion": "autoscaling.crane.io/v1alpha1",
                "kind": "EffectiveHorizontalPodAutoscaler",
                "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "8",
            },
        })
    );
}

#[tokio::test]
async fn autoscalers_of_both_kinds_that_cannot_be_decoded_are_listed_by_uid() {
    let (_server, cluster) = server(|_, _| Reply::Hang);
    let bad = |uid: &str| {
        let metadata = json!({"namespace": "shop", "name": "web", "uid": uid});
        json!({"metadata": metadata, "spec": 7})
    };
    let role = &cluster.role;
    role.autoscalers
        .replace(None, Vec::from_iter(Entry::decode(bad("one"))));
    role.federated
        .replace(None, Vec::from_iter(Entry::decode(bad("two"))));
    let listed = Cluster::autoscalers(&cluster);
    assert!(listed.objects.is_empty());
    assert_eq!(listed.unreadable, ["one", "two"].map(str::to_owned).into());
}

#[tokio::test]
async fn pods_are_selected_by_label_and_sorted_by_name() {
    let (_server, cluster) = server(|_, _| Reply::Hang);
    let pod = |name: &str, app: &str| {
        Entry::decode(json!({
            "metadata": {"namespace": "shop", "name": name, "labels": {"app": app}},
            "spec": {"containers": []},
        }))
    };
    let pods = [pod("b", "web"), pod("a", "web"), pod("c", "api")]
        .into_iter()
        .flatten();
    cluster.stores.pods.replace(None, pods.collect());
    let names = |selector| {
        let pods = cluster.pods("shop", selector).unwrap();
        pods.iter()
            .map(|pod| pod.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("app=web"), ["a", "b"]);
    assert_eq!(names("app!=web"), ["c"]);
    assert_eq!(names(""), ["a", "b", "c"]);
    let error = cluster.pods("shop", "app=web=x").unwrap_err();
    assert!(matches!(error, ClusterError::Invalid { .. }), "{error}");
}

#[tokio::test]
async fn a_cluster_is_synced_once_every_kind_has_been_listed() {
    let (server, cluster) = server(|sent, _| {
        let empty = json!({"metadata": {"resourceVersion": "1"}, "items": []});
        if sent.line.contains("watch=true") {
            Reply::Hang
        } else {
            Reply::Ok(empty)
        }
    });
    tokio::select! {
        () = cluster.run() => unreachable!("watches have no end"),
        () = server.reached(16) => {}
    }
    assert!(cluster.is_synced());
    let mut lists = server.lines();
    lists.retain(|line| !line.contains("watch=true"));
    lists.sort();
    assert_eq!(
        lists,
        [
            "GET /api/v1/pods?limit=500",
            "GET /apis/apps/v1/deployments?limit=500",
            "GET /apis/apps/v1/replicasets?limit=500",
            "GET /apis/apps/v1/statefulsets?limit=500",
            "GET /apis/autoscaling.crane.io/v1alpha1/effectivehorizontalpodautoscalers?limit=500",
            "GET /apis/autoscaling.foretide.io/v1alpha1/federatedhpas?limit=500",
            "GET /apis/autoscaling/v2/horizontalpodautoscalers?limit=500",
            "GET /apis/prediction.crane.io/v1alpha1/timeseriespredictions?limit=500",
        ]
    );
}
