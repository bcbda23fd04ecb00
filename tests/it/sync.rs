//! Whole syncs over a cluster in memory: what is written, and what is not.
//!
//! The cluster here keeps objects and counts writes; that a real one answers alike is what
//! `tests/cluster` shows.

use std::sync::{Arc, Mutex};

use foretide::{
    clock::Clock,
    controller::{EffectiveController, Setup, Shared},
    domain::{cron::Zone, hpa::Settings},
    forecaster::forecasts::Forecasts,
    telemetry::Telemetry,
};
use jiff::{SignedDuration, Timestamp};

use crate::memory::Memory;

mod forecasts;

const CPU: &str = "metrics: [{type: Resource, resource: {name: cpu, target: \
                   {type: Utilization, averageUtilization: 50}}}]";

/// An autoscaler over a cluster in memory, under a clock that the test sets.
struct World {
    memory: Memory,
    clock: Clock,
    start: Timestamp,
    controller: EffectiveController<Memory>,
}

impl World {
    fn new(memory: Memory) -> Self {
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        let clock = Clock::starting_at(start, 1e-6);
        Self {
            controller: Self::controller(&memory, &clock, &Arc::default()),
            memory,
            clock,
            start,
        }
    }

    fn controller(
        memory: &Memory,
        clock: &Clock,
        forecasts: &Arc<Forecasts>,
    ) -> EffectiveController<Memory> {
        let setup = Setup {
            sync_period: SignedDuration::from_secs(15),
            local_zone: Zone::utc(),
            settings: Settings::default(),
            member_deadline: Setup::MEMBER_DEADLINE,
        };
        let shared = Shared {
            forecasts: Arc::clone(forecasts),
            telemetry: Arc::<Telemetry>::default(),
        };
        EffectiveController::new(Arc::new(memory.clone()), clock.clone(), setup, shared)
    }

    /// One sync at so many seconds after the start; returns what it wrote.
    async fn sync(&mut self, second: i64) -> Vec<String> {
        let now = self.start + SignedDuration::from_secs(second);
        self.clock.set(now, 1e-6);
        self.memory.state().now = now;
        self.controller.sync().await;
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
        controller: World::controller(&memory, &world.clock, &Arc::default()),
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
async fn preview_takes_the_child_away_whatever_is_written_on_it_and_writes_no_scale() {
    for annotations in [
        serde_json::json!({}),
        serde_json::json!({"autoscaling.foretide.io/adopted-by": "nobody"}),
    ] {
        let memory = Memory::default();
        memory.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
        memory.state().millicores = 350;
        let mut world = World::new(memory);
        world.sync(0).await;
        let annotate = |hpas: &mut std::collections::BTreeMap<_, foretide::ports::HpaView>| {
            hpas.get_mut("ehpa-web").unwrap().annotations = annotations;
        };
        annotate(&mut world.memory.state().hpas);
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
