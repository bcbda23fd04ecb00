//! Two replicas of the controller, one of which leads: it is killed, paused and stopped.

use std::{collections::BTreeSet, path::Path, process::Stdio, time::Duration};

use foretide::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use rig::{ClusterOptions, eventually};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
};

use crate::world::{NAMESPACE, TIMEOUT, World, binary};

/// How long a leader is paused at least: for longer than its lease of 15 s and the 5 s of a write.
const PAUSE: SignedDuration = SignedDuration::from_secs(25);

/// A signal whose sender runs already, so that it arrives at once: while a program starts, a leader could write all that
/// it has to.
pub(crate) struct Signal(Child);

impl Signal {
    pub(crate) fn prepare(process: &Child, signal: &str) -> Self {
        let id = process.id().unwrap().to_string();
        let script = r#"read -r now && kill "$1" "$2""#;
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh", signal, &id]);
        shell.stdin(Stdio::piped()).kill_on_drop(true);
        Self(shell.spawn().unwrap())
    }

    pub(crate) async fn send(mut self) {
        let mut input = self.0.stdin.take().unwrap();
        input.write_all(b"now\n").await.unwrap();
        assert!(self.0.wait().await.unwrap().success());
    }
}

/// A replica, as `deploy/` runs it.
fn replica(world: &World) -> Child {
    let mut command = binary(world.kubeconfig(), world.hpa_flags());
    command
        .args(["--listen", "127.0.0.1:0", "--leader-elect"])
        .args(["--leader-elect-namespace", "foretide-system"]);
    command.spawn().unwrap()
}

/// A replica beside a leader, which has seen the lease: only a standby reads it.
async fn standby(world: &World) -> Child {
    let since = Clock::system().now();
    let standby = replica(world);
    eventually(TIMEOUT, "the standby has read the lease", || async {
        let has_read = world.requests().into_iter().any(|request| {
            let reads = request.resource == "leases" && request.verb == "get";
            reads && request.code == 200 && request.time > since
        });
        has_read.then_some(()).ok_or("not yet")
    })
    .await;
    standby
}

pub(crate) async fn signal(process: &Child, signal: &str) {
    let id = process.id().unwrap().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().await;
    assert!(sent.unwrap().success());
}

/// Waits until a pause has lasted for longer than the lease and a write.
pub(crate) async fn outlasts_the_lease(paused_since: Timestamp) {
    let what = "the pause has outlasted the lease";
    eventually(TIMEOUT, what, || async {
        let paused = Clock::system().now().duration_since(paused_since);
        (paused >= PAUSE).then_some(()).ok_or(format!("{paused:#}"))
    })
    .await;
}

/// The leases beside the controller.
pub(crate) fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "foretide-system")
}

/// Who holds the lease; empty if nobody does.
pub(crate) async fn holder(client: &Client) -> Result<String, String> {
    let lease = leases(client).get("foretide").await;
    let spec = lease.map_err(|error| error.to_string())?.spec;
    Ok(spec
        .and_then(|spec| spec.holder_identity)
        .unwrap_or_default())
}

/// Waits until another replica than `before` holds the lease; returns which.
pub(crate) async fn next_holder(client: &Client, limit: Duration, before: &str) -> String {
    eventually(limit, "another replica leads", || async {
        let found = holder(client).await?;
        if found.is_empty() || found == before {
            return Err(found);
        }
        Ok(found)
    })
    .await
}

/// Sets the only count that the autoscaler may choose, and waits until it is in force.
async fn scaled_to(world: &World, replicas: i32) {
    let object = json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": { "name": "web", "namespace": NAMESPACE },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": replicas,
            "maxReplicas": replicas,
            "mode": "Direct",
        },
    });
    world.apply(&object.to_string()).await;
    let what = replicas.to_string();
    world.ready("web", &what, |count| count == replicas).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_a_leader_that_is_killed_paused_or_stopped() {
    let world = World::start(ClusterOptions::named("leaders")).await;
    let rights = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/23-leader-rbac.yaml");
    world.apply(&std::fs::read_to_string(rights).unwrap()).await;
    world.deployment("web", 1, "1m").await;

    let mut killed = replica(&world);
    let first = next_holder(&world.client, TIMEOUT, "").await;
    scaled_to(&world, 2).await;
    let mut paused = standby(&world).await;
    killed.kill().await.unwrap();
    let second = next_holder(&world.client, TIMEOUT, &first).await;
    scaled_to(&world, 3).await;

    let mut stopped = standby(&world).await;
    signal(&paused, "-STOP").await;
    let paused_since = Clock::system().now();
    let third = next_holder(&world.client, TIMEOUT, &second).await;
    scaled_to(&world, 4).await;
    // The paused leader wakes up without the right to write, and ends.
    outlasts_the_lease(paused_since).await;
    signal(&paused, "-CONT").await;
    let ended = tokio::time::timeout(TIMEOUT, paused.wait()).await;
    assert_ne!(ended.unwrap().unwrap().code(), Some(0));
    assert_eq!(holder(&world.client).await.unwrap(), third);
    scaled_to(&world, 5).await;

    signal(&stopped, "-TERM").await;
    let ended = tokio::time::timeout(TIMEOUT, stopped.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(0));
    world.assert_nothing_forbidden();
    let requests = world.requests().into_iter();
    let of_lease = requests.filter(|request| request.resource == "leases");
    let verbs: BTreeSet<_> = of_lease.map(|request| request.verb).collect();
    assert_eq!(verbs, ["create", "get", "update"].map(str::to_owned).into());
}
