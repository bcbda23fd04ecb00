//! Watches keep a store true to the server, whatever the server does.

use std::{io::ErrorKind, sync::Arc, time::Duration};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::FutureExt;
use kube::Client;
use serde_json::{Value, json};

use super::super::{
    Changes,
    pods::StoredPod,
    selector,
    store::{Seen, Store},
    watch::{Watch, WatchTimeouts},
};
use crate::{
    adapters::api_server::{
        Redactor, Resource,
        fake::{FakeServer, Reply, Sent, failure},
    },
    ports::ObjectKey,
};

const OPEN: &str = "watch=true&allowWatchBookmarks=true&timeoutSeconds=50&resourceVersion=";

/// Never waits between attempts.
fn pace() -> WatchTimeouts {
    WatchTimeouts {
        pause: Duration::ZERO,
        longest_pause: Duration::ZERO,
        ..WatchTimeouts::default()
    }
}

fn pods(scope: Option<&str>) -> Arc<Store<StoredPod>> {
    Arc::new(Store::new(Resource::POD, &[scope.map(str::to_owned)]))
}

fn pod(name: &str, version: u32) -> Value {
    json!({
        "metadata": {
            "namespace": "shop", "name": name, "resourceVersion": version.to_string(),
            "labels": {"app": "web"},
        },
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running"},
    })
}

fn list(version: &str, next: &str, items: &[Value]) -> Reply {
    Reply::Ok(json!({"metadata": {"resourceVersion": version, "continue": next}, "items": items}))
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn bookmark(version: &str) -> Value {
    let metadata = json!({"resourceVersion": version});
    event(
        "BOOKMARK",
        &json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata}),
    )
}

fn names(store: &Store<StoredPod>) -> Vec<String> {
    store
        .in_namespace("shop")
        .iter()
        .map(|stored| stored.pod.name.to_string())
        .collect()
}

/// Runs a watch until the server has got so many requests.
async fn follow(
    store: &Arc<Store<StoredPod>>,
    pace: WatchTimeouts,
    until: (FakeServer, Client, usize),
) {
    let (server, client, requests) = until;
    let scope = store.scopes()[0].clone();
    let watch = Watch {
        client,
        hidden: Redactor::default(),
        store: store.clone(),
        scope,
        pace,
    };
    tokio::select! {
        () = watch.run() => unreachable!("a watch has no end"),
        () = server.reached(requests) => {}
    }
}

#[tokio::test]
async fn a_store_follows_the_list_and_its_changes_and_is_listed_anew_when_they_are_forgotten() {
    let store = pods(None);
    let seen_by_server = store.clone();
    let (server, client) = FakeServer::new(move |_sent, before| match before {
        0 => list("10", "more", &[pod("a", 1), pod("b", 2)]),
        1 => {
            assert!(names(&seen_by_server).is_empty(), "half a list is no list");
            assert!(!seen_by_server.is_synced());
            list("10", "", &[pod("c", 3)])
        }
        2 => {
            assert_eq!(names(&seen_by_server), ["a", "b", "c"]);
            Reply::Events(vec![
                event("ADDED", &pod("d", 11)),
                event("DELETED", &pod("b", 12)),
                event("MODIFIED", &pod("a", 13)),
                bookmark("20"),
            ])
        }
        3 => {
            assert_eq!(names(&seen_by_server), ["a", "c", "d"]);
            let gone = failure(410, "too old resource version");
            Reply::EventsAndSilence(vec![event("ADDED", &pod("e", 21)), event("ERROR", &gone)])
        }
        4 => {
            assert_eq!(
                names(&seen_by_server),
                ["a", "c", "d", "e"],
                "kept until the new list"
            );
            list("30", "", &[pod("z", 30)])
        }
        _ => Reply::Hang,
    });
    follow(&store, pace(), (server.clone(), client, 6)).await;
    assert_eq!(names(&store), ["z"]);
    assert_eq!(
        server.lines(),
        [
            "GET /api/v1/pods?limit=500".to_owned(),
            "GET /api/v1/pods?limit=500&continue=more".to_owned(),
            format!("GET /api/v1/pods?{OPEN}10"),
            format!("GET /api/v1/pods?{OPEN}20"),
            "GET /api/v1/pods?limit=500".to_owned(),
            format!("GET /api/v1/pods?{OPEN}30"),
        ]
    );
    let report = store.report();
    assert_eq!((report.relists, report.errors, report.objects), (2, 0, 1));
    assert!(report.heard.is_some() && report.synced);
}

#[tokio::test]
async fn an_outage_is_counted_and_outlived() {
    let store = pods(Some("shop"));
    let (server, client) = FakeServer::new(|_sent, before| match before {
        0 => Reply::Fail(503, "starting"),
        1 => Reply::Fail(404, "no such kind yet"),
        2 => list("10", "more", &[pod("a", 1)]),
        3 => Reply::Fail(410, "the continue token has expired"),
        4 => list("11", "", &[pod("a", 1)]),
        5 => Reply::Fail(500, "etcd has no leader"),
        6 => Reply::EventsAndSilence(vec![event("ADDED", &pod("b", 12)), json!("not an event")]),
        _ => Reply::Hang,
    });
    follow(&store, pace(), (server.clone(), client, 8)).await;
    assert_eq!(names(&store), ["a", "b"]);
    let lines = server.lines();
    assert_eq!(
        lines[4], "GET /api/v1/namespaces/shop/pods?limit=500",
        "the list begins again"
    );
    assert_eq!(
        lines[7],
        format!("GET /api/v1/namespaces/shop/pods?{OPEN}12")
    );
    assert_eq!((store.report().relists, store.report().errors), (1, 5));
}

