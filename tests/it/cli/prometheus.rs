//! Histories from Prometheus, and autoscalers of other kinds: the requests of commands, and the use of the answers.

use std::{collections::BTreeMap, f64::consts::TAU, net::SocketAddr, sync::Mutex};

use axum::{Router, body::Bytes, http::StatusCode, http::request::Parts};
use tokio::{net::TcpListener, runtime::Runtime};
use url::Url;

use super::*;

/// End of the histories: 2026-03-06 00:00 UTC.
const NOW: i64 = 1_772_755_200;
/// Minutes of history on the server: three days.
const MINUTES: i64 = 3 * 24 * 60;
/// The controller's own query for the cpu of Deployment shop/web.
const CPU_QUERY: &str = r#"sum(rate(container_cpu_usage_seconds_total{namespace="shop",pod=~"^web-[a-z0-9]+-[a-z0-9]{5}$",container!=""}[3m]))"#;
/// The controller's query of single minutes.
const CPU_BY_MINUTE: &str = r#"sum(rate(container_cpu_usage_seconds_total{container!="",namespace="shop",pod=~"^web-[a-z0-9]+-[a-z0-9]{5}$"}[1m]))"#;
const HPA: &str = "tests/it/manifests/hpa.yaml";
const SCALED_OBJECT: &str = "tests/it/manifests/scaled-object.yaml";

#[derive(Clone, Debug, PartialEq)]
struct Request {
    line: String,
    tenant: String,
    form: BTreeMap<String, String>,
}

/// A server on this machine, with the requests that it got.
struct FakeServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    _runtime: Runtime,
}

// === impl FakeServer ===

impl FakeServer {
    fn new(answer: impl Fn(&Request) -> (u16, String) + Clone + Send + Sync + 'static) -> Self {
        let runtime = Runtime::new().unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let seen = Arc::clone(&requests);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let handler = move |parts: Parts, body: Bytes| {
            let body = String::from_utf8(body.to_vec()).unwrap();
            let form = Url::parse(&format!("http://form/?{body}")).unwrap();
            let request = Request {
                line: format!("{} {}", parts.method, parts.uri),
                tenant: parts
                    .headers
                    .get("X-Scope-OrgID")
                    .map_or_else(String::new, |value| value.to_str().unwrap().to_owned()),
                form: form.query_pairs().into_owned().collect(),
            };
            let (status, text) = answer(&request);
            seen.lock().unwrap().push(request);
            async move { (StatusCode::from_u16(status).unwrap(), text) }
        };
        let routes = Router::new().fallback(handler);
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self {
            address,
            requests,
            _runtime: runtime,
        }
    }

    /// A Prometheus that answers every query with one series.
    fn prometheus() -> Self {
        Self::new(|request| (200, matrix(request)))
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The distinct queries to the server.
    fn queries(&self) -> Vec<String> {
        let requests = self.requests();
        let mut queries: Vec<String> = Vec::new();
        for query in requests
            .iter()
            .filter_map(|request| request.form.get("query"))
        {
            if !queries.contains(query) {
                queries.push(query.clone());
            }
        }
        queries
    }
}

/// The demand at a minute: a day with one peak.
fn demand(at: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "seconds of a day are exact")]
    let day = at.rem_euclid(86_400) as f64 / 86_400.0;
    format!("{:.4}", 0.5 + 0.4 * (TAU * day).sin())
}

/// The samples that a range query of the only series returns.
fn matrix(request: &Request) -> String {
    let number = |name: &str| request.form[name].parse::<i64>().unwrap();
    assert_eq!(number("step"), 60);
    let (start, end) = (number("start"), number("end"));
    let values = (start..=end).step_by(60);
    let values = values.filter(|at| (NOW - MINUTES * 60..=NOW).contains(at));
    let values: Vec<Value> = values.map(|at| json!([at, demand(at)])).collect();
    let series = if values.is_empty() {
        json!([])
    } else {
        json!([{ "metric": {}, "values": values }])
    };
    json!({ "status": "success", "data": { "resultType": "matrix", "result": series } }).to_string()
}

/// Runs a command at [`NOW`]; `|` stands for a blank within a word.
fn run(line: &str) -> Result<CommandOutput, Failure> {
    let words = line.split_whitespace().map(|word| word.replace('|', " "));
    let cli = Cli::try_parse_from(["foretide".to_owned()].into_iter().chain(words)).unwrap();
    let now = Timestamp::from_second(NOW + 20).unwrap();
    cli::execute(&cli, &context(now))
}

