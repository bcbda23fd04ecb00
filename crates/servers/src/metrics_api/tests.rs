use std::sync::Mutex;

use axum::{
    body::{Body, to_bytes},
    http::{Method, StatusCode},
};
use foretide_crds::EffectiveHorizontalPodAutoscaler;
use foretide_domain::observation::Phase;
use futures::future::join_all;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::keda::tests::Fake;
use foretide_api::ports::{ClusterError, ListedPod, UpstreamError, UpstreamRequest};

const NOW: &str = "2026-03-01T10:00:00Z";
/// The time of the decision, from which every replica computes the same.
const DECIDED: &str = "2026-03-01T09:58:00Z";
const EXTERNAL: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop";
const PODS: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods";
const CPU: &str = "targetKind%3DDeployment%2CtargetName%3Dweb%2CtargetNamespace%3Dshop%2CresourceIdentifier%3Dresource.cpu";
const UID: &str = "metricLabelSelector=autoscaling.crane.io%2Feffective-hpa-uid%3Du1";

/// The pods of `app=web` in namespace `shop`; there are no others.
#[derive(Default)]
struct Pods(Vec<ListedPod>);

impl PodLister for Pods {
    async fn list_pods(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<ListedPod>, ClusterError> {
        match (namespace, selector) {
            ("shop", "app=web") => Ok(self.0.clone()),
            ("shop", "app=silent") => Err(ClusterError::Unreachable {
                what: "the pods of namespace shop".to_owned(),
                message: "no response within 5s".to_owned(),
            }),
            _ => Ok(Vec::new()),
        }
    }
}

/// Answers with a document for each path, and keeps the requests.
#[derive(Default)]
struct Upstream {
    answers: Vec<(&'static str, Result<Value, UpstreamError>)>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl UpstreamAdapter for Upstream {
    fn name(&self) -> &'static str {
        "https://adapter.monitoring:443"
    }

    async fn get(&self, request: &UpstreamRequest<'_>) -> Result<Value, UpstreamError> {
        let path = request.path.join("/");
        let asked = format!("{path} {:?}", request.parameters);
        self.requests.lock().unwrap().push(asked);
        let answer = self.answers.iter().find(|(known, _)| *known == path);
        match answer {
            Some((_, answer)) => answer.clone(),
            None => std::future::pending().await,
        }
    }
}

fn pod(name: &str, phase: Phase, deleting: bool) -> ListedPod {
    ListedPod {
        name: name.to_owned(),
        phase,
        deleting,
    }
}

/// An autoscaler of a Deployment of its own name, with a forecast of cpu of 0.902 cores.
fn autoscaler(name: &str, uid: &str, spec: &Value) -> Arc<EffectiveHorizontalPodAutoscaler> {
    let mut object = json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop", "uid": uid},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 2,
            "maxReplicas": 100,
            "mode": "Metric",
            "prediction": {},
        },
        "status": {"decision": {
            "time": DECIDED,
            "currentReplicas": 7,
            "proposals": [
                {"source": "forecast", "name": "resource.cpu", "replicas": 9, "value": "0.902", "target": "0.1"},
                {"source": "forecast", "name": "resource.memory", "value": "7", "target": "1", "reason": "Expired"},
                {"source": "cron", "name": "night", "replicas": 40},
            ],
        }},
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    Arc::new(serde_json::from_value(object).unwrap())
}

fn sources() -> MetricSources<Fake, Pods, Upstream> {
    let crons = json!({"crons": [{"name": "night"}]});
    let of_other = |name: &str| json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}});
    let mut stale = (*autoscaler("late", "u5", &crons)).clone();
    let decision = stale.status.as_mut().and_then(|it| it.decision.as_mut());
    decision.unwrap().time = serde_json::from_value(json!("2026-03-01T09:44:59Z")).unwrap();
    let all = vec![
        autoscaler("web", "u1", &crons),
        autoscaler("own", "u2", &json!({"mode": "Delegated"})),
        autoscaler("one", "u3", &of_other("shared")),
        autoscaler("two", "u4", &of_other("shared")),
        Arc::new(stale),
    ];
    MetricSources {
        apis: vec![MetricApi::External, MetricApi::Custom],
        autoscalers: Fake::of(Some(all)),
        pods: Pods(vec![
            pod("web-d", Phase::Running, false),
            pod("web-a", Phase::Running, false),
            pod("web-b", Phase::Running, true),
            pod("web-c", Phase::Pending, false),
            pod("web-e", Phase::Unknown, false),
            pod("web-f", Phase::Failed, false),
            pod("web-g", Phase::Running, false),
        ]),
        upstream: None,
        clock: Clock::standing_at(NOW.parse().unwrap()),
    }
}

