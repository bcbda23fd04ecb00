//! Client of one Prometheus server: range queries, and the meaning of their answers and errors.
//!
//! A query is a form-encoded POST, because the text of one may be longer than a URL. No secret is sent over plain http,
//! and a partial response is an error.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use foretide_models::Sample;
use jiff::{SignedDuration, Timestamp};

use super::http_client::{Answer, BODY_MAX, RequestError};
use super::promql::excerpt;
use super::response::{Data, QueryResponse, ResponseError, ResponseLimits, parse};
use super::session::{Session, Sessions};
use super::tls;
use foretide_api::ports::{HistoryError, HistoryQuery, HistoryServer, ServerHealth};
use foretide_base::error::chain;
use foretide_base::{circuits::Circuits, redact::Redactor};
use foretide_base::{clock::Clock, machine::Machine};

/// A query returns one series, of 11,000 samples at most, and as many again from a server that ignores the step.
const LIMITS: ResponseLimits = ResponseLimits {
    series: 1,
    samples: 22_000,
};
/// Bodies of this size or more are parsed on a blocking thread, so that they do not delay other tasks.
const LARGE_BODY: usize = 512 * 1024;
/// Deadline of a request, from the first byte sent to the last received.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Lead of the server's timeout over the client's, so that its own error arrives before the deadline.
const SERVER_LEAD: Duration = Duration::from_millis(500);

/// A Prometheus server, or one that imitates its query API. Clones share connections.
#[derive(Clone, derive_more::Debug)]
#[debug("Prometheus({endpoint})")]
pub struct Prometheus {
    sessions: Arc<Sessions>,
    endpoint: String,
    timeout: Duration,
    circuits: Arc<Mutex<Circuits>>,
    machine: Machine,
    /// The clock that the server's answers are measured by.
    clock: Clock,
}

impl Prometheus {
    /// Prepares a client; nothing is read or sent yet.
    pub fn new(server: &HistoryServer, machine: &Machine) -> Self {
        Self::with_timeout(server, machine, TIMEOUT)
    }

    fn with_timeout(server: &HistoryServer, machine: &Machine, timeout: Duration) -> Self {
        Self {
            endpoint: server.url().to_string(),
            sessions: Arc::new(Sessions::new(server, machine, timeout)),
            timeout,
            circuits: Arc::default(),
            machine: machine.clone(),
            clock: machine.clock().clone(),
        }
    }

    /// The query's values at `from`, `from + step`, ... `to`, all in whole seconds; at most 11,000 of them.
    ///
    /// # Errors
    /// [`HistoryError`]: [`HistoryError::Partial`] when the server warns, [`HistoryError::Empty`] for no series,
    /// [`HistoryError::MultiSeries`] for several; [`HistoryError::CircuitOpen`] at once while the server hangs, or the
    /// queries of the namespace time out.
    pub async fn range(
        &self,
        query: &HistoryQuery,
        from: Timestamp,
        to: Timestamp,
        step: SignedDuration,
    ) -> Result<Vec<Sample>, HistoryError> {
        // Before the circuits are asked: a request that they admit must be sent.
        let session = self.session().await?;
        self.admit(&query.namespace)?;
        let sent = self.clock.monotonic();
        let form = [
            ("query", &*query.text),
            ("start", &from.as_second().to_string()),
            ("end", &to.as_second().to_string()),
            ("step", &step.as_secs_f64().to_string()),
            // Earlier than our own timeout, so that the server can still say why.
            ("timeout", &format!("{}ms", self.server_timeout())),
        ];
        let answer = session.client.post("api/v1/query_range", &form).await;
        let response = self.read(answer, &session.redactor).await;
        let answered = !matches!(response, Err(HistoryError::Timeout { .. }));
        let now = self.clock.monotonic();
        if answered {
            self.circuits.lock().answered(Some(&query.namespace), now);
        } else {
            self.circuits
                .lock()
                .timed_out(Some(&query.namespace), sent, now);
        }
        // The files may have been renewed after they were last read.
        if let Err(HistoryError::Unauthorized { .. } | HistoryError::Tls { .. }) = response {
            self.sessions.refused();
        }
        only_series(response?)
    }

    async fn session(&self) -> Result<Session, HistoryError> {
        let session = self.sessions.current().await;
        session.map_err(|error| HistoryError::Credentials {
            endpoint: self.endpoint.clone(),
            message: chain(&error),
        })
    }

    /// Health of the server, under the name of its endpoint.
    pub fn health(&self, name: &str) -> ServerHealth {
        let credentials = self.sessions.status();
        ServerHealth {
            name: name.to_owned(),
            is_circuit_open: self.circuits.lock().is_hanging(self.clock.monotonic()),
            expiries: credentials.expiries,
            credential_problem: credentials.problem,
        }
    }

