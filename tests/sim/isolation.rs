//! A dependency that hangs delays only the autoscalers that use it.

use serde_json::json;
use simkube::faults::Plan;

use crate::cluster::{Cluster, PERIOD, TENANT, always};

/// The autoscalers of the tenant whose metrics hang.
const TENANTS: usize = 150;

#[test]
fn a_metrics_api_that_hangs_delays_neither_others_nor_the_cron_windows_of_its_own() {
    let mut cluster = Cluster::new(1, Plan::default());
    cluster.elects = false;
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
    cluster.until(period, "own has its floor", |cluster| {
        cluster.replicas("own") == 3
    });
    cluster.until(period, "others has its floor", |cluster| {
        cluster.replicas("others") >= 4
    });
    cluster.until(3 * period, "others has what its load needs", |cluster| {
        cluster.replicas("others") == 6
    });
    // The condition names the dependency.
    let named = |cluster: &Cluster| {
        cluster
            .status("own")
            .contains("read pod usage in namespace tenant")
    };
    cluster.until(60, "what hangs", named);
}
