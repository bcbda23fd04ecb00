//! Others who scale the same workload in a member are named and not fought; and what the hub does not own it does not place.

use serde_json::{Value, json};

use super::world::{FLEETS, begun, deployment, fleet, settled};
use crate::cluster::{self, Cluster, DENIED, HUB, SHOP, cpu, external, namespace, window};
use crate::keda::{scaled_object, scaled_objects};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/shop/deployments/shop";

#[test]
fn a_conflicting_foreign_hpa_is_named_and_its_counts_are_those_of_no_other_writer() {
    for (strategy, max, why) in [
        ("Auto", 0, "Foreign: horizontalpodautoscaler by-hand"),
        ("Preview", 10, "Steady: "),
    ] {
        let mut cluster = Cluster::fleet(&[("one", 10), ("two", 10)]);
        cluster.deploy_everywhere(2);
        cluster.foreign_hpa("two", true);
        cluster.ask_for(
            "StaticWeighted",
            (2, 20),
            &json!({"scaleStrategy": strategy}),
        );
        cluster.start("pod-0");
        // The foreign HPA scales its target.
        for load in 4..8 {
            cluster.evenly(load * 1_000);
            cluster.run_for(30);
        }
        assert_eq!(cluster.condition("Ready"), "False/TargetConflict");
        let ready = cluster.message("Ready");
        let expected = "horizontalpodautoscaler by-hand in member two scales the same target";
        assert!(ready.starts_with(expected), "{ready}");
        assert_eq!(cluster.condition("ReplicaConflict"), "False/NoConflict");
        assert_eq!(cluster.row("two")["max"], max, "{strategy}");
        assert!(cluster.has_reason("two", why), "{}", cluster.show());
        assert!(cluster.counts("two") > Some((2, 2)), "{}", cluster.show());
    }
}

#[test]
fn a_foreign_writer_of_replicas_is_named_and_not_overwritten() {
    let mut cluster = begun(&json!({"mode": "Direct"}));
    let path = format!("{DEPLOYMENT}/scale?fieldManager=argocd");
    for _period in 0..8 {
        let scale = json!({"spec": {"replicas": 7}});
        cluster.site("two").ask("kubectl", "PATCH", &path, &scale);
        cluster.run_for(15);
    }
    assert!(cluster.condition("ReplicaConflict").starts_with("True"));
    assert!(cluster.message("ReplicaConflict").contains("argocd"));
    assert_eq!(cluster.counts("two"), Some((7, 7)));
}

#[test]
fn a_workload_that_keda_has_paused_in_a_member_is_not_scaled_there() {
    let mut cluster = Cluster::fleet(&[("one", 10), ("two", 10)]);
    cluster.site("two").create(&scaled_objects());
    cluster.deploy_everywhere(2);
    cluster.evenly(4_000);
    cluster.ask_for("StaticWeighted", (2, 20), &json!({}));
    cluster.start("pod-0");
    cluster.capped(60, "halves", &[("one", 10), ("two", 10)]);
    let paused = json!({"autoscaling.keda.sh/paused-replicas": "1"});
    cluster.site("two").create(&scaled_object(SHOP, &paused));
    cluster.deploy("two", 1);
    let why = "Foreign: KEDA has paused it by ScaledObject web; its replicas are not changed";
    cluster.until_reason(60, "two", why);
    for _restart in 0..2 {
        cluster.run_for(60);
        assert!(cluster.has_reason("two", why), "{}", cluster.show());
        assert_eq!(cluster.bounds().into_keys().collect::<Vec<_>>(), ["one"]);
        assert_eq!(cluster.counts("two").unwrap().0, 1);
        cluster.crash_all();
    }
    assert_eq!(cluster.condition("ReplicaConflict"), "False/NoConflict");
}

