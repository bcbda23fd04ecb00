//! Members follow their Secrets, and are healthy for as long as they answer.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::Request};

use foretide_domain::{
    Replicas, ScaleTarget,
    federate::{Health, Membership, PodShape, Profile, Taint, TaintEffect},
};
use futures::stream;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::{
    MemberRegistry, MemberSettings, Timeouts,
    connect::secrets_of,
    kubeconfig::Credentials,
    sample::{base64, kubeconfig},
};
use crate::{
    adapters::{
        api_server::{
            Connection,
            fake::{FakeServer, Reply, Sent},
        },
        kube::KubeMember,
    },
    ports::{Fleet, Member as _, MemberView, Workloads},
};

fn settings() -> MemberSettings {
    MemberSettings {
        namespace: "foretide-system".into(),
        label: "sigs.k8s.io/multicluster-runtime-kubeconfig=true".into(),
        key: "kubeconfig".into(),
        allow_loopback: false,
        namespaces: Vec::new(),
        timeouts: Timeouts::new(jiff::SignedDuration::from_secs(45)),
    }
}

/// A Secret of a member with a token.
fn secret(name: &str, token: &str) -> Value {
    let mut config = kubeconfig();
    config["users"][0]["user"]["token"] = json!(token);
    json!({
        "metadata": {
            "name": name, "namespace": "foretide-system",
            "labels": {"sigs.k8s.io/multicluster-runtime-kubeconfig": "true"},
            "annotations": {},
        },
        "data": {"kubeconfig": base64(&config.to_string())},
    })
}

fn list(items: &Value) -> Reply {
    Reply::Ok(json!({"metadata": {"resourceVersion": "1"}, "items": items}))
}

/// A healthy, empty, quiet cluster.
fn healthy(sent: &Sent, _before: usize) -> Reply {
    if sent.line.contains("watch=true") {
        Reply::Quiet(Duration::from_secs(25))
    } else if sent.line.ends_with("/readyz") {
        Reply::Ok(json!("ok"))
    } else {
        list(&json!([]))
    }
}

/// A registry whose members are one cluster that answers by `reply`; counts the connections.
fn members(
    reply: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static,
) -> (MemberRegistry, Arc<AtomicUsize>) {
    let (_, hub) = FakeServer::always(|| Reply::Hang);
    let (_, member) = FakeServer::new(reply);
    let connects = Arc::new(AtomicUsize::new(0));
    let count = connects.clone();
    let members = MemberRegistry::with_connect(Connection::over(hub), settings(), move |access| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Connection::over(member.clone()).with_redactor(secrets_of(&access.credentials)))
    });
    (members, connects)
}

fn only(members: &MemberRegistry) -> Arc<MemberView<KubeMember>> {
    let all = members.members();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// Runs the other tasks until a condition holds.
async fn until(holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait)
        .await
        .expect("the condition never held");
}

