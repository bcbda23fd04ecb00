//! The rig itself: that a cluster comes up whole, and goes away.
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use rig::{Cluster, ClusterOptions, eventually};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_becomes_ready_on_a_simulated_node() {
    let cluster = Cluster::start(ClusterOptions::named("ready")).await.unwrap();
    let namespace = cluster.namespace("shop").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let pod = json!({"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    cluster.put(&pods, &pod).await.unwrap();
    eventually(Duration::from_secs(30), "the pod is ready", || async {
        let pod = pods.get("one").await.unwrap();
        let ready = pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).any(|c| c.type_ == "Ready" && c.status == "True");
        if ready { Ok(()) } else { Err(format!("{:?}", pod.status)) }
    })
    .await;
}
