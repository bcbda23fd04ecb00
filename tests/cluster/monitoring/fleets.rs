//! A fleet with one member, which does not answer while the budget becomes smaller; and another one with a Secret that
//! cannot be used.

use foretide::config::Config;
use serde_json::{Value, json};

use super::Monitoring;
use crate::{
    fleet::world::{FleetWorld, SHOP, SYSTEM, with_preferences},
    metrics_access::free_address,
    world::{Controller, NAMESPACE},
};

/// What this scenario sees firing and resolved.
pub(super) const ALERTS: &[&str] = &[
    "ForetideFleetUnbalanced",
    "ForetideMemberUnavailable",
    "ForetideMembersUnusable",
];

/// The panels that have data as soon as a fleet is scaled.
pub(super) const PANELS: &[(&str, &str)] = &[
    ("controller", "Duration of fleet syncs"),
    ("controller", "Members"),
    ("controller", "Panics"),
    ("controller", "Member staleness"),
    ("controller", "Replicas by member"),
    ("workload", "Replicas by member"),
    ("workload", "Counts by member"),
];

/// A window that is open since the last full minute until the next new year.
fn window(replicas: u32) -> Value {
    json!([{
        "name": "floor", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": replicas,
    }])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "each alert on a real Prometheus: `just nightly`"]
async fn alerts_about_members_and_fleets_fire_and_resolve() {
    let world = FleetWorld::start("watched-fleet", &[("member1", 10)]).await;
    world.deploy_everywhere(1).await;
    world.load.evenly(1.0);
    let assignment = with_preferences("StaticWeighted", "staticWeight", &[("member1", 1)]);
    let more = json!({ "federatedHPAAssignment": assignment, "crons": window(3) });
    world.ask("StaticWeighted", (1, 30), &more).await;
    let config = Config {
        listen: free_address(),
        ..world.config()
    };
    let monitoring = Monitoring::start("none is needed on loopback").await;
    monitoring.scrape(&[config.listen]);
    let _controller = Controller::run(config, foretide::clock::Clock::system());
    let variables = [
        ("kind", "federatedhpa"),
        ("namespace", NAMESPACE),
        ("name", SHOP),
    ];
    monitoring.shows(PANELS, &variables).await;

    let metadata = json!({});
    let broken = world
        .fleet
        .register_member("member2", SYSTEM, "no kubeconfig", &metadata);
    broken.await.unwrap();
    world.fleet.member("member1").block();
    // Its share is not taken from a member that does not answer.
    world.edit(json!({ "maxReplicas": 5 })).await;
    let shop = [("name", SHOP)];
    tokio::join!(
        monitoring.fires("ForetideFleetUnbalanced", &shop),
        monitoring.fires("ForetideMemberUnavailable", &[("member", "member1")]),
        monitoring.fires("ForetideMembersUnusable", &[("severity", "warning")]),
    );
    world.fleet.member("member1").unblock();
    world.remove("member2").await;
    tokio::join!(
        monitoring.resolves("ForetideFleetUnbalanced", &shop),
        monitoring.resolves("ForetideMemberUnavailable", &[]),
        monitoring.resolves("ForetideMembersUnusable", &[]),
    );
    monitoring.has_seen(ALERTS).await;
}
