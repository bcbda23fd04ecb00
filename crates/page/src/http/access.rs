//! Readable namespaces of the bearer of a token on the page: those where the reader may list both kinds of autoscalers.
//!
//! One review covers a reader who may list them in all namespaces; for others, each namespace that has autoscalers is
//! reviewed, or only the one that the request names. The number of these reviews and their time are limited; results
//! until then count, and the reader is told of the rest. As for `/metrics`, a result is used for some seconds.
//!
//! ```text
//! token ── whose is it? slots and results of the peer ──► user ── what does it see? those of the tenant ──► Reader
//! ```
//!
//! Neither wrong tokens nor a user with many tokens keep other readers waiting.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use axum::http::HeaderMap;
use futures::{StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
use tokio::time::sleep;

use super::{Reader, Refusal};
use crate::Visible;
use foretide_api::ports::{Access, AccessReviewer, ClusterError, ResourceAccess, User};
use foretide_base::{
    clock::Clock,
    http::{Denied, Digest, FairReviews, ReviewLimits, bearer},
};

/// Group and resource of the kinds of autoscalers.
const KINDS: [(&str, &str); 2] = [
    ("autoscaling.crane.io", "effectivehorizontalpodautoscalers"),
    ("autoscaling.foretide.io", "federatedhpas"),
];
/// Limits of the reviews of each peer's tokens.
const TOKENS: ReviewLimits = ReviewLimits {
    tenants: 32,
    results: 128,
    in_flight: 4,
};
/// Limits of the reviews of each tenant's rights.
const READERS: ReviewLimits = ReviewLimits {
    tenants: 256,
    results: 16,
    in_flight: 2,
};
/// Number of namespaces of one reader that are reviewed at a time.
const NAMESPACES_AT_A_TIME: usize = 4;
/// Number of namespaces that are reviewed for one reader, the first ones by name: reviews of more would take too long.
const NAMESPACES_MAX: usize = 500;
/// The time for the reviews of namespaces, which leaves time for the other reviews of the reader.
const NAMESPACES_DEADLINE: Duration = Duration::from_secs(3);

/// The namespaces that have autoscalers now.
pub type Namespaces = dyn Fn() -> BTreeSet<String> + Send + Sync;

/// Lets readers in.
pub trait Admission: Send + Sync + 'static {
    fn admit<'a>(
        &'a self,
        peer: IpAddr,
        headers: &'a HeaderMap,
        named: Option<&'a str>,
        namespaces: &'a Namespaces,
    ) -> BoxFuture<'a, Result<Reader, Refusal>>;
}

/// Readers as an API server reviews them.
#[derive(Debug)]
pub struct PageAccess<R> {
    reviewer: R,
    /// The user of a token; none if it is of no user.
    users: FairReviews<Option<User>>,
    /// Reader with the rights of a user; none if there are none.
    readers: FairReviews<Option<Reader>>,
}

// === impl PageAccess ===

impl<R: AccessReviewer> PageAccess<R> {
    /// Access as this reviewer decides.
    pub fn new(reviewer: R, clock: Clock) -> Self {
        let users = FairReviews::new("token for the page", clock.clone(), TOKENS);
        let readers = FairReviews::new("reader of the page", clock, READERS);
        Self {
            reviewer,
            users,
            readers,
        }
    }

    async fn review(
        &self,
        user: &User,
        namespaces: BTreeSet<String>,
    ) -> Result<Option<Reader>, ClusterError> {
        let name = Some(user.name.clone());
        if self.may_list(user, "").await? {
            return Ok(Some(Reader {
                name,
                ..Reader::of_all()
            }));
        }
        let (visible, unreviewed) = self.visible_to(user, namespaces).await?;
        Ok(Some(Reader {
            name,
            visible: Visible::Namespaces(visible),
            unreviewed,
        }))
    }

