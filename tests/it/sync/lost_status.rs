//! A status that another writer removes or changes is written again, and no more often than once per minute.

use foretide_crds::EffectiveHorizontalPodAutoscalerStatus as Status;

use super::{CPU, World};
use crate::fake_cluster::FakeCluster;

/// A settled autoscaler, after ten minutes.
async fn settled() -> World {
    let fake = FakeCluster::default();
    fake.put("web", 3, &format!("minReplicas: 1, maxReplicas: 10, {CPU}"));
    fake.state().millicores = 300;
    let mut world = World::new(fake);
    world.sync(0).await;
    for pass in 1..=40 {
        assert_eq!(world.sync(pass * 15).await, Vec::<String>::new());
    }
    world
}

/// The seconds from 600 on at which the status is written, while `change` is made to it before each sync.
async fn writes(
    world: &mut World,
    seconds: i64,
    change: impl Fn(i64, &mut Option<Status>),
) -> Vec<i64> {
    let mut written = Vec::new();
    for second in (0..seconds).step_by(15) {
        if let Some(ehpa) = world.fake.state().autoscalers.get_mut("web") {
            change(second, &mut ehpa.status);
        }
        let writes = world.sync(615 + second).await;
        if writes.contains(&"status web".to_owned()) {
            written.push(second);
        }
    }
    written
}

/// The count and the conditions that the status has.
fn gist(world: &World) -> (Option<i32>, Vec<(String, String)>) {
    let status = world.fake.status("web");
    let conditions = status.conditions.into_iter().flatten();
    let conditions = conditions.map(|condition| (condition.type_, condition.status));
    (status.expect_replicas, conditions.collect())
}

#[tokio::test]
async fn a_status_that_was_removed_or_changed_is_written_again_after_a_minute() {
    let removed = |status: &mut Option<Status>| *status = None;
    let changed = |status: &mut Option<Status>| {
        status.as_mut().unwrap().expect_replicas = Some(99);
    };
    for change in [removed, changed] {
        let mut world = settled().await;
        let before = gist(&world);
        let once = |second, status: &mut Option<Status>| {
            if second == 30 {
                change(status);
            }
        };
        assert_eq!(writes(&mut world, 3_600, once).await, [90]);
        assert_eq!(gist(&world), before);
    }
}

#[tokio::test]
async fn a_writer_that_removes_the_status_again_and_again_is_answered_ever_less_often() {
    let mut world = settled().await;
    let written = writes(&mut world, 3 * 3_600, |_, status| *status = None).await;
    assert_eq!(written, [60, 195, 450, 945, 1920, 3855, 7710]);
}
