//! Leaders that stop while they write about autoscalers of one cluster.

use std::{ops::Range, path::PathBuf};

use futures::future::join_all;
use kube::Client;
use rig::{ClusterOptions, NodeSize};
use serde_json::json;

use super::{
    Account, Decreases, Pair, Replica, add_account, all_have, first_of, happens, now, objects,
    patch_all, reported, write::Write,
};
use crate::{
    fleet::world::SYSTEM,
    leadership::{holder, next_holder},
    world::{NAMESPACE, TIMEOUT, World},
};

/// Objects that change at once: more than a replica has written when it is stopped.
const OBJECTS: usize = 60;

fn name(n: usize) -> String {
    format!("web-{n}")
}

async fn start(name: &str) -> World {
    World::start(ClusterOptions::named(name).nodes(3, NodeSize::new("64", "256Gi", 110))).await
}

/// Deployments of one pod, and an autoscaler of each, in these modes by turns.
async fn create(world: &World, modes: &[&str]) {
    let created = (0..OBJECTS).map(|n| async move {
        world.deployment(&name(n), 1, "1m").await;
        let autoscaler = json!({
            "apiVersion": "autoscaling.crane.io/v1alpha1",
            "kind": "EffectiveHorizontalPodAutoscaler",
            "metadata": { "name": name(n), "namespace": NAMESPACE },
            "spec": {
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name(n) },
                "minReplicas": 1,
                "maxReplicas": 1,
                "mode": modes[n % modes.len()],
            },
        });
        world.apply(&autoscaler.to_string()).await;
    });
    join_all(created).await;
    all_are(&world.client, 1).await;
}

async fn all_are(client: &Client, count: i32) {
    all_have(client, "web-", OBJECTS, count).await;
}

/// A leader that has decided everything, with this kubeconfig, and a standby.
async fn replicas(world: &World, leader: PathBuf, standby: PathBuf) -> Pair {
    let account = |name, kubeconfig| Account {
        name,
        kubeconfig,
        flags: &[],
    };
    let leader = Replica::start(account("one", leader));
    next_holder(&world.client, TIMEOUT, "").await;
    reported(&world.client, Write::Status, OBJECTS).await;
    Pair::with_standby(leader, account("two", standby), &world.cluster).await
}

/// Changes the count of every object, so that the leader writes scales, statuses and HPAs.
async fn change(client: &Client, count: i32) {
    change_some(client, 0..OBJECTS, count).await;
}

async fn change_some(client: &Client, some: Range<usize>, count: i32) {
    let autoscalers = objects(client, &Write::Status.kind());
    let spec = json!({ "spec": { "minReplicas": count, "maxReplicas": count } });
    patch_all(&autoscalers, some.map(name), &spec).await;
}

/// Two replicas and autoscalers in these modes; everything is decided.
async fn settled(world: &World, modes: &[&str]) -> Pair {
    let one = add_account(&world.cluster, "one").await;
    let two = add_account(&world.cluster, "two").await;
    create(world, modes).await;
    replicas(world, one, two).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_writes_scales_or_statuses_writes_no_more() {
    let world = start("paused").await;
    let client = &world.client;
    let mut pair = settled(&world, &["Direct"]).await;
    let decreases = Decreases::of(client.clone());
    for (kind, count) in [(Write::Scale, 2), (Write::Status, 3)] {
        if kind == Write::Status {
            pair = pair.swap(&world.cluster).await;
        }
        let since = now();
        let first = first_of(client, kind, count).await;
        let paused = pair.pause(client, first, change(client, count)).await;
        all_are(client, count).await;
        reported(client, Write::Status, OBJECTS).await;
        pair.resume(paused).await;
        let of_old = pair.assert_succession(&[&world.cluster], since);
        kind.assert_unfinished(&of_old, OBJECTS);
    }
    decreases.assert_none();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_while_it_writes_is_succeeded_by_one_that_writes_the_rest() {
    let world = start("killed").await;
    let client = &world.client;
    let mut pair = settled(&world, &["Direct"]).await;
    let decreases = Decreases::of(client.clone());
    let since = now();
    let before = holder(client).await.unwrap();
    let first = first_of(client, Write::Scale, 2).await;
    let killed = async {
        happens(first).await;
        pair.leader.process.kill().await.unwrap();
        next_holder(client, TIMEOUT, &before).await;
    };
    tokio::join!(change(client, 2), killed);
    all_are(client, 2).await;
    let of_old = pair.assert_succession(&[&world.cluster], since);
    Write::Scale.assert_unfinished(&of_old, OBJECTS);
    decreases.assert_none();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_from_the_api_server_loses_the_lease_and_writes_no_more() {
    let world = start("cut-off").await;
    let (cluster, client) = (&world.cluster, &world.client);
    let relay = cluster.relay().await.unwrap();
    add_account(cluster, "one").await;
    let two = add_account(cluster, "two").await;
    let one = cluster.service_account_kubeconfig_over(&relay, SYSTEM, "one");
    create(&world, &["Direct", "Delegated"]).await;
    // Only the leader needs the relay.
    let mut pair = replicas(&world, one.await.unwrap(), two).await;
    let decreases = Decreases::of(client.clone());
    let since = now();
    let before = holder(client).await.unwrap();
    let first = first_of(client, Write::Scale, 2).await;
    let cut_off = async {
        happens(first).await;
        relay.block();
        // However fast it wrote until then, there is more to write.
        change_some(client, OBJECTS / 2..OBJECTS, 2).await;
        next_holder(client, TIMEOUT, &before).await;
    };
    tokio::join!(change_some(client, 0..OBJECTS / 2, 2), cut_off);
    all_are(client, 2).await;
    pair.leader.ends().await;
    // What it had sent arrives now.
    relay.unblock();
    change(client, 3).await;
    all_are(client, 3).await;
    let of_old = pair.assert_succession(&[cluster], since);
    Write::Scale.assert_unfinished(&of_old, OBJECTS / 2);
    decreases.assert_none();
}
