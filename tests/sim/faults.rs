//! The cluster without the controller, and the controller without the API server.

use std::time::Duration;

use serde_json::json;
use simkube::{faults::Plan, network::Way};

use crate::cluster::{Cluster, HUB, always};

#[test]
fn the_child_scales_without_the_controller_and_its_successor_causes_no_dip() {
    let mut cluster = Cluster::new(1, Plan::default());
    cluster.autoscaler("orders", 1, "Delegated", &always(6));
    cluster.needs("orders", 2);
    cluster.start("pod-0");
    cluster.until_has(60, "orders", 6);
    cluster.kill("pod-0");
    cluster.needs("orders", 11);
    cluster.until_has(90, "orders", 11);
    cluster.needs("orders", 2);
    cluster.until_has(120, "orders", 6);

    // The window ends while no controller runs. The successor has little history, so it scales nothing down at once.
    cluster.edit("orders", &json!({"crons": null}));
    cluster.start("pod-0");
    cluster.run_for(30);
    assert_eq!(cluster.replicas("orders"), 6);
    assert!(cluster.status("orders").contains("HistoryLost"));
    cluster.until_has(90, "orders", 2);
}

#[test]
fn load_and_specs_that_changed_in_an_outage_of_the_api_server_take_effect() {
    let mut cluster = Cluster::without_election();
    cluster.autoscaler("orders", 3, "Delegated", &json!({}));
    cluster.needs("orders", 3);
    cluster.start("pod-0");
    cluster.run_for(60);
    cluster.network().reset("pod-0", HUB);
    cluster.reach("pod-0", Way::Refused);
    cluster.needs("orders", 10);
    cluster.run_for(45);
    assert_eq!(cluster.replicas("orders"), 10, "the child follows the load");
    cluster.edit("orders", &json!({"maxReplicas": 8}));
    cluster.reach("pod-0", Way::Open(Duration::ZERO));
    cluster.until_has(60, "orders", 8);
}
