//! A fleet scales down like one autoscaler over all its replicas, and counts participating members only.

use super::*;

const PRIORITIES: &str = "federatedHPAAssignment: {federatedHPAAssignmentType: Prioritized, \
                          clusterAutoscalingPreference: [{targetCluster: {clusterNames: [m1]}, \
                          priority: 2}, {targetCluster: {clusterNames: [m2]}, priority: 1}]}";

impl World {
    /// Moves the replicas of each member into the bounds of its HPA, as an HPA without a decision of its own would.
    fn follow_bounds(&self) {
        for (fake, _) in self.members.clusters.lock().unwrap().values() {
            let mut state = fake.state();
            let Some(hpa) = state.hpas.values().next().cloned() else {
                continue;
            };
            let bound = |name: &str| u32::try_from(hpa.spec[name].as_u64().unwrap()).unwrap();
            let replicas = state.replicas["web"];
            let obeyed = replicas.clamp(bound("minReplicas"), bound("maxReplicas"));
            state.replicas.insert("web".into(), obeyed);
        }
    }

    fn replicas(&self) -> u32 {
        let members = self.members.clusters.lock().unwrap();
        let counts = members
            .values()
            .map(|(fake, _)| fake.state().replicas["web"]);
        counts.sum()
    }

    /// Sets the load of each member, in replicas.
    fn load(&self, loads: &[(&str, i64)]) {
        for (name, replicas) in loads {
            self.member(name).state().millicores = replicas * 100;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_lowest_priority_shrinks_after_the_window_and_within_the_fleet_policies() {
    let mut world = World::new(&[("m1", 8), ("m2", 8)]);
    world.put(&format!(
        "minReplicas: 2, maxReplicas: 16, {CPU}, {PRIORITIES}, rebalance: {{cooldownSeconds: 15}}, \
         behavior: {{scaleDown: {{stabilizationWindowSeconds: 90, \
         policies: [{{type: Pods, value: 2, periodSeconds: 60}}]}}}}"
    ));
    for (name, room) in [("m1", 8), ("m2", 8)] {
        world.member(name).state().capacity = Some(room);
    }
    // A dip of one minute, and then a load that stays low.
    let (low, dip_ends, lasting) = (180, 240, 360);
    let mut all = Vec::new();
    for second in (0..900).step_by(15) {
        let is_low = (low..dip_ends).contains(&second) || second >= lasting;
        let load = if is_low { 2 } else { 8 };
        world.load(&[("m1", load), ("m2", load)]);
        if second == 540 {
            // The HPA of the other member removes two by itself.
            let m1 = world.member("m1");
            let replicas = m1.state().replicas["web"];
            m1.state().replicas.insert("web".into(), replicas - 2);
        }
        world.sync(second).await;
        world.follow_bounds();
        all.push((second, world.replicas()));
    }
    let fell = all.iter().find(|(_, count)| *count < 16);
    // The last sample of the high load is from the previous sync.
    assert_eq!(fell.expect("it shrinks").0, lasting - 15 + 90, "{all:?}");
    for (at, count) in &all {
        let before = all.iter().rev().find(|(then, _)| at - then >= 60);
        let before = before.map_or(16, |(_, count)| *count);
        // A removal by the HPA of a member does not count for the hub, which waits for it.
        let alone = if (540..600).contains(at) { 2 } else { 0 };
        assert!(count + 2 + alone >= before, "at {at}: {all:?}");
    }
    let waits = all.iter().filter(|(at, _)| (540..600).contains(at));
    assert!(waits.clone().all(|(_, count)| *count == 10), "{all:?}");
    assert!(world.member("m2").state().replicas["web"] <= 3, "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_nonparticipating_member_count_as_neither_current_nor_history() {
    let mut world = World::new(&[("m1", 2), ("m3", 7)]);
    world.put(&weighted(""));
    for pass in 0..20 {
        // New pods have no metrics.
        world.member("m3").state().millicores = 0;
        world.sync(pass * 15).await;
        world.follow_bounds();
    }
    assert_eq!(world.status().fleet.current_replicas, Some(2));
    assert_eq!(world.bounds(), bounds(&[("m1", (2, 10))]));
    assert_eq!(
        world.cluster("m3").reason.unwrap().split(':').next(),
        Some("NoPreference")
    );
    let members = world.forecasts.shares().members("uid-fleet").unwrap();
    let names: Vec<_> = members.iter().map(|member| &*member.name).collect();
    assert_eq!(names, ["m1"]);
}
