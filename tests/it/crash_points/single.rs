//! Crash points of autoscalers of one cluster.

use foretide_crds::{Mode, ScaleStrategy};

use super::{Scenario, world::World};

const SPEC: &str = "minReplicas: 2, maxReplicas: 10, metrics: [{type: Resource, resource: {name: cpu, target: \
                    {type: Utilization, averageUtilization: 50}}}], behavior: {scaleDown: \
                    {stabilizationWindowSeconds: 60}}";

fn with(more: &str) -> World {
    World::single(4, &format!("{more}, {SPEC}"))
}

#[tokio::test(start_paused = true)]
async fn a_new_autoscaler_creates_its_child() {
    let scenario = Scenario {
        name: "create",
        world: || with("mode: Delegated"),
        changes: &[],
        steps: 20,
        shows: "hub: hpa ehpa-web min 2",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_autoscaler_restores_the_hpa_that_it_had_adopted() {
    let scenario = Scenario {
        name: "delete",
        world: || with("mode: Delegated").adopting(),
        changes: &[(4, World::delete)],
        steps: 20,
        shows: "hub: patch hpa theirs",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_count_grows_and_shrinks_with_the_load() {
    let scenario = Scenario {
        name: "scale up and down",
        world: || with("mode: Direct"),
        changes: &[(4, |world| world.load(8)), (9, |world| world.load(3))],
        steps: 30,
        shows: "hub: scale web 3",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_stays_while_it_follows_the_load() {
    let scenario = Scenario {
        name: "scale up and down, Delegated",
        world: || with("mode: Delegated"),
        changes: &[(4, |world| world.load(8)), (9, |world| world.load(3))],
        steps: 30,
        shows: "hub: hpa ehpa-web min 2",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_preview_begins_to_act_and_ends() {
    fn strategy(world: &World, strategy: ScaleStrategy) {
        world.edit_single(|ehpa| ehpa.spec.scale_strategy = Some(strategy));
    }
    let scenario = Scenario {
        name: "preview",
        world: || with("scaleStrategy: Preview"),
        changes: &[
            (4, |world| strategy(world, ScaleStrategy::Auto)),
            (8, |world| strategy(world, ScaleStrategy::Preview)),
        ],
        steps: 30,
        shows: "hub: delete hpa ehpa-web",
        allowed: &[],
    };
    scenario.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_is_removed_and_created_again_with_the_mode() {
    fn mode(world: &World, mode: Mode) {
        world.edit_single(|ehpa| ehpa.spec.mode = Some(mode));
    }
    let scenario = Scenario {
        name: "mode",
        world: || with("mode: Delegated"),
        changes: &[
            (4, |world| mode(world, Mode::Direct)),
            (8, |world| mode(world, Mode::Delegated)),
        ],
        steps: 30,
        shows: "hub: delete hpa ehpa-web",
        allowed: &[],
    };
    scenario.check().await;
}
