//! A member that does not answer, or is tainted.

use std::time::Duration;

use serde_json::{Value, json};
use simkube::network::Way;

use super::world::{FLEETS, Ledger, three, with_preferences};
use crate::cluster::{Cluster, HUB};

const ROOMS: [(&str, u64); 3] = three([10, 10, 10]);

fn weights() -> Value {
    with_preferences("StaticWeighted", "staticWeight", &three([1, 1, 1]))
}

/// A cluster with nine replicas over three members, each of which may have eight.
fn settled() -> Cluster {
    let mut cluster = Cluster::fleet(&ROOMS);
    cluster.deploy_everywhere(3);
    cluster.evenly(9_000);
    cluster.ask_for(
        "StaticWeighted",
        (3, 24),
        &json!({"federatedHPAAssignment": weights()}),
    );
    cluster.start("pod-0");
    cluster.capped(60, "a third each", &three([8, 8, 8]));
    cluster.runs(60, "nine", &three([3, 3, 3]));
    cluster
}

#[test]
fn a_lost_member_keeps_its_bounds_scales_by_itself_and_returns_without_a_dip() {
    let mut cluster = settled();
    cluster.block("member2");
    cluster.until_reason(60, "member2", "Unknown");
    assert_eq!(cluster.condition("MembersReachable"), "False/Unreachable");
    cluster.evenly(18_000);
    cluster.runs(90, "six each, the lost one too", &three([6, 6, 6]));
    let before = cluster.bounds()["member2"];
    cluster.edit_fleet(&json!({"minReplicas": 12, "maxReplicas": 27}));
    // 27 without the budget of the lost member.
    cluster.capped(60, "the others follow", &three([10, 8, 9]));
    cluster.run_for(120);
    assert_eq!(cluster.bounds()["member2"], before);
    cluster.unblock("member2");
    for _second in 0..120 {
        cluster.run_for(1);
        assert_eq!(cluster.serving(), 18, "{}", cluster.show());
    }
    cluster.capped(1, "a third each of the new", &three([9, 9, 9]));
    assert_eq!(cluster.condition("MembersReachable"), "True/Reachable");
}

#[test]
fn a_ledger_is_stored_before_a_member_without_a_share_gets_a_smaller_maximum() {
    let mut cluster = settled();
    cluster.block("member2");
    cluster.block("member3");
    cluster.until(60, "both are unknown", |cluster| {
        let is_unknown = |name: &str| cluster.has_reason(name, "Unknown");
        is_unknown("member2") && is_unknown("member3")
    });
    // Writes to the hub after one to a member arrive later.
    let slow = Way::Open(Duration::from_millis(300));
    cluster.network().set("pod-0", HUB, slow);
    cluster.edit_fleet(&json!({"clusterAffinity": {"exclude": ["member1"]}}));
    let most = |cluster: &Cluster| cluster.bounds()["member1"].1;
    cluster.until_just(60, "it keeps its pods", |cluster| most(cluster) < 8);
    let fleets = cluster.server.objects(FLEETS);
    let ledger = Ledger::of(&fleets[0]).unwrap();
    assert_eq!(ledger.members["member1"].written, most(&cluster));
}

#[test]
fn a_ledger_is_stored_before_a_member_that_has_a_share_again_gets_another_minimum() {
    let mut cluster = settled();
    let duplicated = json!({"federatedHPAAssignmentType": "Duplicated"});
    cluster.edit_fleet(
        &json!({"minReplicas": 3, "maxReplicas": 8, "federatedHPAAssignment": duplicated}),
    );
    cluster.evenly(18_000);
    cluster.runs(60, "six each", &three([6, 6, 6]));
    let bounds = |cluster: &Cluster| cluster.bounds()["member1"];
    assert_eq!(bounds(&cluster), (3, 8));
    let stored = |cluster: &Cluster| {
        let fleets = cluster.server.objects(FLEETS);
        let ledger = Ledger::of(&fleets[0]).unwrap();
        ledger.members.get("member1").map(|entry| entry.written)
    };
    assert_eq!(stored(&cluster), Some(8));
    // The controller ends after it has stored that a member has no share, and before it deletes the HPA there.
    cluster.block("member1");
    cluster.edit_fleet(&json!({"clusterAffinity": {"exclude": ["member1"]}}));
    cluster.until_just(5, "it has no share", |cluster| stored(cluster) == Some(0));
    cluster.kill("pod-0");
    cluster.unblock("member1");
    cluster.edit_fleet(&json!({"clusterAffinity": null}));
    // Writes to the hub after one to a member arrive later.
    let slow = Way::Open(Duration::from_millis(300));
    cluster.network().set("pod-0", HUB, slow);
    cluster.start("pod-0");
    // The new process does not know for how long fewer replicas have been enough.
    cluster.until_just(60, "it keeps its replicas", |cluster| {
        bounds(cluster) == (6, 8)
    });
    assert_eq!(stored(&cluster), Some(8));
}

#[test]
fn a_failed_or_tainted_member_loses_its_share_to_the_others() {
    let mut cluster = Cluster::fleet(&ROOMS);
    cluster.deploy_everywhere(1);
    cluster.evenly(6_000);
    let more = json!({
        "failurePolicy": "Reassign", "tolerationSeconds": 20,
        "rebalance": {"cooldownSeconds": 15, "settleObservations": 100},
        "federatedHPAAssignment": weights(),
    });
    cluster.ask_for("StaticWeighted", (6, 18), &more);
    cluster.start("pod-0");
    let (thirds, halves) = (three([6, 6, 6]), [("member1", 9), ("member3", 9)]);
    cluster.capped(180, "all members", &thirds);
    cluster.until(120, "the load is served", |cluster| cluster.serving() >= 6);

    // Lost for longer than tolerated: the others get its share, and it is not changed.
    let theirs = cluster.bounds()["member2"];
    cluster.block("member2");
    cluster.until(180, "reassigned", |cluster| {
        let mut found = cluster.bounds();
        assert_eq!(found.remove("member2"), Some(theirs));
        found.values().all(|(_, max)| *max == 9)
    });
    cluster.until_reason(60, "member2", "Failed");
    cluster.unblock("member2");
    cluster.capped(400, "complete again", &thirds);

    // A tainted member also loses its share, but it answers and can be drained.
    let taint = |taint: Value| json!({"annotations": {"foretide.io/taints": taint}});
    cluster.mark("member2", &taint(json!("upgrade:NoExecute")));
    cluster.until(400, "tainted and drained", |cluster| {
        assert!(cluster.serving() >= 6, "too few serve: {}", cluster.show());
        cluster.counts("member2") == Some((0, 0))
    });
    cluster.capped(120, "tainted", &halves);
    cluster.mark("member2", &taint(Value::Null));
    cluster.capped(400, "cured", &thirds);
}
