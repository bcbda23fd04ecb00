//! Deleted fleets whose members are not known.

use std::{future::pending, sync::atomic::Ordering, time::Duration};

use jiff::SignedDuration;

use super::{World, delete, weighted};
use crate::fake_cluster::run_to;

/// Virtual time in which the loop turns at least once.
const TURN: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_deleted_fleet_is_released_although_its_members_were_never_listed() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    delete(&world);
    // A restart without the permission to read the Secrets of members.
    world.members.is_unlisted.store(true, Ordering::Release);
    world.restart();
    let World {
        hub,
        clock,
        start,
        controller,
        ..
    } = world;
    tokio::spawn(controller.run(pending()));
    for (second, left) in [(10, 1), (250, 1), (320, 0)] {
        run_to(&clock, start + SignedDuration::from_secs(second));
        // After a pause the loop waits for two seconds.
        tokio::time::sleep(TURN * 3).await;
        assert_eq!(hub.state().federated.len(), left, "after {second} s");
    }
    let writes = hub.writes();
    assert!(
        writes.contains(&"event web LeftBehind".to_owned()),
        "{writes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_is_deleted_while_its_sync_runs_leaves_no_hpa() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    // The next sync waits for metrics, and then creates what is missing in m2.
    world.member("m2").state().hpas.clear();
    world.member("m1").state().metrics_hang = true;
    let shared = (&world.forecasts, &world.telemetry);
    let successor = World::controller(&world.hub, &world.members, &world.clock, shared);
    tokio::spawn(successor.run(pending()));
    tokio::time::sleep(TURN / 2).await;
    delete(&world);
    // Before the search for HPAs of deleted fleets, which runs once a minute.
    for second in [20, 40, 50] {
        let now = world.start + SignedDuration::from_secs(second);
        run_to(&world.clock, now);
        // The first time while the sync still waits.
        tokio::time::sleep(if second == 20 { TURN / 4 } else { TURN * 5 }).await;
    }
    assert!(world.hub.state().federated.is_empty());
    assert!(world.bounds().is_empty(), "{:?}", world.bounds());
}
