//! Single requests over a connection: each has a total deadline, waits for a slot of what answers it, and is retried
//! only if it is a read.

use std::{sync::Arc, time::Duration};

use http::{Method, Request, header};
use jiff::SignedDuration;
use kube::Client;
use serde::de::DeserializeOwned;

use super::Connection;
use crate::api_server::{
    budgets::{self, Budgets, Slot},
    error::{About as _, CallError},
    pages::Pages,
    refusals::Refusals,
    resource::ObjectPath,
    response,
    skew::ClockSkew,
    write_gate::WriteGate,
};
use foretide_api::ports::ClusterError;
use foretide_base::{clock::Clock, leadership, machine::Machine, opaque::Opaque, redact::Redactor};

/// The limits of single requests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Total time of one request, its retries included.
    pub deadline: Duration,
    /// Time for which a request may wait for a slot before its deadline starts.
    pub queue: Duration,
    /// Maximum number of retries of a read after transient failures.
    pub retries: u32,
    /// Minimum pause before the first retry; doubles with each retry, plus up to as much again at random.
    pub backoff: Duration,
    /// Slots: requests in flight at once, for reads and for writes of each API group.
    pub slots: usize,
}

/// Sends single requests to one API server, within [`Limits`].
#[derive(Debug)]
pub struct Calls {
    client: Opaque<Client>,
    /// The client of writes.
    writer: Opaque<Client>,
    budgets: Budgets,
    refusals: Refusals,
    /// The skew by all requests of the connection: the renewals of the lease measure it when nothing else is written.
    skew: Arc<ClockSkew>,
    limits: Limits,
    gate: WriteGate,
    redactor: Redactor,
    machine: Machine,
}

/// Deadline of one request, and the number of repetitions until then.
#[derive(Debug, Clone, Copy)]
struct Attempts {
    deadline: Duration,
    retries: u32,
    /// Maximum size of the response.
    max_bytes: usize,
}

// === impl Connection ===

impl Connection {
    /// Single requests over this connection, with the default limits.
    pub(crate) fn calls(&self) -> Calls {
        self.calls_within(Limits::default(), WriteGate::default())
    }

    /// Single requests over this connection, with these limits; writes go through `gate`.
    pub(crate) fn calls_within(&self, limits: Limits, gate: WriteGate) -> Calls {
        let writer = if gate.is_elected() {
            // All requests of a process have the gate of its only election.
            self.gate.get_or_init(|| gate.clone());
            &self.gated
        } else {
            &self.unary
        };
        Calls {
            client: self.unary.clone(),
            writer: writer.clone(),
            budgets: Budgets::new(limits.slots, self.clock()),
            refusals: Refusals::new(self.clock()),
            skew: Arc::clone(&self.skew),
            limits,
            gate,
            redactor: self.redactor.clone(),
            machine: self.machine.clone(),
        }
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: leadership::WRITE_TIME,
            queue: Duration::from_secs(10),
            retries: 2,
            backoff: Duration::from_millis(100),
            slots: 32,
        }
    }
}

impl Limits {
    /// Limits of the requests about a lease. They have slots of their own, and a failed one is repeated by the
    /// election.
    pub fn for_lease(deadline: Duration) -> Self {
        Self {
            deadline,
            queue: deadline,
            retries: 0,
            slots: 1,
            ..Self::default()
        }
    }
}

// === impl Calls ===

impl Calls {
    #[cfg(test)]
    pub fn new(client: Client, limits: Limits) -> Self {
        Connection::over(client).calls_within(limits, WriteGate::default())
    }

    /// Measures the skew as if the API server had dated a response with `date`.
    #[cfg(test)]
    pub fn date(&self, date: &'static str) {
        let headers =
            http::HeaderMap::from_iter([(header::DATE, http::HeaderValue::from_static(date))]);
        self.skew.observe(&headers, self.clock().reading());
    }

    /// The metrics APIs that hang: their reads fail at once.
    pub fn open_circuits(&self) -> Vec<String> {
        self.budgets.open_circuits()
    }

    /// Lead of the server's clock over ours, in whole seconds.
    pub fn clock_skew(&self) -> SignedDuration {
        self.skew.at(self.clock().reading())
    }

    /// The clock that spans between this process and the server are measured by.
    pub fn clock(&self) -> Clock {
        self.machine.clock().clone()
    }

    /// Gets one object.
    pub async fn get<T: DeserializeOwned>(
        &self,
        object: ObjectPath<'_>,
    ) -> Result<T, ClusterError> {
        async { self.read(&object.path()?).await }
            .await
            .about(object)
    }

    /// GETs a value; transient failures are retried within the deadline.
    pub async fn read<T: DeserializeOwned>(&self, url: &str) -> Result<T, CallError> {
        let text = self.read_text(url).await?;
        self.decode(&text)
    }

    /// GETs a text; transient failures are retried within the deadline.
    pub async fn read_text(&self, url: &str) -> Result<String, CallError> {
        self.read_text_within(url, response::RESPONSE_MAX).await
    }

    /// GETs a text of at most `max_bytes` bytes.
    async fn read_text_within(&self, url: &str, max_bytes: usize) -> Result<String, CallError> {
        let request = request(Method::GET, url, None, Vec::new())?;
        let slot = self.budgets.slot(url, false, self.limits.queue).await?;
        let attempts = Attempts {
            deadline: self.limits.deadline,
            retries: self.limits.retries,
            max_bytes,
        };
        self.send(&self.client.0, &request, attempts, slot).await
    }

