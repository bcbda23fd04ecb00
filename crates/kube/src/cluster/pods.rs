//! Stored form of a pod, and the parts of a pod template that are read.
//!
//! A pod has two kinds of requests: those of its containers, as the HPA controller counts them, and those that the
//! scheduler reserves, with init containers and overhead. Whether a pod counts for a metric is left to `domain::hpa`.

use std::{collections::BTreeMap, sync::Arc};

use foretide_domain::{
    Labels,
    observation::{Container, Phase, Pod, Readiness, Requests, Status},
};
use foretide_federate::{ContainerRole, PodShape, effective_requests};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{
    decode::{Conditions, Meta, amounts, read},
    labels::PackedLabels,
    nodes::scheduling::SchedulingConstraints,
    stored::Stored,
};

/// A pod and its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPod {
    pub labels: PackedLabels,
    /// The pod; its times are wall-clock times.
    pub pod: Arc<Pod>,
    /// The node, or the requirements on one.
    pub placement: Placement,
    /// The amounts that the scheduler reserves, if they are not the sum of the containers.
    reserved: Option<Box<Requests>>,
}

/// The node of a pod, or its requirements on one.
#[derive(Debug, Clone, PartialEq)]
pub enum Placement {
    /// A pod on this node.
    Bound(Arc<str>),
    /// A pod that has no node yet.
    Pending(Box<PodShape>),
    /// A pod that fits no node since this time.
    Unschedulable(Timestamp, Box<PodShape>),
}

/// The parts of a pod's spec that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    containers: Vec<ContainerSpec>,
    init_containers: Option<Vec<ContainerSpec>>,
    resources: Option<Resources>,
    overhead: Option<BTreeMap<String, String>>,
    node_name: Option<String>,
}

#[derive(Deserialize)]
struct PodObject {
    metadata: Meta,
    spec: PodSpec,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerSpec {
    name: String,
    restart_policy: Option<String>,
    resources: Option<Resources>,
}

#[derive(Deserialize)]
struct Resources {
    requests: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    phase: Option<String>,
    start_time: Option<Timestamp>,
    conditions: Option<Conditions>,
}

// === impl StoredPod ===

impl Stored for StoredPod {
    fn decode(object: Value) -> Result<Self, String> {
        let constraints = match object.pointer("/spec/nodeName") {
            None => SchedulingConstraints::of(object.pointer("/spec")),
            // A pod with a node is not scheduled again.
            Some(_) => SchedulingConstraints::default(),
        };
        let PodObject {
            metadata,
            spec,
            status,
        } = read(object)?;
        let labels = metadata.labels.unwrap_or_default();
        let unschedulable = status.as_ref().and_then(PodStatus::unschedulable);
        let node = spec.node_name.as_deref().filter(|node| !node.is_empty());
        let placement = if let Some(node) = node {
            Placement::Bound(node.into())
        } else {
            // What a pod needs of a node is of interest only while it has none.
            let shape = Box::new(spec.shape(&constraints, &labels)?);
            match unschedulable {
                None => Placement::Pending(shape),
                Some(since) => Placement::Unschedulable(since, shape),
            }
        };
        let reserved = spec.reserves_more().then(|| spec.reserved());
        let reserved = reserved.transpose()?.map(Box::new);
        let ready = status.as_ref().and_then(PodStatus::readiness);
        let pod = Pod {
            name: metadata.name.into(),
            phase: status.as_ref().map_or(Phase::Unknown, PodStatus::phase),
            deleting: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp,
            ready,
            started: status.and_then(|status| status.start_time),
            pod_level_requests: spec.pod_level_requests()?,
            containers: spec.containers()?,
        };
        Ok(Self {
            labels: PackedLabels::new(&labels),
            pod: Arc::new(pod),
            placement,
            reserved,
        })
    }

    fn labels(&self) -> Option<&PackedLabels> {
        Some(&self.labels)
    }

    fn share_labels(&mut self, labels: PackedLabels) {
        self.labels = labels;
    }
}

impl StoredPod {
    /// Time since when no node fits, if none does; wall clock.
    pub fn unschedulable(&self) -> Option<Timestamp> {
        match self.placement {
            Placement::Unschedulable(since, _) if !self.pod.deleting => Some(since),
            _ => None,
        }
    }

