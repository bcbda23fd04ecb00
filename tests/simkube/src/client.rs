//! A test server behind the real client: it records every request, and a function makes its responses.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what fails here fails a test"
)]

use std::{
    convert::Infallible,
    future::pending,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::HeaderValue,
    response::Response,
};
use futures::{StreamExt, stream};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::SimKube;

/// A recorded request.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// Method, path and query.
    pub line: String,
    /// The content type, if there is a body.
    pub content_type: Option<String>,
    /// The body; null without one.
    pub body: Value,
}

/// A response.
#[derive(Debug)]
pub enum Reply {
    /// 200 and a body.
    Ok(Value),
    /// 200 and a body, with this `Date`.
    Dated(Value, &'static str),
    /// An error status, as a `Status` object.
    Fail(u16, &'static str),
    /// An error status with this `Retry-After`.
    FailUntil(u16, &'static str),
    /// A stream of watch events, then its end.
    Events(Vec<Value>),
    /// A stream of no watch events that ends after this time.
    Quiet(Duration),
    /// A stream of watch events that stays open.
    EventsAndSilence(Vec<Value>),
    /// A stream of watch events that fails with this kind of error.
    EventsAndError(Vec<Value>, io::ErrorKind),
    /// No response.
    Hang,
}

/// The recorded requests of a server.
#[derive(Debug, Clone)]
pub struct FakeServer {
    sent: Arc<Mutex<Vec<Sent>>>,
    count: Arc<watch::Sender<usize>>,
}

impl FakeServer {
    /// A server and a client of it; `reply` gets the request and the number of requests before it.
    pub fn new(reply: impl Fn(&Sent, usize) -> Reply + Send + Sync + 'static) -> (Self, Client) {
        let server = Self {
            sent: Arc::default(),
            count: Arc::new(watch::Sender::new(0)),
        };
        let (recorder, reply) = (server.clone(), Arc::new(reply));
        let router = Router::new().fallback(move |request: Request| {
            let (recorder, reply) = (recorder.clone(), reply.clone());
            async move {
                let (sent, before) = recorder.record(request).await;
                respond(reply(&sent, before)).await
            }
        });
        (server, Client::new(router, "default"))
    }

    /// A server with the same response to all requests.
    pub fn always(reply: impl Fn() -> Reply + Send + Sync + 'static) -> (Self, Client) {
        Self::new(move |_sent, _before| reply())
    }

    /// All requests.
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// The request lines of all requests.
    pub fn lines(&self) -> Vec<String> {
        self.sent().into_iter().map(|sent| sent.line).collect()
    }

    /// Waits until this many requests have been received.
    pub async fn reached(&self, requests: usize) {
        self.count
            .subscribe()
            .wait_for(|count| *count >= requests)
            .await
            .unwrap();
    }

    async fn record(&self, request: Request) -> (Sent, usize) {
        let (parts, body) = request.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let content_type = parts.headers.get("content-type");
        let sent = Sent {
            line: format!("{} {}", parts.method, parts.uri),
            content_type: content_type.map(|value| value.to_str().unwrap().to_owned()),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        let mut all = self.sent.lock().unwrap();
        all.push(sent.clone());
        let before = all.len() - 1;
        self.count.send_replace(all.len());
        (sent, before)
    }
}

/// A client of a simulated API server.
pub fn simulated(server: &SimKube) -> Client {
    simulated_unless(server, None, |_line| false)
}

/// A client of a simulated API server, which answers 500 to the request lines that fail. Answers have this date instead
/// of the simulated one, which is the time of no clock of a test.
pub fn simulated_unless(
    server: &SimKube,
    date: Option<&'static str>,
    fails: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Client {
    let (server, fails) = (server.clone(), Arc::new(fails));
    let router = Router::new().fallback(move |request: Request| {
        let (server, fails) = (server.clone(), fails.clone());
        async move {
            if fails(&format!("{} {}", request.method(), request.uri())) {
                return respond(Reply::Fail(500, "fails")).await;
            }
            let (parts, body) = request.into_parts();
            let bytes = to_bytes(body, usize::MAX).await.unwrap();
            let request = Request::from_parts(parts, bytes.to_vec());
            let mut response = server.answer(request).await;
            response.headers_mut().remove("date");
            if let Some(date) = date {
                response
                    .headers_mut()
                    .insert("date", HeaderValue::from_static(date));
            }
            response
        }
    });
    Client::new(router, "default")
}

async fn respond(reply: Reply) -> Response {
    let mut response = Response::builder();
    match &reply {
        Reply::Dated(_, date) => response = response.header("date", *date),
        Reply::FailUntil(_, seconds) => response = response.header("retry-after", *seconds),
        _ => {}
    }
    let (code, body) = match reply {
        Reply::Ok(value) | Reply::Dated(value, _) => (200, Body::from(value.to_string())),
        Reply::Fail(code, message) => (code, Body::from(failure(code, message).to_string())),
        Reply::FailUntil(code, _) => (code, Body::from(failure(code, "slow down").to_string())),
        Reply::Events(events) => (200, Body::from_stream(lines(events))),
        Reply::Quiet(time) => {
            let end = stream::once(tokio::time::sleep(time)).filter_map(async |()| None);
            (200, Body::from_stream(end.map(Ok::<Bytes, Infallible>)))
        }
        Reply::EventsAndSilence(events) => (
            200,
            Body::from_stream(lines(events).chain(stream::pending())),
        ),
        Reply::EventsAndError(events, kind) => {
            let error = stream::once(async move { Err(io::Error::from(kind)) });
            let events = lines(events).map(|line| line.map_err(|never| match never {}));
            (200, Body::from_stream(events.chain(error)))
        }
        Reply::Hang => pending().await,
    };
    response.status(code).body(body).unwrap()
}

fn lines(events: Vec<Value>) -> impl futures::Stream<Item = Result<Bytes, Infallible>> {
    stream::iter(
        events
            .into_iter()
            .map(|event| Ok(Bytes::from(format!("{event}\n")))),
    )
}

/// A `Status` object.
pub fn failure(code: u16, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": message, "reason": "", "code": code,
    })
}