async fn ask(router: &Router, method: Method, path: &str) -> (StatusCode, Value) {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let code = response.status();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let value = serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        panic!("{path}: {error}: {}", String::from_utf8_lossy(&bytes));
    });
    (code, value)
}

async fn get_of(router: &Router, path: &str) -> (StatusCode, Value) {
    ask(router, Method::GET, path).await
}

/// The code and the message of a refusal, which must be a complete `Status`.
async fn refusal(router: &Router, path: &str) -> (u16, String) {
    let (code, status) = get_of(router, path).await;
    assert_eq!(status["kind"], "Status", "{path}: {status}");
    assert_eq!(status["status"], "Failure", "{path}");
    assert_eq!(status["code"], code.as_u16(), "{path}");
    assert!(status["reason"].is_string(), "{path}");
    (
        code.as_u16(),
        status["message"].as_str().unwrap().to_owned(),
    )
}

/// Checks that a path is refused with this code and for this reason.
async fn check_refused(router: &Router, path: &str, code: u16, reason: &str) {
    let (found, message) = refusal(router, path).await;
    assert_eq!(found, code, "{path}: {message}");
    assert!(message.contains(reason), "{path}: {message}");
}

#[tokio::test]
async fn a_forecast_and_the_cron_count_are_external_metrics_with_exact_values() {
    let router = router(sources());
    for (metric, identifier, value) in [
        ("crane_autoscaling_prediction", "resource.cpu", "902m"),
        ("crane_autoscaling_cron", "cron", "40"),
    ] {
        let labels = labels("web", identifier);
        let path = format!("{EXTERNAL}/{metric}?labelSelector={labels}");
        let expected = json!({
            "kind": "ExternalMetricValueList",
            "apiVersion": "external.metrics.k8s.io/v1beta1",
            "metadata": {},
            "items": [{
                "metricName": metric,
                "metricLabels": {
                    "targetKind": "Deployment",
                    "targetName": "web",
                    "targetNamespace": "shop",
                    "resourceIdentifier": identifier,
                },
                "timestamp": DECIDED,
                "value": value,
            }],
        });
        assert_eq!(get_of(&router, &path).await, (StatusCode::OK, expected));
    }
}

/// The labels of a metric of a target, as a parameter.
fn labels(name: &str, identifier: &str) -> String {
    CPU.replace("web", name).replace("resource.cpu", identifier)
}

#[tokio::test]
async fn an_external_metric_that_is_not_known_is_an_error_with_a_reason() {
    let router = router(sources());
    let none = "no EffectiveHorizontalPodAutoscaler has the target Deployment shop/";
    let object = "EffectiveHorizontalPodAutoscaler shop/";
    let unknown = format!("{object}web has no forecast of");
    let own = format!("{object}own publishes no metrics; set its spec.mode to Metric");
    let both = format!("{object}one and {object}two both have the target");
    let late = format!("decision of {object}late is of 2026-03-01T09:44:59Z");
    let [memory, hits, cpu] = ["resource.memory", "pods.hits", "resource.cpu"];
    for (name, identifier, code, reason) in [
        ("web", memory, 404, format!("{unknown} {memory}: Expired")),
        ("web", hits, 404, format!("{unknown} {hits}: it is not")),
        ("none", cpu, 404, format!("{none}none")),
        ("own", cpu, 404, own),
        ("shared", cpu, 409, both),
        ("late", cpu, 503, late),
    ] {
        let labels = labels(name, identifier);
        let path = format!("{EXTERNAL}/crane_autoscaling_prediction?labelSelector={labels}");
        check_refused(&router, &path, code, &reason).await;
    }
}

#[tokio::test]
async fn a_cron_count_that_is_not_known_is_an_error_with_a_reason() {
    let router = router(sources());
    let no_kind = "labelSelector has no targetKind";
    for (labels, code, reason) in [
        (labels("one", "cron"), 404, "the target Deployment shop/one"),
        (labels("late", "cron"), 503, "one of the last 15 minutes"),
        (CPU.to_owned(), 400, "expected resourceIdentifier=cron"),
        ("app%3Dweb".to_owned(), 400, no_kind),
        (String::new(), 400, no_kind),
    ] {
        let path = format!("{EXTERNAL}/crane_autoscaling_cron?labelSelector={labels}");
        check_refused(&router, &path, code, reason).await;
    }
}

