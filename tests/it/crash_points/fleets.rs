//! Crash points of fleets.

use foretide_crds::{ClusterAffinity, Mode, ScaleStrategy};

use super::{Allowed, Scenario, world::World};

/// In Direct mode, after a write to some of the members.
const ONE_POD_MOVES: Allowed = Allowed {
    parts: &[
        "Ends at write",
        ": scale web ",
        ": ready pods ended: 1 more",
    ],
    because: "counts are in no ledger: a successor holds the total that it finds until its window is over, and divides \
              it by the weights; with three equal weights, this moves one pod",
};

/// Where the hub places the workload.
const CREATED_BY_A_WAKE: Allowed = Allowed {
    parts: &["woken: \"a time\" instead of null"],
    because: "a member whose share is in the ledger and whose workload is missing gets it by a wake, which has a time",
};

/// A fleet over m1, m2 and m3 with these weights.
fn spec(weights: [u32; 3], more: &str) -> String {
    let [one, two, three] = weights;
    format!(
        "minReplicas: 3, maxReplicas: 12, metrics: [{{type: Resource, resource: {{name: cpu, target: \
         {{type: Utilization, averageUtilization: 50}}}}}}], behavior: {{scaleDown: \
         {{stabilizationWindowSeconds: 60}}}}, federatedHPAAssignment: {{federatedHPAAssignmentType: \
         StaticWeighted, clusterAutoscalingPreference: [\
         {{targetCluster: {{clusterNames: [m1]}}, staticWeight: {one}}}, \
         {{targetCluster: {{clusterNames: [m2]}}, staticWeight: {two}}}, \
         {{targetCluster: {{clusterNames: [m3]}}, staticWeight: {three}}}]}}, {more}"
    )
}

/// A fleet whose budgets follow the capacities of its members, and move.
fn dynamic(more: &str) -> String {
    spec([1, 1, 1], more)
        .replace("StaticWeighted", "DynamicWeighted")
        .replace("maxReplicas: 12", "maxReplicas: 8")
}

fn of_three(more: &str) -> World {
    let members = [("m1", Some(2)), ("m2", Some(2)), ("m3", Some(2))];
    World::fleet(&members, &spec([1, 1, 1], more))
}

/// Gives m1, m2 and m3 these weights.
fn weigh(world: &World, weights: [i32; 3]) {
    world.edit(|fdhpa| {
        let assignment = &mut fdhpa.spec.federated_hpa_assignment;
        let preferences = assignment
            .cluster_autoscaling_preference
            .iter_mut()
            .flatten();
        for (preference, weight) in preferences.zip(weights) {
            preference.static_weight = Some(weight);
        }
    });
}

fn exclude(world: &World, names: &[&str]) {
    world.edit(|fdhpa| {
        let exclude = names.iter().map(|name| (*name).to_owned()).collect();
        fdhpa.spec.cluster_affinity = Some(ClusterAffinity {
            exclude: Some(exclude),
            ..ClusterAffinity::default()
        });
    });
}

