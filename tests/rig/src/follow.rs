//! Follows the objects of one kind: those that are there, and each change from then on.

use std::{fmt::Debug, ops::ControlFlow};

use futures::TryStreamExt as _;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;

use crate::wait::pause;

/// What marks the end of the objects that were there when a watch began.
const LISTED: &str = "k8s.io/initial-events-end";

/// What a caller of [`follow`] sees.
#[derive(Debug)]
pub enum Change<K> {
    /// A watch begins: the objects that are there follow, also those that were seen before.
    Begun,
    /// An object is there, is new or has changed.
    Present(K),
    /// All objects that were there when the watch began have been seen.
    Listed,
    /// An object is gone; its last state.
    Deleted(K),
}

/// Passes each change to `each`, until it breaks. A watch that fails or ends is begun again.
pub async fn follow<K>(
    objects: Api<K>,
    which: WatchParams,
    mut each: impl FnMut(Change<K>) -> ControlFlow<()>,
) where
    K: Clone + DeserializeOwned + Debug,
{
    let which = which.initial_events();
    loop {
        let ended = watch(&objects, &which, &mut each).await;
        if let Ok(ControlFlow::Break(())) = ended {
            return;
        }
        pause().await;
    }
}

/// One watch, to its end.
async fn watch<K>(
    objects: &Api<K>,
    which: &WatchParams,
    each: &mut impl FnMut(Change<K>) -> ControlFlow<()>,
) -> kube::Result<ControlFlow<()>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut events = std::pin::pin!(objects.watch(which, "0").await?);
    if each(Change::Begun).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    while let Some(event) = events.try_next().await? {
        let change = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Present(object),
            WatchEvent::Deleted(object) => Change::Deleted(object),
            WatchEvent::Bookmark(mark) if mark.metadata.annotations.contains_key(LISTED) => {
                Change::Listed
            }
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(_) => break,
        };
        if each(change).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
