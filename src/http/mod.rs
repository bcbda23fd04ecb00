//! Probes and metrics on one port: functions that return a router, so that tests need no socket.
//!
//! Liveness: the process runs. Readiness: the first lists of the Kubernetes API were received.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};

use crate::telemetry::Telemetry;

/// The media type of `/metrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `/healthz`, `/readyz` and `/metrics`.
pub fn router(telemetry: Arc<Telemetry>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(telemetry)
}

async fn ready(State(telemetry): State<Arc<Telemetry>>) -> (StatusCode, &'static str) {
    if telemetry.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for the first lists of the Kubernetes API\n",
        )
    }
}

async fn metrics(State(telemetry): State<Arc<Telemetry>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], telemetry.encode())
}