#[tokio::test]
async fn a_watch_that_is_cut_goes_on_and_one_that_fails_is_an_error() {
    let store = pods(Some("shop"));
    let (server, client) = FakeServer::new(|_sent, before| match before {
        0 => list("10", "", &[pod("a", 1)]),
        1 => Reply::EventsAndError(
            vec![event("ADDED", &pod("b", 11))],
            ErrorKind::UnexpectedEof,
        ),
        2 => Reply::EventsAndError(vec![bookmark("12")], ErrorKind::TimedOut),
        3 => Reply::EventsAndError(vec![bookmark("13")], ErrorKind::BrokenPipe),
        4 => Reply::EventsAndSilence(vec![failure(410, "too old")]),
        _ => Reply::Hang,
    });
    follow(&store, pace(), (server.clone(), client, 6)).await;
    assert_eq!(names(&store), ["a", "b"]);
    assert_eq!(
        server.lines()[4],
        format!("GET /api/v1/namespaces/shop/pods?{OPEN}13")
    );
    assert!(
        server.lines()[5].contains("limit"),
        "410 is expiry, also outside an event"
    );
    assert_eq!(store.report().errors, 1);
}

#[tokio::test]
async fn an_event_is_read_to_a_limit() {
    let store = pods(Some("shop"));
    let (server, client) = FakeServer::new(|_sent, before| match before {
        0 => list("10", "", &[pod("a", 1)]),
        1 => {
            let mut long = pod("b", 11);
            long["metadata"]["annotations"] = json!({ "a": "x".repeat(9 << 20) });
            Reply::EventsAndSilence(vec![event("ADDED", &long)])
        }
        _ => Reply::Hang,
    });
    follow(&store, pace(), (server, client, 3)).await;
    assert_eq!(names(&store), ["a"]);
    let expected = "the answer cannot be read: it is longer than 8192 KiB, the most that is read";
    assert_eq!(store.report().failing.as_deref(), Some(expected));
}

#[tokio::test]
async fn a_watch_that_stays_silent_is_opened_again_and_at_last_listed_anew() {
    let store = pods(None);
    let (server, client) = FakeServer::new(|sent, _before| {
        if sent.line.contains("limit") {
            list("10", "", &[])
        } else {
            Reply::Hang
        }
    });
    let impatient = WatchTimeouts {
        silence: Duration::ZERO,
        ..pace()
    };
    follow(&store, impatient, (server.clone(), client, 6)).await;
    let kinds: Vec<bool> = server
        .lines()
        .iter()
        .map(|line| line.contains("watch=true"))
        .collect();
    assert_eq!(kinds, [false, true, true, true, false, true]);
}

