//! The contract: a script of requests with the codes that are expected, which `SimKube` and a real API server must answer
//! alike. Every verb, subresource, patch, precondition and selector that Foretide uses, or that its world needs, is in
//! it.
//!
//! Permitted differences are replaced before answers are compared: UIDs and resource versions by their objects and
//! their order, so that equal ones stay equal, and times by a word.

mod normal;
mod script;

use std::{collections::BTreeMap, future::Future};

use http::{Method, Request, header};
use serde_json::{Value, json};

use normal::Normal;

/// Number of attempts of a request until it has the expected code.
const ATTEMPTS: usize = 600;
pub use normal::differences;

/// A server that the script runs against.
pub trait Peer {
    /// Sends a request; returns the code and the whole body of the answer.
    fn send(&self, request: Request<Vec<u8>>) -> impl Future<Output = (u16, String)> + Send;
    /// Lets the server forget the history of its objects, as it does when it starts.
    fn forget(&self) -> impl Future<Output = ()> + Send;
    /// Starts the controller manager.
    fn start_controllers(&self) -> impl Future<Output = ()> + Send;
    /// Lets controllers work for a moment.
    fn settle(&self) -> impl Future<Output = ()> + Send;
}

/// One request of the script and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// The step of the script.
    pub request: String,
    /// The code that is expected.
    pub expected: u16,
    /// The code of the answer.
    pub code: u16,
    /// The normalized body: an object, the events of a watch, or a text.
    pub answer: Value,
}

/// Runs the whole script.
pub async fn run(peer: &impl Peer) -> Vec<Exchange> {
    let mut script = Script {
        peer,
        exchanges: Vec::new(),
        normal: Normal::default(),
        last: Value::Null,
        kept: BTreeMap::new(),
    };
    script::run(&mut script).await;
    script.exchanges
}

/// The exchanges until now with a server.
struct Script<'a, P> {
    peer: &'a P,
    exchanges: Vec<Exchange>,
    normal: Normal,
    /// The last answer, and answers with names, as they were received.
    last: Value,
    kept: BTreeMap<String, Value>,
}

/// A request of the script.
struct Sent<'a> {
    /// Empty for an administrator.
    user: &'a str,
    method: Method,
    path: String,
    content_type: &'a str,
    /// Null for none.
    body: Value,
}

impl<P: Peer> Script<'_, P> {
    async fn send(&mut self, request: String, sent: &Sent<'_>, expected: u16) {
        let (code, text) = self.exchange(sent).await;
        self.last = if sent.path.contains("watch=true") && code == 200 {
            let events = text.lines().map(serde_json::from_str);
            Value::Array(events.filter_map(Result::ok).collect())
        } else {
            serde_json::from_str(&text).unwrap_or_else(|_| json!(text.trim()))
        };
        let answer = self.normal.of(&self.last);
        self.exchanges.push(Exchange {
            request,
            expected,
            code,
            answer,
        });
    }

    async fn exchange(&self, sent: &Sent<'_>) -> (u16, String) {
        let mut request = Request::builder()
            .method(&sent.method)
            .uri(&sent.path)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "contract/1");
        if !sent.content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, sent.content_type);
        }
        if !sent.user.is_empty() {
            request = request.header("Impersonate-User", sent.user);
        }
        let body = Some(&sent.body).filter(|body| !body.is_null());
        match request.body(
            body.map(|body| body.to_string().into_bytes())
                .unwrap_or_default(),
        ) {
            Ok(request) => self.peer.send(request).await,
            Err(error) => (0, error.to_string()),
        }
    }

    /// Waits until a request is answered with this code.
    async fn until(&self, sent: &Sent<'_>, code: u16) {
        for _ in 0..ATTEMPTS {
            if self.exchange(sent).await.0 == code {
                return;
            }
            self.peer.settle().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;

    use super::*;
    use crate::SimKube;

    impl Peer for SimKube {
        async fn send(&self, request: Request<Vec<u8>>) -> (u16, String) {
            let response = self.answer(request).await;
            let code = response.status().as_u16();
            let body = axum::body::to_bytes(response.into_body(), usize::MAX)
                .await
                .unwrap();
            (code, String::from_utf8(body.to_vec()).unwrap())
        }

        async fn forget(&self) {
            self.compact();
        }

        async fn start_controllers(&self) {}

        async fn settle(&self) {
            self.collect_garbage();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn simkube_answers_with_the_codes_of_the_contract() {
        let server = SimKube::new(1, Arc::new(|| Timestamp::UNIX_EPOCH));
        let exchanges = run(&server).await;
        let others: Vec<_> = exchanges.iter().filter(|e| e.code != e.expected).collect();
        assert!(others.is_empty(), "{others:#?}");
        assert!(exchanges.len() >= 150, "{}", exchanges.len());
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_requests_have_the_same_answers() {
        let run = async || {
            let server = SimKube::new(1, Arc::new(|| Timestamp::UNIX_EPOCH));
            run(&server).await
        };
        let (first, second) = (run().await, run().await);
        assert_eq!(differences(&first, &second), Vec::<String>::new());
    }
}
