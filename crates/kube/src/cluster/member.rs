//! A member cluster of a fleet: the port [`Member`].
//!
//! Reads its capacity, its unschedulable pods and the last writer of the replicas; writes the workload that the hub
//! places.

use foretide_domain::{Replicas, ScaleTarget, observation::Pod};
use foretide_federate::{Estimate, PodShape};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::{KubeCluster, MemberStores, Options, decode::text_at, watch::Watched, writes};
use crate::api_server::{About as _, CallError, Connection};
use foretide_api::ownership::FLEET_UID;
use foretide_api::ports::{ClusterError, Member};
use foretide_base::clock::Contact;

/// A member cluster of a fleet.
pub type KubeMember = KubeCluster<MemberStores>;

/// Field managers that write replicas for an autoscaler or for us.
const AUTOSCALERS: [&str; 2] = ["foretide", "kube-controller-manager"];

impl KubeMember {
    /// A member; its stores are empty until [`KubeCluster::run`].
    pub(crate) fn member(connection: Connection, options: Options<'_>) -> Self {
        let role = MemberStores::new(options.namespaces);
        Self::with_role(connection, role, options)
    }

    /// Succeeds if `/readyz` of the API server does.
    pub(crate) async fn check_ready(&self) -> Result<(), CallError> {
        self.calls.read_text("/readyz").await.map(drop)
    }

    /// The last contact of the watch that has been silent longest, of those that a sync needs. `None` while one of them
    /// has had no contact.
    pub(crate) fn last_contact(&self) -> Option<Contact> {
        let mut heard = Vec::new();
        for store in self.stores.watched() {
            heard.push(store.report().last_contact?);
        }
        heard.into_iter().max_by_key(Contact::age)
    }

    /// The failure of a watch, if any.
    pub(crate) fn failing(&self) -> Option<String> {
        self.watches().into_iter().find_map(|report| {
            let error = report.failing?;
            Some(format!("watch of {}: {error}", report.kind))
        })
    }

    /// True if nodes, pods and quotas are complete and current. Pods of namespaces that are not watched run on the same
    /// nodes, so all namespaces must be watched.
    fn knows_capacity(&self) -> bool {
        let needed: [&dyn Watched; 3] = [&*self.role.nodes, &*self.stores.pods, &*self.role.quotas];
        let max = self.timeouts.max_staleness;
        self.stores.pods.scopes().contains(&None)
            && needed.into_iter().all(|store| {
                let report = store.report();
                // All time counts, also that of a pause: the objects may have changed in it.
                report.synced && report.last_contact.is_some_and(|it| it.age() <= max)
            })
    }

    async fn metadata(&self, target: &ScaleTarget) -> Result<ObjectMeta, ClusterError> {
        let path = self.path(target).await?;
        let object: PartialObjectMeta = self.calls.read(&path).await.about(target)?;
        Ok(object.metadata)
    }

    /// Number of a workload's pods that cannot be created, because of a quota or admission, and the time since when. A
    /// `StatefulSet` has no condition for it, and of a kind that is not watched it is unknown.
    fn missing(
        &self,
        target: &ScaleTarget,
        replicas: Replicas,
        existing: u32,
    ) -> (u32, Option<Timestamp>) {
        let workload = self.workload(target);
        match workload.and_then(|workload| workload.replica_failure) {
            None => (0, None),
            since => match replicas.get().saturating_sub(existing) {
                0 => (0, None),
                missing => (missing, since),
            },
        }
    }
}

impl Member for KubeMember {
    fn capacity(&self, target: &ScaleTarget, selector: &str, like: &PodShape) -> Option<Estimate> {
        // Unknown is better than a guess that is too high.
        if !self.knows_capacity() {
            return None;
        }
        let workload = self.workload(target);
        let shape = workload.as_ref().and_then(|w| w.shape.as_deref());
        let shape = shape.unwrap_or(like);
        let quotas = self.role.quotas.in_namespace(&target.namespace);
        let quotas = quotas.iter().map(|quota| (**quota).clone()).collect();
        let (nodes, pods) = (&self.role.nodes, &self.stores.pods);
        let now = self.calls.clock().monotonic();
        let snapshot = self.role.free_capacity.snapshot(now, nodes, pods);
        let own = snapshot.own(&target.namespace, selector);
        Some(snapshot.supply(shape, &own, quotas).capacity(shape))
    }

