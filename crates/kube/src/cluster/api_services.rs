//! The `APIService`s by which the API server reaches our adapter.
//!
//! There is one `APIService` for each version of an API group in the whole cluster, so two adapters that serve the same
//! one would take it from each other. Here only `spec.caBundle` is written, only where `spec.service` is our own
//! service, and only at the version that was seen. Creating an `APIService` is left to the manifests.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use jiff::SignedDuration;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Connection, WriteGate};
use crate::api_server::{About as _, Body, CallError, Calls, Limits, Resource, segment};
use foretide_api::ports::ClusterError;
use foretide_base::{clock::Clock, error::chain};

/// Pause before a registration that cannot be read is read again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);
/// Labels and annotations that tell who installed an object, in the order of their usefulness.
const OWNER_HINTS: [&str; 4] = [
    "meta.helm.sh/release-name",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/name",
    "app.kubernetes.io/managed-by",
];

/// The `APIService`s of the group versions that an adapter serves.
#[derive(Debug)]
pub struct ApiServices {
    calls: Calls,
    service: ServiceName,
    names: Vec<String>,
    /// True if [`ApiServices::check`] has succeeded.
    is_checked: AtomicBool,
    /// The problem of each `APIService` that was logged last, so that a row of the same is logged once.
    reported: Mutex<BTreeMap<String, String>>,
}

/// Namespace and name of a service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, derive_more::Display)]
#[display("{namespace}/{name}")]
pub struct ServiceName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Reasons why an adapter must not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// Another adapter serves a group version.
    #[error(
        "APIService {name} is registered for {owner}, expected service {expected}: another adapter serves this API, and \
         Foretide does not take it over; either leave it to that adapter and exclude it from what Foretide serves, or \
         point spec.service of the APIService to service {expected} and name the other adapter as the one that requests \
         for its metrics are passed to"
    )]
    Foreign {
        /// Name of the `APIService`.
        name: String,
        /// The target of the registration, and what is known of its owner.
        owner: String,
        /// Our service.
        expected: ServiceName,
    },
}

/// The registrations as they were read at one time.
#[derive(Debug, Default)]
pub struct Observed {
    /// The registrations of our service.
    ours: Vec<Registration>,
    /// True if a registration could not be read.
    is_partial: bool,
}

/// One `APIService`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Registration {
    name: String,
    version: String,
    ca_bundle: Option<String>,
}

/// State of one `APIService`.
enum Found {
    Ours(Registration),
    /// Registered for another target, which the text names.
    Foreign(String),
    Absent,
}

#[derive(Deserialize)]
struct ApiServiceObject {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    service: Option<ServiceName>,
    ca_bundle: Option<String>,
}

// === impl ApiServices ===

impl ApiServices {
    /// The `APIService`s of these names (`v1beta1.external.metrics.k8s.io`), which our service answers.
    pub fn new(connection: &Connection, service: ServiceName, names: Vec<String>) -> Self {
        Self {
            // The gate is open: an adapter takes part in no election, and each write has the version that was seen.
            calls: connection.calls_within(Limits::default(), WriteGate::default()),
            service,
            names,
            is_checked: AtomicBool::new(false),
            reported: Mutex::default(),
        }
    }

