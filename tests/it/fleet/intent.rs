//! The ledger is stored before members are written by it.

use std::{future::pending, time::Duration};

use super::{World, bounds, weighted};
use crate::fake_cluster::run_to;

/// Virtual time in which the loop turns at least once.
const TURN: Duration = Duration::from_secs(1);

/// Writes to the hub of the ledger and of whole statuses, in order.
fn statuses(world: &World) -> Vec<String> {
    let mut writes = world.hub.writes();
    writes.retain(|write| ["ledger web", "status web"].contains(&&**write));
    writes
}

/// Gives m1 and m2 the same weight.
fn weigh_equally(world: &World) {
    world.edit(|fdhpa| {
        let assignment = &mut fdhpa.spec.federated_hpa_assignment;
        let preferences = assignment.cluster_autoscaling_preference.iter_mut();
        for preference in preferences.flatten() {
            preference.static_weight = Some(1);
        }
    });
}

#[tokio::test(start_paused = true)]
async fn no_member_is_written_by_a_ledger_that_cannot_be_stored() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    let before = bounds(&[("m1", (1, 2)), ("m2", (2, 8))]);
    assert_eq!(world.bounds(), before);
    weigh_equally(&world);
    world.hub.state().refuses = true;
    let writes = world.sync(15).await;
    assert_eq!(world.bounds(), before);
    let failed = "hub: event web FailedReconcileHPA".to_owned();
    assert!(writes.contains(&failed), "{writes:?}");
    let ready = ("False".to_owned(), "FailedReconcileHPA".to_owned());
    assert_eq!(world.condition("Ready"), ready);
    world.hub.state().refuses = false;
    world.sync(30).await;
    assert_ne!(world.bounds(), before);
    assert_eq!(world.condition("Ready").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_ledger_is_stored_by_itself_only_where_members_are_written_by_it() {
    let of_hub = |mut writes: Vec<String>| {
        writes.retain(|write| ["hub: ledger web", "hub: status web"].contains(&&**write));
        writes
    };
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted("scaleStrategy: Preview"));
    assert_eq!(of_hub(world.sync(0).await), ["hub: status web"]);
    weigh_equally(&world);
    assert_eq!(of_hub(world.sync(15).await), ["hub: status web"]);
    world.edit(|fdhpa| fdhpa.spec.autoscaling.scale_strategy = None);
    let acting = of_hub(world.sync(30).await);
    assert_eq!(acting, ["hub: ledger web", "hub: status web"]);
    world.autoscale();
    for pass in 3..9 {
        world.sync(pass * 15).await;
    }
    // The bounds stay; the generation in the ledger is new.
    world.edit(|fdhpa| fdhpa.spec.rebalance = Some(foretide_crds::Rebalance::default()));
    assert_eq!(of_hub(world.sync(135).await), ["hub: status web"]);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_waits_is_not_written_over_a_newer_ledger() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    let shared = (&world.forecasts, &world.telemetry);
    let successor = World::controller(&world.hub, &world.members, &world.clock, shared);
    tokio::spawn(successor.run(pending()));
    let at = |second| {
        let now = world.start + jiff::SignedDuration::from_secs(second);
        run_to(&world.clock, now);
        tokio::time::sleep(TURN)
    };
    at(30).await;
    world.hub.state().reports_hang = true;
    statuses(&world);
    // One status is being written, and another one waits.
    for (second, name) in [(60, "m1"), (90, "m2")] {
        let fake = world.member(name);
        fake.state().problem = Some("credentials rejected".to_owned());
        fake.state().rejects_credentials = true;
        at(second).await;
    }
    weigh_equally(&world);
    at(120).await;
    assert_eq!(statuses(&world), [""; 0]);
    world.hub.state().reports_hang = false;
    at(121).await;
    let expected = ["status web", "ledger web", "status web"];
    assert_eq!(statuses(&world), expected);
    let ledger = world.status().ledger.unwrap();
    assert!(ledger.contains(r#""generation":2"#), "{ledger}");
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_panicked_is_followed_by_the_ledger_that_it_had_stored() {
    let ledger = |world: &World| -> serde_json::Value {
        serde_json::from_str(&world.status().ledger.unwrap()).unwrap()
    };
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    world.sync(0).await;
    weigh_equally(&world);
    // The watch shows neither the ledger nor the status that reports the panic.
    let late = world.hub.state().federated.clone();
    world.hub.state().late = Some(late);
    let poison = |world: &World, is_there| {
        for name in ["m1", "m2"] {
            world.member(name).state().poisons_writes = is_there;
        }
    };
    poison(&world, true);
    world.sync(15).await;
    assert_eq!(world.condition("Ready").1, "InternalError");
    let stored = ledger(&world);
    assert_eq!(stored["generation"], 2);
    let moved = |ledger: &serde_json::Value| ledger["members"]["m1"]["moved"].as_i64().unwrap();
    poison(&world, false);
    world.sync(60).await;
    assert_eq!(world.bounds()["m1"].1, 5);
    // The budget was not assigned again.
    assert_eq!(moved(&ledger(&world)), moved(&stored));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_another_writer_removed_is_stored_again_after_a_minute() {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(""));
    for pass in 0..4 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    let before = world.status().ledger.unwrap();
    if let Some(fdhpa) = world.hub.state().federated.get_mut("web") {
        fdhpa.status.as_mut().unwrap().ledger = None;
    }
    for (second, writes) in [(60, vec![]), (105, vec![]), (120, vec!["hub: status web"])] {
        assert_eq!(world.sync(second).await, writes, "{second}");
    }
    assert_eq!(world.status().ledger, Some(before));
    assert_eq!(world.sync(135).await, Vec::<String>::new());
}
