//! The alerts and dashboards of `deploy/monitoring` on a real Prometheus that scrapes real controllers through the
//! failures that they are about. Each alert is seen firing, and resolved once the failure is repaired.
//!
//! A failure need not last for as long as in production: every duration of a rule or of a query is divided by one factor
//! ([`scaled`]). The full durations are tested by promtool ([`promtool`]). A panic is the one failure that is not
//! produced here: its counter is increased instead.

mod child;
mod controllers;
mod fleets;
mod objects;
mod promtool;
mod scaled;
mod silence;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use foretide::clock::Clock;
use futures::future::join_all;
use rig::{Prometheus, Scraping, eventually};
use serde_json::{Value, json};

use self::scaled::{FACTOR, scaled_query, scaled_rules};
use crate::{
    credentials::seconds,
    world::{TIMEOUT, World},
};

/// A scrape interval of a minute, divided by the factor.
const INTERVAL: Duration = Duration::from_millis(60_000 / FACTOR as u64);

/// The alerts that each scenario sees firing and resolved. No request takes a minute, so it would take very many objects to
/// be late by one: that rule is tested by promtool alone.
const ALERTS: [(&str, &[&str]); 6] = [
    ("child", child::ALERTS),
    ("controllers", controllers::ALERTS),
    ("fleets", fleets::ALERTS),
    ("objects", objects::ALERTS),
    ("promtool", &["ForetideSyncsLate"]),
    ("silence", silence::ALERTS),
];

/// The panels in which each scenario sees data: the name of the dashboard, and the title.
const PANELS: [&[(&str, &str)]; 4] = [
    controllers::PANELS,
    fleets::PANELS,
    objects::PANELS,
    objects::PANELS_OF_FAILURES,
];

/// A Prometheus with the rules, and what was seen on it.
struct Monitoring {
    prometheus: Prometheus,
    fired: Mutex<BTreeSet<String>>,
    resolved: Mutex<BTreeSet<String>>,
}

impl Monitoring {
    /// Starts a Prometheus that sends this bearer token. It scrapes nothing yet.
    async fn start(token: &str) -> Self {
        let prometheus = Prometheus::start_scraping(Scraping {
            job: "foretide".to_owned(),
            interval: INTERVAL,
            lookback: Duration::from_mins(5) / FACTOR,
            token: token.to_owned(),
            rules: scaled_rules(&rule_groups()).to_string(),
        });
        Self {
            prometheus: prometheus.await.unwrap(),
            fired: Mutex::default(),
            resolved: Mutex::default(),
        }
    }

    /// Scrapes these replicas from now on, and no others.
    fn scrape(&self, replicas: &[SocketAddr]) {
        self.prometheus.scrape(replicas).unwrap();
    }

    /// The firing alerts of this name with these labels.
    async fn firing(&self, alert: &str, labels: &[(&str, &str)]) -> Result<Vec<Value>, String> {
        let alerts = self.prometheus.alerts().await;
        let mut alerts = alerts.map_err(|error| error.to_string())?;
        alerts.retain(|one| {
            let found = &one["labels"];
            let has_labels = labels.iter().all(|(name, value)| found[*name] == *value);
            has_labels && found["alertname"] == alert && one["state"] == "firing"
        });
        Ok(alerts)
    }

    /// What the expression of an alert, and its first metric, are now: for the message of a failure.
    async fn expression(&self, alert: &str) -> String {
        let groups = rule_groups();
        let found = rules(&groups).find(|rule| rule["alert"] == alert);
        let query = scaled_query(found.unwrap()["expr"].as_str().unwrap());
        let from = query.find("foretide_").unwrap_or_default();
        let metric = query[from..].split(['{', '[', ')']).next().unwrap();
        let now = seconds(Clock::system().now());
        let found = [&*query, metric].map(|query| async move {
            let data = self.prometheus.query(query, now).await;
            format!("{query}: {data:?}")
        });
        join_all(found).await.join("; ")
    }

    /// Waits until an alert with these labels fires, and checks its text.
    async fn fires(&self, alert: &str, labels: &[(&str, &str)]) {
        let what = format!("{alert} fires with {labels:?}");
        let found = eventually(2 * TIMEOUT, &what, || async {
            let firing = self.firing(alert, labels).await?;
            let found = firing.into_iter().next();
            match found {
                Some(found) => Ok(found),
                None => Err(self.expression(alert).await),
            }
        })
        .await;
        let text = found["annotations"].to_string();
        for broken in ["<no value>", "<error", "{{", "  "] {
            assert!(!text.contains(broken), "{alert}: {text}");
        }
        self.fired.lock().unwrap().insert(alert.to_owned());
    }

