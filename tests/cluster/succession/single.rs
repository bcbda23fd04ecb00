//! Leaders that stop while they write about autoscalers of one cluster.

use std::path::PathBuf;

use futures::future::join_all;
use kube::Client;
use rig::{ClusterOptions, NodeSize};
use serde_json::json;

use super::{
    Account, Decreases, Pair, Replica, add_account, all_have, finished, first_of, happens, now,
    objects, patch_all, write::Write,
};
use crate::{
    fleet::world::SYSTEM,
    leadership::{holder, next_holder},
    world::{NAMESPACE, TIMEOUT, World},
};

/// Objects that change at once: more than a replica has written when it is stopped.
const OBJECTS: usize = 60;
/// A Prometheus that is not there: predictions are published with that reason.
const FLAGS: &[&str] = &["--prometheus", "http://127.0.0.1:1"];

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
        flags: FLAGS,
    };
    let leader = Replica::start(account("one", leader));
    next_holder(&world.client, TIMEOUT, "").await;
    finished(&world.client, Write::Status, OBJECTS).await;
    Pair::with_standby(leader, account("two", standby), &world.cluster).await
}

/// Changes every object so that the leader writes this kind.
async fn change(client: &Client, kind: Write, count: i32) {
    if kind == Write::RestoredHpa {
        let edit = json!({
            "metadata": { "annotations": { "edited": "true" } },
            "spec": { "behavior": { "scaleUp": { "stabilizationWindowSeconds": 77 } } },
        });
        let delegated = (0..OBJECTS).filter(|n| n % 2 == 1);
        let names = delegated.map(|n| format!("ehpa-{}", name(n)));
        return patch_all(&objects(client, &kind.kind()), names, &edit).await;
    }
    let autoscalers = objects(client, &Write::Status.kind());
    let spec = json!({ "spec": kind.change(count) });
    patch_all(&autoscalers, (0..OBJECTS).map(name), &spec).await;
}

/// How many objects are written so.
fn all_of(kind: Write) -> usize {
    match kind {
        // Those that are Direct, or Delegated.
        Write::Scale | Write::Hpa | Write::RestoredHpa => OBJECTS / 2,
        _ => OBJECTS,
    }
}

/// How many requests write all of this kind.
fn requests_of(kind: Write) -> usize {
    match kind {
        // It is applied, and patched.
        Write::RestoredHpa => 2 * all_of(kind),
        _ => all_of(kind),
    }
}

/// Two replicas and autoscalers in these modes; everything is decided.
async fn settled(world: &World, modes: &[&str]) -> Pair {
    let one = add_account(&world.cluster, "one").await;
    let two = add_account(&world.cluster, "two").await;
    create(world, modes).await;
    replicas(world, one, two).await
}

/// Pauses the leader at its first write of this kind; all objects have this count afterwards.
async fn pause(world: &World, pair: &mut Pair, kind: Write, count: i32) {
    let (since, client) = (now(), &world.client);
    let first = first_of(client, kind, count).await;
    let paused = pair.pause(client, first, change(client, kind, count)).await;
    all_are(client, count).await;
    finished(client, Write::Status, OBJECTS).await;
    if !kind.follows_a_count() {
        finished(client, kind, all_of(kind)).await;
    }
    pair.resume(paused).await;
    let succession = pair.assert_succession(&[&world.cluster], since);
    kind.assert_unfinished(&succession.of_old, requests_of(kind));
    if kind.is_of_a_sync() {
        succession.assert_prompt(paused);
    } else {
        succession.assert_led_in_time(paused);
    }
}

/// Two replicas and autoscalers in these modes; `kinds` are the writes at which one leader and then the other is paused.
async fn paused_at(cluster: &str, modes: &[&str], kinds: [Write; 2]) {
    let world = start(cluster).await;
    let mut pair = settled(&world, modes).await;
    let decreases = Decreases::of(world.client.clone());
    let [first, second] = kinds;
    let count = 1 + i32::from(first.follows_a_count());
    pause(&world, &mut pair, first, count).await;
    pair = pair.swap(&world.cluster).await;
    let count = count + i32::from(second.follows_a_count());
    pause(&world, &mut pair, second, count).await;
    decreases.assert_none();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_writes_scales_or_hpas_writes_no_more() {
    let modes = ["Direct", "Delegated"];
    paused_at("paused-scales", &modes, [Write::Scale, Write::Hpa]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_writes_statuses_or_events_writes_no_more() {
    let modes = ["Direct", "Delegated"];
    paused_at("paused-reports", &modes, [Write::Status, Write::Event]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_creates_or_deletes_hpas_writes_no_more() {
    let kinds = [Write::NewHpa, Write::HpaDeletion];
    paused_at("paused-children", &["Direct"], kinds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_creates_or_deletes_predictions_writes_no_more() {
    let kinds = [Write::Prediction, Write::PredictionDeletion];
    paused_at("paused-predictions", &["Direct"], kinds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_paused_while_it_reports_predictions_or_restores_hpas_writes_no_more() {
    let kinds = [Write::PredictionStatus, Write::RestoredHpa];
    paused_at("paused-restores", &["Direct", "Delegated"], kinds).await;
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
        let stopped = now();
        next_holder(client, TIMEOUT, &before).await;
        stopped
    };
    let ((), stopped) = tokio::join!(change(client, Write::Scale, 2), killed);
    all_are(client, 2).await;
    let succession = pair.assert_succession(&[&world.cluster], since);
    Write::Scale.assert_unfinished(&succession.of_old, OBJECTS);
    succession.assert_prompt(stopped);
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
        let stopped = now();
        next_holder(client, TIMEOUT, &before).await;
        stopped
    };
    let ((), stopped) = tokio::join!(change(client, Write::Scale, 2), cut_off);
    all_are(client, 2).await;
    pair.leader.ends().await;
    // What it had sent arrives now.
    relay.unblock();
    change(client, Write::Scale, 3).await;
    all_are(client, 3).await;
    let succession = pair.assert_succession(&[cluster], since);
    Write::Scale.assert_unfinished(&succession.of_old, OBJECTS / 2);
    succession.assert_prompt(stopped);
    decreases.assert_none();
}
