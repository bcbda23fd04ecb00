//! An API server whose clock is wrong, as a client sees it: a proxy before the real one that changes the header `Date` of
//! each response.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use jiff::{SignedDuration, fmt::rfc2822};

use crate::{Error, Identity, Result, tls_server::TlsServer};

/// The proxy; it ends when it is dropped.
#[derive(Debug)]
pub struct SkewedServer {
    server: TlsServer,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The base URL of the real server.
    url: String,
    http: reqwest::Client,
    /// How far the clock is ahead, in seconds.
    ahead: AtomicI64,
}

impl SkewedServer {
    /// A proxy with the right time to the API server at `url`, whose certificate is of the authority `ca_pem`.
    pub(crate) async fn start(identity: &Identity, ca_pem: &str, url: String) -> Result<Self> {
        let build = || {
            let authority = reqwest::Certificate::from_pem(ca_pem.as_bytes())?;
            let client = reqwest::Client::builder().no_proxy();
            client.tls_certs_only([authority]).build()
        };
        let http = build().map_err(|source| Error::Query {
            query: "anything".to_owned(),
            source,
        })?;
        let shared = Arc::new(Shared {
            url,
            http,
            ahead: AtomicI64::new(0),
        });
        let router = Router::new()
            .fallback(pass_on)
            .with_state(Arc::clone(&shared));
        let server = TlsServer::start(identity, router).await?;
        Ok(Self { server, shared })
    }

    /// Sets how many seconds its clock is ahead.
    pub fn set_ahead(&self, seconds: i64) {
        self.shared.ahead.store(seconds, Ordering::Relaxed);
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }
}

impl Shared {
    /// The time in a header `Date`, and how far it is ahead.
    fn skewed(&self, date: &HeaderValue) -> Option<HeaderValue> {
        let ahead = SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed));
        let right = rfc2822::parse(date.to_str().ok()?).ok()?.timestamp();
        let wrong = right.checked_add(ahead).ok()?;
        let printer = rfc2822::DateTimePrinter::new();
        let text = printer.timestamp_to_rfc9110_string(&wrong).ok()?;
        HeaderValue::from_str(&text).ok()
    }
}

/// Headers of one connection only.
const OF_THE_CONNECTION: [header::HeaderName; 3] =
    [header::CONNECTION, header::HOST, header::TRANSFER_ENCODING];

async fn pass_on(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let url = format!("{}{}", shared.url, parts.uri);
    let sent = shared
        .http
        .request(parts.method, url)
        .headers(passed_on(parts.headers))
        .body(reqwest::Body::wrap_stream(body.into_data_stream()));
    match sent.send().await {
        Ok(answer) => {
            let (status, mut headers) = (answer.status(), passed_on(answer.headers().clone()));
            if let Some(date) = headers
                .get(header::DATE)
                .and_then(|date| shared.skewed(date))
            {
                headers.insert(header::DATE, date);
            }
            let body = Body::from_stream(answer.bytes_stream());
            (status, headers, body).into_response()
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

fn passed_on(mut headers: HeaderMap) -> HeaderMap {
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
    headers
}
