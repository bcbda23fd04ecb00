//! Members that are not needed scale to zero and wake when needed, in the order of the policy; and unused maximum goes
//! where it is needed, by the policy.

use serde_json::{Value, json};
use simkube::faults::Plan;

use super::world::with_preferences;
use crate::cluster::Cluster;

const ROOMS: [(&str, u64); 3] = [("member1", 22), ("member2", 6), ("member3", 20)];

/// A policy with a number for each member, each with a maximum of two: the last one awake is soon full.
fn assignment(policy: &str, field: &str, numbers: [u64; 3]) -> Value {
    let numbers = [
        ("member1", numbers[0]),
        ("member2", numbers[1]),
        ("member3", numbers[2]),
    ];
    let mut assignment = with_preferences(policy, field, &numbers);
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

fn three(counts: [u64; 3]) -> [(&'static str, u64); 3] {
    let [first, second, third] = counts;
    [("member1", first), ("member2", second), ("member3", third)]
}

#[test]
fn unneeded_members_sleep_and_wake_by_policy_and_never_if_duplicated() {
    let mut cluster = Cluster::fleet(1, Plan::default(), &ROOMS);
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
        cluster.until_shown(
            180,
            &format!("{policy}: five, in three members"),
            &|cluster| {
                cluster.serving() >= 5
                    && ROOMS
                        .iter()
                        .all(|(name, _)| cluster.counts(name).unwrap().0 > 0)
            },
        );
        cluster.evenly(500);
        cluster.until_shown(
            400,
            &format!("{policy}: {last} alone is awake"),
            &|cluster| {
                ROOMS
                    .iter()
                    .all(|(name, _)| cluster.has(&[(name, u64::from(*name == last))]))
            },
        );
        // The HPAs of sleeping members stay.
        assert_eq!(cluster.bounds().len(), 3, "{policy}");
        cluster.evenly(5_000);
        cluster.until_shown(120, &format!("{policy}: all are woken"), &|cluster| {
            wake_times(cluster, last).is_some()
        });
        let woken = wake_times(&cluster, last).unwrap();
        if policy.contains("Prioritized") {
            assert!(woken[0] <= woken[1], "{woken:?}");
        } else {
            assert_eq!(woken[0], woken[1], "{policy}: one decision wakes all");
        }
    }
    cluster.until_shown(60, "five again", &|cluster| cluster.serving() >= 5);
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

#[test]
fn unused_maximum_goes_by_policy_to_members_with_capacity() {
    let mut cluster = Cluster::fleet(1, Plan::default(), &ROOMS);
    cluster.deploy_everywhere(1);
    let more = json!({"rebalance": {"cooldownSeconds": 1, "settleObservations": 2}});
    cluster.ask_for("DynamicWeighted", (6, 25), &more);
    cluster.start("pod-0");
    // 25 over 22:6:20 is 11.46, 3.13, 10.42.
    cluster.capped(60, "by capacity", &three([12, 3, 10]));
    cluster.locally(&[("member1", 11_600)]);
    cluster.until_shown(
        300,
        "more room for the first, of the same total",
        &|cluster| {
            let found = cluster.bounds();
            let all: u64 = found.values().map(|(_, max)| max).sum();
            found["member1"].1 > 12 && all == 25
        },
    );
    assert!(!cluster.events("Optimized").is_empty());

    // The first has nearly all of the maximum and uses a third of it; the third has little and uses it up. Unused
    // maximum goes to the member with the most capacity beyond its running replicas: 17 in the third, 14 in the first.
    let aggregated = json!({"federatedHPAAssignmentType": "Aggregated"});
    cluster.edit_fleet(&json!({"minReplicas": 1, "federatedHPAAssignment": aggregated}));
    cluster.locally(&[]);
    cluster.capped(300, "the largest first", &[("member1", 22), ("member3", 3)]);
    cluster.locally(&[("member1", 7_800), ("member3", 2_800)]);
    cluster.capped(
        300,
        "all that is unused in the third",
        &[("member1", 8), ("member3", 17)],
    );
    cluster.runs(60, "no member changes its replicas", &three([8, 0, 3]));
}

#[test]
fn a_saturated_member_takes_unused_maximum_from_the_next_priority_first() {
    let mut cluster = Cluster::fleet(1, Plan::default(), &ROOMS);
    cluster.deploy_everywhere(2);
    let each = |third: u64| [("member1", 1_900), ("member2", 1_900), ("member3", third)];
    cluster.locally(&each(950));
    let mut priorities = with_preferences("Prioritized", "priority", &three([3, 2, 1]));
    for (at, most) in [22, 6, 32].into_iter().enumerate() {
        priorities["clusterAutoscalingPreference"][at]["autoscalingMaxThreshold"] = json!(most);
    }
    let more = json!({
        "rebalance": {"cooldownSeconds": 15, "settleObservations": 2}, "federatedHPAAssignment": priorities,
    });
    cluster.run_for(20);
    cluster.ask_for("Prioritized", (1, 32), &more);
    cluster.start("pod-0");
    cluster.capped(60, "by priority", &three([22, 6, 4]));
    cluster.locally(&each(6_800));
    cluster.capped(180, "three of the second", &three([22, 3, 7]));
    cluster.runs(90, "seven in the third", &[("member3", 7)]);
    cluster.locally(&each(11_800));
    cluster.capped(
        180,
        "one of the second, four of the first",
        &three([18, 2, 12]),
    );
    cluster.runs(90, "twelve in the third", &three([2, 2, 12]));
    assert!(
        ["Saturated", "Donor"]
            .iter()
            .all(|reason| !cluster.events(reason).is_empty())
    );
    cluster.run_for(120);
    cluster.capped(0, "still", &three([18, 2, 12]));
}
