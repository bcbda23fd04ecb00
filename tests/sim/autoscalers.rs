//! Single autoscalers whose specs are wrong, whose writes fail or are undone, or whose metrics are old: what is written,
//! how often, and what the status says.

use jiff::SignedDuration;
use serde_json::{Value, json};
use simkube::{faults::Plan, network::Effect};

use crate::cluster::{
    Cluster, DENIED, HPAS, HUB, MAX, SHOP, STATUSES, TENANT, always, external, hpa,
};

const HOST: &str = "pod-0";
const GONE: &str = "00000000-0000-4000-8000-000000000000";
/// The syncs of all objects.
const SYNC: &str = "foretide_controller::sync";

/// An autoscaler `web` that has settled at two replicas.
fn settled(mode: &str, rest: &Value) -> Cluster {
    let mut cluster = Cluster::without_election();
    cluster.autoscaler("web", 2, mode, rest);
    cluster.needs("web", 2);
    cluster.world.has_run_for(SignedDuration::from_hours(1));
    cluster.start(HOST);
    cluster.run_for(60);
    cluster
}

/// Seconds of the requests in trouble, from the first one on.
fn attempts(cluster: &Cluster) -> Vec<i64> {
    let troubled = cluster.network().troubled();
    let mut seconds: Vec<_> = troubled
        .iter()
        .map(|(at, _)| at.duration_since(troubled[0].0).as_secs())
        .collect();
    seconds.dedup();
    seconds
}

#[test]
fn a_mistake_in_a_spec_leaves_the_last_valid_one_in_effect_and_is_said_once() {
    let unknown = json!({"behavior": {"scaleDown": {"stabilisationWindowSeconds": 900}}});
    let meant = "False/InvalidSpec: spec.behavior.scaleDown.stabilisationWindowSeconds is no field of autoscaling/v2, \
                 expected policies, selectPolicy, stabilizationWindowSeconds, tolerance (did you mean \
                 stabilizationWindowSeconds?); ";
    let nonsense = json!({"metrics": [{"type": "Resource", "resource": 7}]});
    let invalid = "False/InvalidSpec";
    let target = json!({"minReplicas": 20, "scaleTargetRef": {"name": "other"}});
    for mode in ["Direct", "Delegated", "Metric"] {
        for (mistake, expected) in [(&unknown, meant), (&nonsense, invalid), (&target, invalid)] {
            let mut cluster = settled(mode, &json!({}));
            let child = |cluster: &Cluster| cluster.hpa("ehpa-web").map(|hpa| hpa["spec"].clone());
            let before = child(&cluster);
            cluster.edit("web", mistake);
            cluster.run_for(20);
            cluster.assert_said("web", "Ready", expected);
            cluster.needs("web", 4);
            cluster.until_has(60, "web", 4);
            cluster.run_for(30);
            let statuses = cluster.writes(HOST, STATUSES);
            cluster.run_for(45);
            assert_eq!(cluster.writes(HOST, STATUSES), statuses);
            assert_eq!(child(&cluster), before, "{mode}, {mistake}");
            // The next process knows no valid spec, and leaves everything as it is.
            cluster.crash(HOST, 2);
            cluster.run_for(45);
            assert_eq!(child(&cluster), before, "{mode}, {mistake}");
            assert_eq!(cluster.events("InvalidSpec").len(), 1);
        }
    }
}

#[test]
fn a_target_that_is_missing_or_not_allowed_is_reported_beside_others_that_are_scaled() {
    let mut cluster = settled("Direct", &json!({}));
    cluster.namespace(DENIED);
    cluster.autoscaler_in(DENIED, "denied", (1, "Delegated"), &json!({}));
    cluster.autoscaler_without_target(SHOP, "lost", "apps/v1");
    for app in ["web", "denied"] {
        cluster.needs(app, 4);
    }
    cluster.until_has(60, "web", 4);
    cluster.run_for(30);
    let statuses = cluster.writes(HOST, STATUSES);
    cluster.run_for(45);
    assert_eq!(cluster.writes(HOST, STATUSES), statuses);
    cluster.assert_said("lost", "Ready", "False/FailedGetScale");
    let expected = "False/InvalidSpec: metadata.namespace is denied, expected a namespace in which the controller scales: \
                    it does not in its own and in those of --deny-target-namespaces; not reconciled until the spec is fixed";
    assert_eq!(cluster.said("denied", "Ready"), expected);
    assert_eq!(
        (cluster.replicas("denied"), cluster.hpa("ehpa-denied")),
        (1, None)
    );
}

