//! The environment of one fleet scenario: a hub with our manifests, members with the permissions that a member grants,
//! a Deployment `shop` in each if wanted, and load that is shared as the scenario says.

use std::{collections::BTreeMap, path::PathBuf};

use foretide::{
    clock::Clock,
    config::{Config, MemberArgs},
};
use foretide_crds::FederatedHPA;
use futures::future::join_all;
use jiff::SignedDuration;
use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use rig::{AuditEvent, Cluster, ClusterOptions, Component, Fleet, HpaFlags, NodeSize, eventually};
use serde_json::{Value, json};
use tokio::{
    process::Command,
    sync::{Semaphore, SemaphorePermit},
};

use super::load::Load;
use crate::{
    manual_changes::condition,
    world::{CONTROLLER_USER, Controller, NAMESPACE, TIMEOUT, config, install},
};

/// The workload of all scenarios, in the hub and in the members.
pub(crate) const SHOP: &str = "shop";
/// The namespace of the members' Secrets, and in a member of the hub's service account.
pub(crate) const SYSTEM: &str = "foretide-system";
/// The service account of the hub in a member.
pub(crate) const ACCOUNT: &str = "foretide-hub";
/// The name of the hub as a member.
pub(crate) const HOME: &str = "home";
/// A fleet of three needs 3 GB of memory, so only this many run at a time.
static SLOTS: Semaphore = Semaphore::const_new(3);

/// Lowest and highest number of replicas of a member's HPA.
pub(crate) type Bounds = (i32, i32);

/// A hub and its members.
pub(crate) struct FleetWorld {
    pub(crate) fleet: Fleet,
    pub(crate) load: Load,
    /// Whether the hub is also a member.
    at_home: bool,
    kubeconfig: PathBuf,
    _slot: SemaphorePermit<'static>,
}

impl FleetWorld {
    /// Starts a hub and members with capacity for these numbers of pods, and joins the members to the fleet.
    pub(crate) async fn start(name: &str, members: &[(&str, u32)]) -> Self {
        let world = Self::start_apart(name, members).await;
        join_all(members.iter().map(|(member, _)| world.join(member, &[]))).await;
        world
    }

    /// Like `start`, but no member has joined the fleet.
    pub(crate) async fn start_apart(name: &str, members: &[(&str, u32)]) -> Self {
        let hub = ClusterOptions::named(&format!("{name}-hub"))
            .without(Component::KubeScheduler)
            .without(Component::Kwok)
            .nodes(0, room(1));
        Self::start_with((hub, false), members).await
    }

    /// Like `start`, and the hub can run pods as well: it may join as `HOME`.
    pub(crate) async fn start_at_home(name: &str, pods: u32, members: &[(&str, u32)]) -> Self {
        let hub = ClusterOptions::named(&format!("{name}-hub")).nodes(1, room(pods));
        Self::start_with((hub, true), members).await
    }

    async fn start_with((hub, at_home): (ClusterOptions, bool), members: &[(&str, u32)]) -> Self {
        foretide::telemetry::start_logging("foretide=debug,warn", false).unwrap();
        let slot = SLOTS.acquire().await.unwrap();
        let options = members
            .iter()
            .map(|(name, pods)| ClusterOptions::named(name).nodes(1, room(*pods)));
        let fleet = Fleet::start(hub, options.collect()).await.unwrap();
        let clusters = clusters(&fleet, at_home);
        let (kubeconfig, load) = tokio::join!(install(&fleet.hub), Load::start(&clusters));
        Self {
            fleet,
            load,
            at_home,
            kubeconfig,
            _slot: slot,
        }
    }

    /// All clusters that may run the shop, by their name as a member.
    pub(crate) fn clusters(&self) -> Vec<(&str, &Cluster)> {
        clusters(&self.fleet, self.at_home)
    }

    /// The configuration of a controller for this hub.
    pub(crate) fn config(&self) -> Config {
        Config {
            members: MemberArgs {
                namespace: Some(SYSTEM.to_owned()),
                lost_after: SignedDuration::from_secs(4),
                allow_loopback: true,
                ..MemberArgs::default()
            },
            ..config(&self.kubeconfig, &HpaFlags::quick())
        }
    }

    /// Runs a controller with this configuration.
    pub(crate) fn run(&self) -> Controller {
        Controller::run(self.config(), Clock::system())
    }

    /// Waits until usage was requested from each member this many more times, which is once per sync.
    pub(crate) async fn further_observations(&self, count: usize) {
        let all: Vec<_> = self.clusters().into_iter().map(|(name, _)| name).collect();
        self.further_observations_of(&all, count).await;
    }

