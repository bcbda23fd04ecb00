//! A world for one scenario of a fleet: a hub with our manifests, members with the rights that a
//! member gives, a Deployment `shop` in each on demand, and load that is shared as the scenario says.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use foretide::{
    clock::Clock,
    config::{Config, MemberArgs},
};
use foretide_crds::FederatedHPA;
use futures::future::join_all;
use jiff::SignedDuration;
use k8s_openapi::api::{
    apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod,
    events::v1::Event,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use rig::{AuditEvent, Cluster, ClusterOptions, Component, Fleet, HpaFlags, NodeSize, eventually};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    sync::{Semaphore, SemaphorePermit},
};

use super::load::{Load, is_ready};
use crate::{
    hands::condition,
    world::{CONTROLLER_USER, Controller, Counts, NAMESPACE, PATIENCE, config, install},
};

/// The workload of all scenarios, in the hub and in the members.
pub(crate) const SHOP: &str = "shop";
/// Where members' Secrets are, and in a member the account that they let in.
pub(crate) const SYSTEM: &str = "foretide-system";
/// The account of a member that the hub uses.
pub(crate) const ACCOUNT: &str = "foretide-hub";
/// What the hub is called where it is a member of its own.
pub(crate) const HOME: &str = "home";
/// A fleet of three takes 3 GB: so many at a time.
static TURNS: Semaphore = Semaphore::const_new(2);

/// Fewest and most replicas of a member's autoscaler.
pub(crate) type Bounds = (i32, i32);

/// A hub and its members.
pub(crate) struct FleetWorld {
    pub(crate) fleet: Fleet,
    pub(crate) load: Load,
    /// Whether the hub is a member, too.
    at_home: bool,
    kubeconfig: PathBuf,
    _turn: SemaphorePermit<'static>,
}

impl FleetWorld {
    /// Starts a hub and members, each with room for so many pods of the shop; they are in the fleet.
    pub(crate) async fn start(name: &str, members: &[(&str, u32)]) -> Self {
        let world = Self::start_apart(name, members).await;
        join_all(members.iter().map(|(member, _)| world.join(member, &[]))).await;
        world
    }

    /// The same, but nobody has joined the fleet.
    pub(crate) async fn start_apart(name: &str, members: &[(&str, u32)]) -> Self {
        let hub = ClusterOptions::named(&format!("{name}-hub"))
            .without(Component::KubeScheduler)
            .without(Component::Kwok)
            .nodes(0, room(1));
        Self::start_with((hub, false), members).await
    }

    /// The same, and the hub can run pods as well: it may join as `HOME`.
    pub(crate) async fn start_at_home(name: &str, pods: u32, members: &[(&str, u32)]) -> Self {
        let hub = ClusterOptions::named(&format!("{name}-hub")).nodes(1, room(pods));
        Self::start_with((hub, true), members).await
    }

