//! Decisions of the hub alone: a metric of the fleet, which becomes a floor in members, and the counts of a fleet in Direct
//! mode, where all pods of all members are one set and no member has an HPA.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::body::Body;
use futures::FutureExt as _;
use http::{Request, Response};
use serde_json::{Value, json};

use super::world::{plain, three, with_preferences};
use crate::cluster::{Cluster, PERIOD, cpu};

const ROOMS: [(&str, u64); 3] = three([10, 6, 20]);
const API: &str = "external.metrics.k8s.io/v1beta1";
/// A demand that stands for an unreadable queue.
const SILENT: u64 = u64::MAX;

/// An external metric of the hub: its value in replicas, and the number of requests for it.
#[derive(Default)]
struct Queue {
    replicas: AtomicU64,
    asked: AtomicU64,
}

// === impl Queue ===

impl Queue {
    /// Serves the queue in the hub, instead of the metrics of its world.
    fn serve(cluster: &Cluster) -> Arc<Self> {
        let queue = Arc::new(Self::default());
        let served = Arc::clone(&queue);
        let backend = move |_request: Request<Vec<u8>>| {
            served.asked.fetch_add(1, Ordering::Relaxed);
            let replicas = served.replicas.load(Ordering::Relaxed);
            let item = json!({
                "metricName": "jobs", "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z",
                "value": replicas.saturating_mul(10).to_string(),
            });
            let list = json!({"kind": "ExternalMetricValueList", "apiVersion": API, "metadata": {}, "items": [item]});
            let mut response = Response::new(Body::from(list.to_string()));
            let json = http::HeaderValue::from_static("application/json");
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, json);
            if replicas == SILENT {
                *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            }
            futures::future::ready(response).boxed()
        };
        cluster.server.aggregate(API, Arc::new(backend));
        queue
    }

    fn needs(&self, replicas: u64) {
        self.replicas.store(replicas, Ordering::Relaxed);
    }
}

fn weighted() -> Value {
    with_preferences("StaticWeighted", "staticWeight", &three([1, 2, 3]))
}

fn prioritized() -> Value {
    with_preferences("Prioritized", "priority", &three([2, 3, 1]))
}

fn jobs() -> Value {
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    json!({"type": "External", "external": {"metric": {"name": "jobs"}, "target": target}})
}

#[test]
fn a_fleet_metric_is_a_floor_that_the_hub_alone_asks_for() {
    let mut cluster = Cluster::fleet(&ROOMS);
    let queue = Queue::serve(&cluster);
    cluster.deploy_everywhere(1);
    cluster.evenly(1_000);
    queue.needs(12);
    let more = json!({
        "metrics": [cpu(), jobs()],
        // No moves between the members.
        "rebalance": {"cooldownSeconds": 600}, "federatedHPAAssignment": weighted(),
    });
    cluster.ask_for("StaticWeighted", (3, 25), &more);
    cluster.start("pod-0");
    // 12 over 1:2:3.
    let twelve = three([(2, 4), (4, 8), (6, 13)]);
    cluster.assigned(60, "by weight", &twelve);
    cluster.runs(60, "two, four, six", &three([2, 4, 6]));

    // One query in each sync for all members, whose HPAs do not read the queue.
    let asked = queue.asked.load(Ordering::Relaxed);
    cluster.run_for(4 * PERIOD.as_secs());
    assert_eq!(queue.asked.load(Ordering::Relaxed) - asked, 4);
    for (member, _) in ROOMS {
        let child = cluster.child(member).unwrap();
        let metrics = child["spec"]["metrics"].as_array().unwrap();
        assert_eq!(metrics.len(), 1, "{member}: {metrics:?}");
    }

    // Without an answer, the last proposal stays in effect.
    queue.needs(SILENT);
    cluster.until_condition(60, "ScalingActive", "False/FailedGetExternalMetric");
    cluster.run_for(60);
    cluster.assigned(0, "as before", &twelve);
    queue.needs(12);

    // By priority, the highest first; a member with a budget has a minimum of one.
    cluster.edit_fleet(&json!({"federatedHPAAssignment": prioritized()}));
    let twelve = three([(5, 10), (6, 6), (1, 9)]);
    cluster.assigned(120, "by priority", &twelve);
    // With an empty queue, each member returns to the needs of its own load.
    queue.needs(0);
    let least = three([(1, 10), (3, 6), (1, 9)]);
    cluster.assigned(120, "no floor", &least);
    cluster.runs(120, "the minimum", &three([1, 3, 1]));
}

#[test]
fn in_direct_mode_all_pods_decide_one_count_and_a_lost_member_keeps_its_own() {
    let mut cluster = Cluster::fleet(&ROOMS);
    let queue = Queue::serve(&cluster);
    cluster.deploy_everywhere(1);
    queue.needs(12);
    // A metric that only the hub can read: it writes the counts, by every policy.
    let more = json!({"metrics": [jobs()], "federatedHPAAssignment": prioritized()});
    cluster.ask_for("Prioritized", (3, 25), &more);
    cluster.start("pod-0");
    let cases = [
        (prioritized(), [5, 6, 1]),
        // The largest member first.
        (plain("Aggregated"), [1, 0, 11]),
        (weighted(), [2, 4, 6]),
        // Running replicas stay, and new ones go to the largest capacity.
        (plain("DynamicWeighted"), [2, 4, 6]),
    ];
    for (assignment, counts) in cases {
        let policy = assignment["federatedHPAAssignmentType"].to_string();
        cluster.edit_fleet(&json!({"federatedHPAAssignment": assignment}));
        cluster.runs(300, &policy, &three(counts));
        cluster.run_for(60);
        cluster.runs(0, &format!("{policy}, still"), &three(counts));
        assert!(cluster.bounds().is_empty(), "{policy}");
    }
    // Five more over 8:2:14, the capacity left beside them.
    queue.needs(17);
    cluster.runs(90, "seventeen", &three([4, 4, 9]));

    // Each member by itself would decide otherwise: all load is in one of them.
    cluster.locally(&[("member1", 8_600)]);
    let equally = with_preferences("StaticWeighted", "staticWeight", &three([1, 1, 1]));
    let spec = json!({"metrics": [cpu()], "mode": "Direct", "maxReplicas": 30, "federatedHPAAssignment": equally});
    cluster.edit_fleet(&spec);
    cluster.runs(300, "three each", &three([3, 3, 3]));
    cluster.run_for(60);
    cluster.runs(0, "three each, still", &three([3, 3, 3]));
    let writes: BTreeSet<String> = cluster.member_writes().into_iter().collect();
    let counts = ROOMS.map(|(name, _)| format!("{name}: patch deployments.apps/scale shop/shop"));
    assert_eq!(writes, counts.into());

    // A lost member keeps its replicas, independently of the needs of the others.
    cluster.block("member2");
    cluster.until_condition(60, "MembersReachable", "False/Unreachable");
    for (load, first, third) in [(11_800, 6, 6), (3_000, 2, 1), (11_800, 6, 6)] {
        cluster.locally(&[("member1", load)]);
        cluster.runs(180, "beside three", &three([first, 3, third]));
        assert_eq!(cluster.row("member2")["current"], 3);
    }
    // The member returns and counts again, and no member ran fewer replicas than its part meanwhile.
    cluster.unblock("member2");
    cluster.until(120, "four each", |cluster| {
        let counts = ROOMS.map(|(name, _)| cluster.counts(name).unwrap().0);
        assert!(
            counts[0] >= 4 && counts[1] >= 3 && counts[2] >= 4,
            "{}",
            cluster.show()
        );
        cluster.has(&three([4, 4, 4]))
    });
}
