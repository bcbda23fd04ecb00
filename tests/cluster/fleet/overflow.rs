//! Priorities: replicas without a node in the first cluster overflow to the next, and the last one is the first to
//! shrink.

use std::cell::Cell;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use rig::eventually;
use serde_json::{Value, json};

use super::world::{FleetWorld, SHOP, cluster};
use crate::world::{NAMESPACE, TIMEOUT};

/// Seconds for which pods must be unschedulable, as set by `fhpa`.
const DELAY: i64 = 3;
/// Seconds after a transfer in which no further member is used.
const COOLDOWN: i64 = 10;

/// Since when the scheduler of a member reports pods of the shop as unschedulable.
async fn unschedulable_since(world: &FleetWorld, member: &str) -> Timestamp {
    let pods: Api<Pod> = Api::namespaced(world.cluster(member).client(), NAMESPACE);
    let only = ListParams::default().labels(&format!("app={SHOP}"));
    eventually(TIMEOUT, "the scheduler finds no node", || async {
        let pods = pods.list(&only).await.map_err(|error| error.to_string())?;
        let conditions = pods
            .iter()
            .filter_map(|pod| pod.status.as_ref()?.conditions.as_ref())
            .flatten();
        let unschedulable = conditions.filter(|one| {
            one.type_ == "PodScheduled" && one.reason.as_deref() == Some("Unschedulable")
        });
        let since = unschedulable.filter_map(|one| one.last_transition_time.as_ref());
        since
            .map(|time| time.0)
            .min()
            .ok_or("all have one".to_owned())
    })
    .await
}

/// When the hub woke a member, by its ledger.
async fn woken(world: &FleetWorld, member: &str) -> Timestamp {
    let when = |status: &Value| {
        let ledger: Value = serde_json::from_str(status["ledger"].as_str()?).ok()?;
        let second = ledger["members"][member]["woken"].as_i64()?;
        Timestamp::from_second(second).ok()
    };
    world.status(&format!("{member} is woken"), when).await
}

#[tokio::test(flavor = "multi_thread")]
async fn unschedulable_pods_overflow_to_the_next_priority_and_the_lowest_drains_first() {
    let rooms = [("member1", 5), ("member2", 5), ("member3", 20)];
    let world = FleetWorld::start("overflow", &rooms).await;
    for (member, replicas) in [("member1", 2), ("member2", 0), ("member3", 0)] {
        world.deploy(member, replicas).await;
    }
    // The first is declared elastic, and never adds nodes.
    let preference = |name: &str, priority: i32, elastic: bool| {
        let target = json!({ "clusterNames": [name] });
        json!({ "targetCluster": target, "priority": priority, "elastic": elastic })
    };
    let more = json!({
        "scalingToZero": true,
        // Longer than a pod should take to start: until it is ready, its cluster seems to need the next one.
        "rebalance": { "cooldownSeconds": COOLDOWN, "settleObservations": 2 },
        "federatedHPAAssignment": {
            "federatedHPAAssignmentType": "Prioritized",
            "clusterAutoscalingPreference": [
                preference("member1", 3, true),
                preference("member2", 2, false),
                preference("member3", 1, false),
            ],
        },
    });
    world.load.evenly(4.0);
    world.ask("Prioritized", (2, 20), &more).await;
    let controller = world.run();
    world
        // Its minimum is raised as soon as the load of its pods is known.
        .capped("all for the first", &[("member1", 20)])
        .await;
    world.runs("four in the first", &[("member1", 4)]).await;

    // More than its nodes can run: after the delay the next one helps, and only that one.
    let third = world.watch("member3").await;
    world.load.evenly(9.0);
    let since = unschedulable_since(&world, "member1").await;
    let moved = world
        .status("a transfer to member2", |status| {
            let text = cluster(status, "member2")?.get("lastTransfer")?.as_str()?;
            let moved: Timestamp = text.parse().unwrap();
            (moved > since).then_some(moved)
        })
        .await;
    let waited = moved.duration_since(since).as_secs();
    assert!(waited >= DELAY, "moved after {waited} s");
    world
        .runs_so("nine, the first full", |found| {
            let others = found["member2"].1 + found["member3"].1;
            found["member1"] == (5, 5) && (4..=5).contains(&others)
        })
        .await;
    // Where pods take longer than the cooldown to start, the last one helps too, correctly.
    if third.range() != (0, 0) {
        let waited = woken(&world, "member3").await.duration_since(moved);
        assert!(
            waited.as_secs() >= COOLDOWN,
            "too far down after {waited:?}: {:?}",
            third.all()
        );
    }
    world
        .bounds_are("the first has what fits", |found| {
            found.get("member1").map(|(_, max)| *max) == Some(5)
        })
        .await;

    // And the next.
    world.load.evenly(16.0);
    world
        .runs_so("sixteen in three members", |found| {
            let third = found["member3"].1;
            found["member1"] == (5, 5) && found["member2"] == (5, 5) && (5..=8).contains(&third)
        })
        .await;

    // The load falls: the last shrinks first, and the first keeps its replicas.
    let (first, second) = (world.watch("member1").await, world.watch("member2").await);
    world.load.evenly(7.0);
    // Read before what it is compared with.
    let lowest_before = Cell::new(second.lowest());
    world
        .runs_so("the last one drained", |found| {
            let is_drained = found["member3"].0 <= 1;
            let lowest = lowest_before.replace(second.lowest());
            assert!(
                is_drained || lowest >= 5,
                "the second shrank before the last: {found:?}"
            );
            is_drained
        })
        .await;
    world
        .runs_so("seven or a few more in all", |found| {
            let all: i32 = found.values().map(|(asked, _)| *asked).sum();
            (7..=9).contains(&all)
        })
        .await;
    assert!(first.lowest() >= 5, "{:?}", first.all());

    // Almost no load: members that are not needed scale to zero, and wake again.
    world.load.evenly(1.5);
    world
        .runs(
            "two in the first",
            &[("member1", 2), ("member2", 0), ("member3", 0)],
        )
        .await;
    controller.further_syncs(5).await;
    world
        .runs(
            "two in the first",
            &[("member1", 2), ("member2", 0), ("member3", 0)],
        )
        .await;
    world.load.evenly(9.0);
    world
        .runs_so("nine, the first full", |found| {
            let ready: i32 = found.values().map(|(_, ready)| *ready).sum();
            found["member1"] == (5, 5) && ready >= 9
        })
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}
