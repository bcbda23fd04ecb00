//! From an HPA to a forecast, as the README and `docs/from-my-hpa.md` say it: only the definitions are
//! installed, and the controller runs on the machine of the reader.

use std::{f64::consts::TAU, net::SocketAddr};

use foretide_base::clock::Clock;
use foretide_crds::{EffectiveHorizontalPodAutoscaler, TimeSeriesPrediction};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Api;
use rig::{ClusterOptions, Component, History, Prometheus, eventually};
use serde_json::{Value, json};

use super::site::{Helm, Site};
use crate::{
    metrics_access::of_page,
    world::{TIMEOUT, four_days, seconds},
};

const SECTION: &str = "Try it without installing";
const BACK_TEST: &str = "1. Back-test it";
const PREVIEW: &str = "2. Watch it in Preview";
const SWITCH_ON: &str = "3. Switch it on";

/// The reader's workload and its HPA.
fn objects() -> String {
    let meta = json!({ "name": "web", "namespace": "shop" });
    let labels = json!({ "app": "web" });
    let container = json!({
        "name": "app", "image": "app:1", "resources": { "requests": { "cpu": "200m" } },
    });
    let all = [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
            },
        }),
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta,
            "spec": {
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "minReplicas": 2, "maxReplicas": 10,
                "metrics": [{ "type": "Resource", "resource": {
                    "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 },
                } }],
            },
        }),
    ];
    all.map(|object| object.to_string()).join("\n---\n")
}

/// Four days of a daily wave that is at its peak of nine replicas now; the pods of the rig use almost nothing.
fn history() -> History {
    let now = Clock::system().now();
    let (span, now) = (four_days(now), seconds(now));
    let wave = move |at: f64| 0.45 + 0.4 * ((at - now) / 86_400.0 * TAU).cos();
    History::new().cpu_usage(["shop", "web-7c5d8b9f6d-x2v9k", "app"], span, wave)
}

/// The bounds of the reader's HPA, and whether Foretide has adopted it.
async fn bounds(site: &Site) -> (Option<i32>, i32, bool) {
    let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(site.cluster.client(), "shop");
    let hpa = hpas.get("web").await.unwrap();
    let annotations = hpa.metadata.annotations.unwrap_or_default();
    let is_adopted = annotations.contains_key("autoscaling.foretide.io/adopted-by");
    let spec = hpa.spec.unwrap();
    (spec.min_replicas, spec.max_replicas, is_adopted)
}

/// The forecast of the last decision.
async fn forecast(site: &Site) -> Value {
    let ehpas: Api<EffectiveHorizontalPodAutoscaler> =
        Api::namespaced(site.cluster.client(), "shop");
    let status = ehpas.get("web").await.unwrap().status;
    let status = serde_json::to_value(status).unwrap();
    let proposals = status["decision"]["proposals"].as_array().unwrap().clone();
    let mut forecasts = proposals.into_iter();
    let found = forecasts.find(|one| one["source"] == "forecast");
    found.unwrap()["forecast"].take()
}

/// The address on which the controller listens, by its log.
fn page(site: &Site) -> SocketAddr {
    let log = site.terminal.read("running.log");
    let address = log.split_once("listen=").map(|(_, rest)| rest);
    let address = address.and_then(|rest| rest.split_whitespace().next());
    address.unwrap().parse().unwrap()
}

