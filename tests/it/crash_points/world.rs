//! The clusters of a scenario: their pods become ready after a while, and their HPAs scale by the load, which the ready
//! pods of all clusters share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use foretide::{
    clock::Clock,
    controller::{EffectiveController, FleetController, Shared},
};
use foretide_crds::{EffectiveHorizontalPodAutoscaler as Ehpa, FederatedHPA};
use foretide_domain::federate::Health;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::masks;
use crate::{
    fake_cluster::{FakeCluster, Kubelet, State, run_to, setup},
    fake_members::Members,
    process::Process,
};

/// The time between two syncs: twice the usual one, so that fewer of them last as long as windows and cooldowns.
const PERIOD: SignedDuration = SignedDuration::from_secs(30);
/// How long a pod takes to become ready.
const START_UP: SignedDuration = SignedDuration::from_secs(40);
/// What one pod is to use, in millicores.
const PER_POD: i64 = 100;
/// The workload.
const NAME: &str = "web";

/// The clusters, with one autoscaler of the workload `web`.
pub(super) struct World {
    pub(super) hub: FakeCluster,
    pub(super) members: Members,
    /// What all pods together have to do, in millicores.
    load: AtomicI64,
    /// What the pods of a member have to do, where they share no load with others.
    local: Mutex<BTreeMap<String, i64>>,
    clock: Clock,
    start: Timestamp,
}

/// The controller of the kind that a scenario has.
pub(super) enum Controller {
    Effective(EffectiveController<FakeCluster>),
    Fleet(FleetController<FakeCluster, Members>),
}

// === impl Controller ===

impl Controller {
    pub(super) async fn sync(&mut self) {
        match self {
            Self::Effective(controller) => controller.sync().await,
            Self::Fleet(controller) => controller.sync().await,
        }
    }
}

// === impl World ===

impl World {
    fn empty() -> Self {
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        Self {
            hub: FakeCluster::default(),
            members: Members::default(),
            load: AtomicI64::new(0),
            local: Mutex::default(),
            clock: Clock::standing_at(start),
            start,
        }
    }

    /// An autoscaler of one cluster, whose workload runs this many pods, each of which has its part of the load.
    pub(super) fn single(replicas: u32, spec: &str) -> Self {
        let world = Self::empty();
        world.hub.put(NAME, replicas, spec);
        world.start_cluster(&world.hub, Some(replicas));
        world.load(i64::from(replicas));
        world
    }

    /// A fleet whose members run this many pods; none where there is no workload.
    pub(super) fn fleet(members: &[(&str, Option<u32>)], spec: &str) -> Self {
        let world = Self::empty();
        let mut total = 0;
        for (name, replicas) in members {
            world.join(name, *replicas);
            total += i64::from(replicas.unwrap_or_default());
        }
        world.load(total);
        let yaml = format!(
            "apiVersion: autoscaling.foretide.io/v1alpha1\nkind: FederatedHPA\n\
             metadata: {{name: {NAME}, namespace: shop, uid: uid-fleet, generation: 1}}\n\
             spec: {{scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {NAME}}}, {spec}}}"
        );
        let fdhpa: FederatedHPA = serde_saphyr::from_str(&yaml).unwrap();
        world.hub.state().federated.insert(NAME.into(), fdhpa);
        world
    }

    /// Adds a member whose workload runs this many pods; none where there is no workload.
    pub(super) fn join(&self, name: &str, replicas: Option<u32>) {
        let fake = FakeCluster::default();
        self.start_cluster(&fake, replicas);
        fake.state().capacity = Some(100);
        let mut members = self.members.clusters.lock().unwrap();
        members.insert(name.to_owned(), (fake, Health::Ready));
    }

    fn start_cluster(&self, fake: &FakeCluster, replicas: Option<u32>) {
        let mut state = fake.state();
        state.kubelet = Some(Kubelet::new(START_UP));
        // The pods that run at the beginning were started long ago.
        state.now = self.start - SignedDuration::from_hours(1);
        if let Some(replicas) = replicas {
            state.scale(NAME, replicas);
        }
        state.now = self.clock.now();
    }

