//! Syncs of a fleet over fake clusters: the writes to the hub and to each member.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use foretide_api::ports::KedaPause;
use foretide_base::{clock::Clock, telemetry::Telemetry};
use foretide_controller::{
    FleetController, Setup, Shared,
    forecaster::{SeriesKey, forecasts::Forecasts, shares::FleetMember},
};
use foretide_crds::{ClusterStatus, DeletionPolicy, FederatedHPA, FederatedHPAStatus};
use foretide_federate::Health;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    fake_cluster::{FakeCluster, run_to, setup, targets},
    fake_members::{LOST_AFTER, Members},
};

mod clock;
mod deletion;
mod intent;
mod membership;
mod quarantine;
mod reporting;

const CPU: &str = "metrics: [{type: Resource, resource: {name: cpu, target: \
                   {type: Utilization, averageUtilization: 50}}}]";

/// A hub and its members, under a clock that the test sets.
struct World {
    hub: FakeCluster,
    members: Members,
    clock: Clock,
    start: Timestamp,
    forecasts: Arc<Forecasts>,
    telemetry: Arc<Telemetry>,
    controller: FleetController<FakeCluster, Members>,
}

impl World {
    /// Members with these numbers of replicas of Deployment `web`, which use 100m each.
    fn new(members: &[(&str, u32)]) -> Self {
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        let clock = Clock::standing_at(start);
        let fleet = Members::default();
        for (name, replicas) in members {
            let fake = FakeCluster::default();
            fake.state().replicas.insert("web".into(), *replicas);
            fake.state().capacity = Some(100);
            fake.state().millicores = i64::from(*replicas) * 100;
            let mut all = fleet.clusters.lock().unwrap();
            all.insert((*name).to_owned(), (fake, Health::Ready));
        }
        let hub = FakeCluster::default();
        let forecasts = Arc::default();
        let telemetry = Arc::default();
        let shared = (&forecasts, &telemetry);
        let controller = Self::controller(&hub, &fleet, &clock, shared);
        Self {
            forecasts,
            telemetry,
            hub,
            members: fleet,
            clock,
            start,
            controller,
        }
    }

    fn controller(
        hub: &FakeCluster,
        members: &Members,
        clock: &Clock,
        (forecasts, telemetry): (&Arc<Forecasts>, &Arc<Telemetry>),
    ) -> FleetController<FakeCluster, Members> {
        let setup = setup(targets());
        let shared = Shared {
            page: Arc::default(),
            forecasts: Arc::clone(forecasts),
            telemetry: Arc::clone(telemetry),
        };
        FleetController::new(
            Arc::new(hub.clone()),
            Arc::new(members.clone()),
            clock.clone(),
            setup,
            shared,
        )
    }

    /// Replaces the controller by a new one that knows only the status.
    fn restart(&mut self) {
        let shared = (&self.forecasts, &self.telemetry);
        self.controller = Self::controller(&self.hub, &self.members, &self.clock, shared);
    }

    fn put(&self, spec: &str) {
        let yaml = format!(
            "apiVersion: autoscaling.foretide.io/v1alpha1\nkind: FederatedHPA\n\
             metadata: {{name: web, namespace: shop, uid: uid-fleet, generation: 1}}\n\
             spec: {{scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}, {spec}}}"
        );
        let fdhpa: FederatedHPA = serde_saphyr::from_str(&yaml).unwrap();
        self.hub.state().federated.insert("web".into(), fdhpa);
    }

    fn edit(&self, change: impl FnOnce(&mut FederatedHPA)) {
        let mut state = self.hub.state();
        let fdhpa = state.federated.get_mut("web").unwrap();
        change(fdhpa);
        fdhpa.metadata.generation = fdhpa.metadata.generation.map(|n| n + 1);
    }

    fn member(&self, name: &str) -> FakeCluster {
        self.members.clusters.lock().unwrap()[name].0.clone()
    }

    fn health(&self, name: &str, health: Health) {
        self.members
            .clusters
            .lock()
            .unwrap()
            .get_mut(name)
            .unwrap()
            .1 = health;
    }

    /// Runs one sync at this second after the start, and returns what it wrote, by cluster.
    async fn sync(&mut self, second: i64) -> Vec<String> {
        let now = self.start + SignedDuration::from_secs(second);
        run_to(&self.clock, now);
        let members = self.members.clusters.lock().unwrap().clone();
        for (fake, _) in members.values() {
            fake.state().now = now;
        }
        self.controller.sync().await;
        let own = self.hub.writes().into_iter();
        let mut writes: Vec<String> = own.map(|write| format!("hub: {write}")).collect();
        for (name, (fake, _)) in &members {
            let of_member = fake.writes().into_iter();
            writes.extend(of_member.map(|write| format!("{name}: {write}")));
        }
        writes
    }