    /// The amounts that the scheduler reserves for the pod; several of a resource add up.
    pub fn reserved(&self) -> impl Iterator<Item = (&str, i64)> {
        let containers = match self.reserved {
            Some(_) => &[],
            None => &*self.pod.containers,
        };
        self.reserved
            .as_deref()
            .into_iter()
            .chain(containers.iter().map(|container| &container.requests))
            .flat_map(Requests::iter)
    }
}

// === impl PodStatus ===

impl PodStatus {
    fn phase(&self) -> Phase {
        phase(self.phase.as_deref())
    }

    fn unschedulable(&self) -> Option<Timestamp> {
        let scheduled = self.conditions.as_ref()?.of("PodScheduled")?;
        match (&*scheduled.status, scheduled.reason.as_deref()) {
            ("False", Some("Unschedulable")) => Some(scheduled.since()),
            _ => None,
        }
    }

    fn readiness(&self) -> Option<Readiness> {
        let ready = self.conditions.as_ref()?.of("Ready")?;
        let status = match ready.status.as_str() {
            "True" => Status::True,
            "False" => Status::False,
            _ => Status::Unknown,
        };
        // The transition time is optional; without it the HPA controller reads the zero time.
        let since = ready.since();
        Some(Readiness { status, since })
    }
}

/// The phase of this name.
pub fn phase(name: Option<&str>) -> Phase {
    match name {
        Some("Pending") => Phase::Pending,
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        _ => Phase::Unknown,
    }
}

// === impl PodSpec ===

impl PodSpec {
    /// App containers and native sidecars: the containers that run as long as the pod.
    pub fn containers(self) -> Result<Arc<[Container]>, String> {
        let mut all = self.containers;
        let init = self.init_containers.into_iter().flatten();
        all.extend(init.filter(ContainerSpec::is_sidecar));
        all.into_iter().map(ContainerSpec::container).collect()
    }

    /// Requirements on a node of a pod with these labels.
    pub fn shape(
        &self,
        constraints: &SchedulingConstraints,
        labels: &Labels,
    ) -> Result<PodShape, String> {
        Ok(constraints.shape(self.reserved()?, labels))
    }

    /// True if the scheduler may reserve more than the sum of the containers.
    fn reserves_more(&self) -> bool {
        self.init_containers.is_some() || self.overhead.is_some() || self.resources.is_some()
    }

    /// Amounts that the scheduler reserves.
    fn reserved(&self) -> Result<Requests, String> {
        let mut all = Vec::new();
        for init in self.init_containers.iter().flatten() {
            all.push((init.init_role(), init.requests()?));
        }
        for app in &self.containers {
            all.push((ContainerRole::App, app.requests()?));
        }
        let of_pod = self.pod_level_requests()?.unwrap_or_default();
        let overhead = amounts(self.overhead.clone(), |it| format!("spec.overhead.{it}"))?;
        Ok(effective_requests(&all, &of_pod, &overhead))
    }

    fn pod_level_requests(&self) -> Result<Option<Requests>, String> {
        let written = self.resources.as_ref().and_then(|r| r.requests.clone());
        let Some(written) = written else {
            return Ok(None);
        };
        amounts(Some(written), |it| {
            format!("requests.{it} of the pod itself")
        })
        .map(Some)
    }
}

// === impl ContainerSpec ===

impl ContainerSpec {
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }

    /// Role of an init container.
    fn init_role(&self) -> ContainerRole {
        if self.is_sidecar() {
            ContainerRole::Sidecar
        } else {
            ContainerRole::Init
        }
    }

    fn requests(&self) -> Result<Requests, String> {
        let written = self.resources.as_ref().and_then(|r| r.requests.clone());
        amounts(written, |it| format!("requests.{it} of {}", self.name))
    }

    fn container(self) -> Result<Container, String> {
        let requests = self.requests()?;
        Ok(Container {
            name: self.name.into(),
            requests,
        })
    }
}
