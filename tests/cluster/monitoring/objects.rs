//! Autoscalers of one controller, whose Prometheus asks for client certificates: bounds that are too low, metrics that
//! cannot be read, another writer, forecasts that are missing or too low, credentials that expire.

use std::time::Duration;

use foretide::{
    api::validation::CostLimits,
    clock::Clock,
    config::Config,
    ports::{CredentialFiles, HistoryServer},
};
use jiff::{SignedDuration, Timestamp};
use rig::{
    ClusterOptions, FakeMetrics, History, MetricsApi, Pki, Prometheus, Reading, Series,
    WebSecurity, eventually,
};
use serde_json::{Value, json};

use super::{Monitoring, child, controllers::WEB, silence};
use crate::{
    credentials::{Folder, four_days, seconds},
    manual_changes::{delete, deployment, edit, ehpa},
    metrics_access::free_address,
    world::{Controller, NAMESPACE, TIMEOUT, World, pass_to},
};

/// What this scenario sees firing and resolved.
pub(super) const ALERTS: &[&str] = &[
    "ForetideAtMaximum",
    "ForetideCircuitOpen",
    "ForetideCredentialExpiresSoon",
    "ForetideCredentialsUnusable",
    "ForetideForecastTooLow",
    "ForetideMaximumTooLow",
    "ForetideMetricsUnavailable",
    "ForetideNoForecast",
    "ForetideReplicasDrifted",
    "ForetideSyncPanics",
];

/// The panels that have data while something is wrong.
pub(super) const PANELS_OF_FAILURES: &[(&str, &str)] = &[
    ("controller", "Unhealthy conditions"),
    ("controller", "Open circuits"),
    ("workload", "Unhealthy conditions by reason"),
];

/// The panels that have data once there are forecasts.
pub(super) const PANELS: &[(&str, &str)] = &[
    ("controller", "Credential problems"),
    ("controller", "Credentials for Prometheus"),
    ("controller", "Refused forecasts"),
    ("controller", "Rejected samples"),
    ("controller", "Cost of forecasts by budget"),
    ("controller", "Price of a replica by budget"),
    ("workload", "Age of the oldest forecast"),
    ("workload", "Age of forecasts"),
    ("workload", "Forecast coverage"),
    ("workload", "Forecast skill"),
    ("workload", "Proposals"),
];

/// The autoscalers with a forecast. Requests about each of them time out, so that the circuit opens.
const FORECAST: [&str; 5] = ["web", "cart", "search", "mail", "rising"];

/// At least ten seconds: each of the eight autoscalers is synced every second.
const SYNCS_OF_TEN_SECONDS: u64 = 100;

/// What the branches of the scenario share.
struct Scenario {
    world: World,
    fake: FakeMetrics,
    monitoring: Monitoring,
    controller: Controller,
    clock: Clock,
    history: Prometheus,
    folder: Folder,
    pki: Pki,
}

/// The `metrics` of an autoscaler with one replica for every ten of an external metric.
fn external(metric: &str) -> Value {
    json!([{ "type": "External", "external": {
        "metric": { "name": metric },
        "target": { "type": "AverageValue", "averageValue": "10" },
    }}])
}

/// A window that is open since the last full minute until the next new year.
fn window(replicas: u32) -> Value {
    json!([{
        "name": "floor", "start": "* * * * *", "end": "0 0 1 1 *", "targetReplicas": replicas,
    }])
}

/// Four days until now of the external metrics, and an hour beyond. One sample of `cart` is impossible.
fn history(now: Timestamp) -> History {
    let (span, now) = (four_days(now), seconds(now));
    let wave = |at: f64| 25.0 - 15.0 * (at / 86_400.0 * std::f64::consts::TAU).cos();
    // The growth itself grows, so that every forecast is too low.
    let rising = move |at: f64| {
        let days = (at - span.start) / 86_400.0;
        0.001 * (0.8 * days * days).exp2()
    };
    let labels = [("namespace", NAMESPACE)];
    let mut all = History::new();
    for name in FORECAST {
        let series = match name {
            "rising" => Series::of(&labels, span, rising),
            "cart" => Series::of(&labels, span, |at| {
                if (at - now + 7_200.0).abs() < 30.0 {
                    -1.0
                } else {
                    wave(at)
                }
            }),
            _ => Series::of(&labels, span, wave),
        };
        all = all.gauge(name, series);
    }
    all
}

