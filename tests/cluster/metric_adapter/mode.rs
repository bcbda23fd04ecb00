//! Mode Metric: the child of a controller reads what its controller publishes, from the adapter and through the aggregator.

use foretide::clock::Clock;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use rig::eventually;
use serde_json::json;

use super::{TIMEOUT, World};
use crate::{
    manual_changes::{deployment, ehpa},
    world::Controller,
};

const NAME: &str = "published";

/// The identifiers of the External metrics that a child has, all of which it has read.
fn read_by(child: HorizontalPodAutoscaler) -> Option<Vec<String>> {
    let metrics = child.spec.and_then(|spec| spec.metrics).unwrap_or_default();
    let external = metrics.iter().filter_map(|metric| metric.external.as_ref());
    let labels = external.filter_map(|metric| {
        let labels = metric.metric.selector.as_ref()?.match_labels.as_ref()?;
        labels.get("resourceIdentifier").cloned()
    });
    let status = child.status.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let is_active = |one: &k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition| {
        one.type_ == "ScalingActive" && one.status == "True"
    };
    let has_read_all = status.current_metrics.unwrap_or_default().len() == metrics.len();
    (has_read_all && conditions.iter().any(is_active)).then(|| labels.collect())
}

/// A window that is open asks for seven replicas: by the metric, and not by the minimum of the child.
pub(super) async fn a_child_reads_what_its_controller_publishes(world: &World) -> Controller {
    world.deployment(NAME, 3, "5m").await;
    let window = json!([{
        "name": "open", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": 7,
    }]);
    let more = json!({ "mode": "Metric", "crons": window });
    let object = ehpa(deployment(NAME), (1, 30), &more);
    world.apply(&object.to_string()).await;
    let controller = world.run(world.config(), Clock::system());
    world.ready(NAME, "7", |count| count == 7).await;
    let child = format!("ehpa-{NAME}");
    eventually(TIMEOUT, "the child reads the window", || async {
        let found = world
            .hpas()
            .get(&child)
            .await
            .map_err(|no| no.to_string())?;
        assert_eq!(found.spec.as_ref().unwrap().min_replicas, Some(1));
        let read = read_by(found);
        (read == Some(vec!["cron".to_owned()]))
            .then_some(())
            .ok_or(format!("{read:?}"))
    })
    .await;
    controller
}

/// Without the adapter the count stays, and the status has what the HPA controller says about the metric.
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
