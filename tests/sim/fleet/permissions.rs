//! A controller that is installed without the permissions of a hub, `deploy/fleets`.

use serde_json::json;
use simkube::faults::Plan;

use crate::cluster::Cluster;

/// How often Secrets were asked for, and refused.
fn refused(cluster: &Cluster) -> usize {
    let asked = cluster.server.audit().into_iter();
    let asked = asked.filter(|entry| entry.access.resource == "secrets");
    asked.filter(|entry| entry.code == 403).count()
}

#[test]
fn secrets_that_may_not_be_read_are_not_asked_for_again_until_there_is_a_fleet() {
    let mut cluster = Cluster::new(1, Plan::default());
    cluster.revoke_secrets();
    cluster.start("pod-0");
    cluster.run_for(120);
    assert_eq!(refused(&cluster), 1);
    cluster.ask_for("Aggregated", (1, 3), &json!({}));
    cluster.until(30, "the Secrets are asked for", |cluster| {
        refused(cluster) > 1
    });
}
