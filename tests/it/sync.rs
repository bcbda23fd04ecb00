//! Syncs of single autoscalers over a fake cluster, and their writes.
//!
//! The fake cluster keeps objects and counts writes. `tests/cluster` covers the same behavior on a real control plane.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use foretide_base::{
    clock::Clock,
    leadership::{Leadership, Token},
    telemetry::Telemetry,
};
use foretide_controller::{
    EffectiveController, Shared,
    forecaster::{SeriesKey, forecasts::Forecasts},
};
use foretide_crds::EffectiveHorizontalPodAutoscalerSpec as Spec;
use foretide_domain::{cron::Zone, lead_time::LeadTime};
use foretide_models::Forecast;
use jiff::{SignedDuration, Timestamp};

use crate::fake_cluster::{FakeCluster, run_to, setup, targets};

mod asleep;
mod changes;
mod clock;
mod forecasts;
mod isolation;
mod keda;
mod lost_status;
mod metric_mode;
mod page;
mod stale_copies;
mod stored_status;

const CPU: &str = "metrics: [{type: Resource, resource: {name: cpu, target: \
                   {type: Utilization, averageUtilization: 50}}}]";

/// An autoscaler over a fake cluster, under a clock that the test sets.
struct World {
    fake: FakeCluster,
    clock: Clock,
    start: Timestamp,
    controller: EffectiveController<FakeCluster>,
}

impl World {
    fn new(fake: FakeCluster) -> Self {
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        let clock = Clock::standing_at(start);
        Self {
            controller: Self::controller(&fake, &clock, &Arc::default()),
            fake,
            clock,
            start,
        }
    }

    fn controller(
        fake: &FakeCluster,
        clock: &Clock,
        forecasts: &Arc<Forecasts>,
    ) -> EffectiveController<FakeCluster> {
        let shared = Shared {
            page: Arc::default(),
            forecasts: Arc::clone(forecasts),
            telemetry: Arc::<Telemetry>::default(),
        };
        Self::controller_of(fake, clock, shared)
    }

    /// Replaces the controller by one that knows only the stored state.
    fn restart(&mut self) {
        self.controller = Self::controller(&self.fake, &self.clock, &Arc::default());
    }

    fn controller_of(
        fake: &FakeCluster,
        clock: &Clock,
        shared: Shared,
    ) -> EffectiveController<FakeCluster> {
        let setup = setup(targets());
        EffectiveController::new(Arc::new(fake.clone()), clock.clone(), setup, shared)
    }

    /// Runs one sync at this second after the start, and returns what it wrote.
    async fn sync(&mut self, second: i64) -> Vec<String> {
        let now = self.start + SignedDuration::from_secs(second);
        run_to(&self.clock, now);
        self.fake.state().now = now;
        self.controller.sync().await;
        self.fake.writes()
    }
}

/// Sets the cpu forecast of all of `web` to this many cores from now on; without a number there is none.
fn predict(forecasts: &Forecasts, start: Timestamp, cores: Option<f64>) {
    let key = SeriesKey {
        uid: "uid-web".to_owned(),
        metric: "resource.cpu".to_owned(),
    };
    match cores {
        None => forecasts.retain(|known| *known != key),
        Some(cores) => {
            let (minute, points) = (SignedDuration::from_mins(1), vec![cores; 24 * 60]);
            let forecast = Forecast::new("test", start, minute, points, Timestamp::MAX);
            forecasts.replace(key, forecast.unwrap(), LeadTime::of(None, None));
        }
    }
}

#[tokio::test]
async fn a_missing_target_does_not_affect_other_autoscalers() {
    let fake = FakeCluster::default();
    fake.put("lost", 1, &format!("maxReplicas: 10, {CPU}"));
    fake.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    fake.state().replicas.remove("lost");
    fake.state().millicores = 350;
    let mut world = World::new(fake);
    let writes = world.sync(0).await;
    assert!(writes.contains(&"scale web 4".to_owned()), "{writes:?}");
    assert_eq!(
        world.fake.ready("lost"),
        ("False".into(), "FailedGetScale".into())
    );
    let again = world.sync(15).await;
    assert!(
        again.iter().all(|write| !write.contains("lost")),
        "{again:?}"
    );
}