fn failure(line: &str) -> (Exit, String) {
    let failure = run(line).unwrap_err();
    (failure.exit, failure.message)
}

#[test]
fn a_backtest_from_prometheus_has_the_figures_of_a_file_with_the_same_samples() {
    let server = FakeServer::prometheus();
    let rows = (0..=MINUTES).map(|minute| NOW - (MINUTES - minute) * 60);
    let rows = rows.map(|at| format!("{at},{}\n", demand(at)));
    let csv = written("same.csv", rows.collect::<String>());
    let line = format!("backtest -f {HPA} --request cpu=200m --warm-up 70h -o json");
    let read = run(&format!("{line} --prometheus {} --last 3d", server.url())).unwrap();
    let recorded = run(&format!("{line} --csv {csv}")).unwrap();
    assert_eq!(read.text, recorded.text);
    let note = format!(
        "history of resource.cpu: 4321 samples from 2026-03-03 00:00 to 2026-03-06 00:00 UTC, by the query\n  \
         {CPU_QUERY}\n  and, for each minute alone,\n  {CPU_BY_MINUTE}\n"
    );
    assert_eq!((read.notes, recorded.notes), (note, String::new()));
    assert_eq!(server.queries(), [CPU_QUERY, CPU_BY_MINUTE]);
    let report: Value = serde_json::from_str(&recorded.text).unwrap();
    let assumed = report["assumptions"][0].as_str().unwrap();
    assert!(
        assumed.starts_with("HorizontalPodAutoscaler web as an EffectiveHorizontalPodAutoscaler"),
        "{assumed}"
    );
}

#[test]
fn a_plan_from_prometheus_reads_up_to_the_moment_of_the_decision() {
    let server = FakeServer::prometheus();
    let line = format!(
        "plan -f {HPA} --request cpu=200m --prometheus {} --last 2d --at 2026-03-05T12:00:30Z -o json",
        server.url()
    );
    let plan: Value = serde_json::from_str(&run(&line).unwrap().text).unwrap();
    let forecast = &plan["decision"]["proposals"][1];
    assert_eq!(forecast["source"], "forecast");
    assert_eq!(forecast["reason"], "ForecastReady");
    let last = server.requests().pop().unwrap();
    assert_eq!(last.form["end"], (NOW - 12 * 3600).to_string());
}

#[test]
fn the_query_of_a_trigger_is_bound_to_its_namespace_unless_any_series_may_be_read() {
    let written = r"sum(rate(orders_total[2m]))";
    let bound = r#"sum(rate(orders_total{namespace="shop"}[2m]))"#;
    for (scope, expected) in [("", bound), ("--promql-scope any", written)] {
        let server = FakeServer::prometheus();
        let line = format!(
            "backtest -f {SCALED_OBJECT} --warm-up 71h --prometheus {} --last 3d {scope}",
            server.url()
        );
        let output = run(&line).unwrap();
        let by_minute = expected.replace("2m", "1m");
        assert_eq!(server.queries(), [expected, &by_minute]);
        assert!(output.notes.contains(expected), "{}", output.notes);
        for note in [
            "minReplicas is 1: scaling to zero (minReplicaCount: 0) is left to KEDA",
            "spec.triggers[1] is left out: a trigger of type kafka has no equivalent",
            "the plain HPA runs without the cron triggers that KEDA applies",
        ] {
            let words = output.text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(note), "{}", output.text);
        }
    }
}

