//! What a fleet says of its members: in conditions, rows, events, metrics and the log.

use std::time::Duration;

use serde_json::{Value, json};
use simkube::network::Effect;
use tracing::dispatcher::set_default;

use super::world::{settled, with_preferences};
use crate::{cluster::Cluster, log::Records};

const TWO: [&str; 2] = ["one", "two"];

/// Returns the decisions that were logged so far, and forgets them.
fn decisions(records: &Records) -> Vec<Value> {
    let records = records.take().into_iter();
    let records = records.map(|record| serde_json::from_str(&record).unwrap());
    records
        .filter(|record: &Value| !record["desired"].is_null())
        .collect()
}

#[test]
fn a_silent_member_is_lost_after_a_while_and_failed_after_its_toleration_and_counts_until_then() {
    let mut cluster = settled(&json!({"failurePolicy": "Reassign", "tolerationSeconds": 60}));
    let before = cluster.fleet_status()["currentReplicas"].clone();
    cluster.block("two");
    let mut since = [None; 3];
    for second in 0..150 {
        cluster.run_for(1);
        let seen = [
            cluster.condition("MembersReachable") == "False/Unreachable",
            !cluster.events("MemberLost").is_empty(),
            cluster.has_reason("two", "Failed: "),
        ];
        for (since, is_seen) in since.iter_mut().zip(seen) {
            *since = since.or(is_seen.then_some(second));
        }
        let status = cluster.fleet_status();
        assert!(
            seen[2] || status["currentReplicas"] == before,
            "second {second}"
        );
        assert!(seen[2] || cluster.condition("ScalingActive").starts_with("True"));
    }
    let [unreachable, lost, failed] = since.map(|second: Option<u64>| second.unwrap());
    assert!(unreachable <= lost, "{since:?}");
    // Half a minute since it was heard last; one sync; a minute that is tolerated.
    assert!((18..48).contains(&lost), "{since:?}");
    assert!((45..80).contains(&(failed - lost)), "{since:?}");
    let counted = cluster.counts("one").unwrap().0;
    assert_eq!(cluster.fleet_status()["currentReplicas"], counted);
    cluster.unblock("two");
    cluster.until(60, "it is back", |cluster| {
        !cluster.events("MemberBack").is_empty()
    });
    assert_eq!(cluster.events("MemberLost").len(), 1);

    // A member that was never reachable is not lost.
    cluster.add_member("three", 10);
    cluster.block("three");
    cluster.join("three", &json!({}));
    cluster.run_for(90);
    assert!(cluster.has_reason("three", "Unknown"), "{}", cluster.show());
    cluster.unblock("three");
    cluster.until_reason(60, "three", "TargetAbsent");
    assert_eq!(cluster.events("MemberLost").len(), 1);
    assert_eq!(cluster.events("MemberBack").len(), 1);
}

#[test]
fn a_member_that_was_silent_before_a_restart_fails_no_sooner_and_keeps_its_counts() {
    let mut cluster = settled(&json!({"failurePolicy": "Reassign", "tolerationSeconds": 60}));
    cluster.block("two");
    cluster.run_for(5);
    cluster.crash_all();
    let counts = |cluster: &Cluster| {
        ["max", "current", "ready"].map(|field| cluster.row("two")[field].clone())
    };
    for second in 0..90 {
        cluster.run_for(1);
        assert!(!cluster.has_reason("two", "Failed: "), "second {second}");
        assert_eq!(
            counts(&cluster),
            [json!(10), json!(2), json!(2)],
            "second {second}"
        );
    }
    cluster.until_reason(60, "two", "Failed: ");
}

