//! Forecasts of single autoscalers: what is queried and published of them, whose queries and writes delay whose, and
//! what a budget and a memory limit leave.

use jiff::SignedDuration;
use serde_json::{Value, json};
use simkube::{
    network::Effect,
    world::prometheus::{Defects, Prometheus},
};

use foretide_api::validation::CostLimits;
use foretide_base::memory::Memory;

use crate::cluster::{Cluster, DENIED, HUB, PER_POD, SHOP, START, TENANT, external};

const HOST: &str = "pod-0";
const PREDICTIONS: &str = "timeseriespredictions.prediction.crane.io";
const QUERY: &str = "metric-query.autoscaling.crane.io/resource.cpu";
/// A memory limit that holds 324 forecasts, each of which is taken for 256 KiB, and autoscalers that have more series.
const LIMIT: usize = 90 << 20;
const ALL: usize = 24;
const SERIES: usize = 16;

/// A cluster without autoscalers, whose Prometheus knows the four days before.
fn new() -> (Cluster, Prometheus) {
    let mut cluster = Cluster::without_election();
    let prometheus = cluster.add_prometheus(START - SignedDuration::from_hours(96));
    (cluster, prometheus)
}

/// Adds an autoscaler of four pods with this prediction, whose load is that of each day.
fn add(cluster: &Cluster, namespace: &str, name: &str, prediction: &Value) {
    let wave = [
        4, 4, 5, 6, 7, 8, 9, 10, 11, 11, 12, 12, 12, 12, 11, 11, 10, 9, 8, 7, 6, 5, 4, 4,
    ];
    for day in -4..=0 {
        for (hour, pods) in (24 * day..).zip(wave) {
            let at = START + SignedDuration::from_hours(hour);
            cluster.load.set(name, at, pods * PER_POD);
        }
    }
    let spec = json!({"minReplicas": 3, "prediction": prediction});
    cluster.autoscaler_in(namespace, name, (4, "Direct"), &spec);
}

/// An autoscaler `web` with this prediction, which is forecast.
fn forecast_of_web(prediction: &Value) -> (Cluster, Prometheus) {
    let (mut cluster, prometheus) = new();
    add(&cluster, SHOP, "web", prediction);
    cluster.start(HOST);
    cluster.until(60, "a forecast", |it| it.forecast("web").is_some());
    (cluster, prometheus)
}

/// The query of the cpu that an app uses.
fn query(app: &str) -> String {
    format!(
        "sum(rate(container_cpu_usage_seconds_total{{namespace=\"shop\",pod=~\"^{app}-[a-z0-9]+-[a-z0-9]+$\"}}[3m]))"
    )
}

/// A Prometheus that answers no query with this part.
pub(crate) fn silent(part: &str) -> Defects {
    Defects {
        silent: Some(part.to_owned()),
        ..Defects::default()
    }
}

impl Cluster {
    /// The proposal of the forecast of an autoscaler.
    fn proposal(&self, name: &str) -> Value {
        let ehpa = self.ehpa(name);
        let proposals = ehpa["status"]["decision"]["proposals"].as_array();
        let mut forecasts = proposals.into_iter().flatten();
        let found = forecasts.find(|one| one["source"] == "forecast");
        found.cloned().unwrap_or_default()
    }

    /// The count that its forecast asks for.
    pub(crate) fn forecast(&self, name: &str) -> Option<u64> {
        self.proposal(name)["replicas"].as_u64()
    }

    /// The value of the first series of the metrics with this beginning.
    fn counted(&self, series: &str) -> Option<f64> {
        let text = self.metrics(HOST);
        let value = text.lines().find_map(|line| line.strip_prefix(series));
        value.map(|value| value.trim().parse().unwrap())
    }
}

fn number(value: &Value) -> f64 {
    value.as_str().unwrap().parse().unwrap()
}

