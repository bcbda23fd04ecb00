//! Whole syncs over a cluster in memory: what is written, and what is not.
//!
//! The cluster here keeps objects and counts writes; that a real one answers alike is what
//! `tests/cluster` shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use foretide::{
    autoscaler::{Autoscaler, Setup},
    clock::Clock,
    domain::{
        Replicas, Scale, ScaleTarget,
        cron::Zone,
        hpa::{ObjectRef, Settings},
        observation::{
            Cause, Container, ContainerUsage, Phase, Pod, PodSample, PodUsage, Readiness, Status,
            Unavailable,
        },
    },
    forecaster::forecasts::Forecasts,
    ports::{
        Cluster, ClusterError, EventNote, HpaView, MetricQuery, ObjectKey, ScaleView, Workloads,
    },
    telemetry::Telemetry,
};
use foretide_crds::{
    EffectiveHorizontalPodAutoscaler as Ehpa, EffectiveHorizontalPodAutoscalerStatus, FederatedHPA,
    FederatedHPAStatus, TimeSeriesPrediction, TimeSeriesPredictionStatus,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::Value;

mod forecasts;

/// Objects by namespace/name, and every write in its order.
#[derive(Default)]
struct State {
    autoscalers: BTreeMap<String, Ehpa>,
    hpas: BTreeMap<String, HpaView>,
    replicas: BTreeMap<String, u32>,
    millicores: i64,
    conflicts: u32,
    refuses: bool,
    unselective: bool,
    writes: Vec<String>,
    /// When it is, for what is measured.
    now: Timestamp,
    /// How many seconds pods took to start.
    start_up: i64,
    predicted: Option<TimeSeriesPredictionStatus>,
    fleets: Vec<FederatedHPA>,
    /// The last prediction that was written.
    shown: Value,
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<State>>);

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Puts an autoscaler of Deployment `name` with so many replicas of 200m each, 50 % wanted.
    fn put(&self, name: &str, replicas: u32, spec: &str) {
        let yaml = format!(
            "apiVersion: autoscaling.crane.io/v1alpha1\nkind: EffectiveHorizontalPodAutoscaler\n\
             metadata: {{name: {name}, namespace: shop, uid: uid-{name}, generation: 1}}\n\
             spec: {{scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}, {spec}}}"
        );
        let ehpa: Ehpa = serde_saphyr::from_str(&yaml).unwrap();
        self.state().autoscalers.insert(name.to_owned(), ehpa);
        self.state().replicas.insert(name.to_owned(), replicas);
    }

    fn edit(&self, name: &str, change: impl FnOnce(&mut Ehpa)) {
        let mut state = self.state();
        let ehpa = state.autoscalers.get_mut(name).unwrap();
        change(ehpa);
        ehpa.metadata.generation = ehpa.metadata.generation.map(|generation| generation + 1);
    }

    fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().writes)
    }

    fn status(&self, name: &str) -> EffectiveHorizontalPodAutoscalerStatus {
        self.state().autoscalers[name]
            .status
            .clone()
            .unwrap_or_default()
    }

    fn ready(&self, name: &str) -> (String, String) {
        let conditions = self.status(name).conditions.unwrap_or_default();
        let ready = conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready")
            .unwrap();
        (ready.status, ready.reason)
    }

    fn pod(name: &str, start_up: i64) -> Arc<Pod> {
        let requests = [("cpu", 200_i64)].into_iter().collect();
        Arc::new(Pod {
            name: name.into(),
            phase: Phase::Running,
            deleting: false,
            created: None,
            ready: Some(Readiness {
                status: Status::True,
                since: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(start_up),
            }),
            started: Some(Timestamp::UNIX_EPOCH),
            containers: [Container {
                name: "app".into(),
                requests,
            }]
            .into(),
            pod_level_requests: None,
        })
    }

    fn pods_of(&self, name: &str) -> Vec<Arc<Pod>> {
        let count = self.state().replicas.get(name).copied().unwrap_or_default();
        let start_up = self.state().start_up;
        (0..count)
            .map(|n| Self::pod(&format!("{name}-{n:03}"), start_up))
            .collect()
    }
}

impl Workloads for Memory {
    fn is_synced(&self) -> bool {
        true
    }

    fn hpas(&self, _: &str) -> Vec<Arc<HpaView>> {
        self.every_hpa()
    }

    fn every_hpa(&self) -> Vec<Arc<HpaView>> {
        self.state().hpas.values().cloned().map(Arc::new).collect()
    }

