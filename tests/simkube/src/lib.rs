//! A model of the Kubernetes API server in memory and in virtual time, for tests. It knows Kubernetes, and nothing of
//! Foretide.
//!
//! ```text
//! Network ── link, faults ──► SimKube::answer ──► request ──► rights ──► serve, watch ──► store
//!                    ▲                                                     │ kinds, patch, owners
//! host: processes on hosts in one virtual time                       audit: who asked for what
//! world: the controllers of workloads, the scheduler, kubelets, metrics
//! ```
//!
//! The time is given, chance comes only from a plan of faults, and only watches and links wait. So the same requests in
//! the same order have the same answers. The model is checked by [`contract`]: a script of requests whose answers
//! `tests/cluster` compares with those of a real API server.

mod audit;
pub mod client;
pub mod contract;
mod deletion;
pub mod faults;
pub mod host;
mod kinds;
#[cfg(test)]
mod laws;
pub mod network;
mod owners;
mod patch;
mod request;
mod rights;
mod serve;
mod status;
mod store;
mod target;
mod watch;
pub mod world;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Notify, futures::Notified};

use audit::Client;
pub use audit::Entry;
use request::{Call, User};
pub use rights::Access;
use serve::State;
use status::Status;
use target::Target;
use watch::{Disturbance, Watch, first_bookmark, line, present};

/// The time that a server goes by.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;
/// Server of an aggregated API.
pub type Backend =
    Arc<dyn Fn(Request<Vec<u8>>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Duration of a watch without a timeout.
const WATCH: Duration = Duration::from_mins(30);

/// An API server. Clones are the same server.
#[derive(Clone)]
pub struct SimKube(Arc<Server>);

struct Server {
    state: Mutex<State>,
    moved: Notify,
    now: Now,
    /// User names, by token.
    tokens: Mutex<BTreeMap<String, String>>,
    /// Backends by group and version, such as `metrics.k8s.io/v1beta1`.
    aggregated: Mutex<BTreeMap<String, Backend>>,
}

impl fmt::Debug for SimKube {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimKube").finish_non_exhaustive()
    }
}

impl SimKube {
    /// A server with the namespaces of a new cluster. Servers with different numbers have no UID in common.
    pub fn new(number: u32, now: Now) -> Self {
        Self(Arc::new(Server {
            state: Mutex::new(State::new(number, now())),
            moved: Notify::new(),
            now,
            tokens: Mutex::default(),
            aggregated: Mutex::default(),
        }))
    }

    /// Lets a token stand for a user, such as `system:serviceaccount:NAMESPACE:NAME`. Requests without a token are those
    /// of an administrator.
    pub fn add_token(&self, token: &str, user: &str) {
        lock(&self.0.tokens).insert(token.to_owned(), user.to_owned());
    }

    /// Lets `backend` answer an API such as `metrics.k8s.io/v1beta1`, as soon as an `APIService` registers it.
    pub fn aggregate(&self, api: &str, backend: Backend) {
        lock(&self.0.aggregated).insert(api.to_owned(), backend);
    }

    /// Ends all answers for aggregated APIs.
    pub(crate) fn end_aggregation(&self) {
        lock(&self.0.aggregated).clear();
    }

    /// Answers a request; the body of a watch ends with it.
    pub async fn answer(&self, request: Request<Vec<u8>>) -> Response<Body> {
        let call = Call::new(&request);
        let answered = match self.route(&request, &call) {
            Ok((_, Some(backend))) => return backend(request).await,
            Ok((user, None)) => self.answer_here(&request, &call, &user),
            Err(status) => Err(status),
        };
        let (code, body) =
            answered.unwrap_or_else(|status| (status.code, json_body(&status.object())));
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        let mut header = |name, value: String| {
            if let Ok(value) = value.parse() {
                response.headers_mut().insert(name, value);
            }
        };
        header(header::CONTENT_TYPE, "application/json".to_owned());
        let date = jiff::fmt::rfc2822::DateTimePrinter::new();
        header(
            header::DATE,
            date.timestamp_to_rfc9110_string(&(self.0.now)())
                .unwrap_or_default(),
        );
        response
    }

    /// Deletes objects without an owner or namespace, as the controller manager does from time to time.
    pub fn collect_garbage(&self) {
        let now = (self.0.now)();
        while self.state().collect_garbage(now) {}
        self.0.moved.notify_waiters();
    }

    /// Limits the pages of lists to this many objects from now on.
    pub fn limit_pages(&self, objects: u64) {
        self.state().page_max = objects;
    }

    /// Forgets the history: watches and pages from before expire.
    pub fn compact(&self) {
        let mut state = self.state();
        let now = state.store.revision();
        state.store.compact(now);
        drop(state);
        self.0.moved.notify_waiters();
    }

    /// Keeps the present state of all objects for [`Self::restore`].
    pub fn back_up(&self) {
        self.state().store.back_up();
    }

    /// Goes on from the last backup at its revision; returns whether there is one. Clients have to connect again.
    pub fn restore(&self) -> bool {
        self.state().store.restore()
    }

