//! Deleted fleets: their HPAs go and the replicas stay, whoever answers; and what is not theirs, or cannot be read, stays.

use serde_json::{Value, json};
use simkube::network::Effect;

use super::world::{FLEETS, deployment, settled, with_preferences};
use crate::cluster::{Cluster, HPAS, HUB, SHOP};

fn is_gone(cluster: &Cluster) -> bool {
    cluster.server.objects(FLEETS).is_empty()
}

#[test]
fn a_deleted_fleet_deletes_its_hpas_and_keeps_the_replicas() {
    let mut cluster = settled(&json!({}));
    cluster.delete_fleet();
    cluster.until(5, "it is gone", |cluster| {
        is_gone(cluster) && cluster.with_hpas().is_empty()
    });
    cluster.run_for(60);
    assert!(cluster.has(&[("one", 2), ("two", 2)]), "{}", cluster.show());
    let note = cluster.events("ReplicasKept")[0].to_string();
    assert!(note.contains("(2 in one, 2 in two; 4 in total)"), "{note}");
}

#[test]
fn a_deleted_fleet_is_released_although_its_members_were_never_listed() {
    let mut cluster = settled(&json!({}));
    cluster.trouble(
        "GET",
        &["/namespaces/foretide-system/secrets"],
        Effect::Hang,
    );
    cluster.crash_all();
    cluster.run_for(20);
    cluster.delete_fleet();
    cluster.run_for(280);
    assert!(!is_gone(&cluster));
    cluster.until(60, "it is gone", is_gone);
    assert_eq!(cluster.with_hpas(), ["one", "two"]);
    let note = cluster.events("LeftBehind")[0].to_string();
    assert!(note.contains("one, two"), "{note}");
}

#[test]
fn a_fleet_that_is_deleted_while_its_sync_runs_leaves_no_hpa() {
    let mut cluster = settled(&json!({}));
    // A sync that waits for metrics, and then creates what is missing.
    cluster.trouble("GET", &["/apis/metrics.k8s.io"], Effect::Hang);
    cluster.delete_child("two");
    cluster.edit_fleet(&json!({"maxReplicas": 22}));
    cluster.run_for(1);
    cluster.delete_fleet();
    cluster.until(50, "it is gone", is_gone);
    cluster.run_for(5);
    assert_eq!(cluster.with_hpas(), Vec::<String>::new());
}

#[test]
fn a_retained_hpa_in_a_member_that_does_not_answer_is_kept_and_unmarked_later() {
    let mut cluster = settled(&json!({"deletionPolicy": "Retain"}));
    cluster.block("two");
    cluster.until_reason(60, "two", "Unknown");
    cluster.delete_fleet();
    cluster.until(330, "it is gone", is_gone);
    cluster.unblock("two");
    let is_marked = |cluster: &Cluster| {
        let child = cluster.child("two").unwrap();
        let marks = ["labels", "annotations"].map(|field| child["metadata"][field].to_string());
        marks.concat().contains("foretide")
    };
    assert!(is_marked(&cluster));
    cluster.until(120, "no mark is left", |cluster| !is_marked(cluster));
    assert_eq!(cluster.with_hpas(), ["one", "two"]);
}

/// Creates an HPA in a member that says to be of a fleet that does not exist, of this hub or of another.
fn collectable(cluster: &Cluster, member: &str, name: &str, hub: Option<&str>) {
    let mut hpa = (*cluster.child(member).unwrap()).clone();
    let labels = &mut hpa["metadata"]["labels"];
    labels["autoscaling.foretide.io/fleet-uid"] = json!("gone");
    if let Some(hub) = hub {
        labels["autoscaling.foretide.io/hub"] = json!(hub);
    }
    hpa["metadata"] = json!({"name": name, "namespace": SHOP, "labels": *labels});
    hpa["spec"]["scaleTargetRef"]["name"] = json!("other");
    cluster.site(member).create(&hpa);
}

/// The names of all HPAs in a member.
fn names(cluster: &Cluster, member: &str) -> Vec<Value> {
    let hpas = cluster.site(member).objects(HPAS);
    hpas.iter()
        .map(|hpa| hpa["metadata"]["name"].clone())
        .collect()
}

#[test]
fn hpas_of_another_hub_are_not_collected() {
    let mut cluster = settled(&json!({}));
    collectable(&cluster, "one", "of-another", Some("another"));
    collectable(&cluster, "one", "of-ours", None);
    cluster.until(90, "ours is collected", |cluster| {
        names(cluster, "one").len() == 2
    });
    cluster.run_for(90);
    assert_eq!(
        names(&cluster, "one"),
        [json!("fdhpa-shop"), json!("of-another")]
    );
}

