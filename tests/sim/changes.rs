//! Changes of the replicas and problems that begin: their events, and their record in the status.

use serde_json::{Value, json};

use crate::cluster::{Cluster, EHPAS, SHOP, STATUSES};

const HOST: &str = "pod-0";

/// An autoscaler `web` of three pods, whose controller has just started.
fn started(mode: &str, rest: &Value) -> Cluster {
    let mut cluster = Cluster::without_election();
    cluster.autoscaler("web", 3, mode, rest);
    cluster.needs("web", 3);
    cluster.start(HOST);
    cluster
}

/// The counts and the sentence of each change in the status.
fn changes(cluster: &Cluster) -> Vec<(u64, u64, String)> {
    let ehpa = cluster.ehpa("web");
    let changes = ehpa["status"]["changes"].as_array().into_iter().flatten();
    let told = changes.map(|it| {
        let count = |field: &str| it[field].as_u64().unwrap();
        (
            count("from"),
            count("to"),
            it["message"].as_str().unwrap().to_owned(),
        )
    });
    told.collect()
}

#[test]
fn a_scale_up_by_the_child_has_one_event_with_the_sentence_and_a_successor_names_other_writers() {
    let all_day =
        json!({"name": "all-day", "start": "0 0 * * *", "end": "59 23 * * *", "targetReplicas": 8});
    let mut cluster = started("Delegated", &json!({"crons": [all_day]}));
    cluster.until_has(60, "web", 8);
    cluster.run_for(60);
    let sentence = "8 replicas: the cron window all-day asks for 8 until 2026-01-01 23:59 UTC";
    let scaled = (3, 8, sentence.to_owned());
    assert_eq!(changes(&cluster), std::slice::from_ref(&scaled));
    assert_eq!(cluster.events("Scaled").len(), 1);
    let before = cluster.writes(HOST, STATUSES);
    cluster.run_for(120);
    assert_eq!(cluster.writes(HOST, STATUSES), before);
    // A user scales while no controller runs.
    cluster.crash(HOST, 5);
    cluster.scale_by_hand("web", 9);
    cluster.run_for(25);
    let other = (8, 9, "another writer changed the replicas".to_owned());
    assert_eq!(changes(&cluster), [scaled, other]);
    assert_eq!(cluster.events("Scaled").len(), 1);
}

#[test]
fn a_count_that_a_preview_pins_is_told_as_that_and_not_by_its_decision() {
    let pinned = json!({"scaleStrategy": "Preview", "specificReplicas": 5});
    let mut cluster = started("Delegated", &pinned);
    cluster.run_for(45);
    let sentence = "5 replicas: specificReplicas in Preview".to_owned();
    assert_eq!(changes(&cluster), [(3, 5, sentence)]);
}

#[test]
fn a_cron_that_cannot_be_used_and_a_conflict_each_have_one_event() {
    let cron = json!({
        "name": "a", "start": "0 9 * * *", "end": "0 18 * * *", "targetReplicas": 4, "timezone": "Europe/Berln",
    });
    let mut cluster = started("Delegated", &json!({"crons": [cron]}));
    let mut second = (*cluster.ehpa("web")).clone();
    second["metadata"] = json!({"name": "web-too", "namespace": SHOP});
    second["spec"]["crons"] = Value::Null;
    cluster.run_for(20);
    cluster.server.create(&second);
    cluster.run_for(90);
    assert_eq!(cluster.server.objects(EHPAS).len(), 2);
    for reason in ["InvalidTimeZone", "TargetConflict"] {
        assert_eq!(cluster.events(reason).len(), 1, "{reason}");
    }
}
