//! Reading a stored status never panics and scales nothing down, no matter what the status contains. Runs as a test
//! here, and under a fuzzer with `cargo bolero test`.

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use serde_json::{Value, json};

use crate::{
    alter::alter,
    cluster::{Cluster, EHPAS, SHOP},
};

const HOST: &str = "pod-0";
/// Number of autoscalers that have a status of their own in one cluster.
const ALL: usize = 40;

fn name(n: usize) -> String {
    format!("web-{n}")
}

/// Runs a process over autoscalers of six replicas at their target that a process before it left with these statuses.
fn run_after(statuses: &[Value]) -> Cluster {
    let mut cluster = Cluster::without_election();
    let peak =
        json!({"name": "peak", "start": "0 9 * * *", "end": "0 18 * * *", "targetReplicas": 4});
    for (n, status) in statuses.iter().enumerate() {
        let spec = json!({"minReplicas": 2, "crons": [peak], "prediction": {}});
        cluster.autoscaler(&name(n), 6, "Direct", &spec);
        cluster.needs(&name(n), 6);
        let path = format!("{}/status", name(n));
        let status = json!({"status": status});
        cluster.server.patch(EHPAS, SHOP, &path, &status);
    }
    cluster.start(HOST);
    for _second in 0..50 {
        cluster.run_for(1);
        for (n, status) in statuses.iter().enumerate() {
            let count = cluster.replicas(&name(n));
            assert!((6..=12).contains(&count), "{count}: {status}");
        }
    }
    for (n, status) in statuses.iter().enumerate() {
        assert!(
            !cluster.status(&name(n)).contains("InternalError"),
            "{status}"
        );
        assert!(cluster.is_reported(&name(n)), "{status}");
    }
    cluster
}

#[test]
fn stored_status_json() {
    let first = run_after(&[json!({})]);
    let ehpa = (*first.ehpa(&name(0))).clone();
    let full = ehpa["status"].clone();
    assert!(
        full["history"].is_object() && full["decision"].is_object(),
        "{full}"
    );
    let is_decoded = |status: &Value| {
        let mut ehpa = ehpa.clone();
        ehpa["status"] = status.clone();
        serde_json::from_value::<EffectiveHorizontalPodAutoscaler>(ehpa).is_ok()
    };
    bolero::check!()
        .with_iterations(25)
        .with_type::<[[u8; 18]; ALL]>()
        .for_each(|all| {
            let altered = all.iter().map(|bytes| {
                let mut status = full.clone();
                // With more changes it would hardly ever be decoded.
                for (nth, change) in bytes.chunks(6).enumerate() {
                    let part = if nth == 0 { "/history" } else { "" };
                    if let Some(part) = status.pointer_mut(part) {
                        alter(part, change);
                    }
                }
                status
            });
            let statuses: Vec<_> = altered.filter(is_decoded).collect();
            run_after(&statuses);
        });
}
