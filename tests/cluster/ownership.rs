//! Whose autoscaler is whose: a child of ours comes back as it was, a foreign one is never written,
//! an adopted one lives on and is given back, a prediction made by hand is told and left alone.

use std::collections::BTreeSet;

use foretide::clock::Clock;
use foretide_crds::TimeSeriesPrediction;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{Api, ResourceExt};
use rig::{ClusterOptions, FakeMetrics, MetricsApi, eventually};
use serde_json::{Value, json};

use crate::{
    hands::{ask_for, by_queue, condition, delete, deployment, edit, ehpa, gone, written},
    world::{Controller, NAMESPACE, PATIENCE, World},
};

const CHILD: &str = "ehpa-shop";
const ADOPT: &str = "autoscaling.foretide.io/adopt";

/// An autoscaler that people made themselves: it asks for half of what ours asks for.
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

/// So many syncs an answer may take: the one under way, some whose watch had not heard of it yet, and
/// the one that mends it.
const PROMPT: u64 = 5;

/// Edits the child and waits until it is as it was.
async fn mended(world: &World, controller: &Controller, what: &str, patch: Value) {
    let before = hpa(world, CHILD).await;
    let is_as_before = |now: &HorizontalPodAutoscaler| {
        let part_of = |label: &str| now.labels().get(label) == before.labels().get(label);
        now.spec == before.spec && part_of("app.kubernetes.io/managed-by")
    };
    let began = controller.syncs();
    edit(&world.hpas(), CHILD, patch).await;
    let edited = hpa(world, CHILD).await.metadata.resource_version;
    assert_ne!(
        edited, before.metadata.resource_version,
        "{what} changed nothing"
    );
    let since = eventually(PATIENCE, &format!("{what} is mended"), || async {
        let since = controller.syncs() - began;
        let now = hpa(world, CHILD).await;
        assert!(
            since <= PROMPT || is_as_before(&now),
            "{what} was not mended by {PROMPT} syncs: {now:#?}"
        );
        if is_as_before(&now) {
            Ok(since)
        } else {
            Err(format!("not after {since} syncs"))
        }
    })
    .await;
    eprintln!("{what}: mended after {since} syncs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_edited_or_deleted_by_hand_comes_back_within_one_sync() {
    let world = World::start(ClusterOptions::named("child")).await;
    let metrics = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    ask_for(&metrics, 5);
    world.deployment("shop", 3, "20m").await;
    let more = json!({ "metrics": by_queue() });
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
        mended(&world, &controller, what, patch).await;
    }

    // A behavior of the user's own: what is added beside it goes, too.
    let behavior =
        json!({ "scaleUp": { "policies": [{ "type": "Pods", "value": 3, "periodSeconds": 5 }] } });
    edit(
        &world.ehpas(),
        "shop",
        json!({ "spec": { "behavior": behavior } }),
    )
    .await;
    eventually(PATIENCE, "the child has the behavior", || async {
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
    mended(&world, &controller, "a window beside ours", window).await;

    // Deleted: a new one, and nobody was scaled meanwhile.
    world.ready("shop", "5", |count| count == 5).await;
    let uid = hpa(&world, CHILD).await.uid();
    let began = controller.syncs();
    delete(&world.hpas(), CHILD).await;
    eventually(PATIENCE, "there is a new child", || async {
        let since = controller.syncs() - began;
        let found = world.hpas().get_opt(CHILD).await.unwrap();
        let new = found.is_some_and(|child| child.uid() != uid);
        assert!(since <= PROMPT || new, "no new child after {PROMPT} syncs");
        if new { Ok(()) } else { Err("not yet") }
    })
    .await;

    // Somebody else's comes beside it, to be taken over: one of the two must go.
    edit(
        &world.ehpas(),
        "shop",
        json!({ "metadata": { "annotations": { ADOPT: "true" } } }),
    )
    .await;
    world.apply(&by_hand("shop").to_string()).await;
    gone(&world.hpas(), CHILD).await;
    eventually(PATIENCE, "the other one acts for us", || async {
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
async fn a_foreign_autoscaler_is_left_alone_and_an_adopted_one_is_given_back_as_it_was() {
    let world = World::start(ClusterOptions::named("adoption")).await;
    let metrics = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    ask_for(&metrics, 8);
    world.deployment("shop", 4, "20m").await;
    world.apply(&by_hand("shop").to_string()).await;
    let name = "shop-by-hand";
    // Its own answer, 80 / 20, before anybody else comes.
    eventually(PATIENCE, "the foreign autoscaler works", || async {
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
    let more = json!({ "metrics": by_queue(), "specificReplicas": 1 });
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

    // Left alone, named, and the decision is there all the same.
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
    told_and_left_alone(&world, &predictions).await;

    // Adopted: the same object goes on with our spec. No replica moves, for nothing else is asked for.
    ask_for(&metrics, 4);
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

    // Preview gives it back, Auto takes it again, deletion gives it back for good.
    edit(
        &world.ehpas(),
        "shop",
        json!({ "spec": { "scaleStrategy": "Preview" } }),
    )
    .await;
    given_back(&world, name, &original).await;
    edit(
        &world.ehpas(),
        "shop",
        json!({ "spec": { "scaleStrategy": "Auto" } }),
    )
    .await;
    adopted(&world, name, &original).await;
    delete(&world.ehpas(), "shop").await;
    gone(&world.ehpas(), "shop").await;
    given_back(&world, name, &original).await;

    // Nobody was there when the adopter went: whoever comes next gives it back.
    let mut adopter = ehpa(
        deployment("shop"),
        (1, 8),
        &json!({ "metrics": by_queue() }),
    );
    adopter["metadata"]["annotations"] = json!({ ADOPT: "true" });
    world.apply(&adopter.to_string()).await;
    adopted(&world, name, &original).await;
    drop(controller);
    delete(&world.ehpas(), "shop").await;
    gone(&world.ehpas(), "shop").await;
    adopted(&world, name, &original).await;
    let controller = world.run(world.config(), Clock::system());
    given_back(&world, name, &original).await;
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
    eventually(PATIENCE, "the autoscaler is adopted", || async {
        let now = hpa(world, name).await;
        let spec = serde_json::to_value(now.spec.as_ref().unwrap()).unwrap();
        assert_eq!(now.uid(), original.uid());
        let ours = spec["metrics"] == by_queue()
            && spec["maxReplicas"] == 8
            && spec.get("behavior").is_none();
        if ours { Ok(()) } else { Err(spec.to_string()) }
    })
    .await;
}

async fn given_back(world: &World, name: &str, original: &HorizontalPodAutoscaler) {
    let given = eventually(PATIENCE, "the autoscaler is given back", || async {
        let now = hpa(world, name).await;
        let spec = serde_json::to_string(&now.spec).unwrap();
        if now.spec == original.spec {
            Ok(now)
        } else {
            Err(spec)
        }
    })
    .await;
    assert_eq!(given.uid(), original.uid());
    assert_eq!(given.annotations(), original.annotations());
    assert_eq!(given.labels(), original.labels());
    assert_eq!(given.owner_references(), original.owner_references());
}

async fn told_and_left_alone(world: &World, predictions: &Api<TimeSeriesPrediction>) {
    let told = eventually(PATIENCE, "the prediction made by hand is told", || async {
        let tsp = predictions
            .get("manual")
            .await
            .map_err(|error| error.to_string())?;
        let status = serde_json::to_value(&tsp.status).unwrap();
        match condition(&status, "Ready") {
            Some((is, _)) if is == "False/NotManaged" => Ok(tsp),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(told.metadata.generation, Some(1));
    let touched = world
        .writes()
        .into_iter()
        .filter(|event| event.name == "manual" && event.wrote());
    let touched: Vec<_> = touched.map(|event| written(&event)).collect();
    assert_eq!(touched, ["timeseriespredictions/status"]);
}
