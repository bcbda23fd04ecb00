//! Two replicas of the controller, one of which leads: it is killed, paused and stopped.

use std::{collections::BTreeSet, path::Path, time::Duration};

use foretide::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use rig::{ClusterOptions, eventually};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::world::{NAMESPACE, TIMEOUT, World, binary};

/// The default lease duration, and 2 s.
const TAKEOVER: Duration = Duration::from_secs(15 + 2);

/// How long a leader is paused at least.
const PAUSE: SignedDuration = SignedDuration::from_secs(60);

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

/// Waits until a pause has lasted for a minute.
pub(crate) async fn lasts_a_minute(paused_since: Timestamp) {
    let what = "the leader was paused for a minute";
    eventually(TIMEOUT, what, || async {
        let paused = Clock::system().now().duration_since(paused_since);
        (paused >= PAUSE).then_some(()).ok_or(format!("{paused:#}"))
    })
    .await;
}

/// Who holds the lease; empty if nobody does.
pub(crate) async fn holder(client: &Client) -> Result<String, String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "foretide-system");
    let lease = leases.get("foretide").await;
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
    let taken = next_holder(&world.client, TAKEOVER, &first);
    let (killed, second) = tokio::join!(killed.kill(), taken);
    killed.unwrap();
    scaled_to(&world, 3).await;

    let mut stopped = standby(&world).await;
    let paused_since = Clock::system().now();
    let taken = next_holder(&world.client, TAKEOVER, &second);
    let ((), third) = tokio::join!(signal(&paused, "-STOP"), taken);
    scaled_to(&world, 4).await;
    // The paused leader wakes up without the right to write, and ends.
    lasts_a_minute(paused_since).await;
    signal(&paused, "-CONT").await;
    let ended = tokio::time::timeout(TIMEOUT, paused.wait()).await;
    assert_ne!(ended.unwrap().unwrap().code(), Some(0));
    assert_eq!(holder(&world.client).await.unwrap(), third);
    scaled_to(&world, 5).await;

    signal(&stopped, "-TERM").await;
    let ended = tokio::time::timeout(TIMEOUT, stopped.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(0));
    assert_eq!(
        holder(&world.client).await.unwrap(),
        "",
        "the lease is released"
    );
    world.assert_nothing_forbidden();
    let requests = world.requests().into_iter();
    let of_lease = requests.filter(|request| request.resource == "leases");
    let verbs: BTreeSet<_> = of_lease.map(|request| request.verb).collect();
    assert_eq!(verbs, ["create", "get", "update"].map(str::to_owned).into());
}
