//! Requests for foreign metrics, which another adapter answers.
//!
//! They are sent in the name of this process: the right of the user to read the metric has been checked before, and the
//! other adapter sees neither the identity nor the headers of the request. The path is written again from decoded
//! names.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::Value;

use crate::failure::Failure;
use foretide_api::ports::{UpstreamAdapter, UpstreamError, UpstreamRequest};

/// The time for a metric of the other adapter: less than the whole request has.
const METRIC_DEADLINE: Duration = Duration::from_secs(8);
/// The time for the list of metrics. The aggregator gives up after 5 s, and then nothing is served.
const DISCOVERY_DEADLINE: Duration = Duration::from_secs(2);

/// The metric of another adapter at a path after `/apis`.
pub async fn metric<U: UpstreamAdapter>(
    upstream: &U,
    path: Vec<&str>,
    parameters: [(&'static str, &str); 2],
) -> Result<Value, Failure> {
    let request = UpstreamRequest {
        path,
        parameters: parameters
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect(),
        deadline: METRIC_DEADLINE,
        is_list: false,
    };
    upstream
        .get(&request)
        .await
        .map_err(|error| failure(upstream.name(), error))
}

/// The metrics that another adapter lists; none if it does not respond.
pub async fn resources<U: UpstreamAdapter>(upstream: &U, path: Vec<&str>) -> Option<Value> {
    let request = UpstreamRequest {
        path,
        parameters: Vec::new(),
        deadline: DISCOVERY_DEADLINE,
        is_list: true,
    };
    let listed = upstream.get(&request).await;
    if let Err(error) = &listed {
        tracing::debug!(upstream = upstream.name(), %error, "the upstream adapter lists no metrics");
    }
    listed.ok()
}

fn failure(name: &str, error: UpstreamError) -> Failure {
    let from = |message: String| format!("upstream adapter {name}: {message}");
    match error {
        // The user's right to read the metric was reviewed before, so the refusal is about this process.
        UpstreamError::Status {
            code: 401 | 403,
            message,
        } => Failure::unavailable(format!(
            "{}; grant the service account of foretide-adapter the metrics of the upstream adapter, and send its token \
             with --upstream-token-file",
            from(message)
        )),
        UpstreamError::Status { code, message } => {
            let code = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            Failure::new(code, from(message))
        }
        UpstreamError::Path(message) => Failure::not_found(message),
        UpstreamError::Unavailable(message) => Failure::unavailable(from(message)),
    }
}
