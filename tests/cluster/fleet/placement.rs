//! The hub places the workload: into the members that have a share, and nowhere else; new versions
//! flow while autoscalers scale, what is deleted comes back, what is deselected drains and goes.

use std::ops::RangeInclusive;

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use rig::eventually;
use serde_json::{Value, json};

use super::world::{FleetWorld, SHOP, preferring, shop};
use crate::{
    hands::{delete, edit, gone},
    world::{NAMESPACE, PATIENCE},
};

/// Waits until every named member runs this image, all pods of it ready and none of another.
async fn rolled_out(world: &FleetWorld, members: &[&str], image: &str) {
    for member in members {
        eventually(PATIENCE, &format!("{member} runs {image}"), || async {
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

/// Waits until two members run so many replicas together, all of them ready.
async fn serve(world: &FleetWorld, two: [&str; 2], count: RangeInclusive<i32>) {
    world
        .runs_so(&format!("{count:?} in {two:?}"), |found| {
            let counts = two.map(|name| found[name]);
            let all: i32 = counts.iter().map(|(asked, _)| asked).sum();
            count.contains(&all) && counts.iter().all(|(asked, ready)| asked == ready)
        })
        .await;
}

fn image(name: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{
        "name": "app", "image": name, "resources": { "requests": { "cpu": "200m" } },
    }] } } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hubs_workload_is_placed_updated_and_withdrawn_while_members_scale_it() {
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
    let weights = preferring(
        "StaticWeighted",
        "staticWeight",
        &[("member1", 1), ("member2", 1)],
    );
    let more = json!({ "workloadSource": "Hub", "federatedHPAAssignment": weights });
    world.load.evenly(6.0);
    world.ask("StaticWeighted", (4, 16), &more).await;
    let controller = world.run();
    let halves = [("member1", (2, 8)), ("member2", (2, 8))];
    world.assigned("halves", &halves).await;
    serve(&world, ["member1", "member2"], 6..=8).await;
    // Nobody asked the third, and the hub runs nothing itself.
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

    // Deleted by hand in a member, it comes back.
    delete(&world.deployments("member2"), SHOP).await;
    rolled_out(&world, &["member2"], "app:3").await;
    serve(&world, ["member1", "member2"], 8..=10).await;

    // The third gets the share of the first: it serves before the first is drained and deleted.
    let weights = preferring(
        "StaticWeighted",
        "staticWeight",
        &[("member2", 1), ("member3", 1)],
    );
    world
        .edit(json!({
            "clusterAffinity": { "exclude": ["member1"] },
            "federatedHPAAssignment": weights,
        }))
        .await;
    eventually(PATIENCE, "the first is withdrawn", || async {
        let mut ready = 0;
        for (member, _) in rooms {
            ready += world.counts(member).await.map_or(0, |(_, ready)| ready);
        }
        assert!(ready >= 7, "only {ready} serve");
        let found = world.deployments("member1").get_opt(SHOP).await.unwrap();
        if found.is_none() {
            Ok(())
        } else {
            Err(format!("{ready} serve"))
        }
    })
    .await;
    world
        .assigned(
            "the other halves",
            &[("member2", (2, 8)), ("member3", (2, 8))],
        )
        .await;

    // The autoscaler goes: the workload and its replicas stay where they are.
    serve(&world, ["member2", "member3"], 8..=12).await;
    delete(&world.federated(), SHOP).await;
    gone(&world.federated(), SHOP).await;
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