    /// Waits until it is known that no other adapter serves one of the group versions. One without an `APIService` is
    /// served by nobody.
    ///
    /// # Errors
    /// [`RegistrationError::Foreign`] when another adapter does.
    pub async fn check(&self, clock: &Clock) -> Result<(), RegistrationError> {
        for name in &self.names {
            loop {
                match self.find(name).await {
                    Ok(Found::Foreign(owner)) => {
                        return Err(RegistrationError::Foreign {
                            name: name.clone(),
                            owner,
                            expected: self.service.clone(),
                        });
                    }
                    Ok(Found::Ours(_) | Found::Absent) => break,
                    Err(error) => self.unreadable(name, &error),
                }
                clock.sleep(RETRY).await;
            }
        }
        self.is_checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The reading that [`ApiServices::check`] waits for, in words; none once it has succeeded.
    pub fn awaited(&self) -> Option<String> {
        if self.is_checked.load(Ordering::Relaxed) {
            return None;
        }
        let problem = match self.reported.lock().values().next() {
            Some(problem) => format!("; the last problem: {problem}"),
            None => String::new(),
        };
        let names = self.names.join(", ");
        Some(format!("waiting to read the APIServices {names}{problem}"))
    }

    /// The registrations of our service as they are now.
    pub async fn observe(&self) -> Observed {
        let mut observed = Observed::default();
        for name in &self.names {
            match self.find(name).await {
                Ok(Found::Ours(registration)) => observed.ours.push(registration),
                Ok(Found::Foreign(owner)) => self.warn(
                    name,
                    &format!(
                        "it is registered for {owner}, expected service {}; it is left alone, and requests for its \
                         metrics do not reach this adapter",
                        self.service
                    ),
                ),
                Ok(Found::Absent) => self.warn(
                    name,
                    "it does not exist; apply the manifests of the adapter, or install the chart with it",
                ),
                Err(error) => {
                    observed.is_partial = true;
                    self.unreadable(name, &error);
                }
            }
        }
        observed
    }

    /// Writes a bundle of authorities (PEM) into the registrations that have another one; returns whether all have it
    /// now.
    ///
    /// # Guarantees
    /// Nothing is written to a registration that was modified since it was observed. So a bundle that was read after
    /// the observation never replaces a newer one.
    pub async fn publish(&self, observed: &Observed, bundle: &str) -> bool {
        let encoded = STANDARD.encode(bundle);
        let mut is_complete = !observed.is_partial;
        for registration in &observed.ours {
            if registration.ca_bundle.as_deref() == Some(&encoded) {
                // Its last problem is over. If the same one occurs again, it is logged again.
                self.reported.lock().remove(&registration.name);
                continue;
            }
            is_complete &= self.replace(registration, &encoded).await;
        }
        is_complete
    }

    /// Replaces the bundle of one registration; returns true if it was replaced.
    async fn replace(&self, registration: &Registration, bundle: &str) -> bool {
        let name = &registration.name;
        let written = self.write(registration, bundle).await;
        match &written {
            Ok(()) => {
                self.reported.lock().remove(name);
                tracing::info!(name, "caBundle of the APIService updated");
            }
            // Conflicts with the API server, which writes the conditions; this is tried again at once.
            Err(ClusterError::Conflict { .. }) => {}
            Err(error) => {
                let error = chain(error);
                self.warn(name, &format!("caBundle not updated, will retry: {error}"));
            }
        }
        written.is_ok()
    }

    async fn find(&self, name: &str) -> Result<Found, ClusterError> {
        let read = async { self.calls.read(&path(name)?).await };
        let object: ApiServiceObject = match read.await {
            Ok(object) => object,
            Err(error) if error.is_status(404) => return Ok(Found::Absent),
            Err(error) => return Err(error.about(format_args!("APIService {name}"))),
        };
        Ok(object.of(name, &self.service))
    }

    async fn write(&self, to: &Registration, bundle: &str) -> Result<(), ClusterError> {
        // With the version that was seen, which makes it conditional.
        let patch = json!({
            "metadata": {"resourceVersion": to.version},
            "spec": {"caBundle": bundle},
        });
        let writing = async {
            let body = Body::merge_patch(&patch);
            let url = path(&to.name)?;
            self.calls.write::<Value>(Method::PATCH, &url, body).await
        };
        let what = format!("APIService {}", to.name);
        writing.await.map(drop).about(what)
    }

    fn unreadable(&self, name: &str, error: &ClusterError) {
        self.warn(name, &format!("not read, will retry: {}", chain(error)));
    }

    /// Logs a problem, once until another one takes its place.
    fn warn(&self, name: &str, problem: &str) {
        let last = self
            .reported
            .lock()
            .insert(name.to_owned(), problem.to_owned());
        if last.is_none_or(|last| last != problem) {
            tracing::warn!(name, "APIService: {problem}");
        }
    }
}

fn path(name: &str) -> Result<String, CallError> {
    let collection = Resource::API_SERVICE.collection(None)?;
    Ok(format!("{collection}/{}", segment(name)?))
}

// === impl Observed ===

impl Observed {
    /// True if every registration of our service was read and has this authority (PEM) in its bundle.
    pub fn has_everywhere(&self, authority: &str) -> bool {
        !self.is_partial && self.ours.iter().all(|it| it.has(authority))
    }
}

// === impl Registration ===

impl Registration {
    /// True if this authority (PEM) is in the bundle.
    fn has(&self, authority: &str) -> bool {
        let Some(Ok(bundle)) = self.ca_bundle.as_ref().map(|it| STANDARD.decode(it)) else {
            return false;
        };
        String::from_utf8(bundle).is_ok_and(|bundle| bundle.contains(authority.trim()))
    }
}

// === impl ApiServiceObject ===

impl ApiServiceObject {
    fn of(self, name: &str, service: &ServiceName) -> Found {
        let Self { metadata, spec } = self;
        match spec.service {
            Some(registered) if registered == *service => Found::Ours(Registration {
                name: name.to_owned(),
                version: metadata.resource_version,
                ca_bundle: spec.ca_bundle,
            }),
            Some(registered) => {
                Found::Foreign(format!("service {registered}{}", metadata.owner_hints()))
            }
            // Without a service the API server answers the group version itself.
            None => Found::Foreign("the API server itself".to_owned()),
        }
    }
}

// === impl Metadata ===

impl Metadata {
    /// Hints of the object at its installer, in parentheses.
    fn owner_hints(&self) -> String {
        let mut hints = Vec::new();
        for key in OWNER_HINTS {
            if let Some(value) = self.annotations.get(key).or(self.labels.get(key)) {
                hints.push(format!("{key}: {value}"));
            }
        }
        if hints.is_empty() {
            String::new()
        } else {
            format!(" ({})", hints.join(", "))
        }
    }
}

// === impl ServiceName ===
