//! Priorities: replicas without a node in the first cluster overflow to the next, and the last one is the first to shrink.

use serde_json::json;
use simkube::faults::Plan;

use super::world::with_preferences;
use crate::cluster::Cluster;

#[test]
fn unschedulable_pods_overflow_to_the_next_priority_and_the_lowest_drains_first() {
    let rooms = [("member1", 5), ("member2", 5), ("member3", 20)];
    let mut cluster = Cluster::fleet(1, Plan::default(), &rooms);
    for (member, replicas) in [("member1", 2), ("member2", 0), ("member3", 0)] {
        cluster.deploy(member, replicas);
    }
    // The first is declared elastic, and never adds nodes.
    let mut assignment = with_preferences(
        "Prioritized",
        "priority",
        &[("member1", 3), ("member2", 2), ("member3", 1)],
    );
    assignment["clusterAutoscalingPreference"][0]["elastic"] = json!(true);
    let more = json!({
        "scalingToZero": true,
        "rebalance": {"cooldownSeconds": 60, "settleObservations": 2},
        "federatedHPAAssignment": assignment,
    });
    cluster.evenly(4_000);
    cluster.ask_for("Prioritized", (2, 20), &more);
    cluster.start("pod-0");
    cluster.capped(60, "all for the first", &[("member1", 20)]);
    cluster.runs(60, "four in the first", &[("member1", 4)]);

    // More than its nodes can run: after the delay only the next member helps.
    cluster.evenly(9_000);
    cluster.until_shown(180, "nine, the first full", &|cluster| {
        assert_eq!(
            cluster.counts("member3"),
            Some((0, 0)),
            "{}",
            cluster.show()
        );
        cluster.has(&[("member1", 5), ("member2", 4)])
    });
    assert_eq!(cluster.bounds()["member1"].1, 5);
    cluster.evenly(16_000);
    cluster.runs(
        240,
        "sixteen in three",
        &[("member1", 5), ("member2", 5), ("member3", 6)],
    );

    // The load falls: the last shrinks first, and the first keeps its replicas.
    cluster.evenly(7_000);
    cluster.until_shown(300, "the last is drained", &|cluster| {
        assert!(
            cluster.has(&[("member1", 5), ("member2", 5)]),
            "{}",
            cluster.show()
        );
        cluster
            .counts("member3")
            .is_some_and(|(asked, _)| asked <= 1)
    });
    cluster.until_shown(300, "seven in all", &|cluster| {
        assert!(cluster.has(&[("member1", 5)]), "{}", cluster.show());
        cluster.has(&[("member2", 1), ("member3", 1)])
    });

    // Almost no load: members that are not needed scale to zero, and wake again.
    cluster.evenly(1_500);
    let two = [("member1", 2), ("member2", 0), ("member3", 0)];
    cluster.runs(400, "two in the first", &two);
    for _second in 0..120 {
        cluster.run_for(1);
        assert!(cluster.has(&two), "{}", cluster.show());
    }
    cluster.evenly(9_000);
    cluster.runs(
        240,
        "nine again",
        &[("member1", 5), ("member2", 3), ("member3", 1)],
    );
}