#[test]
fn what_a_server_answers_becomes_an_error_with_what_to_do() {
    let none = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
    let two = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[60,"1"]]},
        {"metric":{"a":"2"},"values":[[60,"1"]]}]}}"#;
    let partial = r#"{"status":"success","warnings":["a store is down"],"data":{"resultType":"matrix","result":[]}}"#;
    let flag = "--token-file FILE";
    for (status, body, expected) in [
        (
            401,
            "who",
            vec!["(status 401)", "with no credentials", flag],
        ),
        (403, "no", vec!["the request (status 403)", "--config FILE"]),
        (404, "?", vec!["(status 404)", "without /api/v1"]),
        (503, "busy", vec!["unavailable (status 503)", CPU_QUERY]),
        (200, partial, vec!["response: a store is down", CPU_QUERY]),
        (200, two, vec!["expected one", "it in sum(...)", CPU_QUERY]),
        (
            200,
            none,
            vec![
                "without resource.cpu: no samples between 2026-02-20 00:00 and 2026-03-06 00:00 UTC of the query",
                CPU_QUERY,
                "labels namespace and pod",
                "metric-query.autoscaling.crane.io/METRIC",
            ],
        ),
    ] {
        let server = FakeServer::new(move |_| (status, body.to_owned()));
        let line = format!(
            "backtest -f {HPA} --request cpu=200m --prometheus {}",
            server.url()
        );
        let (exit, message) = failure(&line);
        assert_eq!(exit, Exit::Runtime, "{message}");
        for part in expected {
            assert!(
                message.contains(part),
                "{status}: {part:?} is not in: {message}"
            );
        }
    }
}

#[test]
fn a_server_that_cannot_be_used_is_an_error_before_anything_is_computed() {
    let token = written("token", "s3cret\n");
    let config = written(
        "config.yaml",
        "apiVersion: foretide.io/v1alpha1\nkind: ControllerConfig\n",
    );
    let not_url = "expected http://HOST:PORT or https://HOST:PORT";
    let plain = &format!("--prometheus http://p.example --token-file {token}");
    let without_token = "--prometheus https://127.0.0.1:9 --token-file nowhere";
    let without_url = &format!("--config {config}");
    let silent = "cannot reach Prometheus at http://127.0.0.1:9/: Connection refused";
    for (flags, exit, expected) in [
        ("--prometheus notaurl", Exit::Usage, not_url),
        (plain, Exit::Usage, "the URL is not encrypted, and a bearer"),
        (without_token, Exit::Runtime, "nowhere"),
        (without_url, Exit::Usage, "--prometheus URL is required"),
        ("--prometheus http://127.0.0.1:9", Exit::Runtime, silent),
    ] {
        let found = failure(&format!("backtest -f {HPA} --request cpu=200m {flags}"));
        assert_eq!(found.0, exit, "{flags}: {}", found.1);
        assert!(found.1.contains(expected), "{flags}: {}", found.1);
        assert!(!found.1.contains("s3cret"), "{}", found.1);
    }
    let nameless = "plan -f examples/php-apache.yaml --prometheus http://127.0.0.1:9";
    let expected = "-n NAMESPACE is required: the manifest of the autoscaler names no namespace";
    assert_eq!(failure(nameless), (Exit::Usage, expected.to_owned()));
}

#[test]
fn the_configuration_of_the_controller_gives_server_headers_and_rules() {
    let server = FakeServer::prometheus();
    let rules = written(
        "rules.yaml",
        "rules: [{seriesQuery: hits_total, name: {as: hits_per_second}, resources: {template: <<.Resource>>}, \
         metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)'}]",
    );
    let config = format!(
        "{{apiVersion: foretide.io/v1alpha1, kind: ControllerConfig, prometheusAdapterConfig: {rules}, prometheus: \
         {{url: '{}', headers: [{{name: X-Scope-OrgID, value: team-a}}]}}}}",
        server.url()
    );
    let config = written("controller.yaml", &config);
    let hpa = written(
        "pods.yaml",
        "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {scaleTargetRef: \
         {apiVersion: apps/v1, kind: StatefulSet, name: web}, maxReplicas: 9, metrics: [\
         {type: Pods, pods: {metric: {name: hits_per_second}, target: {type: AverageValue, averageValue: 100m}}}, \
         {type: Resource, resource: {name: gpu, target: {type: AverageValue, averageValue: 1}}}]}}",
    );
    let output = run(&format!(
        "plan -f {hpa} -n shop --config {config} --last 2d -o json"
    ))
    .unwrap();
    let expected = r#"sum(rate(hits_total{namespace="shop",pod=~"^web-[0-9]+$"}[1m]))"#;
    assert_eq!(server.queries(), [expected]);
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.tenant == "team-a"));
    let report: Value = serde_json::from_str(&output.text).unwrap();
    let gpu = "without resource.gpu: no built-in history query for resource";
    assert!(report["assumptions"].to_string().contains(gpu), "{report}");
}

