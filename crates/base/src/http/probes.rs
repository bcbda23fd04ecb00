//! The probes of a process without a controller: alive while it answers, ready while nothing is missing.

use std::{future::ready, sync::Arc};

use axum::{Router, http::StatusCode, routing::get};

use super::probe;

/// `/healthz` and `/readyz`; `unready` returns the reason for which the process is not ready, if there is one.
pub fn probes(unready: impl Fn() -> Option<String> + Send + Sync + 'static) -> Router {
    let unready = Arc::new(unready);
    Router::new()
        .route("/healthz", get(|| ready((StatusCode::OK, "ok\n"))))
        .route("/readyz", get(move || ready(probe(unready()))))
}
