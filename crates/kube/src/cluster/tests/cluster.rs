//! The hub: what its server has stored, and what becomes of its responses.

use std::sync::Arc;

use foretide_crds::{
    EffectiveHorizontalPodAutoscaler, EffectiveHorizontalPodAutoscalerStatus, FederatedHPA,
    TimeSeriesPredictionStatus,
};
use foretide_domain::{Replicas, ScaleTarget, observation::Scale};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde_json::{Value, json};
use simkube::SimKube;

use super::super::{
    KubeCluster, Options, entry::Entry, objects::StoredWorkload, stored::Stored as _,
    watch::WatchTimeouts,
};
use crate::api_server::{CallError, Connection, Limits, WriteGate};
use foretide_api::ports::{Cluster, ClusterError, EventNote, KedaPause, ScaleView, Workloads};
use foretide_api::{
    autoscaler::{Autoscaler, Status},
    ownership::OwnerKind,
};
use foretide_base::{
    clock::Clock,
    leadership::{Leadership, Token},
};
use simkube::client::{FakeServer, Reply, Sent, simulated};

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
    (server, gated(client, WriteGate::default()))
}

/// A simulated hub with our kinds and the namespace `shop`.
fn hub() -> (SimKube, KubeCluster) {
    let server = SimKube::new(1, Arc::new(|| Timestamp::UNIX_EPOCH));
    for definition in foretide_crds::definitions() {
        server.create(&json!(definition));
    }
    server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    let cluster = gated(simulated(&server), WriteGate::default());
    (server, cluster)
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
        expected_pods: Replicas::new(2),
        ..ScaleView::default()
    }
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
    assert_eq!(view, scale_view("40"));

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
async fn a_kind_without_a_scale_is_refused_and_discovered_once() {
    let (server, cluster) = server(resource_list);
    for (kind, want) in [
        (
            "Topic",
            "Topic of example.com/v1 is not a namespaced kind with a scale subresource",
        ),
        (
            "Region",
            "Region of example.com/v1 is not a namespaced kind with a scale subresource",
        ),
        (
            "Quue",
            "the cluster has no kind Quue in example.com/v1; correct scaleTargetRef or install its CRD",
        ),
    ] {
        for _again in 0..2 {
            let error = cluster.scale(&target("example.com/v1", kind)).await;
            let error = error.unwrap_err();
            let want = format!("{kind} shop/web cannot be scaled: {want}");
            assert_eq!(error.to_string(), want);
            assert!(matches!(error, ClusterError::NotScalable { .. }));
        }
    }
    assert_eq!(server.lines(), ["GET /apis/example.com/v1"]);
}

#[tokio::test]
async fn a_group_that_is_not_installed_is_not_scalable_and_a_failing_one_is_unreachable() {
    let (_server, missing) = server(|_, _| Reply::Fail(404, "page not found"));
    let queue = target("example.com/v1", "Queue");
    let error = missing.scale(&queue).await.unwrap_err();
    assert!(matches!(error, ClusterError::NotScalable { .. }), "{error}");
    let (_server, down) = server(|_, _| Reply::Fail(503, "unavailable"));
    let error = down.scale(&queue).await.unwrap_err();
    assert!(matches!(error, ClusterError::Unreachable { .. }), "{error}");
    let (server, odd) = server(|_, _| Reply::Hang);
    let error = odd.scale(&target("../v1", "Queue")).await.unwrap_err();
    assert!(matches!(error, ClusterError::Invalid { .. }), "{error}");
    assert_eq!(server.lines(), [] as [&str; 0]);
}

