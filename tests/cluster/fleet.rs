//! The parts of a fleet that need real members: joining, credentials, `ClusterProfile`s and permissions. Each member
//! has its own control plane, HPA controller and nodes: the hub itself, a cluster of a `ClusterProfile`, and one that
//! an administrator joins. The decisions of a fleet, and its reactions to members that fail, are proven in
//! `tests/sim/fleet`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use foretide::config::MemberArgs;
use foretide_crds::FederatedHPA;
use jiff::SignedDuration;
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{Pod, Secret, ServiceAccount},
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use rig::{
    AuditEvent, Cluster, ClusterOptions, FakeMetrics, Fleet, HpaFlags, MetricsApi, PodUsage,
    Reading, eventually,
};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    manual_changes::{
        QUEUE, condition, delete, demand_replicas, edit, queue_metrics, wait_until_deleted,
    },
    permissions::{granted, used},
    world::{CONTROLLER_USER, Controller, NAMESPACE, TIMEOUT, config, install},
};

/// The namespace of the members' Secrets, and in a member of the hub's service account.
const SYSTEM: &str = "foretide-system";
/// The service account of the hub in a member.
const ACCOUNT: &str = "foretide-hub";
/// The hub as a member, the member of a profile, and the one that an administrator joins.
const HOME: &str = "home";
const EAST: &str = "east";
const WEST: &str = "west";
/// A workload of each kind: the first is scaled by HPAs in the members, the others are Direct.
const SHOP: (&str, &str) = ("Deployment", "shop");
const DB: (&str, &str) = ("StatefulSet", "db");
const CACHE: (&str, &str) = ("ReplicaSet", "cache");
/// The definition of `ClusterProfile`, with the fields that we read.
const DEFINITION: &str = include_str!("clusterprofiles.yaml");

/// A hub and its members.
struct World {
    fleet: Fleet,
    kubeconfig: PathBuf,
    _metrics: Vec<FakeMetrics>,
}

// === impl World ===

impl World {
    /// Starts a hub that can run pods as well, and members; every pod uses what its autoscaler aims at, and the other
    /// metrics ask for two replicas in each.
    async fn start() -> Self {
        foretide_base::telemetry::start_logging("foretide=debug,warn", false).unwrap();
        let members = [EAST, WEST].map(ClusterOptions::named);
        let hub = ClusterOptions::named("fleet-hub");
        let fleet = Fleet::start(hub, members.into()).await.unwrap();
        let kubeconfig = install(&fleet.hub).await;
        fleet.hub.apply(DEFINITION).await.unwrap();
        let mut metrics = Vec::new();
        let members = fleet.members().map(|(_, member)| &member.cluster);
        for cluster in members.chain([&fleet.hub]) {
            let apis = [
                MetricsApi::Resource,
                MetricsApi::Custom,
                MetricsApi::External,
            ];
            let fake = FakeMetrics::start(cluster, &apis).await.unwrap();
            fake.set_usage_of_each_pod(PodUsage::cpu("app", "100m"));
            demand_replicas(&fake, 2);
            fake.set_object_metric(NAMESPACE, ("services", "front"), "hits", Reading::new("20"));
            metrics.push(fake);
        }
        Self {
            fleet,
            kubeconfig,
            _metrics: metrics,
        }
    }

    /// Runs a controller.
    fn run(&self) -> Controller {
        let mut config = config(&self.kubeconfig, &HpaFlags::quick());
        config.members = MemberArgs {
            namespace: Some(SYSTEM.to_owned()),
            lost_after: SignedDuration::from_secs(4),
            allow_loopback: true,
            ..config.members
        };
        Controller::run(config)
    }