    async fn start_with((hub, at_home): (ClusterOptions, bool), members: &[(&str, u32)]) -> Self {
        foretide::telemetry::start_logging("foretide=debug,warn", false).unwrap();
        let turn = TURNS.acquire().await.unwrap();
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
            _turn: turn,
        }
    }

    /// Every cluster that may run the shop, by the name that it has as a member.
    pub(crate) fn clusters(&self) -> Vec<(&str, &Cluster)> {
        clusters(&self.fleet, self.at_home)
    }

    /// A controller's configuration for this hub.
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

    /// Runs a controller with that.
    pub(crate) fn run(&self) -> Controller {
        Controller::run(self.config(), Clock::system())
    }

    /// The same as a process of its own, the shipped binary.
    pub(crate) fn binary(&self) -> Child {
        let mut command = crate::world::binary(&self.kubeconfig, &HpaFlags::quick());
        command
            .args(["--listen", "127.0.0.1:0", "--member-namespace", SYSTEM])
            .args(["--member-lost-after", "4s", "--member-allow-loopback"]);
        command.spawn().unwrap()
    }

    /// Waits until members were asked for usage so many times more, each: so many syncs have seen them.
    pub(crate) async fn further_looks(&self, count: usize) {
        let looks = |member| {
            let asked = self.member_requests(member).into_iter();
            asked
                .filter(|event| event.group == "metrics.k8s.io")
                .count()
        };
        for (name, _) in self.clusters() {
            let until = looks(name) + count;
            eventually(PATIENCE, &format!("{count} further looks"), || async {
                match looks(name) {
                    seen if seen >= until => Ok(()),
                    seen => Err(format!("{name}: {seen} of {until}")),
                }
            })
            .await;
        }
    }

    /// Enrols a member as an administrator does, with more arguments for `members add`. Again, it
    /// changes what differs.
    pub(crate) async fn join(&self, member: &str, more: &[&str]) {
        let hub = self.fleet.hub.kubeconfig_path();
        let mut adding = self.adding(member, more);
        told(adding.arg("--hub-kubeconfig").arg(hub)).await;
    }

    /// The manifests that enrol a member, which an administrator may read first.
    pub(crate) async fn enrolment(&self, member: &str, more: &[&str]) -> String {
        told(self.adding(member, more).args(["-o", "yaml"])).await
    }

    fn adding(&self, member: &str, more: &[&str]) -> Command {
        let road = match member {
            HOME => self.fleet.hub.kubeconfig_path(),
            member => self.fleet.member(member).admin_kubeconfig().unwrap(),
        };
        let mut adding = Command::new(env!("CARGO_BIN_EXE_foretide"));
        adding
            .args(["members", "add", member, "--allow-loopback", "--kubeconfig"])
            .arg(road)
            .args(more);
        adding
    }

    /// Puts the shop into a member.
    pub(crate) async fn deploy(&self, member: &str, replicas: u32) {
        let manifest = shop(Some(replicas)).to_string();
        self.cluster(member).apply(&manifest).await.unwrap();
    }

    /// Puts it into every member.
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

    /// Applies a federated autoscaler of the shop, whole.
    pub(crate) async fn ask(&self, policy: &str, bounds: Bounds, more: &Value) {
        let manifest = fhpa(policy, bounds, more).to_string();
        self.fleet.hub.apply(&manifest).await.unwrap();
    }

    /// A merge patch of its spec by hand.
    pub(crate) async fn edit(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let parameters = PatchParams::default();
        self.federated()
            .patch(SHOP, &parameters, &patch)
            .await
            .unwrap();
    }

    /// The autoscaler of the shop in a member, whoever made it.
    pub(crate) async fn child(&self, member: &str) -> Option<HorizontalPodAutoscaler> {
        let all = self
            .hpas(member)
            .list(&ListParams::default())
            .await
            .unwrap();
        all.into_iter().find(|hpa| {
            let spec = hpa.spec.as_ref();
            spec.is_some_and(|spec| spec.scale_target_ref.name == SHOP)
        })
    }

    /// The bounds of every member that has an autoscaler for the shop.
    pub(crate) async fn bounds(&self) -> BTreeMap<String, Bounds> {
        let found = self.clusters().into_iter().map(|(name, _)| async move {
            let spec = self.child(name).await?.spec?;
            let bounds = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
            Some((name.to_owned(), bounds))
        });
        join_all(found).await.into_iter().flatten().collect()
    }

    /// Waits until exactly these members have an autoscaler, with exactly these bounds.
    pub(crate) async fn assigned(&self, what: &str, wanted: &[(&str, Bounds)]) {
        let wanted: BTreeMap<String, Bounds> = wanted
            .iter()
            .map(|(name, bounds)| ((*name).to_owned(), *bounds))
            .collect();
        eventually(PATIENCE, &format!("{what}: {wanted:?}"), || async {
            let found = self.bounds().await;
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}; {}", self.told().await))
            }
        })
        .await;
    }

    /// Waits until exactly these members have an autoscaler, with these maxima. The minimum of one
    /// that had a floor may stay above its budget for as long as it runs more.
    pub(crate) async fn capped(&self, what: &str, wanted: &[(&str, i32)]) {
        self.bounds_are(&format!("{what}: {wanted:?}"), |found| {
            let found = found.iter().map(|(name, (_, max))| (name.as_str(), *max));
            found.eq(wanted.iter().copied())
        })
        .await;
    }

    /// Waits until the bounds are as `wanted` says, and gives them.
    pub(crate) async fn bounds_are(
        &self,
        what: &str,
        wanted: impl Fn(&BTreeMap<String, Bounds>) -> bool,
    ) -> BTreeMap<String, Bounds> {
        eventually(PATIENCE, what, || async {
            let found = self.bounds().await;
            if wanted(&found) {
                Ok(found)
            } else {
                Err(format!("{found:?}; {}", self.told().await))
            }
        })
        .await
    }

    /// Replicas asked for and pods ready in a member.
    pub(crate) async fn counts(&self, member: &str) -> Result<(i32, i32), String> {
        let shop = self.find(member).await?;
        shop.map(|shop| counts(&shop)).ok_or("no shop".to_owned())
    }

    async fn find(&self, member: &str) -> Result<Option<Deployment>, String> {
        let found = self.deployments(member).get_opt(SHOP).await;
        found.map_err(|error| error.to_string())
    }

    /// How many pods serve in these members, seen one after the other: name first who gives pods away.
    /// Pods are counted themselves, because the status of a workload comes later than they do.
    pub(crate) async fn serving(&self, members: &[&str]) -> usize {
        let mut all = 0;
        for member in members {
            let pods: Api<Pod> = Api::namespaced(self.cluster(member).client(), NAMESPACE);
            let of_the_shop = ListParams::default().labels(&format!("app={SHOP}"));
            let found = pods.list(&of_the_shop).await.unwrap();
            all += found.iter().filter(|pod| is_ready(pod)).count();
        }
        all
    }

    /// Waits until every named member has its count, asked for and ready.
    pub(crate) async fn runs(&self, what: &str, wanted: &[(&str, i32)]) {
        self.runs_so(what, |found| {
            wanted
                .iter()
                .all(|(name, count)| found[*name] == (*count, *count))
        })
        .await;
    }

    /// Waits until replicas asked for and pods ready, by member, are as `wanted` says. Where there is
    /// no shop, both are -1.
    pub(crate) async fn runs_so(
        &self,
        what: &str,
        wanted: impl Fn(&BTreeMap<String, (i32, i32)>) -> bool,
    ) -> BTreeMap<String, (i32, i32)> {
        eventually(PATIENCE, what, || async {
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
                Err(format!("{found:?}; {}", self.told().await))
            }
        })
        .await
    }

    /// Waits until no pod of the shop comes or goes anywhere, and the controller has seen it so.
    pub(crate) async fn at_rest(&self, controller: &Controller) {
        eventually(PATIENCE, "nothing comes or goes", || async {
            for (name, _) in self.clusters() {
                let (asked, ready) = self.counts(name).await?;
                let pods: Api<Pod> = Api::namespaced(self.cluster(name).client(), NAMESPACE);
                let only = ListParams::default().labels(&format!("app={SHOP}"));
                let pods = pods.list(&only).await.map_err(|error| error.to_string())?;
                let there = i32::try_from(pods.items.len()).unwrap();
                if (asked, asked) != (ready, there) {
                    return Err(format!("{name}: {ready} of {asked} ready, {there} there"));
                }
            }
            Ok(())
        })
        .await;
        controller.further_syncs(3).await;
    }

    /// Waits until the status of the federated autoscaler is as `wanted` says.
    pub(crate) async fn status<T>(&self, what: &str, wanted: impl Fn(&Value) -> Option<T>) -> T {
        eventually(PATIENCE, &format!("the status shows {what}"), || async {
            let found = self.federated().get(SHOP).await;
            let found = found.map_err(|error| error.to_string())?;
            let status = serde_json::to_value(found.status).unwrap();
            wanted(&status).ok_or_else(|| brief(&status))
        })
        .await
    }

    /// Waits until a condition is `wanted` (`status/reason`); gives its message.
    pub(crate) async fn condition(&self, kind: &str, wanted: &str) -> String {
        self.status(&format!("{kind}={wanted}"), |status| {
            condition(status, kind)
                .filter(|(is, _)| is == wanted)
                .map(|(_, message)| message)
        })
        .await
    }

    /// Waits until an event with this reason was told that has the word in its note.
    pub(crate) async fn event(&self, reason: &str, word: &str) {
        let events: Api<Event> = Api::namespaced(self.fleet.hub.client(), NAMESPACE);
        eventually(
            PATIENCE,
            &format!("an event {reason} about {word}"),
            || async {
                let all = events.list(&ListParams::default()).await;
                let all = all.map_err(|error| error.to_string())?;
                let said = all.iter().any(|event| {
                    let note = event.note.as_deref().unwrap_or_default();
                    event.reason.as_deref() == Some(reason) && note.contains(word)
                });
                let told: Vec<_> = all.iter().map(|event| &event.reason).collect();
                if said {
                    Ok(())
                } else {
                    Err(format!("{told:?}"))
                }
            },
        )
        .await;
    }

    /// Waits until status gives a member this reason.
    pub(crate) async fn reason(&self, member: &str, wanted: &str) {
        self.status(&format!("{member} has the reason {wanted}"), |status| {
            let reason = cluster(status, member)?.get("reason")?.as_str()?;
            reason.contains(wanted).then_some(())
        })
        .await;
    }

    /// Status in brief, for messages.
    pub(crate) async fn told(&self) -> String {
        match self.federated().get_opt(SHOP).await {
            Ok(Some(found)) => brief(&serde_json::to_value(found.status).unwrap()),
            other => format!("{:?}", other.map(|_| "no autoscaler")),
        }
    }

    /// Follows `spec.replicas` of the shop in a member from now on.
    pub(crate) async fn watch(&self, member: &str) -> Counts {
        Counts::of(self.deployments(member), SHOP).await
    }

    /// Follows the maximum of the autoscaler of the shop in a member from now on.
    pub(crate) async fn watch_maximum(&self, member: &str) -> Counts {
        let name = self.child(member).await.unwrap().name_any();
        let maximum = |hpa: &HorizontalPodAutoscaler| Some(hpa.spec.as_ref()?.max_replicas);
        Counts::follow(self.hpas(member), &name, maximum).await
    }

    /// What the controller asked of the hub so far.
    pub(crate) fn hub_requests(&self) -> Vec<AuditEvent> {
        by(&self.fleet.hub, CONTROLLER_USER)
    }

    /// What the controller asked of a member so far.
    pub(crate) fn member_requests(&self, member: &str) -> Vec<AuditEvent> {
        let user = format!("system:serviceaccount:{SYSTEM}:{ACCOUNT}");
        by(self.cluster(member), &user)
    }

    /// What it wrote into members so far, such as `member1: patch deployments/scale`, once each.
    pub(crate) fn member_writes(&self) -> BTreeSet<String> {
        let each = self.clusters().into_iter().flat_map(|(name, _)| {
            let writes = self.member_requests(name).into_iter();
            let writes = writes.filter(AuditEvent::is_write);
            writes.map(move |event| {
                let what = crate::hands::written(&event);
                format!("{name}: {} {what} {}", event.verb, event.name)
            })
        });
        each.collect()
    }

    /// How many times it wrote into members so far.
    pub(crate) fn member_write_count(&self) -> usize {
        let each = self.clusters().into_iter().map(|(name, _)| {
            let writes = self.member_requests(name).into_iter();
            writes.filter(AuditEvent::is_write).count()
        });
        each.sum()
    }

    /// Fails if any API server ever refused the controller a right, or had one to give it.
    pub(crate) fn assert_nothing_forbidden(&self) {
        let mut all = self.hub_requests();
        for (name, _) in self.clusters() {
            all.extend(self.member_requests(name));
        }
        all.retain(|event| event.code == 403);
        assert!(all.is_empty(), "rights are missing: {all:#?}");
    }
}