    /// The same, only from these members.
    pub(crate) async fn further_observations_of(&self, members: &[&str], count: usize) {
        let looks = |member: &str| {
            let asked = self.member_requests(member).into_iter();
            asked
                .filter(|event| event.group == "metrics.k8s.io")
                .count()
        };
        for name in members {
            let until = looks(name) + count;
            eventually(
                TIMEOUT,
                &format!("{count} further observations"),
                || async {
                    match looks(name) {
                        seen if seen >= until => Ok(()),
                        seen => Err(format!("{name}: {seen} of {until}")),
                    }
                },
            )
            .await;
        }
    }

    /// Joins a member as an administrator does, with more arguments for `members add`. A repeated call applies the
    /// differences.
    pub(crate) async fn join(&self, member: &str, more: &[&str]) {
        let hub = self.fleet.hub.kubeconfig_path();
        let mut adding = self.members_add(member, more);
        stdout_of(adding.arg("--hub-kubeconfig").arg(hub)).await;
    }

    /// Removes a member with the command, which waits until no fleet has anything there.
    pub(crate) async fn remove(&self, member: &str) {
        let hub = self.fleet.hub.kubeconfig_path();
        let mut removing = Command::new(env!("CARGO_BIN_EXE_foretide"));
        removing.args([
            "members",
            "remove",
            member,
            "--allow-loopback",
            "--hub-kubeconfig",
        ]);
        stdout_of(removing.arg(hub)).await;
    }

    /// Waits until the row of a member has this note, or no longer has it.
    pub(crate) async fn noted(&self, member: &str, note: &str, is_noted: bool) {
        let what = format!("{note:?} for {member}: {is_noted}");
        self.status(&what, |status| {
            let mut rows = status["clusters"].as_array()?.iter();
            let row = rows.find(|row| row["name"] == member)?;
            let has_note = row["reason"].as_str()?.contains(note);
            (has_note == is_noted).then_some(())
        })
        .await;
    }

    /// The manifests that join a member, for an administrator to review.
    pub(crate) async fn join_manifests(&self, member: &str, more: &[&str]) -> String {
        stdout_of(self.members_add(member, more).args(["-o", "yaml"])).await
    }

    fn members_add(&self, member: &str, more: &[&str]) -> Command {
        let route = match member {
            HOME => self.fleet.hub.kubeconfig_path(),
            member => self.fleet.member(member).admin_kubeconfig().unwrap(),
        };
        let mut adding = Command::new(env!("CARGO_BIN_EXE_foretide"));
        adding
            .args(["members", "add", member, "--allow-loopback", "--kubeconfig"])
            .arg(route)
            .args(more);
        adding
    }

    /// Creates the shop in a member.
    pub(crate) async fn deploy(&self, member: &str, replicas: u32) {
        let manifest = shop(Some(replicas)).to_string();
        self.cluster(member).apply(&manifest).await.unwrap();
    }

    /// Creates the shop in every member.
    pub(crate) async fn deploy_everywhere(&self, replicas: u32) {
        let members = self.clusters().into_iter();
        join_all(members.map(|(name, _)| self.deploy(name, replicas))).await;
    }

    pub(crate) fn cluster(&self, member: &str) -> &Cluster {
        match member {
            HOME => &self.fleet.hub,
            member => &self.fleet.member(member).cluster,
        }
    }

    pub(crate) fn deployments(&self, member: &str) -> Api<Deployment> {
        Api::namespaced(self.cluster(member).client(), NAMESPACE)
    }

    pub(crate) fn hpas(&self, member: &str) -> Api<HorizontalPodAutoscaler> {
        Api::namespaced(self.cluster(member).client(), NAMESPACE)
    }

    pub(crate) fn federated(&self) -> Api<FederatedHPA> {
        Api::namespaced(self.fleet.hub.client(), NAMESPACE)
    }

    /// Applies a complete `FederatedHPA` of the shop.
    pub(crate) async fn ask(&self, policy: &str, bounds: Bounds, more: &Value) {
        let manifest = fhpa(policy, bounds, more).to_string();
        self.fleet.hub.apply(&manifest).await.unwrap();
    }

    /// Patches its spec as a user.
    pub(crate) async fn edit(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let parameters = PatchParams::default();
        self.federated()
            .patch(SHOP, &parameters, &patch)
            .await
            .unwrap();
    }

