//! A leader that is killed, cut off from the API server, or paused for longer than its lease, while it has much to
//! write: its successor writes all of it, and no API server accepts anything more of the old one. Each replica has
//! accounts of its own, which the audit logs name.
//!
//! A leader is paused at its first write of a kind ([`write::Write`]): of a sync and of a report in `single`, to the hub
//! and to a member in `fleets`. All other kinds pass the same function and the same connections, as
//! `tests/it/architecture.rs` checks.

mod fleets;
mod single;
mod write;

use std::{
    collections::BTreeMap,
    future::Future,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use foretide::clock::Clock;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams, WatchParams},
    core::GroupVersionKind,
};
use rig::{AuditEvent, Change, Cluster, HpaFlags, eventually, follow};
use serde_json::{Value, json};
use tokio::{process::Child, sync::oneshot, task::JoinHandle};

use self::write::Write;
use crate::{
    fleet::world::SYSTEM,
    leadership::{Signal, holder, next_holder, outlasts_the_lease, signal},
    world::{NAMESPACE, TIMEOUT, binary},
};

/// A lease of 10 s, for the time of these scenarios.
const LEASE: [&str; 7] = [
    "--leader-elect",
    "--leader-elect-namespace=foretide-system",
    "--leader-elect-lease-duration=10s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=1s",
    "--listen=127.0.0.1:0",
    "--log=warn",
];

/// What a replica runs with.
struct Account {
    name: &'static str,
    kubeconfig: PathBuf,
    flags: &'static [&'static str],
}

/// A replica with an account of its own.
struct Replica {
    account: Account,
    process: Child,
}

/// The two replicas.
struct Pair {
    leader: Replica,
    standby: Replica,
}

/// The counts of all Deployments of a cluster, and those that became smaller.
struct Decreases {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// Wanted and ready, by Deployment.
    counts: BTreeMap<String, [i32; 2]>,
    decreases: Vec<String>,
}

// === impl Replica ===

impl Replica {
    fn start(account: Account) -> Self {
        let mut command = binary(&account.kubeconfig, &HpaFlags::quick());
        let process = command.args(LEASE).args(account.flags).spawn().unwrap();
        Self { account, process }
    }

    /// Its accounts: in the cluster of its lease, and in members.
    fn users(&self) -> [String; 2] {
        let name = self.account.name;
        [name, member_account(name)].map(user)
    }

    /// Waits until it takes part in the election.
    async fn stands_by(&self, cluster: &Cluster, since: Timestamp) {
        let user = user(self.account.name);
        eventually(TIMEOUT, &format!("{user} stands by"), || async {
            let events = cluster.audit().unwrap();
            let asked = events.iter().any(|event| {
                event.resource == "leases" && event.user == user && event.time > since
            });
            asked.then_some(()).ok_or("it has not asked yet")
        })
        .await;
    }

    /// Waits until it has ended, as a leader does that lost the lease.
    async fn ends(&mut self) {
        let ended = tokio::time::timeout(TIMEOUT, self.process.wait()).await;
        assert_ne!(ended.unwrap().unwrap().code(), Some(0));
    }
}

// === impl Pair ===

impl Pair {
    /// Starts a standby beside a leader.
    async fn with_standby(leader: Replica, standby: Account, hub: &Cluster) -> Self {
        let since = now();
        let standby = Replica::start(standby);
        standby.stands_by(hub, since).await;
        Self { leader, standby }
    }

    /// Pauses the leader at its first write, while it has more to write because of `changes`; the standby takes over.
    /// Returns when the leader had stopped.
    async fn pause(
        &self,
        hub: &Client,
        first_write: JoinHandle<()>,
        changes: impl Future<Output = ()>,
    ) -> Timestamp {
        let before = holder(hub).await.unwrap();
        let stop = Signal::prepare(&self.leader.process, "-STOP");
        let paused = async {
            happens(first_write).await;
            stop.send().await;
            let since = now();
            next_holder(hub, TIMEOUT, &before).await;
            since
        };
        let ((), since) = tokio::join!(changes, paused);
        since
    }

    /// Resumes the leader when its lease is over: it ends.
    async fn resume(&mut self, paused_since: Timestamp) {
        outlasts_the_lease(paused_since).await;
        signal(&self.leader.process, "-CONT").await;
        self.leader.ends().await;
    }

    /// Starts the old leader again, as the standby of the new one.
    async fn swap(self, hub: &Cluster) -> Self {
        let Self { leader, standby } = self;
        Self::with_standby(standby, leader.account, hub).await
    }

    /// Fails if a write of the old leader was accepted after the first one of the new one, in any of these clusters.
    /// Returns the writes of the old one, other than the lease.
    fn assert_succession(&self, clusters: &[&Cluster], since: Timestamp) -> Vec<AuditEvent> {
        let all = clusters.iter().flat_map(|cluster| cluster.audit().unwrap());
        let is_meant =
            |event: &AuditEvent| event.time > since && event.wrote() && event.resource != "leases";
        let all: Vec<_> = all.filter(is_meant).collect();
        let accepted = |replica: &Replica| {
            let users = replica.users();
            let of_replica = all.iter().filter(|event| users.contains(&event.user));
            of_replica.cloned().collect::<Vec<_>>()
        };
        let new = accepted(&self.standby);
        let first_of_new = new.iter().map(|event| event.time).min().unwrap();
        let (of_old, late): (Vec<_>, Vec<_>) = accepted(&self.leader)
            .into_iter()
            .partition(|event| event.time < first_of_new);
        assert!(late.is_empty(), "accepted after {first_of_new}: {late:#?}");
        of_old
    }
}

// === impl Decreases ===

