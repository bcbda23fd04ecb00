//! The authentication and authorization of an aggregated API server.
//!
//! ```text
//! certificate of the front proxy? ──► user of the X-Remote-* headers ─┐
//! certificate of a user?          ──► its CN and O                    ├──► SubjectAccessReview ──► handler
//! bearer token?                   ──► TokenReview ────────────────────┘
//! none: 401                             not allowed: 403, not known: 503
//! ```
//!
//! The aggregator of the API server says in headers whose request it passes on. They count only on a connection with a
//! certificate that an authority for this has signed, and with a common name that may; on every other connection they
//! are ignored. No handler sees them: it finds the user as [`User`] in the extensions of the request.

mod attributes;
mod certificates;
mod headers;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use rustls::pki_types::UnixTime;
use tokio::sync::watch;

use self::{attributes::attributes, certificates::Verifiers};
use super::failure::Failure;
use foretide_api::ports::{Access, AccessReviewer, ClientAuthorities, ResourceAccess, User};
use foretide_base::clock::Clock;
use foretide_base::http::{Digest, PeerCertificates, Reviews, Unreviewed, bearer};

/// Number of reviews of tokens in flight. A request with an unknown token gets 429 beyond them: anyone can send such
/// requests, and they must not wait.
const TOKEN_REVIEWS_MAX: usize = 8;
/// Number of reviews of requests in flight.
const ACCESS_REVIEWS_MAX: usize = 32;
/// Number of results of each kind that are kept.
const RESULTS_MAX: usize = 4096;
/// The longest path in bytes: the group, namespace, resource, object and metric of a path have at most 253 characters each,
/// which are three bytes each where they are percent-encoded.
const PATH_MAX: usize = 4096;
/// The group that may do everything, without a review, as on every API server.
const MASTERS: &str = "system:masters";
/// The group of every user that is known.
const AUTHENTICATED: &str = "system:authenticated";
/// The user of unauthenticated requests, as the aggregator passes them on.
const ANONYMOUS: &str = "system:anonymous";
/// The group of unauthenticated requests.
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The check of the identity and the rights behind a request.
#[derive(Debug)]
pub struct AccessControl<R> {
    reviewer: R,
    authorities: watch::Receiver<Option<Arc<ClientAuthorities>>>,
    /// The last authorities with the verifiers made from them.
    verifiers: Mutex<Option<(Arc<ClientAuthorities>, Arc<Verifiers>)>>,
    clock: Clock,
    users: Reviews<Option<User>>,
    allowed: Reviews<bool>,
}

/// A router whose handlers see only requests of users who may send them, with the [`User`] in the extensions. Other
/// requests are answered with 401, 403, 429 or 503, as `Status` objects.
pub fn protect<R: AccessReviewer>(router: Router, control: Arc<AccessControl<R>>) -> Router {
    router.layer(from_fn_with_state(control, check::<R>))
}

async fn check<R: AccessReviewer>(
    State(control): State<Arc<AccessControl<R>>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    match control.admit(&mut parts).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(failure) => failure.into_response(),
    }
}

// === impl AccessControl ===

impl<R: AccessReviewer> AccessControl<R> {
    /// Returns a check by this reviewer for clients whose certificates these authorities have signed; while there are
    /// none, no request is answered.
    pub fn new(
        reviewer: R,
        authorities: watch::Receiver<Option<Arc<ClientAuthorities>>>,
        clock: Clock,
    ) -> Self {
        Self {
            reviewer,
            authorities,
            verifiers: Mutex::default(),
            users: Reviews::new("token", clock.clone(), RESULTS_MAX, TOKEN_REVIEWS_MAX)
                .without_queue(),
            allowed: Reviews::new("request", clock.clone(), RESULTS_MAX, ACCESS_REVIEWS_MAX),
            clock,
        }
    }

    /// Checks a request, adds the user to it, and removes the headers that name a user.
    async fn admit(&self, request: &mut Parts) -> Result<(), Failure> {
        let path = request.uri.path();
        if path.len() > PATH_MAX {
            return Err(Failure::bad_request(format!(
                "expected a path of at most {PATH_MAX} bytes"
            )));
        }
        let access = attributes(&request.method, path).ok_or_else(|| {
            Failure::bad_request(
                "expected a path without empty names, '.', '..' and encoded slashes",
            )
        })?;
        let user = self.authenticate(request).await?;
        self.authorize(&user, &access).await?;
        request.extensions.insert(user);
        Ok(())
    }