    /// The HPA of the shop in a member, whoever owns it.
    pub(crate) async fn child(&self, member: &str) -> Option<HorizontalPodAutoscaler> {
        let (hpas, everything) = (self.hpas(member), ListParams::default());
        let all = eventually(TIMEOUT, &format!("the HPAs of {member}"), || async {
            hpas.list(&everything).await
        })
        .await;
        all.into_iter().find(|hpa| {
            let spec = hpa.spec.as_ref();
            spec.is_some_and(|spec| spec.scale_target_ref.name == SHOP)
        })
    }

    /// The bounds of every member that has an HPA for the shop.
    pub(crate) async fn bounds(&self) -> BTreeMap<String, Bounds> {
        let found = self.clusters().into_iter().map(|(name, _)| async move {
            let spec = self.child(name).await?.spec?;
            let bounds = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
            Some((name.to_owned(), bounds))
        });
        join_all(found).await.into_iter().flatten().collect()
    }

    /// Waits until exactly these members have an HPA, with these maxima. The minimum of a member that had a floor may
    /// stay above its budget while it runs more.
    pub(crate) async fn capped(&self, what: &str, wanted: &[(&str, i32)]) {
        self.bounds_are(&format!("{what}: {wanted:?}"), |found| {
            let found = found.iter().map(|(name, (_, max))| (name.as_str(), *max));
            found.eq(wanted.iter().copied())
        })
        .await;
    }

    /// Waits until `wanted` accepts the bounds, and returns them.
    pub(crate) async fn bounds_are(
        &self,
        what: &str,
        wanted: impl Fn(&BTreeMap<String, Bounds>) -> bool,
    ) -> BTreeMap<String, Bounds> {
        eventually(TIMEOUT, what, || async {
            let found = self.bounds().await;
            if wanted(&found) {
                Ok(found)
            } else {
                Err(format!("{found:?}; {}", self.status_summary().await))
            }
        })
        .await
    }

    async fn find(&self, member: &str) -> Result<Option<Deployment>, String> {
        let found = self.deployments(member).get_opt(SHOP).await;
        found.map_err(|error| error.to_string())
    }

    /// Waits until `wanted` accepts requested replicas and ready pods by member. Both are -1 where there is no shop.
    pub(crate) async fn runs_so(
        &self,
        what: &str,
        wanted: impl Fn(&BTreeMap<String, (i32, i32)>) -> bool,
    ) -> BTreeMap<String, (i32, i32)> {
        eventually(TIMEOUT, what, || async {
            let mut found = BTreeMap::new();
            for (name, _) in self.clusters() {
                let there = self.find(name).await?;
                found.insert(
                    name.to_owned(),
                    there.map_or((-1, -1), |shop| counts(&shop)),
                );
            }
            if wanted(&found) {
                Ok(found)
            } else {
                Err(format!("{found:?}; {}", self.status_summary().await))
            }
        })
        .await
    }

    /// Waits until `wanted` accepts the status of the `FederatedHPA`.
    pub(crate) async fn status<T>(&self, what: &str, wanted: impl Fn(&Value) -> Option<T>) -> T {
        eventually(TIMEOUT, &format!("the status shows {what}"), || async {
            let found = self.federated().get(SHOP).await;
            let found = found.map_err(|error| error.to_string())?;
            let status = serde_json::to_value(found.status).unwrap();
            wanted(&status).ok_or_else(|| summary(&status))
        })
        .await
    }

    /// Waits until a condition is `wanted` (`status/reason`); returns its message.
    pub(crate) async fn condition(&self, kind: &str, wanted: &str) -> String {
        self.status(&format!("{kind}={wanted}"), |status| {
            condition(status, kind)
                .filter(|(is, _)| is == wanted)
                .map(|(_, message)| message)
        })
        .await
    }

    /// Waits until status gives this reason for a member.
    pub(crate) async fn reason(&self, member: &str, wanted: &str) {
        self.status(&format!("{member} has the reason {wanted}"), |status| {
            let reason = cluster(status, member)?.get("reason")?.as_str()?;
            reason.contains(wanted).then_some(())
        })
        .await;
    }

    /// A summary of status, for messages.
    pub(crate) async fn status_summary(&self) -> String {
        match self.federated().get_opt(SHOP).await {
            Ok(Some(found)) => summary(&serde_json::to_value(found.status).unwrap()),
            other => format!("{:?}", other.map(|_| "no autoscaler")),
        }
    }

    /// The requests of the controller to the hub so far.
    pub(crate) fn hub_requests(&self) -> Vec<AuditEvent> {
        by(&self.fleet.hub, CONTROLLER_USER)
    }

