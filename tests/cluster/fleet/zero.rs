//! Members that are not needed sleep at zero and wake when they are, in the order of the policy; and
//! head-room that nobody uses is divided anew.

use serde_json::{Value, json};

use super::world::FleetWorld;

/// No member may have more than this: so the last one awake is soon full.
const EACH: i32 = 3;

/// A policy with a number for each member (`staticWeight`, `priority`, or nothing that counts).
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

#[tokio::test(flavor = "multi_thread")]
async fn unneeded_members_sleep_and_wake_by_policy_and_unused_room_is_divided_anew() {
    let rooms = [("member1", 20), ("member2", 6), ("member3", 20)];
    let world = FleetWorld::start("zero", &rooms).await;
    world.deploy_everywhere(1).await;
    world.load.evenly(5.0);
    let weights = assignment("StaticWeighted", "staticWeight", [1, 2, 3]);
    let more = json!({
        "scalingToZero": true,
        // Without cooldowns nobody is woken too soon after a sleep, which would keep it awake for an hour.
        "rebalance": { "cooldownSeconds": 0, "settleObservations": 2 },
        "federatedHPAAssignment": weights,
    });
    world.ask("StaticWeighted", (1, 6), &more).await;
    let controller = world.run();
    let cases = [
        // The lightest sleep first.
        (weights.clone(), "member3"),
        // Of equal ones the last by name: each can run the whole.
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
            .runs_so(&format!("{policy}: five, in several members"), |found| {
                let all: i32 = found.values().map(|(_, ready)| *ready).sum();
                all >= 5 && found.values().filter(|(asked, _)| *asked > 0).count() > 1
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
        // Their autoscalers stay, ready to go on.
        assert!(world.bounds().await.len() > 1, "{policy}");
        world.load.evenly(5.0);
    }
    world
        .runs_so("five again", |found| {
            found.values().map(|(_, ready)| *ready).sum::<i32>() >= 5
        })
        .await;

    // Whole members never sleep, though they might.
    let whole = |may: bool| {
        json!({
            "scalingToZero": may,
            "federatedHPAAssignment": { "federatedHPAAssignmentType": "Duplicated" },
        })
    };
    world.edit(whole(false)).await;
    world.load.evenly(0.5);
    world
        .runs(
            "one each",
            &[("member1", 1), ("member2", 1), ("member3", 1)],
        )
        .await;
    world.edit(whole(true)).await;
    controller.further_syncs(6).await;
    world
        .runs(
            "one each",
            &[("member1", 1), ("member2", 1), ("member3", 1)],
        )
        .await;

    // One member is at its maximum and wants no more; the others use little. In time it gets room.
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
    world.load.locally(&[("member1", 11.0)]);
    // 25 over 20:6:20 is 10.87, 3.26, 10.87.
    let start = [("member1", 11), ("member2", 3), ("member3", 11)];
    world.capped("by capacity", &start).await;
    let found = world
        .bounds_are("more room for the first", |found| found["member1"].1 > 11)
        .await;
    assert_eq!(
        found.values().map(|(_, max)| max).sum::<i32>(),
        25,
        "{found:?}"
    );
    world.event("Optimized", "member1").await;
    drop(controller);
    world.assert_nothing_forbidden();
}
