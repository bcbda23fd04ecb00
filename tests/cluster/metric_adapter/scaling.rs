//! Each metric scales a Deployment, through the real HPA controller; and the rights to read metrics. The ownership of
//! registrations is proven in `adapters::kube::tests::api_services`.

use foretide_api::ports::UpstreamSettings;
use foretide_servers::config::AdapterConfig;
use jiff::SignedDuration;
use rig::{ClusterOptions, FakeMetrics, Reading, eventually};
use serde_json::{Value, json};

use super::{
    NAMESPACE, RunningAdapter, TIMEOUT, World, autoscaler, available, config, cpu_forecast, decide,
    external, hpa, install, mode, security,
};
use crate::{manual_changes::condition, metrics_access::free_address};

const PREDICTION: &str = "crane_autoscaling_prediction";
const CRON: &str = "crane_autoscaling_cron";
const POD_CPU: &str = "crane_pod_cpu_usage";

/// Role by which the HPA controller may read metrics of the upstream adapter.
const UPSTREAM_READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: upstream-metrics}
rules:
- {apiGroups: [external.metrics.k8s.io], resources: [queue_length], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: upstream-metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: upstream-metrics}
subjects: [{kind: ServiceAccount, name: horizontal-pod-autoscaler, namespace: kube-system}]
";

/// The Pods metric of the autoscaler of a target.
async fn of_pods(world: &World, target: &str) -> Value {
    let uid = world.ehpas().get(target).await.unwrap().metadata.uid;
    json!({
        "type": "Pods",
        "pods": {
            "metric": {"name": POD_CPU, "selector": {"matchLabels": {
                "autoscaling.crane.io/effective-hpa-uid": uid,
            }}},
            "target": {"type": "AverageValue", "averageValue": "100m"},
        },
    })
}

/// Waits until a `HorizontalPodAutoscaler` cannot read its metric, for this reason.
async fn is_unavailable(world: &World, name: &str, reason: &str) {
    eventually(TIMEOUT, &format!("{name}: {reason}"), || async {
        let found = world.hpas().get(name).await.map_err(|e| e.to_string())?;
        let status = serde_json::to_value(found.status).unwrap();
        let (active, message) = condition(&status, "ScalingActive").ok_or("no condition")?;
        let is_so = active.starts_with("False/") && message.contains(reason);
        is_so.then_some(()).ok_or(format!("{active}: {message}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_autoscalers_scale_by_each_metric_of_the_adapter_and_only_readers_read_them() {
    let world = World::start(ClusterOptions::named("metric-adapter")).await;
    let upstream = FakeMetrics::unregistered(&world.cluster).await.unwrap();
    let listen = free_address();
    let kubeconfig = install(&world, listen.port()).await;
    let mut config = AdapterConfig {
        upstream: Some(UpstreamSettings {
            url: upstream.url().parse().unwrap(),
            ca_file: world.cluster.folder().join("ca.crt"),
            token_file: None,
        }),
        ..config(&kubeconfig, listen)
    };
    config.service.lifetimes.period = SignedDuration::from_millis(200);
    let adapter = RunningAdapter::run(config);
    available(&world.client).await;
    every_metric_scales(&world, &upstream).await;
    let forbidden = world
        .cluster
        .audit()
        .unwrap()
        .into_iter()
        .filter(|event| event.code == 403 && event.user.ends_with(":foretide-adapter"));
    assert_eq!(forbidden.count(), 0);
    security::a_request_needs_a_user_and_the_user_a_role(&world, listen).await;
    let _controller = mode::a_child_reads_what_its_controller_publishes(&world).await;
    drop(adapter);
    mode::the_status_says_what_the_child_cannot_read(&world).await;
}

async fn every_metric_scales(world: &World, upstream: &FakeMetrics) {
    for name in ["forecast", "pods", "windows", "queue"] {
        world.deployment(name, 3, "10m").await;
    }
    // Less than one core is exact: 0.9 cores of 100m each are nine pods, also by pod, as crane before 0.6.
    for name in ["forecast", "pods"] {
        autoscaler(world, name, json!({"prediction": {}})).await;
        decide(world, name, 3, cpu_forecast("0.9")).await;
    }
    let metric = external(PREDICTION, "forecast", "resource.cpu", "100m");
    hpa(world, "forecast", metric).await;
    hpa(world, "pods", of_pods(world, "pods").await).await;
    let window =
        |replicas: Option<i32>| json!([{"source": "cron", "name": "night", "replicas": replicas}]);
    let crons =
        json!([{"name": "night", "start": "0 1 * * *", "end": "0 5 * * *", "targetReplicas": 7}]);
    let both = json!({"crons": crons, "prediction": {}});
    autoscaler(world, "windows", both).await;
    decide(world, "windows", 3, window(Some(7))).await;
    hpa(world, "windows", external(CRON, "windows", "cron", "1")).await;
    // A metric of the upstream adapter.
    world.apply(UPSTREAM_READER).await;
    upstream.set_external(NAMESPACE, "queue_length", vec![Reading::new("50")]);
    let queue = json!({
        "type": "External",
        "external": {
            "metric": {"name": "queue_length"},
            "target": {"type": "AverageValue", "averageValue": "10"},
        },
    });
    hpa(world, "queue", queue).await;
    for (name, count) in [("forecast", 9), ("pods", 9), ("windows", 7), ("queue", 5)] {
        world
            .ready(name, &count.to_string(), |replicas| replicas == count)
            .await;
    }

    // A window that closed beside metrics requires the minimum.
    decide(world, "windows", 7, window(None)).await;
    world.ready("windows", "2", |replicas| replicas == 2).await;
    // Without a forecast the metric is unavailable, not zero: nothing is scaled down.
    let expired = json!([{"source": "forecast", "name": "resource.cpu", "reason": "Expired"}]);
    for name in ["forecast", "pods"] {
        decide(world, name, 9, expired.clone()).await;
        is_unavailable(world, name, "has no forecast of resource.cpu: Expired").await;
        assert_eq!(world.replicas(name).await, 9);
    }
}