#[test]
fn an_autoscaler_that_cannot_be_decoded_keeps_its_state_and_its_adopted_hpa() {
    let mut cluster = settled("Delegated", &json!({}));
    cluster.adopted_hpa(SHOP, "web", None);
    let is_adopted = |cluster: &Cluster| cluster.hpa("web").unwrap()["spec"]["maxReplicas"] == MAX;
    cluster.until(30, "it is adopted", is_adopted);
    cluster.run_for(30);
    let before = cluster.writes(HOST, HPAS);
    cluster.edit("web", &json!({"minReplicas": "one"}));
    cluster.run_for(60);
    assert_eq!(cluster.writes(HOST, HPAS), before);
    assert!(is_adopted(&cluster));
    // By the last valid spec, which is still known.
    let mistake = json!({"minReplicas": 1, "metrics": [{"type": "Resource", "resource": 7}]});
    cluster.edit("web", &mistake);
    cluster.edit_hpa("web", &json!({"spec": {"maxReplicas": 9}}));
    cluster.until(30, "it is restored", is_adopted);
}

#[test]
fn a_refused_write_emits_one_event_and_is_retried_at_the_next_sync() {
    let mut cluster = settled("Direct", &json!({}));
    cluster.trouble("PATCH", &["/scale"], Effect::Refused(403));
    cluster.needs("web", 4);
    cluster.run_for(75);
    let times = attempts(&cluster);
    assert!(
        (4..7).contains(&times.len()) && times.windows(2).all(|two| two[1] - two[0] > 10),
        "{times:?}"
    );
    assert_eq!(cluster.events("FailedUpdateScale").len(), 1);
    cluster.network().end_all();
    cluster.until_has(20, "web", 4);
    cluster.run_for(2);
    assert_eq!(cluster.events("Scaled").len(), 1);
}

#[test]
fn an_object_whose_writes_conflict_again_and_again_is_decided_less_and_less_often() {
    let mut cluster = settled("Direct", &json!({}));
    for load in [4, 8] {
        cluster.trouble("PATCH", &["/scale"], Effect::Refused(409));
        cluster.needs("web", load);
        let before = attempts(&cluster).len();
        cluster.run_for(90);
        let times = attempts(&cluster)[before..].to_vec();
        let gaps: Vec<_> = times.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(gaps[..3], [1, 2, 4], "{times:?}");
        assert!(times.len() < 12, "{times:?}");
        cluster.network().end_all();
        cluster.until_has(20, "web", load);
        cluster.run_for(60);
    }
}

#[test]
fn an_hpa_of_others_with_the_name_of_the_child_is_not_written() {
    let mut cluster = Cluster::new(1, Plan::default());
    let theirs = hpa(SHOP, "ehpa-web", "other", json!({"maxReplicas": 3}));
    cluster.server.create(&theirs);
    cluster.autoscaler("web", 2, "Delegated", &json!({}));
    cluster.start(HOST);
    cluster.until_ready(60, "web", "False/FailedReconcileHPA");
    cluster.run_for(45);
    assert_eq!(cluster.events("FailedReconcileHPA").len(), 1);
    assert_eq!(
        cluster.hpa("ehpa-web").unwrap()["spec"]["scaleTargetRef"]["name"],
        "other"
    );
}

