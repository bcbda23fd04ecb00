//! A member that is no longer registered is a member that does not answer; one that leaves on purpose gives up its share.

use serde_json::{Value, json};

use super::world::{LABEL, LEAVING, SYSTEM, plain, settled};
use crate::cluster::Cluster;

/// The names of the rows in the status.
fn rows(cluster: &Cluster) -> Vec<Value> {
    let status = cluster.fleet_status();
    let rows = status["clusters"].as_array().into_iter().flatten();
    rows.map(|row| row["name"].clone()).collect()
}

#[test]
fn a_fleet_without_members_or_candidates_is_not_ready_and_says_so() {
    let mut cluster = Cluster::fleet(&[]);
    cluster.add_member("one", 10);
    cluster.deploy_everywhere(2);
    let elsewhere = json!({"clusterAffinity": {"clusterNames": ["elsewhere"]}});
    cluster.ask_for("StaticWeighted", (2, 20), &elsewhere);
    cluster.start("pod-0");
    for (reason, joins) in [("False/NoMembers", true), ("False/NoCandidate", false)] {
        cluster.until_condition(60, "Assigned", reason);
        assert!(cluster.condition("Ready").starts_with("False"));
        let writes = cluster.server.audit().len();
        cluster.run_for(60);
        let since = cluster.server.audit_since(writes);
        let mut ours = since
            .iter()
            .filter(|entry| entry.access.resource.starts_with("federated"));
        assert!(ours.all(|entry| entry.written.is_none()), "said once");
        if joins {
            cluster.join("one", &json!({}));
        }
    }
    assert_eq!(cluster.events("NoMembers").len(), 1);
    assert_eq!(cluster.member_writes(), Vec::<String>::new());
}

#[test]
fn a_fleet_of_which_no_member_is_registered_any_more_reports_each() {
    let mut cluster = settled(&json!({}));
    let before = cluster.bounds();
    for name in ["one", "two"] {
        cluster.forget(name);
    }
    cluster.crash_all();
    for name in ["one", "two"] {
        let row = format!(
            "Unknown: its Secret is missing; restore it, or remove the member with foretide members remove {name}; its share \
             and bounds stay unchanged"
        );
        cluster.until(60, &row, |cluster| cluster.row(name)["reason"] == row);
        assert_eq!(cluster.row(name)["max"], 10);
    }
    assert_eq!(cluster.condition("Assigned"), "True/Assigned");
    assert_eq!(cluster.condition("MembersReachable"), "False/Unreachable");
    assert_eq!(cluster.bounds(), before);
}

#[test]
fn a_member_that_leaves_is_drained_and_its_secret_can_then_be_deleted() {
    let mut cluster = settled(&json!({}));
    cluster.leave("two", true);
    cluster.capped(300, "all for the other", &[("one", 20)]);
    cluster.runs(60, "drained", &[("one", 4), ("two", 0)]);
    let row = "Leaving: it leaves on purpose and gets no share";
    cluster.until(30, row, |cluster| cluster.row("two")["reason"] == row);
    assert_eq!(cluster.condition("MembersReachable"), "True/Reachable");
    cluster.forget("two");
    cluster.until(60, "one row", |cluster| rows(cluster) == ["one"]);
    cluster.run_for(60);
    cluster.capped(0, "as before", &[("one", 20)]);
}

#[test]
fn a_cluster_that_is_gone_for_good_leaves_by_a_secret_without_a_kubeconfig() {
    let mut cluster = settled(&json!({}));
    cluster.forget("two");
    cluster.block("two");
    cluster.crash_all();
    cluster.run_for(60);
    let theirs = cluster.bounds()["two"];
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "two", "namespace": SYSTEM, "labels": {LABEL: "true"}, "annotations": {LEAVING: "true"}},
    });
    cluster.server.create(&secret);
    cluster.capped(120, "all for the other", &[("one", 20), ("two", 10)]);
    cluster.forget("two");
    cluster.until(60, "one row", |cluster| rows(cluster) == ["one"]);
    assert_eq!(
        cluster.bounds()["two"],
        theirs,
        "the workload there goes on"
    );
}

#[test]
fn bad_credentials_and_a_bad_secret_are_reported_while_the_connection_lasts_and_after_it() {
    let mut cluster = settled(&json!({}));
    let rejected = "redentials rejected (HTTP 401); renew them in the Secret of the member";
    cluster.rotate("two", "unknown");
    cluster.until_reason(60, "two", rejected);
    cluster.spoil("two");
    cluster.until_reason(60, "two", "kubeconfig");
    assert_eq!(cluster.condition("Assigned"), "True/Assigned");
    cluster.rotate("two", &super::world::token("two"));
    cluster.until(90, "it is well", |cluster| {
        let is_told = ["redentials", "kubeconfig"]
            .iter()
            .any(|text| cluster.has_reason("two", text));
        !is_told && cluster.message("MembersReachable") == "every member is reachable"
    });
}

#[test]
fn a_fleet_of_one_member_has_the_same_child_as_a_single_cluster() {
    let window =
        json!([{"name": "peak", "start": "6 0 * * *", "end": "9 0 * * *", "targetReplicas": 7}]);
    for kind in ["Aggregated", "StaticWeighted", "DynamicWeighted"] {
        let mut cluster = Cluster::fleet(&[("one", 20)]);
        cluster.deploy_everywhere(3);
        let more = json!({"crons": window, "federatedHPAAssignment": plain(kind)});
        cluster.ask_for(kind, (2, 10), &more);
        let fleet = &cluster.server.objects(super::world::FLEETS)[0]["spec"];
        let mut spec = json!({"minReplicas": 2, "maxReplicas": 10, "crons": window});
        spec["behavior"] = fleet["behavior"].clone();
        cluster.autoscaler("shop", 3, "Delegated", &spec);
        cluster.evenly(3_000);
        cluster.run_for(30);
        cluster.start("pod-0");
        // In a cron window and outside of it.
        for load in [3, 4, 8, 2] {
            cluster.evenly(load * 1_000);
            cluster.run_for(165);
            let alone = super::world::child(&cluster.server, "shop").unwrap();
            let part = cluster.child("one").unwrap();
            assert_eq!(part["spec"], alone["spec"], "{kind}, {load}");
        }
    }
}
