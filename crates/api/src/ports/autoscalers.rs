//! The autoscalers as they are published for others: read only, without the rest of the cluster.

use std::sync::Arc;

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::stream::BoxStream;

/// The `EffectiveHorizontalPodAutoscaler`s of the watched namespaces, statuses included.
pub trait Autoscalers: Send + Sync + 'static {
    /// True if a complete list has been read.
    fn is_synced(&self) -> bool;
    /// The one of this name, if there is one.
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<EffectiveHorizontalPodAutoscaler>>;
    /// The autoscalers of one namespace, by name.
    fn of_namespace(&self, namespace: &str) -> Vec<Arc<EffectiveHorizontalPodAutoscaler>>;
    /// An item whenever any of them has changed since the stream was made or gave its last item, statuses included.
    /// Several changes may be one item.
    fn changes(&self) -> BoxStream<'static, ()>;
}
