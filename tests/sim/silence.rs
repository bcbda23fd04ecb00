//! An API server that accepts connections and answers nothing, and copies that are out of date because of it.

use std::time::Duration;

use serde_json::json;
use simkube::network::Way;

use crate::cluster::Cluster;

const OBJECTS: usize = 50;

fn name(n: usize) -> String {
    format!("web-{n}")
}

fn need(cluster: &Cluster, pods: u64) {
    (0..OBJECTS).for_each(|n| cluster.needs(&name(n), pods));
}

fn all_have(cluster: &Cluster, count: u64) -> bool {
    (0..OBJECTS).all(|n| cluster.replicas(&name(n)) == count)
}

fn all_were_scaled(cluster: &Cluster, times: usize) -> bool {
    (0..OBJECTS).all(|n| cluster.scaled(&name(n)) == times)
}

#[test]
fn what_was_due_while_the_api_server_was_silent_is_written_once() {
    let mut cluster = Cluster::without_election();
    (0..OBJECTS).for_each(|n| cluster.autoscaler(&name(n), 2, "Direct", &json!({})));
    need(&cluster, 2);
    cluster.start("pod-0");
    cluster.run_for(60);
    assert!(all_were_scaled(&cluster, 0));

    // The load changes in the silence: nothing is known of it before the API server answers again.
    cluster.reach("pod-0", Way::Blocked);
    need(&cluster, 4);
    cluster.run_for(40);
    assert!(all_were_scaled(&cluster, 0));
    cluster.reach("pod-0", Way::Open(Duration::ZERO));
    cluster.until(45, "all have 4", |cluster| all_have(cluster, 4));
    cluster.run_for(60);
    assert!(all_were_scaled(&cluster, 1));

    // Connections that stay open and carry nothing, those of the watches too: the copies are read again.
    cluster.strand("pod-0");
    need(&cluster, 8);
    cluster.until(120, "all have 8", |cluster| all_have(cluster, 8));
    cluster.run_for(60);
    assert!(all_were_scaled(&cluster, 2));
}

#[test]
fn pods_that_silent_watches_do_not_show_are_not_taken_for_pods_that_nobody_needs() {
    let mut cluster = Cluster::without_election();
    let at_once = json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}});
    cluster.autoscaler("web", 2, "Direct", &at_once);
    cluster.needs("web", 2);
    cluster.start("pod-0");
    cluster.run_for(60);

    cluster.hold("pod-0");
    cluster.needs("web", 4);
    cluster.until_has(30, "web", 4);
    // Three quarters of the 2 pods that are listed would be 2.
    cluster.needs("web", 3);
    for _second in 0..90 {
        cluster.run_for(1);
        assert!(cluster.replicas("web") >= 3, "too few at {}", cluster.now());
    }
    cluster.release("pod-0");
    cluster.until_has(30, "web", 3);
}