    fn cluster(&self, member: &str) -> &Cluster {
        match member {
            HOME => &self.fleet.hub,
            member => &self.fleet.member(member).cluster,
        }
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.fleet.hub.client(), SYSTEM)
    }

    fn fleets(&self) -> Api<FederatedHPA> {
        Api::namespaced(self.fleet.hub.client(), NAMESPACE)
    }

    /// Applies a manifest to the hub.
    async fn apply(&self, manifest: &Value) {
        self.fleet.hub.apply(&manifest.to_string()).await.unwrap();
    }

    /// Runs `foretide members`, as an administrator of the hub does; returns what it prints.
    async fn members(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foretide"));
        command
            .arg("members")
            .args(arguments)
            .arg("--allow-loopback");
        if arguments[0] == "add" {
            let route = match arguments[1] {
                HOME => self.fleet.hub.kubeconfig_path(),
                member => self.fleet.member(member).admin_kubeconfig().unwrap(),
            };
            command.arg("--kubeconfig").arg(route);
        }
        if !arguments.contains(&"yaml") {
            let hub = self.fleet.hub.kubeconfig_path();
            command.arg("--hub-kubeconfig").arg(hub);
        }
        let output = command.output().await.unwrap();
        let trouble = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {trouble}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Joins a member of the class that the fleets select.
    async fn join(&self, member: &str, more: &[&str]) {
        self.members(&[&["add", member], more].concat()).await;
        let class = json!({ "metadata": { "labels": { "class": "shop" } } });
        edit(&self.secrets(), member, class).await;
    }

    /// The requests of the controller to a member so far.
    fn requests(&self, member: &str) -> Vec<AuditEvent> {
        let user = format!("system:serviceaccount:{SYSTEM}:{ACCOUNT}");
        by(self.cluster(member), &user)
    }

    /// Waits until usage was requested from a member this many more times, which is once per sync.
    async fn observed(&self, member: &str, more: usize) {
        let looks = || {
            let asked = self.requests(member).into_iter();
            asked
                .filter(|event| event.group == "metrics.k8s.io")
                .count()
        };
        let until = looks() + more;
        eventually(TIMEOUT, &format!("{member} is observed"), || async {
            let seen = looks();
            (seen >= until).then_some(()).ok_or(seen)
        })
        .await;
    }

    /// Waits until exactly these members have an HPA of the shop, with these maxima, and ready replicas of everything, as many
    /// as the metrics ask for; the others have nothing.
    async fn runs_in(&self, what: &str, wanted: &[(&str, i32)]) {
        eventually(TIMEOUT, &format!("{what}: {wanted:?}"), || async {
            let mut found = BTreeMap::new();
            for member in [EAST, HOME, WEST] {
                let hpas: Api<HorizontalPodAutoscaler> =
                    Api::namespaced(self.cluster(member).client(), NAMESPACE);
                let hpas = hpas.list(&ListParams::default()).await;
                let hpas = hpas.map_err(|error| error.to_string())?;
                let max = hpas
                    .iter()
                    .find_map(|hpa| Some(hpa.spec.as_ref()?.max_replicas));
                let counts = [
                    self.counts(member, SHOP).await,
                    self.counts(member, DB).await,
                    self.counts(member, CACHE).await,
                ];
                found.insert(member, (max, counts));
            }
            let is_so = found.iter().all(|(member, found)| {
                let share = wanted.iter().find(|(name, _)| name == member);
                match share {
                    Some((_, max)) => {
                        let (of_hpa, [shop, others @ ..]) = found;
                        let is_served =
                            shop.is_some_and(|(asked, ready)| ready > 0 && asked == ready);
                        *of_hpa == Some(*max) && is_served && *others == [Some((2, 2)); 2]
                    }
                    None => *found == (None, [None; 3]),
                }
            });
            if is_so {
                return Ok(());
            }
            let status = self.status().await;
            Err(format!("{found:?}; {}", status["clusters"]))
        })
        .await;
    }

    /// Requested and ready replicas of a workload.
    async fn counts(&self, member: &str, (kind, name): (&str, &str)) -> Option<(i64, i64)> {
        let kind = GroupVersionKind::gvk("apps", "v1", kind);
        let client = self.cluster(member).client();
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &resource);
        let found = api.get_opt(name).await.ok()??;
        let count = |pointer| found.data.pointer(pointer).and_then(Value::as_i64);
        let ready = count("/status/readyReplicas").unwrap_or_default();
        Some((count("/spec/replicas")?, ready))
    }

    /// The status of the shop's fleet.
    async fn status(&self) -> Value {
        let found = self.fleets().get(SHOP.1).await.unwrap();
        serde_json::to_value(found.status).unwrap()
    }

    /// Waits until the message of the condition `MembersReachable` says something, or all members are reachable.
    async fn reachable(&self, problem: Option<&str>) {
        let what = format!("MembersReachable says {problem:?}");
        eventually(TIMEOUT, &what, || async {
            let status = self.status().await;
            let (is, said) = condition(&status, "MembersReachable").ok_or("no condition")?;
            let is_so = match problem {
                None => is == "True/Reachable",
                Some(problem) => said.contains(problem),
            };
            is_so.then_some(()).ok_or(format!("{is}: {said}"))
        })
        .await;
    }

    /// Sets the property `class` of the profile.
    async fn classify(&self, class: &str) {
        let kind = ["multicluster.x-k8s.io", "v1alpha1", "ClusterProfile"];
        let kind = GroupVersionKind::gvk(kind[0], kind[1], kind[2]);
        let profiles: Api<DynamicObject> = Api::namespaced_with(
            self.fleet.hub.client(),
            SYSTEM,
            &ApiResource::from_gvk(&kind),
        );
        let properties = json!([{ "name": "class", "value": class }]);
        let patch = Patch::Merge(json!({ "status": { "properties": properties } }));
        let parameters = PatchParams::default();
        profiles
            .patch_status(EAST, &parameters, &patch)
            .await
            .unwrap();
    }

    /// Joins the member as usual, and then hands its Secret over to a profile, as a cluster manager does.
    async fn hand_over_to_a_profile(&self) {
        self.members(&["add", EAST, "--place"]).await;
        let secret = self.secrets().get(EAST).await.unwrap();
        let access = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": "access-to-east", "namespace": SYSTEM, "labels": {
                "x-k8s.io/cluster-profile": EAST,
                "x-k8s.io/cluster-inventory-consumer": "foretide",
            } },
            "data": { "Config": secret.data.unwrap()["kubeconfig"] },
        });
        self.apply(&access).await;
        delete(&self.secrets(), EAST).await;
        let profile = json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ClusterProfile",
            "metadata": { "name": EAST, "namespace": SYSTEM, "labels": { "fleet": "shops" } },
            "spec": { "displayName": EAST, "clusterManager": { "name": "by-hand" } },
        });
        self.apply(&profile).await;
        self.classify("shop").await;
    }
}