    /// The namespaces that a user may see, and the number of those that could not be reviewed.
    async fn visible_to(
        &self,
        user: &User,
        namespaces: BTreeSet<String>,
    ) -> Result<(BTreeSet<String>, usize), ClusterError> {
        let all = namespaces.len();
        let asked = namespaces.into_iter().take(NAMESPACES_MAX);
        let reviews = stream::iter(asked)
            .map(|namespace| async move {
                let is_visible = self.may_list(user, &namespace).await?;
                Ok::<_, ClusterError>((namespace, is_visible))
            })
            .buffer_unordered(NAMESPACES_AT_A_TIME)
            .take_until(sleep(NAMESPACES_DEADLINE));
        let mut reviews = pin!(reviews);
        let (mut visible, mut reviewed) = (BTreeSet::new(), 0);
        while let Some((namespace, is_visible)) = reviews.try_next().await? {
            reviewed += 1;
            visible.extend(is_visible.then_some(namespace));
        }
        Ok((visible, all - reviewed))
    }

    /// Returns whether a user may list both kinds of autoscalers in a namespace; in all, if it is empty.
    async fn may_list(&self, user: &User, namespace: &str) -> Result<bool, ClusterError> {
        for (group, resource) in KINDS {
            let access = Access::Resource(ResourceAccess {
                verb: "list".to_owned(),
                group: group.to_owned(),
                resource: resource.to_owned(),
                namespace: namespace.to_owned(),
                ..ResourceAccess::default()
            });
            if !self.reviewer.is_allowed(user, &access).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<R: AccessReviewer> Admission for PageAccess<R> {
    fn admit<'a>(
        &'a self,
        peer: IpAddr,
        headers: &'a HeaderMap,
        named: Option<&'a str>,
        namespaces: &'a Namespaces,
    ) -> BoxFuture<'a, Result<Reader, Refusal>> {
        Box::pin(async move {
            let token = bearer(headers).ok_or(Denied::Unauthorized)?;
            let (peer, about) = (peer.to_string().into(), Digest::of(token.expose()));
            let review = self.reviewer.user(&token);
            let user = self.users.get(&peer, about, review).await;
            let user = user.map_err(|_| Denied::Unknown)?;
            let user = user.ok_or(Denied::Unauthorized)?;
            let mut asked = namespaces();
            if let Some(named) = named {
                asked.retain(|namespace| namespace == named);
            }
            // The text of `Debug` is escaped, so different values have different texts.
            let about = Digest::of(&format!("{named:?} {user:?}"));
            let review = self.review(&user, asked);
            let reader = self.readers.get(&tenant(&user.name), about, review).await;
            let reader = reader.map_err(|_| Denied::Unknown)?;
            let reader = reader.ok_or(Denied::Unknown)?;
            // For a named namespace, an empty answer hides whether it exists.
            if named.is_none() && reader.sees_nothing() {
                return Err(reader.refused());
            }
            Ok(reader)
        })
    }
}

/// The tenant to which the requests of a user are counted: all service accounts of a namespace are one, because who may
/// request a token there may make any number of them.
fn tenant(user: &str) -> Arc<str> {
    let of_account = user.starts_with("system:serviceaccount:");
    let namespace = user.rsplit_once(':').filter(|_| of_account);
    namespace.map_or(user, |(namespace, _)| namespace).into()
}

// === impl Reader ===

impl Reader {
    /// Returns the reader of a page that asks for no token.
    pub fn of_all() -> Self {
        Self {
            name: None,
            visible: Visible::All,
            unreviewed: 0,
        }
    }

    /// The tenant of the reader; readers without a token are one.
    pub fn tenant(&self) -> Arc<str> {
        tenant(self.name.as_deref().unwrap_or_default())
    }

    fn sees_nothing(&self) -> bool {
        matches!(&self.visible, Visible::Namespaces(visible) if visible.is_empty())
    }

    fn refused(self) -> Refusal {
        let user = self.name.unwrap_or_default();
        if self.unreviewed == 0 {
            return Denied::Forbidden { user }.into();
        }
        Refusal::forbidden(format!(
            "user {user:?} cannot list effectivehorizontalpodautoscalers and federatedhpas in any namespace that could be \
             asked about, but {} could not; open an autoscaler by its address, or bind the ClusterRole ehpa-viewer in all",
            self.unreviewed
        ))
    }
}
