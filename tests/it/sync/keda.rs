//! A target that a `ScaledObject` of KEDA scales: a conflict without a trigger of Foretide, and none with it.

use foretide_api::ports::KedaPause;
use foretide_api::published::{
    KedaSource, Published, STALE_AFTER, Unpublished, keda_metric_name, label_value,
};
use serde_json::json;

use super::*;

const CRON: &str =
    "crons: [{name: all-day, start: '0 0 * * *', end: '59 23 * * *', targetReplicas: 8}]";

/// The HPA that KEDA makes of `ScaledObject` web, with a trigger for each name.
fn keda_hpa(fake: &FakeCluster, metrics: &[&str]) {
    let metrics: Vec<_> = metrics
        .iter()
        .map(|name| {
            json!({"type": "External", "external": {
                "metric": {"name": name, "selector": {"matchLabels": {"scaledobject.keda.sh/name": "web"}}},
                "target": {"type": "AverageValue", "averageValue": "1"},
            }})
        })
        .collect();
    let owner = json!({"uid": "uid-so", "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web"});
    let hpa = json!({
        "metadata": {"name": "keda-hpa-web", "namespace": "shop", "ownerReferences": [owner]},
        "spec": {"scaleTargetRef": {"name": "web"}, "minReplicas": 1, "maxReplicas": 50, "metrics": metrics},
    });
    let mut state = fake.state();
    state.hpas.remove("keda-hpa-web");
    state.accept_hpa(&hpa).unwrap();
}

fn message(fake: &FakeCluster) -> String {
    let conditions = fake.status("web").conditions.unwrap();
    let ready = conditions.into_iter().find(|known| known.type_ == "Ready");
    ready.unwrap().message
}

fn world(spec: &str) -> World {
    world_of(CPU, spec)
}

fn world_of(metrics: &str, spec: &str) -> World {
    let fake = FakeCluster::default();
    let spec = format!("minReplicas: 1, maxReplicas: 50, {metrics}, {CRON}, {spec}");
    fake.put("web", 3, &spec);
    fake.state().millicores = 300;
    World::new(fake)
}

#[tokio::test]
async fn without_a_trigger_the_conflict_names_the_one_to_add_and_with_it_the_floor_is_served() {
    let mut world = world("prediction: {}");
    world.sync(0).await;
    assert_eq!(world.fake.ready("web").1, "Decided");
    keda_hpa(&world.fake, &["s0-cpu-something"]);
    let writes = world.sync(15).await;
    assert_eq!(
        writes,
        [
            "delete hpa ehpa-web",
            "event web HPARemoved",
            "event web TargetConflict",
            "status web"
        ]
    );
    let conflict = ("False".to_owned(), "TargetConflict".to_owned());
    assert_eq!(world.fake.ready("web"), conflict);
    assert_eq!(
        message(&world.fake),
        "not acting: ScaledObject web (horizontalpodautoscaler keda-hpa-web) scales the same target and is not changed; add the trigger \
         {type: external, metadata: {scalerAddress: \"foretide-keda-scaler.foretide-system.svc:9000\", enableTLS: \"true\", \
         autoscaler: web}} to it, with an authenticationRef for the scaler's caCert, so that it keeps the floor of this object, or delete one of the two"
    );
    keda_hpa(&world.fake, &["s0-cpu-something", "s1-foretide-floor-web"]);
    assert_eq!(world.sync(30).await, ["status web"]);
    let served = ("True".to_owned(), "ScaledByKEDA".to_owned());
    assert_eq!(world.fake.ready("web"), served);
    let begin = "ScaledObject web scales the target, and reads this object as s1-foretide-floor-web; 8 replicas: ";
    let found = message(&world.fake);
    assert!(found.starts_with(begin), "{found}");
    assert_eq!(world.fake.status("web").decision.unwrap().floor, Some(8));
    // The trigger is removed again, and then the ScaledObject.
    keda_hpa(&world.fake, &["s0-cpu-something"]);
    world.sync(45).await;
    assert_eq!(world.fake.ready("web"), conflict);
    world.fake.state().hpas.remove("keda-hpa-web");
    let writes = world.sync(60).await;
    assert!(
        writes.contains(&"hpa ehpa-web min 8".to_owned()),
        "{writes:?}"
    );
    assert_eq!(world.fake.ready("web").1, "Decided");
}