#[test]
fn a_member_that_counts_as_lost_is_asked_nothing_but_whether_it_is_ready() {
    let mut cluster = settled(&json!({}));
    cluster.trouble("GET", &["/readyz"], Effect::Hang);
    cluster.until(90, "both are lost", |cluster| {
        TWO.iter().all(|name| cluster.has_reason(name, "Unknown"))
    });
    cluster.run_for(5);
    let asked = TWO.map(|name| cluster.site(name).audit().len());
    cluster.run_for(120);
    for (name, asked) in TWO.iter().zip(asked) {
        let since = cluster.site(name).audit_since(asked);
        let of_hub = |verb: &str| !["watch", "list"].contains(&verb);
        let mut ours = since
            .iter()
            .filter(|entry| entry.client.starts_with("pod-"));
        assert!(ours.all(|entry| !of_hub(&entry.access.verb)), "{since:?}");
    }
}

#[test]
fn a_member_whose_metrics_hang_is_observed_and_its_own_count_followed() {
    let mut cluster = settled(&json!({}));
    cluster.trouble("GET", &["/apis/metrics.k8s.io"], Effect::Hang);
    cluster.run_for(20);
    cluster.deploy("two", 6);
    cluster.until(35, "its count", |cluster| {
        cluster.row("two")["current"] == 6
    });
    assert_eq!(cluster.condition("MembersReachable"), "True/Reachable");
}

#[test]
fn a_member_without_a_preference_is_reported_separately_from_participants() {
    let members = [("one", 10), ("two", 10), ("three", 10)];
    let mut cluster = Cluster::fleet(&members);
    cluster.deploy_everywhere(2);
    cluster.evenly(4_000);
    let two = with_preferences("StaticWeighted", "staticWeight", &[("one", 1), ("two", 1)]);
    cluster.ask_for("", (2, 20), &json!({"federatedHPAAssignment": two}));
    cluster.start("pod-0");
    let all = "every participating member is reachable";
    cluster.until(60, "all are", |it| it.message("MembersReachable") == all);
    cluster.block("three");
    let beside =
        format!("{all}; three, which no preference selects, is not ready: no answer since ");
    cluster.until(60, "one that takes no part", |cluster| {
        cluster.message("MembersReachable").starts_with(&beside)
    });
    assert_eq!(cluster.condition("MembersReachable"), "True/Reachable");
    let row = "NoPreference: no preference gives it a weight or priority. No answer since ";
    assert!(cluster.has_reason("three", row), "{}", cluster.show());
    cluster.unblock("three");
    cluster.until(60, "all are", |it| it.message("MembersReachable") == all);
}

#[test]
fn a_minimum_that_differs_from_that_of_the_hpa_is_explained() {
    let mut cluster = settled(&json!({}));
    cluster.evenly(12_000);
    cluster.runs(90, "six each", &[("one", 6), ("two", 6)]);
    // Nothing is lowered while history is missing.
    cluster.crash_all();
    let note = ". minReplicas of its HPA is 6 until fewer are needed; its minimum is 1";
    cluster.until_reason(60, "two", note);
    assert_eq!(
        (cluster.bounds()["two"].0, cluster.row("two")["min"].clone()),
        (6, json!(1))
    );
    cluster.evenly(4_000);
    cluster.until(120, "it is as decided", |cluster| {
        cluster.bounds()["two"].0 == 1
    });
    cluster.run_for(1);
    assert!(
        !cluster.has_reason("two", "minReplicas of its HPA"),
        "{}",
        cluster.show()
    );
}

#[test]
fn every_decision_that_changes_a_count_is_one_record() {
    let mut cluster = settled(&json!({}));
    let records = Records::default();
    let written = records.clone();
    let log = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || written.clone());
    let _guard = set_default(&log.finish().into());
    cluster.run_for(60);
    assert_eq!(decisions(&records), Vec::<Value>::new(), "nothing changes");
    // The members' HPAs follow by themselves; the count of the fleet is reported.
    cluster.evenly(6_000);
    cluster.runs(60, "three each", &[("one", 3), ("two", 3)]);
    cluster.run_for(60);
    let changed = decisions(&records);
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert_eq!(changed[0]["desired"], 6);
    cluster.edit_fleet(&json!({"maxReplicas": 24}));
    cluster.capped(30, "more", &[("one", 12), ("two", 12)]);
    cluster.run_for(30);
    let [moved] = &decisions(&records)[..] else {
        panic!("one record for both members");
    };
    let text = moved.to_string();
    for name in TWO {
        assert!(
            text.contains(&format!("{name}: maxReplicas 10 -> 12")),
            "{text}"
        );
    }
}