    /// GETs the objects of a collection, page by page.
    pub async fn list<T: DeserializeOwned>(
        &self,
        collection: &str,
        selectors: &[(&str, &str)],
    ) -> Result<Vec<T>, CallError> {
        let mut pages = Pages::default();
        let mut objects = Vec::new();
        while pages.version().is_none() {
            let url = format!("{collection}{}", pages.query(selectors));
            match self.read_text_within(&url, pages.max_bytes()).await {
                Err(error) => pages.retry_smaller(error)?,
                Ok(text) => {
                    for object in pages.read(&text)? {
                        objects.push(self.decode(object)?);
                    }
                }
            }
        }
        Ok(objects)
    }

    /// The gate of every write.
    pub fn gate(&self) -> &WriteGate {
        &self.gate
    }

    /// Sends a request that changes something, if the gate is open when it has a slot. It is sent once: if its response
    /// is lost, the next sync sees whether it took effect.
    pub async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        url: &str,
        body: Body<'_>,
    ) -> Result<T, CallError> {
        // What may not be written now does not wait for a slot.
        self.gate.admit(self.limits.deadline)?;
        let bytes =
            serde_json::to_vec(body.value).map_err(|e| CallError::Request(e.to_string()))?;
        let request = request(method, url, Some(body.content_type), bytes)?;
        let slot = self.budgets.slot(url, true, self.limits.queue).await?;
        // Checked again as late as possible: the lease may have been lost in the queue.
        let attempts = Attempts {
            deadline: self.gate.admit(self.limits.deadline)?,
            retries: 0,
            max_bytes: response::RESPONSE_MAX,
        };
        let in_flight = self.gate.begin_write();
        let sent = self.send(&self.writer.0, &request, attempts, slot).await;
        // Also after an error. Without this call the write counts as in flight for its longest time.
        in_flight.end();
        self.decode(&sent?)
    }

    fn decode<T: DeserializeOwned>(&self, text: &str) -> Result<T, CallError> {
        serde_json::from_str(text).map_err(|error| {
            // The parser's message may quote the response, and with it a credential.
            CallError::Response(error.to_string()).redacted(&self.redactor)
        })
    }

    async fn send(
        &self,
        client: &Client,
        request: &Request<Vec<u8>>,
        attempts: Attempts,
        mut slot: Slot,
    ) -> Result<String, CallError> {
        let deadline = attempts.deadline;
        let sent = self.with_retries(client, request, attempts, &mut slot);
        let outcome = response::within(deadline, sent)
            .await
            .map_err(|error| error.redacted(&self.redactor));
        slot.record(&outcome);
        outcome
    }

    async fn with_retries(
        &self,
        client: &Client,
        request: &Request<Vec<u8>>,
        attempts: Attempts,
        slot: &mut Slot,
    ) -> Result<String, CallError> {
        let Attempts {
            deadline,
            retries,
            max_bytes,
        } = attempts;
        let clock = self.clock();
        let started = clock.monotonic();
        let mut left = retries;
        let mut backoff = self.limits.backoff;
        // An election has a period of its own, and what is written next at the same path may be something else.
        let refusals = (retries > 0).then_some(&self.refusals);
        loop {
            let outcome = match refusals.and_then(|refusals| refusals.in_force(request.uri())) {
                Some(error) => Err(error),
                None => self.send_once(client, request, max_bytes).await,
            };
            let Err(error) = outcome else {
                return outcome;
            };
            if let Some(refusals) = refusals {
                refusals.record(request.uri(), &error);
            }
            if left == 0 || !error.is_transient() {
                return Err(error);
            }
            let asked = error.retry_after().unwrap_or_default().max(backoff);
            let pause = asked.saturating_add(self.machine.jitter(backoff));
            let spent = clock.monotonic().since(started);
            // Otherwise the caller would wait for the deadline and get a timeout in place of the server's message.
            if spent.saturating_add(pause) >= deadline {
                return Err(error.beyond(deadline));
            }
            slot.pause(pause).await;
            left -= 1;
            backoff *= 2;
        }
    }

    async fn send_once(
        &self,
        client: &Client,
        request: &Request<Vec<u8>>,
        max_bytes: usize,
    ) -> Result<String, CallError> {
        let (headers, text) =
            response::headers_and_text(client, request.clone(), max_bytes).await?;
        // The API server forwards the headers of aggregated APIs, which run on other machines.
        if !budgets::is_aggregated(request.uri().path()) {
            self.skew.observe(&headers, self.clock().reading());
        }
        Ok(text)
    }
}

/// The body of a request that changes something.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    content_type: &'static str,
    value: &'a serde_json::Value,
}

// === impl Body ===

impl<'a> Body<'a> {
    pub fn json(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/json",
            value,
        }
    }

    pub fn apply(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/apply-patch+yaml",
            value,
        }
    }

    pub fn merge_patch(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/merge-patch+json",
            value,
        }
    }

    pub fn json_patch(value: &'a serde_json::Value) -> Self {
        Self {
            content_type: "application/json-patch+json",
            value,
        }
    }
}

fn request(
    method: Method,
    url: &str,
    content_type: Option<&'static str>,
    body: Vec<u8>,
) -> Result<Request<Vec<u8>>, CallError> {
    let mut builder = Request::builder()
        .method(method)
        .uri(url)
        .header(header::ACCEPT, "application/json");
    if let Some(content_type) = content_type {
        builder = builder.header(header::CONTENT_TYPE, content_type);
    }
    builder
        .body(body)
        .map_err(|e| CallError::Request(e.to_string()))
}