fn by(cluster: &Cluster, user: &str) -> Vec<AuditEvent> {
    let mut events = cluster.audit().unwrap();
    events.retain(|event| event.user == user);
    events
}

/// A workload of the hub: the template of those in the members.
fn template((kind, name): (&str, &str)) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "app", "image": "app:1",
                    "resources": { "requests": { "cpu": "200m" } },
                }] },
            },
        },
    })
}

/// A fleet over all members of the class.
fn fleet((kind, name): (&str, &str), mode: &str, metrics: &Value, scope: &str) -> Value {
    json!({
        "apiVersion": "autoscaling.foretide.io/v1alpha1",
        "kind": "FederatedHPA",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": kind, "name": name },
            "minReplicas": 3,
            "maxReplicas": 12,
            "mode": mode,
            "workloadSource": "Hub",
            "metrics": metrics,
            "metricScope": [{ "metric": scope, "scope": "Member" }],
            "behavior": { "scaleDown": { "stabilizationWindowSeconds": 4 } },
            "autoscaleMultiClusterDelay": 3,
            "rebalance": { "cooldownSeconds": 3, "settleObservations": 2 },
            "clusterAffinity": { "labelSelector": { "matchLabels": { "class": "shop" } } },
            "federatedHPAAssignment": { "federatedHPAAssignmentType": "StaticWeighted" },
        },
    })
}