#[tokio::test]
async fn running_pods_of_a_preview_are_owned_though_they_are_not_selected() {
    let scale = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}});
    let (_server, cluster) = server(move |sent, before| match before {
        0 => resource_list(sent, before),
        _ => Reply::Ok(scale.clone()),
    });
    let sets = [
        ("a", "Queue", "u"),
        ("b", "Deployment", "u"),
        ("c", "Queue", "v"),
    ];
    for (name, kind, uid) in sets {
        let mut set = deployment();
        set["metadata"]["name"] = name.into();
        set["metadata"]["ownerReferences"] =
            json!([{"kind": kind, "uid": uid, "controller": true}]);
        set["spec"]["selector"]["matchLabels"]["app"] = name.into();
        cluster.stores.workloads[2].apply(Entry::decode(set).unwrap());
        for phase in ["Running", "Pending"] {
            let id = json!({"namespace": "shop", "name": format!("{name}-{phase}"), "labels": {"app": name}});
            let pod =
                json!({"metadata": id, "spec": {"containers": []}, "status": {"phase": phase}});
            cluster.stores.pods.apply(Entry::decode(pod).unwrap());
        }
    }
    let view = cluster.scale(&target("example.com/v1", "Queue")).await;
    assert_eq!(view.unwrap().owned_pods, Replicas::new(1));
}

#[tokio::test]
async fn an_excluded_target_is_not_gone_and_pods_that_are_not_kept_are_expected() {
    let scale = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "status": {"selector": "app=web"}});
    let (_server, cluster) = server(move |sent, before| match before {
        0 => resource_list(sent, before),
        _ => Reply::Ok(scale.clone()),
    });
    let mut odd = deployment();
    odd["spec"]["selector"] = json!(7);
    let [deployments, ..] = &cluster.stores.workloads;
    deployments.replace(None, Vec::from_iter(Entry::decode(odd)));
    let error = cluster.scale(&target("apps/v1", "Deployment")).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ClusterError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("cannot be decoded"), "{error}");

    let queue = target("example.com/v1", "Queue");
    let expected = async || cluster.scale(&queue).await.unwrap().expected_pods.get();
    let pod = |name: &str, containers: Value| {
        let id = json!({"namespace": "shop", "name": name, "labels": {"app": "web"}});
        let pod = json!({"metadata": id, "spec": {"containers": containers}});
        cluster.stores.pods.apply(Entry::decode(pod).unwrap());
    };
    pod("kept", json!([]));
    assert_eq!(expected().await, 0, "all are kept");
    pod("odd", json!(7));
    assert_eq!(expected().await, 2);
}

/// The scale of `shop/web` as it is now.
fn seen(server: &SimKube) -> ScaleView {
    let stored = server.objects("statefulsets.apps");
    StoredWorkload::decode((*stored[0]).clone()).unwrap().view
}

/// The status codes of the requests after the first `asked`.
fn codes(server: &SimKube, asked: usize) -> Vec<u16> {
    let since = server.audit_since(asked);
    since.iter().map(|entry| entry.code).collect()
}

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";

/// Writes 5 replicas from the scale that was seen of a `StatefulSet` with this count, after a change of a part of it;
/// returns the codes of the answers as well. A change of null creates it again.
async fn write_after(
    count: u32,
    (part, change): (&str, Value),
) -> (Result<Replicas, ClusterError>, Vec<u16>) {
    let (server, cluster) = hub();
    let mut object = deployment();
    object["apiVersion"] = json!("apps/v1");
    object["kind"] = json!("StatefulSet");
    object["metadata"] = json!({"namespace": "shop", "name": "web"});
    object["spec"]["replicas"] = json!(count);
    object["spec"]["template"] = json!({"spec": {"containers": []}});
    server.create(&object);
    let seen = seen(&server);
    let path = format!("{STATEFUL_SETS}/web{part}");
    if change.is_null() {
        server.ask("kubectl", "DELETE", &path, &Value::Null);
        server.create(&object);
    } else {
        assert_eq!(server.ask("kubectl", "PATCH", &path, &change).0, 200);
    }
    let asked = server.audit().len();
    let web = target("apps/v1", "StatefulSet");
    let written = cluster.write_scale(&web, &seen, Replicas::new(5)).await;
    if written.is_ok() {
        let stored = server.objects("statefulsets.apps");
        assert_eq!(stored[0]["spec"]["replicas"], 5);
    }
    (written, codes(&server, asked))
}

