//! Members that are not needed scale to zero and wake when needed, in the order of the policy; and unused maximum goes
//! where it is needed, by the policy.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::world::{FleetWorld, room, with_preferences};
use crate::world::Controller;

/// The maximum of each member: the last one awake is soon full, and five replicas need all three.
const EACH: i32 = 2;
/// The order in which members get unused maximum.
const PRIORITIES: [(&str, i32); 2] = [("member1", 2), ("member2", 3)];

/// A policy with a number for each member (`staticWeight`, `priority`, or a field that the policy ignores).
fn assignment(policy: &str, field: &str, numbers: [i32; 3]) -> Value {
    let members = ["member1", "member2", "member3"].iter().zip(numbers);
    let each = members.map(|(name, number)| {
        let target = json!({ "clusterNames": [name] });
        json!({ "targetCluster": target, field: number, "autoscalingMaxThreshold": EACH })
    });
    json!({
        "federatedHPAAssignmentType": policy,
        "clusterAutoscalingPreference": each.collect::<Vec<_>>(),
    })
}

/// Waits until all but the last one awake are woken, and returns the second of each.
async fn wake_times(world: &FleetWorld, policy: &str, last: &str) -> BTreeMap<String, i64> {
    let what = format!("{policy}: all but {last} are woken");
    let when = |status: &Value| {
        let ledger: Value = serde_json::from_str(status["ledger"].as_str()?).ok()?;
        let members = ledger["members"].as_object()?.iter();
        let sleepers = members.filter(|(name, _)| *name != last);
        let each = sleepers.map(|(name, entry)| {
            let (woken, slept) = (entry["woken"].as_i64()?, entry.get("slept"));
            slept.is_none().then(|| (name.clone(), woken))
        });
        each.collect::<Option<BTreeMap<_, _>>>()
            .filter(|each| each.len() == 2)
    };
    world.status(&what, when).await
}

#[tokio::test(flavor = "multi_thread")]
async fn unneeded_members_sleep_and_wake_by_policy_and_unused_maximum_is_divided_again() {
    let rooms = [("member1", 22), ("member2", 6), ("member3", 20)];
    let world = FleetWorld::start("zero", &rooms).await;
    world.deploy_everywhere(1).await;
    world.load.evenly(5.0);
    let weights = assignment("StaticWeighted", "staticWeight", [1, 2, 3]);
    let more = json!({
        "scalingToZero": true,
        // Without cooldowns no member is woken too soon after a sleep, which would keep it awake for an hour.
        "rebalance": { "cooldownSeconds": 0, "settleObservations": 2 },
        "federatedHPAAssignment": weights,
    });
    world.ask("StaticWeighted", (1, 6), &more).await;
    let controller = world.run();
    let cases = [
        // The lightest sleep first.
        (weights.clone(), "member3"),
        // Of equal members the last by name: each can run all replicas.
        (
            assignment("DynamicWeighted", "staticWeight", [1, 1, 1]),
            "member1",
        ),
        (
            assignment("Aggregated", "staticWeight", [1, 1, 1]),
            "member1",
        ),
        (assignment("Prioritized", "priority", [2, 3, 1]), "member2"),
    ];
    for (assignment, last) in cases {
        let policy = assignment["federatedHPAAssignmentType"].to_string();
        world
            .edit(json!({ "federatedHPAAssignment": assignment }))
            .await;
        world
            .runs_so(&format!("{policy}: five, in three members"), |found| {
                let all: i32 = found.values().map(|(_, ready)| *ready).sum();
                all >= 5 && found.values().all(|(asked, _)| *asked > 0)
            })
            .await;
        world.load.evenly(0.5);
        world
            .runs_so(&format!("{policy}: {last} alone is awake"), |found| {
                found
                    .iter()
                    .all(|(name, counts)| *counts == if name == last { (1, 1) } else { (0, 0) })
            })
            .await;
        // Their HPAs stay.
        assert_eq!(world.bounds().await.len(), 3, "{policy}");
        world.load.evenly(5.0);
        let when = wake_times(&world, &policy, last).await;
        if policy.contains("Prioritized") {
            assert!(when["member1"] <= when["member3"], "{when:?}");
        } else {
            let decisions: BTreeSet<i64> = when.values().copied().collect();
            assert_eq!(
                decisions.len(),
                1,
                "{policy}: one decision wakes all: {when:?}"
            );
        }
    }
    world
        .runs_so("five again", |found| {
            found.values().map(|(_, ready)| *ready).sum::<i32>() >= 5
        })
        .await;

    // Members of a duplicated fleet never sleep, even if they may.
    let duplicated = |may: bool| {
        json!({
            "scalingToZero": may,
            "federatedHPAAssignment": { "federatedHPAAssignmentType": "Duplicated" },
        })
    };
    world.edit(duplicated(false)).await;
    world.load.evenly(0.5);
    world
        .runs(
            "one each",
            &[("member1", 1), ("member2", 1), ("member3", 1)],
        )
        .await;
    world.edit(duplicated(true)).await;
    controller.further_syncs(6).await;
    world
        .runs(
            "one each",
            &[("member1", 1), ("member2", 1), ("member3", 1)],
        )
        .await;

    unused_maximum_by_capacity(&world).await;
    unused_maximum_to_the_largest_capacity(&world, &controller).await;
    unused_maximum_by_priority(&world, &controller).await;
    saturated_by_priority(&world, &controller).await;
    drop(controller);
    world.assert_nothing_forbidden();
}

