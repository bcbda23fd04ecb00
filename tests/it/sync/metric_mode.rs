//! Mode Metric: the metrics of the child, changes of the mode, and the pace of the writes of the status.

use foretide_api::published::Published;
use foretide_crds::{Mode, ScaleStrategy};
use serde_json::{Value, json};

use super::*;

const CRON: &str =
    "crons: [{name: all-day, start: '0 0 * * *', end: '59 23 * * *', targetReplicas: 5}]";

/// A world whose forecasts the test sets: three pods with a target of 100m each.
struct MetricWorld {
    world: World,
    forecasts: Arc<Forecasts>,
}

impl MetricWorld {
    fn new(spec: &str) -> Self {
        let fake = FakeCluster::default();
        let spec = format!("minReplicas: 1, maxReplicas: 50, {CPU}, prediction: {{}}, {spec}");
        fake.put("web", 3, &spec);
        fake.state().millicores = 300;
        let mut world = World::new(fake);
        let forecasts = Arc::<Forecasts>::default();
        world.controller = World::controller(&world.fake, &world.clock, &forecasts);
        Self { world, forecasts }
    }

    /// Sets the forecast of the whole workload to this many cores from now on; without a number there is none.
    fn predict(&self, cores: Option<f64>) {
        predict(&self.forecasts, self.world.start, cores);
    }

    async fn sync(&mut self, second: i64) -> Vec<String> {
        self.world.sync(second).await
    }

    fn set_mode(&self, mode: Option<Mode>) {
        self.world.fake.edit("web", |ehpa| ehpa.spec.mode = mode);
    }

    /// Minimum, and the names and targets of the External metrics of the child.
    fn child(&self) -> (Value, Vec<(String, String)>) {
        let state = self.world.fake.state();
        let spec = &state.hpas["ehpa-web"].spec;
        let metrics = spec["metrics"].as_array().unwrap();
        assert_eq!(metrics[0]["type"], "Resource", "{metrics:?}");
        let external = metrics.iter().skip(1).map(|metric| {
            let labels = &metric["external"]["metric"]["selector"]["matchLabels"];
            assert_eq!(labels["targetName"], "web", "{metric}");
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let target = &metric["external"]["target"]["averageValue"];
            (text(&labels["resourceIdentifier"]), text(target))
        });
        (spec["minReplicas"].clone(), external.collect())
    }

    /// The last value that another process reads of the forecast, at this second.
    fn published(&self, second: i64) -> Option<String> {
        let at = self.world.start + SignedDuration::from_secs(second);
        let state = self.world.fake.state();
        let forecast = Published::of(&state.autoscalers["web"], at).forecast("resource.cpu");
        forecast.ok().map(|forecast| forecast.total.to_string())
    }
}

fn reads(metrics: &[(&str, &str)]) -> Vec<(String, String)> {
    let metrics = metrics.iter();
    metrics
        .map(|(name, target)| ((*name).to_owned(), (*target).to_owned()))
        .collect()
}

#[tokio::test]
async fn the_child_reads_forecasts_and_crons_and_has_the_minimum_of_the_spec() {
    let mut world = MetricWorld::new(&format!("mode: Metric, {CRON}"));
    world.predict(Some(0.9));
    world.sync(0).await;
    let both = reads(&[("resource.cpu", "100m"), ("cron", "1")]);
    assert_eq!(world.child(), (json!(1), both));
    let decision = world.world.fake.status("web").decision.unwrap();
    // The HPA doubles the count at most in one pass; a floor would not wait.
    assert_eq!((decision.desired, decision.floor), (Some(6), None));
    assert_eq!(decision.limit.as_deref(), Some("ScaleUpLimit"));
    assert_eq!(world.published(0).as_deref(), Some("900m"));
    for pass in 1..10 {
        let writes = world.sync(pass * 15).await;
        assert_eq!(writes, Vec::<String>::new(), "pass {pass}");
    }
}