#[test]
fn an_unset_algorithm_is_auto_whose_accuracy_and_measured_lead_time_are_shown() {
    for (prediction, source, seconds) in [
        (json!({}), "measured", 60),
        (json!({"leadTimeSeconds": 45}), "spec", 45),
    ] {
        let (mut cluster, _) = forecast_of_web(&prediction);
        cluster.run_for(30);
        let forecast = cluster.proposal("web")["forecast"].take();
        assert_eq!(forecast["algorithm"], "auto");
        assert_eq!(forecast["quantile"], "0.94");
        assert!(number(&forecast["coverage"]) > 0.5, "{forecast}");
        assert!(forecast["learntFrom"].is_string() && forecast["knownUntil"].is_string());
        assert_eq!(forecast["leadTimeSource"], source);
        assert_eq!(forecast["leadTimeSeconds"], seconds);
        assert!(forecast["windowSeconds"].as_u64() > Some(seconds));
        let [published] = &cluster.server.objects(PREDICTIONS)[..] else {
            panic!("one prediction is expected");
        };
        let metric = &published["status"]["predictionMetrics"][0];
        assert_eq!(metric["ready"], true, "{metric}");
        assert_eq!(metric["forecast"]["algorithm"], "auto");
        let samples = metric["prediction"][0]["samples"].as_array().unwrap();
        assert!(samples.len() > 60, "{}", samples.len());
        for sample in samples {
            let (value, upper) = (number(&sample["value"]), number(&sample["upper"]));
            assert!(value <= upper && upper < 2.0, "{value} {upper}");
        }
    }
}

