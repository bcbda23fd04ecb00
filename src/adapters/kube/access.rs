//! Reviews of bearer tokens by an API server: the port [`AccessReviewer`].
//!
//! A `TokenReview` says whose token it is, and a `SubjectAccessReview` whether that user may `get` the path `/metrics`.
//! Both are POST requests that change nothing, so they do not pass the write gate: a standby answers scrapes too.

use http::Method;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo},
    authorization::v1::{
        NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
        SubjectAccessReviewStatus,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::{Connection, WriteGate};
use crate::{
    adapters::{
        api_server::{Body, CallError, Calls, Limits, Resource},
        redact::Redactor,
    },
    ports::{AccessReviewer, BearerToken, ClusterError, Verdict},
};

/// The path that a user must be allowed to get.
const METRICS_PATH: &str = "/metrics";

/// The reviews of one API server.
pub struct KubeAccessReviewer {
    calls: Calls,
    audience: Option<String>,
}

// === impl KubeAccessReviewer ===

impl KubeAccessReviewer {
    /// Reviews by the server of a connection, of tokens for `audience`; without one, for the API server itself.
    #[must_use]
    pub fn new(connection: &Connection, audience: Option<&str>) -> Self {
        Self {
            // With slots of their own: a flood of tokens delays no sync.
            calls: connection.calls_within(Limits::default(), WriteGate::default()),
            audience: audience.map(str::to_owned),
        }
    }

    /// The user of a token; none if it is of no user, or for another audience.
    async fn user(&self, token: &BearerToken) -> Result<Option<UserInfo>, CallError> {
        let audiences = self.audience.clone().map(|audience| vec![audience]);
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.expose().to_owned()),
                audiences,
            },
            ..TokenReview::default()
        };
        let reviewed: TokenReview = self.post(Resource::TOKEN_REVIEW, &review).await?;
        let TokenReviewStatus {
            authenticated,
            audiences,
            user,
            ..
        } = reviewed.status.ok_or_else(without_status)?;
        // A server that knows no audiences names none, and then the token is for the server itself.
        let is_for = |wanted: &String| audiences.iter().flatten().any(|one| one == wanted);
        let is_valid = authenticated == Some(true) && self.audience.as_ref().is_none_or(is_for);
        Ok(user.filter(|user| is_valid && user.username.as_ref().is_some_and(|n| !n.is_empty())))
    }

    async fn may_get_metrics(&self, user: UserInfo) -> Result<bool, CallError> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(METRICS_PATH.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviewed: SubjectAccessReview = self.post(Resource::ACCESS_REVIEW, &review).await?;
        let SubjectAccessReviewStatus {
            allowed, denied, ..
        } = reviewed.status.ok_or_else(without_status)?;
        Ok(allowed && denied != Some(true))
    }

    async fn post<T: Serialize + DeserializeOwned>(
        &self,
        resource: Resource,
        review: &T,
    ) -> Result<T, CallError> {
        let value = serde_json::to_value(review).map_err(|e| CallError::Request(e.to_string()))?;
        let url = resource.collection(None)?;
        self.calls
            .write(Method::POST, &url, Body::json(&value))
            .await
    }
}

impl std::fmt::Debug for KubeAccessReviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeAccessReviewer")
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

impl AccessReviewer for KubeAccessReviewer {
    async fn review(&self, token: &BearerToken) -> Result<Verdict, ClusterError> {
        let reviewed = async {
            let Some(user) = self.user(token).await? else {
                return Ok(Verdict::Unauthenticated);
            };
            let name = user.username.clone().unwrap_or_default();
            Ok(if self.may_get_metrics(user).await? {
                Verdict::Allowed
            } else {
                Verdict::Forbidden { user: name }
            })
        };
        reviewed.await.map_err(|error: CallError| {
            // A server may quote the request in its response.
            let redactor = Redactor::new(vec![token.expose().to_owned()]);
            error
                .redacted(&redactor)
                .about("the review of a token for /metrics")
        })
    }
}

fn without_status() -> CallError {
    CallError::Response("expected a review with a status".to_owned())
}