#[test]
fn only_changes_by_others_are_reported_as_restored() {
    let mut cluster = settled(&json!({}));
    let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 20}});
    let before = cluster.child("two").unwrap()["spec"].clone();
    cluster.edit_fleet(&json!({"behavior": behavior}));
    cluster.until(30, "ours", |cluster| {
        cluster.child("two").unwrap()["spec"] != before
    });
    let ours = cluster.child("two").unwrap()["spec"].clone();
    assert_eq!(cluster.events("HPARestored"), [""; 0]);
    for (number, theirs) in [
        json!({"metrics": []}),
        json!({"minReplicas": 5}),
        json!({"maxReplicas": 50}),
        json!({"minReplicas": 1}),
    ]
    .iter()
    .enumerate()
    {
        cluster.edit_child("two", theirs);
        cluster.until(20, "it is restored", |cluster| {
            cluster.child("two").unwrap()["spec"] == ours
        });
        cluster.run_for(2);
        assert_eq!(cluster.events("HPARestored").len(), number + 1, "{theirs}");
    }
    // What was changed before the process began may be its own.
    cluster.kill("pod-0");
    cluster.edit_child("two", &json!({"metrics": []}));
    cluster.start("pod-0");
    cluster.until(60, "it is restored", |cluster| {
        cluster.child("two").unwrap()["spec"]["metrics"] == ours["metrics"]
    });
    cluster.run_for(2);
    assert_eq!(cluster.events("HPARestored").len(), 4);
}

#[test]
fn the_younger_of_two_fleets_and_one_beside_a_foreign_hpa_place_nothing() {
    let mut cluster = Cluster::fleet(&[("one", 10), ("two", 10)]);
    let hub = json!({"workloadSource": "Hub"});
    let mut older = fleet(SHOP, "StaticWeighted", (2, 20), &hub);
    older["metadata"]["name"] = json!("older");
    older["spec"]["minReplicas"] = json!(-1);
    cluster.server.create(&older);
    cluster.deploy(HUB, 0);
    cluster.run_for(5);
    cluster.ask_for("StaticWeighted", (2, 20), &hub);
    cluster.start("pod-0");
    cluster.until_condition(60, "Ready", "False/TargetConflict");
    cluster.run_for(45);
    assert_eq!(cluster.member_writes(), Vec::<String>::new());

    cluster.server.delete(FLEETS, SHOP, "older");
    let mut by_hand = cluster::deployment(SHOP, SHOP, 4);
    by_hand["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:0");
    cluster.site("two").create(&by_hand);
    cluster.foreign_hpa("two", true);
    cluster.until(60, "it is placed", |cluster| {
        deployment(cluster.site("one"), SHOP).is_some()
    });
    cluster.run_for(60);
    let mut theirs = cluster.member_writes();
    theirs.retain(|write| write.starts_with("two"));
    assert_eq!(theirs, Vec::<String>::new());
}

#[test]
fn a_workload_that_the_hub_did_not_place_is_neither_drained_nor_deleted() {
    let mut cluster = Cluster::fleet(&[("one", 10), ("two", 10)]);
    cluster.deploy(HUB, 0);
    cluster.deploy_everywhere(3);
    cluster.evenly(900);
    // A single replica goes to one member.
    let more = json!({"workloadSource": "Hub"});
    cluster.ask_for("Aggregated", (1, 1), &more);
    cluster.start("pod-0");
    cluster.run_for(400);
    let counts = ["one", "two"].map(|name| cluster.counts(name).unwrap().0);
    assert_eq!(counts.iter().max(), Some(&3), "{}", cluster.show());
}