#[test]
fn a_member_that_does_not_answer_at_once_after_a_step_or_a_pause_keeps_its_share() {
    // A hub that was paused needs some time until its own watches deliver again.
    for (step, silent) in [(3_600, 18), (-3_600, 18), (0, 50)] {
        let more = json!({"failurePolicy": "Reassign", "tolerationSeconds": 60});
        let mut cluster = settled(&more);
        let (before, writes) = (cluster.bounds(), cluster.member_writes().len());
        cluster.block("two");
        if step == 0 {
            cluster.sleep("pod-0", Duration::from_mins(10));
        } else {
            cluster.step_clock("pod-0", step);
        }
        cluster.run_for(silent);
        cluster.unblock("two");
        cluster.run_for(120);
        let found = (cluster.bounds(), cluster.member_writes().len());
        assert_eq!(found, (before, writes), "a step of {step} s");
        assert!(step == 0 || cluster.events("MemberLost").is_empty());
        assert!(cluster.has(&[("one", 2), ("two", 2)]), "{}", cluster.show());
    }
}

#[test]
fn an_increase_of_a_fleet_is_neither_early_nor_late_after_a_step() {
    let policies = json!([{"type": "Pods", "value": 2, "periodSeconds": 60}]);
    for step in [3_600, -3_600] {
        let more = json!({"mode": "Direct", "behavior": {"scaleUp": {"policies": policies}}});
        let mut cluster = Cluster::fleet(&TWO.map(|name| (name, 10)));
        cluster.deploy_everywhere(2);
        cluster.evenly(4_000);
        cluster.ask_for("StaticWeighted", (2, 20), &more);
        cluster.start("pod-0");
        cluster.run_for(60);
        let asked = |cluster: &Cluster| TWO.map(|name| cluster.counts(name).unwrap().0);
        cluster.evenly(12_000);
        cluster.until(35, "two more", |cluster| asked(cluster) == [3, 3]);
        cluster.step_clock("pod-0", step);
        for _second in 0..40 {
            cluster.run_for(1);
            assert_eq!(asked(&cluster), [3, 3], "a step of {step} s");
        }
        cluster.until(40, "two more", |cluster| asked(cluster) == [4, 4]);
    }
}

#[test]
fn a_fleet_whose_sync_panicked_waits_although_its_members_change_meanwhile() {
    let mut cluster = settled(&json!({}));
    let is_broken = |cluster: &Cluster| cluster.condition("Ready") == "False/InternalError";
    cluster.panic_in("pod-0", "foretide_controller::sync");
    cluster.until(20, "it panics", is_broken);
    cluster.run_for(2);
    cluster.spoil("two");
    for _second in 0..24 {
        cluster.run_for(1);
        assert!(is_broken(&cluster));
    }
    cluster.until(30, "it is well", |cluster| !is_broken(cluster));
}

#[test]
fn a_restart_resumes_from_the_ledger_and_moves_no_budget() {
    let mut cluster = settled(&json!({}));
    cluster.run_for(60);
    let ledger = cluster.fleet_status()["ledger"].clone();
    let (bounds, events) = (
        cluster.bounds(),
        cluster.server.objects("events.events.k8s.io"),
    );
    cluster.crash_all();
    cluster.run_for(150);
    assert_eq!(cluster.fleet_status()["ledger"], ledger);
    assert_eq!(cluster.bounds(), bounds);
    assert_eq!(cluster.server.objects("events.events.k8s.io"), events);
}