#[tokio::test]
async fn the_cpu_forecast_is_divided_over_the_pods_that_count() {
    let router = router(sources());
    let query = format!("labelSelector=app%3Dweb&{UID}");
    let selector = json!({"matchLabels": {"autoscaling.crane.io/effective-hpa-uid": "u1"}});
    let item = |name: &str, value: &str| {
        json!({
            "describedObject": {"kind": "Pod", "namespace": "shop", "name": name, "apiVersion": "v1"},
            "metric": {"name": "crane_pod_cpu_usage", "selector": selector},
            "timestamp": DECIDED,
            "value": value,
        })
    };
    let list = |items: Value| {
        json!({
            "kind": "MetricValueList",
            "apiVersion": "custom.metrics.k8s.io/v1beta2",
            "metadata": {},
            "items": items,
        })
    };
    let all = list(json!([
        item("web-a", "226m"),
        item("web-d", "226m"),
        item("web-e", "225m"),
        item("web-g", "225m"),
    ]));
    for name in ["*", "%2A"] {
        let path = format!("{PODS}/{name}/crane_pod_cpu_usage?{query}");
        assert_eq!(get_of(&router, &path).await, (StatusCode::OK, all.clone()));
    }
    let path = format!("{PODS}/web-e/crane_pod_cpu_usage?{query}");
    let one = list(json!([item("web-e", "225m")]));
    assert_eq!(get_of(&router, &path).await, (StatusCode::OK, one));

    let path = format!("{PODS}/web-e/crane_pod_cpu_usage?{query}").replace("v1beta2", "v1beta1");
    let (code, old) = get_of(&router, &path).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(
        old["items"][0],
        json!({
            "describedObject": {"kind": "Pod", "namespace": "shop", "name": "web-e", "apiVersion": "v1"},
            "metricName": "crane_pod_cpu_usage",
            "selector": selector,
            "timestamp": DECIDED,
            "value": "225m",
        })
    );
}

#[tokio::test]
async fn a_pods_metric_that_is_not_known_is_an_error_with_a_reason() {
    let router = router(sources());
    let metric = "crane_pod_cpu_usage";
    for (pods, app, uid, code, reason) in [
        (
            "*",
            "web",
            "u9",
            404,
            "of namespace shop has the UID \"u9\"",
        ),
        ("*", "web", "u2", 404, "set its spec.mode to Metric"),
        ("*", "web", "u5", 503, "does the controller run?"),
        ("*", "api", "u1", 404, "no running pod * of namespace shop"),
        ("web-b", "web", "u1", 404, "no running pod web-b of"),
        ("*", "silent", "u1", 503, "no response within 5s"),
    ] {
        let uid = UID.replace("u1", uid);
        let path = format!("{PODS}/{pods}/{metric}?labelSelector=app%3D{app}&{uid}");
        check_refused(&router, &path, code, reason).await;
    }
    let no_uid = "expected autoscaling.crane.io/effective-hpa-uid=UID";
    let only_pods = "served for pods only, not for";
    let pods = format!("pods/*/{metric}");
    for (path, code, reason) in [
        (format!("{pods}?labelSelector=app%3Dweb"), 400, no_uid),
        (
            format!("{pods}?labelSelector=app%3Dweb&{UID}%2Ca%3Db"),
            400,
            no_uid,
        ),
        (format!("{pods}?{UID}"), 400, "labelSelector is empty"),
        (format!("deployments.apps/web/{metric}"), 404, only_pods),
        (format!("metrics/{metric}"), 404, only_pods),
    ] {
        let path = format!("{}/{path}", PODS.trim_end_matches("/pods"));
        check_refused(&router, &path, code, reason).await;
    }
}

#[tokio::test]
async fn nothing_is_answered_before_the_autoscalers_are_listed() {
    let router = router(MetricSources {
        autoscalers: Fake::of(None),
        ..sources()
    });
    for path in [
        format!("{EXTERNAL}/crane_autoscaling_prediction?labelSelector={CPU}"),
        format!("{PODS}/*/crane_pod_cpu_usage?labelSelector=app%3Dweb&{UID}"),
    ] {
        check_refused(&router, &path, 503, "not complete yet").await;
    }
    // Discovery works without them: otherwise the whole group would be unavailable.
    assert_eq!(get_of(&router, "/apis").await.0, StatusCode::OK);
}