#[tokio::test]
async fn an_invalid_spec_leaves_the_last_valid_spec_in_effect() {
    let fake = FakeCluster::default();
    fake.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    fake.state().millicores = 150;
    let mut world = World::new(fake);
    world.sync(0).await;
    world
        .fake
        .edit("web", |ehpa| ehpa.spec.min_replicas = Some(20));
    world.fake.state().millicores = 350;
    let writes = world.sync(15).await;
    assert!(writes.contains(&"scale web 4".to_owned()), "{writes:?}");
    assert!(
        writes.contains(&"event web InvalidSpec".to_owned()),
        "{writes:?}"
    );
    assert_eq!(
        world.fake.ready("web"),
        ("False".into(), "InvalidSpec".into())
    );
    world.sync(30).await;
    for pass in 3..6 {
        let writes = world.sync(pass * 15).await;
        assert_eq!(writes, Vec::<String>::new(), "pass {pass}");
    }
}

#[tokio::test]
async fn an_invalid_spec_creates_and_changes_no_child() {
    let bounds = |spec: &mut Spec| {
        spec.min_replicas = Some(20);
        spec.scale_target_ref.name = "other".into();
    };
    let metrics = |spec: &mut Spec| {
        let nonsense = serde_json::json!({"type": "Resource", "resource": 7});
        spec.metrics = Some(vec![foretide_crds::Passthrough::from_raw(nonsense)]);
    };
    for mistake in [bounds, metrics] {
        let fake = FakeCluster::default();
        fake.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
        fake.state().millicores = 150;
        let mut world = World::new(fake);
        world.sync(0).await;
        world.fake.edit("web", |ehpa| mistake(&mut ehpa.spec));
        let writes = [world.sync(15).await, world.sync(30).await].concat();
        assert_eq!(writes, ["event web InvalidSpec", "status web"]);
    }
}

#[tokio::test]
async fn an_unknown_field_stops_nothing_that_runs() {
    const CRONS: &str =
        "crons: [{name: all-day, start: '0 0 * * *', end: '59 23 * * *', targetReplicas: 8}]";
    let unknown = |spec: &mut Spec| {
        let behavior = serde_json::json!({"scaleDown": {"stabilisationWindowSeconds": 900}});
        spec.behavior = Some(foretide_crds::Passthrough::from_raw(behavior));
    };
    for mode in [
        "mode: Delegated",
        "mode: Direct",
        "mode: Metric",
        "scaleStrategy: Preview",
    ] {
        let fake = FakeCluster::default();
        fake.put(
            "web",
            8,
            &format!("{mode}, maxReplicas: 10, {CPU}, {CRONS}"),
        );
        fake.state().millicores = 800;
        let mut world = World::new(fake);
        world.sync(0).await;
        world.fake.edit("web", |ehpa| unknown(&mut ehpa.spec));
        let refused = ["event web InvalidSpec", "status web"];
        assert_eq!(world.sync(30).await, refused, "{mode}");
        let hpas = world.fake.state().hpas.clone();
        // A restarted controller knows no valid spec, and leaves everything as it is.
        world.restart();
        let writes = world.sync(60).await;
        assert!(
            writes.iter().all(|write| write == "status web"),
            "{writes:?}"
        );
        assert_eq!(world.fake.state().hpas, hpas);
        let conditions = world.fake.status("web").conditions.unwrap();
        let expected = "spec.behavior.scaleDown.stabilisationWindowSeconds is no field of autoscaling/v2, expected policies, \
                        selectPolicy, stabilizationWindowSeconds, tolerance (did you mean stabilizationWindowSeconds?); ";
        assert!(
            conditions[0].message.starts_with(expected),
            "{conditions:?}"
        );
    }
}

