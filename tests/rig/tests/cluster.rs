//! Tests of the rig's cluster: it is complete, its methods do what they document, and a failure leaves the dump that a
//! user needs.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::HorizontalPodAutoscaler,
    core::v1::{Namespace, Pod, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use rig::{
    Change, Cluster, ClusterOptions, Component, FakeMetrics, HpaFlags, MetricsApi, NodeSize,
    PodUsage, Reading, eventually, follow,
};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_mins(3);

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

fn autoscaler(metrics: &Value) -> Value {
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 20, "metrics": metrics,
        },
    })
}

fn running(pods: &[Pod]) -> usize {
    let phase = |pod: &&Pod| {
        pod.status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            == Some("Running")
    };
    pods.iter().filter(phase).count()
}

async fn running_pods(client: Client, namespace: &str, expected: usize) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    eventually(SOON, "the pods run", || async {
        let list = pods
            .list(&ListParams::default())
            .await
            .map_err(|no| no.to_string())?
            .items;
        let seen = running(&list);
        if seen == expected {
            Ok(list)
        } else {
            Err(format!("{seen} of {expected} run"))
        }
    })
    .await
}

async fn exist(client: Client, namespace: &str, expected: usize) {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    eventually(SOON, "so many pods exist", || async {
        let list = pods.list(&ListParams::default()).await;
        let seen = list.map_err(|no| no.to_string())?.items.len();
        if seen == expected {
            Ok(())
        } else {
            Err(format!("{seen} of {expected} exist"))
        }
    })
    .await;
}