    async fn authenticate(&self, request: &mut Parts) -> Result<User, Failure> {
        let verifiers = self.verifiers().ok_or_else(|| {
            Failure::unavailable(
                "the certificate authorities of clients are not known yet; the log of the adapter says why",
            )
        })?;
        let peer = request.extensions.get::<PeerCertificates>().cloned();
        let now = self.now();
        let of_certificate = peer.and_then(|peer| verifiers.identify(&peer, &request.headers, now));
        verifiers.remove_headers(&mut request.headers);
        headers::remove_standard(&mut request.headers);
        let user = match of_certificate {
            Some(user) => user,
            None => self.of_token(request).await?,
        };
        request.headers.remove(header::AUTHORIZATION);
        Ok(with_group(user))
    }

    async fn of_token(&self, request: &Parts) -> Result<User, Failure> {
        let unauthorized = || {
            Failure::new(
                StatusCode::UNAUTHORIZED,
                "Unauthorized: expected a request through the API server, a client certificate of this cluster or a \
                 bearer token that its API server accepts",
            )
        };
        let token = bearer(&request.headers).ok_or_else(unauthorized)?;
        let review = self.reviewer.user(&token);
        match self.users.get(Digest::of(token.expose()), review).await {
            Ok(Some(user)) => Ok(user),
            Ok(None) => Err(unauthorized()),
            Err(why) => Err(unreviewed("the token", why)),
        }
    }

    async fn authorize(&self, user: &User, access: &Access) -> Result<(), Failure> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        // The text of `Debug` is escaped, so different values have different texts.
        let about = Digest::of(&format!("{user:?} {access:?}"));
        let review = self.reviewer.is_allowed(user, access);
        match self.allowed.get(about, review).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::new(StatusCode::FORBIDDEN, forbidden(user, access))),
            Err(why) => Err(unreviewed("the request", why)),
        }
    }

    /// Verifiers of certificates by the newest authorities.
    fn verifiers(&self) -> Option<Arc<Verifiers>> {
        let newest = self.authorities.borrow().clone()?;
        let mut last = self.verifiers.lock();
        match &*last {
            Some((authorities, verifiers)) if Arc::ptr_eq(authorities, &newest) => {
                Some(Arc::clone(verifiers))
            }
            _ => {
                let verifiers = Arc::new(Verifiers::new(&newest));
                *last = Some((newest, Arc::clone(&verifiers)));
                Some(verifiers)
            }
        }
    }

    fn now(&self) -> UnixTime {
        let seconds = u64::try_from(self.clock.now().as_second()).unwrap_or_default();
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
    }
}

/// A user with the group of every user that is known, as an API server adds it.
fn with_group(mut user: User) -> User {
    let has_group = user
        .groups
        .iter()
        .any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if user.name != ANONYMOUS && !has_group {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

fn unreviewed(what: &str, why: Unreviewed) -> Failure {
    match why {
        Unreviewed::Busy => Failure::too_many(),
        Unreviewed::Failed => Failure::unavailable(format!(
            "the API server did not review {what}; the log of the adapter says why"
        )),
    }
}

/// Message of a forbidden request in the words of the API server.
fn forbidden(user: &User, access: &Access) -> String {
    let name = &user.name;
    match access {
        Access::Path { verb, path } => {
            format!("forbidden: User {name:?} cannot {verb} path {path:?}")
        }
        Access::Resource(access) => {
            let ResourceAccess {
                verb,
                group,
                namespace,
                resource,
                subresource,
                name: object,
                ..
            } = access;
            let resource = match subresource.as_str() {
                "" => resource.clone(),
                subresource => format!("{resource}/{subresource}"),
            };
            let scope = match namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            format!(
                "{resource}.{group} {object:?} is forbidden: User {name:?} cannot {verb} resource {resource:?} in API \
                 group {group:?} {scope}"
            )
        }
    }
}
