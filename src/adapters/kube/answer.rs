//! One answer of an API server, read no further than we have room for.
//!
//! The client library reads an answer to its end however long it is, and a member is somebody else's server. It refuses
//! to know what an answer is about.

use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use kube::{Client, client::Body, core::Status};

use super::error::{CallError, innermost};

/// The longest answer that is read: a page of a list has 500 objects, of some 10 KiB each.
pub(super) const ANSWER_MAX: usize = 32 << 20;
/// The longest answer that says what is wrong.
const REFUSAL_MAX: usize = 64 << 10;

/// Sends a request and reads the text of its answer.
///
/// # Errors
/// The server answers with an error status, with more than [`ANSWER_MAX`], or not.
pub(super) async fn text(client: &Client, request: Request<Vec<u8>>) -> Result<String, CallError> {
    let answer = client.send(request.map(Body::from)).await?;
    let status = answer.status();
    if status.is_client_error() || status.is_server_error() {
        return Err(refusal(status, answer).await);
    }
    let bytes = collected(answer.into_body(), ANSWER_MAX).await?;
    String::from_utf8(bytes).map_err(|error| CallError::Answer(error.utf8_error().to_string()))
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
            let most = most >> 10;
            let words = format!("it is longer than {most} KiB, the most that is read");
            return Err(CallError::Answer(words));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}
