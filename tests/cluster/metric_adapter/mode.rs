//! Mode Metric beside Delegated: the manifests of the examples, scaled by the real HPA controller through the real
//! aggregator, settle at the same count; within the HPA's tolerance they differ.

use std::f64::consts::TAU;

use foretide::{clock::Clock, config::Config, ports::HistoryServer};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{DeleteParams, Patch, PatchParams};
use rig::{ClusterOptions, Component, History, NodeSize, Prometheus, Span, eventually};
use serde_json::{Value, json};

use super::{NAMESPACE, RunningAdapter, TIMEOUT, World, available, config, external, install};
use crate::{metrics_access::free_address, world::pass_to};

const DAY: f64 = 86_400.0;
/// The examples, and the replicas that their workloads start with: the HPA reaches the forecast from there by its own
/// steps without coming within its tolerance on the way.
const EXAMPLES: [(&str, &str, u32); 3] = [
    (
        "observed",
        include_str!("../../../examples/php-apache-dsp.yaml"),
        1,
    ),
    (
        "crons",
        include_str!("../../../examples/php-apache-local.yaml"),
        5,
    ),
    (
        "all",
        include_str!("../../../examples/php-apache-multi-dimensions.yaml"),
        3,
    ),
];
const MODES: [&str; 2] = ["Delegated", "Metric"];

fn named(name: &str, mode: &str) -> String {
    format!("{name}-{}", mode.to_lowercase())
}

/// An example under another name and mode.
fn example(yaml: &str, name: &str, mode: &str) -> Value {
    let ehpa: EffectiveHorizontalPodAutoscaler = serde_saphyr::from_str(yaml).unwrap();
    let mut object = serde_json::to_value(ehpa).unwrap();
    object["metadata"]["name"] = name.into();
    object["spec"]["scaleTargetRef"]["name"] = name.into();
    object["spec"]["mode"] = mode.into();
    object
}

/// Crons and a metric that asks for little: all year 100 replicas.
fn a_hundred(name: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 200,
            "mode": mode,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
            "crons": [{"name": "year", "start": "0 0 * * *", "end": "0 0 1 1 *", "targetReplicas": 100}],
        },
    })
}

/// The usage of the last four days and of the next three hours: about two thirds of a core for one example, and one core for
/// the other. Of both, the count of a forecast and the rule of the HPA ask for the same.
async fn history(now: Timestamp) -> Prometheus {
    #[expect(clippy::cast_precision_loss, reason = "unix seconds of this century")]
    let now = now.as_second() as f64;
    let span = || Span {
        start: now - 4.0 * DAY,
        end: now + 3.0 * 3600.0,
        step: 60.0,
    };
    let wave = |level: f64| move |at: f64| level + 0.02 * (at / DAY * TAU).cos();
    let mut all = History::new();
    for (name, level) in [("observed", 0.66), ("all", 0.975)] {
        for mode in MODES {
            let pod = format!("{}-6d5f8c9b7d-x2v9k", named(name, mode));
            all = all.cpu_usage([NAMESPACE, &pod, "app"], span(), wave(level));
        }
    }
    Prometheus::start(&all).await.unwrap()
}

/// Waits until the workloads of both modes have the same count, which `wanted` accepts, with all pods ready.
async fn settle(world: &World, name: &str, what: &str, wanted: impl Fn(i32) -> bool + Copy) {
    let [delegated, metric] = MODES.map(|mode| named(name, mode));
    eventually(
        4 * TIMEOUT,
        &format!("{name}: {what} in both modes"),
        || async {
            let counts = [
                world.replicas(&delegated).await,
                world.replicas(&metric).await,
            ];
            if counts[0] == counts[1] && wanted(counts[0]) {
                Ok(())
            } else {
                Err(format!("{counts:?}"))
            }
        },
    )
    .await;
}

