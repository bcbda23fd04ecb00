//! Preview computes and writes nothing; switching to Auto and back, and deletion, create and delete the child and
//! never change the replicas.

use std::{cell::RefCell, collections::BTreeSet};

use foretide::clock::Clock;
use foretide_crds::TimeSeriesPrediction;
use kube::{Api, ResourceExt};
use rig::{ClusterOptions, FakeMetrics, MetricsApi, eventually};
use serde_json::json;

use crate::{
    manual_changes::{
        delete, demand_replicas, deployment, edit, ehpa, queue_metrics, wait_until_deleted, written,
    },
    world::{NAMESPACE, TIMEOUT, World},
};

const CHILD: &str = "ehpa-shop";

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_writes_nothing_until_pinned_and_switching_affects_only_the_child() {
    let world = World::start(ClusterOptions::named("preview")).await;
    let metrics = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    demand_replicas(&metrics, 5);
    world.deployment("shop", 3, "20m").await;
    world.ready("shop", "3", |count| count == 3).await;
    let more = json!({ "scaleStrategy": "Preview", "metrics": queue_metrics(), "prediction": {} });
    world
        .apply(&ehpa(deployment("shop"), (1, 8), &more).to_string())
        .await;
    let controller = world.run(world.config(), Clock::system());

    // It shows its decision and writes nothing.
    world.decides("shop", 5).await;
    let predictions: Api<TimeSeriesPrediction> = Api::namespaced(world.client.clone(), NAMESPACE);
    eventually(TIMEOUT, "the prediction says why there is none", || async {
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
    })
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

    // A pinned count is enforced, within the bounds, against changes by hand; decisions continue.
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

    // Preview: the child is deleted, and the replicas stay even when the load requires another count.
    let patch = json!({ "spec": { "scaleStrategy": "Preview", "specificReplicas": null } });
    edit(&ehpas, "shop", patch).await;
    wait_until_deleted(&world.hpas(), CHILD).await;
    demand_replicas(&metrics, 7);
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

    // Deletion deletes the child and the prediction, and does not change the target.
    delete(&ehpas, "shop").await;
    wait_until_deleted(&ehpas, "shop").await;
    wait_until_deleted(&world.hpas(), CHILD).await;
    wait_until_deleted(&predictions, CHILD).await;
    // Requests in flight at the deletion have arrived.
    let seen = RefCell::new(Vec::new());
    let after = eventually(TIMEOUT, "writes have stopped", || async {
        // While the API server stalls, its log rests as well: it answers before each look.
        let answer = world.deployments().get("shop").await;
        answer.map_err(|error| error.to_string())?;
        let mut seen = seen.borrow_mut();
        seen.push(world.writes().len());
        let last = &seen[seen.len().saturating_sub(8)..];
        let rests = last.len() == 8 && last.iter().all(|count| *count == last[0]);
        if rests {
            Ok(last[0])
        } else {
            Err(format!("{last:?}"))
        }
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
