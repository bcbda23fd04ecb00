//! The binary as a process among others: one replica leads and is killed, paused in the middle of its writes, and asked to
//! end.
//!
//! The state at each moment of a succession is proven in `tests/sim`; this is about real signals, processes, leases and
//! connections. The times of writes are read from the audit log, in which each replica has an account of its own.

use std::{collections::BTreeSet, path::PathBuf};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use rig::{ClusterOptions, eventually};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::{
    manual_changes::{deployment, ehpa},
    world::{TIMEOUT, World, binary},
};

const SYSTEM: &str = "foretide-system";
/// Autoscalers that change at once, so that a leader has more to write when it is paused.
const OBJECTS: usize = 30;
const LEADER: &str = include_str!("../../deploy/23-leader-rbac.yaml");
/// Flags of a replica as in `deploy/`, except for a lease that a busy machine does not let expire by itself.
const ELECTION: [&str; 6] = [
    "--listen=127.0.0.1:0",
    "--leader-elect",
    "--leader-elect-namespace=foretide-system",
    "--leader-elect-lease-duration=30s",
    "--leader-elect-renew-deadline=25s",
    "--leader-elect-retry-period=2s",
];

/// A replica that may lead, and its account.
struct Replica {
    account: &'static str,
    process: Child,
}

// === impl Replica ===

impl Replica {
    /// A replica with an account of its own.
    async fn start(world: &World, account: &'static str) -> Self {
        let kubeconfig = add_account(world, account).await;
        let mut command = binary(&kubeconfig, world.hpa_flags());
        let process = command.args(ELECTION).spawn().unwrap();
        Self { account, process }
    }

    /// A replica beside a leader, which has seen the lease: only a standby reads it.
    async fn standby(world: &World, account: &'static str) -> Self {
        let standby = Self::start(world, account).await;
        eventually(TIMEOUT, "the standby has read the lease", || async {
            let has_read = of(world, account).into_iter().any(|request| {
                request.resource == "leases" && request.verb == "get" && request.code == 200
            });
            has_read.then_some(()).ok_or("not yet")
        })
        .await;
        standby
    }

    /// Waits until it has ended; returns its exit code.
    async fn ends(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(TIMEOUT, self.process.wait()).await;
        ended.unwrap().unwrap().code()
    }
}

/// An account with the permissions of the controller; returns its kubeconfig.
async fn add_account(world: &World, name: &str) -> PathBuf {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": SYSTEM },
    });
    world.apply(&account.to_string()).await;
    for (kind, role) in [
        ("ClusterRole", "foretide-controller"),
        ("ClusterRole", "foretide-fleets"),
        ("Role", "foretide-leader"),
        ("Role", "foretide-members"),
    ] {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": format!("{kind}Binding"),
            "metadata": { "name": format!("{name}-{role}"), "namespace": SYSTEM },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": SYSTEM }],
        });
        world.apply(&binding.to_string()).await;
    }
    let kubeconfig = world.cluster.service_account_kubeconfig(SYSTEM, name);
    kubeconfig.await.unwrap()
}

/// The requests of an account so far.
fn of(world: &World, account: &str) -> Vec<rig::AuditEvent> {
    let user = format!("system:serviceaccount:{SYSTEM}:{account}");
    let mut events = world.cluster.audit().unwrap();
    events.retain(|event| event.user == user);
    events
}

/// Times at which writes of an account were accepted, other than those of the lease and of events.
fn writes(world: &World, account: &str) -> Vec<Timestamp> {
    let meant = of(world, account)
        .into_iter()
        .filter(|event| event.wrote() && !["leases", "events"].contains(&event.resource.as_str()));
    meant.map(|event| event.time).collect()
}

pub(crate) async fn signal(process: &Child, signal: &str) {
    let id = process.id().unwrap().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().await;
    assert!(sent.unwrap().success());
}

/// The leases beside the controller.
pub(crate) fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), SYSTEM)
}

/// The holder of the lease; empty if there is none.
pub(crate) async fn holder(client: &Client) -> Result<String, String> {
    let lease = leases(client).get("foretide").await;
    let spec = lease.map_err(|error| error.to_string())?.spec;
    Ok(spec
        .and_then(|spec| spec.holder_identity)
        .unwrap_or_default())
}

