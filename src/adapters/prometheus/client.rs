//! HTTP client of one Prometheus server: range queries, each with a deadline and a limit on the size of its response.
//!
//! Requests are made by `prometheus-http-query` (form-encoded POST, base URL with a path prefix). Bodies are read and
//! parsed here, because that crate drops warnings, rejects a whole response for one unknown field, and has no size
//! limit. The client follows no redirects, reads no proxy from the environment, requires https unless plain http is
//! allowed, and reports a partial response as an error.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};
use prometheus_http_query::Client;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Response, Url, redirect};

use super::promql::excerpt;
use super::response::{Data, QueryResponse, ResponseError, ResponseLimits, parse};
use crate::adapters::breaker::Breaker;
use crate::clock::Clock;
use crate::ports::HistoryError;

/// The largest body that is read, after decompression: several times the 11,000 samples that one request may ask for.
const BODY_MAX: usize = 4 * 1024 * 1024;
/// A query returns one series, of 11,000 samples at most, and as many again from a server that ignores the step.
const LIMITS: ResponseLimits = ResponseLimits {
    series: 1,
    samples: 22_000,
};
/// Bodies of this size or more are parsed on a blocking thread, so that they do not delay other tasks.
const LARGE_BODY: usize = 512 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How much earlier than the client the server gives up, so that its own error arrives before the deadline.
const SERVER_LEAD: Duration = Duration::from_millis(500);

/// The address of a Prometheus server, and how to connect to it.
#[derive(Clone)]
pub struct Endpoint {
    /// Base URL, with a path prefix if there is one, without `/api/v1`.
    pub url: String,
    /// Whether plain http is accepted.
    pub allow_http: bool,
    /// Deadline of a request, from the first byte sent to the last received; 10 s by default.
    pub timeout: Duration,
    /// A bearer token, sent to this endpoint only.
    pub bearer_token: Option<String>,
}

impl Endpoint {
    /// An endpoint with the default deadline of 10 s, https only, and no credentials.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let timeout = Duration::from_secs(10);
        Self {
            url: url.to_owned(),
            allow_http: false,
            timeout,
            bearer_token: None,
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &self.url)
            .field("allow_http", &self.allow_http)
            .field("timeout", &self.timeout)
            .field("bearer_token", &self.bearer_token.as_ref().map(|_| "..."))
            .finish()
    }
}

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Not an absolute http or https URL.
    #[error("invalid Prometheus URL {0:?}; expected https://host[:port][/prefix]")]
    Url(String),
    /// Plain http, and not allowed.
    #[error("Prometheus URL {0:?} is not encrypted; use https, or allow http explicitly")]
    NotEncrypted(String),
    /// User, password, query or fragment in the URL.
    #[error("the Prometheus URL holds credentials, a query or a fragment; give the base URL only")]
    NotABase,
    /// A token with characters that are not allowed in a header.
    #[error("the Prometheus bearer token has characters that are not allowed in an HTTP header")]
    Token,
    /// The HTTP client could not be built.
    #[error("cannot set up the Prometheus client")]
    Setup(#[source] Box<dyn Error + Send + Sync>),
}

/// A Prometheus server, or one that imitates its query API. Clones share connections.
#[derive(Clone)]
pub struct Prometheus {
    client: Client,
    endpoint: String,
    timeout: Duration,
    breaker: Arc<Mutex<Breaker>>,
}