    /// Scales each member by its load, as an HPA controller does.
    fn autoscale(&self) {
        for (fake, _) in self.members.clusters.lock().unwrap().values() {
            let mut state = fake.state();
            let Some(hpa) = state.hpas.values().next().cloned() else {
                continue;
            };
            let bound = |name: &str| u32::try_from(hpa.spec[name].as_u64().unwrap()).unwrap();
            let wanted = u32::try_from(state.millicores / 100).unwrap();
            let wanted = wanted.min(bound("maxReplicas")).max(bound("minReplicas"));
            if state.replicas["web"] > 0 {
                state.replicas.insert("web".into(), wanted);
            }
            for hpa in state.hpas.values_mut() {
                hpa.status = json!({ "desiredReplicas": wanted });
            }
        }
    }

    fn status(&self) -> FederatedHPAStatus {
        self.hub.state().federated["web"]
            .status
            .clone()
            .unwrap_or_default()
    }

    fn cluster(&self, name: &str) -> ClusterStatus {
        let clusters = self.status().clusters.unwrap();
        clusters.into_iter().find(|c| c.name == name).unwrap()
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let conditions = self.status().fleet.conditions.unwrap_or_default();
        let found = conditions.into_iter().find(|c| c.type_ == kind).unwrap();
        (found.status, found.reason)
    }

    /// The bounds of the members' HPAs, by member.
    fn bounds(&self) -> BTreeMap<String, (u64, u64)> {
        let members = self.members.clusters.lock().unwrap();
        let bounds = members.iter().filter_map(|(name, (fake, _))| {
            let state = fake.state();
            let hpa = state.hpas.values().next()?;
            let bound = |field: &str| hpa.spec[field].as_u64().unwrap();
            Some((name.clone(), (bound("minReplicas"), bound("maxReplicas"))))
        });
        bounds.collect()
    }
}

fn bounds(of: &[(&str, (u64, u64))]) -> BTreeMap<String, (u64, u64)> {
    of.iter()
        .map(|(name, both)| ((*name).to_owned(), *both))
        .collect()
}

fn weighted(spec: &str) -> String {
    format!(
        "minReplicas: 2, maxReplicas: 10, {CPU}, federatedHPAAssignment: {{federatedHPAAssignmentType: \
         StaticWeighted, clusterAutoscalingPreference: [{{targetCluster: {{clusterNames: [m1]}}, \
         staticWeight: 1}}, {{targetCluster: {{clusterNames: [m2]}}, staticWeight: 4}}]}}, {spec}"
    )
}

