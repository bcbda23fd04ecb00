//! A member that is no longer registered is a member that does not answer; one that leaves on purpose gives up its share.

use super::*;

const SHARES: [(&str, (u64, u64)); 2] = [("m1", (1, 2)), ("m2", (2, 8))];

impl World {
    /// The Secret of a member is deleted, and the controller has no connection left.
    fn unregister(&self, name: &str) {
        self.members
            .unregistered
            .lock()
            .unwrap()
            .insert(name.to_owned());
    }

    fn register(&self, name: &str) {
        self.members.unregistered.lock().unwrap().remove(name);
    }

    fn leave(&self, name: &str) {
        self.members.leaving.lock().unwrap().insert(name.to_owned());
    }
}

/// The maxima of the members' HPAs. A controller that has just started may raise a minimum.
fn maxima(world: &World) -> Vec<u64> {
    world.bounds().values().map(|(_, max)| *max).collect()
}

/// A fleet whose budgets are assigned.
async fn settled(spec: &str) -> World {
    let mut world = World::new(&[("m1", 1), ("m2", 4)]);
    world.put(&weighted(spec));
    for pass in 0..3 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    assert_eq!(world.bounds(), bounds(&SHARES));
    world
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_not_registered_any_more_keeps_its_share_also_after_a_restart() {
    for restarts in [false, true] {
        let mut world = settled("").await;
        world.unregister("m2");
        if restarts {
            world.restart();
        }
        for pass in 3..60 {
            world.sync(pass * 15).await;
            world.autoscale();
            assert_eq!(maxima(&world), [2, 8], "restarts: {restarts}");
        }
        let row = world.cluster("m2");
        let expected = "Unknown: its Secret is missing; restore it, or remove the member with foretide members \
                        remove m2; its share and bounds stay unchanged";
        assert_eq!(row.reason.as_deref(), Some(expected));
        assert_eq!((row.min, row.max), (Some(2), Some(8)));
        assert_eq!(world.condition("MembersReachable").1, "Unreachable");
        world.register("m2");
        for pass in 60..70 {
            world.sync(pass * 15).await;
            world.autoscale();
            assert_eq!(maxima(&world), [2, 8], "restarts: {restarts}");
        }
        assert_eq!(world.condition("MembersReachable").1, "Reachable");
    }
}

#[tokio::test(start_paused = true)]
async fn the_share_of_a_member_that_is_not_registered_any_more_goes_to_others_after_the_toleration()
{
    for restarts in [false, true] {
        let mut world = settled("failurePolicy: Reassign, tolerationSeconds: 60").await;
        world.unregister("m2");
        if restarts {
            world.restart();
        }
        let mut moved = None;
        for pass in 3..20 {
            world.sync(pass * 15).await;
            let found = world.bounds();
            moved = moved.or((found["m1"] != (1, 2)).then_some(pass * 15));
        }
        // Missed first at 45 s, lost 40 s later, and tolerated for 60 s.
        assert_eq!(moved, Some(150), "restarts: {restarts}");
        assert_eq!(maxima(&world), [10, 8], "what runs in m2 goes on");
        assert!(world.cluster("m2").reason.unwrap().starts_with("Failed"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_which_no_member_is_registered_any_more_reports_each() {
    let mut world = settled("").await;
    world.unregister("m1");
    world.unregister("m2");
    world.restart();
    world.sync(45).await;
    assert_eq!(world.condition("Assigned").1, "Assigned");
    let found = ["m1", "m2"].map(|name| world.cluster(name).max);
    assert_eq!(found, [Some(2), Some(8)]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_leaves_is_drained_and_its_secret_can_then_be_deleted() {
    let mut world = settled("").await;
    world.leave("m2");
    for pass in 3..60 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    assert_eq!(world.bounds(), bounds(&[("m1", (2, 10))]));
    assert_eq!(world.member("m2").state().replicas["web"], 0);
    let row = world.cluster("m2").reason.unwrap();
    assert_eq!(row, "Leaving: it leaves on purpose and gets no share");
    assert_eq!(world.condition("MembersReachable").1, "Reachable");
    world.unregister("m2");
    for pass in 60..70 {
        world.sync(pass * 15).await;
        assert_eq!(world.bounds(), bounds(&[("m1", (2, 10))]));
    }
    let clusters = world.status().clusters.unwrap();
    let names: Vec<_> = clusters.iter().map(|cluster| &*cluster.name).collect();
    assert_eq!(names, ["m1"]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_gone_for_good_leaves_by_a_secret_without_a_kubeconfig() {
    let mut world = settled("").await;
    world.unregister("m2");
    world.restart();
    for pass in 3..10 {
        world.sync(pass * 15).await;
    }
    assert_eq!(world.bounds(), bounds(&SHARES));
    world.register("m2");
    world.leave("m2");
    world.member("m2").state().unusable = true;
    let since = world.start + SignedDuration::from_secs(150);
    world.health("m2", Health::Unknown { since });
    for pass in 10..20 {
        world.sync(pass * 15).await;
        world.autoscale();
    }
    // What runs there goes on with its bounds.
    assert_eq!(world.bounds(), bounds(&[("m1", (2, 10)), ("m2", (2, 8))]));
    world.unregister("m2");
    world.sync(300).await;
    assert_eq!(world.status().clusters.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_not_registered_any_more_delays_a_deletion_as_one_that_does_not_answer() {
    let mut world = settled("").await;
    world.unregister("m2");
    world.restart();
    delete(&world);
    for second in [45, 200, 344] {
        world.sync(second).await;
        assert_eq!(world.hub.state().federated.len(), 1, "{second}");
    }
    let writes = world.sync(346).await;
    let left = "hub: event web LeftBehind".to_owned();
    assert!(writes.contains(&left), "{writes:?}");
}