#[test]
fn every_write_of_a_prediction_is_counted_with_its_result() {
    let (mut cluster, _) = new();
    add(&cluster, SHOP, "web", &json!({}));
    cluster.trouble("PATCH", &["/timeseriespredictions"], Effect::Refused(403));
    cluster.start(HOST);
    let counted = |cluster: &Cluster| {
        ["ok", "error"].map(|result| {
            let series = format!(r#"foretide_writes_total{{kind="prediction",result="{result}"}}"#);
            cluster.counted(&series).unwrap()
        })
    };
    cluster.until(60, "it is refused", |it| counted(it)[1] > 0.0);
    assert!(counted(&cluster)[0] < 1.0);
    cluster.network().end_all();
    cluster.until(60, "spec and status", |it| counted(it)[0] > 1.0);
}

#[test]
fn the_demand_of_a_target_that_is_not_scaled_is_not_read() {
    let (mut cluster, prometheus) = new();
    cluster.namespace(DENIED);
    add(&cluster, DENIED, "web", &json!({}));
    cluster.start(HOST);
    cluster.run_for(120);
    assert_eq!(prometheus.asked(""), (0, 0));
}

#[test]
fn a_standby_keeps_forecasts_and_publishes_them_when_it_leads() {
    let (mut cluster, prometheus) = new();
    cluster.elects = true;
    add(&cluster, SHOP, "web", &json!({}));
    cluster.start(HOST);
    cluster.until(60, "it leads", |cluster| cluster.leader() == HOST);
    cluster.start("pod-1");
    cluster.run_for(120);
    assert_eq!(cluster.writes("pod-1", PREDICTIONS), 0);
    prometheus.set(silent(""));
    cluster.kill(HOST);
    cluster.server.delete(PREDICTIONS, SHOP, "ehpa-web");
    cluster.until(60, "it is published", |cluster| {
        cluster.writes("pod-1", &format!("{PREDICTIONS}/status")) > 0
    });
    cluster.run_for(15);
    assert!(cluster.forecast("web").is_some());
}

#[test]
fn demand_measured_by_syncs_keeps_a_forecast_fresh_without_another_query() {
    let (mut cluster, prometheus) = forecast_of_web(&json!({}));
    cluster.run_for(28 * 60);
    let (values, minutes) = (prometheus.asked("[3m]").0, prometheus.asked("[1m]").0);
    assert!(values.min(minutes) >= 24, "{values} {minutes}");
    // Half an hour can be compared: from then on there is one query an hour.
    cluster.run_for(5 * 60);
    let before = prometheus.asked("").0;
    cluster.run_for(20 * 60);
    assert_eq!(prometheus.asked("").0, before);
    assert!(cluster.forecast("web").is_some());
}

#[test]
fn a_query_of_minutes_that_never_returns_delays_a_forecast_by_two_seconds_once_an_hour() {
    let (mut cluster, prometheus) = new();
    add(&cluster, SHOP, "web", &json!({}));
    prometheus.set(silent("[1m]"));
    cluster.start(HOST);
    cluster.until(60, "a forecast", |it| it.forecast("web").is_some());
    for _minute in 0..10 {
        cluster.run_for(60);
        assert!(cluster.forecast("web").is_some());
    }
    let (asked, unanswered) = prometheus.asked("[1m]");
    assert!(asked <= 2 && asked == unanswered, "{asked} {unanswered}");
    assert!(prometheus.asked("[3m]").0 > 8);
}

#[test]
fn an_autoscaler_that_cannot_be_decoded_keeps_its_forecasts() {
    let (mut cluster, _) = forecast_of_web(&json!({}));
    cluster.edit("web", &json!({"minReplicas": "three"}));
    cluster.run_for(20);
    cluster.edit("web", &json!({"minReplicas": 2}));
    cluster.until(3, "it is decided", |cluster| cluster.is_reported("web"));
    assert!(cluster.forecast("web").is_some());
}

#[test]
fn a_forecast_from_an_old_query_is_not_used_while_the_new_query_fails() {
    for (app, is_used) in [("web", true), ("other", false)] {
        let (mut cluster, prometheus) = forecast_of_web(&json!({}));
        cluster.annotate_in(SHOP, "web", QUERY, &query("web"));
        cluster.run_for(90);
        prometheus.set(silent(""));
        cluster.annotate_in(SHOP, "web", QUERY, &query(app));
        cluster.run_for(60);
        assert_eq!(cluster.forecast("web").is_some(), is_used, "{app}");
    }
}

#[test]
fn a_budget_chooses_the_quantile_of_what_the_specs_leave_open() {
    let settled = |limits: &[&str], prediction: &Value| {
        let (mut cluster, _) = new();
        cluster.cost_limits = CostLimits::parse(limits).unwrap();
        add(&cluster, SHOP, "web", prediction);
        cluster.start(HOST);
        cluster.run_for(240);
        cluster
    };
    let quantile = |cluster: &Cluster| number(&cluster.proposal("web")["forecast"]["quantile"]);
    let none = settled(&[], &json!({}));
    for limits in [["shop=0"], ["*=400"]] {
        let mut cluster = settled(&limits, &json!({}));
        let is_higher = quantile(&cluster) > quantile(&none);
        assert_eq!(is_higher, limits == ["*=400"]);
        let said = cluster.proposal("web")["forecast"]["message"].clone();
        let most = limits[0].split_once('=').unwrap().1;
        let chosen = format!(
            "the quantile is chosen by the budget of namespace shop: at most {most} % more replicas than a plain HPA"
        );
        assert_eq!(said, chosen);
        let metric = |name: &str| format!(r#"foretide_budget_{name}{{namespace="shop"}}"#);
        assert!(cluster.counted(&metric("price")).is_some());
        assert!(cluster.counted(&metric("cost_percent")).unwrap() <= 400.0);
        // An edit does not take the series out of the budget.
        cluster.edit("web", &json!({"prediction": {"leadTimeSeconds": 120}}));
        cluster.run_for(6);
        assert!(cluster.counted(&metric("price")).is_some());
    }
    assert!(none.proposal("web")["forecast"]["message"].is_null());
    for (limit, prediction) in [
        ("blog=10", json!({})),
        ("shop=0", json!({"quantile": 0.9})),
        ("shop=0", json!({"maxUnderProvisionedPercent": 1})),
        (
            "shop=0",
            json!({"predictionAlgorithm": {"algorithmType": "seasonalNaive"}}),
        ),
    ] {
        let [with, without] = [&[limit][..], &[]].map(|limits| settled(limits, &prediction));
        assert_eq!(
            with.proposal("web")["forecast"],
            without.proposal("web")["forecast"]
        );
        assert!(
            !with.metrics(HOST).contains("foretide_budget_price{"),
            "{limit}"
        );
    }
}

#[test]
fn the_newest_go_without_a_forecast_until_the_memory_limit_has_room() {
    let (mut cluster, _) = new();
    cluster.memory = Some(Memory::unused(LIMIT));
    let name = |n: usize| format!("web-{n}");
    let queues = (0..SERIES).map(|n| external(&format!("queue-{n}"))["metrics"][0].take());
    let spec = json!({"metrics": queues.collect::<Vec<_>>(), "prediction": {}});
    for n in 0..=ALL {
        cluster.run_for(u64::from(n == ALL));
        cluster.autoscaler(&name(n), 0, "Direct", &spec);
        for queue in 0..SERIES {
            let key = format!("metric-query.autoscaling.crane.io/external.queue-{queue}");
            cluster.annotate_in(SHOP, &name(n), &key, &query("queue"));
        }
    }
    cluster.start(HOST);
    let is_left_out = |cluster: &Cluster, n: usize| {
        let said = cluster.said(&name(n), "PredictionReady");
        said.contains("MemoryLimit")
    };
    let left_out = |cluster: &Cluster| cluster.counted("foretide_forecasts_left_out");
    cluster.until(60, "the newest is left out", |it| is_left_out(it, ALL));
    assert!(left_out(&cluster) > Some(0.0));
    assert!(!is_left_out(&cluster, 0));
    (0..ALL / 2).for_each(|n| cluster.delete(&name(n)));
    cluster.until(60, "there is room", |it| left_out(it) < Some(1.0));
    cluster.until(60, "it is asked for", |it| !is_left_out(it, ALL));
}

/// The number of queries about the shop in four minutes from the start of a process, while `disturb` is called every
/// five seconds.
fn queries_of_shop(defects: Defects, disturb: impl Fn(&Cluster, u64)) -> usize {
    let (mut cluster, prometheus) = new();
    for n in 0..6 {
        add(&cluster, SHOP, &format!("web-{n}"), &json!({}));
    }
    prometheus.set(defects);
    for second in 0..240 {
        if second % 5 == 0 {
            disturb(&cluster, second);
        }
        if second == 0 {
            cluster.start(HOST);
        }
        cluster.run_for(1);
    }
    let (asked, unanswered) = prometheus.asked("namespace=\"shop\"");
    asked - unanswered
}

#[test]
fn neither_queries_of_others_nor_writes_that_hang_age_a_forecast() {
    let undisturbed = queries_of_shop(Defects::default(), |_, _| {});
    let least = undisturbed * 9 / 10;
    assert!(undisturbed > 30, "{undisturbed}");
    let heavy = |cluster: &Cluster, second: u64| {
        for n in 0..25 {
            let name = format!("heavy-{n}");
            if second == 0 {
                add(cluster, TENANT, &name, &json!({}));
            } else {
                let query = format!(
                    "sum(rate(container_cpu_usage_seconds_total{{namespace=\"tenant\",pod=~\"^heavy-[a-z]+$\"}}[{second}m]))"
                );
                cluster.annotate_in(TENANT, &name, QUERY, &query);
            }
        }
    };
    let beside = queries_of_shop(silent("namespace=\"tenant\""), heavy);
    assert!(beside >= least, "{beside} of {undisturbed}");
    let hanging = queries_of_shop(Defects::default(), |cluster, second| {
        if second == 0 {
            cluster.trouble("PATCH", &["/timeseriespredictions"], Effect::Hang);
        }
    });
    assert!(hanging >= least, "{hanging} of {undisturbed}");
}

#[test]
fn a_namespace_whose_predictions_cannot_be_written_delays_no_other() {
    let (mut cluster, _) = new();
    cluster.trouble("PATCH", &["/namespaces/shop/timeseries"], Effect::Hang);
    for n in 0..60 {
        add(&cluster, SHOP, &format!("heavy-{n}"), &json!({}));
    }
    for n in 0..6 {
        add(&cluster, TENANT, &format!("web-{n}"), &json!({}));
    }
    cluster.start(HOST);
    cluster.until(40, "those of the tenant", |cluster| {
        let all = cluster.server.objects(PREDICTIONS);
        all.iter().filter(|one| one["status"].is_object()).count() == 6
    });
}

#[test]
fn by_copies_of_predictions_that_are_out_of_date_none_is_removed() {
    let (mut cluster, _) = forecast_of_web(&json!({}));
    cluster.trouble("GET", &["/timeseriespredictions"], Effect::Hang);
    cluster.network().reset(HOST, HUB);
    cluster.run_for(120);
    cluster.edit("web", &json!({"prediction": null}));
    cluster.run_for(60);
    assert_eq!(cluster.server.objects(PREDICTIONS).len(), 1);
    cluster.network().end_all();
    cluster.network().reset(HOST, HUB);
    cluster.until(60, "it is removed", |cluster| {
        cluster.server.objects(PREDICTIONS).is_empty()
    });
}
