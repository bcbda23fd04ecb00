//! Preview computes and shows; switching to Auto and back, and deletion, move the child and never
//! the replicas.

use std::collections::BTreeSet;

use foretide::clock::Clock;
use foretide_crds::TimeSeriesPrediction;
use kube::{Api, ResourceExt};
use rig::{ClusterOptions, FakeMetrics, MetricsApi, eventually};
use serde_json::json;

use crate::{
    hands::{ask_for, by_queue, delete, deployment, edit, ehpa, gone, written},
    world::{NAMESPACE, PATIENCE, World},
};

const CHILD: &str = "ehpa-shop";

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_only_shows_until_it_is_pinned_and_switching_moves_the_child_alone() {
    let world = World::start(ClusterOptions::named("preview")).await;
    let metrics = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    ask_for(&metrics, 5);
    world.deployment("shop", 3, "20m").await;
    world.ready("shop", "3", |count| count == 3).await;
    let more = json!({ "scaleStrategy": "Preview", "metrics": by_queue(), "prediction": {} });
    world
        .apply(&ehpa(deployment("shop"), (1, 8), &more).to_string())
        .await;
    let controller = world.run(world.config(), Clock::system());

    // It shows what it would do, and does nothing.
    world.decides("shop", 5).await;
    let predictions: Api<TimeSeriesPrediction> = Api::namespaced(world.client.clone(), NAMESPACE);
    eventually(
        PATIENCE,
        "the prediction says why there is none",
        || async {
            let tsp = predictions
                .get(CHILD)
                .await
                .map_err(|error| error.to_string())?;
            let status = tsp.status.unwrap_or_default();
            let metrics = status.prediction_metrics.unwrap_or_default();
            metrics
                .first()
                .and_then(|metric| metric.reason.clone())
                .ok_or("no reason yet".to_owned())
        },
    )
    .await;
    controller.further_syncs(3).await;
    assert_eq!(world.replicas("shop").await, 3);
    assert_eq!(world.hpas().get_opt(CHILD).await.unwrap(), None);
    let wrote: BTreeSet<String> = world.writes().iter().map(written).collect();
    let allowed = [
        "effectivehorizontalpodautoscalers/status",
        "events",
        "timeseriespredictions",
        "timeseriespredictions/status",
    ];
    assert!(
        wrote.iter().all(|what| allowed.contains(&what.as_str())),
        "{wrote:?}"
    );
    assert!(wrote.contains("timeseriespredictions/status"), "{wrote:?}");

    // A pinned count is held, within the bounds, against any hand; the decision goes on beside it.
    let ehpas = world.ehpas();
    edit(
        &ehpas,
        "shop",
        json!({ "spec": { "specificReplicas": 20 } }),
    )
    .await;
    world.ready("shop", "8", |count| count == 8).await;
    world.scale_by_hand("shop", 3).await;
    world.ready("shop", "8 again", |count| count == 8).await;
    edit(&ehpas, "shop", json!({ "spec": { "specificReplicas": 0 } })).await;
    world.ready("shop", "1", |count| count == 1).await;
    // From one replica a single step reaches four.
    world.decides("shop", 4).await;
    assert_eq!(world.hpas().get_opt(CHILD).await.unwrap(), None);

    // Auto: the child exists and scales.
    edit(
        &ehpas,
        "shop",
        json!({ "spec": { "scaleStrategy": "Auto" } }),
    )
    .await;
    world.ready("shop", "5", |count| count == 5).await;
    let first = world.hpas().get(CHILD).await.unwrap().uid();

    // Preview: the child is gone, the replicas stay, also when another count is called for.
    let patch = json!({ "spec": { "scaleStrategy": "Preview", "specificReplicas": null } });
    edit(&ehpas, "shop", patch).await;
    gone(&world.hpas(), CHILD).await;
    ask_for(&metrics, 7);
    world.decides("shop", 7).await;
    controller.further_syncs(3).await;
    assert_eq!(world.replicas("shop").await, 5);

    // Auto once more: a new child.
    edit(
        &ehpas,
        "shop",
        json!({ "spec": { "scaleStrategy": "Auto" } }),
    )
    .await;
    world.ready("shop", "7", |count| count == 7).await;
    assert_ne!(world.hpas().get(CHILD).await.unwrap().uid(), first);

    // Deletion takes the child and the prediction along, and leaves the target as it is.
    delete(&ehpas, "shop").await;
    gone(&ehpas, "shop").await;
    gone(&world.hpas(), CHILD).await;
    gone(&predictions, CHILD).await;
    // What was on its way when the object went has come.
    let mut seen = vec![world.writes().len()];
    let after = eventually(PATIENCE, "nothing is written any more", || {
        seen.push(world.writes().len());
        let last = &seen[seen.len().saturating_sub(8)..];
        let rests = last.len() == 8 && last.iter().all(|count| *count == last[0]);
        let answer = if rests {
            Ok(last[0])
        } else {
            Err(format!("{last:?}"))
        };
        std::future::ready(answer)
    })
    .await;
    assert_eq!(world.replicas("shop").await, 7);
    drop(controller);
    assert_eq!(
        world.writes().len(),
        after,
        "something was written after the deletion"
    );
    world.assert_nothing_forbidden();
}