/// Waits until another replica than `before` holds the lease; returns the new holder.
pub(crate) async fn next_holder(client: &Client, before: &str) -> String {
    eventually(TIMEOUT, "another replica leads", || async {
        let found = holder(client).await?;
        if found.is_empty() || found == before {
            return Err(found);
        }
        Ok(found)
    })
    .await
}

fn name(n: usize) -> String {
    format!("web-{n}")
}

/// Sets the only count that each autoscaler may choose.
async fn ask_for(world: &World, replicas: i32) {
    let spec = json!({ "spec": { "minReplicas": replicas, "maxReplicas": replicas } });
    let (ehpas, parameters) = (world.ehpas(), PatchParams::default());
    let patched = (0..OBJECTS).map(|n| {
        let (ehpas, parameters, patch) = (&ehpas, &parameters, Patch::Merge(spec.clone()));
        async move { ehpas.patch(&name(n), parameters, &patch).await.unwrap() }
    });
    join_all(patched).await;
}

/// The number of Deployments with this count.
async fn with(world: &World, replicas: i32) -> Result<usize, String> {
    let listed = world.deployments().list(&ListParams::default()).await;
    let listed = listed.map_err(|error| error.to_string())?;
    let counts = listed.iter().filter_map(|one| one.spec.as_ref()?.replicas);
    Ok(counts.filter(|count| *count == replicas).count())
}

async fn at_least(least: usize, replicas: i32, world: &World) {
    let what = format!("{least} Deployments have {replicas} replicas");
    eventually(TIMEOUT, &what, || async {
        let found = with(world, replicas).await?;
        (found >= least).then_some(()).ok_or(found.to_string())
    })
    .await;
}

async fn scaled_to(world: &World, replicas: i32) {
    ask_for(world, replicas).await;
    at_least(OBJECTS, replicas, world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_a_leader_that_is_killed_paused_or_stopped() {
    let world = World::start(ClusterOptions::named("leaders")).await;
    let client = &world.client;
    world.apply(LEADER).await;
    for n in 0..OBJECTS {
        let name = name(n);
        world.deployment(&name, 1, "1m").await;
        let direct = ehpa(deployment(&name), (1, 1), &json!({ "mode": "Direct" }));
        world.apply(&direct.to_string()).await;
    }

    let mut killed = Replica::start(&world, "one").await;
    let first = next_holder(client, "").await;
    scaled_to(&world, 2).await;
    let mut paused = Replica::standby(&world, "two").await;
    killed.process.kill().await.unwrap();
    let second = next_holder(client, &first).await;
    scaled_to(&world, 3).await;

    // Paused while it has more to write: its successor writes the rest, and when it wakes up it has no right to write, and
    // ends.
    let mut stopped = Replica::standby(&world, "three").await;
    tokio::join!(ask_for(&world, 1), async {
        at_least(1, 1, &world).await;
        signal(&paused.process, "-STOP").await;
    });
    let third = next_holder(client, &second).await;
    at_least(OBJECTS, 1, &world).await;
    scaled_to(&world, 2).await;
    signal(&paused.process, "-CONT").await;
    assert_ne!(paused.ends().await, Some(0));
    assert_eq!(holder(client).await.unwrap(), third);
    scaled_to(&world, 3).await;
    for (before, after) in [(&killed, &paused), (&paused, &stopped)] {
        let last = writes(&world, before.account).into_iter().max();
        let first = writes(&world, after.account).into_iter().min();
        assert!(last < first, "{last:?} by {}, {first:?}", before.account);
    }

    signal(&stopped.process, "-TERM").await;
    assert_eq!(stopped.ends().await, Some(0));
    let accounts = [&killed, &paused, &stopped].map(|replica| replica.account);
    let requests: Vec<_> = accounts.iter().flat_map(|one| of(&world, one)).collect();
    assert!(requests.iter().all(|request| request.code != 403));
    let of_lease = requests.iter().filter(|one| one.resource == "leases");
    let verbs: BTreeSet<_> = of_lease.map(|request| request.verb.as_str()).collect();
    assert_eq!(verbs, ["create", "get", "update"].into());
}
