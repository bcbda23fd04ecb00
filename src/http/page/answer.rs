//! Answers that wait for their readers: compressed once, and within a budget of bytes.
//!
//! A reader may take an answer as slowly as it likes; until then the answer is in memory. So all that wait may be so
//! large together, and a view that would exceed that is refused. What is in the binary costs nothing.

#[cfg(test)]
mod tests;

use std::{io::Write as _, sync::Arc};

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Refusal;

/// How many bytes of answers may wait: the largest ones have about one MiB, compressed a tenth of that.
const UNSENT_MAX: u32 = 16 << 20;
/// A shorter answer is sent as it is.
const COMPRESSED_FROM: usize = 1024;

/// The bytes that may still wait.
#[derive(Debug, Clone)]
pub(super) struct Unsent(Arc<Semaphore>);

/// A text of the page, ready to be sent.
pub(super) struct Text {
    media: &'static str,
    bytes: Bytes,
    is_compressed: bool,
}

/// Bytes that wait for their reader, and their part of the budget.
struct Waiting {
    bytes: Bytes,
    _part: OwnedSemaphorePermit,
}

/// Whether a reader takes gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let accepted = values.filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        name.trim().eq_ignore_ascii_case("gzip") && weight.parse().is_ok_and(|it: f32| it > 0.0)
    })
}

// === impl Unsent ===

impl Default for Unsent {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(UNSENT_MAX as usize)))
    }
}

impl Unsent {
    /// The same text, which has its part of the budget until it is sent or its reader has left.
    ///
    /// # Errors
    /// 429 if too much waits already.
    pub(super) fn admit(&self, text: Text) -> Result<Text, Refusal> {
        // One that is larger than the whole budget takes all of it: more permits than there are are never given.
        let size = u32::try_from(text.bytes.len()).map_or(UNSENT_MAX, |size| size.min(UNSENT_MAX));
        let acquired = Arc::clone(&self.0).try_acquire_many_owned(size);
        let part = acquired.map_err(|_| {
            let message = "too many answers wait for readers that are slow to take them; try again";
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, message)
        })?;
        let waiting = Waiting {
            bytes: text.bytes,
            _part: part,
        };
        Ok(Text {
            bytes: Bytes::from_owner(waiting),
            ..text
        })
    }
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

// === impl Text ===

impl Text {
    pub(super) fn new(media: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self {
            media,
            bytes: bytes.into(),
            is_compressed: false,
        }
    }

    /// The same compressed, if it is worth it. It takes milliseconds: never on a thread that syncs need.
    pub(super) fn compressed(self) -> Self {
        if self.is_compressed || self.bytes.len() < COMPRESSED_FROM {
            return self;
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let written = encoder.write_all(&self.bytes);
        match written.and_then(|()| encoder.finish()) {
            Ok(bytes) => Self {
                bytes: bytes.into(),
                is_compressed: true,
                ..self
            },
            Err(_) => self,
        }
    }
}

impl Clone for Text {
    fn clone(&self) -> Self {
        Self {
            bytes: self.bytes.clone(),
            ..*self
        }
    }
}

impl IntoResponse for Text {
    fn into_response(self) -> Response {
        let media = [(header::CONTENT_TYPE, self.media)];
        let mut response = (media, self.bytes).into_response();
        let headers = response.headers_mut();
        let varies = HeaderValue::from_static("accept-encoding");
        headers.insert(header::VARY, varies);
        if self.is_compressed {
            let gzip = HeaderValue::from_static("gzip");
            headers.insert(header::CONTENT_ENCODING, gzip);
        }
        response
    }
}
