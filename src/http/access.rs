//! Who may read `/metrics`: users whose token a review allows.
//!
//! Requests with the same token share one review, and its verdict is used for some seconds. A review that fails or takes
//! too long is no verdict: the response is 503, and the next request is reviewed again.

#[cfg(test)]
mod tests;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use ring::digest::{SHA256, digest};
use tokio::{
    sync::{Mutex, Semaphore},
    time::timeout,
};

use crate::{
    clock::{Clock, Monotonic},
    error::chain,
    ports::{AccessReviewer, BearerToken, Verdict},
    shared_map::SharedMap,
};

/// How long a verdict is used: several scrapers of one token, and repeated requests with a wrong one, cost one review.
const VERDICT_LASTS: Duration = Duration::from_secs(10);
/// How long a request waits for a review: less than the default `scrape_timeout` of Prometheus, 10 s.
const REVIEW_DEADLINE: Duration = Duration::from_secs(5);
/// How many reviews are in flight. Each is two requests to the API server, which take milliseconds.
const REVIEWS_MAX: usize = 4;
/// How many verdicts are kept: any client that reaches the port chooses tokens.
const VERDICTS_MAX: usize = 256;

/// SHA-256 of a token, so that no token is kept.
type TokenHash = [u8; 32];

/// Which requests for `/metrics` are answered.
pub struct MetricsAccess<R> {
    reviewer: R,
    clock: Clock,
    verdicts: SharedMap<TokenHash, CachedVerdict>,
    slots: Semaphore,
    /// Whether the last review failed, so that a row of failures is logged once.
    fails: AtomicBool,
}

/// The last verdict about one token. It is locked while it is being reviewed.
#[derive(Debug, Default)]
struct CachedVerdict(Mutex<Option<(Monotonic, Verdict)>>);

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Denied {
    /// It has no token, or one that is not valid for any user.
    Unauthorized,
    /// The user of its token may not read the metrics.
    Forbidden { user: String },
    /// It is not known whether it is allowed.
    Unknown,
}

// === impl MetricsAccess ===

impl<R> std::fmt::Debug for MetricsAccess<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricsAccess").finish_non_exhaustive()
    }
}

impl<R: AccessReviewer> MetricsAccess<R> {
    /// Access as this reviewer decides.
    #[must_use]
    pub fn new(reviewer: R, clock: Clock) -> Self {
        Self {
            reviewer,
            clock,
            verdicts: SharedMap::new(VERDICTS_MAX),
            slots: Semaphore::new(REVIEWS_MAX),
            fails: AtomicBool::new(false),
        }
    }

    /// Checks the token of a request, within [`REVIEW_DEADLINE`].
    pub(super) async fn check(&self, headers: &HeaderMap) -> Result<(), Denied> {
        let token = bearer(headers).ok_or(Denied::Unauthorized)?;
        let verdict = timeout(REVIEW_DEADLINE, self.verdict(&token)).await;
        match verdict.unwrap_or_else(|_| self.unknown("no verdict in time")) {
            Some(Verdict::Allowed) => Ok(()),
            Some(Verdict::Forbidden { user }) => Err(Denied::Forbidden { user }),
            Some(Verdict::Unauthenticated) => Err(Denied::Unauthorized),
            None => Err(Denied::Unknown),
        }
    }

    /// The verdict about a token; none if the review fails.
    async fn verdict(&self, token: &BearerToken) -> Option<Verdict> {
        let cached = self
            .verdicts
            .get_or_insert_with(hash(token), CachedVerdict::default);
        let mut last = cached.0.lock().await;
        if let Some((at, verdict)) = &*last
            && self.clock.monotonic().since(*at) < VERDICT_LASTS
        {
            return Some(verdict.clone());
        }
        let _slot = self.slots.acquire().await.ok()?;
        match self.reviewer.review(token).await {
            Ok(verdict) => {
                self.fails.store(false, Ordering::Relaxed);
                *last = Some((self.clock.monotonic(), verdict.clone()));
                Some(verdict)
            }
            Err(error) => self.unknown(&chain(&error)),
        }
    }

    /// Logs why there is no verdict: the first time as a warning, because any client that reaches the port can repeat it.
    #[expect(
        clippy::cognitive_complexity,
        reason = "the branches are those of the log macros"
    )]
    fn unknown(&self, error: &str) -> Option<Verdict> {
        if self.fails.swap(true, Ordering::Relaxed) {
            tracing::debug!(error, "request for /metrics not reviewed");
        } else {
            tracing::warn!(
                error,
                "request for /metrics not reviewed; further failures are logged at level debug until a review succeeds"
            );
        }
        None
    }
}

/// The token of a request with exactly one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<BearerToken> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    BearerToken::of_header(value.to_str().ok()?)
}

fn hash(token: &BearerToken) -> TokenHash {
    let digest = digest(&SHA256, token.expose().as_bytes());
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest.as_ref());
    hash
}

// === impl Denied ===

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        match self {
            Self::Unauthorized => {
                let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
                let text = "expected a bearer token that the API server of this cluster accepts\n";
                (StatusCode::UNAUTHORIZED, scheme, text).into_response()
            }
            Self::Forbidden { user } => {
                let text = format!(
                    "user {user:?} cannot get path /metrics; bind the ClusterRole foretide-metrics-reader to it\n"
                );
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Self::Unknown => {
                let text =
                    "the API server did not review the token; the log of the controller says why\n";
                (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
            }
        }
    }
}
