//! The origin of a scale to zero outlives the controller: a workload that an autoscaler put to sleep wakes, and one
//! that a user scaled to zero stays paused.

use serde_json::json;

use super::World;
use crate::fake_cluster::FakeCluster;

const QUEUE: &str = "metrics: [{type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 5}}}]";
/// Second at which a queue that has been empty since the start lets the count fall.
const ASLEEP: i64 = 330;

/// A workload of two with a queue of this many messages.
fn world(spec: &str, queue: i64) -> World {
    let fake = FakeCluster::default();
    fake.put("web", 2, &format!("maxReplicas: 10, {spec}, {QUEUE}"));
    fake.state().external = Some(queue * 1_000);
    World::new(fake)
}

fn scale(world: &World, count: u32) {
    world.fake.state().replicas.insert("web".into(), count);
}

fn count(world: &World) -> u32 {
    world.fake.state().replicas["web"]
}

/// Syncs every 15 s until a second, with or without a restart before each sync.
async fn run(world: &mut World, from: i64, until: i64, restarts: bool) {
    for second in (from..=until).step_by(15) {
        if restarts {
            world.restart();
        }
        world.sync(second).await;
    }
}

#[tokio::test]
async fn what_was_put_to_sleep_wakes_after_restarts_and_what_a_user_scaled_to_zero_does_not() {
    for by_user in [false, true] {
        let mut world = world("minReplicas: 0", 0);
        if by_user {
            world.fake.state().external = Some(10_000);
        }
        run(&mut world, 0, ASLEEP, false).await;
        if by_user {
            assert_eq!(count(&world), 2);
            scale(&world, 0);
        }
        assert_eq!(count(&world), 0);
        run(&mut world, ASLEEP + 15, ASLEEP + 60, true).await;
        assert_eq!(count(&world), 0);
        world.fake.state().external = Some(20_000);
        run(&mut world, ASLEEP + 75, ASLEEP + 105, true).await;
        assert_eq!(count(&world), if by_user { 0 } else { 4 }, "{by_user}");
    }
}

#[tokio::test]
async fn a_user_who_scales_what_slept_up_and_down_again_pauses_it() {
    let mut world = world("minReplicas: 0", 0);
    run(&mut world, 0, ASLEEP, false).await;
    world.fake.state().external = Some(20_000);
    scale(&world, 1);
    run(&mut world, ASLEEP + 15, ASLEEP + 30, false).await;
    scale(&world, 0);
    run(&mut world, ASLEEP + 45, ASLEEP + 75, true).await;
    assert_eq!(count(&world), 0);
}

#[tokio::test]
async fn a_controller_that_ends_right_after_it_scaled_to_zero_leaves_a_workload_that_wakes() {
    let mut world = world("minReplicas: 0", 0);
    let mut before = None;
    for second in (0..=ASLEEP).step_by(15) {
        if count(&world) > 0 {
            before = Some(world.fake.status("web"));
        }
        world.sync(second).await;
    }
    assert_eq!(count(&world), 0);
    // The status of that sync was not written.
    world.fake.edit("web", |ehpa| ehpa.status = before);
    world.fake.state().external = Some(20_000);
    run(&mut world, ASLEEP + 15, ASLEEP + 30, true).await;
    assert_eq!(count(&world), 4);
}

#[tokio::test]
async fn a_copy_of_the_scale_from_before_the_zero_does_not_make_it_a_pause() {
    let mut world = world("minReplicas: 0", 0);
    run(&mut world, 0, ASLEEP, false).await;
    world.restart();
    for (second, copy, queue) in [(15, 1, 5), (30, 1, 5), (45, 0, 20)] {
        scale(&world, copy);
        world.fake.state().external = Some(queue * 1_000);
        world.sync(ASLEEP + second).await;
    }
    assert_eq!(count(&world), 4);
}

#[tokio::test]
async fn an_hpa_that_says_it_scaled_to_zero_leaves_a_workload_that_wakes() {
    for (says, spec, desired) in [
        ("True", "minReplicas: 0, scaleStrategy: Preview", 4),
        ("False", "minReplicas: 0, scaleStrategy: Preview", 0),
        ("True", "minReplicas: 2, scaleStrategy: Preview", 4),
        ("False", "minReplicas: 2, scaleStrategy: Preview", 0),
        ("True", "minReplicas: 0", 4),
        ("True", "minReplicas: 2", 4),
    ] {
        let mut world = world(spec, 20);
        scale(&world, 0);
        let manifest = json!({
            "metadata": {"namespace": "shop", "name": "theirs"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 0, "maxReplicas": 10},
        });
        let mut hpa = world.fake.state().accept_hpa(&manifest).unwrap();
        hpa.status = json!({"conditions": [{"type": "ScaledToZero", "status": says}]});
        world.fake.state().hpas.insert("theirs".into(), hpa);
        world.sync(0).await;
        let shown = world.fake.status("web").expect_replicas;
        assert_eq!(shown, Some(desired), "{says} {spec}");
        assert_eq!(count(&world), 0, "it is theirs");
        // The owner follows the advice and deletes it, while no controller runs.
        world.fake.state().hpas.remove("theirs");
        run(&mut world, 15, 30, true).await;
        let is_acting = !spec.contains("Preview");
        assert_eq!(
            count(&world),
            if is_acting { 4 } else { 0 },
            "{says} {spec}"
        );
    }
}
