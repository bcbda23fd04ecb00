//! What a sync asks of any cluster: the port [`Workloads`].
//!
//! Reads the stores and the metrics APIs, writes scales and autoscalers. It refuses to know whether the
//! cluster is the hub or a member.

use std::sync::Arc;

use serde_json::Value;

use super::{KubeCluster, Role, pods::StoredPod, selector, store::Stored, writes};
use crate::{
    adapters::api_server::Resource,
    domain::{
        Replicas, ScaleTarget,
        hpa::ObjectRef,
        observation::{Pod, PodSample, PodUsage, Unavailable},
    },
    ports::{ClusterError, HpaView, MetricQuery, ScaleView, Workloads},
};

impl<R: Role> Workloads for KubeCluster<R> {
    fn is_synced(&self) -> bool {
        self.role.is_synced() && self.stores.is_synced()
    }

    fn hpas(&self, namespace: &str) -> Vec<Arc<HpaView>> {
        let hpas = self.stores.hpas.in_namespace(namespace);
        hpas.iter().map(|hpa| self.on_clock(hpa)).collect()
    }

    fn every_hpa(&self) -> Vec<Arc<HpaView>> {
        self.stores
            .hpas
            .all()
            .iter()
            .map(|hpa| self.on_clock(hpa))
            .collect()
    }

    fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Arc<Pod>>, ClusterError> {
        let pods = self.selected(namespace, selector)?;
        Ok(pods
            .iter()
            .map(|stored| self.on_clock(&stored.pod))
            .collect())
    }

    async fn scale(&self, target: &ScaleTarget) -> Result<ScaleView, ClusterError> {
        let what = || target.to_string();
        let Some(store) = self.workloads(target) else {
            let path = self.discovery.scale_path(target).await?;
            return writes::read_scale(&self.calls, &path)
                .await
                .map_err(|e| e.about(what()));
        };
        match store.get(&target.namespace, &target.name) {
            Some(workload) => Ok(workload.view.clone()),
            None if store.is_synced() => Err(ClusterError::NotFound { what: what() }),
            None => Err(ClusterError::Unreachable {
                what: what(),
                message: format!("the first list of kind {} is not complete yet", target.kind),
            }),
        }
    }

    async fn usage(&self, namespace: &str) -> Result<Vec<Arc<PodUsage>>, Unavailable> {
        self.metrics.usage(namespace).await
    }

    async fn pods_metric(&self, query: &MetricQuery<'_>) -> Result<Vec<PodSample>, Unavailable> {
        self.metrics.pods(query).await
    }

    async fn object_metric(
        &self,
        object: &ObjectRef,
        query: &MetricQuery<'_>,
    ) -> Result<i64, Unavailable> {
        self.metrics.object(object, query).await
    }

    async fn external_metric(&self, query: &MetricQuery<'_>) -> Result<Vec<i64>, Unavailable> {
        self.metrics.external(query).await
    }

    async fn write_scale(
        &self,
        target: &ScaleTarget,
        seen: &ScaleView,
        replicas: Replicas,
    ) -> Result<Replicas, ClusterError> {
        let path = format!("{}/scale", self.path(target).await?);
        let written = writes::write_scale(&self.calls, &path, &seen.resource_version, replicas);
        written
            .await
            .map_err(|error| error.about(target.to_string()))
    }

    async fn apply_hpa(&self, manifest: &Value) -> Result<Arc<HpaView>, ClusterError> {
        let (what, answer) = writes::apply(&self.calls, Resource::HPA, manifest).await?;
        self.hpa(what, answer)
    }

    async fn patch_hpa(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Arc<HpaView>, ClusterError> {
        let what = Resource::HPA.shown(namespace, name);
        let patched = writes::patch(&self.calls, Resource::HPA, (namespace, name), patch).await;
        self.hpa(what.clone(), patched.map_err(|error| error.about(what))?)
    }

    async fn delete_hpa(&self, namespace: &str, name: &str, uid: &str) -> Result<(), ClusterError> {
        writes::delete(&self.calls, Resource::HPA, (namespace, name), uid).await
    }
}

impl<R: Role> KubeCluster<R> {
    /// The pods that a label selector (in its text form) selects, by name.
    pub(super) fn selected(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<Arc<StoredPod>>, ClusterError> {
        let requirements = selector::parse(selector).map_err(|message| ClusterError::Invalid {
            what: format!("the pod selector of namespace {namespace}"),
            message,
        })?;
        Ok(self.stores.pods.select(namespace, &requirements))
    }

    fn hpa(&self, what: String, answer: Value) -> Result<Arc<HpaView>, ClusterError> {
        let view =
            HpaView::decode(answer).map_err(|message| ClusterError::Invalid { what, message })?;
        Ok(self.on_clock(&Arc::new(view)))
    }
}
