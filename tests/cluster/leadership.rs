//! Two replicas of the controller, one of which leads: it is killed, paused and stopped.

use std::{collections::BTreeSet, path::Path, process::Stdio, time::Duration};

use foretide::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use rig::{AuditEvent, ClusterOptions, eventually};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
};

use crate::world::{NAMESPACE, TIMEOUT, World, binary};

/// The default lease duration, and 2 s.
const TAKEOVER: Duration = Duration::from_secs(15 + 2);

/// How long a leader is paused at least.
const PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// The longest time between two requests about the lease of a replica that nothing holds up: of a standby, and of a leader
/// with a retry period of a second.
const LEASE_REQUEST_PERIOD: SignedDuration = SignedDuration::from_secs(1);

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

/// Waits until a pause has lasted for a minute.
pub(crate) async fn lasts_a_minute(paused_since: Timestamp) {
    let what = "the leader was paused for a minute";
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

/// Fails if a replica took longer than `limit` for something, `from` one moment `to` another. A machine that stalls holds it
/// up; by how much, its requests about the lease show, which are due every second, as the tests of the elector prove.
pub(crate) fn assert_took_at_most(
    limit: Duration,
    [from, to]: [Timestamp; 2],
    of_replica: &[AuditEvent],
) {
    let asked = of_replica
        .iter()
        .filter(|request| request.resource == "leases")
        .map(|request| request.time)
        .filter(|at| from < *at && *at < to);
    let mut moments: Vec<_> = asked.chain([from, to]).collect();
    moments.sort_unstable();
    let gaps = moments
        .windows(2)
        .map(|pair| pair[1].duration_since(pair[0]));
    let held_up = gaps.fold(SignedDuration::ZERO, |sum, gap| {
        sum + (gap - LEASE_REQUEST_PERIOD).max(SignedDuration::ZERO)
    });
    let took = to.duration_since(from);
    let limit = SignedDuration::try_from(limit).unwrap();
    assert!(
        took <= limit + held_up,
        "it took {took:#}, of which it was held up for {held_up:#}"
    );
}

/// Waits until another replica leads than `before`, which has stopped just now, and returns which; it must be so in time.
async fn successor(world: &World, before: &str) -> String {
    let stopped = Clock::system().now();
    let next = next_holder(&world.client, TIMEOUT, before).await;
    let lease = leases(&world.client).get("foretide").await.unwrap();
    let led = lease.spec.and_then(|spec| spec.acquire_time).unwrap().0;
    // All replicas have one account; the one that stopped asks for nothing.
    assert_took_at_most(TAKEOVER, [stopped, led], &world.requests());
    next
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
    let second = successor(&world, &first).await;
    scaled_to(&world, 3).await;

    let mut stopped = standby(&world).await;
    signal(&paused, "-STOP").await;
    let paused_since = Clock::system().now();
    let third = successor(&world, &second).await;
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
