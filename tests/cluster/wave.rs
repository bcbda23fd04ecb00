//! A daily wave in Prometheus, replayed in a minute: the floor rises before the peak and falls after it. Then a series with
//! uneven minutes in the same Prometheus.

use std::f64::consts::TAU;

use foretide::{clock::Clock, config::Config, ports::HistoryServer};
use foretide_crds::TimeSeriesPrediction;
use jiff::Timestamp;
use kube::Api;
use rig::{ClusterOptions, Component, History, Prometheus, Span, eventually};

use crate::{
    minutes,
    world::{NAMESPACE, TIMEOUT, World, pass_to},
};

/// A midnight; the wave has its peak at noon.
const MIDNIGHT: f64 = 1_767_225_600.0;
const DAY: f64 = 86_400.0;

/// Total demand in cores: 0.1 at midnight, 0.9 at noon.
fn demand(at: f64) -> f64 {
    0.5 - 0.4 * ((at - MIDNIGHT) / DAY * TAU).cos()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_floor_rises_before_the_peak_of_a_daily_wave_and_falls_after_it() {
    let options = ClusterOptions::named("wave").with(Component::MetricsServer);
    let world = World::start(options).await;
    let span = Span {
        start: MIDNIGHT - 4.0 * DAY,
        end: MIDNIGHT + 2.0 * DAY,
        step: 60.0,
    };
    let history = History::new().cpu_usage(
        ["default", "php-apache-6d5f8c9b7d-x2v9k", "app"],
        span,
        demand,
    );
    let prometheus = Prometheus::start(&minutes::with_minutes(history))
        .await
        .unwrap();
    world.deployment("php-apache", 1, "20m").await;
    world
        .apply(include_str!("../../examples/php-apache-dsp.yaml"))
        .await;

    // From 06:00 on, a quarter of a minute per second, and from 10:00 on when there is a forecast.
    let hour = |hour: i64| Timestamp::from_second(MIDNIGHT as i64 + hour * 3600).unwrap();
    let clock = Clock::starting_at(hour(6), 15.0);
    let config = Config {
        prometheus: Some(HistoryServer::at(&prometheus.url()).unwrap()),
        sync_period: jiff::SignedDuration::from_secs(30),
        ..world.config()
    };
    let controller = world.run(config, clock.clone());

    // 0.9 cores at noon, 0.1 per replica: nine, and they are ready before they are needed.
    world
        .ready("php-apache", "at least 4", |count| (4..9).contains(&count))
        .await;
    pass_to(&clock, hour(10));
    world.ready("php-apache", "9", |count| count == 9).await;
    let at = clock.now();
    assert!(at < hour(12), "nine replicas only at {at}");
    let tsps: Api<TimeSeriesPrediction> = Api::namespaced(world.client.clone(), NAMESPACE);
    let metrics = eventually(TIMEOUT, "one prediction is ready", || async {
        let found = tsps.get("ehpa-php-apache").await;
        let status = found.map_err(|error| error.to_string())?.status;
        let metrics = status.and_then(|status| status.prediction_metrics);
        match metrics.unwrap_or_default() {
            metrics if metrics.len() == 1 && metrics[0].ready => Ok(metrics),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let samples = metrics[0].prediction.as_deref().unwrap()[0]
        .samples
        .as_deref()
        .unwrap();
    assert!(
        samples.len() > 60,
        "an hour and more of minutes: {}",
        samples.len()
    );
    let child = world.hpas().get("ehpa-php-apache").await.unwrap();
    let owner = &child.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str()),
        ("EffectiveHorizontalPodAutoscaler", "php-apache")
    );
    world
        .status(
            "php-apache",
            "a winning forecast and a sentence",
            |status| {
                let decision = status.get("decision")?;
                let proposals = decision.get("proposals")?.as_array()?;
                let sources = proposals
                    .iter()
                    .map(|p| p["source"].as_str().unwrap_or_default());
                let both = sources.collect::<Vec<_>>() == ["observed", "forecast"];
                let winner = decision.get("winner")?.as_str()? == "forecast";
                let sentence = decision.get("message")?.as_str()?.contains("forecast");
                (both && winner && sentence).then_some(())
            },
        )
        .await;
    pass_to(&clock, hour(18));
    let lowered = world
        .ready("php-apache", "fewer than 7", |count| count < 7)
        .await;
    assert!(lowered >= 1);
    drop(controller);
    minutes::are_covered(&world, &prometheus).await;
    world.assert_nothing_forbidden();
}
