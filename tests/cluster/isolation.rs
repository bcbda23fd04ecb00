//! A dependency that hangs delays only the autoscalers that use it, and the large objects of a tenant delay nobody.

use foretide::clock::Clock;
use rig::{ClusterOptions, Component, FakeMetrics, MetricsApi, NodeSize, Reading, eventually};
use serde_json::{Value, json};

use crate::{
    measure::peak_resident,
    world::{LARGE, NAMESPACE, TIMEOUT, World, binary, create_large},
};

/// The autoscalers of the tenant whose metrics hang.
const TENANTS: usize = 150;

/// A Deployment without pods, and its autoscaler.
fn tenant(n: usize) -> [Value; 2] {
    let name = format!("tenant-{n}");
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": "tenant" },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
            },
        },
    });
    let metric = json!({
        "type": "External",
        "external": { "metric": { "name": "queue" }, "target": { "type": "Value", "value": "10" } },
    });
    [
        deployment,
        autoscaler(
            "tenant",
            &name,
            &json!({ "minReplicas": 0, "metrics": [metric] }),
        ),
    ]
}

fn autoscaler(namespace: &str, name: &str, extra: &Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
        "minReplicas": 1,
        "maxReplicas": 10,
        "mode": "Direct",
    });
    let fields = extra.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(fields);
    json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": { "name": name, "namespace": namespace },
        "spec": spec,
    })
}

/// A window that is always open.
fn always(replicas: u32) -> Value {
    json!([{
        "name": "floor", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": replicas,
    }])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metrics_api_that_hangs_delays_neither_others_nor_the_cron_windows_of_its_own() {
    let world = World::start(ClusterOptions::named("isolation")).await;
    let fake = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    fake.set_external("tenant", "queue", vec![Reading::new("5")]);
    fake.set_external(NAMESPACE, "queue", vec![Reading::new("5")]);
    world.cluster.namespace("tenant").await.unwrap();
    let tenants: Vec<_> = (0..TENANTS)
        .flat_map(tenant)
        .map(|object| object.to_string())
        .collect();
    world.apply(&tenants.join("\n---\n")).await;
    create_large(&world.client, "tenant", LARGE).await;
    for name in ["others", "own", "edited"] {
        world.deployment(name, 1, "1m").await;
    }
    fake.hang(MetricsApi::External, true);
    let controller = world.run(world.config(), Clock::system());
    // All of the tenant's syncs wait for the metric.
    eventually(TIMEOUT, "every tenant has been listed", || async {
        let text = controller.telemetry.encode();
        let known =
            format!("foretide_objects{{kind=\"effectivehorizontalpodautoscaler\"}} {TENANTS}");
        text.contains(&known).then_some(()).ok_or("not yet")
    })
    .await;
    let queue = json!([{
        "type": "External",
        "external": { "metric": { "name": "queue" }, "target": { "type": "Value", "value": "10" } },
    }]);
    let own = json!({ "crons": always(3), "metrics": queue });
    world
        .apply(&autoscaler(NAMESPACE, "others", &json!({ "crons": always(4) })).to_string())
        .await;
    world
        .apply(&autoscaler(NAMESPACE, "own", &own).to_string())
        .await;
    for (name, replicas) in [("others", 4), ("own", 3)] {
        eventually(
            TIMEOUT,
            &format!("{name} has {replicas} replicas"),
            || async {
                let found = world.replicas(name).await;
                (found == replicas).then_some(()).ok_or(found)
            },
        )
        .await;
    }
    // The condition names what hangs: the requests of others do not speak for those of this namespace.
    world
        .status("own", "what hangs", |status| {
            let conditions = status.get("conditions")?.as_array()?;
            let message = |condition: &Value| condition["message"].as_str().map(str::to_owned);
            let named = |message: &String| {
                message.contains("read external metric queue in namespace default")
            };
            conditions.iter().filter_map(message).find(named)
        })
        .await;
    eventually(TIMEOUT, "the open circuit has a series", || async {
        let text = controller.telemetry.encode();
        let open =
            r#"foretide_circuit_open{api="kubernetes",dependency="external.metrics.k8s.io"} 1"#;
        text.contains(open).then_some(()).ok_or("not yet")
    })
    .await;
    world.assert_nothing_forbidden();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "creates 750 MB of objects, in some minutes; part of `just nightly`"]
async fn thousands_of_large_objects_fit_into_the_memory_of_deploy() {
    // Without the controllers of the cluster, which would copy the objects until etcd is full; so nodes never get ready.
    let options = ClusterOptions::named("large")
        .without(Component::KubeControllerManager)
        .nodes(0, NodeSize::new("1", "1Gi", 1));
    let world = World::start(options).await;
    world.cluster.namespace("tenant").await.unwrap();
    create_large(&world.client, "tenant", 10 * LARGE).await;
    world.deployment("others", 1, "1m").await;
    let others = autoscaler(NAMESPACE, "others", &json!({ "crons": always(4) }));
    world.apply(&others.to_string()).await;
    let mut controller = binary(world.kubeconfig(), world.hpa_flags());
    let controller = controller
        .args(["--listen", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    eventually(TIMEOUT, "others has 4 replicas", || async {
        let found = world.replicas("others").await;
        (found == 4).then_some(()).ok_or(found)
    })
    .await;
    let deployed = include_str!("../../deploy/30-controller.yaml");
    assert!(deployed.contains("memory: 512Mi"));
    let peak = peak_resident(controller.id().unwrap());
    assert!(peak < 512, "{peak} MiB");
    eprintln!("{} large objects: at most {peak} MiB resident", 10 * LARGE);
}
