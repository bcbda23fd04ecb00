//! Budget follows local demand: a member at its maximum receives budget from an idle member and from one whose nodes are
//! full.

use serde_json::json;

use super::world::three;
use crate::cluster::Cluster;

#[test]
fn a_saturated_member_receives_maximum_from_a_blocked_and_an_idle_member() {
    let rooms = three([10, 3, 10]);
    let mut cluster = Cluster::fleet(&rooms);
    // The second is declared elastic, and never adds nodes.
    let elastic = json!([{"targetCluster": {"clusterNames": ["member2"]}, "elastic": true}]);
    let assignment = |policy: &str| json!({"federatedHPAAssignmentType": policy, "clusterAutoscalingPreference": elastic});
    let more = json!({"federatedHPAAssignment": assignment("DynamicWeighted")});
    cluster.locally(&three([1_000, 1_000, 1_000]));
    cluster.ask_for("DynamicWeighted", (3, 12), &more);
    cluster.start("pod-0");
    // The FederatedHPA is created first, and takes effect when the target exists.
    cluster.until(60, "no target", |cluster| {
        let absent = |(name, _): &(&str, u64)| cluster.has_reason(name, "TargetAbsent");
        cluster.condition("Assigned") == "False/NoCandidate" && rooms.iter().all(absent)
    });
    cluster.deploy_everywhere(1);
    // 12 over 10:12:10 is 3.75, 4.5, 3.75; 3 is 0.94, 1.13, 0.94.
    cluster.assigned(60, "by capacity", &three([(1, 4), (2, 5), (1, 3)]));

    // The second asks for five and has nodes for three; then the first asks for more than its maximum.
    cluster.locally(&three([1_000, 5_000, 1_000]));
    cluster.until(60, "pods without a node", |cluster| {
        cluster.counts("member2") == Some((5, 3))
    });
    cluster.locally(&three([9_000, 5_000, 1_000]));
    let moved = three([8, 3, 1]);
    cluster.capped(180, "the first has all that others do not use", &moved);
    cluster.runs(60, "eight in the first", &moved);

    // The demand moves, and the budget follows.
    cluster.locally(&three([1_000, 5_000, 7_000]));
    cluster.until(300, "seven in the third", |cluster| {
        let all: u64 = cluster.bounds().values().map(|(_, max)| max).sum();
        assert_eq!(all, 12, "after every move: {}", cluster.show());
        cluster.has(&three([1, 3, 7]))
    });

    // Aggregated uses as few clusters as possible: the second proved to be small, so it has nothing; the third has
    // little until it needs more.
    cluster.locally(&[("member1", 1_000), ("member3", 1_000)]);
    cluster.until(120, "all idle", |cluster| {
        cluster.has(&[("member1", 1), ("member3", 1)])
    });
    cluster.edit_fleet(&json!({"federatedHPAAssignment": assignment("Aggregated")}));
    cluster.capped(120, "by size", &[("member1", 10), ("member3", 2)]);
    cluster.locally(&[("member1", 1_000), ("member3", 6_000)]);
    cluster.runs(180, "six in the third", &[("member2", 0), ("member3", 6)]);
    cluster.capped(1, "what it needs", &[("member1", 6), ("member3", 6)]);
}
