//! Ownership of HPAs in members: a foreign HPA is not modified, or adopted and restored; a target created again is
//! managed again; and the deletion of a fleet waits for an unreachable member only for a limited time.

use foretide::clock::Clock;
use jiff::SignedDuration;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt;
use rig::eventually;
use serde_json::{Value, json};

use super::world::{Bounds, FleetWorld, SHOP, with_preferences};
use crate::{
    manual_changes::{delete, wait_until_deleted},
    world::{Controller, NAMESPACE, TIMEOUT, pass_to},
};

const ADOPT: &str = "autoscaling.foretide.io/adopt";
const BY_HAND: &str = "shop-by-hand";

/// An HPA made by users of a member.
fn by_hand() -> Value {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": BY_HAND, "namespace": NAMESPACE, "labels": { "team": "shop" } },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": SHOP },
            "minReplicas": 2,
            "maxReplicas": 5,
            "metrics": [{ "type": "Resource", "resource": {
                "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 },
            }}],
            "behavior": { "scaleDown": {
                "stabilizationWindowSeconds": 7, "selectPolicy": "Disabled",
            }},
        },
    })
}

async fn foreign(world: &FleetWorld) -> HorizontalPodAutoscaler {
    world.hpas("member2").get(BY_HAND).await.unwrap()
}

async fn restored_original(world: &FleetWorld, original: &HorizontalPodAutoscaler) {
    let released = eventually(TIMEOUT, "the autoscaler is restored", || async {
        let now = foreign(world).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hpas_in_members_are_kept_or_adopted_and_managed_hpas_are_deleted_with_the_fleet() {
    let rooms = [("member1", 10), ("member2", 10), ("member3", 10)];
    let world = FleetWorld::start_apart("fleet-ownership", &rooms).await;
    for member in ["member1", "member3"] {
        world.join(member, &[]).await;
    }
    world.deploy_everywhere(2).await;
    world.load.evenly(6.0);
    let weights = with_preferences(
        "StaticWeighted",
        "staticWeight",
        &[("member1", 1), ("member2", 1), ("member3", 1)],
    );
    let more = json!({ "federatedHPAAssignment": weights });
    world.ask("StaticWeighted", (3, 12), &more).await;
    let controller = world.run();
    let half: Bounds = (2, 6);
    let found = world.bounds_are("halves", |found| found.len() == 2).await;
    assert_eq!((found["member1"].1, found["member3"].1), (half.1, half.1));

    // A member with an HPA of its own joins.
    world
        .cluster("member2")
        .apply(&by_hand().to_string())
        .await
        .unwrap();
    eventually(TIMEOUT, "the foreign HPA scales", || async {
        let status = foreign(&world).await.status.unwrap_or_default();
        let seen = status.current_metrics.is_some();
        if seen {
            Ok(())
        } else {
            Err("it has read nothing yet")
        }
    })
    .await;
    let original = foreign(&world).await;
    world.join("member2", &[]).await;
    world.reason("member2", "Foreign").await;
    let message = world.condition("Ready", "False/TargetConflict").await;
    assert!(
        ["member2", BY_HAND, ADOPT]
            .iter()
            .all(|word| message.contains(word)),
        "{message}"
    );
    controller.further_syncs(3).await;
    assert_eq!(foreign(&world).await.spec, original.spec);
    let writes = world.member_writes();
    let touched = writes.iter().any(|write| write.starts_with("member2"));
    assert!(!touched, "{writes:?}");

    // It is adopted: the same object continues with its share of our bounds.
    let patch = json!({ "metadata": { "annotations": { ADOPT: "true" } } });
    crate::manual_changes::edit(&world.federated(), SHOP, patch).await;
    let thirds = [("member1", 4), ("member2", 4), ("member3", 4)];
    world.capped("thirds", &thirds).await;
    assert_eq!(foreign(&world).await.uid(), original.uid());
    world
        .runs_so("two each, or one more", |found| {
            let all: i32 = found.values().map(|(asked, _)| *asked).sum();
            let mut each = found.values();
            (6..=8).contains(&all) && each.all(|(asked, ready)| asked == ready && *asked >= 2)
        })
        .await;

    // The target is deleted in one member, and created again.
    delete(&world.deployments("member3"), SHOP).await;
    world.reason("member3", "TargetAbsent").await;
    world
        .bounds_are("the others have its share", |found| {
            ["member1", "member2"]
                .iter()
                .all(|name| found[*name].1 == half.1)
        })
        .await;
    world.deploy("member3", 1).await;
    world.capped("thirds again", &thirds).await;

    // The fleet is deleted while a member is unreachable: the leftover is deleted when the member returns.
    world.fleet.member("member3").block();
    world
        .condition("MembersReachable", "False/Unreachable")
        .await;
    drop(controller);
    let clock = Clock::simulated(Clock::system().now());
    let waiting = Controller::run(world.config(), clock.clone());
    let reachable = ["member1", "member2"];
    world.further_observations_of(&reachable, 2).await;
    waiting.further_syncs(1).await;
    delete(&world.federated(), SHOP).await;
    // Then the deletion waits five minutes for the member.
    world
        .bounds_are("the HPAs of reachable members are gone", |found| {
            found.keys().map(String::as_str).eq(["member2", "member3"])
        })
        .await;
    pass_to(&clock, clock.now() + SignedDuration::from_mins(6));
    wait_until_deleted(&world.federated(), SHOP).await;
    restored_original(&world, &original).await;
    let found = world.bounds().await;
    let left: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(left, ["member2", "member3"]);
    drop(waiting);
    let controller = world.run();
    world.fleet.member("member3").unblock();
    world
        .bounds_are("no managed HPA", |found| found.len() == 1)
        .await;
    world
        .runs_so("all members run", |found| {
            let mut each = found.values();
            each.all(|(asked, ready)| asked == ready && *asked >= 1)
        })
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}