#[tokio::test]
async fn the_secret_of_a_member_describes_it() {
    let (members, _) = members(healthy);
    assert!(!members.is_synced());
    let mut one = secret("one", "a");
    one["metadata"]["labels"]["foretide.io/provider"] = json!("onprem");
    one["metadata"]["labels"]["foretide.io/region"] = json!("eu");
    one["metadata"]["labels"]["foretide.io/zone"] = json!("eu-a_eu-b");
    one["metadata"]["annotations"] = json!({
        "foretide.io/taints": "upkeep=soon:NoSchedule, drain:NoExecute",
        "foretide.io/prometheus": "eu",
    });
    let labels = one["metadata"]["labels"].clone();
    members.set_secrets(vec![one]);

    assert!(members.is_synced());
    let view = only(&members);
    let taint = |key: &str, value: &str, effect| Taint {
        key: key.into(),
        value: value.into(),
        effect,
        since: None,
    };
    let profile = Profile {
        name: "one".into(),
        labels: serde_json::from_value(labels).unwrap(),
        provider: "onprem".into(),
        region: "eu".into(),
        zones: vec!["eu-a".into(), "eu-b".into()],
    };
    assert_eq!(view.profile, profile);
    let taints = [
        taint("upkeep", "soon", TaintEffect::NoSchedule),
        taint("drain", "", TaintEffect::NoExecute),
    ];
    assert_eq!(view.taints, taints);
    assert_eq!(view.prometheus.as_deref(), Some("eu"));
    assert!(view.cluster.is_some());
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_a_member_without_a_cluster() {
    let (members, connects) = members(healthy);
    let mut bad = kubeconfig();
    bad["users"][0]["user"]["exec"] = json!({"command": "id"});
    let mut with_exec = secret("a", "t");
    with_exec["data"]["kubeconfig"] = json!(base64(&bad.to_string()));
    let mut empty = secret("b", "t");
    empty["data"] = json!({"value": "eA=="});
    let mut broken = secret("c", "t");
    broken["data"]["kubeconfig"] = json!("%%");
    members.set_secrets(vec![with_exec, empty, broken]);

    let problems: Vec<String> = members
        .members()
        .iter()
        .map(|view| {
            assert!(view.cluster.is_none());
            assert!(matches!(view.health, Health::Unknown { .. }));
            view.problem.clone().unwrap()
        })
        .collect();
    let expected = [
        "users[0].user.exec makes clients run a command, which the hub does not do for a member; \
         use the token of a service account (foretide members add makes one)",
        "data.kubeconfig is missing; put the kubeconfig there, or name its key with --member-secret-key",
        "data.kubeconfig is not base64; encode the kubeconfig as base64",
    ];
    assert_eq!(problems, expected);
    assert_eq!(connects.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_invalid_taint_is_reported_and_the_others_apply() {
    let (members, _) = members(healthy);
    let mut one = secret("one", "t");
    one["metadata"]["annotations"] =
        json!({"foretide.io/taints": "a=b:NoSchedule,c:Never,:NoExecute,d e:NoSchedule"});
    members.set_secrets(vec![one.clone()]);
    until(|| only(&members).health == Health::Ready).await;
    let view = only(&members);
    assert_eq!(view.taints.len(), 1);
    let problem = view.problem.clone().unwrap();
    assert!(
        problem.ends_with(
            r#"got "c:Never" and ":NoExecute" and "d e:NoSchedule"; the other taints apply"#
        ),
        "{problem}"
    );

    one["metadata"]["annotations"] = json!({"foretide.io/taints": "a=b:NoSchedule,late:NoExecute"});
    members.set_secrets(vec![one]);
    let view = only(&members);
    let since: Vec<bool> = view.taints.iter().map(|t| t.since.is_some()).collect();
    assert_eq!(
        since,
        [false, true],
        "only a taint that appeared later has a time"
    );
    assert_eq!(view.problem, None);
}

#[tokio::test]
async fn new_labels_keep_the_connection_and_new_credentials_open_another() {
    let (members, connects) = members(healthy);
    members.set_secrets(vec![secret("one", "a")]);
    until(|| only(&members).health == Health::Ready).await;
    let first = only(&members).cluster.clone().unwrap();

    let mut labelled = secret("one", "a");
    labelled["metadata"]["labels"]["foretide.io/region"] = json!("eu");
    members.set_secrets(vec![labelled]);
    assert_eq!(only(&members).profile.region, "eu");
    assert!(Arc::ptr_eq(
        only(&members).cluster.as_ref().unwrap(),
        &first
    ));
    assert_eq!(connects.load(Ordering::Relaxed), 1);

    members.set_secrets(vec![secret("one", "b")]);
    assert_eq!(connects.load(Ordering::Relaxed), 2);
    let view = only(&members);
    assert_eq!(view.health, Health::Ready, "a rotated token is no outage");
    assert!(Arc::ptr_eq(view.cluster.as_ref().unwrap(), &first));
    until(|| {
        members.check_once();
        !Arc::ptr_eq(only(&members).cluster.as_ref().unwrap(), &first)
    })
    .await;
    until(|| only(&members).health == Health::Ready).await;
}

/// The connection that serves the only member.
fn serving(members: &MemberRegistry) -> Arc<KubeMember> {
    let cluster = only(members).cluster.clone();
    cluster.expect("a connection")
}

/// The Secret of a member that leaves.
fn leaving(name: &str, token: &str) -> Value {
    let mut secret = secret(name, token);
    secret["metadata"]["annotations"]["foretide.io/leaving"] = json!("true");
    secret
}

/// The Secret of a member that cannot be used.
fn unusable(name: &str) -> Value {
    let mut secret = secret(name, "t");
    secret["data"]["kubeconfig"] = json!("%%");
    secret
}

/// A registry with one member that is ready by these Secrets, and the number of its connections.
async fn ready(secrets: Vec<Value>) -> (MemberRegistry, Arc<AtomicUsize>) {
    let (members, connects) = members(healthy);
    members.set_secrets(secrets);
    until(|| only(&members).health == Health::Ready).await;
    (members, connects)
}

#[tokio::test]
async fn a_secret_that_is_deleted_or_loses_its_label_and_comes_back_changes_nothing() {
    let (members, connects) = ready(vec![secret("one", "a")]).await;
    let (first, before) = (serving(&members), only(&members));

    // Without the label it is not listed either.
    members.set_secrets(vec![]);
    let view = only(&members);
    assert!(Arc::ptr_eq(&serving(&members), &first));
    assert_eq!(
        (&view.profile, view.health),
        (&before.profile, Health::Ready)
    );
    assert_eq!(view.membership, Membership::Listed);
    let problem = view.secret_problem.clone().unwrap();
    let expected = "its Secret is missing; restore it, or remove the member with foretide members remove one (since ";
    assert!(problem.starts_with(expected), "{problem}");
    assert!(!members.reports()[0].usable);

    members.set_secrets(vec![secret("one", "a")]);
    assert!(Arc::ptr_eq(&serving(&members), &first));
    assert_eq!(only(&members).secret_problem, None);
    assert!(members.reports()[0].usable);
    assert_eq!(
        connects.load(Ordering::Relaxed),
        1,
        "there is no other connection"
    );
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_leaves_the_connection_until_better_credentials_have_read_the_member()
 {
    let (members, connects) = ready(vec![secret("one", "a")]).await;
    let first = serving(&members);

    members.set_secrets(vec![unusable("one")]);
    let view = only(&members);
    assert_eq!((view.health, &view.problem), (Health::Ready, &None));
    assert!(Arc::ptr_eq(&serving(&members), &first));
    let problem = view.secret_problem.clone().unwrap();
    let expected = "data.kubeconfig is not base64; encode the kubeconfig as base64 (since ";
    assert!(problem.starts_with(expected), "{problem}");

    members.set_secrets(vec![secret("one", "a")]);
    assert_eq!(only(&members).secret_problem, None);
    assert_eq!(connects.load(Ordering::Relaxed), 1);

    members.set_secrets(vec![unusable("one")]);
    members.set_secrets(vec![secret("one", "b")]);
    assert_eq!(connects.load(Ordering::Relaxed), 2);
    assert_eq!(only(&members).secret_problem, None);
    assert!(
        Arc::ptr_eq(&serving(&members), &first),
        "the new one has read nothing yet"
    );
    until(|| {
        members.check_once();
        !Arc::ptr_eq(&serving(&members), &first)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn new_credentials_that_are_rejected_are_not_used() {
    let (_, hub) = FakeServer::always(|| Reply::Hang);
    let unready = Arc::new(AtomicBool::new(false));
    let is_unready = unready.clone();
    let (_, good) = FakeServer::new(move |sent, before| {
        let fails = sent.line.ends_with("/readyz") && is_unready.load(Ordering::Relaxed);
        if fails {
            Reply::Fail(500, "etcd failed")
        } else {
            healthy(sent, before)
        }
    });
    let (_, bad) = FakeServer::always(|| Reply::Fail(401, "Unauthorized"));
    let members = MemberRegistry::with_connect(Connection::over(hub), settings(), move |access| {
        let is_good = access.credentials == Credentials::Token("good".into());
        Ok(Connection::over(if is_good {
            good.clone()
        } else {
            bad.clone()
        }))
    });
    members.set_secrets(vec![secret("one", "good")]);
    until(|| only(&members).health == Health::Ready).await;
    let first = serving(&members);

    members.set_secrets(vec![secret("one", "bad")]);
    tokio::time::sleep(Duration::from_mins(1)).await;
    members.check_once();
    let view = only(&members);
    assert_eq!((view.health, view.refused), (Health::Ready, false));
    assert!(Arc::ptr_eq(&serving(&members), &first));
    let said = "the new credentials are not used: credentials rejected (HTTP 401); renew them in the Secret of the member";
    assert_eq!(view.secret_problem.as_deref(), Some(said));
    assert!(!members.reports()[0].usable);

    // That the member is not ready is known from the first connection, and since when.
    unready.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(matches!(only(&members).health, Health::NotReady { .. }));

    members.set_secrets(vec![secret("one", "good")]);
    assert!(Arc::ptr_eq(&serving(&members), &first));
    assert_eq!(only(&members).secret_problem, None);
}

#[tokio::test(start_paused = true)]
async fn a_member_without_a_secret_is_lost_when_its_credentials_fail() {
    let refuses = Arc::new(AtomicBool::new(false));
    let is_refused = refuses.clone();
    let (members, _) = members(move |sent, before| {
        if is_refused.load(Ordering::Relaxed) {
            Reply::Fail(401, "Unauthorized")
        } else {
            healthy(sent, before)
        }
    });
    members.set_secrets(vec![secret("one", "a")]);
    until(|| only(&members).health == Health::Ready).await;
    members.set_secrets(vec![]);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(only(&members).health, Health::Ready);

    refuses.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let view = only(&members);
    assert!(matches!(view.health, Health::Unknown { .. }), "{view:?}");
    let problem = view.problem.clone().unwrap();
    let both =
        problem.contains("credentials rejected") && problem.contains("its Secret is missing");
    assert!(both, "{problem}");

    refuses.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(only(&members).health, Health::Ready);
}

#[tokio::test]
async fn a_member_that_leaves_is_gone_with_its_secret() {
    let (members, connects) = ready(vec![secret("one", "a")]).await;
    members.set_secrets(vec![leaving("one", "a")]);
    assert_eq!(only(&members).membership, Membership::Leaving);
    assert_eq!(only(&members).health, Health::Ready);
    assert_eq!(connects.load(Ordering::Relaxed), 1);
    members.set_secrets(vec![]);
    assert_eq!(members.members().len(), 0);
    assert!(members.is_synced());
}

#[tokio::test]
async fn a_member_whose_secret_is_missing_leaves_by_a_secret_without_a_kubeconfig() {
    let (members, _) = ready(vec![secret("one", "a")]).await;
    let first = serving(&members);
    members.set_secrets(vec![]);
    let mut without_data = leaving("one", "a");
    without_data["data"] = json!({});
    members.set_secrets(vec![without_data]);
    assert_eq!(only(&members).membership, Membership::Leaving);
    // It can still be drained.
    assert!(Arc::ptr_eq(&serving(&members), &first));
    assert!(members.reports()[0].usable, "its Secret is not needed");
    members.set_secrets(vec![]);
    assert_eq!(members.members().len(), 0);
}

#[tokio::test]
async fn a_member_that_was_never_read_is_gone_with_its_secret() {
    let (members, _) = members(|_, _| Reply::Hang);
    members.set_secrets(vec![secret("one", "a"), unusable("two")]);
    assert_eq!(members.members().len(), 2);
    members.set_secrets(vec![]);
    assert_eq!(members.members().len(), 0);
}

/// A healthy, empty cluster; the first watch of Pods panics in the task that reads it.
fn panicking_once() -> Client {
    let panicked = Arc::new(AtomicBool::new(false));
    let router = Router::new().fallback(move |request: Request| {
        let panicked = panicked.clone();
        async move {
            let uri = request.uri().to_string();
            if !uri.contains("watch=true") {
                let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
                return Body::from(list.to_string());
            }
            let panics = uri.contains("/pods") && !panicked.swap(true, Ordering::Relaxed);
            Body::from_stream(stream::unfold((), move |()| async move {
                assert!(!panics, "the watch of Pods panics");
                tokio::time::sleep(Duration::from_secs(20)).await;
                let metadata = json!({"resourceVersion": "2"});
                let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
                let bookmark = json!({"type": "BOOKMARK", "object": object});
                Some((Ok::<_, Infallible>(format!("{bookmark}\n")), ()))
            }))
        }
    });
    Client::new(router, "default")
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_watch_restarts_the_watches_of_its_member() {
    let (_, hub) = FakeServer::always(|| Reply::Hang);
    let member = panicking_once();
    let members = MemberRegistry::with_connect(Connection::over(hub), settings(), move |_| {
        Ok(Connection::over(member.clone()))
    });
    members.set_secrets(vec![secret("one", "a")]);
    // Longer than a watch may be silent: without the restart the member would be lost.
    tokio::time::sleep(Duration::from_mins(5)).await;
    let view = only(&members);
    assert_eq!(view.health, Health::Ready, "{:?}", view.problem);
    assert_eq!(members.reports()[0].restarts, 1);
}

#[tokio::test]
async fn every_change_wakes_the_waiting_task() {
    let (members, _) = members(healthy);
    members.set_secrets(vec![secret("one", "a")]);
    members.changed().await;
    members.set_secrets(vec![]);
    members.changed().await;
}

#[tokio::test]
async fn a_member_is_unknown_until_it_has_answered_and_listed_everything() {
    let (members, _) = members(|_, _| Reply::Hang);
    members.set_secrets(vec![secret("one", "a")]);
    let view = only(&members);
    assert!(matches!(view.health, Health::Unknown { .. }), "{view:?}");
    assert!(!view.cluster.as_ref().unwrap().is_synced());
}

#[tokio::test]
async fn a_member_that_reports_not_ready_is_not_ready() {
    let (members, _) = members(|sent, before| {
        if sent.line.ends_with("/readyz") {
            Reply::Fail(500, "etcd failed")
        } else {
            healthy(sent, before)
        }
    });
    members.set_secrets(vec![secret("one", "a")]);
    until(|| matches!(only(&members).health, Health::NotReady { .. })).await;
    let said = "not ready (HTTP 500): etcd failed";
    assert_eq!(only(&members).problem.as_deref(), Some(said));
}

#[tokio::test]
async fn a_member_whose_nodes_or_quotas_may_not_be_read_is_ready_and_its_capacity_unknown() {
    for (kind, path) in [("Node", "/nodes"), ("ResourceQuota", "/resourcequotas")] {
        let (members, _) = members(move |sent, before| {
            if sent.line.contains(path) {
                Reply::Fail(403, "it is forbidden")
            } else {
                healthy(sent, before)
            }
        });
        members.set_secrets(vec![secret("one", "a")]);
        until(|| only(&members).health == Health::Ready).await;
        until(|| only(&members).problem.is_some()).await;
        let problem = format!("watch of {kind}: it is forbidden (HTTP 403)");
        assert_eq!(only(&members).problem, Some(problem));
        assert_eq!(capacity(&members), None);
    }
}

#[tokio::test]
async fn a_member_without_nodes_has_no_capacity_once_everything_is_listed() {
    let (members, _) = members(healthy);
    members.set_secrets(vec![secret("one", "a")]);
    until(|| capacity(&members) == Some(Replicas::ZERO)).await;
}

/// The capacity of the only member.
fn capacity(members: &MemberRegistry) -> Option<Replicas> {
    let target = ScaleTarget {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        namespace: "shop".into(),
        name: "web".into(),
    };
    let cluster = only(members).cluster.clone()?;
    let estimate = cluster.capacity(&target, "", &PodShape::default());
    estimate.map(|estimate| estimate.replicas)
}

#[tokio::test]
async fn a_lost_member_reports_why_it_is_lost_before_a_problem_of_its_annotations() {
    let (members, _) = members(|_, _| Reply::Fail(401, "Unauthorized"));
    let mut one = secret("one", "t0p-s3cret");
    one["metadata"]["annotations"] = json!({"foretide.io/taints": "nonsense"});
    members.set_secrets(vec![one]);
    until(|| only(&members).problem.is_some()).await;
    let problem = "credentials rejected (HTTP 401); renew them in the Secret of the member";
    until(|| only(&members).problem.as_deref() == Some(problem)).await;
    assert!(matches!(only(&members).health, Health::Unknown { .. }));
}

#[tokio::test]
async fn a_token_that_a_server_repeats_is_hidden() {
    const TOKEN: &str = "t0p-s3cret-of-the-hub";
    const WORDS: &str = "no route for GET with Authorization: Bearer t0p-s3cret-of-the-hub, token=t0p-s3cret-of-the-hub";
    assert!(WORDS.contains(TOKEN));
    for (code, of_a_call) in [(500, true), (403, false)] {
        let (members, _) = members(move |sent, before| {
            if sent.line.ends_with("/readyz") == of_a_call {
                Reply::Fail(code, WORDS)
            } else {
                healthy(sent, before)
            }
        });
        members.set_secrets(vec![secret("one", TOKEN)]);
        let said = || only(&members).problem.clone().unwrap_or_default();
        until(|| said().contains("no route")).await;
        let said = said();
        assert!(
            said.contains("[hidden]") && !said.contains("s3cret"),
            "{said}"
        );
    }
}

/// A hub that serves Secrets, and profiles if there are any.
fn hub(profiles: Option<Value>, secrets: Value, profile_secrets: Value) -> (FakeServer, Client) {
    FakeServer::new(move |sent, _before| {
        let line = &sent.line;
        if line.contains("watch=true") {
            Reply::EventsAndSilence(Vec::new())
        } else if line.contains("x-k8s.io%2Fcluster-profile") {
            list(&profile_secrets)
        } else if line.contains("/secrets") {
            list(&secrets)
        } else if line.contains("/clusterprofiles") {
            list(profiles.as_ref().unwrap())
        } else if profiles.is_some() {
            Reply::Ok(json!({"resources": [
                {"name": "clusterprofiles", "kind": "ClusterProfile", "namespaced": true},
            ]}))
        } else {
            Reply::Fail(404, "not found")
        }
    })
}

/// A registry over this hub; its members are healthy and empty.
fn members_of(hub: Client) -> Arc<MemberRegistry> {
    let (_, member) = FakeServer::new(healthy);
    Arc::new(MemberRegistry::with_connect(
        Connection::over(hub),
        settings(),
        move |_access| Ok(Connection::over(member.clone())),
    ))
}

/// Runs a registry until its members are listed.
async fn run(server: Client) -> Arc<MemberRegistry> {
    let members = members_of(server);
    let running = members.clone();
    let task = tokio::spawn(async move { running.run().await });
    until(|| {
        members.check_once();
        members.is_synced()
    })
    .await;
    task.abort();
    members
}

#[tokio::test]
async fn the_secrets_of_one_namespace_are_listed_by_their_label() {
    let (server, client) = hub(None, json!([secret("one", "a")]), json!([]));
    let members = run(client).await;
    assert_eq!(only(&members).profile.name, "one");
    let expected = "GET /api/v1/namespaces/foretide-system/secrets?limit=500\
                    &labelSelector=sigs.k8s.io%2Fmulticluster-runtime-kubeconfig%3Dtrue";
    assert!(
        server.lines().iter().any(|line| line == expected),
        "{:?}",
        server.lines()
    );
}

#[tokio::test]
async fn a_hub_without_members_is_synced() {
    let (_, client) = hub(None, json!([]), json!([]));
    assert_eq!(run(client).await.members().len(), 0);
}

#[tokio::test]
async fn a_cluster_profile_with_its_secret_is_a_member() {
    let profile = json!({
        "metadata": {
            "name": "east", "namespace": "foretide-system",
            "labels": {"x-k8s.io/cluster-manager": "m", "foretide.io/provider": "onprem"},
        },
        "status": {
            "properties": [{"name": "topology.kubernetes.io/region", "value": "eu"}],
            "conditions": [
                {"type": "ControlPlaneHealthy", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ],
        },
    });
    let without_secret = json!({"metadata": {"name": "west", "namespace": "foretide-system"}});
    let credentials = json!({
        "metadata": {
            "name": "any", "namespace": "foretide-system",
            "labels": {"x-k8s.io/cluster-profile": "east", "x-k8s.io/cluster-inventory-consumer": "foretide"},
        },
        "data": {"Config": base64(&kubeconfig().to_string())},
    });
    let (_, client) = hub(
        Some(json!([profile, without_secret])),
        json!([]),
        json!([credentials]),
    );
    let members = run(client).await;
    let all = members.members();
    let [east, west] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(
        (east.profile.provider.as_str(), east.profile.region.as_str()),
        ("onprem", "eu")
    );
    assert_eq!(east.profile.name, "east");
    assert!(east.cluster.is_some());
    assert!(west.cluster.is_none());
    let problem = west.problem.clone().unwrap();
    assert!(
        problem.starts_with("0 Secrets with the labels"),
        "{problem}"
    );

    let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    until(|| members.members()[0].health == Health::NotReady { since }).await;
}

/// Whether members count as listed while the hub answers a list of profiles with this status.
async fn is_listed_while_profiles_fail(code: u16) -> bool {
    let (server, client) = FakeServer::new(move |sent, _before| {
        let line = &sent.line;
        if line.contains("watch=true") {
            Reply::EventsAndSilence(Vec::new())
        } else if line.contains("/clusterprofiles") {
            Reply::Fail(code, "words")
        } else if line.contains("/secrets") {
            list(&json!([]))
        } else {
            Reply::Ok(json!({"resources": [
                {"name": "clusterprofiles", "kind": "ClusterProfile", "namespaced": true},
            ]}))
        }
    });
    let members = members_of(client);
    let running = members.clone();
    let task = tokio::spawn(async move { running.run().await });
    until(|| {
        server
            .lines()
            .iter()
            .any(|l| l.contains("/clusterprofiles"))
    })
    .await;
    // The clock is paused: every other list and every answer takes less than this.
    tokio::time::sleep(Duration::from_secs(5)).await;
    task.abort();
    members.is_synced()
}

#[tokio::test(start_paused = true)]
async fn profiles_that_fail_temporarily_are_waited_for_and_forbidden_ones_are_none() {
    for (code, listed) in [
        (403, true),
        (404, true),
        (429, false),
        (500, false),
        (503, false),
    ] {
        assert_eq!(is_listed_while_profiles_fail(code).await, listed, "{code}");
    }
}

#[test]
fn no_debug_output_of_a_secret_shows_its_data() {
    use crate::adapters::kube::Stored as _;
    let decoded = super::secret::MemberSecret::decode(secret("one", "t0p-s3cret")).unwrap();
    let shown = format!("{decoded:?}");
    let data = secret("one", "t0p-s3cret")["data"]["kubeconfig"].to_string();
    assert!(
        shown.contains("one") && !shown.contains(&data[1..20]),
        "{shown}"
    );
}
