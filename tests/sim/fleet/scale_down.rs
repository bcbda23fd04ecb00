//! Scale-down by priority: nothing shrinks for a dip shorter than the scale-down window, or for pods that are not ready;
//! and released replicas go to members that can run them.

use serde_json::{Value, json};
use simkube::world;

use super::world::{three, with_preferences};
use crate::cluster::{Cluster, SHOP};

/// Members by priority, the highest first, with their room.
const ROOMS: [(&str, u64); 3] = three([10, 6, 10]);
/// Replicas of each member while nineteen are needed.
const FULL: [(&str, u64); 3] = three([10, 4, 5]);
/// The room of the first two, and the rest.
const MAXIMA: [(&str, u64); 3] = three([10, 6, 8]);
/// Seconds of the scale-down window.
const WINDOW: u64 = 120;

fn priorities() -> Value {
    with_preferences("Prioritized", "priority", &three([3, 2, 1]))
}

/// Runs for a while in which neither these counts nor a maximum change.
fn unmoved(cluster: &mut Cluster, seconds: u64, counts: &[(&str, u64)]) {
    for _second in 0..seconds {
        cluster.run_for(1);
        let asked = |(name, count): &(&str, u64)| cluster.counts(name).unwrap().0 == *count;
        assert!(counts.iter().all(asked), "{}", cluster.show());
        cluster.capped(0, "maxima", &MAXIMA);
    }
}

/// Restarts every pod of the second member.
fn restart(cluster: &Cluster) {
    let server = cluster.site("member2");
    let condition =
        json!({"type": "Ready", "status": "False", "lastTransitionTime": cluster.now()});
    let status = json!({"startTime": cluster.now(), "conditions": [condition]});
    for pod in world::pods(server, SHOP, SHOP) {
        let path = format!(
            "/api/v1/namespaces/{SHOP}/pods/{}/status",
            pod["metadata"]["name"].as_str().unwrap()
        );
        server.ask("kubelet", "PATCH", &path, &json!({"status": status}));
    }
}

#[test]
fn the_lowest_priority_shrinks_only_after_the_window_and_gives_to_members_with_capacity() {
    let mut cluster = Cluster::fleet(&ROOMS);
    for (member, replicas) in FULL {
        cluster.deploy(member, replicas);
    }
    cluster.evenly(18_500);
    cluster.run_for(20);
    let window = json!({"scaleDown": {"stabilizationWindowSeconds": WINDOW}});
    let more = json!({
        "behavior": window, "rebalance": {"cooldownSeconds": 15, "settleObservations": 3},
        "federatedHPAAssignment": priorities(),
    });
    cluster.ask_for("Prioritized", (3, 24), &more);
    cluster.start("pod-0");
    cluster.capped(60, "by priority and room", &MAXIMA);
    cluster.runs(60, "nineteen", &FULL);

    // A third of the load for a part of the window.
    unmoved(&mut cluster, 60, &FULL);
    cluster.evenly(6_000);
    unmoved(&mut cluster, WINDOW - 30, &FULL);
    cluster.evenly(18_500);
    unmoved(&mut cluster, 60, &FULL);

    // The load stays low: the third shrinks, then the second, then the first.
    cluster.evenly(6_000);
    let keep = |cluster: &Cluster, kept: &[(&str, u64)]| {
        assert!(cluster.has(kept), "{}", cluster.show());
        let most = MAXIMA
            .iter()
            .all(|(name, max)| cluster.bounds()[*name].1 <= *max);
        assert!(most, "{}", cluster.show());
    };
    cluster.until(600, "the third shrinks", |cluster| {
        keep(cluster, &FULL[..2]);
        cluster.has(&[("member3", 1)])
    });
    cluster.until(600, "the second shrinks", |cluster| {
        keep(cluster, &FULL[..1]);
        cluster.counts("member2").unwrap().0 <= 2
    });
    // The remaining maximum is unassigned.
    let status = cluster.fleet_status();
    let divided: u64 = MAXIMA
        .iter()
        .map(|(name, _)| cluster.row(name)["max"].as_u64().unwrap())
        .sum();
    let unassigned = status["unassigned"].as_u64().unwrap();
    assert!(unassigned > 0, "{}", cluster.show());
    assert_eq!(divided + unassigned, 24);
    // One more than the load needs: each HPA rounds up.
    cluster.runs(600, "seven in all", &three([5, 1, 1]));
}

#[test]
fn pods_that_are_not_ready_are_no_surplus() {
    let mut cluster = Cluster::fleet(&ROOMS);
    for (member, replicas) in FULL {
        cluster.deploy(member, replicas);
    }
    cluster.evenly(18_500);
    cluster.run_for(20);
    // The second runs four, independently of its own HPA's computation from pods that are not ready.
    let mut four = priorities();
    four["clusterAutoscalingPreference"][1]["autoscalingMinThreshold"] = json!(4);
    let more = json!({
        "rebalance": {"cooldownSeconds": 15, "settleObservations": 3}, "federatedHPAAssignment": four,
    });
    cluster.ask_for("Prioritized", (3, 24), &more);
    cluster.start("pod-0");
    cluster.capped(60, "by priority and room", &MAXIMA);
    cluster.run_for(60);
    // Without its users, fifteen pods are ready, and fifteen are needed.
    cluster.evenly(14_600);
    for _second in 0..120 {
        restart(&cluster);
        unmoved(&mut cluster, 1, &[("member1", 10), ("member3", 5)]);
    }
}
