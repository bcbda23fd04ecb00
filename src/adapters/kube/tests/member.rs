//! A member: its room, its waiting pods, who writes the replicas, and what the hub places.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{KubeMember, store::Seen, watch::WatchTimeouts};
use crate::{
    adapters::api_server::{
        Connection, Limits, WriteGate,
        fake::{FakeServer, Reply, Sent},
    },
    clock::Clock,
    domain::{Replicas, ScaleTarget, federate::PodShape},
    ports::{ClusterError, Member},
};

fn member(
    reply: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static,
) -> (FakeServer, KubeMember) {
    let (server, client) = FakeServer::new(reply);
    (server, member_of(client, &[]))
}

/// A member of which these namespaces are watched.
fn member_of(client: kube::Client, namespaces: &[String]) -> KubeMember {
    let limits = Limits::of_a_member();
    KubeMember::member(
        Connection::over(client),
        namespaces,
        WriteGate::default(),
        (limits, WatchTimeouts::default(), Clock::system()),
    )
}

fn target() -> ScaleTarget {
    ScaleTarget {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        namespace: "shop".into(),
        name: "web".into(),
    }
}

fn node(name: &str, cpu: &str, pods: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "disk": "ssd"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": pods},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn pod(name: &str, app: &str, on: Option<&str>, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": app}},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": if on.is_some() { "Running" } else { "Pending" }},
    })
}

fn deployment(spec: &Value) -> Value {
    let mut pod =
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]});
    for (key, value) in spec.as_object().unwrap() {
        pod[key] = value.clone();
    }
    json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
        },
        "status": {"replicas": 1, "conditions": [
            {"type": "ReplicaFailure", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    })
}

fn seen<V: super::super::Stored>(objects: &[Value]) -> Vec<Seen<V>> {
    objects.iter().cloned().filter_map(Seen::decode).collect()
}

fn fill(member: &KubeMember, nodes: &[Value], pods: &[Value], workload: &Value) {
    let [deployments, ..] = &member.stores.workloads;
    member.role.nodes.replace(None, seen(nodes));
    member.role.quotas.replace(None, seen(&[]));
    member.stores.pods.replace(None, seen(pods));
    deployments.replace(None, seen(std::slice::from_ref(workload)));
    let now = Clock::system().now();
    member.role.nodes.counts.heard(now);
    member.role.quotas.counts.heard(now);
    member.stores.pods.counts.heard(now);
}

fn capacity(nodes: &[Value], pods: &[Value], workload: &Value) -> Option<u32> {
    let (_, member) = member(|_, _| Reply::Hang);
    fill(&member, nodes, pods, workload);
    room(&member, &target(), &PodShape::default()).map(Replicas::get)
}

fn room(member: &KubeMember, target: &ScaleTarget, like: &PodShape) -> Option<Replicas> {
    let estimate = member.capacity(target, "app=web", like);
    estimate.map(|estimate| estimate.replicas)
}

#[tokio::test]
async fn a_member_holds_what_its_nodes_have_left_for_pods_of_the_template() {
    let nodes = [
        node("a", "2", "110"),
        node("b", "1", "110"),
        node("c", "4", "1"),
    ];
    let pods = [
        pod("x", "other", Some("a"), "600m"),
        pod("y", "other", Some("c"), "1"),
    ];
    assert_eq!(
        capacity(&nodes, &pods, &deployment(&json!({}))),
        Some(2 + 2)
    );

    let others_wait = [pod("z", "other", None, "900m")];
    assert_eq!(
        capacity(&nodes[..2], &others_wait, &deployment(&json!({}))),
        Some(2 + 2)
    );
    let over = json!({"phase": "Succeeded"});
    let mut done = pod("x", "other", Some("a"), "600m");
    done["status"] = over;
    assert_eq!(
        capacity(&nodes[..2], &[done], &deployment(&json!({}))),
        Some(4 + 2)
    );
}

