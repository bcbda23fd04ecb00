//! A member cluster of a fleet: the port [`Member`].
//!
//! Reads its capacity, its unschedulable pods and the last writer of the replicas; writes the workload that the hub
//! places.

use foretide_domain::{Replicas, ScaleTarget, observation::Pod};
use foretide_federate::{Estimate, PodShape};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;

use super::{KubeCluster, MemberStores, Options, watch::Watched, writes};
use crate::api_server::{CallError, Connection};
use foretide_api::ownership::FLEET_UID;
use foretide_api::ports::{ClusterError, Member};
use foretide_base::clock::Contact;

/// A member cluster of a fleet.
pub type KubeMember = KubeCluster<MemberStores>;

/// Field managers that write replicas for an autoscaler or for us.
const AUTOSCALERS: [&str; 2] = ["foretide", "kube-controller-manager"];

/// The metadata of any object.
#[derive(Deserialize)]
struct AnyObject {
    metadata: ObjectMeta,
}

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
    pub fn last_contact(&self) -> Option<Contact> {
        let needed = self.stores.watched();
        let contacts = needed.iter().map(|store| store.report().last_contact);
        let heard: Option<Vec<Contact>> = contacts.collect();
        heard?.into_iter().max_by_key(Contact::age)
    }

    /// The failure of a watch, if any.
    pub fn failing(&self) -> Option<String> {
        let mut reports = self.watches().into_iter();
        reports.find_map(|report| {
            let error = report.failing?;
            Some(format!("watch of {}: {error}", report.kind))
        })
    }

    /// True if nodes, pods and quotas are complete and current. Pods of namespaces that are not watched run on the same
    /// nodes, so all namespaces must be watched.
    fn knows_capacity(&self) -> bool {
        let needed: [&dyn Watched; 3] = [&*self.role.nodes, &*self.stores.pods, &*self.role.quotas];
        // All time counts, also that of a pause: the objects may have changed in it.
        let is_fresh = |contact: &Contact| contact.age() <= self.timeouts.max_staleness;
        let is_known = |store: &dyn Watched| {
            let report = store.report();
            report.synced && report.last_contact.as_ref().is_some_and(is_fresh)
        };
        self.stores.pods.scopes().contains(&None) && needed.into_iter().all(is_known)
    }

    async fn metadata(&self, target: &ScaleTarget) -> Result<ObjectMeta, ClusterError> {
        let path = self.path(target).await?;
        let read = self.calls.read::<AnyObject>(&path).await;
        let object = read.map_err(|error| error.about(target))?;
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
        let store = self.store_of(target);
        let workload = store.and_then(|store| store.get(&target.namespace, &target.name));
        let Some(workload) = workload.filter(|workload| workload.replica_failure.is_some()) else {
            return (0, None);
        };
        match replicas.get().saturating_sub(existing) {
            0 => (0, None),
            missing => (missing, workload.replica_failure),
        }
    }
}

impl Member for KubeMember {
    fn capacity(&self, target: &ScaleTarget, selector: &str, like: &PodShape) -> Option<Estimate> {
        // Unknown is better than a guess that is too high.
        if !self.knows_capacity() {
            return None;
        }
        let store = self.store_of(target);
        let workload = store.and_then(|store| store.get(&target.namespace, &target.name));
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
        let on_ours = |at: Timestamp| at.saturating_sub(skew).unwrap_or(at);
        let oldest = since.into_iter().min().map(on_ours);
        Ok((Replicas::new(count.saturating_add(missing)), oldest))
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
        let applied = writes::apply_at(&self.calls, &path, manifest).await;
        applied.map(drop).map_err(|error| error.about(target))
    }

    async fn remove(&self, target: &ScaleTarget, uid: &str) -> Result<(), ClusterError> {
        let path = match self.path(target).await {
            // A cluster without the kind has no object to delete.
            Err(ClusterError::NotScalable { .. }) => return Ok(()),
            path => path?,
        };
        let deleted = writes::delete_at(&self.calls, &path, uid).await;
        deleted.map_err(|error| error.about(target))
    }
}

/// True if a pod counts for its workload: one that has finished or is being deleted is replaced.
const fn is_kept(pod: &Pod) -> bool {
    !pod.deleting && !pod.has_ended()
}

/// The field manager that wrote `spec.replicas` last, unless it is one of [`AUTOSCALERS`].
fn last_writer(entries: &[ManagedFieldsEntry]) -> Option<String> {
    let has_replicas = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
    };
    let by_time = |entry: &&ManagedFieldsEntry| entry.time.as_ref().map(|time| time.0);
    let last = entries.iter().filter(has_replicas).max_by_key(by_time)?;
    let manager = last.manager.as_deref().unwrap_or_default();
    (!AUTOSCALERS.contains(&manager)).then(|| manager.to_owned())
}

/// The object that a manifest describes.
fn target_of(manifest: &Value) -> ScaleTarget {
    let text = |pointer| {
        let text = manifest.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    ScaleTarget {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    }
}
