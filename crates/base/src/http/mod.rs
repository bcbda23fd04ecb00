//! HTTP ports of a process: connections and their limits, and the routers of probes and metrics, which tests use without
//! a socket.
//!
//! A scrape within a second of another returns the same text. Where the port is open to others, a scrape needs a token
//! (`access`); the probes need none, because the kubelet has none.
//!
//! Liveness of the controller: its loops turn. Readiness: the first lists of the Kubernetes API were received, no watch
//! is silent, and no autoscaler is late by a minute.

mod access;
mod body_deadline;
mod connections;
mod probes;
mod quota;
mod reviews;
mod serve;
mod tls;

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{Extensions, HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

pub use self::{
    access::{Denied, MetricsAccess, bearer},
    connections::PeerAddress,
    probes::probes,
    quota::{Exhausted, Holder, Limits, Permit, Quota},
    reviews::{Digest, FairReviews, REVIEW_DEADLINE, ReviewLimits, Reviews, Unreviewed},
    serve::serve,
    tls::{PeerCertificates, PortLimits, TlsConfigs, serve_http2, serve_tls},
};
use crate::{clock::Clock, telemetry::Telemetry};
use foretide_api::ports::AccessReviewer;

/// The media type of `/metrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Time for which a rendering of `/metrics` is used again: rendering thousands of objects takes milliseconds.
const RENDERED_FOR: SignedDuration = SignedDuration::from_secs(1);

/// `/metrics`, and who may read it.
struct Metrics<R> {
    telemetry: Arc<Telemetry>,
    clock: Clock,
    /// The text, and when it was rendered.
    rendered: Mutex<Option<(Timestamp, Bytes)>>,
    access: Option<MetricsAccess<R>>,
}

// === impl Metrics ===

impl<R> Metrics<R> {
    fn text(&self) -> Bytes {
        let now = self.clock.now();
        // Held while the text is rendered, so that scrapes at the same time render it once.
        let mut rendered = self.rendered.lock();
        match &*rendered {
            // A wall clock may go back.
            Some((at, text)) if *at <= now && now.duration_since(*at) < RENDERED_FOR => {
                text.clone()
            }
            _ => {
                let text = Bytes::from(self.telemetry.encode());
                *rendered = Some((now, text.clone()));
                text
            }
        }
    }
}

/// `/healthz`, `/readyz` and `/metrics`; without an `access`, the metrics need no token.
pub fn router<R: AccessReviewer>(
    telemetry: Arc<Telemetry>,
    clock: Clock,
    access: Option<MetricsAccess<R>>,
) -> Router {
    let metrics = Arc::new(Metrics {
        telemetry: Arc::clone(&telemetry),
        clock,
        rendered: Mutex::default(),
        access,
    });
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(telemetry)
        .route("/metrics", get(scrape::<R>).with_state(metrics))
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

async fn scrape<R: AccessReviewer>(
    State(metrics): State<Arc<Metrics<R>>>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Response {
    if let Some(access) = &metrics.access
        && let Err(denied) = access.check(PeerAddress::of(&extensions), &headers).await
    {
        return denied.into_response();
    }
    let content_type = [(header::CONTENT_TYPE, OPEN_METRICS)];
    (content_type, metrics.text()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_rendered_at_most_once_per_second() {
        let start = Timestamp::from_second(1_767_225_600).unwrap();
        let clock = Clock::standing_at(start);
        let metrics = Metrics {
            telemetry: Arc::default(),
            clock: clock.clone(),
            rendered: Mutex::default(),
            access: None::<MetricsAccess<()>>,
        };
        let first = metrics.text();
        metrics.telemetry.refused("NoHistory");
        clock.set(start + SignedDuration::from_millis(999));
        assert_eq!(metrics.text(), first);
        clock.set(start + SignedDuration::from_secs(1));
        let text = String::from_utf8(metrics.text().to_vec()).unwrap();
        let counted = r#"foretide_forecast_refusals_total{reason="NoHistory"} 1"#;
        assert!(text.contains(counted), "{text}");
    }
}