#[tokio::test]
async fn what_a_member_holds_does_not_change_while_its_pods_do() {
    let nodes = [node("a", "2", "110"), node("b", "1", "110")];
    let ours = |name: &str, node: Option<&str>| pod(name, "web", node, "500m");
    let mut ends = ours("x", Some("a"));
    ends["metadata"]["deletionTimestamp"] = json!("2026-03-10T09:00:00Z");
    let mut blocked = ours("y", None);
    blocked["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "lastTransitionTime": "2026-03-10T09:00:00Z"}]});
    let quota = json!({
        "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": {"pods": "4"}}, "status": {"hard": {"pods": "4"}, "used": {"pods": "1"}},
    });
    for (pods, by_quota) in [
        (vec![ours("x", Some("a"))], 4),
        (vec![ours("x", None)], 4),
        (vec![ends.clone()], 4),
        (vec![blocked], 4),
        // The quota has not heard of the second yet.
        (vec![ends, ours("y", Some("b"))], 5),
    ] {
        let (_, member) = member(|_, _| Reply::Hang);
        fill(&member, &nodes, &pods, &deployment(&json!({})));
        let capacity = || room(&member, &target(), &PodShape::default());
        assert_eq!(capacity(), Some(Replicas::new(4 + 2)), "{pods:?}");
        member
            .role
            .quotas
            .replace(None, seen(std::slice::from_ref(&quota)));
        assert_eq!(capacity(), Some(Replicas::new(by_quota)), "{pods:?}");
    }
}

#[tokio::test]
async fn a_member_holds_what_it_runs_of_a_kind_that_is_not_watched_too() {
    let (_, member) = member(|_, _| Reply::Hang);
    let ours = [
        pod("x", "web", Some("a"), "500m"),
        pod("y", "web", Some("a"), "500m"),
    ];
    fill(
        &member,
        &[node("a", "2", "110")],
        &ours,
        &deployment(&json!({})),
    );
    let rollout = ScaleTarget {
        api_version: "argoproj.io/v1alpha1".into(),
        kind: "Rollout".into(),
        ..target()
    };
    let like = PodShape {
        requests: [("cpu", 500)].into_iter().collect(),
        ..PodShape::default()
    };
    assert_eq!(room(&member, &rollout, &like), Some(Replicas::new(4)));
}

#[tokio::test]
async fn pods_are_held_only_where_one_may_run() {
    let mut tainted = node("b", "4", "110");
    tainted["spec"]["taints"] = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
    let mut cordoned = node("c", "4", "110");
    cordoned["spec"]["unschedulable"] = json!(true);
    let mut unready = node("d", "4", "110");
    unready["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    let nodes = [node("a", "1", "110"), tainted, cordoned, unready];
    let expression = |operator: &str, values: Value| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": "disk", "operator": operator, "values": values},
            ]}],
        }}})
    };
    let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}});
    for (spec, expected) in [
        (json!({}), 2),
        (
            json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]}),
            2 + 8,
        ),
        (json!({"tolerations": [{"key": "gpu", "value": "no"}]}), 2),
        (json!({"tolerations": [{"operator": "Exists"}]}), 2 + 8 + 8),
        (json!({"nodeSelector": {"disk": "ssd"}}), 2),
        (json!({"nodeSelector": {"disk": "hdd"}}), 0),
        (json!({"affinity": expression("In", json!(["ssd"]))}), 2),
        (json!({"affinity": expression("NotIn", json!(["ssd"]))}), 0),
        (json!({"affinity": expression("Among", json!(["ssd"]))}), 0),
        (json!({"affinity": anti}), 1),
        (
            json!({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]}),
            1,
        ),
        (json!({"overhead": {"cpu": "100m"}}), 1),
        (json!({"resources": {"requests": {"cpu": "250m"}}}), 4),
    ] {
        assert_eq!(
            capacity(&nodes, &[], &deployment(&spec)),
            Some(expected),
            "{spec}"
        );
    }
    let ours = [pod("x", "web", Some("a"), "100m")];
    assert_eq!(
        capacity(&nodes, &ours, &deployment(&json!({"affinity": anti}))),
        Some(1)
    );
}

