//! The bounds of each member by every policy, shown by a preview first and then written; and moves in a preview.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::world::{Bounds, plain, three, with_preferences};
use crate::cluster::{Cluster, window};

const ROOMS: [(&str, u64); 3] = three([10, 6, 20]);
/// Part of the reason of a member that keeps pods while its share is zero.
const NO_SHARE: &str = "its share is 0";

/// A policy, with its division of 6 to 25 replicas.
type Case = (Value, Vec<(&'static str, Bounds)>);

fn cases() -> Vec<Case> {
    let two_priorities = [("member2", 2), ("member1", 1)];
    vec![
        // 25 over 1:2:3 is 4.17, 8.33, 12.5; the remaining replica goes to the heaviest.
        (
            with_preferences("StaticWeighted", "staticWeight", &three([1, 2, 3])),
            three([(1, 4), (2, 8), (3, 13)]).into(),
        ),
        // By capacity, 10:6:20: 6.94, 4.17, 13.89, with two remaining replicas for the heaviest. 6 gives 1.67, 1, 3.33.
        (
            plain("DynamicWeighted"),
            three([(1, 7), (1, 4), (4, 14)]).into(),
        ),
        // The highest priority is filled before the next. An HPA needs a minimum of one.
        (
            with_preferences("Prioritized", "priority", &three([2, 3, 1])),
            three([(1, 10), (6, 6), (1, 9)]).into(),
        ),
        // A member without a priority gets nothing; replicas that no member can run go to the first.
        (
            with_preferences("Prioritized", "priority", &two_priorities),
            vec![("member1", (1, 10)), ("member2", (6, 15))],
        ),
        (plain("Duplicated"), three([(6, 25); 3]).into()),
        // The largest member comes first.
        (
            plain("Aggregated"),
            vec![("member1", (1, 5)), ("member3", (6, 20))],
        ),
    ]
}

/// The bounds in status of members that have a share, without members that only keep their pods until others are ready:
/// in a preview no others become ready.
fn shown(cluster: &Cluster) -> BTreeMap<String, Bounds> {
    let names = cluster.members.names().into_iter();
    let rows = names.map(|name| (name.clone(), cluster.row(&name)));
    let bound = |row: &Value, name: &str| row[name].as_u64().unwrap_or_default();
    let lands = |row: &Value| {
        let reason = row["reason"].as_str().unwrap_or_default();
        reason.starts_with("Landing") && reason.contains(NO_SHARE)
    };
    rows.filter(|(_, row)| !lands(row) && bound(row, "max") > 0)
        .map(|(name, row)| (name, (bound(&row, "min"), bound(&row, "max"))))
        .collect()
}

fn shows(cluster: &mut Cluster, what: &str, wanted: &[(&str, Bounds)]) {
    let wanted: BTreeMap<_, _> = wanted
        .iter()
        .map(|(name, bounds)| ((*name).to_owned(), *bounds))
        .collect();
    cluster.until(90, what, |cluster| shown(cluster) == wanted);
}

/// Waits until status divides all of the maximum, with this reason for the second member, whose maximum `wanted` accepts.
fn second_has(cluster: &mut Cluster, what: &str, reason: &str, wanted: fn(Option<u64>) -> bool) {
    cluster.until(120, what, |cluster| {
        let found = shown(cluster);
        let of_second = found.get("member2").map(|(_, max)| *max);
        let all: u64 = found.values().map(|(_, max)| max).sum();
        cluster.has_reason("member2", reason) && all == 25 && wanted(of_second)
    });
}

#[test]
fn every_policy_divides_the_bounds_by_its_formula_and_a_preview_writes_nothing() {
    let mut cluster = Cluster::fleet(&ROOMS);
    // No moves, because this test checks assignments only.
    let quiet = json!({"cooldownSeconds": 600});
    let more = json!({
        "scaleStrategy": "Preview", "rebalance": quiet, "federatedHPAAssignment": cases()[0].0,
    });
    cluster.ask_for("StaticWeighted", (6, 25), &more);
    cluster.start("pod-0");
    // The autoscaler is created first. Each member counts once its workload exists.
    cluster.until(60, "no target anywhere", |cluster| {
        ROOMS
            .iter()
            .all(|(name, _)| cluster.has_reason(name, "TargetAbsent"))
    });
    cluster.deploy("member1", 1);
    cluster.deploy("member3", 1);
    shows(
        &mut cluster,
        "two of three",
        &[("member1", (1, 6)), ("member3", (5, 19))],
    );
    assert!(cluster.has_reason("member2", "TargetAbsent"));
    cluster.deploy("member2", 1);
    for (assignment, expected) in cases() {
        let what = assignment["federatedHPAAssignmentType"].to_string();
        cluster.edit_fleet(&json!({"federatedHPAAssignment": assignment}));
        shows(&mut cluster, &what, &expected);
    }
    a_preview_shows_moves(&mut cluster);
    assert_eq!(cluster.member_writes(), Vec::<String>::new());
    assert_eq!(
        cluster.hub_writes(),
        ["events", "federatedhpas/status"].map(str::to_owned).into()
    );

    // With Auto, the same bounds are written.
    cluster.edit_fleet(&json!({"scaleStrategy": "Auto", "rebalance": quiet}));
    for (assignment, expected) in cases() {
        let what = assignment["federatedHPAAssignmentType"].to_string();
        cluster.edit_fleet(&json!({"federatedHPAAssignment": assignment}));
        cluster.assigned(120, &what, &expected);
        shows(&mut cluster, &what, &expected);
        assert_eq!(cluster.condition("Assigned"), "True/Assigned");
        // Counts above the bounds fall, and counts below them rise.
        cluster.until(90, "counts within the bounds", |cluster| {
            expected.iter().all(|(name, (min, max))| {
                cluster
                    .counts(name)
                    .is_some_and(|(asked, _)| (*min..=*max).contains(&asked))
            })
        });
    }
    an_excluded_member_is_drained_when_others_are_ready(&mut cluster);
}

/// Shows in a preview the effects of a floor, a full member, a tainted member and a lost member.
fn a_preview_shows_moves(cluster: &mut Cluster) {
    let elastic = json!([{"targetCluster": {"clusterNames": ["member2"]}, "elastic": true}]);
    cluster.edit_fleet(&json!({
        "rebalance": {"cooldownSeconds": 15, "settleObservations": 2},
        "failurePolicy": "Reassign", "tolerationSeconds": 1,
        "federatedHPAAssignment": {
            "federatedHPAAssignmentType": "DynamicWeighted", "clusterAutoscalingPreference": elastic,
        },
    }));
    // 25 over 10:25:20, because it is declared elastic. 6 gives 1.09, 2.73, 2.18.
    let start = three([(1, 4), (3, 12), (2, 9)]);
    shows(cluster, "as if it grew", &start);
    cluster.edit_fleet(&json!({"crons": window(11)}));
    cluster.until(60, "eleven as a floor", |cluster| {
        let floor = |(name, _): &(&str, u64)| cluster.row(name)["floor"].as_u64().unwrap_or(0);
        ROOMS.iter().map(floor).sum::<u64>() == 11
    });
    cluster.edit_fleet(&json!({"crons": null}));
    // The member runs eight and has nodes for six, so its unused part would go to the others.
    cluster.deploy("member2", 8);
    second_has(cluster, "the full one gives", "Blocked", |max| {
        max == Some(6)
    });
    cluster.deploy("member2", 1);

    // Without the second member, because of a taint and because it does not answer; and with it again.
    let taint = |taint: Value| json!({"annotations": {"foretide.io/taints": taint}});
    cluster.mark("member2", &taint(json!("upgrade:NoExecute")));
    second_has(cluster, "the tainted one has no share", NO_SHARE, |max| {
        max.is_none()
    });
    cluster.mark("member2", &taint(Value::Null));
    second_has(cluster, "it has one again", "", |max| max.is_some());
    cluster.block("member2");
    second_has(cluster, "the lost one has no share", "Failed", |max| {
        max.is_none()
    });
    cluster.unblock("member2");
    second_has(cluster, "it has one again", "", |max| max.is_some());
    cluster.edit_fleet(&json!({"failurePolicy": null, "tolerationSeconds": null}));
}

fn an_excluded_member_is_drained_when_others_are_ready(cluster: &mut Cluster) {
    cluster.evenly(14_000);
    cluster.runs(
        180,
        "fourteen in two members",
        &[("member1", 4), ("member2", 0), ("member3", 10)],
    );
    cluster.edit_fleet(&json!({"clusterAffinity": {"exclude": ["member3"]}}));
    cluster.until(300, "the third is drained", |cluster| {
        assert!(cluster.serving() >= 13, "too few serve: {}", cluster.show());
        cluster.counts("member3") == Some((0, 0))
    });
    cluster.capped(90, "without member3", &[("member1", 19), ("member2", 6)]);
}
