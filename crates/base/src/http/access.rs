//! Access to `/metrics` for users whose token a review allows.
//!
//! Requests of one peer with the same token share one review, and its verdict is used for some seconds. A review that fails or takes
//! too long is no verdict: the response is 503, and the next request is reviewed again.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::reviews::{Digest, FairReviews, ReviewLimits};
use crate::clock::Clock;
use foretide_api::ports::{Access, AccessReviewer, BearerToken, ClusterError, User};

/// Limits of each peer. A review is two requests to the API server, which take milliseconds.
const REVIEWS: ReviewLimits = ReviewLimits {
    tenants: 32,
    results: 32,
    in_flight: 4,
};
/// The path that a user must be allowed to get.
const METRICS_PATH: &str = "/metrics";

/// The check of requests for `/metrics`.
#[derive(Debug)]
pub struct MetricsAccess<R> {
    reviewer: R,
    verdicts: FairReviews<Verdict>,
}

/// Result of the reviews of a token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Verdict {
    /// The token is of a user who may read the metrics.
    Allowed,
    /// The token is of this user, who may not.
    Forbidden {
        /// Name of the user.
        user: String,
    },
    /// The token is of no user.
    #[default]
    Unauthenticated,
}

/// Reason for the refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// The request has no token, or one that is not valid for any user.
    Unauthorized,
    /// The user of its token may not read the metrics.
    Forbidden {
        /// Name of the user.
        user: String,
    },
    /// The reviews have no result.
    Unknown,
}

// === impl MetricsAccess ===

impl<R: AccessReviewer> MetricsAccess<R> {
    /// Returns the access that this reviewer grants.
    pub fn new(reviewer: R, clock: Clock) -> Self {
        Self {
            reviewer,
            verdicts: FairReviews::new("request for /metrics", clock, REVIEWS),
        }
    }

    /// Checks the token of a request.
    ///
    /// # Errors
    /// The request has no valid token, its user may not read the metrics, or the API server does not say.
    pub async fn check(&self, peer: IpAddr, headers: &HeaderMap) -> Result<(), Denied> {
        let token = bearer(headers).ok_or(Denied::Unauthorized)?;
        let (peer, about) = (peer.to_string().into(), Digest::of(token.expose()));
        let review = self.review(&token);
        let verdict = self.verdicts.get(&peer, about, review).await;
        match verdict {
            Ok(Verdict::Allowed) => Ok(()),
            Ok(Verdict::Forbidden { user }) => Err(Denied::Forbidden { user }),
            Ok(Verdict::Unauthenticated) => Err(Denied::Unauthorized),
            Err(_) => Err(Denied::Unknown),
        }
    }

    async fn review(&self, token: &BearerToken) -> Result<Verdict, ClusterError> {
        let Some(user) = self.reviewer.user(token).await? else {
            return Ok(Verdict::Unauthenticated);
        };
        let access = Access::Path {
            verb: "get".to_owned(),
            path: METRICS_PATH.to_owned(),
        };
        let is_allowed = self.reviewer.is_allowed(&user, &access).await?;
        let User { name: user, .. } = user;
        Ok(if is_allowed {
            Verdict::Allowed
        } else {
            Verdict::Forbidden { user }
        })
    }
}

/// The token of a request with exactly one `Authorization` header.
pub fn bearer(headers: &HeaderMap) -> Option<BearerToken> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    // Several headers count as none: a proxy in front may have checked another one than this process.
    let value = values.next().filter(|_| values.next().is_none())?;
    BearerToken::of_header(value.to_str().ok()?)
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