    /// Sends a request of a controller of the cluster itself, which may do everything: code and object. A patch is a
    /// merge patch; a null body is none.
    pub fn ask(&self, controller: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("user-agent", controller);
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = request
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(body);
        let answered = request
            .map_err(|error| Status::bad_request(error.to_string()))
            .and_then(|request| {
                let call = Call::new(&request);
                let place = call.place.as_ref().ok_or_else(Status::no_such_page)?;
                let mut state = self.state();
                let target = state.target(place)?;
                let answer = state.answer(&call, &target, &User::admin(), (self.0.now)());
                let client = Client {
                    host: controller.to_owned(),
                    sent: None,
                };
                let sender = (&client, &User::admin());
                state.audit.record((self.0.now)(), sender, &call, &answer);
                answer
            });
        self.0.moved.notify_waiters();
        answered.unwrap_or_else(|status| (status.code, status.object()))
    }

    /// Sends a request of an administrator as [`Self::ask`] does; returns the object.
    ///
    /// # Panics
    /// The request fails.
    pub fn must(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, answer) = self.ask("kubectl", method, path, body);
        assert!(code < 300, "{method} {path}: {answer}");
        answer
    }

    /// Merges a change into an object of a collection such as `deployments.apps`, as `kubectl` does for an
    /// administrator; `name` may end in a subresource, as in `web/scale`.
    ///
    /// # Panics
    /// The request fails.
    pub fn patch(&self, collection: &str, namespace: &str, name: &str, change: &Value) {
        self.must("PATCH", &self.path(collection, namespace, name), change);
    }

    /// Deletes an object of a collection, as `kubectl` does for an administrator.
    ///
    /// # Panics
    /// The request fails.
    pub fn delete(&self, collection: &str, namespace: &str, name: &str) {
        self.must(
            "DELETE",
            &self.path(collection, namespace, name),
            &Value::Null,
        );
    }

    /// The path of an object; that of no page for a collection that is not served.
    fn path(&self, collection: &str, namespace: &str, name: &str) -> String {
        let kind = self.state().kinds.of(collection);
        kind.map_or_else(String::new, |kind| {
            format!("{}/{name}", kind.path(namespace))
        })
    }

    /// Creates an object of any kind that is served, as `kubectl` does for an administrator; returns it as stored.
    ///
    /// # Panics
    /// It is not created.
    pub fn create(&self, object: &Value) -> Value {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, name) = (text(&object["apiVersion"]), text(&object["kind"]));
        let kind = self.state().kinds.named(&api_version, &name);
        let namespace = text(&object["metadata"]["namespace"]);
        let path = kind.map(|kind| kind.path(&namespace));
        self.must("POST", &path.unwrap_or_default(), object)
    }

    /// Returns all requests until now, without watches and aggregated APIs.
    pub fn audit(&self) -> Vec<Entry> {
        self.audit_since(0)
    }

    /// Returns the requests after the first `asked` ones.
    pub fn audit_since(&self, asked: usize) -> Vec<Entry> {
        self.state().audit.since(asked).to_vec()
    }

    /// The objects of a collection such as `deployments.apps`, without a request.
    pub fn objects(&self, collection: &str) -> Vec<Arc<Value>> {
        self.state()
            .store
            .all(collection)
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Returns the users and accesses that RBAC has forbidden until now.
    pub fn forbidden(&self) -> Vec<(String, Access)> {
        self.state().forbidden.clone()
    }

    /// Returns the time of the server.
    pub(crate) fn now(&self) -> Timestamp {
        (self.0.now)()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// The next change of any object.
    fn moved(&self) -> Notified<'_> {
        self.0.moved.notified()
    }

    /// Returns the user of a request, and the backend if it is for an aggregated API.
    fn route(
        &self,
        request: &Request<Vec<u8>>,
        call: &Call,
    ) -> Result<(User, Option<Backend>), Status> {
        let user = self.user(request)?;
        let mut state = self.state();
        let Some(api) = state.aggregated_api(&call.path) else {
            return Ok((user, None));
        };
        if let Some(place) = &call.place {
            state.authorize(&user, Access::new(call.verb(), place, &place.name))?;
        }
        let backend = lock(&self.0.aggregated).get(&api).cloned();
        let unavailable = || Status::new(503, "ServiceUnavailable", "service unavailable");
        Ok((user, Some(backend.ok_or_else(unavailable)?)))
    }

    fn user(&self, request: &Request<Vec<u8>>) -> Result<User, Status> {
        let header = |name: &str| {
            request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        if let Some(name) = header("impersonate-user") {
            return Ok(User::named(name));
        }
        let Some(token) = header("authorization").and_then(|value| value.strip_prefix("Bearer "))
        else {
            return Ok(User::admin());
        };
        let tokens = lock(&self.0.tokens);
        let user = tokens.get(token).map(|name| User::named(name));
        user.ok_or_else(|| Status::new(401, "Unauthorized", "Unauthorized"))
    }

    fn answer_here(
        &self,
        request: &Request<Vec<u8>>,
        call: &Call,
        user: &User,
    ) -> Result<(u16, Body), Status> {
        let Some(place) = &call.place else {
            return self.document(&call.path);
        };
        let mut state = self.state();
        let selected = if place.name.is_empty() {
            call.selection()?.name().to_owned()
        } else {
            place.name.clone()
        };
        state.authorize(user, Access::new(call.verb(), place, &selected))?;
        let target = state.target(place)?;
        if call.verb() == "watch" {
            drop(state);
            let disturbance = request.extensions().get::<Disturbance>().copied();
            return Ok((
                200,
                self.watch(call, &target, disturbance.unwrap_or_default())?,
            ));
        }
        if call.path == "/apis/authentication.k8s.io/v1/tokenreviews" {
            return Ok((201, json_body(&self.review_token(call.body()?))));
        }
        let client = request
            .extensions()
            .get::<Client>()
            .cloned()
            .unwrap_or_default();
        let answer = state.answer(call, &target, user, (self.0.now)());
        let sender = (&client, user);
        state.audit.record((self.0.now)(), sender, call, &answer);
        drop(state);
        self.0.moved.notify_waiters();
        answer.map(|(code, object)| (code, json_body(&object)))
    }

    /// Answers a path that is no resource.
    fn document(&self, path: &str) -> Result<(u16, Body), Status> {
        match path {
            "/readyz" | "/livez" | "/healthz" => return Ok((200, Body::from("ok"))),
            "/version" => {
                let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"});
                return Ok((200, json_body(&version)));
            }
            _ => {}
        }
        let state = self.state();
        if let Some(document) = state.kinds.discovery(path, &state.aggregated()) {
            return Ok((200, json_body(&document)));
        }
        let mut parts = path.split('/').skip(1);
        let group = parts
            .next()
            .filter(|root| *root == "apis")
            .and(parts.next());
        Err(match group {
            Some(group) if state.kinds.has_group(group) => Status::no_such_path(),
            _ => Status::no_such_page(),
        })
    }

    fn watch(
        &self,
        call: &Call,
        target: &Target<'_>,
        disturbance: Disturbance,
    ) -> Result<Body, Status> {
        let state = self.state();
        let (selection, asked) = (
            call.selection()?,
            call.number("resourceVersion")?.unwrap_or_default(),
        );
        let prefix = target.place.prefix();
        let mut first = Vec::new();
        if asked == 0 {
            let all = state.store.all(&target.kind.collection());
            let selected =
                all.filter(|(key, object)| key.starts_with(&prefix) && selection.matches(object));
            first.extend(selected.map(|(_, object)| Arc::clone(object)));
        } else if let Err(expired) = state.store.since(asked) {
            let status = Status::expired(asked, expired.oldest);
            return Ok(Body::from(line("ERROR", &status.object())));
        }
        let asked_time = call
            .number("timeoutSeconds")?
            .map_or(WATCH, Duration::from_secs);
        let end = present() + disturbance.ends_after.unwrap_or(asked_time).min(asked_time);
        let bookmarks = call.is("allowWatchBookmarks");
        let watch = Watch {
            server: self.clone(),
            kind: Arc::clone(&target.kind),
            prefix,
            selection,
            at: if asked == 0 {
                state.store.revision()
            } else {
                asked
            },
            first,
            end,
            next_bookmark: bookmarks.then(first_bookmark),
            lag: disturbance.lag,
        };
        Ok(Body::from_stream(watch.lines()))
    }

    fn review_token(&self, mut review: Value) -> Value {
        let tokens = lock(&self.0.tokens);
        let user = review["spec"]["token"]
            .as_str()
            .and_then(|token| tokens.get(token));
        if let Some(fields) = review.as_object_mut() {
            let status = user.map(|name| User::named(name)).map(|user| {
                json!({"authenticated": true, "user": {"username": user.name, "groups": user.groups}})
            });
            fields.insert(
                "status".to_owned(),
                status.unwrap_or_else(|| json!({"authenticated": false})),
            );
        }
        review
    }
}

impl State {
    /// The APIs that other servers answer, as `group/version`.
    fn aggregated(&self) -> Vec<String> {
        let registrations = self.store.all("apiservices.apiregistration.k8s.io");
        let apis = registrations.filter(|(_, service)| service["spec"]["service"].is_object());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        apis.map(|(_, service)| {
            format!(
                "{}/{}",
                text(&service["spec"]["group"]),
                text(&service["spec"]["version"])
            )
        })
        .collect()
    }

    /// The aggregated API that a path belongs to.
    fn aggregated_api(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix("/apis/")?;
        let is_of = |api: &String| {
            let after = rest.strip_prefix(&**api);
            after.is_some_and(|after| after.is_empty() || after.starts_with('/'))
        };
        self.aggregated().into_iter().find(is_of)
    }
}

fn json_body(object: &Value) -> Body {
    Body::from(object.as_str().map_or_else(|| text(object), str::to_owned))
}

/// Serializes a value like `to_string`, at half the cost: most answers are objects.
fn text(object: &Value) -> String {
    // Serializing a JSON value never fails.
    serde_json::to_string(object).unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
