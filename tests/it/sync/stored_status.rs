//! Reading a stored status never panics and scales nothing down, no matter what the status contains. Runs as a test
//! here, and under a fuzzer with `cargo bolero test`.

use serde_json::Value;

use super::{CPU, World};
use crate::{fake_cluster::FakeCluster, fuzz::alter};

/// Syncs six replicas at their target, from this second on, after a restart of the controller that left this status.
async fn sync_after(status: Option<Value>, start: i64) -> Value {
    let fake = FakeCluster::default();
    let cron = "crons: [{name: peak, start: '0 9 * * *', end: '0 18 * * *', targetReplicas: 4}]";
    let spec =
        format!("mode: Direct, minReplicas: 2, maxReplicas: 10, {CPU}, {cron}, prediction: {{}}");
    fake.put("web", 6, &spec);
    fake.state().millicores = 600;
    fake.edit("web", |ehpa| {
        ehpa.status = status.and_then(|status| serde_json::from_value(status).ok());
    });
    let mut world = World::new(fake);
    for second in [0, 15, 30] {
        world.sync(start + second).await;
        let replicas = world.fake.state().replicas["web"];
        assert!((6..=10).contains(&replicas), "{replicas} replicas");
        assert_ne!(world.fake.ready("web").1, "InternalError");
    }
    serde_json::to_value(world.fake.status("web")).unwrap()
}

#[test]
fn stored_status_json() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let full = runtime.block_on(sync_after(None, 0));
    assert!(
        full["history"].is_object() && full["decision"].is_object(),
        "{full}"
    );
    bolero::check!()
        .with_iterations(1_000)
        .with_type::<Vec<u8>>()
        .for_each(|bytes| {
            let mut status = full.clone();
            // With more changes it would hardly ever be decoded.
            for (nth, change) in bytes.chunks(6).take(3).enumerate() {
                let part = if nth == 0 { "/history" } else { "" };
                if let Some(part) = status.pointer_mut(part) {
                    alter(part, change);
                }
            }
            runtime.block_on(sync_after(Some(status), 45));
        });
}
