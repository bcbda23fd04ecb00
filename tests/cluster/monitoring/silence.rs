//! A controller whose network to the API server is broken: connections hang. It has a namespace of its own, so that it
//! runs beside the scenario of the objects.

use foretide::{
    clock::Clock,
    config::{Config, KubeAccess},
};
use rig::{FakeMetrics, Reading};
use serde_json::json;

use super::{Monitoring, workload_in};
use crate::{
    manual_changes::{QUEUE, deployment, ehpa, queue_metrics},
    metrics_access::free_address,
    world::World,
};

/// What this scenario sees firing and resolved.
pub(super) const ALERTS: &[&str] = &["ForetideWatchStale"];

/// The namespace of its controller.
const SILENT: &str = "silent";

/// The silence is a number of seconds that is not divided, so this takes two minutes.
pub(super) async fn alerts_fire_and_resolve(world: &World, fake: &FakeMetrics) {
    prepare(world, fake).await;
    let relay = world.cluster.relay().await.unwrap();
    let (namespace, account) = ("foretide-system", "foretide-controller");
    let over = world
        .cluster
        .service_account_kubeconfig_over(&relay, namespace, account);
    let config = Config {
        access: KubeAccess::Kubeconfig {
            path: Some(over.await.unwrap()),
            context: None,
        },
        listen: free_address(),
        namespaces: vec![SILENT.to_owned()],
        ..world.config()
    };
    let monitoring = Monitoring::start("none is needed on loopback").await;
    monitoring.scrape(&[config.listen]);
    let controller = world.run(config, Clock::system());
    controller.further_syncs(2).await;

    relay.block();
    let pods = [("kind", "Pod")];
    monitoring.fires("ForetideWatchStale", &pods).await;
    relay.unblock();
    monitoring.resolves("ForetideWatchStale", &pods).await;
    monitoring.has_seen(ALERTS).await;
}

/// Creates a workload and its autoscaler.
async fn prepare(world: &World, fake: &FakeMetrics) {
    fake.set_external(SILENT, QUEUE, vec![Reading::new("20")]);
    workload_in(world, SILENT).await;
    let spec = json!({ "mode": "Direct", "metrics": queue_metrics() });
    let mut autoscaler = ehpa(deployment("web"), (1, 10), &spec);
    autoscaler["metadata"]["namespace"] = json!(SILENT);
    world.apply(&autoscaler.to_string()).await;
}
