//! A member that is no longer registered is a member that does not answer; one that leaves on purpose gives up its share.

use super::*;

const SHARES: [(&str, (u64, u64)); 2] = [("m1", (1, 2)), ("m2", (2, 8))];

impl World {
    /// Deletes the Secret and the connection of a member.
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
async fn a_fleet_of_which_no_member_is_registered_any_more_reports_each() {
    let mut world = settled("").await;
    world.unregister("m1");
    world.unregister("m2");
    world.restart();
    world.sync(45).await;
    assert_eq!(world.condition("Assigned").1, "Assigned");
    assert_eq!(world.condition("MembersReachable").1, "Unreachable");
    for (name, max) in [("m1", 2), ("m2", 8)] {
        let row = world.cluster(name);
        let expected = format!(
            "Unknown: its Secret is missing; restore it, or remove the member with foretide members remove {name}; its share \
             and bounds stay unchanged"
        );
        assert_eq!((row.reason, row.max), (Some(expected), Some(max)));
    }
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
    // The workload there goes on with its bounds.
    assert_eq!(world.bounds(), bounds(&[("m1", (2, 10)), ("m2", (2, 8))]));
    world.unregister("m2");
    world.sync(300).await;
    assert_eq!(world.status().clusters.unwrap().len(), 1);
}
