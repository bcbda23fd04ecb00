//! The page: its assets, and the API that it reads, which is read-only.
//!
//! ```text
//! request -> guard (foreign pages, headers) -> admission (API: which namespaces) -> a route of the table -> page::Page
//! ```
//!
//! `proxy` is the same page, whose API the controller of a cluster answers.
//!
//! All paths are relative, so the page works below any base path. The assets need no token: they hold no data. What a
//! browser sends by itself opens nothing: there are no cookies, and where no token is asked for, which is on loopback
//! only, requests that another site causes are refused.

mod access;
mod answer;
mod assets;
mod guard;
mod lab;
mod openapi;
mod proxy;
mod routes;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::{access::Admission, answer::Unsent, stream::STREAMS};
pub use self::{
    access::PageAccess,
    openapi::document as openapi,
    proxy::{RemoteRequest, proxy},
};
use crate::{Page, ViewError, Visible};
use axum::{
    Json, Router,
    extract::{
        RawPathParams, Request, State,
        rejection::{PathRejection, QueryRejection, RawPathParamsRejection},
    },
    http::{HeaderValue, StatusCode, header},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
};
use foretide_api::ports::AccessReviewer;
use foretide_base::{
    clock::Clock,
    fair_slots::FairSlots,
    http::{Denied, Exhausted, PeerAddress, Quota},
    opaque::Opaque,
};
use serde::Serialize;

/// Number of views that are rendered at a time, one less for one reader. Each takes milliseconds of a core that syncs
/// need too.
const RENDERED_AT_A_TIME: usize = 2;

/// A page with the admission of its readers.
#[derive(Debug)]
pub struct PageSite {
    page: Arc<Page>,
    /// Absent where everyone who reaches the listener may read everything, which is then on loopback.
    admission: Option<Opaque<Box<dyn Admission>>>,
    lab: Option<Router>,
    rendering: FairSlots,
    unsent: Unsent,
    streams: Arc<Quota<Arc<str>>>,
}

/// The reader of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reader {
    /// The name of the user; absent where no token is asked for.
    name: Option<String>,
    visible: Visible,
    /// Number of namespaces for which the rights of the reader could not be reviewed.
    unreviewed: usize,
}

/// Reason for the refusal of a request, sent as `{"error": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    message: String,
}

/// The body of a refusal.
#[derive(Serialize, schemars::JsonSchema)]
struct ErrorBody {
    /// Expected request, and advice.
    error: String,
}

// === impl PageSite ===

impl PageSite {
    /// A page for everyone who reaches the listener, which must be on loopback.
    pub fn open(page: Arc<Page>, clock: &Clock) -> Self {
        Self {
            page,
            admission: None,
            lab: None,
            rendering: FairSlots::new(RENDERED_AT_A_TIME, clock.clone()),
            unsent: Unsent::new(clock.clone()),
            streams: Quota::new(STREAMS, clock.clone()),
        }
    }

    /// Returns the site for bearers of tokens whom `access` admits, on any listener.
    #[must_use]
    pub fn guarded<R: AccessReviewer>(self, access: PageAccess<R>) -> Self {
        Self {
            admission: Some(Opaque(Box::new(access))),
            ..self
        }
    }

    /// Returns the site with the routes of a Lab, which computes on the machine of the reader.
    #[must_use]
    pub fn with_lab(self, lab: Router) -> Self {
        Self {
            lab: Some(lab),
            ..self
        }
    }

    /// Returns the routes of the site.
    pub fn router(self) -> Router {
        let is_open = self.admission.is_none();
        let lab = self.lab.clone();
        let site = Arc::new(self);
        let mut api = Router::new();
        for route in openapi::table() {
            api = api.route(route.path, route.handler);
        }
        api = api.route_layer(from_fn_with_state(Arc::clone(&site), admit));
        complete(api.with_state(site), lab, is_open)
    }
}

/// A page whose API these routes answer: with its assets, its refusals and its headers.
fn complete(api: Router, lab: Option<Router>, is_open: bool) -> Router {
    let not_allowed = Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "the page is read-only: expected GET",
    );
    api.merge(assets::routes())
        .merge(lab.unwrap_or_default())
        .fallback(|| async { Refusal::not_found("there is nothing at this path") })
        .method_not_allowed_fallback(|| async { not_allowed })
        .layer(from_fn(move |request, next| {
            guard::guard(is_open, request, next)
        }))
}

/// Lets a request of the API pass with its reader.
async fn admit(
    State(site): State<Arc<PageSite>>,
    names: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let reader = match &site.admission {
        None => Reader::of_all(),
        Some(Opaque(admission)) => {
            let page = Arc::clone(&site.page);
            let mut parts = names.iter().flatten();
            let asked = parts.find_map(|(part, value)| (part == "namespace").then_some(value));
            let peer = PeerAddress::of(request.extensions());
            let namespaces = move || page.log.namespaces();
            admission
                .admit(peer, request.headers(), asked, &namespaces)
                .await?
        }
    };
    request.extensions_mut().insert(reader);
    let mut response = next.run(request).await;
    // Not cached, because the answer depends on the reader.
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}

// === impl Refusal ===

impl Refusal {
    /// A refusal with this status and message.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A refusal because there is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }
}

impl From<ViewError> for Refusal {
    fn from(error: ViewError) -> Self {
        let status = match error {
            ViewError::NotFound(_) => StatusCode::NOT_FOUND,
            ViewError::BadQuery(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

impl From<PathRejection> for Refusal {
    fn from(_: PathRejection) -> Self {
        Self::bad_request("expected a path in UTF-8")
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        let text = rejection.body_text();
        let cause = text.strip_prefix("Failed to deserialize query string: ");
        Self::bad_request(format!("invalid query: {}", cause.unwrap_or(&text)))
    }
}

impl From<Exhausted> for Refusal {
    fn from(exhausted: Exhausted) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, exhausted.to_string())
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unauthorized => Self::new(
                StatusCode::UNAUTHORIZED,
                "expected a bearer token that the API server of this cluster accepts; `foretide ui` sends yours",
            ),
            Denied::Forbidden { user } => Self::forbidden(format!(
                "user {user:?} cannot list effectivehorizontalpodautoscalers and federatedhpas in any namespace of \
                 which this process knows some, and a standby knows none; bind the ClusterRole ehpa-viewer, or view, to it"
            )),
            Denied::Unknown => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server did not review the token; the log of the controller says why",
            ),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, message } = self;
        let mut response = (status, Json(ErrorBody { error: message })).into_response();
        let more = match status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::TOO_MANY_REQUESTS => Some((header::RETRY_AFTER, "5")),
            _ => None,
        };
        if let Some((name, value)) = more {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
