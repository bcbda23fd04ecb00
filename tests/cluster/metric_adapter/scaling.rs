//! Each metric scales a Deployment, through the real HPA controller; who may read them, and whose registrations they are.

use foretide::{
    config::AdapterConfig,
    ports::{CertificateLifetimes, UpstreamSettings},
};
use jiff::SignedDuration;
use rig::{ClusterOptions, FakeMetrics, Reading, eventually};
use serde_json::{Value, json};

use super::{
    NAMESPACE, RunningAdapter, TIMEOUT, World, autoscaler, available, config, cpu_forecast, decide,
    external, hpa, install, mode, read, registration, security,
};
use crate::metrics_access::free_address;

const PREDICTION: &str = "crane_autoscaling_prediction";
const CRON: &str = "crane_autoscaling_cron";
const POD_CPU: &str = "crane_pod_cpu_usage";

/// What lets the HPA controller read metrics of the upstream adapter.
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

fn window(replicas: Option<i32>) -> Value {
    json!([{"source": "cron", "name": "night", "replicas": replicas}])
}

fn crons() -> Value {
    json!([{"name": "night", "start": "0 1 * * *", "end": "0 5 * * *", "targetReplicas": 7}])
}

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

/// Waits until `ScalingActive` of a `HorizontalPodAutoscaler` has this status, and a message with these texts: while
/// requests change their way, it has other messages.
async fn scaling_active(world: &World, name: &str, status: &str, texts: &[&str]) {
    let shown = format!("{name} has ScalingActive={status} with {texts:?}");
    eventually(TIMEOUT, &shown, || async {
        let found = world.hpas().get(name).await.map_err(|e| e.to_string())?;
        let conditions = found.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        let active = conditions.find(|one| one.type_ == "ScalingActive");
        let is_as_wanted = active.as_ref().is_some_and(|one| {
            let message = one.message.as_deref().unwrap_or_default();
            one.status == status && texts.iter().all(|text| message.contains(*text))
        });
        is_as_wanted.then_some(()).ok_or(format!("{active:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_autoscalers_scale_by_each_metric_of_the_adapter_and_only_readers_read_them() {
    let world = World::start(ClusterOptions::named("metric-adapter")).await;
    let upstream = FakeMetrics::unregistered(&world.cluster).await.unwrap();
    let listen = free_address();
    let kubeconfig = install(&world, listen.port()).await;
    let config = AdapterConfig {
        upstream: Some(UpstreamSettings {
            url: upstream.url().parse().unwrap(),
            ca_file: world.cluster.folder().join("ca.crt"),
            token_file: None,
        }),
        lifetimes: CertificateLifetimes {
            period: SignedDuration::from_millis(200),
            ..CertificateLifetimes::PUBLISHED
        },
        ..config(&kubeconfig, listen)
    };
    registration::an_adapter_does_not_start_over_another_one(&world, config.clone()).await;
    let _adapter = RunningAdapter::run(config);
    available(&world.client).await;
    every_metric_scales(&world, &upstream).await;
    discovery_lists_all(&world, &upstream).await;
    let forbidden = world
        .cluster
        .audit()
        .unwrap()
        .into_iter()
        .filter(|event| event.code == 403 && event.user.ends_with(":foretide-adapter"));
    assert_eq!(forbidden.count(), 0);
    let readers = security::a_request_needs_a_user_and_the_user_a_role(&world, listen).await;
    let _controller = mode::a_child_reads_what_its_controller_publishes(&world).await;
    registration::a_registration_that_another_adapter_takes_is_left_to_it(&world).await;
    mode::the_status_says_what_the_child_cannot_read(&world).await;
    readers.without_the_api_server(&world).await;
}

async fn every_metric_scales(world: &World, upstream: &FakeMetrics) {
    for name in ["forecast", "pods", "windows", "alone", "queue"] {
        world.deployment(name, 3, "10m").await;
    }

    // Less than one core is exact: 0.9 cores of 100m each are nine pods.
    autoscaler(world, "forecast", json!({"prediction": {}})).await;
    decide(world, "forecast", 3, cpu_forecast("0.9")).await;
    hpa(
        world,
        "forecast",
        external(PREDICTION, "forecast", "resource.cpu", "100m"),
    )
    .await;
    // The same forecast by pod, as crane before 0.6, comes to the same count.
    autoscaler(world, "pods", json!({"prediction": {}})).await;
    decide(world, "pods", 3, cpu_forecast("0.9")).await;
    hpa(world, "pods", of_pods(world, "pods").await).await;
    // An open window.
    autoscaler(
        world,
        "windows",
        json!({"crons": crons(), "prediction": {}}),
    )
    .await;
    decide(world, "windows", 3, window(Some(7))).await;
    hpa(world, "windows", external(CRON, "windows", "cron", "1")).await;
    // A closed window without other metrics keeps the current count.
    autoscaler(world, "alone", json!({"crons": crons()})).await;
    decide(world, "alone", 3, window(None)).await;
    hpa(world, "alone", external(CRON, "alone", "cron", "1")).await;
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
        scaling_active(world, name, "True", &[]).await;
    }
    scaling_active(world, "alone", "True", &[]).await;
    assert_eq!(world.replicas("alone").await, 3);

    // A window that closed beside metrics requires the minimum.
    decide(world, "windows", 7, window(None)).await;
    world.ready("windows", "2", |replicas| replicas == 2).await;
    // Alone, an open one requires its count, and what runs is kept when it closes.
    decide(world, "alone", 3, window(Some(6))).await;
    world.ready("alone", "6", |replicas| replicas == 6).await;
    decide(world, "alone", 6, window(None)).await;

    // Without a forecast the metric is unavailable, not zero: nothing is scaled down.
    let expired = json!([{"source": "forecast", "name": "resource.cpu", "reason": "Expired"}]);
    decide(world, "forecast", 9, expired.clone()).await;
    decide(world, "pods", 9, expired).await;
    for name in ["forecast", "pods"] {
        let text = "has no forecast of resource.cpu: Expired";
        scaling_active(world, name, "False", &[text]).await;
        assert_eq!(world.replicas(name).await, 9);
    }
    assert_eq!(world.replicas("alone").await, 6);
}

/// The API server shows our metrics and those of the upstream adapter.
async fn discovery_lists_all(world: &World, upstream: &FakeMetrics) {
    upstream.set_external(NAMESPACE, "orders", vec![Reading::new("1")]);
    let path = "/apis/external.metrics.k8s.io/v1beta1";
    // An upstream adapter that takes longer than 2 s for its list is left out of ours.
    eventually(TIMEOUT, "all metrics are listed", || async {
        let list = read(&world.client, path).await.map_err(|e| e.to_string())?;
        let resources = list["resources"].as_array().into_iter().flatten();
        let names: Vec<_> = resources.map(|one| &one["name"]).collect();
        let wanted = [PREDICTION, CRON, "orders", "queue_length"];
        let has_all = wanted.iter().all(|name| names.contains(&&json!(name)));
        has_all.then_some(()).ok_or(format!("{names:?}"))
    })
    .await;
    let path = format!("{path}/namespaces/{NAMESPACE}/missing");
    let listed = read(&world.client, &path).await.unwrap();
    assert_eq!(
        listed["items"],
        json!([]),
        "as the upstream adapter answers"
    );
}