#[tokio::test]
async fn a_version_that_is_forgotten_at_once_again_and_again_costs_a_pause_each_time() {
    let (server, client) = FakeServer::new(|sent: &Sent, _before| {
        if sent.line.contains("limit") {
            list("10", "", &[])
        } else {
            Reply::Fail(410, "gone")
        }
    });
    let store = pods(None);
    let patient = WatchTimeouts {
        pause: Duration::from_hours(1),
        ..WatchTimeouts::default()
    };
    let watch = Watch {
        client,
        hidden: Redactor::default(),
        store,
        scope: None,
        pace: patient,
    };
    let mut run = Box::pin(watch.run());
    tokio::select! {
        () = &mut run => unreachable!("a watch has no end"),
        () = server.reached(2) => {}
    }
    // Everything that could go on without a pause gets its chance to.
    for _ in 0..100 {
        assert!((&mut run).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(server.lines().len(), 2);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_hurts_only_itself() {
    let store = pods(None);
    let mut bad = pod("bad", 2);
    bad["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("a lot");
    let (server, client) = FakeServer::new(move |_sent, before| match before {
        0 => list(
            "10",
            "",
            &[pod("a", 1), bad.clone(), json!({"metadata": {}}), json!(7)],
        ),
        1 => Reply::Events(vec![bookmark("11")]),
        _ => Reply::Hang,
    });
    follow(&store, pace(), (server.clone(), client.clone(), 2)).await;
    assert_eq!(
        (names(&store), store.report().unreadable),
        (vec!["a".to_owned()], 1)
    );

    let fixed = Seen::decode(pod("bad", 13)).unwrap();
    store.apply(fixed);
    assert_eq!(names(&store), ["a", "bad"]);
    assert_eq!(store.report().unreadable, 0);
}

#[test]
fn a_new_list_of_one_namespace_leaves_the_others_alone() {
    let scopes = ["shop", "bank"].map(|scope| Some(scope.to_owned()));
    let store: Store<StoredPod> = Store::new(Resource::POD, &scopes);
    let seen = |namespace: &str, name: &str| {
        let mut object = pod(name, 1);
        object["metadata"]["namespace"] = json!(namespace);
        Seen::decode(object).unwrap()
    };
    store.replace(Some("shop"), vec![seen("shop", "a")]);
    assert!(!store.is_synced(), "one of two scopes is not all");
    store.replace(Some("bank"), vec![seen("bank", "b")]);
    store.replace(Some("shop"), Vec::new());
    assert!(store.is_synced());
    let left: Vec<_> = store
        .all()
        .iter()
        .map(|stored| stored.pod.name.to_string())
        .collect();
    assert_eq!(left, ["b"]);
}

#[test]
fn selecting_by_index_and_by_search_give_the_same_pods() {
    let store = pods(None);
    for number in 0..40 {
        let mut object = pod(&format!("pod-{number:02}"), 1);
        let app = format!("app-{}", number % 3);
        object["metadata"]["labels"] = json!({"app": app, "half": (number % 2).to_string()});
        store.apply(Seen::decode(object).unwrap());
    }
    let moved = json!({"app": "app-1", "half": "0"});
    let mut object = pod("pod-00", 2);
    object["metadata"]["labels"] = moved;
    store.apply(Seen::decode(object).unwrap());
    store.delete(&Seen::decode(pod("pod-01", 3)).unwrap());

    let select = |text: &str| -> Vec<String> {
        let found = store.select("shop", &selector::parse(text).unwrap());
        found
            .iter()
            .map(|stored| stored.pod.name.to_string())
            .collect()
    };
    for (indexed, searched) in [
        ("app=app-1", "app in (app-1)"),
        ("app=app-0,half=0", "app in (app-0),half in (0)"),
        ("half=1,app notin (app-2)", "half in (1),app notin (app-2)"),
        ("app=nothing", "app in (nothing)"),
    ] {
        assert_eq!(select(indexed), select(searched), "{indexed}");
    }
    let moved_in = [
        "pod-00", "pod-04", "pod-10", "pod-16", "pod-22", "pod-28", "pod-34",
    ];
    assert_eq!(select("app=app-1,half=0"), moved_in);
    assert_eq!(store.select("elsewhere", &[]), Vec::new());
}

#[test]
fn only_a_new_request_makes_an_autoscaler_due() {
    let changes = Arc::new(Changes::default());
    let store: Store<EffectiveHorizontalPodAutoscaler> =
        Store::new(Resource::EHPA, &[None]).telling(changes.clone());
    let object = |generation: i64, adopt: &str, replicas: i32| {
        let object = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "u1", "generation": generation,
                "annotations": {"autoscaling.foretide.io/adopt": adopt},
            },
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 10, "scaleStrategy": "Auto",
            },
            "status": {"expectReplicas": replicas},
        });
        Seen::decode(object).unwrap()
    };
    let told = || {
        changes
            .next()
            .now_or_never()
            .map(|keys| keys.into_iter().collect::<Vec<_>>())
    };
    let web = ObjectKey {
        namespace: "shop".into(),
        name: "web".into(),
    };

    store.replace(None, vec![object(1, "false", 1)]);
    assert_eq!(told(), Some(vec![web.clone()]), "it appeared");
    store.apply(object(1, "false", 5));
    store.replace(None, vec![object(1, "false", 6)]);
    assert_eq!(told(), None, "its status is ours");
    store.apply(object(2, "false", 6));
    assert_eq!(told(), Some(vec![web.clone()]), "its spec changed");
    store.apply(object(2, "true", 6));
    assert_eq!(told(), Some(vec![web.clone()]), "its annotations changed");
    store.delete(&object(2, "true", 6));
    assert_eq!(told(), Some(vec![web.clone()]), "it is gone");
    store.apply(object(1, "true", 6));
    store.apply(object(2, "true", 6));
    store.replace(None, Vec::new());
    assert_eq!(
        told(),
        Some(vec![web]),
        "any number of changes is one entry"
    );
}

#[tokio::test]
async fn a_list_without_an_end_is_given_up_and_nothing_of_it_is_kept() {
    let (server, client) = FakeServer::new(|sent: &Sent, before| {
        if sent.line.contains("watch=true") {
            Reply::Hang
        } else {
            list("10", "more", &[pod(&before.to_string(), 1)])
        }
    });
    let store = pods(None);
    let patient = WatchTimeouts {
        pause: Duration::from_hours(1),
        longest_pause: Duration::from_hours(1),
        ..WatchTimeouts::default()
    };
    let watch = Watch {
        client,
        hidden: Redactor::default(),
        store: store.clone(),
        scope: None,
        pace: patient,
    };
    let given_up = async {
        while store.report().failing.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = watch.run() => unreachable!("a watch has no end"),
        () = given_up => {}
    }
    let expected = "the answer cannot be read: the list has more than 1000 pages or 250000 objects, the most that is read";
    assert_eq!(store.report().failing.as_deref(), Some(expected));
    assert_eq!(server.lines().len(), 1_000);
    assert!(!store.is_synced());
}
