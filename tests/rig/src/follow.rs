//! Follows the objects of one kind: those that are there, and each change from then on.

use std::{fmt::Debug, ops::ControlFlow};

use futures::TryStreamExt as _;
use kube::{
    Api, Resource, ResourceExt,
    api::{WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;

use crate::{place::say, wait::pause};

/// What marks the end of the objects that were there when a watch began.
const LISTED: &str = "k8s.io/initial-events-end";

/// What a caller of [`follow`] sees.
#[derive(Debug)]
pub enum Change<K> {
    /// All objects that are there follow: at first, and after a failure, in which changes may have been missed.
    Begun,
    /// An object is there, is new or has changed.
    Present(K),
    /// All objects that were there have been seen.
    Listed,
    /// An object is gone; its last state.
    Deleted(K),
}

/// Passes each change to `each`, until it breaks. A watch that ends goes on where it was; one that fails begins again.
pub async fn follow<K>(
    objects: Api<K>,
    which: WatchParams,
    mut each: impl FnMut(Change<K>) -> ControlFlow<()>,
) where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut seen = None;
    loop {
        match watch(&objects, &which, &mut seen, &mut each).await {
            Ok(ControlFlow::Break(())) => return,
            Ok(ControlFlow::Continue(())) => {}
            Err(failure) => {
                say(&format!("a watch begins again: {failure}"));
                seen = None;
                pause().await;
            }
        }
    }
}

/// One watch, to its end: from what is there now, or from the version that was `seen` last.
async fn watch<K>(
    objects: &Api<K>,
    which: &WatchParams,
    seen: &mut Option<String>,
    each: &mut impl FnMut(Change<K>) -> ControlFlow<()>,
) -> kube::Result<ControlFlow<()>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut which = which.clone();
    if seen.is_none() {
        which = which.initial_events();
        if each(Change::Begun).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    let version = seen.clone().unwrap_or_default();
    let mut events = std::pin::pin!(objects.watch(&which, &version).await?);
    while let Some(event) = events.try_next().await? {
        let (version, change) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                (object.resource_version(), Some(Change::Present(object)))
            }
            WatchEvent::Deleted(object) => {
                (object.resource_version(), Some(Change::Deleted(object)))
            }
            WatchEvent::Bookmark(mark) => {
                let is_listed = mark.metadata.annotations.contains_key(LISTED);
                let version = Some(mark.metadata.resource_version);
                (version, is_listed.then_some(Change::Listed))
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        };
        *seen = version;
        if change.is_some_and(|change| each(change).is_break()) {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