#[tokio::test]
async fn a_served_floor_is_written_every_five_minutes_and_nothing_else_is() {
    for mode in ["Delegated", "Metric", "Direct"] {
        let mut world = world(&format!("mode: {mode}"));
        keda_hpa(&world.fake, &["s0-foretide-floor-web"]);
        let mut written = Vec::new();
        for second in (0..=900).step_by(15) {
            let writes = world.sync(second).await;
            assert!(
                writes.iter().all(|write| write == "status web"),
                "{writes:?}"
            );
            written.extend((!writes.is_empty()).then_some(second));
            let state = world.fake.state();
            let now = state.now;
            let floor = Published::of(&state.autoscalers["web"], now).floor();
            assert_eq!(floor, Ok(Some(8)), "{mode} at {second}");
        }
        assert_eq!(written, [0, 300, 600, 900], "{mode}");
    }
}

#[tokio::test]
async fn a_trigger_of_each_source_counts_and_that_of_another_autoscaler_does_not() {
    let queue = "{type: External, external: {metric: {name: 'queue|size'}, target: {type: AverageValue, averageValue: 9}}}";
    let metrics = CPU.replace(']', &format!(", {queue}]"));
    let of_metric = |metric: &str| keda_metric_name(KedaSource::Forecast, "web", Some(metric));
    let forecast = of_metric("resource.cpu");
    for (name, is_served) in [
        ("foretide-floor-web".to_owned(), true),
        ("foretide-cron-web".to_owned(), true),
        // A trigger for a forecast has its metric in the name.
        ("foretide-forecast-web".to_owned(), false),
        (forecast, true),
        (of_metric("external.queue|size"), true),
        (of_metric(&label_value("external.queue|size")), true),
        (of_metric("resource.memory"), false),
        ("foretide-floor-web-two".to_owned(), false),
        ("foretide-floor-api".to_owned(), false),
    ] {
        let mut world = world_of(&metrics, "scaleStrategy: Auto");
        keda_hpa(&world.fake, &[&format!("s0-{name}")]);
        world.sync(0).await;
        assert_eq!(world.fake.ready("web").0 == "True", is_served, "{name}");
    }
}

#[tokio::test]
async fn a_workload_that_keda_has_scaled_to_zero_waits_for_a_trigger_and_not_for_its_owner() {
    let mut world = world("prediction: {}");
    world.fake.state().replicas.insert("web".to_owned(), 0);
    keda_hpa(&world.fake, &["s0-foretide-floor-web"]);
    world.sync(0).await;
    assert_eq!(
        message(&world.fake),
        "ScaledObject web scales the target, and reads this object as s0-foretide-floor-web; it is scaled to zero until a \
         trigger is active"
    );
}

#[tokio::test]
async fn a_workload_that_keda_scaled_to_zero_gets_its_floor() {
    for min in [0, 1] {
        let mut world = world(&format!("specificReplicas: {min}"));
        world
            .fake
            .edit("web", |ehpa| ehpa.spec.min_replicas = Some(min));
        world.fake.state().replicas.insert("web".to_owned(), 0);
        keda_hpa(&world.fake, &["s0-foretide-floor-web"]);
        assert_eq!(world.sync(0).await, ["status web"]);
        assert_eq!(world.fake.status("web").decision.unwrap().floor, Some(8));
        assert_eq!(world.fake.ready("web").1, "ScaledByKEDA");
    }
}

#[tokio::test]
async fn a_scaled_object_of_another_target_keeps_no_status_up_to_date() {
    let mut world = world("mode: Delegated");
    keda_hpa(&world.fake, &["s0-foretide-floor-web"]);
    world
        .fake
        .state()
        .hpas
        .get_mut("keda-hpa-web")
        .unwrap()
        .target
        .name = "other".into();
    world.sync(0).await;
    assert_eq!(world.fake.ready("web").1, "Decided");
    let (fake, start) = (world.fake.clone(), world.start);
    let floor = |second: i64| {
        let at = start + SignedDuration::from_secs(second);
        Published::of(&fake.state().autoscalers["web"], at).floor()
    };
    assert_eq!(floor(0), Ok(Some(8)));
    let until = STALE_AFTER.as_secs();
    for second in (15..=until).step_by(15) {
        assert_eq!(
            world.sync(second).await,
            Vec::<String>::new(),
            "second {second}"
        );
    }
    let stale = floor(until + 1);
    assert!(matches!(stale, Err(Unpublished::Stale { .. })), "{stale:?}");
}

