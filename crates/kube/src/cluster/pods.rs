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
    decode::{Meta, amounts, read},
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
    conditions: Option<Vec<PodCondition>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    last_transition_time: Option<Timestamp>,
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
        let reserves_more = spec.reserves_more_than_containers();
        let reserved = reserves_more
            .then(|| spec.reserved().map(Box::new))
            .transpose()?;
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

    /// Calls `add` with the amounts that the scheduler reserves for the pod.
    pub fn add_reserved(&self, add: &mut impl FnMut(&str, i64)) {
        let mut add_all =
            |requests: &Requests| requests.iter().for_each(|(name, milli)| add(name, milli));
        match &self.reserved {
            Some(reserved) => add_all(reserved),
            None => self
                .pod
                .containers
                .iter()
                .for_each(|c| add_all(&c.requests)),
        }
    }
}

// === impl PodStatus ===

impl PodStatus {
    fn phase(&self) -> Phase {
        phase(self.phase.as_deref())
    }

    fn unschedulable(&self) -> Option<Timestamp> {
        let conditions = self.conditions.as_ref()?;
        let unschedulable = conditions.iter().find(|c| {
            c.kind == "PodScheduled"
                && c.status == "False"
                && c.reason.as_deref() == Some("Unschedulable")
        });
        let since = unschedulable?.last_transition_time;
        // Without a time, the pod counts as having waited for a long time.
        Some(since.unwrap_or(Timestamp::UNIX_EPOCH))
    }

    fn readiness(&self) -> Option<Readiness> {
        let ready = self
            .conditions
            .as_ref()?
            .iter()
            .find(|c| c.kind == "Ready")?;
        let status = match ready.status.as_str() {
            "True" => Status::True,
            "False" => Status::False,
            _ => Status::Unknown,
        };
        // The transition time is optional; without it the HPA controller reads the zero time.
        let since = ready.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH);
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
        let init = self.init_containers.into_iter().flatten();
        let sidecars = init.filter(ContainerSpec::is_sidecar);
        let container = |c: ContainerSpec| {
            let requests = c.requests()?;
            Ok(Container {
                name: c.name.into(),
                requests,
            })
        };
        self.containers
            .into_iter()
            .chain(sidecars)
            .map(container)
            .collect()
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
    fn reserves_more_than_containers(&self) -> bool {
        self.init_containers.is_some() || self.overhead.is_some() || self.resources.is_some()
    }

    /// Amounts that the scheduler reserves.
    fn reserved(&self) -> Result<Requests, String> {
        let of = |role: ContainerRole, c: &ContainerSpec| Ok((role, c.requests()?));
        let init = self.init_containers.iter().flatten();
        let init = init.map(|c| of(c.init_role(), c));
        let apps = self.containers.iter().map(|c| of(ContainerRole::App, c));
        let all: Vec<(ContainerRole, Requests)> =
            init.chain(apps).collect::<Result<_, String>>()?;
        let of_pod = self.pod_level_requests()?.unwrap_or_default();
        let overhead = amounts(self.overhead.clone(), "spec.overhead")?;
        Ok(effective_requests(&all, &of_pod, &overhead))
    }

    fn pod_level_requests(&self) -> Result<Option<Requests>, String> {
        let written = self.resources.as_ref().and_then(|r| r.requests.clone());
        let Some(written) = written else {
            return Ok(None);
        };
        requests(written, "the pod itself").map(Some)
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
        requests(written.unwrap_or_default(), &self.name)
    }
}

fn requests(written: BTreeMap<String, String>, of: &str) -> Result<Requests, String> {
    let milli = |(resource, amount): (String, String)| match super::decode::milli_value(&amount) {
        Ok(milli) => Ok((resource, milli)),
        Err(expected) => Err(format!("requests.{resource} of {of}: {expected}")),
    };
    written.into_iter().map(milli).collect()
}
