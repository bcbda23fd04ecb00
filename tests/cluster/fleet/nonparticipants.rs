//! Clusters that do not participate although pods of the workload run there: with metrics or without, these pods are
//! neither current replicas of the fleet nor load that it takes over.

use serde_json::json;

use super::world::{Bounds, FleetWorld, HOME, SHOP, cluster, with_preferences};
use crate::{
    manual_changes::{deployment, ehpa},
    world::{Controller, Counts},
};

const ROOMS: [(&str, u32); 2] = [("member1", 10), ("member2", 10)];

/// The fleet's own replicas, as its status counts them.
async fn counts_its_own(world: &FleetWorld, replicas: i32) {
    world
        .status(&format!("{replicas} replicas of its own"), |status| {
            (status["currentReplicas"] == replicas).then_some(())
        })
        .await;
}

/// Waits for syncs that change no bound, and fails if a count ever differed from the wanted one.
async fn nothing_moves(
    (world, controller): (&FleetWorld, &Controller),
    (what, bounds): (&str, &[(&str, Bounds)]),
    runs: &[(&Counts, i32)],
) {
    world.assigned(what, bounds).await;
    controller.further_syncs(8).await;
    world.assigned(what, bounds).await;
    for (watched, wanted) in runs {
        assert_eq!(
            watched.range(),
            (*wanted, *wanted),
            "{what}: {:?}; {}",
            watched.all(),
            world.status_summary().await
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_nonparticipating_cluster_are_neither_counted_replaced_nor_deleted() {
    let world = FleetWorld::start_at_home("nonparticipants", 10, &ROOMS).await;
    for (member, _) in ROOMS {
        world.join(member, &[]).await;
    }
    world.deploy("member1", 2).await;
    world.deploy("member2", 3).await;
    // The existing pods have no metrics yet.
    world.load.silent(&["member2"]);
    world.load.locally(&[("member1", 0.4), ("member2", 2.6)]);
    let first = with_preferences("StaticWeighted", "staticWeight", &[("member1", 1)]);
    let more = json!({ "federatedHPAAssignment": first });
    let (own, others) = (world.watch("member1").await, world.watch("member2").await);
    world.ask("StaticWeighted", (2, 24), &more).await;
    let controller = world.run();
    let here = (&world, &controller);
    let stays = [(&own, 2), (&others, 3)];
    let cold = [("member1", (2, 24))];
    nothing_moves(here, ("pods without metrics", &cold), &stays).await;
    world.reason("member2", "NoPreference").await;
    counts_its_own(&world, 2).await;

    // They have metrics, and budgets are divided again.
    world.load.silent(&[]);
    controller.further_syncs(3).await;
    world.edit(json!({ "maxReplicas": 23 })).await;
    let warm = [("member1", (2, 23))];
    nothing_moves(here, ("pods with metrics", &warm), &stays).await;
    world
        .status("no floor, and two of its own", |status| {
            let first = cluster(status, "member1")?;
            let floor = first["floor"].as_i64().unwrap_or(0);
            let has_none = floor == 0 && !first["reason"].as_str()?.contains("Floor");
            (has_none && status["currentReplicas"] == 2).then_some(())
        })
        .await;

    // Its own load still moves it, and back.
    world.load.locally(&[("member1", 4.6), ("member2", 2.6)]);
    world.runs("five", &[("member1", 5), ("member2", 3)]).await;
    counts_its_own(&world, 5).await;
    world.load.locally(&[("member1", 0.6), ("member2", 0.6)]);
    world.runs("two", &[("member1", 2), ("member2", 3)]).await;
    assert_eq!(others.range(), (3, 3));

    a_sleeping_member_stays_asleep(here).await;
    a_cluster_scaled_by_others_is_ignored(here).await;
    pods_without_budget_receive_none(here).await;
    drop(controller);
    world.assert_nothing_forbidden();
}

/// The second participates and sleeps; the hub joins without a priority, with pods that have no metrics.
async fn a_sleeping_member_stays_asleep((world, controller): (&FleetWorld, &Controller)) {
    let priorities = [("member1", 2), ("member2", 1)];
    world
        .edit(json!({
            "scalingToZero": true,
            "federatedHPAAssignment": with_preferences("Prioritized", "priority", &priorities),
        }))
        .await;
    world
        .runs("the second sleeps", &[("member1", 2), ("member2", 0)])
        .await;
    world.load.silent(&[HOME]);
    world.deploy(HOME, 3).await;
    world.runs("three at home", &[(HOME, 3)]).await;
    world.join(HOME, &[]).await;
    world.reason(HOME, "NoPreference").await;
    let (own, sleeping) = (world.watch("member1").await, world.watch("member2").await);
    let others = world.watch(HOME).await;
    world.edit(json!({ "maxReplicas": 22 })).await;
    // 22 over room for ten each: the two left over are the first's.
    let bounds = [("member1", (2, 12)), ("member2", (1, 10))];
    let stays = [(&own, 2), (&sleeping, 0), (&others, 3)];
    nothing_moves((world, controller), ("one asleep", &bounds), &stays).await;
    counts_its_own(world, 2).await;
}

/// Another HPA in the hub scales the shop there; then the fleet selects the hub as well.
async fn a_cluster_scaled_by_others_is_ignored((world, controller): (&FleetWorld, &Controller)) {
    let metrics = json!([{ "type": "Resource", "resource": {
        "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 },
    }}]);
    let theirs = ehpa(deployment(SHOP), (3, 5), &json!({ "metrics": metrics }));
    world.fleet.hub.apply(&theirs.to_string()).await.unwrap();
    world
        .bounds_are("its autoscaler is there", |found| {
            found.get(HOME) == Some(&(3, 5))
        })
        .await;
    let (own, others) = (world.watch("member1").await, world.watch(HOME).await);
    let weights = with_preferences(
        "StaticWeighted",
        "staticWeight",
        &[("member1", 1), (HOME, 1)],
    );
    world
        .edit(json!({ "maxReplicas": 21, "federatedHPAAssignment": weights }))
        .await;
    world.reason(HOME, "Foreign").await;
    let bounds = [(HOME, (3, 5)), ("member1", (2, 21))];
    let stays = [(&own, 2), (&others, 3)];
    nothing_moves((world, controller), ("another's target", &bounds), &stays).await;
    counts_its_own(world, 2).await;
}

/// The hub is excluded, and the first can run everything: the second has no budget, and its pods are deleted.
async fn pods_without_budget_receive_none((world, controller): (&FleetWorld, &Controller)) {
    world.load.silent(&["member2"]);
    world.deploy("member2", 3).await;
    world.runs("three more", &[("member2", 3)]).await;
    let (own, others) = (world.watch("member1").await, world.watch(HOME).await);
    world
        .edit(json!({
            "maxReplicas": 9,
            "scalingToZero": false,
            "clusterAffinity": { "exclude": [HOME] },
            "federatedHPAAssignment": { "federatedHPAAssignmentType": "Aggregated" },
        }))
        .await;
    let bounds = [(HOME, (3, 5)), ("member1", (2, 9))];
    let stays = [(&own, 2), (&others, 3)];
    let here = (world, controller);
    nothing_moves(here, ("no budget, no metrics", &bounds), &stays).await;
    // The first can serve their load as well.
    world.load.silent(&[]);
    world.runs("none", &[("member1", 2), ("member2", 0)]).await;
    nothing_moves(here, ("all in the first", &bounds), &stays).await;
    counts_its_own(world, 2).await;
}
