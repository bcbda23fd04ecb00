//! A controller whose tolerance is not that of the HPA controller of its cluster. It has a namespace of its own, so that
//! it runs beside the scenario of the objects.

use foretide::{clock::Clock, config::Config};
use jiff::SignedDuration;
use rig::{FakeMetrics, Reading};
use serde_json::json;

use super::{Monitoring, workload_in};
use crate::{
    manual_changes::{QUEUE, deployment, ehpa},
    metrics_access::free_address,
    world::World,
};

/// What this scenario sees firing and resolved.
pub(super) const ALERTS: &[&str] = &["ForetideHpaDisagreement"];

/// The namespace of its controller.
const DELEGATED: &str = "delegated";
/// The syncs of a load: 16 s. Both logs must cover the scale-down window and a third of it, 13.3 s, before a new value in
/// the child's status is compared.
const SYNCS_OF_A_LOAD: u64 = 64;

pub(super) async fn alerts_fire_and_resolve(world: &World, fake: &FakeMetrics) {
    let load = |total: &str| fake.set_external(DELEGATED, QUEUE, vec![Reading::new(total)]);
    load("100");
    workload_in(world, DELEGATED).await;
    let metrics = json!([{ "type": "External", "external": {
        "metric": { "name": QUEUE },
        "target": { "type": "Value", "value": "100" },
    }}]);
    let mut autoscaler = ehpa(deployment("web"), (2, 12), &json!({ "metrics": metrics }));
    autoscaler["metadata"]["namespace"] = json!(DELEGATED);
    world.apply(&autoscaler.to_string()).await;
    let mut config = Config {
        listen: free_address(),
        namespaces: vec![DELEGATED.to_owned()],
        // Faster than the HPA controller, so that every value it reads is one that we read.
        sync_period: SignedDuration::from_millis(250),
        ..world.config()
    };
    config.settings.tolerance = 0.0;
    let monitoring = Monitoring::start("none is needed on loopback").await;
    monitoring.scrape(&[config.listen]);
    let controller = world.run(config, Clock::system());

    // It agrees with the child under the first load and not under the second, where the child stays: no pod changes while
    // the results are compared.
    let loads = async {
        for total in ["100", "106"].iter().cycle() {
            load(total);
            controller.further_syncs(SYNCS_OF_A_LOAD).await;
        }
    };
    tokio::select! {
        () = monitoring.fires("ForetideHpaDisagreement", &[]) => {}
        () = loads => {}
    }
    load("100");
    monitoring.resolves("ForetideHpaDisagreement", &[]).await;
    monitoring.has_seen(ALERTS).await;
}
