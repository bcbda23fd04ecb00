//! A process that ends at any of its writes is followed by one that leads to the same state.
//!
//! A history runs once undisturbed, and then once for each of its writes: the process ends when the cluster has accepted
//! that write, before it sees the answer, and is started again. It knows only what the cluster stores.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use simkube::{Entry, network::Way};

use crate::{
    cluster::{Cluster, EHPAS, HPAS, SHOP, external},
    laws::fits,
};

const HOST: &str = "pod-0";
const APPS: [&str; 6] = ["web", "api", "shown", "switched", "adopter", "queue"];
const END: u64 = 240;
/// Second after which nothing is written.
const SETTLED: u64 = 210;

/// The objects at the end, without times and measured values, and how often each HPA was created and deleted.
type Outcome = BTreeMap<String, Value>;

/// Actions of users and loads: loads rise and fall, a queue is emptied and filled again, a preview begins to act and
/// ends, a mode changes and changes back, and an autoscaler that had adopted an HPA is deleted.
fn happens(cluster: &Cluster, second: u64) {
    let edit = |app: &str, field: &str, value: &str| cluster.edit(app, &json!({field: value}));
    match second {
        30 => ["web", "api"]
            .into_iter()
            .for_each(|app| cluster.needs(app, 8)),
        45 => edit("shown", "scaleStrategy", "Auto"),
        60 => edit("switched", "mode", "Direct"),
        75 => {
            cluster.delete("adopter");
        }
        90 => ["web", "api"]
            .into_iter()
            .for_each(|app| cluster.needs(app, 3)),
        105 => edit("shown", "scaleStrategy", "Preview"),
        10 => cluster.needs("queue", 0),
        110 => cluster.needs("queue", 3),
        120 => edit("switched", "mode", "Delegated"),
        _ => {}
    }
}

/// The second of a write, and its description.
type Write = (u64, String);

/// Runs the history with a process that ends at the write with this second and number. Returns the outcome and the
/// writes.
fn run(point: Option<(u64, usize)>) -> (Outcome, Vec<Write>) {
    let mut cluster = Cluster::without_election();
    for app in APPS {
        let mode = if app == "api" { "Direct" } else { "Delegated" };
        let mut rest = json!({});
        if app == "queue" {
            rest = external(app);
            rest["minReplicas"] = json!(0);
        }
        cluster.autoscaler(app, 4, mode, &rest);
        cluster.needs(app, 4);
    }
    cluster.edit("shown", &json!({"scaleStrategy": "Preview"}));
    cluster.adopted_hpa(SHOP, "adopter", None);
    cluster.start(HOST);
    // Slow enough that one write is answered before the next is sent.
    cluster.reach(HOST, Way::Open(Duration::from_millis(25)));
    let mut writes = Vec::new();
    for second in 0..END {
        happens(&cluster, second);
        let before = writes.len();
        let passed = match point.filter(|(at, _)| *at == second) {
            None => cluster.second(),
            Some((_, number)) => {
                let mut is_due = true;
                cluster.sliced_second(|cluster| {
                    if is_due && number <= shown(cluster).count() {
                        cluster.crash(HOST, 5);
                        is_due = false;
                    }
                })
            }
        };
        passed.unwrap_or_else(|law| panic!("ends at {point:?}, {}: {law}", cluster.now()));
        writes.extend(shown(&cluster).skip(before).map(|write| (second, write)));
    }
    let late = writes.iter().find(|(second, _)| *second >= SETTLED);
    assert_eq!(late, None, "ends at {point:?}");
    (outcome(&cluster), writes)
}

/// Returns whether a request has changed an object.
fn is_write(entry: &Entry) -> bool {
    let resource = &*entry.access.resource;
    let is_told = resource == "events" || resource.ends_with("reviews");
    entry.client == HOST && entry.written.is_some() && !is_told
}

fn show(entry: &Entry) -> String {
    format!("{} {}", entry.access.verb, entry.object())
}

fn shown(cluster: &Cluster) -> impl Iterator<Item = String> {
    let audit = cluster.server.audit().into_iter();
    audit.filter(is_write).map(|entry| show(&entry))
}

fn outcome(cluster: &Cluster) -> Outcome {
    let mut found = Outcome::new();
    for app in APPS {
        let (count, load) = (cluster.replicas(app), cluster.load.at(app, cluster.now()));
        let count = if fits(count, load) {
            json!("as the load asks")
        } else {
            json!(count)
        };
        found.insert(format!("count of {app}"), count);
    }
    for hpa in cluster.server.objects(HPAS) {
        let (metadata, mut spec) = (&hpa["metadata"], hpa["spec"].clone());
        let target = spec["scaleTargetRef"]["name"].as_str().unwrap().to_owned();
        // After a restart a minimum that was raised stays until fewer are needed; up to the present count it has no effect.
        if spec["minReplicas"].as_u64() <= Some(cluster.replicas(&target)) {
            spec["minReplicas"] = json!("no more than there are");
        }
        let kept = ["labels", "annotations", "ownerReferences"].map(|field| &metadata[field]);
        found.insert(format!("HPA {}", metadata["name"]), json!([spec, kept]));
    }
    for ehpa in cluster.server.objects(EHPAS) {
        let (metadata, status) = (&ehpa["metadata"], &ehpa["status"]);
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let conditions = conditions.map(|one| json!([one["type"], one["status"], one["reason"]]));
        let is_current = status["observedGeneration"] == metadata["generation"];
        let kept = json!([
            metadata["finalizers"],
            conditions.collect::<Vec<_>>(),
            is_current
        ]);
        found.insert(format!("autoscaler {}", metadata["name"]), kept);
    }
    for entry in cluster.server.audit() {
        let is_made_or_deleted = entry.code == 201 || entry.access.verb == "delete";
        if is_write(&entry) && is_made_or_deleted {
            let times = found.entry(show(&entry)).or_insert(json!(0));
            *times = json!(times.as_u64().unwrap() + 1);
        }
    }
    found
}

#[test]
fn a_process_that_ends_at_any_of_its_writes_is_followed_by_one_that_reaches_the_same() {
    let (undisturbed, writes) = run(None);
    for shown in [
        "delete horizontalpodautoscalers.autoscaling shop/ehpa-shown",
        "delete horizontalpodautoscalers.autoscaling shop/ehpa-switched",
        "patch deployments.apps/scale shop/api",
        "patch deployments.apps/scale shop/queue",
    ] {
        assert!(
            writes.iter().any(|(_, write)| write == shown),
            "{shown}: {writes:#?}"
        );
    }
    for (number, (second, write)) in (1..).zip(&writes) {
        let (found, _) = run(Some((*second, number)));
        assert_eq!(found, undisturbed, "ends at write {number}, {write}");
    }
}