    /// Waits until no alert with these labels fires.
    async fn resolves(&self, alert: &str, labels: &[(&str, &str)]) {
        let what = format!("{alert} with {labels:?} is resolved");
        eventually(2 * TIMEOUT, &what, || async {
            let firing = self.firing(alert, labels).await?;
            let is_resolved = firing.is_empty();
            is_resolved.then_some(()).ok_or(format!("{firing:?}"))
        })
        .await;
        assert!(self.fired.lock().unwrap().contains(alert));
        self.resolved.lock().unwrap().insert(alert.to_owned());
    }

    /// Waits until every query of these panels returns numbers.
    async fn shows(&self, panels: &[(&str, &str)], variables: &[(&str, &str)]) {
        let dashboards = dashboards();
        for (dashboard, title) in panels {
            let queries = queries(&dashboards[*dashboard], title);
            assert!(!queries.is_empty(), "{dashboard} has no panel {title:?}");
            for query in queries {
                let query = scaled_query(&with_variables(&query, variables));
                self.has_data(&format!("{dashboard}: {title}"), &query)
                    .await;
            }
        }
    }

    async fn has_data(&self, panel: &str, query: &str) {
        eventually(2 * TIMEOUT, &format!("{panel} has data"), || async {
            let now = seconds(Clock::system().now());
            let data = self.prometheus.query(query, now).await;
            let data = data.map_err(|error| error.to_string())?;
            let series = data["result"].as_array().cloned().unwrap_or_default();
            let is_number = |one: &Value| one["value"][1] != "NaN";
            (!series.is_empty() && series.iter().any(is_number))
                .then_some(())
                .ok_or(format!("{query}: {data}"))
        })
        .await;
    }

    /// Waits until no alert fires, and checks that exactly these were seen firing and resolved.
    async fn has_seen(&self, alerts: &[&str]) {
        eventually(TIMEOUT, "no alert fires", || async {
            let alerts = self.prometheus.alerts().await;
            let mut alerts = alerts.map_err(|error| error.to_string())?;
            alerts.retain(|one| one["state"] == "firing");
            let is_quiet = alerts.is_empty();
            is_quiet.then_some(()).ok_or(format!("{alerts:?}"))
        })
        .await;
        let wanted: BTreeSet<String> = alerts.iter().map(|&alert| alert.to_owned()).collect();
        assert_eq!(*self.fired.lock().unwrap(), wanted);
        assert_eq!(*self.resolved.lock().unwrap(), wanted);
    }
}

/// Creates a namespace, and the Deployment `web` in it.
async fn workload_in(world: &World, namespace: &str) {
    world.cluster.namespace(namespace).await.unwrap();
    let labels = json!({ "app": "web" });
    let web = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web", "namespace": namespace },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
            },
        },
    });
    world.apply(&web.to_string()).await;
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

/// The queries of the panel with this title.
fn queries(dashboard: &Value, title: &str) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let panels = panels.filter(|panel| panel["title"] == title);
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

/// A query as Grafana sends it. Grafana's rate interval is at least four scrape intervals.
fn with_variables(query: &str, variables: &[(&str, &str)]) -> String {
    let mut query = query.replace("$__rate_interval", "4m");
    for (name, value) in variables {
        query = query.replace(&format!("${name}"), value);
    }
    query
}

#[test]
fn every_alert_is_seen_firing_and_resolved_in_a_scenario() {
    let seen: BTreeSet<&str> = ALERTS
        .iter()
        .flat_map(|(_, alerts)| alerts.iter().copied())
        .collect();
    let groups = rule_groups();
    let all: BTreeSet<&str> = rules(&groups)
        .map(|rule| rule["alert"].as_str().unwrap())
        .collect();
    assert_eq!(seen, all);
}

#[test]
fn every_panel_is_seen_with_data_in_a_scenario() {
    let seen: BTreeSet<(&str, &str)> = PANELS
        .iter()
        .flat_map(|panels| panels.iter().copied())
        .collect();
    let dashboards = dashboards();
    let all = dashboards.iter().flat_map(|(name, dashboard)| {
        let panels = dashboard["panels"].as_array().unwrap().iter();
        panels.map(|panel| (name.as_str(), panel["title"].as_str().unwrap()))
    });
    assert_eq!(seen, all.collect());
}