/// A workload and a fleet of each kind.
async fn deploy(world: &World) {
    let cpu = json!([{ "type": "Resource", "resource": {
        "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 },
    } }]);
    let hits = json!([{ "type": "Object", "object": {
        "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "front" },
        "metric": { "name": "hits" },
        "target": { "type": "AverageValue", "averageValue": "10" },
    } }]);
    let queue = format!("external.{QUEUE}");
    for (of, mode, metrics, scope) in [
        (SHOP, "Delegated", cpu, "resource.cpu"),
        (DB, "Direct", queue_metrics(), queue.as_str()),
        (CACHE, "Direct", hits, "object.hits"),
    ] {
        world.apply(&template(of)).await;
        world.apply(&fleet(of, mode, &metrics, scope)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_every_source_join_change_credentials_and_leave_and_every_permission_is_used() {
    let world = World::start().await;
    // The hub's own workloads are never placed.
    world.join(HOME, &[]).await;
    world.join(WEST, &["--place"]).await;
    world.hand_over_to_a_profile().await;
    deploy(&world).await;
    let controller = world.run();
    let thirds = [(EAST, 4), (HOME, 4), (WEST, 4)];
    world.runs_in("a third each", &thirds).await;
    world.reachable(None).await;

    // The hub's workload is the template: a new version is rolled out.
    let templates: Api<Deployment> = Api::namespaced(world.fleet.hub.client(), NAMESPACE);
    let newer = json!({ "metadata": { "labels": { "version": "2" } } });
    edit(&templates, SHOP.1, newer).await;
    let placed: Api<Deployment> = Api::namespaced(world.cluster(EAST).client(), NAMESPACE);
    eventually(TIMEOUT, "the label is placed", || async {
        let found = placed.get(SHOP.1).await.map_err(|no| no.to_string())?;
        let label = found.labels().get("version").cloned();
        (label.as_deref() == Some("2"))
            .then_some(())
            .ok_or(format!("{label:?}"))
    })
    .await;

    credentials_rotate_and_expire(&world, &controller).await;
    world.runs_in("a third each as before", &thirds).await;

    // A property of the profile changes: the member is no longer selected, and everything there is removed.
    world.classify("other").await;
    world
        .runs_in("without the east", &[(HOME, 6), (WEST, 6)])
        .await;
    world.classify("shop").await;
    world.runs_in("a third each again", &thirds).await;
    world.members(&["remove", WEST]).await;
    world
        .runs_in("without the west", &[(EAST, 6), (HOME, 6)])
        .await;
    for (_, name) in [SHOP, DB, CACHE] {
        delete(&world.fleets(), name).await;
        wait_until_deleted(&world.fleets(), name).await;
    }
    drop(controller);
    every_permission_was_used(&world).await;
}

/// A client with the credentials that the hub now has for the west.
async fn client_as_hub(world: &World) -> Client {
    let secret = world.secrets().get(WEST).await.unwrap();
    let ByteString(kubeconfig) = secret.data.unwrap()["kubeconfig"].clone();
    let kubeconfig = Kubeconfig::from_yaml(&String::from_utf8(kubeconfig).unwrap()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// The west gets other credentials while its present ones are valid, and then those are revoked: the hub sends no request
/// with them any more. Then the account itself is deleted, which is reported until the member is joined again.
async fn credentials_rotate_and_expire(world: &World, controller: &Controller) {
    let pods: Api<Pod> = Api::namespaced(client_as_hub(world).await, NAMESPACE);
    pods.list(&ListParams::default()).await.unwrap();
    let member = world.fleet.member(WEST);
    // A new connection lists again.
    let lists = || {
        let asked = world.requests(WEST).into_iter();
        let lists = asked.filter(|event| event.verb == "list" && event.resource == "nodes");
        lists.count()
    };
    let before = lists();
    let second = member.kubeconfig(SYSTEM, ACCOUNT).await.unwrap();
    let metadata = json!({ "labels": { "class": "shop" } });
    let fleet = &world.fleet;
    let registered = fleet.register_member(WEST, SYSTEM, &second, &metadata);
    registered.await.unwrap();
    eventually(TIMEOUT, "the second credentials are used", || async {
        (lists() > before).then_some(()).ok_or("no new connection")
    })
    .await;
    world.observed(WEST, 3).await;

    let tokens: Api<Secret> = Api::namespaced(member.cluster.client(), SYSTEM);
    delete(&tokens, "foretide-hub-token").await;
    // The API server caches a valid token for a few seconds.
    eventually(TIMEOUT, "the first credentials are refused", || async {
        match pods.list(&ListParams::default()).await {
            Err(kube::Error::Api(refusal)) if refusal.code == 401 => Ok(()),
            other => Err(format!("{:?}", other.map(|found| found.items.len()))),
        }
    })
    .await;
    world.observed(WEST, 3).await;
    controller.further_syncs(3).await;
    let status = world.status().await;
    let (is, said) = condition(&status, "MembersReachable").unwrap();
    assert_eq!(is, "True/Reachable", "{said}");

    let accounts: Api<ServiceAccount> = Api::namespaced(member.cluster.client(), SYSTEM);
    delete(&accounts, ACCOUNT).await;
    world.reachable(Some("west: ")).await;
    world.join(WEST, &["--place"]).await;
    world.reachable(None).await;
}

/// No request was denied, and every granted permission was used.
async fn every_permission_was_used(world: &World) {
    let hub = by(&world.fleet.hub, CONTROLLER_USER);
    let of_members = [HOME, EAST, WEST].map(|member| world.requests(member));
    let all = of_members.iter().flatten().chain(&hub);
    let denied: Vec<_> = all.filter(|event| event.code == 403).collect();
    assert!(denied.is_empty(), "permissions are missing: {denied:#?}");
    let of_fleets = granted(include_str!("../../deploy/fleets/rbac.yaml"));
    let asked = used(&hub, &of_fleets);
    let idle: BTreeSet<_> = of_fleets.difference(&asked).collect();
    assert_eq!(idle, BTreeSet::new(), "of the hub");
    let plain = granted(&world.members(&["add", EAST, "-o", "yaml"]).await);
    let placing = granted(&world.members(&["add", EAST, "--place", "-o", "yaml"]).await);
    let at_home = used(&of_members[0], &plain);
    let more: BTreeSet<_> = at_home.difference(&plain).collect();
    assert_eq!(more, BTreeSet::new(), "at home");
    let used = used(&of_members.concat(), &placing);
    // KEDA is not installed here: its objects are listed, and there is no such kind.
    let mut unused = placing
        .difference(&used)
        .filter(|(_, _, resource)| resource != "scaledobjects");
    assert_eq!(unused.next(), None);
}