impl Scenario {
    async fn start() -> Self {
        let now = Clock::system().now();
        let pki = Pki::new().unwrap();
        let security = WebSecurity {
            server: pki.server("prometheus").unwrap(),
            ca_pem: pki.ca_pem().to_owned(),
            client: Some(pki.client("rig", None).unwrap()),
            basic_auth: false,
        };
        let history = history(now);
        let options = ClusterOptions::named("watched-objects");
        let options = options.pod_startup(Duration::from_millis(500));
        let (history, world) = tokio::join!(
            Prometheus::start_secured(&history, security),
            World::start(options),
        );
        let history = history.unwrap();
        let fake = FakeMetrics::start(&world.cluster, &[MetricsApi::External])
            .await
            .unwrap();
        let folder = Folder::new("monitoring");
        let expiring = pki.client_valid("foretide", &(-60..5)).unwrap();
        let credentials = CredentialFiles {
            ca: Some(folder.write("ca.crt", pki.ca_pem())),
            client_certificate: Some(folder.identity("client", &expiring)),
            ..CredentialFiles::default()
        };
        let server = HistoryServer::new(&history.url(), credentials).unwrap();
        let config = Config {
            listen: free_address(),
            prometheus: Some(server),
            namespaces: vec![NAMESPACE.to_owned()],
            cost_limits: CostLimits::parse([format!("{NAMESPACE}=15")]).unwrap(),
            ..world.config()
        };
        let monitoring = Monitoring::start("none is needed on loopback").await;
        monitoring.scrape(&[config.listen]);
        // Nothing is answered at the start.
        history.pause().unwrap();
        let clock = Clock::simulated(now);
        let controller = world.run(config, clock.clone());
        let scenario = Self {
            world,
            fake,
            monitoring,
            controller,
            clock,
            history,
            folder,
            pki,
        };
        scenario.prepare().await;
        scenario
    }

    /// Creates the workloads and the autoscalers.
    async fn prepare(&self) {
        for name in FORECAST {
            // Without a quantile of its own it is in the budget of the namespace.
            let prediction = match name {
                "search" => json!({}),
                _ => json!({ "quantile": 0.99 }),
            };
            let today = if name == "rising" { "7100m" } else { "25" };
            self.demand(name, today);
            let spec =
                json!({ "mode": "Direct", "metrics": external(name), "prediction": prediction });
            self.create(name, &spec).await;
        }
        self.create("late", &json!({ "mode": "Direct", "crons": window(12) }))
            .await;
        self.create("drift", &json!({ "mode": "Direct", "crons": window(3) }))
            .await;
        self.create(
            "blind",
            &json!({ "mode": "Direct", "metrics": external("absent") }),
        )
        .await;
    }

    async fn create(&self, name: &str, spec: &Value) {
        self.world.deployment(name, 1, "1m").await;
        let object = ehpa(deployment(name), (1, 10), spec);
        self.world.apply(&object.to_string()).await;
    }

    /// Lets the controller's clock run ahead.
    fn pass(&self, minutes: i64) {
        let later = self.clock.now() + SignedDuration::from_mins(minutes);
        pass_to(&self.clock, later);
    }

    fn demand(&self, metric: &str, total: &str) {
        self.fake
            .set_external(NAMESPACE, metric, vec![Reading::new(total)]);
    }

    /// Load beyond the maximum; less again; metrics that cannot be read; all of them hang.
    async fn metrics(&self) {
        let monitoring = &self.monitoring;
        self.demand("mail", "500");
        tokio::join!(
            monitoring.fires("ForetideAtMaximum", &[("name", "mail")]),
            monitoring.fires("ForetideMetricsUnavailable", &[("name", "blind")]),
        );
        self.demand("mail", "25");
        self.demand("absent", "25");
        tokio::join!(
            monitoring.resolves("ForetideAtMaximum", &[("name", "mail")]),
            monitoring.resolves("ForetideMetricsUnavailable", &[("name", "blind")]),
        );
    }

    /// A cron window that asks for more than the maximum.
    async fn cron(&self) {
        let found = [("name", "late"), ("stage", "cron")];
        self.monitoring.fires("ForetideMaximumTooLow", &found).await;
        let more = json!({ "spec": { "maxReplicas": 15 } });
        edit(&self.world.ehpas(), "late", more).await;
        self.monitoring
            .resolves("ForetideMaximumTooLow", &found)
            .await;
    }