    /// A workload in the hub for it to place.
    pub(super) fn template(self) -> Self {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": NAME, "namespace": "shop", "uid": "hub-web"},
            "spec": {"replicas": 0, "template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}},
        });
        self.hub.state().objects.insert(NAME.into(), object);
        self
    }

    /// An HPA of the workload that the autoscaler is to adopt.
    pub(super) fn adopting(self) -> Self {
        let manifest = json!({
            "metadata": {"name": "theirs", "namespace": "shop"},
            "spec": {"scaleTargetRef": {"name": NAME}, "minReplicas": 1, "maxReplicas": 30},
        });
        self.hub.state().accept_hpa(&manifest).unwrap();
        self.edit_single(|ehpa| {
            let annotations = ehpa.metadata.annotations.get_or_insert_default();
            annotations.insert("autoscaling.foretide.io/adopt".into(), "true".into());
        });
        self
    }

    /// Sets the load to what this many pods are to carry.
    pub(super) fn load(&self, pods: i64) {
        self.load.store(pods * PER_POD, Ordering::Release);
    }

    /// Sets the load of one member alone to what this many pods are to carry.
    pub(super) fn local_load(&self, name: &str, pods: i64) {
        let mut local = self.local.lock().unwrap();
        local.insert(name.to_owned(), pods * PER_POD);
    }

    /// A member fails: it does not answer, and its pods serve nothing.
    pub(super) fn fail(&self, name: &str) {
        let since = self.clock.now();
        let mut members = self.members.clusters.lock().unwrap();
        members.get_mut(name).unwrap().1 = Health::Unknown { since };
    }

    /// A member that had failed is back, with the pods that it had.
    pub(super) fn recover(&self, name: &str) {
        let mut members = self.members.clusters.lock().unwrap();
        members.get_mut(name).unwrap().1 = Health::Ready;
    }

    /// A member leaves on purpose.
    pub(super) fn leave(&self, name: &str) {
        let mut leaving = self.members.leaving.lock().unwrap();
        leaving.insert(name.to_owned());
    }

    /// The Secret of a member is deleted: the hub cannot reach it any more; its pods serve and its HPA scales as
    /// before.
    pub(super) fn unregister(&self, name: &str) {
        let mut unregistered = self.members.unregistered.lock().unwrap();
        unregistered.insert(name.to_owned());
    }

    /// The Secret of a member that was deleted is created again.
    pub(super) fn register(&self, name: &str) {
        self.members.unregistered.lock().unwrap().remove(name);
    }

    /// Edits the autoscaler of the fleet.
    pub(super) fn edit(&self, change: impl FnOnce(&mut FederatedHPA)) {
        let mut state = self.hub.state();
        let fdhpa = state.federated.get_mut(NAME).unwrap();
        change(fdhpa);
        fdhpa.metadata.generation = fdhpa.metadata.generation.map(|n| n + 1);
    }

    /// Edits the autoscaler of one cluster.
    pub(super) fn edit_single(&self, change: impl FnOnce(&mut Ehpa)) {
        self.hub.edit(NAME, change);
    }

    /// Deletes the autoscaler: one with a finalizer stays until that is removed.
    pub(super) fn delete(&self) {
        let mut state = self.hub.state();
        state.autoscalers.clear();
        state.federated.retain(|_, fdhpa| {
            fdhpa.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            fdhpa.metadata.finalizers.iter().flatten().next().is_some()
        });
    }

    /// A controller in this process that knows only what the clusters store.
    pub(super) fn controller(&self, process: &Process) -> Controller {
        let setup = setup(Arc::default());
        let shared = Shared {
            page: Arc::default(),
            forecasts: Arc::default(),
            telemetry: Arc::default(),
        };
        let hub = Arc::new(self.hub.seen_by(process, "hub"));
        let clock = self.clock.clone();
        if self.members.clusters.lock().unwrap().is_empty() {
            return Controller::Effective(EffectiveController::new(hub, clock, setup, shared));
        }
        let members = Members {
            process: process.clone(),
            ..self.members.clone()
        };
        Controller::Fleet(FleetController::new(
            hub,
            Arc::new(members),
            clock,
            setup,
            shared,
        ))
    }

    /// The clusters that run the workload, by name.
    fn clusters(&self) -> Vec<(String, FakeCluster)> {
        let members = self.members.clusters.lock().unwrap();
        if members.is_empty() {
            return vec![("hub".to_owned(), self.hub.clone())];
        }
        let clusters = members.iter();
        clusters
            .map(|(name, (fake, _))| (name.clone(), fake.clone()))
            .collect()
    }

    /// The clusters whose pods serve.
    fn serving(&self) -> Vec<(String, FakeCluster)> {
        let mut clusters = self.clusters();
        let members = self.members.clusters.lock().unwrap();
        let has_failed = |name: &str| {
            members
                .get(name)
                .is_some_and(|(_, health)| *health != Health::Ready)
        };
        clusters.retain(|(name, _)| !has_failed(name));
        clusters
    }

    /// Puts the clock at a step; pods that have started become ready.
    pub(super) fn begin(&self, step: usize) {
        let now = self.start + PERIOD * i32::try_from(step).unwrap();
        run_to(&self.clock, now);
        self.hub.state().now = now;
        for (_, fake) in self.clusters() {
            fake.state().now = now;
        }
    }

    /// Garbage-collects children, spreads the load over the ready pods, and lets every HPA scale by its part of it.
    pub(super) fn settle(&self) {
        collect_garbage(&mut self.hub.state());
        let ready = i64::from(self.ready()).max(1);
        let load = self.load.load(Ordering::Acquire);
        let local = self.local.lock().unwrap();
        for (name, fake) in self.serving() {
            let mut state = fake.state();
            let shared = load * i64::from(state.ready(NAME)) / ready;
            state.millicores = local.get(&name).copied().unwrap_or(shared);
            autoscale(&mut state);
        }
    }

    /// The number of ready pods of all clusters together.
    pub(super) fn ready(&self) -> u32 {
        let serving = self.serving();
        serving
            .iter()
            .map(|(_, fake)| fake.state().ready(NAME))
            .sum()
    }

    /// How many ready pods have ended in all clusters together.
    pub(super) fn ended(&self) -> u32 {
        let clusters = self.clusters().into_iter();
        let ended = |(_, fake): (_, FakeCluster)| {
            fake.state()
                .kubelet
                .as_ref()
                .map_or(0, |kubelet| kubelet.ended)
        };
        clusters.map(ended).sum()
    }

    /// How often each object was created and deleted.
    pub(super) fn lifecycle(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (name, fake) in self.clusters() {
            for change in &fake.state().lifecycle {
                *counts.entry(format!("{name}: {change}")).or_default() += 1;
            }
        }
        counts
    }

    /// Every object, without what may differ between runs.
    pub(super) fn objects(&self) -> BTreeMap<String, Value> {
        let mut objects = BTreeMap::new();
        for (cluster, fake) in self.clusters() {
            let state = fake.state();
            for (name, hpa) in &state.hpas {
                let replicas = state.replicas.get(NAME).copied().unwrap_or_default();
                let object = json!({
                    "spec": masks::hpa_spec(hpa.spec.clone(), replicas), "labels": hpa.labels, "annotations": hpa.annotations,
                    "owner": hpa.controller.as_ref().map(|owner| &owner.uid),
                });
                objects.insert(format!("{cluster}: hpa {name}"), object);
            }
            for (name, object) in &state.objects {
                objects.insert(format!("{cluster}: workload {name}"), object.clone());
            }
            for (name, replicas) in &state.replicas {
                objects.insert(format!("{cluster}: replicas {name}"), json!(replicas));
            }
        }
        let state = self.hub.state();
        let effective = state.autoscalers.values();
        let effective = effective.map(|ehpa| (&ehpa.metadata, json!(ehpa.status)));
        let federated = state.federated.values();
        let federated = federated.map(|fdhpa| (&fdhpa.metadata, json!(fdhpa.status)));
        for (metadata, status) in effective.chain(federated) {
            let object =
                json!({"finalizers": metadata.finalizers, "status": masks::status(status)});
            objects.insert("hub: autoscaler".to_owned(), object);
        }
        objects
    }
}