    fn pods(&self, _: &str, selector: &str) -> Result<Vec<Arc<Pod>>, ClusterError> {
        Ok(self.pods_of(selector))
    }

    async fn scale(&self, target: &ScaleTarget) -> Result<ScaleView, ClusterError> {
        let replicas = self.state().replicas.get(&target.name).copied();
        let replicas = replicas.map(Replicas::new);
        let replicas = replicas.ok_or_else(|| ClusterError::NotFound {
            what: target.name.clone(),
        })?;
        Ok(ScaleView {
            scale: Scale {
                spec: replicas,
                status: replicas,
            },
            selector: if self.state().unselective {
                String::new()
            } else {
                target.name.clone()
            },
            resource_version: "1".into(),
            uid: format!("target-{}", target.name),
            template: None,
        })
    }

    async fn usage(&self, _: &str) -> Result<Vec<Arc<PodUsage>>, Unavailable> {
        let (names, total, now) = {
            let state = self.state();
            (
                state.replicas.keys().cloned().collect::<Vec<_>>(),
                state.millicores,
                state.now,
            )
        };
        if total < 0 {
            return Err(Unavailable::new(Cause::NotRead, "no metrics today"));
        }
        let mut usage = Vec::new();
        for name in names {
            let pods = self.pods_of(&name);
            let share = total / i64::try_from(pods.len().max(1)).unwrap();
            usage.extend(pods.iter().map(|pod| {
                Arc::new(PodUsage {
                    pod: Arc::clone(&pod.name),
                    at: now,
                    window: SignedDuration::from_secs(30),
                    containers: vec![ContainerUsage {
                        name: "app".into(),
                        usage: [("cpu", share)].into_iter().collect(),
                    }],
                })
            }));
        }
        Ok(usage)
    }

    async fn pods_metric(&self, _: &MetricQuery<'_>) -> Result<Vec<PodSample>, Unavailable> {
        Err(Unavailable::new(Cause::NotRead, "no custom metrics here"))
    }

    async fn object_metric(&self, _: &ObjectRef, _: &MetricQuery<'_>) -> Result<i64, Unavailable> {
        Err(Unavailable::new(Cause::NotRead, "no custom metrics here"))
    }

    async fn external_metric(&self, _: &MetricQuery<'_>) -> Result<Vec<i64>, Unavailable> {
        Err(Unavailable::new(Cause::NotRead, "no external metrics here"))
    }

    async fn write_scale(
        &self,
        target: &ScaleTarget,
        _: &ScaleView,
        replicas: Replicas,
    ) -> Result<Replicas, ClusterError> {
        let mut state = self.state();
        if state.refuses {
            return Err(ClusterError::Refused {
                what: target.name.clone(),
                message: "quota".into(),
            });
        }
        if state.conflicts > 0 {
            state.conflicts -= 1;
            return Err(ClusterError::Conflict {
                what: target.name.clone(),
            });
        }
        state
            .writes
            .push(format!("scale {} {replicas}", target.name));
        state.replicas.insert(target.name.clone(), replicas.get());
        Ok(replicas)
    }

    async fn apply_hpa(&self, manifest: &Value) -> Result<Arc<HpaView>, ClusterError> {
        let text = |path: &str| {
            manifest
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let name = text("/metadata/name").to_owned();
        let view = HpaView {
            namespace: text("/metadata/namespace").to_owned(),
            uid: format!("uid-{name}"),
            controller_uid: Some(text("/metadata/ownerReferences/0/uid").to_owned()),
            labels: manifest
                .pointer("/metadata/labels")
                .cloned()
                .unwrap_or_default(),
            annotations: Value::Null,
            target: ScaleTarget {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                namespace: "shop".into(),
                name: text("/spec/scaleTargetRef/name").to_owned(),
            },
            spec: manifest["spec"].clone(),
            status: Value::Null,
            generation: Some(1),
            last_scale: None,
            name: name.clone(),
        };
        let mut state = self.state();
        state
            .writes
            .push(format!("hpa {name} min {}", view.spec["minReplicas"]));
        state.hpas.insert(name, view.clone());
        Ok(Arc::new(view))
    }

    async fn patch_hpa(
        &self,
        _: &str,
        name: &str,
        _: &Value,
    ) -> Result<Arc<HpaView>, ClusterError> {
        Err(ClusterError::NotFound {
            what: name.to_owned(),
        })
    }

    async fn delete_hpa(&self, _: &str, name: &str, _: &str) -> Result<(), ClusterError> {
        let mut state = self.state();
        state.writes.push(format!("delete hpa {name}"));
        state.hpas.remove(name);
        Ok(())
    }
}

impl Cluster for Memory {
    async fn changed(&self) -> BTreeSet<ObjectKey> {
        std::future::pending().await
    }