#[tokio::test]
async fn a_target_is_scaled_although_its_status_changes_all_the_time() {
    let status = || json!({"status": {"replicas": 1}});
    for (count, part, change, expected) in [
        (2, "", json!({"spec": {"replicas": 2}}), &[200][..]),
        (2, "/status", status(), &[409, 200]),
        (0, "/status", status(), &[409, 200]),
    ] {
        let (written, codes) = write_after(count, (part, change)).await;
        assert_eq!((written, &*codes), (Ok(Replicas::new(5)), expected));
    }
}

#[tokio::test]
async fn a_target_whose_count_was_changed_or_that_was_created_again_is_a_conflict() {
    for change in [
        json!({"spec": {"replicas": 3}}),
        json!({"spec": {"replicas": 0}}),
        Value::Null,
    ] {
        let (written, codes) = write_after(2, ("", change)).await;
        let what = "StatefulSet shop/web".into();
        assert_eq!(written, Err(ClusterError::Conflict { what }));
        // It is tried once more, not again and again.
        assert_eq!(codes, [409, 422]);
    }
}

#[tokio::test]
async fn nothing_is_written_without_a_version_or_a_name() {
    let (server, cluster) = hub();
    let web = target("apps/v1", "Deployment");
    let asked = server.audit().len();
    let nameless = json!({"metadata": {"namespace": "shop"}});
    for written in [
        cluster
            .write_scale(&web, &scale_view(""), Replicas::new(5))
            .await
            .map(drop),
        cluster.apply_hpa(&nameless).await.map(drop),
    ] {
        assert!(
            matches!(written, Err(ClusterError::Invalid { .. })),
            "{written:?}"
        );
    }
    assert_eq!(server.audit().len(), asked);
}

#[tokio::test]
async fn a_copy_from_before_our_write_shows_what_was_written_and_a_later_one_itself() {
    let stored = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "41"},
        "spec": {"replicas": 5}, "status": {"replicas": 1, "selector": "app=web"},
    });
    let (_server, cluster) = server(move |_, _| Reply::Ok(stored.clone()));
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
        (
            view.scale.spec.get(),
            view.resource_version,
            view.expected_pods.get(),
        )
    };
    deployments.replace(None, Vec::from_iter(Entry::decode(deployment())));
    let seen = cluster.scale(&web).await.unwrap();
    let write = || cluster.write_scale(&web, &seen, Replicas::new(5));
    // It is stored with version 41.
    write().await.unwrap();
    assert_eq!(count().await, (5, "41".to_owned(), 5));
    // A crash of a pod that came in between.
    shows("40", "u", 2);
    assert_eq!(count().await, (5, "41".to_owned(), 5));
    // Another writer.
    shows("42", "u", 3);
    assert_eq!(count().await, (3, "42".to_owned(), 2));
    shows("40", "u", 2);
    assert_eq!(
        count().await,
        (2, "40".to_owned(), 2),
        "known to be delivered"
    );
    // Another object of this name.
    write().await.unwrap();
    shows("40", "v", 1);
    assert_eq!(count().await, (1, "40".to_owned(), 1));
}

/// Our kinds, and their collections.
const KINDS: [(&str, &str); 3] = [
    (
        "EffectiveHorizontalPodAutoscaler",
        "effectivehorizontalpodautoscalers.autoscaling.crane.io",
    ),
    ("FederatedHPA", "federatedhpas.autoscaling.foretide.io"),
    (
        "TimeSeriesPrediction",
        "timeseriespredictions.prediction.crane.io",
    ),
];

fn manifest(api_version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 3,
        },
    })
}

/// An object of each of the three kinds, and what the server has stored of it.
fn created(server: &SimKube) -> [Value; 3] {
    KINDS.map(|(kind, collection)| {
        let (_, group) = collection.split_once('.').unwrap();
        server.create(&manifest(&format!("{group}/v1alpha1"), kind))
    })
}

