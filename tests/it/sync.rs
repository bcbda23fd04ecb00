//! Syncs of single autoscalers over a fake cluster, and their writes.
//!
//! The fake cluster keeps objects and counts writes. What fails, and what the real client makes of it, is in `tests/sim`.

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
use foretide_domain::{cron::Zone, lead_time::LeadTime};
use foretide_models::Forecast;
use jiff::{SignedDuration, Timestamp};

use crate::fake_cluster::{FakeCluster, run_to, setup, targets};

mod asleep;
mod changes;
mod forecasts;
mod keda;
mod metric_mode;
mod page;
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

#[tokio::test(start_paused = true)]
async fn after_a_pause_watches_deliver_before_anything_is_decided() {
    let fake = FakeCluster::default();
    let spec = format!("mode: Direct, minReplicas: 4, maxReplicas: 10, {CPU}");
    fake.put("web", 4, &spec);
    fake.state().millicores = 400;
    let world = World::new(fake.clone());
    tokio::spawn(world.controller.run(std::future::pending()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    run_to(&world.clock, world.start + SignedDuration::from_mins(10));
    tokio::time::sleep(Duration::from_secs(1)).await;
    // What a watch shows only now.
    fake.state().replicas.insert("web".into(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fake.state().replicas["web"], 4);
}
