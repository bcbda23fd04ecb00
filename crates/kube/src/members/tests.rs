//! Members follow their Secrets, and are healthy for as long as they answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use foretide_domain::{Replicas, ScaleTarget};
use foretide_federate::{Health, Membership, PodShape, Profile, Taint, TaintEffect};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    MemberRegistry,
    connect::secrets_of,
    sample::{base64, kubeconfig, settings},
};
use crate::{api_server::Connection, cluster::KubeMember};
use foretide_api::ports::{Fleet, Member as _, MemberView};
use simkube::client::{FakeServer, Reply, Sent};

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

    // Without the label the Secret is not listed either.
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
    // The member can still be drained.
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

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_watch_restarts_the_watches_of_its_member() {
    let panicked = AtomicBool::new(false);
    let (members, _) = members(move |sent, before| {
        let is_of_pods = sent.line.contains("/pods") && sent.line.contains("watch=true");
        let panics = is_of_pods && !panicked.swap(true, Ordering::Relaxed);
        assert!(!panics, "the watch of Pods panics");
        healthy(sent, before)
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

/// A registry that runs over a hub with these profiles and their Secrets, and no other Secrets. Its members are healthy
/// and empty.
fn inventory(
    profiles: impl Fn() -> Reply + Send + Sync + 'static,
    secrets: Value,
) -> (FakeServer, Arc<MemberRegistry>) {
    let (server, hub) = FakeServer::new(move |sent, _before| {
        let line = &sent.line;
        if line.contains("watch=true") {
            Reply::EventsAndSilence(Vec::new())
        } else if line.contains("x-k8s.io%2Fcluster-profile") {
            list(&secrets)
        } else if line.contains("/secrets") {
            list(&json!([]))
        } else if line.contains("/clusterprofiles") {
            profiles()
        } else {
            Reply::Ok(json!({"resources": [
                {"name": "clusterprofiles", "kind": "ClusterProfile", "namespaced": true},
            ]}))
        }
    });
    let (_, member) = FakeServer::new(healthy);
    let members = MemberRegistry::with_connect(Connection::over(hub), settings(), move |_| {
        Ok(Connection::over(member.clone()))
    });
    let members = Arc::new(members);
    let running = members.clone();
    tokio::spawn(async move { running.run().await });
    (server, members)
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
    let profiles = json!([profile, without_secret]);
    let (_, members) = inventory(move || list(&profiles), json!([credentials]));
    until(|| {
        members.check_once();
        members.is_synced()
    })
    .await;
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

#[tokio::test(start_paused = true)]
async fn profiles_that_fail_temporarily_are_waited_for_and_forbidden_ones_are_none() {
    for (code, listed) in [
        (403, true),
        (404, true),
        (429, false),
        (500, false),
        (503, false),
    ] {
        let (server, members) = inventory(move || Reply::Fail(code, "words"), json!([]));
        let is_asked = || {
            server
                .lines()
                .iter()
                .any(|line| line.contains("/clusterprofiles"))
        };
        until(is_asked).await;
        // The clock is paused: every other list and every answer takes less than this.
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(members.is_synced(), listed, "{code}");
    }
}

#[test]
fn no_debug_output_of_a_secret_shows_its_data() {
    use crate::cluster::Stored as _;
    let mut stored = secret("one", "t0p-s3cret");
    let data = stored["data"]["kubeconfig"].to_string();
    stored["metadata"]["annotations"]["example.com/copy"] = json!(data);
    let decoded = super::secret::MemberSecret::decode(stored).unwrap();
    let shown = format!("{decoded:?}");
    assert!(
        shown.contains("one") && !shown.contains(&data[1..20]),
        "{shown}"
    );
}