/// The stored statuses.
fn statuses(server: &SimKube) -> [Value; 3] {
    KINDS.map(|(_, collection)| server.objects(collection)[0]["status"].clone())
}

const WRITTEN: [Result<(), ClusterError>; 3] = [Ok(()), Ok(()), Ok(())];

/// Writes a status of each kind to these objects.
async fn write_statuses(
    cluster: &KubeCluster,
    [ehpa, fdhpa, prediction]: &[Value; 3],
    status: &EffectiveHorizontalPodAutoscalerStatus,
) -> [Result<(), ClusterError>; 3] {
    let ehpa: EffectiveHorizontalPodAutoscaler = serde_json::from_value(ehpa.clone()).unwrap();
    let fdhpa: FederatedHPA = serde_json::from_value(fdhpa.clone()).unwrap();
    let ehpa = Autoscaler::Effective(Arc::new(ehpa));
    let fdhpa = Autoscaler::Federated(Arc::new(fdhpa));
    let status = Status {
        common: status.clone(),
        ..Status::default()
    };
    let uid = prediction["metadata"]["uid"].as_str().unwrap();
    let of_prediction = TimeSeriesPredictionStatus::default();
    [
        cluster.write_status(&ehpa, status.clone()).await,
        cluster.write_status(&fdhpa, status).await,
        cluster
            .write_prediction_status("shop", "web", uid, &of_prediction)
            .await,
    ]
}

#[tokio::test]
async fn a_status_is_written_to_the_object_that_was_decided_about_and_no_other() {
    let (server, cluster) = hub();
    let objects = created(&server);
    let four = EffectiveHorizontalPodAutoscalerStatus {
        expect_replicas: Some(4),
        ..Default::default()
    };
    let written = write_statuses(&cluster, &objects, &four).await;
    assert_eq!(written, WRITTEN);
    let of_four = json!({"expectReplicas": 4});
    assert_eq!(statuses(&server), [of_four.clone(), of_four, json!({})]);

    let mut others = objects;
    for object in &mut others {
        object["metadata"]["uid"] = json!("another");
    }
    for written in write_statuses(&cluster, &others, &four).await {
        assert!(
            matches!(written, Err(ClusterError::Refused { .. })),
            "{written:?}"
        );
    }
}

/// An old copy, such as that of a leader that has just started, lacks what was written since.
#[tokio::test]
async fn a_status_from_an_old_copy_does_not_hide_whose_zero_it_is() {
    let (server, cluster) = hub();
    let [created, ..] = created(&server);
    let with = |status: Value| {
        let mut object = created.clone();
        object["spec"]["minReplicas"] = json!(0);
        object["status"] = status;
        Autoscaler::Effective(Arc::new(serde_json::from_value(object).unwrap()))
    };
    let contact = Clock::system().contact();
    cluster.role.autoscalers.contacted(None, &contact);
    let asleep = json!({"history": {"scaledToZero": true}});
    let awake = json!({"history": {}});
    let write = async |seen: &Value, new: &Value| {
        let common = serde_json::from_value(new.clone()).unwrap();
        let status = Status {
            common,
            ..Status::default()
        };
        cluster
            .write_status(&with(seen.clone()), status)
            .await
            .is_ok()
    };
    assert!(write(&Value::Null, &asleep).await);
    for old in [&Value::Null, &json!({}), &awake] {
        assert!(!write(old, &awake).await, "{old}");
        assert_eq!(statuses(&server)[0], asleep);
    }
    assert!(
        write(&awake, &asleep).await,
        "the mark itself hides nothing"
    );
    assert!(write(&asleep, &awake).await, "known to be awake again");
    assert!(write(&awake, &awake).await);
    assert_eq!(statuses(&server)[0], awake);
}

