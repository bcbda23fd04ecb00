//! The page on the machine of its reader, whose API the controller of a cluster answers. The browser holds no token: the
//! caller adds it. Only the paths of the table pass, and of an answer only what a page needs.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, response::Parts},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::{TryFutureExt as _, future::BoxFuture};
use serde_json::Value;
use tokio::time::timeout;

use super::{Refusal, complete, openapi};

/// The time for the controller to begin its answer, and then to end it, unless it is a stream.
const DEADLINE: Duration = Duration::from_secs(30);
/// The largest answer.
const ANSWER_MAX: usize = 32 << 20;
/// The headers of an answer that pass.
const PASSED: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CACHE_CONTROL,
    header::RETRY_AFTER,
];
/// The path whose answer says whether there is a Lab.
const OVERVIEW: &str = "/api/v1/overview";

/// Request to the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteRequest {
    /// A path of the API, as it was received, with its query.
    pub path: String,
    /// `Accept-Encoding` of the browser.
    pub accept_encoding: Option<HeaderValue>,
}

/// Sends a request to the controller; an error is a sentence.
type Fetch =
    dyn Fn(RemoteRequest) -> BoxFuture<'static, Result<Response<Body>, String>> + Send + Sync;

/// The page of a controller that `fetch` asks, with a Lab; for a listener on loopback.
pub fn proxy(
    fetch: impl Fn(RemoteRequest) -> BoxFuture<'static, Result<Response<Body>, String>>
    + Send
    + Sync
    + 'static,
    lab: Router,
) -> Router {
    let fetch: Arc<Fetch> = Arc::new(fetch);
    let mut api = Router::new();
    for route in openapi::table() {
        api = api.route(route.path, get(pass));
    }
    complete(api.with_state(fetch), Some(lab), true)
}

async fn pass(State(fetch): State<Arc<Fetch>>, request: Request) -> Result<Response, Refusal> {
    let is_overview = request.uri().path() == OVERVIEW;
    let path = request.uri().path_and_query();
    // The overview is requested without compression, because it is read and changed here.
    let encoding = request.headers().get(header::ACCEPT_ENCODING);
    let remote = RemoteRequest {
        path: path.map_or(OVERVIEW, |path| path.as_str()).to_owned(),
        accept_encoding: encoding.filter(|_| !is_overview).cloned(),
    };
    let (parts, body) = in_time(fetch(remote)).await?.into_parts();
    let headers = passed(&parts);
    if headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|media| media == "text/event-stream")
    {
        return Ok((parts.status, headers, body).into_response());
    }
    let read = to_bytes(body, ANSWER_MAX)
        .map_err(|error| format!("the answer of the controller could not be read: {error}"));
    let bytes = in_time(read).await?;
    let shown = if is_overview { with_lab(bytes) } else { bytes };
    Ok((parts.status, headers, shown).into_response())
}

fn passed(parts: &Parts) -> HeaderMap {
    let mut passed = HeaderMap::new();
    for name in PASSED {
        if let Some(value) = parts.headers.get(&name) {
            passed.insert(name, value.clone());
        }
    }
    passed
}

/// The overview of the controller with the Lab of this machine.
fn with_lab(overview: Bytes) -> Bytes {
    match serde_json::from_slice(&overview) {
        Ok(Value::Object(mut overview)) if overview.contains_key("lab") => {
            overview.insert("lab".to_owned(), true.into());
            Value::Object(overview).to_string().into()
        }
        _ => overview,
    }
}

/// The answer of the controller; an error is a sentence.
async fn in_time<T>(answer: impl Future<Output = Result<T, String>>) -> Result<T, Refusal> {
    match timeout(DEADLINE, answer).await {
        Ok(answer) => answer.map_err(|error| Refusal::new(StatusCode::BAD_GATEWAY, error)),
        Err(_) => Err(Refusal::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "the controller did not answer within {} s",
                DEADLINE.as_secs()
            ),
        )),
    }
}