    /// The requests of the controller to a member so far.
    pub(crate) fn member_requests(&self, member: &str) -> Vec<AuditEvent> {
        let user = format!("system:serviceaccount:{SYSTEM}:{ACCOUNT}");
        by(self.cluster(member), &user)
    }

    /// Fails if any API server ever denied the controller a request.
    pub(crate) fn assert_nothing_forbidden(&self) {
        let mut all = self.hub_requests();
        for (name, _) in self.clusters() {
            all.extend(self.member_requests(name));
        }
        all.retain(|event| event.code == 403);
        assert!(all.is_empty(), "permissions are missing: {all:#?}");
    }
}

/// Requested replicas and ready pods.
fn counts(shop: &Deployment) -> (i32, i32) {
    let asked = shop.spec.as_ref().and_then(|spec| spec.replicas);
    let status = shop.status.as_ref();
    let ready = status.and_then(|status| status.ready_replicas);
    (asked.unwrap_or(1), ready.unwrap_or(0))
}

fn clusters(fleet: &Fleet, at_home: bool) -> Vec<(&str, &Cluster)> {
    let home = at_home.then_some((HOME, &fleet.hub)).into_iter();
    let members = fleet
        .members()
        .map(|(name, member)| (name, &member.cluster));
    home.chain(members).collect()
}

/// A node with capacity for this number of pods of the shop.
pub(crate) fn room(pods: u32) -> NodeSize {
    NodeSize::new(&format!("{}m", 200 * pods), "64Gi", 110)
}

/// The shop: one container that requests 200m of CPU.
pub(crate) fn shop(replicas: Option<u32>) -> Value {
    let mut manifest = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": SHOP, "namespace": NAMESPACE },
        "spec": {
            "selector": { "matchLabels": { "app": SHOP } },
            "template": {
                "metadata": { "labels": { "app": SHOP } },
                "spec": { "containers": [{
                    "name": "app", "image": "app:1",
                    "resources": { "requests": { "cpu": "200m" } },
                }] },
            },
        },
    });
    if let Some(replicas) = replicas {
        manifest["spec"]["replicas"] = json!(replicas);
    }
    manifest
}

/// A `FederatedHPA` of the shop: CPU at 50 %, moves within seconds, and these fields of `spec`.
pub(crate) fn fhpa(policy: &str, (min, max): Bounds, more: &Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": SHOP },
        "minReplicas": min,
        "maxReplicas": max,
        "metrics": [{ "type": "Resource", "resource": {
            "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 },
        }}],
        // The load alone determines the rate.
        "behavior": {
            "scaleUp": { "policies": [{ "type": "Pods", "value": 100, "periodSeconds": 1 }] },
            "scaleDown": { "stabilizationWindowSeconds": 6 },
        },
        "autoscaleMultiClusterDelay": 3,
        "rebalance": { "cooldownSeconds": 3, "settleObservations": 2 },
        "federatedHPAAssignment": { "federatedHPAAssignmentType": policy },
    });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({
        "apiVersion": "autoscaling.foretide.io/v1alpha1",
        "kind": "FederatedHPA",
        "metadata": { "name": SHOP, "namespace": NAMESPACE },
        "spec": spec,
    })
}

/// A policy with one number per member: `priority` or `staticWeight`.
pub(crate) fn with_preferences(policy: &str, field: &str, members: &[(&str, i32)]) -> Value {
    let each = members.iter().map(
        |(name, number)| json!({ "targetCluster": { "clusterNames": [name] }, field: number }),
    );
    json!({
        "federatedHPAAssignmentType": policy,
        "clusterAutoscalingPreference": each.collect::<Vec<_>>(),
    })
}

/// What one of our commands prints when it succeeds.
async fn stdout_of(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    let trouble = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {trouble}");
    String::from_utf8(output.stdout).unwrap()
}

/// The status entry of one member.
pub(crate) fn cluster<'a>(status: &'a Value, member: &str) -> Option<&'a Value> {
    let all = status.get("clusters")?.as_array()?;
    all.iter().find(|one| one["name"] == member)
}

fn by(cluster: &Cluster, user: &str) -> Vec<AuditEvent> {
    let mut events = cluster.audit().unwrap();
    events.retain(|event| event.user == user);
    events
}

/// A status without the fields that only the controller reads.
fn summary(status: &Value) -> String {
    let mut status = status.clone();
    if let Some(fields) = status.as_object_mut() {
        for long in ["history", "ledger", "decision"] {
            fields.remove(long);
        }
    }
    status.to_string()
}