    fn unschedulable(
        &self,
        target: &ScaleTarget,
        selector: &str,
        replicas: Replicas,
    ) -> Result<(Replicas, Option<Timestamp>), ClusterError> {
        let pods = self.selected(&target.namespace, selector)?;
        let mut since: Vec<Timestamp> = pods.iter().filter_map(|p| p.unschedulable()).collect();
        let existing = pods.iter().filter(|pod| is_kept(&pod.pod)).count();
        let existing = u32::try_from(existing).unwrap_or(u32::MAX);
        // After the count was lowered, the surplus pods exist until they end. Those without a node end first, so they
        // do not count as pods that cannot be placed.
        let surplus = existing.saturating_sub(replicas.get());
        let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
        since.sort_unstable();
        since.truncate(since.len().saturating_sub(surplus));
        let (missing, replica_failure) = self.missing(target, replicas, existing);
        let count = u32::try_from(since.len()).unwrap_or(u32::MAX);
        since.extend(replica_failure);
        // The server's clock shows these times, and the rules compare them with ours.
        let skew = self.calls.clock_skew();
        let oldest = since.into_iter().min();
        let since = oldest.map(|at| at.saturating_sub(skew).unwrap_or(at));
        Ok((Replicas::new(count.saturating_add(missing)), since))
    }

    async fn replicas_written_by(
        &self,
        target: &ScaleTarget,
    ) -> Result<Option<String>, ClusterError> {
        let metadata = self.metadata(target).await?;
        Ok(last_writer(&metadata.managed_fields.unwrap_or_default()))
    }

    async fn placed_for(&self, target: &ScaleTarget) -> Result<Option<String>, ClusterError> {
        let metadata = self.metadata(target).await?;
        Ok(metadata.annotations.unwrap_or_default().remove(FLEET_UID))
    }

    async fn place(&self, manifest: &Value) -> Result<(), ClusterError> {
        let target = target_of(manifest);
        let path = self.path(&target).await?;
        let applying = writes::apply_at(&self.calls, &path, manifest);
        applying.await.map(drop).about(target)
    }

    async fn remove(&self, target: &ScaleTarget, uid: &str) -> Result<(), ClusterError> {
        let path = match self.path(target).await {
            // A cluster without the kind has no object to delete.
            Err(ClusterError::NotScalable { .. }) => return Ok(()),
            path => path?,
        };
        let deleting = writes::delete_at(&self.calls, &path, uid);
        deleting.await.about(target)
    }
}

/// True if a pod counts for its workload: one that has finished or is being deleted is replaced.
const fn is_kept(pod: &Pod) -> bool {
    !pod.deleting && !pod.has_ended()
}

/// The field manager that wrote `spec.replicas` last, unless it is one of [`AUTOSCALERS`].
fn last_writer(entries: &[ManagedFieldsEntry]) -> Option<String> {
    let writers = entries.iter().filter(|entry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
    });
    let last = writers.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    let manager = last.manager.as_deref().unwrap_or_default();
    (!AUTOSCALERS.contains(&manager)).then(|| manager.to_owned())
}

/// The object that a manifest describes.
fn target_of(manifest: &Value) -> ScaleTarget {
    ScaleTarget {
        api_version: text_at(manifest, "/apiVersion").to_owned(),
        kind: text_at(manifest, "/kind").to_owned(),
        namespace: text_at(manifest, "/metadata/namespace").to_owned(),
        name: text_at(manifest, "/metadata/name").to_owned(),
    }
}