    /// Another writer scales three times. Ten minutes later it is forgotten.
    async fn writer(&self) {
        for replicas in [5, 6, 7] {
            self.world.ready("drift", "3", |count| count == 3).await;
            self.world.scale_by_hand("drift", replicas).await;
        }
        let found = [("name", "drift"), ("reason", "ExternalWriter")];
        self.monitoring
            .fires("ForetideReplicasDrifted", &found)
            .await;
    }

    /// Prometheus accepts connections and answers nothing; then it does.
    async fn forecasts(&self) {
        let monitoring = &self.monitoring;
        let hub = [("api", "prometheus"), ("dependency", "hub")];
        tokio::join!(
            monitoring.fires("ForetideCircuitOpen", &hub),
            monitoring.fires("ForetideNoForecast", &[("name", "web")]),
            // Its writes are forgotten when time passes.
            self.writer(),
        );
        monitoring.shows(PANELS_OF_FAILURES, WEB).await;
        self.history.resume().unwrap();
        // Failed queries are repeated ever less often: one now, which closes the circuit, and then the others.
        self.pass(5);
        monitoring.resolves("ForetideCircuitOpen", &hub).await;
        self.pass(5);
        monitoring.resolves("ForetideNoForecast", &[]).await;
        monitoring.shows(PANELS, WEB).await;

        let rising = [("name", "rising")];
        monitoring.fires("ForetideForecastTooLow", &rising).await;
        delete(&self.world.ehpas(), "rising").await;
        monitoring.resolves("ForetideForecastTooLow", &rising).await;
        self.credentials().await;
    }

    /// The client certificate expires in five days, and is rotated in two steps.
    async fn credentials(&self) {
        let monitoring = &self.monitoring;
        let found = [("endpoint", "hub"), ("credential", "client certificate")];
        monitoring
            .fires("ForetideCredentialExpiresSoon", &found)
            .await;
        let next = self.pki.client("foretide", None).unwrap();
        self.folder.write("client.crt", &next.certificate);
        self.querying(monitoring.fires("ForetideCredentialsUnusable", &found[..1]))
            .await;
        self.folder.write("client.key", &next.key);
        let resolved = async {
            tokio::join!(
                monitoring.resolves("ForetideCredentialsUnusable", &[]),
                monitoring.resolves("ForetideCredentialExpiresSoon", &[]),
            )
        };
        self.querying(resolved).await;
    }

    /// Lets the controller query while something is waited for: the files are read with a query, but not more often than
    /// every ten seconds.
    async fn querying(&self, awaited: impl Future) {
        let queries = async {
            loop {
                self.pass(2);
                self.controller.further_syncs(SYNCS_OF_TEN_SECONDS).await;
            }
        };
        tokio::select! {
            _ = awaited => {}
            () = queries => {}
        }
    }

    /// Panics, whose counter is increased as by the loop. Where nothing is scraped for as long as the range of the rule,
    /// because the machine stalls, an increase is not seen: another one follows.
    async fn panic(&self) {
        let kind = "effectivehorizontalpodautoscaler";
        // An increase needs a sample from before it.
        self.monitoring
            .has_data("the panics", "foretide_sync_panics_total")
            .await;
        let panics = async {
            loop {
                self.controller.telemetry.panicked(kind);
                self.controller.further_syncs(SYNCS_OF_TEN_SECONDS).await;
            }
        };
        let found = [("kind", kind)];
        tokio::select! {
            () = self.monitoring.fires("ForetideSyncPanics", &found) => {}
            () = panics => {}
        }
        self.monitoring.resolves("ForetideSyncPanics", &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "each alert on a real Prometheus: `just nightly`"]
async fn alerts_about_autoscalers_fire_and_resolve() {
    let scenario = Scenario::start().await;
    eventually(TIMEOUT, "the controller has synced", || async {
        let syncs = scenario.controller.syncs();
        (syncs > 10).then_some(()).ok_or(syncs)
    })
    .await;
    tokio::join!(
        scenario.forecasts(),
        scenario.metrics(),
        scenario.cron(),
        scenario.panic(),
        child::alerts_fire_and_resolve(&scenario.world, &scenario.fake),
        silence::alerts_fire_and_resolve(&scenario.world, &scenario.fake),
    );
    scenario.pass(10);
    scenario
        .monitoring
        .resolves("ForetideReplicasDrifted", &[])
        .await;
    scenario.monitoring.has_seen(ALERTS).await;
}