#[test]
fn an_hpa_without_its_workload_is_deleted_and_keeps_the_finalizer_until_then() {
    for preview in [false, true] {
        let mut cluster = settled(&json!({}));
        cluster.trouble(
            "DELETE",
            &["/horizontalpodautoscalers/"],
            Effect::Refused(403),
        );
        cluster.site("two").delete("deployments.apps", SHOP, SHOP);
        assert!(deployment(cluster.site("two"), SHOP).is_none());
        if preview {
            cluster.edit_fleet(&json!({"scaleStrategy": "Preview"}));
        }
        let is_held = |cluster: &Cluster| {
            let fleets = cluster.server.objects(FLEETS);
            fleets[0]["metadata"]["finalizers"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
        };
        cluster.run_for(60);
        assert!(cluster.with_hpas().contains(&"two".to_owned()) && is_held(&cluster));
        cluster.network().end_all();
        cluster.until(60, "it is deleted", |cluster| {
            !cluster.with_hpas().contains(&"two".to_owned())
        });
        cluster.run_for(30);
        assert_eq!(is_held(&cluster), !preview);
    }
}

#[test]
fn an_unreadable_fleet_keeps_its_hpas_and_its_state() {
    let mut cluster = settled(&json!({}));
    let before = cluster.bounds();
    let writes = cluster.member_writes().len();
    cluster.edit_fleet(&json!({"minReplicas": "two"}));
    cluster.run_for(150);
    cluster.edit_fleet(&json!({"minReplicas": 2}));
    cluster.run_for(60);
    assert_eq!(
        (cluster.bounds(), cluster.member_writes().len()),
        (before, writes)
    );
}

#[test]
fn a_list_of_fleets_that_is_out_of_date_moves_and_removes_nothing() {
    let mut cluster = settled(&json!({}));
    let before = cluster.bounds();
    cluster.trouble("GET", &["/federatedhpas"], Effect::Hang);
    cluster.network().reset("pod-0", HUB);
    cluster.until_condition(120, "Ready", "False/CacheStale");
    let writes = cluster.member_writes().len();
    // A version that the copies lack, and an HPA of a fleet that they lack.
    cluster.edit_fleet(&json!({"maxReplicas": 30}));
    collectable(&cluster, "one", "of-ours", None);
    cluster.run_for(90);
    assert_eq!(
        (cluster.bounds(), cluster.member_writes().len()),
        (before, writes)
    );
    cluster.network().end_all();
    cluster.network().reset("pod-0", HUB);
    cluster.capped(60, "it is read", &[("one", 15), ("two", 15)]);
    cluster.until(90, "it is collected", |cluster| {
        names(cluster, "one") == [json!("fdhpa-shop")]
    });
}

#[test]
fn a_member_whose_copies_are_out_of_date_is_not_written() {
    let mut cluster = settled(&json!({}));
    cluster.trouble("GET", &["/api/v1/pods"], Effect::Hang);
    cluster.network().reset("pod-0", "two");
    cluster.run_for(75);
    let theirs = cluster.bounds()["two"];
    cluster.edit_fleet(&json!({"maxReplicas": 30}));
    cluster.run_for(60);
    assert_eq!(cluster.bounds()["two"], theirs, "{}", cluster.show());
    cluster.network().end_all();
    cluster.network().reset("pod-0", "two");
    cluster.capped(120, "it is read", &[("one", 15), ("two", 15)]);
}

#[test]
fn a_controller_that_ends_releases_the_scale_down_holds() {
    let mut cluster = Cluster::fleet(&[("one", 8), ("two", 6)]);
    for (member, replicas) in [("one", 8), ("two", 4)] {
        cluster.deploy(member, replicas);
    }
    cluster.evenly(12_000);
    let priorities = with_preferences("Prioritized", "priority", &[("one", 2), ("two", 1)]);
    cluster.ask_for(
        "Prioritized",
        (2, 12),
        &json!({"federatedHPAAssignment": priorities}),
    );
    cluster.start("pod-0");
    cluster.run_for(60);
    let is_held = |cluster: &Cluster| {
        let child = cluster.child("one");
        child.is_some_and(|child| {
            child["spec"]["behavior"]["scaleDown"]["selectPolicy"] == "Disabled"
        })
    };
    assert!(!is_held(&cluster));
    cluster.evenly(5_000);
    cluster.until(300, "the first is held", is_held);
    cluster.terminate("pod-0");
    cluster.until_just(3, "it is released", |cluster| !is_held(cluster));
}