    fn autoscalers(&self) -> Vec<Arc<Ehpa>> {
        self.state()
            .autoscalers
            .values()
            .cloned()
            .map(Arc::new)
            .collect()
    }

    fn every_prediction(&self) -> Vec<Arc<TimeSeriesPrediction>> {
        Vec::new()
    }

    async fn apply_prediction(&self, manifest: &Value) -> Result<(), ClusterError> {
        self.state().shown = manifest.clone();
        Ok(())
    }

    async fn write_prediction_status(
        &self,
        _: &str,
        _: &str,
        status: &TimeSeriesPredictionStatus,
    ) -> Result<(), ClusterError> {
        self.state().predicted = Some(status.clone());
        Ok(())
    }

    async fn delete_prediction(&self, _: &str, _: &str, _: &str) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn write_status(
        &self,
        _: &str,
        name: &str,
        status: &EffectiveHorizontalPodAutoscalerStatus,
    ) -> Result<(), ClusterError> {
        let mut state = self.state();
        state.writes.push(format!("status {name}"));
        if let Some(ehpa) = state.autoscalers.get_mut(name) {
            ehpa.status = Some(status.clone());
        }
        Ok(())
    }

    async fn emit(&self, about: &Ehpa, event: &EventNote) -> Result<(), ClusterError> {
        self.state()
            .writes
            .push(format!("event {} {}", about.name_any(), event.reason));
        Ok(())
    }

    fn federated(&self) -> Vec<Arc<FederatedHPA>> {
        self.state().fleets.iter().cloned().map(Arc::new).collect()
    }

    async fn write_federated_status(
        &self,
        _: &str,
        _: &str,
        _: &FederatedHPAStatus,
    ) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn patch_federated(&self, _: &str, _: &str, _: &Value) -> Result<(), ClusterError> {
        Ok(())
    }

    async fn object(&self, target: &ScaleTarget) -> Result<Value, ClusterError> {
        Err(ClusterError::NotFound {
            what: target.to_string(),
        })
    }
}

const CPU: &str = "metrics: [{type: Resource, resource: {name: cpu, target: \
                   {type: Utilization, averageUtilization: 50}}}]";

/// An autoscaler over a cluster in memory, under a clock that the test sets.
struct World {
    memory: Memory,
    clock: Clock,
    start: Timestamp,
    autoscaler: Autoscaler<Memory>,
}

impl World {
    fn new(memory: Memory) -> Self {
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        let clock = Clock::starting_at(start, 1e-6);
        Self {
            autoscaler: Self::autoscaler(&memory, &clock, &Arc::default()),
            memory,
            clock,
            start,
        }
    }

    fn autoscaler(
        memory: &Memory,
        clock: &Clock,
        forecasts: &Arc<Forecasts>,
    ) -> Autoscaler<Memory> {
        let setup = Setup {
            sync_period: SignedDuration::from_secs(15),
            local_zone: Zone::utc(),
            settings: Settings::default(),
        };
        Autoscaler::new(
            Arc::new(memory.clone()),
            clock.clone(),
            setup,
            Arc::clone(forecasts),
            Arc::<Telemetry>::default(),
        )
    }