#[tokio::test(start_paused = true)]
async fn a_new_fleet_creates_an_hpa_in_each_member() {
    let scenario = Scenario {
        name: "create",
        world: || of_three("mode: Delegated"),
        changes: &[],
        steps: 20,
        shows: "m3: hpa fdhpa-web min 1",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_fleet_leaves_no_hpa() {
    let scenario = Scenario {
        name: "delete",
        world: || of_three("mode: Delegated"),
        changes: &[(4, World::delete)],
        steps: 20,
        shows: "m3: delete hpa fdhpa-web",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_fleet_that_retains_its_hpas_leaves_them_without_an_owner() {
    let scenario = Scenario {
        name: "retain",
        world: || of_three("mode: Delegated, deletionPolicy: Retain"),
        changes: &[(4, World::delete)],
        steps: 20,
        shows: "m3: patch hpa fdhpa-web",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn counts_that_the_hub_writes_grow_and_shrink_with_the_load() {
    let scenario = Scenario {
        name: "scale up and down",
        world: || of_three("mode: Direct"),
        changes: &[(4, |world| world.load(10)), (9, |world| world.load(5))],
        steps: 50,
        shows: "m3: scale web 1",
        allowed: &[ONE_POD_MOVES],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_landing_ends_pods_only_after_others_are_ready() {
    let scenario = Scenario {
        name: "landing",
        world: || of_three("mode: Delegated"),
        changes: &[(4, |world| weigh(world, [10, 1, 1]))],
        steps: 50,
        shows: "m1: hpa fdhpa-web min 4",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_preview_of_a_fleet_begins_to_act_and_ends() {
    fn strategy(world: &World, strategy: ScaleStrategy) {
        world.edit(|fdhpa| fdhpa.spec.autoscaling.scale_strategy = Some(strategy));
    }
    let scenario = Scenario {
        name: "preview",
        world: || of_three("scaleStrategy: Preview"),
        changes: &[
            (4, |world| strategy(world, ScaleStrategy::Auto)),
            (8, |world| strategy(world, ScaleStrategy::Preview)),
        ],
        steps: 40,
        shows: "m3: delete hpa fdhpa-web",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn the_hpas_of_a_fleet_are_removed_and_created_again_with_the_mode() {
    fn mode(world: &World, mode: Mode) {
        world.edit(|fdhpa| fdhpa.spec.autoscaling.mode = Some(mode));
    }
    let scenario = Scenario {
        name: "mode",
        world: || of_three("mode: Delegated"),
        changes: &[
            (4, |world| mode(world, Mode::Direct)),
            (8, |world| mode(world, Mode::Delegated)),
        ],
        steps: 40,
        shows: "m3: delete hpa fdhpa-web",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_joins_gets_a_share() {
    let scenario = Scenario {
        name: "member added",
        world: || {
            let members = [("m1", Some(3)), ("m2", Some(3))];
            World::fleet(&members, &spec([1, 1, 1], "mode: Delegated"))
        },
        changes: &[(4, |world| world.join("m3", Some(1)))],
        steps: 50,
        shows: "m3: hpa fdhpa-web min 1",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_excluded_is_drained_after_others_have_grown() {
    let scenario = Scenario {
        name: "member excluded",
        world: || of_three("mode: Delegated"),
        changes: &[(4, |world| exclude(world, &["m3"]))],
        steps: 50,
        shows: "m3: scale web 0",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_excluded_in_direct_mode_is_drained_after_others_have_grown() {
    let scenario = Scenario {
        name: "member excluded, Direct",
        world: || of_three("mode: Direct"),
        changes: &[(4, |world| exclude(world, &["m3"]))],
        steps: 50,
        shows: "m3: scale web 0",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn the_share_of_a_member_that_leaves_goes_to_others() {
    let scenario = Scenario {
        name: "member leaves",
        world: || of_three("mode: Delegated"),
        changes: &[
            (4, |world| world.leave("m3")),
            // More than the two may run without the share of the third.
            (14, |world| world.load(20)),
        ],
        steps: 50,
        shows: "m3: scale web 0",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn the_share_of_a_member_that_leaves_goes_to_others_in_direct_mode() {
    let scenario = Scenario {
        name: "member leaves, Direct",
        world: || of_three("mode: Direct"),
        changes: &[
            (4, |world| world.leave("m3")),
            // More than the two may run without the share of the third.
            (14, |world| world.load(20)),
        ],
        steps: 50,
        shows: "m1: scale web 6",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_registered_again_gets_its_share_again() {
    let scenario = Scenario {
        name: "member registered again",
        world: || of_three("mode: Delegated"),
        changes: &[
            (4, |world| world.unregister("m3")),
            // Its HPA has the former bounds when it is back.
            (10, |world| {
                world.edit(|fdhpa| fdhpa.spec.autoscaling.min_replicas = Some(6));
            }),
            (18, |world| world.register("m3")),
        ],
        steps: 60,
        shows: "m3: hpa fdhpa-web min 2",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_registered_again_gets_its_share_again_in_direct_mode() {
    let scenario = Scenario {
        name: "member registered again, Direct",
        world: || of_three("mode: Direct"),
        changes: &[
            (4, |world| world.unregister("m3")),
            (10, |world| world.load(20)),
            (24, |world| world.register("m3")),
        ],
        steps: 70,
        shows: "m3: scale web 4",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn the_share_of_a_lost_member_goes_to_others_and_comes_back() {
    let scenario = Scenario {
        name: "member lost",
        world: || of_three("mode: Delegated, failurePolicy: Reassign, tolerationSeconds: 60"),
        changes: &[
            (4, |world| world.fail("m3")),
            (14, |world| world.recover("m3")),
            // To the minimum, because some loads keep seven pods as well as eight.
            (27, |world| world.load(1)),
        ],
        steps: 50,
        shows: "m1: hpa fdhpa-web min 4",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_of_the_hub_is_placed_and_deleted_once() {
    let scenario = Scenario {
        name: "placed",
        world: || {
            let members = [("m1", None), ("m2", None), ("m3", None)];
            World::fleet(&members, &spec([1, 1, 1], "workloadSource: Hub")).template()
        },
        changes: &[(7, |world| exclude(world, &["m3"]))],
        steps: 50,
        shows: "m3: remove web",
        allowed: &[CREATED_BY_A_WAKE],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn budget_that_moves_to_a_saturated_member_stays_there() {
    let scenario = Scenario {
        name: "saturated",
        world: || {
            let world = World::fleet(
                &[("m1", Some(4)), ("m2", Some(4))],
                &dynamic("mode: Delegated"),
            );
            world.local_load("m1", 4);
            world.local_load("m2", 4);
            world
        },
        changes: &[(4, |world| {
            world.local_load("m1", 6);
            world.local_load("m2", 2);
        })],
        steps: 40,
        shows: "hub: event web Saturated",
        allowed: &[],
    };
    scenario.check().await;
}