/// The answers of a cluster with an HPA and its Deployment.
fn cluster(request: &Request) -> (u16, String) {
    let hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": 2, "maxReplicas": 9, "metrics": [{ "type": "Resource", "resource": {
                "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } }] },
    });
    let container = json!({ "name": "app", "resources": { "requests": { "cpu": "300m" } } });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "template": { "spec": { "containers": [container] } } },
    });
    let resource = |name: &str, kind: &str| json!({ "name": name, "kind": kind, "singularName": "", "namespaced": true, "verbs": [] });
    let kinds = json!({ "kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [
        resource("deployments", "Deployment"), resource("deployments/scale", "Scale"),
    ] });
    let found = match request.line.as_str() {
        "GET /apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web" => hpa,
        "GET /apis/apps/v1" => kinds,
        "GET /apis/apps/v1/namespaces/shop/deployments/web" => deployment,
        _ => {
            let status = json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "none" });
            return (404, status.to_string());
        }
    };
    (200, found.to_string())
}

#[test]
fn the_autoscaler_and_its_workload_can_come_from_the_cluster_by_reads_alone() {
    let (prometheus, cluster) = (FakeServer::prometheus(), FakeServer::new(cluster));
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{}'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u, namespace: shop}}}}], users: [{{name: u, user: {{}}}}]}}",
        cluster.url()
    );
    let kubeconfig = written("kubeconfig", &kubeconfig);
    let rest = format!(
        "--kubeconfig {kubeconfig} --prometheus {} --last 3d --warm-up 71h -o json",
        prometheus.url()
    );
    let from_cluster = run(&format!("backtest shop/web {rest}")).unwrap();
    assert_eq!(run(&format!("backtest web {rest}")).unwrap(), from_cluster);
    let report: Value = serde_json::from_str(&from_cluster.text).unwrap();
    let assumed = "requests as in the cluster's Deployment shop/web";
    assert!(
        report["assumptions"].to_string().contains(assumed),
        "{report}"
    );
    assert_eq!(prometheus.queries(), [CPU_QUERY, CPU_BY_MINUTE]);
    let requests = cluster.requests();
    let is_read = |request: &Request| request.line.starts_with("GET ");
    assert!(requests.iter().all(is_read), "{requests:?}");
    let (exit, message) = failure(&format!("backtest shop/nobody {rest}"));
    assert_eq!(exit, Exit::Runtime);
    assert!(
        message.contains("ScaledObject shop/nobody found"),
        "{message}"
    );
}

#[test]
fn a_series_is_drawn_with_its_forecast_by_its_query_unchanged() {
    let server = FakeServer::prometheus();
    let line = format!("forecast --prometheus {} --last 3d", server.url());
    let drawn = run(&format!("{line} --query sum(rate(x[5m]))|*|2"))
        .unwrap()
        .text;
    assert_narrow(&drawn);
    let by_minute = "sum(rate(x[1m])) * 2";
    assert_eq!(server.queries(), ["sum(rate(x[5m])) * 2", by_minute]);
    matches_snapshot("forecast.txt", &drawn);
    let json = run(&format!("{line} --query x -o json --ahead 1h"))
        .unwrap()
        .text;
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["kind"], "Forecast");
    assert_eq!(report["samples"], 4321);
    let short = run("forecast --csv tests/it/manifests/short.csv --ascii")
        .unwrap()
        .text;
    assert!(short.is_ascii(), "{short}");
}

#[test]
fn a_converted_autoscaler_is_valid_and_in_preview() {
    let text = run(&format!("convert -f {HPA}")).unwrap().text;
    matches_snapshot("convert-hpa.yaml", &text);
    let made = written("converted.yaml", &text);
    let report = run(&format!("validate -f {made}")).unwrap();
    assert_eq!(report.exit, Exit::Ok, "{}", report.text);
    let keda = run(&format!("convert -f {SCALED_OBJECT}")).unwrap().text;
    matches_snapshot("convert-scaled-object.yaml", &keda);
    let (exit, message) = failure("convert -f tests/it/manifests/hpa-v2beta2.yaml");
    assert_eq!(exit, Exit::Invalid);
    assert!(
        message.starts_with(
            "tests/it/manifests/hpa-v2beta2.yaml:1: apiVersion: expected autoscaling/v2"
        ),
        "{message}"
    );
    let expected =
        "no HorizontalPodAutoscaler or ScaledObject in the manifests; add its file with -f";
    assert_eq!(
        failure("convert -f examples/php-apache.yaml"),
        (Exit::Invalid, expected.to_owned())
    );
}
