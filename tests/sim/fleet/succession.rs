//! Leaders that are paused while they write about fleets, to the hub or to a member: the successor writes the rest, and
//! nothing more of the old one is accepted, which the laws check in every second.

use std::time::Duration;

use serde_json::json;
use simkube::network::Way;

use super::world::{FLEETS, child, fleet, plain};
use crate::cluster::{self, Cluster, HUB, SHOP};

/// Number of fleets that change at once; each has its workload placed by the hub.
const FLEET_COUNT: usize = 20;

fn name(n: usize) -> String {
    format!("shop-{n}")
}

/// Returns the number of fleets with a ledger.
fn ledgers(cluster: &Cluster) -> usize {
    let all = cluster.server.objects(FLEETS);
    all.iter()
        .filter(|one| one["status"]["ledger"].is_string())
        .count()
}

/// Returns the number of HPAs in the member.
fn hpas(cluster: &Cluster) -> usize {
    let server = cluster.site("member1");
    (0..FLEET_COUNT)
        .filter(|n| child(server, &name(*n)).is_some())
        .count()
}

#[test]
fn a_leader_that_is_paused_while_it_writes_ledgers_or_hpas_in_a_member_writes_no_more() {
    for (seen, slow) in [(ledgers as fn(&Cluster) -> usize, HUB), (hpas, "member1")] {
        let mut cluster = Cluster::fleet(&[("member1", 100)]);
        cluster.start("pod-0");
        cluster.until(60, "pod-0 leads", |cluster| cluster.leader() == "pod-0");
        cluster.start("pod-1");
        cluster.run_for(30);
        // Slow enough that not all writes are sent at once.
        cluster
            .network()
            .set("pod-0", slow, Way::Open(Duration::from_millis(100)));
        for n in 0..FLEET_COUNT {
            let more = json!({"workloadSource": "Hub", "metrics": null, "federatedHPAAssignment": plain("Duplicated")});
            for object in [
                cluster::deployment(SHOP, &name(n), 0),
                fleet(&name(n), "Duplicated", (2, 2), &more),
            ] {
                cluster.server.create(&object);
            }
        }
        cluster.until_just(60, "some are written", |cluster| seen(cluster) > 0);
        assert!(seen(&cluster) < FLEET_COUNT);
        cluster.pause("pod-0");
        cluster.until(40, "pod-1 leads", |cluster| cluster.leader() == "pod-1");
        cluster.until(60, "all are written", |cluster| {
            ledgers(cluster) + hpas(cluster) == 2 * FLEET_COUNT
        });
        cluster.resume("pod-0");
        cluster.until(5, "pod-0 ends", |cluster| cluster.ended("pod-0").is_some());
        assert!(cluster.ended("pod-0").unwrap().is_err());
        cluster.run_for(60);
        assert_eq!(cluster.leader(), "pod-1");
    }
}
