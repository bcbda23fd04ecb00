//! The hub places the workload into the members that have a share, and nowhere else. New versions are rolled out while
//! HPAs scale, deleted copies are created again, and an excluded member is drained. A preview writes nothing. A
//! deletion keeps the workload and, if requested, the HPAs.

use std::{collections::BTreeSet, ops::RangeInclusive};

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use kube::{Api, ResourceExt};
use rig::eventually;
use serde_json::{Value, json};

use super::world::{FleetWorld, SHOP, cluster, shop, with_preferences};
use crate::{
    manual_changes::{delete, edit, wait_until_deleted, written},
    world::{Controller, NAMESPACE, TIMEOUT},
};

/// Waits until every named member runs this image, with all pods ready and none of another image.
async fn rolled_out(world: &FleetWorld, members: &[&str], image: &str) {
    for member in members {
        eventually(TIMEOUT, &format!("{member} runs {image}"), || async {
            let found = world.deployments(member).get(SHOP).await;
            let found = found.map_err(|error| error.to_string())?;
            let spec = serde_json::to_value(&found.spec).unwrap();
            let status = found.status.unwrap_or_default();
            let asked = spec["replicas"].as_i64().unwrap_or(1);
            let [updated, ready, all] = [
                status.updated_replicas,
                status.ready_replicas,
                status.replicas,
            ]
            .map(|count| i64::from(count.unwrap_or(0)));
            let runs = &spec["template"]["spec"]["containers"][0]["image"];
            let seen = status.observed_generation == found.metadata.generation;
            if runs == image && seen && [updated, ready, all] == [asked; 3] {
                Ok(())
            } else {
                Err(format!(
                    "{runs}: {updated} updated, {ready} ready, {all} of {asked}"
                ))
            }
        })
        .await;
    }
}

/// Waits until two members run this number of replicas together, all of them ready.
async fn serve(world: &FleetWorld, two: [&str; 2], count: RangeInclusive<i32>) {
    world
        .runs_so(&format!("{count:?} in {two:?}"), |found| {
            let counts = two.map(|name| found[name]);
            let all: i32 = counts.iter().map(|(asked, _)| asked).sum();
            count.contains(&all) && counts.iter().all(|(asked, ready)| asked == ready)
        })
        .await;
}

/// Waits until status shows the share of every member, the count of the fleet, and where the workload is and would be
/// placed.
async fn previewed(world: &FleetWorld, count: i64, halves: &[(&str, i32)]) {
    let same = |status: &Value| {
        let shares = halves.iter().all(|(name, max)| {
            let found = cluster(status, name);
            found.is_some_and(|one| one["max"] == *max)
        });
        let runs = |name| cluster(status, name).map(|one| one["current"].as_i64());
        let where_it_is = (runs("member1"), runs("member2")) == (Some(None), Some(Some(4)));
        let reason = cluster(status, "member1").and_then(|one| one["reason"].as_str());
        let placed = reason.is_some_and(|reason| reason.contains("the hub places the workload"));
        let decided = status["expectReplicas"].as_i64() == Some(count);
        (shares && where_it_is && placed && decided).then_some(())
    };
    world
        .status(&format!("{count} over {halves:?}"), same)
        .await;
}

/// Only status and events were written, and the members are unchanged.
async fn nothing_was_written(world: &FleetWorld, controller: &Controller) {
    controller.further_syncs(3).await;
    assert_eq!(world.member_writes(), BTreeSet::new());
    let writes = world.hub_requests().into_iter();
    let writes = writes.filter(rig::AuditEvent::is_write);
    let wrote: BTreeSet<String> = writes.map(|event| written(&event)).collect();
    let allowed = ["federatedhpas/status", "events"];
    assert!(
        wrote.iter().all(|what| allowed.contains(&what.as_str())),
        "{wrote:?}"
    );
    let fleet = world.federated().get(SHOP).await.unwrap();
    assert!(fleet.finalizers().is_empty());
    assert_eq!(world.bounds().await.len(), 0);
    for (member, found) in [("member1", None), ("member2", Some(4)), ("member3", None)] {
        let shop = world.deployments(member).get_opt(SHOP).await.unwrap();
        let replicas = shop.and_then(|shop| shop.spec?.replicas);
        assert_eq!(replicas, found, "{member}");
    }
}

/// The HPA of a member without its status.
async fn without_status(world: &FleetWorld, member: &str) -> HorizontalPodAutoscaler {
    let mut found = world.child(member).await.unwrap();
    found.status = None;
    found.metadata.managed_fields = None;
    found.metadata.resource_version = None;
    found
}

