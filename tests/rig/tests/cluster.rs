//! The rig itself: that a cluster is whole, does what its methods say, and leaves what a person
//! needs after a failure.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{Namespace, Pod, ServiceAccount},
};
use kube::{Api, Client, api::ListParams};
use rig::{
    Cluster, ClusterOptions, Component, FakeMetrics, HpaFlags, MetricsApi, NodeSize, PodUsage,
    Reading, eventually,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);

fn deployment(replicas: u32, used: &str) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {rig::CPU_ANNOTATION: used}},
                "spec": {"containers": [{
                    "name": "web", "image": "web:1", "resources": {"requests": {"cpu": "200m"}},
                }]},
            },
        },
    })
}

fn autoscaler(metrics: Value) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 20, "metrics": metrics,
        },
    })
}

fn running(pods: &[Pod]) -> usize {
    let phase = |pod: &&Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    pods.iter().filter(phase).count()
}

async fn running_pods(client: Client, namespace: &str, expected: usize) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    eventually(SOON, "the pods run", || async {
        let list = pods.list(&ListParams::default()).await.map_err(|no| no.to_string())?.items;
        let seen = running(&list);
        if seen == expected { Ok(list) } else { Err(format!("{seen} of {expected} run")) }
    })
    .await
}

async fn desired(client: Client, namespace: &str, deadline: Duration, expected: i32) {
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(client, namespace);
    eventually(deadline, "the HPA wants so many replicas", || async {
        let status = autoscalers.get("web").await.map_err(|no| no.to_string())?.status;
        let status = status.ok_or("no status yet")?;
        if status.desired_replicas == expected { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_nodes_leave_pods_pending_and_the_api_server_comes_back_with_its_data() {
    let options = ClusterOptions::named("small").nodes(1, NodeSize::new("1", "4Gi", 110));
    let cluster = Cluster::start(options).await.unwrap();
    let namespace = cluster.namespace("shop").await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    cluster.put(&deployments, &deployment(7, "1m")).await.unwrap();
    let pods = running_pods(cluster.client(), &namespace, 5).await;
    assert_eq!(pods.len(), 7);

    cluster.stop_apiserver();
    assert!(deployments.get("web").await.is_err());
    cluster.start_apiserver().await.unwrap();
    assert_eq!(deployments.get("web").await.unwrap().spec.unwrap().replicas, Some(7));

    cluster.add_nodes(&[NodeSize::new("1", "4Gi", 110)]).await.unwrap();
    running_pods(cluster.client(), &namespace, 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_identities_have_only_their_own_rights_and_the_audit_log_tells() {
    let options = ClusterOptions::named("rbac")
        .nodes(0, NodeSize::new("1", "1Gi", 1))
        .without(Component::KubeScheduler)
        .without(Component::Kwok);
    let cluster = Cluster::start(options).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "default");
    cluster.put(&accounts, &json!({"metadata": {"name": "reader"}})).await.unwrap();
    let kubeconfig = cluster.service_account_kubeconfig("default", "reader").await.unwrap();
    let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    let reader = Client::try_from(config).unwrap();
    let eve = cluster.client_as("eve", &["outsiders"]).await.unwrap();
    let operator = cluster.client_as("root", &["system:masters"]).await.unwrap();

    for (client, allowed) in [(reader, false), (eve, false), (operator, true)] {
        let listed = Api::<Namespace>::all(client).list(&ListParams::default()).await;
        assert_eq!(listed.is_ok(), allowed);
    }
    let requests = cluster.audit().unwrap().into_iter().filter(|event| event.resource == "namespaces");
    let seen: Vec<_> = requests
        .filter(|event| ["eve", "root"].contains(&event.user.as_str()) || event.user.ends_with("reader"))
        .map(|event| (event.user, event.verb, event.code))
        .collect();
    let expected = [("system:serviceaccount:default:reader", 403), ("eve", 403), ("root", 200)]
        .map(|(user, code)| (user.to_owned(), "list".to_owned(), code));
    assert_eq!(seen, expected);

    // The end: a test that fails leaves the objects and the logs behind.
    let failing = std::thread::Builder::new().name("a_failing_test".to_owned());
    let failing = failing.spawn(move || {
        let _cluster = cluster;
        panic!("on purpose");
    });
    assert!(failing.unwrap().join().is_err());
    let left: Vec<_> = std::fs::read_dir(rig::failures())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("a_failing_test"))
        .map(|entry| entry.path())
        .collect();
    let complete = left.iter().any(|folder| {
        folder.join("namespaces..json").exists() && folder.join("kube-apiserver.log").exists()
    });
    assert!(complete, "{left:?}");
    left.iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hpa_controller_scales_by_the_real_metrics_server() {
    let options = ClusterOptions::named("metrics").with(Component::MetricsServer);
    let cluster = Cluster::start(options).await.unwrap();
    let namespace = cluster.namespace("shop").await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.client(), &namespace);
    cluster.put(&deployments, &deployment(2, "1m")).await.unwrap();
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    cluster.put(&autoscalers, &autoscaler(metrics)).await.unwrap();
    running_pods(cluster.client(), &namespace, 2).await;
    // 2 pods of 170 m are 85 % of 200 m: ceil(2 * 85 / 50) = 4.
    cluster.share_cpu(&namespace, "app=web", 0.34).await.unwrap();
    desired(cluster.client(), &namespace, SOON, 4).await;
    running_pods(cluster.client(), &namespace, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hpa_controller_reads_every_kind_of_metric_from_the_fake() {
    let flags = HpaFlags { downscale_stabilization: Duration::ZERO, ..HpaFlags::quick() };
    let cluster = Cluster::start(ClusterOptions::named("fake").hpa(flags)).await.unwrap();
    let apis = [MetricsApi::Resource, MetricsApi::Custom, MetricsApi::External];
    let fake = FakeMetrics::start(&cluster, &apis).await.unwrap();
    let namespace = cluster.namespace("shop").await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.client(), &namespace);
    cluster.put(&deployments, &deployment(2, "1m")).await.unwrap();
    let pods = running_pods(cluster.client(), &namespace, 2).await;
    let names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();

    // One step per type; in each, ceil of what its comment says.
    let average = |value: &str| json!({"type": "AverageValue", "averageValue": value});
    let container = json!({"type": "ContainerResource", "containerResource": {
        "name": "cpu", "container": "web", "target": {"type": "Utilization", "averageUtilization": 50},
    }});
    // 2 pods x 150 m / (50 % of 200 m) = 3.
    names.iter().for_each(|pod| fake.set_pod_usage(&namespace, pod, PodUsage::cpu("web", "150m")));
    cluster.put(&autoscalers, &autoscaler(json!([container]))).await.unwrap();
    desired(cluster.client(), &namespace, SOON, 3).await;

    let of_pods = json!({"type": "Pods", "pods": {
        "metric": {"name": "requests"}, "target": average("10"),
    }});
    // The third pod has none: 2 x 40 / 10 over 3 pods, the missing one as 0 = 8.
    names.iter().for_each(|pod| fake.set_pod_metric(&namespace, pod, "requests", Reading::new("40")));
    cluster.put(&autoscalers, &autoscaler(json!([of_pods]))).await.unwrap();
    desired(cluster.client(), &namespace, SOON, 8).await;

    let of_object = json!({"type": "Object", "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "front"},
        "metric": {"name": "hits"}, "target": average("10"),
    }});
    // 110 / 10 = 11.
    fake.set_object_metric(&namespace, ("services", "front"), "hits", Reading::new("110"));
    cluster.put(&autoscalers, &autoscaler(json!([of_object]))).await.unwrap();
    desired(cluster.client(), &namespace, SOON, 11).await;

    let external = json!({"type": "External", "external": {
        "metric": {"name": "queue", "selector": {"matchLabels": {"name": "orders"}}},
        "target": average("10"),
    }});
    // (70 + 65) / 10 = 14; the other queue is not meant.
    let series = |value: &str, name: &str| Reading::new(value).label("name", name);
    let all = vec![series("70", "orders"), series("65", "orders"), series("500", "mail")];
    fake.set_external(&namespace, "queue", all);
    cluster.put(&autoscalers, &autoscaler(json!([external]))).await.unwrap();
    desired(cluster.client(), &namespace, SOON, 14).await;
}