impl std::fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prometheus")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Prometheus {
    /// Prepares a client; nothing is sent yet.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn new(endpoint: &Endpoint) -> Result<Self, EndpointError> {
        let url = checked_url(endpoint)?;
        install_crypto();
        let http = reqwest::Client::builder()
            // A redirect could lead to a server that is not configured.
            .redirect(redirect::Policy::none())
            // A proxy from the environment is not part of the configuration.
            .no_proxy()
            .gzip(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(endpoint.timeout)
            .default_headers(headers(endpoint)?)
            .build()
            .map_err(|error| EndpointError::Setup(Box::new(error.without_url())))?;
        let client = Client::from(http, url.as_str())
            .map_err(|error| EndpointError::Setup(Box::new(error)))?;
        Ok(Self {
            client,
            endpoint: url.to_string(),
            timeout: endpoint.timeout,
            breaker: Arc::default(),
        })
    }

    /// The query's values at `from`, `from + step`, ... `to`, all in whole seconds; at most 11,000 of them.
    ///
    /// # Errors
    /// [`HistoryError`]: [`HistoryError::Partial`] when the server warns, [`HistoryError::Empty`] for no series,
    /// [`HistoryError::MultiSeries`] for several; [`HistoryError::CircuitOpen`] at once while the server hangs.
    pub async fn range(
        &self,
        query: &str,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        let request = self
            .client
            .query_range(query, from.as_second(), to.as_second(), step.as_secs_f64())
            // Earlier than our own timeout, so that the server can still say why.
            .timeout(self.server_timeout());
        self.admit()?;
        let response = self.read(request.post_raw().await).await;
        let answered = !matches!(response, Err(HistoryError::Timeout { .. }));
        self.breaker().record(answered, Clock::system().monotonic());
        only_series(response?)
    }

    /// Whether a request may be sent: not while the server hangs, which every other series would have to wait for.
    fn admit(&self) -> Result<(), HistoryError> {
        let admitted = self.breaker().admit(Clock::system().monotonic());
        admitted.map_err(|retry_in| HistoryError::CircuitOpen {
            endpoint: self.endpoint.clone(),
            retry_in,
        })
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its requests fail at once, because it hangs.
    #[must_use]
    pub fn is_circuit_open(&self) -> bool {
        self.breaker().is_open()
    }

    /// The `timeout` parameter of a query, in milliseconds.
    fn server_timeout(&self) -> i64 {
        let earlier = self
            .timeout
            .saturating_sub(SERVER_LEAD)
            .max(self.timeout / 2);
        i64::try_from(earlier.as_millis()).unwrap_or(i64::MAX)
    }

    /// Reads a response to its end and rejects a partial one.
    async fn read(
        &self,
        sent: Result<Response, prometheus_http_query::Error>,
    ) -> Result<QueryResponse, HistoryError> {
        let mut response = sent.map_err(|error| self.send_error(error))?;
        let status = response.status().as_u16();
        let body = self.body(&mut response).await?;
        // Parsing a large body would block the tasks of this thread.
        let parsed = if body.len() < LARGE_BODY {
            parse(&body, LIMITS)
        } else {
            let parsing = tokio::task::spawn_blocking(move || parse(&body, LIMITS));
            parsing
                .await
                .map_err(|error| malformed(&format!("the parser exited unexpectedly: {error}")))?
        };
        self.check(status, parsed)
    }

    async fn body(&self, response: &mut Response) -> Result<Vec<u8>, HistoryError> {
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.body_error(error.without_url()))?
        {
            if body.len() + chunk.len() > BODY_MAX {
                let message = format!(
                    "the response is larger than {} MiB; a query must give one series, as sum(...) does",
                    BODY_MAX >> 20
                );
                return Err(HistoryError::TooManySamples { message });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn send_error(&self, error: prometheus_http_query::Error) -> HistoryError {
        let cause = error
            .source()
            .and_then(|source| source.downcast_ref::<reqwest::Error>());
        if cause.is_some_and(reqwest::Error::is_timeout) {
            return self.deadline_exceeded();
        }
        HistoryError::Unreachable {
            endpoint: self.endpoint.clone(),
            source: Box::new(error),
        }
    }

    /// The error of a response whose body ended early.
    fn body_error(&self, error: reqwest::Error) -> HistoryError {
        if error.is_timeout() {
            self.deadline_exceeded()
        } else if error.is_decode() {
            malformed(&format!("the body cannot be decompressed: {error}"))
        } else {
            HistoryError::Unreachable {
                endpoint: self.endpoint.clone(),
                source: Box::new(error),
            }
        }
    }

    fn deadline_exceeded(&self) -> HistoryError {
        let message = format!("no complete response within {:?}", self.timeout);
        HistoryError::Timeout {
            endpoint: self.endpoint.clone(),
            message,
        }
    }

    /// Combines HTTP status and body: an error in the body takes precedence over the status.
    fn check(
        &self,
        status: u16,
        parsed: Result<QueryResponse, ResponseError>,
    ) -> Result<QueryResponse, HistoryError> {
        let is_success = (200..300).contains(&status);
        match parsed {
            Ok(response) if !is_success => Err(by_status(
                status,
                &format!("with data in the body: {}", response.warnings.join("; ")),
            )),
            Ok(response) if response.warnings.is_empty() => Ok(response),
            // A warning may mean that a part of the data is missing.
            Ok(response) => Err(HistoryError::Partial {
                message: excerpt(&response.warnings.join("; ")),
            }),
            Err(ResponseError::Failed { kind, message }) => {
                Err(self.server_error(status, &kind, &message))
            }
            Err(ResponseError::TooManySeries(count)) => Err(HistoryError::MultiSeries(count)),
            Err(ResponseError::TooManySamples(limit)) => Err(HistoryError::TooManySamples {
                message: format!("the response has more than {limit}"),
            }),
            Err(error) if is_success => Err(malformed(&error.to_string())),
            Err(_) => Err(by_status(status, "no Prometheus error in the body")),
        }
    }

    /// Prometheus: `bad_data` 400, `execution` 422, `canceled`, `timeout` and `unavailable` 503, `internal` 500.
    /// Other servers add error types of their own, which are classified by the status.
    fn server_error(&self, status: u16, kind: &str, message: &str) -> HistoryError {
        let excerpted = excerpt(message);
        match kind {
            "execution" if message.contains("too many samples") => {
                HistoryError::TooManySamples { message: excerpted }
            }
            "bad_data" | "execution" => HistoryError::QueryRefused { message: excerpted },
            "timeout" | "canceled" => HistoryError::Timeout {
                endpoint: self.endpoint.clone(),
                message: excerpted,
            },
            "too_many_requests" | "unavailable" | "internal" => HistoryError::Unavailable {
                status,
                message: excerpted,
            },
            other => by_status(status, &format!("{}: {excerpted}", excerpt(other))),
        }
    }
}

fn checked_url(endpoint: &Endpoint) -> Result<Url, EndpointError> {
    let url = Url::parse(&endpoint.url).map_err(|_| EndpointError::Url(endpoint.url.clone()))?;
    let credentials = !url.username().is_empty() || url.password().is_some();
    if credentials || url.query().is_some() || url.fragment().is_some() {
        return Err(EndpointError::NotABase);
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if endpoint.allow_http => Ok(url),
        "http" => Err(EndpointError::NotEncrypted(endpoint.url.clone())),
        _ => Err(EndpointError::Url(endpoint.url.clone())),
    }
}

fn headers(endpoint: &Endpoint) -> Result<HeaderMap, EndpointError> {
    let mut headers = HeaderMap::new();
    if let Some(token) = &endpoint.bearer_token {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| EndpointError::Token)?;
        // Keeps it out of debug output.
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Installs the process's default TLS provider, without which the HTTP client panics.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails only when another thread has installed one in between.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

fn by_status(status: u16, message: &str) -> HistoryError {
    let message = excerpt(message);
    match status {
        200..300 => HistoryError::Malformed { message },
        408 | 429 | 500.. => HistoryError::Unavailable { status, message },
        400 | 422 => HistoryError::QueryRefused { message },
        _ => HistoryError::Rejected { status, message },
    }
}

fn malformed(message: &str) -> HistoryError {
    HistoryError::Malformed {
        message: excerpt(message),
    }
}

/// The samples of the only series of a response. Several are an error and are not summed: only the author of the query
/// knows which of them belong together.
fn only_series(response: QueryResponse) -> Result<Vec<Sample>, HistoryError> {
    match response.data {
        Data::Series(mut series) => match series.len() + response.histograms {
            0 => Err(HistoryError::Empty),
            1 => series.pop().ok_or(HistoryError::Empty),
            several => Err(HistoryError::MultiSeries(several)),
        },
        Data::Scalar(_) | Data::Text(_) => Err(malformed("expected series, got a single value")),
    }
}

#[cfg(test)]
mod tests;
