//! The hub places the workload into the members that have a share, and nowhere else; a preview writes nothing; and a
//! deletion keeps the workload and, on request, the HPAs.

use serde_json::{Value, json};

use super::world::{FLEETS, deployment, three, with_preferences};
use crate::cluster::{self, Cluster, HUB, SHOP};

const ROOMS: [(&str, u64); 3] = three([10, 10, 10]);

fn halves(members: [&str; 2]) -> Value {
    with_preferences(
        "StaticWeighted",
        "staticWeight",
        &members.map(|name| (name, 1)),
    )
}

/// The image of a member's workload, if it is there.
fn image(cluster: &Cluster, member: &str) -> Value {
    let found = deployment(cluster.site(member), SHOP);
    let of = |shop: &Value| shop["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    found.map_or(Value::Null, |found| of(&found))
}

/// Changes the template in the hub.
fn roll_out(cluster: &Cluster, image: &str) {
    let container =
        json!({"name": "app", "image": image, "resources": {"requests": {"cpu": "200m"}}});
    let change = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    cluster
        .server
        .patch("deployments.apps", SHOP, SHOP, &change);
}

/// UID and spec of the HPA of a member.
fn stored(cluster: &Cluster, member: &str) -> (Value, Value) {
    let found = cluster.child(member).unwrap();
    (found["metadata"]["uid"].clone(), found["spec"].clone())
}

#[test]
fn the_workload_of_the_hub_is_placed_updated_and_withdrawn_while_members_scale_it() {
    let mut cluster = Cluster::fleet(&ROOMS);
    cluster.deploy(HUB, 0);
    // One member has a workload of this name made by hand; a preview shows the result of a placement.
    let mut by_hand = cluster::deployment(SHOP, SHOP, 4);
    by_hand["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:0");
    cluster.site("member2").create(&by_hand);
    cluster.evenly(6_000);
    let more = json!({
        "workloadSource": "Hub", "scaleStrategy": "Preview", "federatedHPAAssignment": halves(["member1", "member2"]),
    });
    cluster.ask_for("StaticWeighted", (4, 16), &more);
    cluster.start("pod-0");
    for (load, count) in [(6_000, 6), (9_000, 9)] {
        cluster.evenly(load);
        cluster.until(90, "what it would be", |cluster| {
            let max = |name: &str| cluster.row(name)["max"].as_u64();
            let is_decided = cluster.fleet_status()["expectReplicas"] == json!(count);
            let is_placed = cluster.has_reason("member1", "the hub places the workload");
            (max("member1"), max("member2")) == (Some(8), Some(8)) && is_decided && is_placed
        });
    }
    cluster.run_for(45);
    assert_eq!(cluster.member_writes(), Vec::<String>::new());
    assert_eq!(
        cluster.hub_writes(),
        ["federatedhpas/status".to_owned()].into()
    );

    // Auto instead of Preview.
    cluster.evenly(6_000);
    cluster.edit_fleet(&json!({"scaleStrategy": "Auto"}));
    let eighths = [("member1", 8), ("member2", 8)];
    cluster.capped(90, "halves", &eighths);
    // Each HPA rounds up.
    let serve = |cluster: &mut Cluster, count: u64| {
        cluster.until(180, &format!("{count} serve"), |cluster| {
            (count..count + 2).contains(&cluster.serving())
        });
    };
    serve(&mut cluster, 6);
    let [first, second, third] = ROOMS.map(|(name, _)| image(&cluster, name));
    assert_eq!(
        [first, second, third],
        [json!("app:1"), json!("app:1"), Value::Null]
    );
    assert_eq!(cluster.counts(HUB), Some((0, 0)));

    // A new version is rolled out; a copy that is deleted by hand is created again.
    roll_out(&cluster, "app:2");
    cluster.evenly(12_000);
    cluster.until(60, "the new version", |cluster| {
        ["member1", "member2"]
            .iter()
            .all(|name| image(cluster, name) == "app:2")
    });
    serve(&mut cluster, 12);
    cluster
        .site("member2")
        .delete("deployments.apps", SHOP, SHOP);
    cluster.until(60, "the copy is back", |cluster| {
        image(cluster, "member2") == "app:2"
    });
    serve(&mut cluster, 12);

    // The third gets the share of the first: its pods are ready before the first is drained and deleted.
    cluster.edit_fleet(&json!({
        "clusterAffinity": {"exclude": ["member1"]}, "federatedHPAAssignment": halves(["member2", "member3"]),
    }));
    cluster.until(300, "the first is withdrawn", |cluster| {
        assert!(cluster.serving() >= 12, "{}", cluster.show());
        cluster.counts("member1").is_none()
    });
    let others = [("member2", 8), ("member3", 8)];
    cluster.capped(90, "the other halves", &others);
    // The exact need of the load, so that no minimum is raised.
    cluster.evenly(5_000);
    cluster.assigned(
        180,
        "their own minima",
        &[("member2", (2, 8)), ("member3", (2, 8))],
    );
    a_deletion_may_retain_the_hpas(&mut cluster, &others);
}

/// Deletes the fleet with `Retain`: its HPAs have no owner afterwards, and continue to scale; a new fleet leaves them
/// and the workload alone.
fn a_deletion_may_retain_the_hpas(cluster: &mut Cluster, others: &[(&str, u64)]) {
    cluster.edit_fleet(&json!({"deletionPolicy": "Retain"}));
    cluster.delete_fleet();
    cluster.until(60, "the fleet is gone", |cluster| {
        cluster.server.objects(FLEETS).is_empty()
    });
    for (load, each) in [(14_000, 7), (8_000, 4)] {
        cluster.evenly(load);
        let runs: Vec<_> = others.iter().map(|(name, _)| (*name, each)).collect();
        cluster.runs(180, "they scale", &runs);
    }
    for (member, _) in others {
        let found = cluster.child(member).unwrap();
        let metadata = &found["metadata"];
        let marks = json!([
            metadata["labels"],
            metadata["annotations"],
            metadata["finalizers"],
            metadata["ownerReferences"]
        ]);
        assert!(!marks.to_string().contains("foretide"), "{marks}");
    }
    let (retained, writes) = (
        others.iter().map(|(name, _)| stored(cluster, name)),
        cluster.member_writes().len(),
    );
    let retained: Vec<_> = retained.collect();
    let more = json!({
        "workloadSource": "Hub", "federatedHPAAssignment": halves(["member2", "member3"]),
        "clusterAffinity": {"exclude": ["member1"]},
    });
    cluster.ask_for("StaticWeighted", (4, 16), &more);
    cluster.until(60, "they are another's", |cluster| {
        others
            .iter()
            .all(|(name, _)| cluster.has_reason(name, "Foreign"))
    });
    cluster.run_for(45);
    assert_eq!(cluster.member_writes().len(), writes);
    for ((member, _), retained) in others.iter().zip(retained) {
        assert_eq!(stored(cluster, member), retained);
        cluster.delete_child(member);
    }
    // Without the retained HPAs, the fleet has HPAs of its own, which are deleted with it; the workload and its
    // replicas stay.
    cluster.capped(90, "our own", others);
    cluster.run_for(60);
    let serving = cluster.serving();
    cluster.delete_fleet();
    cluster.until(60, "no HPA is left", |cluster| cluster.bounds().is_empty());
    cluster.run_for(60);
    assert_eq!(cluster.serving(), serving);
}
