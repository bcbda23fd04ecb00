//! One answer of an API server, or one event of a watch, read no further than we have room for.
//!
//! The client library reads an answer to its end however long it is, and a member is somebody else's server. It refuses
//! to know what an answer is about.

use std::{error::Error, io};

use futures::{Stream, StreamExt as _};
use http::{HeaderValue, Request, Response, StatusCode, header::ACCEPT_ENCODING};
use kube::{
    Client,
    client::Body,
    core::{Status, WatchEvent},
};
use serde_json::Value;
use tokio_util::{
    codec::{FramedRead, LinesCodec, LinesCodecError},
    io::StreamReader,
};

use super::error::{CallError, innermost};

/// The longest answer that is read: a page of a list has 500 objects, of some 10 KiB each.
pub(in crate::adapters) const ANSWER_MAX: usize = 32 << 20;
/// The longest event of a watch: one object, of which etcd stores 1.5 MiB at most.
pub(in crate::adapters) const EVENT_MAX: usize = 8 << 20;
/// The longest answer that says what is wrong.
const REFUSAL_MAX: usize = 64 << 10;

/// Sends a request and reads the text of its answer.
///
/// # Errors
/// The server answers with an error status, with more than [`ANSWER_MAX`], or not.
pub(in crate::adapters) async fn text(
    client: &Client,
    request: Request<Vec<u8>>,
) -> Result<String, CallError> {
    let bytes = collected(accepted(client, request).await?, ANSWER_MAX).await?;
    String::from_utf8(bytes).map_err(|error| CallError::Answer(error.utf8_error().to_string()))
}

/// Sends a request for a watch and reads its events, one by one.
///
/// # Errors
/// The server answers with an error status, or not; and in place of an event where it is longer than [`EVENT_MAX`], is
/// none, or the connection fails. One that is cut, as proxies do with what is quiet, ends the events and is no error.
pub(in crate::adapters) async fn events(
    client: &Client,
    mut request: Request<Vec<u8>>,
) -> Result<impl Stream<Item = Result<WatchEvent<Value>, CallError>> + use<>, CallError> {
    // A server may compress each event for itself, and the client library would read the first of them only.
    let plain = HeaderValue::from_static("identity");
    request.headers_mut().insert(ACCEPT_ENCODING, plain);
    let chunks = axum::body::Body::new(accepted(client, request).await?).into_data_stream();
    let bytes = StreamReader::new(chunks.map(|chunk| chunk.map_err(io::Error::other)));
    let lines = FramedRead::new(bytes, LinesCodec::new_with_max_length(EVENT_MAX));
    Ok(lines.filter_map(async |line| event(line)))
}

/// None: the connection was cut.
fn event(line: Result<String, LinesCodecError>) -> Option<Result<WatchEvent<Value>, CallError>> {
    let line = match line {
        Ok(line) => line,
        Err(LinesCodecError::MaxLineLengthExceeded) => return Some(Err(too_long(EVENT_MAX))),
        Err(LinesCodecError::Io(error)) => {
            let failed = || CallError::Transport(innermost(&error));
            return (!is_cut(&error)).then(|| Err(failed()));
        }
    };
    match serde_json::from_str(&line) {
        Ok(event) => Some(Ok(event)),
        Err(error) if error.is_eof() => None,
        // Some servers say what is wrong without making it an event.
        Err(error) => Some(Err(match serde_json::from_str::<Status>(&line) {
            Ok(status) if status.code > 0 => CallError::from(status),
            _ => CallError::Answer(error.to_string()),
        })),
    }
}

/// Whether an answer ended before its end, or nothing came for longer than a watch may be silent. Some layers say so in
/// words only.
fn is_cut(error: &(dyn Error + 'static)) -> bool {
    let is_kind = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::TimedOut
        )
    };
    let in_words = |error: &dyn Error| error.to_string().contains("unexpected EOF");
    let is_own = error.downcast_ref().is_some_and(is_kind) || in_words(error);
    is_own || error.source().is_some_and(is_cut)
}

async fn accepted(client: &Client, request: Request<Vec<u8>>) -> Result<Body, CallError> {
    let answer = client.send(request.map(Body::from)).await?;
    let status = answer.status();
    if status.is_client_error() || status.is_server_error() {
        return Err(refusal(status, answer).await);
    }
    Ok(answer.into_body())
}

/// What an error status says; not every proxy says it as a `Status`.
async fn refusal(code: StatusCode, answer: Response<Body>) -> CallError {
    let words = match collected(answer.into_body(), REFUSAL_MAX).await {
        Err(error) => error.to_string(),
        Ok(bytes) => match serde_json::from_slice::<Status>(&bytes) {
            Ok(status) => status.message,
            Err(_) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        },
    };
    CallError::status(code.as_u16(), &words)
}

async fn collected(body: Body, most: usize) -> Result<Vec<u8>, CallError> {
    let mut chunks = axum::body::Body::new(body).into_data_stream();
    let mut whole = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| CallError::Transport(innermost(&error)))?;
        if whole.len().saturating_add(chunk.len()) > most {
            return Err(too_long(most));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}

fn too_long(most: usize) -> CallError {
    let most = most >> 10;
    CallError::Answer(format!(
        "it is longer than {most} KiB, the most that is read"
    ))
}
