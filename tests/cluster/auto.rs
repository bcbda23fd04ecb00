//! An autoscaler without an algorithm: `auto` learns from Prometheus, requests replicas before they are needed, and
//! status shows the accuracy of its forecast.

use std::f64::consts::TAU;

use foretide::{clock::Clock, config::Config, ports::HistoryServer};
use foretide_crds::TimeSeriesPrediction;
use jiff::Timestamp;
use kube::Api;
use rig::{ClusterOptions, Component, History, Prometheus, Span, eventually};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, TIMEOUT, World};

const MIDNIGHT: f64 = 1_767_225_600.0;
const DAY: f64 = 86_400.0;

/// Total demand in cores: 0.1 at midnight, 0.9 at noon.
fn demand(at: f64) -> f64 {
    0.5 - 0.4 * ((at - MIDNIGHT) / DAY * TAU).cos()
}

fn forecast(status: &Value) -> Option<Value> {
    let proposals = status.pointer("/decision/proposals")?.as_array()?;
    let forecast = proposals.iter().find(|one| one["source"] == "forecast")?;
    (forecast["replicas"].as_i64()? >= 7).then(|| forecast.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unset_algorithm_runs_auto_and_status_shows_its_accuracy() {
    let options = ClusterOptions::named("auto").with(Component::MetricsServer);
    let world = World::start(options).await;
    let span = Span {
        start: MIDNIGHT - 4.0 * DAY,
        end: MIDNIGHT + DAY,
        step: 60.0,
    };
    let history =
        History::new().cpu_usage(["default", "shop-6d5f8c9b7d-x2v9k", "app"], span, demand);
    let prometheus = Prometheus::start(&history).await.unwrap();
    world.deployment("shop", 3, "20m").await;
    world.ready("shop", "3", |count| count == 3).await;
    let ehpa = json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1", "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": { "name": "shop", "namespace": NAMESPACE },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "shop" },
            "minReplicas": 1, "maxReplicas": 20,
            "metrics": [{ "type": "Resource", "resource": {
                "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } }],
            "prediction": {},
        },
    });
    world.apply(&ehpa.to_string()).await;

    // At 10:00 the demand is 0.85 cores, and one replica is to carry 0.1: nine. The pods themselves use almost
    // nothing, so only the forecast requests nine.
    let ten = Timestamp::from_second(MIDNIGHT as i64 + 10 * 3600).unwrap();
    let config = Config {
        prometheus: Some(HistoryServer::at(&prometheus.url()).unwrap()),
        sync_period: jiff::SignedDuration::from_secs(15),
        ..world.config()
    };
    let controller = world.run(config, Clock::starting_at(ten, 10.0));
    world
        .ready("shop", "9 or 10", |count| (9..=10).contains(&count))
        .await;

    let proposal = world
        .status("shop", "a forecast by auto", |status| {
            let winner = status.pointer("/decision/winner")? == "forecast";
            forecast(status).filter(|_| winner)
        })
        .await;
    let grounds = &proposal["forecast"];
    assert_eq!(grounds["algorithm"], "auto", "{proposal}");
    assert_eq!(grounds["quantile"], "0.9", "{proposal}");
    let number = |name: &str| {
        grounds[name]
            .as_str()
            .and_then(|text| text.parse::<f64>().ok())
    };
    assert!(number("coverage").unwrap() > 0.7, "{proposal}");
    assert!(number("skill").is_some(), "{proposal}");
    assert_eq!(grounds["leadTimeSource"], "measured", "{proposal}");
    assert_eq!(grounds["leadTimeSeconds"], 60, "{proposal}");
    assert!(grounds["learntFrom"].is_string() && grounds["knownUntil"].is_string());

    let tsps: Api<TimeSeriesPrediction> = Api::namespaced(world.client.clone(), NAMESPACE);
    let predicted = eventually(TIMEOUT, "the prediction is published", || async {
        let tsp = tsps
            .get("ehpa-shop")
            .await
            .map_err(|error| error.to_string())?;
        let status = tsp.status.unwrap_or_default();
        let metric = status
            .prediction_metrics
            .and_then(|all| all.into_iter().next());
        metric
            .filter(|metric| metric.ready)
            .ok_or("not ready".to_owned())
    })
    .await;
    let by = predicted.forecast.unwrap().algorithm;
    assert_eq!(by.as_deref(), Some("auto"));
    let samples = predicted.prediction.unwrap().remove(0).samples.unwrap();
    assert!(
        samples.len() > 60,
        "two hours of minutes: {}",
        samples.len()
    );
    for sample in &samples {
        let number =
            |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<f64>().ok());
        let (value, upper) = (number(&sample.value), number(&sample.upper));
        assert!(value.is_some() && value <= upper, "{sample:?}");
    }
    let metrics = controller.telemetry.encode();
    for name in ["skill", "coverage", "model_age_seconds"] {
        let series = format!(
            r#"foretide_forecast_{name}{{kind="effectivehorizontalpodautoscaler",namespace="default",name="shop",metric="resource.cpu"}}"#
        );
        assert!(metrics.contains(&series), "{series}: {metrics}");
    }
    world.assert_nothing_forbidden();
}