#[tokio::test]
async fn discovery_names_groups_versions_and_our_metrics() {
    let router = router(sources());
    let (_, groups) = get_of(&router, "/apis").await;
    assert_eq!(groups["kind"], "APIGroupList");
    let names: Vec<_> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| &g["name"])
        .collect();
    assert_eq!(names, ["external.metrics.k8s.io", "custom.metrics.k8s.io"]);
    let (_, group) = get_of(&router, "/apis/custom.metrics.k8s.io").await;
    assert_eq!(group["preferredVersion"]["version"], "v1beta2");
    assert_eq!(group["versions"].as_array().unwrap().len(), 2);
    let of_pods = vec!["pods/crane_pod_cpu_usage"];
    for (version, metrics) in [
        (
            "external.metrics.k8s.io/v1beta1",
            vec!["crane_autoscaling_prediction", "crane_autoscaling_cron"],
        ),
        ("custom.metrics.k8s.io/v1beta1", of_pods.clone()),
        ("custom.metrics.k8s.io/v1beta2", of_pods),
    ] {
        let (code, list) = get_of(&router, &format!("/apis/{version}")).await;
        assert_eq!(code, StatusCode::OK, "{version}");
        assert_eq!(list["kind"], "APIResourceList");
        assert_eq!(list["groupVersion"], version);
        assert_eq!(resource_names(&list), metrics);
    }
}

