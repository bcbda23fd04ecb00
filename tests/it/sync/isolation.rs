//! One object that hangs or panics, or an API server that takes no reports, keeps no other object waiting.

use std::{collections::BTreeSet, future::pending, sync::Arc, time::Duration};

use foretide_base::clock::Clock;
use foretide_controller::Shared;
use jiff::{SignedDuration, Timestamp};

use super::{CPU, World};
use crate::fake_cluster::{FakeCluster, run_to};

/// Time limit of a test for an expected event, in virtual time.
const LIMIT: Duration = Duration::from_mins(1);

/// A controller that runs, under a clock that the test sets; needs paused time.
struct Running {
    fake: FakeCluster,
    clock: Clock,
    start: Timestamp,
}

impl Running {
    fn start(fake: FakeCluster) -> Self {
        Self::of(World::new(fake))
    }

    fn of(world: World) -> Self {
        let World {
            fake,
            clock,
            start,
            controller,
        } = world;
        fake.state().now = start;
        tokio::spawn(controller.run(pending()));
        Self { fake, clock, start }
    }

    /// Starts a controller whose metrics and page the test reads.
    fn observed(fake: FakeCluster) -> (Self, Shared) {
        let mut world = World::new(fake);
        let shared = Shared {
            page: Arc::default(),
            forecasts: Arc::default(),
            telemetry: Arc::default(),
        };
        world.controller = World::controller_of(&world.fake, &world.clock, shared.clone());
        (Self::of(world), shared)
    }

    /// Puts the clock at this second after the start.
    fn at(&self, second: i64) {
        let now = self.start + SignedDuration::from_secs(second);
        self.fake.state().now = now;
        run_to(&self.clock, now);
    }

    /// Waits until an object was written.
    async fn written(&self, write: &str) {
        self.written_within(LIMIT, write).await;
    }