/// Waits until the page has the decision of the object's status, and the forecast of the hours ahead.
async fn the_page_shows_the_forecast(site: &Site) {
    let ehpas: Api<EffectiveHorizontalPodAutoscaler> =
        Api::namespaced(site.cluster.client(), "shop");
    let (page, path) = (
        page(site),
        "autoscalers/effectivehorizontalpodautoscalers/shop/web",
    );
    eventually(TIMEOUT, "the page shows what was decided", || async {
        let shown = of_page(page, path).await?;
        let status = ehpas.get("web").await.unwrap().status;
        let decided = serde_json::to_value(status.unwrap().decision).unwrap();
        let counts = ["desired", "maximum", "stabilized", "limited", "winner"];
        let is_same = counts
            .iter()
            .all(|count| shown["decision"][count] == decided[count]);
        let history = of_page(page, &format!("{path}/history")).await?;
        let ahead = history["ahead"]["expected"].as_array();
        let is_forecast = ahead.is_some_and(|ahead| ahead.len() > 30);
        let is_so = is_same && is_forecast && shown["row"]["winner"] == "forecast";
        is_so
            .then_some(())
            .ok_or(format!("{shown}\n{decided}\n{history}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_lead_from_a_plain_autoscaler_to_a_forecast_and_back() {
    let options = ClusterOptions::named("trial").with(Component::MetricsServer);
    let mut site = Site::at_pages(&["../README.md", "from-my-hpa.md"], options, Helm::Four).await;
    let prometheus = Prometheus::start(&history()).await.unwrap();
    site.addresses = vec![("http://localhost:9090", prometheus.url())];
    site.terminal.write("objects.yaml", &objects());
    let apply = "kubectl apply -f objects.yaml";
    site.terminal.run(apply).await;
    let replicas = async |site: &Site, wanted: i32| {
        let deployments = site.deployments("shop");
        eventually(TIMEOUT, &format!("web has {wanted}"), || async {
            let found = deployments.get("web").await.map_err(|no| no.to_string())?;
            let ready = found.status.and_then(|status| status.ready_replicas);
            let is_so = ready == Some(wanted);
            is_so.then_some(()).ok_or(format!("{ready:?}"))
        })
        .await;
    };
    replicas(&site, 2).await;

    let said = site.follow(BACK_TEST).await;
    assert!(said.contains("plain HPA"), "{said}");

    site.follow_block(SECTION, 0).await;
    // The controller stays in the foreground.
    let controller = site.leave_running(SECTION, 1);
    // The other terminal has the definitions when a person begins in this one.
    let known = "kubectl get effectivehorizontalpodautoscalers --all-namespaces";
    eventually(TIMEOUT, "the kinds are known", || {
        site.terminal.attempt(known)
    })
    .await;
    let said = site.follow_block(SECTION, 2).await;
    assert!(said.contains("the forecast for cpu"), "{said}");
    site.follow(PREVIEW).await;
    assert_eq!(bounds(&site).await, (Some(2), 10, false));
    replicas(&site, 2).await;

    site.follow(SWITCH_ON).await;
    replicas(&site, 9).await;
    assert_eq!(bounds(&site).await, (Some(9), 10, true));
    let grounds = forecast(&site).await;
    assert_eq!(grounds["algorithm"], "auto", "{grounds}");
    let coverage = grounds["coverage"].as_str().unwrap();
    assert!(coverage.parse::<f64>().unwrap() > 0.7, "{grounds}");
    let predictions: Api<TimeSeriesPrediction> = Api::namespaced(site.cluster.client(), "shop");
    let prediction = predictions.get("ehpa-web").await.unwrap().status.unwrap();
    let mut metric = prediction.prediction_metrics.unwrap().remove(0);
    let samples = metric.prediction.take().unwrap().remove(0).samples.unwrap();
    assert!(metric.ready && samples.len() > 60, "{metric:?}");

    the_page_shows_the_forecast(&site).await;

    let back =
        r#"kubectl patch ehpa web -n shop --type merge -p '{"spec":{"scaleStrategy":"Preview"}}'"#;
    site.terminal.run(back).await;
    eventually(TIMEOUT, "the HPA has its own bounds", || async {
        let found = bounds(&site).await;
        let is_so = found == (Some(2), 10, false);
        is_so.then_some(()).ok_or(format!("{found:?}"))
    })
    .await;
    site.follow_block(SECTION, 3).await;
    drop(controller);
    let left = site.page.left().into_iter();
    let left: Vec<_> = left.map(|block| block.section.as_str()).collect();
    for section in [SECTION, BACK_TEST, PREVIEW, SWITCH_ON] {
        assert!(!left.contains(&section), "{section} is not followed");
    }
}
