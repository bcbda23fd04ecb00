//! The bounds of each member: every policy with real members, shown by Preview first and then written, whether the
//! workload or its autoscaler is created first.

use std::collections::{BTreeMap, BTreeSet};

use rig::eventually;
use serde_json::{Value, json};

use super::world::{Bounds, FleetWorld, cluster, with_preferences};
use crate::{manual_changes::written, world::TIMEOUT};

/// The capacity of each member, in pods of the shop.
const ROOM: [(&str, u32); 3] = [("member1", 10), ("member2", 6), ("member3", 20)];
/// Part of the reason of a member that keeps pods while its share is zero.
const NO_SHARE: &str = "its share is 0";
/// The bounds of the fleet.
const FLEET_BOUNDS: Bounds = (6, 25);

/// A policy, and how its formula divides the bounds of the fleet.
struct Case {
    assignment: Value,
    expected: Vec<(&'static str, Bounds)>,
}

fn case(assignment: Value, expected: &[(&'static str, Bounds)]) -> Case {
    let expected = expected.to_vec();
    Case {
        assignment,
        expected,
    }
}

fn plain(policy: &str) -> Value {
    json!({ "federatedHPAAssignmentType": policy })
}

fn static_weights() -> Value {
    with_preferences(
        "StaticWeighted",
        "staticWeight",
        &[("member1", 1), ("member2", 2), ("member3", 3)],
    )
}

fn cases() -> Vec<Case> {
    let two_priorities = [("member2", 2), ("member1", 1)];
    let priorities = [("member2", 3), ("member1", 2), ("member3", 1)];
    vec![
        // 25 over 1:2:3 is 4.17, 8.33, 12.5: the one left over goes to the heaviest.
        case(
            static_weights(),
            &[
                ("member1", (1, 4)),
                ("member2", (2, 8)),
                ("member3", (3, 13)),
            ],
        ),
        // By capacity, 10:6:20: 6.94, 4.17, 13.89, and two left over for the heaviest. Of 6: 1.67, 1, 3.33.
        case(
            plain("DynamicWeighted"),
            &[
                ("member1", (1, 7)),
                ("member2", (1, 4)),
                ("member3", (4, 14)),
            ],
        ),
        // The highest priority is filled, then the next. An HPA needs a minimum of one.
        case(
            with_preferences("Prioritized", "priority", &priorities),
            &[
                ("member1", (1, 10)),
                ("member2", (6, 6)),
                ("member3", (1, 9)),
            ],
        ),
        // A member without a priority gets nothing; what no member can run goes to the first.
        case(
            with_preferences("Prioritized", "priority", &two_priorities),
            &[("member1", (1, 10)), ("member2", (6, 15))],
        ),
        case(
            plain("Duplicated"),
            &[
                ("member1", FLEET_BOUNDS),
                ("member2", FLEET_BOUNDS),
                ("member3", FLEET_BOUNDS),
            ],
        ),
        // The largest first.
        case(
            plain("Aggregated"),
            &[("member1", (1, 5)), ("member3", (6, 20))],
        ),
    ]
}

/// The bounds in status of members that have a share, without those that only keep their pods until others are ready:
/// in a preview no others become ready.
fn shown(status: &Value) -> Vec<(String, Bounds)> {
    let all = status["clusters"].as_array().cloned().unwrap_or_default();
    let bound = |one: &Value, name: &str| i32::try_from(one[name].as_i64().unwrap_or(0)).unwrap();
    let lands = |one: &&Value| {
        let reason = one["reason"].as_str().unwrap_or_default();
        reason.starts_with("Landing") && reason.contains(NO_SHARE)
    };
    let each = all.iter().filter(|one| !lands(one)).map(|one| {
        let name = one["name"].as_str().unwrap_or_default().to_owned();
        (name, (bound(one, "min"), bound(one, "max")))
    });
    each.filter(|(_, (_, max))| *max > 0).collect()
}

async fn shows(world: &FleetWorld, what: &str, wanted: &[(&str, Bounds)]) {
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(name, bounds)| ((*name).to_owned(), *bounds))
        .collect();
    let same = |status: &Value| (shown(status) == wanted).then_some(());
    world.status(&format!("{what}: {wanted:?}"), same).await;
}

fn absent(status: &Value, member: &str) -> Option<()> {
    let reason = cluster(status, member)?.get("reason")?.as_str()?;
    reason.contains("TargetAbsent").then_some(())
}

/// The maxima as status shows them, where `reason` is a member's.
fn maxima(status: &Value, (member, reason): (&str, &str)) -> Option<BTreeMap<String, i32>> {
    let reported = cluster(status, member)?.get("reason")?.as_str()?;
    let shown = shown(status).into_iter();
    let maxima = shown.map(|(name, (_, max))| (name, max));
    reported.contains(reason).then(|| maxima.collect())
}

/// Whether the maxima add up to the maximum of the fleet.
fn sums_to_maximum(maxima: &BTreeMap<String, i32>) -> bool {
    maxima.values().sum::<i32>() == FLEET_BOUNDS.1
}

/// A floor, a full member, a tainted member and a lost member change what a preview shows.
async fn a_preview_shows_moves(world: &FleetWorld) {
    let elastic = json!({ "targetCluster": { "clusterNames": ["member2"] }, "elastic": true });
    world
        .edit(json!({
            "rebalance": { "cooldownSeconds": 2 },
            "failurePolicy": "Reassign",
            "tolerationSeconds": 1,
            "federatedHPAAssignment": {
                "federatedHPAAssignmentType": "DynamicWeighted",
                "clusterAutoscalingPreference": [elastic],
            },
        }))
        .await;
    // 25 over 10:25:20, because it is declared elastic. Of 6: 1.09, 2.73, 2.18.
    let start = [
        ("member1", (1, 4)),
        ("member2", (3, 12)),
        ("member3", (2, 9)),
    ];
    shows(world, "as if it grew", &start).await;

    let window = json!([{
        "name": "floor", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": 11,
    }]);
    world.edit(json!({ "crons": window })).await;
    let floors = |status: &Value| {
        let each = ROOM
            .iter()
            .map(|(name, _)| cluster(status, name)?["floor"].as_i64());
        let all: i64 = each.collect::<Option<Vec<_>>>()?.into_iter().sum();
        (all == 11).then_some(())
    };
    world.status("eleven as a floor", floors).await;
    world.edit(json!({ "crons": null })).await;

    // It runs eight and has nodes for six, so the others would get what it cannot use.
    world.deploy("member2", 8).await;
    world
        .status("the full one gives", |status| {
            let found = maxima(status, ("member2", "Blocked"))?;
            (found.get("member2") == Some(&6) && sums_to_maximum(&found)).then_some(())
        })
        .await;
    world.deploy("member2", 1).await;
    a_preview_shows_absence(world).await;
    world
        .edit(json!({ "failurePolicy": null, "tolerationSeconds": null }))
        .await;
}

/// Without the second, because of a taint and because it is unreachable; and with it again.
async fn a_preview_shows_absence(world: &FleetWorld) {
    let without =
        |found: &BTreeMap<String, i32>| !found.contains_key("member2") && sums_to_maximum(found);
    let taint = ["--taint", "upgrade:NoExecute"];
    world.join("member2", &taint).await;
    world
        .status("the tainted one has no share", |status| {
            let found = maxima(status, ("member2", NO_SHARE))?;
            without(&found).then_some(())
        })
        .await;
    world.join("member2", &[]).await;
    let again = |status: &Value| {
        let found = maxima(status, ("member2", ""))?;
        (found.contains_key("member2") && sums_to_maximum(&found)).then_some(())
    };
    world.status("it has one again", again).await;
    world.fleet.member("member2").block();
    world
        .status("the lost one has no share", |status| {
            let found = maxima(status, ("member2", "Failed"))?;
            without(&found).then_some(())
        })
        .await;
    world.fleet.member("member2").unblock();
    world.status("it has one again", again).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_divides_the_bounds_by_its_formula_and_a_preview_writes_nothing() {
    let world = FleetWorld::start("assignment", &ROOM).await;
    // No move may happen meanwhile: this checks assignments only.
    let quiet = json!({ "cooldownSeconds": 600 });
    let more = json!({
        "scaleStrategy": "Preview",
        "rebalance": quiet.clone(),
        "federatedHPAAssignment": static_weights(),
    });
    world.ask("StaticWeighted", FLEET_BOUNDS, &more).await;
    let controller = world.run();

    // The autoscaler is created first. Each member counts once its workload exists.
    world
        .status("no target anywhere", |status| {
            ROOM.iter().try_for_each(|(name, _)| absent(status, name))
        })
        .await;
    world.deploy("member1", 1).await;
    world.deploy("member3", 1).await;
    let two = [("member1", (1, 6)), ("member3", (5, 19))];
    shows(&world, "two of three", &two).await;
    world
        .status("no target in member2", |status| absent(status, "member2"))
        .await;
    world.deploy("member2", 1).await;
    for Case {
        assignment,
        expected,
    } in cases()
    {
        let what = assignment["federatedHPAAssignmentType"].to_string();
        world
            .edit(json!({ "federatedHPAAssignment": assignment }))
            .await;
        shows(&world, &what, &expected).await;
    }
    a_preview_shows_moves(&world).await;
    controller.further_syncs(2).await;
    assert_eq!(world.bounds().await.len(), 0);
    assert_eq!(world.member_writes(), BTreeSet::new());
    let writes = world
        .hub_requests()
        .into_iter()
        .filter(rig::AuditEvent::is_write);
    let wrote: BTreeSet<String> = writes.map(|event| written(&event)).collect();
    let allowed = ["federatedhpas/status", "events"];
    assert!(
        wrote.iter().all(|what| allowed.contains(&what.as_str())),
        "{wrote:?}"
    );

    // The same with Auto.
    world
        .edit(json!({ "scaleStrategy": "Auto", "rebalance": quiet }))
        .await;
    for Case {
        assignment,
        expected,
    } in cases()
    {
        let what = assignment["federatedHPAAssignmentType"].to_string();
        world
            .edit(json!({ "federatedHPAAssignment": assignment }))
            .await;
        world.assigned(&what, &expected).await;
        shows(&world, &what, &expected).await;
        world.condition("Assigned", "True/Assigned").await;
        // Counts above the bounds by then fall, counts below rise.
        world
            .runs_so("replicas within the bounds", |found| {
                found.iter().all(|(name, (asked, ready))| {
                    let mine = expected.iter().find(|(member, _)| member == name);
                    let (min, max) = mine.map_or((0, 0), |(_, bounds)| *bounds);
                    (min..=max).contains(asked) && (ready == asked || name == "member2")
                })
            })
            .await;
    }

    // A member is excluded: the others are ready before its pods are deleted. How many pods each of the two runs depends
    // on how many it ran when the load came.
    world.load.evenly(14.0);
    world
        .runs_so("13 or so in two members", |found| {
            let [first, second, third] = ["member1", "member2", "member3"].map(|name| found[name]);
            let ready = first.0 == first.1 && third.0 == third.1;
            ready && second == (0, 0) && third.0 >= 8 && first.0 + third.0 >= 13
        })
        .await;
    world
        .edit(json!({ "clusterAffinity": { "exclude": ["member3"] } }))
        .await;
    eventually(TIMEOUT, "member3 drained", || async {
        let all = world.serving(&["member3", "member1", "member2"]).await;
        assert!(all >= 12, "too few serve: {all}");
        match world.counts("member3").await? {
            (0, 0) => Ok(()),
            found => Err(format!("{found:?}, {all} in all")),
        }
    })
    .await;
    world
        .capped("without member3", &[("member1", 19), ("member2", 6)])
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}
