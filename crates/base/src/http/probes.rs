//! The probes of a process without a controller: alive while it answers, ready while nothing is missing.

use std::sync::Arc;

use axum::{Router, http::StatusCode, routing::get};

use super::probe;

/// `/healthz` and `/readyz`; `unready` returns the reason for which the process is not ready, if there is one.
pub fn probes(unready: impl Fn() -> Option<String> + Send + Sync + 'static) -> Router {
    let unready = Arc::new(unready);
    let ready = move || std::future::ready(probe(unready()));
    let alive = || std::future::ready((StatusCode::OK, "ok\n"));
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
}