#[test]
fn samples_that_are_too_old_scale_nothing_down_and_the_status_names_their_age() {
    let mut cluster = settled("Direct", &json!({}));
    cluster.needs("web", 8);
    cluster.until_has(60, "web", 8);
    cluster.run_for(60);
    cluster.age_metrics(620);
    cluster.needs("web", 1);
    cluster.run_for(120);
    assert_eq!(cluster.replicas("web"), 8);
    assert!(cluster.status("web").contains("StaleSamples"));
    cluster.assert_said("web", "ScalingActive", "False/FailedGetResourceMetric");
    let active = cluster.said("web", "ScalingActive");
    assert!(active.contains("is 10m"), "{active}");
    cluster.age_metrics(0);
    cluster.until_has(90, "web", 1);
}

#[test]
fn a_writer_that_keeps_changing_the_replicas_is_reported_once_and_not_fought() {
    let mut cluster = settled("Direct", &json!({}));
    cluster.needs("web", 4);
    cluster.until_has(60, "web", 4);
    let before = cluster.scaled("web");
    for _period in 0..40 {
        cluster.scale_by_hand("web", 2);
        cluster.run_for(15);
    }
    // At first each change is undone by the decision; from the third one on, one write per minute.
    let written = cluster.scaled("web") - before;
    assert!((8..14).contains(&written), "{written}");
    assert_eq!(cluster.events("ExternalWriter").len(), 1);
    cluster.assert_said("web", "Ready", "False/ExternalWriter");
    // After the writer has stopped, its last change is forgotten after ten minutes.
    cluster.until_ready(700, "web", "True");
    assert_eq!(cluster.replicas("web"), 4);
}

#[test]
fn a_count_below_the_minimum_is_raised_at_every_sync_and_a_pause_of_a_user_is_left_alone() {
    let mut cluster = settled("Direct", &json!({"minReplicas": 3}));
    for _period in 0..10 {
        cluster.scale_by_hand("web", 1);
        cluster.until(20, "it is raised", |cluster| cluster.replicas("web") >= 3);
    }
    let ready = cluster.said("web", "Ready");
    assert!(
        ready.starts_with("False/ExternalWriter") && ready.contains("set-last-applied"),
        "{ready}"
    );
    cluster.scale_by_hand("web", 0);
    cluster.run_for(45);
    assert_eq!(cluster.replicas("web"), 0);
}

