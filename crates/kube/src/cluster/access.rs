//! Reviews of bearer tokens and of requests by an API server: the port [`AccessReviewer`].
//!
//! A `TokenReview` says whose token it is, and a `SubjectAccessReview` whether a user may do what a request asks for.
//! Both are POST requests that change nothing, so they do not pass the write gate: a standby answers scrapes too.

use http::Method;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo},
    authorization::v1::{
        NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
        SubjectAccessReviewStatus,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::{Connection, WriteGate};
use crate::api_server::{About as _, Body, CallError, Calls, Limits, Resource};
use foretide_api::ports::{
    Access, AccessReviewer, BearerToken, ClusterError, ResourceAccess, User,
};
use foretide_base::redact::Redactor;

/// The reviews of one API server.
#[derive(Debug)]
pub struct KubeAccessReviewer {
    calls: Calls,
    /// The audiences that a token may be for, in the order in which they are tried; none for the API server itself.
    audiences: Vec<Option<String>>,
}

// === impl KubeAccessReviewer ===

impl KubeAccessReviewer {
    /// Reviews by the server of a connection, of tokens for `audience`; without one, for the API server itself.
    pub fn new(connection: &Connection, audience: Option<&str>) -> Self {
        Self {
            // With slots of their own: a flood of tokens delays no sync.
            calls: connection.calls_within(Limits::default(), WriteGate::default()),
            audiences: vec![audience.map(str::to_owned)],
        }
    }

    /// The same reviews, also of tokens for the API server itself.
    #[must_use]
    pub fn or_for_the_api_server(mut self) -> Self {
        self.audiences.push(None);
        self
    }

    async fn review_token(
        &self,
        token: &BearerToken,
        audience: Option<&String>,
    ) -> Result<Option<User>, CallError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.expose().to_owned()),
                audiences: audience.map(|audience| vec![audience.clone()]),
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
        let audiences = audiences.unwrap_or_default();
        let is_for_us = audience.is_none_or(|wanted| audiences.contains(wanted));
        let is_valid = authenticated == Some(true) && is_for_us;
        let user = user.filter(|_| is_valid).map(user_of);
        Ok(user.filter(|user| !user.name.is_empty()))
    }

    async fn review_access(&self, user: &User, access: &Access) -> Result<bool, CallError> {
        let User {
            name,
            uid,
            groups,
            extra,
        } = user.clone();
        let mut spec = SubjectAccessReviewSpec {
            user: Some(name),
            uid,
            groups: Some(groups).filter(|groups| !groups.is_empty()),
            extra: Some(extra).filter(|extra| !extra.is_empty()),
            ..SubjectAccessReviewSpec::default()
        };
        match access.clone() {
            Access::Path { verb, path } => {
                spec.non_resource_attributes = Some(NonResourceAttributes {
                    path: Some(path),
                    verb: Some(verb),
                });
            }
            Access::Resource(access) => spec.resource_attributes = Some(attributes(access)),
        }
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let reviewed: SubjectAccessReview = self.post(Resource::ACCESS_REVIEW, &review).await?;
        let SubjectAccessReviewStatus {
            allowed, denied, ..
        } = reviewed.status.ok_or_else(without_status)?;
        // The API does not allow both. If a server sends both, the request is refused.
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

impl AccessReviewer for KubeAccessReviewer {
    async fn user(&self, token: &BearerToken) -> Result<Option<User>, ClusterError> {
        for audience in &self.audiences {
            match self.review_token(token, audience.as_ref()).await {
                Ok(None) => {}
                Ok(user) => return Ok(user),
                Err(error) => {
                    // A server may quote the request in its response.
                    let redactor = Redactor::new(vec![token.expose().to_owned()]);
                    return Err(error.redacted(&redactor).about("the review of a token"));
                }
            }
        }
        Ok(None)
    }

    async fn is_allowed(&self, user: &User, access: &Access) -> Result<bool, ClusterError> {
        let reviewing = self.review_access(user, access);
        reviewing.await.about("the review of a request")
    }
}

fn user_of(info: UserInfo) -> User {
    User {
        name: info.username.unwrap_or_default(),
        uid: info.uid.filter(|uid| !uid.is_empty()),
        groups: info.groups.unwrap_or_default(),
        extra: info.extra.unwrap_or_default(),
    }
}

fn named(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn attributes(access: ResourceAccess) -> ResourceAttributes {
    ResourceAttributes {
        verb: named(access.verb),
        group: named(access.group),
        version: named(access.version),
        namespace: named(access.namespace),
        resource: named(access.resource),
        subresource: named(access.subresource),
        name: named(access.name),
        ..ResourceAttributes::default()
    }
}

fn without_status() -> CallError {
    CallError::Response("expected a review with a status".to_owned())
}
