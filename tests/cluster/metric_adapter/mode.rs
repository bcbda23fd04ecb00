//! Mode Metric: the child of a controller reads the published values of its controller, from the adapter and through
//! the aggregator.

use serde_json::json;

use super::World;
use crate::{
    manual_changes::{deployment, ehpa},
    world::Controller,
};

const NAME: &str = "published";

/// A window that is open asks for seven replicas: by the metric, and not by the minimum of the child.
pub(super) async fn a_child_reads_what_its_controller_publishes(world: &World) -> Controller {
    world.deployment(NAME, 3, "5m").await;
    let window = json!([{
        "name": "open", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": 7,
    }]);
    let more = json!({ "mode": "Metric", "crons": window });
    let object = ehpa(deployment(NAME), (1, 30), &more);
    world.apply(&object.to_string()).await;
    let controller = Controller::run(world.config());
    world.ready(NAME, "7", |count| count == 7).await;
    let child = world.hpas().get(&format!("ehpa-{NAME}")).await.unwrap();
    assert_eq!(child.spec.unwrap().min_replicas, Some(1));
    controller
}

/// Without the adapter the count stays, and the status repeats the report of the HPA controller about the metric.
pub(super) async fn the_status_says_what_the_child_cannot_read(world: &World) {
    world
        .condition_says(
            NAME,
            "ScalingActive",
            "False/FailedGetExternalMetric",
            "crane_autoscaling_cron",
        )
        .await;
    assert_eq!(world.replicas(NAME).await, 7);
}