/// Replicas asked for and pods ready.
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

/// A node with room for so many pods of the shop.
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

/// A federated autoscaler of the shop: CPU at 50 %, moves within seconds, and more fields of `spec`.
pub(crate) fn fhpa(policy: &str, (min, max): Bounds, more: &Value) -> Value {
    let mut spec = json!({
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": SHOP },
        "minReplicas": min,
        "maxReplicas": max,
        "metrics": [{ "type": "Resource", "resource": {
            "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 },
        }}],
        // Nothing but the load says how fast it goes.
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
pub(crate) fn preferring(policy: &str, field: &str, members: &[(&str, i32)]) -> Value {
    let each = members.iter().map(
        |(name, number)| json!({ "targetCluster": { "clusterNames": [name] }, field: number }),
    );
    json!({
        "federatedHPAAssignmentType": policy,
        "clusterAutoscalingPreference": each.collect::<Vec<_>>(),
    })
}

/// What a command of ours prints when it succeeds.
async fn told(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    let trouble = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {trouble}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a status says of one member.
pub(crate) fn cluster<'a>(status: &'a Value, member: &str) -> Option<&'a Value> {
    let all = status.get("clusters")?.as_array()?;
    all.iter().find(|one| one["name"] == member)
}

fn by(cluster: &Cluster, user: &str) -> Vec<AuditEvent> {
    let mut events = cluster.audit().unwrap();
    events.retain(|event| event.user == user);
    events
}

/// A status without what only the controller reads.
fn brief(status: &Value) -> String {
    let mut status = status.clone();
    if let Some(fields) = status.as_object_mut() {
        for long in ["history", "ledger", "decision"] {
            fields.remove(long);
        }
    }
    status.to_string()
}
