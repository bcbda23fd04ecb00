//! Reads responses and watch events of an API server up to a size limit.
//!
//! The client library reads a response to its end however long it is. The limits keep a faulty member cluster, or a
//! proxy in front of it, from using up the memory of the controller.

use std::{error::Error, io, time::Duration};

use futures::{Stream, StreamExt as _};
use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{ACCEPT_ENCODING, RETRY_AFTER},
};
use kube::{Client, client::Body, core::Status};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;
use tokio_util::{
    codec::{FramedRead, LinesCodec, LinesCodecError},
    io::StreamReader,
};

use super::error::{CallError, innermost};

/// Maximum size of a response to a single request: usage of the pods of a namespace is the longest.
pub const RESPONSE_MAX: usize = 32 << 20;
/// Maximum size of a watch event: one object, of which etcd stores 1.5 MiB by default. In JSON a character may have six
/// bytes.
const EVENT_MAX: usize = 16 << 20;
/// The types of events.
const KINDS: [&str; 5] = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"];
/// Maximum size of a response with an error status.
const ERROR_MAX: usize = 64 << 10;

/// One event of a watch, whose object is still text.
#[derive(Debug)]
pub enum WatchEvent {
    /// An object was added or changed.
    Applied(Box<RawValue>),
    /// An object was deleted; its last state.
    Deleted(Box<RawValue>),
    /// The server is at this version.
    Bookmark(String),
    /// The server ends the watch.
    Error(Box<Status>),
}

#[derive(Deserialize)]
struct EventText<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct BookmarkText {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
}

// === impl WatchEvent ===

impl WatchEvent {
    fn read(line: &str) -> serde_json::Result<Self> {
        let EventText { kind, object } = serde_json::from_str(line)?;
        Ok(match kind {
            "ADDED" | "MODIFIED" => Self::Applied(object.to_owned()),
            "DELETED" => Self::Deleted(object.to_owned()),
            "BOOKMARK" => {
                let BookmarkText { metadata } = serde_json::from_str(object.get())?;
                Self::Bookmark(metadata.resource_version)
            }
            "ERROR" => Self::Error(serde_json::from_str(object.get())?),
            other => return Err(serde::de::Error::unknown_variant(other, &KINDS)),
        })
    }
}

/// Sends a request and reads the headers and the text of its response.
///
/// # Errors
/// The server does not respond, responds with an error status, or with more than `max` bytes.
pub async fn headers_and_text(
    client: &Client,
    request: Request<Vec<u8>>,
    max: usize,
) -> Result<(HeaderMap, String), CallError> {
    let (head, body) = send(client, request).await?.into_parts();
    Ok((head.headers, text(body, max).await?))
}

/// Reads the text of a response.
///
/// # Errors
/// The connection fails, it is no text, or it is longer than `max` bytes.
pub async fn text(body: Body, max: usize) -> Result<String, CallError> {
    String::from_utf8(collect(body, max).await?)
        .map_err(|error| CallError::Response(error.utf8_error().to_string()))
}

/// Sends a request for a watch and reads its events, one by one.
///
/// # Errors
/// The server does not respond, or responds with an error status. An item of the stream is an error if the event is
/// longer than [`EVENT_MAX`], is not an event, or the connection fails. A connection that is cut ends the stream
/// without an error, because proxies cut idle connections.
pub async fn events(
    client: &Client,
    mut request: Request<Vec<u8>>,
) -> Result<impl Stream<Item = Result<WatchEvent, CallError>> + use<>, CallError> {
    // A server may compress each event separately, and the client library decompresses only the first.
    let plain = HeaderValue::from_static("identity");
    request.headers_mut().insert(ACCEPT_ENCODING, plain);
    let chunks = axum::body::Body::new(send(client, request).await?.into_body()).into_data_stream();
    let bytes = StreamReader::new(chunks.map(|chunk| chunk.map_err(io::Error::other)));
    let lines = FramedRead::new(bytes, LinesCodec::new_with_max_length(EVENT_MAX));
    Ok(lines.filter_map(async |line| event(line)))
}

/// Waits for the response of a request for at most `limit`.
pub async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    timeout(limit, request)
        .await
        .unwrap_or(Err(CallError::Timeout(limit)))
}

/// One event; `None` if the connection was cut.
fn event(line: Result<String, LinesCodecError>) -> Option<Result<WatchEvent, CallError>> {
    let line = match line {
        Ok(line) => line,
        Err(LinesCodecError::MaxLineLengthExceeded) => {
            return Some(Err(CallError::TooLong(EVENT_MAX)));
        }
        Err(LinesCodecError::Io(error)) => {
            return (!is_cut(&error)).then(|| Err(CallError::Transport(innermost(&error))));
        }
    };
    match WatchEvent::read(&line) {
        Ok(event) => Some(Ok(event)),
        Err(error) if error.is_eof() => None,
        // Some servers send a bare `Status` instead of an event of type ERROR.
        Err(error) => Some(Err(match serde_json::from_str::<Status>(&line) {
            Ok(status) if status.code > 0 => CallError::from(status),
            _ => CallError::Response(error.to_string()),
        })),
    }
}

/// True if the connection was closed in the middle of a response. A silence longer than the watch was to last is no cut
/// but an error: what happened meanwhile may not have arrived.
fn is_cut(error: &(dyn Error + 'static)) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::UnexpectedEof)
        // The chunk decoder of hyper has no error kind for it.
        || error.to_string().contains("unexpected EOF")
        || error.source().is_some_and(is_cut)
}

/// Sends a request; returns when the response begins.
///
/// # Errors
/// The server does not respond, or responds with an error status.
pub async fn send(client: &Client, request: Request<Vec<u8>>) -> Result<Response<Body>, CallError> {
    let response = client.send(request.map(Body::from)).await?;
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        return Err(status_error(status, response).await);
    }
    Ok(response)
}

/// The error of a response with an error status. Its body is a `Status`, or, from a proxy, any text.
async fn status_error(code: StatusCode, response: Response<Body>) -> CallError {
    let retry_after = retry_after(response.headers());
    let message = match collect(response.into_body(), ERROR_MAX).await {
        Err(error) => error.to_string(),
        Ok(bytes) => match serde_json::from_slice::<Status>(&bytes) {
            Ok(status) => status.message,
            Err(_) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        },
    };
    CallError::status(code.as_u16(), &message).with_retry_after(retry_after)
}

/// `Retry-After` in seconds, as the API server sends it; the form with a date depends on the other machine's clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(value.trim().parse().ok()?))
}

async fn collect(body: Body, max: usize) -> Result<Vec<u8>, CallError> {
    let mut chunks = axum::body::Body::new(body).into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| CallError::Transport(innermost(&error)))?;
        if bytes.len().saturating_add(chunk.len()) > max {
            return Err(CallError::TooLong(max));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
