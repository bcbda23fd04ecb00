//! Probes and metrics on one port: functions that return a router, so that tests need no socket.
//!
//! Liveness: the loops of the controllers turn. Readiness: the first lists of the Kubernetes API were received, no watch
//! is silent, and no autoscaler is late by a minute.

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
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(telemetry)
}

async fn alive(State(telemetry): State<Arc<Telemetry>>) -> (StatusCode, String) {
    probe(telemetry.stuck())
}

async fn ready(State(telemetry): State<Arc<Telemetry>>) -> (StatusCode, String) {
    probe(telemetry.unready())
}

/// The response to a probe, given what is wrong.
fn probe(problem: Option<String>) -> (StatusCode, String) {
    match problem {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
    }
}

async fn metrics(State(telemetry): State<Arc<Telemetry>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], telemetry.encode())
}
