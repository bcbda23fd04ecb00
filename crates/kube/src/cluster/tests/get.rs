//! Requests for single objects.

use serde_json::json;

use crate::api_server::Connection;

use simkube::client::{FakeServer, Reply};

#[tokio::test]
async fn an_autoscaler_that_does_not_exist_is_named_in_the_error() {
    let (_server, client) = FakeServer::always(|| Reply::Fail(404, "not found"));
    let error = Connection::over(client)
        .autoscaler("shop", "web")
        .await
        .unwrap_err();
    let expected = "EffectiveHorizontalPodAutoscaler shop/web not found";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_config_map_without_the_key_or_that_does_not_exist_has_no_text() {
    let found = async |reply: fn() -> Reply, key: &str| {
        let (server, client) = FakeServer::always(reply);
        let connection = Connection::over(client);
        let text = connection.config_text("monitoring", "adapter-config", key);
        let text = text.await.map_err(|error| error.to_string());
        (text, server.sent().swap_remove(0).line)
    };
    let full = || Reply::Ok(json!({"data": {"config.yaml": "rules: []"}}));
    let path = "GET /api/v1/namespaces/monitoring/configmaps/adapter-config";
    let (text, line) = found(full, "config.yaml").await;
    assert_eq!((text, &*line), (Ok(Some("rules: []".to_owned())), path));
    assert_eq!(found(full, "other").await.0, Ok(None));
    assert_eq!(found(|| Reply::Ok(json!({})), "other").await.0, Ok(None));
    let gone = found(|| Reply::Fail(404, "not found"), "config.yaml").await;
    assert_eq!(gone.0, Ok(None));
    let forbidden = found(|| Reply::Fail(403, "forbidden"), "config.yaml").await;
    let expected = "the API server refused ConfigMap monitoring/adapter-config: forbidden";
    assert_eq!(forbidden.0, Err(expected.to_owned()));
}