#[tokio::test]
async fn a_forecast_that_ends_leaves_the_child_at_once_and_returns_to_it() {
    let mut world = MetricWorld::new("mode: Metric");
    world.predict(Some(0.9));
    world.sync(0).await;
    assert_eq!(world.child().1, reads(&[("resource.cpu", "100m")]));
    world.predict(None);
    let writes = world.sync(15).await;
    assert_eq!(writes, ["hpa ehpa-web min 1", "status web"]);
    assert_eq!(world.child().1, []);
    assert_eq!(world.published(15), None);
    world.predict(Some(0.9));
    world.sync(30).await;
    assert_eq!(world.child().1, reads(&[("resource.cpu", "100m")]));
}

#[tokio::test]
async fn a_switch_of_the_mode_changes_the_child_in_place() {
    let mut world = MetricWorld::new(CRON);
    world.predict(Some(0.9));
    world.sync(0).await;
    let uid = |world: &MetricWorld| world.world.fake.state().hpas["ehpa-web"].uid.clone();
    let first = uid(&world);
    // Three replicas run, so the child reaches nine only by its minimum.
    assert_eq!(world.child(), (json!(9), vec![]));
    world.set_mode(Some(Mode::Metric));
    let writes = world.sync(15).await;
    assert_eq!(writes, ["hpa ehpa-web min 1", "status web"]);
    let both = reads(&[("resource.cpu", "100m"), ("cron", "1")]);
    assert_eq!(world.child(), (json!(1), both));
    world.set_mode(None);
    world.sync(30).await;
    assert_eq!(world.child(), (json!(9), vec![]));
    assert_eq!(uid(&world), first);
    world.set_mode(Some(Mode::Metric));
    world.sync(45).await;
    // Direct stays in force, because an HPA cannot have a minimum of 0.
    world
        .world
        .fake
        .edit("web", |ehpa| ehpa.spec.min_replicas = Some(0));
    let writes = world.sync(60).await;
    assert!(writes.contains(&"scale web 9".to_owned()), "{writes:?}");
    assert!(world.world.fake.state().hpas.is_empty());
}

