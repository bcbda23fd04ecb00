//! Members that are not needed scale to zero and wake when needed, in the order of the policy.

use serde_json::{Value, json};

use super::world::{three, with_preferences};
use crate::cluster::Cluster;

const ROOMS: [(&str, u64); 3] = three([22, 6, 20]);

/// A policy with a number for each member, each with a maximum of two: the last one awake is soon full.
fn assignment(policy: &str, field: &str, numbers: [u64; 3]) -> Value {
    let mut assignment = with_preferences(policy, field, &three(numbers));
    for preference in assignment["clusterAutoscalingPreference"]
        .as_array_mut()
        .unwrap()
    {
        preference["autoscalingMaxThreshold"] = json!(2);
    }
    assignment
}

/// The ledger's time of waking of each member but the last one awake, all of which are awake.
fn wake_times(cluster: &Cluster, last: &str) -> Option<Vec<i64>> {
    let status = cluster.fleet_status();
    let ledger: Value = serde_json::from_str(status["ledger"].as_str()?).ok()?;
    let members = ledger["members"].as_object()?.iter();
    let sleepers = members.filter(|(name, _)| *name != last);
    sleepers
        .map(|(_, entry)| {
            entry["woken"]
                .as_i64()
                .filter(|_| entry.get("slept").is_none())
        })
        .collect()
}

#[test]
fn unneeded_members_sleep_and_wake_by_policy_and_never_if_duplicated() {
    let mut cluster = Cluster::fleet(&ROOMS);
    cluster.deploy_everywhere(1);
    cluster.evenly(5_000);
    let cases = [
        // The lightest member sleeps first.
        (
            assignment("StaticWeighted", "staticWeight", [1, 2, 3]),
            "member3",
        ),
        // Among equal members the last by name sleeps first: each can run all replicas.
        (
            assignment("DynamicWeighted", "staticWeight", [1, 1, 1]),
            "member1",
        ),
        (
            assignment("Aggregated", "staticWeight", [1, 1, 1]),
            "member1",
        ),
        (assignment("Prioritized", "priority", [2, 3, 1]), "member2"),
    ];
    let more = json!({
        "scalingToZero": true,
        // Without cooldowns no member is woken too soon after a sleep, which would keep it awake for an hour.
        "rebalance": {"cooldownSeconds": 0, "settleObservations": 2}, "federatedHPAAssignment": cases[0].0,
    });
    cluster.ask_for("StaticWeighted", (1, 6), &more);
    cluster.start("pod-0");
    for (assignment, last) in cases {
        let policy = assignment["federatedHPAAssignmentType"].to_string();
        cluster.edit_fleet(&json!({"federatedHPAAssignment": assignment}));
        cluster.until(
            180,
            &format!("{policy}: five, in three members"),
            |cluster| {
                cluster.serving() >= 5
                    && ROOMS
                        .iter()
                        .all(|(name, _)| cluster.counts(name).unwrap().0 > 0)
            },
        );
        cluster.evenly(500);
        cluster.until(
            400,
            &format!("{policy}: {last} alone is awake"),
            |cluster| {
                ROOMS
                    .iter()
                    .all(|(name, _)| cluster.has(&[(name, u64::from(*name == last))]))
            },
        );
        // The HPAs of sleeping members stay.
        assert_eq!(cluster.bounds().len(), 3, "{policy}");
        cluster.evenly(5_000);
        cluster.until(120, &format!("{policy}: all are woken"), |cluster| {
            wake_times(cluster, last).is_some()
        });
        let woken = wake_times(&cluster, last).unwrap();
        if policy.contains("Prioritized") {
            assert!(woken[0] <= woken[1], "{woken:?}");
        } else {
            assert_eq!(woken[0], woken[1], "{policy}: one decision wakes all");
        }
    }
    cluster.until(60, "five again", |cluster| cluster.serving() >= 5);
    for may_sleep in [false, true] {
        let duplicated = json!({"federatedHPAAssignmentType": "Duplicated"});
        cluster
            .edit_fleet(&json!({"scalingToZero": may_sleep, "federatedHPAAssignment": duplicated}));
        cluster.evenly(500);
        cluster.runs(180, "one each", &three([1, 1, 1]));
        cluster.run_for(120);
        cluster.runs(0, "one each, still", &three([1, 1, 1]));
    }
}
