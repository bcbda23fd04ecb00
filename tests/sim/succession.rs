//! A leader that is killed, cut off from the API server, or paused for longer than its lease, while it has much to write:
//! its successor writes all of it, and nothing more of the old one is accepted.

use std::time::Duration;

use serde_json::json;
use simkube::{faults::Plan, network::Way};

use crate::cluster::Cluster;

const OBJECTS: usize = 60;

fn name(n: usize) -> String {
    format!("web-{n}")
}

/// A leader on `pod-0` and a standby on `pod-1`, and autoscalers that have settled at two replicas.
fn settled() -> Cluster {
    let mut cluster = Cluster::new(1, Plan::default());
    for n in 0..OBJECTS {
        cluster.autoscaler(&name(n), 2, "Direct", &json!({}));
        cluster.needs(&name(n), 2);
    }
    cluster.start("pod-0");
    cluster.until(60, "pod-0 leads", |cluster| cluster.leader() == "pod-0");
    cluster.start("pod-1");
    cluster.run_for(60);
    cluster
}

fn all_have(cluster: &Cluster, count: u64) -> bool {
    with(cluster, count) == OBJECTS
}

/// Returns the number of Deployments with this count.
fn with(cluster: &Cluster, count: u64) -> usize {
    let deployments = cluster.server.objects("deployments.apps");
    deployments
        .iter()
        .filter(|one| one["spec"]["replicas"] == count)
        .count()
}

/// Doubles the load, and stops when the leader has written some of the resulting counts, but not all.
fn in_the_middle_of_writing() -> Cluster {
    let mut cluster = settled();
    // Slow enough that not all writes are sent at once.
    cluster.reach("pod-0", Way::Open(Duration::from_millis(50)));
    (0..OBJECTS).for_each(|n| cluster.needs(&name(n), 4));
    cluster.until_just(60, "some counts are written", |cluster| {
        with(cluster, 2) < OBJECTS
    });
    let unwritten = with(&cluster, 2);
    assert!(unwritten > OBJECTS / 2, "{unwritten}");
    cluster
}

#[test]
fn a_leader_that_is_killed_while_it_writes_is_succeeded_by_one_that_writes_the_rest() {
    let mut cluster = in_the_middle_of_writing();
    cluster.kill("pod-0");
    cluster.until(30, "pod-1 leads", |cluster| cluster.leader() == "pod-1");
    cluster.until(60, "all have 4", |cluster| all_have(cluster, 4));
}

#[test]
fn a_leader_that_is_paused_for_longer_than_its_lease_writes_no_more_and_ends() {
    let mut cluster = in_the_middle_of_writing();
    cluster.pause("pod-0");
    cluster.until(30, "pod-1 leads", |cluster| cluster.leader() == "pod-1");
    cluster.until(60, "all have 4", |cluster| all_have(cluster, 4));
    cluster.resume("pod-0");
    cluster.until(5, "pod-0 ends", |cluster| cluster.ended("pod-0").is_some());
    assert!(cluster.ended("pod-0").unwrap().is_err());
    cluster.run_for(60);
    assert_eq!(cluster.leader(), "pod-1");
}

#[test]
fn a_leader_that_is_cut_off_loses_the_lease_and_writes_no_more() {
    let mut cluster = in_the_middle_of_writing();
    cluster.reach("pod-0", Way::Blocked);
    cluster.until(30, "pod-1 leads", |cluster| cluster.leader() == "pod-1");
    cluster.until(60, "all have 4", |cluster| all_have(cluster, 4));
    cluster.reach("pod-0", Way::Open(Duration::ZERO));
    cluster.run_for(60);
    assert!(cluster.ended("pod-0").is_some_and(Result::is_err));
    assert_eq!(cluster.leader(), "pod-1");
}

#[test]
fn a_leader_that_is_asked_to_end_releases_the_lease_at_once() {
    let mut cluster = settled();
    cluster.terminate("pod-0");
    cluster.until(5, "pod-1 leads", |cluster| cluster.leader() == "pod-1");
    cluster.run_for(5);
    assert_eq!(cluster.ended("pod-0"), Some(&Ok(())));
}
