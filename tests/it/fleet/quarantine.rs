//! A fleet whose sync panicked waits, although its members change meanwhile.

use std::{future::pending, time::Duration};

use jiff::SignedDuration;

use super::{World, weighted};
use crate::fake_cluster::run_to;

#[tokio::test(start_paused = true)]
async fn a_change_of_a_member_ends_no_quarantine() {
    let world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    let shared = (&world.forecasts, &world.telemetry);
    let controller = World::controller(&world.hub, &world.members, &world.clock, shared);
    let poison = |is_there| {
        for name in ["m1", "m2"] {
            world.member(name).state().poisons_writes = is_there;
        }
    };
    poison(true);
    tokio::spawn(controller.run(pending()));
    let at = |second| {
        run_to(
            &world.clock,
            world.start + SignedDuration::from_secs(second),
        );
        // Virtual time in which the loop turns several times.
        tokio::time::sleep(Duration::from_secs(5))
    };
    // The first turn reads the identity of the hub.
    at(0).await;
    at(1).await;
    assert_eq!(world.condition("Ready").1, "InternalError");
    poison(false);
    world.members.changes.notify_one();
    at(2).await;
    assert_eq!(
        world.condition("Ready").1,
        "InternalError",
        "it waits for half a minute"
    );
    at(40).await;
    assert_eq!(world.condition("Ready").0, "True");
}