#[tokio::test(start_paused = true)]
async fn the_specific_replicas_of_a_preview_are_divided_and_enforced() {
    let mut world = World::new(&[("m1", 1), ("m2", 1)]);
    world.put(&weighted("scaleStrategy: Preview, specificReplicas: 5"));
    for pass in 0..4 {
        world.sync(pass * 15).await;
    }
    let counts = ["m1", "m2"].map(|name| world.member(name).state().replicas["web"]);
    assert_eq!(counts, [1, 4]);
    assert_eq!(world.bounds(), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn a_hanging_member_delays_no_other_member_and_keeps_its_bounds() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    world.autoscale();
    world.sync(15).await;
    world.member("m2").state().hangs = true;
    let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
    for pass in 2..30 {
        let from = clock.monotonic();
        let writes = world.sync(pass * 15).await;
        let took = clock.monotonic().since(from);
        assert!(
            took <= std::time::Duration::from_secs(15),
            "pass {pass}: {took:?}"
        );
        assert!(
            !writes.iter().any(|write| write.starts_with("m2")),
            "{writes:?}"
        );
    }
    let lost = world.cluster("m2");
    assert_eq!(
        (lost.min, lost.max, lost.current),
        (Some(2), Some(8), Some(4))
    );
    assert_eq!(world.condition("MembersReachable").0, "False");
    world.member("m2").state().hangs = false;
    let back = world.sync(450).await;
    assert!(
        back.contains(&"hub: event web MemberBack".to_owned()),
        "{back:?}"
    );
    assert_eq!(world.bounds(), bounds(&[("m1", (1, 2)), ("m2", (2, 8))]));
}

#[tokio::test(start_paused = true)]
async fn a_lost_member_is_not_called() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    let since = world.start;
    world.health("m2", Health::Unknown { since });
    world.member("m2").state().calls = 0;
    for pass in 1..30 {
        world.sync(pass * 15).await;
    }
    assert_eq!(world.member("m2").state().calls, 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_replicas_of_a_lost_member_count_until_it_has_failed() {
    let mut world = World::new(&[("m1", 2), ("m2", 3)]);
    world.put(&weighted("failurePolicy: Reassign, tolerationSeconds: 60"));
    world.edit(|fdhpa| fdhpa.spec.autoscaling.min_replicas = Some(4));
    world.sync(0).await;
    let reported = |world: &World| {
        let fleet = world.status().fleet;
        let decision = fleet.decision.unwrap();
        (fleet.current_replicas, decision.message)
    };
    let before = reported(&world);
    let since = world.start + SignedDuration::from_secs(15);
    world.health("m2", Health::Unknown { since });
    world.sync(15).await;
    assert_eq!(reported(&world), before);
    assert_eq!(world.condition("ScalingActive").0, "True");
    for pass in 2..8 {
        world.sync(pass * 15).await;
    }
    assert_eq!(reported(&world).0, Some(2), "it has failed");
}

#[tokio::test(start_paused = true)]
async fn a_lost_member_leaves_no_fleet_total() {
    let queue = "metrics: [{type: External, external: {metric: {name: queue}, target: {type: AverageValue, \
                 averageValue: 10}}}], metricScope: [{metric: external.queue, scope: Member}]";
    let mut world = World::new(&[("m1", 5), ("m2", 5)]);
    world.put(&weighted("").replace(CPU, queue));
    for name in ["m1", "m2"] {
        world.member(name).state().external = Some(50_000);
    }
    world.sync(0).await;
    assert_eq!(world.condition("ScalingActive").0, "True");
    let since = world.start + SignedDuration::from_secs(15);
    world.health("m2", Health::Unknown { since });
    for pass in 1..40 {
        world.sync(pass * 15).await;
    }
    assert_eq!(world.condition("ScalingActive").0, "False");
}

#[tokio::test(start_paused = true)]
async fn a_restart_resumes_from_the_ledger_and_moves_no_budget() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    for pass in 0..4 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    let before = world.status();
    world.restart();
    for pass in 4..40 {
        let writes = world.sync(pass * 15).await;
        assert!(
            !writes.iter().any(|write| write.contains("event")),
            "{writes:?}"
        );
    }
    assert_eq!(world.status().ledger, before.ledger);
    // The history of the members' HPAs is lost, so nothing scales down until a window has passed.
    assert_eq!(world.bounds(), bounds(&[("m1", (1, 2)), ("m2", (4, 8))]));
}

#[tokio::test(start_paused = true)]
async fn a_restart_restores_the_counts_of_an_unreachable_member() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    for pass in 0..3 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    world.restart();
    let since = world.start;
    world.health("m2", Health::Unknown { since });
    world.sync(45).await;
    let lost = world.cluster("m2");
    assert_eq!(
        (lost.max, lost.current, lost.ready),
        (Some(8), Some(4), Some(4))
    );
    assert_eq!(world.bounds(), bounds(&[("m1", (1, 2)), ("m2", (2, 8))]));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_target_the_flags_do_not_allow_is_not_reconciled() {
    for (namespace, kind, field) in [
        (
            "kube-system",
            "Deployment",
            "metadata.namespace is kube-system",
        ),
        (
            "shop",
            "StatefulSet",
            "spec.scaleTargetRef is StatefulSet.apps",
        ),
    ] {
        let mut world = World::new(&[("m1", 1), ("m2", 4)]);
        world.put(&weighted(""));
        world.edit(|fdhpa| {
            fdhpa.metadata.namespace = Some(namespace.into());
            fdhpa.spec.autoscaling.scale_target_ref.kind = kind.into();
        });
        let writes = [world.sync(0).await, world.sync(15).await].concat();
        let of_hub = |write: &String| write.starts_with("hub: ");
        assert!(writes.iter().all(of_hub), "{writes:?}");
        let refused = ("False".to_owned(), "InvalidSpec".to_owned());
        assert_eq!(world.condition("Ready"), refused);
        let message = message(&world, "Ready");
        assert!(message.starts_with(field), "{message}");
    }
}

fn add_foreign_hpa(world: &World, member: &str) {
    let fake = world.member(member);
    let manifest = json!({
        "metadata": {"name": "theirs", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 30},
    });
    fake.state().accept_hpa(&manifest).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_conflicting_foreign_hpa_is_named_and_its_counts_are_those_of_no_other_writer() {
    for (strategy, max, why) in [
        ("Auto", 0, "Foreign: horizontalpodautoscaler theirs"),
        ("Preview", 8, "Assigned: "),
    ] {
        let mut world = World::new(&[("m1", 1), ("m2", 4)]);
        add_foreign_hpa(&world, "m2");
        world.put(&weighted(&format!("scaleStrategy: {strategy}")));
        for pass in 0..8 {
            // The foreign HPA scales its target.
            let fake = world.member("m2");
            fake.state().writer = Some("kube-controller-manager".into());
            fake.state().replicas.insert("web".into(), 4 + pass);
            world.sync(i64::from(pass) * 15).await;
        }
        assert_eq!(world.condition("Ready").1, "TargetConflict");
        let ready = message(&world, "Ready");
        let expected = "horizontalpodautoscaler theirs in member m2 scales the same target";
        assert!(ready.starts_with(expected), "{ready}");
        assert_eq!(world.condition("ReplicaConflict").1, "NoConflict");
        let row = world.cluster("m2");
        assert_eq!(row.max, Some(max), "{strategy}");
        let reason = row.reason.unwrap();
        assert!(reason.starts_with(why), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_keda_has_paused_in_a_member_is_not_scaled_there() {
    let mut world = World::new(&[("m1", 2), ("m2", 2)]);
    world.put(&weighted(""));
    world.sync(0).await;
    world.sync(15).await;
    assert_eq!(world.member("m2").state().hpas.len(), 1);
    world.member("m2").state().keda_pause = KedaPause::On {
        scaled_object: "web".to_owned(),
        annotation: "autoscaling.keda.sh/paused-replicas",
    };
    world.member("m2").state().replicas.insert("web".into(), 1);
    world.sync(30).await;
    world.restart();
    for second in [45, 60] {
        world.sync(second).await;
        let reason = world.cluster("m2").reason.unwrap();
        let expected =
            "Foreign: KEDA has paused it by ScaledObject web; its replicas are not changed";
        assert!(reason.starts_with(expected), "{reason}");
        assert_eq!(world.member("m2").state().hpas.len(), 0);
        assert_eq!(world.member("m2").state().replicas["web"], 1);
    }
    assert_eq!(world.condition("ReplicaConflict").1, "NoConflict");
    assert_eq!(world.member("m1").state().hpas.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_changes_by_others_are_reported_as_restored() {
    let emits_restored =
        |writes: &[String]| writes.contains(&"hub: event web HPARestored".to_owned());
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    let specs = |world: &World| {
        let hpas = ["m1", "m2"].map(|name| world.member(name).state().hpas["fdhpa-web"].clone());
        hpas.map(|hpa| hpa.spec["behavior"].clone())
    };
    let before = specs(&world);
    world.edit(|fdhpa| {
        let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 60}});
        let behavior = serde_json::from_value(behavior).unwrap();
        fdhpa.spec.autoscaling.behavior = Some(behavior);
    });
    let ours = world.sync(15).await;
    assert_ne!(specs(&world), before);
    assert!(!emits_restored(&ours), "{ours:?}");
    let patch_by_hand = |world: &World, field: &str, value| {
        let fake = world.member("m2");
        fake.state().hpas.get_mut("fdhpa-web").unwrap().spec[field] = value;
    };
    for (second, field, value) in [
        (30, "metrics", json!([])),
        (45, "minReplicas", json!(5)),
        (60, "maxReplicas", json!(50)),
        (75, "minReplicas", json!(1)),
        (90, "metrics", json!([])),
    ] {
        patch_by_hand(&world, field, value);
        let theirs = world.sync(second).await;
        assert!(emits_restored(&theirs), "{theirs:?}");
    }
    // A late watch event repeats a known change, and is not another one.
    patch_by_hand(&world, "minReplicas", json!(1));
    let fake = world.member("m2");
    let version = "0".to_owned();
    fake.state()
        .hpas
        .get_mut("fdhpa-web")
        .unwrap()
        .resource_version = version;
    let late = world.sync(105).await;
    assert!(
        late.iter().any(|write| write.starts_with("m2: hpa")),
        "{late:?}"
    );
    assert!(!emits_restored(&late), "{late:?}");
    // A change made before the restart may be Foretide's own.
    patch_by_hand(&world, "metrics", json!([]));
    world.restart();
    let unknown = world.sync(120).await;
    assert!(
        unknown.iter().any(|write| write.starts_with("m2: hpa")),
        "{unknown:?}"
    );
    assert!(!emits_restored(&unknown), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn only_a_member_that_was_reachable_can_be_lost() {
    let lost = |writes: &[String]| writes.contains(&"hub: event web MemberLost".to_owned());
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    let unknown = Health::Unknown { since: world.start };
    world.health("m2", unknown);
    world.put(&weighted(""));
    for pass in 0..10 {
        let writes = world.sync(pass * 15).await;
        assert!(!lost(&writes), "it has never been reachable: {writes:?}");
    }
    world.health("m2", Health::Ready);
    let joined = world.sync(150).await;
    assert!(
        !joined.contains(&"hub: event web MemberBack".to_owned()),
        "{joined:?}"
    );
    world.health("m2", unknown);
    let gone = world.sync(165).await;
    assert!(lost(&gone), "{gone:?}");
    // After a restart, the controller has to reach the member first.
    world.restart();
    let since = world.start + SignedDuration::from_secs(200) + LOST_AFTER;
    world.health("m2", Health::Unknown { since });
    let mut lost_events = Vec::new();
    for pass in 0..8 {
        let writes = world.sync(200 + pass * 15).await;
        lost_events.push(lost(&writes));
    }
    assert_eq!(
        lost_events,
        [false, false, false, true, false, false, false, false]
    );
}

fn delete(world: &World) {
    let now = world.clock.now();
    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now);
    world.edit(|fdhpa| fdhpa.metadata.deletion_timestamp = Some(time));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_fleet_deletes_its_hpas_and_keeps_the_replicas() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    delete(&world);
    let writes = world.sync(1).await;
    assert_eq!(
        writes,
        [
            "hub: finalizers web",
            "hub: event web ReplicasKept",
            "m1: delete hpa fdhpa-web",
            "m2: delete hpa fdhpa-web"
        ]
    );
    let counts = ["m1", "m2"].map(|name| world.member(name).state().replicas["web"]);
    assert_eq!(counts, [1, 4]);
    assert_eq!(world.hub.state().federated.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_unreachable_too_long_keeps_its_retained_hpa() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    world.edit(|fdhpa| fdhpa.spec.deletion_policy = Some(DeletionPolicy::Retain));
    world.sync(15).await;
    let since = world.start;
    world.health("m2", Health::Unknown { since });
    delete(&world);
    world.sync(30).await;
    world.sync(330).await;
    assert_eq!(world.hub.state().federated.len(), 0);
    world.health("m2", Health::Ready);
    world.sync(400).await;
    let left = world.member("m2").state().hpas["fdhpa-web"].clone();
    assert_eq!(left.labels, json!({"app.kubernetes.io/part-of": "web"}));
    assert_eq!(world.sync(500).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn hpas_of_another_hub_are_not_garbage_collected() {
    let mut world = World::new(&[("m1", 1)]);
    world.put(&weighted(""));
    world.sync(0).await;
    let fake = world.member("m1");
    for (name, hub, fleet) in [("of-hub-2", "hub-2", "gone"), ("of-hub-1", "hub-1", "gone")] {
        let mut hpa = fake.state().hpas["fdhpa-web"].clone();
        hpa.name = name.into();
        hpa.labels["autoscaling.foretide.io/hub"] = hub.into();
        hpa.labels["autoscaling.foretide.io/fleet-uid"] = fleet.into();
        hpa.target.name = "other".into();
        fake.state().hpas.insert(name.into(), hpa);
    }
    world.sync(120).await;
    let left: Vec<_> = fake.state().hpas.keys().cloned().collect();
    assert_eq!(left, ["fdhpa-web", "of-hub-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_writer_of_replicas_is_named_and_not_overwritten() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted("mode: Direct"));
    for pass in 0..3 {
        world.sync(pass * 15).await;
    }
    for pass in 3..9 {
        let fake = world.member("m2");
        fake.state().writer = Some("argocd".into());
        fake.state().replicas.insert("web".into(), 7);
        world.sync(pass * 15).await;
    }
    assert_eq!(world.condition("ReplicaConflict").0, "True");
    assert_eq!(world.member("m2").state().replicas["web"], 7);
    let conditions = world.status().fleet.conditions.unwrap();
    let conflict = conditions
        .iter()
        .find(|c| c.type_ == "ReplicaConflict")
        .unwrap();
    assert!(conflict.message.contains("argocd"), "{}", conflict.message);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_without_members_reports_that_it_has_none() {
    let mut world = World::new(&[]);
    world.put(&weighted(""));
    let writes = world.sync(0).await;
    assert_eq!(writes, ["hub: event web NoMembers", "hub: status web"]);
    assert_eq!(
        world.condition("Assigned"),
        ("False".into(), "NoMembers".into())
    );
    assert_eq!(world.sync(15).await, Vec::<String>::new());
}

fn template(world: &World) {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "hub-web"},
        "spec": {"replicas": 0, "template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}},
    });
    world.hub.state().objects.insert("web".into(), object);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_one_member_has_the_same_child_as_a_single_cluster() {
    use foretide_controller::EffectiveController;
    let cron = "crons: [{name: peak, start: '10 0 * * *', end: '20 0 * * *', targetReplicas: 7}]";
    let kinds = ["Aggregated", "StaticWeighted", "DynamicWeighted"];
    for kind in kinds {
        let spec = format!("minReplicas: 2, maxReplicas: 10, {CPU}, {cron}");
        let mut world = World::new(&[("m1", 3)]);
        world.put(&format!(
            "{spec}, federatedHPAAssignment: {{federatedHPAAssignmentType: {kind}}}"
        ));
        let own = FakeCluster::default();
        own.put("web", 3, &spec);
        let setup = setup(Arc::default());
        let shared = Shared {
            page: Arc::default(),
            forecasts: Arc::default(),
            telemetry: Arc::default(),
        };
        let mut single =
            EffectiveController::new(Arc::new(own.clone()), world.clock.clone(), setup, shared);
        // Into a cron window and out of it, under a load that changes in steps; compared when both have settled.
        let mut compared = 0;
        for pass in 0..140_i64 {
            let load = [300, 400, 800, 200][usize::try_from(pass / 35).unwrap()];
            world.member("m1").state().millicores = load;
            own.state().millicores = load;
            let now = world.start + SignedDuration::from_secs(pass * 15);
            own.state().now = now;
            world.sync(pass * 15).await;
            single.sync().await;
            world.autoscale();
            let alone = own.state().hpas["ehpa-web"].spec.clone();
            let bound = |field: &str| u32::try_from(alone[field].as_u64().unwrap()).unwrap();
            let wanted = u32::try_from(load / 100).unwrap();
            let wanted = wanted.min(bound("maxReplicas")).max(bound("minReplicas"));
            own.state().replicas.insert("web".into(), wanted);
            own.state().hpas.get_mut("ehpa-web").unwrap().status =
                json!({"desiredReplicas": wanted});
            let boundary = [40, 80, 100, 125]
                .iter()
                .any(|at| (at - 2..at + 2).contains(&pass));
            if pass % 35 > 5 && !boundary {
                let part = world.member("m1").state().hpas["fdhpa-web"].spec.clone();
                assert_eq!(part, alone, "{kind}, pass {pass}");
                compared += 1;
            }
        }
        assert!(compared > 90, "{compared}");
    }
}

#[tokio::test(start_paused = true)]
async fn forecasts_receive_the_members_and_no_partial_totals() {
    let mut world = World::new(&[("a", 3), ("b", 3), ("c", 0)]);
    world.put(&format!(
        "minReplicas: 2, maxReplicas: 12, prediction: {{}}, {CPU}, \
         federatedHPAAssignment: {{federatedHPAAssignmentType: DynamicWeighted}}"
    ));
    let key = SeriesKey {
        uid: "uid-fleet".to_owned(),
        metric: "resource.cpu".to_owned(),
    };
    let fleet_members = |world: &World| {
        let members = world.forecasts.shares().members("uid-fleet").unwrap();
        let idle = members
            .iter()
            .map(|m: &FleetMember| (m.name.to_string(), m.idle));
        idle.collect::<Vec<_>>()
    };
    let minutes = |world: &World, now: i64| {
        let now = world.start + SignedDuration::from_secs(now);
        let history = world.forecasts.demand_history();
        history.minutes(&key, now).values.len()
    };
    let pair = |name: &str, idle| (name.to_owned(), idle);
    world.sync(10).await;
    assert_eq!(
        fleet_members(&world),
        [pair("a", false), pair("b", false), pair("c", true)]
    );
    assert_eq!(minutes(&world, 60), 1);
    let since = world.clock.now();
    world.health("b", Health::Unknown { since });
    world.sync(70).await;
    assert_eq!(fleet_members(&world)[1], pair("b", false));
    assert_eq!(minutes(&world, 120), 1);
}

#[tokio::test(start_paused = true)]
async fn no_maximum_is_raised_while_another_cannot_be_lowered() {
    let mut world = World::new(&[("m1", 1), ("m2", 1)]);
    world.put(&weighted(""));
    for pass in 0..3 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    world.edit(|fdhpa| {
        let preferences = fdhpa
            .spec
            .federated_hpa_assignment
            .cluster_autoscaling_preference
            .as_mut()
            .unwrap();
        preferences[0].static_weight = Some(4);
        preferences[1].static_weight = Some(1);
    });
    world.member("m2").state().refuses = true;
    world.sync(60).await;
    assert_eq!(world.bounds()["m1"].1, 2);
    assert_eq!(
        world.condition("Ready"),
        ("False".into(), "FailedReconcileHPA".into())
    );
    world.member("m2").state().refuses = false;
    for pass in 5..8 {
        world.sync(pass * 15).await;
    }
    assert_eq!((world.bounds()["m1"].1, world.bounds()["m2"].1), (8, 2));
}

#[tokio::test]
async fn pods_that_fit_on_no_node_are_reported_once() {
    let mut world = World::new(&[("m1", 1), ("m2", 1)]);
    let policy = "federatedHPAAssignment: {federatedHPAAssignmentType: DynamicWeighted}";
    world.put(&format!("minReplicas: 2, maxReplicas: 10, {CPU}, {policy}"));
    for name in ["m1", "m2"] {
        let fake = world.member(name);
        fake.state().millicores = 300;
        fake.state().capacity = Some(5);
    }
    for pass in 0..4 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    for name in ["m1", "m2"] {
        let since = world.start + SignedDuration::from_secs(45);
        world.member(name).state().unschedulable = (1, Some(since));
    }
    for pass in 4..40 {
        world.sync(pass * 15).await;
    }
    let mut written = 0;
    for pass in 40..80 {
        written += world.sync(pass * 15).await.len();
    }
    // The capacity that nodes proved is retried ever less often, and the ledger records the times.
    assert!(written <= 1, "{written} {:?}", world.status().clusters);
    assert_eq!(world.cluster("m1").pending, Some(1));
}

#[tokio::test]
async fn a_fleet_without_any_candidate_is_not_ready() {
    let mut world = World::new(&[("m1", 1)]);
    world.put(&weighted("clusterAffinity: {clusterNames: [elsewhere]}"));
    world.sync(0).await;
    assert_eq!(world.condition("Assigned").0, "False");
    assert_eq!(world.condition("Ready").0, "False");
    assert_eq!(world.sync(15).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_stopping_controller_releases_the_scale_down_holds() {
    let mut world = World::new(&[("m1", 6), ("m2", 4)]);
    world.put(&format!(
        "minReplicas: 2, maxReplicas: 12, {CPU}, federatedHPAAssignment: {{federatedHPAAssignmentType: \
         Prioritized, clusterAutoscalingPreference: [{{targetCluster: {{clusterNames: [m1]}}, \
         priority: 2}}, {{targetCluster: {{clusterNames: [m2]}}, priority: 1}}]}}"
    ));
    for (name, capacity) in [("m1", 8), ("m2", 6)] {
        world.member(name).state().capacity = Some(capacity);
    }
    let held = |world: &World| {
        let spec = world.member("m1").state().hpas["fdhpa-web"].spec.clone();
        spec.pointer("/behavior/scaleDown/selectPolicy") == Some(&json!("Disabled"))
    };
    world.sync(0).await;
    for (name, millicores) in [("m1", 200), ("m2", 100)] {
        world.member(name).state().millicores = millicores;
    }
    for pass in 1..40 {
        world.sync(pass * 15).await;
        if held(&world) {
            break;
        }
    }
    assert!(held(&world), "{:?}", world.status().clusters);
    let fresh = World::controller(
        &world.hub,
        &world.members,
        &world.clock,
        (&Arc::default(), &Arc::default()),
    );
    let ending = std::mem::replace(&mut world.controller, fresh);
    ending.run(std::future::ready(())).await;
    assert!(!held(&world));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_suspends_garbage_collection_and_keeps_its_state() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    for pass in 0..4 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    let before = world.bounds();
    let left_out = world.hub.state().federated.remove("web").unwrap();
    world.hub.state().unreadable.insert("web".into(), left_out);
    for pass in 4..20 {
        let writes = world.sync(pass * 15).await;
        assert_eq!(writes, Vec::<String>::new(), "pass {pass}");
    }
    assert_eq!(world.bounds(), before);
    let mut read = world.hub.state().unreadable.remove("web").unwrap();
    // The controller still has this state in memory.
    read.status.as_mut().unwrap().ledger = None;
    world.hub.state().federated.insert("web".into(), read);
    let writes = world.sync(300).await;
    let to_members = |write: &&String| !write.starts_with("hub: ");
    assert_eq!(writes.iter().find(to_members), None);
    world.hub.state().federated.clear();
    world.sync(400).await;
    assert_eq!(world.bounds(), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn a_list_of_fleets_that_is_out_of_date_moves_and_removes_nothing() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    for pass in 0..4 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    let before = world.bounds();
    // The hub took over with an old list, which lacks the fleet.
    let missing = world.hub.state().federated.remove("web").unwrap();
    world.hub.state().stale_copies = Some("FederatedHPA");
    for pass in 4..8 {
        assert_eq!(
            world.sync(pass * 15).await,
            Vec::<String>::new(),
            "pass {pass}"
        );
    }
    world.hub.state().federated.insert("web".into(), missing);
    let writes = world.sync(200).await;
    assert_eq!(writes, ["hub: event web CacheStale", "hub: status web"]);
    assert_eq!(world.bounds(), before);
    world.hub.state().stale_copies = None;
    world.hub.state().federated.clear();
    world.sync(400).await;
    assert_eq!(world.bounds(), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_copies_are_out_of_date_is_not_written() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    for pass in 0..4 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    let before = world.bounds();
    world.member("m1").state().stale_copies = Some("Pod");
    world.edit(|fdhpa| fdhpa.spec.autoscaling.max_replicas = 30);
    let writes = [world.sync(60).await, world.sync(75).await].concat();
    let to_stale = |write: &String| write.starts_with("m1: ");
    assert!(!writes.iter().any(to_stale), "{writes:?}");
    assert_eq!(world.bounds()["m1"], before["m1"]);
    world.member("m1").state().stale_copies = None;
    for pass in 6..30 {
        world.sync(pass * 15).await;
    }
    assert_ne!(world.bounds()["m1"], before["m1"]);
}

#[tokio::test(start_paused = true)]
async fn a_member_with_hanging_metrics_is_still_observed() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    let external = "{type: External, external: {metric: {name: queue}, target: {type: AverageValue, \
                    averageValue: 10}}}";
    world.put(&weighted("").replace("metrics: [", &format!("metrics: [{external}, ")));
    for pass in 0..3 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    world.member("m2").state().metrics_hang = true;
    world.hub.state().metrics_hang = true;
    world.member("m2").state().replicas.insert("web".into(), 6);
    for pass in 3..6 {
        let synced = tokio::time::timeout(Setup::MEMBER_DEADLINE * 5 / 4, world.sync(pass * 15));
        assert!(synced.await.is_ok(), "pass {pass}");
    }
    assert_eq!(world.condition("MembersReachable").0, "True");
    assert_eq!(world.cluster("m2").current, Some(6));
}

#[tokio::test(start_paused = true)]
async fn hanging_members_delay_a_deletion_by_one_deadline_per_sync() {
    let mut world = World::new(&[("m1", 1), ("m2", 1), ("m3", 1)]);
    let policy = "federatedHPAAssignment: {federatedHPAAssignmentType: StaticWeighted}";
    world.put(&format!("minReplicas: 3, maxReplicas: 9, {CPU}, {policy}"));
    world.sync(0).await;
    for name in ["m1", "m2"] {
        world.member(name).state().hangs = true;
    }
    delete(&world);
    for second in [70, 371] {
        assert_eq!(world.hub.state().federated.len(), 1, "{second}");
        let synced = tokio::time::timeout(Setup::MEMBER_DEADLINE * 5 / 4, world.sync(second));
        assert!(synced.await.is_ok(), "second {second}");
        assert_eq!(world.bounds().keys().collect::<Vec<_>>(), ["m1", "m2"]);
    }
    assert_eq!(world.hub.state().federated.len(), 0);
    // Reachable members do not wait for hanging ones, and the rest is deleted later.
    world.member("m1").state().hangs = false;
    world.sync(500).await;
    assert_eq!(world.bounds().keys().collect::<Vec<_>>(), ["m2"]);
}

#[tokio::test(start_paused = true)]
async fn an_hpa_without_its_workload_is_deleted_and_keeps_the_finalizer_until_then() {
    for preview in [false, true] {
        let mut world = World::new(&[("m1", 1), ("m2", 4)]);
        world.put(&weighted(""));
        world.sync(0).await;
        world.autoscale();
        let fake = world.member("m2");
        fake.state().replicas.clear();
        fake.state().refuses = true;
        if preview {
            world.edit(|fdhpa| {
                fdhpa.spec.autoscaling.scale_strategy = Some(foretide_crds::ScaleStrategy::Preview);
            });
        }
        for pass in 1..4 {
            world.sync(pass * 15).await;
        }
        let finalizers = |world: &World| world.hub.state().federated["web"].finalizers().len();
        assert_eq!((fake.state().hpas.len(), finalizers(&world)), (1, 1));
        fake.state().refuses = false;
        for pass in 4..8 {
            world.sync(pass * 15).await;
        }
        assert_eq!(fake.state().hpas.len(), 0);
        assert_eq!(finalizers(&world), usize::from(!preview));
        assert_eq!(world.sync(150).await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn each_member_of_a_duplicated_fleet_is_scaled_separately() {
    let cron = "crons: [{name: peak, start: '0 0 * * *', end: '0 12 * * *', targetReplicas: 6}]";
    for (mode, metrics, crons, expected) in [
        ("Direct", CPU, "crons: []", [8, 2]),
        ("Direct", CPU, cron, [8, 6]),
        ("Direct", "metrics: []", cron, [6, 6]),
        ("Delegated", CPU, cron, [8, 6]),
    ] {
        let mut world = World::new(&[("m1", 2), ("m2", 2)]);
        let spec = format!("minReplicas: 1, maxReplicas: 10, mode: {mode}, {metrics}, {crons}");
        world.put(&spec);
        world.member("m1").state().millicores = 800;
        for pass in 0..30 {
            world.sync(pass * 15).await;
            world.autoscale();
        }
        let counts = ["m1", "m2"].map(|name| world.member(name).state().replicas["web"]);
        assert_eq!(counts, expected, "{spec}");
    }
}

fn message(world: &World, kind: &str) -> String {
    let conditions = world.status().fleet.conditions.unwrap_or_default();
    let found = conditions.into_iter().find(|c| c.type_ == kind).unwrap();
    found.message
}

#[tokio::test(start_paused = true)]
async fn the_younger_of_two_fleets_on_one_workload_places_nothing() {
    let mut world = World::new(&[("m1", 0)]);
    world.member("m1").state().replicas.clear();
    template(&world);
    world.put(&weighted("workloadSource: Hub"));
    let mut older = world.hub.state().federated["web"].clone();
    older.metadata.name = Some("older".into());
    older.metadata.uid = Some("uid-older".into());
    older.spec.autoscaling.min_replicas = Some(-1);
    world.edit(|fdhpa| {
        let now = Timestamp::from_second(1_767_225_600).unwrap();
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now);
        fdhpa.metadata.creation_timestamp = Some(time);
    });
    world.hub.state().federated.insert("older".into(), older);
    for pass in 0..4 {
        let writes = world.sync(pass * 15).await;
        assert!(
            !writes.iter().any(|write| write.starts_with("m1")),
            "{writes:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_scaled_by_a_foreign_hpa_is_not_overwritten() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    add_foreign_hpa(&world, "m2");
    template(&world);
    world.put(&weighted("workloadSource: Hub"));
    for pass in 0..4 {
        let writes = world.sync(pass * 15).await;
        assert!(
            !writes.iter().any(|write| write.starts_with("m2")),
            "{writes:?}"
        );
    }
    assert_eq!(world.member("m1").state().objects.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_the_hub_did_not_place_is_neither_drained_nor_deleted() {
    let mut world = World::new(&[("m1", 3), ("m2", 3)]);
    template(&world);
    // A single replica goes to the first member.
    world.put(&format!(
        "minReplicas: 1, maxReplicas: 1, {CPU}, workloadSource: Hub, \
         federatedHPAAssignment: {{federatedHPAAssignmentType: Aggregated}}"
    ));
    for pass in 0..60 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    let left = ["m1", "m2"].map(|name| world.member(name).state().replicas["web"]);
    assert_eq!(left.iter().max(), Some(&3), "{:?}", world.status().clusters);
}

#[tokio::test(start_paused = true)]
async fn problems_of_the_placed_workload_are_reported_with_the_assignment() {
    let mut world = World::new(&[("m1", 0)]);
    world.member("m1").state().replicas.clear();
    world.put(&weighted("workloadSource: Hub"));
    let writes = world.sync(0).await;
    assert!(
        !writes.iter().any(|write| write.starts_with("m1")),
        "{writes:?}"
    );
    assert_eq!(world.condition("Ready").0, "False");
    let text = message(&world, "Assigned");
    assert!(
        text.contains("; cannot read the workload to place from the hub"),
        "{text}"
    );
    template(&world);
    {
        let mut state = world.hub.state();
        let object = state.objects.get_mut("web").unwrap();
        object["spec"]["template"]["spec"]["volumes"] = json!([{"configMap": {"name": "files"}}]);
    }
    world.sync(15).await;
    let text = message(&world, "Assigned");
    assert!(
        text.ends_with("; the workload refers to configmap/files, which are not copied"),
        "{text}"
    );
}