async fn desired(client: Client, namespace: &str, deadline: Duration, expected: i32) {
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(client, namespace);
    eventually(deadline, "the HPA wants so many replicas", || async {
        let status = autoscalers
            .get("web")
            .await
            .map_err(|no| no.to_string())?
            .status;
        let status = status.ok_or("no status yet")?;
        if status.desired_replicas == expected {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_nodes_leave_pods_pending_and_the_api_server_restarts_with_its_data() {
    let options = ClusterOptions::named("small").nodes(1, NodeSize::new("1", "4Gi", 110));
    let cluster = Cluster::start(options).await.unwrap();
    let namespace = cluster.namespace("shop").await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    cluster
        .put(&deployments, &deployment(7, "1m"))
        .await
        .unwrap();
    running_pods(cluster.client(), &namespace, 5).await;
    // Some run before the last ones are created.
    exist(cluster.client(), &namespace, 7).await;
    running_pods(cluster.client(), &namespace, 5).await;
    let followed = Arc::<Mutex<Vec<String>>>::default();
    let found = Arc::clone(&followed);
    let following = tokio::spawn(follow(
        deployments.clone(),
        WatchParams::default(),
        move |change| {
            let mut found = found.lock().unwrap();
            found.push(match change {
                Change::Begun => "begun".to_owned(),
                Change::Present(one) => format!("{}", one.spec.unwrap().replicas.unwrap()),
                Change::Listed => "listed".to_owned(),
                Change::Deleted(_) => "deleted".to_owned(),
            });
            if found.ends_with(&["deleted".to_owned()]) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    ));
    let begun_and_listed = async |times: usize| {
        eventually(SOON, "the deployments are followed", || async {
            let found = followed.lock().unwrap().join(" ");
            let listed = found.matches("begun 7 listed").count();
            (listed >= times).then_some(()).ok_or(found)
        })
        .await;
    };
    begun_and_listed(1).await;

    cluster.stop_apiserver();
    assert!(deployments.get("web").await.is_err());
    cluster.start_apiserver().await.unwrap();
    assert_eq!(
        deployments.get("web").await.unwrap().spec.unwrap().replicas,
        Some(7)
    );

    cluster
        .add_nodes(&[NodeSize::new("1", "4Gi", 110)])
        .await
        .unwrap();
    running_pods(cluster.client(), &namespace, 7).await;

    // A watch that is cut off begins again, and shows what is there again.
    begun_and_listed(2).await;
    let deletion = DeleteParams::default();
    deployments.delete("web", &deletion).await.unwrap();
    let followed = tokio::time::timeout(SOON, following).await;
    followed.unwrap().unwrap();
}

/// Without nodes and scheduler: quicker to start.
fn api_only(name: &str) -> ClusterOptions {
    ClusterOptions::named(name)
        .nodes(0, NodeSize::new("1", "1Gi", 1))
        .without(Component::KubeScheduler)
        .without(Component::Kwok)
}

#[tokio::test(flavor = "multi_thread")]
async fn other_identities_have_only_their_own_permissions_and_appear_in_the_audit_log() {
    let cluster = Cluster::start(api_only("rbac")).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "default");
    cluster
        .put(&accounts, &json!({"metadata": {"name": "reader"}}))
        .await
        .unwrap();
    let kubeconfig = cluster
        .service_account_kubeconfig("default", "reader")
        .await
        .unwrap();
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options)
        .await
        .unwrap();
    let reader = Client::try_from(config).unwrap();
    let eve = cluster.client_as("eve", &["outsiders"]).await.unwrap();
    let operator = cluster
        .client_as("root", &["system:masters"])
        .await
        .unwrap();

    for (client, allowed) in [(reader, false), (eve, false), (operator, true)] {
        let listed = Api::<Namespace>::all(client)
            .list(&ListParams::default())
            .await;
        assert_eq!(listed.is_ok(), allowed);
    }
    let users = ["system:serviceaccount:default:reader", "eve", "root"];
    let requests = cluster.audit().unwrap().into_iter();
    let seen: Vec<_> = requests
        .filter(|event| event.resource == "namespaces" && users.contains(&event.user.as_str()))
        .map(|event| (event.user, event.verb, event.code))
        .collect();
    let expected = [(users[0], 403), (users[1], 403), (users[2], 200)];
    assert_eq!(
        seen,
        expected.map(|(user, code)| (user.into(), "list".into(), code))
    );
}

/// A custom resource with a scale subresource, and one of its kind.
const WORKLOAD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workloads.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Workload, plural: workloads}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources:
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
---
apiVersion: example.com/v1
kind: Workload
metadata: {name: one}
spec: {replicas: 3}
---
apiVersion: v1
kind: Pod
metadata: {name: ill, annotations: {rig/ready: 'false'}}
spec: {containers: [{name: c, image: i}]}
";

#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_applied_and_pods_start_slowly_or_stay_unready() {
    let options = ClusterOptions::named("manifests").pod_startup(Duration::from_secs(3));
    let cluster = Cluster::start(options).await.unwrap();
    cluster.apply(WORKLOAD).await.unwrap();
    let kind = GroupVersionKind::gvk("example.com", "v1", "Workload");
    let resource = ApiResource::from_gvk(&kind);
    let workloads: Api<DynamicObject> =
        Api::namespaced_with(cluster.client(), "default", &resource);
    let scale = workloads.get_scale("one").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(3));

    let pod = running_pods(cluster.client(), "default", 1).await.remove(0);
    let status = pod.status.unwrap();
    let ready = status
        .conditions
        .unwrap()
        .into_iter()
        .find(|one| one.type_ == "Ready");
    assert_eq!(ready.unwrap().status, "False");
    let created = pod.metadata.creation_timestamp.unwrap().0;
    let started = status.start_time.unwrap().0.duration_since(created);
    // Both are cut to whole seconds.
    assert!(started.as_secs() >= 2, "{started:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_test_leaves_objects_and_logs() {
    let cluster = Cluster::start(api_only("failing")).await.unwrap();
    let run = cluster.folder().to_path_buf();
    let left = format!(
        "a_failing_test-{}",
        run.file_name().unwrap().to_string_lossy()
    );
    let left = rig::failures().join(left);
    let failing = std::thread::Builder::new()
        .name("a_failing_test".to_owned())
        .spawn(move || {
            let _dropped_by_the_panic = cluster;
            panic!("on purpose");
        });
    assert!(failing.unwrap().join().is_err());
    assert!(!run.exists());
    assert!(left.join("namespaces..json").exists());
    assert!(left.join("kube-apiserver.log").exists());
    std::fs::remove_dir_all(left).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hpa_controller_scales_by_the_real_metrics_server() {
    let options = ClusterOptions::named("metrics").with(Component::MetricsServer);
    let cluster = Cluster::start(options).await.unwrap();
    let namespace = cluster.namespace("shop").await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.client(), &namespace);
    cluster
        .put(&deployments, &deployment(2, "1m"))
        .await
        .unwrap();
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    cluster
        .put(&autoscalers, &autoscaler(&metrics))
        .await
        .unwrap();
    running_pods(cluster.client(), &namespace, 2).await;
    // 2 pods of 170 m are 85 % of 200 m: ceil(2 * 85 / 50) = 4.
    cluster
        .share_cpu(&namespace, "app=web", 0.34)
        .await
        .unwrap();
    desired(cluster.client(), &namespace, 2 * SOON, 4).await;
    running_pods(cluster.client(), &namespace, 4).await;
}

/// A cluster with an HPA on two pods, read from the fake.
struct Faked {
    fake: FakeMetrics,
    pods: Vec<String>,
    cluster: Cluster,
}

impl Faked {
    /// Without stabilization, so that each step takes effect at once.
    async fn start() -> rig::Result<Self> {
        let flags = HpaFlags {
            downscale_stabilization: Duration::ZERO,
            ..HpaFlags::quick()
        };
        let cluster = Cluster::start(ClusterOptions::named("fake").hpa(flags)).await?;
        let apis = [
            MetricsApi::Resource,
            MetricsApi::Custom,
            MetricsApi::External,
        ];
        let fake = FakeMetrics::start(&cluster, &apis).await?;
        cluster.namespace("shop").await?;
        let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "shop");
        cluster.put(&deployments, &deployment(2, "1m")).await?;
        let pods = running_pods(cluster.client(), "shop", 2).await;
        let pods = pods
            .into_iter()
            .filter_map(|pod| pod.metadata.name)
            .collect();
        Ok(Self {
            fake,
            pods,
            cluster,
        })
    }

    async fn scales_by(&self, metric: Value, expected: i32) {
        let client = self.cluster.client();
        let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(client, "shop");
        let put = self
            .cluster
            .put(&autoscalers, &autoscaler(&json!([metric])))
            .await;
        assert_eq!(put.map(drop).map_err(|no| no.to_string()), Ok(()));
        desired(self.cluster.client(), "shop", SOON, expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hpa_controller_reads_every_kind_of_metric_from_the_fake() {
    let faked = Faked::start().await.unwrap();
    let average = json!({"type": "AverageValue", "averageValue": "10"});

    // 2 pods x 150 m / (50 % of 200 m) = 3.
    for pod in &faked.pods {
        faked
            .fake
            .set_pod_usage("shop", pod, PodUsage::cpu("web", "150m"));
    }
    let half = json!({"type": "Utilization", "averageUtilization": 50});
    let of_container = json!({"name": "cpu", "container": "web", "target": half});
    let metric = json!({"type": "ContainerResource", "containerResource": of_container});
    faked.scales_by(metric, 3).await;

    // 2 x 40 / 10 = 8: the third pod has none, which counts as 0 on the way up.
    for pod in &faked.pods {
        faked
            .fake
            .set_pod_metric("shop", pod, "requests", Reading::new("40"));
    }
    let of_pods = json!({"metric": {"name": "requests"}, "target": average});
    faked
        .scales_by(json!({"type": "Pods", "pods": of_pods}), 8)
        .await;

    // 110 / 10 = 11.
    faked
        .fake
        .set_object_metric("shop", ("services", "front"), "hits", Reading::new("110"));
    let front = json!({"apiVersion": "v1", "kind": "Service", "name": "front"});
    let of_object = json!({
        "describedObject": front, "metric": {"name": "hits"}, "target": average,
    });
    faked
        .scales_by(json!({"type": "Object", "object": of_object}), 11)
        .await;

    // (70 + 65) / 10 = 14: the selector does not match the other queue.
    let series = [("70", "orders"), ("65", "orders"), ("500", "mail")];
    let series = series.map(|(value, name)| Reading::new(value).label("name", name));
    faked.fake.set_external("shop", "queue", series.to_vec());
    let orders = json!({"name": "queue", "selector": {"matchLabels": {"name": "orders"}}});
    let external = json!({"metric": orders, "target": average});
    faked
        .scales_by(json!({"type": "External", "external": external}), 14)
        .await;
}