/// Deletes the children whose owner is gone, as the garbage collector of a cluster does.
fn collect_garbage(state: &mut State) {
    let owners: Vec<_> = state.autoscalers.values().collect();
    let uids: Vec<_> = owners
        .iter()
        .filter_map(|ehpa| ehpa.metadata.uid.clone())
        .collect();
    state.hpas.retain(|_, hpa| {
        let owner = hpa.controller.as_ref();
        owner.is_none_or(|owner| uids.contains(&owner.uid))
    });
}

/// Scales the workload as the HPA controller does, by the load of the ready pods, without a stabilization window.
fn autoscale(state: &mut State) {
    let Some(hpa) = state.hpas.values().next() else {
        return;
    };
    let bound = |name: &str| u32::try_from(hpa.spec[name].as_u64().unwrap()).unwrap();
    let (min, max) = (bound("minReplicas"), bound("maxReplicas"));
    let current = state.replicas.get(NAME).copied().unwrap_or_default();
    let ready = i64::from(state.ready(NAME));
    // At zero replicas an HPA does nothing, and without a ready pod there is nothing to measure.
    if current == 0 {
        return;
    }
    let is_tolerated = (state.millicores - ready * PER_POD).abs() * 10 <= ready * PER_POD;
    let metric = u32::try_from((state.millicores + PER_POD - 1) / PER_POD).unwrap();
    let wanted = if ready == 0 || is_tolerated {
        current
    } else {
        metric
    };
    let wanted = wanted.min(max).max(min);
    state.scale(NAME, wanted);
    for hpa in state.hpas.values_mut() {
        hpa.status = json!({ "desiredReplicas": wanted });
    }
}