fn image(name: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{
        "name": "app", "image": name, "resources": { "requests": { "cpu": "200m" } },
    }] } } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workload_of_the_hub_is_placed_updated_and_withdrawn_while_members_scale_it() {
    let rooms = [("member1", 10), ("member2", 10), ("member3", 10)];
    let world = FleetWorld::start_apart("placement", &rooms).await;
    for (member, _) in rooms {
        world.join(member, &["--place"]).await;
    }
    world
        .fleet
        .hub
        .apply(&shop(Some(0)).to_string())
        .await
        .unwrap();
    let templates: Api<Deployment> = Api::namespaced(world.fleet.hub.client(), NAMESPACE);
    let weights = with_preferences(
        "StaticWeighted",
        "staticWeight",
        &[("member1", 1), ("member2", 1)],
    );
    let more = json!({ "workloadSource": "Hub", "federatedHPAAssignment": weights });
    world.load.evenly(6.0);
    let halves = [("member1", 8), ("member2", 8)];
    // One member has a workload of that name made by hand; a preview shows the result of a placement.
    let mut by_hand = shop(Some(4));
    by_hand["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:0");
    let by_hand = by_hand.to_string();
    world.cluster("member2").apply(&by_hand).await.unwrap();
    let mut preview = more.clone();
    preview["scaleStrategy"] = json!("Preview");
    world.ask("StaticWeighted", (4, 16), &preview).await;
    let controller = world.run();
    previewed(&world, 6, &halves).await;
    world.load.evenly(9.0);
    previewed(&world, 9, &halves).await;
    nothing_was_written(&world, &controller).await;

    // Auto instead of Preview.
    world.load.evenly(6.0);
    world.edit(json!({ "scaleStrategy": "Auto" })).await;
    world.capped("halves", &halves).await;
    rolled_out(&world, &["member1", "member2"], "app:1").await;
    serve(&world, ["member1", "member2"], 6..=8).await;
    // The third has no share, and the hub runs nothing itself.
    assert_eq!(
        world.deployments("member3").get_opt(SHOP).await.unwrap(),
        None
    );
    let template = templates.get(SHOP).await.unwrap();
    assert_eq!(template.spec.and_then(|spec| spec.replicas), Some(0));

    // A rolling update while the load grows, then a Recreate while it falls.
    world.load.evenly(12.0);
    edit(&templates, SHOP, image("app:2")).await;
    rolled_out(&world, &["member1", "member2"], "app:2").await;
    serve(&world, ["member1", "member2"], 11..=14).await;
    edit(
        &templates,
        SHOP,
        json!({ "spec": { "strategy": { "type": "Recreate", "rollingUpdate": null } } }),
    )
    .await;
    world.load.evenly(8.0);
    edit(&templates, SHOP, image("app:3")).await;
    rolled_out(&world, &["member1", "member2"], "app:3").await;
    serve(&world, ["member1", "member2"], 8..=10).await;

    // A copy deleted by hand in a member is created again.
    delete(&world.deployments("member2"), SHOP).await;
    rolled_out(&world, &["member2"], "app:3").await;
    serve(&world, ["member1", "member2"], 8..=10).await;

    // The third gets the share of the first: its pods are ready before the first is drained and deleted.
    let weights = with_preferences(
        "StaticWeighted",
        "staticWeight",
        &[("member2", 1), ("member3", 1)],
    );
    // Meanwhile pods of all three share the load, and each HPA reads little of it: earlier recommendations stay in
    // effect for longer than that takes, as they do by default.
    let patient = json!({ "scaleDown": { "stabilizationWindowSeconds": 60 } });
    world
        .edit(json!({
            "behavior": patient,
            "clusterAffinity": { "exclude": ["member1"] },
            "federatedHPAAssignment": weights,
        }))
        .await;
    eventually(TIMEOUT, "the first is withdrawn", || async {
        let ready = world.serving(&rooms.map(|(member, _)| member)).await;
        assert!(ready >= 7, "only {ready} serve");
        let found = world.deployments("member1").get_opt(SHOP).await.unwrap();
        if found.is_none() {
            Ok(())
        } else {
            Err(format!("{ready} serve"))
        }
    })
    .await;
    // Minima raised by a floor while pods moved may stay above the budget.
    let others = [("member2", 8), ("member3", 8)];
    world.capped("the other halves", &others).await;
    world.edit(json!({ "behavior": null })).await;

    // The fleet is deleted and retains its HPAs: they have no owner then, and continue to scale.
    serve(&world, ["member2", "member3"], 8..=12).await;
    world.edit(json!({ "deletionPolicy": "Retain" })).await;
    delete(&world.federated(), SHOP).await;
    wait_until_deleted(&world.federated(), SHOP).await;
    world.capped("what is left", &others).await;
    world.load.evenly(13.0);
    serve(&world, ["member2", "member3"], 12..=15).await;
    world.load.evenly(8.0);
    serve(&world, ["member2", "member3"], 8..=12).await;
    let mut retained = Vec::new();
    for (member, _) in others {
        let found = without_status(&world, member).await;
        let marks = found.labels().iter().chain(found.annotations());
        let ours: Vec<_> = marks
            .filter(|(key, value)| key.contains("foretide") || value.contains("foretide"))
            .collect();
        assert_eq!(ours, [], "{member}: it has an owner");
        assert!(found.finalizers().is_empty(), "{member}");
        assert_eq!(found.owner_references(), [], "{member}");
        retained.push(found);
    }

    // A new fleet treats them as foreign: they are named and not modified, and neither is the workload.
    let before = world.member_write_count();
    let weights = json!({ "federatedHPAAssignment": weights });
    let mut again = more.clone();
    let fields = weights.as_object().unwrap().clone();
    again.as_object_mut().unwrap().extend(fields);
    again["clusterAffinity"] = json!({ "exclude": ["member1"] });
    world.ask("StaticWeighted", (4, 16), &again).await;
    world.reason("member2", "Foreign").await;
    world.reason("member3", "Foreign").await;
    controller.further_syncs(3).await;
    assert_eq!(world.member_write_count(), before);
    for (at, (member, _)) in others.into_iter().enumerate() {
        assert_eq!(
            without_status(&world, member).await,
            retained[at],
            "{member}"
        );
        delete(&world.hpas(member), &retained[at].name_any()).await;
    }
    // Without them, the fleet has HPAs of its own, which are deleted with it; the workload and its replicas stay.
    world.capped("our own", &others).await;
    serve(&world, ["member2", "member3"], 8..=12).await;
    delete(&world.federated(), SHOP).await;
    wait_until_deleted(&world.federated(), SHOP).await;
    world
        .bounds_are(
            "no autoscaler is left",
            std::collections::BTreeMap::is_empty,
        )
        .await;
    serve(&world, ["member2", "member3"], 8..=12).await;
    drop(controller);
    world.assert_nothing_forbidden();
}
