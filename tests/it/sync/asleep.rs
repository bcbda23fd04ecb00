//! A workload that an HPA of others scaled to zero wakes.

use serde_json::json;

use super::World;
use crate::fake_cluster::FakeCluster;

const QUEUE: &str = "metrics: [{type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 5}}}]";

/// A workload of two with a queue of this many messages.
fn world(spec: &str, queue: i64) -> World {
    let fake = FakeCluster::default();
    fake.put("web", 2, &format!("maxReplicas: 10, {spec}, {QUEUE}"));
    fake.state().external = Some(queue * 1_000);
    World::new(fake)
}

fn scale(world: &World, count: u32) {
    world.fake.state().replicas.insert("web".into(), count);
}

fn count(world: &World) -> u32 {
    world.fake.state().replicas["web"]
}

#[tokio::test]
async fn an_hpa_that_says_it_scaled_to_zero_leaves_a_workload_that_wakes() {
    for (says, spec, desired) in [
        ("True", "minReplicas: 0, scaleStrategy: Preview", 4),
        ("False", "minReplicas: 0, scaleStrategy: Preview", 0),
        ("True", "minReplicas: 2, scaleStrategy: Preview", 4),
        ("False", "minReplicas: 2, scaleStrategy: Preview", 0),
        ("True", "minReplicas: 0", 4),
        ("True", "minReplicas: 2", 4),
    ] {
        let mut world = world(spec, 20);
        scale(&world, 0);
        let manifest = json!({
            "metadata": {"namespace": "shop", "name": "theirs"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 0, "maxReplicas": 10},
        });
        let mut hpa = world.fake.state().accept_hpa(&manifest).unwrap();
        hpa.status = json!({"conditions": [{"type": "ScaledToZero", "status": says}]});
        world.fake.state().hpas.insert("theirs".into(), hpa);
        world.sync(0).await;
        let shown = world.fake.status("web").expect_replicas;
        assert_eq!(shown, Some(desired), "{says} {spec}");
        assert_eq!(count(&world), 0, "it is theirs");
        // The owner follows the advice and deletes it, while no controller runs.
        world.fake.state().hpas.remove("theirs");
        for second in [15, 30] {
            world.restart();
            world.sync(second).await;
        }
        let is_acting = !spec.contains("Preview");
        assert_eq!(
            count(&world),
            if is_acting { 4 } else { 0 },
            "{says} {spec}"
        );
    }
}
