//! Metrics, prediction and crons together: the largest proposal wins, and the winner changes from cron to forecast to
//! observed without a dip.

use std::f64::consts::TAU;

use foretide::{clock::Clock, config::Config, ports::HistoryServer};
use jiff::{SignedDuration, Timestamp};
use rig::{ClusterOptions, Component, History, NodeSize, Prometheus, Span};
use serde_json::Value;

use crate::world::{NAMESPACE, TIMEOUT, World, pass_to};

const DAY: f64 = 86_400.0;
/// Sunday 4 January 2026, 23:00 UTC: the weekend window of the example ends.
const WINDOW_END: i64 = 1_767_567_600;

/// 2 cores, a little more by day: 20 replicas at 0.1 each.
fn demand(at: f64) -> f64 {
    1.9 + 0.1 * (at / DAY * TAU).cos()
}

fn winner(name: &'static str) -> impl Fn(&Value) -> Option<Value> {
    move |status| {
        let decision = status.get("decision")?;
        let proposals = decision.get("proposals")?.as_array()?;
        let proposed = |source: &str| {
            proposals
                .iter()
                .any(|p| p.get("source").and_then(Value::as_str) == Some(source))
        };
        let all = ["observed", "forecast", "cron"].into_iter().all(proposed);
        let wins = decision.get("winner")?.as_str()? == name;
        let explained = !decision.get("message")?.as_str()?.is_empty();
        (all && wins && explained).then(|| decision.clone())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_winner_changes_from_cron_to_forecast_to_observed_without_a_dip() {
    let node = NodeSize::new("64", "64Gi", 250);
    let options = ClusterOptions::named("winners")
        .with(Component::MetricsServer)
        .nodes(1, node);
    let world = World::start(options).await;
    #[expect(clippy::cast_precision_loss, reason = "unix seconds of this century")]
    let end = WINDOW_END as f64;
    let span = Span {
        start: end - 4.0 * DAY,
        end: end + DAY,
        step: 60.0,
    };
    let history = History::new().cpu_usage(
        [NAMESPACE, "php-apache-6d5f8c9b7d-x2v9k", "app"],
        span,
        demand,
    );
    let prometheus = Prometheus::start(&history).await.unwrap();
    world.deployment("php-apache", 30, "20m").await;
    let counts = world.watch_replicas("php-apache").await;

    // Inside the window, fifteen times as fast as real time: the cron requests a hundred.
    let end = Timestamp::from_second(WINDOW_END).unwrap();
    let clock = Clock::starting_at(end - SignedDuration::from_hours(1), 15.0);
    let config = Config {
        prometheus: Some(HistoryServer::at(&prometheus.url()).unwrap()),
        sync_period: SignedDuration::from_secs(15),
        ..world.config()
    };
    let controller = world.run(config, clock.clone());
    world
        .apply(include_str!(
            "../../examples/php-apache-multi-dimensions.yaml"
        ))
        .await;
    let name = "php-apache-multi-dimensions";
    world
        .status(name, "the cron as winner", winner("cron"))
        .await;
    world.ready("php-apache", "100", |count| count == 100).await;
    world
        .cluster
        .share_cpu(NAMESPACE, "app=php-apache", 1.0)
        .await
        .unwrap();

    // The window ends: the forecast requests about twenty, above the ten that are observed.
    pass_to(&clock, end - SignedDuration::from_secs(30));
    world
        .status(name, "the forecast as winner", winner("forecast"))
        .await;
    let settled = world
        .ready("php-apache", "about 20", |count| (19..=22).contains(&count))
        .await;
    // The forecast may round to one more before all pods are ready.
    assert!(
        counts.lowest() + 1 >= settled,
        "a dip below the forecast: {:?}",
        counts.all()
    );

    // A surge above the forecast: four cores are forty replicas.
    rig::eventually(2 * TIMEOUT, "forty replicas for the surge", || async {
        // New pods share the load, as behind a Service.
        let shared = world
            .cluster
            .share_cpu(NAMESPACE, "app=php-apache", 4.0)
            .await;
        shared.map_err(|error| error.to_string())?;
        let replicas = world.replicas("php-apache").await;
        if (36..=44).contains(&replicas) {
            Ok(())
        } else {
            Err(format!("{replicas} replicas"))
        }
    })
    .await;
    world
        .status(name, "the observed metric as winner", winner("observed"))
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}
