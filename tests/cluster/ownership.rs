//! Ownership of HPAs: a child is restored, a foreign HPA is never written, an adopted HPA is restored when released,
//! and a prediction made by hand is reported and not modified.

use std::collections::BTreeSet;

use foretide::clock::Clock;
use foretide_crds::TimeSeriesPrediction;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{Api, ResourceExt};
use rig::{ClusterOptions, FakeMetrics, MetricsApi, eventually};
use serde_json::{Value, json};

use crate::{
    manual_changes::{
        condition, delete, demand_replicas, deployment, edit, ehpa, queue_metrics,
        wait_until_deleted, written,
    },
    world::{NAMESPACE, TIMEOUT, World},
};

const CHILD: &str = "ehpa-shop";
const ADOPT: &str = "autoscaling.foretide.io/adopt";

/// An HPA made by users: it requests half of what ours requests.
fn by_hand(target: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": format!("{target}-by-hand"),
            "namespace": NAMESPACE,
            "labels": { "team": "shop" },
            "annotations": { "note": "ours" },
        },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": target },
            "minReplicas": 2,
            "maxReplicas": 9,
            "metrics": [{
                "type": "External",
                "external": {
                    "metric": { "name": "queue" },
                    "target": { "type": "AverageValue", "averageValue": "20" },
                },
            }],
            "behavior": {
                "scaleDown": { "stabilizationWindowSeconds": 7, "selectPolicy": "Disabled" },
            },
        },
    })
}

async fn hpa(world: &World, name: &str) -> HorizontalPodAutoscaler {
    world.hpas().get(name).await.unwrap()
}