#[tokio::test]
async fn a_child_that_cannot_read_our_metrics_is_not_active() {
    let (cpu, read, unread) = (
        json!({"type": "Resource"}),
        json!({"type": "External"}),
        json!({"type": ""}),
    );
    let forecast = "crane_autoscaling_prediction (resource.cpu)";
    let cron = "crane_autoscaling_cron (cron)";
    for (metrics, observed, missing) in [
        (json!([cpu, read, read]), None, vec![]),
        (json!([cpu, unread, read]), None, vec![forecast]),
        (json!([cpu, unread, {}]), None, vec![forecast, cron]),
        (json!([cpu, read, unread]), Some(1), vec![cron]),
        // A child of an earlier spec.
        (json!([cpu, read, unread]), Some(0), vec![]),
        (json!([cpu, unread]), None, vec![]),
        (Value::Null, None, vec![]),
        // A foreign HPA.
        (json!([unread, read, read]), None, vec![]),
    ] {
        let mut world = MetricWorld::new(&format!("mode: Metric, {CRON}"));
        world.predict(Some(0.9));
        world.sync(0).await;
        {
            let mut state = world.world.fake.state();
            let child = state.hpas.get_mut("ehpa-web").unwrap();
            child.generation = Some(1);
            child.status = json!({
                "currentMetrics": metrics, "observedGeneration": observed, "currentReplicas": 3, "desiredReplicas": 3,
                "conditions": [{"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}],
            });
        }
        world.sync(15).await;
        let conditions = world.world.fake.status("web").conditions.unwrap();
        let active = conditions
            .into_iter()
            .find(|known| known.type_ == "ScalingActive");
        let active = active.unwrap();
        let found = (&*active.status, &*active.reason);
        if missing.is_empty() {
            assert_eq!(
                found,
                ("True", "ValidMetricFound"),
                "{metrics} {observed:?}"
            );
        } else {
            assert_eq!(found, ("False", "MetricAdapterUnavailable"), "{metrics}");
            let names = missing.join(", ");
            let begin = format!(
                "horizontalpodautoscaler ehpa-web cannot read {names}, so it does not scale down; "
            );
            assert!(active.message.starts_with(&begin), "{}", active.message);
        }
    }
}

/// Seconds at which the status was written, while the forecast is that of `cores`.
async fn status_writes(spec: &str, cores: impl Fn(i64) -> f64) -> Vec<i64> {
    let mut world = MetricWorld::new(spec);
    let mut written = Vec::new();
    for second in (0..=900).step_by(15) {
        world.predict(Some(cores(second)));
        let writes = world.sync(second).await;
        if writes.contains(&"status web".to_owned()) {
            written.push(second);
        }
    }
    written
}

#[tokio::test]
async fn a_status_that_others_read_is_written_by_its_third_digit_and_every_five_minutes() {
    let steady = |_| 0.25;
    let fourth = |second: i64| if second < 60 { 0.2521 } else { 0.2523 };
    let third = |second: i64| if second < 60 { 0.252 } else { 0.254 };
    let metric = "mode: Metric";
    for (case, found, want) in [
        (
            "steady",
            status_writes(metric, steady).await,
            vec![0, 300, 600, 900],
        ),
        (
            "fourth digit",
            status_writes(metric, fourth).await,
            vec![0, 300, 600, 900],
        ),
        (
            "third digit",
            status_writes(metric, third).await,
            vec![0, 60, 360, 660],
        ),
        (
            "Preview",
            status_writes("mode: Metric, scaleStrategy: Preview", steady).await,
            vec![0, 300, 600, 900],
        ),
        // No other process reads the status of other modes.
        (
            "Delegated",
            status_writes("mode: Delegated", third).await,
            vec![0],
        ),
        (
            "Direct",
            status_writes("mode: Direct", third).await,
            vec![0],
        ),
    ] {
        assert_eq!(found, want, "{case}");
    }
}

#[tokio::test]
async fn a_restart_writes_no_status_before_it_is_due() {
    let mut world = MetricWorld::new("mode: Metric");
    world.predict(Some(0.25));
    world.sync(0).await;
    let World { fake, clock, .. } = &world.world;
    world.world.controller = World::controller(fake, clock, &world.forecasts);
    for second in (15..300).step_by(15) {
        let writes = world.sync(second).await;
        assert_eq!(writes, Vec::<String>::new(), "second {second}");
    }
    assert_eq!(world.sync(300).await, ["status web"]);
}

#[tokio::test]
async fn what_is_published_is_never_old_while_the_controller_runs() {
    let mut world = MetricWorld::new("mode: Metric");
    world.predict(Some(0.25));
    for second in (0..3600).step_by(15) {
        world.sync(second).await;
        assert!(world.published(second + 14).is_some(), "second {second}");
    }
    // The value ends with the controller.
    assert!(world.published(3600 + 600).is_some());
    assert_eq!(world.published(3600 + 960), None);
}

#[tokio::test]
async fn an_hpa_of_a_user_that_reads_the_metrics_of_a_preview_is_no_conflict() {
    let mut world = MetricWorld::new("mode: Metric");
    world.predict(Some(0.9));
    world.sync(0).await;
    {
        // The user's own HPA: a copy of the child that no object owns.
        let mut state = world.world.fake.state();
        let mut own = state.hpas["ehpa-web"].clone();
        (own.name, own.uid, own.controller) = ("mine".into(), "uid-mine".into(), None);
        state.hpas.insert("mine".into(), own);
    }
    world.sync(15).await;
    let ready = |world: &MetricWorld| world.world.fake.ready("web");
    assert_eq!(ready(&world), ("False".into(), "TargetConflict".into()));
    world.world.fake.edit("web", |ehpa| {
        ehpa.spec.scale_strategy = Some(ScaleStrategy::Preview);
    });
    world.sync(30).await;
    assert_eq!(ready(&world), ("True".into(), "ReadByHPA".into()));
    // A count that Preview would write is in conflict with the HPA.
    world
        .world
        .fake
        .edit("web", |ehpa| ehpa.spec.specific_replicas = Some(4));
    world.sync(45).await;
    assert_eq!(ready(&world), ("False".into(), "TargetConflict".into()));
}