/// One member is at its maximum and needs no more; the others use little. In time it gets more maximum.
async fn unused_maximum_by_capacity(world: &FleetWorld) {
    world
        .edit(json!({
            "minReplicas": 6,
            "maxReplicas": 25,
            "rebalance": { "cooldownSeconds": 1, "settleObservations": 2 },
            "federatedHPAAssignment": {
                "federatedHPAAssignmentType": "DynamicWeighted",
                "clusterAutoscalingPreference": null,
            },
        }))
        .await;
    // 25 over 22:6:20 is 11.46, 3.13, 10.42.
    let start = [("member1", 12), ("member2", 3), ("member3", 10)];
    world.capped("by capacity", &start).await;
    // Not before, because the maxima move within seconds of it.
    world.load.locally(&[("member1", 11.6)]);
    world
        .bounds_are("more room for the first, of the same total", |found| {
            let all: i32 = found.values().map(|(_, max)| max).sum();
            found["member1"].1 > 12 && all == 25
        })
        .await;
    world.event("Optimized", "member1").await;
}

/// The first has nearly all and uses a third of it; the third has little and uses it up. Unused maximum goes to the
/// member with most capacity besides what it runs: 17 in the third, 14 in the first.
async fn unused_maximum_to_the_largest_capacity(world: &FleetWorld, controller: &Controller) {
    world.wait_until_stable(controller).await;
    world
        .edit(json!({
            "minReplicas": 1,
            "scalingToZero": false,
            "federatedHPAAssignment": { "federatedHPAAssignmentType": "Aggregated" },
        }))
        .await;
    let start = [("member1", 22), ("member3", 3)];
    world.capped("the largest first", &start).await;
    world.load.locally(&[("member1", 7.8), ("member3", 2.8)]);
    let moved = [("member1", 8), ("member3", 17)];
    world
        .capped("all that is unused in the third", &moved)
        .await;
    world.event("Optimized", "member3").await;
    let runs = [("member1", 8), ("member2", 0), ("member3", 3)];
    world.runs("no member changes its replicas", &runs).await;
    // The minimum counts again, for the next step.
    world.load.locally(&[("member1", 0.95)]);
    let least = [("member1", 1), ("member2", 0), ("member3", 1)];
    world.runs("one each", &least).await;
}

/// The highest priority has all that its nodes can run, and uses it. With more nodes it gets the unused maximum of the
/// next one, as much as they can run.
async fn unused_maximum_by_priority(world: &FleetWorld, controller: &Controller) {
    world.wait_until_stable(controller).await;
    world
        .edit(json!({
            "maxReplicas": 20,
            "federatedHPAAssignment": with_preferences("Prioritized", "priority", &PRIORITIES),
        }))
        .await;
    let start = [("member1", 14), ("member2", 6)];
    world.capped("the highest is filled", &start).await;
    world.load.locally(&[("member1", 0.95), ("member2", 5.6)]);
    let full = [("member1", 1), ("member2", 6), ("member3", 0)];
    world.runs("the highest is full", &full).await;
    controller.further_syncs(5).await;
    world.capped("no room to move it to", &start).await;
    let more = [room(10)];
    world.cluster("member2").add_nodes(&more).await.unwrap();
    let moved = [("member1", 4), ("member2", 16)];
    world.capped("what the new node can run", &moved).await;
    world.event("Optimized", "member2").await;
    world.runs("no member changes its replicas", &full).await;
}

/// The lowest priority is at its maximum and needs more: the next lowest gives its unused maximum first, then the
/// highest.
async fn saturated_by_priority(world: &FleetWorld, controller: &Controller) {
    // Each runs what it needs, so that none shrinks.
    world.load.locally(&[("member1", 0.95), ("member2", 1.9)]);
    world.runs("two in the second", &[("member2", 2)]).await;
    let each = |third: f64| [("member1", 1.9), ("member2", 1.9), ("member3", third)];
    world.load.locally(&each(0.95));
    world.runs("two in the first", &[("member1", 2)]).await;
    world.wait_until_stable(controller).await;
    let preference = |name: &str, priority: i32, most: i32| {
        json!({
            "targetCluster": { "clusterNames": [name] },
            "priority": priority,
            "autoscalingMaxThreshold": most,
        })
    };
    world
        .edit(json!({
            "maxReplicas": 32,
            "rebalance": { "cooldownSeconds": 5, "settleObservations": 2 },
            "federatedHPAAssignment": { "clusterAutoscalingPreference": [
                preference("member1", 3, 22),
                preference("member2", 2, 6),
                preference("member3", 1, 32),
            ] },
        }))
        .await;
    let maxima =
        |first, second, third| [("member1", first), ("member2", second), ("member3", third)];
    world.capped("by priority", &maxima(22, 6, 4)).await;
    world.load.locally(&each(6.8));
    world.capped("three of the second", &maxima(22, 3, 7)).await;
    world.runs("seven in the third", &[("member3", 7)]).await;
    world.load.locally(&each(11.8));
    let last = maxima(18, 2, 12);
    world
        .capped("one of the second, four of the first", &last)
        .await;
    world.event("Saturated", "member3").await;
    world.event("Donor", "member1").await;
    let runs = [("member1", 2), ("member2", 2), ("member3", 12)];
    world.runs("twelve in the third", &runs).await;
    controller.further_syncs(5).await;
    world.capped("still", &last).await;
    world.runs("still", &runs).await;
}