    async fn written_within(&self, limit: Duration, write: &str) {
        let appears = async {
            while !self.fake.state().writes.iter().any(|known| known == write) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let appeared = tokio::time::timeout(limit, appears).await;
        assert!(
            appeared.is_ok(),
            "{write} in {:?}",
            self.fake.state().writes
        );
    }

    fn count(&self, write: &str) -> usize {
        let writes = &self.fake.state().writes;
        writes.iter().filter(|known| *known == write).count()
    }
}

/// An autoscaler in mode Direct whose cron window asks for this many replicas at any time.
fn always(replicas: u32) -> String {
    format!(
        "mode: Direct, minReplicas: 1, maxReplicas: 10, crons: \
         [{{name: always, start: '0 0 * * *', end: '59 23 * * *', targetReplicas: {replicas}, timezone: UTC}}]"
    )
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_target_hangs_delays_no_other() {
    let fake = FakeCluster::default();
    fake.put("stuck", 1, &always(3));
    fake.put("web", 1, &always(4));
    fake.state().hanging.insert("stuck".into());
    let world = Running::start(fake);
    world.written("scale web 4").await;
    // While the first sync of the one still runs, the other is synced again.
    world.fake.state().replicas.insert("web".into(), 2);
    world.fake.writes();
    world.at(20);
    world.written("scale web 4").await;
    world.fake.state().hanging.clear();
    assert_eq!(world.count("scale stuck 3"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cron_window_is_carried_out_while_metrics_hang() {
    let fake = FakeCluster::default();
    fake.put("web", 1, &format!("{}, {CPU}", always(4)));
    fake.state().metrics_hang = true;
    let world = Running::start(fake);
    world
        .written_within(Duration::from_secs(15), "scale web 4")
        .await;
}

#[tokio::test(start_paused = true)]
async fn reports_that_hang_delay_no_decision_and_the_last_status_wins() {
    let fake = FakeCluster::default();
    fake.put("web", 1, &always(4));
    fake.state().reports_hang = true;
    let world = Running::start(fake);
    world.written("scale web 4").await;
    for (turn, replicas) in [5, 6, 7].into_iter().enumerate() {
        world.fake.edit("web", |ehpa| {
            ehpa.spec.crons.as_mut().unwrap()[0].target_replicas = Some(replicas);
        });
        world.at(20 + 20 * i64::try_from(turn).unwrap());
        world.written(&format!("scale web {replicas}")).await;
    }
    assert_eq!(world.count("status web"), 0);
    world.fake.state().reports_hang = false;
    world.written("status web").await;
    let last = async {
        while world.fake.status("web").current_replicas != Some(7) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, last).await.is_ok());
    // The status that was being written, and the last of those that waited.
    assert_eq!(world.count("status web"), 2);
    assert_eq!(world.count("event web Scaled"), 4);
}

#[tokio::test(start_paused = true)]
async fn reports_that_hang_in_one_namespace_delay_those_of_no_other() {
    let fake = FakeCluster::default();
    let stuck: Vec<_> = (0..40).map(|n| format!("stuck-{n}")).collect();
    for name in &stuck {
        fake.put(name, 1, &always(3));
    }
    fake.put("web", 1, &always(4));
    fake.edit("web", |ehpa| ehpa.metadata.namespace = Some("bank".into()));
    fake.state().reports_hang_in = Some("shop".into());
    let world = Running::start(fake);
    for name in &stuck {
        world.written(&format!("scale {name} 3")).await;
    }
    // Statuses of the one namespace wait or hang now.
    world.fake.edit("web", |ehpa| {
        ehpa.spec.crons.as_mut().unwrap()[0].target_replicas = Some(5);
    });
    world.fake.writes();
    world.at(20);
    world.written("scale web 5").await;
    world
        .written_within(Duration::from_secs(1), "status web")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_quarantines_its_object_and_no_other() {
    let fake = FakeCluster::default();
    fake.put("bad", 1, &always(3));
    fake.put("web", 1, &always(4));
    fake.state().poison.insert("bad".into());
    let world = Running::start(fake);
    world.written("scale web 4").await;
    world.written("status bad").await;
    assert_eq!(
        world.fake.ready("bad"),
        ("False".to_owned(), "InternalError".to_owned())
    );
    // The object waits for half a minute, not for its regular time.
    world.fake.state().poison.clear();
    world.fake.state().replicas.insert("web".into(), 2);
    world.fake.writes();
    world.at(20);
    world.written("scale web 4").await;
    assert_eq!(world.count("scale bad 3"), 0);
    world.at(40);
    world.written("scale bad 3").await;
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_watches_deliver_before_anything_is_decided() {
    let fake = FakeCluster::default();
    fake.put("web", 4, &always(4));
    let world = Running::start(fake);
    world.written("status web").await;
    world.at(600);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Decisions are made from the present deliveries of the watches.
    world.fake.state().replicas.insert("web".into(), 1);
    let calls = world.fake.state().calls;
    world
        .written_within(Duration::from_secs(2), "scale web 4")
        .await;
    assert_eq!(world.fake.state().calls, calls + 2, "one read, one write");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_deleted_while_its_sync_runs_leaves_no_metric_series() {
    let fake = FakeCluster::default();
    fake.put("web", 1, &format!("{}, {CPU}", always(4)));
    fake.state().metrics_hang = true;
    let (world, Shared { telemetry, .. }) = Running::observed(fake);
    // The first sync waits for the metric.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.fake.state().autoscalers.clear();
    world.at(20);
    world.written("scale web 4").await;
    let series = r#"name="web""#;
    assert!(telemetry.encode().contains(series), "of the sync that ran");
    world.at(40);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        !telemetry.encode().contains(series),
        "{}",
        telemetry.encode()
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_deleted_while_its_sync_panics_leaves_no_metric_series() {
    let fake = FakeCluster::default();
    let delegated = always(4).replace("mode: Direct, ", "");
    fake.put("web", 1, &format!("{delegated}, {CPU}"));
    let (world, shared) = Running::observed(fake);
    world.written("status web").await;
    assert!(shared.telemetry.encode().contains(r#"name="web""#));
    // The next sync waits for the metric.
    world.fake.state().metrics_hang = true;
    world.at(20);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.fake.state().autoscalers.clear();
    world.fake.state().hpas.clear();
    world.fake.state().poisons_writes = true;
    tokio::time::sleep(LIMIT).await;
    let series = shared.telemetry.encode();
    assert!(
        series.contains("panics_total{kind=") && !series.contains(r#"name="web""#),
        "{series}"
    );
    assert_eq!(shared.page.namespaces(), BTreeSet::new());
}

#[tokio::test(start_paused = true)]
async fn an_object_created_again_under_its_name_keeps_its_series_and_its_page() {
    let fake = FakeCluster::default();
    fake.put("web", 1, &format!("{}, {CPU}", always(4)));
    fake.state().metrics_hang = true;
    let (world, shared) = Running::observed(fake);
    // The first sync waits for the metric.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.fake.state().metrics_hang = false;
    world
        .fake
        .edit("web", |ehpa| ehpa.metadata.uid = Some("uid-new".into()));
    world.at(20);
    tokio::time::sleep(LIMIT).await;
    world.at(22);
    tokio::time::sleep(LIMIT).await;
    // Another sync would bring back the forgotten series.
    world.fake.state().metrics_hang = true;
    world.at(40);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(shared.telemetry.encode().contains(r#"name="web""#));
    assert_eq!(
        shared.page.namespaces(),
        BTreeSet::from(["shop".to_owned()])
    );
}

#[tokio::test]
async fn an_orphan_that_cannot_be_restored_is_tried_again_after_five_minutes() {
    let fake = FakeCluster::default();
    fake.put("web", 1, &always(4));
    let mut world = World::new(fake);
    world.sync(0).await;
    world.fake.forge_adopted("forged");
    world.fake.state().refuses = true;
    let mut attempts = Vec::new();
    for turn in 1..30 {
        let writes = world.sync(turn * 15).await;
        if writes.contains(&"refused patch hpa forged".to_owned()) {
            attempts.push(turn * 15);
        }
    }
    assert_eq!(attempts, [15, 315]);
}
