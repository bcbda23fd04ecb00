//! The history of a custom metric, queried by prometheus-adapter's own rules, which are read from the cluster with the
//! one permission that this needs.

use foretide::{
    clock::Clock,
    config::{AdapterConfigSource, Config},
    ports::HistoryServer,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use rig::{ClusterOptions, History, Prometheus, Series, Span};
use serde_json::{Value, json};

use crate::{
    manual_changes::{deployment, edit, ehpa},
    world::{NAMESPACE, World},
};

/// A midnight.
const START: f64 = 1_767_225_600.0;
const DAY: f64 = 86_400.0;

/// The role that `deploy/README.md` says to add, for this config map.
const PERMISSIONS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: foretide-prometheus-adapter-rules, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [adapter-config], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: foretide-prometheus-adapter-rules, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: foretide-prometheus-adapter-rules}
subjects: [{kind: ServiceAccount, name: foretide-controller, namespace: foretide-system}]
"#;

/// The rules that the adapter's Helm chart installs for metrics other than container metrics.
const RULES: &str = r#"
rules:
- seriesQuery: '{namespace!="",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: .*_total$}]
  resources: {template: <<.Resource>>}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: '{namespace!="",__name__!~"^container_.*"}'
  seriesFilters: [{isNot: .*_seconds_total}]
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)
"#;

/// The forecast's replicas and value.
fn forecast(status: &Value) -> Option<(i64, f64)> {
    let proposals = status.get("decision")?.get("proposals")?.as_array()?;
    let forecast = proposals.iter().find(|it| it["source"] == "forecast")?;
    let value = forecast.get("value")?.as_str()?;
    Some((forecast.get("replicas")?.as_i64()?, value.parse().ok()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forecast_reads_its_history_as_prometheus_adapter_reads_the_metric() {
    let world = World::start(ClusterOptions::named("rules")).await;
    let span = Span {
        start: START - 3.0 * DAY,
        end: START + 2.0 * DAY,
        step: 60.0,
    };
    // 30 and 12 requests per second, a target with a similar name, and a neighbor that must never count.
    let requests = |namespace: &str, pod: &str, rate: f64| {
        let labels = [("namespace", namespace), ("pod", pod), ("verb", "GET")];
        Series::of(&labels, span, move |at| (at - START + 3.0 * DAY) * rate)
    };
    let name = "http_requests_total";
    let history = History::new()
        .counter(name, requests(NAMESPACE, "web-6d5f8c9b7d-x2v9k", 30.0))
        .counter(name, requests(NAMESPACE, "web-6d5f8c9b7d-b7k4q", 12.0))
        .counter(
            name,
            requests(NAMESPACE, "web-admin-6d5f8c9b7d-b7k4q", 500.0),
        )
        .counter(name, requests("other", "web-6d5f8c9b7d-x2v9k", 900.0));
    let prometheus = Prometheus::start(&history).await.unwrap();
    world.deployment("web", 1, "20m").await;
    world.apply(PERMISSIONS).await;
    let config_map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "adapter-config", "namespace": NAMESPACE },
        "data": { "config.yaml": RULES },
    });
    world.apply(&config_map.to_string()).await;
    let autoscaler = json!({
        "scaleStrategy": "Preview",
        "metrics": [{
            "type": "Pods",
            "pods": {
                "metric": { "name": "http_requests" },
                "target": { "type": "AverageValue", "averageValue": "10" },
            },
        }],
        "prediction": {
            "predictionWindowSeconds": 3600,
            "predictionAlgorithm": {
                "algorithmType": "dsp",
                "dsp": { "sampleInterval": "60s", "historyLength": "2d" },
            },
        },
    });
    let autoscaler = ehpa(deployment("web"), (1, 20), &autoscaler);
    world.apply(&autoscaler.to_string()).await;

    let start = Timestamp::from_second(START as i64).unwrap();
    let config = Config {
        prometheus: Some(HistoryServer::at(&prometheus.url()).unwrap()),
        adapter_config: Some(AdapterConfigSource::ConfigMap {
            namespace: NAMESPACE.to_owned(),
            name: "adapter-config".to_owned(),
            key: "config.yaml".to_owned(),
        }),
        sync_period: jiff::SignedDuration::from_secs(60),
        ..world.config()
    };
    let controller = world.run(config, Clock::starting_at(start, 240.0));
    let wanted = |replicas: i64, total: f64| {
        move |status: &Value| {
            let (count, value) = forecast(status)?;
            (count == replicas && (value - total).abs() < 0.5).then_some(())
        }
    };
    world
        .status("web", "a forecast of 42 requests a second", wanted(4, 42.0))
        .await;

    // An edit takes effect while the controller runs.
    let doubled = RULES.replace("sum(rate(", "2 * sum(rate(");
    let config_maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), NAMESPACE);
    let patch = json!({ "data": { "config.yaml": doubled } });
    edit(&config_maps, "adapter-config", patch).await;
    world
        .status("web", "a forecast of twice as much", wanted(8, 84.0))
        .await;
    drop(controller);
    world.assert_nothing_forbidden();
}