#[tokio::test]
async fn a_status_from_an_old_copy_replaces_only_the_conditions() {
    let (server, cluster) = hub();
    let objects = created(&server);
    let written = async |expected: i32| {
        let status = EffectiveHorizontalPodAutoscalerStatus {
            expect_replicas: Some(expected),
            conditions: Some(Vec::new()),
            ..Default::default()
        };
        let seen = objects.clone().map(|mut object| {
            object["status"] = json!({"expectReplicas": expected});
            object
        });
        assert_eq!(write_statuses(&cluster, &seen, &status).await, WRITTEN);
        let [ehpa, fdhpa, _] = statuses(&server);
        [
            ehpa["expectReplicas"].clone(),
            fdhpa["expectReplicas"].clone(),
        ]
    };
    // Without a status in the copy, the written one is the first.
    let first = EffectiveHorizontalPodAutoscalerStatus {
        expect_replicas: Some(1),
        ..Default::default()
    };
    assert_eq!(write_statuses(&cluster, &objects, &first).await, WRITTEN);
    // Never listed, and therefore not known to be up to date.
    assert_eq!(written(4).await, [1, 1]);
    cluster
        .role
        .autoscalers
        .contacted(None, &Clock::system().contact());
    cluster
        .role
        .federated
        .contacted(None, &Clock::system().contact());
    assert_eq!(written(4).await, [4, 4]);
}

#[tokio::test]
async fn a_status_says_which_leader_wrote_its_decision() {
    let (server, _) = hub();
    let leadership = Leadership::standby(Clock::system());
    leadership.set(Some(Token {
        epoch: 7,
        valid_until: Clock::system().monotonic() + std::time::Duration::from_hours(1),
    }));
    let cluster = gated(simulated(&server), WriteGate::of(leadership));
    let status = serde_json::from_value(json!({"decision": {"desired": 4}})).unwrap();
    let written = write_statuses(&cluster, &created(&server), &status).await;
    assert_eq!(written, WRITTEN);
    let [ehpa, fdhpa, _] = statuses(&server);
    let expected = json!({"desired": 4, "leaderEpoch": 7});
    assert_eq!([&ehpa["decision"], &fdhpa["decision"]], [&expected; 2]);
}

#[tokio::test]
async fn a_ledger_replaces_one_field_of_a_status_of_the_same_object() {
    let (server, cluster) = hub();
    let [_, object, _] = created(&server);
    let write = async |ledger: &str, status: Value| {
        let mut seen = object.clone();
        seen["status"] = status;
        let seen = serde_json::from_value(seen).unwrap();
        let written = cluster.write_ledger(&seen, ledger).await;
        (written.is_ok(), statuses(&server)[1].clone())
    };
    // Without a status there is nothing to add a field to, and one that came meanwhile is not replaced.
    let first = json!({"ledger": "{}"});
    assert_eq!(write("{}", Value::Null).await, (true, first.clone()));
    assert_eq!(write("{1}", Value::Null).await, (false, first));
    let path = "/apis/autoscaling.foretide.io/v1alpha1/namespaces/shop/federatedhpas/web/status";
    server.ask(
        "kubectl",
        "PATCH",
        path,
        &json!({"status": {"unassigned": 2}}),
    );
    let both = json!({"ledger": "{2}", "unassigned": 2});
    assert_eq!(write("{2}", json!({})).await, (true, both));
}

#[tokio::test]
async fn a_deletion_has_the_uid_as_precondition_and_succeeds_if_the_object_is_gone() {
    let (server, cluster) = hub();
    let hpa = server.create(&manifest("autoscaling/v2", "HorizontalPodAutoscaler"));
    let [_, _, prediction] = created(&server);
    for (stored, is_hpa) in [(hpa, true), (prediction, false)] {
        let delete = async |uid: &str| {
            if is_hpa {
                cluster.delete_hpa("shop", "web", uid).await
            } else {
                cluster.delete_prediction("shop", "web", uid).await
            }
        };
        let other = delete("another").await;
        assert!(
            matches!(other, Err(ClusterError::Conflict { .. })),
            "{other:?}"
        );
        let uid = stored["metadata"]["uid"].as_str().unwrap();
        for _again in 0..2 {
            assert_eq!(delete(uid).await, Ok(()));
        }
    }
    assert!(
        server
            .objects("horizontalpodautoscalers.autoscaling")
            .is_empty()
    );
}