#[tokio::test]
async fn quotas_bound_the_capacity_and_it_is_unknown_without_nodes() {
    let (_, member) = member(|_, _| Reply::Hang);
    assert_eq!(room(&member, &target(), &PodShape::default()), None);
    fill(
        &member,
        &[node("a", "64", "110")],
        &[],
        &deployment(&json!({})),
    );
    let quota = json!({
        "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": {"requests.cpu": "3"}},
        "status": {"hard": {"requests.cpu": "3"}, "used": {"requests.cpu": "1"}},
    });
    let elsewhere = json!({
        "metadata": {"name": "q", "namespace": "other"},
        "spec": {"hard": {"pods": "0"}}, "status": {"used": {}},
    });
    let best_effort = json!({
        "metadata": {"name": "s", "namespace": "shop"},
        "spec": {"hard": {"pods": "0"}, "scopes": ["BestEffort"]},
    });
    member
        .role
        .quotas
        .replace(None, seen(&[quota, elsewhere, best_effort]));
    assert_eq!(
        room(&member, &target(), &PodShape::default()),
        Some(Replicas::new(4))
    );
}

/// A member with a node, of which everything is known.
fn known(namespaces: &[String]) -> KubeMember {
    let (_, client) = FakeServer::always(|| Reply::Hang);
    let member = member_of(client, namespaces);
    let nodes = [node("a", "64", "110")];
    fill(&member, &nodes, &[], &deployment(&json!({})));
    member
}

#[tokio::test]
async fn capacity_is_unknown_as_soon_as_nodes_pods_or_quotas_fall_silent() {
    let like = PodShape::default();
    let ago = |seconds| Clock::system().now() - SignedDuration::from_secs(seconds);
    for (seconds, is_known) in [(80, true), (91, false)] {
        let members = [known(&[]), known(&[]), known(&[])];
        let [a, b, c] = &members;
        a.role.nodes.counts.heard(ago(seconds));
        b.role.quotas.counts.heard(ago(seconds));
        c.stores.pods.counts.heard(ago(seconds));
        let capacities = members.map(|member| room(&member, &target(), &like).is_some());
        assert_eq!(capacities, [is_known; 3], "silent for {seconds} s");
    }
}

#[tokio::test]
async fn capacity_is_unknown_without_the_quotas_and_where_the_pods_of_some_namespaces_are_not_seen()
{
    let (_, client) = FakeServer::always(|| Reply::Hang);
    let member = member_of(client, &[]);
    let now = Clock::system().now();
    member
        .role
        .nodes
        .replace(None, seen(&[node("a", "64", "110")]));
    member.stores.pods.replace(None, seen(&[]));
    member.role.nodes.counts.heard(now);
    member.stores.pods.counts.heard(now);
    member.role.quotas.counts.heard(now);
    assert_eq!(room(&member, &target(), &PodShape::default()), None);

    let shop = ["shop".to_owned()];
    let member = known(&shop);
    let scope = Some("shop");
    member.stores.pods.replace(scope, seen(&[]));
    member.role.quotas.replace(scope, seen(&[]));
    assert_eq!(room(&member, &target(), &PodShape::default()), None);
}

