//! Member clusters beside the hub, and fleets over them: the actions of tests, and their observations.
//!
//! A member is a cluster of its own, with nodes, metrics and an HPA controller, that the replicas of the product reach over
//! the network by the kubeconfig in its Secret. The load of the shop is shared by the ready pods of all members, or that of
//! one member.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use foretide_kube::members::permissions;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use simkube::{
    SimKube,
    faults::Plan,
    network::Way,
    world::{self, World},
};

use crate::{
    cluster::{self, Cluster, HPAS, HUB, Load, PER_POD, SHOP, cpu, hpa, namespace},
    hpa::HpaController,
};

/// The namespace of the members' Secrets, and in a member that of the hub's account.
pub(crate) const SYSTEM: &str = "foretide-system";
/// The user of the hub in a member.
const ACCOUNT: &str = "system:serviceaccount:foretide-system:foretide-hub";
/// The label of the members' Secrets.
pub(crate) const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";
/// The annotation that makes a member leave.
pub(crate) const LEAVING: &str = "foretide.io/leaving";
/// Time from the assignment of a node to readiness.
const START_UP: Duration = Duration::from_secs(8);
/// Time without an answer after which a member is lost.
pub(crate) const LOST_AFTER: SignedDuration = SignedDuration::from_secs(30);
pub(crate) const FLEETS: &str = "federatedhpas.autoscaling.foretide.io";

/// Lowest and highest number of replicas.
pub(crate) type Bounds = (u64, u64);

/// A member cluster.
pub(crate) struct Member {
    pub(crate) server: SimKube,
    pub(crate) world: World,
    hpas: HpaController,
    /// Number of pods of the shop that the member has room for.
    pods: u64,
}

/// The servers of all members, whose pods share a load.
type Sites = Arc<Mutex<Vec<SimKube>>>;

/// The members of a hub, by name.
#[derive(Default)]
pub(crate) struct Members {
    all: BTreeMap<String, Member>,
    sites: Sites,
}

/// Budgets in the stored status of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) uid: String,
    pub(crate) generation: u64,
    pub(crate) unassigned: u64,
    pub(crate) members: BTreeMap<String, LedgerEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LedgerEntry {
    pub(crate) has_share: bool,
    pub(crate) has_failed: bool,
    /// The member could not be changed when budgets were divided, and gets its new share when it can.
    pub(crate) is_pinned: bool,
    pub(crate) max: u64,
    /// The largest count that was written for the member.
    pub(crate) written: u64,
}

// === impl Ledger ===

impl Ledger {
    /// The ledger in the status of a fleet, if it has one.
    pub(crate) fn of(fleet: &Value) -> Option<Self> {
        let ledger: Value = serde_json::from_str(fleet["status"]["ledger"].as_str()?).ok()?;
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let members = ledger["members"].as_object()?.iter();
        let entry = |entry: &Value| LedgerEntry {
            // Tenures 0 and 1 are a candidate and a member that could not be changed; later ones have failed or are
            // drained.
            has_share: number(&entry["tenure"]) < 2,
            is_pinned: number(&entry["tenure"]) == 1,
            has_failed: number(&entry["tenure"]) == 2,
            max: number(&entry["max"]),
            written: number(&entry["written"]),
        };
        Some(Self {
            uid: fleet["metadata"]["uid"].as_str()?.to_owned(),
            generation: number(&ledger["generation"]),
            unassigned: number(&ledger["unassigned"]),
            members: members
                .map(|(name, value)| (name.clone(), entry(value)))
                .collect(),
        })
    }
}

// === impl Members ===

