//! Watches keep a store up to date, also if the server fails.

use std::{
    io::ErrorKind,
    sync::{Arc, Mutex},
    time::Duration,
};

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_domain::Selector;
use futures::FutureExt;
use kube::Client;
use serde_json::{Value, json};

use super::super::{
    Changes,
    entry::Entry,
    pods::StoredPod,
    store::Store,
    watch::{MAX_STALENESS, Watch, WatchTimeouts},
};
use crate::api_server::{PageTurns, Resource};
use foretide_api::ports::{ObjectKey, UnusableCopies};
use foretide_base::{
    clock::{Clock, Contact},
    machine::Machine,
    memory::Memory,
    redact::Redactor,
};
use simkube::client::{FakeServer, Reply, Sent, failure};

const OPEN: &str = "watch=true&allowWatchBookmarks=true&timeoutSeconds=25&resourceVersion=";

/// Timeouts without pauses.
fn timeouts() -> WatchTimeouts {
    WatchTimeouts {
        backoff: Duration::ZERO,
        max_backoff: Duration::ZERO,
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

fn watch(
    store: &Arc<Store<StoredPod>>,
    timeouts: WatchTimeouts,
    client: Client,
) -> Watch<StoredPod> {
    Watch {
        machine: Machine::system(),
        client,
        redactor: Redactor::default(),
        turns: PageTurns::default(),
        store: store.clone(),
        scope: store.scopes()[0].clone(),
        timeouts,
    }
}

/// Runs a watch until the server has received this many requests.
async fn follow(
    store: &Arc<Store<StoredPod>>,
    timeouts: WatchTimeouts,
    until: (FakeServer, Client, usize),
) {
    let (server, client, requests) = until;
    let watch = watch(store, timeouts, client);
    tokio::select! {
        () = watch.run() => unreachable!("a watch does not end"),
        () = server.reached(requests) => {}
    }
}

/// Whether each request was for a list, and not for a watch.
fn lists(server: &FakeServer) -> Vec<bool> {
    let lines = server.lines();
    lines.iter().map(|line| line.contains("limit")).collect()
}

#[tokio::test]
async fn a_watch_counts_the_errors_of_an_outage_and_recovers() {
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
    follow(&store, timeouts(), (server.clone(), client, 8)).await;
    assert_eq!(names(&store), ["a", "b"]);
    let lines = server.lines();
    assert_eq!(
        lines[4], "GET /api/v1/namespaces/shop/pods?limit=64",
        "the list begins again"
    );
    assert_eq!(
        lines[7],
        format!("GET /api/v1/namespaces/shop/pods?{OPEN}12")
    );
    assert_eq!(store.report().errors, 5);
}

#[tokio::test]
async fn a_watch_whose_connection_is_cut_continues_and_other_failures_are_errors() {
    let store = pods(Some("shop"));
    let (server, client) = FakeServer::new(|_sent, before| match before {
        0 => list("10", "", &[pod("a", 1)]),
        1 => Reply::EventsAndError(
            vec![event("ADDED", &pod("b", 11))],
            ErrorKind::UnexpectedEof,
        ),
        2 => Reply::EventsAndError(vec![bookmark("12")], ErrorKind::TimedOut),
        3 => Reply::EventsAndError(vec![bookmark("13")], ErrorKind::BrokenPipe),
        4 => Reply::EventsAndSilence(vec![event("ERROR", &failure(410, "too old"))]),
        5 => list("14", "", &[pod("c", 14)]),
        6 => Reply::EventsAndSilence(vec![failure(410, "too old")]),
        _ => Reply::Hang,
    });
    follow(&store, timeouts(), (server.clone(), client, 8)).await;
    assert_eq!(names(&store), ["c"]);
    assert_eq!(
        server.lines()[4],
        format!("GET /api/v1/namespaces/shop/pods?{OPEN}13")
    );
    let expected = [true, false, false, false, false, true, false, true];
    assert_eq!(
        lists(&server),
        expected,
        "410 is expiry, also outside an event"
    );
    assert_eq!(store.report().errors, 2);
}

#[tokio::test]
async fn an_event_longer_than_the_limit_is_an_error() {
    let store = pods(Some("shop"));
    let (server, client) = FakeServer::new(|_sent, before| match before {
        0 => list("10", "", &[pod("a", 1)]),
        1 => {
            let mut long = pod("b", 11);
            long["metadata"]["annotations"] = json!({ "a": "x".repeat(17 << 20) });
            Reply::EventsAndSilence(vec![event("ADDED", &long)])
        }
        _ => Reply::Hang,
    });
    follow(&store, timeouts(), (server, client, 3)).await;
    assert_eq!(names(&store), ["a"]);
    let expected = "invalid response: longer than the limit of 16384 KiB";
    assert_eq!(store.report().failing.as_deref(), Some(expected));
}

#[tokio::test]
async fn a_silent_watch_is_opened_again_and_after_three_failures_listed_again() {
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
        ..timeouts()
    };
    follow(&store, impatient, (server.clone(), client, 6)).await;
    assert_eq!(lists(&server), [true, false, false, false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_not_answered_in_time_is_asked_for_in_smaller_pages() {
    let store = pods(None);
    let (server, client) = FakeServer::new(|_sent, before| match before {
        2 => list("10", "", &[pod("a", 1)]),
        _ => Reply::Hang,
    });
    follow(&store, timeouts(), (server.clone(), client, 4)).await;
    let limits = [64, 16, 4].map(|limit| format!("GET /api/v1/pods?limit={limit}"));
    assert_eq!(server.lines()[..3], limits);
}

#[tokio::test(start_paused = true)]
async fn what_was_left_out_is_listed_again_when_the_memory_limit_has_room_for_it() {
    let store = pods(None);
    // Room for one of two pods of 100 KiB.
    let memory = Memory::unused(((64 << 20) + (150 << 10)) / 9 * 10);
    store.charge_to(|it| memory.copies().open("".into(), it, Clock::system()));
    let [old, new] = ["a", "b"].map(|name| {
        let mut pod = pod(name, 1);
        pod["spec"]["containers"][0]["name"] = "x".repeat(100 << 10).into();
        pod
    });
    let (server, client) = FakeServer::new(move |_sent, before| match before {
        0 => list("10", "", &[old.clone(), new.clone()]),
        1 => Reply::Events(vec![bookmark("11")]),
        2 => Reply::Events(vec![event("DELETED", &old)]),
        3 => list("12", "", std::slice::from_ref(&new)),
        _ => Reply::Hang,
    });
    follow(&store, timeouts(), (server.clone(), client, 5)).await;
    assert_eq!(lists(&server), [true, false, false, true, false]);
    assert_eq!(names(&store), ["b"]);
    assert_eq!(store.report().unreadable, 0);
}

#[tokio::test]
async fn a_version_that_expires_at_once_is_listed_again_only_after_a_pause() {
    let (server, client) = FakeServer::new(|sent: &Sent, _before| {
        if sent.line.contains("limit") {
            list("10", "", &[])
        } else {
            Reply::Fail(410, "gone")
        }
    });
    let store = pods(None);
    let patient = WatchTimeouts {
        backoff: Duration::from_hours(1),
        ..WatchTimeouts::default()
    };
    let watch = watch(&store, patient, client);
    let mut run = Box::pin(watch.run());
    tokio::select! {
        () = &mut run => unreachable!("a watch does not end"),
        () = server.reached(2) => {}
    }
    // Gives a watch that does not pause the chance to send another request.
    for _ in 0..100 {
        assert!((&mut run).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!(server.lines().len(), 2);
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_is_excluded_and_the_others_are_not() {
    let store = pods(None);
    let mut bad = pod("bad", 2);
    bad["metadata"]["uid"] = "uid-bad".into();
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
    follow(&store, timeouts(), (server.clone(), client.clone(), 2)).await;
    assert_eq!(
        (names(&store), store.report().unreadable),
        (vec!["a".to_owned()], 1)
    );
    let unreadable = || store.all_and_unreadable().1;
    assert_eq!(unreadable(), ["uid-bad".to_owned()].into());

    let fixed = Entry::decode(pod("bad", 13)).unwrap();
    store.apply(fixed);
    assert_eq!(names(&store), ["a", "bad"]);
    assert_eq!(store.report().unreadable, 0);
    assert_eq!(unreadable(), [].into());
}

#[test]
fn a_list_of_one_namespace_replaces_its_objects_and_does_not_change_the_others() {
    let scopes = ["shop", "bank"].map(|scope| Some(scope.to_owned()));
    let store: Store<StoredPod> = Store::new(Resource::POD, &scopes);
    let seen = |namespace: &str| {
        let good = json!({"namespace": namespace, "name": format!("of-{namespace}")});
        let bad = json!({"namespace": namespace, "name": "bad", "uid": format!("uid-{namespace}")});
        [(good, json!({"containers": []})), (bad, json!(7))]
            .map(|(metadata, spec)| {
                Entry::decode(json!({"metadata": metadata, "spec": spec})).unwrap()
            })
            .into()
    };
    store.replace(Some("shop"), seen("shop"));
    assert!(!store.is_synced(), "one of two scopes is not all");
    store.replace(Some("bank"), seen("bank"));
    store.replace(Some("shop"), Vec::new());
    assert!(store.is_synced());
    let (left, unreadable) = store.all_and_unreadable();
    let left: Vec<_> = left.iter().map(|stored| &*stored.pod.name).collect();
    assert_eq!(left, ["of-bank"]);
    assert_eq!(unreadable, ["uid-bank".to_owned()].into());
}

#[test]
fn an_indexed_and_an_unindexed_selector_select_the_same_pods() {
    let store = pods(None);
    for number in 0..40 {
        let mut object = pod(&format!("pod-{number:02}"), 1);
        let app = format!("app-{}", number % 3);
        object["metadata"]["labels"] = json!({"app": app, "half": (number % 2).to_string()});
        store.apply(Entry::decode(object).unwrap());
    }
    let moved = json!({"app": "app-1", "half": "0"});
    let mut object = pod("pod-00", 2);
    object["metadata"]["labels"] = moved;
    store.apply(Entry::decode(object).unwrap());
    store.delete(&Entry::decode(pod("pod-01", 3)).unwrap());

    let select = |text: &str| -> Vec<String> {
        let found = store.select("shop", &text.parse().unwrap());
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
    assert_eq!(store.select("elsewhere", &Selector::default()), Vec::new());
}

#[test]
fn only_a_new_spec_or_annotation_is_a_change() {
    let changes = Arc::new(Changes::default());
    let store: Store<EffectiveHorizontalPodAutoscaler> =
        Store::new(Resource::EHPA, &[None]).with_changes(changes.clone());
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
        Entry::decode(object).unwrap()
    };
    let next = || {
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
    assert_eq!(next(), Some(vec![web.clone()]), "it was created");
    store.apply(object(1, "false", 5));
    store.replace(None, vec![object(1, "false", 6)]);
    assert_eq!(next(), None, "only its status changed");
    store.apply(object(2, "false", 6));
    assert_eq!(next(), Some(vec![web.clone()]), "its spec changed");
    store.apply(object(2, "true", 6));
    assert_eq!(next(), Some(vec![web.clone()]), "its annotations changed");
    store.delete(&object(2, "true", 6));
    assert_eq!(next(), Some(vec![web.clone()]), "it was deleted");
    store.apply(object(1, "true", 6));
    store.apply(object(2, "true", 6));
    store.replace(None, Vec::new());
    assert_eq!(
        next(),
        Some(vec![web]),
        "many changes of an object are one entry"
    );
}

#[tokio::test]
async fn a_part_of_a_list_is_no_contact() {
    let store = pods(None);
    let (server, client) = FakeServer::new(|_sent, before| match before {
        0 => list("10", "more", &[pod("a", 1)]),
        1 => Reply::Fail(500, "etcd has no leader"),
        _ => Reply::Hang,
    });
    follow(&store, timeouts(), (server, client, 3)).await;
    let report = store.report();
    assert_eq!((report.errors, report.last_contact), (1, None));
    assert!(report.failing.is_some() && !store.is_synced());
}

/// An object with an annotation of this size, as a user may write it.
fn fat(mut object: Value, bytes: usize) -> Value {
    object["metadata"]["annotations"] = json!({"note": "x".repeat(bytes)});
    object
}

/// A server of these objects without events.
fn server_of(objects: impl AsRef<[Value]> + Send + Sync + 'static) -> (FakeServer, Client) {
    FakeServer::new(move |sent, _before| {
        if sent.line.contains("watch=true") {
            Reply::Hang
        } else {
            page_of(objects.as_ref(), sent)
        }
    })
}

/// The page of these objects that a request asks for.
fn page_of(objects: &[Value], sent: &Sent) -> Reply {
    let parameter = |name: &str| {
        let value = sent
            .line
            .split(['?', '&'])
            .find_map(|pair| pair.strip_prefix(name));
        value.map(|value| value.parse::<usize>().unwrap())
    };
    let first = parameter("continue=").unwrap_or_default();
    let end = objects.len().min(first + parameter("limit=").unwrap());
    let next = if end < objects.len() {
        end.to_string()
    } else {
        String::new()
    };
    list("10", &next, &objects[first..end])
}

#[tokio::test]
async fn a_page_that_is_too_long_is_asked_for_again_in_smaller_ones() {
    let objects: Vec<_> = (0..60)
        .map(|n| fat(pod(&format!("pod-{n:02}"), 1), 250 << 10))
        .collect();
    let (server, client) = server_of(objects);
    let store = pods(None);
    follow(&store, timeouts(), (server.clone(), client, 9)).await;
    assert_eq!(names(&store).len(), 60);
    let lines = server.lines();
    let first = [
        "64",
        "16",
        "8&continue=16",
        "8&continue=24",
        "8&continue=32",
    ];
    let expected = first.map(|limit| format!("GET /api/v1/pods?limit={limit}"));
    assert_eq!(lines[..5], expected);
    assert_eq!(lines[8], format!("GET /api/v1/pods?{OPEN}10"));
    let report = store.report();
    assert_eq!((report.errors, report.unreadable), (0, 0));
}

#[tokio::test]
async fn one_object_that_is_too_large_is_unreadable_for_itself() {
    let objects = [pod("a", 1), fat(pod("b", 2), 17 << 20), pod("c", 3)];
    let (server, client) = server_of(objects);
    let store = pods(None);
    follow(&store, timeouts(), (server.clone(), client, 8)).await;
    assert_eq!(names(&store), ["a", "c"]);
    assert_eq!(store.report().unreadable, 1);
    assert_eq!(server.lines()[7], format!("GET /api/v1/pods?{OPEN}10"));
}

#[test]
fn an_object_is_kept_without_the_annotations_of_others_and_not_beyond_a_size() {
    let object = |generated: usize| {
        json!({
            "metadata": {"namespace": "shop", "name": "web", "annotations": {
                "note": "x".repeat(300 << 10),
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "autoscaling.foretide.io/adopt": "true",
                "metric-query.autoscaling.crane.io/resource.cpu": "1",
            }},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "y".repeat(generated)},
                "maxReplicas": 10, "scaleStrategy": "Auto",
            },
        })
    };
    let store: Store<EffectiveHorizontalPodAutoscaler> = Store::new(Resource::EHPA, &[None]);
    store.apply(Entry::decode(object(3)).unwrap());
    let kept = store
        .get("shop", "web")
        .unwrap()
        .metadata
        .annotations
        .clone();
    let keys: Vec<_> = kept.unwrap().into_keys().collect();
    let ours = [
        "autoscaling.foretide.io/adopt",
        "metric-query.autoscaling.crane.io/resource.cpu",
    ];
    assert_eq!(keys, ours);
    store.apply(Entry::decode(object(300 << 10)).unwrap());
    assert!(store.get("shop", "web").is_none());
    assert_eq!(store.report().unreadable, 1);
}

#[tokio::test(start_paused = true)]
async fn only_what_a_watch_delivers_shows_that_the_copies_are_up_to_date() {
    let store = pods(None);
    let seen = store.clone();
    let delivered = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&delivered);
    let minute = Duration::from_mins(1);
    let (server, client) = FakeServer::new(move |_sent, before| {
        let contact = seen.report().last_contact;
        noted.lock().unwrap().push(
            contact
                .as_ref()
                .is_some_and(|contact| contact.age().unsigned_abs() < minute),
        );
        // So that the next contact is seen.
        if contact.is_some() {
            seen.contacted(None, &Contact::ago(minute));
        }
        match before {
            0 => list("10", "more", &[pod("a", 1)]),
            1 => Reply::Fail(500, "etcd has no leader"),
            // A complete list; and the version of the server, after a watch without events.
            2 | 5 => list("10", "", &[pod("a", 1)]),
            // Opened, then silent.
            3 => Reply::EventsAndSilence(Vec::new()),
            4 => Reply::Quiet(Duration::from_secs(25)),
            6 => Reply::Events(vec![bookmark("12")]),
            _ => Reply::Hang,
        }
    });
    follow(&store, timeouts(), (server, client, 8)).await;
    let expected = [
        (false, "nothing yet"),
        (false, "a page"),
        (false, "a list that failed"),
        (true, "a complete list"),
        (false, "a watch that was opened"),
        (false, "its end, before the version of the server is known"),
        (true, "its end"),
        (true, "a bookmark"),
    ];
    let delivered = delivered.lock().unwrap();
    assert_eq!(delivered.len(), expected.len());
    for (delivered, (expected, what)) in delivered.iter().zip(expected) {
        assert_eq!(*delivered, expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_restored_from_a_backup_is_listed_again() {
    let store = pods(None);
    let (server, client) = FakeServer::new(|_sent, before| match before {
        0 => list("100", "", &[pod("a", 90)]),
        1 => Reply::Quiet(Duration::from_secs(25)),
        2 => list("60", "more", &[pod("b", 50)]),
        3 => list("61", "", &[pod("b", 50)]),
        _ => Reply::Hang,
    });
    follow(&store, timeouts(), (server.clone(), client, 5)).await;
    let lines = server.lines();
    assert_eq!(lines[2], "GET /api/v1/pods?limit=1");
    assert_eq!(lines[3], "GET /api/v1/pods?limit=64");
    assert_eq!(lines[4], format!("GET /api/v1/pods?{OPEN}61"));
    assert_eq!(names(&store), ["b"]);
}

#[test]
fn copies_are_stale_by_namespace() {
    let scopes = ["shop", "bank"].map(|scope| Some(scope.to_owned()));
    let store: Store<StoredPod> = Store::new(Resource::POD, &scopes);
    let stale = |namespace| match store.stale(namespace, MAX_STALENESS) {
        Some(UnusableCopies::Stale { since, .. }) => Some(since),
        _ => None,
    };
    assert_eq!(stale(Some("shop")), Some(None), "never listed");
    let old = Contact::ago(Duration::from_secs(61));
    store.contacted(Some("shop"), &old);
    store.contacted(Some("bank"), &Contact::ago(Duration::from_secs(40)));
    assert_eq!(stale(Some("shop")), Some(Some(old.at())));
    assert_eq!(stale(Some("bank")), None);
    assert_eq!(stale(None), Some(Some(old.at())));
    assert_eq!(store.report().last_contact, Some(old.clone()));
    store.contacted(Some("shop"), &Clock::system().contact());
    assert_eq!(stale(None), None);
}

#[tokio::test]
async fn a_bookmark_before_the_version_of_a_watch_lists_again() {
    let store = pods(None);
    let (server, client) = FakeServer::new(|_sent, before| match before {
        0 => list("100", "", &[pod("a", 90)]),
        1 => Reply::EventsAndSilence(vec![bookmark("60")]),
        2 => list("61", "", &[pod("b", 50)]),
        _ => Reply::Hang,
    });
    follow(&store, timeouts(), (server, client, 4)).await;
    assert_eq!(names(&store), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_a_server_asked_for_is_over_when_the_watch_delivers() {
    let store = pods(None);
    let started = Clock::system().monotonic();
    let (server, client) = FakeServer::new(|_sent, before| match before {
        0 => Reply::FailUntil(429, "30"),
        1 => list("10", "", &[pod("a", 1)]),
        2 => Reply::Events(vec![bookmark("11")]),
        3 => Reply::Fail(410, "too old resource version"),
        4 => list("20", "", &[pod("b", 12)]),
        _ => Reply::Hang,
    });
    follow(&store, timeouts(), (server, client, 6)).await;
    assert_eq!(names(&store), ["b"]);
    let waited = Clock::system().monotonic().since(started).as_secs();
    assert!((29..50).contains(&waited), "30 s once, and not {waited} s");
}
