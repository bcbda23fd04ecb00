//! A controller that is installed without the permissions of a hub, `deploy/fleets`.

use serde_json::json;

use crate::cluster::Cluster;

/// Number of refused requests for Secrets.
fn refused(cluster: &Cluster) -> usize {
    let refused = cluster.server.forbidden().into_iter();
    let of_secrets = refused.filter(|(_, access)| access.resource == "secrets");
    of_secrets.count()
}

#[test]
fn secrets_that_may_not_be_read_are_not_asked_for_again_until_there_is_a_fleet() {
    let mut cluster = Cluster::fleet(&[("member1", 100)]);
    cluster.revoke_secrets();
    cluster.start("pod-0");
    cluster.run_for(120);
    assert_eq!(refused(&cluster), 1);
    cluster.ask_for("Aggregated", (1, 3), &json!({}));
    cluster.until(30, "the Secrets are asked for", |cluster| {
        refused(cluster) > 1
    });
}
