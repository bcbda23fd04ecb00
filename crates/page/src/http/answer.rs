//! Answers that wait for their readers: compressed once, and within a budget of bytes.
//!
//! A reader may take an answer as slowly as it likes; until then the answer is in memory. The answers that wait
//! therefore share one budget. Beyond it, the newest answers of the reader with the most waiting bytes break off for
//! one with fewer, and other views are refused. Assets, which are in the binary, cost nothing.

#[cfg(test)]
mod tests;

use std::{convert::Infallible, io::Write as _, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};
use futures::stream;
use tokio::sync::mpsc;

use super::Refusal;
use foretide_base::{
    clock::Clock,
    http::{Limits, Permit, Quota},
};

/// The bytes of answers that may wait: the largest ones have about one MiB, compressed a tenth of that.
const UNSENT: Limits = Limits {
    what: "bytes of answers that wait",
    total: 16 << 20,
    per_holder: 8 << 20,
    holder: "reader",
    advice: "take answers as they come, and try again",
};
/// Size of the parts in which an answer is handed over.
const CHUNK: usize = 16 * 1024;
/// A shorter answer is sent as it is.
const COMPRESSED_FROM: usize = 1024;

/// The budget of waiting bytes.
#[derive(Debug, Clone)]
pub struct Unsent(Arc<Quota<Arc<str>>>);

/// A text of the page, ready to be sent.
#[derive(Clone)]
pub struct Text {
    media: &'static str,
    bytes: Bytes,
    is_compressed: bool,
}

/// A text that waits for its reader.
pub struct Admitted {
    text: Text,
    permit: Permit<Arc<str>>,
}

/// Returns whether a reader accepts gzip.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    elements(headers, &header::ACCEPT_ENCODING).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        name.trim().eq_ignore_ascii_case("gzip") && weight.parse().is_ok_and(|it: f32| it > 0.0)
    })
}

/// The elements of a header whose value is a list.
pub fn elements<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
}

// === impl Unsent ===

impl Unsent {
    pub fn new(clock: Clock) -> Self {
        Self(Quota::new(UNSENT, clock))
    }

    /// Admits a text, which has its part of the budget until it is sent or its reader has left.
    ///
    /// # Errors
    /// 429 if too much waits already.
    pub fn admit(&self, reader: Arc<str>, text: Text) -> Result<Admitted, Refusal> {
        // A text that is larger than a reader's part takes all of it.
        let size = text.bytes.len().min(UNSENT.per_holder);
        let permit = self.0.acquire_many(reader, size)?;
        Ok(Admitted { text, permit })
    }
}

// === impl Admitted ===

impl IntoResponse for Admitted {
    fn into_response(self) -> Response {
        let Self { text, permit } = self;
        let bytes = text.bytes.clone();
        let (mut parts, _) = text.into_response().into_parts();
        // A reader notices by its length an answer that breaks off.
        let length = HeaderValue::from(bytes.len());
        parts.headers.insert(header::CONTENT_LENGTH, length);
        let (sender, chunks) = mpsc::channel(1);
        tokio::spawn(hand_over(bytes, permit, sender));
        let chunks = stream::unfold(chunks, async |mut chunks| {
            let chunk = chunks.recv().await?;
            Some((Ok::<_, Infallible>(chunk), chunks))
        });
        Response::from_parts(parts, Body::from_stream(chunks))
    }
}

/// Hands bytes over as their reader takes them, until they are evicted.
async fn hand_over(bytes: Bytes, mut permit: Permit<Arc<str>>, chunks: mpsc::Sender<Bytes>) {
    let handed = async {
        for chunk in bytes.chunks(CHUNK) {
            // A copy, because a part of the bytes would keep all of them in memory.
            if chunks.send(Bytes::copy_from_slice(chunk)).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        _evicted = permit.evicted() => {}
        () = handed => {}
    }
}

// === impl Text ===

impl Text {
    pub fn new(media: &'static str, bytes: impl Into<Bytes>) -> Self {
        Self {
            media,
            bytes: bytes.into(),
            is_compressed: false,
        }
    }

    /// The compressed text, if it is long enough. Compression takes milliseconds: never on a thread that syncs need.
    pub fn compressed(self) -> Self {
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

impl IntoResponse for Text {
    fn into_response(self) -> Response {
        let media = [(header::CONTENT_TYPE, self.media)];
        let mut response = (media, self.bytes).into_response();
        let headers = response.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if self.is_compressed {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}