impl Decreases {
    /// Follows the counts, wanted and ready, of all Deployments of a cluster.
    fn of(client: Client) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let found = Arc::clone(&seen);
        let all: Api<Deployment> = Api::namespaced(client, NAMESPACE);
        let task = tokio::spawn(follow(all, WatchParams::default(), move |change| {
            if let Change::Present(deployment) = change {
                let name = deployment.name_any();
                let now = counts(&deployment);
                let mut seen = found.lock().unwrap();
                let then = seen.counts.insert(name.clone(), now).unwrap_or(now);
                if now[0] < then[0] || now[1] < then[1] {
                    seen.decreases.push(format!("{name}: {then:?} to {now:?}"));
                }
            }
            ControlFlow::Continue(())
        }));
        Self { seen, task }
    }

    fn assert_none(&self) {
        let Seen { counts, decreases } = &*self.seen.lock().unwrap();
        assert!(!counts.is_empty(), "no Deployment was seen");
        assert!(
            decreases.is_empty(),
            "counts, wanted and ready, became smaller: {decreases:#?}"
        );
    }
}

impl Drop for Decreases {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn now() -> Timestamp {
    Clock::system().now()
}

fn counts(deployment: &Deployment) -> [i32; 2] {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let status = deployment.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas);
    [wanted.unwrap_or(1), ready.unwrap_or(0)]
}

fn user(account: &str) -> String {
    format!("system:serviceaccount:{SYSTEM}:{account}")
}

/// The account in members of the replica with this account in the hub.
fn member_account(account: &str) -> &'static str {
    match account {
        "one" => crate::fleet::world::ACCOUNT,
        _ => "hub-of-two",
    }
}

/// An account with the permissions of the controller; returns its kubeconfig.
async fn add_account(cluster: &Cluster, account: &str) -> PathBuf {
    let leader = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/23-leader-rbac.yaml");
    cluster
        .apply(&std::fs::read_to_string(leader).unwrap())
        .await
        .unwrap();
    let service_account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": account, "namespace": SYSTEM },
    });
    cluster.apply(&service_account.to_string()).await.unwrap();
    for (kind, role) in [
        ("ClusterRole", "foretide-controller"),
        ("ClusterRole", "foretide-fleets"),
        ("Role", "foretide-leader"),
        ("Role", "foretide-members"),
    ] {
        let binding = bound(account, SYSTEM, [kind, role]);
        cluster.apply(&binding.to_string()).await.unwrap();
    }
    let made = cluster.service_account_kubeconfig(SYSTEM, account).await;
    made.unwrap()
}

/// A binding of an account to a role, in this namespace if the role is of one.
fn bound(account: &str, namespace: &str, [kind, role]: [&str; 2]) -> Value {
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": format!("{kind}Binding"),
        "metadata": { "name": format!("{account}-{role}") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": SYSTEM }],
    });
    if kind == "Role" {
        binding["metadata"]["namespace"] = json!(namespace);
    }
    binding
}

fn objects(client: &Client, kind: &GroupVersionKind) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(kind))
}

/// Changes every one of these objects, all at once.
async fn patch_all(
    objects: &Api<DynamicObject>,
    names: impl Iterator<Item = String>,
    patch: &Value,
) {
    let patch = &Patch::Merge(patch);
    let parameters = &PatchParams::default();
    let patched = names.map(|name| async move {
        objects.patch(&name, parameters, patch).await.unwrap();
    });
    join_all(patched).await;
}

/// Completes with the first write of this kind after a change to this count. It watches when this returns.
async fn first_of(client: &Client, kind: Write, count: i32) -> JoinHandle<()> {
    let all = objects(client, &kind.kind());
    let (ready, watches) = oneshot::channel();
    let mut ready = Some(ready);
    let task = tokio::spawn(follow(all, WatchParams::default(), move |change| {
        let is_listed = ready.is_none();
        let happened = match change {
            Change::Listed => {
                ready.take().and_then(|ready| ready.send(()).ok());
                false
            }
            Change::Present(object) if is_listed => {
                kind.shows_in(&serde_json::to_value(object).unwrap(), count)
            }
            Change::Begun | Change::Present(_) | Change::Deleted(_) => false,
        };
        if happened {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }));
    let watches = tokio::time::timeout(TIMEOUT, watches).await;
    watches.unwrap().unwrap();
    task
}

/// Waits for the write that [`first_of`] watches for.
async fn happens(first: JoinHandle<()>) {
    let happened = tokio::time::timeout(TIMEOUT, first).await;
    happened.unwrap().unwrap();
}

/// Waits until this many Deployments, those whose names begin so, have this count, ready.
async fn all_have(client: &Client, prefix: &str, deployments: usize, count: i32) {
    let all: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let what = format!("all {prefix} have {count} ready");
    eventually(TIMEOUT, &what, || async {
        let listed = all.list(&kube::api::ListParams::default()).await;
        let listed = listed.map_err(|error| error.to_string())?;
        let there = listed
            .iter()
            .filter(|one| one.name_any().starts_with(prefix) && counts(one) == [count, count])
            .count();
        (there == deployments)
            .then_some(())
            .ok_or(there.to_string())
    })
    .await;
}

/// Waits until the statuses of all objects of this kind are of their present specs, `all` of them.
async fn reported(client: &Client, kind: Write, all: usize) {
    let objects = objects(client, &kind.kind());
    eventually(
        TIMEOUT,
        &format!("all of {kind:?} are reported"),
        || async {
            let listed = objects.list(&kube::api::ListParams::default()).await;
            let listed = listed.map_err(|error| error.to_string())?;
            let listed = listed.iter().map(|one| serde_json::to_value(one).unwrap());
            let there = listed.filter(write::is_reported).count();
            (there == all)
                .then_some(())
                .ok_or(format!("{there} of {all}"))
        },
    )
    .await;
}