#[tokio::test]
async fn a_refused_write_emits_one_event_and_is_retried_at_the_next_sync() {
    let fake = FakeCluster::default();
    fake.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    fake.state().millicores = 350;
    fake.state().refuses = true;
    let mut world = World::new(fake);
    let writes = world.sync(0).await;
    assert_eq!(writes, ["event web FailedUpdateScale", "status web"]);
    let syncs = [2, 15, 30, 45];
    for second in syncs {
        let writes = world.sync(second).await;
        assert_eq!(writes, Vec::<String>::new(), "second {second}");
    }
    world.fake.state().refuses = false;
    let writes = world.sync(60).await;
    assert_eq!(writes, ["scale web 4", "event web Scaled", "status web"]);
}

#[tokio::test]
async fn a_foreign_hpa_with_the_name_of_the_child_is_not_written() {
    let fake = FakeCluster::default();
    fake.put("api", 2, &format!("maxReplicas: 10, {CPU}"));
    let mut world = World::new(fake);
    world.sync(0).await;
    let mut foreign = world.fake.state().hpas.remove("ehpa-api").unwrap();
    (foreign.name, foreign.controller) = ("ehpa-web".into(), None);
    foreign.target.name = "other".into();
    world.fake.state().hpas.insert("ehpa-web".into(), foreign);
    world.fake.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
    let writes = world.sync(1).await;
    assert_eq!(writes, ["event web FailedReconcileHPA", "status web"]);
}

