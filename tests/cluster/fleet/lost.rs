//! A member is lost and comes back, is tainted, or gets other credentials; the hub's controller dies.
//! Whoever serves goes on serving, and nobody dips when things are well again.

use std::collections::BTreeMap;

use foretide::clock::Clock;
use jiff::SignedDuration;
use k8s_openapi::{
    ByteString,
    api::core::v1::{Pod, Secret, ServiceAccount},
};
use kube::{
    Api, Client,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use rig::eventually;
use serde_json::{Value, json};

use super::world::{ACCOUNT, Bounds, FleetWorld, SHOP, SYSTEM, preferring};
use crate::{
    hands::delete,
    world::{Controller, Counts, NAMESPACE, PATIENCE},
};

const ROOMS: [(&str, u32); 3] = [("member1", 10), ("member2", 10), ("member3", 10)];

fn weights() -> Value {
    preferring(
        "StaticWeighted",
        "staticWeight",
        &[("member1", 1), ("member2", 1), ("member3", 1)],
    )
}

/// The counts of each member from now on.
async fn watch_all(world: &FleetWorld) -> BTreeMap<&str, Counts> {
    let mut all = BTreeMap::new();
    for (name, _) in world.fleet.members() {
        all.insert(name, world.watch(name).await);
    }
    all
}

/// What status remembers of each member's budget: the number and the time of its last move.
async fn ledger(world: &FleetWorld) -> Vec<(String, Value, Value)> {
    let found = world.federated().get(SHOP).await.unwrap();
    let status = serde_json::to_value(found.status).unwrap();
    let all = status["clusters"].as_array().unwrap().iter();
    let each = all.map(|one| {
        let name = one["name"].as_str().unwrap().to_owned();
        (name, one["max"].clone(), one["lastTransfer"].clone())
    });
    each.collect()
}

/// Whether every member runs as many as it was given to; fails if one asks for more.
fn within(given: &BTreeMap<String, Bounds>, found: &BTreeMap<String, (i32, i32)>) -> bool {
    found.iter().all(|(member, (asked, ready))| {
        let (min, max) = given[member];
        assert!(*asked <= max, "{member}: {asked} of {given:?}");
        *asked >= min && asked == ready
    })
}

/// How long five syncs take.
async fn lasting(controller: &Controller) -> SignedDuration {
    let began = Clock::system().now();
    controller.further_syncs(5).await;
    Clock::system().now().duration_since(began)
}

/// The bounds that a member's autoscaler has.
async fn bounds(world: &FleetWorld, member: &str) -> Option<Bounds> {
    world.bounds().await.get(member).copied()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_member_is_retained_a_dead_hub_is_outlived_and_credentials_rotate() {
    let world = FleetWorld::start("lost", &ROOMS).await;
    world.deploy_everywhere(2).await;
    let more = json!({ "federatedHPAAssignment": weights() });
    world.load.evenly(9.0);
    world.ask("StaticWeighted", (3, 24), &more).await;
    let controller = world.run();
    let thirds = [("member1", 8), ("member2", 8), ("member3", 8)];
    world.capped("a third each", &thirds).await;
    world
        .runs_so("nine or so", |found| {
            let all: i32 = found.values().map(|(_, ready)| *ready).sum();
            let settled = |(asked, ready): &(i32, i32)| asked == ready && *asked >= 2;
            (9..=11).contains(&all) && found.values().all(settled)
        })
        .await;

    // So long a few syncs take while every member answers.
    let usual = lasting(&controller).await;

    // Connections to a member hang. What it has stays its own, and it scales on by itself; the
    // others are decided as before.
    world.fleet.member("member2").black_hole();
    world
        .condition("MembersReachable", "False/Unreachable")
        .await;
    world.reason("member2", "Unknown").await;
    let unusual = lasting(&controller).await;
    assert!(
        unusual <= usual * 3,
        "five syncs take {unusual:?} instead of {usual:?}: one member delays all"
    );
    world.load.evenly(18.0);
    // Each autoscaler sees what the others leave it, so who has one more is not said.
    world
        .runs_so("eighteen or so, the lost one's among them", |found| {
            let all: i32 = found.values().map(|(_, ready)| *ready).sum();
            let settled = |(asked, ready): &(i32, i32)| asked == ready && *asked >= 4;
            (17..=20).contains(&all) && found.values().all(settled)
        })
        .await;
    world
        .edit(json!({ "minReplicas": 12, "maxReplicas": 27 }))
        .await;
    // MAX without what the lost one holds, and at least their share of MIN: 27 - 8 and 12 - 1.
    world
        .bounds_are("the others follow the spec", |found| {
            let others = [found["member1"], found["member3"]];
            let most: i32 = others.iter().map(|(_, max)| max).sum();
            most == 19 && others.iter().all(|(min, _)| (5..=7).contains(min))
        })
        .await;
    let theirs = bounds(&world, "member2").await;
    assert_eq!(theirs.map(|(_, max)| max), Some(8));

    // It is back, with a share of the new numbers, and nobody had fewer pods meanwhile.
    let ninths = [("member1", 9), ("member2", 9), ("member3", 9)];
    let watched = watch_all(&world).await;
    world.fleet.member("member2").restore();
    world.condition("MembersReachable", "True/Reachable").await;
    world.capped("a third each of the new", &ninths).await;
    controller.further_syncs(4).await;
    let lowest: i32 = watched.values().map(Counts::lowest).sum();
    assert!(lowest >= 16, "a dip to {lowest}");

    // The hub's controller, now the program itself, is killed while the load changes: members scale up
    // and down by their own autoscalers, within the bounds that they were given.
    drop(controller);
    let mut program = world.binary();
    world.further_looks(3).await;
    world.capped("as before", &ninths).await;
    let standing = ledger(&world).await;
    world.load.evenly(24.0);
    program.kill().await.unwrap();
    let given = world.bounds().await;
    world
        .runs_so("eight or so each", |found| {
            let all: i32 = found.values().map(|(_, ready)| *ready).sum();
            within(&given, found) && (22..=27).contains(&all)
        })
        .await;
    // What the killed one had on its way has come.
    let given = world.bounds().await;
    let writes = world.member_write_count();
    world.load.evenly(15.0);
    // Minima that a floor had raised stay so until the hub is back.
    world
        .runs_so("fifteen or a few more", |found| {
            let all: i32 = found.values().map(|(asked, _)| *asked).sum();
            within(&given, found) && (14..=19).contains(&all)
        })
        .await;
    assert_eq!(world.member_write_count(), writes, "nobody is there");
    assert_eq!(world.bounds().await, given);

    // Its successor takes over, under load that changes again: nobody is given less, no move is made
    // anew, and fewer pods than are needed never run.
    let watched = watch_all(&world).await;
    let mut program = world.binary();
    world.further_looks(2).await;
    world.load.evenly(18.0);
    world.further_looks(4).await;
    let served = world
        .runs_so("eighteen or so", |found| {
            let all: i32 = found.values().map(|(_, ready)| *ready).sum();
            (17..=21).contains(&all)
        })
        .await;
    assert_eq!(served.len(), 3);
    let lowest: i32 = watched.values().map(Counts::lowest).sum();
    assert!(lowest >= 14, "a dip to {lowest}");
    world.capped("as ever", &ninths).await;
    assert_eq!(ledger(&world).await, standing);
    program.kill().await.unwrap();
    let controller = world.run();
    credentials_change_hands(&world, &controller).await;

    // Credentials that have ended, and new ones.
    let accounts: Api<ServiceAccount> = Api::namespaced(world.cluster("member3").client(), SYSTEM);
    delete(&accounts, ACCOUNT).await;
    world
        .condition("MembersReachable", "False/Unreachable")
        .await;
    world.join("member3", &[]).await;
    world.condition("MembersReachable", "True/Reachable").await;
    world
        .edit(json!({ "minReplicas": 3, "maxReplicas": 24 }))
        .await;
    world.capped("a third each", &thirds).await;
    world
        .runs_so("eighteen or so, as ever", |found| {
            let all: i32 = found.values().map(|(_, ready)| *ready).sum();
            (17..=21).contains(&all)
        })
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}

/// Since when all members are reachable.
async fn reachable_since(world: &FleetWorld) -> Value {
    world
        .status("all are reachable", |status| {
            let mut all = status["conditions"].as_array()?.iter();
            let found = all.find(|one| one["type"] == "MembersReachable")?;
            (found["status"] == "True").then(|| found["lastTransitionTime"].clone())
        })
        .await
}

/// A client with the credentials that the hub has for the third member now.
async fn as_the_hub(world: &FleetWorld) -> Client {
    let secrets: Api<Secret> = Api::namespaced(world.fleet.hub.client(), SYSTEM);
    let secret = secrets.get("member3").await.unwrap();
    let ByteString(kubeconfig) = secret.data.unwrap()["kubeconfig"].clone();
    let kubeconfig = Kubeconfig::from_yaml(&String::from_utf8(kubeconfig).unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// A member gets other credentials while those it has are good, and then those are revoked: nobody
/// notices either.
async fn credentials_change_hands(world: &FleetWorld, controller: &Controller) {
    controller.further_syncs(2).await;
    let since = reachable_since(world).await;
    let pods: Api<Pod> = Api::namespaced(as_the_hub(world).await, NAMESPACE);
    pods.list(&ListParams::default()).await.unwrap();

    // Whoever connects anew lists anew.
    let member = world.fleet.member("member3");
    let lists = || {
        let asked = world.member_requests("member3").into_iter();
        let lists = asked.filter(|event| event.verb == "list" && event.resource == "nodes");
        lists.count()
    };
    let before = lists();
    let second = member.kubeconfig(SYSTEM, ACCOUNT).await.unwrap();
    let none = json!({});
    let enlisted = world.fleet.enlist("member3", SYSTEM, &second, &none);
    enlisted.await.unwrap();
    eventually(PATIENCE, "the second credentials are used", || async {
        if lists() > before {
            Ok(())
        } else {
            Err("no new connection")
        }
    })
    .await;
    world.further_looks(3).await;

    let tokens: Api<Secret> = Api::namespaced(member.cluster.client(), SYSTEM);
    delete(&tokens, "foretide-hub-token").await;
    // The API server believes a token that it knows for a few seconds more.
    eventually(PATIENCE, "the first credentials are refused", || async {
        match pods.list(&ListParams::default()).await {
            Err(kube::Error::Api(refusal)) if refusal.code == 401 => Ok(()),
            other => Err(format!("{:?}", other.map(|found| found.items.len()))),
        }
    })
    .await;
    world.further_looks(3).await;
    controller.further_syncs(3).await;
    assert_eq!(reachable_since(world).await, since, "it was noticed");
}

/// Maxima by name, of members that have a share.
type Maxima = &'static [(&'static str, i32)];

/// A policy that divides a maximum of 18.
struct Case {
    assignment: Value,
    /// Over all three.
    whole: Maxima,
    /// Without member2.
    without: Maxima,
    /// Over all three, when member2 was away and runs nothing.
    cured: Maxima,
}

fn dividing() -> [Case; 4] {
    let plain = |policy: &str| json!({ "federatedHPAAssignmentType": policy });
    let priorities = [("member1", 1), ("member2", 3), ("member3", 2)];
    let by_priority = preferring("Prioritized", "priority", &priorities);
    let thirds: Maxima = &[("member1", 6), ("member2", 6), ("member3", 6)];
    let halves: Maxima = &[("member1", 9), ("member3", 9)];
    let case = |assignment, whole, without, cured| Case {
        assignment,
        whole,
        without,
        cured,
    };
    let outer: Maxima = &[("member1", 10), ("member3", 8)];
    let upper: Maxima = &[("member2", 10), ("member3", 8)];
    [
        case(weights(), thirds, halves, thirds),
        case(plain("DynamicWeighted"), thirds, halves, thirds),
        // Who runs the workload already comes first.
        case(
            plain("Aggregated"),
            &[("member1", 10), ("member2", 8)],
            outer,
            outer,
        ),
        case(
            by_priority,
            upper,
            &[("member1", 8), ("member3", 10)],
            upper,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_or_tainted_member_loses_its_share_to_the_others_under_every_dividing_policy() {
    let world = FleetWorld::start("reassign", &ROOMS).await;
    world.deploy_everywhere(1).await;
    world.load.evenly(6.0);
    let slow = json!({ "cooldownSeconds": 4, "settleObservations": 100 });
    let more = json!({
        "failurePolicy": "Reassign",
        "tolerationSeconds": 2,
        "rebalance": slow,
        "federatedHPAAssignment": weights(),
    });
    world.ask("StaticWeighted", (6, 18), &more).await;
    let controller = world.run();
    for case in dividing() {
        let assignment = &case.assignment;
        let policy = assignment["federatedHPAAssignmentType"].to_string();
        world
            .edit(json!({ "federatedHPAAssignment": assignment }))
            .await;
        world.capped(&format!("{policy}, whole"), case.whole).await;
        world
            .runs_so("the load is served", |found| {
                found.values().map(|(_, ready)| *ready).sum::<i32>() >= 6
            })
            .await;

        // Lost for longer than tolerated: the others get its share, and it is not touched.
        world.fleet.member("member2").black_hole();
        let theirs = bounds(&world, "member2").await;
        world
            .bounds_are(
                &format!("{policy}, reassigned: {:?}", case.without),
                |found| {
                    let others = found.iter().filter(|(name, _)| *name != "member2");
                    let others = others.map(|(name, (_, max))| (name.as_str(), *max));
                    others.eq(case.without.iter().copied())
                },
            )
            .await;
        assert_eq!(bounds(&world, "member2").await, theirs);
        world.reason("member2", "Failed").await;
        world.fleet.member("member2").restore();
        world
            .capped(&format!("{policy}, whole again"), case.whole)
            .await;

        // Tainted: the same, but it can be told to go.
        world
            .join("member2", &["--taint", "upgrade:NoExecute"])
            .await;
        world
            .capped(&format!("{policy}, tainted"), case.without)
            .await;
        eventually(PATIENCE, "member2 drained", || async {
            let all = world.serving(&["member2", "member1", "member3"]).await;
            assert!(all >= 5, "too few serve: {all}");
            match world.counts("member2").await? {
                (0, 0) => Ok(()),
                found => Err(format!("{found:?}, {all} in all")),
            }
        })
        .await;
        world.join("member2", &[]).await;
        world.capped(&format!("{policy}, cured"), case.cured).await;
        // Capacities are estimated where pods come and go: the next policy finds them at rest.
        world
            .runs_so("nothing comes or goes", |found| {
                let all: i32 = found.values().map(|(_, ready)| *ready).sum();
                all >= 6 && found.values().all(|(asked, ready)| asked == ready)
            })
            .await;
        controller.further_syncs(3).await;
    }
    drop(controller);
    world.assert_nothing_forbidden();
}