    /// One sync at so many seconds after the start; returns what it wrote.
    async fn sync(&mut self, second: i64) -> Vec<String> {
        let now = self.start + SignedDuration::from_secs(second);
        self.clock.set(now, 1e-6);
        self.memory.state().now = now;
        self.autoscaler.sync().await;
        self.memory.writes()
    }
}

#[tokio::test]
async fn a_settled_object_costs_no_write() {
    let memory = Memory::default();
    memory.put("web", 3, &format!("minReplicas: 1, maxReplicas: 10, {CPU}"));
    memory.state().millicores = 300;
    let mut world = World::new(memory);
    let first = world.sync(0).await;
    assert_eq!(
        first,
        ["hpa ehpa-web min 1", "event web HPACreated", "status web"]
    );
    for pass in 1..40 {
        world.memory.state().millicores = 300 + pass % 7;
        let writes = world.sync(pass * 15).await;
        assert_eq!(writes, Vec::<String>::new(), "pass {pass}");
    }
}

#[tokio::test]
async fn direct_scales_by_itself_and_says_why() {
    let memory = Memory::default();
    memory.put(
        "web",
        2,
        &format!("mode: Direct, minReplicas: 1, maxReplicas: 10, {CPU}"),
    );
    memory.state().millicores = 350;
    let mut world = World::new(memory);
    let writes = world.sync(0).await;
    assert_eq!(writes, ["scale web 4", "event web Scaled", "status web"]);
    let decision = world.memory.status("web").decision.unwrap();
    assert_eq!(
        (decision.current_replicas, decision.desired),
        (Some(2), Some(4))
    );
    assert!(decision.message.unwrap().contains("asks for 4"));
}

#[tokio::test]
async fn one_object_without_its_target_does_not_disturb_another() {
    let memory = Memory::default();
    memory.put("lost", 1, &format!("maxReplicas: 10, {CPU}"));
    memory.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    memory.state().replicas.remove("lost");
    memory.state().millicores = 350;
    let mut world = World::new(memory);
    let writes = world.sync(0).await;
    assert!(writes.contains(&"scale web 4".to_owned()), "{writes:?}");
    assert_eq!(
        world.memory.ready("lost"),
        ("False".into(), "FailedGetScale".into())
    );
    let again = world.sync(15).await;
    assert!(
        again.iter().all(|write| !write.contains("lost")),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_spec_that_cannot_be_acted_on_leaves_the_last_valid_one_in_force() {
    let memory = Memory::default();
    memory.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    memory.state().millicores = 150;
    let mut world = World::new(memory);
    world.sync(0).await;
    world
        .memory
        .edit("web", |ehpa| ehpa.spec.min_replicas = Some(20));
    world.memory.state().millicores = 350;
    let writes = world.sync(15).await;
    assert!(writes.contains(&"scale web 4".to_owned()), "{writes:?}");
    assert!(
        writes.contains(&"event web InvalidSpec".to_owned()),
        "{writes:?}"
    );
    assert_eq!(
        world.memory.ready("web"),
        ("False".into(), "InvalidSpec".into())
    );
    world.sync(30).await;
    for pass in 3..6 {
        let writes = world.sync(pass * 15).await;
        assert_eq!(writes, Vec::<String>::new(), "pass {pass}");
    }
}

#[tokio::test]
async fn a_child_is_never_made_of_a_spec_that_cannot_be_acted_on() {
    let memory = Memory::default();
    memory.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
    memory.state().millicores = 200;
    let mut world = World::new(memory);
    world.sync(0).await;
    world.memory.edit("web", |ehpa| {
        ehpa.spec.min_replicas = Some(20);
        ehpa.spec.scale_target_ref.name = "other".into();
    });
    let writes = world.sync(15).await;
    assert_eq!(writes, ["event web InvalidSpec", "status web"]);
}

#[tokio::test]
async fn a_write_that_is_refused_is_told_once_and_tried_again_at_the_next_turn() {
    let memory = Memory::default();
    memory.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    memory.state().millicores = 350;
    memory.state().refuses = true;
    let mut world = World::new(memory);
    let writes = world.sync(0).await;
    assert_eq!(writes, ["event web FailedUpdateScale", "status web"]);
    let turns = [2, 15, 30, 45];
    for second in turns {
        let writes = world.sync(second).await;
        assert_eq!(writes, Vec::<String>::new(), "second {second}");
    }
    world.memory.state().refuses = false;
    let writes = world.sync(60).await;
    assert_eq!(writes, ["scale web 4", "event web Scaled", "status web"]);
}

#[tokio::test]
async fn of_two_objects_on_one_target_the_younger_one_only_shows() {
    let memory = Memory::default();
    for name in ["web", "web-too"] {
        memory.put(name, 2, &format!("maxReplicas: 10, {CPU}"));
    }
    memory.edit("web-too", |ehpa| {
        ehpa.spec.scale_target_ref.name = "web".into();
    });
    memory.state().millicores = 200;
    let mut world = World::new(memory);
    world.sync(0).await;
    assert_eq!(
        world.memory.ready("web-too"),
        ("False".into(), "TargetConflict".into())
    );
    assert_eq!(world.memory.ready("web").0, "True");
    for pass in 1..5 {
        let writes = world.sync(pass * 15).await;
        assert_eq!(writes, Vec::<String>::new(), "pass {pass}");
    }
    let hpas: Vec<_> = world.memory.state().hpas.keys().cloned().collect();
    assert_eq!(hpas, ["ehpa-web"]);
}

#[tokio::test]
async fn an_autoscaler_that_happens_to_have_the_name_of_the_child_is_not_written() {
    let memory = Memory::default();
    memory.put("api", 2, &format!("maxReplicas: 10, {CPU}"));
    let mut world = World::new(memory);
    world.sync(0).await;
    let mut foreign = world.memory.state().hpas.remove("ehpa-api").unwrap();
    (foreign.name, foreign.controller_uid) = ("ehpa-web".into(), None);
    foreign.target.name = "other".into();
    world.memory.state().hpas.insert("ehpa-web".into(), foreign);
    world
        .memory
        .put("web", 2, &format!("maxReplicas: 10, {CPU}"));
    let writes = world.sync(1).await;
    assert_eq!(writes, ["event web FailedReconcileHPA", "status web"]);
}

#[tokio::test]
async fn a_target_without_a_selector_is_not_scaled_by_the_pods_of_others() {
    let memory = Memory::default();
    memory.put("web", 8, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    memory.state().millicores = 100;
    memory.state().unselective = true;
    let mut world = World::new(memory);
    world.sync(0).await;
    let decision = world.memory.status("web").decision.unwrap();
    assert_eq!(decision.desired, Some(8));
    assert_eq!(
        decision.proposals.unwrap()[0].reason.as_deref(),
        Some("NoPods")
    );
}

#[tokio::test]
async fn a_write_that_somebody_else_got_in_before_is_decided_again_soon() {
    let memory = Memory::default();
    memory.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    memory.state().millicores = 350;
    memory.state().conflicts = 1;
    let mut world = World::new(memory);
    let writes = world.sync(0).await;
    assert!(
        writes.iter().all(|write| !write.starts_with("scale")),
        "{writes:?}"
    );
    let writes = world.sync(2).await;
    assert!(writes.contains(&"scale web 4".to_owned()), "{writes:?}");
}

#[tokio::test]
async fn a_restarted_controller_does_not_scale_down_before_it_has_seen_enough() {
    let memory = Memory::default();
    memory.put("web", 8, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    memory.state().millicores = 800;
    let mut world = World::new(memory.clone());
    world.sync(0).await;
    memory.state().millicores = 100;
    let mut world = World {
        autoscaler: World::autoscaler(&memory, &world.clock, &Arc::default()),
        ..world
    };
    for pass in 1..20 {
        let writes = world.sync(pass * 15).await;
        assert!(
            writes.iter().all(|write| !write.starts_with("scale")),
            "{pass}: {writes:?}"
        );
    }
    let after = [world.sync(301).await, world.sync(330).await].concat();
    assert!(after.contains(&"scale web 1".to_owned()), "{after:?}");
}

#[tokio::test]
async fn metrics_that_cannot_be_read_lower_nothing() {
    let memory = Memory::default();
    memory.put("web", 8, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    memory.state().millicores = -1;
    let mut world = World::new(memory);
    for pass in 0..40 {
        let writes = world.sync(pass * 15).await;
        assert!(
            writes.iter().all(|write| !write.starts_with("scale")),
            "{pass}: {writes:?}"
        );
    }
}

#[tokio::test]
async fn preview_takes_the_child_away_and_writes_no_scale() {
    let memory = Memory::default();
    memory.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
    memory.state().millicores = 350;
    let mut world = World::new(memory);
    world.sync(0).await;
    world.memory.edit("web", |ehpa| {
        ehpa.spec.scale_strategy = Some(foretide_crds::ScaleStrategy::Preview);
    });
    let writes = world.sync(1).await;
    assert_eq!(
        writes,
        ["delete hpa ehpa-web", "event web HPARemoved", "status web"]
    );
    let writes = [world.sync(16).await, world.sync(31).await].concat();
    assert_eq!(writes, Vec::<String>::new());
}

#[tokio::test]
async fn a_child_is_not_given_the_metrics_of_a_spec_that_cannot_be_acted_on() {
    let memory = Memory::default();
    memory.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
    memory.state().millicores = 150;
    let mut world = World::new(memory);
    world.sync(0).await;
    world.memory.edit("web", |ehpa| {
        let nonsense = serde_json::json!({"type": "Resource", "resource": 7});
        ehpa.spec.metrics = Some(vec![foretide_crds::Passthrough::from_raw(nonsense)]);
    });
    let writes = [world.sync(15).await, world.sync(30).await].concat();
    assert_eq!(writes, ["event web InvalidSpec", "status web"]);
}
