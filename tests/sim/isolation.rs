//! A dependency that hangs delays only the autoscalers that use it.

use serde_json::json;

use crate::cluster::{Cluster, PERIOD, TENANT, always};

/// The autoscalers of the tenant whose metrics hang.
const TENANTS: usize = 150;

#[test]
fn a_metrics_api_that_hangs_delays_neither_others_nor_the_cron_windows_of_its_own() {
    let mut cluster = Cluster::without_election();
    for n in 0..TENANTS {
        cluster.autoscaler_in(TENANT, &format!("tenant-{n}"), (0, "Direct"), &json!({}));
    }
    cluster.autoscaler_in(TENANT, "own", (1, "Direct"), &always(3));
    cluster.world.silence_metrics(TENANT);
    cluster.start("pod-0");
    cluster.run_for(30);
    cluster.autoscaler("others", 1, "Direct", &always(4));
    cluster.needs("others", 6);
    let period = PERIOD.as_secs();
    cluster.until_has(period, "own", 3);
    cluster.until(period, "others has its floor", |cluster| {
        cluster.replicas("others") >= 4
    });
    cluster.until_has(3 * period, "others", 6);
    // The condition names the dependency.
    let named = |cluster: &Cluster| {
        cluster
            .status("own")
            .contains("read pod usage in namespace tenant")
    };
    cluster.until(60, "what hangs", named);
}
