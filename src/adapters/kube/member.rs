//! What a sync asks of a member cluster beyond any cluster: the port [`Member`].
//!
//! Capacity, pods without a node, who writes the replicas, and the workload that the hub places. It refuses to judge any
//! of it.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{
    KubeCluster, KubeMember, MemberStores, Stores, WatchTimeouts, pods::StoredPod, writes,
};
use crate::{
    adapters::api_server::{CallError, Connection, Limits, WriteGate},
    api::ownership::FLEET_UID,
    clock::Clock,
    domain::{
        Replicas, ScaleTarget,
        federate::{Estimate, PodShape},
    },
    ports::{ClusterError, Member},
};

/// Field managers whose writes of replicas are the autoscaler's or ours.
const OURS: [&str; 2] = ["foretide", "kube-controller-manager"];

#[derive(Deserialize)]
struct Managed {
    metadata: ManagedMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedMeta {
    managed_fields: Option<Vec<ManagedFields>>,
    annotations: Option<BTreeMap<String, String>>,
}

/// One manager's fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    #[serde(default)]
    manager: String,
    time: Option<Timestamp>,
    fields_v1: Option<Value>,
}

impl KubeCluster<MemberStores> {
    /// A member whose stores are empty until [`KubeCluster::run`], and whose writes go through the hub's gate.
    pub(in crate::adapters) fn member(
        connection: Connection,
        namespaces: &[String],
        gate: WriteGate,
        (limits, pace, clock): (Limits, WatchTimeouts, Clock),
    ) -> Self {
        let calls = connection.gated_calls(limits, gate);
        let role = MemberStores::new(namespaces);
        Self::of_role(
            connection,
            calls,
            Stores::new(namespaces),
            (role, pace, clock),
        )
    }

    /// Asks the API server whether it is ready; its answer is not read.
    pub(in crate::adapters) async fn ask_ready(&self) -> Result<(), CallError> {
        self.calls.read_text("/readyz").await.map(drop)
    }

    /// When the quietest of the watches that a sync needs last heard something, on the wall clock; absent while one of
    /// them has heard nothing yet.
    pub(in crate::adapters) fn heard(&self) -> Option<Timestamp> {
        let needed = self.stores.watched();
        let heard = needed.iter().map(|store| store.report().heard);
        heard.min().flatten()
    }

    /// What keeps a watch from working, if anything does.
    pub(in crate::adapters) fn failing(&self) -> Option<String> {
        let mut reports = self.watches().into_iter();
        reports.find_map(|report| {
            let error = report.failing?;
            Some(format!("watch of {}: {error}", report.kind))
        })
    }
}

impl KubeMember {
    /// Pods of the workload with this selector that cannot be created (by quota or admission), and since when. Stateful
    /// sets do not say so.
    fn missing(
        &self,
        namespace: &str,
        selector: &str,
        pods: &[Arc<StoredPod>],
    ) -> (u32, Option<Timestamp>) {
        let stores = self.stores.workloads.iter();
        let mut all = stores.flat_map(|store| store.in_namespace(namespace));
        let stuck = all.find(|w| w.stuck.is_some() && w.view.selector == selector);
        let Some(workload) = stuck else {
            return (0, None);
        };
        let there = pods.iter().filter(|pod| !pod.pod.deleting).count();
        let there = u32::try_from(there).unwrap_or(u32::MAX);
        match workload.view.scale.spec.get().saturating_sub(there) {
            0 => (0, None),
            missing => (missing, workload.stuck),
        }
    }
}

impl Member for KubeMember {
    fn capacity(&self, target: &ScaleTarget, selector: &str, like: &PodShape) -> Option<Estimate> {
        self.capacity_for(target, selector, like)
    }

    fn unschedulable(
        &self,
        namespace: &str,
        selector: &str,
    ) -> Result<(Replicas, Option<Timestamp>), ClusterError> {
        let pods = self.selected(namespace, selector)?;
        let mut since: Vec<Timestamp> = pods.iter().filter_map(|p| p.unschedulable()).collect();
        let (missing, stuck) = self.missing(namespace, selector, &pods);
        let count = u32::try_from(since.len()).unwrap_or(u32::MAX);
        since.extend(stuck);
        let oldest = since.into_iter().min().map(|at| self.clock.from_wall(at));
        Ok((Replicas::new(count.saturating_add(missing)), oldest))
    }

    async fn replicas_written_by(
        &self,
        target: &ScaleTarget,
    ) -> Result<Option<String>, ClusterError> {
        let path = self.path(target).await?;
        let read = self.calls.read::<Managed>(&path).await;
        let object = read.map_err(|error| error.about(target.to_string()))?;
        let managed = object.metadata.managed_fields.unwrap_or_default();
        Ok(last_writer(&managed))
    }

    async fn placed_for(&self, target: &ScaleTarget) -> Result<Option<String>, ClusterError> {
        let path = self.path(target).await?;
        let read = self.calls.read::<Managed>(&path).await;
        let object = read.map_err(|error| error.about(target.to_string()))?;
        let mut annotations = object.metadata.annotations.unwrap_or_default();
        Ok(annotations.remove(FLEET_UID))
    }

    async fn place(&self, manifest: &Value) -> Result<(), ClusterError> {
        let target = target_of(manifest);
        let path = self.path(&target).await?;
        let applied = writes::apply_at(&self.calls, &path, manifest).await;
        applied
            .map(drop)
            .map_err(|error| error.about(target.to_string()))
    }

    async fn remove(&self, target: &ScaleTarget, uid: &str) -> Result<(), ClusterError> {
        let path = match self.path(target).await {
            // A cluster without the kind has no object of it.
            Err(ClusterError::NotScalable { .. }) => return Ok(()),
            path => path?,
        };
        let deleted = writes::delete_at(&self.calls, &path, uid).await;
        deleted.map_err(|error| error.about(target.to_string()))
    }
}

/// The manager that wrote `spec.replicas` last, unless it is one of [`OURS`].
fn last_writer(managed: &[ManagedFields]) -> Option<String> {
    let replicas = |m: &&ManagedFields| {
        let fields = m.fields_v1.as_ref();
        fields.is_some_and(|f| f.pointer("/f:spec/f:replicas").is_some())
    };
    let last = managed.iter().filter(replicas).max_by_key(|m| m.time)?;
    (!OURS.contains(&last.manager.as_str())).then(|| last.manager.clone())
}

/// What a manifest is about, as far as it says.
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