impl Members {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.all.iter().map(|(name, member)| (&**name, member))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.all.keys().cloned().collect()
    }

    /// Runs all controllers of the members; `hpas`: the HPA controllers as well.
    pub(crate) fn step(&mut self, hpas: bool, now: Timestamp) {
        for member in self.all.values_mut() {
            member.world.step();
            if hpas {
                member.hpas.step(&member.world, now);
            }
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// A hub and members without faults.
    pub(crate) fn fleet(members: &[(&str, u64)]) -> Self {
        Self::new(1, Plan::default()).with_members(members)
    }

    /// Adds members that have joined, with room for this many pods of the shop each.
    pub(crate) fn with_members(mut self, members: &[(&str, u64)]) -> Self {
        for (name, pods) in members {
            self.add_member(name, *pods);
            self.join(name, &json!({}));
        }
        self
    }

    /// Adds a member with room for this many pods, and with the rights that `foretide members add --place` grants.
    pub(crate) fn add_member(&mut self, name: &str, pods: u64) {
        let number = u32::try_from(self.members.all.len()).unwrap() + 2;
        let server = SimKube::new(number, self.clock());
        self.network().add(name, server.clone());
        server.add_token(&token(name), ACCOUNT);
        for object in in_member() {
            server.create(&object);
        }
        let (load, sites, member) = (
            self.load.clone(),
            self.members.sites.clone(),
            name.to_owned(),
        );
        sites.lock().unwrap().push(server.clone());
        let here = server.clone();
        let demand =
            Arc::new(move |app: &str, now| demand(&load, &sites, (&member, &here), app, now));
        let size = (1, 2 * PER_POD * pods);
        let world = World::new(&server, self.clock(), size, START_UP, demand);
        let hpas = HpaController::new(&server, cluster::settings());
        let member = Member {
            server,
            world,
            hpas,
            pods,
        };
        self.members.all.insert(name.to_owned(), member);
    }

    /// Makes a cluster a member, with this metadata in its Secret.
    pub(crate) fn join(&self, member: &str, metadata: &Value) {
        let path = format!("/api/v1/namespaces/{SYSTEM}/secrets");
        let secret = secret(member, &token(member), metadata);
        // It may be there already.
        self.server.ask("kubectl", "POST", &path, &secret);
    }

    /// Deletes the Secret of a member.
    pub(crate) fn forget(&self, member: &str) {
        self.try_with_secret(member, "DELETE", &Value::Null);
    }

    /// Marks the Secret of a member as leaving, or removes the mark, or joins the member again if its Secret is gone.
    pub(crate) fn leave(&self, member: &str, leaves: bool) {
        let leaving = if leaves { json!("true") } else { Value::Null };
        let metadata = json!({"metadata": {"annotations": {LEAVING: leaving}}});
        self.try_with_secret(member, "PATCH", &metadata);
    }

    /// Writes a kubeconfig with this token into the Secret of a member.
    pub(crate) fn rotate(&self, member: &str, token: &str) {
        self.write_secret(member, &secret(member, token, &json!({}))["data"]);
    }

    /// Writes a kubeconfig into the Secret of a member that cannot be used.
    pub(crate) fn spoil(&self, member: &str) {
        self.write_secret(member, &json!({"kubeconfig": STANDARD.encode("{}")}));
    }

    /// Sends this request about the Secret of a member, which may be gone.
    fn try_with_secret(&self, member: &str, method: &str, body: &Value) {
        let path = format!("/api/v1/namespaces/{SYSTEM}/secrets/{member}");
        self.server.ask("kubectl", method, &path, body);
    }

    fn write_secret(&self, member: &str, data: &Value) {
        self.try_with_secret(member, "PATCH", &json!({"data": data}));
    }

    /// Returns whether the Secret of a member is there with valid credentials.
    pub(crate) fn is_joined(&self, member: &str) -> bool {
        let secrets = self.server.objects("secrets");
        let found = secrets.iter().find(|one| one["metadata"]["name"] == member);
        let valid = secret(member, &token(member), &json!({}));
        found.is_some_and(|found| found["data"] == valid["data"])
    }

    /// Keeps pods from the nodes of a member, or admits them again.
    pub(crate) fn cordon(&self, member: &str, is_full: bool) {
        let pods = if is_full {
            0
        } else {
            self.members.all[member].pods
        };
        let allocatable = json!({"cpu": format!("{}m", 2 * PER_POD * pods)});
        let status = json!({"status": {"allocatable": allocatable}});
        self.site(member)
            .patch("nodes", "", "node-0/status", &status);
    }

    /// Changes the maximum of the HPA in a member, as an unknown writer does.
    pub(crate) fn drift(&self, member: &str) {
        if self.child(member).is_some() {
            self.edit_child(member, &json!({"maxReplicas": 17}));
        }
    }

    /// Creates an HPA with the same target in a member, as an unknown writer does, or deletes it.
    pub(crate) fn foreign_hpa(&self, member: &str, is_there: bool) {
        let behavior = json!({"scaleDown": {"selectPolicy": "Disabled"}});
        let spec =
            json!({"minReplicas": 1, "maxReplicas": 20, "behavior": behavior, "metrics": [cpu()]});
        let hpa = hpa(SHOP, "by-hand", SHOP, spec);
        let hpas = format!("/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers");
        // It may be there already, or be gone.
        let (method, path) = if is_there {
            ("POST", hpas)
        } else {
            ("DELETE", format!("{hpas}/by-hand"))
        };
        self.site(member).ask("kubectl", method, &path, &hpa);
    }

    pub(crate) fn has_foreign_hpa(&self) -> bool {
        let mut members = self.members.all.values();
        members.any(|member| {
            let hpas = member.server.objects(HPAS);
            hpas.iter().any(|hpa| hpa["metadata"]["name"] == "by-hand")
        })
    }

    /// Changes the metadata of the Secret of a member.
    pub(crate) fn mark(&self, member: &str, metadata: &Value) {
        let change = json!({"metadata": metadata});
        self.server.patch("secrets", SYSTEM, member, &change);
    }

    /// Changes the way of all hosts to a member.
    pub(crate) fn reach_member(&self, member: &str, way: Way) {
        for host in self.hosts() {
            self.network().set(&host, member, way);
        }
    }

    pub(crate) fn block(&self, member: &str) {
        self.reach_member(member, Way::Blocked);
    }

    pub(crate) fn unblock(&self, member: &str) {
        self.reach_member(member, Way::Open(Duration::ZERO));
    }

    /// The server of a member, or of the hub.
    pub(crate) fn site(&self, member: &str) -> &SimKube {
        if member == HUB {
            &self.server
        } else {
            &self.members.all[member].server
        }
    }

    /// Kills the processes of all hosts.
    pub(crate) fn crash_all(&mut self) {
        self.hosts().iter().for_each(|host| self.crash(host, 2));
    }

    /// Creates the shop in a member with this many replicas, or sets them as a user does.
    pub(crate) fn deploy(&self, member: &str, replicas: u64) {
        let server = self.site(member);
        if deployment(server, SHOP).is_some() {
            let spec = json!({"spec": {"replicas": replicas}});
            server.patch("deployments.apps", SHOP, SHOP, &spec);
        } else {
            server.create(&cluster::deployment(SHOP, SHOP, replicas));
        }
    }

    pub(crate) fn deploy_everywhere(&self, replicas: u64) {
        for name in self.members.names() {
            self.deploy(&name, replicas);
        }
    }

    /// Creates a fleet of the shop.
    pub(crate) fn ask_for(&self, policy: &str, bounds: Bounds, more: &Value) {
        self.server.create(&fleet(SHOP, policy, bounds, more));
    }

    /// Sends this request about the fleet, which may fail.
    pub(crate) fn try_with_fleet(&self, method: &str, body: &Value) {
        let fleets = "/apis/autoscaling.foretide.io/v1alpha1/namespaces/shop/federatedhpas";
        let path = match method {
            "POST" => fleets.to_owned(),
            _ => format!("{fleets}/{SHOP}"),
        };
        self.server.ask("kubectl", method, &path, body);
    }

    /// Changes the `spec` of the fleet as a user does.
    pub(crate) fn edit_fleet(&self, spec: &Value) {
        self.server
            .patch(FLEETS, SHOP, SHOP, &json!({"spec": spec}));
    }

    pub(crate) fn annotate_fleet(&self, annotations: &Value) {
        let change = json!({"metadata": {"annotations": annotations}});
        self.server.patch(FLEETS, SHOP, SHOP, &change);
    }

    pub(crate) fn delete_fleet(&self) {
        self.server.delete(FLEETS, SHOP, SHOP);
    }

    /// Sets a load of this many thousandths of a pod that the pods of all members share from now on.
    pub(crate) fn evenly(&self, milli: u64) {
        self.locally(&[]);
        self.load.set(SHOP, self.now(), milli * PER_POD / 1_000);
    }

    /// Sets a load of its own for each member, in thousandths of a pod; a member without an entry has none.
    pub(crate) fn locally(&self, loads: &[(&str, u64)]) {
        self.load.set(SHOP, self.now(), 0);
        for name in self.members.names() {
            let load = loads.iter().find(|(member, _)| *member == name);
            let milli = load.map_or(0, |(_, milli)| *milli);
            self.load
                .set(&local(&name, SHOP), self.now(), milli * PER_POD / 1_000);
        }
    }

    /// Changes the HPA in a member as a user does.
    pub(crate) fn edit_child(&self, member: &str, spec: &Value) {
        let change = json!({"spec": spec});
        let name = self.child_name(member);
        self.site(member).patch(HPAS, SHOP, &name, &change);
    }

    /// Deletes the HPA in a member as a user does.
    pub(crate) fn delete_child(&self, member: &str) {
        self.site(member)
            .delete(HPAS, SHOP, &self.child_name(member));
    }

    fn child_name(&self, member: &str) -> String {
        let child = self.child(member).unwrap();
        child["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// The HPA of the shop in a member, with any owner.
    pub(crate) fn child(&self, member: &str) -> Option<Arc<Value>> {
        child(self.site(member), SHOP)
    }

    /// The bounds of every member that has an HPA for the shop.
    pub(crate) fn bounds(&self) -> BTreeMap<String, Bounds> {
        let names = self.members.names().into_iter();
        names
            .filter_map(|name| Some((name.clone(), bounds_of(&*self.child(&name)?))))
            .collect()
    }

    /// The members that have an HPA for the shop.
    pub(crate) fn with_hpas(&self) -> Vec<String> {
        self.bounds().into_keys().collect()
    }

    /// Wanted replicas and ready pods of the shop in a member; none without the workload.
    pub(crate) fn counts(&self, member: &str) -> Option<(u64, u64)> {
        counts(self.site(member), SHOP)
    }

    /// The ready pods of the shop in all members.
    pub(crate) fn serving(&self) -> u64 {
        self.ready().values().sum()
    }

    /// The ready pods of the shop by member.
    pub(crate) fn ready(&self) -> BTreeMap<String, u64> {
        let each = self.members.all.iter();
        let ready =
            |(name, member): (&String, &Member)| (name.clone(), ready(&member.server, SHOP));
        each.map(ready).collect()
    }

    /// The status of the fleet.
    pub(crate) fn fleet_status(&self) -> Value {
        let all = self.server.objects(FLEETS);
        let found = all.iter().find(|one| one["metadata"]["name"] == SHOP);
        found.map_or(Value::Null, |found| found["status"].clone())
    }

    /// The row of a member in the status.
    pub(crate) fn row(&self, member: &str) -> Value {
        let status = self.fleet_status();
        let rows = status["clusters"].as_array().cloned().unwrap_or_default();
        let row = rows.into_iter().find(|row| row["name"] == member);
        row.unwrap_or_default()
    }

    /// Returns whether the reason of a member contains this text.
    pub(crate) fn has_reason(&self, member: &str, wanted: &str) -> bool {
        let row = self.row(member);
        row["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains(wanted))
    }

    /// A condition of the fleet, as `status/reason`.
    pub(crate) fn condition(&self, kind: &str) -> String {
        let condition = cluster::condition(&self.fleet_status(), kind);
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        format!("{}/{}", text("status"), text("reason"))
    }

    /// The message of a condition of the fleet.
    pub(crate) fn message(&self, kind: &str) -> String {
        let condition = cluster::condition(&self.fleet_status(), kind);
        condition["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The notes of the events with this reason.
    pub(crate) fn events(&self, reason: &str) -> Vec<Value> {
        let events = self.server.objects("events.events.k8s.io");
        let found = events.iter().filter(|event| event["reason"] == reason);
        found.map(|event| event["note"].clone()).collect()
    }

    /// Lets a member serve the usage of pods, or stops it.
    pub(crate) fn serve_metrics(&self, member: &str, serves: bool) {
        let api = "v1beta1.metrics.k8s.io";
        if serves {
            let service = json!({"name": "metrics-server", "namespace": "kube-system"});
            let spec = json!({
                "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": service,
            });
            let api = json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": api}, "spec": spec,
            });
            self.site(member).create(&api);
        } else {
            let registrations = "apiservices.apiregistration.k8s.io";
            self.site(member).delete(registrations, "", api);
        }
    }

    /// Writes of the product in the members so far, such as `member1: patch deployments/scale`.
    pub(crate) fn member_writes(&self) -> Vec<String> {
        let mut writes = Vec::new();
        for (name, member) in self.members.iter() {
            let entries = member.server.audit().into_iter();
            let ours = entries.filter(|entry| entry.user == ACCOUNT && entry.written.is_some());
            writes.extend(
                ours.map(|entry| format!("{name}: {} {}", entry.access.verb, entry.object())),
            );
        }
        writes
    }

    /// Writes of the product in the hub so far, without the lease.
    pub(crate) fn hub_writes(&self) -> BTreeSet<String> {
        let entries = self.server.audit().into_iter();
        let ours =
            entries.filter(|entry| entry.client.starts_with("pod-") && entry.written.is_some());
        ours.map(|entry| entry.access.resource)
            .filter(|resource| resource != "leases")
            .collect()
    }

    /// Waits until exactly these members have an HPA, with exactly these bounds.
    pub(crate) fn assigned(&mut self, seconds: u64, what: &str, wanted: &[(&str, Bounds)]) {
        let wanted: BTreeMap<String, Bounds> = wanted
            .iter()
            .map(|(name, bounds)| ((*name).to_owned(), *bounds))
            .collect();
        self.until(seconds, what, |cluster| cluster.bounds() == wanted);
    }

    /// Waits until exactly these members have an HPA, with these maxima.
    pub(crate) fn capped(&mut self, seconds: u64, what: &str, wanted: &[(&str, u64)]) {
        self.until(seconds, what, |cluster| {
            let found = cluster.bounds();
            let found = found.iter().map(|(name, (_, max))| (&**name, *max));
            found.eq(wanted.iter().copied())
        });
    }

    /// Waits until these members run this many replicas, all of them ready.
    pub(crate) fn runs(&mut self, seconds: u64, what: &str, wanted: &[(&str, u64)]) {
        self.until(seconds, what, |cluster| cluster.has(wanted));
    }

    /// Returns whether these members run this many replicas, all of them ready.
    pub(crate) fn has(&self, wanted: &[(&str, u64)]) -> bool {
        let runs = |(name, count): &(&str, u64)| self.counts(name) == Some((*count, *count));
        wanted.iter().all(runs)
    }

    /// Waits until a condition of the fleet is this, as `status/reason`.
    pub(crate) fn until_condition(&mut self, seconds: u64, kind: &str, wanted: &str) {
        self.until(seconds, wanted, |cluster| cluster.condition(kind) == wanted);
    }

    /// Waits until the reason of a member contains this text.
    pub(crate) fn until_reason(&mut self, seconds: u64, member: &str, wanted: &str) {
        self.until(seconds, wanted, |cluster| {
            cluster.has_reason(member, wanted)
        });
    }

    /// Counts, bounds and reasons of all members, for messages.
    pub(crate) fn show(&self) -> String {
        let status = self.fleet_status();
        let of = |name: String| {
            let (counts, reason) = (self.counts(&name), self.row(&name)["reason"].clone());
            let bounds = self.child(&name).map(|child| bounds_of(&child));
            format!("{name}: runs {counts:?}, bounds {bounds:?}: {reason}\n")
        };
        let each: String = self.members.names().into_iter().map(of).collect();
        format!("{each}{}\n{}", status["conditions"], status["decision"])
    }
}

/// A hub without an election, and two members with two replicas each.
pub(crate) fn begun(more: &Value) -> Cluster {
    let mut cluster = Cluster::fleet(&[("one", 10), ("two", 10)]);
    cluster.elects = false;
    cluster.deploy_everywhere(2);
    cluster.evenly(4_000);
    cluster.ask_for("StaticWeighted", (2, 20), more);
    cluster.start("pod-0");
    cluster.run_for(60);
    cluster
}

/// A hub without an election, and two members with two replicas and half of a maximum of 20 each.
pub(crate) fn settled(more: &Value) -> Cluster {
    let mut cluster = begun(more);
    cluster.capped(60, "halves", &[("one", 10), ("two", 10)]);
    cluster.run_for(60);
    cluster
}

pub(crate) fn deployment(server: &SimKube, name: &str) -> Option<Arc<Value>> {
    let all = server.objects("deployments.apps").into_iter();
    all.filter(|one| one["metadata"]["namespace"] == SHOP)
        .find(|one| one["metadata"]["name"] == name)
}

/// The HPA of a workload, with any owner.
pub(crate) fn child(server: &SimKube, target: &str) -> Option<Arc<Value>> {
    let all = server.objects(HPAS).into_iter();
    all.filter(|one| one["metadata"]["namespace"] == SHOP)
        .find(|one| one["spec"]["scaleTargetRef"]["name"] == target)
}

pub(crate) fn bounds_of(hpa: &Value) -> Bounds {
    let bound = |field: &str| hpa["spec"][field].as_u64();
    (
        bound("minReplicas").unwrap_or(1),
        bound("maxReplicas").unwrap_or_default(),
    )
}

/// The ready pods of a workload.
pub(crate) fn ready(server: &SimKube, app: &str) -> u64 {
    let pods = world::pods(server, SHOP, app);
    pods.iter().filter(|pod| world::is_ready(pod)).count() as u64
}

/// Wanted replicas and ready pods of a workload; none if there is none.
pub(crate) fn counts(server: &SimKube, app: &str) -> Option<(u64, u64)> {
    let found = deployment(server, app)?;
    let wanted = found["spec"]["replicas"].as_u64().unwrap_or(1);
    Some((wanted, ready(server, app)))
}

/// The usage of a member's pods: its part of the shared load, and its own load.
fn demand(
    load: &Load,
    sites: &Sites,
    (name, server): (&str, &SimKube),
    app: &str,
    now: Timestamp,
) -> u64 {
    let shared = load.at(app, now);
    let own = load.at(&local(name, app), now);
    if shared == 0 {
        return own;
    }
    let all: u64 = sites
        .lock()
        .unwrap()
        .iter()
        .map(|site| ready(site, app))
        .sum();
    own + shared * ready(server, app) / all.max(1)
}

/// The name of a member's own load.
pub(crate) fn local(member: &str, app: &str) -> String {
    format!("{member}/{app}")
}

pub(crate) fn token(member: &str) -> String {
    format!("token-of-{member}")
}

/// A fleet with CPU at 50 %, moves within a minute, and these fields of `spec`.
pub(crate) fn fleet(name: &str, policy: &str, (min, max): Bounds, more: &Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": min, "maxReplicas": max,
        "metrics": [cpu()],
        // Without other limits, the load alone determines the rate.
        "behavior": {
            "scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 1}]},
            "scaleDown": {"stabilizationWindowSeconds": 30},
        },
        "autoscaleMultiClusterDelay": 15,
        "rebalance": {"cooldownSeconds": 15, "settleObservations": 2},
        "federatedHPAAssignment": {"federatedHPAAssignmentType": policy},
    });
    let more = more.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(more);
    json!({
        "apiVersion": "autoscaling.foretide.io/v1alpha1", "kind": "FederatedHPA",
        "metadata": {"name": name, "namespace": SHOP}, "spec": spec,
    })
}

/// A policy with one number for each member: `priority` or `staticWeight`.
pub(crate) fn with_preferences(policy: &str, field: &str, members: &[(&str, u64)]) -> Value {
    let each = members
        .iter()
        .map(|(name, number)| json!({"targetCluster": {"clusterNames": [name]}, field: number}));
    json!({
        "federatedHPAAssignmentType": policy,
        "clusterAutoscalingPreference": each.collect::<Vec<_>>(),
    })
}

/// Three members, each with a value.
pub(crate) const fn three<T: Copy>([first, second, third]: [T; 3]) -> [(&'static str, T); 3] {
    [("member1", first), ("member2", second), ("member3", third)]
}

/// A policy without preferences.
pub(crate) fn plain(policy: &str) -> Value {
    json!({"federatedHPAAssignmentType": policy})
}

/// Objects that `foretide members add --place` creates in a member.
fn in_member() -> Vec<Value> {
    let rule = |right: &foretide_kube::members::Permission| json!({"apiGroups": [right.group], "resources": right.resources, "verbs": right.verbs});
    let rules: Vec<_> = permissions(true).iter().map(rule).collect();
    let rbac = "rbac.authorization.k8s.io";
    vec![
        namespace(SHOP),
        namespace(SYSTEM),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole",
            "metadata": {"name": "foretide-member"}, "rules": rules,
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": "foretide-member"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "foretide-member"},
            "subjects": [{"kind": "ServiceAccount", "name": "foretide-hub", "namespace": SYSTEM}],
        }),
    ]
}

/// The Secret of a member, with a kubeconfig as `docs/members.md` describes it.
fn secret(member: &str, token: &str, metadata: &Value) -> Value {
    let cluster =
        json!({"server": format!("https://{member}"), "certificate-authority-data": &*AUTHORITY});
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": member,
        "contexts": [{"name": member, "context": {"cluster": member, "user": "foretide-hub"}}],
        "clusters": [{"name": member, "cluster": cluster}],
        "users": [{"name": "foretide-hub", "user": {"token": token}}],
    });
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": member, "namespace": SYSTEM, "labels": {LABEL: "true"}},
        "data": {"kubeconfig": STANDARD.encode(kubeconfig.to_string())},
    });
    let more = metadata.as_object().unwrap().clone();
    secret["metadata"].as_object_mut().unwrap().extend(more);
    secret
}

/// A certificate that is never checked, because connections stay in memory; a kubeconfig must have one.
static AUTHORITY: LazyLock<String> = LazyLock::new(|| {
    let signed = rcgen::generate_simple_self_signed([HUB.to_owned()]).unwrap();
    STANDARD.encode(signed.cert.pem())
});
