//! Decisions of the hub alone: a metric of the fleet, which becomes a floor in members, and the counts of a fleet in
//! Direct mode, where all pods of all members are one set and no member has an HPA.

use std::collections::{BTreeMap, BTreeSet};

use rig::{FakeMetrics, MetricsApi};
use serde_json::{Value, json};

use super::world::{Bounds, FleetWorld, cluster, with_preferences};
use crate::{
    manual_changes::{QUEUE, demand_replicas, queue_metrics},
    world::Controller,
};

const ROOMS: [(&str, u32); 3] = [("member1", 10), ("member2", 6), ("member3", 20)];
/// The bounds of the fleet.
const FLEET_BOUNDS: Bounds = (3, 25);
const WEIGHTS: [(&str, i32); 3] = [("member1", 1), ("member2", 2), ("member3", 3)];
const PRIORITIES: [(&str, i32); 3] = [("member1", 2), ("member2", 3), ("member3", 1)];

fn plain(policy: &str) -> Value {
    json!({ "federatedHPAAssignmentType": policy })
}

fn weighted() -> Value {
    with_preferences("StaticWeighted", "staticWeight", &WEIGHTS)
}

fn prioritized() -> Value {
    with_preferences("Prioritized", "priority", &PRIORITIES)
}

fn cpu() -> Value {
    json!({ "type": "Resource", "resource": {
        "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 },
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_metric_is_a_floor_and_in_direct_mode_all_pods_decide_one_count() {
    let world = FleetWorld::start("direct", &ROOMS).await;
    let queue = FakeMetrics::start(&world.fleet.hub, &[MetricsApi::External])
        .await
        .unwrap();
    world.deploy_everywhere(1).await;
    let controller = a_fleet_queue_is_a_floor(&world, &queue).await;
    counts_follow_the_policy(&world, &queue, &controller).await;
    all_pods_are_one_set(&world, &controller).await;
    a_lost_member_keeps_its_count(&world).await;
    a_returned_member_counts_again(&world, &controller).await;
    drop(controller);
    world.assert_nothing_forbidden();
}

/// Delegated: members measure their own CPU, and the hub the queue.
async fn a_fleet_queue_is_a_floor(world: &FleetWorld, queue: &FakeMetrics) -> Controller {
    let mut metrics = queue_metrics();
    metrics.as_array_mut().unwrap().insert(0, cpu());
    let more = json!({
        "metrics": metrics,
        // This step checks requested counts only: nothing may move between the members.
        "rebalance": { "cooldownSeconds": 600 },
        "federatedHPAAssignment": weighted(),
    });
    world.load.evenly(1.0);
    demand_replicas(queue, 12);
    world.ask("StaticWeighted", FLEET_BOUNDS, &more).await;
    let controller = world.run();
    // 12 over 1:2:3.
    let twelve = [
        ("member1", (2, 4)),
        ("member2", (4, 8)),
        ("member3", (6, 13)),
    ];
    world.assigned("by weight", &twelve).await;
    let two_four_six = [("member1", 2), ("member2", 4), ("member3", 6)];
    world.runs("two, four, six", &two_four_six).await;

    the_hub_alone_queries_once_per_sync(world, &controller).await;

    // Without an answer, the last proposal stays in effect.
    queue.fail(MetricsApi::External, true);
    world
        .condition("ScalingActive", "False/FailedGetExternalMetric")
        .await;
    controller.further_syncs(3).await;
    world.assigned("as before", &twelve).await;
    queue.fail(MetricsApi::External, false);

    // Another policy: the highest priority first; a member with a budget has a minimum of one.
    world
        .edit(json!({ "federatedHPAAssignment": prioritized() }))
        .await;
    let twelve = [
        ("member1", (5, 10)),
        ("member2", (6, 6)),
        ("member3", (1, 9)),
    ];
    world.assigned("by priority", &twelve).await;

    // The queue is empty: each member returns to what its own load needs.
    demand_replicas(queue, 0);
    let least = [
        ("member1", (1, 10)),
        ("member2", (3, 6)),
        ("member3", (1, 9)),
    ];
    world.assigned("no floor", &least).await;
    let one_three_one = [("member1", 1), ("member2", 3), ("member3", 1)];
    world.runs("the minimum", &one_three_one).await;
    world.wait_until_stable(&controller).await;
    controller
}

/// One query in each sync for all members; the members' HPAs do not read the queue.
async fn the_hub_alone_queries_once_per_sync(world: &FleetWorld, controller: &Controller) {
    let (syncs, asked) = (controller.syncs(), queries(world));
    controller.further_syncs(3).await;
    let asked = queries(world) - asked;
    let syncs = controller.syncs() - syncs;
    assert!(
        (1..=syncs + 1).contains(&asked),
        "{asked} queries in {syncs} syncs of one fleet"
    );
    for (member, _) in ROOMS {
        let spec = world.child(member).await.unwrap().spec.unwrap();
        let metrics = spec.metrics.unwrap_or_default();
        let types: Vec<_> = metrics.iter().map(|metric| &*metric.type_).collect();
        assert_eq!(types, ["Resource"], "{member}");
    }
}

/// The number of queries for the queue at the hub.
fn queries(world: &FleetWorld) -> u64 {
    for (member, _) in ROOMS {
        let asked = world.member_requests(member);
        let external = asked
            .iter()
            .find(|event| event.group == "external.metrics.k8s.io");
        assert!(external.is_none(), "{member}: {external:?}");
    }
    let all = world.hub_requests();
    let of_queue = all.iter().filter(|event| event.resource == QUEUE);
    of_queue.count().try_into().unwrap()
}

/// No metric is left for members to read: the hub writes their counts, by every policy.
async fn counts_follow_the_policy(
    world: &FleetWorld,
    queue: &FakeMetrics,
    controller: &Controller,
) {
    demand_replicas(queue, 12);
    world.edit(json!({ "metrics": queue_metrics() })).await;
    let cases: [(Value, [i32; 3]); 4] = [
        (prioritized(), [5, 6, 1]),
        // The largest first.
        (plain("Aggregated"), [1, 0, 11]),
        (weighted(), [2, 4, 6]),
        // Running replicas stay, and new ones go to the largest capacity.
        (plain("DynamicWeighted"), [2, 4, 6]),
    ];
    for (assignment, [first, second, third]) in cases {
        let policy = assignment["federatedHPAAssignmentType"].to_string();
        world
            .edit(json!({ "federatedHPAAssignment": assignment }))
            .await;
        let counts = [("member1", first), ("member2", second), ("member3", third)];
        world.runs(&policy, &counts).await;
        world.wait_until_stable(controller).await;
        world.runs(&format!("{policy}, still"), &counts).await;
        assert_eq!(world.bounds().await, BTreeMap::new(), "{policy}");
    }
    // Five more over 8:2:14, the capacity left beside them.
    demand_replicas(queue, 17);
    let seventeen = [("member1", 4), ("member2", 4), ("member3", 9)];
    world.runs("seventeen", &seventeen).await;
}

/// Each member by itself would decide otherwise: all load is in one of them.
async fn all_pods_are_one_set(world: &FleetWorld, controller: &Controller) {
    let equal = ROOMS.map(|(name, _)| (name, 1));
    world.load.locally(&[("member1", 8.6)]);
    world
        .edit(json!({
            "metrics": [cpu()],
            "mode": "Direct",
            "maxReplicas": 30,
            "federatedHPAAssignment": with_preferences("StaticWeighted", "staticWeight", &equal),
        }))
        .await;
    let three = ROOMS.map(|(name, _)| (name, 3));
    world.runs("three each", &three).await;
    controller.further_syncs(3).await;
    world.runs("three each, still", &three).await;
    assert_eq!(world.bounds().await, BTreeMap::new());
    let writes = world.member_writes();
    let counts = ROOMS.map(|(name, _)| format!("{name}: patch deployments/scale shop"));
    let expected = BTreeSet::from(counts);
    assert!(writes.is_superset(&expected), "{writes:?}");
    assert!(
        !writes.iter().any(|write| write.contains(" deployments ")),
        "{writes:?}"
    );
}

/// Whether status shows the second member with this count although it is unreachable.
fn last_count(status: &Value, count: i64) -> Option<()> {
    let found = cluster(status, "member2")?;
    let is_unknown = found.get("reason")?.as_str()?.contains("Unknown");
    (is_unknown && found.get("current")?.as_i64()? == count).then_some(())
}

/// An unreachable member keeps its replicas, whatever the others need.
async fn a_lost_member_keeps_its_count(world: &FleetWorld) {
    let lost = world.watch("member2").await;
    world.fleet.member("member2").block();
    world
        .condition("MembersReachable", "False/Unreachable")
        .await;
    // Twelve for the reachable pods.
    world.load.locally(&[("member1", 11.8)]);
    let up = [("member1", 6), ("member2", 3), ("member3", 6)];
    world.runs("twelve beside three", &up).await;
    world.load.locally(&[("member1", 2.6)]);
    let down = world
        .runs_so("three beside three", |found| {
            let others = [found["member1"], found["member3"]];
            others.iter().map(|(asked, _)| asked).sum::<i32>() == 3
                && others.iter().all(|(asked, ready)| asked == ready)
        })
        .await;
    assert_eq!(down["member2"], (3, 3));
    world
        .status("its last count", |status| last_count(status, 3))
        .await;
    world.load.locally(&[("member1", 11.8)]);
    world.runs("twelve beside three again", &up).await;
    assert_eq!(lost.all().into_iter().collect::<BTreeSet<_>>(), [3].into());
}

/// It returns and counts again: twelve in all, and no member ran fewer than its part meanwhile.
async fn a_returned_member_counts_again(world: &FleetWorld, controller: &Controller) {
    let back = world.watch("member2").await;
    let others = [world.watch("member1").await, world.watch("member3").await];
    world.fleet.member("member2").unblock();
    world.condition("MembersReachable", "True/Reachable").await;
    let four = ROOMS.map(|(name, _)| (name, 4));
    world.runs("four each", &four).await;
    controller.further_syncs(3).await;
    world.runs("four each, still", &four).await;
    assert!(back.lowest() >= 3, "{:?}", back.all());
    for counts in others {
        assert!(counts.lowest() >= 4, "{:?}", counts.all());
    }
}