#[tokio::test]
async fn an_event_is_created_in_the_namespace_of_its_object_with_a_note_of_at_most_a_kibibyte() {
    let (server, cluster) = server(|_, _| Reply::Ok(json!({})));
    let about = json!({"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "8"});
    let about: ObjectMeta = serde_json::from_value(about).unwrap();
    let event = EventNote {
        warning: true,
        reason: "TargetConflict",
        action: "Hold",
        note: format!("a{}", "é".repeat(600)),
    };
    let kind = OwnerKind::Effective;
    cluster.emit(kind, &about, &event).await.unwrap();
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
async fn a_pause_is_seen_also_where_the_copy_is_late() {
    const PAUSED: &str = "autoscaling.keda.sh/paused";
    let scaled_object = |annotations: Value| {
        json!({
            "metadata": {"namespace": "shop", "name": "so", "uid": "u-so", "annotations": annotations},
            "spec": {"scaleTargetRef": {"name": "web"}},
        })
    };
    let (paused, active) = (
        scaled_object(json!({(PAUSED): "true"})),
        scaled_object(json!({})),
    );
    let on = || KedaPause::On {
        scaled_object: "so".to_owned(),
        annotation: PAUSED,
    };
    let hpa = |owner: &str| {
        let owner = json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "so", "uid": owner, "controller": true,
        });
        json!({
            "metadata": {"namespace": "shop", "name": "keda-hpa-so", "uid": "u-hpa", "ownerReferences": [owner]},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        })
    };
    for (copy, owner, read, expected, reads) in [
        (&paused, "nobody", Some(&active), on(), 0),
        (&active, "u-so", Some(&paused), KedaPause::Off, 0),
        // The copy of the HPAs is newer.
        (&active, "nobody", Some(&paused), on(), 1),
        (&active, "nobody", None, KedaPause::Off, 1),
    ] {
        let read = read.cloned();
        let (server, cluster) = server(move |_, _| match &read {
            Some(object) => Reply::Ok(object.clone()),
            None => Reply::Fail(403, "no"),
        });
        let stores = &cluster.stores;
        stores
            .scaled_objects
            .replace(None, Vec::from_iter(Entry::decode(copy.clone())));
        stores
            .hpas
            .replace(None, Vec::from_iter(Entry::decode(hpa(owner))));
        let other = cluster.keda_pause(&target("apps/v1", "StatefulSet")).await;
        assert_eq!(other, KedaPause::Off, "a Deployment is KEDA's default");
        let found = cluster.keda_pause(&target("apps/v1", "Deployment")).await;
        assert_eq!((found, server.lines().len()), (expected, reads));
    }
}

#[tokio::test]
async fn scaled_objects_are_waited_for_unless_they_are_refused() {
    for (code, expected) in [
        (404, Some(KedaPause::Off)),
        (403, Some(KedaPause::Unseen)),
        (503, None),
    ] {
        let (_server, cluster) = server(|_, _| Reply::Hang);
        let copies = &cluster.stores.scaled_objects;
        // An outage does not change what is known.
        for code in [code, 500] {
            copies.counts.failed(&CallError::Status {
                code,
                message: "no".to_owned(),
                retry_after: None,
            });
        }
        let pause = cluster.keda_pause(&target("apps/v1", "Deployment")).await;
        assert_eq!(copies.is_answered().then_some(pause), expected, "{code}");
        copies.replace(None, Vec::new());
        copies.counts.recovered();
        assert!(copies.is_answered() && !copies.is_forbidden(), "{code}");
    }
}