    /// The headers that are sent to the server, in words; one of them may name a tenant.
    pub fn headers_in_words(&self) -> Option<String> {
        self.sessions.server().credentials().headers_in_words()
    }

    /// Number of changes of the tenant.
    pub fn version(&self) -> u64 {
        self.sessions.version()
    }

    /// The sentence that the last usable credentials were sent, if the files cannot be used now.
    fn outdated_credentials(&self) -> String {
        match self.sessions.status().problem {
            Some(why) => format!("; these are the last usable credentials, because {why}"),
            None => String::new(),
        }
    }

    /// Admits a request, except while the server hangs or the requests of the namespace time out: other series would
    /// have to wait for it.
    fn admit(&self, namespace: &str) -> Result<(), HistoryError> {
        let now = self.clock.monotonic();
        self.circuits
            .lock()
            .admit(Some(namespace), now)
            .map_err(|open| HistoryError::CircuitOpen {
                endpoint: self.endpoint.clone(),
                retry_in: open.retry_in,
            })
    }

    /// The `timeout` parameter of a query, in milliseconds.
    fn server_timeout(&self) -> u128 {
        // Half of a timeout that is shorter than twice the lead.
        let earlier = self.timeout.saturating_sub(SERVER_LEAD);
        earlier.max(self.timeout / 2).as_millis()
    }

    /// Reads an answer and rejects a partial one.
    async fn read(
        &self,
        answer: Result<Answer, RequestError>,
        redactor: &Redactor,
    ) -> Result<QueryResponse, HistoryError> {
        let Answer { status, body } = answer.map_err(|error| self.request_error(error))?;
        if matches!(status, 401 | 403) {
            return Err(self.unauthorized(status, &body, redactor));
        }
        // Parsing a large body would block the tasks of this thread.
        let parsed = if body.len() < LARGE_BODY {
            parse(&body, LIMITS)
        } else {
            let parsing = self.machine.run_blocking(move || parse(&body, LIMITS));
            parsing
                .await
                .map_err(|error| malformed(&format!("the parser exited unexpectedly: {error}")))?
        };
        self.check(status, redacted(parsed, redactor))
    }

    /// The error of a server, or a proxy before it, that does not accept the credentials.
    fn unauthorized(&self, status: u16, body: &[u8], redactor: &Redactor) -> HistoryError {
        let message = match parse(body, LIMITS) {
            Err(ResponseError::Failed { message, .. }) => message,
            _ => String::from_utf8_lossy(body).trim().to_owned(),
        };
        HistoryError::Unauthorized {
            endpoint: self.endpoint.clone(),
            status,
            message: excerpt(&redactor.redact(&message)),
            sent: format!(
                "{}{}",
                self.sessions.server().credentials(),
                self.outdated_credentials()
            ),
        }
    }

    /// The error of a request without a complete answer.
    fn request_error(&self, error: RequestError) -> HistoryError {
        let endpoint = self.endpoint.clone();
        match error {
            RequestError::TimedOut => HistoryError::Timeout {
                endpoint,
                message: format!("no complete response within {:?}", self.timeout),
            },
            RequestError::TooLarge => HistoryError::TooManySamples {
                message: format!(
                    "the response is larger than {} MiB; a query must give one series, as sum(...) does",
                    BODY_MAX >> 20
                ),
            },
            RequestError::Compression(error) => {
                malformed(&format!("the body cannot be decompressed: {error}"))
            }
            RequestError::Lost(source) => {
                let credentials = self.sessions.server().credentials();
                match tls::tls_error_message(&*source, credentials) {
                    Some(message) => HistoryError::Tls {
                        endpoint,
                        message: format!("{message}{}", self.outdated_credentials()),
                    },
                    None => HistoryError::Unreachable { endpoint, source },
                }
            }
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

    /// The error that the server reports by its type. Prometheus: `bad_data` 400, `execution` 422, `canceled`,
    /// `timeout` and `unavailable` 503, `internal` 500. Other servers add error types of their own, which are
    /// classified by the status.
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

/// A response without credentials in the texts of the server.
fn redacted(
    parsed: Result<QueryResponse, ResponseError>,
    redactor: &Redactor,
) -> Result<QueryResponse, ResponseError> {
    match parsed {
        Ok(mut response) => {
            for warning in &mut response.warnings {
                *warning = redactor.redact(warning);
            }
            Ok(response)
        }
        Err(ResponseError::Failed { kind, message }) => Err(ResponseError::Failed {
            kind: redactor.redact(&kind),
            message: redactor.redact(&message),
        }),
        Err(ResponseError::Malformed(text)) => {
            Err(ResponseError::Malformed(redactor.redact(&text)))
        }
        other => other,
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
