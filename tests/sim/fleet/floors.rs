//! Cron windows of a fleet become a floor in each member, divided by the policy.

use serde_json::{Value, json};
use simkube::faults::Plan;

use super::world::{Bounds, plain, window, with_preferences};
use crate::cluster::Cluster;

#[test]
fn a_cron_target_becomes_a_floor_in_each_member_by_every_policy() {
    let rooms = [("member1", 10), ("member2", 6), ("member3", 20)];
    let mut cluster = Cluster::fleet(1, Plan::default(), &rooms);
    cluster.deploy_everywhere(1);
    let weights = [("member1", 1), ("member2", 2), ("member3", 3)];
    let priorities = [("member1", 2), ("member2", 3), ("member3", 1)];
    let cases: [(Value, &[(&str, Bounds)]); 4] = [
        // 12 over 1:2:3.
        (
            with_preferences("StaticWeighted", "staticWeight", &weights),
            &[
                ("member1", (2, 4)),
                ("member2", (4, 8)),
                ("member3", (6, 13)),
            ],
        ),
        // 12 over 10:6:20, by capacity: 3.33, 2, 6.67.
        (
            plain("DynamicWeighted"),
            &[
                ("member1", (3, 7)),
                ("member2", (2, 4)),
                ("member3", (7, 14)),
            ],
        ),
        // The highest priority first; the last one keeps its minimum of one.
        (
            with_preferences("Prioritized", "priority", &priorities),
            &[
                ("member1", (5, 10)),
                ("member2", (6, 6)),
                ("member3", (1, 9)),
            ],
        ),
        // The largest member first; the other keeps its minimum of one.
        (
            plain("Aggregated"),
            &[("member1", (1, 5)), ("member3", (11, 20))],
        ),
    ];
    let more = json!({"crons": window(12), "rebalance": {"cooldownSeconds": 600}});
    cluster.ask_for("Duplicated", (3, 25), &more);
    cluster.start("pod-0");
    let full = (12, 25);
    let each = [("member1", full), ("member2", full), ("member3", full)];
    cluster.assigned(60, "twelve each", &each);
    for (assignment, expected) in cases {
        let policy = assignment["federatedHPAAssignmentType"].to_string();
        cluster.edit_fleet(&json!({"federatedHPAAssignment": assignment}));
        cluster.assigned(120, &policy, expected);
    }
    let runs = [("member1", 1), ("member2", 0), ("member3", 11)];
    cluster.runs(120, "twelve", &runs);
    cluster.edit_fleet(&json!({"crons": null}));
    cluster.assigned(60, "no floor", &[("member1", (1, 5)), ("member3", (3, 20))]);
}
