//! Clusters that do not participate although pods of the workload run there: these pods are neither current replicas of
//! the fleet nor load that it takes over.

use serde_json::json;

use super::world::{Bounds, with_preferences};
use crate::cluster::Cluster;

const ROOMS: [(&str, u64); 2] = [("member1", 10), ("member2", 10)];

/// Runs for two minutes in which neither these bounds and counts change, nor the fleet's own replicas.
fn nothing_moves(
    cluster: &mut Cluster,
    what: &str,
    bounds: &[(&str, Bounds)],
    runs: &[(&str, u64)],
) {
    cluster.assigned(90, what, bounds);
    cluster.until(30, what, |cluster| {
        cluster.fleet_status()["currentReplicas"] == runs[0].1
    });
    for _second in 0..120 {
        cluster.run_for(1);
        cluster.assigned(0, what, bounds);
        cluster.runs(0, what, runs);
        assert_eq!(cluster.fleet_status()["currentReplicas"], runs[0].1);
    }
}

#[test]
fn pods_of_a_nonparticipating_cluster_are_neither_counted_replaced_nor_deleted() {
    let mut cluster = Cluster::fleet(&ROOMS);
    cluster.deploy("member1", 2);
    cluster.deploy("member2", 3);
    cluster.serve_metrics("member2", false);
    cluster.locally(&[("member1", 400), ("member2", 2_600)]);
    let first = with_preferences("StaticWeighted", "staticWeight", &[("member1", 1)]);
    cluster.ask_for(
        "StaticWeighted",
        (2, 24),
        &json!({"federatedHPAAssignment": first}),
    );
    cluster.run_for(20);
    cluster.start("pod-0");
    let runs = [("member1", 2), ("member2", 3)];
    nothing_moves(
        &mut cluster,
        "pods without metrics",
        &[("member1", (2, 24))],
        &runs,
    );
    assert!(
        cluster.has_reason("member2", "NoPreference"),
        "{}",
        cluster.show()
    );

    // Once they have metrics, budgets are divided again.
    cluster.serve_metrics("member2", true);
    cluster.run_for(45);
    cluster.edit_fleet(&json!({"maxReplicas": 23}));
    nothing_moves(
        &mut cluster,
        "pods with metrics",
        &[("member1", (2, 23))],
        &runs,
    );
    assert_eq!(cluster.row("member1")["floor"].as_u64().unwrap_or(0), 0);

    // The local load still scales it up and down.
    for (load, count) in [(4_600, 5), (600, 2)] {
        cluster.locally(&[("member1", load), ("member2", 2_600)]);
        cluster.runs(
            120,
            "by its own load",
            &[("member1", count), ("member2", 3)],
        );
    }

    // The second sleeps, and a third joins without a priority, with pods that have no metrics.
    cluster.locally(&[("member1", 600), ("member2", 600)]);
    let priorities = with_preferences("Prioritized", "priority", &[("member1", 2), ("member2", 1)]);
    cluster.edit_fleet(&json!({"scalingToZero": true, "federatedHPAAssignment": priorities}));
    let asleep = [("member1", 2), ("member2", 0)];
    cluster.runs(400, "the second sleeps", &asleep);
    cluster.add_member("member3", 10);
    cluster.serve_metrics("member3", false);
    cluster.deploy("member3", 3);
    cluster.run_for(20);
    cluster.join("member3", &json!({}));
    cluster.until_reason(60, "member3", "NoPreference");
    cluster.edit_fleet(&json!({"maxReplicas": 22}));
    // 22 over room for ten each: the two remaining replicas go to the first.
    let bounds = [("member1", (2, 12)), ("member2", (1, 10))];
    let runs = [("member1", 2), ("member2", 0), ("member3", 3)];
    nothing_moves(&mut cluster, "one asleep", &bounds, &runs);
}
