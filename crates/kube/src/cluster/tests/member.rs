//! A member: its capacity, its unschedulable pods, the last writer of replicas, and the workloads that the hub places.

use foretide_domain::{Replicas, ScaleTarget};
use foretide_federate::PodShape;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{KubeMember, Options, entry::Entry, watch::WatchTimeouts};
use crate::api_server::{Connection, Limits, WriteGate};
use foretide_api::ports::{ClusterError, Member};
use foretide_base::clock::{Clock, Contact};
use simkube::client::{FakeServer, Reply, Sent};

fn member(
    reply: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static,
) -> (FakeServer, KubeMember) {
    let (server, client) = FakeServer::new(reply);
    (server, member_of(client, &[]))
}

/// A member with these watched namespaces.
fn member_of(client: kube::Client, namespaces: &[String]) -> KubeMember {
    KubeMember::member(Connection::over(client), options(namespaces))
}

fn options(namespaces: &[String]) -> Options<'_> {
    Options {
        namespaces,
        limits: Limits::default(),
        timeouts: WatchTimeouts::default(),
        gate: WriteGate::default(),
    }
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

fn entries<V: super::super::Stored>(objects: &[Value]) -> Vec<Entry<V>> {
    objects.iter().cloned().filter_map(Entry::decode).collect()
}

fn fill(member: &KubeMember, nodes: &[Value], pods: &[Value], workload: &Value) {
    let [deployments, ..] = &member.stores.workloads;
    member.role.nodes.replace(None, entries(nodes));
    member.role.quotas.replace(None, entries(&[]));
    member.stores.pods.replace(None, entries(pods));
    deployments.replace(None, entries(std::slice::from_ref(workload)));
    contacted(member);
}

/// All watches have delivered something just now.
fn contacted(member: &KubeMember) {
    let now = || Clock::system().contact();
    member.role.nodes.contacted(None, &now());
    member.role.quotas.contacted(None, &now());
    member.stores.pods.contacted(None, &now());
}

fn capacity(nodes: &[Value], pods: &[Value], workload: &Value) -> Option<u32> {
    let (_, member) = member(|_, _| Reply::Hang);
    fill(&member, nodes, pods, workload);
    replicas(&member)
}

/// The capacity for the target.
fn replicas(member: &KubeMember) -> Option<u32> {
    let estimate = member.capacity(&target(), "app=web", &PodShape::default());
    estimate.map(|estimate| estimate.replicas.get())
}

#[tokio::test]
async fn the_capacity_counts_the_own_pods_in_every_phase_once() {
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
        // The quota does not count the second pod yet.
        (vec![ends, ours("y", Some("b"))], 5),
    ] {
        let (_, member) = member(|_, _| Reply::Hang);
        fill(&member, &nodes, &pods, &deployment(&json!({})));
        assert_eq!(replicas(&member), Some(4 + 2), "{pods:?}");
        let quotas = entries(std::slice::from_ref(&quota));
        member.role.quotas.replace(None, quotas);
        assert_eq!(replicas(&member), Some(by_quota), "{pods:?}");
    }
}

#[tokio::test]
async fn the_capacity_counts_the_own_pods_of_a_kind_that_is_not_watched() {
    let (_, member) = member(|_, _| Reply::Hang);
    let ours = ["x", "y"].map(|name| pod(name, "web", Some("a"), "500m"));
    let nodes = [node("a", "2", "110")];
    fill(&member, &nodes, &ours, &deployment(&json!({})));
    let rollout = ScaleTarget {
        api_version: "argoproj.io/v1alpha1".into(),
        kind: "Rollout".into(),
        ..target()
    };
    let like = PodShape {
        requests: [("cpu", 500)].into_iter().collect(),
        ..PodShape::default()
    };
    let estimate = member.capacity(&rollout, "app=web", &like).unwrap();
    assert_eq!(estimate.replicas, Replicas::new(4));
}

#[tokio::test]
async fn the_capacity_counts_only_nodes_that_the_pod_may_run_on() {
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
    let apart = |selector: Value| {
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector},
        ]}})
    };
    let anti = apart(json!({"matchLabels": {"app": "web"}}));
    let of = |pods: &[Value], spec: &Value| capacity(&nodes, pods, &deployment(spec));
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
        // An empty selector selects every pod, an absent one none.
        (json!({"affinity": apart(json!({}))}), 1),
        (json!({"affinity": apart(json!(null))}), 2),
        (
            json!({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]}),
            1,
        ),
        (json!({"overhead": {"cpu": "100m"}}), 1),
        (json!({"resources": {"requests": {"cpu": "250m"}}}), 4),
    ] {
        assert_eq!(of(&[], &spec), Some(expected), "{spec}");
    }
    let ours = [pod("x", "web", Some("a"), "100m")];
    assert_eq!(of(&ours, &json!({"affinity": anti})), Some(1));
}

#[tokio::test]
async fn quotas_limit_the_capacity_and_without_nodes_it_is_unknown() {
    let (_, empty) = member(|_, _| Reply::Hang);
    assert_eq!(replicas(&empty), None);
    let member = known(&[]);
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
    let quotas = entries(&[quota, elsewhere, best_effort]);
    member.role.quotas.replace(None, quotas);
    assert_eq!(replicas(&member), Some(4));
}

