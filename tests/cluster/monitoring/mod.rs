//! `deploy/monitoring` and the real programs: promtool tests every alert over its full duration ([`promtool`]), and a
//! Prometheus scrapes a controller, evaluates all rules and draws the panels. The metrics of each trouble are proven in
//! `tests/sim/signals.rs`.

mod promtool;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use foretide::config::{Config, MetricsAuth};
use foretide_api::ports::{CredentialFiles, HistoryServer};
use foretide_base::clock::Clock;
use rig::{
    ClusterOptions, FakeMetrics, History, MetricsApi, Pki, Prometheus, Series, WebSecurity,
    eventually,
};
use serde_json::{Value, json};

use crate::{
    manual_changes::{QUEUE, demand_replicas, deployment, ehpa, queue_metrics},
    metrics_access::{RIGHTS, SCRAPER, free_address, token},
    world::{Controller, Folder, NAMESPACE, TIMEOUT, World, four_days, seconds},
};

/// The panels about parts that this controller lacks: members, fleets, budgets, and hanging or refused requests.
const WITHOUT_DATA: [&str; 12] = [
    "controller: Cost of forecasts by budget",
    "controller: Duration of fleet syncs",
    "controller: Member staleness",
    "controller: Members",
    "controller: Open circuits",
    "controller: Panics",
    "controller: Price of a replica by budget",
    "controller: Rejected samples",
    "controller: Replicas by member",
    "workload: Counts by member",
    "workload: Replicas by member",
    "workload: Unhealthy conditions by reason",
];

/// A controller with a forecast and a child, and an autoscaler whose metric is missing, scraped with a token.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a Prometheus beside a control plane: `just nightly`"]
async fn a_prometheus_scrapes_the_controller_and_has_data_for_rules_and_panels() {
    let world = World::start(ClusterOptions::named("watched")).await;
    world.apply(RIGHTS).await;
    world.apply(SCRAPER).await;
    let fake = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
        .await
        .unwrap();
    demand_replicas(&fake, 3);
    let (now, pki, folder) = (
        Clock::system().now(),
        Pki::new().unwrap(),
        Folder::new("monitoring"),
    );
    let wave = |at: f64| 25.0 - 15.0 * (at / 86_400.0 * std::f64::consts::TAU).cos();
    let series = Series::of(&[("namespace", NAMESPACE)], four_days(now), wave);
    let security = WebSecurity {
        server: pki.server("prometheus").unwrap(),
        ca_pem: pki.ca_pem().to_owned(),
        client: None,
        basic_auth: false,
    };
    let history = Prometheus::start_secured(&History::new().gauge(QUEUE, series), security)
        .await
        .unwrap();
    let credentials = CredentialFiles {
        ca: Some(folder.write("ca.crt", pki.ca_pem())),
        ..CredentialFiles::default()
    };
    let missing = queue_metrics().to_string().replace(QUEUE, "absent");
    for (name, mode, metrics) in [
        ("web", "Direct", queue_metrics()),
        ("child", "Delegated", queue_metrics()),
        ("blind", "Direct", serde_json::from_str(&missing).unwrap()),
    ] {
        world.deployment(name, 2, "1m").await;
        let spec = json!({ "mode": mode, "metrics": metrics, "prediction": {} });
        let autoscaler = ehpa(deployment(name), (1, 10), &spec);
        world.apply(&autoscaler.to_string()).await;
    }
    let config = Config {
        listen: free_address(),
        metrics_auth: MetricsAuth::Token { audience: None },
        prometheus: Some(HistoryServer::new(&history.url(), credentials).unwrap()),
        ..world.config()
    };
    let listen = config.listen;
    let _controller = Controller::run(config);
    let scraper = token(&world, "scraper", None).await;
    let prometheus = Prometheus::start_scraping(listen, &scraper, &rule_groups().to_string())
        .await
        .unwrap();

    let queries = queries();
    eventually(TIMEOUT, "the other panels have data", || async {
        let mut empty = BTreeSet::new();
        for (panel, query) in &queries {
            let data = prometheus
                .query(query, seconds(Clock::system().now()))
                .await;
            let data = data.map_err(|error| error.to_string())?;
            let is_number = |one: &Value| one["value"][1] != "NaN";
            if !data["result"].as_array().unwrap().iter().any(is_number) {
                empty.insert(panel.as_str());
            }
        }
        (empty == WITHOUT_DATA.into())
            .then_some(())
            .ok_or(format!("without: {empty:?}"))
    })
    .await;
    // The alert waits a quarter of an hour before it fires.
    let pending = eventually(TIMEOUT, "an alert is pending", || async {
        let alerts = prometheus
            .alerts()
            .await
            .map_err(|error| error.to_string())?;
        let found = alerts.iter().find(|one| one["labels"]["name"] == "blind");
        found.cloned().ok_or(json!(alerts).to_string())
    })
    .await;
    assert_eq!(pending["labels"]["alertname"], "ForetideMetricsUnavailable");
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/monitoring")
}

/// The `spec` of the `PrometheusRule`: a rule file.
fn rule_groups() -> Value {
    let text = std::fs::read_to_string(folder().join("prometheusrule.yaml")).unwrap();
    let mut object: Value = serde_saphyr::from_str(&text).unwrap();
    object["spec"].take()
}

/// Every rule of a rule file.
fn rules(groups: &Value) -> impl Iterator<Item = &Value> {
    let groups = groups["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap())
}

/// The dashboards by their file name without extension.
fn dashboards() -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(folder().join("dashboards")).unwrap();
    let read = files.map(|file| {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        (name, serde_json::from_str(&text).unwrap())
    });
    read.collect()
}

/// The queries of all panels as Grafana sends them, each with the dashboard and the title. Grafana's rate interval is at least
/// four scrape intervals.
fn queries() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, dashboard) in dashboards() {
        for panel in dashboard["panels"].as_array().unwrap() {
            let titled = format!("{name}: {}", panel["title"].as_str().unwrap());
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap();
                let query = query
                    .replace("$__rate_interval", "4m")
                    .replace("$kind", "effectivehorizontalpodautoscaler")
                    .replace("$namespace", NAMESPACE)
                    .replace("$name", "web");
                found.push((titled.clone(), query));
            }
        }
    }
    found
}
