//! The contract: a script of requests with the codes that are expected, which SimKube and a real API server must answer
//! alike. Every verb, subresource, patch, precondition and selector that Foretide uses, or that its world needs, is in
//! it.
//!
//! What may differ is replaced before answers are compared: UIDs and resource versions by the object that they are
//! of and their order, so that it still shows which of them are equal, and times by a word.

mod normal;
mod script;

use std::future::Future;

use http::{Method, Request, header};
use serde_json::{Value, json};

use normal::Normal;
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
    /// Method and path.
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
    };
    script::run(&mut script).await;
    script.exchanges
}

/// The exchanges until now with a server.
struct Script<'a, P> {
    peer: &'a P,
    exchanges: Vec<Exchange>,
    normal: Normal,
}

/// A request of the script.
struct Sent<'a> {
    /// Empty for an administrator.
    user: &'a str,
    method: Method,
    path: &'a str,
    content_type: &'a str,
    /// Null for none.
    body: Value,
}

impl<'a> Sent<'a> {
    const fn get(path: &'a str) -> Self {
        Self {
            user: "",
            method: Method::GET,
            path,
            content_type: "",
            body: Value::Null,
        }
    }

    const fn with_body(method: Method, path: &'a str, content_type: &'a str, body: Value) -> Self {
        Self {
            user: "",
            method,
            path,
            content_type,
            body,
        }
    }

    /// The same request of another user.
    fn by(self, user: &'a str) -> Self {
        Self { user, ..self }
    }
}

/// The patches.
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl<P: Peer> Script<'_, P> {
    async fn get(&mut self, path: &str, code: u16) -> Value {
        self.send(Sent::get(path), code).await
    }

    /// Compares only a part of the answer.
    async fn get_part(&mut self, path: &str, code: u16, part: fn(&Value) -> Value) {
        self.get(path, code).await;
        if let Some(last) = self.exchanges.last_mut() {
            last.answer = part(&last.answer);
        }
    }

    /// Compares only these fields of the last answer.
    fn only(&mut self, fields: &[&str]) {
        if let Some(last) = self.exchanges.last_mut() {
            last.answer = fields
                .iter()
                .map(|field| last.answer[*field].clone())
                .collect();
        }
    }

    /// Gives the last request a name; it contains what differs.
    fn named(&mut self, name: &str) {
        if let Some(last) = self.exchanges.last_mut() {
            name.clone_into(&mut last.request);
        }
    }

    async fn post(&mut self, path: &str, code: u16, body: Value) -> Value {
        self.send(
            Sent::with_body(Method::POST, path, "application/json", body),
            code,
        )
        .await
    }

    async fn put(&mut self, path: &str, code: u16, body: Value) -> Value {
        self.send(
            Sent::with_body(Method::PUT, path, "application/json", body),
            code,
        )
        .await
    }

    async fn patch(&mut self, path: &str, code: u16, content_type: &str, body: Value) -> Value {
        self.send(
            Sent::with_body(Method::PATCH, path, content_type, body),
            code,
        )
        .await
    }

    async fn merge(&mut self, path: &str, code: u16, body: Value) -> Value {
        self.patch(path, code, MERGE, body).await
    }

    /// Applies as this manager; `path` may have parameters.
    async fn apply(&mut self, path: &str, manager: &str, code: u16, body: Value) -> Value {
        let and = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{and}fieldManager={manager}");
        self.patch(&path, code, APPLY, body).await
    }

    async fn delete(&mut self, path: &str, code: u16, options: Value) -> Value {
        self.send(
            Sent::with_body(Method::DELETE, path, "application/json", options),
            code,
        )
        .await
    }

    async fn send(&mut self, request: Sent<'_>, expected: u16) -> Value {
        let Sent {
            user,
            method,
            path,
            content_type,
            body,
        } = &request;
        let line = format!("{method} {path} {content_type} {body} {user}");
        let (code, text) = self.exchange(&request).await;
        let answer = if path.contains("watch=true") && code == 200 {
            let events = text.lines().map(serde_json::from_str);
            Value::Array(events.filter_map(Result::ok).collect())
        } else {
            serde_json::from_str(&text).unwrap_or_else(|_| json!(text.trim()))
        };
        let normal = self.normal.of(&answer);
        self.exchanges.push(Exchange {
            request: line,
            expected,
            code,
            answer: normal,
        });
        answer
    }

    async fn exchange(&self, sent: &Sent<'_>) -> (u16, String) {
        let mut request = Request::builder()
            .method(&sent.method)
            .uri(sent.path)
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

    /// Waits until an object has this code; then it is asked for once more, for the record.
    async fn until(&mut self, path: &str, code: u16) -> Value {
        for _ in 0..600 {
            let (found, _) = self.exchange(&Sent::get(path)).await;
            if found == code {
                break;
            }
            self.peer.settle().await;
        }
        self.get(path, code).await
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
