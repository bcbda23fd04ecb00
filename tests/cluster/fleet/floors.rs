//! What cron windows and forecasts ask of a fleet becomes a floor in each member, divided by the
//! policy; history comes from one Prometheus for all, or from one for each.

use serde_json::{Value, json};

use super::world::{Bounds, FleetWorld, preferring};

/// A window that is open since the last full minute until the next new year.
fn window(replicas: u32) -> Value {
    json!([{
        "name": "floor", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": replicas,
    }])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_target_becomes_a_floor_in_each_member_by_every_policy() {
    let rooms = [("member1", 10), ("member2", 6), ("member3", 20)];
    let world = FleetWorld::start("floors", &rooms).await;
    world.deploy_everywhere(1).await;
    let weights = [("member1", 1), ("member2", 2), ("member3", 3)];
    let priorities = [("member1", 2), ("member2", 3), ("member3", 1)];
    let plain = |policy: &str| json!({ "federatedHPAAssignmentType": policy });
    let cases: [(Value, &[(&str, Bounds)]); 4] = [
        // 12 over 1:2:3.
        (
            preferring("StaticWeighted", "staticWeight", &weights),
            &[
                ("member1", (2, 4)),
                ("member2", (4, 8)),
                ("member3", (6, 13)),
            ],
        ),
        // 12 over 10:6:20, by seats: 3.33, 2, 6.67.
        (
            plain("DynamicWeighted"),
            &[
                ("member1", (3, 7)),
                ("member2", (2, 4)),
                ("member3", (7, 14)),
            ],
        ),
        // The highest priority first; the last one keeps its minimum of one.
        (
            preferring("Prioritized", "priority", &priorities),
            &[
                ("member1", (5, 10)),
                ("member2", (6, 6)),
                ("member3", (1, 9)),
            ],
        ),
        // The largest first; the other keeps its minimum of one.
        (
            plain("Aggregated"),
            &[("member1", (1, 5)), ("member3", (11, 20))],
        ),
    ];
    let quiet = json!({ "cooldownSeconds": 600 });
    let more = json!({ "crons": window(12), "rebalance": quiet });
    world.ask("Duplicated", (3, 25), &more).await;
    let controller = world.run();
    let whole = (12, 25);
    world
        .assigned(
            "twelve each",
            &[("member1", whole), ("member2", whole), ("member3", whole)],
        )
        .await;
    for (assignment, expected) in cases {
        let policy = assignment["federatedHPAAssignmentType"].to_string();
        world
            .edit(json!({ "federatedHPAAssignment": assignment }))
            .await;
        world.assigned(&policy, expected).await;
    }
    world
        .runs("twelve", &[("member1", 1), ("member2", 0), ("member3", 11)])
        .await;
    world.edit(json!({ "crons": null })).await;
    world
        .assigned("no floor", &[("member1", (1, 5)), ("member3", (3, 20))])
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}