/// Edits the child and waits until it is restored.
async fn restored(world: &World, what: &str, patch: Value) {
    let before = hpa(world, CHILD).await;
    let is_as_before = |now: &HorizontalPodAutoscaler| {
        let part_of = |label: &str| now.labels().get(label) == before.labels().get(label);
        now.spec == before.spec && part_of("app.kubernetes.io/managed-by")
    };
    edit(&world.hpas(), CHILD, patch).await;
    let edited = hpa(world, CHILD).await.metadata.resource_version;
    assert_ne!(
        edited, before.metadata.resource_version,
        "{what} changed nothing"
    );
    eventually(TIMEOUT, &format!("{what} is restored"), || async {
        let now = hpa(world, CHILD).await;
        is_as_before(&now).then_some(()).ok_or(format!("{now:#?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_edited_or_deleted_by_hand_is_restored() {
    let world = World::start(ClusterOptions::named("child")).await;
    let metrics = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    demand_replicas(&metrics, 5);
    world.deployment("shop", 3, "20m").await;
    let more = json!({ "metrics": queue_metrics() });
    world
        .apply(&ehpa(deployment("shop"), (1, 8), &more).to_string())
        .await;
    let controller = world.run(world.config(), Clock::system());
    world.ready("shop", "5", |count| count == 5).await;

    let metric = |patch: Value| json!({ "spec": { "metrics": [patch] } });
    let target = |value: &str| json!({ "type": "AverageValue", "averageValue": value });
    let edits = [
        (
            "a target",
            metric(json!({ "type": "External", "external": {
            "metric": { "name": "queue" }, "target": target("11") } })),
        ),
        (
            "a metric's selector",
            metric(json!({ "type": "External", "external": {
            "metric": { "name": "queue", "selector": { "matchLabels": { "queue": "a" } } },
            "target": target("10") } })),
        ),
        (
            "a minimum below the count",
            json!({ "spec": { "minReplicas": 4 } }),
        ),
        (
            "a minimum above the count",
            json!({ "spec": { "minReplicas": 7 } }),
        ),
        ("a maximum", json!({ "spec": { "maxReplicas": 30 } })),
        (
            "a behavior",
            json!({ "spec": { "behavior": { "scaleUp": { "selectPolicy": "Disabled" } } } }),
        ),
        (
            "a label",
            json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": "me" } } }),
        ),
    ];
    for (what, patch) in edits {
        restored(&world, what, patch).await;
    }

    // With a behavior in the user's spec, fields added to the child's are removed as well.
    let behavior =
        json!({ "scaleUp": { "policies": [{ "type": "Pods", "value": 3, "periodSeconds": 5 }] } });
    edit(
        &world.ehpas(),
        "shop",
        json!({ "spec": { "behavior": behavior } }),
    )
    .await;
    eventually(TIMEOUT, "the child has the behavior", || async {
        hpa(&world, CHILD)
            .await
            .spec
            .unwrap()
            .behavior
            .ok_or("none yet")
    })
    .await;
    let window =
        json!({ "spec": { "behavior": { "scaleDown": { "stabilizationWindowSeconds": 0 } } } });
    restored(&world, "a window beside ours", window).await;

    // After a deletion there is a new child, and the replicas did not change.
    world.ready("shop", "5", |count| count == 5).await;
    let uid = hpa(&world, CHILD).await.uid();
    delete(&world.hpas(), CHILD).await;
    eventually(TIMEOUT, "there is a new child", || async {
        let found = world.hpas().get_opt(CHILD).await.unwrap();
        let new = found.is_some_and(|child| child.uid() != uid);
        if new { Ok(()) } else { Err("not yet") }
    })
    .await;

    // A foreign HPA appears and is to be adopted: one of the two must go.
    edit(
        &world.ehpas(),
        "shop",
        json!({ "metadata": { "annotations": { ADOPT: "true" } } }),
    )
    .await;
    world.apply(&by_hand("shop").to_string()).await;
    wait_until_deleted(&world.hpas(), CHILD).await;
    eventually(TIMEOUT, "the foreign HPA is adopted", || async {
        let now = hpa(&world, "shop-by-hand").await.spec.unwrap();
        if now.max_replicas == 8 {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    })
    .await;
    assert_eq!(world.replicas("shop").await, 5);
    let (_, disagreements) = controller.telemetry.comparisons();
    assert_eq!(disagreements, 0);
    drop(controller);
    world.assert_nothing_forbidden();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_hpa_is_not_modified_and_an_adopted_hpa_is_restored() {
    let world = World::start(ClusterOptions::named("adoption")).await;
    let metrics = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    demand_replicas(&metrics, 8);
    world.deployment("shop", 4, "20m").await;
    world.apply(&by_hand("shop").to_string()).await;
    let name = "shop-by-hand";
    // It settles at its own result, 80 / 20, before the controller starts.
    eventually(TIMEOUT, "the foreign HPA scales", || async {
        let desired = hpa(&world, name)
            .await
            .status
            .map_or(0, |status| status.desired_replicas);
        if desired == 4 {
            Ok(())
        } else {
            Err(format!("{desired} desired"))
        }
    })
    .await;
    let original = hpa(&world, name).await;
    let more = json!({ "metrics": queue_metrics(), "specificReplicas": 1 });
    world
        .apply(&ehpa(deployment("shop"), (1, 8), &more).to_string())
        .await;
    let manual = json!({
        "apiVersion": "prediction.crane.io/v1alpha1", "kind": "TimeSeriesPrediction",
        "metadata": { "name": "manual", "namespace": NAMESPACE },
        "spec": { "predictionWindowSeconds": 3600, "predictionMetrics": [] },
    });
    world.apply(&manual.to_string()).await;
    let controller = world.run(world.config(), Clock::system());

    // The foreign HPA is not modified but named, and the decision is still shown.
    let message = world
        .condition("shop", "Ready", "False/TargetConflict")
        .await;
    assert!(
        message.contains(name) && message.contains(ADOPT),
        "{message}"
    );
    world.decides("shop", 8).await;
    controller.further_syncs(3).await;
    assert_eq!(world.replicas("shop").await, 4);
    assert_eq!(world.hpas().get_opt(CHILD).await.unwrap(), None);
    let wrote: BTreeSet<String> = world.writes().iter().map(written).collect();
    assert!(!wrote.contains("horizontalpodautoscalers"), "{wrote:?}");
    let predictions: Api<TimeSeriesPrediction> = Api::namespaced(world.client.clone(), NAMESPACE);
    reported_and_not_modified(&world, &predictions).await;

    // Adopted: the same object has our spec. The replicas do not change, because the requested count is the same.
    demand_replicas(&metrics, 4);
    world.decides("shop", 4).await;
    edit(
        &world.ehpas(),
        "shop",
        json!({ "metadata": { "annotations": { ADOPT: "true" } } }),
    )
    .await;
    adopted(&world, name, &original).await;
    world.condition("shop", "Ready", "True/Decided").await;
    controller.further_syncs(5).await;
    assert_eq!(world.hpas().get_opt(CHILD).await.unwrap(), None);

    // Preview restores it, Auto adopts it again, and deletion restores it for good.
    edit(
        &world.ehpas(),
        "shop",
        json!({ "spec": { "scaleStrategy": "Preview" } }),
    )
    .await;
    restored_original(&world, name, &original).await;
    edit(
        &world.ehpas(),
        "shop",
        json!({ "spec": { "scaleStrategy": "Auto" } }),
    )
    .await;
    adopted(&world, name, &original).await;
    delete(&world.ehpas(), "shop").await;
    wait_until_deleted(&world.ehpas(), "shop").await;
    restored_original(&world, name, &original).await;

    // No controller runs when its adopter is deleted; the next controller restores it.
    let mut adopter = ehpa(
        deployment("shop"),
        (1, 8),
        &json!({ "metrics": queue_metrics() }),
    );
    adopter["metadata"]["annotations"] = json!({ ADOPT: "true" });
    world.apply(&adopter.to_string()).await;
    adopted(&world, name, &original).await;
    drop(controller);
    delete(&world.ehpas(), "shop").await;
    wait_until_deleted(&world.ehpas(), "shop").await;
    adopted(&world, name, &original).await;
    let controller = world.run(world.config(), Clock::system());
    restored_original(&world, name, &original).await;
    assert_eq!(world.hpas().get_opt(CHILD).await.unwrap(), None);
    assert_eq!(world.replicas("shop").await, 4);
    drop(controller);

    let moved = world.cluster.audit().unwrap().into_iter().filter(|event| {
        event.is_write() && event.resource == "deployments" && event.subresource == "scale"
    });
    assert_eq!(moved.collect::<Vec<_>>(), []);
    world.assert_nothing_forbidden();
}

async fn adopted(world: &World, name: &str, original: &HorizontalPodAutoscaler) {
    eventually(TIMEOUT, "the autoscaler is adopted", || async {
        let now = hpa(world, name).await;
        let spec = serde_json::to_value(now.spec.as_ref().unwrap()).unwrap();
        assert_eq!(now.uid(), original.uid());
        let ours = spec["metrics"] == queue_metrics()
            && spec["maxReplicas"] == 8
            && spec.get("behavior").is_none();
        if ours { Ok(()) } else { Err(spec.to_string()) }
    })
    .await;
}

async fn restored_original(world: &World, name: &str, original: &HorizontalPodAutoscaler) {
    let released = eventually(TIMEOUT, "the autoscaler is restored", || async {
        let now = hpa(world, name).await;
        let spec = serde_json::to_string(&now.spec).unwrap();
        if now.spec == original.spec {
            Ok(now)
        } else {
            Err(spec)
        }
    })
    .await;
    assert_eq!(released.uid(), original.uid());
    assert_eq!(released.annotations(), original.annotations());
    assert_eq!(released.labels(), original.labels());
    assert_eq!(released.owner_references(), original.owner_references());
}

async fn reported_and_not_modified(world: &World, predictions: &Api<TimeSeriesPrediction>) {
    let prediction = eventually(
        TIMEOUT,
        "the prediction made by hand is reported",
        || async {
            let tsp = predictions
                .get("manual")
                .await
                .map_err(|error| error.to_string())?;
            let status = serde_json::to_value(&tsp.status).unwrap();
            match condition(&status, "Ready") {
                Some((is, _)) if is == "False/NotManaged" => Ok(tsp),
                other => Err(format!("{other:?}")),
            }
        },
    )
    .await;
    assert_eq!(prediction.metadata.generation, Some(1));
    let touched = world
        .writes()
        .into_iter()
        .filter(|event| event.name == "manual" && event.wrote());
    let touched: Vec<_> = touched.map(|event| written(&event)).collect();
    assert_eq!(touched, ["timeseriespredictions/status"]);
}
