//! One look at one object.

use serde_json::json;

use super::super::{
    client::Connection,
    fake::{FakeServer, Reply},
};

#[tokio::test]
async fn one_autoscaler_is_read_by_namespace_and_name() {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3},
    });
    let (server, client) = FakeServer::always(move || Reply::Ok(object.clone()));
    let found = Connection::over(client)
        .autoscaler("shop", "web")
        .await
        .unwrap();
    assert_eq!(found.spec.max_replicas, 3);
    let path =
        "/apis/autoscaling.crane.io/v1alpha1/namespaces/shop/effectivehorizontalpodautoscalers/web";
    let lines: Vec<String> = server.sent().into_iter().map(|sent| sent.line).collect();
    assert_eq!(lines, [format!("GET {path}")]);
}

#[tokio::test]
async fn an_autoscaler_that_is_not_there_is_named() {
    let (_server, client) = FakeServer::always(|| Reply::Fail(404, "not found"));
    let error = Connection::over(client)
        .autoscaler("shop", "web")
        .await
        .unwrap_err();
    let expected = "EffectiveHorizontalPodAutoscaler shop/web not found";
    assert_eq!(error.to_string(), expected);
}
