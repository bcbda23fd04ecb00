//! What we keep of a pod, and what a pod template tells about the pods it makes.
//!
//! The error of a pod that cannot be read names the field. Requests are those of the containers as the HPA counts them,
//! and beside them what the scheduler reserves. It refuses to say whether a pod counts: the calculator does.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{
    decode::{Meta, OnClock, amounts, read},
    nodes::scheduling::SchedulingConstraints,
    store::{Label, Stored},
};
use crate::{
    clock::Clock,
    domain::{
        federate::{ContainerRole, PodShape, effective_requests},
        hpa::Labels,
        observation::{Container, Phase, Pod, Readiness, Requests, Status},
    },
};

/// A pod, and the labels it is found by.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoredPod {
    labels: Box<[Label]>,
    /// The pod; its times are wall-clock times.
    pub(super) pod: Arc<Pod>,
    /// Where it is.
    pub(super) place: Place,
    /// What the scheduler reserves, where that is not simply the sum of its containers.
    reserved: Option<Box<Requests>>,
}

/// Where a pod is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    /// On a node.
    Node(Arc<str>),
    /// On none yet; with what it needs.
    Waiting(Box<PodShape>),
    /// On none because no node has room for it, since then; with what it needs.
    Unschedulable(Timestamp, Box<PodShape>),
}

/// The parts of a pod's spec that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodSpec {
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
        let placing = match object.pointer("/spec/nodeName") {
            None => SchedulingConstraints::of(object.pointer("/spec")),
            // Where it may run is of no interest any more.
            Some(_) => SchedulingConstraints::default(),
        };
        let PodObject {
            metadata,
            spec,
            status,
        } = read(object)?;
        let labels = metadata.labels.unwrap_or_default();
        let unschedulable = status.as_ref().and_then(PodStatus::unschedulable);
        let place = match spec.node_name.as_deref().filter(|node| !node.is_empty()) {
            Some(node) => Place::Node(node.into()),
            None => Place::without(unschedulable, spec.shape(&placing, &labels)?),
        };
        let reserved = spec.is_more_than_containers();
        let reserved = reserved
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
        let labels = labels
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        Ok(Self {
            labels,
            pod: Arc::new(pod),
            place,
            reserved,
        })
    }

    fn labels(&self) -> &[Label] {
        &self.labels
    }
}

impl StoredPod {
    /// Since when no node has room for it, if so; wall clock.
    pub(super) fn unschedulable(&self) -> Option<Timestamp> {
        match self.place {
            Place::Unschedulable(since, _) if !self.pod.deleting => Some(since),
            _ => None,
        }
    }

    /// Adds what the scheduler reserves for it.
    pub(super) fn reserve(&self, add: &mut impl FnMut(&str, i64)) {
        let of_containers = self.pod.containers.iter().map(|c| &c.requests);
        let (reserved, summed) = match &self.reserved {
            Some(reserved) => (Some(&**reserved), None),
            None => (None, Some(of_containers)),
        };
        for requests in reserved.into_iter().chain(summed.into_iter().flatten()) {
            requests.iter().for_each(|(name, milli)| add(name, milli));
        }
    }
}

impl Place {
    fn without(unschedulable: Option<Timestamp>, shape: PodShape) -> Self {
        let shape = Box::new(shape);
        match unschedulable {
            None => Self::Waiting(shape),
            Some(since) => Self::Unschedulable(since, shape),
        }
    }
}

impl OnClock for Pod {
    fn on(&self, clock: &Clock) -> Self {
        let ready = |at: Readiness| Readiness {
            since: clock.from_wall(at.since),
            ..at
        };
        Self {
            ready: self.ready.map(ready),
            created: self.created.map(|at| clock.from_wall(at)),
            started: self.started.map(|at| clock.from_wall(at)),
            ..self.clone()
        }
    }
}

// === impl PodStatus ===

impl PodStatus {
    fn phase(&self) -> Phase {
        match self.phase.as_deref() {
            Some("Pending") => Phase::Pending,
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Unknown,
        }
    }

    fn unschedulable(&self) -> Option<Timestamp> {
        let conditions = self.conditions.as_ref()?;
        let waits = conditions.iter().find(|c| {
            c.kind == "PodScheduled"
                && c.status == "False"
                && c.reason.as_deref() == Some("Unschedulable")
        });
        Some(waits?.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH))
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
        // The API server demands no transition time; the zero time is what upstream reads then.
        let since = ready.last_transition_time.unwrap_or(Timestamp::UNIX_EPOCH);
        Some(Readiness { status, since })
    }
}

// === impl PodSpec ===

impl PodSpec {
    /// App containers and native sidecars: those whose requests count for as long as the pod runs.
    pub(super) fn containers(self) -> Result<Arc<[Container]>, String> {
        let sidecars = self.init_containers.into_iter().flatten();
        let sidecars = sidecars.filter(ContainerSpec::is_sidecar);
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

    /// What a pod with these labels needs of a node.
    pub(super) fn shape(
        &self,
        placing: &SchedulingConstraints,
        labels: &Labels,
    ) -> Result<PodShape, String> {
        Ok(placing.shape(self.reserved()?, labels))
    }

    /// Whether the scheduler reserves something else than the sum of containers and sidecars.
    fn is_more_than_containers(&self) -> bool {
        self.init_containers.is_some() || self.overhead.is_some() || self.resources.is_some()
    }

    /// What the scheduler reserves.
    fn reserved(&self) -> Result<Requests, String> {
        let of = |role: ContainerRole, c: &ContainerSpec| Ok((role, c.requests()?));
        let starting = self.init_containers.iter().flatten();
        let starting = starting.map(|c| of(c.role_at_start(), c));
        let apps = self.containers.iter().map(|c| of(ContainerRole::App, c));
        let all: Vec<(ContainerRole, Requests)> =
            starting.chain(apps).collect::<Result<_, String>>()?;
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

    /// Its part if it stands among the init containers.
    fn role_at_start(&self) -> ContainerRole {
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
    let milli = |(resource, amount): (String, String)| match super::milli_value(&amount) {
        Ok(milli) => Ok((resource, milli)),
        Err(expected) => Err(format!("requests.{resource} of {of}: {expected}")),
    };
    written.into_iter().map(milli).collect()
}