/// A member with one node and complete stores.
fn known(namespaces: &[String]) -> KubeMember {
    let (_, client) = FakeServer::always(|| Reply::Hang);
    let member = member_of(client, namespaces);
    let nodes = [node("a", "64", "110")];
    fill(&member, &nodes, &[], &deployment(&json!({})));
    member
}

#[tokio::test]
async fn the_capacity_is_unknown_once_the_watch_of_nodes_pods_or_quotas_is_stale() {
    let ago = |seconds| Contact::ago(std::time::Duration::from_secs(seconds));
    for (seconds, is_known) in [(50, true), (61, false)] {
        let members = [known(&[]), known(&[]), known(&[])];
        let [a, b, c] = &members;
        a.role.nodes.contacted(None, &ago(seconds));
        b.role.quotas.contacted(None, &ago(seconds));
        c.stores.pods.contacted(None, &ago(seconds));
        let capacities = members.map(|member| replicas(&member).is_some());
        assert_eq!(capacities, [is_known; 3], "silent for {seconds} s");
    }
}

#[tokio::test]
async fn the_capacity_is_unknown_without_quotas_or_if_only_some_namespaces_are_watched() {
    let (_, client) = FakeServer::always(|| Reply::Hang);
    let member = member_of(client, &[]);
    let nodes = entries(&[node("a", "64", "110")]);
    member.role.nodes.replace(None, nodes);
    member.stores.pods.replace(None, entries(&[]));
    contacted(&member);
    assert_eq!(replicas(&member), None);

    let shop = ["shop".to_owned()];
    let member = known(&shop);
    let scope = Some("shop");
    member.stores.pods.replace(scope, entries(&[]));
    member.role.quotas.replace(scope, entries(&[]));
    assert_eq!(replicas(&member), None);
}

/// A pod that waits for a node.
fn waits(name: &str, since: &str) -> Value {
    let mut pod = pod(name, "web", None, "1");
    pod["status"]["conditions"] = json!([{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since,
    }]);
    pod
}

#[tokio::test]
async fn unschedulable_pods_and_pods_that_cannot_be_created_are_counted_since_the_oldest() {
    let (_, member) = member(|_, _| Reply::Hang);
    let mut gone = waits("d", "2025-01-01T00:00:00Z");
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut evicted = pod("e", "web", Some("n"), "1");
    evicted["status"]["phase"] = json!("Failed");
    let pods = [
        pod("a", "web", Some("n"), "1"),
        waits("b", "2026-01-01T00:00:20Z"),
        waits("c", "2026-01-01T00:00:10Z"),
        gone,
        evicted,
    ];
    let mut workload = deployment(&json!({}));
    fill(&member, &[], &pods, &workload);
    let since = |text: &str| Some(text.parse::<Timestamp>().unwrap());
    let found = member.unschedulable(&target(), "app=web", Replicas::new(3));
    let expected = (Replicas::new(2), since("2026-01-01T00:00:10Z"));
    assert_eq!(found, Ok(expected));

    workload["status"]["conditions"][0]["status"] = json!("True");
    let [deployments, _, replica_sets] = &member.stores.workloads;
    for store in [deployments, replica_sets] {
        let target = ScaleTarget {
            kind: store.resource.kind.to_owned(),
            ..target()
        };
        fill(&member, &[], &pods, &deployment(&json!({})));
        store.replace(None, entries(std::slice::from_ref(&workload)));
        let found = member.unschedulable(&target, "app=web", Replicas::new(4));
        let expected = (Replicas::new(3), since("2026-01-01T00:00:00Z"));
        assert_eq!(found, Ok(expected));
    }
    let odd = member.unschedulable(&target(), "app in", Replicas::new(4));
    assert!(matches!(odd, Err(ClusterError::Invalid { .. })), "{odd:?}");
}

#[tokio::test]
async fn unschedulable_pods_that_a_workload_does_not_want_any_more_are_not_counted() {
    let (_, member) = member(|_, _| Reply::Hang);
    let ended = |name: &str, phase: &str| {
        let mut pod = pod(name, "web", Some("n"), "1");
        pod["status"]["phase"] = json!(phase);
        pod
    };
    let pods = [
        pod("a", "web", Some("n"), "1"),
        waits("b", "2026-01-01T00:00:20Z"),
        waits("c", "2026-01-01T00:00:10Z"),
        ended("d", "Failed"),
        ended("e", "Succeeded"),
    ];
    fill(&member, &[], &pods, &deployment(&json!({})));
    let oldest: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
    for (replicas, count, since) in [
        (3, 2, Some(oldest)),
        (2, 1, Some(oldest)),
        (1, 0, None),
        (0, 0, None),
    ] {
        let found = member.unschedulable(&target(), "app=web", Replicas::new(replicas));
        assert_eq!(found, Ok((Replicas::new(count), since)), "of {replicas}");
    }
}

#[tokio::test]
async fn the_last_writer_of_replicas_is_named_unless_it_is_an_autoscaler() {
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
