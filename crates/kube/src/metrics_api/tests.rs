//! Exact requests to the metrics APIs, and the samples of their responses.

use std::sync::Arc;

use foretide_domain::{
    hpa::ObjectRef,
    observation::{Cause, ContainerUsage, PodSample, PodUsage, Requests, Unavailable},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::MetricsApi;
use crate::api_server::{Calls, Discovery, Limits};
use foretide_api::ports::MetricQuery;
use simkube::client::{FakeServer, Reply, Sent};

/// The time of the API server, by its own responses.
const NOW: &str = "Thu, 01 Jan 2026 00:01:00 GMT";

fn api(reply: impl Fn(&Sent) -> Reply + Send + Sync + 'static) -> (FakeServer, MetricsApi) {
    let dated = move |sent: &Sent| match reply(sent) {
        // The machine of the metrics APIs has a wrong clock.
        Reply::Ok(value) if sent.line.contains("metrics.k8s.io") => {
            Reply::Dated(value, "Fri, 01 Jan 2027 00:01:00 GMT")
        }
        Reply::Ok(value) => Reply::Dated(value, NOW),
        other => other,
    };
    let (server, client) = FakeServer::new(move |sent, _before| dated(sent));
    let limits = Limits {
        backoff: std::time::Duration::ZERO,
        ..Limits::default()
    };
    let calls = Arc::new(Calls::new(client, limits));
    calls.date(NOW);
    let discovery = Arc::new(Discovery::new(calls.clone()));
    (server, MetricsApi::new(calls, discovery))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn query<'a>(metric: &'a str, metric_selector: Option<&'a str>) -> MetricQuery<'a> {
    MetricQuery {
        namespace: "shop",
        metric,
        metric_selector,
        pod_selector: "app=web,tier in (a,b)",
    }
}

/// A server of the custom metrics API in these versions, and of the resource lists of two groups.
fn custom(versions: &'static [&'static str], values: Value) -> (FakeServer, MetricsApi) {
    api(move |sent| match sent.line.as_str() {
        "GET /apis/custom.metrics.k8s.io" => {
            let listed: Vec<_> = versions.iter().map(|v| json!({"version": v})).collect();
            Reply::Ok(json!({"versions": listed, "preferredVersion": listed.first()}))
        }
        "GET /apis/networking.k8s.io/v1" => Reply::Ok(json!({"resources": [
            {"name": "ingresses", "kind": "Ingress", "namespaced": true},
        ]})),
        "GET /api/v1" => Reply::Ok(json!({"resources": [
            {"name": "nodes", "kind": "Node", "namespaced": false},
            {"name": "services", "kind": "Service", "namespaced": true},
        ]})),
        _ => Reply::Ok(json!({"items": values})),
    })
}

fn object(api_version: &str, kind: &str) -> ObjectRef {
    ObjectRef {
        api_version: api_version.into(),
        kind: kind.into(),
        name: "main".into(),
    }
}

fn value(name: &str, window: &(&str, Value), amount: &str) -> Value {
    json!({
        "describedObject": {"kind": "Pod", "namespace": "shop", "name": name, "apiVersion": "/v1"},
        "metric": {"name": "rps", "selector": null}, "metricName": "rps",
        "timestamp": "2026-01-01T00:00:00Z", window.0: window.1, "value": amount,
    })
}

#[tokio::test]
async fn pod_usage_keeps_every_container_and_every_resource() {
    let (server, api) = api(|_| {
        Reply::Ok(json!({"kind": "PodMetricsList", "items": [{
            "metadata": {"name": "web-1", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:07Z"},
            "timestamp": "2026-01-01T00:00:00Z", "window": "1m0.5s",
            "containers": [
                {"name": "app", "usage": {"cpu": "123456789n", "memory": "10Ki"}},
                {"name": "quiet", "usage": {}},
            ],
        }, {
            "metadata": {"name": "web-2"}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
            "containers": null,
        }]}))
    });
    let usage = api.usage("shop").await.unwrap().pods;
    let container = |name: &str, usage: &[(&str, i64)]| ContainerUsage {
        name: name.into(),
        usage: usage
            .iter()
            .map(|(resource, milli)| (*resource, *milli))
            .collect::<Requests>(),
    };
    let want = [
        PodUsage {
            pod: "web-1".into(),
            at: at("2026-01-01T00:00:00Z"),
            window: SignedDuration::from_millis(60_500),
            containers: vec![
                container("app", &[("cpu", 124), ("memory", 10_240_000)]),
                container("quiet", &[]),
            ],
        },
        PodUsage {
            pod: "web-2".into(),
            at: at("2026-01-01T00:00:00Z"),
            window: SignedDuration::from_secs(10),
            containers: Vec::new(),
        },
    ];
    assert_eq!(usage, want.map(Arc::new));
    assert_eq!(
        server.lines(),
        ["GET /apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"]
    );
}

#[tokio::test]
async fn a_pods_metric_is_read_in_the_version_the_server_prefers() {
    let path = "namespaces/shop/pods/%2A/http%3Arps\
                ?labelSelector=app%3Dweb%2Ctier%20in%20%28a%2Cb%29&metricLabelSelector=verb%3DGET";
    for (versions, window, used) in [
        (
            &["v1beta1", "v1beta2"][..],
            ("window", json!(30)),
            "v1beta1",
        ),
        (
            &["v1beta2", "v1beta1"],
            ("windowSeconds", json!(30)),
            "v1beta2",
        ),
        (
            &["v1", "v1beta1", "v1beta2"],
            ("windowSeconds", json!(30)),
            "v1beta2",
        ),
    ] {
        let values = json!([
            value("web-1", &window, "1500m"),
            value("web-2", &("x", json!(0)), "2")
        ]);
        let (server, api) = custom(versions, values);
        let samples = api
            .pods(&query("http:rps", Some("verb=GET")))
            .await
            .unwrap();
        let sample = |pod: &str, value, seconds| PodSample {
            pod: pod.into(),
            value,
            at: at("2026-01-01T00:00:00Z"),
            window: SignedDuration::from_secs(seconds),
        };
        assert_eq!(
            samples,
            [sample("web-1", 1500, 30), sample("web-2", 2000, 60)]
        );
        let request = format!("GET /apis/custom.metrics.k8s.io/{used}/{path}");
        assert_eq!(
            server.lines(),
            [
                "GET /apis/custom.metrics.k8s.io".to_owned(),
                request.clone()
            ]
        );

        api.pods(&query("http:rps", Some("verb=GET")))
            .await
            .unwrap();
        assert_eq!(server.lines()[2..], [request], "the version is cached");
    }
}

#[tokio::test]
async fn the_path_of_an_objects_metric_has_its_resource_and_scope() {
    for (api_version, kind, path) in [
        (
            "networking.k8s.io/v1",
            "Ingress",
            "namespaces/shop/ingresses.networking.k8s.io/main/rps",
        ),
        ("v1", "Service", "namespaces/shop/services/main/rps"),
        ("v1", "Node", "nodes/main/rps"),
        ("v1", "Namespace", "namespaces/shop/metrics/rps"),
    ] {
        let (server, api) = custom(
            &["v1beta2"],
            json!([value("main", &("x", json!(0)), "7500m")]),
        );
        let object = object(api_version, kind);
        let found = api.object(&object, &query("rps", None)).await;
        assert_eq!(found, Ok(7500), "{kind}");
        let want = format!("GET /apis/custom.metrics.k8s.io/v1beta2/{path}");
        assert_eq!(server.lines().last(), Some(&want));
    }
}

#[tokio::test]
async fn an_objects_metric_has_exactly_one_value() {
    let one = value("main", &("x", json!(0)), "1");
    let (_server, api) = custom(&["v1beta2"], json!([one, one]));
    let metric = query("rps", None);
    let expected =
        "expected one value of metric rps of Service main in namespace shop, the server sent 2";
    assert_eq!(
        api.object(&object("v1", "Service"), &metric).await,
        Err(Unavailable::new(Cause::NotRead, expected))
    );
    let error = api.object(&object("v1", "Gadget"), &metric).await;
    let message = error.unwrap_err().message;
    assert!(message.contains("has no kind Gadget in v1"), "{message}");
}

#[tokio::test]
async fn an_external_metric_has_one_value_per_series() {
    let (server, api) = api(|_| {
        Reply::Ok(json!({"items": [
            {"metricName": "q", "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z", "value": "5"},
            {"metricName": "q", "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z", "value": "1m"},
        ]}))
    });
    assert_eq!(
        api.external(&query("queue|length", Some("q=a"))).await,
        Ok(vec![5000, 1])
    );
    assert_eq!(api.external(&query("queue", None)).await, Ok(vec![5000, 1]));
    let root = "GET /apis/external.metrics.k8s.io/v1beta1/namespaces/shop";
    assert_eq!(
        server.lines(),
        [
            format!("{root}/queue%7Clength?labelSelector=q%3Da"),
            format!("{root}/queue")
        ]
    );
}

#[tokio::test]
async fn a_sample_older_than_twice_its_window_and_90_seconds_is_missing() {
    for (at, window, age) in [
        (json!("2025-12-31T23:59:35Z"), 30, None),
        (json!("2025-12-31T23:59:29Z"), 30, Some(91)),
        (json!("2025-12-31T23:57:10Z"), 120, Some(230)),
        (json!("2025-12-31T23:56:59Z"), 120, Some(241)),
        // Without a time, and with the zero time.
        (json!(null), 30, None),
        (json!("0001-01-01T00:00:00Z"), 30, None),
        // Ahead of the server.
        (json!("2026-01-01T01:00:00Z"), 30, None),
    ] {
        let stale = age.filter(|age| *age > 90.max(2 * window));
        let (usage_at, value_at) = (at.clone(), at.clone());
        let (_server, usage) = api(move |_| {
            Reply::Ok(json!({"items": [{
                "metadata": {"name": "web-1"}, "timestamp": usage_at,
                "window": format!("{window}s"), "containers": [],
            }]}))
        });
        let usage = usage.usage("shop").await.unwrap();
        let seconds = usage.stale.iter().map(|sample| sample.age.as_secs());
        // The clock runs on between two responses.
        let is_near = |(found, want): (i64, i64)| (found - want).abs() <= 2;
        let found: Vec<i64> = seconds.collect();
        assert_eq!(found.len(), usize::from(stale.is_some()), "{at}");
        assert!(found.into_iter().zip(stale).all(is_near), "{at}");
        assert_eq!(usage.pods.len(), usize::from(stale.is_none()), "{at}");

        let mut item = value("web-1", &("windowSeconds", json!(window)), "5");
        item["timestamp"] = value_at;
        let (_server, custom) = custom(&["v1beta2"], json!([item]));
        let metric = query("rps", None);
        let pods = custom.pods(&metric).await.map(|samples| samples.len());
        assert_eq!(
            pods.clone().map_err(|error| error.reason),
            match stale {
                None => Ok(1),
                Some(_) => Err(Cause::StaleSamples),
            }
        );
        let external = custom.external(&metric).await;
        assert_eq!(external.is_err(), stale.is_some(), "{at}");
        if let (Err(error), Some(241)) = (pods, stale) {
            let message = "the newest sample of pods metric rps in namespace shop is 4m";
            assert!(error.message.starts_with(message), "{error}");
        }
    }
}

#[tokio::test]
async fn a_stale_series_leaves_no_part_of_an_external_total() {
    let (_server, api) = api(|_| {
        Reply::Ok(json!({"items": [
            {"timestamp": "2026-01-01T00:00:30Z", "value": "5"},
            {"timestamp": "2025-12-31T23:00:00Z", "value": "7"},
        ]}))
    });
    let error = api.external(&query("queue", None)).await.unwrap_err();
    assert_eq!(error.reason, Cause::StaleSamples);
}

#[tokio::test]
async fn a_sample_without_a_window_may_be_ten_minutes_old() {
    for (at, is_stale) in [
        ("2025-12-31T23:51:05Z", false),
        ("2025-12-31T23:50:59Z", true),
    ] {
        let mut item = value("web-1", &("windowSeconds", json!(null)), "5");
        item["timestamp"] = json!(at);
        let (_server, api) = custom(&["v1beta2"], json!([item]));
        let metric = query("rps", None);
        assert_eq!(api.pods(&metric).await.is_err(), is_stale, "{at}");
        assert_eq!(api.external(&metric).await.is_err(), is_stale, "{at}");
    }
}

#[tokio::test]
async fn an_empty_list_is_an_error_and_not_zero() {
    for items in [json!([]), json!(null)] {
        let (_server, api) = custom(&["v1beta2"], items);
        let metric = query("rps", None);
        let errors = [
            api.usage("shop").await.err(),
            api.pods(&metric).await.err(),
            api.object(&object("v1", "Service"), &metric).await.err(),
            api.external(&metric).await.err(),
        ];
        let reasons = errors.map(|error| error.map(|error| error.reason));
        assert_eq!(reasons, [Some(Cause::NoSamples); 4]);
    }
}

#[tokio::test]
async fn a_failure_keeps_the_servers_message() {
    let (_server, api) = api(|_| Reply::Fail(404, "the server could not find the metric rps"));
    assert_eq!(
        api.external(&query("rps", None)).await,
        Err(Unavailable::new(
            Cause::NotRead,
            "unable to read external metric rps in namespace shop: \
             the server could not find the metric rps (HTTP 404)"
        ))
    );
}

#[tokio::test]
async fn a_value_that_cannot_be_parsed_is_an_error() {
    for amount in [json!("much"), json!(null), json!(true), json!("NaN")] {
        let (_server, api) = api(move |_| Reply::Ok(json!({"items": [{"value": amount}]})));
        let error = api.external(&query("rps", None)).await.unwrap_err();
        assert_eq!(error.reason, Cause::NotRead, "{error}");
    }
}

#[tokio::test]
async fn a_metric_name_cannot_reach_another_path() {
    for metric in ["..", "a/b", "%2e%2e", ""] {
        let (server, api) = custom(&["v1beta2"], json!([]));
        let error = api.external(&query(metric, None)).await.unwrap_err();
        assert_eq!(error.reason, Cause::NotRead, "{error}");
        let error = api.pods(&query(metric, None)).await.unwrap_err();
        assert_eq!(error.reason, Cause::NotRead, "{error}");
        assert_eq!(server.lines(), [] as [&str; 0]);
    }
}