/// Pauses as KEDA does, which deletes its HPA.
fn pause(fake: &FakeCluster) {
    let mut state = fake.state();
    state.hpas.remove("keda-hpa-web");
    state.keda_pause = KedaPause::On {
        scaled_object: "web".to_owned(),
        annotation: "autoscaling.keda.sh/paused",
    };
}

impl World {
    /// Returns the writes of one sync besides statuses and events.
    async fn acts(&mut self, second: i64) -> Vec<String> {
        let mut acts = self.sync(second).await;
        acts.retain(|write| !write.starts_with("status") && !write.starts_with("event"));
        acts
    }
}

#[tokio::test]
async fn a_target_that_keda_has_paused_is_left_alone_until_keda_scales_it_again() {
    for (metrics, spec) in [
        (CPU, "mode: Delegated"),
        (CPU, "mode: Direct"),
        (CPU, "mode: Metric"),
        ("metrics: []", "mode: Delegated"),
        (CPU, "scaleStrategy: Preview, specificReplicas: 6"),
    ] {
        let mut world = world_of(metrics, spec);
        keda_hpa(&world.fake, &["s0-foretide-floor-web"]);
        world.sync(0).await;
        pause(&world.fake);
        assert_eq!(world.acts(15).await, [""; 0], "{spec}");
        world.restart();
        for second in [30, 45] {
            assert_eq!(world.acts(second).await, [""; 0], "{spec} at {second}");
        }
        if !spec.contains("Preview") {
            let paused = ("True".to_owned(), "PausedByKEDA".to_owned());
            assert_eq!(world.fake.ready("web"), paused, "{spec}");
            assert_eq!(
                message(&world.fake),
                "not acting: KEDA has paused the target: ScaledObject web has the annotation autoscaling.keda.sh/paused; to \
                 resume, run kubectl annotate scaledobject web -n shop autoscaling.keda.sh/paused-"
            );
        }
        world.fake.state().keda_pause = KedaPause::Off;
        keda_hpa(&world.fake, &["s0-foretide-floor-web"]);
        assert_eq!(world.acts(60).await, [""; 0], "{spec}");
        assert_eq!(world.fake.ready("web").1, "ScaledByKEDA", "{spec}");
        // The ScaledObject is deleted, and nothing pauses.
        world.fake.state().hpas.remove("keda-hpa-web");
        assert_ne!(world.acts(75).await, [""; 0], "{spec}");
    }
}

#[tokio::test]
async fn a_child_that_is_in_the_way_of_a_pause_is_removed() {
    let mut world = world("prediction: {}");
    world.sync(0).await;
    pause(&world.fake);
    assert_eq!(world.acts(15).await, ["delete hpa ehpa-web"]);
    assert_eq!(world.sync(30).await, [""; 0]);
}

#[tokio::test]
async fn where_a_pause_cannot_be_seen_the_objects_that_keda_scales_say_so() {
    let mut world = world("prediction: {}");
    let fake = world.fake.clone();
    let says = || {
        message(&fake).ends_with(
            "; a pause by KEDA cannot be seen: grant the controller get, list and watch of scaledobjects.keda.sh",
        )
    };
    fake.state().keda_pause = KedaPause::Unseen;
    world.sync(0).await;
    assert!(!says(), "KEDA has nothing to do with it");
    for (second, trigger) in [(15, "s0-cpu-something"), (30, "s0-foretide-floor-web")] {
        keda_hpa(&fake, &[trigger]);
        world.sync(second).await;
        assert!(says(), "{trigger}");
    }
    // Paused and deleted look the same. A restart does not forget that KEDA scaled the target.
    fake.state().hpas.remove("keda-hpa-web");
    world.sync(45).await;
    world.restart();
    for (second, pause, expected) in [(60, KedaPause::Unseen, true), (75, KedaPause::Off, false)] {
        fake.state().keda_pause = pause;
        // Another count, so that the status is written.
        fake.state()
            .replicas
            .insert("web".to_owned(), 9 - u32::from(expected));
        world.sync(second).await;
        assert_eq!(
            (fake.ready("web").1.as_str(), says()),
            ("Decided", expected)
        );
    }
}
