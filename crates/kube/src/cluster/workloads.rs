//! The common part of the hub and the members: the port [`Workloads`].
//!
//! Reads pods, scales and HPAs from the stores and metrics from the metrics APIs; writes scales and HPAs.

use std::sync::Arc;

use foretide_domain::{
    Replicas, ScaleTarget, Selector,
    hpa::ObjectRef,
    observation::{NamespaceUsage, Pod, PodSample, Unavailable},
};
use serde_json::Value;

use super::{
    KubeCluster, Role, pods::StoredPod, scaled_objects::StoredScaledObject, stored::Stored, writes,
};
use crate::api_server::{About as _, ObjectPath, Resource};
use foretide_api::ports::{
    ClusterError, HpaView, KedaPause, MetricQuery, ScaleView, UnusableCopies, Workloads,
};

impl<R: Role> Workloads for KubeCluster<R> {
    fn is_synced(&self) -> bool {
        self.role.is_synced() && self.stores.is_synced()
    }

    fn stale(&self, target: &ScaleTarget) -> Option<UnusableCopies> {
        let (namespace, max) = (Some(&*target.namespace), self.timeouts.max_staleness);
        self.store_of(target)
            .and_then(|store| store.stale(namespace, max))
            .or_else(|| self.stores.pods.stale(namespace, max))
            .or_else(|| self.stores.hpas.stale(namespace, max))
            .or_else(|| self.left_out(target))
    }

    fn hpas(&self, namespace: &str) -> Vec<Arc<HpaView>> {
        self.stores.hpas.in_namespace(namespace)
    }

    fn every_hpa(&self) -> Vec<Arc<HpaView>> {
        self.stores.hpas.all()
    }

    async fn keda_pause(&self, target: &ScaleTarget) -> KedaPause {
        let (namespace, copies) = (&target.namespace, &self.stores.scaled_objects);
        if copies.is_forbidden() {
            return KedaPause::Unseen;
        }
        let scaled_objects = copies.in_namespace(namespace);
        let Some(copy) = scaled_objects.iter().find(|it| it.scales(target)) else {
            return KedaPause::Off;
        };
        let hpas = self.hpas(namespace);
        let mut controllers = hpas.iter().filter_map(|hpa| hpa.controller.as_ref());
        if copy.pause != KedaPause::Off || controllers.any(|by| by.uid == copy.uid) {
            return copy.pause.clone();
        }
        // The copy may be older than that of the HPAs, of which a pause removes one.
        let object = Resource::SCALED_OBJECT.object(namespace, &copy.name);
        match self.calls.get(object).await.map(StoredScaledObject::decode) {
            Ok(Ok(now)) => now.pause,
            _ => KedaPause::Off,
        }
    }

    fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<Arc<Pod>>, ClusterError> {
        let pods = self.selected(namespace, selector)?;
        Ok(pods.iter().map(|stored| stored.pod.clone()).collect())
    }

    async fn scale(&self, target: &ScaleTarget) -> Result<ScaleView, ClusterError> {
        let Some(store) = self.store_of(target) else {
            let path = self.discovery.scale_path(target).await?;
            let view = writes::read_scale(&self.calls, &path).await.about(target)?;
            return Ok(ScaleView {
                owned_pods: self.owned_pods(&target.namespace, &view.uid),
                expected_pods: self.expected_pods(&target.namespace, &view.selector)?,
                ..view
            });
        };
        match store.get(&target.namespace, &target.name) {
            Some(workload) => Ok(self.own_scales.shown_in(target, workload.view.clone())),
            None if let Some(why) = store.exclusion(&target.namespace, &target.name) => {
                Err(ClusterError::Invalid {
                    what: target.to_string(),
                    message: why,
                })
            }
            // Only a complete list proves that the object does not exist.
            None if store.is_synced() => {
                self.own_scales.forget(target);
                Err(ClusterError::NotFound {
                    what: target.to_string(),
                })
            }
            None => Err(ClusterError::Unreachable {
                what: target.to_string(),
                message: format!("the first list of kind {} is not complete yet", target.kind),
            }),
        }
    }

    async fn usage(&self, namespace: &str) -> Result<NamespaceUsage, Unavailable> {
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
        let writing = writes::write_scale(&self.calls, &path, seen, replicas);
        let written = writing.await.about(target)?;
        // Scales of other kinds are read from the API server, which shows the write at once.
        if self.store_of(target).is_some() {
            self.own_scales.wrote(target, &written);
        }
        Ok(written.scale.spec)
    }

    async fn apply_hpa(&self, manifest: &Value) -> Result<Arc<HpaView>, ClusterError> {
        let object = writes::object_of(Resource::HPA, manifest);
        let stored = writes::apply(&self.calls, object, manifest).await?;
        stored_hpa(object, stored)
    }

    async fn patch_hpa(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Arc<HpaView>, ClusterError> {
        let object = Resource::HPA.object(namespace, name);
        let stored = writes::patch(&self.calls, object, patch).await?;
        stored_hpa(object, stored)
    }

    async fn delete_hpa(&self, namespace: &str, name: &str, uid: &str) -> Result<(), ClusterError> {
        let object = Resource::HPA.object(namespace, name);
        writes::delete(&self.calls, object, uid).await
    }
}

impl<R: Role> KubeCluster<R> {
    /// Copies of the namespace of a target that are left out, and without which it is not known who else scales it. A
    /// copy of the target itself or of a pod is no part of them: it is noticed where it is missing.
    fn left_out(&self, target: &ScaleTarget) -> Option<UnusableCopies> {
        let hpas = self.stores.hpas.left_out(&target.namespace);
        hpas.or_else(|| self.stores.scaled_objects.left_out(&target.namespace))
    }

    /// Number of pods that are expected of a kind whose status may count something else: those that are selected, and
    /// those of the namespace that are excluded, as any of them may be selected too. Zero if none is excluded.
    fn expected_pods(&self, namespace: &str, selector: &str) -> Result<Replicas, ClusterError> {
        let excluded = match self.stores.pods.excluded(namespace) {
            0 => return Ok(Replicas::ZERO),
            excluded => excluded,
        };
        let pods = self.selected(namespace, selector)?.len() + excluded;
        Ok(Replicas::new(u32::try_from(pods).unwrap_or(u32::MAX)))
    }

    /// Number of pods that run of the `ReplicaSet`s that the object with this UID owns.
    fn owned_pods(&self, namespace: &str, uid: &str) -> Replicas {
        let [_, _, replica_sets] = &self.stores.workloads;
        let mut running = 0;
        for set in replica_sets.in_namespace(namespace) {
            if set.owner.as_deref() == Some(uid)
                && let Ok(pods) = self.selected(namespace, &set.view.selector)
            {
                running += pods.iter().filter(|stored| stored.pod.runs()).count();
            }
        }
        Replicas::new(u32::try_from(running).unwrap_or(u32::MAX))
    }

    /// The pods that a label selector (in its text form) selects, by name.
    pub(crate) fn selected(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<Arc<StoredPod>>, ClusterError> {
        let selector = selector
            .parse::<Selector>()
            .map_err(|error| ClusterError::Invalid {
                what: format!("the pod selector of namespace {namespace}"),
                message: error.to_string(),
            })?;
        Ok(self.stores.pods.select(namespace, &selector))
    }
}

fn stored_hpa(object: ObjectPath<'_>, stored: Value) -> Result<Arc<HpaView>, ClusterError> {
    let view = HpaView::decode(stored).map_err(|message| ClusterError::Invalid {
        what: object.to_string(),
        message,
    })?;
    Ok(Arc::new(view))
}