#[tokio::test]
async fn pods_without_a_node_are_counted_with_the_oldest_and_so_are_those_that_cannot_be_created() {
    let (_, member) = member(|_, _| Reply::Hang);
    let waits = |name: &str, since: &str| {
        let mut pod = pod(name, "web", None, "1");
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since,
        }]);
        pod
    };
    let mut gone = waits("d", "2025-01-01T00:00:00Z");
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let pods = [
        pod("a", "web", Some("n"), "1"),
        waits("b", "2026-01-01T00:00:20Z"),
        waits("c", "2026-01-01T00:00:10Z"),
        gone,
    ];
    let mut workload = deployment(&json!({}));
    fill(&member, &[], &pods, &workload);
    let at = |text: &str| -> Timestamp { text.parse().unwrap() };
    let found = member.unschedulable("shop", "app=web");
    assert_eq!(
        found,
        Ok((Replicas::new(2), Some(at("2026-01-01T00:00:10Z"))))
    );

    workload["status"]["conditions"][0]["status"] = json!("True");
    let [deployments, _, replica_sets] = &member.stores.workloads;
    for store in [deployments, replica_sets] {
        fill(&member, &[], &pods, &deployment(&json!({})));
        store.replace(None, seen(std::slice::from_ref(&workload)));
        let found = member.unschedulable("shop", "app=web");
        assert_eq!(
            found,
            Ok((Replicas::new(3), Some(at("2026-01-01T00:00:00Z"))))
        );
    }
    let error = member.unschedulable("shop", "app in").unwrap_err();
    assert!(matches!(error, ClusterError::Invalid { .. }), "{error}");
}

#[tokio::test]
async fn who_wrote_the_replicas_last_is_named_unless_it_is_the_autoscaler_or_we() {
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let wrote = |manager: &str, time: &str, fields: &Value| json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields});
    let image = json!({"f:spec": {"f:template": {}}});
    for (managed, expected) in [
        (json!([]), None),
        (
            json!([wrote("kubectl", "2026-01-01T00:00:00Z", &replicas)]),
            Some("kubectl"),
        ),
        (
            json!([
                wrote("argocd", "2026-01-01T00:00:05Z", &replicas),
                wrote("kube-controller-manager", "2026-01-01T00:00:00Z", &replicas),
                wrote("kubectl", "2026-01-01T00:00:09Z", &image),
            ]),
            Some("argocd"),
        ),
        (
            json!([
                wrote("argocd", "2026-01-01T00:00:05Z", &replicas),
                wrote("kube-controller-manager", "2026-01-01T00:00:06Z", &replicas),
            ]),
            None,
        ),
        (
            json!([wrote("foretide", "2026-01-01T00:00:06Z", &replicas)]),
            None,
        ),
    ] {
        let object = json!({"metadata": {"name": "web", "managedFields": managed}});
        let (server, member) = member(move |_, _| Reply::Ok(object.clone()));
        let found = member.replicas_written_by(&target()).await.unwrap();
        assert_eq!(found.as_deref(), expected);
        let line = "GET /apis/apps/v1/namespaces/shop/deployments/web";
        assert_eq!(server.lines(), [line]);
    }
}

#[tokio::test]
async fn a_workload_is_placed_by_server_side_apply_and_removed_by_its_uid() {
    let (server, member) = member(|_, _| Reply::Ok(json!({})));
    let manifest = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web"}, "spec": {"template": {}},
    });
    member.place(&manifest).await.unwrap();
    member.remove(&target(), "u").await.unwrap();
    let sent = server.sent();
    let path = "/apis/apps/v1/namespaces/shop/deployments/web";
    assert_eq!(
        sent[0].line,
        format!("PATCH {path}?fieldManager=foretide&force=true")
    );
    assert_eq!(
        sent[0].content_type.as_deref(),
        Some("application/apply-patch+yaml")
    );
    assert_eq!(sent[0].body, manifest);
    assert_eq!(sent[1].line, format!("DELETE {path}"));
    assert_eq!(sent[1].body["preconditions"], json!({"uid": "u"}));
}

#[tokio::test]
async fn a_closed_gate_of_the_hub_stops_writes_to_members() {
    let (server, client) = FakeServer::always(|| Reply::Ok(json!({})));
    let gate = WriteGate::default();
    let limits = Limits::of_a_member();
    let of = (limits, WatchTimeouts::default(), Clock::system());
    let member = KubeMember::member(Connection::over(client), &[], gate.clone(), of);
    gate.set(false);
    assert!(member.remove(&target(), "u").await.is_err());
    assert_eq!(server.lines(), [] as [&str; 0]);
}
