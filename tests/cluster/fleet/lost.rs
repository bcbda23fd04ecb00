//! A member is lost and returns, is tainted, or gets other credentials; the hub's controller is killed. Running pods
//! stay, and recovery causes no dip.

use std::{collections::BTreeMap, net::SocketAddr};

use foretide::{clock::Clock, config::Config};
use foretide_crds::FederatedHPA;
use k8s_openapi::{
    ByteString,
    api::core::v1::{Pod, Secret, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use rig::eventually;
use serde_json::{Value, json};

use super::world::{ACCOUNT, Bounds, FleetWorld, SHOP, SYSTEM, with_preferences};
use crate::{
    manual_changes::{condition, delete, edit},
    metrics_access::{free_address, of_page},
    world::{Controller, Counts, LARGE, NAMESPACE, TIMEOUT, create_large},
};

const ROOMS: [(&str, u32); 3] = [("member1", 10), ("member2", 10), ("member3", 10)];

fn weights() -> Value {
    with_preferences(
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

/// The budget of each member in the ledger: the number and the time of its last move.
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

/// Whether every member runs its full budget; fails if one requests more.
fn within(given: &BTreeMap<String, Bounds>, found: &BTreeMap<String, (i32, i32)>) -> bool {
    found.iter().all(|(member, (asked, ready))| {
        let (min, max) = given[member];
        assert!(*asked <= max, "{member}: {asked} of {given:?}");
        *asked >= min && asked == ready
    })
}

/// The bounds of a member's HPA.
async fn bounds(world: &FleetWorld, member: &str) -> Option<Bounds> {
    world.bounds().await.get(member).copied()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_member_is_retained_members_run_without_the_hub_and_credentials_rotate() {
    let world = FleetWorld::start("lost", &ROOMS).await;
    world.deploy_everywhere(2).await;
    let more = json!({ "federatedHPAAssignment": weights() });
    world.load.evenly(9.0);
    world.ask("StaticWeighted", (3, 24), &more).await;
    let page = free_address();
    let config = Config {
        listen: page,
        ..world.config()
    };
    let controller = Controller::run(config, Clock::system());
    let thirds = [("member1", 8), ("member2", 8), ("member3", 8)];
    world.capped("a third each", &thirds).await;
    world
        .runs_so("nine or so", |found| {
            let all: i32 = found.values().map(|(_, ready)| *ready).sum();
            let settled = |(asked, ready): &(i32, i32)| asked == ready && *asked >= 2;
            (9..=11).contains(&all) && found.values().all(settled)
        })
        .await;

    // Connections to a member hang. Its HPA keeps its bounds and scales by itself; the others are decided as before.
    world.fleet.member("member2").block();
    world
        .condition("MembersReachable", "False/Unreachable")
        .await;
    world.reason("member2", "Unknown").await;
    of_clusters(page, "member2 is lost", |member| {
        member["ready"] == false && reason(member).starts_with("Unknown")
    })
    .await;
    world.load.evenly(18.0);
    // Each HPA sees what the others leave, so any of them may have one more.
    world
        .runs_so("eighteen or so, the lost one's among them", |found| {
            let all: i32 = found.values().map(|(_, ready)| *ready).sum();
            let settled = |(asked, ready): &(i32, i32)| asked == ready && *asked >= 4;
            (17..=20).contains(&all) && found.values().all(settled)
        })
        .await;
    the_surge_is_shown(page).await;
    world
        .edit(json!({ "minReplicas": 12, "maxReplicas": 27 }))
        .await;
    // MAX without the budget of the lost member, and at least their share of MIN: 27 - 8 and 12 - 1.
    world
        .bounds_are("the others follow the spec", |found| {
            let others = [found["member1"], found["member3"]];
            let most: i32 = others.iter().map(|(_, max)| max).sum();
            most == 19 && others.iter().all(|(min, _)| (5..=7).contains(min))
        })
        .await;
    let theirs = bounds(&world, "member2").await;
    assert_eq!(theirs.map(|(_, max)| max), Some(8));

    // It returns with a share of the new bounds, and no member ran fewer pods meanwhile.
    let ninths = [("member1", 9), ("member2", 9), ("member3", 9)];
    let watched = watch_all(&world).await;
    world.fleet.member("member2").unblock();
    world.condition("MembersReachable", "True/Reachable").await;
    of_clusters(page, "member2 is back", |member| member["ready"] == true).await;
    world.capped("a third each of the new", &ninths).await;
    controller.further_syncs(4).await;
    let lowest: i32 = watched.values().map(Counts::lowest).sum();
    assert!(lowest >= 16, "a dip to {lowest}");

    // The hub's controller, now the released binary, is killed while the load changes: members scale up and down by
    // their own HPAs, within their bounds.
    drop(controller);
    let mut program = world.binary();
    world.further_observations(3).await;
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
    // The requests in flight when it was killed have arrived.
    let given = world.bounds().await;
    let writes = world.member_write_count();
    world.load.evenly(15.0);
    // Minima that a floor had raised when the controller was killed stay until one runs again.
    let raised: i32 = given.values().map(|(min, _)| *min).sum();
    world
        .runs_so("fifteen, or what the minima are", |found| {
            let all: i32 = found.values().map(|(asked, _)| *asked).sum();
            within(&given, found) && (14..=raised.max(19)).contains(&all)
        })
        .await;
    assert_eq!(world.member_write_count(), writes, "no controller runs");
    assert_eq!(world.bounds().await, given);

    // Its successor takes over under a load that changes again: no budget is lowered, no move is repeated, and the
    // number of pods never falls below the load.
    let watched = watch_all(&world).await;
    let mut program = world.binary();
    world.further_observations(2).await;
    world.load.evenly(18.0);
    world.further_observations(4).await;
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
    credentials_rotate(&world, &controller).await;
    let controller = the_secret_comes_and_goes(&world, controller).await;

    // Credentials expire and are replaced.
    let accounts: Api<ServiceAccount> = Api::namespaced(world.cluster("member3").client(), SYSTEM);
    let trouble = Counts::follow(world.federated(), SHOP, has_trouble).await;
    delete(&accounts, ACCOUNT).await;
    eventually(TIMEOUT, "the refusal is reported", || async {
        let is_reported = trouble.range() == (0, 1);
        is_reported.then_some(()).ok_or("it is not")
    })
    .await;
    world.join("member3", &[]).await;
    world.condition("MembersReachable", "True/Reachable").await;
    world
        .edit(json!({ "minReplicas": 3, "maxReplicas": 24 }))
        .await;
    world.capped("a third each", &thirds).await;
    world
        .runs_so("eighteen or so, as before", |found| {
            let all: i32 = found.values().map(|(_, ready)| *ready).sum();
            (17..=21).contains(&all)
        })
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}

/// Waits until the page's view of the clusters shows the second member so.
async fn of_clusters(page: SocketAddr, what: &str, wanted: impl Fn(&Value) -> bool) {
    eventually(TIMEOUT, what, || async {
        let shown = of_page(page, "clusters").await?;
        let all = shown["clusters"].as_array().unwrap();
        let member = all.iter().find(|one| one["name"] == "member2");
        let is_so = member.is_some_and(&wanted);
        is_so.then_some(()).ok_or(shown.to_string())
    })
    .await;
}

/// The reason for the share of a member's only fleet, as the page shows it.
fn reason(member: &Value) -> &str {
    let reason = member["shares"][0]["status"]["reason"].as_str();
    reason.unwrap_or_default()
}

/// Waits until the page has recorded that nine replicas became some fifteen, of which it cannot see the lost member's.
async fn the_surge_is_shown(page: SocketAddr) {
    let path = format!("autoscalers/federatedhpas/{NAMESPACE}/{SHOP}");
    eventually(TIMEOUT, "the page shows the surge", || async {
        let shown = of_page(page, &path).await?;
        let history = of_page(page, &format!("{path}/history")).await?;
        let last = history["desired"].as_array().unwrap().last();
        let decided = last.and_then(Value::as_i64).unwrap_or(0);
        let is_so = decided >= 13 && shown["decision"]["desired"].as_i64() >= Some(13);
        is_so.then_some(()).ok_or(format!("{shown}\n{history}"))
    })
    .await;
}

/// 1 where status reports a problem of the third member that its credentials can cause, else 0. On a busy machine any
/// member may be silent for longer than the four seconds after which it is lost, whatever its credentials.
fn has_trouble(fleet: &FederatedHPA) -> Option<i32> {
    let problems = [
        "credentials rejected",
        "(HTTP 403)",
        "cannot be used",
        "the first list",
    ];
    let status = serde_json::to_value(&fleet.status).ok()?;
    let (_, message) = condition(&status, "MembersReachable")?;
    let mut members = message.split("; ");
    let of_third = members.find(|one| one.starts_with("member3: "));
    let is_noticed = of_third.is_some_and(|said| problems.iter().any(|one| said.contains(one)));
    Some(i32::from(is_noticed))
}

/// A client with the credentials that the hub now has for the third member.
async fn client_as_hub(world: &FleetWorld) -> Client {
    let secrets: Api<Secret> = Api::namespaced(world.fleet.hub.client(), SYSTEM);
    let secret = secrets.get("member3").await.unwrap();
    let ByteString(kubeconfig) = secret.data.unwrap()["kubeconfig"].clone();
    let kubeconfig = Kubeconfig::from_yaml(&String::from_utf8(kubeconfig).unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Waits until the credentials of a client are refused: the API server caches a valid token for a few seconds.
async fn wait_until_refused(pods: &Api<Pod>) {
    eventually(TIMEOUT, "the credentials are refused", || async {
        match pods.list(&ListParams::default()).await {
            Err(kube::Error::Api(refusal)) if refusal.code == 401 => Ok(()),
            other => Err(format!("{:?}", other.map(|found| found.items.len()))),
        }
    })
    .await;
}

/// A member gets other credentials while its present ones are valid, and then those are revoked; neither step is
/// noticeable.
async fn credentials_rotate(world: &FleetWorld, controller: &Controller) {
    // It has just started: until it has read its members, the condition may be that of its predecessor, or change.
    world.further_observations(2).await;
    controller.further_syncs(2).await;
    world.condition("MembersReachable", "True/Reachable").await;
    let trouble = Counts::follow(world.federated(), SHOP, has_trouble).await;
    rotate_credentials(world).await;
    controller.further_syncs(3).await;
    world.condition("MembersReachable", "True/Reachable").await;
    assert_eq!(trouble.range(), (0, 0), "the rotation was noticed");
}

/// What the row of a member without a Secret says.
const MISSING: &str = "ts Secret is missing";

/// The Secret of the third member, as it was.
struct StoredSecret {
    api: Api<Secret>,
    secret: Secret,
}

impl StoredSecret {
    async fn of(world: &FleetWorld) -> Self {
        let api: Api<Secret> = Api::namespaced(world.fleet.hub.client(), SYSTEM);
        let mut secret = api.get("member3").await.unwrap();
        secret.metadata.resource_version = None;
        secret.metadata.uid = None;
        secret.metadata.managed_fields = None;
        Self { api, secret }
    }

    async fn delete(&self) {
        delete(&self.api, "member3").await;
    }

    async fn create_again(&self) {
        let created = self.api.create(&PostParams::default(), &self.secret).await;
        created.unwrap();
    }

    /// Writes a kubeconfig that cannot be used.
    async fn spoil(&self) {
        let kubeconfig = ByteString(b"{}".to_vec());
        let spoiled = json!({ "data": { "kubeconfig": kubeconfig } });
        edit(&self.api, "member3", spoiled).await;
    }

    async fn restore(&self) {
        let data = serde_json::to_value(&self.secret.data).unwrap();
        edit(&self.api, "member3", json!({ "data": data })).await;
    }
}

/// The Secret of a member is deleted and created again, cannot be used for a while, and is missing when the controller
/// starts, which finds large objects in another member: no maximum of any member moves.
async fn the_secret_comes_and_goes(world: &FleetWorld, controller: Controller) -> Controller {
    let standing = ledger(world).await;
    let mut maxima = Vec::new();
    for (name, _) in world.fleet.members() {
        maxima.push(world.watch_maximum(name).await);
    }
    the_secret_is_gone_or_spoiled(world, &controller).await;
    drop(controller);
    let client = world.fleet.member("member1").cluster.client();
    create_large(&client, NAMESPACE, LARGE).await;
    let controller = the_controller_starts_without_the_secret(world).await;
    for maximum in maxima {
        assert_eq!(maximum.range(), (9, 9), "a maximum moved");
    }
    assert_eq!(ledger(world).await, standing);
    controller
}

/// The connection serves, and nothing has to be opened again.
async fn the_secret_is_gone_or_spoiled(world: &FleetWorld, controller: &Controller) {
    let trouble = Counts::follow(world.federated(), SHOP, has_trouble).await;
    let secret = StoredSecret::of(world).await;
    secret.delete().await;
    world.noted("member3", MISSING, true).await;
    controller.further_syncs(3).await;
    secret.create_again().await;
    world.noted("member3", MISSING, false).await;
    secret.spoil().await;
    world.noted("member3", "(since ", true).await;
    controller.further_syncs(10).await;
    secret.restore().await;
    world.noted("member3", "(since ", false).await;
    world.condition("MembersReachable", "True/Reachable").await;
    assert_eq!(trouble.range(), (0, 0), "the member was not read");
}

/// Without a connection the member is one that does not answer.
async fn the_controller_starts_without_the_secret(world: &FleetWorld) -> Controller {
    let secret = StoredSecret::of(world).await;
    secret.delete().await;
    let controller = world.run();
    world.noted("member3", MISSING, true).await;
    world
        .condition("MembersReachable", "False/Unreachable")
        .await;
    controller.further_syncs(3).await;
    secret.create_again().await;
    world.condition("MembersReachable", "True/Reachable").await;
    controller.further_syncs(3).await;
    controller
}

/// Replaces the credentials of the third member and then revokes the first ones, with syncs after each step.
async fn rotate_credentials(world: &FleetWorld) {
    let pods: Api<Pod> = Api::namespaced(client_as_hub(world).await, NAMESPACE);
    pods.list(&ListParams::default()).await.unwrap();

    // A new connection lists again.
    let member = world.fleet.member("member3");
    let lists = || {
        let asked = world.member_requests("member3").into_iter();
        let lists = asked.filter(|event| event.verb == "list" && event.resource == "nodes");
        lists.count()
    };
    let before = lists();
    let second = member.kubeconfig(SYSTEM, ACCOUNT).await.unwrap();
    let none = json!({});
    let registered = world
        .fleet
        .register_member("member3", SYSTEM, &second, &none);
    registered.await.unwrap();
    eventually(TIMEOUT, "the second credentials are used", || async {
        if lists() > before {
            Ok(())
        } else {
            Err("no new connection")
        }
    })
    .await;
    world.further_observations(3).await;

    let tokens: Api<Secret> = Api::namespaced(member.cluster.client(), SYSTEM);
    delete(&tokens, "foretide-hub-token").await;
    wait_until_refused(&pods).await;
    world.further_observations(3).await;
}

/// Maxima by name, of members that have a share.
type Maxima = &'static [(&'static str, i32)];

/// A policy that divides a maximum of 18.
struct Case {
    assignment: Value,
    /// Over all three.
    full: Maxima,
    /// Without member2.
    without: Maxima,
    /// Over all three, after member2 was unreachable and runs nothing.
    cured: Maxima,
}

fn dividing() -> [Case; 4] {
    let plain = |policy: &str| json!({ "federatedHPAAssignmentType": policy });
    let priorities = [("member1", 1), ("member2", 3), ("member3", 2)];
    let by_priority = with_preferences("Prioritized", "priority", &priorities);
    let thirds: Maxima = &[("member1", 6), ("member2", 6), ("member3", 6)];
    let halves: Maxima = &[("member1", 9), ("member3", 9)];
    let case = |assignment, full, without, cured| Case {
        assignment,
        full,
        without,
        cured,
    };
    let outer: Maxima = &[("member1", 10), ("member3", 8)];
    let upper: Maxima = &[("member2", 10), ("member3", 8)];
    [
        case(weights(), thirds, halves, thirds),
        case(plain("DynamicWeighted"), thirds, halves, thirds),
        // Members that already run the workload come first.
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
        world
            .capped(&format!("{policy}, all members"), case.full)
            .await;
        world
            .runs_so("the load is served", |found| {
                found.values().map(|(_, ready)| *ready).sum::<i32>() >= 6
            })
            .await;

        // Lost for longer than tolerated: the others get its share, and it is not modified.
        world.fleet.member("member2").block();
        // Writes that were under way have arrived by then.
        world
            .condition("MembersReachable", "False/Unreachable")
            .await;
        world.reason("member2", "Unknown").await;
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
        world.fleet.member("member2").unblock();
        world
            .capped(&format!("{policy}, complete again"), case.full)
            .await;

        // Tainted: the same, but the member is reachable and can be drained.
        world
            .join("member2", &["--taint", "upgrade:NoExecute"])
            .await;
        world
            .capped(&format!("{policy}, tainted"), case.without)
            .await;
        eventually(TIMEOUT, "member2 drained", || async {
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
        // Capacities are estimated while pods come and go, so the next policy starts when they are stable.
        world
            .runs_so("the pods are stable", |found| {
                let all: i32 = found.values().map(|(_, ready)| *ready).sum();
                all >= 6 && found.values().all(|(asked, ready)| asked == ready)
            })
            .await;
        controller.further_syncs(3).await;
    }
    drop(controller);
    world.assert_nothing_forbidden();
}
