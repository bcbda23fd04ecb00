//! The credentials of a member: other ones are used while the present ones are valid, revoked ones are reported, and a
//! Secret that is missing for a while is not noticed. What follows for shares is proven in `tests/sim/fleet/lost.rs`.

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
use serde_json::json;

use super::world::{ACCOUNT, FleetWorld, SHOP, SYSTEM, with_preferences};
use crate::{
    manual_changes::{condition, delete},
    world::{Controller, Counts, LARGE, NAMESPACE, TIMEOUT, create_large},
};

const ROOMS: [(&str, u32); 2] = [("member1", 10), ("member3", 10)];
const HALVES: [(&str, i32); 2] = [("member1", 8), ("member3", 8)];

#[tokio::test(flavor = "multi_thread")]
async fn credentials_rotate_expire_and_are_missing_without_a_move() {
    let world = FleetWorld::start("credentials", &ROOMS).await;
    world.deploy_everywhere(2).await;
    let equal = ROOMS.map(|(name, _)| (name, 1));
    let weights = with_preferences("StaticWeighted", "staticWeight", &equal);
    world.load.evenly(6.0);
    let more = json!({ "federatedHPAAssignment": weights });
    world.ask("StaticWeighted", (2, 16), &more).await;
    let controller = world.run();
    world.capped("halves", &HALVES).await;
    world.condition("MembersReachable", "True/Reachable").await;
    credentials_rotate(&world, &controller).await;
    the_secret_comes_and_goes(&world, &controller).await;

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
    drop(controller);

    // A controller that finds large objects in a member reads it.
    let client = world.fleet.member("member1").cluster.client();
    create_large(&client, NAMESPACE, LARGE).await;
    let controller = world.run();
    world.further_observations(2).await;
    world.condition("MembersReachable", "True/Reachable").await;
    world.capped("halves as before", &HALVES).await;
    drop(controller);
    world.assert_nothing_forbidden();
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

/// The Secret of the third member is deleted and created again: the connection serves, and nothing has to be opened again.
async fn the_secret_comes_and_goes(world: &FleetWorld, controller: &Controller) {
    let trouble = Counts::follow(world.federated(), SHOP, has_trouble).await;
    let secrets: Api<Secret> = Api::namespaced(world.fleet.hub.client(), SYSTEM);
    let mut secret = secrets.get("member3").await.unwrap();
    secret.metadata.resource_version = None;
    secret.metadata.uid = None;
    secret.metadata.managed_fields = None;
    delete(&secrets, "member3").await;
    world.noted("member3", "ts Secret is missing", true).await;
    controller.further_syncs(2).await;
    let created = secrets.create(&PostParams::default(), &secret).await;
    created.unwrap();
    world.noted("member3", "ts Secret is missing", false).await;
    assert_eq!(trouble.range(), (0, 0), "the member was not read");
}