/// The identifiers of the External metrics that a child has and has read.
async fn reads(world: &World, name: &str, want: &[&str]) {
    let child = format!("ehpa-{name}");
    eventually(TIMEOUT, &format!("{child} reads {want:?}"), || async {
        let found: HorizontalPodAutoscaler =
            world.hpas().get(&child).await.map_err(|e| e.to_string())?;
        let metrics = found.spec.and_then(|spec| spec.metrics).unwrap_or_default();
        let external = metrics.iter().filter_map(|metric| metric.external.as_ref());
        let labels = external.filter_map(|metric| {
            let labels = metric.metric.selector.as_ref()?.match_labels.as_ref()?;
            labels.get("resourceIdentifier").cloned()
        });
        let labels: Vec<_> = labels.collect();
        let status = found.status.unwrap_or_default();
        let read = status.current_metrics.unwrap_or_default().len();
        let conditions = status.conditions.unwrap_or_default();
        let is_active = conditions
            .iter()
            .any(|one| one.type_ == "ScalingActive" && one.status == "True");
        if labels == want && read == metrics.len() && is_active {
            Ok(())
        } else {
            Err(format!("{labels:?}, {read} read, {conditions:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_modes_settle_at_the_same_count_except_within_the_tolerance() {
    // 570 pods while the crons of all examples are open.
    let node = NodeSize::new("64", "64Gi", 250);
    let options = ClusterOptions::named("metric-mode")
        .with(Component::MetricsServer)
        .nodes(3, node);
    let world = World::start(options).await;
    let now = Clock::system().now();
    let prometheus = history(now).await;
    let listen = free_address();
    let kubeconfig = install(&world, listen.port()).await;
    let adapter = RunningAdapter::run(config(&kubeconfig, listen));
    available(&world.client).await;
    for mode in MODES {
        for (name, _, replicas) in EXAMPLES {
            world.deployment(&named(name, mode), replicas, "5m").await;
        }
        world.deployment(&named("tolerance", mode), 95, "5m").await;
        let name = named("tolerance", mode);
        world.ready(&name, "95", |count| count == 95).await;
    }

    world.deployment("unread", 1, "5m").await;

    let clock = Clock::starting_at(now, 1.0);
    let controller = world.run(
        Config {
            prometheus: Some(HistoryServer::at(&prometheus.url()).unwrap()),
            ..world.config()
        },
        clock.clone(),
    );
    for mode in MODES {
        for (name, yaml, _) in EXAMPLES {
            let name = named(name, mode);
            world.apply(&example(yaml, &name, mode).to_string()).await;
        }
        let name = named("tolerance", mode);
        world.apply(&a_hundred(&name, mode).to_string()).await;
    }

    settle(&world, "observed", "the forecast", |count| {
        (6..=8).contains(&count)
    })
    .await;
    reads(&world, "observed-metric", &["resource.cpu"]).await;
    settle(&world, "crons", "the open window", |count| {
        [10, 80].contains(&count)
    })
    .await;
    reads(&world, "crons-metric", &["cron"]).await;
    // The cron of this example is open from Saturday to Sunday evening.
    settle(&world, "all", "the forecast, or the cron", |count| {
        [10, 100].contains(&count)
    })
    .await;
    reads(&world, "all-metric", &["resource.cpu", "cron"]).await;
    // 95 are within the tolerance of 100: the HPA does nothing, and the status says so.
    reads(&world, "tolerance-metric", &["cron"]).await;
    world
        .ready("tolerance-delegated", "100", |count| count == 100)
        .await;
    let decision = world
        .status("tolerance-metric", "the tolerance", |status| {
            let decision = status.get("decision")?;
            (decision.get("limit")? == "WithinTolerance").then(|| decision.clone())
        })
        .await;
    assert_eq!(decision["desired"], 95, "{decision}");
    assert_eq!(decision["floor"], Value::Null, "{decision}");
    assert_eq!(world.replicas("tolerance-metric").await, 95);

    a_user_may_read_the_same(&world).await;

    // The history ended hours ago: without the forecast nothing blocks the scale-down.
    pass_to(&clock, now + SignedDuration::from_hours(6));
    settle(&world, "observed", "one", |count| count == 1).await;
    reads(&world, "observed-metric", &[]).await;
    let (comparisons, disagreements) = controller.telemetry.comparisons();
    assert_eq!(disagreements, 0, "of {comparisons} comparisons");
    without_the_adapter_the_status_says_so(&world, adapter).await;
    world.assert_nothing_forbidden();
}

/// A child that can read another metric, which asks for as many replicas as run, says itself that it is active.
async fn without_the_adapter_the_status_says_so(world: &World, adapter: RunningAdapter) {
    let name = "unread";
    let mut object = a_hundred(name, "Metric");
    object["spec"]["maxReplicas"] = 1.into();
    world.apply(&object.to_string()).await;
    reads(world, name, &["cron"]).await;
    drop(adapter);
    let message = world
        .status(name, "that the adapter is unavailable", |status| {
            let mut conditions = status.get("conditions")?.as_array()?.iter();
            let active = conditions.find(|one| one["type"] == "ScalingActive")?;
            (active["reason"] == "MetricAdapterUnavailable").then(|| active["message"].clone())
        })
        .await;
    let message = message.as_str().unwrap();
    assert!(
        message.contains("crane_autoscaling_cron (cron)"),
        "{message}"
    );
}

/// With `scaleStrategy: Preview` an HPA of the user takes the place of the child.
async fn a_user_may_read_the_same(world: &World) {
    let name = "observed-metric";
    let switch_to = async |strategy: &str| {
        let patch = Patch::Merge(json!({"spec": {"scaleStrategy": strategy}}));
        let (api, parameters) = (world.ehpas(), PatchParams::default());
        api.patch(name, &parameters, &patch).await.unwrap();
    };
    switch_to("Preview").await;
    let metric = external("crane_autoscaling_prediction", name, "resource.cpu", "100m");
    super::hpa(world, name, metric).await;
    world
        .status(name, "that an HPA reads it", |status| {
            let conditions = status.get("conditions")?.as_array()?;
            conditions
                .iter()
                .find(|one| one["reason"] == "ReadByHPA" && one["status"] == "True")
                .map(drop)
        })
        .await;
    let deleted = world.hpas().delete(name, &DeleteParams::default()).await;
    deleted.unwrap();
    switch_to("Auto").await;
    reads(world, name, &["resource.cpu"]).await;
}
