//! Changes of the replicas and problems that begin: their events, and their record in the status.

use super::*;

const FLOOR: &str =
    "crons: [{name: all-day, start: '0 0 * * *', end: '59 23 * * *', targetReplicas: 8}]";

/// The counts and the sentence of each change in the status.
fn changes(fake: &FakeCluster) -> Vec<(i32, i32, String)> {
    let changes = fake.status("web").changes.unwrap_or_default();
    let changes = changes.into_iter();
    changes.map(|it| (it.from, it.to, it.message)).collect()
}

#[tokio::test]
async fn a_scale_up_by_the_child_at_a_raised_minimum_has_an_event_with_the_sentence_once() {
    let fake = FakeCluster::default();
    let spec = format!("minReplicas: 1, maxReplicas: 10, {CPU}, {FLOOR}");
    fake.put("web", 3, &spec);
    fake.state().millicores = 300;
    let mut world = World::new(fake);
    let writes = world.sync(0).await;
    assert_eq!(
        writes,
        ["hpa ehpa-web min 8", "event web HPACreated", "status web"]
    );
    assert_eq!(changes(&world.fake), []);
    world.fake.state().replicas.insert("web".into(), 8);
    let writes = world.sync(15).await;
    assert_eq!(writes, ["event web Scaled", "status web"]);
    let [(3, 8, sentence)] = &changes(&world.fake)[..] else {
        panic!("{:?}", changes(&world.fake));
    };
    let want = "8 replicas: the cron window all-day asks for 8 until 2026-01-01 23:59 UTC, above observed 3";
    assert_eq!(sentence, want);
    for pass in 2..10 {
        assert_eq!(world.sync(pass * 15).await, Vec::<String>::new(), "{pass}");
    }
}

#[tokio::test]
async fn a_successor_keeps_the_changes_and_names_one_that_another_writer_made() {
    let fake = FakeCluster::default();
    let spec = format!("minReplicas: 1, maxReplicas: 10, {CPU}, {FLOOR}");
    fake.put("web", 3, &spec);
    fake.state().millicores = 300;
    let mut world = World::new(fake);
    world.sync(0).await;
    world.fake.state().replicas.insert("web".into(), 8);
    world.sync(15).await;
    let before = changes(&world.fake);
    world.restart();
    // A user scales while no controller runs.
    world.fake.state().replicas.insert("web".into(), 9);
    let writes = world.sync(30).await;
    assert!(
        !writes.contains(&"event web Scaled".to_owned()),
        "{writes:?}"
    );
    let other = (8, 9, "another writer changed the replicas".to_owned());
    assert_eq!(changes(&world.fake), [before, vec![other]].concat());
}

#[tokio::test]
async fn a_count_that_a_preview_pins_is_told_as_that_and_not_by_its_decision() {
    let fake = FakeCluster::default();
    let pinned = "scaleStrategy: Preview, specificReplicas: 5";
    fake.put("web", 3, &format!("maxReplicas: 10, {CPU}, {pinned}"));
    fake.state().millicores = 300;
    let mut world = World::new(fake);
    world.sync(0).await;
    let sentence = "5 replicas: specificReplicas in Preview".to_owned();
    assert_eq!(changes(&world.fake), [(3, 5, sentence)]);
}

#[tokio::test]
async fn a_cron_that_cannot_be_used_a_conflict_and_a_lost_forecast_each_have_one_event() {
    let fake = FakeCluster::default();
    let cron = "crons: [{name: a, start: '0 9 * * *', end: '0 18 * * *', targetReplicas: 4, timezone: Europe/Berln}]";
    fake.put("web", 3, &format!("maxReplicas: 10, {CPU}, {cron}"));
    fake.put("web-too", 3, &format!("maxReplicas: 10, {CPU}"));
    fake.edit("web-too", |ehpa| {
        ehpa.spec.scale_target_ref.name = "web".into();
    });
    fake.edit("web", |ehpa| {
        ehpa.spec.prediction = serde_json::from_value(serde_json::json!({})).unwrap();
    });
    fake.state().millicores = 300;
    let mut world = World::new(fake);
    let forecasts = Arc::<Forecasts>::default();
    world.controller = World::controller(&world.fake, &world.clock, &forecasts);
    let key = SeriesKey {
        uid: "uid-web".to_owned(),
        metric: "resource.cpu".to_owned(),
    };
    let until = world.start + SignedDuration::from_secs(20);
    let (minute, points) = (SignedDuration::from_mins(1), vec![0.2; 24 * 60]);
    let forecast = Forecast::new("test", world.start, minute, points, until).unwrap();
    forecasts.replace(key.clone(), forecast.clone(), LeadTime::of(None, None));
    let warnings = |writes: Vec<String>| {
        let mut warnings: Vec<_> = writes
            .into_iter()
            .filter(|write| write.starts_with("event") && !write.ends_with("HPACreated"))
            .collect();
        warnings.sort();
        warnings
    };
    let first = warnings(world.sync(0).await);
    let want = ["event web InvalidTimeZone", "event web-too TargetConflict"];
    assert_eq!(first, want);
    assert_eq!(warnings(world.sync(15).await), Vec::<String>::new());
    assert_eq!(warnings(world.sync(30).await), ["event web Expired"]);
    assert_eq!(warnings(world.sync(45).await), Vec::<String>::new());
    // A successor has no forecast at first, which says nothing of the one that was lost.
    let successors = Arc::<Forecasts>::default();
    world.controller = World::controller(&world.fake, &world.clock, &successors);
    assert_eq!(warnings(world.sync(60).await), Vec::<String>::new());
    successors.replace(key, forecast, LeadTime::of(None, None));
    assert_eq!(warnings(world.sync(75).await), Vec::<String>::new());
}