fn resource_names(list: &Value) -> Vec<String> {
    let resources = list["resources"].as_array().unwrap().iter();
    resources
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn only_the_chosen_apis_are_served() {
    let router = router(MetricSources {
        apis: vec![MetricApi::Custom],
        ..sources()
    });
    assert_eq!(
        get_of(&router, "/apis/custom.metrics.k8s.io").await.0,
        StatusCode::OK
    );
    for path in [
        "/apis/external.metrics.k8s.io".to_owned(),
        "/apis/external.metrics.k8s.io/v1beta1".to_owned(),
        format!("{EXTERNAL}/crane_autoscaling_prediction?labelSelector={CPU}"),
    ] {
        assert_eq!(refusal(&router, &path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let router = router(sources());
    for path in [
        "/",
        "/openapi/v2",
        "/openapi/v3",
        "/apis/metrics.k8s.io",
        "/apis/external.metrics.k8s.io/v1",
        "/apis/external.metrics.k8s.io/v1beta1/crane_autoscaling_cron",
        "/apis/custom.metrics.k8s.io/v1beta1/pods",
    ] {
        assert_eq!(refusal(&router, path).await.0, 404, "{path}");
    }
    let path = format!("{EXTERNAL}/crane_autoscaling_cron");
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let (code, status) = ask(&router, method, &path).await;
        assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(status["reason"], "MethodNotAllowed");
    }
    let (code, message) = refusal(&router, &format!("{EXTERNAL}/%FF")).await;
    assert_eq!(code, 400, "{message}");
}

#[tokio::test]
async fn a_metric_that_is_not_ours_is_named_where_there_is_no_upstream() {
    let router = router(sources());
    for path in [
        format!("{EXTERNAL}/queue_length"),
        format!("{PODS}/*/queue_length"),
    ] {
        let (code, message) = refusal(&router, &path).await;
        assert_eq!(code, 404);
        let expected =
            "metric \"queue_length\" is not served here, and no upstream adapter is configured";
        assert!(message.contains(expected), "{message}");
        assert!(
            message.contains("crane_autoscaling_prediction"),
            "{message}"
        );
    }
}

fn with_upstream(
    answers: Vec<(&'static str, Result<Value, UpstreamError>)>,
) -> (Router, Arc<Mutex<Vec<String>>>) {
    let upstream = Upstream {
        answers,
        requests: Arc::default(),
    };
    let requests = Arc::clone(&upstream.requests);
    let router = router(MetricSources {
        upstream: Some(upstream),
        ..sources()
    });
    (router, requests)
}

#[tokio::test]
async fn other_metrics_are_passed_on_with_their_selectors_and_nothing_else() {
    let document = json!({"kind": "ExternalMetricValueList", "items": [{"value": "12"}]});
    let of = |path: &'static str| (path, Ok(document.clone()));
    let (router, requests) = with_upstream(vec![
        of("external.metrics.k8s.io/v1beta1/namespaces/shop/queue length"),
        of("custom.metrics.k8s.io/v1beta1/namespaces/shop/deployments.apps/web/hits"),
        of("custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/hits"),
        of("custom.metrics.k8s.io/v1beta1/nodes/n1/hits"),
    ]);
    for (path, asked) in [
        (
            format!("{EXTERNAL}/queue%20length?labelSelector=a%3Db&watch=1"),
            "external.metrics.k8s.io/v1beta1/namespaces/shop/queue length [(\"labelSelector\", \"a=b\")]",
        ),
        (
            "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/deployments.apps/web/hits?metricLabelSelector=c%3Dd"
                .to_owned(),
            "custom.metrics.k8s.io/v1beta1/namespaces/shop/deployments.apps/web/hits [(\"metricLabelSelector\", \"c=d\")]",
        ),
        (
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/hits".to_owned(),
            "custom.metrics.k8s.io/v1beta2/namespaces/shop/metrics/hits []",
        ),
        (
            "/apis/custom.metrics.k8s.io/v1beta1/nodes/n1/hits".to_owned(),
            "custom.metrics.k8s.io/v1beta1/nodes/n1/hits []",
        ),
    ] {
        assert_eq!(get_of(&router, &path).await, (StatusCode::OK, document.clone()));
        assert_eq!(requests.lock().unwrap().pop().as_deref(), Some(asked));
    }
    // Metrics of this adapter are answered here, even if the upstream adapter would answer.
    let path = format!("{EXTERNAL}/crane_autoscaling_prediction?labelSelector={CPU}");
    assert_eq!(get_of(&router, &path).await.0, StatusCode::OK);
    assert_eq!(*requests.lock().unwrap(), [] as [String; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_errors_of_the_upstream_adapter_name_it() {
    let status = |code| UpstreamError::Status {
        code,
        message: "said so".to_owned(),
    };
    let root = "external.metrics.k8s.io/v1beta1/namespaces/shop";
    let of = |metric: &str, error| (format!("{root}/{metric}"), error);
    let errors = [
        of("missing", status(404)),
        of("broken", status(500)),
        of("forbidden", status(403)),
        of("anonymous", status(401)),
        of(
            "down",
            UpstreamError::Unavailable("connection refused".to_owned()),
        ),
    ];
    let answers = errors.map(|(path, error)| (&*path.leak(), Err(error)));
    let (router, _requests) = with_upstream(answers.to_vec());
    for (metric, code, reason) in [
        ("missing", 404, "said so"),
        ("broken", 500, "said so"),
        ("forbidden", 503, "--upstream-token-file"),
        ("anonymous", 503, "--upstream-token-file"),
        ("down", 503, "connection refused"),
    ] {
        let (found, message) = refusal(&router, &format!("{EXTERNAL}/{metric}")).await;
        assert_eq!(found, code, "{message}");
        assert!(
            message.starts_with("upstream adapter https://adapter.monitoring:443: "),
            "{message}"
        );
        assert!(message.contains(reason), "{message}");
    }
}

#[tokio::test]
async fn discovery_lists_the_upstream_metrics_after_ours() {
    let theirs = json!({"resources": [
        {"name": "queue_length", "namespaced": true},
        {"name": "crane_autoscaling_cron", "namespaced": false},
        {"namespaced": true},
    ]});
    let (router, _requests) = with_upstream(vec![
        ("external.metrics.k8s.io/v1beta1", Ok(theirs)),
        (
            "custom.metrics.k8s.io/v1beta2",
            Err(UpstreamError::Unavailable("connection refused".to_owned())),
        ),
        ("custom.metrics.k8s.io/v1beta1", Ok(json!("not a list"))),
    ]);
    let (_, list) = get_of(&router, "/apis/external.metrics.k8s.io/v1beta1").await;
    let expected = [
        "crane_autoscaling_prediction",
        "crane_autoscaling_cron",
        "queue_length",
    ];
    assert_eq!(resource_names(&list), expected);
    assert_eq!(list["resources"][1]["namespaced"], true);
    for version in ["v1beta1", "v1beta2"] {
        let (code, list) = get_of(&router, &format!("/apis/custom.metrics.k8s.io/{version}")).await;
        assert_eq!(code, StatusCode::OK);
        assert_eq!(resource_names(&list), ["pods/crane_pod_cpu_usage"]);
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_and_slow_ones_are_refused() {
    // An upstream adapter without answers.
    let (router, _requests) = with_upstream(Vec::new());
    let router = within_limits(router).layer(from_fn(end_in_time));
    let path = format!("{EXTERNAL}/queue_length");
    let asked = (0..=REQUESTS_MAX).map(|_| get_of(&router, &path));
    let mut codes: Vec<u16> = join_all(asked)
        .await
        .iter()
        .map(|(code, _)| code.as_u16())
        .collect();
    codes.sort_unstable();
    assert_eq!(codes.first(), Some(&429));
    assert_eq!(
        codes.iter().filter(|code| **code == 504).count(),
        REQUESTS_MAX
    );
    // The slots are free again, because the requests have ended.
    assert_eq!(get_of(&router, "/apis").await.0, StatusCode::OK);
}
