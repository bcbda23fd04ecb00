//! Asking Prometheus: range and instant queries over HTTP, every call with a deadline, every body with a limit.
//! Requests are made by `prometheus-http-query` (form-encoded POST, base URL with a path prefix); bodies are read and
//! parsed here, because that crate drops warnings, fails whole answers for one unknown field and has no size limit.
//! Follows no redirects, reads no proxy from the environment, speaks https unless told otherwise, and turns an
//! answer that is not whole into an error.

use std::error::Error;
use std::time::Duration;

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};
use prometheus_http_query::Client;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Response, Url, redirect};

use super::promql::{Query, excerpt};
use super::response::{Answer, Data, ResponseError, parse};
use crate::ports::HistoryError;

/// The largest body, unpacked, that is read.
const BODY_MAX: usize = 32 * 1024 * 1024;
/// The most samples in one answer: 24 MB, above what a body of single-digit values could carry usefully.
const SAMPLES_MAX: usize = 1_000_000;
/// Bodies from here on are parsed off the runtime's own threads.
const LARGE_BODY: usize = 512 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How much earlier than we the server shall give up, so that its own error reaches us.
const SERVER_LEAD: Duration = Duration::from_millis(500);

/// Where a Prometheus is, and how to speak to it.
#[derive(Clone)]
pub struct Endpoint {
    /// Base URL, with a path prefix if there is one, without `/api/v1`.
    pub url: String,
    /// Whether plain http is accepted.
    pub allow_http: bool,
    /// From the first byte sent to the last received; 10 s by default.
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
    #[error("prometheus URL {0:?} is not one; expected https://host[:port][/prefix]")]
    Url(String),
    /// Plain http, and not allowed.
    #[error("prometheus URL {0:?} is not encrypted; use https, or allow http explicitly")]
    NotEncrypted(String),
    /// User, password, query or fragment in the URL.
    #[error("the prometheus URL holds credentials, a query or a fragment; give the base URL only")]
    NotABase,
    /// A token with characters that no header can carry.
    #[error("the prometheus bearer token has characters that an HTTP header cannot carry")]
    Token,
    /// The HTTP client could not be made.
    #[error("cannot set up the prometheus client")]
    Setup(#[source] Box<dyn Error + Send + Sync>),
}

/// A Prometheus server, or one that imitates its query API. Cloning shares connections.
#[derive(Clone)]
pub struct Prometheus {
    client: Client,
    endpoint: String,
    timeout: Duration,
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
            .redirect(redirect::Policy::none())
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
        })
    }

    /// The query's value at one time, in whole seconds.
    ///
    /// # Errors
    /// [`HistoryError`], [`HistoryError::Partial`] when the server warns; no series is an answer.
    pub async fn instant(&self, query: &Query, at: Timestamp) -> Result<Answer, HistoryError> {
        let request = self
            .client
            .query(query)
            .at(at.as_second())
            .timeout(self.server_timeout());
        self.whole(request.post_raw().await).await
    }

    /// The query's values at `from`, `from + step`, ... `to`, all in whole seconds; at most 11,000 of them.
    ///
    /// # Errors
    /// As [`Prometheus::instant`]; several series, or none, are an error too.
    pub async fn range(
        &self,
        query: &str,
        (from, to): (Timestamp, Timestamp),
        step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        let request = self
            .client
            .query_range(query, from.as_second(), to.as_second(), step.as_secs_f64())
            .timeout(self.server_timeout());
        only_series(self.whole(request.post_raw().await).await?)
    }

    /// Milliseconds.
    fn server_timeout(&self) -> i64 {
        let earlier = self
            .timeout
            .saturating_sub(SERVER_LEAD)
            .max(self.timeout / 2);
        i64::try_from(earlier.as_millis()).unwrap_or(i64::MAX)
    }

    /// Reads a response to its end and refuses what is not a whole answer.
    async fn whole(
        &self,
        sent: Result<Response, prometheus_http_query::Error>,
    ) -> Result<Answer, HistoryError> {
        let mut response = sent.map_err(|error| self.not_sent(error))?;
        let status = response.status().as_u16();
        let body = self.body(&mut response).await?;
        let answer = if body.len() < LARGE_BODY {
            parse(&body, SAMPLES_MAX)
        } else {
            let parsing = tokio::task::spawn_blocking(move || parse(&body, SAMPLES_MAX));
            parsing
                .await
                .map_err(|error| malformed(&format!("parsing was ended: {error}")))?
        };
        judge(status, answer).map_err(|verdict| match verdict {
            HistoryError::Timeout { message, .. } => HistoryError::Timeout {
                endpoint: self.endpoint.clone(),
                message,
            },
            other => other,
        })
    }

    async fn body(&self, response: &mut Response) -> Result<Vec<u8>, HistoryError> {
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.broken(error.without_url()))?
        {
            if body.len() + chunk.len() > BODY_MAX {
                let message = format!("the answer is larger than {} MiB", BODY_MAX >> 20);
                return Err(HistoryError::TooManySamples { message });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn not_sent(&self, error: prometheus_http_query::Error) -> HistoryError {
        let cause = error
            .source()
            .and_then(|source| source.downcast_ref::<reqwest::Error>());
        if cause.is_some_and(reqwest::Error::is_timeout) {
            return self.late();
        }
        HistoryError::Unreachable {
            endpoint: self.endpoint.clone(),
            source: Box::new(error),
        }
    }

    /// The connection was there, and the body is not all.
    fn broken(&self, error: reqwest::Error) -> HistoryError {
        if error.is_timeout() {
            self.late()
        } else if error.is_decode() {
            malformed(&format!("the body cannot be unpacked: {error}"))
        } else {
            HistoryError::Unreachable {
                endpoint: self.endpoint.clone(),
                source: Box::new(error),
            }
        }
    }

    fn late(&self) -> HistoryError {
        let message = format!("our deadline of {:?} passed", self.timeout);
        HistoryError::Timeout {
            endpoint: self.endpoint.clone(),
            message,
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
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// The HTTP client takes the process's default provider and panics without one. Losing the race to another thread
/// that installs one is as good.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// Joins HTTP status and body: the body's own words come first, the status speaks when it has none.
fn judge(status: u16, answer: Result<Answer, ResponseError>) -> Result<Answer, HistoryError> {
    match answer {
        Ok(answer) if !(200..300).contains(&status) => Err(by_status(
            status,
            &format!("with data in the body: {}", answer.warnings.join("; ")),
        )),
        Ok(answer) if answer.warnings.is_empty() => Ok(answer),
        Ok(answer) => Err(HistoryError::Partial {
            message: excerpt(&answer.warnings.join("; ")),
        }),
        Err(ResponseError::Failed { kind, message }) => Err(by_kind(status, &kind, &message)),
        Err(ResponseError::TooManySamples(limit)) => Err(HistoryError::TooManySamples {
            message: format!("the answer has more than {limit}"),
        }),
        Err(error) if (200..300).contains(&status) => Err(malformed(&error.to_string())),
        Err(_) => Err(by_status(status, "no Prometheus error in the body")),
    }
}

/// Prometheus: `bad_data` 400, `execution` 422, `canceled`, `timeout` and `unavailable` 503, `internal` 500.
/// Imitators add kinds of their own; those are judged by their status.
fn by_kind(status: u16, kind: &str, message: &str) -> HistoryError {
    let told = excerpt(message);
    match kind {
        "execution" if message.contains("too many samples") => {
            HistoryError::TooManySamples { message: told }
        }
        "bad_data" | "execution" => HistoryError::QueryRefused { message: told },
        "timeout" | "canceled" => HistoryError::Timeout {
            endpoint: String::new(),
            message: told,
        },
        "too_many_requests" | "unavailable" | "internal" => HistoryError::Unavailable {
            status,
            message: told,
        },
        other => by_status(status, &format!("{}: {told}", excerpt(other))),
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

/// The one series of an answer. Several are not summed here: which of them belong together only the author of the
/// query knows.
fn only_series(answer: Answer) -> Result<Vec<Sample>, HistoryError> {
    match answer.data {
        Data::Series(mut series) => match series.len() + answer.histograms {
            0 => Err(HistoryError::Empty),
            1 => series
                .pop()
                .map(|one| one.samples)
                .ok_or(HistoryError::Empty),
            several => Err(HistoryError::MultiSeries(several)),
        },
        Data::Scalar(_) | Data::Text(_) => Err(malformed("expected series, got a single value")),
    }
}

#[cfg(test)]
mod tests;