#[test]
fn a_new_leader_writes_no_status_only_to_say_that_it_leads() {
    let mut cluster = Cluster::new(1, Plan::default());
    cluster.autoscaler("web", 2, "Delegated", &json!({}));
    cluster.needs("web", 2);
    cluster.world.has_run_for(SignedDuration::from_hours(1));
    cluster.start(HOST);
    cluster.run_for(60);
    cluster.start("pod-1");
    cluster.run_for(30);
    let series = |host: &str| cluster.metrics(host).contains(r#"name="web""#);
    assert_eq!(
        [HOST, "pod-1"].map(series),
        [true, false],
        "a standby decides nothing"
    );
    cluster.kill(HOST);
    cluster.until(30, "the other leads", |cluster| cluster.leader() == "pod-1");
    cluster.run_for(60);
    assert_eq!(cluster.writes("pod-1", STATUSES), 0);
}

#[test]
fn statuses_and_writes_of_a_namespace_that_hang_delay_no_decision_and_no_status_of_others() {
    let mut cluster = Cluster::without_election();
    let stuck: Vec<_> = (0..40).map(|n| format!("stuck-{n}")).collect();
    for name in &stuck {
        cluster.autoscaler_in(TENANT, name, (1, "Direct"), &always(3));
    }
    cluster.autoscaler("web", 1, "Direct", &always(4));
    cluster.trouble(
        "PATCH",
        &["/namespaces/tenant/effective", "/status"],
        Effect::Hang,
    );
    cluster.start(HOST);
    cluster.until(20, "the floors", |cluster| {
        stuck.iter().all(|name| cluster.replicas(name) == 3) && cluster.replicas("web") == 4
    });
    for floor in [5, 6, 7] {
        cluster.edit_in(TENANT, "stuck-0", &always(floor));
        cluster.edit("web", &always(floor));
        cluster.until(3, "both are decided", |cluster| {
            ["stuck-0", "web"]
                .iter()
                .all(|name| cluster.replicas(name) == floor)
        });
        cluster.until(3, "its status", |cluster| cluster.is_reported("web"));
    }
    assert!(!cluster.is_reported("stuck-0"));
    cluster.network().end_all();
    cluster.until(60, "the last status", |cluster| {
        cluster.is_reported("stuck-0")
    });

    // Writes of counts hang.
    cluster.trouble("PATCH", &["/namespaces/tenant/deployments/"], Effect::Hang);
    for name in &stuck {
        cluster.edit_in(TENANT, name, &always(8));
    }
    cluster.run_for(2);
    cluster.edit("web", &always(8));
    cluster.until_has(3, "web", 8);
    assert!(stuck.iter().all(|name| cluster.replicas(name) != 8));
}

#[test]
fn an_orphan_that_cannot_be_restored_is_tried_again_after_five_minutes() {
    let mut cluster = settled("Delegated", &json!({}));
    cluster.adopted_hpa(SHOP, "forged", Some(GONE));
    cluster.trouble(
        "PATCH",
        &["/horizontalpodautoscalers/forged"],
        Effect::Refused(403),
    );
    cluster.run_for(450);
    let times = attempts(&cluster);
    assert!(
        times.len() == 2 && (300..320).contains(&times[1]),
        "{times:?}"
    );
}

#[test]
fn copies_that_are_out_of_date_scale_and_collect_nothing_and_the_object_says_so() {
    let kinds: [&[&str]; 3] = [
        &["/api/v1/pods"],
        &["/apis/apps/v1/deployments"],
        &["/effectivehorizontalpodautoscalers"],
    ];
    for kind in kinds {
        let mut cluster = settled("Direct", &json!({}));
        cluster.trouble("GET", kind, Effect::Hang);
        cluster.network().reset(HOST, HUB);
        cluster.until_ready(120, "web", "False/CacheStale: the watch of ");
        let ready = cluster.said("web", "Ready");
        let expected = "; nothing is written until it does: check the connection to the API server";
        assert!(ready.contains(expected), "{ready}");
        cluster.assert_said("web", "AbleToScale", "False/CacheStale");
        // If the autoscalers are known, this one is not among them.
        cluster.adopted_hpa(SHOP, "forged", Some(GONE));
        cluster.needs("web", 4);
        cluster.run_for(60);
        let is_forged =
            |cluster: &Cluster| cluster.hpa("forged").unwrap()["spec"]["maxReplicas"] == 9;
        assert_eq!(cluster.replicas("web"), 2, "{kind:?}");
        assert_eq!(is_forged(&cluster), kind == kinds[2], "{kind:?}");
        assert_eq!(cluster.events("CacheStale").len(), 1);
        cluster.network().end_all();
        cluster.network().reset(HOST, HUB);
        cluster.until_has(60, "web", 4);
        cluster.until(60, "it is collected", |cluster| !is_forged(cluster));
    }
}

#[test]
fn an_object_leaves_no_series_if_it_is_deleted_while_its_sync_runs_unless_it_is_created_again() {
    for (again, panics) in [(false, false), (false, true), (true, false)] {
        let mut cluster = settled("Direct", &json!({}));
        cluster.trouble("GET", &["/apis/metrics.k8s.io"], Effect::Hang);
        cluster.edit("web", &always(4));
        cluster.run_for(1);
        let mut new = (*cluster.ehpa("web")).clone();
        cluster.delete("web");
        if again {
            new["metadata"] = json!({"name": "web", "namespace": SHOP});
            cluster.server.create(&new);
        }
        if panics {
            cluster.panic_in(HOST, SYNC);
        }
        cluster.run_for(60);
        let metrics = cluster.metrics(HOST);
        let panicked = r#"panics_total{kind="effectivehorizontalpodautoscaler"} 1"#;
        let seen = [r#"name="web""#, panicked].map(|series| metrics.contains(series));
        assert_eq!(seen, [again, panics], "{metrics}");
    }
}

#[test]
fn a_zero_of_an_autoscaler_is_a_sleep_and_one_of_a_user_a_pause_whoever_runs() {
    let mut queue = external("queue");
    queue["minReplicas"] = json!(0);
    for by_user in [false, true] {
        let mut cluster = Cluster::without_election();
        cluster.autoscaler("web", 2, "Direct", &queue);
        cluster.needs("queue", if by_user { 2 } else { 0 });
        cluster.start(HOST);
        if by_user {
            cluster.run_for(60);
            cluster.scale_by_hand("web", 0);
        } else {
            cluster.until_has(90, "web", 0);
        }
        for _restart in 0..3 {
            cluster.run_for(20);
            cluster.crash(HOST, 2);
        }
        cluster.needs("queue", 4);
        let count = if by_user { 0 } else { 4 };
        cluster.run_for(60);
        assert_eq!(cluster.replicas("web"), count);
        // A user scales it up and down again.
        cluster.scale_by_hand("web", 1);
        cluster.run_for(40);
        cluster.scale_by_hand("web", 0);
        cluster.crash(HOST, 2);
        cluster.run_for(60);
        assert_eq!(cluster.replicas("web"), 0);
    }
}

#[test]
fn a_step_of_the_clock_ends_no_window_and_makes_no_increase_early_or_late() {
    let behavior = json!({"behavior": {
        "scaleDown": {"stabilizationWindowSeconds": 120},
        "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]},
    }});
    for step in [3_600, -3_600] {
        let mut cluster = settled("Direct", &behavior);
        cluster.needs("web", 8);
        cluster.until_has(20, "web", 4);
        cluster.step_clock(HOST, step);
        for _second in 0..40 {
            cluster.run_for(1);
            assert_eq!(cluster.replicas("web"), 4, "a step of {step} s");
        }
        cluster.until_has(40, "web", 6);
        cluster.needs("web", 2);
        cluster.run_for(30);
        cluster.step_clock(HOST, -step);
        for _second in 0..60 {
            cluster.run_for(1);
            assert!(cluster.replicas("web") >= 6, "a step of {step} s");
        }
        cluster.until_has(90, "web", 2);
    }
}

#[test]
fn a_cron_window_opens_and_closes_by_the_clock_as_it_is_now() {
    let window =
        json!({"name": "one", "start": "0 1 * * *", "end": "0 2 * * *", "targetReplicas": 9});
    let mut cluster = settled("Direct", &json!({"crons": [window]}));
    cluster.step_clock(HOST, 3_660);
    cluster.until_has(20, "web", 9);
    cluster.step_clock(HOST, -3_600);
    // The floor ends with the window of a decrease.
    cluster.until_has(90, "web", 2);
}

#[test]
fn a_panic_quarantines_its_object_and_no_other() {
    let mut cluster = settled("Direct", &json!({}));
    cluster.panic_in(HOST, SYNC);
    cluster.until_ready(20, "web", "False/InternalError");
    let since = cluster.now();
    cluster.needs("web", 4);
    cluster.autoscaler_in(TENANT, "own", (1, "Direct"), &always(4));
    cluster.until_has(5, "own", 4);
    // It waits for half a minute, not for its regular time.
    cluster.until_has(60, "web", 4);
    assert!((28..46).contains(&cluster.now().duration_since(since).as_secs()));
}

#[test]
fn a_target_without_a_selector_is_not_scaled_by_pods_of_other_workloads() {
    let mut cluster = settled("Direct", &json!({}));
    cluster.autoscaler("other", 4, "Direct", &json!({}));
    cluster.needs("other", 12);
    let without = json!({"spec": {"selector": {"matchLabels": null}}});
    cluster
        .server
        .patch("deployments.apps", SHOP, "web", &without);
    cluster.until(60, "its pods are unknown", |cluster| {
        cluster.status("web").contains("NoPods")
    });
    cluster.run_for(60);
    assert_eq!(cluster.replicas("web"), 2);
}

#[test]
fn a_count_that_was_changed_during_a_pause_is_corrected_seconds_after_it() {
    let mut cluster = settled("Direct", &json!({"minReplicas": 2}));
    cluster.pause(HOST);
    cluster.scale_by_hand("web", 1);
    cluster.run_for(600);
    cluster.resume(HOST);
    cluster.until_has(60, "web", 2);
}
