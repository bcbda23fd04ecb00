//! Delegated, Direct and a plain HPA under the same load: they settle at the same counts, and a floor never delays a
//! scale-up.

use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use rig::{ClusterOptions, FakeMetrics, MetricsApi, NodeSize, Reading, eventually};
use serde_json::{Value, json};

use crate::{
    conformance::Observed,
    world::{Controller, NAMESPACE, TIMEOUT, World},
};

/// The metric that all three read.
const METRIC: &str = "orders";
/// The user name of the real HPA controller's requests at the API server.
const HPA_CONTROLLER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// Bounds, behavior and the one metric: one replica for every 10.
fn spec(name: &str, per_replica: &str, extra: &Value) -> Value {
    let target = json!({ "type": "AverageValue", "averageValue": per_replica });
    let metric = json!({
        "type": "External",
        "external": { "metric": { "name": METRIC }, "target": target },
    });
    let mut spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
        "minReplicas": 2,
        "maxReplicas": 90,
        "metrics": [metric],
    });
    spec.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    spec
}

async fn plain(world: &World, name: &str, spec: Value) {
    let hpa = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": spec,
    });
    world.apply(&hpa.to_string()).await;
}

async fn ours(world: &World, name: &str, spec: Value) {
    let ehpa = json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": spec,
    });
    world.apply(&ehpa.to_string()).await;
}

async fn edit(world: &World, name: &str, spec: &Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    world
        .ehpas()
        .patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

fn load(fake: &FakeMetrics, total: u32) {
    fake.set_external(NAMESPACE, METRIC, vec![Reading::new(&total.to_string())]);
}

/// Waits until Deployments have this count, and each child HPA and the status of its autoscaler ask for it.
async fn settle(world: &World, names: &[&str], count: i32) {
    let what = format!("exactly {count}");
    join_all(
        names
            .iter()
            .map(|name| world.ready(name, &what, |found| found == count)),
    )
    .await;
    for name in names.iter().filter(|name| name.starts_with("delegated")) {
        let what = format!("{name} and its child ask for {count}");
        eventually(TIMEOUT, &what, || async {
            let observed = Observed::of(world, name).await?;
            observed
                .agrees_on(count)
                .then_some(())
                .ok_or_else(|| format!("{observed:?}"))
        })
        .await;
    }
}

/// The number of times that the real HPA controller has scaled a Deployment so far.
fn steps(world: &World, name: &str) -> usize {
    let events = world.cluster.audit().unwrap().into_iter();
    let steps = events.filter(|event| {
        event.user == HPA_CONTROLLER
            && event.subresource == "scale"
            && event.wrote()
            && event.name == name
    });
    steps.count()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_modes_settle_with_a_plain_hpa_and_a_floor_delays_no_scale_up() {
    let options = ClusterOptions::named("plain-hpa").nodes(3, NodeSize::new("64", "64Gi", 110));
    let world = World::start(options).await;
    let fake = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    load(&fake, 20);
    let explicit = json!({ "behavior": {
        "scaleUp": { "policies": [{ "type": "Pods", "value": 3, "periodSeconds": 1 }] },
        "scaleDown": { "stabilizationWindowSeconds": 6 },
    } });
    let direct = |extra: &Value| {
        let mut extra = extra.clone();
        extra["mode"] = json!("Direct");
        extra
    };
    let all = [
        "plain",
        "delegated",
        "direct",
        "plain-slow",
        "delegated-slow",
        "direct-slow",
    ];
    for name in all {
        world.deployment(name, 2, "1m").await;
        let extra = if name.ends_with("slow") {
            explicit.clone()
        } else {
            json!({})
        };
        match name.split('-').next() {
            Some("plain") => plain(&world, name, spec(name, "10", &extra)).await,
            Some("direct") => ours(&world, name, spec(name, "10", &direct(&extra))).await,
            _ => ours(&world, name, spec(name, "10", &extra)).await,
        }
    }
    let controller = Controller::run(world.config());
    // 31 of 10 replicas is 0.31 each; 43 of 4 is inside the tolerance.
    for (total, count) in [(20, 2), (95, 10), (31, 4), (43, 4), (120, 12), (60, 6)] {
        load(&fake, total);
        settle(&world, &all, count).await;
    }

    // A floor of 9 for both modes: the larger of floor and load, with and without explicit limits.
    let floored = ["delegated", "direct", "delegated-slow", "direct-slow"];
    let window = |count: u32| {
        let open = ("* * * * *", "0 0 1 1 *");
        json!({ "crons": [
            { "name": "floor", "start": open.0, "end": open.1, "targetReplicas": count },
        ] })
    };
    for name in floored {
        edit(&world, name, &window(9)).await;
    }
    settle(&world, &floored, 9).await;
    load(&fake, 150);
    settle(&world, &all, 15).await;
    load(&fake, 20);
    settle(&world, &floored, 9).await;
    for name in floored {
        edit(&world, name, &json!({ "crons": null })).await;
    }
    settle(&world, &all, 2).await;

    // A floor that rises in explicit steps, and a load that rises with it and beyond.
    let slow = ["plain-slow", "delegated-slow", "direct-slow"];
    let before = slow.map(|name| steps(&world, name));
    edit(&world, "delegated-slow", &window(20)).await;
    edit(&world, "direct-slow", &window(20)).await;
    load(&fake, 260);
    settle(&world, &slow, 26).await;
    let taken = [0, 1].map(|i| steps(&world, slow[i]) - before[i]);
    assert_eq!(taken[0], 8, "2 to 26 by 3");
    assert!(
        taken[1] <= taken[0] + 1,
        "{} steps with a floor, {} without",
        taken[1],
        taken[0]
    );
    drop(controller);
    world.assert_nothing_forbidden();
}