#[test]
fn problems_of_the_placed_workload_are_reported_with_the_assignment() {
    let mut cluster = Cluster::fleet(&[("one", 10)]);
    cluster.ask_for("StaticWeighted", (2, 20), &json!({"workloadSource": "Hub"}));
    cluster.start("pod-0");
    let unread = "; cannot read the workload to place from the hub";
    cluster.until(60, unread, |cluster| {
        cluster.message("Assigned").contains(unread)
    });
    assert!(cluster.condition("Ready").starts_with("False"));
    assert_eq!(cluster.member_writes(), Vec::<String>::new());
    let mut template = cluster::deployment(SHOP, SHOP, 0);
    template["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "files", "configMap": {"name": "files"}}]);
    cluster.server.create(&template);
    let not_copied = "; the workload refers to configmap/files, which are not copied";
    cluster.until(60, not_copied, |cluster| {
        cluster.message("Assigned").ends_with(not_copied)
    });
}

#[test]
fn a_fleet_in_a_namespace_in_which_nothing_may_be_scaled_is_not_reconciled() {
    let mut cluster = Cluster::fleet(&[("one", 10)]);
    let mut denied = fleet(SHOP, "StaticWeighted", (2, 20), &json!({}));
    denied["metadata"]["namespace"] = json!(DENIED);
    let mut target = cluster::deployment(SHOP, SHOP, 4);
    target["metadata"]["namespace"] = json!(DENIED);
    for server in [&cluster.server, cluster.site("one")] {
        server.create(&namespace(DENIED));
    }
    cluster.site("one").create(&target);
    cluster.server.create(&denied);
    cluster.start("pod-0");
    cluster.until_condition(60, "Ready", "False/InvalidSpec");
    assert!(
        cluster
            .message("Ready")
            .starts_with("metadata.namespace is denied")
    );
    cluster.run_for(60);
    assert_eq!(cluster.member_writes(), Vec::<String>::new());
    assert_eq!(
        cluster.server.objects(FLEETS)[0]["metadata"]["finalizers"],
        Value::Null
    );
}

#[test]
fn the_specific_replicas_of_a_preview_are_divided_and_enforced() {
    let mut cluster = begun(&json!({"scaleStrategy": "Preview"}));
    cluster.edit_fleet(&json!({"specificReplicas": 7}));
    cluster.until(60, "seven", |cluster| {
        let counts = ["one", "two"].map(|name| cluster.counts(name).unwrap().0);
        counts.iter().sum::<u64>() == 7 && counts[0].abs_diff(counts[1]) == 1
    });
    cluster.run_for(60);
    assert_eq!(cluster.serving(), 7);
    assert!(cluster.bounds().is_empty());
}

#[test]
fn a_lost_member_leaves_no_total_of_a_metric_that_each_member_has() {
    let mut spec = external("queue");
    spec["metricScope"] = json!([{"metric": "external.queue", "scope": "Member"}]);
    let mut cluster = Cluster::fleet(&[("one", 10), ("two", 10)]);
    cluster.deploy_everywhere(2);
    cluster.needs("queue", 4);
    cluster.ask_for("StaticWeighted", (2, 20), &spec);
    cluster.start("pod-0");
    let is_active = |cluster: &Cluster| cluster.condition("ScalingActive").starts_with("True");
    cluster.until(60, "both are read", is_active);
    cluster.block("two");
    cluster.until(300, "one is not", |cluster| !is_active(cluster));
}

#[test]
fn each_member_of_a_duplicated_fleet_is_scaled_separately() {
    let cpu = json!([cpu()]);
    for (mode, metrics, crons, expected) in [
        ("Direct", &cpu, json!([]), [8, 2]),
        ("Direct", &cpu, window(6), [8, 6]),
        ("Direct", &json!([]), window(6), [6, 6]),
        ("Delegated", &cpu, window(6), [8, 6]),
    ] {
        let mut cluster = Cluster::fleet(&[("one", 10), ("two", 10)]);
        cluster.deploy_everywhere(2);
        cluster.locally(&[("one", 8_000), ("two", 2_000)]);
        cluster.ask_for(
            "Duplicated",
            (1, 10),
            &json!({"mode": mode, "metrics": metrics, "crons": crons}),
        );
        cluster.start("pod-0");
        let runs = [("one", expected[0]), ("two", expected[1])];
        cluster.runs(180, &format!("{mode}, {metrics}, {crons}"), &runs);
    }
}
