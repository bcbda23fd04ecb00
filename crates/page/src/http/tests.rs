//! Texts that are scripts, through every view.

use axum::body::{Body, to_bytes};
use foretide_crds::{EffectiveHorizontalPodAutoscaler, FederatedHPA};
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::{DecisionLog, Host, Record};
use foretide_api::{
    autoscaler::{Autoscaler, Status},
    status::condition,
};

const SCRIPT: &str = "<script>alert('1')</script><img src=x onerror=\"alert(2)\">]]>&";

#[derive(Debug)]
pub struct StandingClock;

impl Host for StandingClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

fn metadata(name: &str) -> Value {
    json!({ "namespace": "shop", "name": name, "uid": SCRIPT, "annotations": { "note": SCRIPT, "web": SCRIPT } })
}

fn target() -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": SCRIPT })
}

fn metrics() -> Value {
    json!([{ "type": "External", "external": {
        "metric": { "name": SCRIPT },
        "target": { "type": "AverageValue", "averageValue": "30" },
    } }])
}

fn autoscaler() -> Autoscaler {
    let object: EffectiveHorizontalPodAutoscaler = serde_json::from_value(json!({
        "apiVersion": "autoscaling.crane.io/v1alpha1",
        "kind": "EffectiveHorizontalPodAutoscaler",
        "metadata": metadata("web"),
        "spec": {
            "scaleTargetRef": target(),
            "maxReplicas": 10,
            "metrics": metrics(),
            "crons": [{ "name": SCRIPT, "description": SCRIPT, "start": "0 20 * * *", "end": "0 22 * * *", "targetReplicas": 8 }],
        },
    }))
    .unwrap();
    Autoscaler::Effective(Arc::new(object))
}

fn fleet() -> Autoscaler {
    let object: FederatedHPA = serde_json::from_value(json!({
        "apiVersion": "autoscaling.foretide.io/v1alpha1",
        "kind": "FederatedHPA",
        "metadata": metadata("fleet"),
        "spec": {
            "scaleTargetRef": target(),
            "maxReplicas": 10,
            "metrics": metrics(),
            "clusters": [{ "name": SCRIPT }],
        },
    }))
    .unwrap();
    Autoscaler::Federated(Arc::new(object))
}

fn status() -> Status {
    let mut status = Status::default();
    let condition = condition("ScalingActive", "False", SCRIPT, SCRIPT);
    status.common.conditions = Some(vec![condition]);
    let decision = json!({ "message": SCRIPT, "sentence": SCRIPT });
    status.common.decision = Some(serde_json::from_value(decision).unwrap());
    let cluster = json!({ "name": SCRIPT, "min": 1, "max": 5, "current": 3, "ready": 2, "capacity": 4, "reason": SCRIPT });
    status.fleet.clusters = Some(vec![serde_json::from_value(cluster).unwrap()]);
    status
}

fn router() -> Router {
    let log = Arc::new(DecisionLog::default());
    for autoscaler in [autoscaler(), fleet()] {
        log.record(Record {
            at: Timestamp::UNIX_EPOCH,
            autoscaler: &autoscaler,
            status: &status(),
            decided: None,
        });
    }
    let page = Page::new(log, Arc::new(StandingClock));
    PageSite::open(Arc::new(page), &Clock::system()).router()
}

#[tokio::test]
async fn what_people_write_is_text_in_every_view() {
    let router = router();
    let mut shown = 0;
    for route in openapi::table() {
        // Nothing is recorded of a metric.
        if route.path == "/api/v1/stream" || route.path.ends_with("/history.csv") {
            continue;
        }
        for (resource, name) in [
            ("effectivehorizontalpodautoscalers", "web"),
            ("federatedhpas", "fleet"),
        ] {
            let path = route.path.replace("{resource}", resource);
            let path = path.replace("{namespace}", "shop").replace("{name}", name);
            let request = Request::get(&path).header("host", "localhost");
            let request = request.body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let headers = response.headers().clone();
            assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
            let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            match headers["content-type"].to_str().unwrap() {
                // No browser runs these; the page writes them as text, which its own tests show.
                "application/json" | "application/yaml" | "text/csv; charset=utf-8" => {
                    shown += usize::from(text.contains("<script>"));
                    let drawings = text.split("\"<svg").skip(1);
                    for drawing in drawings.filter_map(|text| text.split("</svg>").next()) {
                        assert!(
                            !drawing.contains("<script") && !drawing.contains("<img"),
                            "{path}: {drawing}"
                        );
                    }
                }
                "image/svg+xml" => {
                    assert!(
                        !text.contains("<script") && !text.contains("<img"),
                        "{path}: {text}"
                    );
                    assert!(!text.contains("onerror=\""), "{path}: {text}");
                    shown += usize::from(text.contains("&lt;script"));
                }
                media => panic!("{path}: {media}"),
            }
        }
    }
    assert!(shown > 6, "{shown} views show it");
}