#[tokio::test]
async fn a_target_without_a_selector_is_not_scaled_by_pods_of_other_workloads() {
    let fake = FakeCluster::default();
    fake.put("web", 8, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    fake.state().millicores = 100;
    fake.state().unselective = true;
    let mut world = World::new(fake);
    world.sync(0).await;
    let decision = world.fake.status("web").decision.unwrap();
    assert_eq!(decision.desired, Some(8));
    assert_eq!(
        decision.proposals.unwrap()[0].reason.as_deref(),
        Some("NoPods")
    );
}

#[tokio::test]
async fn an_object_whose_writes_conflict_again_and_again_is_decided_less_and_less_often() {
    let fake = FakeCluster::default();
    fake.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    fake.state().millicores = 350;
    let mut world = World::new(fake.clone());
    // The regular times are those of the end of each list; the success between the two starts anew.
    for (seconds, expected) in [
        (0..60, [0, 1, 3, 7, 9, 24, 39, 54].as_slice()),
        (70..130, [84, 85, 87, 91, 99, 114, 129].as_slice()),
    ] {
        fake.state().replicas.insert("web".into(), 2);
        fake.state().conflicts = 1_000;
        let mut attempts = Vec::new();
        for second in seconds {
            let left = fake.state().conflicts;
            world.sync(second).await;
            if fake.state().conflicts < left {
                attempts.push(second);
            }
        }
        assert_eq!(attempts, expected);
        fake.state().conflicts = 0;
        let last = expected.last().unwrap();
        let writes = world.sync(last + 15).await;
        assert!(writes.contains(&"scale web 4".to_owned()), "{writes:?}");
    }
}

#[tokio::test]
async fn a_restarted_controller_does_not_scale_down_without_enough_observations() {
    let fake = FakeCluster::default();
    fake.put("web", 8, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    fake.state().millicores = 800;
    let mut world = World::new(fake.clone());
    world.sync(0).await;
    fake.state().millicores = 100;
    let mut world = World {
        controller: World::controller(&fake, &world.clock, &Arc::default()),
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
async fn the_count_of_a_forecast_stays_with_a_new_leader_and_over_a_restart() {
    for has_forecasts in [true, false] {
        let fake = FakeCluster::default();
        let spec = format!("mode: Direct, maxReplicas: 20, {CPU}, prediction: {{}}");
        fake.put("web", 8, &spec);
        fake.state().millicores = 100;
        let (mut world, forecasts) = (World::new(fake.clone()), Arc::default());
        let started = |clock: &Clock| World::controller(&fake, clock, &forecasts);
        world.controller = started(&world.clock);
        // 10 replicas; 10.9 alone would be 11, but are not a tenth more.
        for (second, cores) in [(0, 1.0), (15, 1.09)] {
            predict(&forecasts, world.start, Some(cores));
            world.sync(second).await;
        }
        world.controller = started(&world.clock);
        predict(
            &forecasts,
            world.start,
            Some(1.09).filter(|_| has_forecasts),
        );
        world.sync(30).await;
        predict(&forecasts, world.start, Some(1.09));
        for second in [45, 60] {
            world.sync(second).await;
            let replicas = world.fake.state().replicas["web"];
            assert_eq!(replicas, 10, "{second}, {has_forecasts}");
        }
    }
}

#[tokio::test]
async fn samples_that_are_too_old_scale_nothing_down_and_the_status_names_their_age() {
    let fake = FakeCluster::default();
    fake.put("web", 8, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    fake.state().millicores = 100;
    fake.state().stale_for = Some(SignedDuration::from_secs(620));
    let mut world = World::new(fake);
    for pass in 0..40 {
        world.sync(pass * 15).await;
        assert_eq!(world.fake.state().replicas["web"], 8, "{pass}");
    }
    let status = world.fake.status("web");
    let proposal = &status.decision.unwrap().proposals.unwrap()[0];
    assert_eq!(proposal.reason.as_deref(), Some("StaleSamples"));
    let conditions = status.conditions.unwrap();
    let active = conditions
        .iter()
        .find(|c| c.type_ == "ScalingActive")
        .unwrap();
    assert_eq!(active.reason, "FailedGetResourceMetric");
    assert!(
        active.message.contains("is 10m 20s old"),
        "{}",
        active.message
    );
    world.fake.state().stale_for = None;
    world.sync(615).await;
    world.sync(630).await;
    assert_eq!(world.fake.state().replicas["web"], 1);
}

#[tokio::test]
async fn a_writer_that_keeps_changing_the_replicas_is_reported_once_and_not_fought() {
    let fake = FakeCluster::default();
    fake.put("web", 4, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    fake.state().millicores = 400;
    let mut world = World::new(fake);
    let mut written = Vec::new();
    let mut events = 0;
    for second in (0..600).step_by(15) {
        if second > 0 {
            // Another writer wants two.
            world.fake.state().replicas.insert("web".into(), 2);
        }
        let writes = world.sync(second).await;
        let is_scale = writes.iter().any(|write| write.starts_with("scale"));
        written.extend(is_scale.then_some(second));
        let warned = |write: &&String| *write == "event web ExternalWriter";
        events += writes.iter().filter(warned).count();
    }
    // At first each change is undone by the decision; from the third one on, one write per minute.
    assert_eq!(written[..4], [15, 30, 90, 150], "{written:?}");
    assert!(written.windows(2).skip(1).all(|two| two[1] - two[0] >= 60));
    assert_eq!(events, 1);
    let ready = world.fake.ready("web");
    assert_eq!(ready, ("False".to_owned(), "ExternalWriter".to_owned()));
    // After the writer has stopped, its last change is forgotten after ten minutes.
    for second in (600..1_300).step_by(15) {
        world.sync(second).await;
    }
    assert_eq!(world.fake.ready("web").0, "True");
    assert_eq!(world.fake.state().replicas["web"], 4);
}

#[tokio::test]
async fn a_count_below_the_minimum_is_written_at_every_sync_whoever_lowers_it() {
    let fake = FakeCluster::default();
    fake.put(
        "web",
        4,
        &format!("mode: Direct, minReplicas: 3, maxReplicas: 10, {CPU}"),
    );
    fake.state().millicores = 400;
    let mut world = World::new(fake);
    for (second, lowered) in (0..600).step_by(15).zip([1, 2, 0].into_iter().cycle()) {
        world.fake.state().replicas.insert("web".into(), lowered);
        world.sync(second).await;
        let count = world.fake.state().replicas["web"];
        // A user's pause is left alone.
        let expected = if lowered == 0 { 0..1 } else { 3..11 };
        assert!(expected.contains(&count), "{count} at {second}");
    }
    let conditions = world.fake.status("web").conditions.unwrap();
    let ready = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    assert_eq!(ready.reason, "ExternalWriter");
    assert!(
        ready.message.contains("set-last-applied"),
        "{}",
        ready.message
    );
}

#[tokio::test]
async fn an_autoscaler_that_cannot_be_decoded_keeps_its_state_and_its_adopted_hpa() {
    let fake = FakeCluster::default();
    fake.put("web", 2, &format!("mode: Direct, maxReplicas: 10, {CPU}"));
    fake.put("api", 2, &format!("maxReplicas: 10, {CPU}"));
    fake.state().millicores = 100;
    let mut world = World::new(fake);
    world.sync(0).await;
    {
        let mut state = world.fake.state();
        let mut adopted = state.hpas["ehpa-api"].clone();
        adopted.controller = None;
        adopted.name = "theirs".into();
        adopted.target.name = "web".into();
        adopted.annotations = serde_json::json!({
            "autoscaling.foretide.io/adopted-by": "uid-web",
            "autoscaling.foretide.io/original-spec": "{\"maxReplicas\":30}",
        });
        state.hpas.insert("theirs".into(), adopted);
        state.undecoded.insert("uid-web".into());
    }
    for pass in 1..4 {
        let writes = world.sync(pass * 15).await;
        assert_eq!(writes, Vec::<String>::new(), "pass {pass}");
    }
    world.fake.state().hpas.remove("theirs");
    world.fake.state().undecoded.clear();
    world.fake.edit("web", |ehpa| {
        let nonsense = serde_json::json!({"type": "Resource", "resource": 7});
        ehpa.spec.metrics = Some(vec![foretide_crds::Passthrough::from_raw(nonsense)]);
    });
    world.fake.state().millicores = 400;
    let writes = world.sync(60).await;
    // By the last valid spec, which is still known.
    assert!(writes.contains(&"scale web 4".to_owned()), "{writes:?}");
}

#[tokio::test]
async fn nothing_is_scaled_in_a_denied_namespace() {
    let fake = FakeCluster::default();
    fake.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
    fake.state().millicores = 400;
    fake.edit("web", |ehpa| {
        ehpa.metadata.namespace = Some("kube-system".into());
    });
    let mut world = World::new(fake);
    let writes = [world.sync(0).await, world.sync(15).await].concat();
    assert_eq!(writes, ["event web InvalidSpec", "status web"]);
    let conditions = world.fake.status("web").conditions.unwrap();
    assert_eq!(
        conditions[0].message,
        "metadata.namespace is kube-system, expected a namespace in which the controller scales: it does not in its \
         own and in those of --deny-target-namespaces; not reconciled until the spec is fixed"
    );
}

#[tokio::test]
async fn only_kinds_of_the_flag_are_scaled() {
    let fake = FakeCluster::default();
    fake.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
    fake.put("api", 2, &format!("maxReplicas: 10, {CPU}"));
    fake.state().millicores = 400;
    fake.edit("web", |ehpa| {
        ehpa.spec.scale_target_ref.api_version = Some("argoproj.io/v1alpha1".into());
        ehpa.spec.scale_target_ref.kind = "Rollout".into();
    });
    let mut world = World::new(fake);
    let writes = [world.sync(0).await, world.sync(15).await].concat();
    let of_web: Vec<_> = writes.iter().filter(|it| it.contains("web")).collect();
    assert_eq!(of_web, ["event web InvalidSpec", "status web"]);
    let of_web = ("False".into(), "InvalidSpec".into());
    assert_eq!(world.fake.ready("web"), of_web);
    let conditions = world.fake.status("web").conditions.unwrap();
    assert_eq!(
        conditions[0].message,
        "spec.scaleTargetRef is Rollout.argoproj.io, expected a kind of --allow-target-kinds: Deployment.apps; not \
         reconciled until the spec is fixed"
    );
    assert_eq!(world.fake.ready("api").0, "True");
}

#[tokio::test]
async fn preview_deletes_the_child_despite_its_annotations_and_writes_no_scale() {
    for annotations in [
        serde_json::json!({}),
        serde_json::json!({"autoscaling.foretide.io/adopted-by": "nobody"}),
    ] {
        let fake = FakeCluster::default();
        fake.put("web", 2, &format!("maxReplicas: 10, {CPU}"));
        fake.state().millicores = 350;
        let mut world = World::new(fake);
        world.sync(0).await;
        let annotate = |hpas: &mut std::collections::BTreeMap<_, foretide_api::ports::HpaView>| {
            hpas.get_mut("ehpa-web").unwrap().annotations = annotations;
        };
        annotate(&mut world.fake.state().hpas);
        world.fake.edit("web", |ehpa| {
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

#[tokio::test(start_paused = true)]
async fn a_standby_writes_nothing_until_it_leads_and_then_continues_from_the_status() {
    let fake = FakeCluster::default();
    let spec = format!("mode: Direct, minReplicas: 1, maxReplicas: 10, {CPU}");
    fake.put("web", 2, &spec);
    fake.state().millicores = 350;
    let world = World::new(fake.clone());
    let leadership = Leadership::standby(world.clock.clone());
    let telemetry = Arc::<Telemetry>::default();
    let shared = Shared {
        page: Arc::default(),
        forecasts: Arc::default(),
        telemetry: Arc::clone(&telemetry),
    };
    let setup = setup(Arc::default());
    // A clock that runs, for the loop; the token is of one that stands.
    let clock = Clock::simulated(world.start);
    let controller = EffectiveController::new(Arc::new(fake.clone()), clock.clone(), setup, shared);
    let running = tokio::spawn(
        controller
            .led_by(leadership.clone())
            .run(std::future::pending()),
    );
    let minute = Duration::from_mins(1);
    tokio::time::sleep(minute).await;
    assert_eq!(fake.writes(), Vec::<String>::new());
    assert_eq!(fake.state().calls, 0);
    assert!(telemetry.is_ready());

    let lasts = |seconds| {
        let valid_until = world.clock.monotonic() + Duration::from_secs(seconds);
        Some(Token {
            epoch: 1,
            valid_until,
        })
    };
    // Too short for a write.
    leadership.set(lasts(4));
    tokio::time::sleep(minute).await;
    assert_eq!(fake.writes(), Vec::<String>::new());
    fake.state().now = clock.now();
    leadership.set(lasts(10));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        fake.writes(),
        ["scale web 4", "event web Scaled", "status web"]
    );
    leadership.set(None);
    fake.state().millicores = 900;
    tokio::time::sleep(minute).await;
    assert_eq!(fake.writes(), Vec::<String>::new());
    running.abort();
}

#[tokio::test]
async fn a_new_leader_writes_no_status_only_to_say_that_it_leads() {
    let fake = FakeCluster::default();
    fake.put("web", 3, &format!("minReplicas: 1, maxReplicas: 10, {CPU}"));
    fake.state().millicores = 300;
    let mut world = World::new(fake.clone());
    world.sync(0).await;
    world.sync(15).await;
    for ehpa in fake.state().autoscalers.values_mut() {
        let decision = ehpa.status.as_mut().and_then(|it| it.decision.as_mut());
        decision.unwrap().leader_epoch = Some(3);
    }
    world.restart();
    let mut statuses = world.sync(30).await;
    statuses.retain(|write| write.starts_with("status"));
    assert_eq!(statuses, Vec::<String>::new());
}
