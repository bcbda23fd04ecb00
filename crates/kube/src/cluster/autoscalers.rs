//! The autoscalers alone, for processes that publish their metrics: the port [`Autoscalers`].

use std::sync::Arc;

use foretide_crds::EffectiveHorizontalPodAutoscaler;
use futures::{StreamExt, stream, stream::BoxStream};
use tokio::task::JoinSet;

use super::{
    Connection, WatchReport,
    role::scopes,
    store::Store,
    watch::{WatchTimeouts, Watched},
};
use crate::api_server::Resource;
use foretide_api::ports::Autoscalers;

/// The autoscalers of one cluster, kept up to date by a watch.
#[derive(Debug)]
pub struct KubeAutoscalers {
    connection: Connection,
    store: Arc<Store<EffectiveHorizontalPodAutoscaler>>,
}

// === impl KubeAutoscalers ===

impl KubeAutoscalers {
    /// The autoscalers of these namespaces; none means all. Empty until [`KubeAutoscalers::run`].
    pub fn new(connection: Connection, namespaces: &[String]) -> Self {
        Self {
            connection,
            store: Arc::new(Store::new(Resource::EHPA, &scopes(namespaces))),
        }
    }

    /// Keeps the autoscalers up to date until it is dropped; returns only if a watch task panics.
    pub async fn run(&self) {
        let mut tasks = JoinSet::new();
        Arc::clone(&self.store).watch(&self.connection, WatchTimeouts::default(), &mut tasks);
        if let Some(Err(error)) = tasks.join_next().await {
            tracing::error!(%error, "watch task exited unexpectedly");
        }
    }

    /// The state of the watch.
    pub fn watch(&self) -> WatchReport {
        self.store.report()
    }
}

impl Autoscalers for KubeAutoscalers {
    fn is_synced(&self) -> bool {
        self.store.is_synced()
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Arc<EffectiveHorizontalPodAutoscaler>> {
        self.store.get(namespace, name)
    }

    fn of_namespace(&self, namespace: &str) -> Vec<Arc<EffectiveHorizontalPodAutoscaler>> {
        self.store.in_namespace(namespace)
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        stream::unfold(self.store.subscribe(), |mut receiver| async {
            // It fails when the store is dropped, and then nothing changes any more.
            receiver.changed().await.ok()?;
            Some(((), receiver))
        })
        .boxed()
    }
}
